/* SPDX-License-Identifier: BSD-3-Clause */

/* Deferred FAT mirrors (D5).
 *
 * A guest writes each sector of FAT 1, and then the same bytes to the same
 * sector of the mirror, FAT 2.  Here the second write costs nothing: it is
 * acknowledged on the strength of a durable record (intent.h) that says "after
 * a crash, copy FAT 1 over it", and done in the background, together with many
 * others.
 *
 * A slot is a sector of the FAT, in both copies.  A window is a run of slots,
 * FATTABLE_WINDOW bytes.  Only the windows that are being written to are
 * present in memory; without one, every write is done in place.
 *
 * Windows:
 *
 *                first write to a FAT                mirror write, equal
 *     (absent) ------------------------> STRICT -------------------------> ARMED
 *         ^     copies compared            ^ |       FAT 1 synced, record    |
 *         |                                | |       durable                 |
 *         +--------------------------------|-+                               |
 *               room is needed, or         +---------------------------------+
 *               the geometry changes          all slots CLEAN, record cleared
 *
 * Slots of an armed window; in a strict one all are CLEAN:
 *
 *               mirror write, equal to FAT 1
 *      CLEAN ---------------------------------> DEFERRED
 *        ^                                       |  ^  | FAT 1 is written:
 *        |                                       |  |  v keep its old bytes
 *        |                                       |  DIVERGED
 *        |                                batch: |     |
 *        |                                       v     v
 *      WRITTEN <------------------------------- WRITING
 *        |        the write has ended
 *        +--> CLEAN when a sync has covered it
 *
 *   CLEAN     the image has the mirror's bytes, as durable as promised
 *   DEFERRED  the mirror's bytes are FAT 1's; the image is behind
 *   DIVERGED  the mirror's bytes are kept in memory; the image is behind
 *   WRITING   as DIVERGED, and on their way into the image
 *   WRITTEN   the image has them, but they may not be durable
 *
 * From WRITING and WRITTEN an equal mirror write leads to DEFERRED again, too.
 *
 * Rules:
 *
 * 1. A slot is deferred only if the durable record has it.  The record has
 *    only slots whose mirror has equalled FAT 1 at some moment since its
 *    newest acknowledged write (D5): those equal when the copies were
 *    compared, which is before the first write to either, and those that got
 *    FAT 1's bytes since.
 * 2. When a slot comes into the record, FAT 1 of the window is durable, and so
 *    is what says that it is a FAT: the boot sector and partition table.
 *    Otherwise recovery would replace a durable mirror by an older FAT 1.
 * 3. A mirror write that must be durable is acknowledged as deferred when FAT 1
 *    of its slots is durable.
 * 4. Bytes that differ from FAT 1's, parts of slots, zeros and trims are done
 *    in place.  Before that, if the record has one of the slots, the window is
 *    drained: deferred slots written, synced, and the record cleared durably.
 * 5. A slot leaves the record only when its mirror is durable in the image, and
 *    so is FAT 1, whose commit may be deferred (deferred.h).
 * 6. Reads of a mirror see the deferred bytes (mirror_read()).
 * 7. What we did not defer is never written to: FATs that differ stay so.
 * 8. After a failure nothing is cleared any more; the record stays for the
 *    next open.
 * 9. A write through a window that could not be had (too many, no memory, too
 *    big a write) is done in place.  The next one compares anew.
 * 10. Whoever arms a window waits for FAT 1, for the layout's bytes and for the
 *    record, one after the other.  So they are prepared: the first durable
 *    write to a window's FAT 1 makes the whole window durable with its own
 *    sync, and what rule 2 wants besides; and after that, or a durable write
 *    to a boot sector, the thread makes the record, with nothing in it.
 *
 * Locks, after the engine's (engine.h), in this order:
 *
 *   sync_lock   one batch or disarming at a time
 *   slots       a range lock over bytes of FAT 1, which stand for the slots, in
 *               all copies.  Exclusive for every write to a FAT of a volume
 *               that mirrors: over its slots for FAT 1, over whole windows for
 *               all else; shared for reads of mirrors.  Held over the write,
 *               and over the syncs of rules 2 and 4.
 *   intent_lock the record
 *   lock        which windows there are, and the slots' states
 */

