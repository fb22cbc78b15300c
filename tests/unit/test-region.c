/* SPDX-License-Identifier: BSD-3-Clause */

/* core/region: which byte is what. */

#include <config.h>

#include <criterion/criterion.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "disk-builder.h"
#include "layout.h"
#include "region.h"

TestSuite (region, .timeout = 60);

#define MIB (UINT64_C (1) << 20)

/* Disks are made of volumes with specs; the layouts are those that
 * bpb_parse makes of them.
 */
#define MAX_VOLUMES 5

struct test_layout {
  struct layout layout;
  struct layout_volume volumes[MAX_VOLUMES];
  struct fat_spec specs[MAX_VOLUMES];
};

static void
add_volume (struct test_layout *t, uint64_t start, uint64_t end,
            const struct fat_spec *spec)
{
  const size_t i = t->layout.nr_volumes++;
  uint8_t sector[512];

  t->layout.volumes = t->volumes;
  t->volumes[i] = (struct layout_volume) { .start = start, .end = end };
  t->specs[i] = *spec;
  build_boot_sector (sector, spec);
  cr_assert_eq (bpb_parse (sector, end - start, &t->volumes[i].bpb),
                BPB_FAT32);
}

static void
expect_regions (const struct layout *layout, uint64_t start, uint64_t end,
                size_t nr, const struct region *want)
{
  struct region region;
  uint64_t pos;
  size_t i = 0;

  for (pos = start; pos < end; pos = region.end, ++i) {
    region_at (layout, pos, end, &region);
    cr_assert_lt (i, nr, "one more: %s at %" PRIu64,
                  region_kind_string (region.kind), region.start);
    cr_expect_eq (region.kind, want[i].kind, "[%zu] is %s", i,
                  region_kind_string (region.kind));
    cr_expect_eq (region.fat, want[i].fat, "[%zu] fat %u", i, region.fat);
    cr_expect_eq (region.volume, want[i].volume, "[%zu] volume %zu", i,
                  region.volume);
    cr_expect_eq (region.start, want[i].start, "[%zu] starts at %" PRIu64,
                  i, region.start);
    cr_assert_eq (region.end, want[i].end, "[%zu] ends at %" PRIu64, i,
                  region.end);
  }
  cr_assert_eq (i, nr, "%zu regions", i);
}

Test (region, no_volume)
{
  const struct layout layout = { .nr_volumes = 0 };

  expect_regions (&layout, 0, UINT64_MAX, 1, (struct region[]) {
      { REGION_OUTSIDE, 0, 0, 0, UINT64_MAX } });
  expect_regions (&layout, 511, 512, 1, (struct region[]) {
      { REGION_OUTSIDE, 0, 0, 511, 512 } });
}

Test (region, bare_64m_volume)
{
  struct test_layout t = { 0 };

  add_volume (&t, 0, 64 * MIB + 100, &fat_64m);
  expect_regions (&t.layout, 0, 64 * MIB + 1000, 10, (struct region[]) {
      { REGION_RESERVED, 0, 0, 0, 512 },
      { REGION_FSINFO, 0, 0, 512, 1024 },
      { REGION_RESERVED, 0, 0, 1024, 3584 },
      { REGION_FSINFO, 0, 0, 3584, 4096 },
      { REGION_RESERVED, 0, 0, 4096, 16384 },
      { REGION_FAT, 0, 0, 16384, 532992 },
      { REGION_FAT, 1, 0, 532992, 1049600 },
      { REGION_DATA, 0, 0, 1049600, 64 * MIB },
      { REGION_SLACK, 0, 0, 64 * MIB, 64 * MIB + 100 },
      { REGION_OUTSIDE, 0, 0, 64 * MIB + 100, 64 * MIB + 1000 } });
}

Test (region, extents_are_clipped_to_the_range)
{
  struct test_layout t = { 0 };

  add_volume (&t, 0, 64 * MIB, &fat_64m);
  expect_regions (&t.layout, 532991, 532993, 2, (struct region[]) {
      { REGION_FAT, 0, 0, 532991, 532992 },
      { REGION_FAT, 1, 0, 532992, 532993 } });
  expect_regions (&t.layout, 20000, 20001, 1, (struct region[]) {
      { REGION_FAT, 0, 0, 20000, 20001 } });
}

