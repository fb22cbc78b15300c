/* SPDX-License-Identifier: BSD-3-Clause */

/* The disk fails while mirrors are deferred: nothing pretends (D6), the record
 * stays for the next open (mirror.h, rule 8), and that brings the mirrors back.
 * The language is in mirror-rig.h.
 */

#include <config.h>

#include <unistd.h>

#include "mirror-lines.h"
#include "mirror-rig.h"

static const struct rig_row image[] = {
  { .name = "FAT 1 can't be written",
    .script =
    DEFER_3
    "> fail write fat1\n"
    "> fua fat1:3 b\n"
    "  write fat1:3 !\n"
    "  read fat1:3\n"           /* who knows what is there */
    "= EIO\n"
    "> heal\n"
    LATCHED
    "> read fat2:3 a\n"
    "  read fat2:3\n"
    "> crash\n"
    RECOVER_3
    "> check fat1:3 a\n"
    "> check fat2:3 a\n" },

  { .name = "FAT 1 can't be read back either: no mirror equals it any more",
    .script =
    "> write fat1:3+3 abc\n"
    COMPARE
    "  write fat1:3+3\n"
    "> write fat2:3+3 abc\n"
    ARM
    "> fail write fat1:5\n"
    "> fail read fat1:5\n"
    "> write fat1:5 x\n"
    "  write fat1:5 !\n"
    "  read fat1:5 !\n"
    "= EIO\n"
    "> heal\n"
    "> read fat2:3+3 abc\n"     /* the others are known */
    "  read fat2:3+3\n"
    "> write fat2:4 b\n"        /* in place: the record must go, rule 8 */
    "  write fat2:3+3\n"
    "= EIO\n"
    "> read fat2:3+3 abc\n"
    "  read fat2:3+3\n" },

  { .name = "FAT 1 can't be made durable",
    .script =
    DEFER_3
    "> fail sync fat1\n"
    "> fua fat1:3 b\n"
    "  write fat1:3\n"
    "  sync fat1:3 !\n"
    "= EIO\n"
    "> heal\n"
    LATCHED
    "> read fat2:3 a\n"
    "  read fat2:3\n"
    "> crash\n"
    RECOVER_3
    "> check fat2:3 b\n" },

  { .name = "FAT 1 can't be made durable before arming",
    .script =
    "> write fat1:3 a\n"
    COMPARE
    "  write fat1:3\n"
    "> fail sync\n"
    "> write fat2:3 a\n"
    "  sync boot:0..fat1:15 !\n"
    "= EIO\n"
    "> heal\n"
    LATCHED
    "> close\n" },

  { .name = "the batch can't be written",
    .script =
    DEFER_3
    "> fua fat1:4 b\n"
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> fua fat2:4 b\n"
    "> fail write fat2\n"
    "> sync\n"
    "  write fat2:3+2 !\n"
    "= EIO\n"
    "> heal\n"
    LATCHED
    "> read fat2:3+2 ab\n"
    "  read fat2:3+2\n"
    "> close\n"
    "  write fat2:3+2\n"        /* tried once more, but not believed */
    FIND_LEFT
    END_RECOVERY
    "> check fat2:3+2 ab\n" },

  { .name = "the batch can't be made durable",
    .script =
    DEFER_3
    "> fail sync\n"
    "> sync\n"
    "  write fat2:3\n"
    "  sync fat2:3 !\n"
    "= EIO\n"
    "> heal\n"
    LATCHED
    "> read fat2:3 a\n"
    "  read fat2:3\n"
    "> settle\n"
    "= EIO\n"
    "> close\n"
    FIND_LEFT
    "  sync all\n"
    "  record remove\n"
    "= notice\n" },

  { .name = "what is deferred can't be written before a write in place",
    .script =
    DEFER_3
    "> fail write fat2:3\n"
    "> write fat2:4 x\n"
    "  write fat2:3 !\n"
    "= EIO\n"
    "> heal\n"
    "> read fat2:3+2 a.\n"
    "  read fat2:3+2\n"
    "> crash\n"
    RECOVER_3
    "> check fat2:3+2 a.\n" },

  { .name = "nor before a zero",
    .script =
    DEFER_3
    "> fail write fat2:3\n"
    "> zero fat1:0+32\n"
    "  write fat2:3 !\n"
    "= EIO\n"
    "> heal\n"
    "> crash\n"
    RECOVER_3
    "> check fat1:3 a\n" },

  { .name = "nor before the boot sector changes, and so that does not",
    .script =
    DEFER_3
    "> fail sync fat2\n"
    "> boot moved\n"
    "  read boot:0\n"
    "  write fat2:3\n"
    "  sync fat2:3 !\n"
    "  read boot:0\n"
    "= EIO\n"
    "> heal\n"
    "> crash\n"
    FIND_LEFT
    END_RECOVERY
    "> check fat2:3 a\n" },

  { .name = "a boot sector can't be written: part of it may be there",
    .script =
    DEFER_3
    "> fail write boot:0\n"
    "> boot moved\n"
    "  read boot:0\n"
    DRAIN_3
    "  write boot:0 !\n"
    "  read boot:0\n"
    "= EIO\n"
    "> heal\n"
    LATCHED },

  { .name = "nor with a change of nothing but the dirty bit",
    .script =
    DEFER_3
    "> fail write boot:0\n"
    "> dirty 1\n"
    "  read boot:0\n"
    "  write boot:0 !\n"
    DRAIN_3
    "  read boot:0\n"
    "= EIO\n"
    "> heal\n"
    LATCHED },

  { .name = "a write in place fails",
    .script =
    DEFER_3
    "> fail write fat2:4\n"
    "> write fat2:4 x\n"
    DRAIN_3
    "  write fat2:4 !\n"
    "= EIO\n"
    "> heal\n"
    LATCHED
    "> write fat1:3 b\n"
    "  write fat1:3\n"
    /* Nothing is armed any more, but the write is done all the same. */
    "> write fat2:3 b\n"
    "  write fat2:3\n"
    "> read fat2:3 b\n"
    "  read fat2:3\n" },

  { .name = "the copies can't be read: in place, the next write tries again",
    .script =
    "> fail read fat2\n"
    "> fua fat1:3 a\n"
    "  read fat1:0+16\n"
    "  read fat2:0+16 !\n"
    "  write fat1:3\n"
    "  sync fat1:3\n"
    "> fua fat2:3 a\n"
    "  read fat1:0+16\n"
    "  read fat2:0+16 !\n"
    "  write fat2:3\n"
    "  sync fat2:3\n"
    "> heal\n"
    "> fua fat1:3 b\n"
    COMPARE
    "  write fat1:3\n"
    PREPARE
    "> fua fat2:3 b\n"
    ARM_PREPARED },

  { .name = "after a failure nothing new is promised, and deferring goes on",
    .script =
    DEFER_3
    "> fail write data\n"
    "> write data:5 x\n"
    "  write data:5 !\n"
    "= EIO\n"
    "> heal\n"
    "> write fat1:3 b\n"
    "  write fat1:3\n"
    "> write fat2:3 b\n"
    "> fua fat2:3 b\n"
    "= EIO\n"
    "> read fat2:3 b\n"
    "  read fat2:3\n"
    "> crash\n"
    RECOVER_3
    "> check fat2:3 b\n" },
};

int
main (void)
{
  alarm (300);
  RIG_RUN_ROWS (image);
  return EXIT_SUCCESS;
}
