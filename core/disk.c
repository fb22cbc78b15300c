/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "disk.h"
#include "util.h"

/* An unaligned request is done through a buffer of at most this size, piece
 * by piece.  Large enough that O_DIRECT's cost per call vanishes, small
 * enough that many threads at once stay within bounds.
 */
#define BOUNCE_MAX (1024 * 1024)

void
disk_init (struct disk *disk, const struct disk_ops *ops, uint64_t size,
           uint32_t align, uint32_t mem_align)
{
  disk->ops = ops;
  disk->size = size;
  disk->align = align;
  disk->mem_align = mem_align;
  disk->preferred_io = 0;
  disk->rotational = false;
  memset (&disk->faults, 0, sizeof disk->faults);
  rangelock_init (&disk->blocks);
}

void
disk_free (struct disk *disk)
{
  if (!disk)
    return;
  rangelock_release (&disk->blocks);
  disk->ops->free (disk);
}

/* -- Alignment --------------------------------------------------------- */

/* The blocks that an operation touches.  The tail goes through the page cache
 * (rule 4), and a direct write must not meet its page while it is written: so
 * all blocks in that page belong together.
 */
static void
align_range (const struct disk *disk, uint64_t *start, uint64_t *end)
{
  uint64_t page = align_down (disk->size, 4096);

  *start = align_down (*start, disk->align);
  *end = min_u64 (align_up (*end, disk->align), disk->size);
  if ((disk->size & (disk->align - 1)) != 0 && *end > page) {
    *start = min_u64 (*start, page);
    *end = disk->size;
  }
}

static bool
touches_tail_page (const struct disk *disk, const struct disk_op *op)
{
  return (disk->size & (disk->align - 1)) != 0 &&
    op->offset + op->length > align_down (disk->size, 4096);
}

static bool
op_is_aligned (const struct disk *disk, const struct disk_op *op)
{
  uint64_t mask = disk->align - 1, mem_mask = disk->mem_align - 1;
  int i;

  if (op->kind == DISK_SYNC)
    return true;
  if ((op->offset | op->length) & mask)
    return false;
  for (i = 0; i < op->iovcnt; ++i)
    if (((uintptr_t) op->iov[i].iov_base & mem_mask) ||
        (op->iov[i].iov_len & mask))
      return false;
  return true;
}

/* -- Vectors ----------------------------------------------------------- */

/* The longest flat part of an iovec at byte *skip, at most *count long.
 * *iov, *iovcnt and *skip move to it.
 */
static char *
iov_part (const struct iovec **iov, int *iovcnt, uint64_t *skip, size_t *count)
{
  while (*iovcnt > 0 && *skip >= (*iov)->iov_len) {
    *skip -= (*iov)->iov_len;
    ++*iov;
    --*iovcnt;
  }
  *count = min_u64 ((*iov)->iov_len - *skip, *count);
  return (char *) (*iov)->iov_base + *skip;
}

void
disk_iov_read (const struct iovec *iov, int iovcnt, uint64_t skip,
               void *buf, size_t count)
{
  char *to = buf;

  while (count > 0) {
    size_t n = count;
    const char *part = iov_part (&iov, &iovcnt, &skip, &n);

    memcpy (to, part, n);
    to += n;
    skip += n;
    count -= n;
  }
}

const void *
disk_iov_peek (const struct iovec *iov, int iovcnt, uint64_t skip, void *buf,
               size_t count)
{
  size_t n = count;
  const void *part = iov_part (&iov, &iovcnt, &skip, &n);

  if (n == count)
    return part;
  disk_iov_read (iov, iovcnt, skip, buf, count);
  return buf;
}

static void
iov_write (const struct iovec *iov, int iovcnt, uint64_t skip,
           const void *buf, size_t count)
{
  const char *from = buf;

  while (count > 0) {
    size_t n = count;
    char *part = iov_part (&iov, &iovcnt, &skip, &n);

    memcpy (part, from, n);
    from += n;
    skip += n;
    count -= n;
  }
}

