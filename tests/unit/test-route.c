/* SPDX-License-Identifier: BSD-3-Clause */

/* Which way a request takes, by what it touches (route.h). */

#include <config.h>

#include <criterion/criterion.h>

#include <inttypes.h>

#include "disk-builder.h"
#include "region.h"
#include "route.h"

#define KIB UINT64_C (1024)
#define MIB (KIB * KIB)

/* Volumes of a disk, one behind the other:
 *   1 MiB: FATs of 8 KiB at 16 and 24 KiB, data from 32 KiB
 *   2 MiB: one FAT;  3 MiB: three;  4 MiB: ExtFlags bit 7
 *   5 MiB: 4096-byte sectors, FATs of 8 KiB at 16 and 24 KiB
 *   6 MiB: FATs of 1.25 MiB at 16 KiB and 1.25 MiB + 16 KiB
 */
static const struct {
  uint64_t start;
  struct fat_spec spec;
} specs[] = {
  { 1 * MIB, { 512, 1, 32, 2, 16, 2048, 2, 0, 1, 6 } },
  { 2 * MIB, { 512, 1, 32, 1, 16, 2048, 2, 0, 1, 6 } },
  { 3 * MIB, { 512, 1, 32, 3, 16, 2048, 2, 0, 1, 6 } },
  { 4 * MIB, { 512, 1, 32, 2, 16, 2048, 2, 0x80, 1, 6 } },
  { 5 * MIB, { 4096, 1, 4, 2, 2, 256, 2, 0, 1, 0 } },
  { 6 * MIB, { 512, 1, 32, 2, 2560, 8192, 2, 0, 1, 6 } },
};

#define NR(rows) (sizeof rows / sizeof rows[0])

static struct layout_volume volumes[NR (specs)];
static struct layout layout;

static void
setup (void)
{
  uint8_t sector[512];
  size_t i;

  for (i = 0; i < NR (specs); ++i) {
    struct layout_volume *v = &volumes[i];

    build_boot_sector (sector, &specs[i].spec);
    v->start = specs[i].start;
    v->end = v->start + fat_spec_size (&specs[i].spec);
    cr_assert_eq (bpb_parse (sector, v->end - v->start, &v->bpb), BPB_FAT32);
  }
  layout = (struct layout) {
    .table = PARTITION_MBR, .nr_volumes = NR (specs), .volumes = volumes,
  };
}

static void
find_route (enum disk_op_kind kind, uint64_t start, uint64_t end,
            struct route *ret)
{
  struct region region;
  uint64_t pos;

  memset (ret, 0, sizeof *ret);
  for (pos = start; pos < end; pos = region.end) {
    region_at (&layout, pos, end, &region);
    route_add (ret, kind, &layout, &region,
               region.start == start && region.end == end);
  }
}

#define FAT1 (1 * MIB + 16 * KIB)
#define FAT2 (1 * MIB + 24 * KIB)
#define BIG1 (6 * MIB + 16 * KIB)
#define BIG2 (BIG1 + 1280 * KIB)
#define WINDOW (UINT64_C (524288))

