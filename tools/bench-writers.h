/* SPDX-License-Identifier: BSD-3-Clause */

/* Threads that write blocks of a file, each over its own connection.
 *
 * 1. Writer j of n writes only blocks j, j + n, j + 2n ...: no block has two
 *    writers, so what a block must hold in the end is known.
 * 2. A writer never has two requests in flight to one block.
 * 3. 'generations' counts the writes to each block; the content follows
 *    from block, generation and seed.
 */

#ifndef FATBATCH_BENCH_WRITERS_H
#define FATBATCH_BENCH_WRITERS_H

#include <pthread.h>
#include <stdatomic.h>

#include "bench-nbd.h"

struct writers;

struct writer {
  struct writers *all;
  unsigned number;
  pthread_t thread;
  struct client client;
  struct histogram latency;
  struct writer_slot *slots;    /* all->depth of them */
  struct writer_slot *free_slots;
  uint8_t *buffers;
};

struct writers {
  /* Set by the caller. */
  const char *name;             /* for the progress bar */
  const char *uri;
  unsigned nr, depth;
  uint64_t start;               /* of the blocks, on the export */
  uint64_t nr_blocks;           /* at least nr * depth */
  uint64_t stride;              /* bytes from block to block, at least bs */
  uint32_t bs;
  bool fua;
  double runtime;               /* seconds; 0: until count */
  uint64_t count;               /* requests of each writer; 0: no limit */
  uint64_t seed;
  /* A further thread, in parallel, until *stop; or NULL. */
  int (*beside) (void *opaque, atomic_bool *stop);
  void *opaque;

  struct writer *writers;
  uint32_t *generations;
  uint64_t began, deadline;
  pthread_barrier_t barrier;
  atomic_bool stop;
  atomic_uint running;
  atomic_int status;
  atomic_ulong written;
};

/* Connect, and allocate.  writers_release is needed in any case. */
extern int writers_init (struct writers *w);
extern void writers_release (struct writers *w);

/* Write each block once, untimed, over 'client'. */
extern int writers_fill (struct writers *w, struct client *client);
/* Run, and add to the result. */
extern int writers_run (struct writers *w, struct bench_result *result);
/* Compare all written blocks.  Sets result->data. */
extern int writers_check (const struct writers *w, struct client *client,
                          struct bench_result *result);

#endif /* FATBATCH_BENCH_WRITERS_H */