bool
disk_iov_equals (const struct iovec *iov, int iovcnt, uint64_t skip,
                 const void *buf, size_t count)
{
  const char *with = buf;

  while (count > 0) {
    size_t n = count;
    const char *part = iov_part (&iov, &iovcnt, &skip, &n);

    if (memcmp (part, with, n) != 0)
      return false;
    with += n;
    skip += n;
    count -= n;
  }
  return true;
}

/* -- Unaligned operations ---------------------------------------------- */

/* One aligned (or, at the disk's tail, buffered) transfer of a bounce
 * buffer.
 */
static int
bounce_transfer (struct disk *disk, enum disk_op_kind kind, char *bounce,
                 uint64_t start, uint64_t end)
{
  uint64_t tail = align_down (disk->size, disk->align);
  struct iovec iov = { bounce, end - start };
  struct disk_op op = {
    .kind = kind, .offset = start, .length = end - start,
    .flags = end > tail ? DISK_BUFFERED : 0,
    .iov = &iov, .iovcnt = 1,
  };

  return disk->ops->submit (disk, &op, 1);
}

/* The piece [pos, pos + n) of an unaligned read or write (or of a zero,
 * which has no iovec), through blocks [start, end) that contain it.
 */
static int
bounce_piece (struct disk *disk, const struct disk_op *op, char *bounce,
              uint64_t pos, size_t n, uint64_t start, uint64_t end)
{
  int r;
  bool whole = pos == start && pos + n == end;

  if (op->kind == DISK_READ || !whole) {
    r = bounce_transfer (disk, DISK_READ, bounce, start, end);
    if (r < 0)
      return r;
  }

  switch (op->kind) {
  case DISK_READ:
    iov_write (op->iov, op->iovcnt, pos - op->offset,
               bounce + (pos - start), n);
    return 0;
  case DISK_WRITE:
    disk_iov_read (op->iov, op->iovcnt, pos - op->offset,
                   bounce + (pos - start), n);
    break;
  default:
    memset (bounce + (pos - start), 0, n);
    break;
  }
  return bounce_transfer (disk, DISK_WRITE, bounce, start, end);
}

/* A read, write or zero through a bounce buffer.  The partial block at the
 * disk's end is a piece of its own, since it goes another way (rule 4).
 */
static int
submit_bounced (struct disk *disk, const struct disk_op *op,
                uint64_t pos, uint64_t op_end)
{
  uint64_t tail = align_down (disk->size, disk->align);
  CLEANUP_FREE void *bounce = NULL;
  uint64_t start = align_down (pos, disk->align);
  uint64_t end = align_up (op_end, disk->align);
  int r;

  r = posix_memalign (&bounce, max_u64 (disk->align, 4096),
                      align_up (min_u64 (end - start, BOUNCE_MAX),
                                disk->align));
  if (r != 0)
    return -r;

  while (pos < op_end) {
    start = align_down (pos, disk->align);
    end = min_u64 (start + BOUNCE_MAX,
                   min_u64 (align_up (op_end, disk->align), disk->size));
    if (start < tail && end > tail)
      end = tail;
    r = bounce_piece (disk, op, bounce, pos,
                      min_u64 (end, op_end) - pos, start, end);
    if (r < 0)
      return r;
    pos = end;
  }
  return 0;
}

/* Zero or discard an unaligned range: the whole blocks inside by the leaf,
 * the partial ones at both ends by read-modify-write.  Discard is advice,
 * and its partial blocks are left alone.
 */
static int
submit_unaligned_zero (struct disk *disk, const struct disk_op *op)
{
  uint64_t op_end = op->offset + op->length;
  uint64_t start = align_up (op->offset, disk->align);
  uint64_t end = align_down (op_end, disk->align);
  struct disk_op body = *op;
  int r;

  if (start >= end)
    return op->kind == DISK_DISCARD ? 0 :
      submit_bounced (disk, op, op->offset, op_end);

  body.offset = start;
  body.length = end - start;
  r = disk->ops->submit (disk, &body, 1);
  if (r < 0 || op->kind == DISK_DISCARD)
    return r;
  if (op->offset < start)
    r = submit_bounced (disk, op, op->offset, start);
  if (r == 0 && end < op_end)
    r = submit_bounced (disk, op, end, op_end);
  return r;
}

