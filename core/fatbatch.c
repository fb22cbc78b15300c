/* SPDX-License-Identifier: BSD-3-Clause */

/* The way of a request, top to bottom:
 *
 *   check -> range lock -> split by region -> disk -> commit
 *
 * A write is applied to the disk and only then, if it must be durable, joins
 * a commit group, holding nothing.  After a write to bytes that the layout
 * was read from (a partition table, a boot sector) the layout is looked at
 * again before the write is acknowledged.
 */

#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "engine.h"
#include "region.h"
#include "util.h"

/* -- Check ------------------------------------------------------------- */

static int
check_range (const struct fatbatch *fb, uint64_t count, uint64_t offset)
{
  return count <= fb->disk->size && offset <= fb->disk->size - count
    ? 0 : -EINVAL;
}

static int
failed (struct fatbatch *fb, int r)
{
  stats_add (&fb->stats, STATS_errors, 1);
  return r;
}

/* -- Range lock -------------------------------------------------------- */

static void
lock_range (struct fatbatch *fb, struct range *range, uint64_t start,
            uint64_t end, bool exclusive)
{
  if (range_lock (&fb->ranges, range, start, end, exclusive))
    stats_add (&fb->stats, STATS_range_waits, 1);
}

/* -- Split by region --------------------------------------------------- */

static enum stats_counter
region_counter (const struct region *region)
{
  switch (region->kind) {
  case REGION_RESERVED: return STATS_reserved_pieces;
  case REGION_FSINFO: return STATS_fsinfo_pieces;
  case REGION_FAT:
    return region->fat == 0 ? STATS_fat_pieces : STATS_mirror_pieces;
  case REGION_DATA: return STATS_data_pieces;
  case REGION_OUTSIDE:
  case REGION_SLACK:
    break;
  }
  return STATS_outside_pieces;
}

/* Every region is written in place, so that the pieces stay together as one
 * operation, and only the statistics see them apart.  Returns whether the
 * layout depends on the range.
 */
static bool
split (struct fatbatch *fb, uint64_t start, uint64_t end)
{
  unsigned slot = sharedlock_lock_shared (&fb->layout_lock);
  bool watched = layout_watches (fb->layout, start, end);
  struct region region;
  uint64_t pos;

  for (pos = start; pos < end; pos = region.end) {
    region_at (fb->layout, pos, end, &region);
    stats_add (&fb->stats, region_counter (&region), 1);
  }
  sharedlock_unlock_shared (&fb->layout_lock, slot);
  return watched;
}

/* -- Disk -------------------------------------------------------------- */

/* Apply a write, zero or discard.  A write of part of a block writes the
 * whole block back, and so needs all of it to itself (disk.h, rule 5).
 */
static int
apply (struct fatbatch *fb, struct disk_op *op)
{
  uint64_t op_end = op->offset + op->length;
  uint64_t start = op->offset, end = op_end;
  struct range range;
  bool watched;
  int r;

  disk_align_range (fb->disk, &start, &end);
  lock_range (fb, &range, start, end, true);
  watched = split (fb, op->offset, op_end);
  r = disk_submit (fb->disk, op, 1);
  range_unlock (&fb->ranges, &range);

  /* Also after a failure: part of it may have been written.  The write itself
   * does not depend on whether the scan succeeds.
   */
  if (watched)
    engine_scan_layout (fb);
  return r;
}

/* Apply, then commit if it must be durable. */
static int
modify (struct fatbatch *fb, struct disk_op *op, unsigned flags)
{
  bool durable = fb->write_through || (flags & FATBATCH_FUA);
  int r;

  if (flags & FATBATCH_FUA)
    stats_add (&fb->stats, STATS_fua, 1);
  r = check_range (fb, op->length, op->offset);
  if (r == 0 && !atomic_load (&fb->writable))
    r = -EROFS;
  if (r == 0 && durable && commit_has_failed (&fb->commit))
    r = -EIO;
  if (r < 0)
    return failed (fb, r);
  if (op->length == 0)
    return 0;

  r = apply (fb, op);
  if (r == -EOPNOTSUPP && (op->flags & DISK_FAST))
    return r;                   /* nothing was done (disk.h) */
  if (r < 0)
    commit_fail (&fb->commit);
  else if (durable)
    r = commit_range (&fb->commit, op->offset, op->offset + op->length);
  return r < 0 ? failed (fb, r) : 0;
}

