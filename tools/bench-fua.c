/* SPDX-License-Identifier: BSD-3-Clause */

/* Clients that each overwrite one place, again and again, each write with
 * FUA: what a sync costs, alone and shared, and with --dirty how much of it
 * is the sync of what others have written.
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

/* Bytes that are written without FUA or FLUSH before the timed part: they
 * lie behind the volume, so that they are nobody's metadata.
 */
struct dirty {
  uint64_t start, size;         /* on the export; size may be 0 */
  uint8_t *piece;               /* DIRTY_PIECE bytes, again and again */
};

#define DIRTY_PIECE (UINT32_C (1) << 20)
#define DIRTY_IN_FLIGHT 16

static int
dirty_init (struct dirty *d, const struct bench_options *o,
            const struct volume *volume, uint64_t export_size)
{
  d->start = align_up (volume->size, DIRTY_PIECE);
  d->size = o->dirty;
  if (d->size == 0)
    return 0;
  if (d->start > export_size || d->size > export_size - d->start) {
    bench_error ("the export has %" PRIu64 " bytes, but %" PRIu64
                 " are needed for --dirty=%" PRIu64 " behind the volume",
                 export_size, d->start + d->size, d->size);
    return BENCH_SERVER;
  }
  d->piece = malloc (DIRTY_PIECE);
  if (d->piece == NULL) {
    bench_error ("out of memory");
    return BENCH_SERVER;
  }
  bench_fill (d->piece, DIRTY_PIECE, o->seed);
  return 0;
}

static int
dirty_write (const struct dirty *d, struct client *client)
{
  uint64_t done, n;

  for (done = 0; done < d->size && client->status == 0; done += n) {
    n = min_u64 (DIRTY_PIECE, d->size - done);
    client_submit (client, &(struct request) {
        .type = REQUEST_WRITE, .offset = d->start + done,
        .length = (uint32_t) n, .data = d->piece
      });
    client_wait (client, DIRTY_IN_FLIGHT - 1);
    progress_show ("dirty", (double) done, (double) d->size);
  }
  return client_wait (client, 0);
}

static int
dirty_check (const struct dirty *d, struct client *client,
             struct bench_result *result)
{
  CLEANUP_FREE uint8_t *got = d->size ? malloc (DIRTY_PIECE) : NULL;
  uint64_t done, n;

  if (d->size && got == NULL) {
    bench_error ("out of memory");
    return BENCH_SERVER;
  }
  for (done = 0; done < d->size; done += n) {
    n = min_u64 (DIRTY_PIECE, d->size - done);
    if (client_read (client, got, n, d->start + done) != 0)
      return client->status;
    if (memcmp (got, d->piece, n) != 0) {
      bench_error ("the %" PRIu64 " bytes at %#" PRIx64 " of the export, "
                   "of --dirty, are not what was written", n,
                   d->start + done);
      result->data = "failed";
      return BENCH_CHECK_FAILED;
    }
  }
  return 0;
}

/* What two checks come to. */
static int
worse (int a, int b)
{
  return a == BENCH_SERVER || b == 0 ? a : b;
}

static int
check_all (const struct writers *w, const struct dirty *d,
           const struct volume *volume, struct client *client,
           struct bench_result *result)
{
  int status = writers_check (w, client, result);

  if (status != BENCH_SERVER)
    status = worse (status, dirty_check (d, client, result));
  if (status != BENCH_SERVER)
    status = worse (status, volume_check (volume, client, result));
  return status;
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
  struct dirty dirty = { .size = 0 };
  int status;

  status = client_connect (&client, o->uri);
  if (status == 0)
    status = client_describe (&client, server);
  if (status == 0)
    status = bench_check_durable (DURABLE_FUA, server);
  if (status == 0)
    status = make_file (&volume, &client, o, server->size, &w.start);
  if (status == 0)
    status = dirty_init (&dirty, o, &volume, server->size);
  if (status == 0)
    status = writers_init (&w);
  if (status == 0)
    status = writers_fill (&w, &client);
  if (status == 0)
    status = dirty_write (&dirty, &client);
  if (status == 0)
    status = writers_run (&w, result);
  if (status == 0 && o->verify)
    status = check_all (&w, &dirty, &volume, &client, result);
  client_close (&client);
  writers_release (&w);
  volume_release (&volume);
  free (dirty.piece);
  return status;
}

const struct bench_workload workload_fua = {
  .name = "fua",
  .options = OPTION_CLIENTS | OPTION_BS | OPTION_RUNTIME | OPTION_COUNT |
             OPTION_CLUSTER | OPTION_DIRTY,
  .set_defaults = set_defaults,
  .check = check,
  .run = run,
};
