/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "requests.h"
#include "turns.h"
#include "util.h"

void
workload_fail (struct workload *wl, const char *fmt, ...)
{
  va_list args;

  if (wl->failed)
    return;
  wl->failed = true;
  va_start (args, fmt);
  vsnprintf (wl->why, sizeof wl->why, fmt, args);
  va_end (args);
}

/* -- Reads (D3) ---------------------------------------------------------- */

static size_t
first_difference (const uint8_t *a, const uint8_t *b, size_t n)
{
  size_t i;

  for (i = 0; i < n && a[i] == b[i]; ++i)
    ;
  return i;
}

bool
workload_reads_equal (struct fatbatch *fb, const uint8_t *expected, char *why,
                      size_t why_size)
{
  size_t size = fb->disk->size, at;
  CLEANUP_FREE uint8_t *buf = test_alloc (size);
  int r = fatbatch_read (fb, buf, size, 0);

  if (r < 0) {
    snprintf (why, why_size, "a read fails: %s", strerror (-r));
    return false;
  }
  if (memcmp (buf, expected, size) == 0)
    return true;
  at = first_difference (buf, expected, size);
  snprintf (why, why_size, "D3: a read returns other bytes at %zu (unit %zu)",
            at, at / UNIT);
  return false;
}

/* All of it, and some odd range. */
static void
check_reads (struct workload *wl)
{
  const uint8_t *live = wl->oracle.live;
  uint64_t offset = prng_below (&wl->prng, wl->machine.size);
  size_t count = prng_below (&wl->prng, wl->machine.size - offset + 1);
  uint8_t buf[3000];

  if (wl->failed || wl->reads_wait)
    return;
  if (!workload_reads_equal (wl->fb, live, wl->why, sizeof wl->why)) {
    wl->failed = true;
    return;
  }
  count = min_u64 (count, sizeof buf);
  if (fatbatch_read (wl->fb, buf, count, offset) < 0 ||
      memcmp (buf, live + offset, count) != 0)
    workload_fail (wl, "D3: a read of [%ju, +%zu) returns other bytes",
                   (uintmax_t) offset, count);
}

/* -- Requests ------------------------------------------------------------ */

static int
send_to_engine (struct workload *wl, const struct request *r,
                const uint8_t *bytes, unsigned flags)
{
  flags |= r->fua ? FATBATCH_FUA : 0;
  switch (r->kind) {
  case REQ_WRITE:
    return fatbatch_write (wl->fb, bytes, r->length, r->offset, flags);
  case REQ_ZERO:
    return fatbatch_zero (wl->fb, r->length, r->offset, flags);
  case REQ_TRIM:
    return fatbatch_trim (wl->fb, r->length, r->offset, flags);
  case REQ_FLUSH:
    return fatbatch_flush (wl->fb);
  case REQ_REOPEN:
    break;
  }
  return 0;
}

/* A request that fails because the machine has died was never acknowledged. */
static void
send_request (struct workload *wl, const struct request *r,
              const uint8_t *bytes, unsigned flags)
{
  unsigned request;
  int result;

  if (wl->failed || wl->machine.dead)
    return;
  request = oracle_begin (&wl->oracle, r, bytes);
  machine_mark (&wl->machine, LOG_BEGIN, request);
  result = send_to_engine (wl, r, bytes, flags);
  if (result == 0)
    oracle_end (&wl->oracle, request,
                machine_mark (&wl->machine, LOG_END, request));
  else if (!wl->machine.dead)
    workload_fail (wl, "request %u fails: %s", request, strerror (-result));
  if (!wl->machine.dead)
    check_reads (wl);
}

static void *
write_in_background (void *opaque)
{
  struct background_write *b = opaque;

  b->result = fatbatch_write (b->wl->fb, b->bytes, b->length, b->offset,
                              FATBATCH_FUA);
  b->done = true;
  return NULL;
}

bool
send_in_background (struct background_write *b)
{
  struct request r = { .kind = REQ_WRITE, .offset = b->offset,
                       .length = b->length, .fua = true };
  struct workload *wl = b->wl;
  int what;

  b->request = oracle_begin (&wl->oracle, &r, b->bytes);
  machine_mark (&wl->machine, LOG_BEGIN, b->request);
  turns_hold_others (b->at_write ? 0 : 1);
  if (pthread_create (&b->id, NULL, write_in_background, b) != 0)
    test_fail ("pthread_create");
  turns_run_others ();
  if (b->done || !turns_is_held (&what) ||
      what != (b->at_write ? LOG_WRITE : LOG_SYNC))
    return false;
  if (b->at_write)
    return true;
  oracle_applied (&wl->oracle, b->request,
                  machine_mark (&wl->machine, LOG_APPLIED, b->request));
  return true;
}

