/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "bpb.h"
#include "byteorder.h"

/* Byte offsets in the boot sector: Microsoft's FAT specification 1.03,
 * "Boot Sector and BPB Structure".
 */
#define BS_OEMNAME 3
#define BPB_BYTSPERSEC 11
#define BPB_SECPERCLUS 13
#define BPB_RSVDSECCNT 14
#define BPB_NUMFATS 16
#define BPB_ROOTENTCNT 17
#define BPB_TOTSEC16 19
#define BPB_MEDIA 21
#define BPB_FATSZ16 22
#define BPB_TOTSEC32 32
#define BPB_FATSZ32 36
#define BPB_EXTFLAGS 40
#define BPB_FSVER 42
#define BPB_ROOTCLUS 44
#define BPB_FSINFO 48
#define BPB_BKBOOTSEC 50
#define BS_STATE 65             /* the specification's BS_Reserved1 */
#define BS_BOOTSIG 66
#define BS_VOLID 67
#define BS_VOLLAB 71
#define BS_SIGNATURE 510

#define EXTFLAGS_NO_MIRRORING 0x80
#define EXTFLAGS_ACTIVE_FAT 0x0f
#define STATE_DIRTY 0x01

/* The most data clusters: 0x0ffffff7 is the bad cluster mark, and
 * numbers start at 2.  Linux: MAX_FAT32.
 */
#define MAX_CLUSTERS 0x0ffffff5
#define MIN_FAT32_CLUSTERS 65525

static bool
is_power_of_two (uint32_t n)
{
  return n != 0 && (n & (n - 1)) == 0;
}

/* Is this a boot sector that has a FAT BPB at all? */
static enum bpb_verdict
check_boot_sector (const uint8_t *sector)
{
  const uint32_t sector_size = load_le16 (sector + BPB_BYTSPERSEC);
  const uint8_t media = sector[BPB_MEDIA];

  if (memcmp (sector + BS_OEMNAME, "EXFAT   ", 8) == 0)
    return BPB_EXFAT;
  if (memcmp (sector + BS_OEMNAME, "NTFS    ", 8) == 0)
    return BPB_NTFS;
  if (load_le16 (sector + BS_SIGNATURE) != 0xaa55)
    return BPB_NO_SIGNATURE;
  if (!is_power_of_two (sector_size) || sector_size < 512 ||
      sector_size > 4096)
    return BPB_BAD_SECTOR_SIZE;
  if (!is_power_of_two (sector[BPB_SECPERCLUS]))
    return BPB_BAD_CLUSTER_SIZE;
  if (load_le16 (sector + BPB_RSVDSECCNT) == 0)
    return BPB_NO_RESERVED;
  if (sector[BPB_NUMFATS] == 0)
    return BPB_NO_FATS;
  /* Linux: fat_valid_media. */
  if (media != 0xf0 && media < 0xf8)
    return BPB_BAD_MEDIA;
  return BPB_FAT32;
}

/* Given a FAT BPB, is it that of a FAT32? */
static enum bpb_verdict
check_fat32 (const uint8_t *sector)
{
  if (load_le16 (sector + BPB_FATSZ16) != 0)
    return BPB_FAT16;
  if (load_le16 (sector + BPB_ROOTENTCNT) != 0)
    return BPB_ROOT_ENTRIES;
  if (load_le32 (sector + BPB_FATSZ32) == 0)
    return BPB_NO_FAT_SIZE;
  if (load_le16 (sector + BPB_FSVER) != 0)
    return BPB_BAD_VERSION;
  return BPB_FAT32;
}

static void
parse_label (const uint8_t *sector, struct bpb *bpb)
{
  const uint8_t *p = sector + BS_VOLLAB;
  size_t i, len = 0;

  memset (bpb->label, 0, sizeof bpb->label);
  bpb->volume_id = 0;
  if (sector[BS_BOOTSIG] != 0x28 && sector[BS_BOOTSIG] != 0x29)
    return;
  bpb->volume_id = load_le32 (sector + BS_VOLID);
  if (sector[BS_BOOTSIG] == 0x28) /* no label follows */
    return;

  for (i = 0; i < 11 && p[i] != 0; ++i) {
    bpb->label[i] = p[i] >= ' ' && p[i] <= '~' ? (char) p[i] : '?';
    if (p[i] != ' ')
      len = i + 1;
  }
  /* The specification's words for "no label". */
  if (len == 7 && memcmp (p, "NO NAME", len) == 0)
    len = 0;
  bpb->label[len] = '\0';
}

/* The number of a sector in the reserved area that holds a hint.  Both
 * 0 and 0xffff are used for "none" (dosfstools, Linux).
 */
