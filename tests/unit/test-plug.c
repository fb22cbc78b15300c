/* SPDX-License-Identifier: BSD-3-Clause */

/* The plug of group commit (rules 7 and 9 of plug.h and commit.h): bursts that
 * become one group, how long it takes, how it ends early, and failures (D6).
 * Time is the test's (plug-sim.h), but for the last one, which is for
 * ThreadSanitizer.
 */

#include <config.h>

#include <errno.h>

#include "plug-clients.h"

/* -- Bursts -------------------------------------------------------------- */

static void
a_burst_is_split_once_and_then_never (void)
{
  unsigned i;

  sim_begin (SYNC);
  sim_add_burst (BURST, GAP, MS, 1);
  sim_run (BURST);
  CHECK_EQ (sim.nr_batches, 2);
  expect_batch (0, 0x01);
  expect_batch (1, 0xfe);
  CHECK_EQ (sim.waits, 0);
  /* Nobody is woken for nothing: each has read the clock when it came and at
   * the end, and the second leader also when the first sync had ended.
   */
  CHECK_EQ (sim.reads, 2 * BURST + 1);

  sim_run (10 * BURST);
  CHECK_EQ (sim.nr_batches, 12);
  for (i = 2; i < 12; ++i)
    expect_batch (i, 0xff);
  CHECK_EQ (sim.waits, 10);
  CHECK_EQ (sim.commit.stats.plugs, 10);
  CHECK_EQ (sim.commit.stats.plugs_complete, 10);
  CHECK_EQ (sim.commit.stats.plug_ns, 10 * 7 * GAP);
  sim_end ();
}

/* Rule 9: nobody had to wake the one who waits. */
static void
who_completes_the_group_leads_it (void)
{
  unsigned i;

  begin_with_a_habit ();
  for (i = 0; i < BURST; ++i) {
    CHECK (!sim_at_gate ());
    sim_start_client (i);
  }
  CHECK (sim_at_gate ());
  CHECK (sim.wait_until > 0);
  expect_answers (0, BURST, 0);
  sim_end ();
}

/* Part of a burst has come when the time is up. */
static void
who_waits_in_vain_waits_a_quarter (void)
{
  uint64_t began;

  begin_with_a_habit ();
  began = sim.time;
  sim_start_client (0);
  sim_start_client (1);
  sim_advance_to (began + PLUG - 1);
  CHECK (!sim_at_gate ());
  sim_advance_to (began + PLUG);
  CHECK (sim_at_gate ());
  expect_batch (sim.nr_batches - 1, 0x03);
  expect_answers (0, 2, 0);
  sim_end ();
}

static void
who_comes_gives_the_next_a_quarter (void)
{
  uint64_t began;

  begin_with_a_habit ();
  began = sim.time;
  sim_start_client (0);
  sim_advance_to (began + PLUG - 1);
  sim_start_client (1);
  sim_advance_to (began + PLUG);
  sim_advance_to (began + 2 * PLUG - 2);
  CHECK (!sim_at_gate ());
  sim_advance_to (began + 2 * PLUG - 1);
  CHECK (sim_at_gate ());
  expect_batch (sim.nr_batches - 1, 0x03);
  expect_answers (0, 2, 0);
  sim_end ();
}

static void
half_a_sync_is_the_most (void)
{
  uint64_t began;
  unsigned i;

  begin_with_a_habit ();
  began = sim.time;
  for (i = 0; i < 6; ++i) {
    while (sim.time < began + i * 100 * US)
      sim_advance_to (min_u64 (began + i * 100 * US, sim.wait_until));
    CHECK (!sim_at_gate ());
    sim_start_client (i);
  }
  while (sim.time < began + SYNC / 2) {
    CHECK (!sim_at_gate ());
    sim_advance_to (sim.wait_until);
  }
  CHECK_EQ (sim.time, began + SYNC / 2);
  CHECK (sim_at_gate ());
  expect_answers (0, 6, 0);
  sim_end ();
}

