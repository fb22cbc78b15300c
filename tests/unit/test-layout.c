/* SPDX-License-Identifier: BSD-3-Clause */

/* core/layout: which volumes are found on a disk, and which bytes that
 * depends on.
 */

#include <config.h>

#include <criterion/criterion.h>

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "disk-builder.h"
#include "layout.h"
#include "mkfs-boot-sectors.h"
#include "sparse-disk.h"

TestSuite (layout, .timeout = 60);

#define MIB (UINT64_C (1) << 20)
#define GIB (UINT64_C (1) << 30)

struct want {
  unsigned partition;
  uint64_t start, end;          /* bytes */
};

/* The invariants of layout.h. */
static void
check_layout (const struct layout *layout, const struct sparse_disk *disk)
{
  size_t i, j;

  cr_assert_not (disk->read_beyond_end);
  for (i = 0; i < layout->nr_volumes; ++i) {
    const struct layout_volume *volume = &layout->volumes[i];

    cr_assert_lt (volume->start, volume->end);
    cr_assert_leq (volume->end, disk->size);
    cr_assert_leq (bpb_size (&volume->bpb), volume->end - volume->start);
    if (i > 0)
      cr_assert_leq (volume[-1].end, volume->start);
  }
  for (i = 0; i < layout->nr_watched; ++i) {
    cr_assert_lt (layout->watched[i].start, layout->watched[i].end);
    cr_assert_leq (layout->watched[i].end, disk->size);
    if (i > 0)
      cr_assert_lt (layout->watched[i - 1].end, layout->watched[i].start);
  }

  /* Watched is what was read, neither more nor less. */
  for (j = 0; j < disk->nr_reads; ++j) {
    bool covered = false;

    for (i = 0; i < layout->nr_watched; ++i)
      if (disk->reads[j].start >= layout->watched[i].start &&
          disk->reads[j].end <= layout->watched[i].end)
        covered = true;
    cr_assert (covered, "a read at %" PRIu64 " is not watched",
               disk->reads[j].start);
  }
  for (i = 0; i < layout->nr_watched; ++i) {
    uint64_t pos = layout->watched[i].start;

    while (pos < layout->watched[i].end) {
      const uint64_t before = pos;

      for (j = 0; j < disk->nr_reads; ++j)
        if (disk->reads[j].start <= pos && disk->reads[j].end > pos)
          pos = disk->reads[j].end;
      cr_assert_gt (pos, before, "byte %" PRIu64 " was never read", pos);
    }
  }
}

/* Scan and check; the caller frees. */
static struct layout *
scan (struct sparse_disk *disk)
{
  struct layout *layout = NULL;

  disk->nr_reads = 0;
  cr_assert_eq (layout_scan (sparse_disk_read, disk, disk->size, &layout),
                0);
  cr_assert_not_null (layout);
  check_layout (layout, disk);
  return layout;
}

static struct layout *
expect_volumes (struct sparse_disk *disk, enum partition_table table,
                size_t nr, const struct want *want)
{
  struct layout *layout = scan (disk);
  size_t i;

  cr_expect_eq (layout->table, table, "a table of kind %s",
                partition_table_string (layout->table));
  cr_assert_eq (layout->nr_volumes, nr, "%zu volumes", layout->nr_volumes);
  for (i = 0; i < nr; ++i) {
    cr_expect_eq (layout->volumes[i].partition, want[i].partition,
                  "number %u", layout->volumes[i].partition);
    cr_expect_eq (layout->volumes[i].start, want[i].start,
                  "%u starts at %" PRIu64, want[i].partition,
                  layout->volumes[i].start);
    cr_expect_eq (layout->volumes[i].end, want[i].end,
                  "%u ends at %" PRIu64, want[i].partition,
                  layout->volumes[i].end);
  }
  return layout;
}

static void
expect_and_free (struct sparse_disk *disk, enum partition_table table,
                 size_t nr, const struct want *want)
{
  layout_free (expect_volumes (disk, table, nr, want));
  sparse_disk_release (disk);
}

static void
expect_watched (const struct layout *layout, size_t nr,
                const struct layout_range *want)
{
  size_t i;

  cr_assert_eq (layout->nr_watched, nr, "%zu ranges", layout->nr_watched);
  for (i = 0; i < nr; ++i) {
    cr_expect_eq (layout->watched[i].start, want[i].start, "[%zu]", i);
    cr_expect_eq (layout->watched[i].end, want[i].end, "[%zu]", i);
  }
}

