/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "byteorder.h"
#include "crc32.h"
#include "partition.h"

#define SECTOR 512

#define MBR_TABLE 446
#define MBR_ENTRY_SIZE 16
#define MBR_SIGNATURE 510

/* EBRs looked at on one disk.  Linux gives up after 100 links without a
 * partition, and after 256 partitions.
 */
#define EBR_MAX 128

/* UEFI specification 2.10, section 5.3.2, and bounds to what we read:
 * headers are 92 bytes in practice, entries 128, and 128 of them usual.
 */
#define GPT_HEADER_MIN 92
#define GPT_ENTRY_MIN 128
#define GPT_ENTRY_MAX 4096
#define GPT_ENTRIES_MAX_SIZE (1024 * 1024)
#define GPT_CHUNK 4096

struct device {
  partition_read_fn read;
  void *opaque;
  uint64_t size;
};

/* Returns 1 if read, 0 if there is nothing, -ENOMEM. */
static int
read_device (const struct device *dev, void *buf, size_t count,
             uint64_t offset)
{
  int r;

  if (offset > dev->size || count > dev->size - offset)
    return 0;
  r = dev->read (dev->opaque, buf, count, offset);
  if (r == -ENOMEM)
    return r;
  return r == 0;
}

static uint64_t
saturating_multiply (uint64_t a, uint32_t b)
{
  return a > UINT64_MAX / b ? UINT64_MAX : a * b;
}

/* List the blocks [first, last], unless they start beyond the device or
 * the list is full.
 */
static struct partition *
add_partition (const struct device *dev, struct partition_list *list,
               unsigned number, uint64_t first, uint64_t last)
{
  struct partition *part = &list->parts[list->nr];
  const uint64_t start = saturating_multiply (first, list->block_size);

  if (list->nr == PARTITION_MAX || last < first || start >= dev->size)
    return NULL;
  list->nr++;
  memset (part, 0, sizeof *part);
  part->number = number;
  part->start = start;
  part->end = last == UINT64_MAX ? UINT64_MAX :
    saturating_multiply (last + 1, list->block_size);
  return part;
}

/*
 * MBR
 */

struct mbr_entry {
  uint8_t boot_indicator;
  uint8_t type;
  uint32_t start, count;        /* blocks */
};

static struct mbr_entry
mbr_entry (const uint8_t *sector, unsigned i)
{
  const uint8_t *p = sector + MBR_TABLE + i * MBR_ENTRY_SIZE;

  return (struct mbr_entry) {
    .boot_indicator = p[0], .type = p[4],
    .start = load_le32 (p + 8), .count = load_le32 (p + 12),
  };
}

static bool
has_mbr_signature (const uint8_t *sector)
{
  return load_le16 (sector + MBR_SIGNATURE) == 0xaa55;
}

static bool
is_extended (const struct mbr_entry *entry)
{
  return entry->type == 0x05 || entry->type == 0x0f || entry->type == 0x85;
}

/* A boot sector of some file system may have the signature too, with
 * code in the table's place: Linux goes by the boot indicators.
 */
static bool
is_mbr (const uint8_t *sector)
{
  bool any = false;
  unsigned i;

  if (!has_mbr_signature (sector))
    return false;
  for (i = 0; i < 4; ++i) {
    const struct mbr_entry entry = mbr_entry (sector, i);

    if (entry.boot_indicator != 0 && entry.boot_indicator != 0x80)
      return false;
    if (entry.count > 0)
      any = true;
  }
  return any;
}

static void
add_mbr_partition (const struct device *dev, struct partition_list *list,
                   unsigned number, uint64_t start,
                   const struct mbr_entry *entry)
{
  struct partition *part;

  if (entry->count == 0 || entry->type == 0xee || is_extended (entry))
    return;
  part = add_partition (dev, list, number, start, start + entry->count - 1);
  if (part)
    part->mbr_type = entry->type;
}

/* The EBRs met on this disk, so that loops end. */
struct ebr_chain {
  size_t nr;
  uint64_t seen[EBR_MAX];       /* blocks */
  unsigned next_number;         /* of the next logical partition */
};

static bool
enter_ebr (struct ebr_chain *chain, uint64_t block)
{
  size_t i;

  for (i = 0; i < chain->nr; ++i)
    if (chain->seen[i] == block)
      return false;
  if (chain->nr == EBR_MAX)
    return false;
  chain->seen[chain->nr++] = block;
  return true;
}

