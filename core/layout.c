/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"

struct scan {
  partition_read_fn read;
  void *opaque;
  uint64_t size;

  size_t nr_ranges, max_ranges;
  struct layout_range *ranges;  /* in the order of reading */

  size_t nr_volumes;
  struct layout_volume volumes[PARTITION_MAX];  /* in the table's order */
};

/* Note what is going to be read: also if the read fails, for it may
 * succeed after a write.
 */
static int
watch (struct scan *scan, uint64_t start, uint64_t end)
{
  struct layout_range *ranges;

  if (scan->nr_ranges > 0 &&
      scan->ranges[scan->nr_ranges - 1].end == start) {
    scan->ranges[scan->nr_ranges - 1].end = end;
    return 0;
  }
  if (scan->nr_ranges == scan->max_ranges) {
    const size_t max = scan->max_ranges ? 2 * scan->max_ranges : 4;

    ranges = reallocarray (scan->ranges, max, sizeof *ranges);
    if (ranges == NULL)
      return -ENOMEM;
    scan->ranges = ranges;
    scan->max_ranges = max;
  }
  scan->ranges[scan->nr_ranges++] = (struct layout_range) { start, end };
  return 0;
}

/* The partition_read_fn of all reads here. */
static int
watched_read (void *opaque, void *buf, size_t count, uint64_t offset)
{
  struct scan *scan = opaque;

  if (offset > scan->size || count > scan->size - offset)
    return -EINVAL;
  if (watch (scan, offset, offset + count) < 0)
    return -ENOMEM;
  return scan->read (scan->opaque, buf, count, offset);
}

static bool
overlaps_volume (const struct scan *scan, uint64_t start, uint64_t end)
{
  size_t i;

  for (i = 0; i < scan->nr_volumes; ++i)
    if (start < scan->volumes[i].end && end > scan->volumes[i].start)
      return true;
  return false;
}

/* Add the volume in [start, end), if there is one.  0 or -ENOMEM. */
static int
scan_volume (struct scan *scan, uint64_t start, uint64_t end,
             unsigned partition, uint32_t min_sector_size)
{
  struct layout_volume volume = {
    .start = start,
    .end = end < scan->size ? end : scan->size,
    .partition = partition,
  };
  uint8_t sector[BPB_SECTOR_SIZE];
  int r;

  r = watched_read (scan, sector, sizeof sector, start);
  if (r < 0)
    return r == -ENOMEM ? r : 0;
  if (bpb_parse (sector, volume.end - volume.start, &volume.bpb) !=
      BPB_FAT32 ||
      volume.bpb.sector_size < min_sector_size ||
      overlaps_volume (scan, volume.start, volume.end))
    return 0;
  scan->volumes[scan->nr_volumes++] = volume;
  return 0;
}

static int
scan_partitions (struct scan *scan, const struct partition_list *list,
                 uint32_t min_sector_size)
{
  size_t i;
  int r;

  for (i = 0; i < list->nr; ++i) {
    const struct partition *part = &list->parts[i];

    if (part->start == 0)       /* a fake table: sector 0 is done with */
      continue;
    r = scan_volume (scan, part->start, part->end, part->number,
                     min_sector_size);
    if (r < 0)
      return r;
  }
  return 0;
}

static int
scan_disk (struct scan *scan, enum partition_table *table)
{
  struct partition_list list;
  int r;

  *table = PARTITION_NONE;
  r = scan_volume (scan, 0, scan->size, 0, 0);
  if (r < 0 || scan->nr_volumes > 0)
    return r;

  r = partition_scan (watched_read, scan, scan->size, &list);
  if (r < 0)
    return r;
  *table = list.table;
  r = scan_partitions (scan, &list, 0);
  if (r < 0 || scan->nr_volumes > 0 || list.table != PARTITION_MBR)
    return r;

  /* Linux does not mount volumes whose sectors are smaller than the
   * disk's blocks.
   */
  r = partition_scan_mbr (watched_read, scan, scan->size, 4096, &list);
  if (r < 0)
    return r;
  return scan_partitions (scan, &list, 4096);
}

static int
compare_ranges (const void *ap, const void *bp)
{
  const struct layout_range *a = ap, *b = bp;

  return (a->start > b->start) - (a->start < b->start);
}

