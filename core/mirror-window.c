/* SPDX-License-Identifier: BSD-3-Clause */

/* Mirrors: windows.  The states and rules are in mirror.h. */

#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mirror-window.h"
#include "monotonic.h"
#include "util.h"

bool
mirror_volume_of (const struct layout_volume *volume,
                  struct mirror_volume *ret)
{
  const struct bpb *bpb = &volume->bpb;

  if (!bpb_mirroring (bpb))
    return false;
  ret->fat1 = volume->start + bpb_fat_start (bpb, 0);
  ret->mirror = volume->start + bpb_fat_start (bpb, 1);
  ret->size = bpb_fat_size (bpb);
  ret->sector_size = bpb->sector_size;
  ret->start = volume->start;
  ret->id = bpb->volume_id;
  return true;
}

void
mirror_reached (struct mirror *m, enum fatbatch_point point)
{
  if (m->reached)
    m->reached (m->reached_opaque, point);
}

void
mirror_set_state_locked (struct mirror *m, struct mirror_window *w,
                         unsigned slot, enum mirror_state state)
{
  bool was = w->state[slot] == DEFERRED || w->state[slot] == DIVERGED;
  bool is = state == DEFERRED || state == DIVERGED;

  mirror_set_bit (w->syncing, slot, false);
  w->state[slot] = state;
  if (is && !was) {
    if (w->dirty++ == 0)
      w->dirty_since = monotonic_now ();
    m->dirty_bytes += w->slot_size;
  }
  else if (was && !is) {
    w->dirty--;
    m->dirty_bytes -= w->slot_size;
  }
}

/* -- Windows ------------------------------------------------------------ */

/* The first window that ends after a byte of FAT 1, or nr_windows. */
unsigned
mirror_find_locked (const struct mirror *m, uint64_t pos)
{
  unsigned low = 0, high = m->nr_windows;

  while (low < high) {
    unsigned mid = low + (high - low) / 2;

    if (mirror_window_end (m->window[mid]) <= pos)
      low = mid + 1;
    else
      high = mid;
  }
  return low;
}

/* The window of a byte of FAT 1, or NULL.  Its slots are held by the caller,
 * so it stays.
 */
static struct mirror_window *
get_window (struct mirror *m, uint64_t pos)
{
  unsigned i;

  SCOPED_LOCK (&m->lock);
  i = mirror_find_locked (m, pos);
  return i < m->nr_windows && m->window[i]->fat->start <= pos
    ? m->window[i] : NULL;
}

/* Which slots of both copies are equal. */
static int
compare_copies (struct mirror *m, struct mirror_window *w)
{
  CLEANUP_FREE uint8_t *copy = malloc (w->fat->length);
  unsigned slot;
  int r;

  if (!copy)
    return -ENOMEM;
  populate (copy, w->fat->length);
  r = disk_read (m->disk, copy, w->fat->length, w->mirror);
  if (r < 0)
    return r;
  for (slot = 0; slot < w->nr_slots; ++slot) {
    size_t at = (size_t) slot * w->slot_size;

    mirror_set_bit (w->equal, slot, memcmp (copy + at, w->fat->bytes + at,
                                            w->slot_size) == 0);
  }
  stats_add (m->stats, STATS_windows_compared, 1);
  return 0;
}

static void
free_window (struct mirror_window *w)
{
  fat_window_free (w->fat);
  free (w->kept);
  free (w);
}

static int
new_window (struct mirror *m, const struct mirror_volume *volume,
            uint64_t start, struct mirror_window **ret)
{
  uint64_t left = volume->fat1 + volume->size - start;
  uint32_t length = min_u64 (left, FATTABLE_WINDOW);
  struct mirror_window *w = calloc (1, sizeof *w);
  int r;

  if (!w)
    return -ENOMEM;
  w->kept = malloc (length);
  r = w->kept ? fat_window_new (m->disk, start, length, &w->fat) : -ENOMEM;
  if (r == 0) {
    w->mirror = volume->mirror + (start - volume->fat1);
    w->slot_size = volume->sector_size;
    w->nr_slots = length / volume->sector_size;
    w->volume_start = volume->start;
    w->volume_id = volume->id;
    r = compare_copies (m, w);
  }
  if (r < 0) {
    free_window (w);
    return r;
  }
  *ret = w;
  return 0;
}

