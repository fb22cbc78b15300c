/* SPDX-License-Identifier: BSD-3-Clause */

/* core/partition: partition tables, good and hostile. */

#include <config.h>

#include <criterion/criterion.h>

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "crc32.h"
#include "disk-builder.h"
#include "partition.h"
#include "sparse-disk.h"

TestSuite (partition, .timeout = 60);

#define MIB (UINT64_C (1) << 20)

/* What a list should be, in the table's blocks. */
struct want {
  unsigned number;
  uint64_t first, last;         /* blocks */
};

static void
expect_list (struct sparse_disk *disk, enum partition_table table,
             uint32_t block_size, size_t nr, const struct want *want)
{
  struct partition_list list;
  size_t i;

  cr_assert_eq (partition_scan (sparse_disk_read, disk, disk->size, &list),
                0);
  cr_expect_eq (list.table, table, "a table of kind %s",
                partition_table_string (list.table));
  cr_expect_not (disk->read_beyond_end);
  cr_expect_leq (disk->nr_reads, PARTITION_MAX_READS);
  cr_expect_leq (disk->max_count, 4096);
  cr_assert_eq (list.nr, nr, "%zu partitions", list.nr);
  if (table != PARTITION_NONE)
    cr_expect_eq (list.block_size, block_size);
  for (i = 0; i < nr; ++i) {
    cr_expect_eq (list.parts[i].number, want[i].number, "number %u",
                  list.parts[i].number);
    cr_expect_eq (list.parts[i].start, want[i].first * block_size,
                  "number %u starts at %" PRIu64, list.parts[i].number,
                  list.parts[i].start);
    cr_expect_eq (list.parts[i].end, (want[i].last + 1) * block_size,
                  "number %u ends at %" PRIu64, list.parts[i].number,
                  list.parts[i].end);
  }
}

Test (partition, crc32_check_value)
{
  cr_expect_eq (crc32_ieee (0, "123456789", 9), 0xcbf43926);
  cr_expect_eq (crc32_ieee (crc32_ieee (0, "1234", 4), "56789", 5),
                0xcbf43926);
  cr_expect_eq (crc32_ieee (0, "", 0), 0);
}

/*
 * No table
 */

Test (partition, any_size_of_blank_image)
{
  static const uint64_t sizes[] = {
    0, 1, 511, 512, 513, 1023, 1024, 1535, 4096, 4608, 8192, 17408,
    64 * MIB, UINT64_MAX
  };
  size_t i;

  for (i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    struct sparse_disk disk;

    sparse_disk_init (&disk, sizes[i]);
    expect_list (&disk, PARTITION_NONE, 0, 0, NULL);
    cr_expect_leq (disk.nr_reads, 1, "%" PRIu64 " bytes", sizes[i]);
  }
}

Test (partition, any_size_of_protective_mbr)
{
  uint64_t size;

  for (size = 512; size < 20000; size += 509) {
    struct sparse_disk disk;

    sparse_disk_init (&disk, size);
    put_mbr_entry (&disk, 0, 0, 0xee, 1, 0xffffffff);
    expect_list (&disk, PARTITION_MBR, 512, 0, NULL);
    sparse_disk_release (&disk);
  }
}

Test (partition, no_signature)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, 64 * MIB);
  put_mbr_entry (&disk, 0, 0, 0x0c, 2048, 4096);
  sparse_disk_sector (&disk, 0)[510] = 0;
  expect_list (&disk, PARTITION_NONE, 0, 0, NULL);
  sparse_disk_release (&disk);
}

Test (partition, boot_code_where_the_table_would_be)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, 64 * MIB);
  put_mbr_entry (&disk, 0, 0, 0x0c, 2048, 4096);
  put_mbr_entry (&disk, 0, 3, 0x0c, 8192, 4096);
  sparse_disk_sector (&disk, 0)[446 + 3 * 16] = 0x81;
  expect_list (&disk, PARTITION_NONE, 0, 0, NULL);
  sparse_disk_sector (&disk, 0)[446 + 3 * 16] = 0x80;
  expect_list (&disk, PARTITION_MBR, 512, 2, (struct want[]) {
      { 1, 2048, 6143 }, { 4, 8192, 12287 } });
  sparse_disk_release (&disk);
}

