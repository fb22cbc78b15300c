/* SPDX-License-Identifier: BSD-3-Clause */

/* Two bits a cluster, against an array of bytes (clusters.h): one cluster, and
 * ranges, over the edges of words and windows; what is not known; the bound;
 * numbers of no cluster; and readers in other threads.
 */

#include <config.h>

#include <pthread.h>
#include <string.h>

#include "check.h"
#include "clusters.h"

#define WINDOW CLUSTERS_WINDOW
#define WORD CLUSTERS_IN_WORD
#define NR_STATES 4
#define NR(rows) (sizeof rows / sizeof rows[0])

/* -- An array of bytes --------------------------------------------------- */

#define MODEL_WINDOWS 5

struct model {
  uint32_t end;
  unsigned present, max;
  uint8_t state[MODEL_WINDOWS * WINDOW];
  bool known[MODEL_WINDOWS], has_memory[MODEL_WINDOWS];
};

static struct clusters *c;
static struct model model;

static void
setup (uint32_t end, unsigned max)
{
  CHECK (end <= sizeof model.state);
  c = clusters_new (end, max);
  CHECK (c != NULL);
  memset (&model, 0, sizeof model);
  model.end = end;
  model.max = max;
}

static void
teardown (void)
{
  clusters_free (c);
  c = NULL;
}

static enum cluster_state
model_get (uint64_t n)
{
  if (n < 2 || n >= model.end || !model.known[n / WINDOW])
    return CLUSTER_FRESH;
  return model.state[n];
}

static void
model_know (uint32_t n)
{
  if (n >= model.end || model.known[n / WINDOW])
    return;
  model.known[n / WINDOW] = true;
  memset (model.state + n / WINDOW * WINDOW, CLUSTER_FREE, WINDOW);
}

static void
model_set (uint32_t n, enum cluster_state state)
{
  unsigned i = n / WINDOW;

  if (n < 2 || n >= model.end || !model.known[i])
    return;
  if (!model.has_memory[i] && state != CLUSTER_FREE) {
    model.known[i] = model.has_memory[i] = model.present < model.max;
    model.present += model.known[i];
  }
  model.state[n] = state;
}

static void
model_unsettle (void)
{
  uint32_t n;

  for (n = 0; n < model.end; ++n)
    if (model.state[n] != CLUSTER_FREE)
      model.state[n] = CLUSTER_FRESH;
}

/* -- Both --------------------------------------------------------------- */

static void
know (uint32_t n)
{
  clusters_know (c, n);
  model_know (n);
}

static void
set (uint32_t n, enum cluster_state state)
{
  clusters_set (c, n, state);
  model_set (n, state);
}

static void
unsettle (void)
{
  clusters_unsettle (c);
  model_unsettle ();
}

static void
check_one (uint32_t n)
{
  if (clusters_get (c, n) != model_get (n)) {
    fprintf (stderr, "cluster %" PRIu32 " of %" PRIu32 ": state %d, not %d\n",
             n, model.end, clusters_get (c, n), model_get (n));
    exit (EXIT_FAILURE);
  }
}

static void
check_each (void)
{
  uint32_t n;

  for (n = 0; n < model.end + 2 * WORD; ++n)
    check_one (n);
  CHECK_EQ (c->present, model.present);
}

static void
check_range (uint32_t first, uint32_t last)
{
  unsigned state;
  uint64_t n;

  for (state = 0; state < NR_STATES; ++state) {
    bool all = true, any = false;

    for (n = first; n <= last; ++n)
      if (model_get (n) == state)
        any = true;
      else
        all = false;
    if (clusters_all (c, first, last, state) == all &&
        clusters_any (c, first, last, state) == any)
      continue;
    fprintf (stderr, "clusters %" PRIu32 " to %" PRIu32 " of %" PRIu32
             ", state %u: all %d, not %d; any %d, not %d\n",
             first, last, model.end, state,
             clusters_all (c, first, last, state), all,
             clusters_any (c, first, last, state), any);
    exit (EXIT_FAILURE);
  }
}

/* -- One ----------------------------------------------------------------- */

static const uint32_t edges[] = {
  2, 3, WORD - 1, WORD, WORD + 1, 2 * WORD - 1, 2 * WORD, 1000,
  WINDOW - WORD - 1, WINDOW - WORD, WINDOW - 1, WINDOW, WINDOW + 1,
  WINDOW + WORD - 1, WINDOW + WORD, 2 * WINDOW - 1, 2 * WINDOW,
  2 * WINDOW + 2, 2 * WINDOW + 99,
};

