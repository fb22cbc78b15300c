/* SPDX-License-Identifier: BSD-3-Clause */

/* Mirrors: writes to FAT 1.  The states and rules are in mirror.h, those of
 * deferred commits in deferred.h.
 */

#include <config.h>

#include <errno.h>
#include <string.h>

#include "mirror-window.h"
#include "monotonic.h"
#include "util.h"

/* Deferred slots among them keep their bytes: DEFERRED -> DIVERGED. */
static void
keep_old_bytes (struct mirror *m, const struct mirror_slots *s)
{
  struct mirror_window *w = s->w;
  unsigned i;

  SCOPED_LOCK (&m->lock);
  w->touched = monotonic_now ();
  for (i = s->first; i < s->last; ++i) {
    size_t at = (size_t) i * w->slot_size;

    if (w->state[i] != DEFERRED)
      continue;
    memcpy (w->kept + at, w->fat->bytes + at, w->slot_size);
    mirror_set_state_locked (m, w, i, DIVERGED);
    stats_add (m->stats, STATS_mirrors_diverged, 1);
  }
}

static void
note_change (struct mirror *m, const struct mirror_slots *s, uint64_t *changes)
{
  unsigned i;

  SCOPED_LOCK (&m->lock);
  if (*changes == 0)
    *changes = ++m->changes;
  for (i = s->first; i < s->last; ++i)
    s->w->fat1_changed[i] = *changes;
}

/* Rule 10: these slots' commit is of their whole window, if it is the first. */
static void
prepare_to_arm (struct mirror *m, const struct mirror_slots *s,
                struct mirror_commit *commit)
{
  SCOPED_LOCK (&m->lock);
  if (s->w->synced)
    return;
  mirror_want_record_locked (m);
  commit->start = min_u64 (commit->start, s->w->fat->start);
  commit->end = max_u64 (commit->end, mirror_window_end (s->w));
  if (!m->layout_durable && m->nr_watched > 0)
    commit->layout = m->layouts;
}

/* The bytes of FAT 1 that a write to one sector replaces; NULL if they are not
 * known.
 */
static const uint8_t *
bytes_before (struct mirror *m, const struct disk_op *op,
              struct mirror_slots *s)
{
  uint64_t pos = op->offset;

  if (op->length != FAT_SECTOR ||
      !mirror_next_slots (m, &pos, op->offset + op->length, s) ||
      s->w->slot_size != FAT_SECTOR || s->last - s->first != 1 ||
      s->w->fat->unreadable)
    return NULL;
  return s->w->fat->bytes + (size_t) s->first * FAT_SECTOR;
}

/* May the commit of a write to this slot be deferred, if it is of that sort
 * (D9)?  The old bytes must be durable, or so deferred, too, and the mirror's
 * write that repeats it be one that can be deferred (deferred.h, rules 1, 4).
 */
static bool
may_defer_commit (struct mirror *m, const struct mirror_slots *s)
{
  SCOPED_LOCK (&m->lock);
  return s->w->block != 0 && !m->frozen &&
    mirror_bit (s->w->recorded, s->first) &&
    s->w->fat1_changed[s->first] == 0 && mirror_bit (s->w->committed, s->first);
}

/* The write itself.  Returns 0 or -errno, and whether its commit is
 * deferred.
 */
static int
apply (struct mirror *m, const struct mirror_volume *volume,
       struct disk_op *op, bool durable, bool *deferred)
{
  uint32_t first = (op->offset - volume->fat1) / 4;
  struct mirror_slots s;
  const uint8_t *before = bytes_before (m, op, &s);
  struct fat_entries entries;
  uint8_t buf[FAT_SECTOR];
  bool made = false;
  int r = 0;

  *deferred = false;
  if (before && durable && may_defer_commit (m, &s)) {
    const uint8_t *after = disk_iov_peek (op->iov, op->iovcnt, 0, buf,
                                          sizeof buf);

    *deferred = fat_sector_allocates (before, after, first, &entries) &&
      deferred_begin (m->deferred, op->offset, first, &entries, &made);
  }
  if (!made)
    r = deferred_before_fat1 (m->deferred, op, volume->fat1, before);
  if (r == 0)
    r = disk_submit (m->disk, op, 1);
  if (made)
    deferred_applied (m->deferred, op->offset);
  return r;
}

