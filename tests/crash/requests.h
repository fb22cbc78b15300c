/* SPDX-License-Identifier: BSD-3-Clause */

/* What a workload's actions (actions.c) are made of: requests, each sent, told
 * to the oracle, and checked (requests.c).
 */

#ifndef CRASH_REQUESTS_H
#define CRASH_REQUESTS_H

#include "workload.h"

extern void send_write (struct workload *wl, uint64_t offset, uint64_t length,
                        const uint8_t *bytes, bool fua);
extern void send_zero (struct workload *wl, uint64_t offset, uint64_t length,
                       unsigned flags);
extern void send_trim (struct workload *wl, uint64_t offset, uint64_t length,
                       bool fua);
extern void send_flush (struct workload *wl);

/* A write with FUA by another thread, which is held at its sync, if that is the
 * second thing that it does; or with at_write before it is applied, if that is
 * the first.  Returns whether it is.  Either way
 * finish_in_background() must be called.  The caller fills in the first five.
 */
struct background_write {
  struct workload *wl;
  uint64_t offset, length;
  const uint8_t *bytes;
  bool at_write;
  unsigned request;
  int result;
  bool done;
  pthread_t id;
};

extern bool send_in_background (struct background_write *b);
extern void finish_in_background (struct background_write *b);

/* The process dies, at once (or has done so already), and is started again.
 * Or it ends well.
 */
extern void kill_server (struct workload *wl);
extern void stop_server (struct workload *wl);
/* At the start, or after both of these. */
extern void start_server (struct workload *wl);

extern void workload_fail (struct workload *wl, const char *fmt, ...)
  __attribute__ ((format (printf, 2, 3)));

/* One thing that a guest does, or a few; or the server (actions.c). */
extern void act (struct workload *wl);
extern void actions_init (struct workload *wl);

#endif /* CRASH_REQUESTS_H */