#define EDGES_END (2 * WINDOW + 100)

static void
know_all (void)
{
  uint32_t n;

  for (n = 0; n < model.end; n += WINDOW)
    know (n);
}

static void
test_nothing_is_known_at_first (void)
{
  setup (EDGES_END, 10);
  check_each ();
  check_range (2, model.end - 1);
  teardown ();
}

static void
test_what_is_not_known_can_not_be_set (void)
{
  size_t i;

  setup (EDGES_END, 10);
  for (i = 0; i < NR (edges); ++i)
    set (edges[i], i % NR_STATES);
  CHECK (clusters_all (c, 2, model.end - 1, CLUSTER_FRESH));
  CHECK_EQ (c->present, 0);
  teardown ();
}

static void
test_a_window_that_becomes_known_is_free (void)
{
  setup (EDGES_END, 10);
  know (WINDOW + 7);
  check_each ();
  CHECK (clusters_all (c, WINDOW, 2 * WINDOW - 1, CLUSTER_FREE));
  CHECK (clusters_all (c, 2, WINDOW - 1, CLUSTER_FRESH));
  CHECK (clusters_all (c, 2 * WINDOW, model.end - 1, CLUSTER_FRESH));
  CHECK_EQ (c->present, 0);
  teardown ();
}

static void
test_to_know_twice_changes_nothing (void)
{
  setup (EDGES_END, 10);
  know (0);
  set (77, CLUSTER_SETTLED);
  know (1);
  know (WINDOW - 1);
  check_each ();
  CHECK_EQ (clusters_get (c, 77), CLUSTER_SETTLED);
  teardown ();
}

/* From each state into each, and nobody else changes. */
static void
test_each_change_at_each_edge (void)
{
  unsigned from, to;
  size_t i;

  setup (EDGES_END, 10);
  know_all ();
  for (i = 0; i < NR (edges); ++i)
    for (from = 0; from < NR_STATES; ++from)
      for (to = 0; to < NR_STATES; ++to) {
        set (edges[i], from);
        check_one (edges[i]);
        set (edges[i], to);
        check_one (edges[i]);
        check_one (edges[i] - 1);
        check_one (edges[i] + 1);
      }
  check_each ();
  teardown ();
}

static void
test_free_clusters_take_no_memory (void)
{
  size_t i;

  setup (EDGES_END, 10);
  know_all ();
  for (i = 0; i < NR (edges); ++i)
    set (edges[i], CLUSTER_FREE);
  CHECK_EQ (c->present, 0);
  set (2, CLUSTER_FRESH);
  CHECK_EQ (c->present, 1);
  set (2, CLUSTER_FREE);
  set (3, CLUSTER_DIRECTORY);
  CHECK_EQ (c->present, 1);
  check_each ();
  teardown ();
}

/* -- Ranges -------------------------------------------------------------- */

/* Every range between the edges, with one cluster that is another at each. */
static void
test_ranges_between_edges (void)
{
  size_t odd, i, k;

  setup (EDGES_END, 10);
  know_all ();
  for (odd = 0; odd < NR (edges); ++odd) {
    set (edges[odd], CLUSTER_SETTLED);
    for (i = 0; i < NR (edges); ++i)
      for (k = i; k < NR (edges) && edges[k] - edges[i] < 200; ++k)
        check_range (edges[i], edges[k]);
    set (edges[odd], CLUSTER_FREE);
  }
  teardown ();
}

static void
test_a_long_range_with_one_that_differs (void)
{
  uint32_t n;
  size_t i;

  setup (EDGES_END, 10);
  know_all ();
  for (n = 2; n < model.end; ++n)
    set (n, CLUSTER_SETTLED);
  CHECK (clusters_all (c, 2, model.end - 1, CLUSTER_SETTLED));
  for (i = 0; i < NR (edges); ++i) {
    set (edges[i], CLUSTER_DIRECTORY);
    CHECK (!clusters_all (c, 2, model.end - 1, CLUSTER_SETTLED));
    CHECK (clusters_any (c, 2, model.end - 1, CLUSTER_DIRECTORY));
    CHECK (!clusters_any (c, edges[i] + 1, model.end - 1, CLUSTER_DIRECTORY) ||
           edges[i] == model.end - 1);
    set (edges[i], CLUSTER_SETTLED);
  }
  teardown ();
}

