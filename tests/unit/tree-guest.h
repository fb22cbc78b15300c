/* SPDX-License-Identifier: BSD-3-Clause */

/* A guest that works on a FAT32 volume as Linux does: what it does to files is
 * done to its own copy of the image, and dirty sectors are written when and in
 * which order it likes.
 */

#ifndef FATBATCH_TESTS_TREE_GUEST_H
#define FATBATCH_TESTS_TREE_GUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "tree-images.h"

#define GUEST_NODES 60

struct guest_node {
  bool used, is_directory;
  unsigned parent;              /* a node's number; 0 is the root */
  uint32_t slot_cluster;        /* where its entry is */
  unsigned slot;
  uint32_t first, size;
};

struct guest {
  struct image cache;           /* the guest's view of the image */
  struct guest_node node[GUEST_NODES];
  uint64_t random;
  uint32_t hint;                /* where the next free cluster is looked for */
  bool chatty;                  /* say what is done, on stdout */
};

extern void guest_init (struct guest *g, const struct fat_spec *spec,
                        uint64_t seed);
extern void guest_release (struct guest *g);

/* Do something to a file or a directory. */
extern void guest_act (struct guest *g);

/* A number below `below`. */
extern uint32_t guest_draw (struct guest *g, uint32_t below);

#endif /* FATBATCH_TESTS_TREE_GUEST_H */