#ifndef FATBATCH_MIRROR_H
#define FATBATCH_MIRROR_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "commit.h"
#include "deferred.h"
#include "disk.h"
#include "fatbatch.h"
#include "fattable.h"
#include "intent.h"
#include "layout.h"
#include "rangelock.h"
#include "stats.h"

#define MIRROR_WINDOWS_MAX 32
#define MIRROR_SLOTS (FATTABLE_WINDOW / 512)

/* Writes longer than this don't make a window: they are copies of whole images
 * or file systems being made, and comparing would double the work.
 */
#define MIRROR_WRITE_MAX (64 * 1024)

struct mirror_window;

struct mirror {
  struct disk *disk;            /* borrowed, as all of these */
  struct commit *commit;
  struct deferred *deferred;
  struct stats *stats;
  bool enabled;                 /* else all is done in place */
  uint64_t delay_ns, batch;

  void (*reached) (void *opaque, enum fatbatch_point point);
  void *reached_opaque;

  pthread_mutex_t sync_lock;
  struct rangelock slots;

  pthread_mutex_t intent_lock;  /* protects the next two */
  struct intent intent;
  atomic_bool intent_broken;    /* no record can be had: nothing is deferred */

  atomic_uint nr_armed;         /* windows; 0: reads need not look */

  pthread_mutex_t lock;         /* protects what follows, and the windows */
  pthread_cond_t changed;       /* work for the thread; a batch has ended */
  struct mirror_window *window[MIRROR_WINDOWS_MAX]; /* sorted by FAT 1 */
  unsigned nr_windows;
  unsigned frozen;              /* no new window, no deferring */
  bool has_volumes;             /* of which a mirror is kept */
  bool layout_durable;          /* rule 2: these bytes are */
  uint64_t layouts;             /* times that the layout was set, counted */
  unsigned nr_watched;          /* 0: any byte may be one */
  struct commit_range watched[COMMIT_RANGES_MAX];
  uint64_t changes;             /* writes to FAT 1, counted */
  uint64_t dirty_bytes;         /* of all windows */
  uint64_t batches_ended;       /* counted: see mirror_read() */
  bool room_wanted;             /* the table was full */
  bool record_wanted;           /* there will be a window to be armed */
  bool thread_runs, stop;
  pthread_t thread;

  /* Left by an earlier run, until mirror_recover() (recover.c).  The entries
   * stay allocated until the end.
   */
  struct intent_entry *left;
  atomic_size_t nr_left;
  enum { LEFT_NOTHING, LEFT_FITS, LEFT_STALE } left_record;

  void (*notice) (void *opaque, bool problem, const char *message);
  void *notice_opaque;
};

/* The parts of a volume that matter here: one whose mirror is kept. */
struct mirror_volume {
  uint64_t fat1, mirror, size;  /* bytes of the image; of each copy */
  uint32_t sector_size;
  uint64_t start;               /* of the volume */
  uint32_t id;
};

/* Does the volume keep exactly two equal FATs?  Then *ret is filled. */
extern bool mirror_volume_of (const struct layout_volume *volume,
                              struct mirror_volume *ret);

/* Widen bytes of FAT 1 to whole windows. */
extern void mirror_widen (const struct mirror_volume *volume,
                          uint64_t *start, uint64_t *end);

/* store: NULL if there is no place for a record.  Does no I/O. */
extern void mirror_init (struct mirror *m, struct disk *disk,
                         struct commit *commit, struct deferred *deferred,
                         struct stats *stats,
                         struct intent_store *store,
                         const struct fatbatch_options *options);
/* Ends the thread.  Settles nothing. */
extern void mirror_release (struct mirror *m);

/* -- Writes (mirror-fat1.c, mirror.c) ----------------------------------- */

/* What has to be synced so that a write that was done here is durable. */
struct mirror_commit {
  uint64_t start, end;          /* bytes of the image; may be empty */
  uint64_t layout;              /* rule 10: and that layout; 0: not */
  uint64_t changes, moment;     /* what is durable then */
};

