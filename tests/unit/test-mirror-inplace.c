/* SPDX-License-Identifier: BSD-3-Clause */

/* Writes to FATs that can't be deferred, and what they do to those that are:
 * the exact operations (mirror.h, rules 1, 4, 5, 7 and 9).  The language is in
 * mirror-rig.h.
 */

#include <config.h>

#include <unistd.h>

#include "mirror-lines.h"
#include "mirror-rig.h"

/* -- Other bytes than FAT 1's ------------------------------------------ */

static const struct rig_row different[] = {
  { .name = "other bytes: what is deferred is written and disarmed first",
    .script =
    DEFER_3
    "> fua fat2:4 x\n"
    DRAIN_3
    "  write fat2:4\n"
    "  read fat2:4\n"
    "  sync fat2:4\n" },

  { .name = "other bytes for the deferred slot itself",
    .script =
    DEFER_3
    "> fua fat2:3 x\n"
    DRAIN_3
    "  write fat2:3\n"
    "  read fat2:3\n"
    "  sync fat2:3\n" },

  { .name = "the window goes on, but without that slot, until it is equal",
    .script =
    DEFER_3
    "> fua fat2:4 x\n"
    DRAIN_3
    "  write fat2:4\n"
    "  read fat2:4\n"
    "  sync fat2:4\n"
    "> fua fat1:3 b\n"
    "  write fat1:3\n"
    "  sync fat1:3\n"
    "> fua fat2:3 b\n"
    "  record write 1\n"
    "  record sync\n"
    "> fua fat2:4 y\n"          /* not recorded: nothing to be drained */
    "  write fat2:4\n"
    "  read fat2:4\n"
    "  sync fat2:4\n"
    "> fua fat1:4 z\n"
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> fua fat2:4 z\n"          /* equal: recorded again (intent.h, rule 2) */
    "  record write 2\n"
    "  record sync\n"
    "  record clear 1\n"
    "  record sync\n"
    "> sync\n"
    "  write fat2:3+2\n"
    "  sync fat2:3+2\n" },

  { .name = "a plain equal write is not worth arming again",
    .script =
    "> image fat2:4 x\n"
    DEFER_3
    "> write fat1:4 y\n"
    "  write fat1:4\n"
    "> write fat2:4 y\n"
    "  write fat2:4\n"
    "> write fat1:3 b\n"
    "  write fat1:3\n"
    "> write fat2:3 b\n" },

  { .name = "nor are its neighbours drained for it, but written with it",
    .script =
    "> image fat2:4 x\n"
    DEFER_3
    "> write fat1:3+2 by\n"
    "  write fat1:3+2\n"
    "> write fat2:3+2 by\n"
    "  write fat2:3+2\n"
    "> check fat2:3+2 by\n"
    "> settle\n"                /* only what is in the record must be synced */
    "  sync fat2:3\n"
    "  record clear 1\n"
    "  record sync\n"
    "  record remove\n" },

  { .name = "the mirror before FAT 1",
    .script =
    "> fua fat2:3 a\n"
    COMPARE
    "  write fat2:3\n"
    "  read fat2:3\n"
    "  sync fat2:3\n"
    "> fua fat1:3 a\n"
    "  write fat1:3\n"
    PREPARE
    "> fua fat2:3 a\n"
    ARM_PREPARED },

  { .name = "only one of several slots differs",
    .script =
    DEFER_3
    "> write fat1:4+3 bcd\n"
    "  write fat1:4+3\n"
    "> fua fat2:4+3 bxd\n"
    DRAIN_3
    "  write fat2:4+3\n"
    "  read fat2:5\n"
    "  sync fat2:4+3\n"
    "> fua fat2:6 d\n"
    "  sync fat1:4+3\n"
    "  record write 1\n"
    "  record sync\n" },

  { .name = "the old bytes again, when FAT 1 has new ones",
    .script =
    DEFER_3
    "> fua fat1:3 b\n"
    "  write fat1:3\n"
    "  sync fat1:3\n"
    "> stat mirrors_diverged 1\n"
    "> fua fat2:3 a\n"
    DRAIN_3
    "  write fat2:3\n"
    "  read fat2:3\n"
    "  sync fat2:3\n"
    "> check fat2:3 a\n" },

  { .name = "diverged slots are written as they were",
    .script =
    DEFER_3
    "> fua fat1:3 b\n"
    "  write fat1:3\n"
    "  sync fat1:3\n"
    "> read fat2:3 a\n"
    "  read fat2:3\n"
    "> sync\n"
    "  write fat2:3\n"
    "  sync fat2:3\n"
    "> check fat2:3 a\n"
    "> fua fat2:3 b\n"
    "> sync\n"
    "  write fat2:3\n"
    "  sync fat2:3\n"
    "> check fat2:3 b\n" },
};

