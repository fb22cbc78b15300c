/* SPDX-License-Identifier: BSD-3-Clause */

/* Range locks: requests that overlap run one after the other, in the order
 * in which they arrived; all others run at once.  Why arrival order: a
 * client that reconnects sends its unfinished requests again, and then newer
 * ones; an old write that was stalled must not land over newer data.
 *
 * Rules:
 *
 * 1. Two ranges conflict if they overlap and at least one is exclusive.
 * 2. A range waits for exactly the conflicting ranges that arrived before
 *    it.  Nobody overtakes (no starvation), and who waits only ever waits
 *    for older ones (no deadlock, as long as a thread holds one range at a
 *    time).
 * 3. An empty range conflicts with nothing.
 *
 * The ranges are kept in shards: the disk is cut into stripes, which are dealt
 * out to the shards in turn, and a range is in the list of each shard of which
 * it has a stripe.  Small requests are in one, and requests to different
 * places meet neither each other's mutex nor each other in a list.
 *
 * Locks: one mutex for each shard, held for a walk over the shard's ranges
 * (at most as many as there are requests at once), never over I/O.  Whoever
 * needs several takes them in ascending order, and holds all of them when it
 * arrives, so that the order of arrival is the same in each shard.
 */

#ifndef FATBATCH_RANGELOCK_H
#define FATBATCH_RANGELOCK_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RANGELOCK_SHARDS 16
#define RANGELOCK_STRIPE (256 * 1024)   /* bytes */

/* A range held or waited for.  Lives on its thread's stack. */
struct range {
  uint64_t start, end;          /* [start, end) */
  bool exclusive;
  unsigned shards;              /* bit n: is in the list of shard n */
  atomic_uint blockers;         /* older conflicting ranges still held, one
                                   for each shard in which they meet */
  sem_t unblocked;              /* posted when blockers gets to 0 */
  struct range_node {
    struct range *range;
    struct range_node *prev, *next;     /* in order of arrival */
  } node[RANGELOCK_SHARDS];     /* those in shards only are used */
};

struct rangelock {
  struct rangelock_shard {
    pthread_mutex_t lock;
    struct range_node *oldest, *newest;
  } __attribute__ ((aligned (64))) shard[RANGELOCK_SHARDS];
};

extern void rangelock_init (struct rangelock *rl);
extern void rangelock_release (struct rangelock *rl);

/* Fills *range and waits until it is held.  Returns whether it had to wait,
 * for the statistics.
 */
extern bool range_lock (struct rangelock *rl, struct range *range,
                        uint64_t start, uint64_t end, bool exclusive);
extern void range_unlock (struct rangelock *rl, struct range *range);

/* How many ranges wait now.  For tests: it may have changed on return. */
extern unsigned rangelock_count_waiting (struct rangelock *rl);

#endif /* FATBATCH_RANGELOCK_H */