static const struct {
  const char *name;
  enum disk_op_kind kind;
  uint64_t start, end;
  enum route_kind route;
  uint64_t slots_start, slots_end;      /* if not PLAIN */
} rows[] = {
  { "the partition table", DISK_WRITE, 0, 512, ROUTE_PLAIN, 0, 0 },
  { "between volumes, and into reserved sectors", DISK_WRITE,
    MIB - 512, MIB + 4096, ROUTE_PLAIN, 0, 0 },
  { "data", DISK_WRITE, MIB + 32 * KIB, MIB + 64 * KIB, ROUTE_PLAIN, 0, 0 },
  { "reserved sectors up to FAT 1", DISK_WRITE, MIB, FAT1, ROUTE_PLAIN, 0, 0 },
  { "data right behind the mirror", DISK_WRITE, FAT2 + 8 * KIB,
    FAT2 + 9 * KIB, ROUTE_PLAIN, 0, 0 },
  { "trim of data", DISK_DISCARD, MIB + 32 * KIB, MIB + 64 * KIB,
    ROUTE_PLAIN, 0, 0 },

  { "a sector of FAT 1", DISK_WRITE, FAT1 + 512, FAT1 + 1024, ROUTE_FAT1,
    FAT1, FAT1 + 8 * KIB },
  { "a byte of FAT 1", DISK_WRITE, FAT1 + 5, FAT1 + 6, ROUTE_FAT1,
    FAT1, FAT1 + 8 * KIB },
  { "all of FAT 1", DISK_WRITE, FAT1, FAT1 + 8 * KIB, ROUTE_FAT1,
    FAT1, FAT1 + 8 * KIB },
  { "a sector of the mirror", DISK_WRITE, FAT2 + 512, FAT2 + 1024,
    ROUTE_MIRROR, FAT1, FAT1 + 8 * KIB },
  { "the last byte of the mirror", DISK_WRITE, FAT2 + 8 * KIB - 1,
    FAT2 + 8 * KIB, ROUTE_MIRROR, FAT1, FAT1 + 8 * KIB },
  { "all of the mirror", DISK_WRITE, FAT2, FAT2 + 8 * KIB, ROUTE_MIRROR,
    FAT1, FAT1 + 8 * KIB },

  { "zero of FAT 1", DISK_ZERO, FAT1, FAT1 + 512, ROUTE_ACROSS,
    FAT1, FAT1 + 8 * KIB },
  { "zero of the mirror", DISK_ZERO, FAT2, FAT2 + 512, ROUTE_ACROSS,
    FAT1, FAT1 + 8 * KIB },
  { "trim of FAT 1", DISK_DISCARD, FAT1, FAT1 + 512, ROUTE_ACROSS,
    FAT1, FAT1 + 8 * KIB },
  { "trim of the mirror", DISK_DISCARD, FAT2, FAT2 + 512, ROUTE_ACROSS,
    FAT1, FAT1 + 8 * KIB },
  { "both copies", DISK_WRITE, FAT2 - 512, FAT2 + 512, ROUTE_ACROSS,
    FAT1, FAT1 + 8 * KIB },
  { "the byte in front of FAT 1, and its first", DISK_WRITE, FAT1 - 1,
    FAT1 + 1, ROUTE_ACROSS, FAT1, FAT1 + 8 * KIB },
  { "the mirror's last byte, and the one behind", DISK_WRITE,
    FAT2 + 8 * KIB - 1, FAT2 + 8 * KIB + 1, ROUTE_ACROSS,
    FAT1, FAT1 + 8 * KIB },
  { "a whole volume", DISK_WRITE, MIB, 2 * MIB, ROUTE_ACROSS,
    FAT1, FAT1 + 8 * KIB },

  { "the only FAT", DISK_WRITE, 2 * MIB + 16 * KIB, 2 * MIB + 17 * KIB,
    ROUTE_PLAIN, 0, 0 },
  { "zero of the only FAT", DISK_ZERO, 2 * MIB + 16 * KIB,
    2 * MIB + 17 * KIB, ROUTE_PLAIN, 0, 0 },
  { "the second FAT of three", DISK_WRITE, 3 * MIB + 24 * KIB,
    3 * MIB + 25 * KIB, ROUTE_PLAIN, 0, 0 },
  { "the third FAT of three", DISK_WRITE, 3 * MIB + 32 * KIB,
    3 * MIB + 33 * KIB, ROUTE_PLAIN, 0, 0 },
  { "FAT 1 with mirroring off", DISK_WRITE, 4 * MIB + 16 * KIB,
    4 * MIB + 17 * KIB, ROUTE_PLAIN, 0, 0 },
  { "the mirror with mirroring off", DISK_WRITE, 4 * MIB + 24 * KIB,
    4 * MIB + 25 * KIB, ROUTE_PLAIN, 0, 0 },
  { "volumes that don't mirror, all of them", DISK_WRITE, 2 * MIB, 5 * MIB,
    ROUTE_PLAIN, 0, 0 },

  { "4096-byte sectors: part of one", DISK_WRITE, 5 * MIB + 16 * KIB + 512,
    5 * MIB + 17 * KIB, ROUTE_FAT1, 5 * MIB + 16 * KIB, 5 * MIB + 24 * KIB },

  { "two volumes: the hull of both", DISK_WRITE, MIB, 6 * MIB, ROUTE_ACROSS,
    FAT1, 5 * MIB + 24 * KIB },
  { "the whole disk", DISK_ZERO, 0, 10 * MIB, ROUTE_ACROSS,
    FAT1, BIG1 + 1280 * KIB },

  { "the first window", DISK_WRITE, BIG1 + 512, BIG1 + 1024, ROUTE_FAT1,
    BIG1, BIG1 + WINDOW },
  { "the end of the first window", DISK_WRITE, BIG1 + WINDOW - 512,
    BIG1 + WINDOW, ROUTE_FAT1, BIG1, BIG1 + WINDOW },
  { "the second window", DISK_WRITE, BIG1 + WINDOW, BIG1 + WINDOW + 512,
    ROUTE_FAT1, BIG1 + WINDOW, BIG1 + 2 * WINDOW },
  { "the second window, in the mirror", DISK_WRITE, BIG2 + WINDOW,
    BIG2 + WINDOW + 512, ROUTE_MIRROR, BIG1 + WINDOW, BIG1 + 2 * WINDOW },
  { "two windows of the mirror", DISK_WRITE, BIG2 + WINDOW - 512,
    BIG2 + WINDOW + 512, ROUTE_MIRROR, BIG1, BIG1 + 2 * WINDOW },
  { "the last window, which is short", DISK_ZERO, BIG2 + 2 * WINDOW,
    BIG2 + 2 * WINDOW + 512, ROUTE_ACROSS, BIG1 + 2 * WINDOW,
    BIG1 + 1280 * KIB },
  { "the end of FAT 1, and the mirror's start", DISK_WRITE, BIG2 - 512,
    BIG2 + 512, ROUTE_ACROSS, BIG1, BIG1 + 1280 * KIB },
};

