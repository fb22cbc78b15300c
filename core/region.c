/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "region.h"

/* The first volume that ends after 'pos', or nr_volumes. */
static size_t
find_volume (const struct layout *layout, uint64_t pos)
{
  size_t low = 0, high = layout->nr_volumes;

  while (low < high) {
    const size_t mid = low + (high - low) / 2;

    if (layout->volumes[mid].end <= pos)
      low = mid + 1;
    else
      high = mid;
  }
  return low;
}

/* Tag 'pos' in the reserved area, and return where that tag ends.  As in
 * all functions below, 'pos' and the result count from the volume's
 * start.
 */
static uint64_t
tag_reserved (const struct bpb *bpb, uint64_t pos, struct region *ret)
{
  const uint32_t sector = (uint32_t) (pos / bpb->sector_size);
  const uint32_t fsinfo = bpb->fsinfo_sector;
  const uint32_t backup = bpb_fsinfo_backup_sector (bpb);
  uint32_t end = bpb->reserved_sectors;

  /* backup is 0 or after fsinfo; 0, the boot sector, means absent. */
  if (sector != 0 && (sector == fsinfo || sector == backup)) {
    ret->kind = REGION_FSINFO;
    end = sector + 1;
    if (end == backup)
      end++;
  }
  else {
    ret->kind = REGION_RESERVED;
    if (sector < fsinfo)
      end = fsinfo;
    else if (sector < backup)
      end = backup;
  }
  return (uint64_t) end * bpb->sector_size;
}

/* The same for 'pos' anywhere in a volume of 'size' bytes. */
static uint64_t
tag_volume (const struct bpb *bpb, uint64_t pos, uint64_t size,
            struct region *ret)
{
  const uint64_t fats = bpb_fat_start (bpb, 0);

  if (pos < fats)
    return tag_reserved (bpb, pos, ret);
  if (pos < bpb_data_start (bpb)) {
    ret->kind = REGION_FAT;
    ret->fat = (unsigned) ((pos - fats) / bpb_fat_size (bpb));
    return bpb_fat_start (bpb, ret->fat) + bpb_fat_size (bpb);
  }
  if (pos < bpb_data_end (bpb)) {
    ret->kind = REGION_DATA;
    return bpb_data_end (bpb);
  }
  ret->kind = REGION_SLACK;
  return size;
}

void
region_at (const struct layout *layout, uint64_t pos, uint64_t end,
           struct region *ret)
{
  const size_t i = find_volume (layout, pos);
  const struct layout_volume *volume;

  assert (pos < end);
  *ret = (struct region) { .kind = REGION_OUTSIDE, .start = pos, .end = end };
  if (i == layout->nr_volumes)
    return;
  volume = &layout->volumes[i];
  if (pos < volume->start) {
    if (volume->start < end)
      ret->end = volume->start;
    return;
  }

  ret->volume = i;
  ret->end = volume->start + tag_volume (&volume->bpb, pos - volume->start,
                                         volume->end - volume->start, ret);
  if (ret->end > end)
    ret->end = end;
}

const char *
region_kind_string (enum region_kind kind)
{
  switch (kind) {
  case REGION_OUTSIDE: return "outside";
  case REGION_RESERVED: return "reserved";
  case REGION_FSINFO: return "fsinfo";
  case REGION_FAT: return "fat";
  case REGION_DATA: return "data";
  case REGION_SLACK: return "slack";
  }
  return "unknown";
}