/* One operation that may share a block with others (rule 5). */
static int
submit_sharing (struct disk *disk, struct disk_op *op)
{
  uint64_t start = op->offset, end = op->offset + op->length;
  struct range range;
  int r;

  if (op->kind == DISK_READ)
    return submit_bounced (disk, op, start, end);

  align_range (disk, &start, &end);
  range_lock (&disk->blocks, &range, start, end, true);
  if (op_is_aligned (disk, op))
    r = disk->ops->submit (disk, op, 1);
  else if (op->kind == DISK_ZERO || op->kind == DISK_DISCARD)
    r = submit_unaligned_zero (disk, op);
  else
    r = submit_bounced (disk, op, op->offset, op->offset + op->length);
  range_unlock (&disk->blocks, &range);
  return r;
}

static bool
op_is_plain (const struct disk *disk, const struct disk_op *op)
{
  if (op->kind == DISK_SYNC)
    return true;
  return op_is_aligned (disk, op) &&
    (op->kind == DISK_READ || !touches_tail_page (disk, op));
}

/* -- Submission -------------------------------------------------------- */

/* Give the leaf a run of aligned operations.  A failure before the run
 * cancels its syncs (rule 2), and so everything is issued but them.
 */
static int
submit_run (struct disk *disk, struct disk_op *ops, size_t nr, int failed)
{
  size_t i;
  int r = 0, err;

  if (nr == 0)
    return 0;
  if (failed == 0)
    return disk->ops->submit (disk, ops, nr);

  for (i = 0; i < nr; ++i) {
    if (ops[i].kind == DISK_SYNC)
      err = ops[i].result = -ECANCELED;
    else
      err = disk->ops->submit (disk, &ops[i], 1);
    if (r == 0)
      r = err;
  }
  return r;
}

static int
submit_pieces (struct disk *disk, struct disk_op *ops, size_t nr)
{
  size_t i, run = 0;
  int r = 0, err;

  for (i = 0; i < nr; ++i) {
    if (op_is_plain (disk, &ops[i]))
      continue;
    err = submit_run (disk, &ops[run], i - run, r);
    if (r == 0)
      r = err;
    err = ops[i].result = submit_sharing (disk, &ops[i]);
    if (r == 0)
      r = err;
    run = i + 1;
  }
  err = submit_run (disk, &ops[run], nr - run, r);
  return r ? r : err;
}

static void
count_failures (struct disk *disk, const struct disk_op *ops, size_t nr)
{
  size_t i;

  for (i = 0; i < nr; ++i)
    switch (ops[i].result) {
    case 0:
    case -ECANCELED:
    case -EOPNOTSUPP:           /* rules 2, 6 */
      break;
    case -EIO:
      atomic_fetch_add (&disk->faults.eio, 1);
      break;
    case -ENOSPC:
      atomic_fetch_add (&disk->faults.enospc, 1);
      break;
    default:
      atomic_fetch_add (&disk->faults.others, 1);
    }
}

int
disk_submit (struct disk *disk, struct disk_op *ops, size_t nr)
{
  int r = disk->align <= 1 ? disk->ops->submit (disk, ops, nr)
    : submit_pieces (disk, ops, nr);

  if (r < 0)
    count_failures (disk, ops, nr);
  return r;
}

static int
submit_one (struct disk *disk, enum disk_op_kind kind, void *buf, size_t count,
            uint64_t offset)
{
  struct iovec iov = { buf, count };
  struct disk_op op = {
    .kind = kind, .offset = offset, .length = count,
    .iov = &iov, .iovcnt = 1,
  };

  return disk_submit (disk, &op, 1);
}

int
disk_read (struct disk *disk, void *buf, size_t count, uint64_t offset)
{
  return submit_one (disk, DISK_READ, buf, count, offset);
}

int
disk_write (struct disk *disk, const void *buf, size_t count, uint64_t offset)
{
  return submit_one (disk, DISK_WRITE, (void *) buf, count, offset);
}
