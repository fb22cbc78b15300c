/* SPDX-License-Identifier: BSD-3-Clause */

/* What may be in an image after a crash, given the requests that were made and
 * which of them had been acknowledged.  D1 and so on are DESIGN.md's.
 *
 * Units of 512 bytes are what is judged (a disk writes them wholly).  Each has
 * versions: the initial one, and one for each request that changed it, in the
 * order of the requests.  There is one at a time, but for a write that may wait
 * for its sync, already applied, while others are made.  At a cut, a version is
 *
 *   acknowledged  its request had been replied to, or (see above) applied; the
 *                 newest of these is what a read would return (D3)
 *   in flight     its request had begun
 *   durable       its request had FUA, and was replied to; or it was
 *                 acknowledged when a flush began that was replied to
 *
 * Rules for a unit of the recovered image:
 *
 * 1. Kill (D2): it holds the newest acknowledged version, or one in flight.
 * 2. Power cut (D1): it holds the newest durable version or any later one, in
 *    flight ones included.  So a unit never written to holds what it held at
 *    the start (D4, D7), FATs that differ included.
 * 3. D5: all units of a slot of a mirror may instead hold what the recovered
 *    FAT 1 has there, if
 *    a. since the newest acknowledged write to the mirror's slot there was a
 *       moment at which the acknowledged bytes of both slots were equal.  If a
 *       write to the mirror that differs has been acknowledged, the slot can't
 *       be deferred any more, and rules 1 and 2 are all that holds.
 *    b. FAT 1 is not older than what the mirror may rely on.  A slot may be
 *       deferred over several writes to the mirror, each of which equalled FAT
 *       1 at some time, and those that are not durable may be lost.  Going back
 *       from the newest acknowledged version of the mirror's slot as long as
 *       versions had such a moment, but not past the newest durable one, the
 *       first of them, and its first moment, count: FAT 1's units must have
 *       been written then, or later.
 *
 *       Why: a slot gets into the record only when FAT 1 is durable (mirror.h,
 *       rule 2), and a durable mirror write is deferred only if FAT 1 is
 *       durable (rule 3).  Without (b) the recovery of a mirror from an old
 *       FAT 1 would undo a mirror write that was acknowledged as durable.
 *
 * 4. D9: a FUA write of one sector of FAT 1 is not durable when it has been
 *    replied to, but what it was applied to is (unless it may be missing by this
 *    rule, too), if
 *    a. it only allocates: each entry that changes was 0, is not one of the
 *       first two, and becomes an end mark or the number of another that
 *       changes; no other entry of the sector has such a number,
 *    b. and since the server was opened nothing has named one of those
 *       clusters: no entry that was changed in another sector of FAT 1, no
 *       directory entry that was written, not as the root.
 *    c. It is durable when a write that names one of the clusters is in the
 *       image (not just replied to: such a write may be durable at once), when
 *       a server has been started again, the layout has changed, or the delay
 *       is over and nobody is held (LOG_SLEPT).
 *    d. If it is missing it is missing in the mirror, too: rule 3 allows
 *       that, and a mirror that has it is wrong, unless it had the same bytes
 *       before.
 *
 *    So whatever is named in the recovered image is allocated there, if it was
 *    when the name was written, or if both had been replied to as durable.
 *
 * "Acknowledged write" in D5 does not count the one in flight: it either is
 * there (rules 1, 2), or it is as if it had not been sent.
 *
 * A slot is a sector of a FAT that has a mirror by the layout that the
 * acknowledged bytes have.  When that changes, all slots begin anew, with a
 * moment of equality if they are equal then; what was deferred by the old
 * layout has to be in the image by the time the change is acknowledged.
 *
 * A server that was killed, and started again: what its recovery has put into
 * the image counts as a write to those units, acknowledged when the server is
 * ready, and in flight before.  A request that it was killed in is lost or not,
 * and stays what it turns out to be.  (If FAT 1 was not durable when the server
 * was killed, and the power is cut soon after, a mirror may then be newer than
 * FAT 1: it was FAT 1's then-current content, as D5 says.)
 *
 * The oracle is told of requests while they run, with their places in the
 * machine's log (recorder.h).  Later it goes through the log once more, cut by
 * cut, and judges.
 */

#ifndef CRASH_ORACLE_H
#define CRASH_ORACLE_H

#include "layout.h"
#include "mirror.h"
#include "recorder.h"

enum request_kind {
  REQ_WRITE, REQ_ZERO, REQ_TRIM, REQ_FLUSH,
  REQ_REOPEN,                   /* a new server, after a kill or clean stop */
};

