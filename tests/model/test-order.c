/* SPDX-License-Identifier: BSD-3-Clause */

/* Overlapping requests take effect in the order in which they arrived; all
 * others run at once (core/rangelock.h).  A client that reconnects sends its
 * unfinished requests again, and an old write that was stalled must not land
 * over newer data.
 *
 * The engine stands on a disk that holds one request back (gate-disk.h).
 * That another waits behind it is not judged by time: the test looks for it
 * in the engine's own queue, and then sees a third request through.
 */

#include <config.h>

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine.h"
#include "gate-disk.h"
#include "testlib.h"

/* Actors.  The main thread is 0. */
enum { A = 1, B, C, D, E };

#define LENGTH_MAX 8192
#define FAR_AWAY (768 * 1024)   /* where C goes: overlaps nobody */

enum what { READ, WRITE, ZERO, TRIM, FLUSH };

static const enum disk_op_kind disk_kinds[] = {
  [READ] = DISK_READ, [WRITE] = DISK_WRITE, [ZERO] = DISK_ZERO,
  [TRIM] = DISK_DISCARD, [FLUSH] = DISK_SYNC,
};

struct action {
  enum what what;
  uint64_t start, end;          /* bytes */
  unsigned flags;
  /* Set by start_action(). */
  unsigned actor;
  struct fatbatch *fb;
  struct gate_disk *gd;
  pthread_t id;
  uint8_t buf[LENGTH_MAX];
};

/* -- Acting ------------------------------------------------------------ */

static int
act (struct action *a)
{
  uint64_t length = a->end - a->start;

  switch (a->what) {
  case READ:
    return fatbatch_read (a->fb, a->buf, length, a->start);
  case WRITE:
    memset (a->buf, 0x10 + a->actor, length);
    return fatbatch_write (a->fb, a->buf, length, a->start, a->flags);
  case ZERO:
    return fatbatch_zero (a->fb, length, a->start, a->flags);
  case TRIM:
    return fatbatch_trim (a->fb, length, a->start, a->flags);
  case FLUSH:
    return fatbatch_flush (a->fb);
  }
  return -EINVAL;
}

static void *
run_action (void *opaque)
{
  struct action *a = opaque;
  int r;

  gate_actor = a->actor;
  r = act (a);
  if (r != 0)
    test_fail ("%s: request %c: %s", gate_row, 'A' + a->actor - A,
               strerror (-r));
  gate_set_done (a->gd, a->actor);
  return NULL;
}

static void
start_action (struct action *a, unsigned actor, struct fatbatch *fb)
{
  a->actor = actor;
  a->fb = fb;
  a->gd = (struct gate_disk *) fb->disk;
  if (pthread_create (&a->id, NULL, run_action, a) != 0)
    test_fail ("pthread_create");
}

static struct fatbatch *
new_engine (uint32_t align)
{
  struct fatbatch_options options = { .cache = FATBATCH_WRITEBACK };
  struct gate_disk *gd = gate_disk_new (align);
  struct fatbatch *fb;

  memset (gd->bytes + 4096, 0xee, FAR_AWAY);
  if (engine_new (&gd->disk, NULL, NULL, &options, &fb) < 0)
    test_fail ("engine_new");
  return fb;
}

/* -- Looking into the engine ------------------------------------------- */

/* Until `n` requests wait for older ones; the newest is the actor's. */
static void
wait_queued (struct fatbatch *fb, unsigned n, unsigned actor)
{
  struct gate_disk *gd = (struct gate_disk *) fb->disk;
  time_t end = time (NULL) + GATE_SECONDS;

  while (rangelock_count_waiting (&fb->ranges) +
         rangelock_count_waiting (&fb->disk->blocks) < n) {
    if (gate_has_entered (gd, actor))
      test_fail ("%s: %c reached the disk while A was there", gate_row,
                 'A' + actor - A);
    if (time (NULL) > end)
      test_fail ("%s: %c neither waits nor gets on", gate_row,
                 'A' + actor - A);
    sched_yield ();
  }
}

static void
expect_not_entered (struct fatbatch *fb, unsigned actor, const char *why)
{
  if (gate_has_entered ((struct gate_disk *) fb->disk, actor))
    test_fail ("%s: %c reached the disk %s", gate_row, 'A' + actor - A, why);
}

