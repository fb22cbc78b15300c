/* SPDX-License-Identifier: BSD-3-Clause */

/* A machine for crash tests: a disk (core/disk.h) and an intent record
 * (core/intent.h) in memory that write down what is done to them, both in one
 * log.  From any prefix of the log, cut.h makes the states in which a crash can
 * leave the two.
 *
 * The engine's view of it is a struct disk and a struct intent_store, made anew
 * for each engine; the machine lives on.
 *
 * Rules:
 *
 * 1. The log has the order in which operations ended.  An operation is in it
 *    wholly or not at all: one that is under way is the cut before it, or (an
 *    image write is made of units, each of which may be there or not) one of
 *    the states of the cut after it.
 * 2. A sync covers what was in the log when it was submitted (`from`), and of
 *    that only its range.
 * 3. Operations of a batch are done in a random order between its syncs
 *    (core/disk.h, rule 2).
 * 4. A dead machine refuses everything, and its log does not grow, but for the
 *    test's own marks.
 *
 * No lock: threads take turns (turns.h), and give them away in front of
 * operations only.
 */

#ifndef CRASH_RECORDER_H
#define CRASH_RECORDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "disk.h"
#include "intent.h"
#include "testlib.h"

#define UNIT 512                /* bytes: what a disk writes as a whole */

/* -- The log ------------------------------------------------------------- */

enum log_kind {
  LOG_WRITE,                    /* of the image; zeros and discards too */
  LOG_SYNC,
  LOG_RECORD_CREATE,            /* durable, as this and the next but two are */
  LOG_RECORD_REMOVE,
  LOG_RECORD_SET_ASIDE,
  LOG_RECORD_WRITE,
  LOG_RECORD_SYNC,
  /* Marks, of request `request`.  APPLIED: it has changed the image, and waits
   * for its sync while others are made.  SLEPT: without one, see oracle.h.
   */
  LOG_BEGIN, LOG_APPLIED, LOG_END, LOG_SLEPT,
};

struct log_entry {
  enum log_kind kind;
  enum disk_op_kind op;         /* WRITE: which it was */
  uint64_t offset, length;      /* bytes */
  size_t from;                  /* syncs: rule 2 */
  unsigned request;
  uint8_t *bytes;               /* writes: the units that are touched, wholly,
                                   as they are afterwards */
};

/* The units that bytes [offset, offset + length) touch: [first, last). */
static inline size_t
unit_first (uint64_t offset)
{
  return offset / UNIT;
}

static inline size_t
unit_last (uint64_t offset, uint64_t length)
{
  return (offset + length + UNIT - 1) / UNIT;
}

/* -- The machine --------------------------------------------------------- */

#define RECORD_SIZE_MAX (INTENT_BLOCKS * INTENT_BLOCK)

struct machine {
  /* Set by machine_init(). */
  uint64_t size;                /* bytes */
  size_t nr_units;              /* the last one may reach past the size */
  uint32_t align;               /* of the disk */
  bool discards;                /* a discard zeroes; else it does nothing */

  uint64_t seed;                /* rule 3; set by machine_reset() */

  uint8_t *image;               /* page cache: everything is applied */
  bool has_record;
  size_t record_size;
  uint8_t record[RECORD_SIZE_MAX];

  struct log_entry *log;
  size_t nr_log, max_log;

  uint64_t ops, die_at;         /* dead when as many operations are done */
  bool dead;
};

extern void machine_init (struct machine *m, uint64_t size, uint32_t align,
                          bool discards);
extern void machine_release (struct machine *m);

/* Forget the log.  The caller fills in image, record and so on. */
extern void machine_reset (struct machine *m, uint64_t seed);

/* For one engine, which frees them. */
extern struct disk *machine_disk (struct machine *m);
extern struct intent_store *machine_store (struct machine *m);

/* Returns the mark's place in the log. */
extern size_t machine_mark (struct machine *m, enum log_kind kind,
                            unsigned request);

/* -- For the files of the recorder ---------------------------------------- */

/* An operation is about to be done.  0, or -EIO: the machine is dead. */
extern int machine_begin_op (struct machine *m, enum log_kind kind);
extern struct log_entry *machine_log_add (struct machine *m,
                                          enum log_kind kind);
/* With the units that are touched, out of `from`, all of the medium. */
extern void machine_log_write (struct machine *m, enum log_kind kind,
                               enum disk_op_kind op, const uint8_t *from,
                               uint64_t offset, uint64_t length);

#endif /* CRASH_RECORDER_H */
