/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "byteorder.h"
#include "fattable.h"
#include "util.h"

int
fat_window_new (struct disk *disk, uint64_t start, uint32_t length,
                struct fat_window **ret)
{
  struct fat_window *w = malloc (sizeof *w + length);
  int r;

  if (!w)
    return -ENOMEM;
  w->start = start;
  w->length = length;
  w->unreadable = false;
  populate (w->bytes, length);
  r = disk_read (disk, w->bytes, length, start);
  if (r < 0) {
    free (w);
    return r;
  }
  *ret = w;
  return 0;
}

void
fat_window_free (struct fat_window *w)
{
  free (w);
}

void
fat_window_update (struct fat_window *w, const struct disk_op *op)
{
  uint64_t start = max_u64 (op->offset, w->start);
  uint64_t end = min_u64 (op->offset + op->length, w->start + w->length);

  if (start < end)
    disk_iov_read (op->iov, op->iovcnt, start - op->offset,
                   w->bytes + (start - w->start), end - start);
}

void
fat_window_reload (struct fat_window *w, struct disk *disk, uint64_t start,
                   uint64_t end)
{
  start = max_u64 (start, w->start);
  end = min_u64 (end, w->start + w->length);
  if (start < end &&
      disk_read (disk, w->bytes + (start - w->start), end - start, start) < 0)
    w->unreadable = true;
}

bool
fat_window_equals (const struct fat_window *w, uint64_t at,
                   const struct disk_op *op, uint64_t start, uint64_t end)
{
  return !w->unreadable &&
    disk_iov_equals (op->iov, op->iovcnt, start - op->offset,
                     w->bytes + (at - w->start), end - start);
}

/* The entries that are other bytes now; false if one of them was not 0, or has
 * another high nibble now, or is one of the two that are no clusters.
 */
static bool
changed_from_free (const uint8_t *before, const uint8_t *after,
                   uint32_t first, struct fat_entries *changed)
{
  unsigned n;

  memset (changed, 0, sizeof *changed);
  for (n = 0; n < FAT_ENTRIES; ++n) {
    uint32_t old = load_le32 (before + 4 * n);
    uint32_t new = load_le32 (after + 4 * n);

    if (old == new)
      continue;
    if (first + n < 2 || (old & FAT_ENTRY_MASK) != 0 ||
        (old ^ new) & ~FAT_ENTRY_MASK)
      return false;
    fat_entries_set (changed, n);
  }
  return true;
}

/* Whatever names one that changes must change, too, and names nothing else. */
bool
fat_sector_allocates (const uint8_t *before, const uint8_t *after,
                      uint32_t first, struct fat_entries *ret)
{
  bool any = false;
  unsigned n;

  if (!changed_from_free (before, after, first, ret))
    return false;
  for (n = 0; n < FAT_ENTRIES; ++n) {
    uint32_t next = load_le32 (after + 4 * n) & FAT_ENTRY_MASK;
    bool names = next - first < FAT_ENTRIES &&
      fat_entries_has (ret, next - first);

    if (fat_entries_has (ret, n)) {
      any = true;
      if (next < FAT_ENTRY_END && !names)
        return false;
    }
    else if (names)
      return false;
  }
  return any;
}
