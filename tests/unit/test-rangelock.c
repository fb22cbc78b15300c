/* SPDX-License-Identifier: BSD-3-Clause */

/* Range locks: who waits for whom, and in which order. */

#include <config.h>

#include <stdatomic.h>
#include <unistd.h>

#include "check.h"
#include "rangelock.h"
#include "util.h"

static struct rangelock rl;

struct taker {
  pthread_t thread;
  uint64_t start, end;
  bool exclusive;
  struct range range;
  bool waited;
  atomic_bool holds, let_go;
};

static void *
taker_run (void *opaque)
{
  struct taker *t = opaque;

  t->waited = range_lock (&rl, &t->range, t->start, t->end, t->exclusive);
  atomic_store (&t->holds, true);
  while (!atomic_load (&t->let_go))
    sched_yield ();
  range_unlock (&rl, &t->range);
  return NULL;
}

/* How often ranges stand in lists: once for each shard of theirs. */
static unsigned
ranges_known (void)
{
  const struct range_node *node;
  unsigned nr = 0;
  size_t i;

  for (i = 0; i < RANGELOCK_SHARDS; ++i) {
    SCOPED_LOCK (&rl.shard[i].lock);
    for (node = rl.shard[i].oldest; node; node = node->next)
      nr++;
  }
  return nr;
}

/* Start a thread that takes the range; return once it has arrived. */
static void
taker_start (struct taker *t, uint64_t start, uint64_t end, bool exclusive)
{
  unsigned before = ranges_known ();

  *t = (struct taker) { .start = start, .end = end, .exclusive = exclusive };
  CHECK_EQ (pthread_create (&t->thread, NULL, taker_run, t), 0);
  while (ranges_known () == before)
    sched_yield ();
}

static void
await_holds (struct taker *t)
{
  while (!atomic_load (&t->holds))
    sched_yield ();
}

static void
taker_finish (struct taker *t)
{
  await_holds (t);
  atomic_store (&t->let_go, true);
  CHECK_EQ (pthread_join (t->thread, NULL), 0);
}

/* Each row: does the second range wait for the first? */
static void
overlapping_ranges_wait_as_they_should (void)
{
  static const struct {
    const char *name;
    uint64_t start, end;
    bool exclusive;
    bool waits_for_writer, waits_for_reader;  /* of [100, 200) */
  } rows[] = {
    { "writer, the same", 100, 200, true, true, true },
    { "reader, the same", 100, 200, false, true, false },
    { "writer, before", 0, 100, true, false, false },
    { "writer, after", 200, 300, true, false, false },
    { "writer, first byte", 0, 101, true, true, true },
    { "writer, last byte", 199, 300, true, true, true },
    { "writer, around", 0, 300, true, true, true },
    { "writer, inside", 150, 151, true, true, true },
    { "reader, inside", 150, 151, false, true, false },
    { "reader, after", 200, 201, false, false, false },
    { "writer, far", UINT64_MAX - 1, UINT64_MAX, true, false, false },
  };
  size_t i;
  int exclusive;

  for (i = 0; i < sizeof rows / sizeof rows[0]; ++i)
    for (exclusive = 0; exclusive < 2; ++exclusive) {
      bool waits = exclusive ? rows[i].waits_for_writer
        : rows[i].waits_for_reader;
      struct taker first, second;

      printf ("  %s, after a %s\n", rows[i].name,
              exclusive ? "writer" : "reader");
      taker_start (&first, 100, 200, exclusive);
      await_holds (&first);
      taker_start (&second, rows[i].start, rows[i].end, rows[i].exclusive);
      if (waits)
        CHECK (!atomic_load (&second.holds));
      else
        await_holds (&second);
      taker_finish (&first);
      taker_finish (&second);
      CHECK_EQ (second.waited, waits);
    }
}

static void
an_empty_range_never_waits (void)
{
  struct taker writer;
  struct range empty;

  taker_start (&writer, 0, 100, true);
  await_holds (&writer);
  CHECK (!range_lock (&rl, &empty, 50, 50, true));
  range_unlock (&rl, &empty);
  taker_finish (&writer);
}

/* Rule 2: a reader does not overtake a writer that waits, although it could
 * go together with the reader that holds.
 */
static void
nobody_overtakes (void)
{
  struct taker reader, writer, late_reader;

  taker_start (&reader, 0, 100, false);
  await_holds (&reader);
  taker_start (&writer, 50, 150, true);
  taker_start (&late_reader, 60, 70, false);
  CHECK (!atomic_load (&writer.holds));
  CHECK (!atomic_load (&late_reader.holds));
  taker_finish (&reader);
  await_holds (&writer);
  CHECK (!atomic_load (&late_reader.holds));
  taker_finish (&writer);
  taker_finish (&late_reader);
  CHECK (late_reader.waited);
}

#define CHAIN 16

