/* SPDX-License-Identifier: BSD-3-Clause */

/* Locks on an image that QEMU and its tools understand.
 *
 * QEMU (docs/system/qemu-block-drivers, "Disk image file locking"; block/
 * file-posix.c, raw_check_lock_bytes()) marks each permission that it uses by
 * a shared OFD lock on one byte of the image, and each permission that it
 * does not want others to have by one on another byte.  Nothing is ever
 * locked exclusively: who takes a byte then asks whether an exclusive lock
 * on the opposite byte would conflict.
 *
 * Rules:
 *
 * 1. A reader uses "consistent read", and wants nobody else to write or
 *    resize.  A writer uses "write" in addition.  So two readers go
 *    together, and a writer goes with nobody.
 * 2. The locks belong to the open file description: they survive fork(),
 *    and the kernel drops them when the last copy of fd is closed, however
 *    the process ends.
 */

#ifndef FATBATCH_IMAGELOCK_H
#define FATBATCH_IMAGELOCK_H

/* Take a reader's locks on fd (open for reading).  On failure none are held.
 * Returns 0; -EAGAIN if someone else holds the image, and *conflict (never
 * NULL then) says what it does with it; or another -errno.
 */
extern int imagelock_read (int fd, const char **conflict);

/* Add a writer's locks to a reader's.  On failure the reader's remain. */
extern int imagelock_write (int fd, const char **conflict);

#endif /* FATBATCH_IMAGELOCK_H */
