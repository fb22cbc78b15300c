/* SPDX-License-Identifier: BSD-3-Clause */

/* One file growing, by write(2) after write(2), on a volume mounted
 * -o sync: for each, the clusters in both FATs, the data, the directory
 * entry.
 */

#include <config.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench-stream.h"
#include "util.h"

static void
set_defaults (struct bench_options *o)
{
  o->size = UINT64_C (1) << 20;
  o->cluster = 4096;
  o->bs = 4096;
}

static int
check (const struct bench_options *o)
{
  if (o->bs % 512 != 0) {
    bench_error ("--bs=%" PRIu64 ": a multiple of 512 is needed", o->bs);
    return BENCH_USAGE;
  }
  if (o->size > UINT32_MAX) {
    bench_error ("--size=%" PRIu64 ": a file on FAT32 has at most "
                 "4294967295 bytes", o->size);
    return BENCH_USAGE;
  }
  return 0;
}

/* One write(2).  Returns the nanoseconds that its requests took together. */
static uint64_t
write_piece (struct stream *s, const struct bench_options *o,
             struct volume_file *file, uint8_t *buf)
{
  uint64_t length = min_u64 (o->bs, align_up (o->size - file->size, 512));
  uint64_t clusters = (file->size + length + o->cluster - 1) / o->cluster;
  uint64_t began;

  bench_fill (buf, length, o->seed + file->size);
  began = bench_now_ns ();
  while (file->nr_clusters < clusters && s->client->status == 0)
    stream_append_cluster (s, file);
  client_run (s->client, &(struct request) {
      .type = REQUEST_WRITE, .fua = s->durable == DURABLE_FUA,
      .offset = volume_file_offset (s->volume, file) + file->size,
      .length = (uint32_t) length, .data = buf
    });
  file->size = min_u64 (file->size + length, o->size);
  stream_sync_file (s, file);
  return bench_now_ns () - began;
}

static int
send_stream (struct stream *s, const struct bench_options *o,
             struct volume_file *file, uint8_t *buf,
             struct bench_result *result)
{
  uint64_t nr = (o->size + o->bs - 1) / o->bs;
  uint64_t tenth = max_u64 (1, nr / 10);
  uint64_t began = bench_now_ns (), first = 0, last = 0, i, ns;

  s->client->timed = true;
  s->client->latency = &result->latency;
  stream_create (s, "GROW", file);
  for (i = 0; i < nr && s->client->status == 0; i++) {
    ns = write_piece (s, o, file, buf);
    first += i < tenth ? ns : 0;
    last += i >= nr - tenth ? ns : 0;
    progress_show ("append", (double) file->size, (double) o->size);
  }
  stream_sync (s);
  s->client->timed = false;
  result->seconds = (double) (bench_now_ns () - began) / 1e9;
  result->fat_sectors = s->fat_sectors;
  result->has_tenths = true;
  result->first_tenth_us = (double) first / (double) tenth / 1e3;
  result->last_tenth_us = (double) last / (double) tenth / 1e3;
  client_add_to_result (s->client, result);
  progress_end ();
  return s->client->status;
}

static int
check_data (struct stream *s, const struct bench_options *o,
            const struct volume_file *file, struct bench_result *result)
{
  CLEANUP_FREE uint8_t *want = malloc (o->bs);
  CLEANUP_FREE uint8_t *got = malloc (o->bs);
  uint64_t start = volume_file_offset (s->volume, file);
  uint64_t at, n;
  int status;

  if (want == NULL || got == NULL) {
    bench_error ("out of memory");
    return BENCH_SERVER;
  }
  for (at = 0; at < o->size; at += n) {
    n = min_u64 (o->bs, align_up (o->size - at, 512));
    bench_fill (want, n, o->seed + at);
    status = client_read (s->client, got, n, start + at);
    if (status != 0)
      return status;
    if (memcmp (want, got, n) != 0) {
      bench_error ("the %" PRIu64 " bytes at %#" PRIx64
                   " of the export are not what was written", n, start + at);
      result->data = "failed";
      return BENCH_CHECK_FAILED;
    }
  }
  return 0;
}

static int
run (const struct bench_options *o, struct bench_server *server,
     struct bench_result *result)
{
  CLEANUP_FREE uint8_t *buf = malloc (o->bs);
  struct client client;
  struct volume volume = { .metadata = NULL };
  struct volume_file file;
  struct stream s = {
    .volume = &volume, .client = &client, .durable = o->durable
  };
  int status, metadata;

  status = client_connect (&client, o->uri);
  if (status == 0 && buf == NULL) {
    bench_error ("out of memory");
    status = BENCH_SERVER;
  }
  if (status == 0)
    status = client_describe (&client, server);
  if (status == 0)
    status = bench_check_durable (o->durable, server);
  if (status == 0)
    status = volume_make (&volume, &client, server->size,
                          (uint32_t) o->cluster,
                          (o->size + o->cluster - 1) / o->cluster, 1);
  if (status == 0)
    status = send_stream (&s, o, &file, buf, result);
  if (status == 0 && o->verify) {
    status = check_data (&s, o, &file, result);
    metadata = status == BENCH_SERVER ? status
      : volume_check (&volume, &client, result);
    if (metadata != 0)
      status = metadata;
  }
  client_close (&client);
  volume_release (&volume);
  return status;
}

const struct bench_workload workload_append = {
  .name = "append",
  .options = OPTION_SIZE | OPTION_CLUSTER | OPTION_BS | OPTION_DURABLE,
  .set_defaults = set_defaults,
  .check = check,
  .run = run,
};
