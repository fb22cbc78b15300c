/* SPDX-License-Identifier: BSD-3-Clause */

/* When groups are plugged, and when not (rules 5, 6 and 8 of plug.h): what it
 * gains clients with all kinds of habits, what it costs those who come alone,
 * and who does not count.  Time is the test's (plug-sim.h).
 */

#include <config.h>

#include "plug-clients.h"

/* -- Alone --------------------------------------------------------------- */

static void
a_lone_writer_never_waits (void)
{
  sim_begin (SYNC);
  sim_add_client (0, 50 * US, 0);
  sim_run (100);
  CHECK_EQ (sim.nr_batches, 100);
  CHECK_EQ (sim.waits, 0);
  CHECK_EQ (sim.commit.stats.plugs, 0);
  CHECK_EQ (sim.reads, 2 * 100);        /* around the sync */
  stop ();
  sim_end ();
}

/* Bursts end, one client goes on: at most PLUG_MISSES waits.  They come again:
 * at most one of them is split, or waits in vain.
 */
static void
a_lone_writer_after_a_burst_soon_stops_waiting (void)
{
  unsigned round, waits, batches;

  begin_with_a_habit ();
  for (round = 0; round < 3; ++round) {
    waits = sim.waits;
    sim.nr_clients = 0;
    sim_add_client (0, 50 * US, 0);
    sim_run (50);
    CHECK_EQ (sim.waits - waits, PLUG_MISSES);
    CHECK_EQ (plug_expected (&sim.commit.plug), 1);
    stop ();

    batches = sim.nr_batches;
    sim.nr_clients = 0;
    sim_add_burst (BURST, GAP, MS, 1);
    sim_run (5 * BURST);
    CHECK_EQ (sim.nr_batches - batches, 6);
    stop ();
  }
  sim_end ();
}

/* One between two bursts is not yet another habit. */
static void
a_single_writer_between_bursts_spoils_nothing (void)
{
  unsigned round, batches;

  begin_with_a_habit ();
  sim_add_client (0, 0, 0);
  for (round = 0; round < 10; ++round) {
    batches = sim.nr_batches;
    sim.client[BURST].due = sim.time;
    sim_run (1);
    sim.client[BURST].due = NEVER;
    sim.nr_clients = 0;
    sim_add_burst (BURST, GAP, MS, 1);
    sim_run (BURST);
    sim.nr_clients = BURST + 1;
    stop ();
    CHECK_EQ (sim.nr_batches - batches, 2);
  }
  sim_end ();
}

/* -- Flushes and the background ------------------------------------------ */

static void
a_flush_ends_the_plug (void)
{
  uint64_t time;

  begin_with_a_habit ();
  time = sim.time;
  sim_start_client (0);
  sim_start_client (1);
  CHECK (!sim_at_gate ());
  sim.client[2].kind = COMMIT_FLUSH;
  sim_start_client (2);
  CHECK (sim_at_gate ());
  CHECK (sim.batch[sim.nr_batches - 1].all);
  CHECK_EQ (sim.time, time);
  expect_answers (0, 3, 0);
  CHECK_EQ (sim.commit.plug.misses[false], 0);
  sim_end ();
}

/* Neither alone, nor with those who have gathered during a sync. */
static void
a_flush_begins_no_plug (void)
{
  unsigned waits;

  begin_with_a_habit ();
  waits = sim.waits;
  sim.client[0].kind = COMMIT_FLUSH;
  sim_start_client (0);
  CHECK (sim_at_gate ());
  sim_start_client (1);
  sim.client[2].kind = COMMIT_FLUSH;
  sim_start_client (2);
  expect_answers (0, 1, 0);
  CHECK (sim_at_gate ());
  expect_answers (1, 3, 0);
  CHECK_EQ (sim.waits, waits);
  sim_end ();
}

/* Many at once are no burst (rule 5). */
static void
flushes_count_for_nothing (void)
{
  unsigned round, i;

  begin_with_a_habit ();
  for (round = 0; round < PLUG_HISTORY; ++round) {
    for (i = 0; i < 4; ++i) {
      sim.client[i].kind = COMMIT_FLUSH;
      sim_start_client (i);
    }
    expect_answers (0, 1, 0);
    expect_answers (1, 4, 0);
    sim_start_client (4);
    while (!sim_at_gate ())
      sim_advance_to (sim.wait_until);
    expect_answers (4, 5, 0);
  }
  CHECK_EQ (plug_expected (&sim.commit.plug), 1);
  sim_end ();
}