/*
 * MBR
 */

Test (partition, mbr_types_are_hints)
{
  struct sparse_disk disk;
  struct partition_list list;

  sparse_disk_init (&disk, 64 * MIB);
  put_mbr_entry (&disk, 0, 0, 0x83, 2048, 2048);
  put_mbr_entry (&disk, 0, 1, 0x06, 4096, 2048);
  put_mbr_entry (&disk, 0, 2, 0x00, 6144, 2048);
  put_mbr_entry (&disk, 0, 3, 0xef, 8192, 1);
  expect_list (&disk, PARTITION_MBR, 512, 4, (struct want[]) {
      { 1, 2048, 4095 }, { 2, 4096, 6143 }, { 3, 6144, 8191 },
      { 4, 8192, 8192 } });
  partition_scan (sparse_disk_read, &disk, disk.size, &list);
  cr_expect_eq (list.parts[0].mbr_type, 0x83);
  cr_expect_eq (list.parts[3].mbr_type, 0xef);
  cr_expect_eq (list.parts[3].type_guid[0], 0);
  sparse_disk_release (&disk);
}

Test (partition, mbr_entries_beyond_the_device)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, 64 * MIB);   /* 131072 blocks */
  put_mbr_entry (&disk, 0, 0, 0x0c, 131072, 1);
  put_mbr_entry (&disk, 0, 1, 0x0c, 131071, 2);
  put_mbr_entry (&disk, 0, 2, 0x0c, 2048, 0xffffffff);
  put_mbr_entry (&disk, 0, 3, 0x0c, 0xffffffff, 0xffffffff);
  expect_list (&disk, PARTITION_MBR, 512, 2, (struct want[]) {
      { 2, 131071, 131072 }, { 3, 2048, UINT64_C (2048) + 0xfffffffe } });
  sparse_disk_release (&disk);
}

Test (partition, mbr_is_64_bit)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, UINT64_C (1) << 42);
  put_mbr_entry (&disk, 0, 0, 0x0c, 0xffffffff, 0xffffffff);
  expect_list (&disk, PARTITION_MBR, 512, 1, (struct want[]) {
      { 1, 0xffffffff, UINT64_C (0x1fffffffd) } });
  sparse_disk_release (&disk);
}

Test (partition, mbr_in_units_of_4096)
{
  struct partition_list list;
  struct sparse_disk disk;

  sparse_disk_init (&disk, UINT64_C (1) << 45);
  put_mbr_entry (&disk, 0, 0, 0x0c, 256, 1024);
  put_mbr_entry (&disk, 0, 1, 0x0f, 0xfffffff0, 15);
  put_mbr_entry (&disk, UINT64_C (0xfffffff0) * 4096, 0, 0x0c, 8, 7);
  cr_assert_eq (partition_scan_mbr (sparse_disk_read, &disk, disk.size,
                                    4096, &list), 0);
  cr_assert_eq (list.nr, 2);
  cr_expect_eq (list.block_size, 4096);
  cr_expect_eq (list.parts[0].start, MIB);
  cr_expect_eq (list.parts[0].end, 5 * MIB);
  cr_expect_eq (list.parts[1].number, 5);
  cr_expect_eq (list.parts[1].start, UINT64_C (0xfffffff8) * 4096);
  sparse_disk_release (&disk);
}

/* Three logical partitions in the blocks from 10000, as sfdisk lays them
 * out.
 */
static void
put_extended (struct sparse_disk *disk, uint8_t type)
{
  put_mbr_entry (disk, 0, 0, 0x0c, 2048, 4096);
  put_mbr_entry (disk, 0, 1, type, 10000, 30000);
  put_mbr_entry (disk, 10000 * 512, 0, 0x0c, 2048, 4000);
  put_mbr_entry (disk, 10000 * 512, 1, 0x05, 10000, 8000);
  put_mbr_entry (disk, 20000 * 512, 0, 0x83, 2048, 4000);
  put_mbr_entry (disk, 20000 * 512, 1, 0x05, 20000, 8000);
  put_mbr_entry (disk, 30000 * 512, 0, 0x0b, 2048, 4000);
}

