/* SPDX-License-Identifier: BSD-3-Clause */

/* What guests do to files while the directory tree (tree.h) follows: metadata
 * arrives in any order, sector by sector or in pieces, with FUA and without,
 * from one thread or from several.  Whenever all of it is there, each cluster
 * is what the reference (fat-reader.h) says that it is; or now and then is
 * written with more care than needed, until the next scan.
 *
 *   test-tree-follow [SEED [RUNS]]       RUNS: 1
 *
 * A failed run prints its seed.  With a seed alone it says what the guest does.
 */

#include <config.h>

#include <unistd.h>

#include "tree-guest.h"
#include "tree-rig.h"

#define TIME_MAX 250            /* seconds, for all: it hangs */
#define DEFAULT_RUNS 96
/* Runs at once: they wait for the engine's pauses between scans mostly. */
#define AT_ONCE 16
#define ROUNDS 5
#define WRITES_MAX 20000
#define WRITERS 3
#define SECTOR 512

enum write_kind { PLAIN_WRITE, ZERO, TRIM };

struct write {
  enum write_kind kind;
  uint64_t offset, length;
  unsigned flags;
};

struct run {
  unsigned seed;
  bool whole_sectors, parallel; /* writes; writers */
  struct guest guest;
  struct image image;           /* what has been written */
  struct tree_rig rig;
  struct write write[WRITES_MAX];
  unsigned nr;
};

/* -- What is written ------------------------------------------------------ */

static void
add_write (struct run *run, enum write_kind kind, uint64_t offset,
           uint64_t length)
{
  CHECK (run->nr < WRITES_MAX);
  run->write[run->nr++] = (struct write) {
    kind, offset, length, guest_draw (&run->guest, 4) ? 0 : FATBATCH_FUA
  };
}

static bool
is_dirty (const struct run *run, uint64_t offset, uint64_t length)
{
  return memcmp (run->guest.cache.bytes + offset, run->image.bytes + offset,
                 length) != 0;
}

static bool
is_zero (const struct run *run, uint64_t offset, uint64_t length)
{
  const uint8_t *p = run->guest.cache.bytes + offset;

  return p[0] == 0 && memcmp (p, p + 1, length - 1) == 0;
}

/* Only the bytes that differ, of the sector at offset. */
static void
add_bytes (struct run *run, uint64_t offset)
{
  uint64_t start = offset, end = offset + SECTOR;

  while (!is_dirty (run, start, 1))
    start++;
  while (!is_dirty (run, end - 1, 1))
    end--;
  add_write (run, PLAIN_WRITE, start, end - start);
}

/* With neighbours that are dirty or not, into other regions perhaps. */
static void
add_wide (struct run *run, uint64_t offset)
{
  uint32_t most = guest_draw (&run->guest, 20) == 0 ? 200 : 12;
  uint64_t before = guest_draw (&run->guest, most) * SECTOR;
  uint64_t length = (1 + guest_draw (&run->guest, most)) * SECTOR + before;
  uint64_t start = offset > run->image.fat1 + before ? offset - before
    : run->image.fat1;

  if (length > run->image.size - start)
    length = run->image.size - start;
  add_write (run, PLAIN_WRITE, start, length);
}

static void
add_sector (struct run *run, uint64_t offset)
{
  unsigned how = guest_draw (&run->guest, 8);

  if (is_zero (run, offset, SECTOR) && how < 4)
    add_write (run, ZERO, offset, SECTOR);
  else if (how == 4 && !run->whole_sectors)
    add_bytes (run, offset);
  else if (how == 5 && !run->whole_sectors)
    add_wide (run, offset);
  else
    add_write (run, PLAIN_WRITE, offset, SECTOR);
}

/* Guests discard what is free. */
static void
add_trim (struct run *run)
{
  struct image *cache = &run->guest.cache;
  uint32_t n = 2 + guest_draw (&run->guest, cache->end - 2);

  if (image_get (cache, n) != 0 || image_get (&run->image, n) != 0)
    return;
  memset (cache->bytes + image_cluster (cache, n), 0, cache->cluster_size);
  add_write (run, TRIM, image_cluster (cache, n), cache->cluster_size);
}