/* The state of one does not look like another's in a range of one. */
static void
test_a_range_of_one (void)
{
  unsigned state;
  size_t i;

  setup (EDGES_END, 10);
  know_all ();
  for (state = 0; state < NR_STATES; ++state)
    for (i = 0; i < NR (edges); ++i) {
      set (edges[i], state);
      check_range (edges[i], edges[i]);
    }
  teardown ();
}

static void
test_a_range_over_a_window_that_is_not_known (void)
{
  setup (3 * WINDOW, 10);
  know (0);
  know (2 * WINDOW);
  set (WINDOW - 1, CLUSTER_FRESH);
  set (2 * WINDOW, CLUSTER_FRESH);
  check_range (WINDOW - 1, 2 * WINDOW);
  check_range (WINDOW - 2, 2 * WINDOW);
  check_range (WINDOW - 1, 2 * WINDOW + 1);
  check_range (WINDOW, WINDOW);
  teardown ();
}

/* -- Numbers of no cluster ----------------------------------------------- */

static const uint32_t ends[] = {
  3, 4, WORD - 1, WORD, WORD + 1, 100, WINDOW - 1, WINDOW, WINDOW + 1,
  2 * WINDOW,
};

static void
test_what_is_no_cluster_is_fresh (void)
{
  static const uint32_t far[] = {
    0x0ffffff6, 0x0ffffff7, 0x0fffffff, 0x10000000, 0x7fffffff, 0x80000000,
    0xfffffffe, 0xffffffff,
  };
  size_t i, k;

  for (i = 0; i < NR (ends); ++i) {
    setup (ends[i], 10);
    know_all ();
    for (k = 0; k < NR (far); ++k) {
      know (far[k]);
      set (far[k], CLUSTER_SETTLED);
      check_one (far[k]);
      check_range (far[k], far[k]);
    }
    set (0, CLUSTER_SETTLED);
    set (1, CLUSTER_DIRECTORY);
    set (ends[i], CLUSTER_SETTLED);
    CHECK_EQ (c->present, 0);
    check_each ();
    teardown ();
  }
}

/* Ranges that begin in front of the first cluster, or end behind the last. */
static void
test_ranges_over_the_ends (void)
{
  size_t i;

  for (i = 0; i < NR (ends); ++i) {
    setup (ends[i], 10);
    know_all ();
    check_range (0, 1);
    check_range (0, 2);
    check_range (1, 2);
    check_range (0, ends[i] - 1);
    check_range (ends[i] - 1, ends[i]);
    check_range (ends[i], ends[i]);
    check_range (ends[i], ends[i] + 3 * WORD);
    check_range (2, ends[i] + 3 * WORD);
    set (2, CLUSTER_SETTLED);
    set (ends[i] - 1, CLUSTER_SETTLED);
    check_range (0, 2);
    check_range (1, 2);
    check_range (ends[i] - 1, ends[i] + 1);
    teardown ();
  }
}

static void
test_the_last_numbers_that_there_are (void)
{
  setup (100, 10);
  know_all ();
  check_range (UINT32_MAX, UINT32_MAX);
  check_range (UINT32_MAX - 1, UINT32_MAX);
  check_range (UINT32_MAX - 100, UINT32_MAX);
  teardown ();
}

/* The largest volume that FAT32 can have. */
static void
test_the_largest_volume (void)
{
  const uint32_t end = 0x0ffffff7, last = end - 1;

  c = clusters_new (end, 2);
  CHECK (c != NULL);
  clusters_know (c, last);
  CHECK_EQ (clusters_get (c, last), CLUSTER_FREE);
  clusters_set (c, last, CLUSTER_DIRECTORY);
  CHECK_EQ (clusters_get (c, last), CLUSTER_DIRECTORY);
  CHECK_EQ (clusters_get (c, last - 1), CLUSTER_FREE);
  CHECK_EQ (clusters_get (c, end), CLUSTER_FRESH);
  clusters_know (c, end);
  clusters_set (c, end, CLUSTER_SETTLED);
  CHECK_EQ (clusters_get (c, end), CLUSTER_FRESH);
  teardown ();
}

/* -- unsettle() ---------------------------------------------------------- */