/* One EBR's partitions: starts are relative to the EBR itself, which is
 * never before the extended partition.  Entries 3 and 4 may be garbage
 * and have to fit, as in Linux.  A partition takes its number even where
 * it is beyond the device.
 */
static void
add_logical_partitions (const struct device *dev,
                        struct partition_list *list,
                        struct ebr_chain *chain, const uint8_t *sector,
                        uint64_t block, uint64_t nr_blocks,
                        const struct mbr_entry *extended)
{
  unsigned i;

  for (i = 0; i < 4; ++i) {
    const struct mbr_entry entry = mbr_entry (sector, i);
    const uint64_t start = block + entry.start;

    if (entry.count == 0 || is_extended (&entry))
      continue;
    if (i >= 2 &&
        ((uint64_t) entry.start + entry.count > nr_blocks ||
         start + entry.count > (uint64_t) extended->start + extended->count))
      continue;
    add_mbr_partition (dev, list, chain->next_number++, start, &entry);
  }
}

/* Follow the chain of EBRs in one extended partition.  Links are relative
 * to the extended partition's start.
 */
static int
scan_extended (const struct device *dev, struct partition_list *list,
               struct ebr_chain *chain, const struct mbr_entry *extended)
{
  uint64_t block = extended->start, nr_blocks = extended->count;

  while (enter_ebr (chain, block)) {
    uint8_t sector[SECTOR];
    unsigned i;
    int r;

    r = read_device (dev, sector, sizeof sector, block * list->block_size);
    if (r <= 0)
      return r;
    if (!has_mbr_signature (sector))
      return 0;
    add_logical_partitions (dev, list, chain, sector, block, nr_blocks,
                            extended);

    for (i = 0; i < 4; ++i) {
      const struct mbr_entry entry = mbr_entry (sector, i);

      if (entry.count > 0 && is_extended (&entry)) {
        block = (uint64_t) extended->start + entry.start;
        nr_blocks = entry.count;
        break;
      }
    }
    if (i == 4)
      return 0;
  }
  return 0;
}

static int
scan_mbr (const struct device *dev, const uint8_t *sector,
          uint32_t block_size, struct partition_list *list)
{
  struct ebr_chain chain = { .next_number = 5 };
  unsigned i;

  list->table = PARTITION_NONE;
  list->block_size = block_size;
  list->nr = 0;
  if (!is_mbr (sector))
    return 0;
  list->table = PARTITION_MBR;

  for (i = 0; i < 4; ++i) {
    const struct mbr_entry entry = mbr_entry (sector, i);
    int r;

    add_mbr_partition (dev, list, i + 1, entry.start, &entry);
    if (entry.count > 0 && is_extended (&entry)) {
      r = scan_extended (dev, list, &chain, &entry);
      if (r < 0)
        return r;
    }
  }
  return 0;
}

/*
 * GPT
 */

struct gpt_header {
  uint64_t entries;             /* byte of the device */
  uint32_t nr_entries, entry_size, entries_crc;
};

static bool
is_protective_mbr (const uint8_t *sector)
{
  unsigned i;

  if (has_mbr_signature (sector))
    for (i = 0; i < 4; ++i)
      if (mbr_entry (sector, i).type == 0xee)
        return true;
  return false;
}

/* Check a header read from 'block', and take from it where its entries
 * are: nr_entries * entry_size bytes inside the device, bounded.
 */
static bool
parse_gpt_header (const struct device *dev, const uint8_t *sector,
                  uint64_t block, uint32_t block_size,
                  struct gpt_header *ret)
{
  const uint32_t header_size = load_le32 (sector + 12);
  const uint64_t entries_block = load_le64 (sector + 72);
  const uint32_t nr_entries = load_le32 (sector + 80);
  const uint32_t entry_size = load_le32 (sector + 84);
  uint8_t copy[SECTOR];
  uint64_t entries, entries_size;

  if (memcmp (sector, "EFI PART", 8) != 0 ||
      header_size < GPT_HEADER_MIN || header_size > SECTOR)
    return false;
  memcpy (copy, sector, header_size);
  memset (copy + 16, 0, 4);     /* the CRC is of the header without it */
  if (crc32_ieee (0, copy, header_size) != load_le32 (sector + 16))
    return false;

  if (load_le64 (sector + 24) != block ||
      load_le64 (sector + 40) > load_le64 (sector + 48)) /* usable blocks */
    return false;
  if (entry_size < GPT_ENTRY_MIN || entry_size > GPT_ENTRY_MAX ||
      (entry_size & (entry_size - 1)) != 0 ||
      nr_entries == 0 || nr_entries > GPT_ENTRIES_MAX_SIZE / entry_size)
    return false;
  entries = saturating_multiply (entries_block, block_size);
  entries_size = (uint64_t) nr_entries * entry_size;
  if (entries > dev->size || entries_size > dev->size - entries)
    return false;

