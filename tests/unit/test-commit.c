/* SPDX-License-Identifier: BSD-3-Clause */

/* Group commit over a disk that stops at a gate: who shares a sync with
 * whom, in which order, and what happens after a failure.
 */

#include <config.h>

#include "commit.h"
#include "gated-disk.h"
#include "util.h"

#define SIZE (64 * 1024 * 1024)
#define FAR (1024 * 1024)       /* ranges this far apart are not merged */

static struct gated_disk *gd;
static struct commit commit;

static void
setup (void)
{
  gd = gated_new (SIZE, 1);
  commit_init (&commit, &gd->disk, false);
}

static void
teardown (void)
{
  commit_release (&commit);
  disk_free (&gd->disk);
}

struct waiter {
  pthread_t thread;
  uint64_t start, end;          /* 0, 0: a flush */
  int result;
};

static void *
waiter_run (void *opaque)
{
  struct waiter *w = opaque;

  w->result = w->end == 0 ? commit_all (&commit)
    : commit_range (&commit, w->start, w->end);
  return NULL;
}

static void
waiter_start (struct waiter *w, uint64_t start, uint64_t end)
{
  w->start = start;
  w->end = end;
  CHECK_EQ (pthread_create (&w->thread, NULL, waiter_run, w), 0);
}

static int
waiter_join (struct waiter *w)
{
  CHECK_EQ (pthread_join (w->thread, NULL), 0);
  return w->result;
}

/* Wait until `nr` requests have joined a group, ever. */
static void
await_members (uint64_t nr)
{
  struct commit_stats stats;

  do {
    sched_yield ();
    commit_get_stats (&commit, &stats);
  } while (stats.members < nr);
}

static void
a_lone_writer_syncs_its_range_at_once (void)
{
  setup ();
  CHECK_EQ (commit_range (&commit, 4096, 4608), 0);
  CHECK_EQ (gd->nr_log, 1);
  CHECK_EQ (gd->log[0].kind, DISK_SYNC);
  CHECK_EQ (gd->log[0].offset, 4096);
  CHECK_EQ (gd->log[0].length, 512);
  teardown ();
}

static void
a_flush_syncs_everything (void)
{
  setup ();
  CHECK_EQ (commit_all (&commit), 0);
  CHECK_EQ (gd->nr_log, 1);
  CHECK_EQ (gd->log[0].offset, 0);
  CHECK (gd->log[0].length == UINT64_MAX);
  teardown ();
}

static void
an_empty_range_needs_no_sync (void)
{
  setup ();
  CHECK_EQ (commit_range (&commit, 4096, 4096), 0);
  CHECK_EQ (gd->nr_log, 0);
  teardown ();
}

/* While one sync runs the others gather: eight writers, two syncs. */
static void
those_who_come_during_a_sync_share_the_next (void)
{
  struct waiter w[8];
  size_t i;

  setup ();
  gated_set (gd, true);
  waiter_start (&w[0], 0, 512);
  gated_await (gd, 1);
  for (i = 1; i < 8; ++i)
    waiter_start (&w[i], i * FAR, i * FAR + 512);
  await_members (8);
  CHECK_EQ (gd->batches, 1);
  gated_set (gd, false);
  for (i = 0; i < 8; ++i)
    CHECK_EQ (waiter_join (&w[i]), 0);
  CHECK_EQ (gd->batches, 2);
  CHECK_EQ (gd->nr_log, 8);     /* one range, then seven */
  CHECK_EQ (gd->inside_max, 1);
  for (i = 1; i < 8; ++i)
    CHECK_EQ (gd->log[i].offset, i * FAR);
  teardown ();
}

/* Two far ranges in a group.  Returns the number of syncs. */
static size_t
syncs_of_two_far_ranges (void)
{
  static const struct commit_range far[] = {
    { FAR, FAR + 512 }, { 5 * FAR, 5 * FAR + 512 },
  };
  size_t before = gd->nr_log, n;

  CHECK_EQ (commit_many (&commit, far, 2), 0);
  n = gd->nr_log - before;
  CHECK_EQ (gd->log[before].offset, FAR);
  CHECK_EQ (gd->log[before + n - 1].offset +
            gd->log[before + n - 1].length, 5 * FAR + 512);
  return n;
}

