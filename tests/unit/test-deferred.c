/* SPDX-License-Identifier: BSD-3-Clause */

/* Which commits are deferred (D9), and which are not: the exact operations
 * (deferred.h, rules 1 and 4).  The language is in mirror-rig.h and
 * deferred-rig.h.
 */

#include <config.h>

#include "deferred-rig.h"

/* -- What guests send -------------------------------------------------- */

static const struct deferred_row streams[] = {
  { .name = "an appended cluster: four writes, one sync",
    .script =
    ARMED
    DEFER_4_5                   /* a file's first cluster */
    "> mirror fua 4\n"
    "> fat fua 4 6=end\n"       /* its second one */
    "  write fat1:4\n"
    "> mirror fua 4\n"
    "> fat fua 4 5=6\n"
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> mirror fua 4\n"
    "> fat fua 4 7=end\n"
    "  write fat1:4\n"
    "> mirror fua 4\n"
    "> fat fua 4 6=7\n"
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> mirror fua 4\n"
    "> stat commits_deferred 3\n"
    "> stat deferred_forced 0\n"
    NAME_4_5
    "  write data:0\n"
    "> close\n"
    "  write fat2:4\n"
    "  sync fat2:4\n"
    "  record clear 1\n"
    "  record sync\n"
    "  record remove\n" },

  { .name = "cache=writethrough: the same without FUA",
    .script =
    "> write fat1:0+16 .\n"
    "  read fat1:0+16\n"
    "  read fat2:0+16\n"
    "  write fat1:0+16\n"
    "  sync boot:0..fat1:15\n"
    "  record create\n"
    "  record write 0\n"
    "  record sync\n"
    "> write fat2:3 .\n"
    "  record write 1\n"
    "  record sync\n"
    "> fat write 4 5=end\n"
    "  write fat1:4\n"
    "> mirror write 4\n"
    "> fat write 4 6=end\n"
    "  write fat1:4\n"
    "> mirror write 4\n"
    "> fat write 4 5=6\n"
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> mirror write 4\n",
    .cache = FATBATCH_WRITETHROUGH },

  { .name = "into the next sector: that one is durable before it is linked to",
    .script =
    ARMED
    "> fat fua 4 127=end\n"
    "  write fat1:4\n"
    "> mirror fua 4\n"
    "> fat fua 5 0=end\n"
    "  write fat1:5\n"
    "> mirror fua 5\n"
    "> fat fua 4 127=5:0\n"
    "  sync fat1:4+2\n"         /* both: the older one would be next */
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> mirror fua 4\n"
    "> stat deferred_forced 1\n" },

  { .name = "a chain in one write, and nothing but its sector",
    .script =
    ARMED
    "> fat fua 4 5=6 6=7 7=end\n"
    "  write fat1:4\n"
    "> mirror fua 4\n"
    "> name fua data:0 0 4:5\n"
    "  sync fat1:4\n"
    "  write data:0\n"
    "  sync data:0\n" },

  { .name = "more and more of the same sector",
    .script =
    ARMED
    DEFER_4_5
    "> fat fua 4 6=end\n"
    "  write fat1:4\n"
    "> fat fua 4 7=8 8=end\n"
    "  write fat1:4\n"
    "> name fua data:0 0 4:5\n"
    "  sync fat1:4\n"
    "  write data:0\n"
    "  sync data:0\n"
    "> name fua data:0 0 4:7\n"
    "  write data:0\n"
    "  sync data:0\n" },
};

/* -- What is not deferred (rule 1) --------------------------------------- */