Test (region, adjacent_partitions_and_gaps)
{
  const uint64_t a = MIB, b = a + 300 * MIB, c = b + 400 * MIB;
  struct test_layout t = { 0 };

  add_volume (&t, a, b, &fat_300m_4k);
  add_volume (&t, b, b + 300 * MIB, &fat_300m_4k);
  add_volume (&t, c, c + 300 * MIB, &fat_300m_4k);
  expect_regions (&t.layout, b - 1, b + 4097, 3, (struct region[]) {
      { REGION_DATA, 0, 0, b - 1, b },
      { REGION_RESERVED, 0, 1, b, b + 4096 },
      { REGION_FSINFO, 0, 1, b + 4096, b + 4097 } });
  expect_regions (&t.layout, c - 100 * MIB - 1, c + 1, 3,
                  (struct region[]) {
      { REGION_DATA, 0, 1, c - 100 * MIB - 1, c - 100 * MIB },
      { REGION_OUTSIDE, 0, 0, c - 100 * MIB, c },
      { REGION_RESERVED, 0, 2, c, c + 1 } });
  expect_regions (&t.layout, 0, a - 1, 1, (struct region[]) {
      { REGION_OUTSIDE, 0, 0, 0, a - 1 } });
  expect_regions (&t.layout, 0, a + 1, 2, (struct region[]) {
      { REGION_OUTSIDE, 0, 0, 0, a },
      { REGION_RESERVED, 0, 0, a, a + 1 } });
}

Test (region, fsinfo_next_to_its_backup_is_one_extent)
{
  const struct fat_spec spec = {
    512, 1, 4, 2, 1009, 131000, 2, 0, 1, 1
  };
  struct test_layout t = { 0 };

  add_volume (&t, 0, 64 * MIB, &spec);
  expect_regions (&t.layout, 0, 2049, 4, (struct region[]) {
      { REGION_RESERVED, 0, 0, 0, 512 },
      { REGION_FSINFO, 0, 0, 512, 1536 },
      { REGION_RESERVED, 0, 0, 1536, 2048 },
      { REGION_FAT, 0, 0, 2048, 2049 } });
}

Test (region, no_fsinfo_one_fat_sectors_left_over)
{
  const struct fat_spec spec = {
    1024, 8, 1, 1, 1, 10 + 7, 2, 0, 0, 0
  };
  struct test_layout t = { 0 };

  add_volume (&t, 0, 17 * 1024, &spec);
  expect_regions (&t.layout, 0, 17 * 1024, 4, (struct region[]) {
      { REGION_RESERVED, 0, 0, 0, 1024 },
      { REGION_FAT, 0, 0, 1024, 2048 },
      { REGION_DATA, 0, 0, 2048, 2048 + 8192 },
      { REGION_SLACK, 0, 0, 2048 + 8192, 17 * 1024 } });
}

Test (region, end_of_a_16_tib_volume)
{
  const struct fat_spec spec = {
    4096, 128, 32, 2, 32768, UINT32_MAX, 2, 0, 1, 6
  };
  const uint64_t start = UINT64_C (1) << 60;
  const uint64_t end = start + (UINT64_C (1) << 44);
  /* (2^32 - 1 - 32 - 65536) / 128 clusters */
  const uint64_t data_end =
    start + (32 + 65536 + UINT64_C (33553919) * 128) * 4096;
  struct test_layout t = { 0 };

  add_volume (&t, start, end, &spec);
  expect_regions (&t.layout, data_end - 1, UINT64_MAX, 3,
                  (struct region[]) {
      { REGION_DATA, 0, 0, data_end - 1, data_end },
      { REGION_SLACK, 0, 0, data_end, end },
      { REGION_OUTSIDE, 0, 0, end, UINT64_MAX } });
}

Test (region, kinds_have_names)
{
  cr_expect_str_eq (region_kind_string (REGION_OUTSIDE), "outside");
  cr_expect_str_eq (region_kind_string (REGION_FAT), "fat");
  cr_expect_str_eq (region_kind_string ((enum region_kind) 99), "unknown");
}

/*
 * Against a slow classification, sector by sector, from the spec alone
 */

struct tag {
  enum region_kind kind;
  unsigned fat;
  size_t volume;
};

static bool
same_tag (const struct tag *a, const struct region *b)
{
  return a->kind == b->kind && a->fat == b->fat && a->volume == b->volume;
}

static struct tag
slow_tag_in_volume (const struct fat_spec *spec, uint64_t offset, size_t i)
{
  uint64_t sector = offset / spec->sector_size, clusters;
  unsigned fat;

  if (sector < spec->reserved) {
    const bool has_fsinfo =
      spec->fsinfo > 0 && spec->fsinfo < spec->reserved;
    const bool has_backup =
      spec->backup > 0 && spec->backup < spec->reserved;

    if (has_fsinfo && sector == spec->fsinfo)
      return (struct tag) { REGION_FSINFO, 0, i };
    if (has_fsinfo && has_backup &&
        sector == (uint64_t) spec->fsinfo + spec->backup)
      return (struct tag) { REGION_FSINFO, 0, i };
    return (struct tag) { REGION_RESERVED, 0, i };
  }
  sector -= spec->reserved;
  for (fat = 0; fat < spec->nr_fats; ++fat) {
    if (sector < spec->fat_sectors)
      return (struct tag) { REGION_FAT, fat, i };
    sector -= spec->fat_sectors;
  }
  clusters = (spec->total_sectors - spec->reserved -
              spec->nr_fats * spec->fat_sectors) / spec->sectors_per_cluster;
  if (sector / spec->sectors_per_cluster < clusters)
    return (struct tag) { REGION_DATA, 0, i };
  return (struct tag) { REGION_SLACK, 0, i };
}

