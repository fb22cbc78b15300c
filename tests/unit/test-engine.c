/* SPDX-License-Identifier: BSD-3-Clause */

/* The engine over a disk in memory: that it keeps up with what is written to
 * boot sectors and partition tables, and what it refuses and latches.
 */

#include <config.h>

#include "disk-builder.h"
#include "engine.h"
#include "gated-disk.h"
#include "util.h"

#define SIZE (4 * 1024 * 1024)

/* 1 MiB: FAT 1 at 16 KiB, FAT 2 behind it, 8 KiB each; data from 32 KiB. */
static const struct fat_spec small_volume = {
  512, 1, 32, 2, 16, 2048, 2, 0, 1, 6
};

static struct fatbatch *fb;
static struct gated_disk *gd;

static void
setup (void)
{
  static const struct fatbatch_options options = {
    .cache = FATBATCH_WRITEBACK,
  };

  gd = gated_new (SIZE, 1);
  CHECK_EQ (engine_new (&gd->disk, NULL, NULL, &options, &fb), 0);
}

static void
teardown (void)
{
  fatbatch_close (fb);
}

static void
write_at (uint64_t offset, const void *buf, size_t count)
{
  CHECK_EQ (fatbatch_write (fb, buf, count, offset, 0), 0);
}

static void
write_volume (uint64_t start)
{
  uint8_t sector[512];

  build_boot_sector (sector, &small_volume);
  write_at (start, sector, sizeof sector);
}

/* Write one byte, and tell which region the engine takes it for. */
static enum stats_counter
region_of (uint64_t offset)
{
  static const enum stats_counter regions[] = {
    STATS_outside_pieces, STATS_reserved_pieces, STATS_fsinfo_pieces,
    STATS_fat_pieces, STATS_mirror_pieces, STATS_data_pieces,
  };
  uint64_t before[6];
  size_t i, found = 6;

  for (i = 0; i < 6; ++i)
    before[i] = stats_get (&fb->stats, regions[i]);
  write_at (offset, gd->data + offset, 1);
  for (i = 0; i < 6; ++i)
    if (stats_get (&fb->stats, regions[i]) != before[i]) {
      CHECK_EQ (found, 6);
      found = i;
    }
  CHECK (found < 6);
  return regions[found];
}

static void
check_volume_at (uint64_t start)
{
  CHECK_EQ (region_of (start + 3 * 512), STATS_reserved_pieces);
  CHECK_EQ (region_of (start + 512), STATS_fsinfo_pieces);
  CHECK_EQ (region_of (start + 16 * 1024), STATS_fat_pieces);
  CHECK_EQ (region_of (start + 24 * 1024 - 1), STATS_fat_pieces);
  CHECK_EQ (region_of (start + 24 * 1024), STATS_mirror_pieces);
  CHECK_EQ (region_of (start + 32 * 1024), STATS_data_pieces);
}

static void
a_new_volume_is_known_once_its_boot_sector_is_acknowledged (void)
{
  char text[200];

  setup ();
  CHECK_EQ (region_of (16 * 1024), STATS_outside_pieces);
  write_volume (0);
  check_volume_at (0);
  fatbatch_describe (fb, text, sizeof text);
  CHECK (strncmp (text, "FAT32 volume, 1 MiB", 19) == 0);
  teardown ();
}

static void
a_boot_sector_in_two_halves_counts_when_both_are_there (void)
{
  uint8_t sector[512];

  setup ();
  build_boot_sector (sector, &small_volume);
  write_at (256, sector + 256, 256);
  CHECK_EQ (region_of (16 * 1024), STATS_outside_pieces);
  write_at (0, sector, 256);
  check_volume_at (0);
  teardown ();
}

static void
a_volume_ends_by_zero_and_by_overwriting (void)
{
  setup ();
  write_volume (0);
  check_volume_at (0);
  CHECK_EQ (fatbatch_zero (fb, SIZE, 0, FATBATCH_MAY_UNMAP), 0);
  CHECK_EQ (region_of (16 * 1024), STATS_outside_pieces);
  write_volume (0);
  check_volume_at (0);
  write_at (510, "", 1);
  CHECK_EQ (region_of (16 * 1024), STATS_outside_pieces);
  teardown ();
}

static void
partitions_come_and_go_with_the_table (void)
{
  uint8_t sector[512] = { 0 };

  setup ();
  write_volume (1024 * 1024);
  write_volume (2 * 1024 * 1024);
  CHECK_EQ (region_of (1024 * 1024 + 16 * 1024), STATS_outside_pieces);

  put_le16 (sector + 510, 0xaa55);
  sector[446 + 4] = sector[462 + 4] = 0x0c;
  put_le32 (sector + 446 + 8, 2048);
  put_le32 (sector + 446 + 12, 2048);
  put_le32 (sector + 462 + 8, 4096);
  put_le32 (sector + 462 + 12, 2048);
  write_at (0, sector, sizeof sector);
  check_volume_at (1024 * 1024);
  check_volume_at (2 * 1024 * 1024);
  CHECK_EQ (region_of (3 * 1024 * 1024), STATS_outside_pieces);

  /* The first partition shrinks below its volume: plain bytes now. */
  put_le32 (sector + 446 + 12, 2047);
  write_at (0, sector, sizeof sector);
  CHECK_EQ (region_of (1024 * 1024 + 16 * 1024), STATS_outside_pieces);
  check_volume_at (2 * 1024 * 1024);
  teardown ();
}

