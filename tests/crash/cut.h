/* SPDX-License-Identifier: BSD-3-Clause */

/* What a crash can leave of a machine (recorder.h).
 *
 * A cut is a place in the log: what is before it has happened.  A cursor goes
 * through the log, and knows at each cut what is durable, and what is written
 * but not synced.  States of a cut:
 *
 *   0          the process is killed: the page cache is kept, all is there
 *   1          the same, but the next operation, an image write, had done a
 *              part of its units
 *   2 ...      the power is cut: of each unit that was written and not synced,
 *              the durable bytes are there, or those of one of the writes
 *
 * If the states of a power cut are few, all of them are made; else some that
 * are typical (nothing kept, everything kept) and random ones: each unit by a
 * coin of one of several weights, the writes before some moment, all but one
 * write, one write only.
 *
 * The record's blocks are such units, too, and can moreover be torn: one half
 * new, the other old.  Making and deleting the record are durable at once; that
 * it may be either while that is under way is the cut before and the one after.
 */

#ifndef CRASH_CUT_H
#define CRASH_CUT_H

#include "recorder.h"

#define STATE_KILLED 0
#define STATE_KILLED_INSIDE 1
#define STATE_POWER 2           /* and more */

/* Bytes of a unit that may be there after a power cut. */
struct pending {
  size_t at;                    /* in the log */
  const uint8_t *bytes;
};

struct medium {
  size_t nr_units;
  uint8_t *durable, *page;      /* page: with all that is pending */
  struct unit_pending {
    unsigned nr, max;
    struct pending *writes;     /* oldest first */
  } *units;
  size_t *dirty, nr_dirty;      /* units with something pending */
};

struct cut {
  const struct machine *m;
  size_t pos;                   /* entries of the log before the cut */
  struct medium image, record;
  bool has_record;
  size_t record_size;
};

/* All of the image, and of the record if there is one, is durable. */
extern void cut_init (struct cut *c, const struct machine *m,
                      const uint8_t *image, const uint8_t *record,
                      bool has_record, size_t record_size);
extern void cut_release (struct cut *c);

/* Over one entry of the log. */
extern void cut_advance (struct cut *c);

/* How many states there are, if some `want` of a power cut are enough. */
extern unsigned cut_count_states (const struct cut *c, unsigned want);

/* Put a state into a machine.  False: this one does not exist here (of a kill
 * inside a write that is not one, or of one unit).
 */
extern bool cut_make_state (const struct cut *c, unsigned state,
                            unsigned nr_states, struct prng *prng,
                            struct machine *to);

/* Which units of a power cut's state are not as they are in the page cache, for
 * people.
 */
extern void cut_print_state (const struct cut *c, const struct machine *state);

#endif /* CRASH_CUT_H */