struct request {
  enum request_kind kind;
  uint64_t offset, length;      /* bytes, as it was sent */
  bool fua;
  bool acked;                   /* in the end */
  size_t end;                   /* in the log: when it was acknowledged, or
                                   before that applied */
};

struct version {
  unsigned request;
  uint8_t bytes[UNIT];
};

struct unit_history {
  unsigned nr, max;
  struct version *versions;     /* [0] is the initial one */
  unsigned acked, durable;      /* at the cut */
  unsigned deferred;            /* the newest that rule 4 is about; if that is
                                   not newer than `durable`, none is */
};

/* Rule 3, at the cut. */
struct slot {
  bool may_lag;                 /* 3a */
  size_t first_equal;           /* 3b, as a place in the log */
  size_t last_equal;            /* the first moment of the newest version */
};

#define ORACLE_VOLUMES_MAX 4

struct oracle_volume {
  struct mirror_volume fat;
  unsigned nr_slots;
  struct slot *slots;
  uint32_t root, clusters_end;
  uint8_t *named;               /* rule 4b; a byte each */
};

struct oracle {
  uint64_t size;
  size_t nr_units;
  uint64_t discard_align;       /* 0: discards do nothing */
  bool all_durable;             /* every write has FUA */
  bool no_lag;                  /* D5 is off: without rule 3 */
  bool defers;                  /* rule 4 */
  struct request *requests;
  unsigned nr_requests, max_requests;
  struct unit_history *units;
  uint8_t *live;                /* what reads return now */

  /* At the cut. */
  uint8_t *acked;               /* what reads returned then */
  uint8_t *page;                /* what the image had in the page cache */
  unsigned flight[2], nr_flight;
  struct layout *layout;
  unsigned nr_volumes;
  struct oracle_volume volumes[ORACLE_VOLUMES_MAX];
};

extern void oracle_init (struct oracle *o, const struct machine *m,
                         bool all_durable, bool no_lag, bool defers);
extern void oracle_release (struct oracle *o);

/* -- While requests run -------------------------------------------------- */

/* A request is about to be sent; bytes: of a write.  Returns its number. */
extern unsigned oracle_begin (struct oracle *o, const struct request *r,
                              const void *bytes);
/* It was replied to; `at`: the mark in the log.  Without this call it never
 * was.
 */
extern void oracle_end (struct oracle *o, unsigned request, size_t at);

/* It has been applied, and waits for its sync while others are sent. */
extern void oracle_applied (struct oracle *o, unsigned request, size_t at);

/* A server is ready again (the end of a REQ_REOPEN), and the image holds this.
 */
extern void oracle_reopened (struct oracle *o, unsigned request, size_t at,
                             const uint8_t *image);

/* -- Afterwards ---------------------------------------------------------- */

/* To the cut before all entries of the log. */
extern void oracle_rewind (struct oracle *o);
/* Over one. */
extern void oracle_advance (struct oracle *o, const struct log_entry *e);

/* Is this image, with recovery done, one that may be?  If not, why says what
 * is wrong.
 */
extern bool oracle_allows (const struct oracle *o, const uint8_t *image,
                           bool killed, char *why, size_t why_size);

/* The FATs with a mirror that bytes of an image have.  Returns how many. */
extern unsigned oracle_find_volumes (const uint8_t *image, uint64_t size,
                                     struct layout **layout,
                                     struct mirror_volume *ret, unsigned max);

/* The bytes that a request changes: none, or all that it names, or of a discard
 * whole blocks.  And the units.  Between the files of the oracle.
 */
extern void oracle_effect (const struct oracle *o, const struct request *r,
                           uint64_t *start, uint64_t *end);
extern void oracle_units (const struct oracle *o, const struct request *r,
                          size_t *first, size_t *last);

/* -- Rule 4 (oracle-deferred.c) ------------------------------------------- */

/* A volume that was found: its clusters. */
extern void oracle_look_at_clusters (const struct oracle *o,
                                     struct oracle_volume *v);
extern void oracle_forget_names (struct oracle *o);
/* A write was done to the image. */
extern void oracle_written (struct oracle *o, const struct log_entry *e);
/* A request with FUA was replied to: is it of that sort?  Before it counts as
 * acknowledged.
 */
extern bool oracle_defer (struct oracle *o, unsigned request);
/* All of them are durable. */
extern void oracle_end_deferring (struct oracle *o);
/* Rule 4d. */
extern bool oracle_mirror_is_ahead (const struct oracle *o,
                                    const uint8_t *image, char *why,
                                    size_t why_size);

#endif /* CRASH_ORACLE_H */
