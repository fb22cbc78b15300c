/* SPDX-License-Identifier: BSD-3-Clause */

/* Which of a few copies of a hot variable the calling thread should touch, so
 * that processors don't take its cache line from each other.  A thread may be
 * moved at any time: the slot spreads the load, it does not exclude anybody.
 */

#ifndef FATBATCH_PERCPU_H
#define FATBATCH_PERCPU_H

#include <sched.h>

#define PERCPU_SLOTS 8
#define PERCPU_LINE 64          /* bytes of a cache line */

static inline unsigned
percpu_slot (void)
{
  int cpu = sched_getcpu ();

  return cpu < 0 ? 0 : (unsigned) cpu % PERCPU_SLOTS;
}

#endif /* FATBATCH_PERCPU_H */
