/* SPDX-License-Identifier: BSD-3-Clause */

/* Mirrors: reads.  The states and rules are in mirror.h. */

#include <config.h>

#include <string.h>

#include "mirror-window.h"
#include "util.h"

/* The hull of the slots of armed windows that a read of mirrors meets. */
static bool
find_hull (struct mirror *m, uint64_t offset, uint64_t end,
           uint64_t *hull_start, uint64_t *hull_end)
{
  bool found = false;
  unsigned i;

  SCOPED_LOCK (&m->lock);
  for (i = 0; i < m->nr_windows; ++i) {
    const struct mirror_window *w = m->window[i];

    if (w->block == 0 || w->mirror >= end || w->mirror + w->fat->length <= offset)
      continue;
    if (!found)
      *hull_start = w->fat->start;
    *hull_end = mirror_window_end (w);
    found = true;
  }
  return found;
}

/* Put the bytes of a window's mirror that the image does not have over what was
 * read.
 */
static void
overlay_locked (const struct mirror_window *w, uint8_t *buf, uint64_t offset,
                uint64_t end)
{
  uint64_t start = max_u64 (offset, w->mirror);
  uint64_t stop = min_u64 (end, w->mirror + w->fat->length);
  uint64_t pos, next;

  for (pos = start; pos < stop; pos = next) {
    size_t at = pos - w->mirror;
    unsigned slot = at / w->slot_size;
    const uint8_t *bytes = NULL;

    next = min_u64 (stop, w->mirror + (uint64_t) (slot + 1) * w->slot_size);
    if (w->state[slot] == DEFERRED)
      bytes = w->fat->bytes;
    else if (w->state[slot] == DIVERGED || w->state[slot] == WRITING)
      bytes = w->kept;
    if (bytes)
      memcpy (buf + (pos - offset), bytes + at, next - pos);
  }
}

/* Mirrors that an earlier run has left deferred: FAT 1's bytes. */
static int
read_left (struct mirror *m, size_t nr_left, uint8_t *buf, size_t count,
           uint64_t offset)
{
  size_t i;
  int r = disk_read (m->disk, buf, count, offset);

  for (i = 0; r == 0 && i < nr_left; ++i) {
    const struct intent_entry *e = &m->left[i];
    uint64_t start = max_u64 (offset, e->mirror);
    uint64_t end = min_u64 (offset + count, e->mirror + e->length);
    uint64_t pos, next;

    for (pos = start; r == 0 && pos < end; pos = next) {
      unsigned slot = (pos - e->mirror) / e->slot_size;

      next = min_u64 (end, e->mirror + (uint64_t) (slot + 1) * e->slot_size);
      if (mirror_bit (e->slots, slot))
        r = disk_read (m->disk, buf + (pos - offset), next - pos,
                       pos - e->mirror + e->fat1);
    }
  }
  return r;
}

/* 0; 1: again; -errno.  What a batch has in flight is in memory until the image
 * has it, so the image must not be older than the look at the states.
 */
static int
read_and_overlay (struct mirror *m, uint8_t *buf, size_t count,
                  uint64_t offset)
{
  uint64_t batches;
  unsigned i;
  int r;

  {
    SCOPED_LOCK (&m->lock);
    batches = m->batches_ended;
  }
  r = disk_read (m->disk, buf, count, offset);
  if (r < 0)
    return r;
  SCOPED_LOCK (&m->lock);
  if (m->batches_ended != batches)
    return 1;
  for (i = 0; i < m->nr_windows; ++i)
    if (m->window[i]->block != 0)
      overlay_locked (m->window[i], buf, offset, offset + count);
  return 0;
}

int
mirror_read (struct mirror *m, void *buf, size_t count, uint64_t offset)
{
  size_t nr_left = atomic_load (&m->nr_left);
  uint64_t start, end;
  struct range range;
  int r;

  if (nr_left > 0)
    return read_left (m, nr_left, buf, count, offset);
  if (atomic_load (&m->nr_armed) == 0 ||
      !find_hull (m, offset, offset + count, &start, &end))
    return disk_read (m->disk, buf, count, offset);

  range_lock (&m->slots, &range, start, end, false);
  while ((r = read_and_overlay (m, buf, count, offset)) == 1)
    ;
  range_unlock (&m->slots, &range);
  return r;
}

/* Does [pos, end) start inside of [start, start + length)?  Lowers *next to
 * where that changes.
 */
static bool
starts_inside (uint64_t start, uint64_t length, uint64_t pos, uint64_t *next)
{
  if (start > pos) {
    *next = min_u64 (*next, start);
    return false;
  }
  if (start + length <= pos)
    return false;
  *next = min_u64 (*next, start + length);
  return true;
}

bool
mirror_peek (struct mirror *m, void *buf, uint64_t start, uint64_t end)
{
  const struct mirror_window *w;
  unsigned i;

  SCOPED_LOCK (&m->lock);
  i = mirror_find_locked (m, start);
  if (i == m->nr_windows)
    return false;
  w = m->window[i];
  if (start < w->fat->start || end > mirror_window_end (w) ||
      w->fat->unreadable)
    return false;
  memcpy (buf, w->fat->bytes + (start - w->fat->start), end - start);
  return true;
}

uint64_t
mirror_hides (struct mirror *m, uint64_t offset, uint64_t end, bool *hides)
{
  size_t i, nr_left = atomic_load (&m->nr_left);
  uint64_t next = end;

  *hides = false;
  for (i = 0; i < nr_left; ++i)
    *hides |= starts_inside (m->left[i].mirror, m->left[i].length, offset,
                             &next);
  if (atomic_load (&m->nr_armed) == 0)
    return next;
  SCOPED_LOCK (&m->lock);
  for (i = 0; i < m->nr_windows; ++i)
    if (m->window[i]->block != 0)
      *hides |= starts_inside (m->window[i]->mirror,
                               m->window[i]->fat->length, offset, &next);
  return next;
}
