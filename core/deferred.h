/* SPDX-License-Identifier: BSD-3-Clause */

/* Deferred commits (D9): a FUA write to FAT 1 that does nothing but allocate
 * clusters that nothing refers to is acknowledged when it is applied, and made
 * durable a little later; most often by the sync of the write that puts a
 * reference to them into the same sector.  A power cut before that makes the
 * clusters free again, and since nothing refers to them nothing is missing.
 *
 * An item is a sector of FAT 1 with such allocations:
 *
 *              deferred_begin()             deferred_applied()
 *     (absent) ---------------> APPLYING <---------------------- PENDING
 *         ^                        |      ---------------------->    |
 *         |                        |        deferred_begin(): more   |
 *         |                        |        of the same sector       |
 *         +--------------------------------------------------------- +
 *           deferred_synced(): a sync has covered it that began after
 *           it was last applied
 *
 * Rules:
 *
 * 1. What is deferred is recognised from the sector's old and new bytes
 *    (fat_sector_allocates()), and only if its old bytes are durable, or an
 *    item themselves: otherwise other changes would be deferred with it.
 * 2. An item is in the set from before its write is applied until it is
 *    durable.
 * 3. A write that may refer to an item's clusters is applied when the item is
 *    durable, unless it is to the item's own sector, which is written as one.
 *    Once applied it may become durable at any moment.  "May refer" is exact
 *    for one FAT sector, and for directory entries wherever they could be: a
 *    32-byte slot with the cluster's number in its place.  Whatever is not
 *    looked at (several FAT sectors, mirrors in place, zeros over FATs, boot
 *    sectors) may.  When nothing can be made durable any more, such a write
 *    fails.
 * 4. The reference may also be there before the allocation: some guests write
 *    directories first.  So every write that names a cluster, in a slot or in
 *    another FAT sector's entry, leaves its number in `named`, and allocations
 *    of such clusters are not deferred.  Numbers share bits, and bits stay: a
 *    cluster that was named in vain costs a sync, like without all this.
 *    What was named before the image was opened is not known; so that the
 *    first write of a guest which has seen the server restart is not deferred,
 *    a sector's first commit after that is an ordinary one (mirror-fat1.c).
 * 5. A write that is being applied while an item is made may have looked before
 *    there was one, and refer to it all the same.  So nothing is deferred while
 *    others are being applied: either the item's maker sees the other request
 *    (in the epoch), or that one sees the item.
 * 6. An item is durable within the delay after it was made (the thread), and
 *    before the record of a window is cleared: the mirror's write that
 *    repeats it is deferred too, and must not get ahead of it.
 *
 * Lock: one mutex inside, after all others but commit's; not held over I/O.
 */

#ifndef FATBATCH_DEFERRED_H
#define FATBATCH_DEFERRED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "commit.h"
#include "disk.h"
#include "epoch.h"
#include "fattable.h"
#include "stats.h"

#define DEFERRED_MAX 16
#define DEFERRED_NAMES (1 << 20)        /* bits of `named` */

struct deferred_item {
  uint64_t sector;              /* byte of the image, FAT_SECTOR long */
  uint32_t first;               /* cluster of its first entry */
  struct fat_entries allocated;
  bool applying;
  uint64_t applied;             /* number of the last write, in order */
  uint64_t since;               /* ns: made */
};

struct deferred {
  struct commit *commit;        /* borrowed, as all of these */
  struct epoch *requests;       /* who is being applied (rule 5) */
  struct stats *stats;
  uint64_t delay_ns;            /* 0: nothing is deferred */
  atomic_uint clusters_end;     /* no volume has this cluster, or a later one */

  atomic_uint nr;               /* items; 0: writes need not look */
  atomic_uint paused;           /* nothing is deferred */
  atomic_bool blind;            /* the same, to the end: a write could not be
                                   looked at */
  _Atomic uint64_t named[DEFERRED_NAMES / 64];  /* rule 4; cluster modulo */

  pthread_mutex_t lock;         /* protects what follows */
  pthread_cond_t changed;       /* an item was applied */
  pthread_cond_t wake;          /* for the thread */
  struct deferred_item item[DEFERRED_MAX];
  uint64_t applied;             /* writes applied, counted */
  bool thread_runs, idle, stop;
  pthread_t thread;
};

/* delay_ns: rule 5; 0 for none of it. */
extern void deferred_init (struct deferred *d, struct commit *commit,
                           struct epoch *requests, struct stats *stats,
                           uint64_t delay_ns);
/* Ends the thread.  Syncs nothing. */
extern void deferred_release (struct deferred *d);

/* A write to a sector of FAT 1 that allocates these entries, whose old bytes
 * are durable or an item (rule 1), is about to be applied.  The caller holds the
 * sector's slot, and is inside the epoch.  Returns whether it may be
 * acknowledged without a sync.  With *made, deferred_applied() must be called
 * after it was applied, with whatever result.
 */
extern bool deferred_begin (struct deferred *d, uint64_t sector,
                            uint32_t first,
                            const struct fat_entries *allocated, bool *made);
extern void deferred_applied (struct deferred *d, uint64_t sector);

/* Before anything else is applied: note what it names (rule 4), and sync what
 * it may refer to (rule 3).  0 or -errno.  The caller is inside the epoch, or
 * between deferred_pause() and deferred_resume().
 *
 * In no FAT of a volume that mirrors.
 */
extern int deferred_before_data (struct deferred *d, const struct disk_op *op);
/* In the FAT 1 that starts at `fat1`.  before: its bytes now, or NULL. */
extern int deferred_before_fat1 (struct deferred *d, const struct disk_op *op,
                                 uint64_t fat1, const uint8_t *before);
/* Anywhere, with entries of FAT 1s in [start, end) of the image only; fat1: of
 * the one that they belong to, or 0.
 */
extern int deferred_before_any (struct deferred *d, const struct disk_op *op,
                                uint64_t start, uint64_t end, uint64_t fat1);

/* Sync all items.  0 or -errno. */
extern int deferred_sync (struct deferred *d);

/* A boot sector names its root directory.  clusters_end: see above. */
extern void deferred_set_volume (struct deferred *d, uint32_t root_cluster,
                                 uint32_t clusters_end);

/* Nothing is deferred between the two.  May be nested. */
extern void deferred_pause (struct deferred *d);
extern void deferred_resume (struct deferred *d);

/* A moment, for deferred_synced(): what was applied before it. */
extern uint64_t deferred_moment (struct deferred *d);
/* [start, end) was synced, by a sync that began after `moment`. */
extern void deferred_synced (struct deferred *d, uint64_t start,
                             uint64_t end, uint64_t moment);

#endif /* FATBATCH_DEFERRED_H */
