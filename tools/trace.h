/* SPDX-License-Identifier: BSD-3-Clause */

/* Recorded requests of a guest.
 *
 * Two formats are read.  A trace is text, a line a request, in the order in
 * which they were sent; fatbatch(1) describes it.  A log file of nbdkit's
 * log filter tells what overlapped, but no data.
 *
 * 1. Requests lie inside [0, size).
 * 2. A request waits only for requests before it.
 */

#ifndef FATBATCH_TRACE_H
#define FATBATCH_TRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench-nbd.h"

#define TRACE_MAGIC "fatbatch-trace 1"

struct trace_op {
  enum request_type type;
  bool fua;
  bool wait_all;                /* all before are answered before it is sent */
  uint64_t offset;
  uint32_t length;
  size_t first_wait, nr_waits;  /* or these, in trace->waits */
  char *data;                   /* see trace_apply; NULL: not recorded */
};

struct trace {
  uint64_t size;                /* bytes of the device */
  bool fsck;                    /* ends as a whole FAT32 file system */
  size_t nr_ops, nr_waits, nr_initial;
  struct trace_op *ops;
  size_t *waits;                /* indexes of ops */
  struct trace_op *initial;     /* what was there before */
};

/* Says what is wrong, and where, and returns BENCH_USAGE.  To be released in
 * any case.
 */
extern int trace_read (struct trace *trace, const char *path);
extern void trace_release (struct trace *trace);

/* Turn what was in the bytes before into what they are after: 'data' is a
 * list, with commas, of "same" or "zero" (all of it) and OFFSET:HEX.
 * Checked by trace_read.
 */
extern bool trace_apply (const char *data, uint8_t *buf, uint32_t length);

#endif /* FATBATCH_TRACE_H */
