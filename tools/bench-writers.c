/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench-writers.h"
#include "util.h"

struct writer_slot {
  struct writer *writer;
  struct writer_slot *next;     /* free ones */
  uint64_t block;               /* UINT64_MAX: free */
  uint8_t *buf;
};

static void
fill_block (const struct writers *w, uint8_t *buf, uint64_t block)
{
  uint64_t seed = w->seed ^ block << 24 ^ w->generations[block];

  bench_fill (buf, w->bs, bench_random (&seed));
}

/* How many blocks are filled and checked by one request: 1 MiB of them, if
 * they lie together.
 */
static uint64_t
blocks_in_piece (const struct writers *w)
{
  return w->stride > w->bs ? 1 : max_u64 (1, (UINT32_C (1) << 20) / w->bs);
}

static int
no_memory (void)
{
  bench_error ("out of memory");
  return BENCH_SERVER;
}

static int
writer_init (struct writer *writer, struct writers *all, unsigned number)
{
  unsigned i;

  writer->all = all;
  writer->number = number;
  writer->slots = calloc (all->depth, sizeof *writer->slots);
  writer->buffers = malloc ((size_t) all->depth * all->bs);
  if (writer->slots == NULL || writer->buffers == NULL)
    return no_memory ();
  for (i = 0; i < all->depth; i++) {
    writer->slots[i] = (struct writer_slot) {
      .writer = writer, .block = UINT64_MAX, .next = writer->free_slots,
      .buf = writer->buffers + (size_t) i * all->bs
    };
    writer->free_slots = &writer->slots[i];
  }
  writer->client.latency = NULL;
  return client_connect (&writer->client, all->uri);
}

int
writers_init (struct writers *w)
{
  unsigned i;
  int status;

  w->writers = calloc (w->nr, sizeof *w->writers);
  w->generations = calloc (w->nr_blocks, sizeof *w->generations);
  if (w->writers == NULL || w->generations == NULL)
    return no_memory ();
  for (i = 0; i < w->nr; i++) {
    status = writer_init (&w->writers[i], w, i);
    if (status != 0)
      return status;
  }
  return 0;
}

void
writers_release (struct writers *w)
{
  unsigned i;

  for (i = 0; w->writers && i < w->nr; i++) {
    client_close (&w->writers[i].client);
    free (w->writers[i].slots);
    free (w->writers[i].buffers);
  }
  free (w->writers);
  free (w->generations);
}

static void
slot_done (void *opaque)
{
  struct writer_slot *slot = opaque;

  slot->block = UINT64_MAX;
  slot->next = slot->writer->free_slots;
  slot->writer->free_slots = slot;
}

static bool
block_in_flight (const struct writer *writer, uint64_t block)
{
  unsigned i;

  for (i = 0; i < writer->all->depth; i++)
    if (writer->slots[i].block == block)
      return true;
  return false;
}

static uint64_t
choose_block (const struct writer *writer, uint64_t *random)
{
  const struct writers *w = writer->all;
  uint64_t nr = w->nr_blocks / w->nr;
  uint64_t block;

  do
    block = bench_random (random) % nr * w->nr + writer->number;
  while (block_in_flight (writer, block));
  return block;
}

static void
write_one (struct writer *writer, uint64_t *random)
{
  struct writers *w = writer->all;
  uint64_t block = choose_block (writer, random);
  struct writer_slot *slot = writer->free_slots;

  writer->free_slots = slot->next;
  slot->block = block;
  w->generations[block]++;
  fill_block (w, slot->buf, block);
  client_submit (&writer->client, &(struct request) {
      .type = REQUEST_WRITE, .fua = w->fua,
      .offset = w->start + block * w->stride, .length = w->bs,
      .data = slot->buf, .done = slot_done, .opaque = slot
    });
}

static void *
writer_thread (void *opaque)
{
  struct writer *writer = opaque;
  struct writers *w = writer->all;
  struct client *client = &writer->client;
  uint64_t random = w->seed + writer->number + 1;
  uint64_t sent = 0;

  client->latency = &writer->latency;
  client->timed = true;
  pthread_barrier_wait (&w->barrier);
  while (client->status == 0 && !atomic_load (&w->stop) &&
         (w->count == 0 || sent < w->count) &&
         (w->runtime <= 0 || bench_now_ns () < w->deadline)) {
    if (writer->free_slots == NULL) {
      client_wait_any (client);
      continue;
    }
    write_one (writer, &random);
    sent++;
    atomic_fetch_add (&w->written, 1);
  }
  client_wait (client, 0);
  client->timed = false;
  if (client->status != 0) {
    atomic_store (&w->status, client->status);
    atomic_store (&w->stop, true);
  }
  atomic_fetch_sub (&w->running, 1);
  return NULL;
}

