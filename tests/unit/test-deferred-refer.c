/* SPDX-License-Identifier: BSD-3-Clause */

/* What has to wait until a deferred commit (D9) is durable, and what else makes it
 * durable: the exact operations (deferred.h, rules 2, 3 and 5).  The language is
 * in mirror-rig.h and deferred-rig.h.
 */

#include <config.h>

#include "deferred-rig.h"

/* -- What may refer to it (rule 3) --------------------------------------- */

#define REFERS(what, request, ...)                                      \
  { .name = what,                                                       \
    .script =                                                           \
    ARMED                                                      \
    DEFER_4_5                                                           \
    "> " request "\n"                                                   \
    "  sync fat1:4\n"                                                   \
    __VA_ARGS__                                                         \
    NAME_4_5                                                            \
    "  write data:0\n" }

/* It is an item still. */
#define DOES_NOT_REFER(what, request, ...)                              \
  { .name = what,                                                       \
    .script =                                                           \
    ARMED                                                      \
    DEFER_4_5                                                           \
    "> " request "\n"                                                   \
    __VA_ARGS__                                                         \
    NAME_4_5                                                            \
    "  sync fat1:4\n"                                                   \
    "  write data:0\n" }

static const struct deferred_row refer[] = {
  REFERS ("a directory entry", "name fua data:5 0 4:5",
          "  write data:5\n"
          "  sync data:5\n"),
  REFERS ("without FUA, since it may become durable all the same",
          "name write data:5 0 4:5",
          "  write data:5\n"),
  REFERS ("in the last slot of a sector", "name write data:5 480 4:5",
          "  write data:5\n"),
  REFERS ("in the middle of 64 KiB", "name write data:5+128 30016 4:5",
          "  write data:5+128\n"),
  REFERS ("in the last slot of 64 KiB", "name write data:5+128 65504 4:5",
          "  write data:5+128\n"),
  REFERS ("in the first slot of a write's second 4 KiB",
          "name write data:5+16 4096 4:5",
          "  write data:5+16\n"),
  REFERS ("a slot alone", "name write data@2592+32 0 4:5",
          "  write @35360+32\n"),
  REFERS ("outside the clusters", "name write boot:20 64 4:5",
          "  write boot:20\n"),
  REFERS ("a part of a slot, for which there is more to know",
          "write data@2586+2 .",
          "  write @35354+2\n"),
  REFERS ("from the middle of a slot on", "write data@2570+32 .",
          "  write @35338+32\n"),
  REFERS ("a slot and a half", "write data@2560+48 .",
          "  write @35328+48\n"),
  REFERS ("a link in another sector", "fat fua 6 9=4:5",
          "  write fat1:6\n"
          "  sync fat1:6\n"),
  REFERS ("in its last entry, without FUA", "fat write 6 127=4:5",
          "  write fat1:6\n"),
  REFERS ("a link with something in its high nibble", "fat write 6 9=^4:5",
          "  write fat1:6\n"),
  REFERS ("part of a sector of FAT 1", "write fat1@3072+4 .",
          "  write @19456+4\n"),
  REFERS ("several sectors of FAT 1", "write fat1:6+2 .",
          "  write fat1:6+2\n"),
  REFERS ("its own sector and the next one", "write fat1:4+2 .",
          "  write fat1:4+2\n"),
  REFERS ("zeros over FAT 1", "zero fat1:15",
          "  record clear 1\n"
          "  record sync\n"
          "  zero fat1:15\n"),
  REFERS ("a trim", "trim fat1:15",
          "  record clear 1\n"
          "  record sync\n"
          "  trim fat1:15\n"),
  REFERS ("both FATs at once", "write fat1:15+2 .",
          "  record clear 1\n"
          "  record sync\n"
          "  write fat1:15..fat2:0\n"),
  REFERS ("other bytes for a mirror", "fua fat2:6 x",
          "  record clear 1\n"
          "  record sync\n"
          "  write fat2:6\n"
          "  read fat2:6\n"
          "  sync fat2:6\n"),
  REFERS ("part of a mirror's slot", "write fat2@3072+8 .",
          "  record clear 1\n"
          "  record sync\n"
          "  write @27648+8\n"
          "  read fat2:6\n"),
  REFERS ("the boot sector", "dirty 1",
          "  read boot:0\n"
          "  write boot:0\n"),
  REFERS ("the record is cleared", "settle",
          "  record clear 1\n"
          "  record sync\n"
          "  record remove\n"),

  DOES_NOT_REFER ("other data", "fua data:5+8 z",
                  "  write data:5+8\n"
                  "  sync data:5+8\n"),
  DOES_NOT_REFER ("another cluster's directory entry",
                  "name fua data:5 0 4:6",
                  "  write data:5\n"
                  "  sync data:5\n"),
  DOES_NOT_REFER ("the number, not in its place", "name fua data:5 16 4:5",
                  "  write data:5\n"
                  "  sync data:5\n"),
  DOES_NOT_REFER ("zeros", "zero data:5+8",
                  "  zero data:5+8\n"),
  DOES_NOT_REFER ("FSInfo", "fua boot:1 z",
                  "  write boot:1\n"
                  "  sync boot:1\n"),
  DOES_NOT_REFER ("an allocation in another sector", "fat fua 6 5=end",
                  "  write fat1:6\n"
                  "> fat fua 6 9=end 8=7\n"
                  "  write fat1:6\n"
                  "  sync fat1:6\n"),
  DOES_NOT_REFER ("a link to another cluster of that sector",
                  "fat fua 6 9=4:6",
                  "  write fat1:6\n"
                  "  sync fat1:6\n"),
  DOES_NOT_REFER ("a read", "read fat1", "  read fat1:0+16\n"),
};

