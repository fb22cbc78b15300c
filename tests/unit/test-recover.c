/* SPDX-License-Identifier: BSD-3-Clause */

/* Mirrors that a server which was killed has left deferred: brought back at the
 * next open, and read right while that can't be (the rules are at the top of
 * recover.c).  The language is in mirror-rig.h.
 */

#include <config.h>

#include <unistd.h>

#include "mirror-lines.h"
#include "mirror-rig.h"
#include "util.h"

static const struct rig_volume
  big_sectors = { 0, { 4096, 1, 4, 2, 2, 32, 2, 0, 1, 0 } },
  four_windows = { 0, { 512, 1, 32, 2, 3172, 8192, 2, 0, 1, 6 } };

/* The copies are read, and nothing else is needed to know what to write. */
#define OPEN_AND_COMPARE                                                \
  "> open\n"                                                            \
  "  read boot:0\n"                                                     \
  "  record read\n"                                                     \
  "  read fat1:0+16\n"                                                  \
  "  read fat2:0+16\n"
/* Rule 2. */
#define END                                                             \
  "  sync all\n"                                                        \
  "  record remove\n"                                                   \
  "= notice\n"

/* -- Brought back ------------------------------------------------------ */

static const struct rig_row back[] = {
  { .name = "deferred, written already, diverged, and not recorded",
    .script =
    "> image fat2:9 x\n"        /* differs, and is the user's */
    DEFER_3
    "> sync\n"
    "  write fat2:3\n"
    "  sync fat2:3\n"
    "> write fat1:5+2 bc\n"
    "  write fat1:5+2\n"
    "> write fat2:5+2 bc\n"
    "> write fat1:6 d\n"        /* the mirror's c comes back as d (D5) */
    "  write fat1:6\n"
    "> write fat1:12 e\n"       /* its mirror was not written at all */
    "  write fat1:12\n"
    "> write fat1:9 f\n"
    "  write fat1:9\n"
    "> crash\n"
    OPEN_AND_COMPARE
    "  write fat2:5+2\n"
    "  write fat2:12\n"
    END
    "> check fat1:0+16 ...a.bd..f..e...\n"
    "> check fat2:0+16 ...a.bd..x..e...\n"
    "> stat recoveries 1\n"
    "> stat recovered_sectors 3\n"
    "> write fat1:5 z\n"        /* and that is the end of it */
    COMPARE
    "  write fat1:5\n"
    "> read fat2:5 b\n"
    "  read fat2:5\n"
    "> close\n" },

  { .name = "nothing to be written",
    .script =
    DEFER_3
    "> sync\n"
    "  write fat2:3\n"
    "  sync fat2:3\n"
    "> crash\n"
    OPEN_AND_COMPARE
    END },

  { .name = "a record without entries is removed without a word",
    .script =
    DEFER_3
    "> write fat2:4 x\n"
    DRAIN_3
    "  write fat2:4\n"
    "  read fat2:4\n"
    "> crash\n"
    "> open\n"
    "  read boot:0\n"
    "  record read\n"
    "  record remove\n"
    "> check fat2:3+2 ax\n" },

  { .name = "what was settled is left alone",
    .script =
    DEFER_3
    "> settle\n"
    DRAIN_3
    "  record remove\n"
    "> write fat2:3 x\n"
    "  write fat2:3\n"
    "  read fat2:3\n"
    "> crash\n"
    "> open\n"
    "  read boot:0\n"
    "> check fat2:3 x\n" },

  { .name = "all of a window, in one write",
    .script =
    "> write fat1:0+16 abcdefghijklmnop\n"
    COMPARE
    "  write fat1:0+16\n"
    "> write fat2:0+16 abcdefghijklmnop\n"
    ARM
    "> crash\n"
    OPEN_AND_COMPARE
    "  write fat2:0+16\n"
    END },

  { .name = "whatever durability= says now",
    .script =
    DEFER_3
    "> crash\n"
    "> open block\n"
    "  read boot:0\n"
    "  record read\n"
    "  read fat1:0+16\n"
    "  read fat2:0+16\n"
    "  write fat2:3\n"
    END
    "> check fat2:3 a\n" },

  { .name = "4096-byte sectors",
    .script =
    "> write fat1:1 a\n"
    "  read fat1:0+2\n"
    "  read fat2:0+2\n"
    "  write fat1:1\n"
    "> write fat2:1 a\n"
    "  sync boot:0..fat1:1\n"
    "  record create\n"
    "  record write 0\n"
    "  record sync\n"
    "  record write 1\n"
    "  record sync\n"
    "> crash\n"
    "> open\n"
    "  read @0+512\n"
    "  record read\n"
    "  read fat1:0+2\n"
    "  read fat2:0+2\n"
    "  write fat2:1\n"
    END,
    .volumes = &big_sectors },

  { .name = "two windows, the last one short",
    .script =
    "> write fat1:1000 a\n"
    "  read fat1:0+1024\n"
    "  read fat2:0+1024\n"
    "  write fat1:1000\n"
    "> write fat2:1000 a\n"
    "  sync boot:0..fat1:1023\n"
    "  record create\n"
    "  record write 0\n"
    "  record sync\n"
    "  record write 1\n"
    "  record sync\n"
    "> write fat1:3171 b\n"
    "  read fat1:3072+100\n"
    "  read fat2:3072+100\n"
    "  write fat1:3171\n"
    "> write fat2:3171 b\n"
    "  sync fat1:3072+100\n"
    "  record write 2\n"
    "  record sync\n"
    "> crash\n"
    "> open\n"
    "  read boot:0\n"
    "  record read\n"
    "  read fat1:0+1024\n"
    "  read fat2:0+1024\n"
    "  write fat2:1000\n"
    "  read fat1:3072+100\n"
    "  read fat2:3072+100\n"
    "  write fat2:3171\n"
    END,
    .volumes = &four_windows },
};

