/* SPDX-License-Identifier: BSD-3-Clause */

/* Epochs: who waits, waits for exactly those who entered before (epoch.h,
 * rule 1), and what is freed afterwards is used by nobody.
 */

#include <config.h>

#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "epoch.h"

static struct epoch epoch;

/* A call of epoch_wait() in a thread of its own. */
struct waiter {
  pthread_t thread;
  atomic_bool done;
};

static void *
wait_once (void *opaque)
{
  struct waiter *w = opaque;

  epoch_wait (&epoch);
  atomic_store (&w->done, true);
  return NULL;
}

/* Returns when the waiter has begun, that is, whoever enters from now on
 * enters later.  Nobody else may be waiting.
 */
static void
waiter_start (struct waiter *w)
{
  unsigned before = atomic_load (&epoch.current);

  atomic_init (&w->done, false);
  CHECK_EQ (pthread_create (&w->thread, NULL, wait_once, w), 0);
  while (atomic_load (&epoch.current) == before)
    sched_yield ();
}

static void
waiter_join (struct waiter *w)
{
  CHECK_EQ (pthread_join (w->thread, NULL), 0);
  CHECK (atomic_load (&w->done));
}

/* Give a waiter that must not return many chances to do so. */
static void
check_waits (struct waiter *w)
{
  int i;

  for (i = 0; i < 1000; ++i) {
    CHECK (!atomic_load (&w->done));
    sched_yield ();
  }
}

static void
with_nobody_inside_nobody_is_waited_for (void)
{
  int i;

  for (i = 0; i < 5; ++i) {
    epoch_wait (&epoch);
    epoch_leave (epoch_enter (&epoch));
  }
}

static void
who_entered_before_is_waited_for (void)
{
  struct waiter w;
  int i;

  for (i = 0; i < 5; ++i) {     /* with each set of counters */
    epoch_token inside = epoch_enter (&epoch);

    waiter_start (&w);
    check_waits (&w);
    epoch_leave (inside);
    waiter_join (&w);
  }
}

static void
the_last_of_many_is_waited_for (void)
{
  epoch_token inside[10];
  struct waiter w;
  int i;

  for (i = 0; i < 10; ++i)
    inside[i] = epoch_enter (&epoch);
  waiter_start (&w);
  for (i = 0; i < 10; ++i) {
    check_waits (&w);
    epoch_leave (inside[i]);
  }
  waiter_join (&w);
}

/* Would hang if it did: those are inside until it has returned. */
static void
who_enters_later_is_not_waited_for (void)
{
  epoch_token before, later[10];
  struct waiter w;
  int round, i;

  for (round = 0; round < 4; ++round) {
    before = epoch_enter (&epoch);
    waiter_start (&w);
    for (i = 0; i < 10; ++i)
      later[i] = epoch_enter (&epoch);
    check_waits (&w);
    epoch_leave (before);
    waiter_join (&w);
    for (i = 0; i < 10; ++i)
      epoch_leave (later[i]);
  }
}

/* There are readers in both sets when the second one comes, which must wait
 * for all of them.
 */
static void
a_second_waiter_waits_for_those_of_the_first (void)
{
  struct waiter first, second;
  epoch_token a, b, c;

  a = epoch_enter (&epoch);
  waiter_start (&first);
  b = epoch_enter (&epoch);
  atomic_init (&second.done, false);
  CHECK_EQ (pthread_create (&second.thread, NULL, wait_once, &second), 0);
  check_waits (&first);
  CHECK (!atomic_load (&second.done));
  epoch_leave (a);
  waiter_join (&first);
  check_waits (&second);
  c = epoch_enter (&epoch);     /* maybe before, maybe later */
  epoch_leave (c);
  check_waits (&second);
  epoch_leave (b);
  waiter_join (&second);
}

static void *
leave_once (void *token)
{
  epoch_leave (token);
  return NULL;
}

static void
another_thread_may_leave (void)
{
  epoch_token inside = epoch_enter (&epoch);
  pthread_t thread;
  struct waiter w;

  waiter_start (&w);
  check_waits (&w);
  CHECK_EQ (pthread_create (&thread, NULL, leave_once, (void *) inside), 0);
  CHECK_EQ (pthread_join (thread, NULL), 0);
  waiter_join (&w);
}

/* -- What it is for ---------------------------------------------------- */

#define READERS 4
#define WRITERS 2
#define ROUNDS 500

/* Plain memory: only the epoch keeps readers and free() apart. */
struct thing {
  unsigned a, b;
};

static struct thing *_Atomic thing;
static atomic_uint writers_left;

static struct thing *
thing_new (unsigned n)
{
  struct thing *t = malloc (sizeof *t);

  CHECK (t != NULL);
  t->a = n;
  t->b = ~n;
  return t;
}

static void *
read_often (void *opaque)
{
  struct epoch *e = opaque;

  while (atomic_load (&writers_left) > 0) {
    epoch_token inside = epoch_enter (e);
    const struct thing *t = atomic_load (&thing);
    unsigned a = t->a;

    sched_yield ();
    CHECK_EQ (t->b, ~a);
    epoch_leave (inside);
  }
  return NULL;
}

static void *
replace_often (void *opaque)
{
  struct epoch *e = opaque;
  unsigned i;

  for (i = 0; i < ROUNDS; ++i) {
    struct thing *old = atomic_exchange (&thing, thing_new (i));

    epoch_wait (e);
    memset (old, 0, sizeof *old); /* who still reads sees a = b */
    free (old);
  }
  atomic_fetch_sub (&writers_left, 1);
  return NULL;
}

static void
what_was_replaced_is_used_by_nobody_afterwards (void)
{
  pthread_t threads[READERS + WRITERS];
  int i;

  atomic_store (&thing, thing_new (0));
  atomic_store (&writers_left, WRITERS);
  for (i = 0; i < READERS + WRITERS; ++i)
    CHECK_EQ (pthread_create (&threads[i], NULL,
                              i < READERS ? read_often : replace_often,
                              &epoch), 0);
  for (i = 0; i < READERS + WRITERS; ++i)
    CHECK_EQ (pthread_join (threads[i], NULL), 0);
  free (atomic_load (&thing));
}

int
main (void)
{
  alarm (300);                  /* who waits for ever fails */
  epoch_init (&epoch);
  RUN (with_nobody_inside_nobody_is_waited_for);
  RUN (who_entered_before_is_waited_for);
  RUN (the_last_of_many_is_waited_for);
  RUN (who_enters_later_is_not_waited_for);
  RUN (a_second_waiter_waits_for_those_of_the_first);
  RUN (another_thread_may_leave);
  RUN (what_was_replaced_is_used_by_nobody_afterwards);
  epoch_release (&epoch);
  return EXIT_SUCCESS;
}
