/* SPDX-License-Identifier: BSD-3-Clause */

/* One connection to the server, with any number of requests in flight.
 *
 * A client belongs to one thread at a time.
 *
 * 1. After the first failure of any kind, 'status' is BENCH_SERVER, the
 *    reason has been told once, and everything else returns it at once.
 * 2. Completion callbacks run inside client_wait (or a function that
 *    calls it), on the caller's thread.
 * 3. Counters and latencies change only while 'timed' is set, at the
 *    moment of completion.
 */

#ifndef FATBATCH_BENCH_NBD_H
#define FATBATCH_BENCH_NBD_H

#include <stdbool.h>
#include <stdint.h>

#include <libnbd.h>

#include "bench.h"

enum request_type { REQUEST_WRITE, REQUEST_FLUSH, REQUEST_TRIM, REQUEST_ZERO };

struct client {
  struct nbd_handle *nbd;
  unsigned in_flight;
  int status;

  bool timed;
  struct histogram *latency;    /* NULL, or the caller's */
  uint64_t ops, writes, fua, flushes, bytes;
};

struct request {
  enum request_type type;
  bool fua;
  uint64_t offset;
  uint32_t length;              /* bytes; 0 for a flush */
  const void *data;             /* of a write; unchanged until completed */
  void (*done) (void *opaque);  /* may be NULL */
  void *opaque;
};

extern int client_connect (struct client *client, const char *uri);
/* Needed after client_connect, even a failed one. */
extern void client_close (struct client *client);

extern int client_submit (struct client *client,
                          const struct request *request);
/* Until at most 'max' are in flight. */
extern int client_wait (struct client *client, unsigned max);
/* Until at least one of those in flight has completed, if there is any. */
extern int client_wait_any (struct client *client);
/* Submit, and wait for all. */
extern int client_run (struct client *client, const struct request *request);

/* Untimed, and in pieces that every server takes. */
extern int client_read (struct client *client, void *buf, uint64_t length,
                        uint64_t offset);
/* Zeros are written too, as mkfs.fat does: zero requests would be holes with
 * some servers, whose later writes then pay for allocation, and blocks with
 * others.
 */
extern int client_write_pieces (struct client *client, const uint8_t *buf,
                                uint64_t length, uint64_t offset);
extern int client_flush (struct client *client);

/* Tell what server it is.  The description is allocated. */
extern int client_describe (struct client *client,
                            struct bench_server *server);

/* Add the counters to a result. */
extern void client_add_to_result (const struct client *client,
                                  struct bench_result *result);

/* Fail if the server does not offer what the options want. */
extern int bench_check_durable (enum bench_durable durable,
                                const struct bench_server *server);

#endif /* FATBATCH_BENCH_NBD_H */
