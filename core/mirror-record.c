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

/* Rule 2.  The slots are held, so that FAT 1 does not change meanwhile. */
static int
sync_before_arming (struct mirror *m, struct mirror_window *w)
{
  struct commit_range ranges[COMMIT_RANGES_MAX + 1];
  uint64_t moment = deferred_moment (m->deferred);
  unsigned nr = 0;
  bool all = false;
  int r;

  ranges[nr++] = (struct commit_range) {
    w->fat->start, w->fat->start + w->fat->length
  };
  {
    SCOPED_LOCK (&m->lock);
    if (!m->layout_durable) {
      all = m->nr_watched == 0;
      memcpy (&ranges[nr], m->watched, m->nr_watched * sizeof ranges[0]);
      nr += m->nr_watched;
    }
  }
  r = all ? commit_all (m->commit) : commit_many (m->commit, ranges, nr);
  if (r < 0)
    return r;

  deferred_synced (m->deferred, ranges[0].start, ranges[0].end, moment);
  SCOPED_LOCK (&m->lock);
  m->layout_durable = true;
  memset (w->fat1_changed, 0, sizeof w->fat1_changed);
  return 0;
}

/* 0; 1: it can't be had, now and later; -errno: rule 6 of intent.h. */
static int
write_record (struct mirror *m, const struct intent_entry *entry,
              unsigned *block)
{
  char message[512];
  int r;

  SCOPED_LOCK (&m->intent_lock);
  if (atomic_load (&m->intent_broken))
    return 1;
  if (!m->intent.created) {
    r = intent_create (&m->intent);
    if (r < 0) {
      atomic_store (&m->intent_broken, true);
      snprintf (message, sizeof message,
                "%s: the intent record cannot be made: %s; FAT mirrors are "
                "written at once, which is slower (intent=PATH puts the "
                "record elsewhere, intent=none does without it)",
                m->intent.store->name, fatbatch_strerror (-r));
      tell_problem (m, message);
      return 1;
    }
  }
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
