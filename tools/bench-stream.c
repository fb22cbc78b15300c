/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include "bench-stream.h"
#include "util.h"

static int
submit_sector (struct stream *s, uint64_t offset)
{
  offset = align_down (offset, SECTOR);
  return client_submit (s->client, &(struct request) {
      .type = REQUEST_WRITE, .fua = s->durable == DURABLE_FUA,
      .offset = offset, .length = SECTOR,
      .data = s->volume->metadata + offset
    });
}

int
stream_sector (struct stream *s, uint64_t offset)
{
  submit_sector (s, offset);
  return client_wait (s->client, 0);
}

/* The sector with this cluster's entry, FAT 1, then FAT 2. */
static int
send_entry (struct stream *s, uint32_t cluster)
{
  stream_sector (s, volume_fat_sector (s->volume, 0, cluster));
  volume_mirror_sector (s->volume, cluster);
  s->fat_sectors += 2;
  return stream_sector (s, volume_fat_sector (s->volume, 1, cluster));
}

int
stream_create (struct stream *s, const char *name, struct volume_file *file)
{
  volume_create_file (s->volume, name, file);
  return stream_sector (s, file->entry);
}

int
stream_append_cluster (struct stream *s, struct volume_file *file)
{
  uint32_t cluster = s->volume->next_cluster++;

  volume_set_entry (s->volume, cluster, FAT_END_MARK);
  send_entry (s, cluster);
  if (file->nr_clusters++ == 0) {
    file->first = cluster;
    return s->client->status;
  }
  volume_set_entry (s->volume, cluster - 1, cluster);
  return send_entry (s, cluster - 1);
}

/* The sectors from that of cluster 'first' to that of 'last'. */
static int
send_group (struct stream *s, uint32_t first, uint32_t last, bool batched)
{
  uint32_t step = SECTOR / 4;
  uint32_t cluster;

  first = (uint32_t) align_down (first, step);
  for (cluster = first; cluster <= last; cluster += step)
    submit_sector (s, volume_fat_sector (s->volume, 0, cluster));
  client_wait (s->client, 0);
  for (cluster = first; cluster <= last; cluster += step) {
    volume_mirror_sector (s->volume, cluster);
    submit_sector (s, volume_fat_sector (s->volume, 1, cluster));
    if (!batched)
      client_wait (s->client, 0);
    s->fat_sectors += 2;
  }
  return client_wait (s->client, 0);
}

int
stream_append_group (struct stream *s, struct volume_file *file,
                     uint32_t max, bool batched)
{
  struct volume *v = s->volume;
  uint32_t step = SECTOR / 4;
  uint32_t first, dirty, end, cluster;

  first = v->next_cluster;
  dirty = file->nr_clusters > 0 ? first - 1 : first;
  end = (uint32_t) min_u64 (align_down (dirty, step) + GROUP_SECTORS * step,
                            (uint64_t) first + max);
  for (cluster = first; cluster < end; cluster++) {
    if (file->nr_clusters++ == 0)
      file->first = cluster;
    else
      volume_set_entry (v, cluster - 1, cluster);
  }
  volume_set_entry (v, end - 1, FAT_END_MARK);
  v->next_cluster = end;
  return send_group (s, dirty, end - 1, batched);
}

static int
stream_flush (struct stream *s)
{
  if (s->durable != DURABLE_FLUSH)
    return s->client->status;
  return client_run (s->client, &(struct request) { .type = REQUEST_FLUSH });
}

int
stream_sync_file (struct stream *s, const struct volume_file *file)
{
  volume_update_file (s->volume, file);
  stream_sector (s, file->entry);
  return stream_flush (s);
}

int
stream_truncate (struct stream *s, struct volume_file *file)
{
  uint32_t group = GROUP_SECTORS * (SECTOR / 4);
  uint32_t cluster, end, last, i;

  cluster = file->first;
  last = s->volume->next_cluster - 1;
  s->volume->next_cluster = file->first;
  file->first = file->nr_clusters = 0;
  file->size = 0;
  stream_sync_file (s, file);
  while (s->client->status == 0 && cluster <= last) {
    end = (uint32_t) min_u64 (align_down (cluster, SECTOR / 4) + group,
                              (uint64_t) last + 1);
    for (i = cluster; i < end; i++)
      volume_set_entry (s->volume, i, 0);
    send_group (s, cluster, end - 1, false);
    cluster = end;
  }
  return s->client->status;
}

int
stream_sync (struct stream *s)
{
  volume_update_fsinfo (s->volume);
  return stream_sector (s, s->volume->bpb.fsinfo_sector * (uint64_t) SECTOR);
}