Test (partition, logical_partitions)
{
  static const uint8_t types[] = { 0x05, 0x0f, 0x85 };
  size_t i;

  for (i = 0; i < sizeof types; ++i) {
    struct sparse_disk disk;

    sparse_disk_init (&disk, 64 * MIB);
    put_extended (&disk, types[i]);
    expect_list (&disk, PARTITION_MBR, 512, 4, (struct want[]) {
        { 1, 2048, 6143 }, { 5, 12048, 16047 }, { 6, 22048, 26047 },
        { 7, 32048, 36047 } });
    cr_expect_eq (disk.nr_reads, 4);
    sparse_disk_release (&disk);
  }
}

Test (partition, logical_partition_with_a_garbage_third_entry)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, 64 * MIB);
  put_extended (&disk, 5);
  put_mbr_entry (&disk, 20000 * 512, 2, 0x0c, 0, 60000);
  put_mbr_entry (&disk, 20000 * 512, 3, 0x0c, 7000, 1000);
  put_mbr_entry (&disk, 30000 * 512, 3, 0x0c, 0xffffffff, 0xffffffff);
  expect_list (&disk, PARTITION_MBR, 512, 5, (struct want[]) {
      { 1, 2048, 6143 }, { 5, 12048, 16047 }, { 6, 22048, 26047 },
      { 7, 27000, 27999 }, { 8, 32048, 36047 } });
  sparse_disk_release (&disk);
}

Test (partition, ebr_without_signature_ends_the_chain)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, 64 * MIB);
  put_extended (&disk, 5);
  sparse_disk_sector (&disk, 20000)[511] = 0;
  expect_list (&disk, PARTITION_MBR, 512, 2, (struct want[]) {
      { 1, 2048, 6143 }, { 5, 12048, 16047 } });
  sparse_disk_release (&disk);
}

Test (partition, ebr_links_to_itself)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, 64 * MIB);
  put_mbr_entry (&disk, 0, 0, 0x05, 10000, 30000);
  put_mbr_entry (&disk, 10000 * 512, 0, 0x0c, 1, 1);
  put_mbr_entry (&disk, 10000 * 512, 1, 0x05, 0, 30000);
  expect_list (&disk, PARTITION_MBR, 512, 1, (struct want[]) {
      { 5, 10001, 10001 } });
  sparse_disk_release (&disk);
}

Test (partition, ebr_links_back)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, 64 * MIB);
  put_extended (&disk, 5);
  put_mbr_entry (&disk, 30000 * 512, 1, 0x05, 10000, 8000);
  expect_list (&disk, PARTITION_MBR, 512, 4, (struct want[]) {
      { 1, 2048, 6143 }, { 5, 12048, 16047 }, { 6, 22048, 26047 },
      { 7, 32048, 36047 } });
  cr_expect_eq (disk.nr_reads, 4);
  sparse_disk_release (&disk);
}

Test (partition, two_extended_partitions_that_are_the_mbr)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, 64 * MIB);
  put_mbr_entry (&disk, 0, 0, 0x05, 0, 131072);
  put_mbr_entry (&disk, 0, 1, 0x0f, 0, 131072);
  put_mbr_entry (&disk, 0, 2, 0x0c, 64, 64);
  expect_list (&disk, PARTITION_MBR, 512, 2, (struct want[]) {
      { 5, 64, 127 }, { 3, 64, 127 } });
  sparse_disk_release (&disk);
}

Test (partition, ebr_beyond_the_device)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, 64 * MIB);
  put_mbr_entry (&disk, 0, 0, 0x05, 10000, 0xffffffff);
  put_mbr_entry (&disk, 10000 * 512, 1, 0x05, 0xffffffff, 8000);
  expect_list (&disk, PARTITION_MBR, 512, 0, NULL);
  sparse_disk_release (&disk);
}

