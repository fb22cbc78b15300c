/* SPDX-License-Identifier: BSD-3-Clause */

/* The engine over a volume in memory, and a look at what its directory tree
 * (tree.h) says of each cluster, beside what the reference says of the same
 * bytes (fat-reader.h).
 */

#ifndef FATBATCH_TESTS_TREE_RIG_H
#define FATBATCH_TESTS_TREE_RIG_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine.h"
#include "memory-store.h"
#include "tree-images.h"

struct tree_rig {
  struct fatbatch *fb;
  struct fatbatch_options options;
  struct memory_record record;
  const struct image *image;    /* borrowed: what readers must see */

  pthread_mutex_t lock;         /* protects what follows */
  uint8_t *bytes;               /* the disk's; a copy of the image's at first */
};

/* options may be changed before tree_rig_open(). */
extern void tree_rig_init (struct tree_rig *rig, const struct image *image);
extern void tree_rig_open (struct tree_rig *rig);
extern void tree_rig_close (struct tree_rig *rig);
extern void tree_rig_release (struct tree_rig *rig);

/* Wait until the engine's thread has nothing to do, soon or later.  If that
 * takes forever the test's alarm() goes off.
 */
extern void tree_rig_wait (struct tree_rig *rig);

/* Of a volume that begins at this byte; waits for nothing.  false, and a line
 * for each of the first few clusters on stderr, if the states differ.
 */
extern bool tree_states_agree (struct fatbatch *fb, const uint8_t *image,
                               uint64_t size, uint64_t start);

/* Of one that is: is nothing taken for less than it is?  What is taken for FRESH
 * or a DIRECTORY is written with more care than needed.
 */
extern bool tree_states_careful (struct fatbatch *fb, const uint8_t *image,
                                 uint64_t size, uint64_t start);

/* What is read is what the image has; or fail, with `name`. */
extern void tree_rig_check_reads (struct tree_rig *rig, const char *name);

/* All of it. */
extern void tree_rig_check (struct tree_rig *rig, const char *name);

/* After changes that were followed, which can't always be done to the last
 * cluster: true if all states agree; false if only some are more careful, and
 * agree after another scan.
 */
extern bool tree_rig_check_followed (struct tree_rig *rig, const char *name);

#endif /* FATBATCH_TESTS_TREE_RIG_H */
