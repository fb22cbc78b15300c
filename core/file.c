/* SPDX-License-Identifier: BSD-3-Clause */

/* The operations on an open image, by plain system calls. */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "file.h"
#include "util.h"

/* What is written where zeros can't be had from the file system. */
#define ZEROES_SIZE 65536
static const char zeroes[ZEROES_SIZE] __attribute__ ((aligned (4096)));

/* The longest vector that one call takes: IOV_MAX, and a stack that stays
 * small.
 */
#define IOV_BATCH 64

/* One system call.  The plain calls spare the kernel the copy of a vector. */
static ssize_t
transfer_some (int fd, enum disk_op_kind kind, const struct iovec *iov, int n,
               uint64_t offset)
{
  if (kind == DISK_READ)
    return n == 1 ? pread (fd, iov->iov_base, iov->iov_len, offset)
      : preadv (fd, iov, n, offset);
  return n == 1 ? pwrite (fd, iov->iov_base, iov->iov_len, offset)
    : pwritev (fd, iov, n, offset);
}

/* The part of an operation's vector from byte `done` on, as much as one call
 * takes: the vector itself as long as that is all of it.
 */
static const struct iovec *
iov_rest (const struct disk_op *op, uint64_t done,
          struct iovec space[IOV_BATCH], int *nr)
{
  int i, n = 0;

  if (done == 0 && op->iovcnt <= IOV_BATCH) {
    *nr = op->iovcnt;
    return op->iov;
  }
  for (i = 0; i < op->iovcnt && n < IOV_BATCH; ++i) {
    if (done >= op->iov[i].iov_len) {
      done -= op->iov[i].iov_len;
      continue;
    }
    space[n].iov_base = (char *) op->iov[i].iov_base + done;
    space[n].iov_len = op->iov[i].iov_len - done;
    done = 0;
    n++;
  }
  *nr = n;
  return space;
}

static size_t
iov_bytes (const struct iovec *iov, int n)
{
  size_t sum = 0;
  int i;

  for (i = 0; i < n; ++i)
    sum += iov[i].iov_len;
  return sum;
}

int
file_transfer (struct file *file, const struct disk_op *op, uint64_t done)
{
  int fd = file_op_fd (file, op);

  while (done < op->length) {
    struct iovec space[IOV_BATCH];
    int n;
    const struct iovec *iov = iov_rest (op, done, space, &n);
    ssize_t r;

    r = transfer_some (fd, op->kind, iov, n, op->offset + done);
    if (r == -1 && errno == EINTR) {
      atomic_fetch_add (&file->faults->interrupted, 1);
      continue;
    }
    if (r == -1)
      return errno == EOPNOTSUPP ? -EIO : -errno;
    if (r == 0)
      return -EIO;
    if ((size_t) r < iov_bytes (iov, n))
      atomic_fetch_add (&file->faults->short_transfers, 1);
    done += r;
  }
  return 0;
}

static int
write_zeroes (struct file *file, uint64_t offset, uint64_t length)
{
  struct iovec iov[16];
  struct disk_op op = { .kind = DISK_WRITE, .iov = iov };
  size_t i;
  int r;

  while (length > 0) {
    uint64_t n = min_u64 (length, 16 * ZEROES_SIZE);

    op.offset = offset;
    op.length = n;
    for (i = 0; n > 0; ++i) {
      iov[i].iov_base = (char *) zeroes;
      iov[i].iov_len = min_u64 (n, ZEROES_SIZE);
      n -= iov[i].iov_len;
    }
    op.iovcnt = i;
    r = file_transfer (file, &op, 0);
    if (r < 0)
      return r;
    offset += op.length;
    length -= op.length;
  }
  return 0;
}

/* -EOPNOTSUPP: this was not done, and there may be another way.  If it never
 * can be, that is remembered.
 */
static int
try_fallocate (const struct file *file, int mode, atomic_bool *unsupported,
               uint64_t offset, uint64_t length)
{
  int r;

  if (atomic_load_explicit (unsupported, memory_order_relaxed))
    return -EOPNOTSUPP;
  do
    r = fallocate (file->buffered_fd, mode, offset, length);
  while (r == -1 && errno == EINTR);
  if (r == 0)
    return 0;

  switch (errno) {
  case EOPNOTSUPP:
  case ENOSYS:
  case ENOTTY:
    atomic_store_explicit (unsupported, true, memory_order_relaxed);
    return -EOPNOTSUPP;
  case EINVAL:                  /* GPFS, says QEMU */
  case EPERM:                   /* sealed, append-only */
  case EBUSY:
  case ETXTBSY:                 /* a swap file by now */
    return -EOPNOTSUPP;
  }
  return -errno;
}