/* Neither do they make anybody forget it. */
static void
a_habit_outlives_flushes_and_the_background (void)
{
  unsigned i, batches;

  begin_with_a_habit ();
  for (i = 0; i < 2 * PLUG_HISTORY; ++i) {
    sim.client[8].kind = i % 2 ? COMMIT_FLUSH : COMMIT_BACKGROUND;
    sim_start_client (8);
    expect_answers (8, 9, 0);
  }
  batches = sim.nr_batches;
  for (i = 0; i < BURST; ++i)
    sim_start_client (i);
  expect_batch (batches, 0xff);
  expect_answers (0, BURST, 0);
  CHECK_EQ (sim.nr_batches, batches + 1);
  sim_end ();
}

/* Rule 5: as often as it wants, it is no burst. */
static void
the_background_counts_for_nothing (void)
{
  sim_begin (SYNC);
  sim_add_client (0, 50 * US, 0);
  sim_add_client (10 * US, 20 * US, 0);
  sim.client[1].kind = COMMIT_BACKGROUND;
  sim_run (50);
  CHECK_EQ (sim.waits, 0);
  CHECK_EQ (plug_expected (&sim.commit.plug), 1);
  sim_drain ();
  sim_end ();
}

static void
the_background_waits_for_nobody (void)
{
  begin_with_a_habit ();
  sim.client[0].kind = COMMIT_BACKGROUND;
  sim_start_client (0);
  CHECK (sim_at_gate ());
  expect_answers (0, 1, 0);
  sim_end ();
}

/* Among clients that wait it is not one of those that they wait for. */
static void
the_background_completes_no_group (void)
{
  unsigned i;

  begin_with_a_habit ();
  for (i = 0; i < BURST - 1; ++i)
    sim_start_client (i);
  sim.client[8].kind = COMMIT_BACKGROUND;
  sim_start_client (8);
  CHECK (!sim_at_gate ());
  sim_start_client (7);
  CHECK (sim_at_gate ());
  expect_batch (sim.nr_batches - 1, 0x1ff);
  expect_answers (0, 9, 0);
  sim_end ();
}

/* -- Habits -------------------------------------------------------------- */

/* So many clients, each of which writes again this long after its answer, and
 * beside them a burst.  Times in us.
 */
struct habit {
  const char *name;
  unsigned clients;
  unsigned think, apart;        /* the i-th thinks i * apart longer */
  unsigned burst, gap, burst_think;
  double without;               /* writes in a ms, if there is no plug */
  double per_ms;                /* with one, at least */
  double per_sync;              /* writes, at least */
};

static const struct habit habits[] = {
  { "a burst", 0, 0, 0, 8, 10, 800, 2.50, 3.8, 8 },
  { "a slow burst", 0, 0, 0, 8, 80, 800, 2.50, 3.1, 8 },
  { "a burst that is too slow", 0, 0, 0, 8, 140, 800, 2.50, 2.49, 4 },
  { "no burst", 0, 0, 0, 8, 170, 800, 2.50, 2.49, 4 },
  { "bursts without a pause", 0, 0, 0, 8, 10, 50, 3.27, 6, 8 },
  { "two", 2, 60, 0, 0, 0, 0, 0.83, 1.5, 2 },
  { "two, too late", 2, 200, 0, 0, 0, 0, 0.83, 0.82, 1 },
  { "three", 3, 60, 30, 0, 0, 0, 1.25, 2.2, 3 },
  { "eight", 8, 60, 15, 0, 0, 0, 3.33, 5.8, 8 },
  { "sixteen that come back at once", 16, 60, 5, 0, 0, 0, 6.67, 11.9, 16 },
  { "sixteen, less quickly", 16, 60, 10, 0, 0, 0, 6.67, 11.3, 16 },
  { "sixteen, later", 16, 100, 10, 0, 0, 0, 6.67, 11, 16 },
  { "sixteen, just too late", 16, 150, 10, 0, 0, 0, 6.67, 6.6, 8 },
  { "sixteen, too late", 16, 300, 10, 0, 0, 0, 6.67, 6.6, 8 },
  { "sixteen, one after the other", 16, 60, 40, 0, 0, 0, 6.67, 7.6, 13.7 },
  { "one beside bursts", 1, 60, 0, 8, 10, 800, 3.64, 3.8, 4.8 },
  { "a rare one beside bursts", 1, 3000, 0, 8, 10, 800, 3.00, 3.3, 5.3 },
  { "one beside rare bursts", 1, 60, 0, 8, 10, 6000, 1.65, 1.55, 2 },
};