static void
test_unsettle_keeps_what_is_free (void)
{
  uint32_t n;

  setup (3 * WINDOW, 10);
  know (0);
  know (WINDOW);
  for (n = 2; n < 1000; ++n)
    set (n, n / 3 % NR_STATES);
  unsettle ();
  check_each ();
  CHECK_EQ (c->present, 1);
  set (500, CLUSTER_SETTLED);
  check_each ();
  teardown ();
}

/* -- The bound ----------------------------------------------------------- */

static void
test_a_window_that_can_not_be_had_is_not_known (void)
{
  setup (4 * WINDOW, 2);
  know_all ();
  set (5, CLUSTER_SETTLED);
  set (3 * WINDOW + 5, CLUSTER_SETTLED);
  CHECK_EQ (c->present, 2);
  set (WINDOW + 5, CLUSTER_FREE);
  CHECK_EQ (clusters_get (c, WINDOW + 5), CLUSTER_FREE);
  set (WINDOW + 5, CLUSTER_SETTLED);
  CHECK (clusters_all (c, WINDOW, 2 * WINDOW - 1, CLUSTER_FRESH));
  check_each ();

  /* It may become known again, until the next that wants memory. */
  know (WINDOW);
  CHECK_EQ (clusters_get (c, WINDOW + 5), CLUSTER_FREE);
  set (WINDOW + 6, CLUSTER_FRESH);
  check_each ();
  set (5, CLUSTER_DIRECTORY);
  check_each ();
  teardown ();
}

static void
test_no_window_at_all (void)
{
  setup (2 * WINDOW, 0);
  know_all ();
  CHECK (clusters_all (c, 2, 2 * WINDOW - 1, CLUSTER_FREE));
  set (WINDOW, CLUSTER_FRESH);
  check_each ();
  CHECK_EQ (c->present, 0);
  unsettle ();
  check_each ();
  teardown ();
}

static void
test_to_free_nothing (void)
{
  clusters_free (NULL);
}

/* -- Random -------------------------------------------------------------- */

static uint64_t random_state;

static uint32_t
draw (uint32_t below)
{
  random_state = random_state * UINT64_C (6364136223846793005) + 1;
  return (random_state >> 33) % below;
}

/* Near an edge, or anywhere. */
static uint32_t
draw_cluster (void)
{
  uint32_t n = draw (3) == 0 ? draw (model.end + WORD)
    : draw (model.end / WINDOW + 2) * WINDOW + draw (4 * WORD) - 2 * WORD;

  return n < model.end + 4 * WORD ? n : draw (4);
}

static void
change_something (void)
{
  uint32_t n = draw_cluster (), i, nr;

  switch (draw (40)) {
  case 0:
    know (n);
    break;
  case 1:
    unsettle ();
    break;
  case 2: case 3: case 4: case 5: case 6: case 7: case 8:
    {                           /* a run */
      enum cluster_state state = draw (NR_STATES);

      for (i = 0, nr = draw (5 * WORD); i < nr; ++i)
        set (n + i, state);
      break;
    }
  default:
    set (n, draw (NR_STATES));
    break;
  }
}

static void
random_run (unsigned seed)
{
  unsigned i;

  random_state = seed;
  setup (WINDOW * draw (4) + draw (3) * 17 + 100, draw (5));
  for (i = 0; i < 4000; ++i) {
    uint32_t n = draw_cluster (), last = n + draw (7) * draw (WORD);

    change_something ();
    check_one (n);
    if (n >= 2 && last < model.end)
      check_range (n, last);
  }
  check_each ();
  teardown ();
}

static void
test_random_changes (void)
{
  unsigned seed;

  for (seed = 0; seed < 20; ++seed)
    random_run (seed);
}

/* -- Readers in other threads -------------------------------------------- */

#define READERS 3
#define CHANGES 200000

/* In one word: `steady` never changes, `changing` is SETTLED or FRESH, which
 * have no bit in common.
 */
enum { STEADY = 2 * WORD + 7, CHANGING, STEADY_2, LATE = WINDOW + 3 };

static atomic_bool stop;