static void
a_dirty_bit_changes_nothing (void)
{
  const struct layout *before;
  uint64_t scans;

  setup ();
  write_volume (0);
  before = fb->layout;
  scans = stats_get (&fb->stats, STATS_layout_scans);
  write_at (65, "\1", 1);
  CHECK (fb->layout == before);
  CHECK_EQ (stats_get (&fb->stats, STATS_layout_scans), scans + 1);
  write_at (71, "A LABEL    ", 11);
  CHECK (fb->layout != before);
  teardown ();
}

static void
other_writes_cause_no_scan (void)
{
  uint64_t scans;

  setup ();
  write_volume (0);
  scans = stats_get (&fb->stats, STATS_layout_scans);
  check_volume_at (0);
  CHECK_EQ (stats_get (&fb->stats, STATS_layout_scans), scans);
  teardown ();
}

static void
requests_outside_are_refused_and_lose_nothing (void)
{
  static const struct {
    const char *name;
    uint64_t offset, count;
    int result;
  } rows[] = {
    { "all", 0, SIZE, 0 },
    { "nothing at the end", SIZE, 0, 0 },
    { "nothing past the end", SIZE + 1, 0, -EINVAL },
    { "one past the end", SIZE, 1, -EINVAL },
    { "across the end", SIZE - 1, 2, -EINVAL },
    { "wraps", UINT64_MAX, 2, -EINVAL },
    { "longer than anything", 0, UINT64_MAX, -EINVAL },
  };
  size_t i;

  setup ();
  for (i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    printf ("  %s\n", rows[i].name);
    CHECK_EQ (fatbatch_zero (fb, rows[i].count, rows[i].offset, 0),
              rows[i].result);
    CHECK_EQ (fatbatch_trim (fb, rows[i].count, rows[i].offset, 0),
              rows[i].result);
    CHECK_EQ (fatbatch_cache_range (fb, rows[i].count, rows[i].offset),
              rows[i].result);
  }
  CHECK_EQ (fatbatch_flush (fb), 0);
  CHECK (!fatbatch_has_failed (fb));
  teardown ();
}

static void
a_read_only_image_refuses_and_does_not_latch (void)
{
  setup ();
  atomic_store (&fb->writable, false);
  CHECK_EQ (fatbatch_write (fb, "x", 1, 0, FATBATCH_FUA), -EROFS);
  CHECK_EQ (fatbatch_flush (fb), 0);
  CHECK_EQ (gd->data[0], 0);
  teardown ();
}

/* A disk of which writes and zeros fail as it is told. */
static int write_result, zero_result;

static int
refusing_submit (struct disk *disk, struct disk_op *ops, size_t nr)
{
  size_t i;

  for (i = 0; i < nr; ++i) {
    int r = ops[i].kind == DISK_WRITE ? write_result
      : ops[i].kind == DISK_ZERO ? zero_result : 0;

    if (r < 0)
      return ops[i].result = r;
  }
  return gated_submit (disk, ops, nr);
}

static const struct disk_ops refusing_ops = {
  .name = "refusing", .submit = refusing_submit, .free = gated_free,
};

/* Also with an errno that sounds like a refusal: EROFS may come from a file
 * system that has given up in the middle of the write.
 */
static void
any_failed_write_latches (void)
{
  static const int results[] = { -EIO, -ENOSPC, -EROFS, -EOPNOTSUPP, -EINTR };
  char byte;
  size_t i;

  for (i = 0; i < sizeof results / sizeof results[0]; ++i) {
    setup ();
    gd->disk.ops = &refusing_ops;
    write_result = results[i];
    CHECK_EQ (fatbatch_write (fb, "x", 1, 0, 0), results[i]);
    write_result = 0;
    CHECK (fatbatch_has_failed (fb));
    CHECK_EQ (fatbatch_flush (fb), -EIO);
    CHECK_EQ (fatbatch_write (fb, "x", 1, 0, FATBATCH_FUA), -EIO);
    CHECK_EQ (fatbatch_write (fb, "x", 1, 0, 0), 0);
    CHECK_EQ (fatbatch_read (fb, &byte, 1, 0), 0);
    CHECK_EQ (byte, 'x');
    teardown ();
  }
}

static void
a_fast_zero_that_would_be_slow_does_not_latch (void)
{
  setup ();
  gd->disk.ops = &refusing_ops;
  zero_result = -EOPNOTSUPP;
  CHECK_EQ (fatbatch_zero (fb, 512, 0, FATBATCH_FAST), -EOPNOTSUPP);
  CHECK_EQ (fatbatch_flush (fb), 0);
  zero_result = 0;
  teardown ();
}

static void
a_failed_sync_latches (void)
{
  setup ();
  gd->fail_sync = -ENOSPC;
  CHECK_EQ (fatbatch_write (fb, "x", 1, 0, FATBATCH_FUA), -ENOSPC);
  gd->fail_sync = 0;
  CHECK_EQ (fatbatch_flush (fb), -EIO);
  CHECK_EQ (fatbatch_trim (fb, 512, 0, FATBATCH_FUA), -EIO);
  teardown ();
}

int
main (void)
{
  RUN (a_new_volume_is_known_once_its_boot_sector_is_acknowledged);
  RUN (a_boot_sector_in_two_halves_counts_when_both_are_there);
  RUN (a_volume_ends_by_zero_and_by_overwriting);
  RUN (partitions_come_and_go_with_the_table);
  RUN (a_dirty_bit_changes_nothing);
  RUN (other_writes_cause_no_scan);
  RUN (requests_outside_are_refused_and_lose_nothing);
  RUN (a_read_only_image_refuses_and_does_not_latch);
  RUN (any_failed_write_latches);
  RUN (a_fast_zero_that_would_be_slow_does_not_latch);
  RUN (a_failed_sync_latches);
  return EXIT_SUCCESS;
}
