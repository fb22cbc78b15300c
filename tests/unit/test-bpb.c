/* SPDX-License-Identifier: BSD-3-Clause */

/* core/bpb: which boot sectors are FAT32, and where things are then. */

#include <config.h>

#include <criterion/criterion.h>

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "bpb.h"
#include "disk-builder.h"
#include "mkfs-boot-sectors.h"

TestSuite (bpb, .timeout = 60);

#define SIZE_64M (UINT64_C (64) << 20)

/* Independent of bpb.c's own arithmetic as far as it can be: 128 bits
 * can't overflow here.
 */
static void
check_invariants (const struct bpb *b, uint64_t volume_size,
                  const char *what)
{
  typedef unsigned __int128 u128;
  const u128 fat_size = (u128) b->fat_sectors * b->sector_size;
  const u128 fats = (u128) b->reserved_sectors * b->sector_size;
  const u128 data = fats + b->nr_fats * fat_size;
  const u128 data_end = data + (u128) b->nr_clusters * b->cluster_size;
  const u128 total = (u128) b->total_sectors * b->sector_size;

  cr_assert (b->sector_size >= 512 && b->sector_size <= 4096, "%s", what);
  cr_assert ((b->sector_size & (b->sector_size - 1)) == 0, "%s", what);
  cr_assert ((b->cluster_size & (b->cluster_size - 1)) == 0, "%s", what);
  cr_assert (b->cluster_size >= b->sector_size, "%s", what);
  cr_assert (b->cluster_size <= 128 * b->sector_size, "%s", what);
  cr_assert (b->nr_fats >= 1 && b->nr_fats <= 255, "%s", what);
  cr_assert (b->nr_clusters >= 1, "%s", what);
  cr_assert (fats > 0 && fat_size > 0, "%s", what);
  cr_assert (data_end <= total && total <= volume_size, "%s", what);
  cr_assert (data_end + b->cluster_size > total, "%s: a cluster lost", what);
  cr_assert (fat_size / 4 >= (u128) b->nr_clusters + 2, "%s", what);
  cr_assert (b->root_cluster >= 2, "%s", what);
  cr_assert (b->root_cluster <= b->nr_clusters + 1, "%s", what);
  cr_assert (b->nr_clusters + 1 < 0x0ffffff7, "%s", what);
  cr_assert (b->fsinfo_sector < b->reserved_sectors, "%s", what);
  cr_assert (b->backup_sector < b->reserved_sectors, "%s", what);
  cr_assert (bpb_fsinfo_backup_sector (b) < b->reserved_sectors, "%s", what);
  cr_assert (bpb_active_fat (b) < b->nr_fats, "%s", what);
  cr_assert (memchr (b->label, 0, sizeof b->label) != NULL, "%s", what);

  cr_assert (bpb_fat_start (b, 0) == fats, "%s", what);
  cr_assert (bpb_fat_start (b, b->nr_fats - 1) + fat_size == data,
             "%s", what);
  cr_assert (bpb_fat_size (b) == fat_size, "%s", what);
  cr_assert (bpb_data_start (b) == data, "%s", what);
  cr_assert (bpb_data_end (b) == data_end, "%s", what);
  cr_assert (bpb_size (b) == total, "%s", what);
  cr_assert (bpb_cluster_offset (b, 2) == data, "%s", what);
  cr_assert (bpb_cluster_offset (b, b->nr_clusters + 1) + b->cluster_size ==
             data_end, "%s", what);
}