static uint16_t
parse_hint_sector (const uint8_t *p, uint32_t reserved_sectors)
{
  const uint16_t nr = load_le16 (p);

  return nr < reserved_sectors ? nr : 0;
}

/* Take the fields of a sector that the checks above have passed, as they
 * are.  All but nr_clusters.
 */
static void
parse_fields (const uint8_t *sector, struct bpb *bpb)
{
  /* Linux and EDK2 take the 16-bit count if both are there. */
  bpb->total_sectors = load_le16 (sector + BPB_TOTSEC16);
  if (bpb->total_sectors == 0)
    bpb->total_sectors = load_le32 (sector + BPB_TOTSEC32);

  bpb->sector_size = load_le16 (sector + BPB_BYTSPERSEC);
  bpb->cluster_size = bpb->sector_size * sector[BPB_SECPERCLUS];
  bpb->reserved_sectors = load_le16 (sector + BPB_RSVDSECCNT);
  bpb->fat_sectors = load_le32 (sector + BPB_FATSZ32);
  bpb->nr_fats = sector[BPB_NUMFATS];
  bpb->root_cluster = load_le32 (sector + BPB_ROOTCLUS);
  bpb->ext_flags = load_le16 (sector + BPB_EXTFLAGS);
  bpb->fsinfo_sector =
    parse_hint_sector (sector + BPB_FSINFO, bpb->reserved_sectors);
  bpb->backup_sector =
    parse_hint_sector (sector + BPB_BKBOOTSEC, bpb->reserved_sectors);
  bpb->dirty = (sector[BS_STATE] & STATE_DIRTY) != 0;
  parse_label (sector, bpb);
}

/* Do the parts fit into the whole?  Sets nr_clusters.  The sums below
 * stay under 2^41 sectors, whatever the fields say; once the FATs are
 * known to end before total_sectors, all offsets stay under 2^44 bytes.
 */
static enum bpb_verdict
check_geometry (struct bpb *bpb, uint64_t volume_size)
{
  const uint64_t data_sector =
    bpb->reserved_sectors + (uint64_t) bpb->nr_fats * bpb->fat_sectors;
  const uint64_t fat_entries =
    (uint64_t) bpb->fat_sectors * bpb->sector_size / 4;
  uint64_t nr_clusters;

  if (bpb->total_sectors == 0)
    return BPB_NO_TOTAL;
  if (data_sector >= bpb->total_sectors)
    return BPB_NO_CLUSTERS;
  nr_clusters = (bpb->total_sectors - data_sector) /
    (bpb->cluster_size / bpb->sector_size);
  if (nr_clusters == 0)
    return BPB_NO_CLUSTERS;
  if (nr_clusters > MAX_CLUSTERS)
    return BPB_TOO_MANY_CLUSTERS;
  if (fat_entries < nr_clusters + 2)
    return BPB_FAT_TOO_SMALL;
  bpb->nr_clusters = (uint32_t) nr_clusters;

  if (bpb->root_cluster < 2 || bpb->root_cluster > nr_clusters + 1)
    return BPB_BAD_ROOT_CLUSTER;
  if (bpb_active_fat (bpb) >= bpb->nr_fats)
    return BPB_BAD_ACTIVE_FAT;
  if (bpb_size (bpb) > volume_size)
    return BPB_VOLUME_TOO_SMALL;
  return BPB_FAT32;
}

enum bpb_verdict
bpb_parse (const uint8_t sector[BPB_SECTOR_SIZE], uint64_t volume_size,
           struct bpb *ret)
{
  struct bpb bpb = { 0 };
  enum bpb_verdict verdict;

  verdict = check_boot_sector (sector);
  if (verdict != BPB_FAT32)
    return verdict;
  verdict = check_fat32 (sector);
  if (verdict != BPB_FAT32)
    return verdict;
  parse_fields (sector, &bpb);
  verdict = check_geometry (&bpb, volume_size);
  if (verdict != BPB_FAT32)
    return verdict;

  *ret = bpb;
  return BPB_FAT32;
}

