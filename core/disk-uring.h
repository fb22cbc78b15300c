/* SPDX-License-Identifier: BSD-3-Clause */

/* The io_uring leaf of the disk seam: a batch is one submission, and its
 * operations run at once.
 *
 * Rules:
 *
 * 1. A ring belongs to the one batch that is in flight on it.  Rings are
 *    pooled, so no lock is held over I/O.  They are made when first needed:
 *    never before a server's fork.
 * 2. Every completion is looked at: short transfers, EINTR and EAGAIN are
 *    continued by plain system calls, errors stay with their operation.  A
 *    sync that failed is not repeated (file.h, rule 3).
 * 3. Order inside a batch is by waiting, not by linked operations, which a
 *    short write would break.
 * 4. A single operation goes by a plain system call in the caller's thread,
 *    and so do zero and discard, which may need a second try in another way.
 *    A ring would only add a detour: io_uring gives a sync to another thread.
 *    A sync for which there is no ranged system call (file.h, rule 4) is the
 *    exception: io_uring's fsync has a range.
 * 5. A ring that fails as a whole is closed; what it did not submit is done
 *    by plain system calls.
 */

#ifndef FATBATCH_DISK_URING_H
#define FATBATCH_DISK_URING_H

#include "disk.h"
#include "file.h"

/* Is io_uring there, allowed (containers forbid it by seccomp or
 * kernel.io_uring_disabled), and does it know what we need?  Returns 0 or
 * -errno: -ENOSYS, -EPERM, -ENOMEM (RLIMIT_MEMLOCK before Linux 5.12),
 * -EOPNOTSUPP (operations missing).
 */
extern int disk_uring_probe (void);

/* The disk borrows file, which must outlive it.  Returns 0 or -ENOMEM. */
extern int disk_uring_new (struct file *file, struct disk **ret);

#endif /* FATBATCH_DISK_URING_H */
