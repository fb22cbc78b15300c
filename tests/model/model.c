/* SPDX-License-Identifier: BSD-3-Clause */

#define _GNU_SOURCE

#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

static const char *const kind_names[REQUEST_KINDS] = {
  [REQUEST_READ] = "read", [REQUEST_WRITE] = "write",
  [REQUEST_ZERO] = "zero", [REQUEST_TRIM] = "trim",
  [REQUEST_FLUSH] = "flush", [REQUEST_CACHE] = "cache",
  [REQUEST_EXTENTS] = "extents",
};

void
model_init (struct model *m, const struct image *image,
            const struct target_ops *ops, const char *title, uint64_t seed)
{
  memset (m, 0, sizeof *m);
  m->ops = ops;
  m->image = image;
  m->title = title;
  m->seed = seed;
  m->size = image->size;
  m->bytes = test_alloc (m->size);
  m->alt = test_alloc (m->size);
  m->states = test_alloc (m->size);
  m->check = test_alloc (m->size);
  memcpy (m->bytes, image->bytes, m->size);
  pthread_barrier_init (&m->barrier, NULL, MODEL_THREADS);
  pthread_mutex_init (&m->log_lock, NULL);
}

void
model_release (struct model *m)
{
  pthread_barrier_destroy (&m->barrier);
  pthread_mutex_destroy (&m->log_lock);
  free (m->bytes);
  free (m->alt);
  free (m->states);
  free (m->check);
}

/* -- Failing ----------------------------------------------------------- */

void
model_log (struct model *m, unsigned thread, const struct request *r)
{
  pthread_mutex_lock (&m->log_lock);
  m->log[m->log_count++ % MODEL_LOG] = (struct log_entry) {
    .thread = thread, .round = m->round, .kind = r->kind, .flags = r->flags,
    .offset = r->offset, .length = r->length,
    .first = r->kind == REQUEST_WRITE && r->length > 0 ? r->buf[0] : 0,
  };
  pthread_mutex_unlock (&m->log_lock);
}

static void
print_entry (const struct log_entry *e)
{
  fprintf (stderr, "  round %u thread %u: %s%s%s%s [%" PRIu64 ", %" PRIu64
           ")", e->round, e->thread, kind_names[e->kind],
           e->flags & REQUEST_FUA ? " fua" : "",
           e->flags & REQUEST_NO_HOLE ? " no-hole" : "",
           e->flags & REQUEST_FAST ? " fast" : "",
           e->offset, e->offset + e->length);
  if (e->kind == REQUEST_WRITE)
    fprintf (stderr, " first byte 0x%02x", e->first);
  fprintf (stderr, "\n");
}

/* The last requests in the 4 KiB block of pos: neighbours in the block are
 * suspects too.
 */
static void
print_history (struct model *m, uint64_t pos)
{
  uint64_t start = pos - pos % 4096, end = start + 4096;
  unsigned i, first, printed = 0;

  pthread_mutex_lock (&m->log_lock);
  first = m->log_count > MODEL_LOG ? m->log_count - MODEL_LOG : 0;
  fprintf (stderr, "requests near byte %" PRIu64 ", newest first:\n", pos);
  for (i = m->log_count; i > first && printed < 24; --i) {
    const struct log_entry *e = &m->log[(i - 1) % MODEL_LOG];

    if (e->offset < end && start < e->offset + e->length) {
      print_entry (e);
      printed++;
    }
  }
  pthread_mutex_unlock (&m->log_lock);
}

void
model_fail_at (struct model *m, const char *what, uint64_t pos, int expected,
               int got)
{
  print_history (m, pos);
  test_fail ("%s, %s image, round %u: %s: byte %" PRIu64 " (sector %" PRIu64
             " + %" PRIu64 "): expected 0x%02x, got 0x%02x; "
             "replay with FATBATCH_SEED=%" PRIu64,
             m->title, m->image->name, m->round, what, pos, pos / 512,
             pos % 512, expected, got, m->seed);
}

void
model_fail_request (struct model *m, const struct request *r)
{
  print_history (m, r->offset);
  test_fail ("%s, %s image, round %u: %s of %" PRIu64 " bytes at %" PRIu64
             ", flags 0x%x: %s; replay with FATBATCH_SEED=%" PRIu64,
             m->title, m->image->name, m->round, kind_names[r->kind],
             r->length, r->offset, r->flags,
             r->result == REQUEST_UNANSWERED ? "not answered"
             : r->result == 0 ? "succeeded, and must not"
             : strerror (-r->result), m->seed);
}

