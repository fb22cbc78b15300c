/* SPDX-License-Identifier: BSD-3-Clause */

/* What happens to deferred mirrors without a request: they are written by age
 * and by amount, a quiet window is disarmed, and old windows make room for new
 * ones (mirror.h, rule 9).
 */

#include <config.h>

#include "mirror-window.h"
#include "rig-load.h"
#include "util.h"

static bool
is_in_place (const char *place_name)
{
  struct rig_place place = rig_place (&rig, place_name);
  bool is;

  pthread_mutex_lock (&rig.lock);
  is = memcmp (rig.bytes + place.start, rig.shadow + place.start,
               place.length) == 0;
  pthread_mutex_unlock (&rig.lock);
  return is;
}

/* Let time pass, as far as the thread can see. */
static void
set_delay (uint64_t delay_ns)
{
  struct mirror *m = &rig.fb->mirror;

  pthread_mutex_lock (&m->lock);
  m->delay_ns = delay_ns;
  pthread_cond_broadcast (&m->changed);
  pthread_mutex_unlock (&m->lock);
}

/* Wait, and write to FAT 1 of these windows meanwhile: so it is not because of
 * quiet that anything happens.
 */
static void
await_busy (const char *name, uint64_t at_least, unsigned windows)
{
  unsigned n;

  while (rig_stat (&rig, name) < at_least) {
    for (n = 0; n < windows; ++n)
      load_request ("write fat1:%u z", n * 1024 + 12);
    usleep (1000);
  }
}

/* -- When mirrors are written ------------------------------------------ */

static void
by_age_and_by_amount_mirrors_are_written_by_themselves (void)
{
  static const struct {
    const char *name;
    uint32_t delay_ms;
    uint64_t batch;
    unsigned pairs;
  } rows[] = {
    { "age", 10, UINT64_C (1) << 30, 1 },
    { "no delay at all", 0, UINT64_C (1) << 30, 3 },
    { "amount", 3600000, 8 * 512, 8 },
    { "amount, of less than a sector", 3600000, 1, 3 },
  };
  size_t i;
  unsigned n;

  for (i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    printf ("  %s\n", rows[i].name);
    fflush (stdout);
    load_init (&rig_small);
    rig.options.mirror_delay_ms = rows[i].delay_ms;
    rig.options.mirror_batch = rows[i].batch;
    load_open ();
    for (n = 0; n < rows[i].pairs; ++n)
      load_pair ("fua", n);
    await_busy ("mirrors_written", rows[i].pairs, 1);
    await_busy ("mirror_syncs", 1, 1);
    load_release ();
  }
}

static void
the_amount_is_that_of_all_windows (void)
{
  static const struct rig_volume two_windows = {
    0, { 512, 1, 32, 2, 1200, 2560, 2, 0, 1, 6 }
  };
  unsigned n;

  load_init (&two_windows);
  rig.options.mirror_batch = 8 * 512;
  load_open ();
  for (n = 0; n < 4; ++n) {
    load_pair ("fua", n);
    load_pair ("fua", 1024 + n);
  }
  await_busy ("mirrors_written", 8, 2);
  load_release ();
}

/* Whoever defers the first one wakes the thread up, each time. */
static void
after_it_was_settled_it_goes_on (void)
{
  unsigned n;

  load_init (&rig_small);
  rig.options.mirror_delay_ms = 0;
  load_open ();
  for (n = 1; n <= 20; ++n) {
    load_pair ("fua", n % 8);
    load_await ("mirrors_written", n);
    CHECK_EQ (fatbatch_settle (rig.fb), 0);
  }
  load_release ();
}

static void
below_the_amount_nothing_is_written (void)
{
  unsigned n;

  load_init (&rig_small);
  rig.options.mirror_batch = 8 * 512;
  load_open ();
  for (n = 0; n < 7; ++n) {
    load_pair ("fua", n);
    load_pair ("fua", n);       /* again counts once */
  }
  CHECK_EQ (rig_stat (&rig, "mirror_batches"), 0);
  load_pair ("fua", 7);
  load_await ("mirrors_written", 8);
  load_release ();
}

/* What has diverged is written, too, though no mirror write comes. */
static void
by_age_diverged_mirrors_are_written (void)
{
  struct rig_place place;
  uint8_t expected[512];

  load_init (&rig_small);
  load_open ();
  load_pair ("fua", 3);
  load_request ("fua fat1:3 q");
  set_delay (0);
  await_busy ("mirror_syncs", 1, 1);
  place = rig_place (&rig, "fat2:3");
  rig_fill (expected, &place, "p");
  CHECK (memcmp (rig.bytes + place.start, expected, 512) == 0);
  load_release ();
}

/* A batch passes over a window that is written in place.  When that has ended
 * somebody must come back to it.
 */
static void
what_a_write_in_place_delayed_is_written_after_it (void)
{
  load_init (&rig_small);
  load_open ();
  load_request ("image fat2:4 x");
  load_pair ("fua", 3);
  load_request ("write fat1:4 q");
  load_request ("hold write fat2:4");
  load_request ("async write fat2:4 q");
  set_delay (0);
  load_request ("async sync");
  usleep (20000);               /* so that the thread has looked, most likely */
  CHECK_EQ (rig_stat (&rig, "mirror_batches"), 0);
  load_request ("release");
  load_await ("mirrors_written", 1);
  CHECK (is_in_place ("fat2:3+2"));
  load_release ();
}

