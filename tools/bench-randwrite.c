/* SPDX-License-Identifier: BSD-3-Clause */

/* Random writes inside a file, that is, in front of its EOF: no metadata
 * changes.  With --metadata another file grows meanwhile on a connection of
 * its own, each FAT sector with FUA.
 */

#include <config.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench-stream.h"
#include "bench-writers.h"
#include "util.h"

#define METADATA_CLUSTERS 16384 /* then it is truncated, and grows again */

struct beside {
  struct stream stream;
  struct client client;
  struct bench_result *result;
};

static void
set_defaults (struct bench_options *o)
{
  o->size = UINT64_C (128) << 20;
  o->cluster = 4096;
  o->bs = 4096;
  o->jobs = 1;
  o->iodepth = 1;
  o->runtime = 10;
}

/* fio: randwrite, 8 jobs, iodepth 32, 4 KiB.  (There on a file of 16 GB: a
 * file on FAT32 has less than 4.)
 */
static bool
apply_preset (struct bench_options *o, const char *name)
{
  if (strcmp (name, "published") != 0)
    return false;
  o->jobs = 8;
  o->iodepth = 32;
  o->bs = 4096;
  return true;
}

static int
check (const struct bench_options *o)
{
  if (o->bs % 8 != 0) {
    bench_error ("--bs=%" PRIu64 ": a multiple of 8 is needed", o->bs);
    return BENCH_USAGE;
  }
  if (o->size > UINT32_MAX) {
    bench_error ("--size=%" PRIu64 ": a file on FAT32 has at most "
                 "4294967295 bytes", o->size);
    return BENCH_USAGE;
  }
  if (o->size / o->bs < o->jobs * o->iodepth) {
    bench_error ("--size=%" PRIu64 ": too small for %" PRIu64 " jobs with %"
                 PRIu64 " requests of %" PRIu64 " bytes in flight", o->size,
                 o->jobs, o->iodepth, o->bs);
    return BENCH_USAGE;
  }
  return 0;
}

/* The file grows until there is no room, is truncated, and so on. */
static int
grow_beside (void *opaque, atomic_bool *stop)
{
  struct beside *b = opaque;
  struct stream *s = &b->stream;
  struct volume_file file;

  b->client.timed = true;
  b->client.latency = &b->result->metadata_latency;
  stream_create (s, "META", &file);
  while (b->client.status == 0 && !atomic_load (stop)) {
    if (file.nr_clusters == METADATA_CLUSTERS)
      stream_truncate (s, &file);
    stream_append_cluster (s, &file);
  }
  stream_sync_file (s, &file);
  stream_sync (s);
  b->client.timed = false;
  b->result->fat_sectors = s->fat_sectors;
  b->result->metadata_fua = b->client.fua;
  return b->client.status;
}

/* The volume with its file, all clusters in front of EOF. */
static int
make_file (struct volume *volume, struct client *client,
           const struct bench_options *o, uint64_t export_size,
           uint64_t *start)
{
  uint64_t clusters = (o->size + o->cluster - 1) / o->cluster;
  struct volume_file file;
  int status;

  status = volume_make (volume, client, export_size, (uint32_t) o->cluster,
                        clusters + (o->metadata ? METADATA_CLUSTERS : 0), 2);
  if (status != 0)
    return status;
  volume_create_file (volume, "DATA", &file);
  volume_append_clusters (volume, &file, (uint32_t) clusters);
  file.size = o->size;
  volume_update_file (volume, &file);
  volume_update_fsinfo (volume);
  *start = volume_file_offset (volume, &file);
  return volume_write (volume, client);
}

static int
run_writers (struct writers *w, struct beside *b,
             const struct bench_options *o, struct bench_result *result)
{
  int status = writers_init (w);

  if (status == 0 && o->metadata) {
    w->beside = grow_beside;
    w->opaque = b;
    result->has_metadata = true;
    status = client_connect (&b->client, o->uri);
  }
  if (status == 0)
    status = writers_run (w, result);
  return status;
}

static int
run (const struct bench_options *o, struct bench_server *server,
     struct bench_result *result)
{
  struct client client;
  struct volume volume = { .metadata = NULL };
  struct writers w = {
    .name = "randwrite", .uri = o->uri, .nr = (unsigned) o->jobs,
    .depth = (unsigned) o->iodepth, .nr_blocks = o->size / o->bs,
    .bs = (uint32_t) o->bs, .stride = o->bs, .runtime = o->runtime,
    .seed = o->seed
  };
  struct beside b = { .result = result, .client = { .nbd = NULL } };
  int status, metadata;

  b.stream = (struct stream) {
    .volume = &volume, .client = &b.client, .durable = DURABLE_FUA
  };
  status = client_connect (&client, o->uri);
  if (status == 0)
    status = client_describe (&client, server);
  if (status == 0 && o->metadata)
    status = bench_check_durable (DURABLE_FUA, server);
  if (status == 0)
    status = make_file (&volume, &client, o, server->size, &w.start);
  if (status == 0)
    status = run_writers (&w, &b, o, result);
  if (status == 0)
    status = client_flush (&client);
  if (status == 0 && o->verify) {
    status = writers_check (&w, &client, result);
    metadata = status == BENCH_SERVER ? status
      : volume_check (&volume, &client, result);
    if (metadata != 0)
      status = metadata;
  }
  client_close (&b.client);
  client_close (&client);
  writers_release (&w);
  volume_release (&volume);
  return status;
}

const struct bench_workload workload_randwrite = {
  .name = "randwrite",
  .options = OPTION_JOBS | OPTION_IODEPTH | OPTION_BS | OPTION_RUNTIME |
             OPTION_SIZE | OPTION_CLUSTER | OPTION_METADATA | OPTION_PRESET,
  .presets = "published",
  .set_defaults = set_defaults,
  .apply_preset = apply_preset,
  .check = check,
  .run = run,
};