Test (partition, endless_chain_of_empty_ebrs)
{
  struct sparse_disk disk;
  uint32_t i;

  sparse_disk_init (&disk, 64 * MIB);
  put_mbr_entry (&disk, 0, 0, 0x05, 1000, 100000);
  for (i = 0; i < 1000; ++i)
    put_mbr_entry (&disk, (1000 + i) * 512, 0, 0x05, i + 1, 1);
  expect_list (&disk, PARTITION_MBR, 512, 0, NULL);
  cr_expect_leq (disk.nr_reads, 130);
  sparse_disk_release (&disk);
}

Test (partition, more_logical_partitions_than_fit)
{
  struct sparse_disk disk;
  struct partition_list list;
  uint32_t i, j;

  sparse_disk_init (&disk, 64 * MIB);
  put_mbr_entry (&disk, 0, 0, 0x05, 1000, 100000);
  for (i = 0; i < 1000; ++i) {
    for (j = 0; j < 3; ++j)
      put_mbr_entry (&disk, (1000 + i) * 512, j, 0x0c, 0, 1);
    put_mbr_entry (&disk, (1000 + i) * 512, 3, 0x05, i + 1, 1);
  }
  cr_assert_eq (partition_scan (sparse_disk_read, &disk, disk.size, &list),
                0);
  cr_expect_eq (list.nr, PARTITION_MAX);
  cr_expect_leq (disk.nr_reads, 130);
  sparse_disk_release (&disk);
}

Test (partition, unreadable_ebr)
{
  struct sparse_disk disk;

  sparse_disk_init (&disk, 64 * MIB);
  put_extended (&disk, 5);
  disk.error = -EIO;
  disk.error_start = 20000 * 512;
  disk.error_end = disk.error_start + 1;
  expect_list (&disk, PARTITION_MBR, 512, 2, (struct want[]) {
      { 1, 2048, 6143 }, { 5, 12048, 16047 } });
  sparse_disk_release (&disk);
}

/*
 * GPT
 */

static const struct gpt_entry two_entries[] = {
  { 2048, 4095 }, { 4096, 10000 }
};
static const struct want two_wanted[] = {
  { 1, 2048, 4095 }, { 2, 4096, 10000 }
};

static void
init_gpt_disk (struct sparse_disk *disk, uint32_t block_size)
{
  sparse_disk_init (disk, 20000 * (uint64_t) block_size);
  put_gpt_disk (disk, block_size, two_entries, 2);
}

Test (partition, gpt_of_both_block_sizes)
{
  struct partition_list list;
  uint32_t block_size;

  for (block_size = 512; block_size <= 4096; block_size *= 8) {
    struct sparse_disk disk;

    init_gpt_disk (&disk, block_size);
    expect_list (&disk, PARTITION_GPT, block_size, 2, two_wanted);
    partition_scan (sparse_disk_read, &disk, disk.size, &list);
    cr_expect_eq (memcmp (list.parts[1].type_guid, gpt_basic_data, 16), 0);
    cr_expect_eq (list.parts[1].mbr_type, 0);
    sparse_disk_release (&disk);
  }
}

Test (partition, gpt_numbers_are_places_in_the_table)
{
  static const struct gpt_entry entries[128] = {
    [1] = { 2048, 4095 }, [20] = { 5000, 5000 }, [127] = { 6000, 6001 }
  };
  struct sparse_disk disk;

  sparse_disk_init (&disk, 64 * MIB);
  put_gpt_disk (&disk, 512, entries, 128);
  expect_list (&disk, PARTITION_GPT, 512, 3, (struct want[]) {
      { 2, 2048, 4095 }, { 21, 5000, 5000 }, { 128, 6000, 6001 } });
  sparse_disk_release (&disk);
}