static struct tag
slow_tag (const struct test_layout *t, uint64_t pos)
{
  size_t i;

  for (i = 0; i < t->layout.nr_volumes; ++i)
    if (pos >= t->volumes[i].start && pos < t->volumes[i].end)
      return slow_tag_in_volume (&t->specs[i], pos - t->volumes[i].start, i);
  return (struct tag) { REGION_OUTSIDE, 0, 0 };
}

static uint32_t
random_below (uint32_t n)
{
  return (uint32_t) random () % n;
}

static void
random_spec (struct fat_spec *spec)
{
  uint32_t clusters;

  spec->sector_size = (uint16_t) (512 << random_below (4));
  spec->sectors_per_cluster = (uint8_t) (1 << random_below (5));
  spec->reserved = (uint16_t) (1 + random_below (40));
  spec->nr_fats = (uint8_t) (1 + random_below (random () % 8 ? 3 : 20));
  spec->fat_sectors = 1 + random_below (4);
  clusters = 1 + random_below (60);
  spec->total_sectors = spec->reserved +
    spec->nr_fats * spec->fat_sectors +
    clusters * spec->sectors_per_cluster +
    random_below (spec->sectors_per_cluster);
  spec->root_cluster = 2 + random_below (clusters);
  spec->ext_flags = 0;
  spec->fsinfo = (uint16_t) random_below (spec->reserved + 2);
  spec->backup = (uint16_t) random_below (spec->reserved + 2);
  if (random () % 8 == 0)
    spec->backup = 0xffff;
  if (random () % 8 == 0)
    spec->fsinfo = 0xffff;
}

/* Volumes with gaps or without, and partitions with room to spare or
 * without; returns the disk's size.  All in units of 512 bytes.
 */
static uint64_t
random_layout (struct test_layout *t)
{
  const unsigned nr = random_below (MAX_VOLUMES + 1);
  uint64_t pos = 0;
  unsigned i;

  memset (t, 0, sizeof *t);
  for (i = 0; i < nr; ++i) {
    struct fat_spec spec;
    uint64_t end;

    random_spec (&spec);
    pos += random () % 2 ? 0 : 512 * (1 + random_below (20));
    end = pos + fat_spec_size (&spec) +
      (random () % 2 ? 0 : 512 * random_below (20));
    add_volume (t, pos, end, &spec);
    pos = end;
  }
  return pos + 512 * (1 + random_below (10));
}

/* Walk [start, end): the extents tile it, are maximal, and agree with
 * slow_tag at each sector they touch.
 */
static void
check_walk (const struct test_layout *t, uint64_t start, uint64_t end,
            unsigned round)
{
  struct region region, last = { .start = UINT64_MAX };
  uint64_t pos, p;

  for (pos = start; pos < end; pos = region.end) {
    memset (&region, 0x5a, sizeof region);
    region_at (&t->layout, pos, end, &region);
    cr_assert_eq (region.start, pos, "round %u", round);
    cr_assert_gt (region.end, pos, "round %u", round);
    cr_assert_leq (region.end, end, "round %u", round);
    if (last.start != UINT64_MAX)
      cr_assert (region.kind != last.kind || region.fat != last.fat ||
                 region.volume != last.volume,
                 "round %u: split at %" PRIu64, round, pos);
    for (p = pos; p < region.end; p = (p / 512 + 1) * 512) {
      const struct tag tag = slow_tag (t, p);

      cr_assert (same_tag (&tag, &region), "round %u: %" PRIu64
                 " is %s %u of volume %zu, tagged %s %u of %zu", round, p,
                 region_kind_string (tag.kind), tag.fat, tag.volume,
                 region_kind_string (region.kind), region.fat,
                 region.volume);
    }
    last = region;
  }
}

Test (region, agrees_with_a_slow_classification)
{
  unsigned round, i;

  srandom (1);
  for (round = 0; round < 1000; ++round) {
    struct test_layout t;
    const uint64_t size = random_layout (&t);

    check_walk (&t, 0, size, round);
    for (i = 0; i < 20; ++i) {
      uint64_t start = (uint64_t) random () % size;
      uint64_t end = start + 1 + (uint64_t) random () % 70000;

      check_walk (&t, start, end, round);
      start = start / 512 * 512;
      end = start + 512;
      check_walk (&t, start, end, round);
    }
  }
}