const char *
bpb_verdict_string (enum bpb_verdict verdict)
{
  switch (verdict) {
  case BPB_FAT32: return "FAT32";
  case BPB_EXFAT: return "exFAT";
  case BPB_NTFS: return "NTFS";
  case BPB_NO_SIGNATURE: return "no boot sector (no 55 AA at its end)";
  case BPB_BAD_SECTOR_SIZE:
    return "not FAT (sector size is not 512, 1024, 2048 or 4096)";
  case BPB_BAD_CLUSTER_SIZE:
    return "not FAT (sectors per cluster is not a power of two)";
  case BPB_NO_RESERVED: return "not FAT (no reserved sectors)";
  case BPB_NO_FATS: return "not FAT (NumFATs is 0)";
  case BPB_BAD_MEDIA: return "not FAT (media byte is not F0 or F8 to FF)";
  case BPB_FAT16: return "FAT12 or FAT16 (FATSz16 is not 0)";
  case BPB_ROOT_ENTRIES: return "FAT32 with a fixed root directory "
      "(RootEntCnt is not 0)";
  case BPB_NO_FAT_SIZE: return "not FAT32 (FATSz32 is 0)";
  case BPB_BAD_VERSION: return "unknown version of FAT32 (FSVer is not 0)";
  case BPB_NO_TOTAL: return "not FAT32 (TotSec16 and TotSec32 are 0)";
  case BPB_NO_CLUSTERS: return "damaged FAT32 (no room for a cluster "
      "after the FATs)";
  case BPB_TOO_MANY_CLUSTERS: return "damaged FAT32 (too many clusters)";
  case BPB_FAT_TOO_SMALL: return "damaged FAT32 (FATs too small for the "
      "clusters)";
  case BPB_BAD_ROOT_CLUSTER: return "damaged FAT32 (root directory is not "
      "in a data cluster)";
  case BPB_BAD_ACTIVE_FAT: return "damaged FAT32 (ExtFlags names a FAT "
      "that is not there)";
  case BPB_VOLUME_TOO_SMALL: return "FAT32 that reaches past the end of its "
      "partition or image";
  case BPB_NR_VERDICTS: break;
  }
  return "unknown";
}

bool
bpb_same_geometry (const struct bpb *a, const struct bpb *b)
{
  return a->sector_size == b->sector_size &&
    a->cluster_size == b->cluster_size &&
    a->reserved_sectors == b->reserved_sectors &&
    a->fat_sectors == b->fat_sectors &&
    a->nr_fats == b->nr_fats &&
    a->total_sectors == b->total_sectors &&
    a->nr_clusters == b->nr_clusters &&
    a->root_cluster == b->root_cluster &&
    a->ext_flags == b->ext_flags &&
    a->fsinfo_sector == b->fsinfo_sector &&
    a->backup_sector == b->backup_sector;
}

bool
bpb_mirroring (const struct bpb *bpb)
{
  return bpb->nr_fats == 2 && !(bpb->ext_flags & EXTFLAGS_NO_MIRRORING);
}

unsigned
bpb_active_fat (const struct bpb *bpb)
{
  if (bpb->ext_flags & EXTFLAGS_NO_MIRRORING)
    return bpb->ext_flags & EXTFLAGS_ACTIVE_FAT;
  return 0;
}

bool
bpb_few_clusters (const struct bpb *bpb)
{
  return bpb->nr_clusters < MIN_FAT32_CLUSTERS;
}

uint32_t
bpb_fsinfo_backup_sector (const struct bpb *bpb)
{
  const uint32_t nr = (uint32_t) bpb->backup_sector + bpb->fsinfo_sector;

  /* As far behind the backup boot sector as FSInfo is behind the boot
   * sector: sector 7 nearly always.
   */
  if (bpb->backup_sector == 0 || bpb->fsinfo_sector == 0 ||
      nr >= bpb->reserved_sectors)
    return 0;
  return nr;
}

uint64_t
bpb_fat_start (const struct bpb *bpb, unsigned fat)
{
  assert (fat < bpb->nr_fats);
  return (uint64_t) bpb->reserved_sectors * bpb->sector_size +
    fat * bpb_fat_size (bpb);
}

uint64_t
bpb_fat_size (const struct bpb *bpb)
{
  return (uint64_t) bpb->fat_sectors * bpb->sector_size;
}

uint64_t
bpb_data_start (const struct bpb *bpb)
{
  return (uint64_t) bpb->reserved_sectors * bpb->sector_size +
    bpb->nr_fats * bpb_fat_size (bpb);
}

uint64_t
bpb_data_end (const struct bpb *bpb)
{
  return bpb_data_start (bpb) +
    (uint64_t) bpb->nr_clusters * bpb->cluster_size;
}

uint64_t
bpb_cluster_offset (const struct bpb *bpb, uint32_t cluster)
{
  assert (cluster >= 2 && cluster - 2 < bpb->nr_clusters);
  return bpb_data_start (bpb) + (uint64_t) (cluster - 2) * bpb->cluster_size;
}

uint64_t
bpb_size (const struct bpb *bpb)
{
  return bpb->total_sectors * bpb->sector_size;
}