Test (partition, gpt_is_read_only_behind_a_protective_mbr)
{
  struct sparse_disk disk;

  init_gpt_disk (&disk, 512);
  memset (sparse_disk_sector (&disk, 0), 0, 512);
  expect_list (&disk, PARTITION_NONE, 0, 0, NULL);
  cr_expect_eq (disk.nr_reads, 1);
  put_mbr_entry (&disk, 0, 0, 0x0c, 2048, 100);
  expect_list (&disk, PARTITION_MBR, 512, 1, (struct want[]) {
      { 1, 2048, 2147 } });
  cr_expect_eq (disk.nr_reads, 2);
  sparse_disk_release (&disk);
}

Test (partition, valid_gpt_is_read_without_its_backup)
{
  struct sparse_disk disk;
  size_t i;

  init_gpt_disk (&disk, 512);
  expect_list (&disk, PARTITION_GPT, 512, 2, two_wanted);
  for (i = 0; i < disk.nr_reads; ++i)
    cr_expect_leq (disk.reads[i].end, 34 * 512);
  sparse_disk_release (&disk);
}

Test (partition, hybrid_mbr_gpt_wins)
{
  struct sparse_disk disk;

  init_gpt_disk (&disk, 512);
  put_mbr_entry (&disk, 0, 0, 0x0c, 2048, 7);
  put_mbr_entry (&disk, 0, 2, 0xee, 1, 2047);
  expect_list (&disk, PARTITION_GPT, 512, 2, two_wanted);

  /* Both headers gone: the MBR's own entries are all that is left. */
  sparse_disk_sector (&disk, 1)[0] = 0;
  sparse_disk_sector (&disk, 19999)[0] = 0;
  expect_list (&disk, PARTITION_MBR, 512, 1, (struct want[]) {
      { 1, 2048, 2054 } });
  sparse_disk_release (&disk);
}

Test (partition, gpt_each_header_byte_damaged)
{
  uint32_t block_size, offset;

  for (block_size = 512; block_size <= 4096; block_size *= 8) {
    struct sparse_disk disk;

    init_gpt_disk (&disk, block_size);
    for (offset = 0; offset < 92; ++offset) {
      uint8_t *header = sparse_disk_sector (&disk, block_size / 512);

      header[offset] ^= 0x40;
      disk.nr_reads = 0;
      expect_list (&disk, PARTITION_GPT, block_size, 2, two_wanted);
      cr_expect (disk.nr_reads > 2, "byte %u: the backup was used", offset);
      sparse_disk_sector (&disk, 19999 * block_size / 512)[offset] ^= 0x40;
      expect_list (&disk, PARTITION_MBR, 512, 0, NULL);
      sparse_disk_sector (&disk, 19999 * block_size / 512)[offset] ^= 0x40;
      header = sparse_disk_sector (&disk, block_size / 512);
      header[offset] ^= 0x40;
    }
    sparse_disk_release (&disk);
  }
}

Test (partition, gpt_entries_damaged)
{
  struct sparse_disk disk;

  init_gpt_disk (&disk, 512);
  sparse_disk_sector (&disk, 2)[40]++;
  expect_list (&disk, PARTITION_GPT, 512, 2, two_wanted);
  sparse_disk_sector (&disk, 19999 - 32)[300] = 1;
  expect_list (&disk, PARTITION_MBR, 512, 0, NULL);
  sparse_disk_release (&disk);
}

Test (partition, gpt_unreadable_in_places)
{
  static const struct layout_range errors[] = {
    { 512, 513 }, { 1024, 1025 }, { 17407, 17408 }
  };
  size_t i;

  for (i = 0; i < sizeof errors / sizeof errors[0]; ++i) {
    struct sparse_disk disk;

    init_gpt_disk (&disk, 512);
    disk.error = -EIO;
    disk.error_start = errors[i].start;
    disk.error_end = errors[i].end;
    expect_list (&disk, PARTITION_GPT, 512, 2, two_wanted);
    sparse_disk_release (&disk);
  }
}