/* -- Again ------------------------------------------------------------- */

static const struct rig_row again[] = {
  { .name = "it fails while it reads, writes and syncs, and is done again",
    .script =
    DEFER_3
    "> crash\n"
    "> fail read fat1\n"
    "> open\n"
    "  read boot:0\n"
    "  record read\n"
    "  read fat1:0+16 !\n"
    "= EIO\n"
    "> heal\n"
    "> fail write\n"
    FIND_LEFT
    "  write fat2:3 !\n"
    "= EIO\n"
    "> heal\n"
    "> fail sync\n"
    FIND_LEFT
    "  write fat2:3\n"
    "  sync all !\n"
    "= EIO\n"
    "> heal\n"
    OPEN_AND_COMPARE
    END
    "> check fat2:3 a\n" },

  { .name = "the server that brought them back is killed",
    .script =
    DEFER_3
    "> crash\n"
    OPEN_AND_COMPARE
    "  write fat2:3\n"
    END
    "> crash\n"
    "> open\n"
    "  read boot:0\n"
    "> fua fat1:3 b\n"
    COMPARE
    "  write fat1:3\n"
    PREPARE
    "> fua fat2:3 b\n"
    ARM_PREPARED
    "> crash\n"
    OPEN_AND_COMPARE
    "  write fat2:3\n"
    END },
};

/* -- What does not fit ------------------------------------------------- */

static const struct rig_row misfits[] = {
  { .name = "no volume any more: nothing is written, the record is kept",
    .script =
    DEFER_3
    "> crash\n"
    "> image boot:0 x\n"
    "> image fat2:3 .\n"
    "> open\n"
    "  read boot:0\n"
    "  read boot:0\n"
    "  record read\n"
    "= problem\n"
    "  record aside\n"
    "> check fat2:3 .\n"
    "> close\n" },

  { .name = "one of two volumes is gone: the other is brought back",
    .script =
    "> write fat1:3 a\n"
    COMPARE
    "  write fat1:3\n"
    "> write fat2:3 a\n"
    "  sync @0+512 & sync boot:0..fat1:15 & sync b.boot:0\n"
    "  record create\n"
    "  record write 0\n"
    "  record sync\n"
    "  record write 1\n"
    "  record sync\n"
    "> write b.fat1:3 b\n"
    "  read b.fat1:0+16\n"
    "  read b.fat2:0+16\n"
    "  write b.fat1:3\n"
    "> write b.fat2:3 b\n"
    "  sync b.fat1:0+16\n"
    "  record write 2\n"
    "  record sync\n"
    "> crash\n"
    "> image boot:0 x\n"
    "> image fat2:3 .\n"
    "> open\n"
    "  read @0+512\n"
    "  read @0+512\n"
    "  read boot:0\n"
    "  read b.boot:0\n"
    "  record read\n"
    "= problem\n"
    "  read b.fat1:0+16\n"
    "  read b.fat2:0+16\n"
    "  write b.fat2:3\n"
    "  sync all\n"
    "  record aside\n"
    "= notice\n"
    "> check fat2:3 .\n"
    "> check b.fat2:3 b\n",
    .volumes = rig_two, .nr_volumes = 2 },
};

