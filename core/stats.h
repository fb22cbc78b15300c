/* SPDX-License-Identifier: BSD-3-Clause */

/* The engine's counters.  Relaxed atomics: each is exact, a set of them read
 * together need not be one moment's.
 */

#ifndef FATBATCH_STATS_H
#define FATBATCH_STATS_H

#include <stdatomic.h>

#include "fatbatch.h"

struct stats {
#define STATS_FIELD(name, help) _Atomic uint64_t name;
  FATBATCH_COUNTERS (STATS_FIELD)
#undef STATS_FIELD
};

static inline void
stats_add (_Atomic uint64_t *counter, uint64_t n)
{
  atomic_fetch_add_explicit (counter, n, memory_order_relaxed);
}

static inline void
stats_read (struct stats *stats, struct fatbatch_stats *ret)
{
#define STATS_LOAD(name, help)                                          \
  ret->name = atomic_load_explicit (&stats->name, memory_order_relaxed);
  FATBATCH_COUNTERS (STATS_LOAD)
#undef STATS_LOAD
}

#endif /* FATBATCH_STATS_H */
