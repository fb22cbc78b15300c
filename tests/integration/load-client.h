/* SPDX-License-Identifier: BSD-3-Clause */

/* The clients of mirror-load: several connections with several requests in
 * flight each, which write to all parts of a volume and note in its state what
 * was sent and what was answered.
 *
 * Rules:
 *
 * 1. The volume stays a good one for fsck.fat, but for FATs that differ and
 *    clusters that nothing refers to: in FATs the high nibble of entries
 *    changes, which has no meaning, and free entries become end marks; in
 *    directories, the times of entries.
 * 2. A client owns every so-many-th run of sectors in each part.
 */

#ifndef TEST_LOAD_CLIENT_H
#define TEST_LOAD_CLIENT_H

#include <sys/types.h>

#include "load-state.h"

struct nbd_handle;

struct load {
  struct state *state;
  const char *uri;
  uint64_t seed;
  uint64_t stop_after;          /* acknowledged requests */
  pid_t victim;                 /* is killed then; 0: nobody */
  bool all_durable;             /* the server makes each write durable */
  bool may_fail;                /* a failed request ends the load, no more */
};

/* Until the server dies, or as above.  Returns how many requests were
 * acknowledged.
 */
extern uint64_t load_run (const struct load *load);

/* -- What is written (load-content.c) ------------------------------------ */

struct load_kind {
  unsigned weight;              /* of 100 */
  enum part part;
  bool then_mirror;             /* the same follows there */
  bool at_once;                 /* or goes there at once */
  bool allocates;               /* free clusters, in one sector */
};

extern const struct load_kind *load_choose_kind (struct prng *prng);

/* Change what is `size` bytes from `offset` on of the part (rule 1). */
extern void load_change (struct prng *prng, const struct load_kind *kind,
                         uint64_t offset, uint64_t size, uint8_t *buf);

/* -- Connections --------------------------------------------------------- */

extern struct nbd_handle *load_connect (const char *uri);
extern void load_read (struct nbd_handle *nbd, void *buf, uint64_t size,
                       uint64_t offset);

#endif /* TEST_LOAD_CLIENT_H */