void
finish_in_background (struct background_write *b)
{
  struct workload *wl = b->wl;

  turns_let_go ();
  pthread_join (b->id, NULL);
  if (b->result < 0)
    workload_fail (wl, "request %u fails: %s", b->request,
                   strerror (-b->result));
  else
    oracle_end (&wl->oracle, b->request,
                machine_mark (&wl->machine, LOG_END, b->request));
  check_reads (wl);
}

void
send_write (struct workload *wl, uint64_t offset, uint64_t length,
            const uint8_t *bytes, bool fua)
{
  struct request r = { .kind = REQ_WRITE, .offset = offset, .length = length,
                       .fua = fua };

  send_request (wl, &r, bytes, 0);
}

void
send_zero (struct workload *wl, uint64_t offset, uint64_t length,
           unsigned flags)
{
  struct request r = { .kind = REQ_ZERO, .offset = offset, .length = length,
                       .fua = (flags & FATBATCH_FUA) != 0 };

  send_request (wl, &r, NULL, flags);
}

void
send_trim (struct workload *wl, uint64_t offset, uint64_t length, bool fua)
{
  struct request r = { .kind = REQ_TRIM, .offset = offset, .length = length,
                       .fua = fua };

  send_request (wl, &r, NULL, 0);
}

void
send_flush (struct workload *wl)
{
  struct request r = { .kind = REQ_FLUSH };

  send_request (wl, &r, NULL, 0);
}

/* -- The server's life --------------------------------------------------- */

static void
close_engine (struct workload *wl)
{
  struct fatbatch_stats stats;

  fatbatch_get_stats (wl->fb, &stats);
#define ADD(name, help) wl->total.name += stats.name;
  FATBATCH_COUNTERS (ADD)
#undef ADD
  fatbatch_close (wl->fb);
  wl->fb = NULL;
}

/* What the engine still tries to do, no disk does any more. */
void
kill_server (struct workload *wl)
{
  wl->machine.dead = true;
  close_engine (wl);
  wl->machine.dead = false;
  wl->machine.die_at = UINT64_MAX;
}

void
stop_server (struct workload *wl)
{
  int r = fatbatch_settle (wl->fb);

  if (wl->machine.dead) {       /* was to be killed on its way */
    kill_server (wl);
    return;
  }
  if (r < 0)
    workload_fail (wl, "fatbatch_settle() fails: %s", strerror (-r));
  close_engine (wl);
  if (wl->failed)
    return;
  if (memcmp (wl->machine.image, wl->oracle.live, wl->machine.size) != 0)
    workload_fail (wl, "D8: after a clean stop byte %zu is another",
                   first_difference (wl->machine.image, wl->oracle.live,
                                     wl->machine.size));
  else if (wl->machine.has_record)
    workload_fail (wl, "D8: after a clean stop the record is there");
}

/* Recovery may have been interrupted: then once more. */
static void
open_engine (struct workload *wl)
{
  int r;

  for (;;) {
    r = engine_new (machine_disk (&wl->machine), NULL,
                    wl->no_store ? NULL : machine_store (&wl->machine),
                    &wl->options, &wl->fb);
    if (!wl->machine.dead)
      break;
    if (r == 0)
      kill_server (wl);
    wl->machine.dead = false;
    wl->machine.die_at = UINT64_MAX;
  }
  if (r < 0) {
    wl->fb = NULL;
    workload_fail (wl, "engine_new() fails: %s", strerror (-r));
  }
  else
    engine_start_tree (wl->fb);
}

void
start_server (struct workload *wl)
{
  struct request r = { .kind = REQ_REOPEN };
  unsigned request = oracle_begin (&wl->oracle, &r, NULL);

  machine_mark (&wl->machine, LOG_BEGIN, request);
  if (prng_chance (&wl->prng, 20))
    wl->machine.die_at = wl->machine.ops + prng_below (&wl->prng, 8);
  open_engine (wl);
  wl->machine.die_at = UINT64_MAX;
  oracle_reopened (&wl->oracle, request,
                   machine_mark (&wl->machine, LOG_END, request),
                   wl->machine.image);
  if (wl->machine.has_record)
    workload_fail (wl, "the record is there after recovery");
  if (!wl->failed)
    check_reads (wl);
}