/* -- Parts of slots, zeros, trims -------------------------------------- */

static const struct rig_row parts[] = {
  { .name = "part of a slot, with FAT 1's bytes",
    .script =
    DEFER_3
    "> fua fat2@1636+100 a\n"
    DRAIN_3
    "  write @26212+100\n"
    "  read fat2:3\n"
    "  sync @26212+100\n"
    "> fua fat2:3 a\n"          /* it was equal all the time */
    "  record write 1\n"
    "  record sync\n" },

  { .name = "part of a slot, with others",
    .script =
    DEFER_3
    "> fua fat2@1636+100 x\n"
    DRAIN_3
    "  write @26212+100\n"
    "  read fat2:3\n"
    "  sync @26212+100\n" },

  { .name = "a whole slot and parts of its neighbours",
    .script =
    DEFER_3
    "> fua fat2@1280+1024 a\n"
    DRAIN_3
    "  write @25856+1024\n"
    "  read fat2:2\n"
    "  read fat2:4\n"
    "  sync @25856+1024\n" },

  { .name = "part of a slot of FAT 1",
    .script =
    DEFER_3
    "> write fat1@1636+100 x\n"
    "  write @18020+100\n"
    "> read fat2:3 a\n"
    "  read fat2:3\n" },

  { .name = "part of FAT 1 made it equal; the whole slot then is deferred",
    .script =
    DEFER_3
    "> write fat1@1536+256 b\n"
    "  write @17920+256\n"
    "> write fat1@1792+256 b\n"
    "  write @18176+256\n"
    "> write fat2:3 b\n"
    "> sync\n"
    "  write fat2:3\n"
    "  sync fat2:3\n"
    "> check fat2:3 b\n" },

  { .name = "zero over the mirror",
    .script =
    DEFER_3
    "> zero fat2:2+4 fua\n"
    DRAIN_3
    "  zero fat2:2+4\n"
    "  sync fat2:2+4\n" },

  { .name = "zero over FAT 1",
    .script =
    DEFER_3
    "> zero fat1:2+4 unmap\n"
    DRAIN_3
    "  zero fat1:2+4 unmap\n"
    "> read fat2:3 a\n"
    "  read fat2:3\n" },

  { .name = "trim of the mirror",
    .script =
    DEFER_3
    "> trim fat2:3\n"
    DRAIN_3
    "  trim fat2:3\n" },

  { .name = "trim of data leaves mirrors alone",
    .script =
    DEFER_3
    "> trim data:0+100\n"
    "  trim data:0+100\n" },

  { .name = "a write over the end of FAT 1",
    .script =
    DEFER_3
    "> fua fat1:15+2 bc\n"
    DRAIN_3
    "  write fat1:15..fat2:0\n"
    "  sync fat1:15..fat2:0\n"
    "> fua fat1:3 b\n"          /* the window is made anew */
    COMPARE
    "  write fat1:3\n"
    "  sync fat1:0+16\n"
    "> fua fat2:3 b\n"
    "  record write 1\n"
    "  record sync\n" },

  { .name = "a write over the end of the mirror",
    .script =
    DEFER_3
    "> write fat2:15+2 bc\n"
    DRAIN_3
    "  write fat2:15..data:0\n" },

  { .name = "a write from the reserved sectors into FAT 1",
    .script =
    DEFER_3
    "> write boot:31+2 bc\n"
    DRAIN_3
    "  write boot:31..fat1:0\n" },

  { .name = "a zero of everything",
    .script =
    DEFER_3
    "> zero all\n"
    "  read boot:0\n"          /* no boot sector, and no partition table */
    "  read boot:0\n"
    DRAIN_3
    "  zero boot:0..data:191\n"
    "  read boot:0\n"
    "  read boot:0\n"
    "> fua fat1:3 a\n"
    "  write fat1:3\n"
    "  sync fat1:3\n" },
};

/* -- FATs that differ -------------------------------------------------- */

