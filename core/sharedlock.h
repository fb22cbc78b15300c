/* SPDX-License-Identifier: BSD-3-Clause */

/* A read-write lock for data that each request reads and that hardly ever
 * changes.  Readers on different processors do not touch the same cache line:
 * there is a lock for each of a few slots, a reader takes that of its
 * processor, and a writer takes them all.
 *
 * Rules:
 *
 * 1. Whoever holds the lock shared does not take it again.
 * 2. A writer that waits keeps new readers out: under a steady load it would
 *    otherwise wait for ever, since glibc prefers readers.
 */

#ifndef FATBATCH_SHAREDLOCK_H
#define FATBATCH_SHAREDLOCK_H

#include <pthread.h>
#include <stdbool.h>

#include "percpu.h"

struct sharedlock {
  struct sharedlock_slot {
    pthread_rwlock_t lock;
  } __attribute__ ((aligned (PERCPU_LINE))) slot[PERCPU_SLOTS];
};

extern void sharedlock_init (struct sharedlock *sl);
extern void sharedlock_release (struct sharedlock *sl);

/* Returns the slot, for sharedlock_unlock_shared(). */
extern unsigned sharedlock_lock_shared (struct sharedlock *sl);
extern void sharedlock_unlock_shared (struct sharedlock *sl, unsigned slot);

extern void sharedlock_lock (struct sharedlock *sl);
extern void sharedlock_unlock (struct sharedlock *sl);

/* Does somebody hold it exclusively, or wait for that?  For tests: it may
 * have changed on return.
 */
extern bool sharedlock_is_wanted (struct sharedlock *sl);

#endif /* FATBATCH_SHAREDLOCK_H */