static const struct layout_range sector_0 = { 0, 512 };

/*
 * Bare volumes and nothing
 */

Test (layout, bare_volumes_of_mkfs_fat)
{
  size_t i;

  for (i = 0; i < NR_MKFS_ROWS; ++i) {
    const struct mkfs_row *row = &mkfs_rows[i];
    uint8_t sector[512];
    struct sparse_disk disk;
    struct layout *layout;

    sparse_disk_init (&disk, row->size);
    mkfs_boot_sector (row, sector);
    sparse_disk_write (&disk, 0, sector, 512);
    layout = expect_volumes (&disk, PARTITION_NONE, 1, (struct want[]) {
        { 0, 0, row->size } });
    expect_watched (layout, 1, &sector_0);
    cr_expect_eq (disk.nr_reads, 1, "%s", row->name);
    cr_expect_eq (layout->volumes[0].bpb.nr_clusters, row->nr_clusters,
                  "%s", row->name);
    layout_free (layout);
    sparse_disk_release (&disk);
  }
}

Test (layout, blank_disks_of_any_size)
{
  static const uint64_t sizes[] = {
    0, 1, 511, 512, 513, 1024, 4096, 64 * MIB, UINT64_MAX
  };
  size_t i;

  for (i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    struct sparse_disk disk;
    struct layout *layout;

    sparse_disk_init (&disk, sizes[i]);
    layout = expect_volumes (&disk, PARTITION_NONE, 0, NULL);
    expect_watched (layout, sizes[i] >= 512, &sector_0);
    layout_free (layout);
  }
}

/* mkfs.fat --mbr=y: one active partition of type 0C from sector 0. */
static void
put_fake_mbr (struct sparse_disk *disk, uint32_t count)
{
  put_mbr_entry (disk, 0, 0, 0x0c, 0, count);
  sparse_disk_sector (disk, 0)[446] = 0x80;
}

Test (layout, fake_mbr_in_a_bare_volume)
{
  struct sparse_disk disk;
  struct layout *layout;

  sparse_disk_init (&disk, 64 * MIB);
  put_volume (&disk, 0, &fat_64m);
  put_fake_mbr (&disk, 131072);
  put_mbr_entry (&disk, 0, 1, 0xee, 1, 131071);
  put_mbr_entry (&disk, 0, 2, 0x05, 1, 131071);
  layout = expect_volumes (&disk, PARTITION_NONE, 1, (struct want[]) {
      { 0, 0, 64 * MIB } });
  expect_watched (layout, 1, &sector_0);
  layout_free (layout);
  sparse_disk_release (&disk);
}

Test (layout, fake_mbr_in_a_bare_volume_cut_short)
{
  struct sparse_disk disk;
  struct layout *layout;

  sparse_disk_init (&disk, 64 * MIB - 512);
  put_volume (&disk, 0, &fat_64m);
  put_fake_mbr (&disk, 131072);
  layout = expect_volumes (&disk, PARTITION_MBR, 0, NULL);
  expect_watched (layout, 1, &sector_0);
  cr_expect_eq (disk.nr_reads, 3, "sector 0: once as a boot sector, once "
                "as an MBR for either block size; never as a partition");
  layout_free (layout);
  sparse_disk_release (&disk);
}

Test (layout, bare_volume_shorter_than_the_image)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, GIB + 77);
  put_volume (&disk, 0, &fat_64m);
  expect_and_free (&disk, PARTITION_NONE, 1, (struct want[]) {
      { 0, 0, GIB + 77 } });
}

/*
 * MBR
 */

