/* SPDX-License-Identifier: BSD-3-Clause */

/* Reads of mirrors return the bytes that were acknowledged last (D3), whatever
 * is deferred, diverged or on its way into the image, and extents say that
 * there is something (mirror.h, rule 6).  The language is in mirror-rig.h.
 */

#include <config.h>

#include <unistd.h>

#include "mirror-lines.h"
#include "mirror-rig.h"
#include "util.h"

/* -- Where parts of a read come from ----------------------------------- */

static const struct rig_row reads[] = {
  { .name = "deferred, diverged and plain parts",
    .script =
    "> write fat1:2 a\n"
    COMPARE
    "  write fat1:2\n"
    "> write fat2:2 a\n"
    ARM
    "> write fat1:4 b\n"
    "  write fat1:4\n"
    "> write fat2:4 b\n"
    "> write fat1:4 c\n"        /* diverged: the mirror still is b */
    "  write fat1:4\n"
    "> write fat1:5 d\n"        /* plain: the mirror still is zeros */
    "  write fat1:5\n"
    "> read fat2:0+7 ..a.b..\n"
    "  read fat2:0+7\n"
    "> read fat1:0+7 ..a.cd.\n"
    "  read fat1:0+7\n"
    "> read fat2@1100+500 a.\n" /* within slots 2 and 3 */
    "  read @25676+500\n"
    "> sync\n"
    "  write fat2:2 & write fat2:4\n"
    "  sync fat2:2+3\n"
    "> read fat2:0+7 ..a.b..\n"
    "  read fat2:0+7\n"
    "> check fat2:0+7 ..a.b..\n" },

  { .name = "from FAT 1 into the mirror, and into the data behind it",
    .script =
    "> write data:0 z\n"
    "  write data:0\n"
    "> write fat1:15 a\n"
    COMPARE
    "  write fat1:15\n"
    "> write fat2:15 a\n"
    ARM
    "> write fat1:0 b\n"
    "  write fat1:0\n"
    "> write fat2:0 b\n"
    "> read all\n"
    "  read boot:0..data:191\n"
    "> read fat2:15+2\n"
    "  read fat2:15..data:0\n" },
};

/* -- Reading ahead ----------------------------------------------------- */

static const struct rig_row ahead[] = {
  { .name = "into the page cache goes what the image has, and nothing changes",
    .script =
    DEFER_3
    "> cache fat2\n"
    "  readahead fat2:0+16\n"
    "> cache fat1:15+2\n"
    "  readahead fat1:15..fat2:0\n"
    "> cache fat2@1600+100\n"
    "  readahead @26176+100\n"
    "> read fat2:3 a\n"
    "  read fat2:3\n"
    "> stat mirror_batches 0\n" },
};

/* -- Extents ----------------------------------------------------------- */

static const struct rig_row extents[] = {
  { .name = "a mirror with deferred slots is no hole, though the image has one",
    .script =
    "> extents fat2\n"
    "= hole 8192\n"
    DEFER_3
    "> extents fat2\n"
    "= data 8192\n"
    "> extents fat1:15+18\n"    /* cut at the edges of the mirror */
    "= hole 512\n"
    "= data 8192\n"
    "= hole 512\n"
    "> settle\n"
    DRAIN_3
    "  record remove\n"
    "> extents fat2\n"
    "= hole 1536\n"
    "= data 512\n"
    "= hole 6144\n" },

  { .name = "nor is it after it was diverged, or while it is written",
    .script =
    DEFER_3
    "> write fat1:3 .\n"
    "  write fat1:3\n"
    "> extents fat2:3\n"
    "= data 512\n"
    "> hold write fat2\n"
    "> async sync\n"
    "> extents fat2:3\n"
    "= data 512\n"
    "> release\n"
    "  write fat2:3\n"
    "  sync fat2:3\n"
    "> extents fat2:3\n"
    "= data 512\n" },
};

/* -- While a batch is on its way --------------------------------------- */

