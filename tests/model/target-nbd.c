/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>

#include <libnbd.h>

#include "target.h"
#include "testlib.h"

#define ANSWER_SECONDS 120

/* libnbd gives up on unanswered commands by completing them with ENOTCONN,
 * which no server of ours answers.
 */
static int
on_completion (void *opaque, int *error)
{
  struct request *request = opaque;

  request->result = *error == 0 ? 0 :
    *error == ENOTCONN ? REQUEST_UNANSWERED : -*error;
  return 1;                     /* libnbd may forget the command */
}

static int
on_extents (void *opaque, const char *context, uint64_t offset,
            uint32_t *entries, size_t nr, int *error)
{
  struct request *request = opaque;
  size_t i;

  (void) context;
  (void) offset;
  (void) error;
  for (i = 0; i + 1 < nr && request->nr_extents < REQUEST_EXTENTS_MAX; i += 2)
    request->extents[request->nr_extents++] = (struct request_extent) {
      .length = entries[i], .hole = entries[i + 1] & LIBNBD_STATE_HOLE,
    };
  return 0;
}

static uint32_t
nbd_flags (unsigned flags)
{
  return (flags & REQUEST_FUA ? LIBNBD_CMD_FLAG_FUA : 0) |
    (flags & REQUEST_NO_HOLE ? LIBNBD_CMD_FLAG_NO_HOLE : 0) |
    (flags & REQUEST_FAST ? LIBNBD_CMD_FLAG_FAST_ZERO : 0) |
    (flags & REQUEST_ONE ? LIBNBD_CMD_FLAG_REQ_ONE : 0);
}

/* Returns the cookie, or -1. */
static int64_t
send_request (struct nbd_handle *nbd, struct request *r)
{
  nbd_completion_callback done = { .callback = on_completion,
                                   .user_data = r };
  nbd_extent_callback extents = { .callback = on_extents, .user_data = r };
  uint32_t flags = nbd_flags (r->flags);

  switch (r->kind) {
  case REQUEST_READ:
    return nbd_aio_pread (nbd, r->buf, r->length, r->offset, done, flags);
  case REQUEST_WRITE:
    return nbd_aio_pwrite (nbd, r->buf, r->length, r->offset, done, flags);
  case REQUEST_ZERO:
    return nbd_aio_zero (nbd, r->length, r->offset, done, flags);
  case REQUEST_TRIM:
    return nbd_aio_trim (nbd, r->length, r->offset, done, flags);
  case REQUEST_FLUSH:
    return nbd_aio_flush (nbd, done, flags);
  case REQUEST_CACHE:
    return nbd_aio_cache (nbd, r->length, r->offset, done, flags);
  case REQUEST_EXTENTS:
    return nbd_aio_block_status (nbd, r->length, r->offset, extents, done,
                                 flags);
  default:
    test_fail ("unknown request");
  }
}

/* NULL: it could not be connected again. */
static bool
is_dead (struct nbd_handle *nbd)
{
  return !nbd || nbd_aio_is_dead (nbd) || nbd_aio_is_closed (nbd);
}

/* O_DIRECT modes have no page cache to fill, and don't offer it. */
static bool
is_offered (struct nbd_handle *nbd, const struct request *r)
{
  return r->kind != REQUEST_CACHE || nbd_can_cache (nbd) == 1;
}

static bool
nbd_run (void *conn, struct request *requests, size_t nr)
{
  struct nbd_handle *nbd = conn;
  size_t i;

  for (i = 0; i < nr; ++i) {
    requests[i].result = REQUEST_UNANSWERED;
    requests[i].nr_extents = 0;
    if (is_dead (nbd))
      continue;
    if (!is_offered (nbd, &requests[i]))
      requests[i].result = 0;
    else if (send_request (nbd, &requests[i]) == -1 && !is_dead (nbd))
      test_fail ("sending a request: %s", nbd_get_error ());
  }
  while (!is_dead (nbd) && nbd_aio_in_flight (nbd) > 0) {
    int r = nbd_poll (nbd, ANSWER_SECONDS * 1000);

    if (r == 0)
      test_fail ("no answer within %d s", ANSWER_SECONDS);
    if (r == -1 && !is_dead (nbd))
      test_fail ("nbd_poll: %s", nbd_get_error ());
  }
  return !is_dead (nbd);
}

/* nbdkit itself refuses both kinds, writes with ENOSPC. */
const struct target_ops nbd_target = {
  .run = nbd_run,
  .empty_results = { -EINVAL, -ENOSPC },
  .outside_results = { -EINVAL, -ENOSPC },
};
