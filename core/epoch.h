/* SPDX-License-Identifier: BSD-3-Clause */

/* Who still uses what has been replaced: readers say when they begin and end,
 * and may block in between; a writer that has put something new in its place
 * waits for those who may have seen the old (as Linux's SRCU does).  Nobody
 * waits for the writer.
 *
 * A reader counts itself in one of two sets of counters, the current one.  The
 * writer makes the other one current, and waits until the old one is empty.
 *
 * Rules:
 *
 * 1. epoch_wait() returns when everybody who entered before its call has left.
 *    Who enters later sees what the writer stored before.
 * 2. Whoever has entered must not call epoch_wait().
 */

#ifndef FATBATCH_EPOCH_H
#define FATBATCH_EPOCH_H

#include <pthread.h>
#include <stdatomic.h>

#include "percpu.h"

struct epoch {
  struct epoch_slot {
    atomic_uint readers[2];
  } __attribute__ ((aligned (PERCPU_LINE))) slot[PERCPU_SLOTS];
  /* On a line of its own, which hardly ever changes. */
  atomic_uint current __attribute__ ((aligned (PERCPU_LINE)));
  pthread_mutex_t writer;       /* one epoch_wait() at a time */
};

/* What epoch_leave() needs. */
typedef atomic_uint *epoch_token;

extern void epoch_init (struct epoch *e);
extern void epoch_release (struct epoch *e);
extern void epoch_wait (struct epoch *e);

/* How many are inside.  One who comes or leaves meanwhile may be counted or
 * not; who stays is.
 */
static inline unsigned
epoch_count (struct epoch *e)
{
  unsigned sum = 0, i;

  for (i = 0; i < PERCPU_SLOTS; ++i)
    sum += atomic_load (&e->slot[i].readers[0]) +
      atomic_load (&e->slot[i].readers[1]);
  return sum;
}

static inline epoch_token
epoch_enter (struct epoch *e)
{
  for (;;) {
    unsigned current = atomic_load (&e->current);
    epoch_token readers = &e->slot[percpu_slot ()].readers[current];

    /* This addition and the load, against the store and the loads of
     * epoch_wait(): in any order at least one side sees the other.
     */
    atomic_fetch_add (readers, 1);
    if (atomic_load (&e->current) == current)
      return readers;
    atomic_fetch_sub (readers, 1);
  }
}

static inline void
epoch_leave (epoch_token readers)
{
  atomic_fetch_sub_explicit (readers, 1, memory_order_release);
}

#endif /* FATBATCH_EPOCH_H */
