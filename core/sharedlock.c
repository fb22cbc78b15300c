/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include "sharedlock.h"

void
sharedlock_init (struct sharedlock *sl)
{
  unsigned i;

  for (i = 0; i < PERCPU_SLOTS; ++i)
    atomic_init (&sl->slot[i].readers, 0);
  atomic_init (&sl->writing, false);
  pthread_mutex_init (&sl->writer, NULL);
}

void
sharedlock_release (struct sharedlock *sl)
{
  pthread_mutex_destroy (&sl->writer);
}

void
sharedlock_wait (struct sharedlock *sl)
{
  pthread_mutex_lock (&sl->writer);
  pthread_mutex_unlock (&sl->writer);
}

void
sharedlock_lock (struct sharedlock *sl)
{
  unsigned i;

  pthread_mutex_lock (&sl->writer);
  atomic_store (&sl->writing, true);
  for (i = 0; i < PERCPU_SLOTS; ++i)
    while (atomic_load (&sl->slot[i].readers) > 0)
      sched_yield ();
}

void
sharedlock_unlock (struct sharedlock *sl)
{
  atomic_store (&sl->writing, false);
  pthread_mutex_unlock (&sl->writer);
}