static void
expect_order (struct fatbatch *fb, const struct action *first,
              const struct action *second)
{
  if (!gate_in_order ((struct gate_disk *) fb->disk, first->actor,
                      disk_kinds[first->what], second->actor))
    test_fail ("%s: %c did not end before %c began", gate_row,
               'A' + first->actor - A, 'A' + second->actor - A);
}

/* What the bytes of an action must be once it was the last one there. */
static void
expect_bytes (struct fatbatch *fb, const struct action *a)
{
  struct gate_disk *gd = (struct gate_disk *) fb->disk;
  uint8_t expected = a->what == WRITE ? 0x10 + a->actor : 0;
  uint64_t i;

  for (i = a->start; i < a->end; ++i)
    if (gd->bytes[i] != expected)
      test_fail ("%s: byte %ju is 0x%02x, not 0x%02x of %c, which came last",
                 gate_row, (uintmax_t) i, gd->bytes[i], expected,
                 'A' + a->actor - A);
}

/* -- A held back, B after it ------------------------------------------- */

struct row {
  const char *name;
  uint32_t align;
  enum what a;
  uint64_t a_start, a_end;
  enum what b;
  uint64_t b_start, b_end;
  bool waits;
};

static const struct row rows[] = {
  { "a write waits for an older write of the same bytes", 1,
    WRITE, 65536, 69632, WRITE, 65536, 69632, true },
  { "a write waits that shares one byte with an older one", 1,
    WRITE, 65536, 69632, WRITE, 69631, 69700, true },
  { "a write waits that lies inside an older one", 1,
    WRITE, 65536, 69632, WRITE, 66000, 66001, true },
  { "a write passes that touches an older one", 1,
    WRITE, 65536, 69632, WRITE, 69632, 70000, false },
  { "a write passes in front of an older one", 1,
    WRITE, 65536, 69632, WRITE, 65000, 65536, false },
  { "a read waits for an older write", 1,
    WRITE, 65536, 69632, READ, 69000, 70000, true },
  { "a read passes an older write elsewhere", 1,
    WRITE, 65536, 69632, READ, 70000, 71000, false },
  { "a write waits for an older read", 1,
    READ, 65536, 69632, WRITE, 65000, 65537, true },
  { "reads of the same bytes pass each other", 1,
    READ, 65536, 69632, READ, 65536, 69632, false },
  { "a zero waits for an older write", 1,
    WRITE, 65536, 69632, ZERO, 65536, 69632, true },
  { "a trim waits for an older write", 1,
    WRITE, 65536, 69632, TRIM, 65536, 69632, true },
  { "a write waits for an older zero", 1,
    ZERO, 65536, 69632, WRITE, 65536, 69632, true },
  { "a write waits for an older trim", 1,
    TRIM, 65536, 69632, WRITE, 65536, 69632, true },
  { "a read waits for an older zero", 1,
    ZERO, 65536, 69632, READ, 65536, 69632, true },
  { "a zero passes a trim elsewhere", 1,
    TRIM, 65536, 69632, ZERO, 69632, 70000, false },
  { "a flush passes a write that is not acknowledged", 1,
    WRITE, 65536, 69632, FLUSH, 0, 0, false },
  { "neighbours in a block that is written back wait", 512,
    WRITE, 65536, 65600, WRITE, 65600, 66048, true },
  { "a zero waits for a neighbour in its block", 512,
    WRITE, 65536, 65600, ZERO, 65700, 70000, true },
  { "neighbours in the next block pass", 512,
    WRITE, 65536, 65600, WRITE, 66048, 66100, false },
  { "a write passes an older one to the boot sector", 1,
    WRITE, 0, 512, WRITE, 65536, 69632, false },
  { "a write to the boot sector passes an older one elsewhere", 1,
    WRITE, 65536, 69632, WRITE, 0, 512, false },
  { "a write waits for an older one to the boot sector and more", 1,
    WRITE, 0, 8192, WRITE, 4096, 4608, true },
  { "a read waits for an older write to the boot sector", 1,
    WRITE, 100, 101, READ, 0, 512, true },
};