Test (bpb, mkfs_fat_images)
{
  size_t i;

  for (i = 0; i < NR_MKFS_ROWS; ++i) {
    const struct mkfs_row *row = &mkfs_rows[i];
    uint8_t sector[512];
    struct bpb b;

    mkfs_boot_sector (row, sector);
    cr_assert_eq (bpb_parse (sector, row->size, &b), BPB_FAT32,
                  "%s", row->name);
    check_invariants (&b, row->size, row->name);
    cr_expect_eq (b.sector_size, row->sector_size, "%s", row->name);
    cr_expect_eq (b.cluster_size, row->cluster_size, "%s", row->name);
    cr_expect_eq (b.reserved_sectors, row->reserved_sectors,
                  "%s", row->name);
    cr_expect_eq (b.nr_fats, row->nr_fats, "%s", row->name);
    cr_expect_eq (b.fat_sectors, row->fat_sectors, "%s", row->name);
    cr_expect_eq (b.total_sectors, row->total_sectors, "%s", row->name);
    cr_expect_eq (b.nr_clusters, row->nr_clusters, "%s", row->name);
    cr_expect_eq (b.root_cluster, row->root_cluster, "%s", row->name);
    cr_expect_eq (b.fsinfo_sector, row->fsinfo_sector, "%s", row->name);
    cr_expect_eq (b.backup_sector, row->backup_sector, "%s", row->name);
    cr_expect_eq (bpb_data_start (&b), row->data_start, "%s", row->name);
    cr_expect_eq (b.volume_id, row->volume_id, "%s", row->name);
    cr_expect_str_eq (b.label, row->label, "%s", row->name);
    cr_expect_eq (b.ext_flags, 0, "%s", row->name);
    cr_expect_not (b.dirty, "%s", row->name);
    cr_expect_eq (bpb_mirroring (&b), row->nr_fats == 2, "%s", row->name);
    cr_expect_eq (bpb_few_clusters (&b), row->nr_clusters < 65525,
                  "%s", row->name);
    cr_expect_eq (bpb_active_fat (&b), 0, "%s", row->name);
  }
}

Test (bpb, mkfs_fat_images_cut_short)
{
  size_t i;

  for (i = 0; i < NR_MKFS_ROWS; ++i) {
    const struct mkfs_row *row = &mkfs_rows[i];
    const uint64_t used = (uint64_t) row->total_sectors * row->sector_size;
    const uint64_t sizes[] = {
      0, 1, 511, 512, row->data_start, used / 2, used - row->sector_size,
      used - 1
    };
    uint8_t sector[512];
    struct bpb b;
    size_t j;

    mkfs_boot_sector (row, sector);
    for (j = 0; j < sizeof sizes / sizeof sizes[0]; ++j)
      cr_expect_eq (bpb_parse (sector, sizes[j], &b), BPB_VOLUME_TOO_SMALL,
                    "%s in %" PRIu64 " bytes", row->name, sizes[j]);
    cr_expect_eq (bpb_parse (sector, used, &b), BPB_FAT32,
                  "%s, no byte to spare", row->name);
    cr_expect_eq (bpb_parse (sector, UINT64_MAX, &b), BPB_FAT32,
                  "%s, in a longer partition", row->name);
  }
}

/* A good boot sector with one field changed. */
struct field_row {
  const char *name;
  unsigned offset, width;       /* bytes */
  uint32_t value;
  enum bpb_verdict verdict;
};

static void
put_field (uint8_t *sector, const struct field_row *row)
{
  unsigned i;

  for (i = 0; i < row->width; ++i)
    sector[row->offset + i] = (uint8_t) (row->value >> 8 * i);
}

