/* SPDX-License-Identifier: BSD-3-Clause */

/* Writes that may change where the volumes are: to a partition table, or to a
 * boot sector.
 *
 * Rules:
 *
 * 1. Most such writes change nothing but a dirty bit.  So the layout is first
 *    found out as it would be after the write; if it is the same, the write is
 *    like any other.
 * 2. Otherwise, before the write is applied, deferred mirrors are written and
 *    their record is cleared: what it says about the image must be true as
 *    long as it says it.  Nothing is deferred again until the new layout is
 *    there, and all requests that may have seen the old one have ended.
 * 3. After a failed write, part of it may be there: the image is looked at
 *    again, as in 2.
 */

#include <config.h>

#include <errno.h>
#include <string.h>

#include "engine.h"
#include "util.h"

/* -- Looking at the image ------------------------------------------------- */

/* The image as it is, or as it would be after a write or zero. */
struct view {
  struct disk *disk;
  const struct disk_op *op;     /* NULL: as it is */
};

static int
view_read (void *opaque, void *buf, size_t count, uint64_t offset)
{
  const struct view *view = opaque;
  const struct disk_op *op = view->op;
  uint64_t start, end;
  int r;

  r = disk_read (view->disk, buf, count, offset);
  if (r < 0 || !op)
    return r;
  start = max_u64 (offset, op->offset);
  end = min_u64 (offset + count, op->offset + op->length);
  if (start >= end)
    return 0;
  if (op->kind == DISK_WRITE)
    disk_iov_read (op->iov, op->iovcnt, start - op->offset,
                   (char *) buf + (start - offset), end - start);
  else
    memset ((char *) buf + (start - offset), 0, end - start);
  return 0;
}

static int
scan (struct fatbatch *fb, const struct disk_op *op, struct layout **ret)
{
  struct view view = { fb->disk, op };

  stats_add (&fb->stats, STATS_layout_scans, 1);
  return layout_scan (view_read, &view, fb->disk->size, ret);
}

bool
engine_would_change_layout (struct fatbatch *fb, const struct disk_op *op)
{
  struct layout *layout;
  bool changes;

  if (op->kind == DISK_DISCARD) /* who knows what is there afterwards */
    return true;
  if (scan (fb, op, &layout) < 0)
    return true;
  changes = !layout_equal (fb->layout, layout);
  layout_free (layout);
  return changes;
}

/* -- Changing the layout --------------------------------------------------- */

int
engine_scan_layout (struct fatbatch *fb)
{
  const struct layout *old = fb->layout;
  struct layout *layout;
  int r;

  r = scan (fb, NULL, &layout);
  if (r == 0 && old && layout_equal (old, layout)) {
    layout_free (layout);
    return 0;
  }
  tree_forget_layout (&fb->tree);
  atomic_store (&fb->layout, r < 0 ? &layout_unknown : layout);
  mirror_set_layout (&fb->mirror, fb->layout);
  if (old) {
    epoch_wait (&fb->epoch);
    layout_free (old);
  }
  tree_set_layout (&fb->tree, fb->layout);
  return r;
}

int
engine_begin_layout_change (struct fatbatch *fb)
{
  return mirror_freeze (&fb->mirror);
}

void
engine_end_layout_change (struct fatbatch *fb)
{
  /* Without memory for the new layout nothing is known of it, and each write
   * tries again.
   */
  engine_scan_layout (fb);
  mirror_thaw (&fb->mirror);
}