/* -- What else makes it durable, or does not ------------------------------ */

static const struct deferred_row durable[] = {
  { .name = "a flush",
    .script =
    ARMED
    DEFER_4_5
    "> flush\n"
    "  sync all\n"
    NAME_4_5
    "  write data:0\n"
    "> stat deferred_forced 0\n" },

  { .name = "a flush does not cover what is deferred while it runs",
    .script =
    ARMED
    "> hold sync\n"
    "> async flush\n"
    DEFER_4_5
    "> release\n"
    "  sync all\n"
    NAME_4_5
    "  sync fat1:4\n"
    "  write data:0\n" },

  { .name = "nor what is added meanwhile to what it covers",
    .script =
    ARMED
    DEFER_4_5
    "> hold sync\n"
    "> async flush\n"
    "> fat fua 4 6=end\n"
    "  write fat1:4\n"
    "> release\n"
    "  sync all\n"
    "> name write data:0 0 4:6\n"
    "  sync fat1:4\n"
    "  write data:0\n" },

  { .name = "nor does a mirror's commit, of a slot between those it is for",
    .script =
    ARMED
    "> write fat1:4 a\n"
    "  write fat1:4\n"
    "> write fat1:6 a\n"
    "  write fat1:6\n"
    "> hold sync\n"
    "> async fua fat2:4+3 a.a\n"
    "> fat fua 5 5=end\n"
    "  write fat1:5\n"
    "> release\n"
    "  sync fat1:4+3\n"
    "> name write data:0 0 5:5\n"
    "  sync fat1:5\n"
    "  write data:0\n" },

  { .name = "arming anew syncs nothing that is durable, and no item",
    .script =
    "> image fat2:9 x\n"
    ARMED
    DEFER_4_5
    "> fat fua 9 5=end\n"
    "  write fat1:9\n"
    "  sync fat1:9\n"
    "> mirror fua 9\n"
    "  record write 2\n"
    "  record sync\n"
    "  record clear 1\n"
    "  record sync\n"
    NAME_4_5
    "  sync fat1:4\n"
    "  write data:0\n" },

  { .name = "a plain write to the sector does not, its mirror's commit does",
    .script =
    ARMED
    DEFER_4_5
    "> fat write 4 5=6 6=end\n"
    "  write fat1:4\n"
    "> mirror fua 4\n"
    "  sync fat1:4\n"
    NAME_4_5
    "  write data:0\n" },

  { .name = "the mirror's batch may go ahead; the record stays",
    .script =
    ARMED
    DEFER_4_5
    "> mirror fua 4\n"
    "> sync\n"
    "  write fat2:4\n"
    "  sync fat2:4\n"
    "> settle\n"
    "  sync fat1:4\n"
    "  record clear 1\n"
    "  record sync\n"
    "  record remove\n" },

  { .name = "another volume's FATs",
    .script =
    "> fua fat1:0+16 .\n"
    "  read fat1:0+16\n"
    "  read fat2:0+16\n"
    "  write fat1:0+16\n"
    "  sync @0+512 & sync boot:0..fat1:15 & sync b.boot:0\n"
    "  record create\n"
    "  record write 0\n"
    "  record sync\n"
    "> fua fat2:3 .\n"
    "  record write 1\n"
    "  record sync\n"
    DEFER_4_5
    "> zero b.fat1:2\n"
    "  sync fat1:4\n"
    "  zero b.fat1:2\n"
    "> fat fua 4 6=end\n"
    "  write fat1:4\n"
    "> write b.fat2:2 x\n"
    "  read b.fat1:0+16\n"
    "  read b.fat2:0+16\n"
    "  sync fat1:4\n"
    "  write b.fat2:2\n"
    "  read b.fat2:2\n",
    .volumes = rig_two, .nr_volumes = 2 },
};

