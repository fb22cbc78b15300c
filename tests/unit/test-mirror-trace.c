/* SPDX-License-Identifier: BSD-3-Clause */

/* What a guest's writes to FATs cost: the exact operations on the disk and on
 * the intent record.  The language is in mirror-rig.h.
 */

#include <config.h>

#include <unistd.h>

#include "mirror-lines.h"
#include "mirror-rig.h"

/* -- What guests send -------------------------------------------------- */

/* Eight sectors of FAT 1 at once: two groups, since none has come before. */
#define EIGHT_AT_ONCE                                                   \
  "> hold sync\n"                                                       \
  "> async fua fat1:3 a\n"                                              \
  COMPARE                                                               \
  "  write fat1:3\n"                                                    \
  "  record create\n"                                                   \
  "  record write 0\n"                                                  \
  "  record sync\n"                                                     \
  "> async fua fat1:4 b\n"                                              \
  "  write fat1:4\n"                                                    \
  "> async fua fat1:5 c\n"                                              \
  "  write fat1:5\n"                                                    \
  "> async fua fat1:6 d\n"                                              \
  "  write fat1:6\n"                                                    \
  "> async fua fat1:7 e\n"                                              \
  "  write fat1:7\n"                                                    \
  "> async fua fat1:8 f\n"                                              \
  "  write fat1:8\n"                                                    \
  "> async fua fat1:9 g\n"                                              \
  "  write fat1:9\n"                                                    \
  "> async fua fat1:10 h\n"                                             \
  "  write fat1:10\n"                                                   \
  "> release\n"                                                         \
  "  sync boot:0..fat1:15\n"                                            \
  "  sync boot:0..fat1:15\n"