/* -- Checking ---------------------------------------------------------- */

void
model_check_bytes (struct model *m, const char *what, const uint8_t *got,
                   uint64_t offset, uint64_t length)
{
  uint64_t i;

  if (memcmp (got, m->bytes + offset, length) == 0)
    return;
  for (i = 0; i < length; ++i)
    if (m->states[offset + i] == BYTE_KNOWN && got[i] != m->bytes[offset + i])
      model_fail_at (m, what, offset + i, m->bytes[offset + i], got[i]);
}

/* Extents follow each other, and holes are zeros.  Only the last may reach
 * beyond what was asked for (NBD allows that).
 */
static void
check_extents (struct model *m, const struct request *r)
{
  uint64_t pos = r->offset, end = r->offset + r->length, i;
  unsigned e;

  if (r->nr_extents == 0)
    test_fail ("%s: extents of %" PRIu64 " bytes at %" PRIu64 ": none",
               m->title, r->length, r->offset);
  for (e = 0; e < r->nr_extents; ++e) {
    uint64_t next = pos + r->extents[e].length;

    if (next == pos || pos >= end)
      model_fail_at (m, "an extent that is empty or beyond the range",
                     pos, 0, 0);
    for (i = pos; r->extents[e].hole && i < next && i < end; ++i)
      if (m->states[i] == BYTE_KNOWN && m->bytes[i] != 0)
        model_fail_at (m, "extents: a hole where data is", i, m->bytes[i],
                       0);
    pos = next;
  }
  if ((r->flags & REQUEST_ONE) && r->nr_extents != 1)
    test_fail ("%s: %u extents, asked for one", m->title, r->nr_extents);
}

static void
check_refusal (struct model *m, const struct request *r,
               const int results[2])
{
  if (r->result != results[0] && r->result != results[1])
    model_fail_request (m, r);
}

/* What the result must be; false if the request was rightly refused. */
static bool
check_result (struct model *m, const struct request *r)
{
  if (r->kind == REQUEST_CACHE && r->result == 0)
    return true;                /* it may not have been sent */
  if (r->kind != REQUEST_FLUSH) {
    if (r->offset > m->size || r->length > m->size - r->offset) {
      check_refusal (m, r, m->ops->outside_results);
      return false;
    }
    if (r->length == 0) {
      check_refusal (m, r, m->ops->empty_results);
      return false;
    }
    if (r->result == -EOPNOTSUPP && (r->flags & REQUEST_FAST))
      return false;
  }
  if (r->result != 0)
    model_fail_request (m, r);
  return true;
}

/* -- The array --------------------------------------------------------- */

static void
apply_answered (struct model *m, const struct request *r)
{
  if (!check_result (m, r))
    return;
  switch (r->kind) {
  case REQUEST_READ:
    model_check_bytes (m, "read", r->buf, r->offset, r->length);
    break;
  case REQUEST_WRITE:
    memcpy (m->bytes + r->offset, r->buf, r->length);
    memset (m->states + r->offset, BYTE_KNOWN, r->length);
    break;
  case REQUEST_ZERO:
    memset (m->bytes + r->offset, 0, r->length);
    memset (m->states + r->offset, BYTE_KNOWN, r->length);
    break;
  case REQUEST_TRIM:
    memset (m->states + r->offset, BYTE_ANY, r->length);
    break;
  case REQUEST_EXTENTS:
    check_extents (m, r);
    break;
  default:
    break;
  }
}

/* It may have been done, or part of it, or may yet be.  A byte that was ANY
 * stays so.
 */
static void
apply_unanswered (struct model *m, const struct request *r)
{
  uint64_t i, pos;

  if (r->kind != REQUEST_WRITE && r->kind != REQUEST_ZERO &&
      r->kind != REQUEST_TRIM)
    return;
  if (r->offset > m->size || r->length > m->size - r->offset)
    return;
  for (i = 0; i < r->length; ++i) {
    pos = r->offset + i;
    if (m->states[pos] == BYTE_ANY || r->kind == REQUEST_TRIM)
      m->states[pos] = BYTE_ANY;
    else {
      m->states[pos] = BYTE_TORN;
      m->alt[pos] = r->kind == REQUEST_WRITE ? r->buf[i] : 0;
    }
  }
}

/* -- Rounds ------------------------------------------------------------ */

struct worker {
  struct model *m;
  unsigned thread;
  pthread_t id;
  uint8_t *arena;
};

