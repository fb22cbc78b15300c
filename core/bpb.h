/* SPDX-License-Identifier: BSD-3-Clause */

/* Boot sector bytes -> validated FAT32 geometry.
 *
 * Pure: no I/O, no allocation, no state, so no locks and no errors but
 * the verdict.  What Linux (fat_read_bpb, fat_fill_super), EDK2
 * (FatOpenDevice), GRUB (grub_fat_mount) or fsck.fat (read_boot) would
 * not take as FAT32 is not taken here: whoever mounts the volume must
 * see it as we do.  Two of their conditions are left to the caller, for
 * they do not change where things are: bpb_few_clusters and
 * bpb_mirroring.  GRUB's wish for the text "FAT32" at byte 82 is not
 * shared; the specification says that it determines nothing.
 *
 * Invariants of a struct bpb that bpb_parse has filled:
 *
 * 1. sector_size is a power of two, 512 to 4096; cluster_size is a
 *    power of two times that, up to 128 sectors.
 * 2. reserved_sectors, nr_fats (1 to 255), fat_sectors, total_sectors
 *    and nr_clusters are not 0.
 * 3. In bytes from the volume's start, without overflow:
 *    0 < FATs < data < data's end <= bpb_size <= volume_size.
 * 4. A FAT has an entry for each cluster: at least nr_clusters + 2.
 * 5. root_cluster is a data cluster, and nr_clusters + 1, the highest
 *    cluster number, is below the bad cluster mark 0x0ffffff7.
 * 6. fsinfo_sector and backup_sector are below reserved_sectors.
 */

#ifndef FATBATCH_BPB_H
#define FATBATCH_BPB_H

#include <stdbool.h>
#include <stdint.h>

#define BPB_SECTOR_SIZE 512     /* the bytes looked at, on any disk */

struct bpb {
  uint32_t sector_size;         /* bytes */
  uint32_t cluster_size;        /* bytes */
  uint32_t reserved_sectors;
  uint32_t fat_sectors;         /* of one FAT */
  uint32_t nr_fats;
  uint64_t total_sectors;
  uint32_t nr_clusters;         /* numbered 2 to nr_clusters + 1 */
  uint32_t root_cluster;
  uint16_t ext_flags;           /* BPB_ExtFlags as written */
  uint16_t fsinfo_sector;       /* 0: absent, or not in the reserved area */
  uint16_t backup_sector;       /* likewise */
  uint32_t volume_id;           /* 0 if there is none */
  char label[12];               /* printable ASCII; "" if there is none */
  bool dirty;                   /* byte 0x41 bit 0: mounted, or was not
                                   unmounted (Linux, Windows NT) */
};

enum bpb_verdict {
  BPB_FAT32 = 0,
  BPB_EXFAT,
  BPB_NTFS,
  BPB_NO_SIGNATURE,
  BPB_BAD_SECTOR_SIZE,
  BPB_BAD_CLUSTER_SIZE,
  BPB_NO_RESERVED,
  BPB_NO_FATS,
  BPB_BAD_MEDIA,
  BPB_FAT16,
  BPB_ROOT_ENTRIES,
  BPB_NO_FAT_SIZE,
  BPB_BAD_VERSION,
  BPB_NO_TOTAL,
  BPB_NO_CLUSTERS,
  BPB_TOO_MANY_CLUSTERS,
  BPB_FAT_TOO_SMALL,
  BPB_BAD_ROOT_CLUSTER,
  BPB_BAD_ACTIVE_FAT,
  BPB_VOLUME_TOO_SMALL,
  BPB_NR_VERDICTS
};

/* Judge the first 512 bytes of a volume of 'volume_size' bytes, which is
 * the partition as far as the device reaches.  '*ret' is written only
 * with BPB_FAT32.
 */
extern enum bpb_verdict bpb_parse (const uint8_t sector[BPB_SECTOR_SIZE],
                                   uint64_t volume_size, struct bpb *ret);

/* A verdict in words, for users.  Never NULL. */
extern const char *bpb_verdict_string (enum bpb_verdict verdict);

/* Is everything in the same place, and used in the same way?  Ignores
 * what changes without moving anything: dirty, label, volume_id.
 */
extern bool bpb_same_geometry (const struct bpb *a, const struct bpb *b);

/* Are there two FATs that a driver must keep equal?  (BPB_NumFATs = 2,
 * BPB_ExtFlags bit 7 clear.)
 */
extern bool bpb_mirroring (const struct bpb *bpb);

/* The FAT in use where mirroring is off (BPB_ExtFlags bits 3 to 0 if
 * bit 7 is set), else 0.  Below nr_fats.  Linux uses FAT 0 regardless.
 */
extern unsigned bpb_active_fat (const struct bpb *bpb);

/* Fewer than 65525 clusters: FAT32 by BPB_FATSz16 = 0 for Linux and
 * fsck.fat, but FAT16 or damaged for those who go by the count (EDK2,
 * and Microsoft's specification).
 */
extern bool bpb_few_clusters (const struct bpb *bpb);

/* The sector with FSInfo's backup copy, or 0. */
extern uint32_t bpb_fsinfo_backup_sector (const struct bpb *bpb);

/* Byte offsets from the volume's start, and sizes in bytes.  'fat' is
 * below nr_fats, 'cluster' is 2 to nr_clusters + 1.
 */
extern uint64_t bpb_fat_start (const struct bpb *bpb, unsigned fat);
extern uint64_t bpb_fat_size (const struct bpb *bpb);
extern uint64_t bpb_data_start (const struct bpb *bpb);
extern uint64_t bpb_data_end (const struct bpb *bpb);
extern uint64_t bpb_cluster_offset (const struct bpb *bpb, uint32_t cluster);
extern uint64_t bpb_size (const struct bpb *bpb);

#endif /* FATBATCH_BPB_H */