/* pthread_cond_timedwait() may return at any time. */
static void
who_wakes_too_early_waits_again (void)
{
  unsigned waits;

  begin_with_a_habit ();
  waits = sim.waits;
  sim_start_client (0);
  pthread_mutex_lock (&sim.commit.lock);
  pthread_cond_broadcast (sim.wait_cond);
  while (sim.waits < waits + 2) {
    pthread_mutex_unlock (&sim.commit.lock);
    CHECK (!sim_at_gate ());
    sched_yield ();
    pthread_mutex_lock (&sim.commit.lock);
  }
  pthread_mutex_unlock (&sim.commit.lock);
  sim_advance_to (sim.wait_until);
  expect_answers (0, 1, 0);
  sim_end ();
}

/* The leader has not been woken yet, but another one comes too late. */
static void
who_comes_when_time_is_up_leads (void)
{
  begin_with_a_habit ();
  sim_start_client (0);
  atomic_store (&sim.time, sim.time + PLUG);
  sim_start_client (1);
  CHECK (sim_at_gate ());
  expect_batch (sim.nr_batches - 1, 0x03);
  expect_answers (0, 2, 0);
  sim_end ();
}

/* -- How long ------------------------------------------------------------ */

static void
a_plug_is_a_part_of_the_shortest_sync (void)
{
  static const struct {
    const char *name;
    uint64_t syncs[6], quarter, half; /* us */
  } rows[] = {
    { "not known", { 0 }, 0, 0 },
    { "all the same", { 800, 800, 800, 800 }, 200, 400 },
    { "one only", { 800 }, 200, 400 },
    { "a long one among them", { 800, 800, 90000, 800 }, 200, 400 },
    { "a short one among them", { 800, 480, 800, 800 }, 120, 240 },
    { "a short one long ago", { 480, 800, 800, 800, 800 }, 200, 400 },
    { "the least", { 240 }, 60, 120 },
    { "too short to be worth it", { 239 }, 0, 0 },
    { "a slow disk", { 5000 }, 1000, 1000 },
    { "slower than any disk", { 100000 }, 1000, 1000 },
  };
  size_t i, j;

  for (i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    struct plug p = { .clients = 1, .peaks = { 2 } };

    printf ("  %s\n", rows[i].name);
    for (j = 0; j < 6; ++j)
      plug_finish (&p, 0, rows[i].syncs[j] * US);
    CHECK_EQ (plug_begin (&p, 5 * US), rows[i].half > 0);
    if (rows[i].half == 0)
      continue;
    CHECK_EQ (p.window.end, (5 + rows[i].quarter) * US);
    CHECK_EQ (p.window.limit, (5 + rows[i].half) * US);
  }
}

static void
a_quick_disk_is_not_plugged (void)
{
  sim_begin (100 * US);
  sim_add_burst (BURST, GAP, MS, 1);
  sim_run (10 * BURST);
  CHECK_EQ (sim.waits, 0);
  sim_end ();
}

/* A flush may have gigabytes to write, and a background batch much: they say
 * nothing of what a client's write will take.  Neither does one that failed.
 */
static void
only_syncs_of_clients_are_measured (void)
{
  begin_with_a_habit ();
  sim.sync_ns = 300 * US;
  sim.client[0].kind = COMMIT_FLUSH;
  sim_start_client (0);
  expect_answers (0, 1, 0);
  sim.client[0].kind = COMMIT_BACKGROUND;
  sim_start_client (0);
  expect_answers (0, 1, 0);
  CHECK_EQ (plug_sync (&sim.commit.plug), SYNC);

  sim.fail_sync = -ENOSPC;
  sim.client[0].kind = COMMIT_FUA;
  sim_start_client (0);
  sim_advance_to (sim.time + PLUG);
  expect_answers (0, 1, -ENOSPC);
  CHECK_EQ (plug_sync (&sim.commit.plug), SYNC);
  sim_end ();
}

/* -- Failures (D6) ------------------------------------------------------- */

static void
a_failed_sync_tells_every_member (void)
{
  unsigned i;

  begin_with_a_habit ();
  sim.fail_sync = -ENOSPC;
  for (i = 0; i < BURST; ++i)
    sim_start_client (i);
  expect_answers (0, BURST, -ENOSPC);

  sim.fail_sync = 0;
  sim_start_client (0);
  CHECK_EQ (sim_join_client (0), -EIO);
  sim_end ();
}