/* False if there is no room, or everything is frozen.  Whether FAT 1 is durable
 * is not known: as if all of it had just been written.
 */
static bool
insert_window (struct mirror *m, struct mirror_window *w)
{
  unsigned i;

  SCOPED_LOCK (&m->lock);
  if (m->frozen || m->nr_windows == MIRROR_WINDOWS_MAX)
    return false;
  w->made = ++m->changes;
  for (i = 0; i < w->nr_slots; ++i)
    w->fat1_changed[i] = w->made;
  i = mirror_find_locked (m, w->fat->start);
  memmove (&m->window[i + 1], &m->window[i],
           (m->nr_windows - i) * sizeof m->window[0]);
  m->window[i] = w;
  m->nr_windows++;
  return true;
}

void
mirror_forget (struct mirror *m, struct mirror_window *w)
{
  unsigned i;

  {
    SCOPED_LOCK (&m->lock);
    i = mirror_find_locked (m, w->fat->start);
    m->nr_windows--;
    memmove (&m->window[i], &m->window[i + 1],
             (m->nr_windows - i) * sizeof m->window[0]);
  }
  free_window (w);
}

/* May a window be made now?  If the table is full the thread makes room, for
 * the next write (rule 9).
 */
static bool
has_room (struct mirror *m)
{
  SCOPED_LOCK (&m->lock);
  if (m->frozen)
    return false;
  if (m->nr_windows < MIRROR_WINDOWS_MAX)
    return true;
  m->room_wanted = true;
  mirror_wake_thread_locked (m);
  return false;
}

/* Of the window of a byte of FAT 1. */
static uint64_t
window_start (const struct mirror_volume *volume, uint64_t pos)
{
  return volume->fat1 + align_down (pos - volume->fat1, FATTABLE_WINDOW);
}

void
mirror_make_windows (struct mirror *m, const struct mirror_volume *volume,
                     uint64_t start, uint64_t end)
{
  struct mirror_window *w;
  uint64_t pos;

  for (pos = window_start (volume, start); pos < end; pos += FATTABLE_WINDOW)
    if (!get_window (m, pos) && has_room (m) &&
        new_window (m, volume, pos, &w) == 0 && !insert_window (m, w))
      free_window (w);
}

bool
mirror_has_windows (struct mirror *m, const struct mirror_volume *volume,
                    uint64_t start, uint64_t end)
{
  uint64_t pos;

  for (pos = window_start (volume, start); pos < end; pos += FATTABLE_WINDOW)
    if (!get_window (m, pos))
      return false;
  return true;
}

bool
mirror_next_slots (struct mirror *m, uint64_t *pos, uint64_t end,
                   struct mirror_slots *ret)
{
  struct mirror_window *w;
  uint64_t from, to;
  unsigned i;

  {
    SCOPED_LOCK (&m->lock);
    i = mirror_find_locked (m, *pos);
    if (*pos >= end || i == m->nr_windows || m->window[i]->fat->start >= end)
      return false;
    w = m->window[i];
  }
  from = max_u64 (*pos, w->fat->start);
  to = min_u64 (end, mirror_window_end (w));
  ret->w = w;
  ret->first = (from - w->fat->start) / w->slot_size;
  ret->last = (to - w->fat->start + w->slot_size - 1) / w->slot_size;
  *pos = to;
  return true;
}

bool
mirror_makes_windows (const struct mirror *m, const struct disk_op *op)
{
  return m->enabled && op->length <= MIRROR_WRITE_MAX &&
    !atomic_load (&m->intent_broken);
}

void
mirror_widen (const struct mirror_volume *volume, uint64_t *start,
              uint64_t *end)
{
  *start = window_start (volume, *start);
  *end = min_u64 (align_up (*end - volume->fat1, FATTABLE_WINDOW),
                  volume->size) + volume->fat1;
}