int
mirror_write_fat1 (struct mirror *m, const struct mirror_volume *volume,
                   struct disk_op *op, bool durable,
                   struct mirror_commit *commit)
{
  uint64_t start = op->offset, end = op->offset + op->length;
  struct range range;
  struct mirror_slots s;
  bool deferred;
  int r;

  *commit = mirror_commit_of (op);
  start = volume->fat1 + align_down (start - volume->fat1,
                                     volume->sector_size);
  end = volume->fat1 + align_up (end - volume->fat1, volume->sector_size);

  range_lock (&m->slots, &range, start, end, true);
  if (mirror_makes_windows (m, op) &&
      !mirror_has_windows (m, volume, start, end)) {
    uint64_t wide_start = start, wide_end = end;

    range_unlock (&m->slots, &range);
    mirror_widen (volume, &wide_start, &wide_end);
    range_lock (&m->slots, &range, wide_start, wide_end, true);
    mirror_make_windows (m, volume, start, end);
  }

  MIRROR_FOR_EACH_SLOTS (m, start, end, &s)
    keep_old_bytes (m, &s);
  r = apply (m, volume, op, durable, &deferred);
  MIRROR_FOR_EACH_SLOTS (m, start, end, &s) {
    if (r == 0)
      fat_window_update (s.w->fat, op);
    else
      fat_window_reload (s.w->fat, m->disk, start, end);
    if (!deferred) {
      note_change (m, &s, &commit->changes);
      if (r == 0 && durable)
        prepare_to_arm (m, &s, commit);
    }
  }
  if (deferred)
    *commit = (struct mirror_commit) { 0 };
  else
    commit->moment = deferred_moment (m->deferred);
  range_unlock (&m->slots, &range);
  return r;
}

/* -- Commits ------------------------------------------------------------- */

/* Slots of which only a part was synced stay as they are. */
static void
window_committed_locked (struct mirror_window *w,
                         const struct mirror_commit *commit)
{
  uint64_t pos = w->fat->start;
  unsigned slot;

  if (commit->start <= pos && mirror_window_end (w) <= commit->end &&
      w->made <= commit->changes)
    w->synced = true;
  slot = commit->start <= pos ? 0
    : (commit->start - pos + w->slot_size - 1) / w->slot_size;
  for (pos += (uint64_t) slot * w->slot_size;
       slot < w->nr_slots && pos + w->slot_size <= commit->end;
       ++slot, pos += w->slot_size) {
    if (w->fat1_changed[slot] > commit->changes)
      continue;
    if (w->fat1_changed[slot] > w->made)
      mirror_set_bit (w->committed, slot, true);
    w->fat1_changed[slot] = 0;
  }
}

static void
committed (struct mirror *m, const struct mirror_commit *commit)
{
  unsigned i;

  if (commit->changes == 0 && commit->layout == 0)
    return;
  deferred_synced (m->deferred, commit->start, commit->end, commit->moment);
  SCOPED_LOCK (&m->lock);
  if (commit->layout > 0 && commit->layout == m->layouts)
    m->layout_durable = true;
  for (i = mirror_find_locked (m, commit->start); i < m->nr_windows &&
         m->window[i]->fat->start < commit->end; ++i)
    window_committed_locked (m->window[i], commit);
}

int
mirror_make_durable (struct mirror *m, const struct mirror_commit *commit)
{
  struct commit_range ranges[COMMIT_RANGES_MAX + 1];
  unsigned nr = 0;
  int r;

  ranges[nr++] = (struct commit_range) { commit->start, commit->end };
  if (commit->layout > 0) {
    SCOPED_LOCK (&m->lock);
    nr += mirror_add_layout_locked (m, &ranges[nr]);
  }
  r = commit_many (m->commit, ranges, nr);
  if (r == 0)
    committed (m, commit);
  return r;
}

int
mirror_flush (struct mirror *m)
{
  struct mirror_commit commit = {
    .end = UINT64_MAX, .moment = deferred_moment (m->deferred),
  };
  int r;

  {
    SCOPED_LOCK (&m->lock);
    commit.changes = m->changes;
    commit.layout = m->layouts;
  }
  r = commit_all (m->commit);
  if (r == 0)
    committed (m, &commit);
  return r;
}