static const struct field_row field_rows[] = {
  { "no 55", 510, 1, 0, BPB_NO_SIGNATURE },
  { "no AA", 511, 1, 0, BPB_NO_SIGNATURE },
  { "sector size 0", 11, 2, 0, BPB_BAD_SECTOR_SIZE },
  { "sector size 1", 11, 2, 1, BPB_BAD_SECTOR_SIZE },
  { "sector size 256", 11, 2, 256, BPB_BAD_SECTOR_SIZE },
  { "sector size 513", 11, 2, 513, BPB_BAD_SECTOR_SIZE },
  { "sector size 768", 11, 2, 768, BPB_BAD_SECTOR_SIZE },
  { "sector size 8192", 11, 2, 8192, BPB_BAD_SECTOR_SIZE },
  { "sector size 32768", 11, 2, 32768, BPB_BAD_SECTOR_SIZE },
  { "sector size 65535", 11, 2, 65535, BPB_BAD_SECTOR_SIZE },
  { "sector size doubled: too long", 11, 2, 1024, BPB_VOLUME_TOO_SMALL },
  { "0 sectors per cluster", 13, 1, 0, BPB_BAD_CLUSTER_SIZE },
  { "3 sectors per cluster", 13, 1, 3, BPB_BAD_CLUSTER_SIZE },
  { "255 sectors per cluster", 13, 1, 255, BPB_BAD_CLUSTER_SIZE },
  { "2 sectors per cluster", 13, 1, 2, BPB_FAT32 },
  { "128 sectors per cluster", 13, 1, 128, BPB_FAT32 },
  { "0 reserved sectors", 14, 2, 0, BPB_NO_RESERVED },
  { "1 reserved sector", 14, 2, 1, BPB_FAT32 },
  { "65535 reserved sectors", 14, 2, 65535, BPB_FAT32 },
  { "0 FATs", 16, 1, 0, BPB_NO_FATS },
  { "1 FAT: more clusters, too small a FAT", 16, 1, 1, BPB_FAT_TOO_SMALL },
  { "3 FATs", 16, 1, 3, BPB_FAT32 },
  { "129 FATs: 879 sectors left", 16, 1, 129, BPB_FAT32 },
  { "130 FATs: no sector left", 16, 1, 130, BPB_NO_CLUSTERS },
  { "255 FATs", 16, 1, 255, BPB_NO_CLUSTERS },
  { "224 root entries", 17, 2, 224, BPB_ROOT_ENTRIES },
  { "1 root entry", 17, 2, 1, BPB_ROOT_ENTRIES },
  { "TotSec16 smaller than the FATs", 19, 2, 2000, BPB_NO_CLUSTERS },
  { "TotSec16 wins over TotSec32", 19, 2, 65535, BPB_FAT32 },
  { "media 0", 21, 1, 0, BPB_BAD_MEDIA },
  { "media EF", 21, 1, 0xef, BPB_BAD_MEDIA },
  { "media F1", 21, 1, 0xf1, BPB_BAD_MEDIA },
  { "media F7", 21, 1, 0xf7, BPB_BAD_MEDIA },
  { "media F0", 21, 1, 0xf0, BPB_FAT32 },
  { "media FF", 21, 1, 0xff, BPB_FAT32 },
  { "FATSz16 1", 22, 2, 1, BPB_FAT16 },
  { "FATSz16 256", 22, 2, 256, BPB_FAT16 },
  { "geometry of 0 sectors, 0 heads", 24, 4, 0, BPB_FAT32 },
  { "hidden sectors beyond any disk", 28, 4, 0xffffffff, BPB_FAT32 },
  { "TotSec 0", 32, 4, 0, BPB_NO_TOTAL },
  { "TotSec 1", 32, 4, 1, BPB_NO_CLUSTERS },
  { "TotSec ends one sector before the FATs do", 32, 4, 2049,
    BPB_NO_CLUSTERS },
  { "TotSec ends with the FATs", 32, 4, 2050, BPB_NO_CLUSTERS },
  { "TotSec leaves room for cluster 2", 32, 4, 2051, BPB_FAT32 },
  { "TotSec one too many", 32, 4, 131073, BPB_VOLUME_TOO_SMALL },
  { "TotSec FFFFFFFF", 32, 4, 0xffffffff, BPB_TOO_MANY_CLUSTERS },
  { "TotSec for the highest cluster count and one", 32, 4,
    0x0ffffff5 + 1 + 2050, BPB_TOO_MANY_CLUSTERS },
  { "TotSec for the highest cluster count, small FAT", 32, 4,
    0x0ffffff5 + 2050, BPB_FAT_TOO_SMALL },
  { "FATSz32 0", 36, 4, 0, BPB_NO_FAT_SIZE },
  { "FATSz32 one too few", 36, 4, 1008, BPB_FAT_TOO_SMALL },
  { "FATSz32 one more than needed", 36, 4, 1010, BPB_FAT32 },
  { "FATSz32 a hundred more than needed", 36, 4, 1109, BPB_FAT32 },
  { "FATSz32 7FFFFFFF: twice that is -2", 36, 4, 0x7fffffff,
    BPB_NO_CLUSTERS },
  { "FATSz32 80000000: twice that is 0", 36, 4, 0x80000000,
    BPB_NO_CLUSTERS },
  { "FATSz32 FFFFFFFF", 36, 4, 0xffffffff, BPB_NO_CLUSTERS },
  { "mirroring off, FAT 0 active", 40, 2, 0x80, BPB_FAT32 },
  { "mirroring off, FAT 1 active", 40, 2, 0x81, BPB_FAT32 },
  { "mirroring off, FAT 2 of 2 active", 40, 2, 0x82, BPB_BAD_ACTIVE_FAT },
  { "mirroring off, FAT 15 active", 40, 2, 0x8f, BPB_BAD_ACTIVE_FAT },
  { "mirroring on, bits of the active FAT set", 40, 2, 0x0f, BPB_FAT32 },
  { "version 0.1", 42, 2, 1, BPB_BAD_VERSION },
  { "version 1.0", 42, 2, 0x100, BPB_BAD_VERSION },
  { "root cluster 0", 44, 4, 0, BPB_BAD_ROOT_CLUSTER },
  { "root cluster 1", 44, 4, 1, BPB_BAD_ROOT_CLUSTER },
  { "root cluster 3", 44, 4, 3, BPB_FAT32 },
  { "root cluster the last", 44, 4, 129023, BPB_FAT32 },
  { "root cluster one too far", 44, 4, 129024, BPB_BAD_ROOT_CLUSTER },
  { "root cluster with the high nibble set", 44, 4, 0x10000002,
    BPB_BAD_ROOT_CLUSTER },
  { "root cluster FFFFFFFF", 44, 4, 0xffffffff, BPB_BAD_ROOT_CLUSTER },
  { "a type text that says FAT16", 86, 1, '6', BPB_FAT32 },
  { "a jump of another kind", 0, 1, 0xe9, BPB_FAT32 },
};

