/* SPDX-License-Identifier: BSD-3-Clause */

/* What a guest sent once, sent again: offsets, lengths, flags, and what was
 * in flight with what.
 */

#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "bench-fat.h"
#include "trace.h"
#include "util.h"

struct replay {
  struct trace trace;
  struct client client;
  struct flight {
    const struct trace_op *op;
    uint8_t *buf;
    bool sent, answered;
  } *flights;                   /* one for each request */
  uint8_t *expected;            /* all of the device */
  uint8_t *unknown;             /* a byte for each sector that was trimmed */
  int fd;                       /* 'expected' is this file */
  char path[64];
  uint64_t seed;
  uint64_t fat_start, fat_end;  /* of both FATs; 0, 0: not a FAT32 volume */
};

static void
set_defaults (struct bench_options *o)
{
  o->concurrency = CONCURRENCY_RECORDED;
}

static int
check (const struct bench_options *o)
{
  if (o->trace == NULL) {
    bench_error ("replay needs --trace=FILE");
    return BENCH_USAGE;
  }
  return 0;
}

/* Where the FATs are, if the trace tells, to count the writes there. */
static void
find_fats (struct replay *r)
{
  struct bpb bpb;

  if (r->trace.size < BPB_SECTOR_SIZE ||
      bpb_parse (r->expected, r->trace.size, &bpb) != BPB_FAT32)
    return;
  r->fat_start = bpb_fat_start (&bpb, 0);
  r->fat_end = bpb_data_start (&bpb);
}

static uint64_t
count_fat_sectors (const struct replay *r, const struct trace_op *op)
{
  uint64_t start = max_u64 (op->offset, r->fat_start);
  uint64_t end = min_u64 (op->offset + op->length, r->fat_end);

  return op->type == REQUEST_WRITE && start < end
    ? (end - start) / SECTOR : 0;
}

static int
prepare (struct replay *r, uint64_t export_size)
{
  const struct trace *t = &r->trace;
  size_t i;

  if (t->size > export_size) {
    bench_error ("the export has %" PRIu64 " bytes, but the trace is of a "
                 "device with %" PRIu64, export_size, t->size);
    return BENCH_SERVER;
  }
  r->fd = open_temporary (r->path);
  if (r->fd == -1)
    return BENCH_SERVER;
  r->flights = calloc (t->nr_ops, sizeof *r->flights);
  r->unknown = calloc (t->size / SECTOR + 1, 1);
  if (ftruncate (r->fd, (off_t) t->size) == 0)
    r->expected = mmap (NULL, t->size, PROT_READ | PROT_WRITE, MAP_SHARED,
                        r->fd, 0);
  if (!r->flights || !r->unknown || !r->expected ||
      r->expected == MAP_FAILED) {
    bench_error ("memory for a device of %" PRIu64 " bytes: %s", t->size,
                 strerror (errno));
    return BENCH_SERVER;
  }
  for (i = 0; i < t->nr_initial; i++)
    trace_apply (t->initial[i].data, r->expected + t->initial[i].offset,
                 t->initial[i].length);
  find_fats (r);
  client_write_pieces (&r->client, r->expected, t->size, 0);
  return client_flush (&r->client);
}

static void
flight_done (void *opaque)
{
  struct flight *f = opaque;

  f->answered = true;
  free (f->buf);
  f->buf = NULL;
}

/* Two overlapping requests in flight would leave unknown bytes. */
static bool
overlaps_earlier (const struct replay *r, size_t nr, size_t oldest)
{
  const struct trace_op *op = &r->trace.ops[nr], *other;
  size_t i;

  for (i = oldest; i < nr; i++) {
    other = &r->trace.ops[i];
    if (!r->flights[i].answered && op->offset < other->offset + other->length
        && other->offset < op->offset + op->length)
      return true;
  }
  return false;
}

static void
mark_known (struct replay *r, const struct trace_op *op, uint8_t unknown)
{
  uint64_t first = op->offset / SECTOR;
  uint64_t end = (op->offset + op->length + SECTOR - 1) / SECTOR;

  /* Only whole sectors become known. */
  if (!unknown) {
    first = (op->offset + SECTOR - 1) / SECTOR;
    end = (op->offset + op->length) / SECTOR;
  }
  if (first < end)
    memset (r->unknown + first, unknown, end - first);
}

static int
send_op (struct replay *r, size_t nr)
{
  const struct trace_op *op = &r->trace.ops[nr];
  struct flight *f = &r->flights[nr];
  uint8_t *place = r->expected + op->offset;

  if (op->type == REQUEST_WRITE) {
    f->buf = malloc (align_up (op->length + 1, 8));
    if (f->buf == NULL) {
      bench_error ("out of memory");
      return BENCH_SERVER;
    }
    if (op->data == NULL)
      bench_fill (f->buf, align_up (op->length, 8), r->seed + nr);
    else {
      memcpy (f->buf, place, op->length);
      trace_apply (op->data, f->buf, op->length);
    }
    memcpy (place, f->buf, op->length);
  }
  else if (op->type == REQUEST_ZERO)
    memset (place, 0, op->length);
  if (op->type != REQUEST_FLUSH)
    mark_known (r, op, op->type == REQUEST_TRIM);
  f->sent = true;
  return client_submit (&r->client, &(struct request) {
      .type = op->type, .fua = op->fua, .offset = op->offset,
      .length = op->length, .data = f->buf, .done = flight_done, .opaque = f
    });
}

