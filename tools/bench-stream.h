/* SPDX-License-Identifier: BSD-3-Clause */

/* The synchronous metadata writes of a guest with a vfat volume mounted
 * -o sync, as fs/fat in Linux 6.1 sends them, and two variants of its FAT
 * writes.  Recorded from a guest and compared by
 * tests/tools/test-guest-stream.sh.
 *
 * 1. Each write is one sector of the volume's metadata, with the content
 *    that a guest would send.
 * 2. When a function returns, all it sent has been answered.
 */

#ifndef FATBATCH_BENCH_STREAM_H
#define FATBATCH_BENCH_STREAM_H

#include "bench-fat.h"

#define GROUP_SECTORS 8         /* MAX_BUF_PER_PAGE, 4096 / 512 */

struct stream {
  struct volume *volume;
  struct client *client;
  enum bench_durable durable;
  uint64_t fat_sectors;         /* sent, in all copies */
};

/* The sector of metadata that holds this offset. */
extern int stream_sector (struct stream *s, uint64_t offset);

/* open (O_CREAT): fat_add_entries() syncs the directory's sector. */
extern int stream_create (struct stream *s, const char *name,
                          struct volume_file *file);

/* One more cluster, as fat_add_cluster() of Linux 6.1: the end mark into
 * FAT 1, then FAT 2 (fat_alloc_clusters); the link from the previous
 * cluster, if there is one, into FAT 1, then FAT 2 (fat_chain_add).
 */
extern int stream_append_cluster (struct stream *s, struct volume_file *file);

/* Up to 'max' clusters, as fat_alloc_clusters() when asked for many: until
 * 8 sectors of the FAT are dirty; those to FAT 1 all at once
 * (fat_sync_bhs), then their mirrors (fat_mirror_bhs), one by one, or with
 * 'batched' all at once.  The link from the last cluster of the group
 * before is in the group's first sector.
 */
extern int stream_append_group (struct stream *s, struct volume_file *file,
                                uint32_t max, bool batched);

/* What ends a write(2), or fsync(2): the directory entry with the file's
 * size and first cluster (fat_sync_inode), then FLUSH if durable says so.
 */
extern int stream_sync_file (struct stream *s, const struct volume_file *file);

/* unlink or truncate of the newest file, whose clusters are the last
 * allocated: directory entry, then the freed entries in groups of 8
 * (fat_free_clusters; mirrors one by one).
 */
extern int stream_truncate (struct stream *s, struct volume_file *file);

/* sync(2): FSInfo. */
extern int stream_sync (struct stream *s);

#endif /* FATBATCH_BENCH_STREAM_H */