/* Writers of one range get it in the order in which they came. */
static void
order_of_arrival_is_kept (void)
{
  struct taker takers[CHAIN];
  int i, j;

  for (i = 0; i < CHAIN; ++i)
    taker_start (&takers[i], 10, 20, true);
  for (i = 0; i < CHAIN; ++i) {
    await_holds (&takers[i]);
    for (j = i + 1; j < CHAIN; ++j)
      CHECK (!atomic_load (&takers[j].holds));
    taker_finish (&takers[i]);
  }
}

/* A range that waits for one place keeps nobody from another. */
static void
others_pass_by (void)
{
  struct taker holder, waiter, other;

  taker_start (&holder, 0, 10, true);
  await_holds (&holder);
  taker_start (&waiter, 5, 15, true);
  taker_start (&other, 15, 25, true);
  await_holds (&other);
  CHECK (!other.waited);
  CHECK (!atomic_load (&waiter.holds));
  taker_finish (&other);
  taker_finish (&holder);
  taker_finish (&waiter);
}

/* Ranges that meet in several shards are let go once, and only when all of
 * those before them are gone.
 */
static void
large_ranges_wait_in_all_their_shards (void)
{
  static const uint64_t stripe = RANGELOCK_STRIPE;
  struct taker first, second, large, after;

  taker_start (&first, 0, stripe * 3, true);
  await_holds (&first);
  taker_start (&second, stripe * 5 + 1, stripe * 5 + 2, true);
  await_holds (&second);
  taker_start (&large, 1, stripe * 100, true);
  taker_start (&after, stripe * 99, stripe * 99 + 1, false);
  CHECK (!atomic_load (&large.holds));
  taker_finish (&first);
  CHECK (!atomic_load (&large.holds));
  CHECK (!atomic_load (&after.holds));
  taker_finish (&second);
  await_holds (&large);
  CHECK (!atomic_load (&after.holds));
  taker_finish (&large);
  taker_finish (&after);
  CHECK (large.waited && after.waited);
}

/* The same shard, different stripes: no conflict. */
static void
stripes_of_one_shard_do_not_conflict (void)
{
  static const uint64_t turn = (uint64_t) RANGELOCK_STRIPE * RANGELOCK_SHARDS;
  struct taker first, second;

  taker_start (&first, 0, 100, true);
  await_holds (&first);
  taker_start (&second, turn, turn + 100, true);
  await_holds (&second);
  taker_finish (&second);
  taker_finish (&first);
  CHECK (!second.waited);
}

/* Places as small as a byte, and so large that they are in different shards
 * and ranges in several.
 */
#define PLACES 8
static int place[PLACES];       /* plain ints: a race would be seen */
static uint64_t place_size;     /* bytes */

static void *
hammer (void *opaque)
{
  unsigned seed = (uintptr_t) opaque;
  int i;

  for (i = 0; i < 5000; ++i) {
    unsigned a = rand_r (&seed) % PLACES, b = rand_r (&seed) % PLACES, j;
    bool exclusive = rand_r (&seed) % 2;
    uint64_t start = min_u64 (a, b), end = max_u64 (a, b) + 1;
    struct range range;
    int sum = 0;

    range_lock (&rl, &range, start * place_size, end * place_size,
                exclusive);
    for (j = start; j < end; ++j) {
      if (exclusive)
        CHECK_EQ (place[j]++, 0);
      sum += place[j];
    }
    CHECK_EQ (sum, exclusive ? (int) (end - start) : 0);
    if (exclusive)
      for (j = start; j < end; ++j)
        place[j]--;
    range_unlock (&rl, &range);
  }
  return NULL;
}

static void
writers_are_alone (void)
{
  static const uint64_t sizes[] = {
    1, RANGELOCK_STRIPE / 3, RANGELOCK_STRIPE, 5 * RANGELOCK_STRIPE,
  };
  pthread_t threads[6];
  uintptr_t i;
  size_t j;

  for (j = 0; j < sizeof sizes / sizeof sizes[0]; ++j) {
    place_size = sizes[j];
    for (i = 0; i < 6; ++i)
      CHECK_EQ (pthread_create (&threads[i], NULL, hammer, (void *) i), 0);
    for (i = 0; i < 6; ++i)
      CHECK_EQ (pthread_join (threads[i], NULL), 0);
  }
}

int
main (void)
{
  rangelock_init (&rl);
  RUN (overlapping_ranges_wait_as_they_should);
  RUN (an_empty_range_never_waits);
  RUN (nobody_overtakes);
  RUN (order_of_arrival_is_kept);
  RUN (others_pass_by);
  RUN (large_ranges_wait_in_all_their_shards);
  RUN (stripes_of_one_shard_do_not_conflict);
  RUN (writers_are_alone);
  CHECK_EQ (ranges_known (), 0);
  rangelock_release (&rl);
  return EXIT_SUCCESS;
}
