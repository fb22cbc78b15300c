/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench-nbd.h"
#include "util.h"

#define PIECE (UINT32_C (1) << 20)

struct in_flight {
  struct client *client;
  struct request request;
  uint64_t began;
};

static int
client_fail (struct client *client, const char *what)
{
  if (client->status == 0) {
    client->status = BENCH_SERVER;
    bench_error ("%s: %s", what, nbd_get_error ());
  }
  return client->status;
}

static const char *
request_name (enum request_type type)
{
  switch (type) {
  case REQUEST_WRITE: return "write";
  case REQUEST_FLUSH: return "flush";
  case REQUEST_TRIM: return "trim";
  case REQUEST_ZERO: return "zero";
  }
  abort ();
}

static void
count_request (struct client *client, const struct in_flight *f)
{
  client->ops++;
  switch (f->request.type) {
  case REQUEST_WRITE:
    client->writes++;
    client->bytes += f->request.length;
    break;
  case REQUEST_FLUSH:
    client->flushes++;
    break;
  case REQUEST_TRIM:
  case REQUEST_ZERO:
    break;
  }
  if (f->request.fua)
    client->fua++;
  if (client->latency)
    histogram_add (client->latency, bench_now_ns () - f->began);
}

static int
request_completed (void *opaque, int *error)
{
  struct in_flight *f = opaque;
  struct client *client = f->client;

  client->in_flight--;
  if (*error != 0) {
    if (client->status == 0) {
      client->status = BENCH_SERVER;
      bench_error ("the server fails a %s of %u bytes at %#llx: %s",
                   request_name (f->request.type), f->request.length,
                   (unsigned long long) f->request.offset,
                   strerror (*error));
    }
  }
  else if (client->timed)
    count_request (client, f);
  if (f->request.done)
    f->request.done (f->request.opaque);
  return 1;                     /* retire the command */
}

int
client_connect (struct client *client, const char *uri)
{
  memset (client, 0, sizeof *client);
  client->nbd = nbd_create ();
  if (client->nbd == NULL)
    return client_fail (client, "libnbd");
  if (nbd_connect_uri (client->nbd, uri) == -1)
    return client_fail (client, uri);
  if (nbd_is_read_only (client->nbd) != 0) {
    client->status = BENCH_SERVER;
    bench_error ("%s: the export is read-only", uri);
  }
  return client->status;
}

void
client_close (struct client *client)
{
  if (client->nbd) {
    if (client->status == 0)
      nbd_shutdown (client->nbd, 0);
    nbd_close (client->nbd);
  }
  client->nbd = NULL;
}

int
client_submit (struct client *client, const struct request *request)
{
  struct in_flight *f;
  nbd_completion_callback completion;
  uint32_t flags = request->fua ? LIBNBD_CMD_FLAG_FUA : 0;
  int64_t cookie = -1;

  if (client->status != 0)
    return client->status;
  f = malloc (sizeof *f);
  if (f == NULL) {
    client->status = BENCH_SERVER;
    bench_error ("out of memory");
    return client->status;
  }
  f->client = client;
  f->request = *request;
  f->began = bench_now_ns ();
  completion = (nbd_completion_callback) {
    .callback = request_completed, .user_data = f, .free = free
  };

  client->in_flight++;
  switch (request->type) {
  case REQUEST_WRITE:
    cookie = nbd_aio_pwrite (client->nbd, request->data, request->length,
                             request->offset, completion, flags);
    break;
  case REQUEST_FLUSH:
    cookie = nbd_aio_flush (client->nbd, completion, 0);
    break;
  case REQUEST_TRIM:
    cookie = nbd_aio_trim (client->nbd, request->length, request->offset,
                           completion, flags);
    break;
  case REQUEST_ZERO:
    cookie = nbd_aio_zero (client->nbd, request->length, request->offset,
                           completion, flags);
    break;
  }
  if (cookie == -1) {
    /* Refused by libnbd itself: freed, and never called back. */
    client->in_flight--;
    return client_fail (client, request_name (request->type));
  }
  return 0;
}

int
client_wait (struct client *client, unsigned max)
{
  while (client->status == 0 && client->in_flight > max) {
    if (nbd_poll (client->nbd, -1) == -1)
      client_fail (client, "connection");
    else if (client->in_flight > max &&
             (nbd_aio_is_dead (client->nbd) ||
              nbd_aio_is_closed (client->nbd)))
      client_fail (client, "connection");
  }
  return client->status;
}

int
client_wait_any (struct client *client)
{
  return client->in_flight == 0 ? client->status
    : client_wait (client, client->in_flight - 1);
}

int
client_run (struct client *client, const struct request *request)
{
  client_submit (client, request);
  return client_wait (client, 0);
}

int
client_read (struct client *client, void *buf, uint64_t length,
             uint64_t offset)
{
  uint8_t *p = buf;
  uint64_t done, n;

  for (done = 0; client->status == 0 && done < length; done += n) {
    n = min_u64 (length - done, 4 * PIECE);
    if (nbd_pread (client->nbd, p + done, n, offset + done, 0) == -1)
      client_fail (client, "read");
  }
  return client->status;
}

int
client_write_pieces (struct client *client, const uint8_t *buf,
                     uint64_t length, uint64_t offset)
{
  uint64_t done, n;

  for (done = 0; client->status == 0 && done < length; done += n) {
    n = min_u64 (length - done, PIECE);
    client_submit (client, &(struct request) {
        .type = REQUEST_WRITE,
        .offset = offset + done, .length = (uint32_t) n, .data = buf + done
      });
    client_wait (client, 15);
  }
  return client_wait (client, 0);
}

int
client_flush (struct client *client)
{
  if (nbd_can_flush (client->nbd) <= 0)
    return client->status;
  return client_run (client, &(struct request) { .type = REQUEST_FLUSH });
}

int
client_describe (struct client *client, struct bench_server *server)
{
  CLEANUP_FREE char *canonical = nbd_get_canonical_export_name (client->nbd);
  CLEANUP_FREE char *description = nbd_get_export_description (client->nbd);
  const char *protocol = nbd_get_protocol (client->nbd);
  int64_t size = nbd_get_size (client->nbd);

  if (size == -1)
    return client_fail (client, "size of the export");
  server->size = (uint64_t) size;
  server->can_fua = nbd_can_fua (client->nbd) > 0;
  server->can_flush = nbd_can_flush (client->nbd) > 0;
  server->can_multi_conn = nbd_can_multi_conn (client->nbd) > 0;
  free (server->description);
  if (asprintf (&server->description, "%s%s%s",
                description ? description
                : canonical && canonical[0] ? canonical : "",
                (description && description[0]) ||
                (canonical && canonical[0]) ? ", " : "",
                protocol ? protocol : "NBD") == -1) {
    server->description = NULL;
    bench_error ("out of memory");
    return BENCH_SERVER;
  }
  return 0;
}

void
client_add_to_result (const struct client *client,
                      struct bench_result *result)
{
  result->ops += client->ops;
  result->writes += client->writes;
  result->fua += client->fua;
  result->flushes += client->flushes;
  result->bytes += client->bytes;
}

int
bench_check_durable (enum bench_durable durable,
                     const struct bench_server *server)
{
  if (durable == DURABLE_FUA && !server->can_fua) {
    bench_error ("the server does not offer FUA: "
                 "try --durable=flush or --durable=none");
    return BENCH_SERVER;
  }
  if (durable == DURABLE_FLUSH && !server->can_flush) {
    bench_error ("the server does not offer FLUSH: "
                 "try --durable=fua or --durable=none");
    return BENCH_SERVER;
  }
  return 0;
}