static const struct rig_row batches[] = {
  { .name = "FAT 1 changes while its mirror is written",
    .script =
    DEFER_3
    "> hold write fat2\n"
    "> async sync\n"
    "> fua fat1:3 b\n"
    "  write fat1:3\n"
    "  sync fat1:3\n"
    "> read fat2:3 a\n"
    "  read fat2:3\n"
    "> release\n"
    "  write fat2:3\n"
    "  sync fat2:3\n"
    "> check fat2:3 a\n"
    "> read fat2:3 a\n"
    "  read fat2:3\n" },

  { .name = "and the mirror is deferred again",
    .script =
    DEFER_3
    "> hold write fat2\n"
    "> async sync\n"
    "> fua fat1:3 b\n"
    "  write fat1:3\n"
    "  sync fat1:3\n"
    "> fua fat2:3 b\n"
    "> read fat2:3 b\n"
    "  read fat2:3\n"
    "> fua fat1:3 c\n"
    "  write fat1:3\n"
    "  sync fat1:3\n"
    "> read fat2:3 b\n"
    "  read fat2:3\n"
    "> release\n"
    "  write fat2:3\n"         /* nothing is done with that: no sync */
    "> check fat2:3 a\n"
    "> read fat2:3 b\n"
    "  read fat2:3\n"
    "> settle\n"
    DRAIN_3
    "  record remove\n"
    "> check fat2:3 b\n" },

  { .name = "deferred again while the sync runs: it is not clean after that",
    .script =
    DEFER_3
    "> hold sync fat2\n"
    "> async settle\n"
    "  write fat2:3\n"
    "> write fat1:3 b\n"
    "  write fat1:3\n"
    "> write fat2:3 b\n"
    "> release\n"
    "  sync fat2:3\n"
    "> check fat2:3 a\n"
    "> read fat2:3 b\n"
    "  read fat2:3\n"
    "> settle\n"
    DRAIN_3
    "  record remove\n"
    "> check fat2:3 b\n" },

  { .name = "written in place while the sync runs: it does not cover that",
    .script =
    "> image fat2:4 x\n"        /* not in the record */
    DEFER_3
    "> hold sync fat2\n"
    "> async settle\n"
    "  write fat2:3\n"
    "> write fat1:3+2 by\n"
    "  write fat1:3+2\n"
    "> write fat2:3+2 by\n"
    "  write fat2:3+2\n"
    "> release\n"
    "  sync fat2:3\n"
    "> settle\n"
    "  sync fat2:3\n"
    "  record clear 1\n"
    "  record sync\n"
    "  record remove\n"
    "> check fat2:3+2 by\n" },

  { .name = "a batch that fails leaves the mirror's bytes to be read",
    .script =
    DEFER_3
    "> hold write fat2\n"
    "> fail write fat2\n"
    "> async sync\n"
    "> write fat1:3 b\n"
    "  write fat1:3\n"
    "> release\n"
    "  write fat2:3 !\n"
    "= EIO\n"
    "> heal\n"
    "> read fat2:3 a\n"
    "  read fat2:3\n" },
};

/* The image is read, then the batch gets there and ends, then the read goes on.
 * How it sees to it that this does no harm is its business.
 */
static void
a_batch_that_is_written_during_a_read_is_not_missed (void)
{
  static const char *const requests[] = {
    "write fat1:3+3 abc", "write fat2:3+3 abc",
    "write fat1:4 d",           /* diverged */
    "hold write fat2", "async sync",
    "after read fat2", "async read fat2:2+5 .abc.",
    "async read fat2@1700+300 ab",
    "release write 1", "release", "read fat2:2+5 .abc.",
  };
  static struct rig rig;
  size_t i;

  rig_init (&rig, RIG_SMALL_SIZE, &rig_small, 1);
  rig_open (&rig);
  oplog_mute (&rig.log, true);
  for (i = 0; i < sizeof requests / sizeof requests[0]; ++i)
    rig_request (&rig, requests[i]);
  rig_release (&rig);
}

/* -- By random --------------------------------------------------------- */

static unsigned seed;

static unsigned
random_below (unsigned n)
{
  return rand_r (&seed) % n;
}

/* Contents of a few sectors: few letters, so that they are often equal. */
static const char *
random_letters (unsigned nr)
{
  static char letters[20];
  unsigned i;

  for (i = 0; i < nr; ++i)
    letters[i] = ".abc"[random_below (4)];
  letters[nr] = '\0';
  return letters;
}

