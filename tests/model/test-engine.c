/* SPDX-License-Identifier: BSD-3-Clause */

/* The same requests as test-model's, to the engine's functions, from several
 * threads at once and without nbdkit: for ThreadSanitizer, AddressSanitizer
 * with leak detection, and valgrind.
 *
 * test-engine [MODE...] [uring|posix]
 */

#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"
#include "modes.h"

#define OVERLAPS 25

static uint64_t seed, waits;
static unsigned combinations;

static struct fatbatch *
open_engine (struct model *m, int mode, int leaf)
{
  struct fatbatch_options options = {
    .cache = (enum fatbatch_cache) mode, .io = leaves[leaf].io, .lock = true,
  };
  struct fatbatch_error err;
  struct fatbatch *fb;
  unsigned i;

  if (fatbatch_open (m->image->path, &options, &fb, &err) < 0 ||
      fatbatch_set_writable (fb, &err) < 0)
    test_fail ("%s: %s", m->title, err.message);
  for (i = 0; i < MODEL_THREADS; ++i)
    m->conns[i] = fb;
  return fb;
}

/* The generator's boot sectors must be such as the engine takes. */
static void
check_description (const struct image *image, struct fatbatch *fb)
{
  char text[256];

  fatbatch_describe (fb, text, sizeof text);
  if ((strstr (text, "no FAT32 volume") != NULL) !=
      (image->kind == IMAGE_PLAIN))
    test_fail ("%s image: the engine sees '%s'", image->name, text);
}

static void
test_combination (int mode, int leaf, enum image_kind kind)
{
  struct image image;
  struct fatbatch_stats stats;
  struct fatbatch *fb;
  struct model *m = test_alloc (sizeof *m);
  char *title = test_printf ("engine, cache=%s io=%s", mode_names[mode],
                             leaves[leaf].name);

  image_make (&image, kind, seed);
  model_init (m, &image, &engine_target, title, seed);
  m->rounds = test_rounds (12);
  m->batches = 12;

  fb = open_engine (m, mode, leaf);
  check_description (&image, fb);
  model_run (m);
  model_run_overlaps (m, OVERLAPS);
  model_settle (m);
  fatbatch_get_stats (fb, &stats);
  fatbatch_close (fb);
  model_check_file (m);
  waits += stats.range_waits;

  fb = open_engine (m, (mode + 2) % NR_MODES, leaf);
  model_settle (m);
  fatbatch_close (fb);
  model_check_file (m);

  model_release (m);
  image_release (&image);
  free (title);
  free (m);
  combinations++;
}

static void
test_images (int mode, int leaf)
{
  int kind;

  for (kind = 0; kind < IMAGE_KINDS; ++kind)
    test_combination (mode, leaf, (enum image_kind) kind);
}

int
main (int argc, char *argv[])
{
  test_init ("test-engine", 1200);
  seed = test_seed ();
  modes_for_each (argc, argv, test_images);
  printf ("%u combinations of mode, leaf and image are right; %ju requests "
          "waited for another\n", combinations, (uintmax_t) waits);
  return test_end ();
}
