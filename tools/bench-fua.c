/* SPDX-License-Identifier: BSD-3-Clause */

/* Clients that each overwrite one place, again and again, each write with
 * FUA: what a sync costs, alone and shared.
 */

#include <config.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bench-fat.h"
#include "bench-writers.h"
#include "util.h"

static void
set_defaults (struct bench_options *o)
{
  o->clients = 1;
  o->bs = 512;
  o->cluster = 512;
  o->runtime = 5;
}

static int
check (const struct bench_options *o)
{
  if (o->bs % 8 != 0) {
    bench_error ("--bs=%" PRIu64 ": a multiple of 8 is needed", o->bs);
    return BENCH_USAGE;
  }
  return 0;
}

/* Far enough apart that no two are in one page, or one block of a disk. */
static uint64_t
place_size (const struct bench_options *o)
{
  return align_up (o->bs, 65536);
}

static int
make_file (struct volume *volume, struct client *client,
           const struct bench_options *o, uint64_t export_size,
           uint64_t *start)
{
  uint64_t size = o->clients * place_size (o);
  uint64_t clusters = (size + o->cluster - 1) / o->cluster;
  struct volume_file file;
  int status;

  status = volume_make (volume, client, export_size, (uint32_t) o->cluster,
                        clusters, 1);
  if (status != 0)
    return status;
  volume_create_file (volume, "DATA", &file);
  volume_append_clusters (volume, &file, (uint32_t) clusters);
  file.size = size;
  volume_update_file (volume, &file);
  volume_update_fsinfo (volume);
  *start = volume_file_offset (volume, &file);
  return volume_write (volume, client);
}

static int
run (const struct bench_options *o, struct bench_server *server,
     struct bench_result *result)
{
  struct client client;
  struct volume volume = { .metadata = NULL };
  struct writers w = {
    .name = "fua", .uri = o->uri, .nr = (unsigned) o->clients, .depth = 1,
    .nr_blocks = o->clients, .bs = (uint32_t) o->bs,
    .stride = place_size (o), .fua = true,
    .runtime = o->count ? 0 : o->runtime, .count = o->count,
    .seed = o->seed
  };
  int status, metadata;

  status = client_connect (&client, o->uri);
  if (status == 0)
    status = client_describe (&client, server);
  if (status == 0)
    status = bench_check_durable (DURABLE_FUA, server);
  if (status == 0)
    status = make_file (&volume, &client, o, server->size, &w.start);
  if (status == 0)
    status = writers_init (&w);
  if (status == 0)
    status = writers_fill (&w, &client);
  if (status == 0)
    status = writers_run (&w, result);
  if (status == 0 && o->verify) {
    status = writers_check (&w, &client, result);
    metadata = status == BENCH_SERVER ? status
      : volume_check (&volume, &client, result);
    if (metadata != 0)
      status = metadata;
  }
  client_close (&client);
  writers_release (&w);
  volume_release (&volume);
  return status;
}

const struct bench_workload workload_fua = {
  .name = "fua",
  .options = OPTION_CLIENTS | OPTION_BS | OPTION_RUNTIME | OPTION_COUNT |
             OPTION_CLUSTER,
  .set_defaults = set_defaults,
  .check = check,
  .run = run,
};