Test (layout, mbr_volumes_whatever_the_type)
{
  struct sparse_disk disk;
  struct layout *layout;

  sparse_disk_init (&disk, GIB);
  put_mbr_entry (&disk, 0, 0, 0x83, 1048576, 131072);
  put_volume (&disk, 512 * MIB, &fat_64m);
  put_mbr_entry (&disk, 0, 1, 0x0c, 2048, 131072);
  put_volume (&disk, MIB, &fat_64m);
  put_mbr_entry (&disk, 0, 2, 0x0c, 262144, 131072);    /* no FAT in it */
  put_mbr_entry (&disk, 0, 3, 0x07, 524288, 200000);
  put_volume (&disk, 256 * MIB, &fat_64m);
  layout = expect_volumes (&disk, PARTITION_MBR, 3, (struct want[]) {
      { 2, MIB, 65 * MIB },
      { 4, 256 * MIB, 256 * MIB + 200000 * 512 },
      { 1, 512 * MIB, 576 * MIB } });
  expect_watched (layout, 5, (struct layout_range[]) {
      { 0, 512 }, { MIB, MIB + 512 }, { 128 * MIB, 128 * MIB + 512 },
      { 256 * MIB, 256 * MIB + 512 }, { 512 * MIB, 512 * MIB + 512 } });
  layout_free (layout);
  sparse_disk_release (&disk);
}

Test (layout, mbr_partition_shorter_than_its_volume)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, GIB);
  put_mbr_entry (&disk, 0, 0, 0x0c, 2048, 131071);
  put_volume (&disk, MIB, &fat_64m);
  expect_and_free (&disk, PARTITION_MBR, 0, NULL);
}

Test (layout, mbr_partition_longer_than_the_device)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, 65 * MIB + 100);
  put_mbr_entry (&disk, 0, 0, 0x0c, 2048, 0xffffffff);
  put_volume (&disk, MIB, &fat_64m);
  expect_and_free (&disk, PARTITION_MBR, 1, (struct want[]) {
      { 1, MIB, 65 * MIB + 100 } });
}

Test (layout, mbr_device_shorter_than_the_volume)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, 65 * MIB - 1);
  put_mbr_entry (&disk, 0, 0, 0x0c, 2048, 131072);
  put_volume (&disk, MIB, &fat_64m);
  expect_and_free (&disk, PARTITION_MBR, 0, NULL);
}

Test (layout, mbr_partition_in_the_last_half_sector)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, MIB + 100);
  put_mbr_entry (&disk, 0, 0, 0x0c, 2048, 131072);
  expect_and_free (&disk, PARTITION_MBR, 0, NULL);
}

Test (layout, mbr_logical_volumes)
{
  struct sparse_disk disk;
  struct layout *layout;

  sparse_disk_init (&disk, GIB);
  put_mbr_entry (&disk, 0, 0, 0x05, 2048, 1000000);
  put_mbr_entry (&disk, MIB, 0, 0x0b, 2048, 131072);
  put_mbr_entry (&disk, MIB, 1, 0x05, 524288, 200000);
  put_mbr_entry (&disk, 257 * MIB, 0, 0x0b, 2048, 131072);
  put_volume (&disk, 2 * MIB, &fat_64m);
  put_volume (&disk, 258 * MIB, &fat_64m);
  layout = expect_volumes (&disk, PARTITION_MBR, 2, (struct want[]) {
      { 5, 2 * MIB, 66 * MIB }, { 6, 258 * MIB, 322 * MIB } });
  expect_watched (layout, 5, (struct layout_range[]) {
      { 0, 512 }, { MIB, MIB + 512 }, { 2 * MIB, 2 * MIB + 512 },
      { 257 * MIB, 257 * MIB + 512 }, { 258 * MIB, 258 * MIB + 512 } });
  layout_free (layout);
  sparse_disk_release (&disk);
}

Test (layout, mbr_of_a_disk_with_4k_blocks)
{
  struct sparse_disk disk;
  struct layout *layout;

  sparse_disk_init (&disk, GIB);
  put_mbr_entry (&disk, 0, 0, 0x0c, 256, 76800);
  put_mbr_entry (&disk, 0, 1, 0x05, 80000, 100000);
  put_mbr_entry (&disk, 80000 * 4096, 0, 0x0c, 256, 76801);
  put_volume (&disk, MIB, &fat_300m_4k);
  put_volume (&disk, 80256 * 4096, &fat_300m_4k);
  layout = expect_volumes (&disk, PARTITION_MBR, 2, (struct want[]) {
      { 1, MIB, 301 * MIB },
      { 5, 80256 * 4096, (80256 + 76801) * UINT64_C (4096) } });
  cr_expect (layout_watches (layout, MIB, MIB + 1));
  cr_expect (layout_watches (layout, 256 * 512, 256 * 512 + 1),
             "where units of 512 pointed");
  layout_free (layout);
  sparse_disk_release (&disk);
}

