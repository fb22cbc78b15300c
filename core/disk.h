/* SPDX-License-Identifier: BSD-3-Clause */

/* The disk seam: everything that the engine does to an image goes through
 * here, as batches of operations.  Below it is one leaf per file
 * (disk-posix.c, disk-uring.c and, in the tests, disks that check, record
 * or fail).
 *
 * Rules:
 *
 * 1. disk_submit() returns when every operation of the batch has ended, and
 *    each has its own result.  A short transfer is continued by the leaf; an
 *    operation either did all of its bytes or failed.
 * 2. Operations of a batch run in any order and at once, but for DISK_SYNC:
 *    it starts after all operations before it in the batch have ended, and
 *    is not issued (-ECANCELED) if one of them failed.
 * 3. Only DISK_SYNC makes anything durable.  It covers the writes, zeros and
 *    discards of its range that had ended when it was submitted, whoever
 *    submitted them.  A leaf may sync more than the range.
 * 4. The engine sees bytes: offsets, lengths and buffers of any alignment.
 *    Where a leaf needs aligned transfers (O_DIRECT) it says so in
 *    disk->align, and disk_submit() gives it nothing else, except for
 *    operations marked DISK_BUFFERED, which the leaf must do through the
 *    page cache: the last bytes of an image whose size is not a multiple of
 *    the alignment.
 * 5. Unaligned writes are done by read-modify-write of whole blocks.  Those of
 *    the same block exclude each other by a range lock in here; callers only
 *    see to it that operations of the same bytes don't overlap in time.
 * 6. -EOPNOTSUPP is the result of a fast zero of which nothing was done, and
 *    of nothing else.
 *
 * Locks: that one, held over the operation, and last of all; a disk may be
 * used from any number of threads.
 * Errors: 0 or -errno.
 */

#ifndef FATBATCH_DISK_H
#define FATBATCH_DISK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "rangelock.h"

enum disk_op_kind {
  DISK_READ,
  DISK_WRITE,
  DISK_ZERO,                    /* read back as zeros afterwards */
  DISK_DISCARD,                 /* contents no longer matter (advice) */
  DISK_SYNC,                    /* data of the range is durable afterwards */
};

enum disk_op_flags {
  DISK_MAY_UNMAP = 1 << 0,      /* ZERO: a hole will do */
  DISK_FAST      = 1 << 1,      /* ZERO: -EOPNOTSUPP instead of writing */
  DISK_BUFFERED  = 1 << 2,      /* rule 4; set by disk_submit() only */
  DISK_IDLE      = 1 << 3,      /* idle I/O priority: nobody waits for it */
};

/* One operation.  The caller owns it, its iovec and the buffers until
 * disk_submit() returns.  For READ and WRITE length is the sum of the
 * iovec's lengths, and iovcnt is at most IOV_MAX.  DISK_SYNC with offset 0
 * and length UINT64_MAX is the whole image.
 */
struct disk_op {
  enum disk_op_kind kind;
  unsigned flags;
  uint64_t offset, length;      /* bytes */
  const struct iovec *iov;
  int iovcnt;
  int result;                   /* out: 0 or -errno */
};

struct disk_extent {
  uint64_t length;              /* bytes from the offset asked for */
  bool hole;                    /* not allocated, reads as zeros */
};

struct disk;

struct disk_ops {
  const char *name;             /* for users: "io_uring", "posix" */

  /* Rules 1 to 4.  Returns 0, or the first failed operation's result. */
  int (*submit) (struct disk *disk, struct disk_op *ops, size_t nr);

  /* The longest extent of one kind at offset, not past offset + length
   * (length > 0).  Optional: without it all is data.
   */
  int (*extent) (struct disk *disk, uint64_t offset, uint64_t length,
                 struct disk_extent *ret);

  /* Advice that the range will be read soon.  Optional. */
  int (*readahead) (struct disk *disk, uint64_t offset, uint64_t length);

  /* Start writing back what the page cache has of the range, at the thread's
   * I/O priority, so that a sync has less to wait for later.  It makes nothing
   * durable, and hides no error from a sync.  Optional.
   */
  void (*write_back) (struct disk *disk, uint64_t offset, uint64_t length);

  /* Frees the disk.  Does not sync. */
  void (*free) (struct disk *disk);
};

/* What went wrong, counted.  The first three are operations that failed, by
 * kind; the others the leaf goes on from.
 */
struct disk_faults {
  _Atomic uint64_t eio, enospc, others;
  _Atomic uint64_t short_transfers, interrupted;
  _Atomic uint64_t broken_rings;
};

/* The common head of every leaf's own structure. */
struct disk {
  const struct disk_ops *ops;
  uint64_t size;                /* bytes; fixed while open */
  uint32_t align;               /* bytes, a power of two; 1 = any */
  uint32_t mem_align;           /* the same for buffers; at most 4096 */
  uint32_t preferred_io;        /* bytes, a power of two; best multiple */
  bool rotational;
  struct rangelock blocks;      /* rule 5 */
  struct disk_faults faults;
};

/* Fill in the head; all that is not given is 0.  disk_free() undoes it. */
extern void disk_init (struct disk *disk, const struct disk_ops *ops,
                       uint64_t size, uint32_t align, uint32_t mem_align);

/* Submit a batch (rules 1 to 5).  All ranges lie inside the disk, and
 * lengths are not 0.  Returns 0, or the result of the first operation, in
 * the batch's order, that failed; every op->result is set in any case.
 */
extern int disk_submit (struct disk *disk, struct disk_op *ops, size_t nr);

/* A batch of one. */
extern int disk_read (struct disk *disk, void *buf, size_t count,
                      uint64_t offset);

extern int disk_write (struct disk *disk, const void *buf, size_t count,
                       uint64_t offset);

/* Copy `count` bytes, from byte `skip` on, out of an iovec; find them where they
 * are, or if they are not in one piece copy them to buf; are they those of buf?
 */
extern void disk_iov_read (const struct iovec *iov, int iovcnt, uint64_t skip,
                           void *buf, size_t count);
extern const void *disk_iov_peek (const struct iovec *iov, int iovcnt,
                                  uint64_t skip, void *buf, size_t count);
extern bool disk_iov_equals (const struct iovec *iov, int iovcnt,
                             uint64_t skip, const void *buf, size_t count);

/* NULL is fine. */
extern void disk_free (struct disk *disk);

#endif /* FATBATCH_DISK_H */
