/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "modes.h"
#include "testlib.h"

const char *const mode_names[NR_MODES] = {
  [FATBATCH_WRITEBACK] = "writeback",
  [FATBATCH_WRITETHROUGH] = "writethrough",
  [FATBATCH_NONE] = "none",
  [FATBATCH_DIRECTSYNC] = "directsync",
  [FATBATCH_UNSAFE] = "unsafe",
};

const struct leaf leaves[NR_LEAVES] = {
  { "uring", FATBATCH_IO_URING },
  { "posix", FATBATCH_IO_POSIX },
};

struct wanted {
  bool mode[NR_MODES], leaf[NR_LEAVES];
  bool any_mode, any_leaf;      /* named */
};

static void
parse_argument (struct wanted *wanted, const char *arg)
{
  int i;

  for (i = 0; i < NR_MODES; ++i)
    if (strcmp (arg, mode_names[i]) == 0) {
      wanted->mode[i] = wanted->any_mode = true;
      return;
    }
  for (i = 0; i < NR_LEAVES; ++i)
    if (strcmp (arg, leaves[i].name) == 0) {
      wanted->leaf[i] = wanted->any_leaf = true;
      return;
    }
  test_fail ("%s: neither a cache mode nor a leaf", arg);
}

void
modes_for_each (int argc, char *const *argv, void (*fn) (int mode, int leaf))
{
  bool uring = fatbatch_probe_uring () == 0;
  struct wanted wanted = { .any_mode = false };
  unsigned calls = 0;
  int i, mode, leaf;

  for (i = 1; i < argc; ++i)
    parse_argument (&wanted, argv[i]);
  if (!uring)
    printf ("no io_uring here: io=uring is not tested\n");
  for (mode = 0; mode < NR_MODES; ++mode)
    for (leaf = 0; leaf < NR_LEAVES; ++leaf)
      if ((!wanted.any_mode || wanted.mode[mode]) &&
          (!wanted.any_leaf || wanted.leaf[leaf]) &&
          (uring || leaves[leaf].io != FATBATCH_IO_URING)) {
        fn (mode, leaf);
        calls++;
      }
  if (calls == 0)
    test_skip ("nothing to test");
}