static inline struct mirror_commit
mirror_commit_of (const struct disk_op *op)
{
  return (struct mirror_commit) {
    .start = op->offset, .end = op->offset + op->length,
  };
}

/* The three of them do the write, in place or not, and return 0 or -errno as
 * disk_submit() does.  The caller holds op's range.
 *
 * A DISK_WRITE wholly inside FAT 1 of a volume.  durable: its commit follows,
 * unless it is deferred (deferred.h).
 */
extern int mirror_write_fat1 (struct mirror *m,
                              const struct mirror_volume *volume,
                              struct disk_op *op, bool durable,
                              struct mirror_commit *commit);
/* A DISK_WRITE wholly inside the mirror. */
extern int mirror_write_mirror (struct mirror *m,
                                const struct mirror_volume *volume,
                                struct disk_op *op, bool durable,
                                struct mirror_commit *commit);
/* Anything else that touches FATs: slots [start, end) (bytes of FAT 1s, the
 * hull of all that are touched in either copy).
 */
extern int mirror_write_across (struct mirror *m, uint64_t start,
                                uint64_t end, struct disk_op *op,
                                struct mirror_commit *commit);

/* A durable write to a boot sector: a guest has begun (rule 10). */
extern void mirror_expect_writes (struct mirror *m);

/* Wait until what `commit` names is durable.  0 or -errno (commit.h). */
extern int mirror_make_durable (struct mirror *m,
                                const struct mirror_commit *commit);
/* Wait until all that was written before is durable.  0 or -errno. */
extern int mirror_flush (struct mirror *m);

/* -- Reads (mirror-read.c) ---------------------------------------------- */

/* Read (rule 6); takes the place of disk_read().  The caller holds the
 * range.
 */
extern int mirror_read (struct mirror *m, void *buf, size_t count,
                        uint64_t offset);

/* Copy bytes of FAT 1, [start, end) of the image, if they are in memory.  The
 * caller holds their range.
 */
extern bool mirror_peek (struct mirror *m, void *buf, uint64_t start,
                         uint64_t end);

/* May the image's allocation of this byte not be what a reader sees?  Returns
 * where the answer may change next, at most `end`.
 */
extern uint64_t mirror_hides (struct mirror *m, uint64_t offset, uint64_t end,
                              bool *hides);

/* -- In the background, and at ends (mirror-sync.c) ---------------------- */

/* Write everything that is deferred now, with one sync; but for windows of
 * which a slot is just being written in place.
 */
extern int mirror_sync (struct mirror *m);

/* That, and clear the record of all windows in which nothing is deferred
 * afterwards.  remove: and delete it, if nothing is armed any more.
 */
extern int mirror_settle (struct mirror *m, bool remove);

/* From the first to the second nothing is deferred, and there are no windows:
 * for who changes where the FATs are.  May be nested.  On failure of the first
 * the second must be called all the same.
 */
extern int mirror_freeze (struct mirror *m);
extern void mirror_thaw (struct mirror *m);

/* The layout is this one from now on.  Frozen, or before the first write. */
extern void mirror_set_layout (struct mirror *m, const struct layout *layout);

/* -- After a crash (recover.c) ------------------------------------------ */

/* Look for a record that an earlier run has left.  What it says and what is
 * sound and fits the layout is taken over: reads of those mirrors return FAT
 * 1's bytes from now on.  Otherwise nothing changes, and `notice` is a sentence
 * that says so ("" if there is nothing to say).  Returns 0, or -errno if it
 * could not be read, with a sentence, too.
 */
extern int mirror_find_left (struct mirror *m, const struct layout *layout,
                             char *notice, size_t notice_size);

/* Bring such mirrors back, sync, and delete the record; set one aside that
 * does not fit.  The image is writable, and nobody else writes.  Harmless to
 * repeat.  Returns 0 or -errno.
 */
extern int mirror_recover (struct mirror *m, char *notice,
                           size_t notice_size);

#endif /* FATBATCH_MIRROR_H */