static const struct rig_row streams[] = {
  { .name = "virtio, directsync: of the four FUA writes for an appended "
    "cluster only those to FAT 1 cost a sync",
    .script =
    DEFER_3
    "> fua fat1:3 b\n"
    "  write fat1:3\n"
    "  sync fat1:3\n"
    "> fua fat2:3 b\n"
    "> fua fat1:3 c\n"
    "  write fat1:3\n"
    "  sync fat1:3\n"
    "> fua fat2:3 c\n"
    "> stat mirrors_deferred 3\n"
    "> stat mirror_batches 0\n"
    "> sync\n"
    "  write fat2:3\n"
    "  sync fat2:3\n"
    "> sync\n"
    "> close\n"
    "  record clear 1\n"
    "  record sync\n"
    "  record remove\n" },

  { .name = "the new cluster's entry is in the next sector: two syncs where it "
    "was four",
    .script =
    DEFER_3
    "> fua fat1:4 e\n"          /* its end mark */
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> fua fat2:4 e\n"
    "> fua fat1:3 l\n"          /* the link to it */
    "  write fat1:3\n"
    "  sync fat1:3\n"
    "> fua fat2:3 l\n"
    "> fua fat1:4 f\n"          /* and so on, in that sector */
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> fua fat2:4 f\n"
    "> fua fat1:4 m\n"
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> fua fat2:4 m\n"
    "> stat mirrors_deferred 5\n"
    "> settle\n"
    "  write fat2:3+2\n"
    "  sync fat2:3+2\n"
    "  record clear 1\n"
    "  record sync\n"
    "  record remove\n"
    "> check fat2:3+2 lm\n" },

  { .name = "nbd.ko: plain writes, and one flush",
    .script =
    "> write fat1:3 a\n"
    COMPARE
    "  write fat1:3\n"
    "> write fat2:3 a\n"
    ARM
    "> write fat1:3 b\n"
    "  write fat1:3\n"
    "> write fat2:3 b\n"
    "> write fat1:4 c\n"
    "  write fat1:4\n"
    "> write fat2:4 c\n"
    "> flush\n"
    "  sync all\n"
    "> settle\n"
    "  write fat2:3+2\n"
    "  sync fat2:3+2\n"
    "  record clear 1\n"
    "  record sync\n"
    "  record remove\n" },

  { .name = "cache=writethrough: plain writes are durable as with FUA",
    .script =
    "> write fat1:3 a\n"
    COMPARE
    "  write fat1:3\n"
    PREPARE
    "> write fat2:3 a\n"
    ARM_PREPARED
    "> write fat1:3 b\n"
    "  write fat1:3\n"
    "  sync fat1:3\n"
    "> write fat2:3 b\n",
    .cache = FATBATCH_WRITETHROUGH },

  { .name = "cache=unsafe: the disk is never synced",
    .script =
    "> fua fat1:3 a\n"
    COMPARE
    "  write fat1:3\n"
    "  record create\n"
    "  record write 0\n"
    "  record sync\n"
    "> fua fat2:3 a\n"
    "  record write 1\n"
    "  record sync\n"
    "> flush\n"
    "> close\n"
    "  write fat2:3\n"
    "  record clear 1\n"
    "  record sync\n"
    "  record remove\n",
    .cache = FATBATCH_UNSAFE },

  { .name = "a patched guest: eight sectors at once, their mirrors at once",
    .script =
    EIGHT_AT_ONCE
    "> hold sync\n"
    "> async fua fat2:3 a\n"
    ARM_PREPARED
    "> async fua fat2:4 b\n"
    "> async fua fat2:5 c\n"
    "> async fua fat2:6 d\n"
    "> async fua fat2:7 e\n"
    "> async fua fat2:8 f\n"
    "> async fua fat2:9 g\n"
    "> async fua fat2:10 h\n"
    "> release\n"
    "> sync\n"
    "  write fat2:3+8\n"
    "  sync fat2:3+8\n" },

  { .name = "truncate: eight sectors at once, then their mirrors one by one",
    .script =
    EIGHT_AT_ONCE
    "> fua fat2:3 a\n"
    ARM_PREPARED
    "> fua fat2:4 b\n"
    "> fua fat2:5 c\n"
    "> fua fat2:6 d\n"
    "> fua fat2:7 e\n"
    "> fua fat2:8 f\n"
    "> fua fat2:9 g\n"
    "> fua fat2:10 h\n"
    "> stat mirror_batches 0\n"
    "> sync\n"
    "  write fat2:3+8\n"
    "  sync fat2:3+8\n" },

  { .name = "a mirror written twice is one write, the last one's",
    .script =
    DEFER_3
    "> fua fat2:3 a\n"          /* as a client that sends it again */
    "> write fat1:3 b\n"
    "  write fat1:3\n"
    "> write fat2:3 b\n"
    "> write fat2:3 b\n"
    "> write fat1:9 c\n"
    "  write fat1:9\n"
    "> write fat2:9 c\n"
    "> sync\n"
    "  write fat2:3 & write fat2:9\n"
    "  sync fat2:3+7\n"
    "> check fat2:3 b\n"
    "> write fat1:3 d\n"        /* after the batch all begins anew */
    "  write fat1:3\n"
    "> write fat2:3 d\n"
    "> sync\n"
    "  write fat2:3\n"
    "  sync fat2:3\n"
    "> check fat2:3 d\n" },

  { .name = "several sectors in a request",
    .script =
    "> fua fat1:3+4 abcd\n"
    COMPARE
    "  write fat1:3+4\n"
    PREPARE
    "> fua fat2:3+4 abcd\n"
    ARM_PREPARED
    "> fua fat1:5+2 ef\n"
    "  write fat1:5+2\n"
    "  sync fat1:5+2\n"
    "> fua fat2:5 e\n"
    "> fua fat2:6 f\n" },

  { .name = "a mount's dirty bit costs nothing",
    .script =
    DEFER_3
    "> dirty 1 fua\n"
    "  read boot:0\n"
    "  write boot:0\n"
    "  sync boot:0\n"
    "> fua fat1:3 b\n"
    "  write fat1:3\n"
    "  sync fat1:3\n"
    "> fua fat2:3 b\n"
    "> dirty 0\n"
    "  read boot:0\n"
    "  write boot:0\n"
    "> stat windows_armed 1\n" },

  { .name = "other places cost what they did",
    .script =
    DEFER_3
    "> fua data:5+8 a\n"
    "  write data:5+8\n"
    "  sync data:5+8\n"
    "> write boot:1 a\n"
    "  write boot:1\n"
    "> read data:5+8 a\n"
    "  read data:5+8\n"
    "> zero data:5+8\n"
    "  zero data:5+8\n" },
};

/* -- What is durable when ---------------------------------------------- */

