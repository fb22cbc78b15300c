/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>

#include "fatbatch.h"
#include "target.h"
#include "testlib.h"

static int
on_extent (void *opaque, uint64_t offset, uint64_t length, bool hole)
{
  struct request *request = opaque;

  (void) offset;
  if (request->nr_extents < REQUEST_EXTENTS_MAX)
    request->extents[request->nr_extents++] =
      (struct request_extent) { .length = length, .hole = hole };
  return 0;
}

static unsigned
engine_flags (const struct request *r)
{
  return (r->flags & REQUEST_FUA ? FATBATCH_FUA : 0) |
    (r->kind == REQUEST_ZERO && !(r->flags & REQUEST_NO_HOLE)
     ? FATBATCH_MAY_UNMAP : 0) |
    (r->flags & REQUEST_FAST ? FATBATCH_FAST : 0) |
    (r->flags & REQUEST_ONE ? FATBATCH_ONE : 0);
}

static int
call (struct fatbatch *fb, struct request *r)
{
  unsigned flags = engine_flags (r);

  switch (r->kind) {
  case REQUEST_READ:
    return fatbatch_read (fb, r->buf, r->length, r->offset);
  case REQUEST_WRITE:
    return fatbatch_write (fb, r->buf, r->length, r->offset, flags);
  case REQUEST_ZERO:
    return fatbatch_zero (fb, r->length, r->offset, flags);
  case REQUEST_TRIM:
    return fatbatch_trim (fb, r->length, r->offset, flags);
  case REQUEST_FLUSH:
    return fatbatch_flush (fb);
  case REQUEST_CACHE:
    return fatbatch_cache_range (fb, r->length, r->offset);
  case REQUEST_EXTENTS:
    return fatbatch_extents (fb, r->length, r->offset, flags, on_extent, r);
  default:
    test_fail ("unknown request");
  }
}

static bool
engine_run (void *conn, struct request *requests, size_t nr)
{
  size_t i;

  for (i = 0; i < nr; ++i) {
    requests[i].nr_extents = 0;
    requests[i].result = call (conn, &requests[i]);
  }
  return true;
}

const struct target_ops engine_target = {
  .run = engine_run,
  .empty_results = { 0, 0 },
  .outside_results = { -EINVAL, -EINVAL },
};
