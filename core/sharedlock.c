/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include "sharedlock.h"

void
sharedlock_init (struct sharedlock *sl)
{
  pthread_rwlockattr_t attr;
  unsigned i;

  pthread_rwlockattr_init (&attr);
  pthread_rwlockattr_setkind_np
    (&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
  for (i = 0; i < PERCPU_SLOTS; ++i)
    pthread_rwlock_init (&sl->slot[i].lock, &attr);
  pthread_rwlockattr_destroy (&attr);
}

void
sharedlock_release (struct sharedlock *sl)
{
  unsigned i;

  for (i = 0; i < PERCPU_SLOTS; ++i)
    pthread_rwlock_destroy (&sl->slot[i].lock);
}

unsigned
sharedlock_lock_shared (struct sharedlock *sl)
{
  unsigned slot = percpu_slot ();

  pthread_rwlock_rdlock (&sl->slot[slot].lock);
  return slot;
}

void
sharedlock_unlock_shared (struct sharedlock *sl, unsigned slot)
{
  pthread_rwlock_unlock (&sl->slot[slot].lock);
}

/* In ascending order: two writers meet at the first slot, and no reader holds
 * more than one.
 */
void
sharedlock_lock (struct sharedlock *sl)
{
  unsigned i;

  for (i = 0; i < PERCPU_SLOTS; ++i)
    pthread_rwlock_wrlock (&sl->slot[i].lock);
}

void
sharedlock_unlock (struct sharedlock *sl)
{
  unsigned i;

  for (i = 0; i < PERCPU_SLOTS; ++i)
    pthread_rwlock_unlock (&sl->slot[i].lock);
}

bool
sharedlock_is_wanted (struct sharedlock *sl)
{
  unsigned i;

  for (i = 0; i < PERCPU_SLOTS; ++i) {
    if (pthread_rwlock_tryrdlock (&sl->slot[i].lock) != 0)
      return true;
    pthread_rwlock_unlock (&sl->slot[i].lock);
  }
  return false;
}
