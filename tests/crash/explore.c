/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dump.h"
#include "explore.h"
#include "turns.h"

#define VIOLATIONS_MAX 5        /* of a case */
#define REPEAT_EACH 20          /* cases: one of them is run twice */

struct explorer {
  uint64_t seed;
  unsigned number, states;
  const struct target *target;
  struct tally *tally;
  struct workload wl;
  struct cut cut;
  struct checker checker;
  unsigned violations;
};

/* -- Reports ------------------------------------------------------------- */

static const struct explorer *current;

void
explore_print_case (void)
{
  printf ("VIOLATION %" PRIu64 ":%u:%zu:live: %s: see below\n", current->seed,
          current->number, current->wl.machine.nr_log, current->wl.image.name);
  dump_log (&current->wl, current->wl.machine.nr_log);
}

static void
print_state (struct explorer *x)
{
  struct checker *c = &x->checker;

  /* cut_print_state() wants a machine. */
  memcpy (c->after.image, c->crashed.image, c->after.nr_units * UNIT);
  memcpy (c->after.record, c->crashed.record, sizeof c->crashed.record);
  printf ("the state after the crash:\n");
  cut_print_state (&x->cut, &c->after);
}

static void
report (struct explorer *x, int state, const char *why)
{
  size_t cut = state == STATE_LIVE ? x->wl.machine.nr_log : x->cut.pos;

  x->tally->violations++;
  if (x->violations++ >= VIOLATIONS_MAX)
    return;
  printf ("VIOLATION %" PRIu64 ":%u:%zu:", x->seed, x->number, cut);
  if (state == STATE_LIVE)
    printf ("live: %s: %s\n", x->wl.image.name, why);
  else
    printf ("%d: %s: %s: %s\n", state, x->wl.image.name,
            x->checker.killed ? "kill" : "power cut", why);
  if (!x->target->replay)
    return;
  dump_log (&x->wl, cut);
  if (state >= STATE_POWER)
    print_state (x);
}

/* -- Replays ------------------------------------------------------------- */

static bool
entries_equal (const struct log_entry *a, const struct log_entry *b)
{
  return a->kind == b->kind && a->offset == b->offset &&
    a->length == b->length && a->from == b->from &&
    a->request == b->request &&
    (a->kind != LOG_WRITE || memcmp (a->bytes, b->bytes, UNIT) == 0);
}

/* A case that can't be repeated can't be replayed.  (Of the record, which has a
 * random number in it, contents are not compared.)
 */
static void
check_repeats (struct explorer *x)
{
  struct workload *again = test_alloc (sizeof *again);
  const struct machine *a = &x->wl.machine, *b = &again->machine;
  size_t i;

  workload_run (again, x->seed, x->number);
  for (i = 0; i < a->nr_log && i < b->nr_log; ++i)
    if (!entries_equal (&a->log[i], &b->log[i]))
      break;
  if (i < a->nr_log || i < b->nr_log)
    test_fail ("case %u of seed %" PRIu64 " is another one when it is run "
               "again, from operation %zu on", x->number, x->seed, i);
  workload_release (again);
  free (again);
}

/* -- All cuts ------------------------------------------------------------ */

/* Cuts beside a mark: where a request begins there is the same state as before,
 * with more that is allowed, and likewise in front of its end.
 */
static bool
is_worth_a_cut (const struct machine *m, size_t pos)
{
  return !(pos < m->nr_log && m->log[pos].kind == LOG_END) &&
    !(pos > 0 && m->log[pos - 1].kind == LOG_BEGIN);
}

static void
check_state (struct explorer *x, unsigned state, unsigned nr_states)
{
  struct checker *c = &x->checker;
  struct prng prng;

  prng_init (&prng, x->seed ^ (uint64_t) x->number << 40,
             (uint64_t) x->cut.pos << 16 | state);
  machine_reset (&c->after, 1);
  if (cut_make_state (&x->cut, state, nr_states, &prng, &c->after) &&
      !checker_check (c, state < STATE_POWER, &prng))
    report (x, (int) state, c->why);
}

static void
check_cut (struct explorer *x)
{
  unsigned nr = cut_count_states (&x->cut, x->states), state;
  const struct target *t = x->target;

  if (!is_worth_a_cut (&x->wl.machine, x->cut.pos) ||
      (t->replay && x->cut.pos != t->cut))
    return;
  x->tally->cuts++;
  for (state = 0; state < nr; ++state)
    if (!t->replay || (int) state == t->state)
      check_state (x, state, nr);
}

static void
check_cuts (struct explorer *x)
{
  struct machine *m = &x->wl.machine;

  turns_begin (0, 0);
  cut_init (&x->cut, m, x->wl.initial, NULL, false, 0);
  oracle_rewind (&x->wl.oracle);
  for (;;) {
    check_cut (x);
    if (x->cut.pos == m->nr_log || x->violations >= VIOLATIONS_MAX)
      break;
    oracle_advance (&x->wl.oracle, &m->log[x->cut.pos]);
    cut_advance (&x->cut);
  }
  cut_release (&x->cut);
}

void
explore_case (uint64_t seed, unsigned number, unsigned states,
              const struct target *target, struct tally *tally)
{
  struct explorer *x = test_alloc (sizeof *x);
  struct workload *wl = &x->wl;

  current = x;
  x->seed = seed;
  x->number = number;
  x->target = target;
  x->tally = tally;
  workload_run (wl, seed, number);
  if (number % REPEAT_EACH == 0)
    check_repeats (x);
  x->states = wl->image.large ? 1 + states / 4 : states;
  checker_init (&x->checker, &wl->machine, &wl->oracle, tally);
  if (wl->failed)
    report (x, STATE_LIVE, wl->why);
  if (!wl->failed || target->replay)
    check_cuts (x);

  tally->cases++;
#define ADD(name, help) tally->running.name += wl->total.name;
  FATBATCH_COUNTERS (ADD)
#undef ADD
  checker_release (&x->checker);
  workload_release (wl);
  free (x);
  current = NULL;
}
