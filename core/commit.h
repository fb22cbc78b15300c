/* SPDX-License-Identifier: BSD-3-Clause */

/* Group commit: how writes become durable, and the error latch.
 *
 * A request that must be durable before it is acknowledged (FUA, or a FLUSH)
 * joins the group that gathers.  If no sync is under way it leads: it seals
 * the group and issues one batch of ranged syncs for all members.  While that
 * runs the next group gathers, and one of its members leads it as soon as the
 * sync has ended.  So a lone writer syncs at once, with no timer, and any
 * number of concurrent ones share a sync.  Where the recent past shows that
 * requests come in bursts, the leader waits a moment for the rest of the
 * burst: the group is plugged.
 *
 *      commit_range(), commit_all(), ...
 *                    |
 *                    v   no sync is under way, and more are expected
 *               GATHERING ------------------------------> PLUGGED
 *                 |   |                                    |   |
 *                 |   | no sync is under way,     all have |   |
 *                 |   | nobody else expected     come, or  |   |
 *                 |   v                       time is up   |   |
 *                 |  ISSUED <------------------------------+   |
 *         latched |   |   |                                    | latched
 *                 |   |   | all syncs succeeded                |
 *                 |   |   +---------------------> DURABLE      |
 *                 |   | one failed                             |
 *                 v   v                                        |
 *                FAILED <--------------------------------------+
 *
 * Groups have numbers that grow by one; a group's state follows from its
 * number and a few others (commit.c, group_state()), so that nothing has to
 * be allocated or reference-counted.
 *
 * Rules:
 *
 * 1. A member's data is in the page cache, or on the device, before it joins
 *    (the sync covers only what had ended before it was submitted).
 * 2. Ranges of a group are merged where they touch or lie near each other,
 *    and become the whole image where they are too many.  They become one range,
 *    from the first byte to the last, if that makes the sync write back little
 *    that nobody waits for (`loose`): what is dirty between them is others'.
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
 * The plug.  Rules 5 to 8, which decide about it, are in plug.h.
 *
 * 9. Who completes a plugged group leads it, so that nobody has to be woken
 *    first.  A FLUSH does that, too, and is not made to wait: its client has
 *    sent what it wanted to send.
 *
 * 10. Bytes of those who gather behind a sync are written back meanwhile, so
 *    that the sync for them finds less to do.
 *
 * Lock: one mutex inside, never held over I/O.
 */

#ifndef FATBATCH_COMMIT_H
#define FATBATCH_COMMIT_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "disk.h"
#include "plug.h"

#define COMMIT_RANGES_MAX 32

/* What costs less to write back than a second sync does. */
#define COMMIT_NEAR (128 * 1024)

struct commit_range { uint64_t start, end; };

/* Sorted, not touching.  `all` stands for the whole image. */
struct commit_ranges {
  unsigned nr;
  bool all;
  struct commit_range range[COMMIT_RANGES_MAX];
};

/* Who waits. */
enum commit_kind {
  COMMIT_FUA,                   /* commit_range(), commit_many() */
  COMMIT_FLUSH,                 /* commit_all() */
  COMMIT_BACKGROUND,            /* commit_background() */
};
#define COMMIT_KINDS 3

/* Bucket i of a histogram counts what is in [2^i, 2^(i+1)); the last one all
 * that is larger, too, and the first one 0.
 */
#define COMMIT_SIZE_BUCKETS 12  /* members */
#define COMMIT_TIME_BUCKETS 36  /* ns: the last begins at 34 s */

struct commit_stats {
  uint64_t groups;              /* batches of syncs submitted */
  uint64_t members;             /* requests that waited for one */
  uint64_t syncs;               /* ranged syncs, all batches together */
  uint64_t saved;               /* batches that sharing has saved */
  uint64_t plugs;               /* groups that were plugged */
  uint64_t plugs_complete;      /* of these, all that were expected came */
  uint64_t plug_ns;             /* time in plugs, all together */
  uint64_t sizes[COMMIT_SIZE_BUCKETS]; /* groups by members */
  /* Members by the time from joining to the sync's end. */
  uint64_t waits[COMMIT_KINDS][COMMIT_TIME_BUCKETS];
};

/* Time, for the plug: the system's, but for tests. */
struct commit_clock {
  void *opaque;
  uint64_t (*now) (void *opaque); /* ns, from anywhere, never backwards */
  /* Wait until cond is signalled or now() is `deadline`, as
   * pthread_cond_timedwait() does; it may return too early.
   */
  void (*wait) (void *opaque, pthread_cond_t *cond, pthread_mutex_t *lock,
                uint64_t deadline);
};

struct commit {
  struct disk *disk;            /* borrowed */
  bool never_sync;              /* cache=unsafe: everything is durable */
  struct commit_clock clock;    /* a test may replace it before any request */

  /* Bytes that may be dirty and that nobody waits for: those of plain writes
   * since the last sync of everything.  Not counted any more when it is more
   * than COMMIT_NEAR.
   */
  atomic_uint_fast64_t loose;

  pthread_mutex_t lock;         /* protects what follows */
  pthread_cond_t may_lead;      /* to the first member: none is under way */
  pthread_cond_t ended[2];      /* to all other members of group n: [n % 2] */
  uint64_t gathering;           /* number of the group that gathers */
  uint64_t durable;             /* groups up to this one have ended well */
  uint64_t failed;              /* this group and later: FAILED; 0 = none */
  bool issued;                  /* the group before `gathering` is ISSUED */
  int error;                    /* -errno for the members of `failed` */
  uint64_t error_group;         /* the group whose sync failed; 0 = none */

  /* Of the gathering group: */
  struct commit_ranges ranges;
  unsigned members;
  bool has_flush;

  struct plug plug;
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

/* The same for who is in no hurry, and makes nobody wait for others. */
extern int commit_background (struct commit *c,
                              const struct commit_range *ranges, size_t nr);

/* Wait until all that was written before is durable. */
extern int commit_all (struct commit *c);

/* So many bytes have been written without being committed (rule 2). */
static inline void
commit_note_write (struct commit *c, uint64_t length)
{
  if (c->disk->align == 1 &&
      atomic_load_explicit (&c->loose, memory_order_relaxed) <= COMMIT_NEAR)
    atomic_fetch_add_explicit (&c->loose, length, memory_order_relaxed);
}

/* A write failed: from now on nothing pretends (rule 4).  Members of a group
 * that is issued already are told their own sync's result.
 */
extern void commit_fail (struct commit *c);

/* Has anything failed?  For reports. */
extern bool commit_has_failed (struct commit *c);

extern void commit_get_stats (struct commit *c, struct commit_stats *ret);

/* Add [start, end) to ranges (rule 2, but for `loose`).  Pure; exported for its
 * test.
 */
extern void commit_ranges_add (struct commit_ranges *ranges,
                               uint64_t start, uint64_t end);

#endif /* FATBATCH_COMMIT_H */