static const struct deferred_row not_deferred[] = {
  { .name = "what links, frees, or marks",
    .script =
    ARMED
    "> fat fua 4 5=end 6=7\n"
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> fat fua 4 5=8 8=end\n"
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> fat fua 4 5=free\n"
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> fat fua 0 1=end\n"
    "  write fat1:0\n"
    "  sync fat1:0\n"
    "> fat fua 4\n"             /* nothing: sent again */
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> stat commits_deferred 0\n" },

  { .name = "with a sector that was written before, without a sync",
    .script =
    ARMED
    "> fat write 4 9=end\n"
    "  write fat1:4\n"
    "> fat fua 4 5=end\n"
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> fat fua 4 6=end\n"       /* now it is durable */
    "  write fat1:4\n" },

  { .name = "or of which only a part was synced",
    .script =
    ARMED
    "> fat write 4 9=end\n"
    "  write fat1:4\n"
    "> fua fat1@2048+4 .\n"
    "  write @18432+4\n"
    "  sync @18432+4\n"
    "> fat fua 4 5=end\n"
    "  write fat1:4\n"
    "  sync fat1:4\n" },

  { .name = "a sector that was just allocated in, and then written plainly",
    .script =
    ARMED
    DEFER_4_5
    "> fat write 4 5=free\n"
    "  write fat1:4\n"
    "> fat fua 4 6=end\n"
    "  write fat1:4\n"
    "  sync fat1:4\n"
    NAME_4_5
    "  write data:0\n" },

  { .name = "plain writes are as they are, and flushed",
    .script =
    ARMED
    "> fat write 4 5=end\n"
    "  write fat1:4\n"
    "> mirror write 4\n"
    NAME_4_5
    "  write data:0\n"
    "> mirror fua 4\n"
    "  sync fat1:4\n"
    "> flush\n"
    "  sync all\n"
    "> stat commits_deferred 0\n" },

  { .name = "no record of the window yet",
    .script =
    "> fat fua 4 5=end\n"
    "  read fat1:0+16\n"
    "  read fat2:0+16\n"
    "  write fat1:4\n"
    PREPARE
    "> fat fua 4 6=end\n"
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> stat commits_deferred 0\n" },

  { .name = "a slot that the record does not have",
    .script =
    "> image fat2:4 x\n"
    ARMED
    "> fat fua 4 5=end\n"
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> fat fua 5 5=end\n"       /* one that it has */
    "  write fat1:5\n" },

  { .name = "several sectors, or part of one",
    .script =
    ARMED
    "> fua fat1:4+2 .\n"
    "  write fat1:4+2\n"
    "  sync fat1:4+2\n"
    "> fua fat1@2048+4 .\n"
    "  write @18432+4\n"
    "  sync @18432+4\n"
    "> stat commits_deferred 0\n" },

  { .name = "while another write is being applied (rule 4)",
    .script =
    ARMED
    "> hold write data\n"
    "> async write data:9 z\n"
    "> fat fua 4 5=end\n"
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> release\n"
    "  write data:9\n"
    "> fat fua 4 6=end\n"
    "  write fat1:4\n"
    "> stat commits_deferred 1\n" },

  { .name = "while a boot sector is being written, neither",
    .script =
    ARMED
    "> hold write boot\n"
    "> async dirty 1\n"
    "  read boot:0\n"
    "> fat fua 4 5=end\n"
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> release\n"
    "  write boot:0\n"
    "> fat fua 4 6=end\n"
    "  write fat1:4\n"
    "> stat commits_deferred 1\n" },

  { .name = "but who waits for a sync only can't refer to it any more",
    .script =
    ARMED
    "> hold sync data\n"
    "> async fua data:9 z\n"
    "  write data:9\n"
    DEFER_4_5
    "> release\n"
    "  sync data:9\n" },
};

/* -- Modes that do not ----------------------------------------------------- */

static struct rig rig;

/* With commit-delay=0, durability=block, cache=unsafe: each of the two writes to
 * FAT 1 has its sync, or none has.
 */
static void
modes_that_do_not_defer (void)
{
  static const struct {
    const char *name;
    uint32_t delay_ms;
    enum fatbatch_durability durability;
    enum fatbatch_cache cache;
    unsigned syncs, deferred;
  } modes[] = {
    { "as a comparison", FOREVER, FATBATCH_DURABILITY_FAT,
      FATBATCH_WRITEBACK, 1, 1 },
    { "commit-delay=0", 0, FATBATCH_DURABILITY_FAT,
      FATBATCH_WRITEBACK, 2, 0 },
    { "durability=block", FOREVER, FATBATCH_DURABILITY_BLOCK,
      FATBATCH_WRITEBACK, 2, 0 },
    { "cache=unsafe", FOREVER, FATBATCH_DURABILITY_FAT,
      FATBATCH_UNSAFE, 0, 0 },
  };
  size_t i;

  for (i = 0; i < sizeof modes / sizeof modes[0]; ++i) {
    printf ("  %s\n", modes[i].name);
    rig_init (&rig, fat_spec_size (&deferred_volume.spec), &deferred_volume, 1);
    rig.options.commit_delay_ms = modes[i].delay_ms;
    rig.options.cache = modes[i].cache;
    rig.options.durability = modes[i].durability;
    rig_open (&rig);
    deferred_request (&rig, "fua fat1:0+16 .");
    deferred_request (&rig, "fua fat2:3 .");
    oplog_clear (&rig.log);
    deferred_request (&rig, "fat fua 4 5=end");
    deferred_request (&rig, "fat fua 4 6=7");
    CHECK_EQ (rig_stat (&rig, "commits_deferred"), modes[i].deferred);
    CHECK_EQ (oplog_count (&rig.log, "sync fat1:4"), modes[i].syncs);
    CHECK_EQ (oplog_count (&rig.log, "sync"), modes[i].syncs);
    rig_release (&rig);
  }
}

/* -- Bounds ---------------------------------------------------------------- */

/* FATs of 32 sectors. */
static const struct rig_volume many_sectors = {
  0, { 512, 1, 32, 2, 32, 96 + 4094, 2, 0, 1, 6 }
};

/* One more than there is room for is made durable at once, and the others wait
 * on; then one sync is enough for all of them.
 */
static void
a_full_table_defers_no_more (void)
{
  unsigned i;

  deferred_open (&rig, &many_sectors, FOREVER);
  for (i = 0; i < DEFERRED_MAX; ++i)
    deferred_request (&rig, "fat fua %u 5=end", 4 + i);
  CHECK_EQ (oplog_count (&rig.log, "sync"), 0);
  CHECK_EQ (rig_stat (&rig, "commits_deferred"), DEFERRED_MAX);
  CHECK_EQ (deferred_count (&rig), DEFERRED_MAX);

  oplog_clear (&rig.log);
  deferred_request (&rig, "fat fua 25 5=end");
  oplog_expect (&rig.log, "one more",
                "> fat fua 25 5=end\n"
                "  write fat1:25\n"
                "  sync fat1:25\n");
  deferred_request (&rig, "fat fua 4 6=end");   /* of one that is there */
  CHECK_EQ (rig_stat (&rig, "commits_deferred"), DEFERRED_MAX + 1);

  oplog_clear (&rig.log);
  deferred_request (&rig, "name write data:0 0 19:5");
  oplog_expect (&rig.log, "the last one's name",
                "> name write data:0 0 19:5\n"
                "  sync fat1:4+16\n"
                "  write data:0\n");
  CHECK_EQ (deferred_count (&rig), 0);
  deferred_request (&rig, "fat fua 25 6=end");
  CHECK_EQ (deferred_count (&rig), 1);
  rig_release (&rig);
}

/* An appended cluster's four writes are one sync, all the time. */
static void
a_long_file (void)
{
  unsigned i;

  deferred_open (&rig, &many_sectors, FOREVER);
  for (i = 1; i < 120; ++i) {
    deferred_request (&rig, "fat fua 4 %u=end", i);
    deferred_request (&rig, "mirror fua 4");
    if (i > 1) {
      deferred_request (&rig, "fat fua 4 %u=%u", i - 1, i);
      deferred_request (&rig, "mirror fua 4");
    }
  }
  CHECK_EQ (oplog_count (&rig.log, "sync"), 118);
  CHECK_EQ (oplog_count (&rig.log, "write fat2"), 0);
  CHECK_EQ (rig_stat (&rig, "commits_deferred"), 119);
  rig_release (&rig);
}

int
main (void)
{
  alarm (300);
  DEFERRED_RUN_ROWS (&rig, streams);
  DEFERRED_RUN_ROWS (&rig, not_deferred);
  RUN (modes_that_do_not_defer);
  RUN (a_full_table_defers_no_more);
  RUN (a_long_file);
  return EXIT_SUCCESS;
}
