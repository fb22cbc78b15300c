/* SPDX-License-Identifier: BSD-3-Clause */

/* A crash test's requests: an engine on a machine (recorder.h) is sent what
 * guests send, and what they should not, one request at a time, and the oracle
 * is told.  What reads return is compared with it after each (D3), and so is
 * the image after each clean stop (D8).
 *
 * In between, the server may be killed (between two requests, in the middle of
 * one, in its recovery) or stopped and started again; the page cache survives.
 * And other threads write deferred mirrors, or a request that waits for its
 * sync; they are held at one of their operations while requests go on
 * (turns.h).
 *
 * Everything follows from the seed and the number of the case.
 */

#ifndef CRASH_WORKLOAD_H
#define CRASH_WORKLOAD_H

#include "engine.h"
#include "images.h"
#include "oracle.h"

struct workload {
  struct prng prng;
  struct image image;
  struct machine machine;
  uint8_t *initial;             /* the image at the start */
  struct oracle oracle;
  struct fatbatch_options options;
  bool no_store;                /* no intent record can be had */
  struct fatbatch *fb;
  struct fatbatch_stats total;  /* of all engines that were closed */

  /* How this case's guest writes. */
  unsigned fua_percent;         /* of writes */
  unsigned disorder;            /* percent of actions that no guest does */
  uint8_t last[UNIT];           /* content written before, to come back to */
  uint64_t counter;             /* makes contents differ */
  unsigned hot[4];              /* slots that are written to often */
  unsigned mirrored;            /* the slot that was mirrored last */
  bool reads_wait;              /* a write is held that they would wait for */
  uint32_t fresh;               /* the cluster that was allocated last */

  /* What is wrong, if anything is; then the workload has ended. */
  bool failed;
  char why[300];
};

/* Set everything up, and run the case. */
extern void workload_run (struct workload *wl, uint64_t seed, unsigned number);
extern void workload_release (struct workload *wl);

/* An engine's options, as in all of the tests here: nothing happens by
 * itself.
 */
extern void workload_options (struct fatbatch_options *options);

/* Read everything through an engine and compare.  False, and why, if a byte is
 * not as in `expected`.
 */
extern bool workload_reads_equal (struct fatbatch *fb,
                                  const uint8_t *expected, char *why,
                                  size_t why_size);

#endif /* CRASH_WORKLOAD_H */
