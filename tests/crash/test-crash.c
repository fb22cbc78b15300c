/* SPDX-License-Identifier: BSD-3-Clause */

/* Crash tests: whatever a guest does with an image, and wherever the power is
 * cut or the server killed, the next server makes of what is left an image that
 * keeps the contract (DESIGN.md: D1 to D5, D8, D9).
 *
 * The real engine runs generated workloads on a machine that writes down each
 * operation (recorder.h).  At each of them the machine is cut, the states in
 * which that can leave it are made (cut.h), and each is recovered by the real
 * engine and judged (check.h, and by the rules in oracle.h).
 *
 * usage: test-crash [--seed N] [--cases N] [--seconds N] [--states N]
 *        test-crash --replay SEED:CASE:CUT:STATE
 *
 * Without options the same cases each time.  FATBATCH_ROUNDS is another number
 * of them, FATBATCH_SEED another seed.  --seconds explores as long, from a
 * random seed if none is given: `make crash`.  Each violation is printed with
 * what --replay wants; that prints the whole story.
 */

#include <config.h>

#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "explore.h"
#include "turns.h"

#define SEED 1
#define CASES 180
#define CASES_SANITIZED 20      /* each takes ten times as long */
#define STATES 6                /* of a power cut, where there are many */
#define VIOLATIONS_MAX 20       /* then it ends */
#define CASES_TELLING 20        /* as many must have seen everything */

struct settings {
  uint64_t seed;
  unsigned cases, states;
  unsigned first;               /* case */
  time_t seconds;               /* 0: as many cases as there are */
  struct target target;
};

static void __attribute__ ((noreturn))
usage (void)
{
  fprintf (stderr, "usage: test-crash [--seed N] [--cases N] [--seconds N] "
           "[--states N]\n"
           "       test-crash --replay SEED:CASE:CUT:STATE\n");
  exit (2);
}

static void
parse_replay (struct settings *s, const char *id)
{
  char state[20];

  if (sscanf (id, "%" SCNu64 ":%u:%zu:%19s", &s->seed, &s->first,
              &s->target.cut, state) != 4)
    usage ();
  s->target.replay = true;
  s->target.state = strcmp (state, "live") == 0 ? STATE_LIVE : atoi (state);
  s->cases = 1;
}

static void
parse_options (int argc, char *argv[], struct settings *s)
{
  static const struct option options[] = {
    { "seed", required_argument, NULL, 's' },
    { "cases", required_argument, NULL, 'c' },
    { "seconds", required_argument, NULL, 't' },
    { "states", required_argument, NULL, 'n' },
    { "replay", required_argument, NULL, 'r' },
    { NULL, 0, NULL, 0 },
  };
  bool has_seed = false;
  int c;

  while ((c = getopt_long (argc, argv, "", options, NULL)) != -1)
    switch (c) {
    case 's': s->seed = strtoull (optarg, NULL, 0); has_seed = true; break;
    case 'c': s->cases = strtoul (optarg, NULL, 0); break;
    case 't': s->seconds = strtoul (optarg, NULL, 0); break;
    case 'n': s->states = strtoul (optarg, NULL, 0); break;
    case 'r': parse_replay (s, optarg); has_seed = true; break;
    default: usage ();
    }
  if (optind < argc)
    usage ();
  if (!has_seed && (s->seconds > 0 || getenv ("FATBATCH_SEED")))
    s->seed = test_seed ();
}

/* A test that defers and recovers nothing proves nothing. */
static void
check_coverage (const struct tally *t)
{
  const struct {
    const char *what;
    uint64_t n;
  } rows[] = {
    { "a mirror deferred", t->running.mirrors_deferred },
    { "a mirror diverged", t->running.mirrors_diverged },
    { "deferred mirrors written", t->running.mirrors_written },
    { "FATs compared", t->running.windows_compared },
    { "a commit deferred", t->running.commits_deferred },
    { "a deferred commit forced", t->running.deferred_forced },
    { "a deferred commit expired", t->running.deferred_expired },
    { "a window armed", t->running.windows_armed },
    { "a window disarmed", t->running.windows_disarmed },
    { "a window recovered", t->recoveries },
    { "a sector recovered", t->recovered_sectors },
    { "an image changed by recovery", t->recovered },
    { "a recovery cut", t->cut_recoveries },
  };
  size_t i;

  for (i = 0; i < sizeof rows / sizeof rows[0]; ++i)
    if (rows[i].n == 0)
      test_fail ("in all these cases there was never %s", rows[i].what);
}

/* tests/Makefile.am */
static bool
is_sanitized (void)
{
  const char *sanitizers = getenv ("SANITIZERS");

  return sanitizers && *sanitizers;
}

int
main (int argc, char *argv[])
{
  struct settings s = { .seed = SEED, .states = STATES };
  struct tally t = { 0 };
  time_t end;
  unsigned i;

  test_init ("test-crash", 600);
  mallopt (M_TRIM_THRESHOLD, INT_MAX);  /* it will be needed again at once */
  mallopt (M_MMAP_THRESHOLD, INT_MAX);
  s.cases = test_rounds (is_sanitized () ? CASES_SANITIZED : CASES);
  parse_options (argc, argv, &s);
  if (s.seconds > 0)
    alarm (0);
  turns_init (explore_print_case);
  end = time (NULL) + s.seconds;
  for (i = 0; s.seconds > 0 ? time (NULL) < end : i < s.cases; ++i) {
    explore_case (s.seed, s.first + i, s.states, &s.target, &t);
    if (t.violations >= VIOLATIONS_MAX)
      break;
  }
  printf ("seed %" PRIu64 ": %" PRIu64 " workloads, %" PRIu64 " cuts, %" PRIu64
          " states, %" PRIu64 " violations\n", s.seed, t.cases, t.cuts,
          t.states, t.violations);
  if (t.violations > 0)
    test_fail ("%s --replay ID tells more of a violation", argv[0]);
  if (t.cases >= CASES_TELLING)
    check_coverage (&t);
  return test_end ();
}