static const struct rig_row durable[] = {
  { .name = "a mirror with FUA waits for FAT 1 if need be (rule 3)",
    .script =
    DEFER_3
    "> write fat1:3 b\n"
    "  write fat1:3\n"
    "> fua fat2:3 b\n"
    "  sync fat1:3\n"
    "> fua fat2:3 b\n" },

  { .name = "only for its own slots",
    .script =
    DEFER_3
    "> write fat1:4 b\n"
    "  write fat1:4\n"
    "> write fat1:7 b\n"
    "  write fat1:7\n"
    "> fua fat2:5+2 .\n"
    "> fua fat2:4 b\n"
    "  sync fat1:4\n"
    "> fua fat2:6+2 .b\n"
    "  sync fat1:7\n" },

  { .name = "part of FAT 1's slot is not all of it",
    .script =
    DEFER_3
    "> write fat1:3 b\n"
    "  write fat1:3\n"
    "> fua fat1@1536+100 b\n"
    "  write @17920+100\n"
    "  sync @17920+100\n"
    "> fua fat2:3 b\n"
    "  sync fat1:3\n"
    "> write fat1:3 c\n"
    "  write fat1:3\n"
    "> fua fat1@1636+412 c\n"   /* the other end of it */
    "  write @18020+412\n"
    "  sync @18020+412\n"
    "> fua fat2:3 c\n"
    "  sync fat1:3\n" },

  { .name = "FAT 1 written without FUA after it was committed",
    .script =
    DEFER_3
    "> fua fat1:3 b\n"
    "  write fat1:3\n"
    "  sync fat1:3\n"
    "> write fat1:3 c\n"
    "  write fat1:3\n"
    "> fua fat2:3 c\n"
    "  sync fat1:3\n" },

  { .name = "FAT 1 written while its commit waits",
    .script =
    DEFER_3
    "> hold sync\n"
    "> async fua fat1:3 b\n"
    "  write fat1:3\n"
    "> async write fat1:3 c\n"
    "  write fat1:3\n"
    "> release\n"
    "  sync fat1:3\n"
    "> fua fat2:3 c\n"
    "  sync fat1:3\n" },

  { .name = "a plain mirror write waits for nothing",
    .script =
    DEFER_3
    "> write fat1:5 b\n"
    "  write fat1:5\n"
    "> write fat2:5 b\n"
    "> write fat1:5 c\n"
    "  write fat1:5\n"
    "> write fat2:5 c\n" },
};

/* -- By counting ------------------------------------------------------- */

static void
rewriting_a_pair_costs_one_mirror_write (void)
{
  static struct rig rig;
  char line[40];
  int i;

  rig_init (&rig, RIG_SMALL_SIZE, &rig_small, 1);
  rig_open (&rig);
  rig.quick = true;
  for (i = 0; i < 100; ++i) {
    snprintf (line, sizeof line, "fua fat1:3 %c", 'a' + i % 26);
    rig_request (&rig, line);
    snprintf (line, sizeof line, "fua fat2:3 %c", 'a' + i % 26);
    rig_request (&rig, line);
  }
  rig_close (&rig);
  CHECK_EQ (oplog_count (&rig.log, "write fat1:3"), 100);
  CHECK_EQ (oplog_count (&rig.log, "write fat2"), 1);
  CHECK_EQ (oplog_count (&rig.log, "sync boot:0..fat1:15"), 1);
  CHECK_EQ (oplog_count (&rig.log, "sync fat1"), 99);
  CHECK_EQ (oplog_count (&rig.log, "sync fat2"), 1);
  CHECK_EQ (oplog_count (&rig.log, "record sync"), 3);
  rig_release (&rig);
}

/* The record and the disk go together: nothing but whole slots is deferred,
 * and a settled server has nothing left to do.
 */
static void
settling_twice_does_nothing_twice (void)
{
  static struct rig rig;

  rig_init (&rig, RIG_SMALL_SIZE, &rig_small, 1);
  rig_open (&rig);
  rig_run (&rig, "settled",
           DEFER_3
           "> settle\n"
           DRAIN_3
           "  record remove\n"
           "> settle\n"
           "> sync\n"
           "> close\n");
  rig_release (&rig);
}

int
main (void)
{
  alarm (300);
  RIG_RUN_ROWS (streams);
  RIG_RUN_ROWS (durable);
  RUN (rewriting_a_pair_costs_one_mirror_write);
  RUN (settling_twice_does_nothing_twice);
  return EXIT_SUCCESS;
}
