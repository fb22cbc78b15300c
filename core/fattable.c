/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