Test (layout, mbr_in_4k_units_wants_4k_sectors)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, GIB);
  put_mbr_entry (&disk, 0, 0, 0x0c, 256, 76800);
  put_volume (&disk, MIB, &fat_64m);
  expect_and_free (&disk, PARTITION_MBR, 0, NULL);
}

Test (layout, mbr_in_512_units_comes_first)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, GIB);
  put_mbr_entry (&disk, 0, 0, 0x0c, 256, 614400);
  put_volume (&disk, 256 * 512, &fat_300m_4k);
  put_volume (&disk, MIB, &fat_300m_4k);
  expect_and_free (&disk, PARTITION_MBR, 1, (struct want[]) {
      { 1, 256 * 512, 256 * 512 + 300 * MIB } });
}

Test (layout, overlapping_partitions_first_in_the_table_wins)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, GIB);
  put_mbr_entry (&disk, 0, 0, 0x0c, 4096, 131072);
  put_mbr_entry (&disk, 0, 1, 0x0c, 2048, 131072);      /* into 1 */
  put_mbr_entry (&disk, 0, 2, 0x0c, 4096 + 131072, 131072);     /* after */
  put_mbr_entry (&disk, 0, 3, 0x0c, 4096, 131072);      /* the same */
  put_volume (&disk, MIB, &fat_64m);
  put_volume (&disk, 2 * MIB, &fat_64m);
  put_volume (&disk, 66 * MIB, &fat_64m);
  expect_and_free (&disk, PARTITION_MBR, 2, (struct want[]) {
      { 1, 2 * MIB, 66 * MIB }, { 3, 66 * MIB, 130 * MIB } });
}

Test (layout, overlap_with_something_else_does_not_matter)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, GIB);
  put_mbr_entry (&disk, 0, 0, 0x83, 1, 2000000);
  put_mbr_entry (&disk, 0, 1, 0x0c, 2048, 131072);
  put_volume (&disk, MIB, &fat_64m);
  expect_and_free (&disk, PARTITION_MBR, 1, (struct want[]) {
      { 2, MIB, 65 * MIB } });
}

/*
 * GPT
 */

Test (layout, gpt_volumes)
{
  static const struct gpt_entry entries[] = {
    { 2048, 133119 }, { 200000, 200100 }, { 1048576, 1048576 + 131071 }
  };
  struct sparse_disk disk;
  struct layout *layout;

  sparse_disk_init (&disk, GIB);
  put_gpt_disk (&disk, 512, entries, 3);
  put_volume (&disk, MIB, &fat_64m);
  put_volume (&disk, 512 * MIB, &fat_64m);
  layout = expect_volumes (&disk, PARTITION_GPT, 2, (struct want[]) {
      { 1, MIB, 65 * MIB }, { 3, 512 * MIB, 576 * MIB } });
  expect_watched (layout, 4, (struct layout_range[]) {
      { 0, 34 * 512 }, { MIB, MIB + 512 },
      { 200000 * 512, 200001 * 512 }, { 512 * MIB, 512 * MIB + 512 } });
  layout_free (layout);
  sparse_disk_release (&disk);
}

Test (layout, gpt_of_a_disk_with_4k_blocks)
{
  static const struct gpt_entry entries[] = {
    { 256, 256 + 76799 }
  };
  struct sparse_disk disk;
  struct layout *layout;

  sparse_disk_init (&disk, GIB);
  put_gpt_disk (&disk, 4096, entries, 1);
  put_volume (&disk, MIB, &fat_300m_4k);
  layout = expect_volumes (&disk, PARTITION_GPT, 1, (struct want[]) {
      { 1, MIB, 301 * MIB } });
  expect_watched (layout, 4, (struct layout_range[]) {
      { 0, 1024 }, { 4096, 4608 }, { 8192, 24576 }, { MIB, MIB + 512 } });
  layout_free (layout);
  sparse_disk_release (&disk);
}

Test (layout, gpt_backup_is_watched_when_used)
{
  static const struct gpt_entry entries[] = { { 2048, 133119 } };
  struct sparse_disk disk;
  struct layout *layout;

  sparse_disk_init (&disk, GIB);
  put_gpt_disk (&disk, 512, entries, 1);
  put_volume (&disk, MIB, &fat_64m);
  sparse_disk_sector (&disk, 1)[0] = 0;
  layout = expect_volumes (&disk, PARTITION_GPT, 1, (struct want[]) {
      { 1, MIB, 65 * MIB } });
  cr_expect (layout_watches (layout, GIB - 512, GIB));
  cr_expect (layout_watches (layout, 512, 1024), "it may be repaired");
  layout_free (layout);
  sparse_disk_release (&disk);
}