static void
shuffle (struct run *run)
{
  unsigned i;

  for (i = run->nr; i > 1; --i) {
    unsigned k = guest_draw (&run->guest, i);
    struct write other = run->write[i - 1];

    run->write[i - 1] = run->write[k];
    run->write[k] = other;
  }
}

/* -- To the engine -------------------------------------------------------- */

static void
say (const struct run *run, const struct write *w)
{
  static const char *const names[] = { "write", "zero", "trim" };
  const struct image *img = &run->image;
  const char *fua = w->flags & FATBATCH_FUA ? " fua" : "";

  if (w->offset < img->data)
    printf ("    %s%s FAT %" PRIu64 ", from entry %" PRIu64 " on, %" PRIu64
            " bytes\n", names[w->kind], fua,
            (w->offset - img->fat1) / img->fat_size + 1,
            (w->offset - img->fat1) % img->fat_size / 4, w->length);
  else
    printf ("    %s%s cluster %" PRIu64 ", from byte %" PRIu64 " on, %" PRIu64
            " bytes\n", names[w->kind], fua,
            (w->offset - img->data) / img->cluster_size + 2,
            (w->offset - img->data) % img->cluster_size, w->length);
}

/* All that overlap write the same bytes, so that any order is as good. */
static void
do_write (struct run *run, const struct write *w)
{
  const uint8_t *bytes = run->guest.cache.bytes + w->offset;
  struct fatbatch *fb = run->rig.fb;

  if (run->guest.chatty)
    say (run, w);
  switch (w->kind) {
  case PLAIN_WRITE:
    CHECK_EQ (fatbatch_write (fb, bytes, w->length, w->offset, w->flags), 0);
    break;
  case ZERO:
    CHECK_EQ (fatbatch_zero (fb, w->length, w->offset, w->flags), 0);
    break;
  case TRIM:
    CHECK_EQ (fatbatch_trim (fb, w->length, w->offset, w->flags), 0);
    break;
  }
}

struct writer {
  struct run *run;
  unsigned first;
};

static void *
write_some (void *opaque)
{
  struct writer *writer = opaque;
  unsigned i;

  for (i = writer->first; i < writer->run->nr; i += WRITERS)
    do_write (writer->run, &writer->run->write[i]);
  return NULL;
}

static void
write_in_parallel (struct run *run)
{
  struct writer writer[WRITERS];
  pthread_t thread[WRITERS];
  unsigned i;

  for (i = 0; i < WRITERS; ++i) {
    writer[i] = (struct writer) { run, i };
    CHECK_EQ (pthread_create (&thread[i], NULL, write_some, &writer[i]), 0);
  }
  for (i = 0; i < WRITERS; ++i)
    CHECK_EQ (pthread_join (thread[i], NULL), 0);
}

static void
write_all (struct run *run)
{
  unsigned i;

  if (run->parallel)
    write_in_parallel (run);
  for (i = 0; i < run->nr; ++i) {
    const struct write *w = &run->write[i];

    if (!run->parallel)
      do_write (run, w);
    memcpy (run->image.bytes + w->offset, run->guest.cache.bytes + w->offset,
            w->length);
  }
  run->nr = 0;
}

/* tree.h, rule 2: what has been freed is FREE when that is acknowledged. */
static void
check_freed (struct run *run)
{
  struct tree_set *set = atomic_load (&run->rig.fb->tree.set);
  uint32_t n;

  for (n = 2; n < run->image.end; ++n)
    if ((image_get (&run->image, n) & END_MARK) == 0 &&
        clusters_get (set->volume[0].clusters, n) >= CLUSTER_SETTLED) {
      fprintf (stderr, "seed %u: cluster %" PRIu32 " has been freed, and is in "
               "state %d%s\n", run->seed, n,
               clusters_get (set->volume[0].clusters, n),
               set->volume[0].stale ? " (stale)" : "");
      exit (EXIT_FAILURE);
    }
}

/* Of `of` dirty sectors, on average: that many. */
static void
write_dirty (struct run *run, unsigned part, unsigned of)
{
  uint64_t offset;

  for (offset = 0; offset < run->image.size; offset += SECTOR)
    if (is_dirty (run, offset, SECTOR) && guest_draw (&run->guest, of) < part)
      add_sector (run, offset);
  if (guest_draw (&run->guest, 3) == 0)
    add_trim (run);
  if (guest_draw (&run->guest, 4) > 0)
    shuffle (run);
  write_all (run);
  if (guest_draw (&run->guest, 8) == 0)
    CHECK_EQ (fatbatch_flush (run->rig.fb), 0);
  check_freed (run);
}