Test (bpb, one_field_changed)
{
  size_t i;

  for (i = 0; i < sizeof field_rows / sizeof field_rows[0]; ++i) {
    const struct field_row *row = &field_rows[i];
    uint8_t sector[512];
    struct bpb b, untouched;
    enum bpb_verdict verdict;

    build_boot_sector (sector, &fat_64m);
    put_field (sector, row);
    memset (&b, 0x5a, sizeof b);
    memset (&untouched, 0x5a, sizeof untouched);
    verdict = bpb_parse (sector, SIZE_64M, &b);
    cr_expect_eq (verdict, row->verdict, "%s: %s", row->name,
                  bpb_verdict_string (verdict));
    if (verdict == BPB_FAT32)
      check_invariants (&b, SIZE_64M, row->name);
    else
      cr_expect (memcmp (&b, &untouched, sizeof b) == 0,
                 "%s: written to", row->name);
  }
}

struct spec_row {
  const char *name;
  struct fat_spec spec;
  uint64_t size;
  enum bpb_verdict verdict;
};

#define U32 UINT32_MAX

static const struct spec_row spec_rows[] = {
  { "255 FATs of FFFFFFFF sectors of 4096 bytes",
    { 4096, 1, 1, 255, U32, U32, 2, 0, 1, 6 }, UINT64_MAX, BPB_NO_CLUSTERS },
  { "256 x FATSz32 is 2^32: 255 FATs of 01010101 sectors, sum -1",
    { 512, 1, 1, 255, 0x01010101, 0x10000, 2, 0, 1, 6 }, UINT64_MAX,
    BPB_NO_CLUSTERS },
  { "2 FATs of 80000000 sectors, sum 0",
    { 512, 128, 32, 2, 0x80000000, U32, 2, 0, 1, 6 }, UINT64_MAX,
    BPB_NO_CLUSTERS },
  { "4096-byte sectors, the biggest volume: 16 TiB",
    { 4096, 128, 32, 2, 32768, U32, 2, 0, 1, 6 }, UINT64_C (1) << 44,
    BPB_FAT32 },
  { "the same, one byte too many",
    { 4096, 128, 32, 2, 32768, U32, 2, 0, 1, 6 },
    UINT64_C (4096) * U32 - 1, BPB_VOLUME_TOO_SMALL },
  { "the highest cluster count",
    { 512, 8, 32, 2, 2097152, 32 + 2 * 2097152 + 8 * 0x0ffffff5u, 2, 0, 1,
      6 }, UINT64_MAX, BPB_FAT32 },
  { "one cluster more",
    { 512, 8, 32, 2, 2097152, 32 + 2 * 2097152 + 8 * 0x0ffffff6u, 2, 0, 1,
      6 }, UINT64_MAX, BPB_TOO_MANY_CLUSTERS },
  { "one cluster in all",
    { 512, 1, 1, 1, 1, 3, 2, 0, 0, 0 }, 1536, BPB_FAT32 },
  { "not even one cluster: sectors left, but not 8",
    { 512, 8, 1, 1, 1, 9, 2, 0, 0, 0 }, 65536, BPB_NO_CLUSTERS },
  { "255 FATs, mirroring off, FAT 15 active",
    { 512, 1, 32, 255, 1, 287 + 100, 2, 0x8f, 1, 6 }, UINT64_MAX,
    BPB_FAT32 },
  { "FAT with just enough entries",
    { 512, 1, 32, 2, 1, 34 + 126, 2, 0, 1, 6 }, UINT64_MAX, BPB_FAT32 },
  { "FAT with one entry too few",
    { 512, 1, 32, 2, 1, 34 + 127, 2, 0, 1, 6 }, UINT64_MAX,
    BPB_FAT_TOO_SMALL },
  { "65524 clusters: few",
    { 512, 1, 32, 2, 512, 32 + 1024 + 65524, 2, 0, 1, 6 }, UINT64_MAX,
    BPB_FAT32 },
};

