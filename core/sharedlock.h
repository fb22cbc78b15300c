/* SPDX-License-Identifier: BSD-3-Clause */

/* A read-write lock for data that each request reads for a moment, and that
 * hardly ever changes.  A reader costs two atomic additions to a counter that
 * it shares with its processor only; a writer waits until all counters are 0.
 *
 * Rules:
 *
 * 1. Readers don't block while they hold it, and don't take it again: a
 *    writer waits for them in a loop that yields.
 * 2. A writer that waits keeps new readers out.
 */

#ifndef FATBATCH_SHAREDLOCK_H
#define FATBATCH_SHAREDLOCK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "percpu.h"

struct sharedlock {
  struct sharedlock_slot {
    atomic_uint readers;
  } __attribute__ ((aligned (PERCPU_LINE))) slot[PERCPU_SLOTS];
  /* On a line of their own, which changes with the data only. */
  atomic_bool writing __attribute__ ((aligned (PERCPU_LINE)));
  pthread_mutex_t writer;       /* held from the wait for readers on */
};

extern void sharedlock_init (struct sharedlock *sl);
extern void sharedlock_release (struct sharedlock *sl);

extern void sharedlock_lock (struct sharedlock *sl);
extern void sharedlock_unlock (struct sharedlock *sl);

/* Wait for the writer, as long as there is one.  For the function below. */
extern void sharedlock_wait (struct sharedlock *sl);

/* Returns the slot, for sharedlock_unlock_shared(). */
static inline unsigned
sharedlock_lock_shared (struct sharedlock *sl)
{
  for (;;) {
    unsigned slot = percpu_slot ();

    /* This addition and the load, against the store and the loads of
     * sharedlock_lock(): in any order at least one side sees the other.
     */
    atomic_fetch_add (&sl->slot[slot].readers, 1);
    if (!atomic_load (&sl->writing))
      return slot;
    atomic_fetch_sub (&sl->slot[slot].readers, 1);
    sharedlock_wait (sl);
  }
}

static inline void
sharedlock_unlock_shared (struct sharedlock *sl, unsigned slot)
{
  atomic_fetch_sub_explicit (&sl->slot[slot].readers, 1,
                             memory_order_release);
}

#endif /* FATBATCH_SHAREDLOCK_H */