static void
a_failure_in_the_plug_wakes_everybody (void)
{
  unsigned i, batches;

  begin_with_a_habit ();
  batches = sim.nr_batches;
  for (i = 0; i < 3; ++i)
    sim_start_client (i);
  commit_fail (&sim.commit);
  for (i = 0; i < 3; ++i)
    CHECK_EQ (sim_join_client (i), -EIO);
  sim_start_client (0);
  CHECK_EQ (sim_join_client (0), -EIO);
  CHECK_EQ (sim.nr_batches, batches);
  sim_end ();
}

/* Those who gather behind a sync that fails, the first of them included. */
static void
a_failed_sync_wakes_the_next_group (void)
{
  unsigned i;

  sim_begin (SYNC);
  sim.fail_sync = -ENOSPC;
  for (i = 0; i < 4; ++i)
    sim_start_client (i);
  sim_end_sync ();
  CHECK_EQ (sim_join_client (0), -ENOSPC);
  for (i = 1; i < 4; ++i)
    CHECK_EQ (sim_join_client (i), -EIO);
  CHECK_EQ (sim.nr_batches, 1);
  sim_end ();
}

/* -- Real time ----------------------------------------------------------- */

static struct commit commit;
static atomic_uint inside;

static void
sleep_us (unsigned us)
{
  nanosleep (&(struct timespec) { .tv_nsec = us * 1000 }, NULL);
}

static int
slow_submit (struct disk *disk, struct disk_op *ops, size_t nr)
{
  size_t i;

  CHECK_EQ (disk->align, 1);
  CHECK_EQ (atomic_fetch_add (&inside, 1), 0);
  sleep_us (400);
  for (i = 0; i < nr; ++i)
    ops[i].result = 0;
  atomic_fetch_sub (&inside, 1);
  return 0;
}

static void *
hammer (void *opaque)
{
  unsigned i, seed = (uintptr_t) opaque;
  uint64_t base = (uint64_t) (uintptr_t) opaque * SIM_FAR;
  struct commit_range range = { base, base + 512 };

  for (i = 0; i < 60; ++i) {
    switch (rand_r (&seed) % 16) {
    case 0:
      CHECK_EQ (commit_all (&commit), 0);
      break;
    case 1:
      CHECK_EQ (commit_background (&commit, &range, 1), 0);
      break;
    default:
      CHECK_EQ (commit_range (&commit, base, base + 512), 0);
    }
    if (rand_r (&seed) % 8 == 0)
      sleep_us (rand_r (&seed) % 1000);
  }
  return NULL;
}

/* Nobody is forgotten, and there are never two batches at once. */
static void
many_threads (void)
{
  static const struct disk_ops ops = { .name = "slow", .submit = slow_submit };
  struct disk disk;
  struct commit_stats stats;
  pthread_t threads[12];
  uint64_t members = 0;
  uintptr_t i;

  disk_init (&disk, &ops, UINT64_C (1) << 30, 1, 1);
  commit_init (&commit, &disk, false);
  for (i = 0; i < 12; ++i)
    CHECK_EQ (pthread_create (&threads[i], NULL, hammer, (void *) i), 0);
  for (i = 0; i < 12; ++i)
    CHECK_EQ (pthread_join (threads[i], NULL), 0);
  commit_get_stats (&commit, &stats);
  CHECK_EQ (stats.members, 12 * 60);
  CHECK_EQ (stats.saved, stats.members - stats.groups);
  for (i = 0; i < COMMIT_TIME_BUCKETS; ++i)
    members += stats.waits[0][i] + stats.waits[1][i] + stats.waits[2][i];
  CHECK_EQ (members, 12 * 60);
  CHECK_EQ (commit.plug.waiting, 0);
  commit_release (&commit);
}

int
main (void)
{
  RUN (a_burst_is_split_once_and_then_never);
  RUN (who_completes_the_group_leads_it);
  RUN (who_waits_in_vain_waits_a_quarter);
  RUN (who_comes_gives_the_next_a_quarter);
  RUN (half_a_sync_is_the_most);
  RUN (who_wakes_too_early_waits_again);
  RUN (who_comes_when_time_is_up_leads);
  RUN (a_plug_is_a_part_of_the_shortest_sync);
  RUN (a_quick_disk_is_not_plugged);
  RUN (only_syncs_of_clients_are_measured);
  RUN (a_failed_sync_tells_every_member);
  RUN (a_failure_in_the_plug_wakes_everybody);
  RUN (a_failed_sync_wakes_the_next_group);
  RUN (many_threads);
  return EXIT_SUCCESS;
}