Test (bpb, whole_geometries)
{
  size_t i;

  for (i = 0; i < sizeof spec_rows / sizeof spec_rows[0]; ++i) {
    const struct spec_row *row = &spec_rows[i];
    uint8_t sector[512];
    enum bpb_verdict verdict;
    struct bpb b;

    build_boot_sector (sector, &row->spec);
    verdict = bpb_parse (sector, row->size, &b);
    cr_expect_eq (verdict, row->verdict, "%s: %s", row->name,
                  bpb_verdict_string (verdict));
    if (verdict == BPB_FAT32)
      check_invariants (&b, row->size, row->name);
  }
}

Test (bpb, few_clusters_up_to_65524)
{
  struct fat_spec spec = { 512, 1, 32, 2, 512, 0, 2, 0, 1, 6 };
  uint8_t sector[512];
  struct bpb b;

  spec.total_sectors = 32 + 1024 + 65524;
  build_boot_sector (sector, &spec);
  cr_assert_eq (bpb_parse (sector, UINT64_MAX, &b), BPB_FAT32);
  cr_expect (bpb_few_clusters (&b));
  spec.total_sectors++;
  build_boot_sector (sector, &spec);
  cr_assert_eq (bpb_parse (sector, UINT64_MAX, &b), BPB_FAT32);
  cr_expect_not (bpb_few_clusters (&b));
}

