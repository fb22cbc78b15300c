/* SPDX-License-Identifier: BSD-3-Clause */

/* Time that never goes backwards, as nanoseconds (CLOCK_MONOTONIC). */

#ifndef FATBATCH_MONOTONIC_H
#define FATBATCH_MONOTONIC_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t
monotonic_now (void)
{
  struct timespec ts;

  clock_gettime (CLOCK_MONOTONIC, &ts);
  return ts.tv_sec * UINT64_C (1000000000) + ts.tv_nsec;
}

/* A condition variable for monotonic_wait(). */
static inline void
monotonic_cond_init (pthread_cond_t *cond)
{
  pthread_condattr_t attr;

  pthread_condattr_init (&attr);
  pthread_condattr_setclock (&attr, CLOCK_MONOTONIC);
  pthread_cond_init (cond, &attr);
  pthread_condattr_destroy (&attr);
}

/* Until it is signalled or that time has come, or a little earlier. */
static inline void
monotonic_wait (pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline)
{
  struct timespec ts = {
    .tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000,
  };

  pthread_cond_timedwait (cond, lock, &ts);
}

#endif /* FATBATCH_MONOTONIC_H */