static void
random_request (struct rig *rig)
{
  unsigned first = random_below (16), nr = 1 + random_below (16 - first);
  const char *kind = random_below (2) ? "write" : "fua";
  char line[60];

  if (random_below (2) && nr > 3)
    nr = 1 + random_below (3);
  switch (random_below (12)) {
  case 0:
    snprintf (line, sizeof line, "%s", random_below (3) ? "sync" : "settle");
    break;
  case 1:
    snprintf (line, sizeof line, "%s fat2@%u+%u %s", kind,
              random_below (8000), 1 + random_below (190),
              random_letters (2));
    break;
  case 2:
    snprintf (line, sizeof line, "%s fat1@%u+%u %s", kind,
              random_below (8000), 1 + random_below (190),
              random_letters (2));
    break;
  case 3:
    snprintf (line, sizeof line, "zero fat%u:%u+%u", 1 + random_below (2),
              first, nr);
    break;
  case 4:
    snprintf (line, sizeof line, "dirty %u", random_below (2));
    break;
  default:
    snprintf (line, sizeof line, "%s fat%u:%u+%u %s", kind,
              1 + random_below (2), first, nr, random_letters (nr));
  }
  rig_request (rig, line);
}

/* Make the mirror what FAT 1 is, in part, so that there is much to defer. */
static void
copy_some (struct rig *rig)
{
  struct rig_place fat1 = rig_place (rig, "fat1"),
    fat2 = rig_place (rig, "fat2");
  unsigned first = random_below (16), nr = 1 + random_below (16 - first);
  size_t at = first * 512, count = nr * 512;

  CHECK_EQ (fatbatch_write (rig->fb, rig->shadow + fat1.start + at, count,
                            fat2.start + at, random_below (2)
                            ? FATBATCH_FUA : 0), 0);
  memcpy (rig->shadow + fat2.start + at, rig->shadow + fat1.start + at,
          count);
}

static void
read_some (struct rig *rig)
{
  struct rig_place boot = rig_place (rig, "boot"),
    data = rig_place (rig, "data");
  uint64_t start = boot.start + random_below (data.start + 2000);
  uint64_t count = 1 + random_below (data.start + 2000 - start);
  CLEANUP_FREE uint8_t *buf = malloc (count);

  CHECK_EQ (fatbatch_read (rig->fb, buf, count, start), 0);
  CHECK (memcmp (buf, rig->shadow + start, count) == 0);
}

static void
any_part_of_any_mixture_is_read_right (void)
{
  const char *given = getenv ("FATBATCH_SEED");
  static struct rig rig;
  struct fatbatch_stats stats;
  int i;

  seed = given ? strtoul (given, NULL, 10) : (unsigned) getpid ();
  printf ("  FATBATCH_SEED=%u\n", seed);
  fflush (stdout);
  rig_init (&rig, RIG_SMALL_SIZE, &rig_small, 1);
  rig_open (&rig);
  oplog_mute (&rig.log, true);
  for (i = 0; i < 3000; ++i) {
    rig.quick = i % 10 != 0;    /* every tenth is killed, too */
    random_request (&rig);
    copy_some (&rig);
    read_some (&rig);
    read_some (&rig);
  }
  fatbatch_get_stats (rig.fb, &stats);
  CHECK (stats.mirrors_deferred > 1000 && stats.mirrors_diverged > 100 &&
         stats.mirrors_written > 100);
  CHECK_EQ (fatbatch_settle (rig.fb), 0);
  CHECK (memcmp (rig.bytes, rig.shadow, rig.size) == 0); /* D8 */
  CHECK (!rig.record.exists);
  rig_release (&rig);
}

int
main (void)
{
  alarm (300);
  RIG_RUN_ROWS (reads);
  RIG_RUN_ROWS (ahead);
  RIG_RUN_ROWS (extents);
  RUN (any_part_of_any_mixture_is_read_right);
  RIG_RUN_ROWS (batches);
  RUN (a_batch_that_is_written_during_a_read_is_not_missed);
  return EXIT_SUCCESS;
}