Test (bpb, other_file_systems)
{
  static const uint8_t fat16[] = {      /* mkfs.fat -F 16, 64 MiB */
    0xeb, 0x3c, 0x90, 'm', 'k', 'f', 's', '.', 'f', 'a', 't', 0x00, 0x02,
    0x04, 0x04, 0x00, 0x02, 0x00, 0x02, 0x00, 0x00, 0xf8, 0x80, 0x00, 0x20,
    0x00, 0x08, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x02, 0x00
  };
  uint8_t sector[512] = { 0 };
  struct bpb b;

  cr_expect_eq (bpb_parse (sector, SIZE_64M, &b), BPB_NO_SIGNATURE,
                "blank");
  memset (sector, 0xff, sizeof sector);
  cr_expect_eq (bpb_parse (sector, SIZE_64M, &b), BPB_NO_SIGNATURE,
                "all ones");
  memset (sector, 0, sizeof sector);
  put_le16 (sector + 510, 0xaa55);
  cr_expect_eq (bpb_parse (sector, SIZE_64M, &b), BPB_BAD_SECTOR_SIZE,
                "an MBR");
  memcpy (sector, fat16, sizeof fat16);
  cr_expect_eq (bpb_parse (sector, SIZE_64M, &b), BPB_FAT16, "FAT16");
  memcpy (sector, "\xeb\x52\x90NTFS    \0\2\10", 14);
  cr_expect_eq (bpb_parse (sector, SIZE_64M, &b), BPB_NTFS, "NTFS");
  memcpy (sector, "\xeb\x76\x90" "EXFAT   \0\0\0", 14);
  cr_expect_eq (bpb_parse (sector, SIZE_64M, &b), BPB_EXFAT, "exFAT");
}

struct hint_row {
  const char *name;
  uint16_t reserved, fsinfo, backup;
  uint32_t want_fsinfo, want_backup, want_fsinfo_backup;
};

static const struct hint_row hint_rows[] = {
  { "as usual", 32, 1, 6, 1, 6, 7 },
  { "both 0", 32, 0, 0, 0, 0, 0 },
  { "both FFFF", 32, 0xffff, 0xffff, 0, 0, 0 },
  { "no backup", 32, 1, 0, 1, 0, 0 },
  { "no FSInfo", 32, 0, 6, 0, 6, 0 },
  { "FSInfo is the last reserved sector", 32, 31, 6, 31, 6, 0 },
  { "FSInfo in the FAT", 32, 32, 6, 0, 6, 0 },
  { "backup in the FAT", 32, 1, 32, 1, 0, 0 },
  { "backup of FSInfo would be in the FAT", 8, 2, 6, 2, 6, 0 },
  { "backup right behind, FSInfo's backup next to FSInfo",
    4, 1, 1, 1, 1, 2 },
  { "65535 reserved, FFFF means none", 65535, 0xffff, 0xffff, 0, 0, 0 },
  { "65535 reserved, sums stay exact", 65535, 40000, 40000, 40000, 40000,
    0 },
};

Test (bpb, hint_sectors)
{
  size_t i;

  for (i = 0; i < sizeof hint_rows / sizeof hint_rows[0]; ++i) {
    const struct hint_row *row = &hint_rows[i];
    struct fat_spec spec = fat_64m;
    uint8_t sector[512];
    struct bpb b;

    spec.reserved = row->reserved;
    spec.fsinfo = row->fsinfo;
    spec.backup = row->backup;
    build_boot_sector (sector, &spec);
    cr_assert_eq (bpb_parse (sector, SIZE_64M, &b), BPB_FAT32,
                  "%s", row->name);
    cr_expect_eq (b.fsinfo_sector, row->want_fsinfo, "%s", row->name);
    cr_expect_eq (b.backup_sector, row->want_backup, "%s", row->name);
    cr_expect_eq (bpb_fsinfo_backup_sector (&b), row->want_fsinfo_backup,
                  "%s", row->name);
  }
}

struct label_row {
  const char *name;
  uint8_t boot_signature;
  char raw[12];                 /* 11 bytes */
  uint32_t want_id;
  const char *want;
};