static int
compare_volumes (const void *ap, const void *bp)
{
  const struct layout_volume *a = ap, *b = bp;

  return (a->start > b->start) - (a->start < b->start);
}

/* Sort the ranges and merge those that overlap or touch. */
static void
merge_ranges (struct scan *scan)
{
  size_t i, nr = 0;

  if (scan->nr_ranges == 0)
    return;
  qsort (scan->ranges, scan->nr_ranges, sizeof *scan->ranges,
         compare_ranges);
  for (i = 1; i < scan->nr_ranges; ++i) {
    if (scan->ranges[i].start > scan->ranges[nr].end)
      scan->ranges[++nr] = scan->ranges[i];
    else if (scan->ranges[i].end > scan->ranges[nr].end)
      scan->ranges[nr].end = scan->ranges[i].end;
  }
  scan->nr_ranges = nr + 1;
}

/* Make the snapshot.  Takes scan->ranges over. */
static struct layout *
new_layout (struct scan *scan, enum partition_table table)
{
  struct layout_volume *volumes = NULL;
  struct layout *layout;

  layout = calloc (1, sizeof *layout);
  if (layout == NULL)
    return NULL;
  if (scan->nr_volumes > 0) {
    volumes = calloc (scan->nr_volumes, sizeof *volumes);
    if (volumes == NULL) {
      free (layout);
      return NULL;
    }
    memcpy (volumes, scan->volumes, scan->nr_volumes * sizeof *volumes);
    qsort (volumes, scan->nr_volumes, sizeof *volumes, compare_volumes);
  }
  merge_ranges (scan);
  layout->volumes = volumes;
  layout->table = table;
  layout->nr_volumes = scan->nr_volumes;
  layout->nr_watched = scan->nr_ranges;
  layout->watched = scan->ranges;
  scan->ranges = NULL;
  return layout;
}

int
layout_scan (partition_read_fn read, void *opaque, uint64_t size,
             struct layout **ret)
{
  struct scan scan = { .read = read, .opaque = opaque, .size = size };
  enum partition_table table;
  struct layout *layout;
  int r;

  r = scan_disk (&scan, &table);
  if (r == 0) {
    layout = new_layout (&scan, table);
    if (layout)
      *ret = layout;
    else
      r = -ENOMEM;
  }
  free (scan.ranges);
  return r;
}

static const struct layout_range everything = { 0, UINT64_MAX };

const struct layout layout_unknown = {
  .table = PARTITION_NONE,
  .nr_watched = 1,
  .watched = &everything,
};

void
layout_free (const struct layout *layout)
{
  if (layout == NULL || layout == &layout_unknown)
    return;
  free ((void *) layout->volumes);
  free ((void *) layout->watched);
  free ((void *) layout);
}

bool
layout_watches (const struct layout *layout, uint64_t start, uint64_t end)
{
  size_t low = 0, high = layout->nr_watched;

  /* The first range that ends after 'start'. */
  while (low < high) {
    const size_t mid = low + (high - low) / 2;

    if (layout->watched[mid].end <= start)
      low = mid + 1;
    else
      high = mid;
  }
  return start < end && low < layout->nr_watched &&
    layout->watched[low].start < end;
}

static bool
same_volume (const struct layout_volume *a, const struct layout_volume *b)
{
  return a->start == b->start && a->end == b->end &&
    a->partition == b->partition && bpb_same_geometry (&a->bpb, &b->bpb) &&
    a->bpb.volume_id == b->bpb.volume_id &&
    strcmp (a->bpb.label, b->bpb.label) == 0;
}

bool
layout_equal (const struct layout *a, const struct layout *b)
{
  size_t i;

  if (a->table != b->table || a->nr_volumes != b->nr_volumes ||
      a->nr_watched != b->nr_watched)
    return false;
  for (i = 0; i < a->nr_volumes; ++i)
    if (!same_volume (&a->volumes[i], &b->volumes[i]))
      return false;
  for (i = 0; i < a->nr_watched; ++i)
    if (a->watched[i].start != b->watched[i].start ||
        a->watched[i].end != b->watched[i].end)
      return false;
  return true;
}
