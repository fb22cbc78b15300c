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
#include <time.h>
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
    return 0;                   /* and nothing is in flight */
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

/* Copy what is dirty into a batch, a window at a time.  Nobody's slots are
 * held: the bytes of DEFERRED and DIVERGED slots change under `lock` only.
 */
static int
collect_all (struct mirror *m, struct mirror_batch *b)
{
  struct mirror_window *w;
  size_t slots = 0, bytes = 0;
  uint64_t start = 0;
  unsigned i;

  {
    SCOPED_LOCK (&m->lock);
    for (i = 0; i < m->nr_windows; ++i) {
      slots += m->window[i]->dirty;
      bytes += (size_t) m->window[i]->dirty * m->window[i]->slot_size;
    }
  }
  if (slots == 0)
    return 0;
  if (mirror_batch_reserve (b, slots, bytes) < 0)
    return -ENOMEM;
  for (;;) {
    SCOPED_LOCK (&m->lock);
    w = find_meant_locked (m, start, is_dirty, UINT64_MAX);
    if (!w || b->nr_windows == MIRROR_WINDOWS_MAX)
      return 0;                 /* windows may come and go meanwhile */
    start = mirror_window_end (w);
    if (!w->in_place)
      mirror_batch_collect_locked (m, b, w);
  }
}

/* Idle I/O priority for this thread, or back to normal (ioprio_set(2)). */
static void
set_idle_priority (bool idle)
{
  syscall (SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, idle
           ? IOPRIO_PRIO_VALUE (IOPRIO_CLASS_IDLE, 0)
           : IOPRIO_PRIO_VALUE (IOPRIO_CLASS_NONE, 0));
}

/* Clients' syncs come after one that is under way.  So in the background the
 * page cache gets some time to write a batch back, at idle priority, before
 * its sync.
 */
#define WRITE_BACK_NS 5000000

static void
write_back (struct mirror *m, const struct mirror_batch *b)
{
  struct timespec pause = { .tv_nsec = WRITE_BACK_NS };
  size_t i;

  if (!m->disk->ops->write_back || b->nr == 0)
    return;
  for (i = 0; i < b->nr; ++i)
    m->disk->ops->write_back (m->disk, b->ops[i].offset, b->ops[i].length);
  nanosleep (&pause, NULL);
}

static int
write_batch (struct mirror *m, struct mirror_batch *b, bool background)
{
  int r;

  if (!background)
    return mirror_batch_write (m, b, 0);
  set_idle_priority (true);
  r = mirror_batch_write (m, b, DISK_IDLE);
  if (r == 0)
    write_back (m, b);
  set_idle_priority (false);
  return r;
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
  r = write_batch (m, &b, background);
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
  r = background ? commit_background (m->commit, ranges, nr)
    : commit_many (m->commit, ranges, nr);
  if (r < 0)
    return r;
  SCOPED_LOCK (&m->lock);
  for (i = 0; i < m->nr_windows; ++i)
    finish_sync_locked (m, m->window[i]);
  return 0;
}

/* The bytes of FAT 1 from the first to the last window that is meant. */
static bool
find_hull (struct mirror *m, window_test test, uint64_t since, uint64_t *start,
           uint64_t *end)
{
  struct mirror_window *w;

  SCOPED_LOCK (&m->lock);
  *start = 0;
  *end = 0;
  while ((w = find_meant_locked (m, *end, test, since)) != NULL) {
    if (*end == 0)
      *start = w->fat->start;
    *end = mirror_window_end (w);
  }
  return *end > 0;
}

/* Clear the record of windows in which nothing is deferred.  Their slots are
 * held as one range: one after the other they could meet, in the middle, a
 * request that has come for all of them.  sync_lock is held.
 */
static int
disarm_windows (struct mirror *m, uint64_t since)
{
  struct mirror_window *windows[MIRROR_WINDOWS_MAX], *w;
  uint64_t start, end;
  struct range range;
  unsigned nr = 0;
  int r;

  if (!find_hull (m, is_settled, since, &start, &end))
    return 0;
  range_lock (&m->slots, &range, start, end, true);
  {
    SCOPED_LOCK (&m->lock);
    while ((w = find_meant_locked (m, start, is_settled, since)) != NULL &&
           mirror_window_end (w) <= end) {
      windows[nr++] = w;
      start = mirror_window_end (w);
    }
  }
  r = mirror_clear_record (m, windows, nr);
  range_unlock (&m->slots, &range);
  return r;
}

int
mirror_sync (struct mirror *m)
{
  SCOPED_LOCK (&m->sync_lock);
  return sync_windows (m, false);
}

int
mirror_sync_idle (struct mirror *m, uint64_t disarm_since)
{
  int r;

  SCOPED_LOCK (&m->sync_lock);
  r = sync_windows (m, true);
  if (r == 0 && disarm_since > 0)
    r = disarm_windows (m, disarm_since);
  return r;
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
  if (remove) {
    SCOPED_LOCK (&m->lock);
    m->record_wanted = false;
  }
  if (!remove || !m->intent.created || intent_is_armed (&m->intent) ||
      atomic_load (&m->intent_broken))
    return 0;
  return intent_remove (&m->intent);
}

int
mirror_drop (struct mirror *m, struct mirror_window *w)
{
  int r = mirror_drain (m, w);

  if (r == 0)
    mirror_forget (m, w);
  return r;
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

/* The first window that is not younger than `since`, from *start on, with its
 * slots held, and *start after it.  False: no more.
 */
static bool
hold_next_window (struct mirror *m, uint64_t since, uint64_t *start,
                  struct range *range, struct mirror_window **ret)
{
  struct mirror_window *w;
  uint64_t end;

  for (;;) {
    {
      SCOPED_LOCK (&m->lock);
      w = find_meant_locked (m, *start, is_any, since);
      if (!w)
        return false;
      *start = w->fat->start;
      end = mirror_window_end (w);
    }
    range_lock (&m->slots, range, *start, end, true);
    {
      SCOPED_LOCK (&m->lock);
      w = find_meant_locked (m, *start, is_any, since);
    }
    if (w && w->fat->start == *start) {
      *start = end;
      *ret = w;
      return true;
    }
    range_unlock (&m->slots, range);    /* it has gone, or is in use again */
    *start = end;
  }
}

int
mirror_evict (struct mirror *m, uint64_t since)
{
  struct mirror_window *w;
  uint64_t start = 0;
  struct range range;
  int r;

  SCOPED_LOCK (&m->sync_lock);
  r = sync_windows (m, true);
  while (r == 0 && hold_next_window (m, since, &start, &range, &w)) {
    r = mirror_drop (m, w);
    range_unlock (&m->slots, &range);
  }
  return r;
}