static void *
beside_thread (void *opaque)
{
  struct writers *w = opaque;
  int status;

  pthread_barrier_wait (&w->barrier);
  status = w->beside (w->opaque, &w->stop);
  if (status != 0) {
    atomic_store (&w->status, status);
    atomic_store (&w->stop, true);
  }
  return NULL;
}

static void
show_progress (struct writers *w)
{
  struct timespec pause = { .tv_nsec = 2000000 };
  double total;

  while (atomic_load (&w->running) > 0) {
    nanosleep (&pause, NULL);
    total = (double) w->count * w->nr;
    if (w->runtime > 0)
      progress_show (w->name, (double) (bench_now_ns () - w->began) / 1e9,
                     w->runtime);
    else
      progress_show (w->name, (double) atomic_load (&w->written), total);
  }
  progress_end ();
}

/* A thread that can't be started would leave the others at the barrier. */
static void
start_thread (pthread_t *thread, void *(*fn) (void *), void *opaque)
{
  int err = pthread_create (thread, NULL, fn, opaque);

  if (err != 0) {
    bench_error ("pthread_create: %s", strerror (err));
    exit (BENCH_SERVER);
  }
}

int
writers_run (struct writers *w, struct bench_result *result)
{
  pthread_t beside;
  unsigned i;

  pthread_barrier_init (&w->barrier, NULL, w->nr + 1 + (w->beside != NULL));
  atomic_store (&w->running, w->nr);
  w->began = bench_now_ns ();
  w->deadline = w->began + (uint64_t) (w->runtime * 1e9);
  for (i = 0; i < w->nr; i++)
    start_thread (&w->writers[i].thread, writer_thread, &w->writers[i]);
  if (w->beside)
    start_thread (&beside, beside_thread, w);
  pthread_barrier_wait (&w->barrier);
  show_progress (w);
  for (i = 0; i < w->nr; i++)
    pthread_join (w->writers[i].thread, NULL);
  result->seconds = (double) (bench_now_ns () - w->began) / 1e9;
  atomic_store (&w->stop, true);
  if (w->beside)
    pthread_join (beside, NULL);
  pthread_barrier_destroy (&w->barrier);

  for (i = 0; i < w->nr; i++) {
    histogram_merge (&result->latency, &w->writers[i].latency);
    client_add_to_result (&w->writers[i].client, result);
  }
  return atomic_load (&w->status);
}

int
writers_fill (struct writers *w, struct client *client)
{
  uint64_t piece = blocks_in_piece (w), first, i, n;
  CLEANUP_FREE uint8_t *buf = malloc (piece * w->bs);

  if (buf == NULL)
    return no_memory ();
  for (first = 0; first < w->nr_blocks && client->status == 0; first += n) {
    n = min_u64 (piece, w->nr_blocks - first);
    for (i = 0; i < n; i++) {
      w->generations[first + i]++;
      fill_block (w, buf + i * w->bs, first + i);
    }
    client_run (client, &(struct request) {
        .type = REQUEST_WRITE, .offset = w->start + first * w->stride,
        .length = (uint32_t) (n * w->bs), .data = buf
      });
  }
  return client_flush (client);
}

/* In pieces of many blocks, if they lie together; pieces that nothing was
 * written to are not read.
 */
int
writers_check (const struct writers *w, struct client *client,
               struct bench_result *result)
{
  uint64_t piece = blocks_in_piece (w);
  CLEANUP_FREE uint8_t *got = malloc (piece * w->bs);
  CLEANUP_FREE uint8_t *want = malloc (w->bs);
  uint64_t first, i, n;
  bool any;

  if (got == NULL || want == NULL)
    return no_memory ();
  for (first = 0; first < w->nr_blocks; first += n) {
    n = min_u64 (piece, w->nr_blocks - first);
    for (any = false, i = 0; i < n; i++)
      any |= w->generations[first + i] != 0;
    if (any && client_read (client, got, n * w->bs,
                            w->start + first * w->stride) != 0)
      return client->status;
    for (i = 0; any && i < n; i++) {
      if (w->generations[first + i] == 0)
        continue;
      fill_block (w, want, first + i);
      if (memcmp (want, got + i * w->bs, w->bs) != 0) {
        bench_error ("the %" PRIu32 " bytes at %#" PRIx64 " of the export "
                     "are not what was written", w->bs,
                     w->start + (first + i) * w->stride);
        result->data = "failed";
        return BENCH_CHECK_FAILED;
      }
    }
  }
  if (strcmp (result->data, "failed") != 0)
    result->data = "ok";
  return 0;
}