/* Rule 2: what is dirty is not known at first, and after a sync of everything
 * it is what was written since.
 */
static void
far_ranges_are_one_where_nothing_else_is_dirty (void)
{
  setup ();
  CHECK_EQ (syncs_of_two_far_ranges (), 2);
  CHECK_EQ (commit_all (&commit), 0);
  CHECK_EQ (syncs_of_two_far_ranges (), 1);
  commit_note_write (&commit, COMMIT_NEAR);
  CHECK_EQ (syncs_of_two_far_ranges (), 1);
  commit_note_write (&commit, 1);
  CHECK_EQ (syncs_of_two_far_ranges (), 2);
  CHECK_EQ (syncs_of_two_far_ranges (), 2);     /* they have not covered it */
  CHECK_EQ (commit_all (&commit), 0);
  CHECK_EQ (syncs_of_two_far_ranges (), 1);
  teardown ();
}

/* What is written while everything is synced counts. */
static void
a_write_during_a_flush_is_loose (void)
{
  struct waiter flush;

  setup ();
  gated_set (gd, true);
  waiter_start (&flush, 0, 0);
  gated_await (gd, 1);
  commit_note_write (&commit, COMMIT_NEAR + 1);
  gated_set (gd, false);
  CHECK_EQ (waiter_join (&flush), 0);
  CHECK_EQ (syncs_of_two_far_ranges (), 2);
  teardown ();
}

/* With O_DIRECT nothing ever is. */
static void
direct_writes_are_not_loose (void)
{
  setup ();
  commit_release (&commit);
  gd->disk.align = 512;
  commit_init (&commit, &gd->disk, false);
  commit_note_write (&commit, COMMIT_NEAR + 1);
  CHECK_EQ (syncs_of_two_far_ranges (), 1);
  teardown ();
}

/* -- Write-back ---------------------------------------------------------- */

static struct commit_range written_back[8];
static unsigned nr_written_back;

static void
note_write_back (struct disk *disk, uint64_t offset, uint64_t length)
{
  SCOPED_LOCK (&gd->lock);
  CHECK (disk == &gd->disk && nr_written_back < 8);
  written_back[nr_written_back++] = (struct commit_range) {
    offset, offset + length
  };
}

/* Rule 10. */
static void
who_gathers_behind_a_sync_is_written_back_meanwhile (void)
{
  struct waiter w[2], flush;
  struct disk_ops ops;

  setup ();
  ops = *gd->disk.ops;
  ops.write_back = note_write_back;
  gd->disk.ops = &ops;
  nr_written_back = 0;
  gated_set (gd, true);
  waiter_start (&w[0], 0, 512);         /* it leads */
  gated_await (gd, 1);
  waiter_start (&w[1], FAR, FAR + 512);
  await_members (2);
  waiter_start (&flush, 0, 0);
  await_members (3);
  gated_set (gd, false);
  CHECK_EQ (waiter_join (&w[0]), 0);
  CHECK_EQ (waiter_join (&w[1]), 0);
  CHECK_EQ (waiter_join (&flush), 0);
  CHECK_EQ (nr_written_back, 1);
  CHECK_EQ (written_back[0].start, FAR);
  CHECK_EQ (written_back[0].end, FAR + 512);
  teardown ();
}

/* Rule 1 seen from outside: who joins during a sync is not acknowledged by
 * it, though its range is the same.
 */
static void
a_running_sync_does_not_serve_later_members (void)
{
  struct waiter first, second;

  setup ();
  gated_set (gd, true);
  waiter_start (&first, 0, 512);
  gated_await (gd, 1);
  waiter_start (&second, 0, 512);
  await_members (2);
  gated_set (gd, false);
  CHECK_EQ (waiter_join (&first), 0);
  CHECK_EQ (waiter_join (&second), 0);
  CHECK_EQ (gd->batches, 2);
  teardown ();
}

static void
near_ranges_become_one_sync (void)
{
  struct waiter w[4];
  size_t i;

  setup ();
  gated_set (gd, true);
  waiter_start (&w[0], 0, 512);
  gated_await (gd, 1);
  waiter_start (&w[1], 2 * FAR, 2 * FAR + 512);
  waiter_start (&w[2], 2 * FAR + 8192, 2 * FAR + 8704);
  waiter_start (&w[3], 2 * FAR + 4096, 2 * FAR + 4608);
  await_members (4);
  gated_set (gd, false);
  for (i = 0; i < 4; ++i)
    CHECK_EQ (waiter_join (&w[i]), 0);
  CHECK_EQ (gd->nr_log, 2);
  CHECK_EQ (gd->log[1].offset, 2 * FAR);
  CHECK_EQ (gd->log[1].length, 8704);
  teardown ();
}

