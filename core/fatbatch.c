/* SPDX-License-Identifier: BSD-3-Clause */

/* The way of a request, top to bottom:
 *
 *   check -> hold (layout, range) -> split by region -> disk -> commit
 *
 * A write is applied to the disk and only then, if it must be durable, joins
 * a commit group, holding nothing.  A write to bytes that the layout was
 * read from (a partition table, a boot sector) is alone in the engine while
 * it is applied, and the layout is looked at again.
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
  stats_add (&fb->stats.errors, 1);
  return r;
}

/* -- Hold -------------------------------------------------------------- */

/* What a request holds while it is applied to the disk (engine.h). */
struct hold {
  bool may_change_layout;       /* layout_lock is held exclusively */
  struct range range;
};

static void
hold_range (struct fatbatch *fb, struct hold *hold, uint64_t start,
            uint64_t end, bool exclusive)
{
  if (range_lock (&fb->ranges, &hold->range, start, end, exclusive))
    stats_add (&fb->stats.range_waits, 1);
}

static void
hold_for_read (struct fatbatch *fb, struct hold *hold, uint64_t start,
               uint64_t end)
{
  pthread_rwlock_rdlock (&fb->layout_lock);
  hold->may_change_layout = false;
  hold_range (fb, hold, start, end, false);
}

/* A write of part of a block writes the whole block back, and so needs all
 * of it to itself (disk.h, rule 5).
 */
static void
hold_for_write (struct fatbatch *fb, struct hold *hold, uint64_t start,
                uint64_t end)
{
  disk_align_range (fb->disk, &start, &end);
  pthread_rwlock_rdlock (&fb->layout_lock);
  hold->may_change_layout = layout_watches (fb->layout, start, end);
  if (hold->may_change_layout) {
    pthread_rwlock_unlock (&fb->layout_lock);
    pthread_rwlock_wrlock (&fb->layout_lock);
  }
  hold_range (fb, hold, start, end, true);
}

static void
hold_release (struct fatbatch *fb, struct hold *hold)
{
  range_unlock (&fb->ranges, &hold->range);
  pthread_rwlock_unlock (&fb->layout_lock);
}

/* -- Split by region --------------------------------------------------- */

static _Atomic uint64_t *
region_counter (struct stats *stats, const struct region *region)
{
  switch (region->kind) {
  case REGION_RESERVED: return &stats->reserved_pieces;
  case REGION_FSINFO: return &stats->fsinfo_pieces;
  case REGION_FAT:
    return region->fat == 0 ? &stats->fat_pieces : &stats->mirror_pieces;
  case REGION_DATA: return &stats->data_pieces;
  case REGION_OUTSIDE:
  case REGION_SLACK:
    break;
  }
  return &stats->outside_pieces;
}

/* Every region is written in place, so that the pieces stay together as one
 * operation, and only the statistics see them apart.
 */
static void
count_pieces (struct fatbatch *fb, uint64_t start, uint64_t end)
{
  struct region region;
  uint64_t pos;

  for (pos = start; pos < end; pos = region.end) {
    region_at (fb->layout, pos, end, &region);
    stats_add (region_counter (&fb->stats, &region), 1);
  }
}

/* -- Disk -------------------------------------------------------------- */

/* Apply a write, zero or discard. */
static int
apply (struct fatbatch *fb, struct disk_op *op)
{
  uint64_t end = op->offset + op->length;
  struct hold hold;
  int r;

  hold_for_write (fb, &hold, op->offset, end);
  if (fb->writable) {
    count_pieces (fb, op->offset, end);
    r = disk_submit (fb->disk, op, 1);
    /* Also after a failure: part of it may have been written.  The write
     * itself does not depend on whether the scan succeeds.
     */
    if (hold.may_change_layout)
      engine_scan_layout (fb);
  }
  else
    r = -EROFS;
  hold_release (fb, &hold);
  return r;
}

/* A request was not done, and nothing was lost by it. */
static bool
is_refusal (const struct disk_op *op, int r)
{
  return r == -EROFS || (r == -EOPNOTSUPP && (op->flags & DISK_FAST));
}

/* Apply, then commit if it must be durable. */
static int
modify (struct fatbatch *fb, struct disk_op *op, unsigned flags)
{
  bool durable = fb->write_through || (flags & FATBATCH_FUA);
  int r;

  if (flags & FATBATCH_FUA)
    stats_add (&fb->stats.fua, 1);
  r = check_range (fb, op->length, op->offset);
  if (r < 0)
    return failed (fb, r);
  if (durable && commit_has_failed (&fb->commit))
    return failed (fb, -EIO);
  if (op->length == 0)
    return 0;

  r = apply (fb, op);
  if (is_refusal (op, r))
    return r;
  if (r < 0)
    commit_fail (&fb->commit);
  if (r == 0 && durable)
    r = commit_range (&fb->commit, op->offset, op->offset + op->length);
  return r < 0 ? failed (fb, r) : 0;
}

/* -- Requests ---------------------------------------------------------- */

int
fatbatch_read (struct fatbatch *fb, void *buf, size_t count, uint64_t offset)
{
  struct hold hold;
  int r;

  stats_add (&fb->stats.reads, 1);
  stats_add (&fb->stats.read_bytes, count);
  r = check_range (fb, count, offset);
  if (r == 0 && count > 0) {
    hold_for_read (fb, &hold, offset, offset + count);
    r = disk_read (fb->disk, buf, count, offset);
    hold_release (fb, &hold);
  }
  return r < 0 ? failed (fb, r) : 0;
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

  stats_add (&fb->stats.writes, 1);
  stats_add (&fb->stats.write_bytes, count);
  return modify (fb, &op, flags);
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

  stats_add (&fb->stats.zeroes, 1);
  return modify (fb, &op, flags);
}

int
fatbatch_trim (struct fatbatch *fb, uint64_t count, uint64_t offset,
               unsigned flags)
{
  struct disk_op op = {
    .kind = DISK_DISCARD, .offset = offset, .length = count,
  };

  stats_add (&fb->stats.trims, 1);
  return modify (fb, &op, flags);
}

int
fatbatch_flush (struct fatbatch *fb)
{
  int r;

  stats_add (&fb->stats.flushes, 1);
  r = commit_all (&fb->commit);
  return r < 0 ? failed (fb, r) : 0;
}

int
fatbatch_cache_range (struct fatbatch *fb, uint64_t count, uint64_t offset)
{
  int r = check_range (fb, count, offset);

  if (r < 0)
    return failed (fb, r);
  if (count == 0 || !fb->disk->ops->readahead)
    return 0;
  pthread_rwlock_rdlock (&fb->layout_lock);
  r = fb->disk->ops->readahead (fb->disk, offset, count);
  pthread_rwlock_unlock (&fb->layout_lock);
  return r < 0 ? failed (fb, r) : 0;
}

static int
extent_at (struct fatbatch *fb, uint64_t offset, uint64_t length,
           struct disk_extent *ret)
{
  struct hold hold;
  int r = 0;

  *ret = (struct disk_extent) { .length = length };
  if (fb->disk->ops->extent) {
    hold_for_read (fb, &hold, offset, offset + length);
    r = fb->disk->ops->extent (fb->disk, offset, length, ret);
    hold_release (fb, &hold);
  }
  return r;
}

int
fatbatch_extents (struct fatbatch *fb, uint64_t count, uint64_t offset,
                  unsigned flags, fatbatch_extent_fn fn, void *opaque)
{
  struct disk_extent extent;
  int r = check_range (fb, count, offset);

  while (r == 0 && count > 0) {
    r = extent_at (fb, offset, count, &extent);
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
