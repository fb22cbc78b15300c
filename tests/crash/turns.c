/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <string.h>

#include "testlib.h"
#include "turns.h"

#define THREADS_MAX 8
#define START_NS UINT64_C (1000000000)
#define STEP_NS 1000            /* time goes by so much for who looks at it */
#define YIELDS_MAX 100000       /* in a row, and then nobody gets anywhere */
#define YIELDS_POLL 50          /* and then they are all polling */
#define YIELDS_HELD 100         /* and then who is held may be the reason */
#define SLEEPS_MAX 1000         /* the same, of all threads at once */

struct thread {
  bool exists, ended, held;
  pthread_t id;
  void *(*fn) (void *);
  void *arg;
  const void *waits_for;        /* NULL: it could run */
  uint64_t deadline;            /* of that wait */
  bool timed_out;
  pthread_cond_t turn;          /* is its now */
};

static struct thread threads[THREADS_MAX];
#define client (&threads[0])
#define FOR_EACH_THREAD(t)                                              \
  for (struct thread *t = threads; t < threads + THREADS_MAX; ++t)      \
    if (t->exists)

static pthread_mutex_t lock;    /* for handing over the turn, nothing else */
static struct thread *running;
static uint64_t now;            /* ns */
static struct prng prng;
static unsigned switch_percent;
static bool hold_planned, sleep_planned;
static unsigned hold_after;     /* operations of others */
static unsigned sleep_after;    /* operations of the client */
static uint64_t sleep_ns;
static int held_what;
static unsigned yields, sleeps; /* since the last operation */
static void (*report_deadlock) (void);

/* -- Whose turn it is ----------------------------------------------------- */

static bool
could_run (const struct thread *t)
{
  return t->exists && !t->ended && !t->waits_for;
}

static void
let_time_pass (uint64_t until)
{
  now = now > until ? now : until;
  FOR_EACH_THREAD (t)
    if (t->waits_for && t->deadline <= now) {
      t->waits_for = NULL;
      t->timed_out = true;
    }
}

/* Everybody waits: until the first timed wait ends. */
static void
sleep_all (void)
{
  uint64_t first = TURNS_NEVER;

  FOR_EACH_THREAD (t)
    if (t->waits_for && t->deadline < first)
      first = t->deadline;
  if (first == TURNS_NEVER || ++sleeps > SLEEPS_MAX) {
    report_deadlock ();
    test_fail ("a deadlock: every thread waits for another one");
  }
  let_time_pass (first);
}

/* The next one after the running one, which is asked last; those that are held
 * if there is nobody else.
 */
static struct thread *
next_thread (void)
{
  size_t from = running - threads, i;
  int held;

  for (;;) {
    for (held = 0; held < 2; ++held)
      for (i = 1; i <= THREADS_MAX; ++i) {
        struct thread *t = &threads[(from + i) % THREADS_MAX];

        if (could_run (t) && t->held == held)
          return t;
      }
    sleep_all ();
  }
}

static void
await_turn_locked (struct thread *self)
{
  while (running != self)
    __real_pthread_cond_wait (&self->turn, &lock);
}

static void
give_turn_away (void)
{
  struct thread *self = running, *next = next_thread ();

  next->held = false;
  if (next == self)
    return;
  __real_pthread_mutex_lock (&lock);
  running = next;
  __real_pthread_cond_signal (&next->turn);
  if (!self->ended)
    await_turn_locked (self);
  __real_pthread_mutex_unlock (&lock);
}

static bool
others_could_run (void)
{
  FOR_EACH_THREAD (t)
    if (t != running && could_run (t) && !t->held)
      return true;
  return false;
}

/* -- For turns-wrap.c ----------------------------------------------------- */

bool
turns_wait_for (const void *what, uint64_t deadline)
{
  struct thread *self = running;

  yields = 0;
  self->waits_for = what;
  self->deadline = deadline;
  self->timed_out = false;
  give_turn_away ();
  return !self->timed_out;
}