/* -- Failures ------------------------------------------------------------ */

static const struct deferred_row failures[] = {
  { .name = "a failed sync: whoever needed it is told, and has written nothing",
    .script =
    ARMED
    DEFER_4_5
    "> fail sync fat1:4\n"
    "> name write data:5 0 4:5\n"
    "  sync fat1:4 !\n"
    "= EIO\n"
    "> heal\n"
    "> flush\n"
    "= EIO\n"
    "> name write data:5 0 4:5\n"
    "= EIO\n"
    "> fat fua 6 5=end\n"
    "= EIO\n"
    "> write data:5 z\n"
    "  write data:5\n"
    "> stat commits_deferred 1\n" },

  { .name = "before a link",
    .script =
    ARMED
    DEFER_4_5
    "> fail sync fat1:4\n"
    "> fat fua 6 9=4:5\n"
    "  sync fat1:4 !\n"
    "  read fat1:6\n"
    "= EIO\n"
    "> flush\n"
    "= EIO\n" },

  { .name = "before the record is cleared: it stays",
    .script =
    ARMED
    DEFER_4_5
    "> fail sync fat1:4\n"
    "> settle\n"
    "  sync fat1:4 !\n"
    "= EIO\n"
    "> heal\n"
    "> settle\n"
    "= EIO\n"
    "> close\n" },

  { .name = "a failed boot sector's sync",
    .script =
    ARMED
    DEFER_4_5
    "> fail sync fat1:4\n"
    "> dirty 1\n"
    "  sync fat1:4 !\n"
    "= EIO\n" },

  { .name = "a failed write: nothing is promised any more",
    .script =
    ARMED
    "> fail write fat1:4\n"
    "> fat fua 4 5=end\n"
    "  write fat1:4 !\n"
    "  read fat1:4\n"
    "= EIO\n"
    "> heal\n"
    "> flush\n"
    "= EIO\n" },
};

/* -- Large numbers --------------------------------------------------------- */

static struct rig rig;

/* Clusters whose numbers do not fit into 16 bits: a directory entry has them in
 * two parts, and both count.
 */
static void
numbers_of_two_parts (void)
{
  static const struct rig_volume large = {
    0, { 512, 1, 32, 2, 514, 1060 + 65700, 2, 0, 1, 6 }
  };

  deferred_open (&rig, &large, FOREVER);
  deferred_request (&rig, "fat fua 512 5=end");         /* 0x10005 */
  CHECK_EQ (deferred_count (&rig), 1);
  deferred_request (&rig, "name write data:5 64 0:5");  /* 0x00005 */
  deferred_request (&rig, "name write data:5 64 512:6");
  deferred_request (&rig, "fat write 6 9=0:5");
  CHECK_EQ (oplog_count (&rig.log, "sync"), 0);
  deferred_request (&rig, "name write data:5 64 512:5");
  CHECK_EQ (oplog_count (&rig.log, "sync fat1:512"), 1);
  CHECK_EQ (deferred_count (&rig), 0);
  rig_release (&rig);
}

int
main (void)
{
  alarm (300);
  DEFERRED_RUN_ROWS (&rig, refer);
  DEFERRED_RUN_ROWS (&rig, durable);
  DEFERRED_RUN_ROWS (&rig, failures);
  RUN (numbers_of_two_parts);
  return EXIT_SUCCESS;
}