static void *
read_on (void *arg)
{
  uint64_t *looks = arg;

  while (!atomic_load (&stop)) {
    enum cluster_state state = clusters_get (c, CHANGING);

    CHECK (state == CLUSTER_SETTLED || state == CLUSTER_FRESH);
    CHECK_EQ (clusters_get (c, STEADY), CLUSTER_DIRECTORY);
    CHECK_EQ (clusters_get (c, STEADY_2), CLUSTER_SETTLED);
    CHECK (!clusters_any (c, STEADY, STEADY_2, CLUSTER_FREE));
    CHECK (clusters_any (c, STEADY, CHANGING, CLUSTER_DIRECTORY));
    CHECK (!clusters_any (c, CHANGING, STEADY_2, CLUSTER_DIRECTORY));
    CHECK (clusters_all (c, STEADY_2, STEADY_2, CLUSTER_SETTLED));

    /* Unknown, then FREE, then DIRECTORY. */
    state = clusters_get (c, LATE);
    CHECK (state != CLUSTER_SETTLED);
    CHECK (!clusters_any (c, WINDOW, WINDOW + 2 * WORD, CLUSTER_SETTLED));
    ++*looks;
  }
  return NULL;
}

static void
test_readers_see_whole_changes (void)
{
  pthread_t thread[READERS];
  uint64_t looks[READERS] = { 0 };
  unsigned i;

  setup (3 * WINDOW, 10);
  know (0);
  set (STEADY, CLUSTER_DIRECTORY);
  set (STEADY_2, CLUSTER_SETTLED);
  set (CHANGING, CLUSTER_FRESH);
  atomic_store (&stop, false);
  for (i = 0; i < READERS; ++i)
    CHECK_EQ (pthread_create (&thread[i], NULL, read_on, &looks[i]), 0);
  for (i = 0; i < CHANGES; ++i) {
    set (CHANGING, i % 2 ? CLUSTER_FRESH : CLUSTER_SETTLED);
    set (STEADY_2 + 1, i % NR_STATES);
    if (i == CHANGES / 3)
      know (WINDOW);
    if (i == CHANGES / 2)
      set (LATE, CLUSTER_DIRECTORY);
  }
  atomic_store (&stop, true);
  for (i = 0; i < READERS; ++i)
    CHECK_EQ (pthread_join (thread[i], NULL), 0);
  check_each ();
  teardown ();
}

/* What is SETTLED becomes FRESH, what is FREE stays so. */
static void *
read_unsettled (void *arg)
{
  (void) arg;
  while (!atomic_load (&stop)) {
    CHECK_EQ (clusters_get (c, CHANGING), CLUSTER_FREE);
    CHECK (!clusters_any (c, STEADY, STEADY_2, CLUSTER_DIRECTORY));
    CHECK (clusters_get (c, STEADY) != CLUSTER_FREE);
    CHECK (clusters_get (c, STEADY_2) != CLUSTER_FREE);
  }
  return NULL;
}

static void
test_readers_see_whole_words_unsettled (void)
{
  pthread_t thread[READERS];
  unsigned i;

  setup (WINDOW, 10);
  know (0);
  set (STEADY, CLUSTER_SETTLED);
  set (STEADY_2, CLUSTER_SETTLED);
  atomic_store (&stop, false);
  for (i = 0; i < READERS; ++i)
    CHECK_EQ (pthread_create (&thread[i], NULL, read_unsettled, NULL), 0);
  for (i = 0; i < 300; ++i) {
    set (STEADY, CLUSTER_SETTLED);
    set (STEADY_2, CLUSTER_SETTLED);
    clusters_unsettle (c);
  }
  atomic_store (&stop, true);
  for (i = 0; i < READERS; ++i)
    CHECK_EQ (pthread_join (thread[i], NULL), 0);
  teardown ();
}

int
main (void)
{
  RUN (test_nothing_is_known_at_first);
  RUN (test_what_is_not_known_can_not_be_set);
  RUN (test_a_window_that_becomes_known_is_free);
  RUN (test_to_know_twice_changes_nothing);
  RUN (test_each_change_at_each_edge);
  RUN (test_free_clusters_take_no_memory);
  RUN (test_ranges_between_edges);
  RUN (test_a_long_range_with_one_that_differs);
  RUN (test_a_range_of_one);
  RUN (test_a_range_over_a_window_that_is_not_known);
  RUN (test_what_is_no_cluster_is_fresh);
  RUN (test_ranges_over_the_ends);
  RUN (test_the_last_numbers_that_there_are);
  RUN (test_the_largest_volume);
  RUN (test_unsettle_keeps_what_is_free);
  RUN (test_a_window_that_can_not_be_had_is_not_known);
  RUN (test_no_window_at_all);
  RUN (test_to_free_nothing);
  RUN (test_random_changes);
  RUN (test_readers_see_whole_changes);
  RUN (test_readers_see_whole_words_unsettled);
  return 0;
}
