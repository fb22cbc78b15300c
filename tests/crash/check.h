/* SPDX-License-Identifier: BSD-3-Clause */

/* What has to hold of a state that a crash has left, once an engine has been
 * started on it.
 *
 * 1. The engine opens it.  Afterwards there is no record, and none was put
 *    aside.
 * 2. The oracle allows the image, and recovery has changed nothing but mirrors
 *    (D4: of all else the image alone is the truth).
 * 3. Reads return what the image has (D3).
 * 4. Another crash during recovery, and recovery again: as 1 to 3.  (For one
 *    state of four, at a random operation.)
 * 5. Closing, and opening again, does nothing to the image or the record.
 * 6. A guest's next writes can be made, and after a clean stop the image has
 *    them and is otherwise the same (D8).  (For one state of sixteen.)
 * 7. Before recovery, as long as nobody may write, reads return what the image
 *    has after it, and change nothing.  (For one state of eight.)
 */

#ifndef CRASH_CHECK_H
#define CRASH_CHECK_H

#include "cut.h"
#include "workload.h"

struct tally {
  uint64_t cases, cuts, states, violations;
  uint64_t recovered;           /* states whose recovery changed the image */
  uint64_t cut_recoveries;      /* rule 4, where there was something to cut */
  uint64_t recoveries, recovered_sectors; /* of all engines after a crash */
  struct fatbatch_stats running; /* of those before it */
};

struct checker {
  const struct oracle *oracle;  /* at the cut; borrowed */
  struct tally *tally;          /* borrowed */
  bool killed;                  /* the state is one of a kill */
  struct machine after;         /* a crash: the state, and what it becomes */
  struct machine again;         /* after a second one, in recovery */
  struct medium_state {
    uint8_t *image;             /* `after` as the crash has left it */
    uint8_t record[RECORD_SIZE_MAX];
    bool has_record;
    size_t record_size;
  } crashed;
  uint8_t *left;                /* what reads returned before recovery */

  char why[500];                /* what is wrong, if anything is */
};

/* For states of this machine. */
extern void checker_init (struct checker *c, const struct machine *m,
                          const struct oracle *oracle, struct tally *tally);
extern void checker_release (struct checker *c);

/* Check the state in c->after, which stays in c->crashed.  Draws from prng
 * what is done beside rules 1 to 3.
 */
extern bool checker_check (struct checker *c, bool killed, struct prng *prng);

#endif /* CRASH_CHECK_H */