Test (layout, hybrid_mbr)
{
  static const struct gpt_entry entries[] = { { 2048, 133119 } };
  struct sparse_disk disk;

  sparse_disk_init (&disk, GIB);
  put_gpt_disk (&disk, 512, entries, 1);
  put_mbr_entry (&disk, 0, 1, 0x0c, 1048576, 131072);
  put_volume (&disk, MIB, &fat_64m);
  put_volume (&disk, 512 * MIB, &fat_64m);
  expect_and_free (&disk, PARTITION_GPT, 1, (struct want[]) {
      { 1, MIB, 65 * MIB } });
}

Test (layout, hybrid_mbr_is_not_tried_in_4k_units)
{
  static const struct gpt_entry entries[] = { { 204800, 333119 } };
  struct sparse_disk disk;
  struct layout *layout;

  sparse_disk_init (&disk, GIB);
  put_gpt_disk (&disk, 512, entries, 1);        /* with no FAT in it */
  put_mbr_entry (&disk, 0, 1, 0x0c, 256, 76800);
  put_volume (&disk, MIB, &fat_300m_4k);
  layout = expect_volumes (&disk, PARTITION_GPT, 0, NULL);
  cr_expect_not (layout_watches (layout, 34 * 512, 100 * MIB));
  layout_free (layout);
  sparse_disk_release (&disk);
}

/*
 * Watching
 */

Test (layout, watches_half_open_ranges)
{
  struct layout_range watched[] = { { 0, 512 }, { 1024, 2048 },
                                    { 8192, 8193 } };
  const struct layout layout = { .nr_watched = 3, .watched = watched };
  const struct layout none = { .nr_watched = 0 };
  static const struct {
    const char *name;
    uint64_t start, end;
    bool want;
  } rows[] = {
    { "first byte", 0, 1, true },
    { "last byte of the first", 511, 512, true },
    { "gap, exactly", 512, 1024, false },
    { "gap and one byte more", 512, 1025, true },
    { "gap and one byte less", 511, 1024, true },
    { "inside the second", 1500, 1501, true },
    { "around the second", 1000, 3000, true },
    { "between", 2048, 8192, false },
    { "the one byte", 8192, 8193, true },
    { "after all", 8193, UINT64_MAX, false },
    { "everything", 0, UINT64_MAX, true },
    { "nothing, in a range", 100, 100, false },
    { "nothing, at a range's end", 512, 512, false },
    { "backwards", 200, 100, false },
  };
  size_t i;

  for (i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    cr_expect_eq (layout_watches (&layout, rows[i].start, rows[i].end),
                  rows[i].want, "%s", rows[i].name);
    cr_expect_not (layout_watches (&none, rows[i].start, rows[i].end));
  }
}

static void
expect_fats_unwatched (const struct layout *layout)
{
  size_t i;

  for (i = 0; i < layout->nr_volumes; ++i) {
    const struct layout_volume *volume = &layout->volumes[i];

    cr_expect_not (layout_watches (layout, volume->start + 512,
                                   volume->start + bpb_size (&volume->bpb)),
                   "anything but the boot sector of volume %zu", i);
    cr_expect (layout_watches (layout, volume->start, volume->start + 512));
  }
}

Test (layout, fat_writes_are_never_watched)
{
  static const struct gpt_entry entries[] = {
    { 2048, 133119 }, { 133120, 133120 + 131071 }
  };
  struct layout *layout;
  struct sparse_disk disk;

  sparse_disk_init (&disk, 64 * MIB);
  put_volume (&disk, 0, &fat_64m);
  layout = scan (&disk);
  cr_assert_eq (layout->nr_volumes, 1);
  expect_fats_unwatched (layout);
  layout_free (layout);
  sparse_disk_release (&disk);

  sparse_disk_init (&disk, GIB);
  put_gpt_disk (&disk, 512, entries, 2);
  put_volume (&disk, MIB, &fat_64m);
  put_volume (&disk, 65 * MIB, &fat_64m);
  layout = scan (&disk);
  cr_assert_eq (layout->nr_volumes, 2);
  expect_fats_unwatched (layout);
  layout_free (layout);
  sparse_disk_release (&disk);
}

