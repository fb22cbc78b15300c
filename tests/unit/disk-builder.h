/* SPDX-License-Identifier: BSD-3-Clause */

/* Boot sectors and partition tables for tests, good unless told
 * otherwise.
 */

#ifndef FATBATCH_TEST_DISK_BUILDER_H
#define FATBATCH_TEST_DISK_BUILDER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "byteorder.h"
#include "crc32.h"
#include "sparse-disk.h"

static inline void
put_le16 (uint8_t *p, uint16_t n)
{
  p[0] = (uint8_t) n;
  p[1] = (uint8_t) (n >> 8);
}

static inline void
put_le32 (uint8_t *p, uint32_t n)
{
  put_le16 (p, (uint16_t) n);
  put_le16 (p + 2, (uint16_t) (n >> 16));
}

static inline void
put_le64 (uint8_t *p, uint64_t n)
{
  put_le32 (p, (uint32_t) n);
  put_le32 (p + 4, (uint32_t) (n >> 32));
}

/* The fields of a boot sector that say where things are. */
struct fat_spec {
  uint16_t sector_size;
  uint8_t sectors_per_cluster;
  uint16_t reserved;
  uint8_t nr_fats;
  uint32_t fat_sectors;
  uint32_t total_sectors;
  uint32_t root_cluster;
  uint16_t ext_flags, fsinfo, backup;
};

/* 64 MiB, as mkfs.fat -F 32 would make it. */
static const struct fat_spec fat_64m = {
  512, 1, 32, 2, 1009, 131072, 2, 0, 1, 6
};

/* 300 MiB, as mkfs.fat -F 32 -S 4096 would make it. */
static const struct fat_spec fat_300m_4k = {
  4096, 1, 32, 2, 75, 76800, 2, 0, 1, 6
};

static inline void
build_boot_sector (uint8_t sector[512], const struct fat_spec *spec)
{
  memset (sector, 0, 512);
  memcpy (sector, "\xeb\x58\x90" "mkfs.fat", 11);
  put_le16 (sector + 11, spec->sector_size);
  sector[13] = spec->sectors_per_cluster;
  put_le16 (sector + 14, spec->reserved);
  sector[16] = spec->nr_fats;
  sector[21] = 0xf8;
  put_le32 (sector + 32, spec->total_sectors);
  put_le32 (sector + 36, spec->fat_sectors);
  put_le16 (sector + 40, spec->ext_flags);
  put_le32 (sector + 44, spec->root_cluster);
  put_le16 (sector + 48, spec->fsinfo);
  put_le16 (sector + 50, spec->backup);
  sector[64] = 0x80;
  sector[66] = 0x29;
  put_le32 (sector + 67, 0x1234abcd);
  memcpy (sector + 71, "NO NAME    FAT32   ", 19);
  put_le16 (sector + 510, 0xaa55);
}

static inline uint64_t
fat_spec_size (const struct fat_spec *spec)
{
  return (uint64_t) spec->total_sectors * spec->sector_size;
}

/* Put a volume's boot sector on the disk. */
static inline void
put_volume (struct sparse_disk *disk, uint64_t start,
            const struct fat_spec *spec)
{
  uint8_t sector[512];

  build_boot_sector (sector, spec);
  sparse_disk_write (disk, start, sector, sizeof sector);
}

/* Set entry 'i' (0 to 3) of the MBR or EBR in the sector at 'offset'. */
static inline void
put_mbr_entry (struct sparse_disk *disk, uint64_t offset, unsigned i,
               uint8_t type, uint32_t start, uint32_t count)
{
  uint8_t *sector = sparse_disk_sector (disk, offset / 512);
  uint8_t *p = sector + 446 + 16 * i;

  p[4] = type;
  put_le32 (p + 8, start);
  put_le32 (p + 12, count);
  put_le16 (sector + 510, 0xaa55);
}

struct gpt_entry {
  uint64_t first, last;
};

struct gpt_spec {
  uint32_t block_size;
  uint64_t header_block, other_block, entries_block;
  uint32_t nr_entries, entry_size;
  size_t nr;
  const struct gpt_entry *entries;
};

/* Basic data, as the bytes are on disk. */
static const uint8_t gpt_basic_data[16] = {
  0xa2, 0xa0, 0xd0, 0xeb, 0xe5, 0xb9, 0x33, 0x44,
  0x87, 0xc0, 0x68, 0xb6, 0xb7, 0x26, 0x99, 0xc7
};

/* Compute a header's CRC again after a change, over as many bytes as it
 * says it has, or as a sector has.
 */
static inline void
fix_gpt_header (struct sparse_disk *disk, uint64_t offset)
{
  uint8_t *header = sparse_disk_sector (disk, offset / 512);

  uint32_t size = load_le32 (header + 12);

  if (size > 512)
    size = 512;
  put_le32 (header + 16, 0);
  put_le32 (header + 16, crc32_ieee (0, header, size));
}

/* Write one header and its entries. */
static inline void
put_gpt (struct sparse_disk *disk, const struct gpt_spec *spec)
{
  const uint64_t entries = spec->entries_block * spec->block_size;
  const uint64_t offset = spec->header_block * spec->block_size;
  uint8_t entry[4096], header[512] = { 0 };
  uint32_t i, crc = 0;

  for (i = 0; i < spec->nr_entries; ++i) {
    memset (entry, 0, sizeof entry);
    if (i < spec->nr && spec->entries[i].last > 0) {
      memcpy (entry, gpt_basic_data, 16);
      entry[16] = (uint8_t) (i + 1);
      put_le64 (entry + 32, spec->entries[i].first);
      put_le64 (entry + 40, spec->entries[i].last);
      sparse_disk_write (disk, entries + i * spec->entry_size, entry,
                         spec->entry_size);
    }
    crc = crc32_ieee (crc, entry, spec->entry_size);
  }

  memcpy (header, "EFI PART\0\0\1\0", 12);
  put_le32 (header + 12, 92);
  put_le64 (header + 24, spec->header_block);
  put_le64 (header + 32, spec->other_block);
  put_le64 (header + 40, 34);
  put_le64 (header + 48, disk->size / spec->block_size - 34);
  put_le64 (header + 72, spec->entries_block);
  put_le32 (header + 80, spec->nr_entries);
  put_le32 (header + 84, spec->entry_size);
  put_le32 (header + 88, crc);
  sparse_disk_write (disk, offset, header, sizeof header);
  fix_gpt_header (disk, offset);
}

/* Protective MBR, primary and backup GPT, as sgdisk writes them. */
static inline void
put_gpt_disk (struct sparse_disk *disk, uint32_t block_size,
              const struct gpt_entry *entries, size_t nr)
{
  const uint64_t last = disk->size / block_size - 1;
  const uint32_t entries_blocks = 128 * 128 / block_size;
  const struct gpt_spec primary = {
    block_size, 1, last, 2, 128, 128, nr, entries
  };
  const struct gpt_spec backup = {
    block_size, last, 1, last - entries_blocks, 128, 128, nr, entries
  };

  put_mbr_entry (disk, 0, 0, 0xee, 1,
                 last > UINT32_MAX ? UINT32_MAX : (uint32_t) last);
  put_gpt (disk, &primary);
  put_gpt (disk, &backup);
}

#endif /* FATBATCH_TEST_DISK_BUILDER_H */
