/* SPDX-License-Identifier: BSD-3-Clause */

/* What the engine says of each cluster of an image (tree.h), beside what the
 * reference says (fat-reader.h).
 *
 *   tree-states [--seed=N] IMAGE [NEXT...]
 *
 * Each NEXT is the same image later on: the sectors in which it differs are
 * written through the engine, in random order, and the states are compared
 * again.  IMAGE is changed.  Exit status: 0 all agree, 1 the first clusters
 * that don't are on stderr, 2 there is no volume.
 */

#include <config.h>

#include <string.h>
#include <unistd.h>

#include "fat-reader.h"
#include "tree-rig.h"
#include "util.h"

#define TIME_MAX 250            /* seconds */
#define SECTOR 512
#define IDLE_WITHIN 60          /* seconds, as tree_wait_idle() has them */

static struct fatbatch *fb;
static uint64_t random_state = 1;

static void
open_image (const char *path)
{
  static const struct fatbatch_options options = {
    .cache = FATBATCH_WRITEBACK, .io = FATBATCH_IO_POSIX, .no_intent = true,
    .durability = FATBATCH_DURABILITY_FAT, .mirror_delay_ms = 500,
    .mirror_batch = 1024 * 1024,
  };
  struct fatbatch_error err = { "" };

  if (fatbatch_open (path, &options, &fb, &err) == 0 &&
      fatbatch_set_writable (fb, &err) == 0)
    return;
  fprintf (stderr, "%s\n", err.message);
  exit (2);
}

/* The image as it is read, and as it is to become. */
static uint8_t *now, *next;

static void
read_image (void)
{
  CHECK_EQ (fatbatch_read (fb, now, fb->disk->size, 0), 0);
}

/* -- Classes -------------------------------------------------------------- */

static void
print_counts (uint64_t start)
{
  struct fat_reader r;
  uint32_t count[4] = { 0 }, n;

  CHECK (fat_reader_init (&r, now, fb->disk->size, start));
  fat_reader_classify (&r);
  for (n = 2; n < r.end; ++n)
    count[r.use[n]]++;
  for (n = 0; n < 4; ++n)
    printf ("%s%s %" PRIu32, n > 0 ? ", " : "", fat_use_name (n), count[n]);
  printf ("\n");
  fat_reader_release (&r);
}

static bool
compare (const char *path)
{
  bool agree = true;
  size_t i;

  tree_wait_idle (&fb->tree, IDLE_WITHIN);
  read_image ();
  for (i = 0; i < fb->layout->nr_volumes; ++i) {
    uint64_t start = fb->layout->volumes[i].start;

    printf ("%s: ", path);
    print_counts (start);
    agree &= tree_states_agree (fb, now, fb->disk->size, start);
  }
  if (!agree)
    fprintf (stderr, "%s: states differ\n", path);
  return agree;
}

/* -- The next one ---------------------------------------------------------- */

static uint64_t
draw (uint64_t below)
{
  random_state = random_state * UINT64_C (6364136223846793005) +
    UINT64_C (1442695040888963407);
  return (random_state >> 33) % below;
}

static void
load_next (const char *path)
{
  FILE *f = fopen (path, "rb");

  if (!f || fread (next, 1, fb->disk->size, f) != fb->disk->size) {
    fprintf (stderr, "%s: can't be read, or is too short\n", path);
    exit (2);
  }
  fclose (f);
}

/* The numbers of the sectors that differ, in random order. */
static size_t
find_dirty (uint64_t *sector)
{
  uint64_t i, k, nr = 0, other;

  for (i = 0; i < fb->disk->size / SECTOR; ++i)
    if (memcmp (now + i * SECTOR, next + i * SECTOR, SECTOR) != 0)
      sector[nr++] = i;
  for (i = nr; i > 1; --i) {
    k = draw (i);
    other = sector[i - 1];
    sector[i - 1] = sector[k];
    sector[k] = other;
  }
  return nr;
}

static void
become (const char *path)
{
  CLEANUP_FREE uint64_t *sector =
    calloc (fb->disk->size / SECTOR, sizeof *sector);
  size_t nr, i;

  CHECK (sector != NULL);
  load_next (path);
  nr = find_dirty (sector);
  for (i = 0; i < nr; ++i)
    CHECK_EQ (fatbatch_write (fb, next + sector[i] * SECTOR, SECTOR,
                              sector[i] * SECTOR, 0), 0);
}

int
main (int argc, char **argv)
{
  bool agree;
  int i = 1;

  if (argc > 1 && strncmp (argv[1], "--seed=", 7) == 0)
    random_state = strtoul (argv[i++] + 7, NULL, 10);
  if (i == argc) {
    fprintf (stderr, "usage: tree-states [--seed=N] IMAGE [NEXT...]\n");
    return 2;
  }
  alarm (TIME_MAX);
  open_image (argv[i]);
  if (fb->layout->nr_volumes == 0) {
    fprintf (stderr, "%s: no volume\n", argv[i]);
    return 2;
  }
  now = malloc (fb->disk->size);
  next = malloc (fb->disk->size);
  CHECK (now != NULL && next != NULL);
  agree = compare (argv[i]);
  for (++i; i < argc && agree; ++i) {
    become (argv[i]);
    agree = compare (argv[i]);
    if (memcmp (now, next, fb->disk->size) != 0) {
      fprintf (stderr, "%s: reads as something else\n", argv[i]);
      agree = false;
    }
  }
  fatbatch_close (fb);
  free (now);
  free (next);
  return agree ? EXIT_SUCCESS : EXIT_FAILURE;
}
