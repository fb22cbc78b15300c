/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <sched.h>
#include <time.h>

#include "epoch.h"
#include "util.h"

/* As long as others just need the processor, yield; who is stuck in a slow
 * disk is looked for now and then.
 */
#define YIELDS 100
#define PAUSE_NS 100000

void
epoch_init (struct epoch *e)
{
  unsigned i;

  for (i = 0; i < PERCPU_SLOTS; ++i) {
    atomic_init (&e->slot[i].readers[0], 0);
    atomic_init (&e->slot[i].readers[1], 0);
  }
  atomic_init (&e->current, 0);
  pthread_mutex_init (&e->writer, NULL);
}

void
epoch_release (struct epoch *e)
{
  pthread_mutex_destroy (&e->writer);
}

/* Who comes too late for this set adds itself for a moment, and leaves again;
 * that delays, and does no harm.
 */
void
epoch_wait (struct epoch *e)
{
  struct timespec pause = { .tv_nsec = PAUSE_NS };
  unsigned old, i, tries = 0;

  SCOPED_LOCK (&e->writer);
  old = atomic_load (&e->current);
  atomic_store (&e->current, !old);
  for (i = 0; i < PERCPU_SLOTS; ++i)
    while (atomic_load (&e->slot[i].readers[old]) > 0) {
      if (tries++ < YIELDS)
        sched_yield ();
      else
        nanosleep (&pause, NULL);
    }
}