/* D6: every waiter is told, and it stays so though the disk has recovered. */
static void
a_failed_sync_reaches_every_waiter_and_is_final (void)
{
  struct waiter w[4];
  size_t i;

  setup ();
  gated_set (gd, true);
  waiter_start (&w[0], 0, 512);
  gated_await (gd, 1);
  for (i = 1; i < 4; ++i)
    waiter_start (&w[i], i * FAR, i * FAR + 512);
  await_members (4);
  gd->fail_sync = -ENOSPC;
  gated_set (gd, false);
  CHECK_EQ (waiter_join (&w[0]), -ENOSPC);
  for (i = 1; i < 4; ++i)
    CHECK_EQ (waiter_join (&w[i]), -EIO);
  CHECK_EQ (gd->batches, 1);

  gd->fail_sync = 0;
  CHECK_EQ (commit_range (&commit, 0, 512), -EIO);
  CHECK_EQ (commit_all (&commit), -EIO);
  CHECK_EQ (gd->batches, 1);
  CHECK (commit_has_failed (&commit));
  teardown ();
}

/* A sync that was under way when a write failed tells its own result; who
 * gathers behind it is told of the failure.
 */
static void
a_failed_write_fails_the_gathering_group_only (void)
{
  struct waiter issued, gathering;

  setup ();
  gated_set (gd, true);
  waiter_start (&issued, 0, 512);
  gated_await (gd, 1);
  waiter_start (&gathering, FAR, FAR + 512);
  await_members (2);
  commit_fail (&commit);
  CHECK_EQ (waiter_join (&gathering), -EIO);
  gated_set (gd, false);
  CHECK_EQ (waiter_join (&issued), 0);
  CHECK_EQ (commit_all (&commit), -EIO);
  CHECK_EQ (gd->batches, 1);
  teardown ();
}

static void
unsafe_never_syncs_but_latches (void)
{
  setup ();
  commit_release (&commit);
  commit_init (&commit, &gd->disk, true);
  CHECK_EQ (commit_range (&commit, 0, 512), 0);
  CHECK_EQ (commit_all (&commit), 0);
  CHECK_EQ (gd->batches, 0);
  commit_fail (&commit);
  CHECK_EQ (commit_all (&commit), -EIO);
  teardown ();
}

static void *
hammer (void *opaque)
{
  uint64_t base = (uintptr_t) opaque * FAR;
  int i;

  for (i = 0; i < 100; ++i) {
    if (i % 10 == 0)
      CHECK_EQ (commit_all (&commit), 0);
    else
      CHECK_EQ (commit_range (&commit, base, base + 512), 0);
  }
  return NULL;
}

/* Many threads: nobody is forgotten, and never two batches at once (rule
 * 3).
 */
static void
nobody_is_forgotten (void)
{
  pthread_t threads[8];
  uintptr_t i;

  setup ();
  for (i = 0; i < 8; ++i)
    CHECK_EQ (pthread_create (&threads[i], NULL, hammer, (void *) i), 0);
  for (i = 0; i < 8; ++i)
    CHECK_EQ (pthread_join (threads[i], NULL), 0);
  CHECK_EQ (commit.stats.members, 800);
  CHECK_EQ (gd->inside_max, 1);
  CHECK (gd->batches <= 800);
  teardown ();
}

