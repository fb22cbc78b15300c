/* SPDX-License-Identifier: BSD-3-Clause */

/* The way of a request, top to bottom:
 *
 *   check -> range lock -> split by region -> disk, or mirrors -> commit
 *
 * A write is applied to the disk and only then, if it must be durable, joins
 * a commit group, holding nothing.  A write to FATs goes through the mirrors'
 * module (mirror.h), which may defer it, or its commit (deferred.h).  A write
 * to bytes that the layout was read from (a partition table, a boot sector)
 * takes another way (relayout.c).
 */

#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"
#include "region.h"
#include "route.h"
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

/* Most regions are written in place, so that the pieces stay together as one
 * operation, and only the statistics see them apart.  Who calls is inside the
 * epoch, or holds scan_lock.
 */
static void
split (struct fatbatch *fb, const struct layout *layout,
       const struct disk_op *op, struct route *route, struct tree_write *tw)
{
  uint64_t pos = op->offset, end = op->offset + op->length;
  struct region region;

  memset (route, 0, sizeof *route);
  for (; pos < end; pos = region.end) {
    region_at (layout, pos, end, &region);
    stats_add (&fb->stats, region_counter (&region), 1);
    route_add (route, op->kind, layout, &region,
               region.start == op->offset && region.end == end);
    tree_add (&fb->tree, tw, op, layout, &region);
  }
}

/* -- Disk -------------------------------------------------------------- */

/* Apply a write, zero or discard. */
static int
apply_by_route (struct fatbatch *fb, const struct route *route,
                struct disk_op *op, bool durable,
                struct mirror_commit *commit)
{
  int r;

  switch (route->kind) {
  case ROUTE_FAT1:
    return mirror_write_fat1 (&fb->mirror, &route->volume, op, durable,
                              commit);
  case ROUTE_MIRROR:
    return mirror_write_mirror (&fb->mirror, &route->volume, op, durable,
                                commit);
  case ROUTE_ACROSS:
    return mirror_write_across (&fb->mirror, route->slots_start,
                                route->slots_end, op, commit);
  case ROUTE_PLAIN:
    break;
  }
  *commit = mirror_commit_of (op);
  r = deferred_before_data (&fb->deferred, op);
  return r < 0 ? r : disk_submit (fb->disk, op, 1);
}

/* The same for one that touches watched bytes.  Whatever of it lies in FATs is
 * written in place: the layout is read from the image.  Deferred commits are
 * paused.
 */
static int
apply_paused (struct fatbatch *fb, struct disk_op *op, bool durable,
              struct tree_write *tw, struct mirror_commit *commit)
{
  struct route route;
  int r;

  split (fb, fb->layout, op, &route, tw);
  tw->unknown = true;           /* whatever else it touches */
  r = tree_before (&fb->tree, tw, op, durable);
  if (r == 0)
    r = deferred_before_any (&fb->deferred, op, route.slots_start,
                             route.slots_end, 0);
  if (r < 0) {
    tree_after (&fb->tree, tw, op, r, durable);
    return r;
  }
  if (route.kind != ROUTE_PLAIN)
    route.kind = ROUTE_ACROSS;
  if (!engine_would_change_layout (fb, op)) {
    r = apply_by_route (fb, &route, op, true, commit);
    tree_after (&fb->tree, tw, op, r, durable);
    if (r == 0 || r == -EOPNOTSUPP)
      return r;
    engine_begin_layout_change (fb);    /* part of it may be there */
  }
  else {
    tree_after (&fb->tree, tw, op, 0, durable); /* its volumes go */
    r = engine_begin_layout_change (fb);
    if (r == 0)
      r = disk_submit (fb->disk, op, 1);
    *commit = mirror_commit_of (op);
  }
  engine_end_layout_change (fb);
  return r;
}

static int
apply_watched (struct fatbatch *fb, struct disk_op *op, bool durable,
               struct tree_write *tw, struct mirror_commit *commit)
{
  int r;

  SCOPED_LOCK (&fb->scan_lock);
  deferred_pause (&fb->deferred);
  r = apply_paused (fb, op, durable, tw, commit);
  deferred_resume (&fb->deferred);
  if (durable && r == 0)
    mirror_expect_writes (&fb->mirror);
  return r;
}

/* One that does not. */
static int
apply_unwatched (struct fatbatch *fb, const struct layout *layout,
                 struct disk_op *op, bool durable, struct tree_write *tw,
                 struct mirror_commit *commit)
{
  struct route route;
  int r;