static int
punch_hole (struct file *file, uint64_t offset, uint64_t length)
{
  return try_fallocate (file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        &file->no_punch, offset, length);
}

/* Zero a range that fallocate(2) accepts.  Of a block device's two ways only
 * the one that unmaps is known to be quick: FALLOC_FL_ZERO_RANGE falls back
 * to writing inside the kernel (block/fops.c, blkdev_fallocate()).
 */
static int
zero_blocks (struct file *file, unsigned flags, uint64_t offset,
             uint64_t length)
{
  int r = -EOPNOTSUPP;

  if (flags & DISK_MAY_UNMAP)
    r = punch_hole (file, offset, length);
  if (r == -EOPNOTSUPP && !(file->is_block && (flags & DISK_FAST)))
    r = try_fallocate (file, FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE,
                       &file->no_zero_range, offset, length);
  if (r == -EOPNOTSUPP && !(flags & DISK_FAST))
    r = write_zeroes (file, offset, length);
  return r;
}

/* fallocate(2) on a block device wants whole logical blocks; the bytes
 * around them are written.
 */
static int
file_zero (struct file *file, const struct disk_op *op)
{
  uint64_t op_end = op->offset + op->length;
  uint64_t start = align_up (op->offset, file->block_size);
  uint64_t end = align_down (op_end, file->block_size);
  int r;

  if (start >= end)
    return write_zeroes (file, op->offset, op->length);
  r = zero_blocks (file, op->flags, start, end - start);
  if (r == 0)
    r = write_zeroes (file, op->offset, start - op->offset);
  if (r == 0)
    r = write_zeroes (file, end, op_end - end);
  return r;
}

static int
file_discard (struct file *file, const struct disk_op *op)
{
  uint64_t start = align_up (op->offset, file->block_size);
  uint64_t end = align_down (op->offset + op->length, file->block_size);
  uint64_t range[2] = { start, end - start };
  int r;

  if (start >= end)
    return 0;
  r = punch_hole (file, start, end - start);
  if (r == -EOPNOTSUPP) {
    r = 0;                      /* it was advice */
    if (file->is_block && ioctl (file->fd, BLKDISCARD, range) == -1 &&
        errno == EIO)
      r = -EIO;
  }
  return r;
}

/* Not repeated if it is interrupted (rule 3). */
static int
file_sync (const struct file *file, const struct disk_op *op)
{
  char *map = atomic_load_explicit (&file->map, memory_order_acquire);
  uint64_t start = align_down (op->offset, sysconf (_SC_PAGESIZE));
  int r;

  if (map && op->length <= file->size)
    r = msync (map + start, op->offset + op->length - start, MS_SYNC);
  else
    r = fdatasync (file->fd);
  return r == -1 ? file_sync_error (errno) : 0;
}

int
file_op (struct file *file, const struct disk_op *op)
{
  switch (op->kind) {
  case DISK_READ:
  case DISK_WRITE:
    return file_transfer (file, op, 0);
  case DISK_ZERO:
    return file_zero (file, op);
  case DISK_DISCARD:
    return file_discard (file, op);
  case DISK_SYNC:
    return file_sync (file, op);
  }
  return -EINVAL;
}

int
file_extent (const struct file *file, uint64_t offset, uint64_t length,
             struct disk_extent *ret)
{
  off_t data, end;

  ret->length = length;
  ret->hole = false;
  if (!file->has_extents)
    return 0;

  data = lseek (file->buffered_fd, offset, SEEK_DATA);
  if (data == -1 && errno != ENXIO)
    return -errno;
  if (data == -1 || (uint64_t) data > offset) {
    ret->hole = true;
    end = data;
  }
  else
    end = lseek (file->buffered_fd, offset, SEEK_HOLE);

  /* No end found, or no progress (another process punches holes under us):
   * what is asked for is all of one kind.
   */
  if (end != -1 && (uint64_t) end > offset)
    ret->length = min_u64 (length, end - offset);
  return 0;
}

int
file_readahead (const struct file *file, uint64_t offset, uint64_t length)
{
  return -posix_fadvise (file->buffered_fd, offset, length,
                         POSIX_FADV_WILLNEED);
}

/* Not SYNC_FILE_RANGE_WAIT_*: to wait is to be told of errors, instead of the
 * next sync (fs/sync.c, file_fdatawait_range()).
 */
void
file_write_back (const struct file *file, uint64_t offset, uint64_t length)
{
  if (!file->direct)
    sync_file_range (file->fd, offset, length, SYNC_FILE_RANGE_WRITE);
}
