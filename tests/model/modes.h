/* SPDX-License-Identifier: BSD-3-Clause */

/* Cache modes and leaves, by the words that users write. */

#ifndef TEST_MODES_H
#define TEST_MODES_H

#include "fatbatch.h"

#define NR_MODES 5              /* enum fatbatch_cache counts them */
#define NR_LEAVES 2

struct leaf {
  const char *name;
  enum fatbatch_io io;
};

extern const char *const mode_names[NR_MODES];
extern const struct leaf leaves[NR_LEAVES];

/* Calls fn for each combination of mode and leaf.  Arguments on the command
 * line are names of modes and leaves, and restrict it to these; any other is
 * a failed test.  Where io_uring can't be used its leaf is left out, with a
 * note.  Skips the test if nothing is left.
 */
extern void modes_for_each (int argc, char *const *argv,
                            void (*fn) (int mode, int leaf));

#endif /* TEST_MODES_H */
