/* SPDX-License-Identifier: BSD-3-Clause */

/* What each cluster of a volume is used for, two bits a cluster.
 *
 *   FREE       its FAT entry is 0
 *   FRESH      it is allocated, or nothing is known of it
 *   SETTLED    all of it lies in front of a file's end
 *   DIRECTORY  it belongs to a directory
 *
 * Rules:
 *
 * 1. This is advice (D7): what is wrong here may cost speed or order, and never
 *    a byte.
 * 2. Clusters come in windows, of as many as half a MiB of FAT has entries.  A
 *    window in which all are FREE takes no memory; neither does one of which
 *    nothing is known, in which all are FRESH.
 * 3. Bounded: with `max` windows in memory no more become known.
 * 4. Once it is there a window stays until clusters_free().
 *
 * Lock: clusters_get() and clusters_all() take none, and see each change as a
 * whole.  Changes are made by one thread at a time (the structure lock,
 * tree.h).
 */

#ifndef FATBATCH_CLUSTERS_H
#define FATBATCH_CLUSTERS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define CLUSTERS_WINDOW (128 * 1024)    /* clusters */
#define CLUSTERS_IN_WORD 32

enum cluster_state {
  CLUSTER_FREE, CLUSTER_FRESH, CLUSTER_SETTLED, CLUSTER_DIRECTORY
};

struct clusters_window {
  _Atomic uint64_t word[CLUSTERS_WINDOW / CLUSTERS_IN_WORD];
};

struct clusters {
  uint32_t end;                 /* no cluster has this number, or a larger one;
                                   2 is the first */
  unsigned nr_windows;
  unsigned present, max;        /* in memory */
  struct clusters_window *all_free;     /* stands for all such; unchanged */
  struct clusters_window *_Atomic window[]; /* NULL: nothing is known */
};

/* Nothing is known of clusters 2 to end - 1.  NULL: no memory. */
extern struct clusters *clusters_new (uint32_t end, unsigned max);
/* NULL is fine. */
extern void clusters_free (struct clusters *c);

/* Is it a cluster's number? */
static inline bool
clusters_has (const struct clusters *c, uint32_t n)
{
  return n >= 2 && n < c->end;
}

/* Any number will do: what is no cluster is FRESH. */
static inline enum cluster_state
clusters_get (const struct clusters *c, uint32_t n)
{
  const struct clusters_window *w;

  if (!clusters_has (c, n))
    return CLUSTER_FRESH;
  w = atomic_load_explicit (&c->window[n / CLUSTERS_WINDOW],
                            memory_order_acquire);
  if (!w)
    return CLUSTER_FRESH;
  return atomic_load_explicit (&w->word[n % CLUSTERS_WINDOW /
                                        CLUSTERS_IN_WORD],
                               memory_order_acquire)
    >> 2 * (n % CLUSTERS_IN_WORD) & 3;
}

/* Is anything known of it? */
static inline bool
clusters_is_known (const struct clusters *c, uint32_t n)
{
  return clusters_has (c, n) &&
    atomic_load_explicit (&c->window[n / CLUSTERS_WINDOW],
                          memory_order_acquire);
}

/* Are all of [first, last] in that state, as clusters_get() has it?  Is any? */
extern bool clusters_all (const struct clusters *c, uint32_t first,
                          uint32_t last, enum cluster_state state);
extern bool clusters_any (const struct clusters *c, uint32_t first,
                          uint32_t last, enum cluster_state state);

/* A window of which nothing is known: all of it is FREE.  Does nothing to one
 * that is known.
 */
extern void clusters_know (struct clusters *c, uint32_t n);

/* Nothing happens to one of whose window nothing is known, or if its window
 * can't be had: then nothing is known of that any more.
 */
extern void clusters_set (struct clusters *c, uint32_t n,
                          enum cluster_state state);

/* Everything that is not FREE is FRESH. */
extern void clusters_unsettle (struct clusters *c);

#endif /* FATBATCH_CLUSTERS_H */
