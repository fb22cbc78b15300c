/* SPDX-License-Identifier: BSD-3-Clause */

/* Overlapping writes: several threads write the same range at once, each
 * with bytes of its own.  Requests that overlap take effect one after the
 * other, each as a whole (core/rangelock.h), so that at every moment all
 * bytes of the range are equal.
 */

#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "model.h"

#define WRITES 4                /* by each thread in an iteration */

struct overlap {
  struct model *m;
  unsigned thread, iterations;
  pthread_t id;
  uint8_t *buf;
  uint64_t start, length;       /* the iteration's range */
};

/* Never 0: zeros are a pattern of their own. */
static uint8_t
pattern (unsigned iteration, unsigned thread, unsigned write)
{
  return 1 + ((iteration % 15) * MODEL_THREADS + thread) * WRITES + write;
}

static bool
is_pattern_of (unsigned iteration, uint8_t byte, bool last_only)
{
  unsigned t, w;

  if (byte == 0)
    return true;
  for (t = 0; t < MODEL_THREADS; ++t)
    for (w = last_only ? WRITES - 1 : 0; w < WRITES; ++w)
      if (pattern (iteration, t, w) == byte)
        return true;
  return false;
}

/* The same for all threads. */
static void
choose_common_range (struct overlap *o, unsigned iteration)
{
  struct model *m = o->m;
  const struct image *image = m->image;
  struct prng prng;
  uint64_t max;

  prng_init (&prng, m->seed, 500000 + iteration);
  max = prng_chance (&prng, 20) ? 300000
    : prng_chance (&prng, 50) ? 20000 : 1500;
  o->length = 1 + prng_below (&prng, max);
  if (prng_chance (&prng, 40)) {
    o->start = image->places[prng_below (&prng, image->nr_places)].start;
    o->start += prng_below (&prng, 600);
  }
  else
    o->start = prng_below (&prng, m->size);
  if (o->start > m->size - o->length)
    o->start = m->size - o->length;
}

static void
read_whole (struct overlap *o, const char *what)
{
  struct request r = {
    .kind = REQUEST_READ, .offset = o->start, .length = o->length,
    .buf = o->buf,
  };
  uint64_t i;

  model_do (o->m, o->thread, &r);
  for (i = 1; i < o->length; ++i)
    if (r.buf[i] != r.buf[0])
      model_fail_at (o->m, what, o->start + i, r.buf[0], r.buf[i]);
}

static void
write_pattern (struct overlap *o, unsigned iteration, unsigned write,
               struct prng *prng)
{
  struct request r = {
    .kind = REQUEST_WRITE, .offset = o->start, .length = o->length,
    .buf = o->buf,
  };

  if (prng_chance (prng, 25)) {
    r.kind = REQUEST_ZERO;
    r.flags = prng_chance (prng, 50) ? REQUEST_NO_HOLE : 0;
  }
  if (prng_chance (prng, 15))
    r.flags |= REQUEST_FUA;
  memset (o->buf, pattern (iteration, o->thread, write), o->length);
  model_do (o->m, o->thread, &r);
}

/* One thread takes the result over: the last write of some thread. */
static void
take_over (struct overlap *o, unsigned iteration)
{
  struct model *m = o->m;
  uint64_t start = o->start > 4096 ? o->start - 4096 : 0;
  uint64_t end = o->start + o->length;

  read_whole (o, "overlapping writes: not one of them as a whole");
  if (!is_pattern_of (iteration, o->buf[0], true))
    model_fail_at (m, "overlapping writes: not the last of any thread",
                   o->start, pattern (iteration, 0, WRITES - 1), o->buf[0]);
  memset (m->bytes + o->start, o->buf[0], o->length);
  memset (m->states + o->start, BYTE_KNOWN, o->length);

  /* The neighbours, of which nothing was written. */
  end = m->size - end > 4096 ? end + 4096 : m->size;
  model_do (m, o->thread, &(struct request) {
      .kind = REQUEST_READ, .offset = start, .length = end - start,
      .buf = m->check + start });
  model_check_bytes (m, "next to overlapping writes", m->check + start,
                     start, end - start);
}

static void *
run_iterations (void *opaque)
{
  struct overlap *o = opaque;
  struct model *m = o->m;
  struct prng prng;
  unsigned i, w;

  for (i = 0; i < o->iterations; ++i) {
    choose_common_range (o, i);
    prng_init (&prng, m->seed, 600000 + i * MODEL_THREADS + o->thread);
    /* Make it uniform first, so that readers may judge from the start. */
    if (o->thread == 0)
      write_pattern (o, i, 0, &prng);
    pthread_barrier_wait (&m->barrier);
    for (w = 0; w < WRITES; ++w) {
      write_pattern (o, i, w, &prng);
      if (prng_chance (&prng, 50)) {
        read_whole (o, "a read during overlapping writes: parts of two");
        if (!is_pattern_of (i, o->buf[0], false))
          model_fail_at (m, "a read during overlapping writes: bytes that "
                         "nobody wrote", o->start,
                         pattern (i, o->thread, w), o->buf[0]);
      }
    }
    pthread_barrier_wait (&m->barrier);
    if (o->thread == 0)
      take_over (o, i);
    pthread_barrier_wait (&m->barrier);
  }
  return NULL;
}

void
model_run_overlaps (struct model *m, unsigned iterations)
{
  struct overlap threads[MODEL_THREADS];
  unsigned i;

  for (i = 0; i < MODEL_THREADS; ++i) {
    threads[i] = (struct overlap) {
      .m = m, .thread = i, .iterations = iterations,
      .buf = test_alloc (300000),
    };
    if (pthread_create (&threads[i].id, NULL, run_iterations,
                        &threads[i]) != 0)
      test_fail ("pthread_create");
  }
  for (i = 0; i < MODEL_THREADS; ++i) {
    pthread_join (threads[i].id, NULL);
    free (threads[i].buf);
  }
}
