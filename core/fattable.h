/* SPDX-License-Identifier: BSD-3-Clause */

/* FAT 1 in memory, by windows: so that a mirror write can be compared with it,
 * and old entries with new ones, without a read of the disk.
 *
 * Rules:
 *
 * 1. A window's bytes equal the image's FAT 1, page cache included, whenever
 *    nobody is writing to that part of it.  Whoever writes to FAT 1 keeps the
 *    bytes of a present window up to date (fattable_update()), or if the write
 *    failed has them read again (fattable_reload()).
 * 2. The caller holds the slots lock (mirror.h) over the bytes that it reads
 *    or changes, and over the whole window to load or free it.
 * 3. Bounded: at most `max` windows; then fattable_load() returns -ENOBUFS,
 *    and the caller does without.
 *
 * Lock: the caller's, as above; the table itself (what is there) is the
 * caller's mutex's too.
 */

#ifndef FATBATCH_FATTABLE_H
#define FATBATCH_FATTABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "disk.h"

/* Bytes of a FAT that are handled together; a multiple of all sector sizes.
 * One durable write arms a window, and both copies of it are read and compared
 * when it is first touched.
 */
#define FATTABLE_WINDOW (512 * 1024)

struct fat_window {
  uint64_t start;               /* byte of the image, in FAT 1 */
  uint32_t length;              /* bytes: FATTABLE_WINDOW, the last one less */
  bool unreadable;              /* the bytes are not known */
  uint8_t bytes[];
};

/* Read a window's FAT 1.  0 or -errno. */
extern int fat_window_new (struct disk *disk, uint64_t start, uint32_t length,
                           struct fat_window **ret);
extern void fat_window_free (struct fat_window *w);

/* The write (DISK_WRITE) has been done: take its bytes over, as far as they
 * are the window's.
 */
extern void fat_window_update (struct fat_window *w,
                               const struct disk_op *op);

/* A write of [start, end) failed: read that part again.  If it can't be read
 * the window is unreadable from then on.
 */
extern void fat_window_reload (struct fat_window *w, struct disk *disk,
                               uint64_t start, uint64_t end);

/* Are bytes of a write, those that fall into [start, end), the window's at
 * `at`?  Pure.  op covers [start, end).
 */
extern bool fat_window_equals (const struct fat_window *w, uint64_t at,
                               const struct disk_op *op, uint64_t start,
                               uint64_t end);

#endif /* FATBATCH_FATTABLE_H */