/* -- Requests ---------------------------------------------------------- */

int
fatbatch_read (struct fatbatch *fb, void *buf, size_t count, uint64_t offset)
{
  struct range range;
  int r;

  stats_add (&fb->stats, STATS_reads, 1);
  r = check_range (fb, count, offset);
  if (r == 0 && count > 0) {
    lock_range (fb, &range, offset, offset + count, false);
    r = disk_read (fb->disk, buf, count, offset);
    range_unlock (&fb->ranges, &range);
  }
  if (r < 0)
    return failed (fb, r);
  stats_add (&fb->stats, STATS_read_bytes, count);
  return 0;
}

int
fatbatch_write (struct fatbatch *fb, const void *buf, size_t count,
                uint64_t offset, unsigned flags)
{
  struct iovec iov = { (void *) buf, count };
  struct disk_op op = {
    .kind = DISK_WRITE, .offset = offset, .length = count,
    .iov = &iov, .iovcnt = 1,
  };

  int r;

  stats_add (&fb->stats, STATS_writes, 1);
  r = modify (fb, &op, flags);
  if (r == 0)
    stats_add (&fb->stats, STATS_write_bytes, count);
  return r;
}

int
fatbatch_zero (struct fatbatch *fb, uint64_t count, uint64_t offset,
               unsigned flags)
{
  struct disk_op op = {
    .kind = DISK_ZERO, .offset = offset, .length = count,
    .flags = (flags & FATBATCH_MAY_UNMAP ? DISK_MAY_UNMAP : 0) |
             (flags & FATBATCH_FAST ? DISK_FAST : 0),
  };

  stats_add (&fb->stats, STATS_zeroes, 1);
  return modify (fb, &op, flags);
}

int
fatbatch_trim (struct fatbatch *fb, uint64_t count, uint64_t offset,
               unsigned flags)
{
  struct disk_op op = {
    .kind = DISK_DISCARD, .offset = offset, .length = count,
  };

  stats_add (&fb->stats, STATS_trims, 1);
  return modify (fb, &op, flags);
}

int
fatbatch_flush (struct fatbatch *fb)
{
  int r;

  stats_add (&fb->stats, STATS_flushes, 1);
  r = commit_all (&fb->commit);
  return r < 0 ? failed (fb, r) : 0;
}

int
fatbatch_cache_range (struct fatbatch *fb, uint64_t count, uint64_t offset)
{
  int r = check_range (fb, count, offset);

  if (r == 0 && count > 0 && fb->disk->ops->readahead)
    r = fb->disk->ops->readahead (fb->disk, offset, count);
  return r < 0 ? failed (fb, r) : 0;
}

/* Without a range lock: what was acknowledged before is seen anyway. */
int
fatbatch_extents (struct fatbatch *fb, uint64_t count, uint64_t offset,
                  unsigned flags, fatbatch_extent_fn fn, void *opaque)
{
  struct disk_extent extent;
  int r = check_range (fb, count, offset);

  while (r == 0 && count > 0) {
    extent = (struct disk_extent) { .length = count };
    if (fb->disk->ops->extent)
      r = fb->disk->ops->extent (fb->disk, offset, count, &extent);
    if (r < 0)
      break;
    r = fn (opaque, offset, extent.length, extent.hole);
    if (r != 0 || (flags & FATBATCH_ONE))
      return r;
    offset += extent.length;
    count -= extent.length;
  }
  return r < 0 ? failed (fb, r) : 0;
}

bool
fatbatch_has_failed (struct fatbatch *fb)
{
  return commit_has_failed (&fb->commit);
}