static void
test_row (const struct row *row)
{
  struct fatbatch *fb = new_engine (row->align);
  struct gate_disk *gd = (struct gate_disk *) fb->disk;
  struct action a = { .what = row->a, .start = row->a_start,
                      .end = row->a_end };
  struct action b = { .what = row->b, .start = row->b_start,
                      .end = row->b_end };
  struct action c = { .what = WRITE, .start = FAR_AWAY,
                      .end = FAR_AWAY + 512 };

  gate_row = row->name;
  gate_close (gd, A, disk_kinds[row->a]);
  start_action (&a, A, fb);
  gate_wait_closed (gd, "A does not reach the disk");
  start_action (&b, B, fb);
  if (row->waits)
    wait_queued (fb, 1, B);
  else
    gate_wait_done (gd, B, "B waits for A, and need not");
  start_action (&c, C, fb);
  gate_wait_done (gd, C, "C waits for A or B, and overlaps neither");
  if (row->waits)
    expect_not_entered (fb, B, "before C, while A was there");
  gate_open (gd);
  pthread_join (a.id, NULL);
  pthread_join (b.id, NULL);
  pthread_join (c.id, NULL);
  if (row->waits) {
    expect_order (fb, &a, &b);
    if (row->b != READ)
      expect_bytes (fb, &b);
  }
  fatbatch_close (fb);
}

/* B waited: a read of A's bytes gets them new. */
static void
test_read_sees_older_write (void)
{
  struct fatbatch *fb = new_engine (1);
  struct gate_disk *gd = (struct gate_disk *) fb->disk;
  struct action a = { .what = WRITE, .start = 65536, .end = 69632 };
  struct action b = { .what = READ, .start = 65536, .end = 69632 };
  size_t i;

  gate_row = "a read that waited sees the older write";
  gate_close (gd, A, DISK_WRITE);
  start_action (&a, A, fb);
  gate_wait_closed (gd, "A does not reach the disk");
  start_action (&b, B, fb);
  wait_queued (fb, 1, B);
  gate_open (gd);
  pthread_join (a.id, NULL);
  pthread_join (b.id, NULL);
  for (i = 0; i < b.end - b.start; ++i)
    if (b.buf[i] != 0x10 + A)
      test_fail ("%s: byte %zu is 0x%02x", gate_row, i, b.buf[i]);
  fatbatch_close (fb);
}

static void
test_many_in_arrival_order (void)
{
  struct fatbatch *fb = new_engine (1);
  struct gate_disk *gd = (struct gate_disk *) fb->disk;
  struct action act[] = {
    { .what = WRITE, .start = 65536, .end = 69632 },
    { .what = WRITE, .start = 66000, .end = 70000 },
    { .what = ZERO, .start = 65000, .end = 66001 },
    { .what = TRIM, .start = 65536, .end = 69000 },
    { .what = WRITE, .start = 65000, .end = 70000 },
  };
  unsigned i;

  gate_row = "five overlapping requests in arrival order";
  gate_close (gd, A, DISK_WRITE);
  start_action (&act[0], A, fb);
  gate_wait_closed (gd, "A does not reach the disk");
  for (i = 1; i < 5; ++i) {
    start_action (&act[i], A + i, fb);
    wait_queued (fb, i, A + i);
  }
  gate_open (gd);
  for (i = 0; i < 5; ++i)
    pthread_join (act[i].id, NULL);
  for (i = 0; i + 1 < 5; ++i)
    expect_order (fb, &act[i], &act[i + 1]);
  expect_bytes (fb, &act[4]);
  fatbatch_close (fb);
}

/* -- Commits ---------------------------------------------------------- */

static void
test_commit_holds_no_range (void)
{
  struct fatbatch *fb = new_engine (1);
  struct gate_disk *gd = (struct gate_disk *) fb->disk;
  struct action a = { .what = WRITE, .start = 65536, .end = 69632,
                      .flags = FATBATCH_FUA };
  struct action b = { .what = WRITE, .start = 65536, .end = 69632 };

  gate_row = "a write passes an overlapping one that waits for its sync";
  gate_close (gd, A, DISK_SYNC);
  start_action (&a, A, fb);
  gate_wait_closed (gd, "A does not sync");
  start_action (&b, B, fb);
  gate_wait_done (gd, B, "B waits for A's sync");
  expect_bytes (fb, &b);
  gate_open (gd);
  pthread_join (a.id, NULL);
  pthread_join (b.id, NULL);
  fatbatch_close (fb);
}

int
main (void)
{
  size_t i, nr = sizeof rows / sizeof rows[0];

  test_init ("test-order", 300);
  for (i = 0; i < nr; ++i)
    test_row (&rows[i]);
  test_read_sees_older_write ();
  test_many_in_arrival_order ();
  test_commit_holds_no_range ();
  printf ("%zu orders are kept\n", nr + 3);
  return test_end ();
}
