/* SPDX-License-Identifier: BSD-3-Clause */

/* What --wrap makes of the calls by which threads wait for each other. */

#include <config.h>

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <semaphore.h>
#include <time.h>

#include "turns.h"

#define NS UINT64_C (1000000000)

extern __typeof__ (pthread_create) __wrap_pthread_create;
extern __typeof__ (pthread_join) __wrap_pthread_join;
extern __typeof__ (pthread_mutex_lock) __wrap_pthread_mutex_lock;
extern __typeof__ (pthread_mutex_unlock) __wrap_pthread_mutex_unlock;
extern __typeof__ (pthread_cond_wait) __wrap_pthread_cond_wait;
extern __typeof__ (pthread_cond_timedwait) __wrap_pthread_cond_timedwait;
extern __typeof__ (pthread_cond_signal) __wrap_pthread_cond_signal;
extern __typeof__ (pthread_cond_broadcast) __wrap_pthread_cond_broadcast;
extern __typeof__ (sem_wait) __wrap_sem_wait;
extern __typeof__ (sem_post) __wrap_sem_post;
extern __typeof__ (sem_post) __real_sem_post;
extern __typeof__ (sched_yield) __wrap_sched_yield;
extern __typeof__ (nanosleep) __wrap_nanosleep;
extern __typeof__ (clock_gettime) __wrap_clock_gettime;

/* -- Threads --------------------------------------------------------------- */

int
__wrap_pthread_create (pthread_t *id, const pthread_attr_t *attr,
                       void *(*fn) (void *), void *arg)
{
  (void) attr;
  *id = turns_create (fn, arg);
  return 0;
}

int
__wrap_pthread_join (pthread_t id, void **result)
{
  (void) result;                /* nobody here asks for it */
  turns_join (id);
  return 0;
}

/* -- Waiting --------------------------------------------------------------- */

int
__wrap_pthread_mutex_lock (pthread_mutex_t *mutex)
{
  int r;

  turns_at_mutex ();
  while ((r = pthread_mutex_trylock (mutex)) == EBUSY)
    turns_wait_for (mutex, TURNS_NEVER);
  return r;
}

int
__wrap_pthread_mutex_unlock (pthread_mutex_t *mutex)
{
  turns_wake (mutex, 1);
  return __real_pthread_mutex_unlock (mutex);
}

static int
cond_wait (pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t deadline)
{
  bool woken;

  __wrap_pthread_mutex_unlock (mutex);
  woken = turns_wait_for (cond, deadline);
  __wrap_pthread_mutex_lock (mutex);
  return woken ? 0 : ETIMEDOUT;
}

int
__wrap_pthread_cond_wait (pthread_cond_t *cond, pthread_mutex_t *mutex)
{
  return cond_wait (cond, mutex, TURNS_NEVER);
}

int
__wrap_pthread_cond_timedwait (pthread_cond_t *cond, pthread_mutex_t *mutex,
                               const struct timespec *end)
{
  return cond_wait (cond, mutex, end->tv_sec * NS + end->tv_nsec);
}

int
__wrap_pthread_cond_signal (pthread_cond_t *cond)
{
  turns_wake (cond, 1);
  return 0;
}

int
__wrap_pthread_cond_broadcast (pthread_cond_t *cond)
{
  turns_wake (cond, UINT_MAX);
  return 0;
}

int
__wrap_sem_wait (sem_t *sem)
{
  while (sem_trywait (sem) == -1)
    turns_wait_for (sem, TURNS_NEVER);
  return 0;
}

int
__wrap_sem_post (sem_t *sem)
{
  turns_wake (sem, 1);
  return __real_sem_post (sem);
}

/* -- Polling, and time ----------------------------------------------------- */

int
__wrap_sched_yield (void)
{
  turns_yield ();
  return 0;
}

int
__wrap_nanosleep (const struct timespec *length, struct timespec *left)
{
  (void) length;
  (void) left;
  turns_yield ();
  return 0;
}

int
__wrap_clock_gettime (clockid_t clock, struct timespec *ts)
{
  uint64_t now = turns_now ();

  (void) clock;
  *ts = (struct timespec) { .tv_sec = now / NS, .tv_nsec = now % NS };
  return 0;
}