  split (fb, layout, op, &route, tw);
  r = tree_before (&fb->tree, tw, op, durable);
  if (r == 0)
    r = apply_by_route (fb, &route, op, durable, commit);
  tree_after (&fb->tree, tw, op, r, durable);
  return r;
}

static int
apply (struct fatbatch *fb, struct disk_op *op, bool durable,
       struct tree_write *tw, struct mirror_commit *commit)
{
  uint64_t start = op->offset, end = op->offset + op->length;
  const struct layout *layout;
  epoch_token token;
  struct range range;
  bool watched;
  int r = 0;

  lock_range (fb, &range, start, end, true);
  token = epoch_enter (&fb->epoch);
  layout = atomic_load (&fb->layout);
  watched = layout_watches (layout, start, end);
  if (!watched)
    r = apply_unwatched (fb, layout, op, durable, tw, commit);
  epoch_leave (token);
  if (watched)
    r = apply_watched (fb, op, durable, tw, commit);
  range_unlock (&fb->ranges, &range);
  return r;
}

/* Apply, then commit if it must be durable. */
static int
modify (struct fatbatch *fb, struct disk_op *op, unsigned flags)
{
  bool durable = fb->write_through || (flags & FATBATCH_FUA);
  struct mirror_commit commit;
  struct tree_write tw;
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

  tree_write_init (&tw);
  r = apply (fb, op, durable, &tw, &commit);
  if (r == 0 && durable)
    r = mirror_make_durable (&fb->mirror, &commit);
  else if (r == 0)
    commit_note_write (&fb->commit, op->length);
  else if (r != -EOPNOTSUPP || !(op->flags & DISK_FAST))
    commit_fail (&fb->commit);
  tree_finish (&fb->tree, &tw);
  if (r == -EOPNOTSUPP && (op->flags & DISK_FAST))
    return r;                   /* nothing was done (disk.h) */
  return r < 0 ? failed (fb, r) : 0;
}

/* -- Requests ---------------------------------------------------------- */

/* Recovery waits, at its end, for those who have looked at what it recovers. */
static int
read_bytes (struct fatbatch *fb, void *buf, size_t count, uint64_t offset)
{
  epoch_token token;
  int r;

  if (atomic_load (&fb->mirror.nr_left) == 0)
    return mirror_read (&fb->mirror, buf, count, offset);
  token = epoch_enter (&fb->epoch);
  r = mirror_read (&fb->mirror, buf, count, offset);
  epoch_leave (token);
  return r;
}

int
fatbatch_read (struct fatbatch *fb, void *buf, size_t count, uint64_t offset)
{
  struct range range;
  int r;

  stats_add (&fb->stats, STATS_reads, 1);
  r = check_range (fb, count, offset);
  if (r == 0 && count > 0) {
    lock_range (fb, &range, offset, offset + count, false);
    r = read_bytes (fb, buf, count, offset);
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
  struct tree_moment moment;
  int r;

  stats_add (&fb->stats, STATS_flushes, 1);
  moment = tree_moment (&fb->tree);
  r = mirror_flush (&fb->mirror);
  if (r == 0)
    tree_flushed (&fb->tree, moment);
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

/* The extent at offset, as a reader sees it: deferred mirrors are data. */
static int
find_extent (struct fatbatch *fb, uint64_t offset, uint64_t count,
             struct disk_extent *extent)
{
  uint64_t next;
  bool hidden;
  int r = 0;

  next = mirror_hides (&fb->mirror, offset, offset + count, &hidden);
  *extent = (struct disk_extent) { .length = next - offset };
  if (!hidden && fb->disk->ops->extent)
    r = fb->disk->ops->extent (fb->disk, offset, next - offset, extent);
  return r;
}

/* Without a range lock: what was acknowledged before is seen anyway. */
int
fatbatch_extents (struct fatbatch *fb, uint64_t count, uint64_t offset,
                  unsigned flags, fatbatch_extent_fn fn, void *opaque)
{
  struct disk_extent extent;
  int r = check_range (fb, count, offset);

  while (r == 0 && count > 0) {
    r = find_extent (fb, offset, count, &extent);
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

int
fatbatch_settle (struct fatbatch *fb)
{
  return mirror_settle (&fb->mirror, true);
}

bool
fatbatch_has_failed (struct fatbatch *fb)
{
  return commit_has_failed (&fb->commit);
}