static const struct label_row label_rows[] = {
  { "full length", 0x29, "ABCDEFGHIJK", 0x1234abcd, "ABCDEFGHIJK" },
  { "trailing blanks", 0x29, "A B        ", 0x1234abcd, "A B" },
  { "leading blank", 0x29, " A         ", 0x1234abcd, " A" },
  { "all blanks", 0x29, "           ", 0x1234abcd, "" },
  { "zeroes", 0x29, "\0\0\0\0\0\0\0\0\0\0\0", 0x1234abcd, "" },
  { "ends with a zero", 0x29, "AB\0DEFGHIJK", 0x1234abcd, "AB" },
  { "escape sequence", 0x29, "\33[2J\7\177\n    ", 0x1234abcd,
    "?[2J???" },
  { "code page 850", 0x29, "\x99L\xff       ", 0x1234abcd, "?L?" },
  { "format directives stay text", 0x29, "%s%n%s     ", 0x1234abcd,
    "%s%n%s" },
  { "no label, but an id", 0x28, "ABCDEFGHIJK", 0x1234abcd, "" },
  { "neither", 0, "ABCDEFGHIJK", 0, "" },
};

Test (bpb, labels)
{
  size_t i;

  for (i = 0; i < sizeof label_rows / sizeof label_rows[0]; ++i) {
    const struct label_row *row = &label_rows[i];
    uint8_t sector[512];
    struct bpb b;

    build_boot_sector (sector, &fat_64m);
    sector[66] = row->boot_signature;
    memcpy (sector + 71, row->raw, 11);
    cr_assert_eq (bpb_parse (sector, SIZE_64M, &b), BPB_FAT32,
                  "%s", row->name);
    cr_expect_str_eq (b.label, row->want, "%s: '%s'", row->name, b.label);
    cr_expect_eq (b.volume_id, row->want_id, "%s", row->name);
  }
}

Test (bpb, flags)
{
  uint8_t sector[512];
  struct bpb b;

  build_boot_sector (sector, &fat_64m);
  sector[65] = 3;
  cr_assert_eq (bpb_parse (sector, SIZE_64M, &b), BPB_FAT32);
  cr_expect (b.dirty);
  sector[65] = 2;
  cr_assert_eq (bpb_parse (sector, SIZE_64M, &b), BPB_FAT32);
  cr_expect_not (b.dirty, "bit 1 asks for a surface scan only");

  sector[40] = 0x0f;
  cr_assert_eq (bpb_parse (sector, SIZE_64M, &b), BPB_FAT32);
  cr_expect (bpb_mirroring (&b));
  cr_expect_eq (bpb_active_fat (&b), 0);
  sector[40] = 0x81;
  cr_assert_eq (bpb_parse (sector, SIZE_64M, &b), BPB_FAT32);
  cr_expect_not (bpb_mirroring (&b));
  cr_expect_eq (bpb_active_fat (&b), 1);
  sector[40] = 0;
  sector[16] = 3;
  cr_assert_eq (bpb_parse (sector, SIZE_64M, &b), BPB_FAT32);
  cr_expect_not (bpb_mirroring (&b), "three FATs");
}

struct same_row {
  const char *name;
  unsigned offset;
  uint8_t flip;
  bool same;
};

static const struct same_row same_rows[] = {
  { "nothing", 0, 0, true },
  { "dirty bit", 65, 1, true },
  { "label", 71, 1, true },
  { "volume id", 67, 1, true },
  { "OEM name", 3, 1, true },
  { "boot code", 200, 0xff, true },
  { "hidden sectors", 28, 1, true },
  { "media", 21, 1, true },
  { "cluster size", 13, 3, false },
  { "reserved sectors", 14, 1, false },
  { "number of FATs", 16, 3, false },
  { "total sectors", 32, 1, false },
  { "FAT size", 36, 2, false },
  { "ExtFlags", 40, 0x80, false },
  { "root cluster", 44, 1, false },
  { "FSInfo sector", 48, 2, false },
  { "backup sector", 50, 1, false },
};