/* commit_ranges_add() against a bitmap of FAR-sized places. */
static void
ranges_cover_what_was_added (void)
{
  static const struct {
    const char *name;
    struct commit_range add[4];
    unsigned nr;
    struct commit_range first, last;
  } rows[] = {
    { "one", { { 8, 9 } }, 1, { 8, 9 }, { 8, 9 } },
    { "empty", { { 8, 8 } }, 0, { 0, 0 }, { 0, 0 } },
    { "twice", { { 8, 9 }, { 8, 9 } }, 1, { 8, 9 }, { 8, 9 } },
    { "touching", { { 8, 9 }, { 9, 10 } }, 1, { 8, 10 }, { 8, 10 } },
    { "far, sorted", { { 8, 9 }, { 20 * FAR, 20 * FAR + 1 } }, 2,
      { 8, 9 }, { 20 * FAR, 20 * FAR + 1 } },
    { "far, backwards", { { 20 * FAR, 20 * FAR + 1 }, { 8, 9 } }, 2,
      { 8, 9 }, { 20 * FAR, 20 * FAR + 1 } },
    { "bridged", { { 0, 1 }, { 2 * FAR, 2 * FAR + 1 },
                   { 4 * FAR, 4 * FAR + 1 }, { 1, 4 * FAR } }, 1,
      { 0, 4 * FAR + 1 }, { 0, 4 * FAR + 1 } },
    { "inside", { { 0, FAR }, { 5, 6 } }, 1, { 0, FAR }, { 0, FAR } },
  };
  size_t i, j;

  for (i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    struct commit_ranges r = { .nr = 0 };

    printf ("  %s\n", rows[i].name);
    for (j = 0; j < 4; ++j)
      commit_ranges_add (&r, rows[i].add[j].start, rows[i].add[j].end);
    CHECK_EQ (r.nr, rows[i].nr);
    CHECK (!r.all);
    if (r.nr == 0)
      continue;
    CHECK_EQ (r.range[0].start, rows[i].first.start);
    CHECK_EQ (r.range[0].end, rows[i].first.end);
    CHECK_EQ (r.range[r.nr - 1].start, rows[i].last.start);
    CHECK_EQ (r.range[r.nr - 1].end, rows[i].last.end);
  }
}

static void
too_many_ranges_become_the_whole_image (void)
{
  struct commit_ranges r = { .nr = 0 };
  uint64_t i;

  for (i = 0; i < COMMIT_RANGES_MAX; ++i)
    commit_ranges_add (&r, i * FAR, i * FAR + 1);
  CHECK_EQ (r.nr, COMMIT_RANGES_MAX);
  commit_ranges_add (&r, 3 * FAR, 3 * FAR + 2);
  CHECK (!r.all);
  commit_ranges_add (&r, 99 * (uint64_t) FAR, 99 * (uint64_t) FAR + 1);
  CHECK (r.all);
}

/* Random additions: sorted, not touching, and a superset of each. */
static void
ranges_stay_sorted_and_complete (void)
{
  unsigned seed = 1, round, i, j;

  for (round = 0; round < 2000; ++round) {
    struct commit_ranges r = { .nr = 0 };
    struct commit_range added[20];

    for (i = 0; i < 20; ++i) {
      added[i].start = rand_r (&seed) % 40 * (FAR / 8);
      added[i].end = added[i].start + 1 + rand_r (&seed) % FAR;
      commit_ranges_add (&r, added[i].start, added[i].end);
    }
    for (i = 0; i < r.nr; ++i)
      CHECK (r.range[i].start < r.range[i].end &&
             (i == 0 || r.range[i - 1].end < r.range[i].start));
    for (i = 0; i < 20; ++i) {
      for (j = 0; j < r.nr; ++j)
        if (r.range[j].start <= added[i].start &&
            added[i].end <= r.range[j].end)
          break;
      CHECK (j < r.nr);
    }
  }
}

int
main (void)
{
  RUN (a_lone_writer_syncs_its_range_at_once);
  RUN (a_flush_syncs_everything);
  RUN (an_empty_range_needs_no_sync);
  RUN (who_gathers_behind_a_sync_is_written_back_meanwhile);
  RUN (far_ranges_are_one_where_nothing_else_is_dirty);
  RUN (a_write_during_a_flush_is_loose);
  RUN (direct_writes_are_not_loose);
  RUN (those_who_come_during_a_sync_share_the_next);
  RUN (a_running_sync_does_not_serve_later_members);
  RUN (near_ranges_become_one_sync);
  RUN (a_failed_sync_reaches_every_waiter_and_is_final);
  RUN (a_failed_write_fails_the_gathering_group_only);
  RUN (unsafe_never_syncs_but_latches);
  RUN (nobody_is_forgotten);
  RUN (ranges_cover_what_was_added);
  RUN (too_many_ranges_become_the_whole_image);
  RUN (ranges_stay_sorted_and_complete);
  return EXIT_SUCCESS;
}