/* As if nobody had written to a FAT for a while. */
static void
when_it_is_quiet_all_is_written_and_disarmed (void)
{
  struct mirror *m;

  load_init (&rig_small);
  load_open ();
  load_pair ("fua", 3);
  m = &rig.fb->mirror;
  pthread_mutex_lock (&m->lock);
  CHECK_EQ (m->nr_windows, 1);
  m->window[0]->touched = 1;
  pthread_cond_broadcast (&m->changed);
  pthread_mutex_unlock (&m->lock);
  load_await ("windows_disarmed", 1);
  CHECK (is_in_place ("fat2:3"));
  load_pair ("fua", 3);         /* and it goes on */
  CHECK_EQ (rig_stat (&rig, "windows_armed"), 2);
  CHECK_EQ (rig_stat (&rig, "windows_compared"), 1);
  load_release ();
}

/* -- More windows than are kept (rule 9) ------------------------------- */

/* 40 windows. */
static const struct rig_volume forty_windows = {
  0, { 512, 1, 32, 2, 40960, 83968, 2, 0, 1, 6 }
};

/* One slot in each window of a full table. */
static void
fill_table (void)
{
  unsigned n;

  load_init (&forty_windows);
  load_open ();
  for (n = 0; n < MIRROR_WINDOWS_MAX; ++n)
    load_pair ("write", n * 1024 + n);
  CHECK_EQ (rig_stat (&rig, "mirrors_deferred"), MIRROR_WINDOWS_MAX);
  CHECK_EQ (rig_stat (&rig, "windows_compared"), MIRROR_WINDOWS_MAX);
  CHECK_EQ (rig_stat (&rig, "windows_disarmed"), 0);
}

static void
a_full_table_makes_room_for_later_writes (void)
{
  uint64_t deferred;
  unsigned n;

  fill_table ();

  /* No window for FAT 1 of this one, nor maybe for the mirror. */
  load_request ("fua fat1:32770 q");
  load_request ("fua fat2:32770 q");
  load_await ("windows_disarmed", 1);
  CHECK (is_in_place ("fat2:32770") ||
         rig_stat (&rig, "mirrors_deferred") == MIRROR_WINDOWS_MAX + 1);

  /* Now there is room, at the latest when the thread has ended. */
  deferred = rig_stat (&rig, "mirrors_deferred");
  for (;;) {
    load_request ("fua fat1:33000 r");
    load_request ("fua fat2:33000 r");
    if (rig_stat (&rig, "mirrors_deferred") > deferred)
      break;
    usleep (1000);
  }

  /* The others are as they were, and can all be used again. */
  for (n = 0; n < 40; ++n) {
    load_request ("fua fat1:%u s", n * 1024 + 1000);
    load_request ("fua fat2:%u s", n * 1024 + 1000);
  }
  for (n = 0; n < MIRROR_WINDOWS_MAX; ++n)
    load_request ("read fat2:%u p", n * 1024 + n);
  load_release ();
}

/* Those that go are the ones that were not written to for the longest. */
static void
the_oldest_windows_make_room (void)
{
  struct mirror *m;
  unsigned n;

  fill_table ();
  for (n = 0; n < 4; ++n)
    load_pair ("write", n * 1024 + n + 1);
  load_request ("fua fat1:32770 q");
  m = &rig.fb->mirror;
  pthread_mutex_lock (&m->lock);
  while (m->nr_windows > MIRROR_WINDOWS_MAX - 8) {
    pthread_mutex_unlock (&m->lock);
    usleep (1000);
    pthread_mutex_lock (&m->lock);
  }
  for (n = 0; n < 4; ++n)
    CHECK (m->window[n]->fat->start ==
           rig_place (&rig, "fat1").start + n * FATTABLE_WINDOW);
  CHECK (m->window[4]->fat->start ==
         rig_place (&rig, "fat1").start + 12 * FATTABLE_WINDOW);
  pthread_mutex_unlock (&m->lock);
  load_release ();
}

/* One of them is in use, and somebody comes who needs it and its neighbours. */
static void
making_room_holds_one_window_at_a_time (void)
{
  struct mirror *m;

  fill_table ();
  m = &rig.fb->mirror;
  load_request ("hold write fat2:1100");
  load_request ("async write fat2:1100 x");     /* holds the second window */
  load_request ("write fat1:32770 q");
  while (rangelock_count_waiting (&m->slots) == 0)
    usleep (1000);
  load_request ("async zero fat2:0+3000");
  load_request ("release");
  load_await ("windows_disarmed", 8);
  load_release ();
}

int
main (void)
{
  alarm (300);
  RUN (by_age_and_by_amount_mirrors_are_written_by_themselves);
  RUN (the_amount_is_that_of_all_windows);
  RUN (after_it_was_settled_it_goes_on);
  RUN (below_the_amount_nothing_is_written);
  RUN (by_age_diverged_mirrors_are_written);
  RUN (what_a_write_in_place_delayed_is_written_after_it);
  RUN (when_it_is_quiet_all_is_written_and_disarmed);
  RUN (a_full_table_makes_room_for_later_writes);
  RUN (the_oldest_windows_make_room);
  RUN (making_room_holds_one_window_at_a_time);
  return EXIT_SUCCESS;
}
