/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "clusters.h"
#include "util.h"

#define LOW_BITS UINT64_C (0x5555555555555555)

struct clusters *
clusters_new (uint32_t end, unsigned max)
{
  unsigned nr = (end + CLUSTERS_WINDOW - 1) / CLUSTERS_WINDOW;
  struct clusters *c = calloc (1, sizeof *c + nr * sizeof c->window[0]);

  if (!c)
    return NULL;
  c->end = end;
  c->nr_windows = nr;
  c->max = max;
  c->all_free = calloc (1, sizeof *c->all_free);
  if (!c->all_free) {
    free (c);
    return NULL;
  }
  return c;
}

void
clusters_free (struct clusters *c)
{
  unsigned i;

  if (!c)
    return;
  for (i = 0; i < c->nr_windows; ++i)
    if (c->window[i] != c->all_free)
      free (c->window[i]);
  free (c->all_free);
  free (c);
}

/* -- Questions ----------------------------------------------------------- */

/* The next word's clusters from n to at most `last`, as a mask of their low
 * bits, and the word; FRESH are those of which nothing is known, and those that
 * are no clusters.
 */
static uint64_t
load_word (const struct clusters *c, uint32_t n, uint32_t last,
           uint64_t *mask)
{
  const uint64_t fresh = LOW_BITS * CLUSTER_FRESH;
  unsigned shift = n % CLUSTERS_IN_WORD;
  uint64_t nr = min_u64 ((uint64_t) last - n + 1, CLUSTERS_IN_WORD - shift);
  uint32_t base = n - shift;
  const struct clusters_window *w;
  uint64_t word, none = 0;

  *mask = (nr == CLUSTERS_IN_WORD ? LOW_BITS
           : LOW_BITS & ((UINT64_C (1) << 2 * nr) - 1)) << 2 * shift;
  if (base >= c->end)
    return fresh;
  w = atomic_load_explicit (&c->window[n / CLUSTERS_WINDOW],
                            memory_order_acquire);
  if (!w)
    return fresh;
  word = atomic_load_explicit (&w->word[n % CLUSTERS_WINDOW /
                                        CLUSTERS_IN_WORD],
                               memory_order_acquire);
  if (base == 0)
    none |= 0xf;                /* 0 and 1 */
  if (c->end - base < CLUSTERS_IN_WORD)
    none |= UINT64_MAX << 2 * (c->end - base);
  return (word & ~none) | (fresh & none);
}

/* Low bits of those clusters of a word that are in that state. */
static uint64_t
in_state (uint64_t word, enum cluster_state state)
{
  uint64_t differ = word ^ LOW_BITS * state;

  return ~(differ | differ >> 1) & LOW_BITS;
}

/* Is any of [first, last] in that state; or not in it, if `other`? */
static bool
finds (const struct clusters *c, uint32_t first, uint32_t last,
       enum cluster_state state, bool other)
{
  uint64_t mask, found, n;

  for (n = first; n <= last;
       n = align_down (n, CLUSTERS_IN_WORD) + CLUSTERS_IN_WORD) {
    found = in_state (load_word (c, n, last, &mask), state);
    if ((other ? ~found : found) & mask)
      return true;
  }
  return false;
}

bool
clusters_all (const struct clusters *c, uint32_t first, uint32_t last,
              enum cluster_state state)
{
  return !finds (c, first, last, state, true);
}

bool
clusters_any (const struct clusters *c, uint32_t first, uint32_t last,
              enum cluster_state state)
{
  return finds (c, first, last, state, false);
}

/* -- Changes ------------------------------------------------------------- */

void
clusters_know (struct clusters *c, uint32_t n)
{
  if (n < c->end && !c->window[n / CLUSTERS_WINDOW])
    c->window[n / CLUSTERS_WINDOW] = c->all_free;
}

/* A window of its own instead of all_free; NULL, and not known any more, if
 * there is no room.
 */
static struct clusters_window *
make_window (struct clusters *c, unsigned i)
{
  struct clusters_window *w = c->present < c->max ? calloc (1, sizeof *w)
    : NULL;

  if (w)
    c->present++;
  c->window[i] = w;
  return w;
}

void
clusters_set (struct clusters *c, uint32_t n, enum cluster_state state)
{
  unsigned i = n / CLUSTERS_WINDOW, shift = 2 * (n % CLUSTERS_IN_WORD);
  struct clusters_window *w;
  _Atomic uint64_t *word;

  if (!clusters_has (c, n))
    return;
  w = c->window[i];
  if (w == c->all_free && state != CLUSTER_FREE)
    w = make_window (c, i);
  if (!w || w == c->all_free)
    return;
  word = &w->word[n % CLUSTERS_WINDOW / CLUSTERS_IN_WORD];
  atomic_store_explicit (word, (atomic_load_explicit (word,
                                                      memory_order_relaxed) &
                                ~(UINT64_C (3) << shift)) |
                         (uint64_t) state << shift, memory_order_release);
}

void
clusters_unsettle (struct clusters *c)
{
  unsigned i, k;

  for (i = 0; i < c->nr_windows; ++i) {
    struct clusters_window *w = c->window[i];

    if (!w || w == c->all_free)
      continue;
    for (k = 0; k < CLUSTERS_WINDOW / CLUSTERS_IN_WORD; ++k)
      w->word[k] = ~in_state (w->word[k], CLUSTER_FREE) & LOW_BITS;
  }
}
