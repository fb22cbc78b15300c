/* SPDX-License-Identifier: BSD-3-Clause */

/* Windows and slots, between the files of the mirrors' module.  The states,
 * rules and locks are in mirror.h.
 */

#ifndef FATBATCH_MIRROR_WINDOW_H
#define FATBATCH_MIRROR_WINDOW_H

#include "mirror.h"

enum mirror_state { CLEAN, DEFERRED, DIVERGED, WRITING, WRITTEN };

struct mirror_window {
  struct fat_window *fat;       /* FAT 1; its start is the window's key */
  uint64_t mirror;              /* byte of the image: the window's mirror */
  uint32_t slot_size, nr_slots;
  uint64_t volume_start;
  uint32_t volume_id;

  unsigned block;               /* in the record; 0: STRICT, else ARMED */
  uint8_t recorded[MIRROR_SLOTS / 8];   /* what the record has */
  uint8_t equal[MIRROR_SLOTS / 8];      /* what it may have (rule 1) */

  uint8_t state[MIRROR_SLOTS];  /* enum mirror_state */
  uint8_t syncing[MIRROR_SLOTS / 8];    /* WRITTEN, and covered by the sync
                                           that is under way */
  uint64_t fat1_changed[MIRROR_SLOTS];  /* when FAT 1 was last written, by
                                           mirror->changes; 0: durable */
  uint64_t made;                /* the same: before that anything may have been
                                   written */
  bool synced;                  /* all of FAT 1 was since then */
  uint8_t committed[MIRROR_SLOTS / 8];  /* a write to FAT 1 became durable
                                           since the window was made */
  unsigned dirty;               /* slots DEFERRED or DIVERGED */
  unsigned in_flight;           /* batches with slots of this window */
  bool in_place;                /* one of its slots is being written in place:
                                   no batch may start */
  uint64_t dirty_since;         /* ns: the oldest of the dirty ones */
  uint64_t touched;             /* ns: the last write to a FAT */
  uint8_t *kept;                /* bytes of DIVERGED and WRITING slots */
};

static inline uint64_t
mirror_window_end (const struct mirror_window *w)
{
  return w->fat->start + w->fat->length;
}

/* The first window that ends after a byte of FAT 1, or nr_windows. */
extern unsigned mirror_find_locked (const struct mirror *m, uint64_t pos);

/* Make the windows of [start, end) of FAT 1 that are not there.  What can't be
 * had is done without (rule 9).  The windows' slots are held.
 */
extern void mirror_make_windows (struct mirror *m,
                                 const struct mirror_volume *volume,
                                 uint64_t start, uint64_t end);
/* Does a write make the windows that it misses? */
extern bool mirror_makes_windows (const struct mirror *m,
                                  const struct disk_op *op);
extern bool mirror_has_windows (struct mirror *m,
                                const struct mirror_volume *volume,
                                uint64_t start, uint64_t end);

/* The part of a window that a range covers, as slots. */
struct mirror_slots {
  struct mirror_window *w;
  unsigned first, last;         /* [first, last) */
};

/* The slots of the first window in [*pos, end), and *pos after it.  False:
 * no more.  Gaps between windows are skipped.
 */
extern bool mirror_next_slots (struct mirror *m, uint64_t *pos, uint64_t end,
                               struct mirror_slots *ret);

#define MIRROR_FOR_EACH_SLOTS(m, start, end, s)                         \
  for (uint64_t pos_ = (start); mirror_next_slots (m, &pos_, end, s); )

/* Hold slots from before the first window to after the last. */
#define MIRROR_ALL_SLOTS_END UINT64_MAX

static inline bool
mirror_bit (const uint8_t *bits, unsigned i)
{
  return bits[i / 8] >> i % 8 & 1;
}

static inline void
mirror_set_bit (uint8_t *bits, unsigned i, bool value)
{
  if (value)
    bits[i / 8] |= 1 << i % 8;
  else
    bits[i / 8] &= ~(1 << i % 8);
}

extern void mirror_reached (struct mirror *m, enum fatbatch_point point);

/* Set a slot's state, with the counts that follow from it.  `lock` is held. */
extern void mirror_set_state_locked (struct mirror *m,
                                     struct mirror_window *w, unsigned slot,
                                     enum mirror_state state);

/* Start the thread if it does not run; wake it up if it does.  0 or -errno.
 * `lock` is held.
 */
extern int mirror_wake_thread_locked (struct mirror *m);

/* Make FAT 1 of the window durable, and then the record with all slots that
 * may be in it and [first, last) (rules 1, 2).  0; 1 if no record can be had;
 * -errno.  The window's slots are held.
 */
extern int mirror_arm (struct mirror *m, struct mirror_window *w,
                       unsigned first, unsigned last);

/* Rule 2's bytes of the layout.  Returns how many; room for COMMIT_RANGES_MAX.
 * `lock` is held.
 */
extern unsigned mirror_add_layout_locked (const struct mirror *m,
                                          struct commit_range *ranges);

/* There may soon be a window to be armed (rule 10).  `lock` is held. */
extern void mirror_want_record_locked (struct mirror *m);
/* For the thread: make the record, if that is wanted still. */
extern void mirror_prepare_record (struct mirror *m);

/* Armed to strict (rule 5).  The window's slots are held. */
extern int mirror_drain (struct mirror *m, struct mirror_window *w);

/* MIRROR_SYNCED: clear the record of windows in which all is CLEAN.  Their
 * slots are held.
 */
extern int mirror_clear_record (struct mirror *m,
                                struct mirror_window **windows, unsigned nr);

/* mirror_drain(), then mirror_forget(). */
extern int mirror_drop (struct mirror *m, struct mirror_window *w);

/* Take a window that is strict out of the table and free it.  The window's
 * slots are held.
 */
extern void mirror_forget (struct mirror *m, struct mirror_window *w);

/* For the thread: a batch at idle I/O priority; then, unless disarm_since is
 * 0, disarm windows that were not written to after that.  0 or -errno.
 */
extern int mirror_sync_idle (struct mirror *m, uint64_t disarm_since);
/* Drop windows that were not written to after `since`.  0 or -errno. */
extern int mirror_evict (struct mirror *m, uint64_t since);

/* -- Batches (mirror-batch.c) -------------------------------------------- */

struct mirror_batch {
  uint8_t *bytes;               /* of all slots, one after the other */
  size_t used, slots;
  size_t bytes_max, slots_max;  /* room for as many; the rest is for the next */
  struct disk_op *ops;          /* a run of slots each */
  struct iovec *iov;            /* of each op */
  size_t nr;
  struct mirror_window *windows[MIRROR_WINDOWS_MAX];
  unsigned nr_windows;
};

/* Room for `slots` slots of `bytes` bytes together.  0 or -ENOMEM. */
extern int mirror_batch_reserve (struct mirror_batch *b, size_t slots,
                                 size_t bytes);
/* DEFERRED, DIVERGED -> WRITING, as far as there is room. */
extern void mirror_batch_collect_locked (struct mirror *m,
                                         struct mirror_batch *b,
                                         struct mirror_window *w);
/* Write: WRITING -> WRITTEN.  A failure is latched. */
extern int mirror_batch_write (struct mirror *m, struct mirror_batch *b,
                               unsigned flags);
extern void mirror_batch_release (struct mirror_batch *b);

#endif /* FATBATCH_MIRROR_WINDOW_H */