static const struct rig_row differing[] = {
  { .name = "a slot that differs stays so, and its neighbours are deferred",
    .script =
    "> image fat2:4 x\n"
    DEFER_3
    "> fua fat1:5 b\n"
    "  write fat1:5\n"
    "  sync fat1:5\n"
    "> fua fat2:5 b\n"
    "> sync\n"
    "  write fat2:3 & write fat2:5\n"
    "  sync fat2:3+3\n"
    "> check fat2:4 x\n" },

  { .name = "until its mirror is written, it is FAT 1 only that changes",
    .script =
    "> image fat2:4 x\n"
    "> fua fat1:4 y\n"
    COMPARE
    "  write fat1:4\n"
    PREPARE
    "> fua fat1:3 a\n"
    "  write fat1:3\n"
    "  sync fat1:3\n"
    "> fua fat2:3 a\n"
    ARM_PREPARED
    "> crash\n"
    FIND_LEFT
    "  write fat2:3\n"
    END_RECOVERY
    "> check fat2:4 x\n" },

  { .name = "its first equal mirror write puts it into the record",
    .script =
    "> image fat2:4 x\n"
    DEFER_3
    "> fua fat1:4 b\n"
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> fua fat2:4 b\n"
    "  record write 2\n"
    "  record sync\n"
    "  record clear 1\n"
    "  record sync\n"
    "> fua fat1:4 c\n"
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> fua fat2:4 c\n" },

  { .name = "all differ: only what becomes equal is recorded",
    .script =
    "> image fat2:0+16 x\n"
    DEFER_3
    "> fua fat2:5 y\n"
    "  write fat2:5\n"
    "  read fat2:5\n"
    "  sync fat2:5\n"
    "> sync\n"
    "  write fat2:3\n"
    "  sync fat2:3\n" },
};

/* -- What is too big (rule 9) ------------------------------------------ */

static const struct rig_volume two_windows = {
  0, { 512, 1, 32, 2, 1200, 2560, 2, 0, 1, 6 }
};

static const struct rig_row big[] = {
  { .name = "writes of more than 64 KiB make no window",
    .script =
    "> fua fat1:0+129 a\n"
    "  write fat1:0+129\n"
    "  sync fat1:0+129\n"
    "> fua fat2:0+129 a\n"
    "  write fat2:0+129\n"
    "  sync fat2:0+129\n",
    .volumes = &two_windows },

  { .name = "but use those that are there",
    .script =
    "> fua fat1:3 a\n"
    "  read fat1:0+1024\n"
    "  read fat2:0+1024\n"
    "  write fat1:3\n"
    "  sync boot:0..fat1:1023\n"
    "  record create\n"
    "  record write 0\n"
    "  record sync\n"
    "> fua fat1:0+129 b\n"
    "  write fat1:0+129\n"
    "  sync fat1:0+129\n"
    "> fua fat2:0+129 b\n"
    "  record write 1\n"
    "  record sync\n"
    "> fua fat1:1000+129 c\n"   /* only half of it has a window */
    "  write fat1:1000+129\n"
    "  sync fat1:1000+129\n"
    "> write fat2:1000+129 c\n"
    "  write fat2:0+129\n"
    "  sync fat2:0+129\n"
    "  record clear 1\n"
    "  record sync\n"
    "  write fat2:1000+129\n",
    .volumes = &two_windows },

  { .name = "nor is a window made that is in front of one",
    .script =
    "> write fat1:1024 a\n"
    "  read fat1:1024+176\n"
    "  read fat2:1024+176\n"
    "  write fat1:1024\n"
    "> write fat2:1024 a\n"
    "  sync boot:0 & sync fat1:1024+176\n"
    "  record create\n"
    "  record write 0\n"
    "  record sync\n"
    "  record write 1\n"
    "  record sync\n"
    "> write fat1:1000+129 c\n"
    "  write fat1:1000+129\n"
    "> write fat2:1000+129 c\n"
    "  write fat2:1024\n"
    "  sync fat2:1024\n"
    "  record clear 1\n"
    "  record sync\n"
    "  write fat2:1000+129\n",
    .volumes = &two_windows },

  { .name = "64 KiB do",
    .script =
    "> fua fat1:0+128 a\n"
    "  read fat1:0+1024\n"
    "  read fat2:0+1024\n"
    "  write fat1:0+128\n"
    "  sync boot:0..fat1:1023\n"
    "  record create\n"
    "  record write 0\n"
    "  record sync\n"
    "> fua fat2:0+128 a\n"
    "  record write 1\n"
    "  record sync\n"
    "> sync\n"
    "  write fat2:0+128\n"
    "  sync fat2:0+128\n",
    .volumes = &two_windows },
};

int
main (void)
{
  alarm (300);
  RIG_RUN_ROWS (different);
  RIG_RUN_ROWS (parts);
  RIG_RUN_ROWS (differing);
  RIG_RUN_ROWS (big);
  return EXIT_SUCCESS;
}
