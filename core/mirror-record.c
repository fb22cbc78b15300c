/* SPDX-License-Identifier: BSD-3-Clause */

/* Mirrors: arming and disarming.  The states and rules are in mirror.h. */

#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "mirror-window.h"
#include "monotonic.h"
#include "util.h"

/* Something that the user should know, and that the engine goes on from. */
static void
tell_problem (struct mirror *m, const char *message)
{
  if (m->notice)
    m->notice (m->notice_opaque, true, message);
}

/* The bytes that the layout was read from; none if they are too many. */
unsigned
mirror_add_layout_locked (const struct mirror *m, struct commit_range *ranges)
{
  memcpy (ranges, m->watched, m->nr_watched * sizeof ranges[0]);
  return m->nr_watched;
}

/* The hull of what may not be durable in FAT 1. */
static struct commit_range
changed_locked (const struct mirror_window *w)
{
  struct commit_range range = { 0, 0 };
  unsigned i;

  for (i = 0; i < w->nr_slots; ++i) {
    uint64_t at = w->fat->start + (uint64_t) i * w->slot_size;

    if (w->fat1_changed[i] == 0)
      continue;
    if (range.end == 0)
      range.start = at;
    range.end = at + w->slot_size;
  }
  return range;
}

/* Rule 2.  The slots are held, so that FAT 1 does not change meanwhile. */
static int
sync_before_arming (struct mirror *m, struct mirror_window *w)
{
  struct commit_range ranges[COMMIT_RANGES_MAX + 1];
  uint64_t moment = deferred_moment (m->deferred);
  unsigned nr = 0;
  bool all = false;
  int r;

  {
    SCOPED_LOCK (&m->lock);
    ranges[nr++] = changed_locked (w);
    if (!m->layout_durable) {
      all = m->nr_watched == 0;
      nr += mirror_add_layout_locked (m, &ranges[nr]);
    }
  }
  r = all ? commit_all (m->commit) : commit_many (m->commit, ranges, nr);
  if (r < 0)
    return r;

  deferred_synced (m->deferred, ranges[0].start, ranges[0].end, moment);
  SCOPED_LOCK (&m->lock);
  m->layout_durable = true;
  w->synced = true;
  memset (w->fat1_changed, 0, sizeof w->fat1_changed);
  return 0;
}

/* There is a record.  0; 1: it can't be had, now and later. */
static int
have_record (struct mirror *m)
{
  char message[512];
  int r;

  if (atomic_load (&m->intent_broken))
    return 1;
  if (m->intent.created)
    return 0;
  r = intent_create (&m->intent);
  if (r == 0)
    return 0;
  atomic_store (&m->intent_broken, true);
  snprintf (message, sizeof message,
            "%s: the intent record cannot be made: %s; FAT mirrors are "
            "written at once, which is slower (intent=PATH puts the "
            "record elsewhere, intent=none does without it)",
            m->intent.store->name, fatbatch_strerror (-r));
  tell_problem (m, message);
  return 1;
}

void
mirror_prepare_record (struct mirror *m)
{
  bool wanted;

  SCOPED_LOCK (&m->intent_lock);
  {
    SCOPED_LOCK (&m->lock);
    wanted = m->record_wanted;
    m->record_wanted = false;
  }
  if (wanted)
    have_record (m);
}

void
mirror_want_record_locked (struct mirror *m)
{
  if (m->enabled && m->has_volumes && !m->record_wanted &&
      !atomic_load (&m->intent_broken)) {
    m->record_wanted = true;
    mirror_wake_thread_locked (m);
  }
}

void
mirror_expect_writes (struct mirror *m)
{
  SCOPED_LOCK (&m->lock);
  mirror_want_record_locked (m);
}

/* 0; 1: it can't be had, now and later; -errno: rule 6 of intent.h. */
static int
write_record (struct mirror *m, const struct intent_entry *entry,
              unsigned *block)
{
  int r;

  SCOPED_LOCK (&m->intent_lock);
  r = have_record (m);
  if (r == 0)
    r = intent_arm (&m->intent, entry, block);
  if (r < 0 && r != -ENOSPC)
    atomic_store (&m->intent_broken, true);
  return r == -ENOSPC ? 1 : r;
}

int
mirror_arm (struct mirror *m, struct mirror_window *w, unsigned first,
            unsigned last)
{
  struct intent_entry entry = {
    .fat1 = w->fat->start, .mirror = w->mirror, .length = w->fat->length,
    .slot_size = w->slot_size, .volume_start = w->volume_start,
    .volume_id = w->volume_id,
  };
  unsigned block = w->block, i;
  int r;

  if (atomic_load (&m->intent_broken) || commit_has_failed (m->commit))
    return 1;                   /* in vain: do not sync, and do not fail */
  {
    SCOPED_LOCK (&m->lock);
    if (mirror_wake_thread_locked (m) < 0)
      return 1;
  }
  memcpy (entry.slots, w->equal, sizeof entry.slots);
  for (i = first; i < last; ++i)
    mirror_set_bit (entry.slots, i, true);

  r = sync_before_arming (m, w);
  if (r == 0)
    r = write_record (m, &entry, &block);
  if (r != 0)
    return r;

  {
    SCOPED_LOCK (&m->lock);
    if (w->block == 0)
      atomic_fetch_add (&m->nr_armed, 1);
    w->block = block;
    w->touched = monotonic_now ();
    memcpy (w->recorded, entry.slots, sizeof w->recorded);
  }
  stats_add (m->stats, STATS_windows_armed, 1);
  mirror_reached (m, MIRROR_ARMED);
  return 0;
}

/* -- Disarming ---------------------------------------------------------- */

int
mirror_clear_record (struct mirror *m, struct mirror_window **windows,
                     unsigned nr)
{
  unsigned blocks[MIRROR_WINDOWS_MAX], i;
  int r;

  if (nr == 0)
    return 0;
  for (i = 0; i < nr; ++i)
    blocks[i] = windows[i]->block;
  r = deferred_sync (m->deferred);
  if (r < 0)
    return r;
  mirror_reached (m, MIRROR_SYNCED);
  {
    SCOPED_LOCK (&m->intent_lock);
    r = commit_has_failed (m->commit) ? -EIO    /* rule 8 */
      : intent_disarm (&m->intent, blocks, nr);
    if (r < 0)
      atomic_store (&m->intent_broken, true);
  }
  if (r < 0) {
    commit_fail (m->commit);
    return r;
  }
  {
    SCOPED_LOCK (&m->lock);
    for (i = 0; i < nr; ++i) {
      windows[i]->block = 0;
      memset (windows[i]->recorded, 0, sizeof windows[i]->recorded);
    }
    atomic_fetch_sub (&m->nr_armed, nr);
  }
  stats_add (m->stats, STATS_windows_disarmed, nr);
  mirror_reached (m, MIRROR_DISARMED);
  return 0;
}