Test (partition, gpt_cut_image_has_no_backup)
{
  struct sparse_disk disk;

  init_gpt_disk (&disk, 512);
  disk.size -= 5000 * 512 + 100;
  expect_list (&disk, PARTITION_GPT, 512, 2, two_wanted);
  sparse_disk_sector (&disk, 1)[0] = 0;
  expect_list (&disk, PARTITION_MBR, 512, 0, NULL);
  sparse_disk_release (&disk);
}

Test (partition, gpt_hostile_entries)
{
  static const struct gpt_entry entries[] = {
    { 4096, 4095 },                     /* one block less than empty */
    { 0, UINT64_MAX },
    { UINT64_MAX, UINT64_MAX },
    { UINT64_MAX / 512, UINT64_MAX / 512 + 1 },
    { UINT64_C (1) << 55, (UINT64_C (1) << 55) + 2048 }, /* byte 2^64 */
    { 20000, 30000 },                   /* starts at the end */
    { 19999, 30000 },
    { 3000, UINT64_C (1) << 60 },
    { 100, 100 },
  };
  struct partition_list list;
  struct sparse_disk disk;

  sparse_disk_init (&disk, 20000 * 512);
  put_gpt_disk (&disk, 512, entries, sizeof entries / sizeof entries[0]);
  cr_assert_eq (partition_scan (sparse_disk_read, &disk, disk.size, &list),
                0);
  cr_assert_eq (list.nr, 4);
  cr_expect_eq (list.parts[0].number, 2);
  cr_expect_eq (list.parts[0].start, 0);
  cr_expect_eq (list.parts[0].end, UINT64_MAX);
  cr_expect_eq (list.parts[1].number, 7);
  cr_expect_eq (list.parts[1].end, 30001 * 512);
  cr_expect_eq (list.parts[2].number, 8);
  cr_expect_eq (list.parts[2].end, UINT64_MAX);
  cr_expect_eq (list.parts[3].number, 9);
  sparse_disk_release (&disk);
}

/* A header with a correct CRC and one field that is not to be trusted. */
struct header_row {
  const char *name;
  unsigned offset, width;
  uint64_t value;
};

static const struct header_row header_rows[] = {
  { "header size 0", 12, 4, 0 },
  { "header size 91", 12, 4, 91 },
  { "header size 513", 12, 4, 513 },
  { "header size FFFFFFFF", 12, 4, 0xffffffff },
  { "a header that belongs elsewhere", 24, 8, 2 },
  { "usable blocks end before they start", 40, 8, UINT64_MAX },
  { "entries at block 2^64 - 1", 72, 8, UINT64_MAX },
  { "entries at byte 2^64", 72, 8, UINT64_C (1) << 55 },
  { "entries at byte 2^64 - 512", 72, 8, (UINT64_C (1) << 55) - 1 },
  { "entries reach past the device", 72, 8, 20000 - 31 },
  { "no entries", 80, 4, 0 },
  { "one entry too many for the CRC", 80, 4, 129 },
  { "8193 entries", 80, 4, 8193 },
  { "2^31 entries", 80, 4, 0x80000000 },
  { "2^25 entries: 2^32 bytes", 80, 4, 1 << 25 },
  { "FFFFFFFF entries", 80, 4, 0xffffffff },
  { "entry size 0", 84, 4, 0 },
  { "entry size 1", 84, 4, 1 },
  { "entry size 64", 84, 4, 64 },
  { "entry size 127", 84, 4, 127 },
  { "entry size 136", 84, 4, 136 },
  { "entry size 384", 84, 4, 384 },
  { "entry size 8192", 84, 4, 8192 },
  { "entry size FFFFFFFF", 84, 4, 0xffffffff },
};