void
model_do (struct model *m, unsigned thread, struct request *r)
{
  model_log (m, thread, r);
  m->ops->run (m->conns[thread], r, 1);
  if (r->result != 0)
    model_fail_request (m, r);
}

/* False if the connection died. */
static bool
run_batch (struct worker *w, struct prng *prng)
{
  struct model *m = w->m;
  struct request requests[MODEL_DEPTH];
  size_t i, nr = generate_batch (m, w->thread, prng, w->arena, requests);
  bool alive;

  for (i = 0; i < nr; ++i)
    model_log (m, w->thread, &requests[i]);
  alive = m->ops->run (m->conns[w->thread], requests, nr);
  for (i = 0; i < nr; ++i) {
    if (requests[i].result != REQUEST_UNANSWERED) {
      apply_answered (m, &requests[i]);
      __atomic_add_fetch (&m->acknowledged, 1, __ATOMIC_RELAXED);
    }
    else if (m->may_die) {
      apply_unanswered (m, &requests[i]);
      __atomic_add_fetch (&m->unanswered, 1, __ATOMIC_RELAXED);
    }
    else
      model_fail_request (m, &requests[i]);
  }
  if (alive && m->after_batch)
    m->after_batch (m, w->thread, prng);
  return alive;
}

/* This thread's share of the whole image. */
static void
check_share (struct worker *w)
{
  struct model *m = w->m;
  uint64_t share = m->size / MODEL_THREADS + 1;
  uint64_t pos = w->thread * share;
  uint64_t end = pos + share < m->size ? pos + share : m->size;
  struct request r = {
    .kind = REQUEST_READ, .offset = pos, .length = end - pos,
    .buf = w->arena,
  };

  model_do (m, w->thread, &r);
  model_check_bytes (m, "the round's end", r.buf, pos, r.length);
}

static void *
run_rounds (void *opaque)
{
  struct worker *w = opaque;
  struct model *m = w->m;
  struct prng prng;
  unsigned i, j;
  bool alive = true;

  for (i = 0; i < m->rounds; ++i) {
    if (pthread_barrier_wait (&m->barrier) == PTHREAD_BARRIER_SERIAL_THREAD) {
      m->round++;
      generate_stripes (m);
    }
    pthread_barrier_wait (&m->barrier);
    prng_init (&prng, m->seed, ((uint64_t) m->round << 8) + w->thread);
    for (j = 0; alive && j < m->batches &&
           !__atomic_load_n (&m->stop, __ATOMIC_RELAXED); ++j)
      alive = run_batch (w, &prng);
    pthread_barrier_wait (&m->barrier);
    if (!m->may_die)
      check_share (w);
  }
  return NULL;
}

void
model_run (struct model *m)
{
  struct worker workers[MODEL_THREADS];
  unsigned i;

  for (i = 0; i < MODEL_THREADS; ++i) {
    workers[i] = (struct worker) {
      .m = m, .thread = i, .arena = test_alloc (MODEL_ARENA),
    };
    if (pthread_create (&workers[i].id, NULL, run_rounds, &workers[i]) != 0)
      test_fail ("pthread_create");
  }
  for (i = 0; i < MODEL_THREADS; ++i) {
    pthread_join (workers[i].id, NULL);
    free (workers[i].arena);
  }
}

/* -- At rest ----------------------------------------------------------- */

void
model_settle (struct model *m)
{
  uint64_t i, n;

  for (i = 0; i < m->size; i += n) {
    struct request r = { .kind = REQUEST_READ, .offset = i };

    n = m->size - i < MODEL_LENGTH_MAX ? m->size - i : MODEL_LENGTH_MAX;
    r.length = n;
    r.buf = m->check + i;
    model_do (m, 0, &r);
  }
  model_check_bytes (m, "reading all", m->check, 0, m->size);
  for (i = 0; i < m->size; ++i)
    if (m->states[i] == BYTE_TORN && m->check[i] != m->bytes[i] &&
        m->check[i] != m->alt[i])
      model_fail_at (m, "neither the old nor the new byte of a request that "
                     "was not answered", i, m->bytes[i], m->check[i]);
  memcpy (m->bytes, m->check, m->size);
  memset (m->states, BYTE_KNOWN, m->size);
}

void
model_check_file (struct model *m)
{
  test_read_file (m->image->path, m->check, m->size);
  model_check_bytes (m, "the image file", m->check, 0, m->size);
}
