/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench-fat.h"
#include "bench-run.h"
#include "byteorder.h"
#include "util.h"

#define MIN_CLUSTERS UINT32_C (65525)   /* fewer are FAT16 to some */
#define MAX_CLUSTERS UINT32_C (0x0ffffff5)
#define ENTRY_SIZE 32
#define FSINFO_FREE 488
#define FSINFO_NEXT 492

static void
store_le16 (uint8_t *p, uint32_t value)
{
  p[0] = (uint8_t) value;
  p[1] = (uint8_t) (value >> 8);
}

uint64_t
volume_fat_sector (const struct volume *volume, unsigned fat,
                   uint32_t cluster)
{
  return bpb_fat_start (&volume->bpb, fat)
    + align_down ((uint64_t) cluster * 4, SECTOR);
}

uint64_t
volume_file_offset (const struct volume *volume,
                    const struct volume_file *file)
{
  return bpb_cluster_offset (&volume->bpb, file->first);
}

void
volume_set_entry (struct volume *volume, uint32_t cluster, uint32_t value)
{
  store_le32 (volume->metadata + bpb_fat_start (&volume->bpb, 0)
              + (uint64_t) cluster * 4, value);
}

void
volume_mirror_sector (struct volume *volume, uint32_t cluster)
{
  memcpy (volume->metadata + volume_fat_sector (volume, 1, cluster),
          volume->metadata + volume_fat_sector (volume, 0, cluster), SECTOR);
}

void
volume_append_clusters (struct volume *volume, struct volume_file *file,
                        uint32_t nr)
{
  uint32_t i, cluster;

  for (i = 0; i < nr; i++) {
    cluster = volume->next_cluster++;
    volume_set_entry (volume, cluster, FAT_END_MARK);
    if (file->nr_clusters++ == 0)
      file->first = cluster;
    else {
      volume_set_entry (volume, cluster - 1, cluster);
      volume_mirror_sector (volume, cluster - 1);
    }
    volume_mirror_sector (volume, cluster);
  }
}

void
volume_create_file (struct volume *volume, const char *name,
                    struct volume_file *file)
{
  char text[16];
  uint8_t *entry;

  memset (file, 0, sizeof *file);
  file->entry = bpb_cluster_offset (&volume->bpb, 2)
    + (uint64_t) volume->nr_files++ * ENTRY_SIZE;
  entry = volume->metadata + file->entry;
  snprintf (text, sizeof text, "%.4s%04u", name, volume->nr_files % 10000);
  memset (entry, 0, ENTRY_SIZE);
  memset (entry, ' ', 11);
  memcpy (entry, text, 8);
  entry[11] = 0x20;             /* archive, as the kernel sets it */
  /* 2026-12-01 12:00, of creation, access and change. */
  store_le16 (entry + 14, 12 << 11);
  store_le16 (entry + 16, (2026 - 1980) << 9 | 12 << 5 | 1);
  store_le16 (entry + 18, (2026 - 1980) << 9 | 12 << 5 | 1);
  store_le16 (entry + 22, 12 << 11);
  store_le16 (entry + 24, (2026 - 1980) << 9 | 12 << 5 | 1);
}

void
volume_update_file (struct volume *volume, const struct volume_file *file)
{
  uint8_t *entry = volume->metadata + file->entry;

  store_le16 (entry + 20, file->first >> 16);
  store_le16 (entry + 26, file->first);
  store_le32 (entry + 28, (uint32_t) file->size);
}

/* What Linux stores as the next free cluster is the last allocated one. */
void
volume_update_fsinfo (struct volume *volume)
{
  uint8_t *fsinfo = volume->metadata
    + volume->bpb.fsinfo_sector * (uint64_t) SECTOR;

  store_le32 (fsinfo + FSINFO_FREE,
              volume->bpb.nr_clusters - (volume->next_cluster - 2));
  store_le32 (fsinfo + FSINFO_NEXT, volume->next_cluster - 1);
}

/* mkfs.fat on an empty file of the volume's size; its metadata into
 * volume->metadata.
 */
