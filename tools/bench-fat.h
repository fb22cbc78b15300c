/* SPDX-License-Identifier: BSD-3-Clause */

/* A FAT32 volume on the export, and what its metadata must be.
 *
 * One thread at a time.
 *
 * 1. 'metadata' is what the export holds in its first metadata_size bytes,
 *    once all that was submitted from there has completed: reserved
 *    sectors, both FATs, the root directory.  There are no other
 *    directories.
 * 2. The root directory's clusters are allocated when the volume is made,
 *    so that it never grows: clusters 2 to root_clusters + 1.
 * 3. Clusters are allocated in ascending order and never freed:
 *    everything below next_cluster is in use, everything else is free,
 *    as on a volume that was never mounted before.
 */

#ifndef FATBATCH_BENCH_FAT_H
#define FATBATCH_BENCH_FAT_H

#include <stdint.h>

#include "bench-nbd.h"
#include "bpb.h"

#define FAT_END_MARK UINT32_C (0x0fffffff) /* as Linux writes it */
#define SECTOR 512

struct volume {
  struct bpb bpb;
  uint64_t size;                /* bytes; the export may be larger */
  uint8_t *metadata;
  uint64_t metadata_size;
  uint32_t root_clusters;
  uint32_t next_cluster;        /* first free one */
  uint32_t nr_files;
};

/* A file in the root directory; its clusters are consecutive. */
struct volume_file {
  uint64_t entry;               /* byte offset of its directory entry */
  uint32_t first, nr_clusters;  /* 0, 0: none yet */
  uint64_t size;                /* bytes */
};

/* Have mkfs.fat make a volume with clusters of 'cluster' bytes, with room
 * for 'nr_clusters' of data and 'nr_files' files, and write its metadata to
 * the export.  Untimed.
 *
 * 'volume' is to be released in any case.
 */
extern int volume_make (struct volume *volume, struct client *client,
                        uint64_t export_size, uint32_t cluster,
                        uint64_t nr_clusters, uint64_t nr_files);
extern void volume_release (struct volume *volume);

/* Below, nothing is sent: these change 'metadata' only. */

/* A new, empty file "NAMEnnnn", from 1. */
extern void volume_create_file (struct volume *volume, const char *name,
                                struct volume_file *file);
/* The file's directory entry from 'file'. */
extern void volume_update_file (struct volume *volume,
                                const struct volume_file *file);
/* Allocate 'nr' clusters with their links, in both FATs. */
extern void volume_append_clusters (struct volume *volume,
                                    struct volume_file *file, uint32_t nr);
/* Cluster's entry in FAT 0. */
extern void volume_set_entry (struct volume *volume, uint32_t cluster,
                              uint32_t value);
/* FAT 1's copy of the sector that holds the cluster's entry. */
extern void volume_mirror_sector (struct volume *volume, uint32_t cluster);
/* Free clusters and next one into FSInfo. */
extern void volume_update_fsinfo (struct volume *volume);

/* Offset of the sector with the cluster's entry. */
extern uint64_t volume_fat_sector (const struct volume *volume, unsigned fat,
                                   uint32_t cluster);
extern uint64_t volume_file_offset (const struct volume *volume,
                                    const struct volume_file *file);

/* Write all metadata to the export, untimed. */
extern int volume_write (struct volume *volume, struct client *client);

/* Compare the metadata on the export with 'metadata', then have fsck.fat -n
 * look at what was read.  For fsck.fat, and only in its copy, each file is
 * given the size of its clusters if it is smaller: clusters behind EOF are
 * what fallocate (FALLOC_FL_KEEP_SIZE) is for.  Sets result->data and
 * result->fsck.
 */
extern int volume_check (const struct volume *volume, struct client *client,
                         struct bench_result *result);

/* fsck.fat -n on a file.  Sets result->fsck. */
extern int run_fsck (const char *path, struct bench_result *result);
/* A nameless temporary file's descriptor, or -1; '*path' leads to it. */
extern int open_temporary (char path[64]);

#endif /* FATBATCH_BENCH_FAT_H */