TestSuite (route, .init = setup);

Test (route, rows)
{
  size_t i;

  for (i = 0; i < NR (rows); ++i) {
    struct route route;

    find_route (rows[i].kind, rows[i].start, rows[i].end, &route);
    cr_expect_eq (route.kind, rows[i].route, "%s: route %d", rows[i].name,
                  route.kind);
    if (route.kind == ROUTE_PLAIN)
      continue;
    cr_expect_eq (route.slots_start, rows[i].slots_start, "%s: start %" PRIu64,
                  rows[i].name, route.slots_start);
    cr_expect_eq (route.slots_end, rows[i].slots_end, "%s: end %" PRIu64,
                  rows[i].name, route.slots_end);
  }
}

/* FAT1 and MIRROR come with the volume. */
Test (route, volume)
{
  static const uint64_t starts[] = { FAT1 + 512, FAT2 + 512 };
  struct route route;
  size_t i;

  for (i = 0; i < NR (starts); ++i) {
    find_route (DISK_WRITE, starts[i], starts[i] + 512, &route);
    cr_assert_eq (route.volume.fat1, FAT1);
    cr_assert_eq (route.volume.mirror, FAT2);
    cr_assert_eq (route.volume.size, 8 * KIB);
    cr_assert_eq (route.volume.sector_size, 512);
    cr_assert_eq (route.volume.start, MIB);
    cr_assert_eq (route.volume.id, 0x1234abcd);
  }
  find_route (DISK_WRITE, 5 * MIB + 24 * KIB, 5 * MIB + 28 * KIB, &route);
  cr_assert_eq (route.kind, ROUTE_MIRROR);
  cr_assert_eq (route.volume.sector_size, 4096);
  cr_assert_eq (route.volume.fat1, 5 * MIB + 16 * KIB);
}

/* Whatever the request, a part of it that is in FATs is in the hull, and only a
 * request that touches some has one.
 */
Test (route, by_random)
{
  unsigned seed = 1, n;

  for (n = 0; n < 20000; ++n) {
    uint64_t start = ((uint64_t) rand_r (&seed) << 10 ^ rand_r (&seed)) %
      (10 * MIB);
    uint64_t length = 1 + rand_r (&seed) % (n % 2 ? 4096 : 2 * MIB);
    uint64_t end = start + length < 10 * MIB ? start + length : 10 * MIB;
    struct mirror_volume volume;
    bool touches = false;
    struct route route;
    size_t i;

    find_route (DISK_WRITE, start, end, &route);
    for (i = 0; i < NR (specs); ++i) {
      unsigned copy;

      if (!mirror_volume_of (&volumes[i], &volume))
        continue;
      for (copy = 0; copy < 2; ++copy) {
        uint64_t base = copy == 0 ? volume.fat1 : volume.mirror;
        uint64_t from = start > base ? start : base;
        uint64_t to = end < base + volume.size ? end : base + volume.size;

        if (from >= to)
          continue;
        touches = true;
        cr_assert (route.slots_start <= from - base + volume.fat1 &&
                   to - base + volume.fat1 <= route.slots_end,
                   "[%" PRIu64 ", %" PRIu64 ") is not in its hull", start, end);
        if (route.kind != ROUTE_ACROSS)
          cr_assert (from == start && to == end);
      }
    }
    cr_assert_eq (touches, route.kind != ROUTE_PLAIN,
                  "[%" PRIu64 ", %" PRIu64 ")", start, end);
  }
}
