/* SPDX-License-Identifier: BSD-3-Clause */

/* Mirrors: deferred ones are written and synced.  The states and rules are in
 * mirror.h.
 */

#include <config.h>

#include <errno.h>
#include <linux/ioprio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mirror-window.h"
#include "util.h"

#define CLEANUP_BATCH __attribute__ ((cleanup (mirror_batch_release)))

/* The WRITTEN slots of a window, as a range to be synced; marks them. */
static bool
mark_syncing_locked (struct mirror_window *w, struct commit_range *range)
{
  bool found = false;
  unsigned i;

  if (w->block == 0)
    return false;
  for (i = 0; i < w->nr_slots; ++i) {
    uint64_t at = w->mirror + (uint64_t) i * w->slot_size;

    if (w->state[i] != WRITTEN)
      continue;
    mirror_set_bit (w->syncing, i, true);
    if (!found)
      range->start = at;
    range->end = at + w->slot_size;
    found = true;
  }
  return found;
}

/* WRITTEN -> CLEAN, for those that were not written again meanwhile. */
static void
finish_sync_locked (struct mirror *m, struct mirror_window *w)
{
  unsigned i;

  for (i = 0; i < w->nr_slots; ++i)
    if (mirror_bit (w->syncing, i))
      mirror_set_state_locked (m, w, i, CLEAN);
}

/* -- One window, now: armed to strict (rule 5) --------------------------- */

int
mirror_drain (struct mirror *m, struct mirror_window *w)
{
  CLEANUP_BATCH struct mirror_batch b = { 0 };
  struct commit_range range;
  bool syncs;
  int r;

  if (w->block == 0)
    return 0;
  if (mirror_batch_reserve (&b, w->nr_slots, w->fat->length) < 0)
    return -ENOMEM;
  {
    SCOPED_LOCK (&m->lock);
    while (w->in_flight > 0)
      pthread_cond_wait (&m->changed, &m->lock);
    mirror_batch_collect_locked (m, &b, w);
  }
  r = mirror_batch_write (m, &b, 0);
  if (r < 0)
    return r;
  {
    SCOPED_LOCK (&m->lock);
    syncs = mark_syncing_locked (w, &range);
  }
  if (syncs) {
    stats_add (m->stats, STATS_mirror_syncs, 1);
    r = commit_range (m->commit, range.start, range.end);
    if (r < 0)
      return r;
    SCOPED_LOCK (&m->lock);
    finish_sync_locked (m, w);
  }
  return mirror_clear_record (m, &w, 1);
}

/* -- All windows --------------------------------------------------------- */

/* Which windows are meant, of those that were not touched after `since`. */
typedef bool (*window_test) (const struct mirror_window *w);

static bool
is_any (const struct mirror_window *w)
{
  (void) w;
  return true;
}

static bool
is_dirty (const struct mirror_window *w)
{
  return w->dirty > 0;
}

static bool
is_settled (const struct mirror_window *w)
{
  unsigned i;

  if (w->block == 0 || w->dirty > 0 || w->in_flight > 0)
    return false;
  for (i = 0; i < w->nr_slots; ++i)
    if (w->state[i] != CLEAN)
      return false;
  return true;
}

/* The slots of several windows, held. */
struct held {
  struct mirror_window *windows[MIRROR_WINDOWS_MAX];
  struct range ranges[MIRROR_WINDOWS_MAX];
  unsigned nr;
};

/* The first window that is meant, and starts at `start` or later. */
static struct mirror_window *
find_meant_locked (struct mirror *m, uint64_t start, window_test test,
                   uint64_t since)
{
  unsigned i;

  for (i = 0; i < m->nr_windows; ++i)
    if (m->window[i]->fat->start >= start && m->window[i]->touched <= since &&
        test (m->window[i]))
      return m->window[i];
  return NULL;
}

/* Hold the slots of the windows that are meant, in ascending order, which
 * nobody else does (the caller has sync_lock).  They are looked at again once
 * they are held.
 */
static void
hold_windows (struct mirror *m, window_test test, uint64_t since,
              struct held *held)
{
  struct mirror_window *w;
  uint64_t start = 0, end;

  held->nr = 0;
  for (;;) {
    {
      SCOPED_LOCK (&m->lock);
      w = find_meant_locked (m, start, test, since);
      if (!w)
        return;
      start = w->fat->start;
      end = mirror_window_end (w);
    }
    range_lock (&m->slots, &held->ranges[held->nr], start, end, true);
    {
      SCOPED_LOCK (&m->lock);
      w = find_meant_locked (m, start, test, since);
    }
    if (w && w->fat->start == start)
      held->windows[held->nr++] = w;
    else
      range_unlock (&m->slots, &held->ranges[held->nr]);
    start = end;
  }
}

static void
release_windows (struct mirror *m, struct held *held)
{
  unsigned i;

  for (i = 0; i < held->nr; ++i)
    range_unlock (&m->slots, &held->ranges[i]);
  held->nr = 0;
}

