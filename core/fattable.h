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

/* The FAT's own words: 28 bits of each entry count (Microsoft's fatgen103). */
#define FAT_ENTRY_MASK UINT32_C (0x0fffffff)
#define FAT_ENTRY_BAD UINT32_C (0x0ffffff7)
#define FAT_ENTRY_END UINT32_C (0x0ffffff8)     /* this and more */

/* A sector, where one write of it is looked at entry by entry. */
#define FAT_SECTOR 512
#define FAT_ENTRIES (FAT_SECTOR / 4)

/* Some entries of such a sector. */
struct fat_entries { uint64_t bits[FAT_ENTRIES / 64]; };

static inline bool
fat_entries_has (const struct fat_entries *e, unsigned n)
{
  return e->bits[n / 64] >> n % 64 & 1;
}

static inline void
fat_entries_set (struct fat_entries *e, unsigned n)
{
  e->bits[n / 64] |= UINT64_C (1) << n % 64;
}

static inline void
fat_entries_add (struct fat_entries *e, const struct fat_entries *more)
{
  unsigned i;

  for (i = 0; i < FAT_ENTRIES / 64; ++i)
    e->bits[i] |= more->bits[i];
}

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

/* Does the change from `before` to `after`, the bytes of a sector of which
 * `first` is the first entry, do nothing but allocate clusters to which nothing
 * in the sector refers but each other (D9)?  Each changed entry was 0, and is
 * now an end mark or the number of one that changes; no unchanged one has such
 * a number; the high nibbles, and entries 0 and 1, stay as they are.  Then *ret
 * is those entries, at least one.  Pure.
 */
extern bool fat_sector_allocates (const uint8_t *before,
                                  const uint8_t *after, uint32_t first,
                                  struct fat_entries *ret);

#endif /* FATBATCH_FATTABLE_H */
