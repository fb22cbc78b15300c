/* SPDX-License-Identifier: BSD-3-Clause */

/* The intent record fails: if it can't be made, mirrors are written in place;
 * if it can't be written nothing is known of what it says, and nothing pretends
 * (intent.h, rule 6; D6).  The language is in mirror-rig.h.
 */

#include <config.h>

#include <unistd.h>

#include "mirror-lines.h"
#include "mirror-rig.h"

static const struct rig_row record[] = {
  { .name = "the record can't be made: in place, said once, nothing latched",
    .script =
    "> fail record create\n"
    "> fua fat1:3 a\n"
    COMPARE
    "  write fat1:3\n"
    "  sync boot:0..fat1:15\n"
    "  record create !\n"
    "= problem\n"
    "> fua fat2:3 a\n"
    "  write fat2:3\n"
    "  sync fat2:3\n"
    "> heal\n"
    "> fua fat1:3 b\n"
    "  write fat1:3\n"
    "  sync fat1:3\n"
    "> fua fat2:3 b\n"
    "  write fat2:3\n"
    "  sync fat2:3\n"
    "> flush\n"
    "  sync all\n"
    "> close\n" },

  { .name = "its header can't be written",
    .script =
    "> fail record write\n"
    "> fua fat1:3 a\n"
    COMPARE
    "  write fat1:3\n"
    "  sync boot:0..fat1:15\n"
    "  record create\n"
    "  record write 0 !\n"
    "  record remove\n"
    "= problem\n"
    "> fua fat2:3 a\n"
    "  write fat2:3\n"
    "  sync fat2:3\n"
    "> flush\n"
    "  sync all\n"
    "> close\n" },

  { .name = "an entry can't be made durable: nothing is known of it",
    .script =
    "> fua fat1:3 a\n"
    COMPARE
    "  write fat1:3\n"
    "  sync @0+512 & sync boot:0..fat1:15 & sync b.boot:0\n"
    "  record create\n"
    "  record write 0\n"
    "  record sync\n"
    "> fua fat2:3 a\n"
    "  record write 1\n"
    "  record sync\n"
    "> fua b.fat1:3 c\n"
    "  read b.fat1:0+16\n"
    "  read b.fat2:0+16\n"
    "  write b.fat1:3\n"
    "  sync b.fat1:0+16\n"
    "> fail record sync\n"
    "> fua b.fat2:3 c\n"
    "  record write 2\n"
    "  record sync !\n"
    "= EIO\n"
    "> heal\n"
    LATCHED
    "> crash\n"
    /* What may be in the record, or not, was not acknowledged. */
    "> open\n"
    "  read @0+512\n"
    "  read @0+512\n"
    "  read boot:0\n"
    "  read b.boot:0\n"
    "  record read\n"
    "  read fat1:0+16\n"
    "  read fat2:0+16\n"
    "  write fat2:3\n"
    "  read b.fat1:0+16\n"
    "  read b.fat2:0+16\n"
    "  write b.fat2:3\n"
    END_RECOVERY
    "> check fat2:3 a\n",
    .volumes = rig_two, .nr_volumes = 2 },

  { .name = "an entry can't be written",
    .script =
    "> image fat2:4 x\n"
    DEFER_3
    "> write fat1:4 b\n"
    "  write fat1:4\n"
    "> fail record write\n"
    "> fua fat2:4 b\n"          /* it would be armed again */
    "  sync fat1:4\n"
    "  record write 2 !\n"
    "= EIO\n"
    "> heal\n"
    LATCHED
    "> crash\n"
    RECOVER_3
    "> check fat2:3+2 ax\n" },

  { .name = "a record that was settled can't be made again",
    .script =
    DEFER_3
    "> settle\n"
    DRAIN_3
    "  record remove\n"
    "> write fat1:3 b\n"
    "  write fat1:3\n"
    "> fail record write\n"
    "> fua fat2:3 b\n"
    "  sync fat1:3\n"
    "  record create\n"
    "  record write 0 !\n"
    "  record remove\n"
    "= problem\n"
    "  write fat2:3\n"
    "  sync fat2:3\n"
    "> flush\n"
    "  sync all\n" },

  { .name = "an entry can't be cleared: it stays, and does no harm",
    .script =
    DEFER_3
    "> fail record write\n"
    "> fua fat2:4 x\n"
    "  write fat2:3\n"
    "  sync fat2:3\n"
    "  record clear 1 !\n"
    "= EIO\n"
    "> heal\n"
    LATCHED
    "> close\n"
    FIND_LEFT
    END_RECOVERY
    "> check fat2:3 a\n" },

  { .name = "the clear is not durable",
    .script =
    DEFER_3
    "> fail record sync\n"
    "> settle\n"
    "  write fat2:3\n"
    "  sync fat2:3\n"
    "  record clear 1\n"
    "  record sync !\n"
    "= EIO\n"
    "> heal\n"
    LATCHED },

  { .name = "the record can't be removed: the next server does",
    .script =
    DEFER_3
    "> fail record remove\n"
    "> settle\n"
    DRAIN_3
    "  record remove !\n"
    "= EIO\n"
    "> close\n"
    "  record remove !\n"
    "> open\n"
    "  read boot:0\n"
    "  record read\n"
    "  record remove\n" },
};

int
main (void)
{
  alarm (300);
  RIG_RUN_ROWS (record);
  return EXIT_SUCCESS;
}