/* -- Runs ----------------------------------------------------------------- */

/* Rounds, and those after which some states were only more careful. */
static atomic_uint nr_rounds, nr_careful;

static void
do_round (struct run *run, unsigned round)
{
  unsigned nr = 1 + guest_draw (&run->guest, 12), i;
  unsigned patience = 1 + guest_draw (&run->guest, 4);
  char name[60];

  for (i = 0; i < nr; ++i) {
    guest_act (&run->guest);
    if (guest_draw (&run->guest, patience) == 0)
      write_dirty (run, guest_draw (&run->guest, 3), 2);
  }
  write_dirty (run, 1, 1);
  CHECK (!is_dirty (run, 0, run->image.size));
  snprintf (name, sizeof name, "seed %u, round %u", run->seed, round);
  atomic_fetch_add (&nr_rounds, 1);
  if (!tree_rig_check_followed (&run->rig, name))
    atomic_fetch_add (&nr_careful, 1);
  if (run->guest.chatty)
    printf ("round %u is fine\n", round);
}

/* The image is there, and has some files, before it is served. */
static void
run_init (struct run *run, unsigned seed, bool chatty)
{
  static const unsigned clusters[] = { 300, 900, 4000 };
  static const unsigned sectors[] = { 1, 1, 2, 8 };
  struct fat_spec spec = image_spec (clusters[seed % 3],
                                     sectors[seed / 3 % 4],
                                     seed % 5 == 0 ? 1 : 2);
  unsigned i;

  run->seed = seed;
  run->whole_sectors = seed % 2;
  run->parallel = seed % 7 == 3;
  guest_init (&run->guest, &spec, seed);
  for (i = 0; i < seed % 30; ++i)
    guest_act (&run->guest);
  run->guest.chatty = chatty;
  image_init (&run->image, &spec);
  memcpy (run->image.bytes, run->guest.cache.bytes, run->image.size);
  tree_rig_init (&run->rig, &run->image);
  run->rig.options.serial = seed % 11 == 0;
  run->rig.options.commit_delay_ms = seed % 4 == 1 ? 20 : 0;
  tree_rig_open (&run->rig);
}

static void
do_run (unsigned seed, bool chatty)
{
  struct run *run = calloc (1, sizeof *run);
  unsigned round;

  CHECK (run != NULL);
  run_init (run, seed, chatty);
  if (seed % 6 > 0)             /* else during the first scan */
    tree_rig_wait (&run->rig);
  for (round = 0; round < ROUNDS; ++round)
    do_round (run, round);
  tree_rig_release (&run->rig);
  image_release (&run->image);
  guest_release (&run->guest);
  free (run);
}

static atomic_uint next_seed;
static unsigned end_seed;

static void *
do_runs (void *arg)
{
  unsigned seed;

  (void) arg;
  while ((seed = atomic_fetch_add (&next_seed, 1)) < end_seed)
    do_run (seed, false);
  return NULL;
}

static void
do_runs_at_once (unsigned seed, unsigned nr)
{
  pthread_t thread[AT_ONCE];
  unsigned i;

  atomic_store (&next_seed, seed);
  end_seed = seed + nr;
  for (i = 0; i < AT_ONCE; ++i)
    CHECK_EQ (pthread_create (&thread[i], NULL, do_runs, NULL), 0);
  for (i = 0; i < AT_ONCE; ++i)
    CHECK_EQ (pthread_join (thread[i], NULL), 0);
}

int
main (int argc, char **argv)
{
  unsigned seed = argc > 1 ? strtoul (argv[1], NULL, 10) : 1;

  if (argc < 3)
    alarm (TIME_MAX);
  if (argc == 2)
    do_run (seed, true);
  else
    do_runs_at_once (seed, argc > 2 ? strtoul (argv[2], NULL, 10)
                     : DEFAULT_RUNS);
  printf ("%u of %u rounds: some states more careful\n", nr_careful,
          nr_rounds);
  CHECK (nr_careful * 10 <= nr_rounds);
  return 0;
}