Test (bpb, same_geometry)
{
  uint8_t sector[512];
  struct bpb a, b;
  size_t i;

  for (i = 0; i < sizeof same_rows / sizeof same_rows[0]; ++i) {
    const struct same_row *row = &same_rows[i];

    build_boot_sector (sector, &fat_64m);
    sector[36] += 8;            /* room for the changes to come */
    sector[row->offset] ^= row->flip;
    cr_assert_eq (bpb_parse (sector, SIZE_64M + 65536, &b), BPB_FAT32,
                  "%s", row->name);
    sector[row->offset] ^= row->flip;
    cr_assert_eq (bpb_parse (sector, SIZE_64M + 65536, &a), BPB_FAT32);
    cr_expect_eq (bpb_same_geometry (&a, &b), row->same, "%s", row->name);
    cr_expect_eq (bpb_same_geometry (&b, &a), row->same, "%s", row->name);
  }
}

Test (bpb, each_byte_mutated)
{
  static const uint8_t values[] = {
    0, 1, 2, 3, 4, 7, 8, 0x0f, 0x10, 0x20, 0x40, 0x55, 0x7f, 0x80, 0x81,
    0xaa, 0xf0, 0xf8, 0xfe, 0xff
  };
  size_t i, j, accepted = 0;
  unsigned offset;
  char what[80];

  for (i = 0; i < NR_MKFS_ROWS; ++i)
    for (offset = 0; offset < 512; ++offset)
      for (j = 0; j < sizeof values; ++j) {
        uint8_t sector[512];
        struct bpb b;

        mkfs_boot_sector (&mkfs_rows[i], sector);
        sector[offset] = values[j];
        if (bpb_parse (sector, mkfs_rows[i].size, &b) != BPB_FAT32)
          continue;
        accepted++;
        snprintf (what, sizeof what, "row %zu, byte %u = %02x", i, offset,
                  values[j]);
        check_invariants (&b, mkfs_rows[i].size, what);
      }
  cr_expect_gt (accepted, NR_MKFS_ROWS * 400 * sizeof values,
                "most bytes are boot code");
}

/* Numbers that like to be off by one, or to overflow. */
static uint32_t
odd_number (uint64_t *state)
{
  uint32_t n;

  *state = *state * UINT64_C (6364136223846793005) + 1442695040888963407;
  n = (uint32_t) (*state >> 32);
  switch (n % 4) {
  case 0: return 1u << (n >> 8) % 32;
  case 1: return (1u << (n >> 8) % 32) - 1;
  case 2: return (n >> 8) % 40;
  default: return n;
  }
}

Test (bpb, hostile_numbers_in_all_fields)
{
  uint64_t state = 1;           /* the seed */
  unsigned i, accepted = 0;

  for (i = 0; i < 1000000; ++i) {
    const struct fat_spec spec = {
      (uint16_t) (512 << odd_number (&state) % 4),
      (uint8_t) (1 << odd_number (&state) % 8),
      (uint16_t) odd_number (&state), (uint8_t) odd_number (&state),
      odd_number (&state), odd_number (&state), odd_number (&state) % 8,
      (uint16_t) (odd_number (&state) % 2 * odd_number (&state)),
      (uint16_t) odd_number (&state), (uint16_t) odd_number (&state)
    };
    const uint64_t size = (uint64_t) odd_number (&state) << 12;
    uint8_t sector[512];
    char what[32];
    struct bpb b;

    build_boot_sector (sector, &spec);
    if (bpb_parse (sector, size, &b) != BPB_FAT32)
      continue;
    accepted++;
    snprintf (what, sizeof what, "round %u", i);
    check_invariants (&b, size, what);
  }
  cr_expect_gt (accepted, 1000, "%u: too few to prove a thing", accepted);
}

Test (bpb, verdicts_have_words_of_their_own)
{
  int i, j;

  for (i = 0; i < BPB_NR_VERDICTS; ++i) {
    cr_expect_str_neq (bpb_verdict_string (i), "unknown", "%d", i);
    for (j = 0; j < i; ++j)
      cr_expect_str_neq (bpb_verdict_string (i), bpb_verdict_string (j));
  }
  cr_expect_str_eq (bpb_verdict_string (BPB_NR_VERDICTS), "unknown");
}
