/* SPDX-License-Identifier: BSD-3-Clause */

/* The engine's counters.  Each has a part for each processor (percpu.h), and
 * its value is their sum: exact, but a set of counters read together need not
 * be one moment's.
 */

#ifndef FATBATCH_STATS_H
#define FATBATCH_STATS_H

#include <stdatomic.h>

#include "fatbatch.h"
#include "percpu.h"

enum stats_counter {
#define STATS_ENUM(name, help) STATS_##name,
  FATBATCH_COUNTERS (STATS_ENUM)
#undef STATS_ENUM
  STATS_COUNTERS
};

struct stats {
  struct stats_slot {
    _Atomic uint64_t counter[STATS_COUNTERS];
  } __attribute__ ((aligned (PERCPU_LINE))) slot[PERCPU_SLOTS];
};

static inline void
stats_add (struct stats *stats, enum stats_counter counter, uint64_t n)
{
  atomic_fetch_add_explicit (&stats->slot[percpu_slot ()].counter[counter], n,
                             memory_order_relaxed);
}

static inline uint64_t
stats_get (const struct stats *stats, enum stats_counter counter)
{
  uint64_t sum = 0;
  unsigned i;

  for (i = 0; i < PERCPU_SLOTS; ++i)
    sum += atomic_load_explicit (&stats->slot[i].counter[counter],
                                 memory_order_relaxed);
  return sum;
}

static inline void
stats_read (const struct stats *stats, struct fatbatch_stats *ret)
{
#define STATS_LOAD(name, help) ret->name = stats_get (stats, STATS_##name);
  FATBATCH_COUNTERS (STATS_LOAD)
#undef STATS_LOAD
}

#endif /* FATBATCH_STATS_H */
