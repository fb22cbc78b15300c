/* SPDX-License-Identifier: BSD-3-Clause */

/* The plain leaf of the disk seam: pread, pwrite, fallocate, fdatasync, one
 * after the other in the caller's thread.  It runs everywhere.
 */

#ifndef FATBATCH_DISK_POSIX_H
#define FATBATCH_DISK_POSIX_H

#include "disk.h"
#include "file.h"

/* The disk borrows file, which must outlive it.  Returns 0 or -ENOMEM. */
extern int disk_posix_new (struct file *file, struct disk **ret);

/* Fill the common head from the file's limits, and let the file count its
 * faults there; for the leaves.
 */
extern void disk_init_from_file (struct disk *disk, const struct disk_ops *ops,
                                 struct file *file);

#endif /* FATBATCH_DISK_POSIX_H */
