/* SPDX-License-Identifier: BSD-3-Clause */

/* An image in a file or on a block device: how it is opened, and the plain
 * system calls on it.  Both leaves of the disk seam (disk-posix.c,
 * disk-uring.c) stand on this.
 *
 * Rules:
 *
 * 1. Transfers are continued over short results and EINTR; a read past the
 *    end of the file (it shrank behind our back) is -EIO.
 * 2. With O_DIRECT the caller keeps offset, length and memory aligned to
 *    align, and uses buffered transfers for the rest.
 * 3. Nothing here makes data durable but DISK_SYNC.  A sync that failed is
 *    never repeated, whatever its error: the next one may succeed because the
 *    kernel has told of the loss already (commit.h, rule 4).
 * 4. Linux has no ranged fdatasync(2), but msync(2) does just that to a mapping
 *    (mm/msync.c calls vfs_fsync_range()): so the image is mapped when it
 *    becomes writable.  The mapping is never read or written.  It belongs to
 *    fd's open file, so that all syncs are told of write-back errors through
 *    the same one (commit.h, rule 3).
 * 5. -EOPNOTSUPP is returned for a fast zero of which nothing was done, and
 *    for nothing else.
 *
 * Locks: none; any number of threads.
 */

#ifndef FATBATCH_FILE_H
#define FATBATCH_FILE_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#include "disk.h"

struct fatbatch_error;

struct file {
  char *path;                   /* as given, for messages */
  int fd;                       /* O_DIRECT if direct */
  int buffered_fd;              /* through the page cache; is fd if !direct */
  int lock_fd;                  /* holds the image locks; -1 = none wanted */
  bool direct, is_block;
  uint64_t size;                /* bytes */
  uint32_t align, mem_align;    /* bytes, for O_DIRECT; else 1 */
  uint32_t block_size;          /* bytes, of a block device; else 1 */
  uint32_t preferred_io;        /* bytes */
  bool rotational;
  bool has_extents;             /* SEEK_HOLE works */
  _Atomic (char *) map;         /* rule 4; NULL: none, sync the whole file */
  atomic_bool no_punch, no_zero_range; /* found unsupported */
  struct disk_faults *faults;   /* of the disk above; short_transfers and
                                   interrupted are counted here */
};

/* Open an image for reading: type, size and alignments are found out, and
 * with `lock` a reader's image locks are taken (imagelock.h).
 * Returns 0, or -errno with *err filled.
 */
extern int file_open (const char *path, bool direct, bool lock,
                      struct file **ret, struct fatbatch_error *err);

/* Open the same image for writing too, and take a writer's image locks.
 * On failure it stays as it was.  Transfers may be under way; another call of
 * this must not.
 */
extern int file_set_writable (struct file *file, struct fatbatch_error *err);

/* Close and free.  NULL is fine. */
extern void file_close (struct file *file);

/* A whole transfer (kind READ or WRITE), of which `done` bytes are done
 * already.
 */
extern int file_transfer (struct file *file, const struct disk_op *op,
                          uint64_t done);

/* One operation of any kind, by plain system calls.  DISK_SYNC syncs the
 * whole file if there is no mapping (rule 4).
 */
extern int file_op (struct file *file, const struct disk_op *op);

extern int file_extent (const struct file *file, uint64_t offset,
                        uint64_t length, struct disk_extent *ret);
extern int file_readahead (const struct file *file, uint64_t offset,
                           uint64_t length);

/* See disk.h.  What fails is found by the next sync. */
extern void file_write_back (const struct file *file, uint64_t offset,
                             uint64_t length);

/* The result for a sync that failed with errno value err: one that sounds as if
 * it were worth a second try is not (rule 3).
 */
static inline int
file_sync_error (int err)
{
  return err == EINTR || err == EAGAIN ? -EIO : -err;
}

/* Does file_op() sync no more than the range (rule 4)? */
static inline bool
file_syncs_ranges (const struct file *file)
{
  return atomic_load_explicit (&file->map, memory_order_relaxed) != NULL;
}

static inline int
file_op_fd (const struct file *file, const struct disk_op *op)
{
  return op->flags & DISK_BUFFERED ? file->buffered_fd : file->fd;
}

#endif /* FATBATCH_FILE_H */
