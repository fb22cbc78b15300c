/* SPDX-License-Identifier: BSD-3-Clause */

/* What the model sends requests to: the real server over NBD (target-nbd.c),
 * or the engine's functions (target-engine.c).
 */

#ifndef TEST_TARGET_H
#define TEST_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum request_kind {
  REQUEST_READ,
  REQUEST_WRITE,
  REQUEST_ZERO,
  REQUEST_TRIM,
  REQUEST_FLUSH,
  REQUEST_CACHE,
  REQUEST_EXTENTS,
  REQUEST_KINDS
};

enum request_flags {
  REQUEST_FUA = 1 << 0,         /* write, zero, trim */
  REQUEST_NO_HOLE = 1 << 1,     /* zero */
  REQUEST_FAST = 1 << 2,        /* zero: may be refused with EOPNOTSUPP */
  REQUEST_ONE = 1 << 3,         /* extents */
};

/* result of a request that nobody answered: the connection died. */
#define REQUEST_UNANSWERED 1

#define REQUEST_EXTENTS_MAX 32

struct request_extent {
  uint64_t length;              /* bytes */
  bool hole;
};

struct request {
  enum request_kind kind;
  unsigned flags;
  uint64_t offset, length;      /* bytes */
  uint8_t *buf;                 /* read, write; the model's */
  int result;                   /* out: 0, -errno, REQUEST_UNANSWERED */
  /* Out, of REQUEST_EXTENTS: the first ones, from offset on. */
  unsigned nr_extents;
  struct request_extent extents[REQUEST_EXTENTS_MAX];
};

struct target_ops {
  /* All at once where the target can, with no order between them.  Returns
   * when each has its result; false if the connection is dead.
   */
  bool (*run) (void *conn, struct request *requests, size_t nr);

  /* What a request of length 0, and one that is not inside the image, may
   * give: 0 or -errno.  Nothing is done in any case.
   */
  int empty_results[2], outside_results[2];
};

extern const struct target_ops nbd_target;      /* conn: struct nbd_handle */
extern const struct target_ops engine_target;   /* conn: struct fatbatch */

#endif /* TEST_TARGET_H */