static int
wait_before (struct replay *r, const struct bench_options *o, size_t nr,
             size_t *oldest)
{
  const struct trace_op *op = &r->trace.ops[nr];
  struct client *client = &r->client;
  size_t i;

  if (op->wait_all || o->concurrency == CONCURRENCY_SERIAL)
    client_wait (client, 0);
  for (i = 0; i < op->nr_waits; i++)
    while (client->status == 0 &&
           !r->flights[r->trace.waits[op->first_wait + i]].answered)
      client_wait_any (client);
  while (*oldest < nr && r->flights[*oldest].answered)
    ++*oldest;
  while (client->status == 0 && overlaps_earlier (r, nr, *oldest))
    client_wait_any (client);
  return client->status;
}

static int
send_all (struct replay *r, const struct bench_options *o,
          struct bench_result *result)
{
  uint64_t began = bench_now_ns ();
  size_t nr, oldest = 0;
  int status = 0;

  r->client.timed = true;
  r->client.latency = &result->latency;
  for (nr = 0; nr < r->trace.nr_ops && status == 0; nr++) {
    status = wait_before (r, o, nr, &oldest);
    if (status == 0)
      status = send_op (r, nr);
    result->fat_sectors += count_fat_sectors (r, &r->trace.ops[nr]);
    progress_show ("replay", (double) nr, (double) r->trace.nr_ops);
  }
  if (status == 0)
    status = client_wait (&r->client, 0);
  r->client.timed = false;
  result->seconds = (double) (bench_now_ns () - began) / 1e9;
  client_add_to_result (&r->client, result);
  progress_end ();
  return status;
}

static int
check_device (struct replay *r, struct bench_result *result)
{
  const size_t piece = 1 << 20;
  CLEANUP_FREE uint8_t *got = malloc (piece);
  uint64_t at, n, i;

  if (got == NULL) {
    bench_error ("out of memory");
    return BENCH_SERVER;
  }
  for (at = 0; at < r->trace.size; at += n) {
    n = min_u64 (piece, r->trace.size - at);
    if (client_read (&r->client, got, n, at) != 0)
      return r->client.status;
    if (memcmp (got, r->expected + at, n) == 0)
      continue;
    for (i = 0; i < n; i++) {
      if (got[i] != r->expected[at + i] && !r->unknown[(at + i) / SECTOR]) {
        bench_error ("byte %#" PRIx64 " of the export is 0x%02x, but 0x%02x "
                     "was written", at + i, got[i], r->expected[at + i]);
        result->data = "failed";
        return BENCH_CHECK_FAILED;
      }
    }
    memcpy (r->expected + at, got, n);
  }
  result->data = "ok";
  return r->trace.fsck ? run_fsck (r->path, result) : 0;
}

static void
replay_release (struct replay *r)
{
  size_t i;

  client_close (&r->client);
  for (i = 0; r->flights && i < r->trace.nr_ops; i++)
    free (r->flights[i].buf);
  free (r->flights);
  free (r->unknown);
  if (r->expected && r->expected != MAP_FAILED)
    munmap (r->expected, r->trace.size);
  if (r->fd >= 0)
    close (r->fd);
  trace_release (&r->trace);
}

/* What the trace needs must be offered. */
static int
check_server (const struct replay *r, const struct bench_server *server)
{
  size_t i;
  int status = 0;

  for (i = 0; i < r->trace.nr_ops && status == 0; i++) {
    if (r->trace.ops[i].fua)
      status = bench_check_durable (DURABLE_FUA, server);
    else if (r->trace.ops[i].type == REQUEST_FLUSH)
      status = bench_check_durable (DURABLE_FLUSH, server);
  }
  return status;
}

static int
run (const struct bench_options *o, struct bench_server *server,
     struct bench_result *result)
{
  struct replay r = { .fd = -1, .seed = o->seed };
  int status;

  status = trace_read (&r.trace, o->trace);
  if (status == 0)
    status = client_connect (&r.client, o->uri);
  if (status == 0)
    status = client_describe (&r.client, server);
  if (status == 0)
    status = check_server (&r, server);
  if (status == 0)
    status = prepare (&r, server->size);
  if (status == 0)
    status = send_all (&r, o, result);
  if (status == 0 && o->verify)
    status = check_device (&r, result);
  replay_release (&r);
  return status;
}

const struct bench_workload workload_replay = {
  .name = "replay",
  .options = OPTION_TRACE | OPTION_CONCURRENCY,
  .set_defaults = set_defaults,
  .check = check,
  .run = run,
};