static void
run_habit (const struct habit *h)
{
  unsigned i, batches;
  uint64_t began;
  double per_sync, per_ms;

  sim_begin (SYNC);
  for (i = 0; i < h->clients; ++i)
    sim_add_client (i * h->apart * US, (h->think + i * h->apart) * US, 0);
  if (h->burst > 0)
    sim_add_burst (h->burst, h->gap * US, h->burst_think * US, 1);
  sim_run (48);                 /* whole bursts */
  batches = sim.nr_batches;
  began = sim.time;
  sim_run (96);
  per_sync = 96.0 / (sim.nr_batches - batches);
  per_ms = 96.0 / ((sim.time - began) / 1e6);
  sim_drain ();
  sim_end ();

  if (per_sync >= h->per_sync && per_ms >= h->per_ms)
    return;
  fprintf (stderr, "%s: %.2f writes in a ms, %.2f to a sync; should be %.2f "
           "(%.2f without a plug), and %.2f\n", h->name, per_ms, per_sync,
           h->per_ms, h->without, h->per_sync);
  exit (EXIT_FAILURE);
}

static void
habits_are_met (void)
{
  size_t i;

  for (i = 0; i < sizeof habits / sizeof habits[0]; ++i) {
    printf ("  %s\n", habits[i].name);
    run_habit (&habits[i]);
  }
}

/* The i-th client thinks i * apart longer. */
static void
all_think (unsigned us, unsigned apart)
{
  unsigned i;

  for (i = 0; i < sim.nr_clients; ++i)
    sim.client[i].think = (us + apart * i) * US;
}

/* Clients that come back too late are not waited for, as soon as that is seen;
 * and are, as soon as they come back in time.
 */
static void
changes_of_habit_are_seen (void)
{
  unsigned i, batches;
  uint64_t plugs;

  sim_begin (SYNC);
  for (i = 0; i < 16; ++i)
    sim_add_client (i * GAP, 0, 0);
  for (i = 0; i < 3; ++i) {
    all_think (400, 390);
    plugs = sim.commit.stats.plugs;
    sim_run (320);
    CHECK (sim.commit.stats.plugs - plugs <= 2 * PLUG_MISSES);

    all_think (60, 10);
    sim_run (64);
    batches = sim.nr_batches;
    sim_run (160);
    CHECK_EQ (sim.nr_batches - batches, 10);
  }
  sim_drain ();
  sim_end ();
}

/* -- Statistics ---------------------------------------------------------- */

static void
the_statistics_add_up (void)
{
  struct commit_stats stats;
  unsigned i;

  begin_with_a_habit ();        /* 1, 7, 8 and 8 members */
  sim.client[0].kind = COMMIT_FLUSH;
  sim_start_client (0);
  expect_answers (0, 1, 0);
  sim.client[0].kind = COMMIT_BACKGROUND;
  sim_start_client (0);
  expect_answers (0, 1, 0);
  commit_get_stats (&sim.commit, &stats);

  CHECK_EQ (stats.groups, 6);
  CHECK_EQ (stats.members, 26);
  CHECK_EQ (stats.saved, 20);
  CHECK_EQ (stats.syncs, 26);   /* far apart: one range for each member */
  CHECK_EQ (stats.plugs, 2);
  CHECK_EQ (stats.plugs_complete, 2);
  CHECK_EQ (stats.plug_ns, 2 * 7 * GAP);
  CHECK_EQ (stats.sizes[0], 3);
  CHECK_EQ (stats.sizes[2], 1);
  CHECK_EQ (stats.sizes[3], 2);

  /* A sync takes 2^20.2 ns.  Seven of the first burst waited for almost two,
   * the two others for a little more than one.
   */
  CHECK_EQ (stats.waits[COMMIT_FUA][20], 17);
  CHECK_EQ (stats.waits[COMMIT_FUA][21], 7);
  CHECK_EQ (stats.waits[COMMIT_FLUSH][20], 1);
  CHECK_EQ (stats.waits[COMMIT_BACKGROUND][20], 1);
  for (i = 0; i < COMMIT_TIME_BUCKETS; ++i)
    if (i != 20 && i != 21)
      CHECK_EQ (stats.waits[COMMIT_FUA][i], 0);
  sim_end ();
}

int
main (void)
{
  RUN (a_lone_writer_never_waits);
  RUN (a_lone_writer_after_a_burst_soon_stops_waiting);
  RUN (a_single_writer_between_bursts_spoils_nothing);
  RUN (a_flush_ends_the_plug);
  RUN (a_flush_begins_no_plug);
  RUN (flushes_count_for_nothing);
  RUN (a_habit_outlives_flushes_and_the_background);
  RUN (the_background_counts_for_nothing);
  RUN (the_background_waits_for_nobody);
  RUN (the_background_completes_no_group);
  RUN (habits_are_met);
  RUN (changes_of_habit_are_seen);
  RUN (the_statistics_add_up);
  return EXIT_SUCCESS;
}