/*
 * Errors
 */

Test (layout, unreadable_boot_sector_hides_one_volume)
{
  struct sparse_disk disk;
  struct layout *layout;

  sparse_disk_init (&disk, GIB);
  put_mbr_entry (&disk, 0, 0, 0x0c, 2048, 131072);
  put_mbr_entry (&disk, 0, 1, 0x0c, 524288, 131072);
  put_volume (&disk, MIB, &fat_64m);
  put_volume (&disk, 256 * MIB, &fat_64m);
  disk.error = -EIO;
  disk.error_start = MIB;
  disk.error_end = MIB + 1;
  layout = expect_volumes (&disk, PARTITION_MBR, 1, (struct want[]) {
      { 2, 256 * MIB, 320 * MIB } });
  cr_expect (layout_watches (layout, MIB, MIB + 512));
  layout_free (layout);
  sparse_disk_release (&disk);
}

Test (layout, unreadable_sector_0_hides_all)
{
  struct sparse_disk disk;
  struct layout *layout;

  sparse_disk_init (&disk, 64 * MIB);
  put_volume (&disk, 0, &fat_64m);
  disk.error = -EIO;
  disk.error_end = 1;
  layout = expect_volumes (&disk, PARTITION_NONE, 0, NULL);
  expect_watched (layout, 1, &sector_0);
  layout_free (layout);
  sparse_disk_release (&disk);
}

Test (layout, out_of_memory_is_an_error)
{
  static const uint64_t places[] = { 0, MIB, 256 * MIB };
  size_t i;

  for (i = 0; i < sizeof places / sizeof places[0]; ++i) {
    struct sparse_disk disk;
    struct layout *untouched = (struct layout *) &disk, *layout = untouched;

    sparse_disk_init (&disk, GIB);
    put_mbr_entry (&disk, 0, 0, 0x0c, 2048, 131072);
    put_mbr_entry (&disk, 0, 1, 0x05, 524288, 131072);
    disk.error = -ENOMEM;
    disk.error_start = places[i];
    disk.error_end = places[i] + 1;
    cr_expect_eq (layout_scan (sparse_disk_read, &disk, disk.size, &layout),
                  -ENOMEM);
    cr_expect_eq (layout, untouched);
    sparse_disk_release (&disk);
  }
}

Test (layout, free_accepts_null)
{
  layout_free (NULL);
}

/*
 * Comparison, and that a layout depends on what it watches alone
 */

static void
put_two_volumes (struct sparse_disk *disk)
{
  sparse_disk_init (disk, GIB);
  put_mbr_entry (disk, 0, 0, 0x0c, 2048, 131080);
  put_mbr_entry (disk, 0, 1, 0x0c, 524288, 131072);
  put_volume (disk, MIB, &fat_64m);
  put_volume (disk, 256 * MIB, &fat_64m);
}

Test (layout, equal_tells_what_moves_things)
{
  static const struct {
    const char *name;
    uint64_t offset;
    uint8_t value;
    bool want;
  } rows[] = {
    { "nothing", 3, 0, true },
    { "boot code of the MBR", 100, 1, true },
    { "partition type", 450, 0x83, true },
    { "dirty bit", MIB + 65, 1, true },
    { "label", MIB + 71, 'X', false },
    { "volume id", MIB + 67, 0x11, false },
    { "TotSec", MIB + 32, 1, false },
    { "cluster size", MIB + 13, 2, false },
    { "root cluster", MIB + 44, 9, false },
    { "signature of the first boot sector", MIB + 510, 0, false },
    { "end of the first partition", 446 + 12, 9, false },
    { "signature of the MBR", 510, 0, false },
  };
  struct sparse_disk disk;
  struct layout *before;
  size_t i;

  put_two_volumes (&disk);
  before = scan (&disk);
  cr_assert_eq (before->nr_volumes, 2);
  sparse_disk_release (&disk);
  for (i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    struct layout *after;

    put_two_volumes (&disk);
    sparse_disk_write (&disk, rows[i].offset, &rows[i].value, 1);
    after = scan (&disk);
    cr_expect_eq (layout_equal (before, after), rows[i].want,
                  "%s", rows[i].name);
    cr_expect_eq (layout_equal (after, before), rows[i].want,
                  "%s", rows[i].name);
    layout_free (after);
    sparse_disk_release (&disk);
  }
  layout_free (before);
}

