/* SPDX-License-Identifier: BSD-3-Clause */

/* Threads that take turns, so that a run with several of them can be repeated.
 *
 * One thread runs at a time.  It goes on until it waits for another one, ends,
 * or gives its turn away at one of a few places.  When that is, and who is
 * next, depends on nothing but the seed and what the threads did so far.  Time
 * is a number that grows when it is looked at, when turns_sleep() says so, and
 * when everybody waits.
 *
 * The calls by which the engine's threads wait for each other come here by the
 * linker's --wrap (turns-wrap.c; the list is in Makefile.am).  If nobody can go
 * on, and no wait has a deadline, that is a deadlock, and the test ends.
 *
 * The thread that called turns_init() is the client, and decides about the
 * others: it can have one of them held in front of an operation, and go on
 * itself meanwhile.  Who is held goes on when the client lets go, and also if
 * without it nobody could.
 *
 * No lock: only the thread whose turn it is runs.
 */

#ifndef CRASH_TURNS_H
#define CRASH_TURNS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Once, in the client.  report: prints what is needed to repeat a run that ends
 * in a deadlock.
 */
extern void turns_init (void (*report) (void));

/* Begin, with one thread: the seed of what follows, and how often, in percent, a
 * thread gives its turn away at an operation, or (less often) where it takes a
 * mutex, if another one could run.
 */
extern void turns_begin (uint64_t seed, unsigned percent);

/* An operation is next, of kind `what`: a place where turns are given away. */
extern void turns_at_operation (int what);

/* Let others go on until they all wait, have ended, or are held. */
extern void turns_run_others (void);

/* The same, and time goes by. */
extern void turns_sleep (uint64_t ns);
/* The same, in front of the client's n-th operation from now (0: the next). */
extern void turns_sleep_at (unsigned n, uint64_t ns);

/* Hold the first of the others that comes to its n-th operation from now (0:
 * the next), counted over all of them.
 */
extern void turns_hold_others (unsigned n);

/* Is one held, and in front of what? */
extern bool turns_is_held (int *what);

/* Nobody is held any more, and no such plan is left. */
extern void turns_let_go (void);

/* -- For turns-wrap.c ------------------------------------------------------ */

#define TURNS_NEVER UINT64_MAX

extern pthread_t turns_create (void *(*fn) (void *), void *arg);
extern void turns_join (pthread_t id);

/* Wait for something, or until `deadline`.  False: that came first. */
extern bool turns_wait_for (const void *what, uint64_t deadline);
/* At most so many of those that wait for it could run. */
extern void turns_wake (const void *what, unsigned nr);
/* Let others go on: the caller polls for something. */
extern void turns_yield (void);
/* Perhaps let others go on. */
extern void turns_at_mutex (void);
extern uint64_t turns_now (void);       /* ns */

/* What the names stand for without --wrap. */
extern __typeof__ (pthread_create) __real_pthread_create;
extern __typeof__ (pthread_join) __real_pthread_join;
extern __typeof__ (pthread_mutex_lock) __real_pthread_mutex_lock;
extern __typeof__ (pthread_mutex_unlock) __real_pthread_mutex_unlock;
extern __typeof__ (pthread_cond_wait) __real_pthread_cond_wait;
extern __typeof__ (pthread_cond_signal) __real_pthread_cond_signal;

#endif /* CRASH_TURNS_H */
