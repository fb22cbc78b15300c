/* SPDX-License-Identifier: BSD-3-Clause */

/* Mirrors: writes to the mirror, and others that touch it.  The states and
 * rules are in mirror.h.
 */

#include <config.h>

#include <errno.h>
#include <string.h>

#include "mirror-window.h"
#include "monotonic.h"
#include "util.h"

/* -- Writes to the mirror ----------------------------------------------- */

/* A mirror write, and what it is in terms of FAT 1. */
struct mirror_op {
  const struct mirror_volume *volume;
  struct disk_op *op;
  uint64_t start, end;          /* bytes of FAT 1; whole slots */
};

/* Bytes of op that are slot i's; false if it has only a part of the slot. */
static bool
slot_equals (const struct mirror_op *mo, const struct mirror_window *w,
             unsigned i)
{
  uint64_t at = w->fat->start + (uint64_t) i * w->slot_size;
  uint64_t start = at - mo->volume->fat1 + mo->volume->mirror;
  uint64_t end = start + w->slot_size;

  return mo->op->offset <= start && end <= mo->op->offset + mo->op->length &&
    fat_window_equals (w->fat, at, mo->op, start, end);
}

/* Whole slots, all with windows, all equal to FAT 1. */
static bool
all_equal (struct mirror *m, const struct mirror_op *mo)
{
  uint64_t seen = mo->start;
  struct mirror_slots s;
  unsigned i;

  MIRROR_FOR_EACH_SLOTS (m, mo->start, mo->end, &s) {
    if (s.w->fat->start > seen)
      return false;             /* a window is missing */
    seen = mirror_window_end (s.w);
    for (i = s.first; i < s.last; ++i)
      if (!slot_equals (mo, s.w, i))
        return false;
  }
  return seen >= mo->end;
}

static bool
all_recorded (const struct mirror_slots *s)
{
  unsigned i;

  if (s->w->block == 0)
    return false;
  for (i = s->first; i < s->last; ++i)
    if (!mirror_bit (s->w->recorded, i))
      return false;
  return true;
}

/* See to it that the record has all slots of an equal write (rule 1).  An armed
 * window is not armed again for a write that needs no sync: such writes are
 * not made slower than in place.  0; 1: can't be, do it in place; -errno.
 */
static int
arm_windows (struct mirror *m, const struct mirror_op *mo, bool durable)
{
  struct mirror_slots s;
  int r;

  {
    SCOPED_LOCK (&m->lock);
    if (m->frozen)
      return 1;
  }
  MIRROR_FOR_EACH_SLOTS (m, mo->start, mo->end, &s) {
    if (all_recorded (&s))
      continue;
    if (s.w->block != 0 && !durable)
      return 1;
    r = mirror_arm (m, s.w, s.first, s.last);
    if (r != 0)
      return r;
  }
  return 0;
}

/* -> DEFERRED.  What has to be synced first is FAT 1 (rule 3). */
static void
defer (struct mirror *m, const struct mirror_op *mo,
       struct mirror_commit *commit)
{
  uint64_t moment = deferred_moment (m->deferred), at;
  struct mirror_slots s;
  unsigned i;

  *commit = (struct mirror_commit) { 0 };
  MIRROR_FOR_EACH_SLOTS (m, mo->start, mo->end, &s) {
    struct mirror_window *w = s.w;
    uint64_t dirty;

    SCOPED_LOCK (&m->lock);
    dirty = m->dirty_bytes;
    w->touched = monotonic_now ();
    commit->changes = m->changes;
    commit->moment = moment;
    for (i = s.first; i < s.last; ++i) {
      at = w->fat->start + (uint64_t) i * w->slot_size;
      mirror_set_state_locked (m, w, i, DEFERRED);
      mirror_set_bit (w->equal, i, true);
      if (w->fat1_changed[i] == 0)
        continue;
      if (commit->start == commit->end)
        commit->start = at;
      commit->end = at + w->slot_size;
    }
    stats_add (m->stats, STATS_mirrors_deferred, s.last - s.first);
    if (dirty == 0 || (dirty < m->batch && m->dirty_bytes >= m->batch))
      mirror_wake_thread_locked (m);
  }
}

/* Before a write in place: nothing in flight may land on top of it, now or
 * until allow_batches(), and if it is not equal the record must not have its
 * slots (rule 4).
 */
