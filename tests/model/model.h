/* SPDX-License-Identifier: BSD-3-Clause */

/* A disk as a flat array of bytes, random requests, and what the answers
 * must be.
 *
 * Each round cuts the image into stripes, each of which belongs to one
 * thread.  Borders are at any byte, and many lie in the same 512 or 4096
 * bytes: so neighbours read, modify and write the same blocks at once, and
 * yet each thread knows exactly what its own bytes are.  At the round's end
 * all threads meet, the whole image is checked, and the borders move.
 *
 * Rules:
 *
 * 1. A byte is KNOWN (bytes[] has it), ANY (trimmed: its contents no longer
 *    matter), or TORN (an unanswered request may have written it: bytes[] is
 *    the old value, alt[] the new one).
 * 2. Between barriers, a stripe's bytes and states are its thread's alone.
 * 3. Requests in flight together don't overlap, unless all are reads.
 * 4. TORN bytes are not touched until model_settle(): an unanswered request
 *    may still land.
 */

#ifndef TEST_MODEL_H
#define TEST_MODEL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "image.h"
#include "target.h"
#include "testlib.h"

#define MODEL_THREADS 4
#define MODEL_DEPTH 16          /* requests in flight of one thread */
#define MODEL_LENGTH_MAX (2 * 1024 * 1024)
#define MODEL_STRIPES_MAX 512
#define MODEL_LOG 8192

enum byte_state { BYTE_KNOWN, BYTE_ANY, BYTE_TORN };

struct stripe {
  uint64_t start, end;          /* bytes, not empty */
  unsigned owner;               /* thread */
};

struct log_entry {
  unsigned thread, round;
  enum request_kind kind;
  unsigned flags;
  uint64_t offset, length;
  uint8_t first;                /* first byte of a write */
};

struct model {
  const struct target_ops *ops;
  void *conns[MODEL_THREADS];   /* one per thread */
  const struct image *image;
  const char *title;            /* cache mode and so on, for messages */
  uint64_t seed;

  uint64_t size;
  uint8_t *bytes, *alt, *states;        /* rule 1; enum byte_state */
  uint8_t *check;               /* scratch, of `size` bytes */

  unsigned rounds, batches;     /* batches: of each thread in a round */
  unsigned round;               /* all rounds so far; the stripes' stream */
  unsigned nr_stripes;
  struct stripe stripes[MODEL_STRIPES_MAX];
  pthread_barrier_t barrier;

  /* For loads that are cut short. */
  bool may_die;                 /* a dead connection is no failure */
  bool stop;                    /* no batch any more; atomic */
  uint64_t acknowledged, unanswered;    /* requests; atomic */
  /* After a batch: may replace the connection.  Optional. */
  void (*after_batch) (struct model *m, unsigned thread, struct prng *prng);

  pthread_mutex_t log_lock;
  unsigned log_count;
  struct log_entry log[MODEL_LOG];
};

extern void model_init (struct model *m, const struct image *image,
                        const struct target_ops *ops, const char *title,
                        uint64_t seed);
extern void model_release (struct model *m);

/* m->rounds rounds of m->batches batches, by MODEL_THREADS threads over
 * m->conns.  Returns when they have ended.
 */
extern void model_run (struct model *m);

/* Threads write whole patterns to the same range at once: reads meanwhile,
 * and all at the end, must see one pattern as a whole.  (model-overlap.c)
 */
extern void model_run_overlaps (struct model *m, unsigned iterations);

/* Read the whole image over m->conns[0], and check it.  Bytes that are not
 * KNOWN are taken over, and are KNOWN from then on; of a TORN one the old or
 * the new value is right.
 */
extern void model_settle (struct model *m);

/* Nothing is served now: the image file must be what the array says. */
extern void model_check_file (struct model *m);

/* -- For the files of the model only ----------------------------------- */

extern void model_log (struct model *m, unsigned thread,
                       const struct request *r);
/* Fails with the last requests that touched the byte. */
extern void model_fail_at (struct model *m, const char *what, uint64_t pos,
                           int expected, int got) __attribute__ ((noreturn));
/* A request failed.  Does not return. */
extern void model_fail_request (struct model *m, const struct request *r)
  __attribute__ ((noreturn));
/* got[] is what was read at offset.  Only KNOWN bytes are compared. */
extern void model_check_bytes (struct model *m, const char *what,
                               const uint8_t *got, uint64_t offset,
                               uint64_t length);
/* One request that must succeed. */
extern void model_do (struct model *m, unsigned thread, struct request *r);

extern void generate_stripes (struct model *m);
/* A batch for the thread, from its stripes (rules 3 and 4).  Buffers are in
 * `arena`, of MODEL_ARENA bytes.  Returns how many, at least 1.
 */
#define MODEL_ARENA (2 * MODEL_LENGTH_MAX)
extern size_t generate_batch (struct model *m, unsigned thread,
                              struct prng *prng, uint8_t *arena,
                              struct request requests[MODEL_DEPTH]);

#endif /* TEST_MODEL_H */
