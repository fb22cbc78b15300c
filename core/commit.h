/* SPDX-License-Identifier: BSD-3-Clause */

/* Group commit: how writes become durable, and the error latch.
 *
 * A request that must be durable before it is acknowledged (FUA, or a FLUSH)
 * joins the group that gathers.  If no sync is under way it leads: it seals
 * the group and submits one batch of ranged syncs for all members.  While
 * that runs the next group gathers, and one of its members leads it as soon
 * as the sync has ended.  So a lone writer syncs at once, with no timer, and
 * any number of concurrent ones share a sync.
 *
 *               commit_range(), commit_all()
 *                         |
 *                         v      a leader, none other under way
 *      (empty) ----> GATHERING --------------------------------> ISSUED
 *                         |                                       |   |
 *                         | latched                     all syncs |   | any
 *                         v                             succeeded v   v fails
 *                       FAILED                           DURABLE     FAILED
 *
 * Groups have numbers that grow by one; a group's state follows from its
 * number and four others (commit.c, group_state()), so that nothing has to
 * be allocated or reference-counted.
 *
 * Rules:
 *
 * 1. A member's data is in the page cache, or on the device, before it joins
 *    (the sync covers only what had ended before it was submitted).
 * 2. Ranges of a group are merged where they touch or lie near each other,
 *    and become the whole image where they are too many.
 * 3. One batch of syncs is under way at a time.  The kernel reports a
 *    failed write-back once for each open file (errseq_check_and_advance()):
 *    of two syncs at once, one may be told of the other's lost data and the
 *    other may be told nothing.
 * 4. FAILED is final (D6).  After a failed sync the kernel has dropped the
 *    dirty pages or marked them clean, and a second sync proves nothing.
 *    Members of the failed group get the sync's error; everyone after them,
 *    and everyone after a failed write (commit_fail()), gets -EIO until the
 *    image is opened again.
 *
 * Lock: one mutex inside, never held over I/O.
 */

#ifndef FATBATCH_COMMIT_H
#define FATBATCH_COMMIT_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "disk.h"

#define COMMIT_RANGES_MAX 32

struct commit_range { uint64_t start, end; };

/* Sorted, not touching.  `all` stands for the whole image. */
struct commit_ranges {
  unsigned nr;
  bool all;
  struct commit_range range[COMMIT_RANGES_MAX];
};

struct commit_stats {
  uint64_t groups;              /* batches of syncs submitted */
  uint64_t members;             /* requests that waited for one */
  uint64_t syncs;               /* ranged syncs, all batches together */
};

struct commit {
  struct disk *disk;            /* borrowed */
  bool never_sync;              /* cache=unsafe: everything is durable */

  pthread_mutex_t lock;         /* protects what follows */
  pthread_cond_t changed;       /* a group ended, or was latched */
  uint64_t gathering;           /* number of the group that gathers */
  uint64_t durable;             /* groups up to this one have ended well */
  uint64_t failed;              /* this group and later: FAILED; 0 = none */
  bool issued;                  /* the group before `gathering` is ISSUED */
  int error;                    /* -errno for the members of `failed` */
  uint64_t error_group;         /* the group whose sync failed; 0 = none */
  struct commit_ranges ranges;  /* of the gathering group */
  struct commit_stats stats;
};

extern void commit_init (struct commit *c, struct disk *disk,
                         bool never_sync);
extern void commit_release (struct commit *c);

/* Wait until the bytes [start, end), written before (rule 1), are durable.
 * Returns 0 or -errno (rule 4).
 */
extern int commit_range (struct commit *c, uint64_t start, uint64_t end);

/* Wait until all of these ranges, written before (rule 1), are durable, as
 * one member of a group.  nr may be 0, and ranges may be empty.
 */
extern int commit_many (struct commit *c, const struct commit_range *ranges,
                        size_t nr);

/* Wait until all that was written before is durable. */
extern int commit_all (struct commit *c);

/* A write failed: from now on nothing pretends (rule 4).  Members of a group
 * that is issued already are told their own sync's result.
 */
extern void commit_fail (struct commit *c);

/* Has anything failed?  For reports. */
extern bool commit_has_failed (struct commit *c);

extern void commit_get_stats (struct commit *c, struct commit_stats *ret);

/* Add [start, end) to ranges (rule 2).  Pure; exported for its test. */
extern void commit_ranges_add (struct commit_ranges *ranges,
                               uint64_t start, uint64_t end);

#endif /* FATBATCH_COMMIT_H */
