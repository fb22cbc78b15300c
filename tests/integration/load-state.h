/* SPDX-License-Identifier: BSD-3-Clause */

/* What mirror-load has sent, and what must be there after a kill, a power cut
 * or a clean stop.  Kept in a file between its runs.
 *
 * Rules:
 *
 * 1. For each sector there is a row of versions, the oldest first: the newest
 *    durable one, and all that were sent since.
 * 2. After a kill a sector has the newest acknowledged version, or one sent
 *    after that (D2), and so it is after a clean stop (D8); after a power cut
 *    the newest durable one, or one sent after that (D1).
 * 3. A sector of the mirror may instead have what FAT 1 has now, if one of the
 *    versions of rule 2 has been equal to FAT 1 at some moment (D5), and FAT 1
 *    has now what it had then, or something newer; but not after a clean stop.
 * 4. A sector is used by one thread at a time.
 */

#ifndef TEST_LOAD_STATE_H
#define TEST_LOAD_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "fat-volume.h"

#define STATE_VERSIONS 24       /* of a sector */
#define STATE_SECTOR_MAX 4096   /* bytes */

enum part { FAT1, MIRROR, DIRECTORY, DATA, PARTS };
enum cause { KILL, CUT, STOP };

struct sector {
  uint64_t hash[STATE_VERSIONS];        /* of its bytes */
  uint32_t equal[STATE_VERSIONS];       /* MIRROR: position of the equal one of
                                           FAT 1, and 1; or 0 */
  uint32_t base;                /* versions before hash[0] */
  uint8_t nr, acked;            /* versions; the newest acknowledged one */
  bool busy;                    /* a request is under way */
};

struct state {
  struct volume volume;
  uint64_t nr[PARTS];           /* sectors */
  struct sector sector[];       /* of all parts */
};

/* Fills a buffer from a byte of the image. */
typedef void (*state_read_fn) (void *buf, uint64_t size, uint64_t offset);

/* Nothing is known of what is there before state_adopt().  At the beginning of
 * the clusters are `directory` sectors of the root directory, and then `data`
 * sectors of a file.  The caller frees it, as that of state_load().
 */
extern struct state *state_new (const struct volume *volume,
                                uint64_t directory, uint64_t data);
extern struct state *state_load (const char *path);
extern void state_save (const struct state *state, const char *path);

extern struct sector *state_sector (struct state *state, enum part part,
                                    uint64_t i);
/* Byte of the image. */
extern uint64_t state_offset (const struct state *state, enum part part,
                              uint64_t i);

/* A write is sent; there is room for its version.  fat1: for the mirror, if it
 * is equal to what was sent there last.
 */
extern void sector_sent (struct sector *s, const uint8_t *buf, uint64_t size,
                         const struct sector *fat1);
/* It, the newest, has been answered. */
extern void sector_acknowledged (struct sector *s, bool durable);
/* All that was acknowledged when sector_position() said so is durable. */
extern uint32_t sector_position (const struct sector *s);
extern void sector_durable (struct sector *s, uint32_t position);

/* Judge all sectors by rules 2 and 3, and fail.  with_mirror: that too.
 * Returns the number of mirror sectors that have no version of rule 2.
 */
extern uint64_t state_judge (struct state *state, enum cause cause,
                             state_read_fn read, bool with_mirror);

/* What is read is the state from now on, durable, and each mirror sector equal
 * to FAT 1 that is so.
 */
extern void state_adopt (struct state *state, state_read_fn read);

#endif /* TEST_LOAD_STATE_H */