  ret->entries = entries;
  ret->nr_entries = nr_entries;
  ret->entry_size = entry_size;
  ret->entries_crc = load_le32 (sector + 88);
  return true;
}

static void
add_gpt_partition (const struct device *dev, struct partition_list *list,
                   unsigned number, const uint8_t *entry)
{
  static const uint8_t unused[16];
  struct partition *part;

  if (memcmp (entry, unused, sizeof unused) == 0)
    return;
  part = add_partition (dev, list, number,
                        load_le64 (entry + 32), load_le64 (entry + 40));
  if (part)
    memcpy (part->type_guid, entry, sizeof part->type_guid);
}

/* List the entries; 1 if their CRC is right, else 0 or -ENOMEM. */
static int
scan_gpt_entries (const struct device *dev, const struct gpt_header *header,
                  struct partition_list *list)
{
  const uint32_t entries_size = header->nr_entries * header->entry_size;
  uint8_t chunk[GPT_CHUNK];
  uint32_t done, crc = 0;
  unsigned number = 1;

  for (done = 0; done < entries_size; done += GPT_CHUNK) {
    uint32_t count = entries_size - done, i;
    int r;

    if (count > GPT_CHUNK)
      count = GPT_CHUNK;
    r = read_device (dev, chunk, count, header->entries + done);
    if (r <= 0)
      return r;
    crc = crc32_ieee (crc, chunk, count);
    for (i = 0; i < count; i += header->entry_size)
      add_gpt_partition (dev, list, number++, chunk + i);
  }
  return crc == header->entries_crc;
}

/* 1 if 'block' has a valid GPT header with valid entries. */
static int
scan_gpt_block (const struct device *dev, uint64_t block,
                uint32_t block_size, struct partition_list *list)
{
  uint8_t sector[SECTOR];
  struct gpt_header header;
  int r;

  r = read_device (dev, sector, sizeof sector, block * block_size);
  if (r <= 0)
    return r;
  if (!parse_gpt_header (dev, sector, block, block_size, &header))
    return 0;
  list->table = PARTITION_GPT;
  list->block_size = block_size;
  list->nr = 0;
  return scan_gpt_entries (dev, &header, list);
}

/* 1 if there is a GPT. */
static int
scan_gpt (const struct device *dev, struct partition_list *list)
{
  static const uint32_t block_sizes[] = { 512, 4096 };
  unsigned i;
  int r;

  for (i = 0; i < 2; ++i) {
    r = scan_gpt_block (dev, 1, block_sizes[i], list);
    if (r != 0)
      return r;
  }
  for (i = 0; i < 2; ++i) {
    const uint64_t nr_blocks = dev->size / block_sizes[i];

    if (nr_blocks <= 2)         /* no block but the MBR and a primary */
      continue;
    r = scan_gpt_block (dev, nr_blocks - 1, block_sizes[i], list);
    if (r != 0)
      return r;
  }
  return 0;
}

static int
scan (const struct device *dev, uint32_t mbr_block_size, bool gpt,
      struct partition_list *ret)
{
  struct partition_list list;
  uint8_t sector[SECTOR];
  int r;

  r = read_device (dev, sector, sizeof sector, 0);
  if (r < 0)
    return r;
  if (r == 0)
    memset (sector, 0, sizeof sector);

  r = 0;
  if (gpt && is_protective_mbr (sector))
    r = scan_gpt (dev, &list);
  if (r == 0)
    r = scan_mbr (dev, sector, mbr_block_size, &list);
  if (r < 0)
    return r;
  *ret = list;
  return 0;
}

int
partition_scan (partition_read_fn read, void *opaque, uint64_t size,
                struct partition_list *ret)
{
  const struct device dev = { read, opaque, size };

  return scan (&dev, 512, true, ret);
}

int
partition_scan_mbr (partition_read_fn read, void *opaque, uint64_t size,
                    uint32_t block_size, struct partition_list *ret)
{
  const struct device dev = { read, opaque, size };

  return scan (&dev, block_size, false, ret);
}

const char *
partition_table_string (enum partition_table table)
{
  switch (table) {
  case PARTITION_NONE: return "none";
  case PARTITION_MBR: return "MBR";
  case PARTITION_GPT: return "GPT";
  }
  return "unknown";
}