/* Copy what is dirty into a batch, and let the windows go. */
static int
collect_all (struct mirror *m, struct mirror_batch *b)
{
  struct held held;
  size_t slots = 0, bytes = 0;
  unsigned i;
  int r = 0;

  hold_windows (m, is_dirty, UINT64_MAX, &held);
  for (i = 0; i < held.nr; ++i) {
    slots += held.windows[i]->dirty;
    bytes += (size_t) held.windows[i]->dirty * held.windows[i]->slot_size;
  }
  if (held.nr > 0)
    r = mirror_batch_reserve (b, slots, bytes);
  if (r == 0) {
    SCOPED_LOCK (&m->lock);
    for (i = 0; i < held.nr; ++i)
      mirror_batch_collect_locked (m, b, held.windows[i]);
  }
  release_windows (m, &held);
  return r;
}

/* Idle I/O priority for this thread, or back to normal (ioprio_set(2)). */
static void
set_idle_priority (bool idle)
{
  syscall (SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, idle
           ? IOPRIO_PRIO_VALUE (IOPRIO_CLASS_IDLE, 0)
           : IOPRIO_PRIO_VALUE (IOPRIO_CLASS_NONE, 0));
}

/* sync_lock is held. */
static int
sync_windows (struct mirror *m, bool background)
{
  struct commit_range ranges[MIRROR_WINDOWS_MAX];
  CLEANUP_BATCH struct mirror_batch b = { 0 };
  unsigned i, nr = 0;
  int r;

  r = collect_all (m, &b);
  if (r < 0)
    return r;
  if (background)
    set_idle_priority (true);
  r = mirror_batch_write (m, &b, background ? DISK_IDLE : 0);
  if (background)
    set_idle_priority (false);
  if (r < 0)
    return r;
  {
    SCOPED_LOCK (&m->lock);
    for (i = 0; i < m->nr_windows; ++i)
      if (mark_syncing_locked (m->window[i], &ranges[nr]))
        nr++;
  }
  if (nr == 0)
    return 0;
  stats_add (m->stats, STATS_mirror_syncs, nr);
  r = commit_many (m->commit, ranges, nr);
  if (r < 0)
    return r;
  SCOPED_LOCK (&m->lock);
  for (i = 0; i < m->nr_windows; ++i)
    finish_sync_locked (m, m->window[i]);
  return 0;
}

/* Clear the record of windows in which nothing is deferred.  sync_lock is
 * held.
 */
static int
disarm_windows (struct mirror *m, uint64_t since)
{
  struct held held;
  int r;

  hold_windows (m, is_settled, since, &held);
  r = mirror_clear_record (m, held.windows, held.nr);
  release_windows (m, &held);
  return r;
}

int
mirror_sync (struct mirror *m)
{
  SCOPED_LOCK (&m->sync_lock);
  return sync_windows (m, false);
}

void
mirror_sync_idle (struct mirror *m, uint64_t disarm_since)
{
  SCOPED_LOCK (&m->sync_lock);
  if (sync_windows (m, true) == 0 && disarm_since > 0)
    disarm_windows (m, disarm_since);
}

int
mirror_settle (struct mirror *m, bool remove)
{
  int r;

  SCOPED_LOCK (&m->sync_lock);
  if (atomic_load (&m->nr_armed) > 0) {
    r = sync_windows (m, false);
    if (r == 0)
      r = disarm_windows (m, UINT64_MAX);
    if (r < 0)
      return r;
  }
  SCOPED_LOCK (&m->intent_lock);
  if (!remove || !m->intent.created || intent_is_armed (&m->intent) ||
      atomic_load (&m->intent_broken))
    return 0;
  return intent_remove (&m->intent);
}

int
mirror_drop (struct mirror *m, struct mirror_window *w)
{
  int r = mirror_drain (m, w);

  if (r < 0)
    return r;
  {
    SCOPED_LOCK (&m->lock);
    while (w->in_flight > 0)
      pthread_cond_wait (&m->changed, &m->lock);
  }
  mirror_forget (m, w);
  return 0;
}

int
mirror_freeze (struct mirror *m)
{
  struct range range;
  struct mirror_window *w;
  int r = 0;

  {
    SCOPED_LOCK (&m->lock);
    m->frozen++;
  }
  range_lock (&m->slots, &range, 0, MIRROR_ALL_SLOTS_END, true);
  while (r == 0) {
    {
      SCOPED_LOCK (&m->lock);
      w = m->nr_windows > 0 ? m->window[m->nr_windows - 1] : NULL;
    }
    if (!w)
      break;
    r = mirror_drop (m, w);
  }
  range_unlock (&m->slots, &range);
  return r;
}

void
mirror_thaw (struct mirror *m)
{
  SCOPED_LOCK (&m->lock);
  m->frozen--;
}

void
mirror_evict (struct mirror *m, uint64_t since)
{
  struct held held;
  unsigned i;

  SCOPED_LOCK (&m->sync_lock);
  hold_windows (m, is_any, since, &held);
  for (i = 0; i < held.nr; ++i)
    if (mirror_drop (m, held.windows[i]) < 0)
      break;
  release_windows (m, &held);
}