void
turns_wake (const void *what, unsigned nr)
{
  FOR_EACH_THREAD (t)
    if (t->waits_for == what && nr > 0) {
      t->waits_for = NULL;
      nr--;
    }
}

void
turns_yield (void)
{
  if (++yields % YIELDS_HELD == 0)
    turns_let_go ();
  if (yields > YIELDS_MAX) {
    report_deadlock ();
    test_fail ("threads poll for what never comes");
  }
  give_turn_away ();
}

void
turns_at_mutex (void)
{
  if (switch_percent > 0 && others_could_run () &&
      prng_chance (&prng, switch_percent / 4))
    give_turn_away ();
}

uint64_t
turns_now (void)
{
  return now += STEP_NS;
}

static void *
run_thread (void *opaque)
{
  struct thread *self = opaque;
  void *result;

  __real_pthread_mutex_lock (&lock);
  await_turn_locked (self);
  __real_pthread_mutex_unlock (&lock);
  result = self->fn (self->arg);
  self->ended = true;
  turns_wake (self, THREADS_MAX);
  give_turn_away ();
  return result;
}

pthread_t
turns_create (void *(*fn) (void *), void *arg)
{
  struct thread *t = threads;
  int r;

  while (t->exists)
    if (++t == threads + THREADS_MAX)
      test_fail ("more threads than the test can have");
  memset (t, 0, sizeof *t);
  pthread_cond_init (&t->turn, NULL);
  t->exists = true;
  t->fn = fn;
  t->arg = arg;
  r = __real_pthread_create (&t->id, NULL, run_thread, t);
  if (r != 0)
    test_fail ("pthread_create: %s", strerror (r));
  return t->id;
}

void
turns_join (pthread_t id)
{
  struct thread *t = threads;

  while (!t->exists || !pthread_equal (t->id, id))
    t++;
  while (!t->ended)
    turns_wait_for (t, TURNS_NEVER);
  t->exists = false;
  __real_pthread_join (id, NULL);
  pthread_cond_destroy (&t->turn);
}

/* -- For the test ---------------------------------------------------------- */

void
turns_init (void (*report) (void))
{
  report_deadlock = report;
  pthread_mutex_init (&lock, NULL);
  pthread_cond_init (&client->turn, NULL);
  client->exists = true;
  client->id = pthread_self ();
  running = client;
}

void
turns_begin (uint64_t seed, unsigned percent)
{
  prng_init (&prng, seed, 0);
  now = START_NS;
  switch_percent = percent;
  turns_let_go ();
}

void
turns_at_operation (int what)
{
  yields = sleeps = 0;
  if (running != client && hold_planned && hold_after-- == 0) {
    hold_planned = false;
    held_what = what;
    running->held = true;
    give_turn_away ();
  }
  else if (running == client && sleep_planned && sleep_after-- == 0) {
    sleep_planned = false;
    turns_sleep (sleep_ns);
  }
  else if (others_could_run () && prng_chance (&prng, switch_percent))
    give_turn_away ();
}

/* But for those who do nothing but poll: it may be for what we do next. */
void
turns_run_others (void)
{
  yields = 0;
  while (others_could_run () && yields < YIELDS_POLL)
    turns_yield ();
}

void
turns_sleep (uint64_t ns)
{
  let_time_pass (now + ns);
  turns_run_others ();
}

void
turns_sleep_at (unsigned n, uint64_t ns)
{
  sleep_planned = true;
  sleep_after = n;
  sleep_ns = ns;
}

void
turns_hold_others (unsigned n)
{
  hold_planned = true;
  hold_after = n;
}

bool
turns_is_held (int *what)
{
  FOR_EACH_THREAD (t)
    if (t->held) {
      *what = held_what;
      return true;
    }
  return false;
}

void
turns_let_go (void)
{
  hold_planned = sleep_planned = false;
  FOR_EACH_THREAD (t)
    t->held = false;
}