Test (layout, equal_sees_a_new_place_to_watch)
{
  struct layout *before, *after;
  struct sparse_disk disk;

  put_two_volumes (&disk);
  before = scan (&disk);
  put_mbr_entry (&disk, 0, 2, 0x83, 1000000, 1);        /* no volume yet */
  after = scan (&disk);
  cr_expect_eq (after->nr_volumes, 2);
  cr_expect_not (layout_equal (before, after));
  layout_free (before);
  layout_free (after);
  sparse_disk_release (&disk);
}

Test (layout, equal_sees_another_number)
{
  struct layout *before, *after;
  struct sparse_disk disk;

  put_two_volumes (&disk);
  before = scan (&disk);
  memcpy (sparse_disk_sector (&disk, 0) + 446 + 48,
          sparse_disk_sector (&disk, 0) + 446 + 16, 16);
  memset (sparse_disk_sector (&disk, 0) + 446 + 16, 0, 16);
  after = scan (&disk);
  cr_expect_eq (after->nr_volumes, 2);
  cr_expect_eq (after->volumes[1].partition, 4);
  cr_expect_not (layout_equal (before, after));
  layout_free (before);
  layout_free (after);
  sparse_disk_release (&disk);
}

static uint64_t
random_below (uint64_t n)
{
  return (((uint64_t) random () << 31) ^ (uint64_t) random ()) % n;
}

/* A disk of one of many kinds, damaged in places. */
static void
put_random_disk (struct sparse_disk *disk)
{
  static const struct gpt_entry entries[] = {
    { 2048, 133119 }, { 200000, 200100 }, { 1048576, 1048576 + 131071 }
  };
  unsigned i, nr_bad = (unsigned) random () % 3;

  sparse_disk_init (disk, GIB + (uint64_t) random () % 4096);
  switch (random () % 5) {
  case 0:
    put_volume (disk, 0, &fat_64m);
    break;
  case 1:
    put_gpt_disk (disk, 512, entries, 3);
    break;
  case 2:
    put_gpt_disk (disk, 4096, entries, 3);
    break;
  default:
    for (i = 0; i < 10; ++i)
      put_mbr_entry (disk, i < 5 ? 0 : MIB * random_below (4), random () % 4,
                     (const uint8_t[]) { 5, 12, 12, 0xee } [random () % 4],
                     2048 * (uint32_t) random_below (4),
                     (uint32_t) random_below (1 << 19));
  }
  for (i = 0; i < 4; ++i)
    if (random () % 4)
      put_volume (disk, MIB * (1 + i * i),
                  random () % 2 ? &fat_64m : &fat_300m_4k);
  for (i = 0; i < nr_bad; ++i) {
    struct sparse_sector *sector =
      &disk->sectors[random_below (disk->nr_sectors)];

    sector->bytes[random () % 512] ^= 1 << random () % 8;
  }
}

Test (layout, depends_on_watched_bytes_only)
{
  unsigned round, found = 0, i;

  srandom (1);
  for (round = 0; round < 1500; ++round) {
    struct layout *before, *after;
    struct sparse_disk disk;

    put_random_disk (&disk);
    before = scan (&disk);
    found += before->nr_volumes > 0;

    /* All other sectors become noise or boot sectors: those that were
     * written, and some where tables and volumes like to start.
     */
    for (i = 0; i < 40; ++i)
      sparse_disk_sector (&disk, i < 20 ? i : 2048 * (i - 20));
    sparse_disk_sector (&disk, disk.size / 512 - 1);
    for (i = 0; i < disk.nr_sectors; ++i) {
      const uint64_t start = disk.sectors[i].nr * 512;

      if (layout_watches (before, start, start + 512))
        continue;
      memset (disk.sectors[i].bytes, random () % 256, 510);
      if (random () % 2)
        build_boot_sector (disk.sectors[i].bytes, &fat_64m);
    }
    after = scan (&disk);
    cr_assert (layout_equal (before, after), "round %u", round);
    layout_free (before);
    layout_free (after);
    sparse_disk_release (&disk);
  }
  cr_expect_gt (found, 400, "%u disks with volumes: too few", found);
}