Test (partition, gpt_hostile_headers)
{
  size_t i;

  for (i = 0; i < sizeof header_rows / sizeof header_rows[0]; ++i) {
    const struct header_row *row = &header_rows[i];
    struct partition_list list;
    struct sparse_disk disk;
    uint8_t *header;

    init_gpt_disk (&disk, 512);
    sparse_disk_sector (&disk, 19999)[0] = 0;   /* no backup */
    header = sparse_disk_sector (&disk, 1);
    if (row->width == 8)
      put_le64 (header + row->offset, row->value);
    else
      put_le32 (header + row->offset, (uint32_t) row->value);
    fix_gpt_header (&disk, 512);
    cr_assert_eq (partition_scan (sparse_disk_read, &disk, disk.size,
                                  &list), 0);
    cr_expect_eq (list.table, PARTITION_MBR, "%s", row->name);
    cr_expect_not (disk.read_beyond_end, "%s", row->name);
    cr_expect_leq (disk.nr_reads, 300, "%s", row->name);
    sparse_disk_release (&disk);
  }
}

struct entries_row {
  const char *name;
  uint32_t nr_entries, entry_size, block;
};

static const struct entries_row entries_rows[] = {
  { "8 entries", 8, 128, 2 },
  { "4 entries of 256 bytes", 4, 256, 2 },
  { "40 entries of 512 bytes", 40, 512, 2 },
  { "3 entries of 4096 bytes", 3, 4096, 2 },
  { "1 MiB of entries", 8192, 128, 15000 },
  { "in the last blocks", 128, 128, 20000 - 32 },
  { "not in whole chunks", 33, 128, 40 },
};

/* The same, not to be taken. */
static const struct entries_row bad_entries_rows[] = {
  { "no entries, CRC of nothing", 0, 128, 2 },
  { "entries of 64 bytes", 128, 64, 2 },
  { "entries of 136 bytes", 128, 136, 2 },
  { "entries of 384 bytes, over the chunks' ends", 128, 384, 2 },
  { "entries of 3072 bytes", 3, 3072, 2 },
  { "1 MiB and one entry", 8193, 128, 15000 },
};

static void
put_entries_row (struct sparse_disk *disk, const struct entries_row *row)
{
  const struct gpt_spec spec = {
    512, 1, 19999, row->block, row->nr_entries, row->entry_size, 2,
    two_entries
  };

  sparse_disk_init (disk, 20000 * 512);
  put_mbr_entry (disk, 0, 0, 0xee, 1, 19999);
  put_gpt (disk, &spec);
}

Test (partition, gpt_unusual_entry_arrays)
{
  size_t i;

  for (i = 0; i < sizeof entries_rows / sizeof entries_rows[0]; ++i) {
    struct sparse_disk disk;

    put_entries_row (&disk, &entries_rows[i]);
    expect_list (&disk, PARTITION_GPT, 512, 2, two_wanted);
    sparse_disk_release (&disk);
  }
}

Test (partition, gpt_hostile_entry_arrays)
{
  size_t i;

  for (i = 0; i < sizeof bad_entries_rows / sizeof bad_entries_rows[0];
       ++i) {
    struct partition_list list;
    struct sparse_disk disk;

    put_entries_row (&disk, &bad_entries_rows[i]);
    cr_assert_eq (partition_scan (sparse_disk_read, &disk, disk.size,
                                  &list), 0);
    cr_expect_eq (list.table, PARTITION_MBR, "%s",
                  bad_entries_rows[i].name);
    sparse_disk_release (&disk);
  }
}

Test (partition, gpt_entries_of_2_to_the_32_bytes)
{
  struct sparse_disk disk;
  uint8_t *header;

  sparse_disk_init (&disk, UINT64_C (1) << 34);
  put_gpt_disk (&disk, 512, NULL, 0);
  sparse_disk_sector (&disk, disk.size / 512 - 1)[0] = 0;
  header = sparse_disk_sector (&disk, 1);
  put_le32 (header + 80, 1 << 25);
  put_le32 (header + 88, 0);    /* the CRC of 2^32 mod 2^32 bytes */
  fix_gpt_header (&disk, 512);
  expect_list (&disk, PARTITION_MBR, 512, 0, NULL);
  cr_expect_leq (disk.nr_reads, 10);
  sparse_disk_release (&disk);
}

