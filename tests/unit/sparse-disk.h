/* SPDX-License-Identifier: BSD-3-Clause */

/* A disk of any size for tests: zeroes, but for the sectors written. */

#ifndef FATBATCH_TEST_SPARSE_DISK_H
#define FATBATCH_TEST_SPARSE_DISK_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"

#define SPARSE_SECTOR 512

struct sparse_disk {
  uint64_t size;
  size_t nr_sectors;
  struct sparse_sector {
    uint64_t nr;
    uint8_t bytes[SPARSE_SECTOR];
  } *sectors;

  /* Reads that touch [error_start, error_end) fail. */
  uint64_t error_start, error_end;
  int error;                    /* -errno */

  size_t nr_reads;
  bool read_beyond_end;
  size_t max_count;
  struct layout_range reads[PARTITION_MAX_READS * 2];
};

static inline void
sparse_disk_init (struct sparse_disk *disk, uint64_t size)
{
  memset (disk, 0, sizeof *disk);
  disk->size = size;
}

static inline void
sparse_disk_release (struct sparse_disk *disk)
{
  free (disk->sectors);
}

/* The sector's bytes, to change as you like; valid until the next call. */
static inline uint8_t *
sparse_disk_sector (struct sparse_disk *disk, uint64_t nr)
{
  size_t i;

  for (i = 0; i < disk->nr_sectors; ++i)
    if (disk->sectors[i].nr == nr)
      return disk->sectors[i].bytes;
  disk->sectors = reallocarray (disk->sectors, ++disk->nr_sectors,
                                sizeof *disk->sectors);
  if (disk->sectors == NULL)
    abort ();
  memset (&disk->sectors[i], 0, sizeof disk->sectors[i]);
  disk->sectors[i].nr = nr;
  return disk->sectors[i].bytes;
}

static inline void
sparse_disk_write (struct sparse_disk *disk, uint64_t offset,
                   const void *buf, size_t count)
{
  const uint8_t *p = buf;

  for (; count > 0; --count, ++offset)
    sparse_disk_sector (disk, offset / SPARSE_SECTOR)
      [offset % SPARSE_SECTOR] = *p++;
}

/* A partition_read_fn. */
static inline int
sparse_disk_read (void *opaque, void *buf, size_t count, uint64_t offset)
{
  struct sparse_disk *disk = opaque;
  size_t i;

  if (disk->nr_reads < sizeof disk->reads / sizeof disk->reads[0])
    disk->reads[disk->nr_reads] =
      (struct layout_range) { offset, offset + count };
  disk->nr_reads++;
  if (count > disk->max_count)
    disk->max_count = count;
  if (offset > disk->size || count > disk->size - offset) {
    disk->read_beyond_end = true;
    return -EINVAL;
  }
  if (offset < disk->error_end && offset + count > disk->error_start)
    return disk->error;

  memset (buf, 0, count);
  for (i = 0; i < disk->nr_sectors; ++i) {
    const uint64_t start = disk->sectors[i].nr * SPARSE_SECTOR;
    uint64_t from = start, to = start + SPARSE_SECTOR;

    if (from < offset)
      from = offset;
    if (to > offset + count)
      to = offset + count;
    if (from < to)
      memcpy ((uint8_t *) buf + (from - offset),
              disk->sectors[i].bytes + (from - start), to - from);
  }
  return 0;
}

#endif /* FATBATCH_TEST_SPARSE_DISK_H */