/* -- While the image is read-only -------------------------------------- */

static struct rig rig;

static void
check_read (struct mirror *m, const char *name, const char *letters)
{
  struct rig_place place = rig_place (&rig, name);
  CLEANUP_FREE uint8_t *buf = malloc (place.length);
  CLEANUP_FREE uint8_t *expected = malloc (place.length);

  rig_fill (expected, &place, letters);
  CHECK_EQ (mirror_read (m, buf, place.length, place.start), 0);
  CHECK (memcmp (buf, expected, place.length) == 0);
}

/* Reads are as if the mirrors had been brought back, and nothing changes;
 * later it becomes writable.
 */
static void
readers_see_what_recovery_would_bring_back (void)
{
  CLEANUP_FREE uint8_t *before = malloc (RIG_SMALL_SIZE);
  struct memory_record record_before;
  struct memory_store *store;
  struct mirror *m;
  char notice[1000];
  uint64_t next;
  bool hides;

  rig_init (&rig, RIG_SMALL_SIZE, &rig_small, 1);
  rig_open (&rig);
  rig.quick = true;
  rig_request (&rig, "image fat2:9 x");
  rig_request (&rig, "write fat1:3+2 ab");
  rig_request (&rig, "write fat2:3+2 ab");
  rig_request (&rig, "write fat1:9 c");
  rig_crash (&rig);
  memcpy (before, rig.bytes, rig.size);
  record_before = rig.record;

  /* The engine would recover at once: its parts, without that. */
  CHECK_EQ (rig_start (&rig, false), 0);
  m = &rig.fb->mirror;
  store = memory_store_new (&rig.record, &rig.log);
  intent_init (&m->intent, &store->store, rig.size);
  CHECK_EQ (mirror_find_left (m, rig.fb->layout, notice, sizeof notice), 0);
  CHECK_EQ (notice[0], '\0');
  check_read (m, "fat2:0+16", "...ab....x.");
  check_read (m, "fat2:3", "a");
  check_read (m, "fat2@1600+400", "a");
  check_read (m, "fat2@2000+100", "ab.");
  check_read (m, "fat2@2500+200", "b.");
  check_read (m, "fat1:0+16", "...ab....c.");
  check_read (m, "data:0+10", ".");
  next = mirror_hides (m, rig_place (&rig, "fat1:15").start,
                       rig_place (&rig, "data:5").start, &hides);
  CHECK (!hides && next == rig_place (&rig, "fat2").start);
  next = mirror_hides (m, next, rig_place (&rig, "data:5").start, &hides);
  CHECK (hides && next == rig_place (&rig, "data").start);

  CHECK (memcmp (before, rig.bytes, rig.size) == 0);
  CHECK (memcmp (&record_before, &rig.record, sizeof record_before) == 0);

  CHECK_EQ (mirror_recover (m, notice, sizeof notice), 0);
  CHECK (notice[0] != '\0');
  CHECK (!rig.record.exists);
  check_read (m, "fat2:0+16", "...ab....x.");
  CHECK_EQ (mirror_recover (m, notice, sizeof notice), 0);
  CHECK_EQ (notice[0], '\0');
  rig_close (&rig);
  memory_store_free (&store->store);
  CHECK (memcmp (rig.bytes, rig.shadow, rig.size) == 0);
  rig_release (&rig);
}

int
main (void)
{
  alarm (300);
  RIG_RUN_ROWS (back);
  RIG_RUN_ROWS (again);
  RIG_RUN_ROWS (misfits);
  RUN (readers_see_what_recovery_would_bring_back);
  return EXIT_SUCCESS;
}
