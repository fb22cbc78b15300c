/* SPDX-License-Identifier: BSD-3-Clause */

/* fallocate (FALLOC_FL_KEEP_SIZE) of files on a volume mounted -o sync. */

#include <config.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench-stream.h"
#include "util.h"

static void
set_defaults (struct bench_options *o)
{
  o->files = 16;
  o->size = UINT64_C (1) << 20;
  o->cluster = 4096;
}

static bool
apply_preset (struct bench_options *o, const char *name)
{
  static const struct {
    const char *name;
    uint64_t size, cluster;
  } presets[] = {
    { "256M-512", UINT64_C (256) << 20, 512 },
    { "256M-4K", UINT64_C (256) << 20, 4096 },
    { "1M-512", UINT64_C (1) << 20, 512 },
    { "1M-4K", UINT64_C (1) << 20, 4096 },
  };
  size_t i;

  for (i = 0; i < sizeof presets / sizeof presets[0]; i++) {
    if (strcmp (name, presets[i].name) == 0) {
      o->files = 16;
      o->size = presets[i].size;
      o->cluster = presets[i].cluster;
      return true;
    }
  }
  return false;
}

static uint64_t
clusters_of_file (const struct bench_options *o)
{
  return (o->size + o->cluster - 1) / o->cluster;
}

static int
send_file (struct stream *s, const struct bench_options *o)
{
  struct volume_file file;
  uint64_t want = clusters_of_file (o);
  uint64_t all = want * o->files * (o->guest == GUEST_6_1 ? 4 : 1);
  uint64_t first = s->volume->root_clusters + 2;

  stream_create (s, "FILE", &file);
  while (s->client->status == 0 && file.nr_clusters < want &&
         (o->limit == 0 || s->fat_sectors < o->limit)) {
    if (o->guest == GUEST_6_1)
      stream_append_cluster (s, &file);
    else
      stream_append_group (s, &file, (uint32_t) (want - file.nr_clusters),
                           o->guest == GUEST_BATCHED);
    if (o->limit)
      progress_show ("fallocate", (double) s->fat_sectors,
                     (double) o->limit);
    else
      progress_show ("fallocate", (double) (s->volume->next_cluster - first)
                     * (o->guest == GUEST_6_1 ? 4 : 1), (double) all);
  }
  return stream_sync_file (s, &file);
}

static int
send_stream (struct stream *s, const struct bench_options *o,
             struct bench_result *result)
{
  uint64_t began = bench_now_ns ();
  uint64_t i;

  s->client->timed = true;
  s->client->latency = &result->latency;
  for (i = 0; i < o->files && s->client->status == 0 &&
         (o->limit == 0 || s->fat_sectors < o->limit); i++)
    send_file (s, o);
  stream_sync (s);
  s->client->timed = false;
  result->seconds = (double) (bench_now_ns () - began) / 1e9;
  result->fat_sectors = s->fat_sectors;
  client_add_to_result (s->client, result);
  progress_end ();
  return s->client->status;
}

static int
run (const struct bench_options *o, struct bench_server *server,
     struct bench_result *result)
{
  struct client client;
  struct volume volume = { .metadata = NULL };
  struct stream s = {
    .volume = &volume, .client = &client, .durable = o->durable
  };
  int status;

  status = client_connect (&client, o->uri);
  if (status == 0)
    status = client_describe (&client, server);
  if (status == 0)
    status = bench_check_durable (o->durable, server);
  if (status == 0)
    status = volume_make (&volume, &client, server->size,
                          (uint32_t) o->cluster,
                          clusters_of_file (o) * o->files, o->files);
  if (status == 0)
    status = send_stream (&s, o, result);
  if (status == 0 && o->verify)
    status = volume_check (&volume, &client, result);
  client_close (&client);
  volume_release (&volume);
  return status;
}

const struct bench_workload workload_fallocate = {
  .name = "fallocate",
  .options = OPTION_FILES | OPTION_SIZE | OPTION_CLUSTER | OPTION_GUEST |
             OPTION_DURABLE | OPTION_PRESET | OPTION_LIMIT,
  .presets = "256M-512, 256M-4K, 1M-512, 1M-4K",
  .set_defaults = set_defaults,
  .apply_preset = apply_preset,
  .run = run,
};