Test (partition, gpt_header_that_fills_its_sector)
{
  struct sparse_disk disk;

  init_gpt_disk (&disk, 512);
  sparse_disk_sector (&disk, 19999)[0] = 0;
  put_le32 (sparse_disk_sector (&disk, 1) + 12, 512);
  sparse_disk_sector (&disk, 1)[511] = 7;
  fix_gpt_header (&disk, 512);
  expect_list (&disk, PARTITION_GPT, 512, 2, two_wanted);
  sparse_disk_release (&disk);
}

Test (partition, gpt_with_more_partitions_than_fit)
{
  static struct gpt_entry entries[300];
  const struct gpt_spec spec = {
    512, 1, 19999, 2, 300, 128, 300, entries
  };
  struct partition_list list;
  struct sparse_disk disk;
  size_t i;

  for (i = 0; i < 300; ++i)
    entries[i] = (struct gpt_entry) { 1000 + i, 1000 + i };
  sparse_disk_init (&disk, 20000 * 512);
  put_mbr_entry (&disk, 0, 0, 0xee, 1, 19999);
  put_gpt (&disk, &spec);
  cr_assert_eq (partition_scan (sparse_disk_read, &disk, disk.size, &list),
                0);
  cr_expect_eq (list.table, PARTITION_GPT);
  cr_expect_eq (list.nr, PARTITION_MAX);
  cr_expect_eq (list.parts[127].number, 128);
  sparse_disk_release (&disk);
}

/*
 * Errors and noise
 */

Test (partition, out_of_memory_is_an_error)
{
  static const uint64_t places[] = { 0, 512, 1024, 17407 };
  struct partition_list list, untouched;
  size_t i;

  for (i = 0; i < sizeof places / sizeof places[0]; ++i) {
    struct sparse_disk disk;

    init_gpt_disk (&disk, 512);
    disk.error = -ENOMEM;
    disk.error_start = places[i];
    disk.error_end = places[i] + 1;
    memset (&list, 0x5a, sizeof list);
    memset (&untouched, 0x5a, sizeof untouched);
    cr_expect_eq (partition_scan (sparse_disk_read, &disk, disk.size,
                                  &list), -ENOMEM, "at %" PRIu64, places[i]);
    cr_expect_eq (memcmp (&list, &untouched, sizeof list), 0);
    sparse_disk_release (&disk);
  }
}

Test (partition, unreadable_sector_0)
{
  struct sparse_disk disk;

  init_gpt_disk (&disk, 512);
  disk.error = -EIO;
  disk.error_start = 0;
  disk.error_end = 1;
  expect_list (&disk, PARTITION_NONE, 0, 0, NULL);
  sparse_disk_release (&disk);
}

Test (partition, random_tables)
{
  struct partition_list list;
  unsigned round, i;

  srandom (1);
  for (round = 0; round < 20000; ++round) {
    struct sparse_disk disk;

    sparse_disk_init (&disk, (uint64_t) random () % (4 * MIB));
    for (i = 0; i < 12; ++i)
      put_mbr_entry (&disk, i < 4 ? 0 : (uint64_t) (random () % 8) * 512,
                     random () % 4,
                     (const uint8_t[]) { 5, 15, 0x85, 12, 0xee }
                     [random () % 5],
                     (uint32_t) (random () % 3 ? random () % 8 :
                                 random () * 2),
                     (uint32_t) (random () % 3 ? random () % 8192 :
                                 random () * 2));
    cr_assert_eq (partition_scan (sparse_disk_read, &disk, disk.size,
                                  &list), 0);
    cr_assert_not (disk.read_beyond_end, "round %u", round);
    cr_assert_leq (disk.nr_reads, 140, "round %u", round);
    cr_assert_leq (list.nr, PARTITION_MAX, "round %u", round);
    for (i = 0; i < list.nr; ++i) {
      cr_assert_lt (list.parts[i].start, list.parts[i].end,
                    "round %u", round);
      cr_assert_lt (list.parts[i].start, disk.size, "round %u", round);
    }
    sparse_disk_release (&disk);
  }
}
