/* SPDX-License-Identifier: BSD-3-Clause */

/* One case: run its workload, and then, for each cut of its log, make the
 * states in which a crash can leave image and record, and check each of them
 * (check.h).
 */

#ifndef CRASH_EXPLORE_H
#define CRASH_EXPLORE_H

#include "check.h"

#define STATE_LIVE -1           /* what goes wrong before any crash */

/* What a replay is about; state: or STATE_LIVE. */
struct target {
  bool replay;
  size_t cut;
  int state;
};

/* Explore one case, or replay a part of it.  Violations are printed, with the
 * number of the case and so on, by which they can be replayed.
 */
extern void explore_case (uint64_t seed, unsigned number, unsigned states,
                          const struct target *target, struct tally *tally);

/* Print the case that is explored now. */
extern void explore_print_case (void);

#endif /* CRASH_EXPLORE_H */