static int
make_metadata (struct volume *volume, uint32_t cluster)
{
  char path[64], sectors[16];
  uint8_t boot[BPB_SECTOR_SIZE];
  int fd, status = BENCH_SERVER;

  snprintf (sectors, sizeof sectors, "%" PRIu32, cluster / SECTOR);
  fd = open_temporary (path);
  if (fd == -1)
    return BENCH_SERVER;
  if (ftruncate (fd, (off_t) volume->size) == -1) {
    bench_error ("temporary file of %" PRIu64 " bytes: %s", volume->size,
                 strerror (errno));
    goto out;
  }
  if (run_program ("mkfs.fat", (const char *[]) {
        "mkfs.fat", "-F", "32", "-S", "512", "-s", sectors, "-f", "2",
        "-i", "fa7ba7c4", path, NULL }) != 0)
    goto out;

  if (pread (fd, boot, sizeof boot, 0) != (ssize_t) sizeof boot ||
      bpb_parse (boot, volume->size, &volume->bpb) != BPB_FAT32 ||
      bpb_few_clusters (&volume->bpb) || !bpb_mirroring (&volume->bpb) ||
      volume->bpb.root_cluster != 2 || volume->bpb.fsinfo_sector == 0 ||
      volume->bpb.cluster_size != cluster) {
    bench_error ("mkfs.fat made something else than what was asked for");
    goto out;
  }
  volume->metadata_size = bpb_data_start (&volume->bpb)
    + (uint64_t) volume->root_clusters * cluster;
  volume->metadata = calloc (1, volume->metadata_size);
  if (volume->metadata == NULL) {
    bench_error ("out of memory");
    goto out;
  }
  if (pread (fd, volume->metadata, volume->metadata_size, 0) !=
      (ssize_t) volume->metadata_size) {
    bench_error ("cannot read what mkfs.fat made");
    goto out;
  }
  status = 0;
 out:
  close (fd);
  return status;
}

static int
plan_volume (struct volume *volume, uint64_t export_size, uint32_t cluster,
             uint64_t nr_clusters, uint64_t nr_files)
{
  uint64_t total, room;

  volume->root_clusters = (uint32_t)
    ((max_u64 (nr_files, 1) * ENTRY_SIZE + cluster - 1) / cluster);
  total = nr_clusters + volume->root_clusters;
  if (total > MAX_CLUSTERS) {
    bench_error ("%" PRIu64 " clusters are needed, more than FAT32 has: "
                 "a larger --cluster is needed", total);
    return BENCH_USAGE;
  }
  total = max_u64 (total, MIN_CLUSTERS);
  /* Reserved sectors, two FATs, and what mkfs.fat loses to alignment. */
  room = 2 * align_up ((total + 2) * 4, SECTOR) + 64 * 1024 + 8 * cluster;
  volume->size = align_up (total * cluster + room, 4096);
  if (volume->size > export_size) {
    bench_error ("the export has %" PRIu64 " bytes, but %" PRIu64
                 " are needed for a volume with %" PRIu64
                 " clusters of %" PRIu32 " bytes",
                 export_size, volume->size, total, cluster);
    return BENCH_SERVER;
  }
  return 0;
}

int
volume_make (struct volume *volume, struct client *client,
             uint64_t export_size, uint32_t cluster, uint64_t nr_clusters,
             uint64_t nr_files)
{
  uint32_t i;
  int status;

  memset (volume, 0, sizeof *volume);
  status = plan_volume (volume, export_size, cluster, nr_clusters, nr_files);
  if (status == 0)
    status = make_metadata (volume, cluster);
  if (status != 0)
    return status;
  if (volume->bpb.nr_clusters < nr_clusters + volume->root_clusters) {
    bench_error ("mkfs.fat made only %" PRIu32 " clusters",
                 volume->bpb.nr_clusters);
    return BENCH_SERVER;
  }

  /* The rest of the root directory. */
  volume->next_cluster = 3;
  for (i = 1; i < volume->root_clusters; i++) {
    volume_set_entry (volume, volume->next_cluster - 1, volume->next_cluster);
    volume_mirror_sector (volume, volume->next_cluster - 1);
    volume_set_entry (volume, volume->next_cluster, FAT_END_MARK);
    volume_mirror_sector (volume, volume->next_cluster);
    volume->next_cluster++;
  }
  volume_update_fsinfo (volume);
  return volume_write (volume, client);
}

int
volume_write (struct volume *volume, struct client *client)
{
  client_write_pieces (client, volume->metadata, volume->metadata_size, 0);
  return client_flush (client);
}

void
volume_release (struct volume *volume)
{
  free (volume->metadata);
  volume->metadata = NULL;
}