static int
prepare_in_place (struct mirror *m, const struct mirror_op *mo, bool equal)
{
  struct mirror_slots s;
  unsigned i;
  int r;

  MIRROR_FOR_EACH_SLOTS (m, mo->start, mo->end, &s) {
    for (i = s.first; !equal && i < s.last; ++i)
      if (mirror_bit (s.w->recorded, i))
        break;
    if (!equal && i < s.last) {
      r = mirror_drain (m, s.w);
      if (r < 0)
        return r;
    }
    SCOPED_LOCK (&m->lock);
    while (s.w->in_flight > 0)
      pthread_cond_wait (&m->changed, &m->lock);
    s.w->in_place = true;
  }
  return 0;
}

/* After it: the image has the bytes, or if it failed who knows what. */
static void
finish_in_place (struct mirror *m, const struct mirror_op *mo, int result)
{
  uint8_t buf[4096];            /* a slot */
  struct mirror_slots s;
  unsigned i;

  MIRROR_FOR_EACH_SLOTS (m, mo->start, mo->end, &s) {
    struct mirror_window *w = s.w;

    for (i = s.first; i < s.last; ++i) {
      size_t at = (size_t) i * w->slot_size;
      bool equal = result == 0 && !w->fat->unreadable &&
        (slot_equals (mo, w, i) ||
         (disk_read (m->disk, buf, w->slot_size, w->mirror + at) == 0 &&
          memcmp (buf, w->fat->bytes + at, w->slot_size) == 0));

      SCOPED_LOCK (&m->lock);
      w->touched = monotonic_now ();
      mirror_set_bit (w->equal, i, equal);
      if (result == 0 && w->state[i] != CLEAN)
        mirror_set_state_locked (m, w, i, WRITTEN);
    }
  }
}

static void
allow_batches (struct mirror *m, const struct mirror_op *mo)
{
  struct mirror_slots s;

  MIRROR_FOR_EACH_SLOTS (m, mo->start, mo->end, &s) {
    SCOPED_LOCK (&m->lock);
    s.w->in_place = false;
    pthread_cond_broadcast (&m->changed);
  }
}

static int
write_in_place (struct mirror *m, const struct mirror_op *mo, bool equal)
{
  int r = prepare_in_place (m, mo, equal);

  if (r == 0)
    r = deferred_sync (m->deferred);
  if (r == 0) {
    r = disk_submit (m->disk, mo->op, 1);
    finish_in_place (m, mo, r);
  }
  allow_batches (m, mo);
  return r;
}

int
mirror_write_mirror (struct mirror *m, const struct mirror_volume *volume,
                     struct disk_op *op, bool durable,
                     struct mirror_commit *commit)
{
  uint64_t start = op->offset - volume->mirror, end = start + op->length;
  struct mirror_op mo = {
    .volume = volume, .op = op,
    .start = volume->fat1 + align_down (start, volume->sector_size),
    .end = volume->fat1 + align_up (end, volume->sector_size),
  };
  struct range range;
  bool equal;
  int r = 1;

  *commit = mirror_commit_of (op);
  start = mo.start;
  end = mo.end;
  mirror_widen (volume, &start, &end);
  range_lock (&m->slots, &range, start, end, true);
  if (mirror_makes_windows (m, op))
    mirror_make_windows (m, volume, mo.start, mo.end);
  equal = all_equal (m, &mo);
  if (equal)
    r = arm_windows (m, &mo, durable);
  if (r == 0)
    defer (m, &mo, commit);
  else if (r == 1)
    r = write_in_place (m, &mo, equal);
  range_unlock (&m->slots, &range);
  return r;
}

/* -- All other writes to FATs ------------------------------------------- */

int
mirror_write_across (struct mirror *m, uint64_t start, uint64_t end,
                     struct disk_op *op, struct mirror_commit *commit)
{
  struct range range;
  struct mirror_slots s;
  int r = 0;

  *commit = mirror_commit_of (op);
  range_lock (&m->slots, &range, start, end, true);
  MIRROR_FOR_EACH_SLOTS (m, start, end, &s) {
    r = mirror_drop (m, s.w);
    if (r < 0)
      break;
  }
  if (r == 0)
    r = deferred_before_any (m->deferred, op, start, end, 0);
  if (r == 0)
    r = disk_submit (m->disk, op, 1);
  range_unlock (&m->slots, &range);
  return r;
}
