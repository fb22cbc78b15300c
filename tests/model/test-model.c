/* SPDX-License-Identifier: BSD-3-Clause */

/* Random requests to the real server, from several connections with several
 * requests in flight on each, against a flat array of bytes (model.h): in
 * each cache mode, through both leaves, on plain and on FAT32 images.  Then
 * the image file itself is compared, and it is served again in another mode.
 *
 * test-model [MODE...] [uring|posix]
 */

#include <config.h>

#include <stdio.h>
#include <stdlib.h>

#include "model.h"
#include "modes.h"
#include "server.h"

#define OVERLAPS 25

static uint64_t seed;
static unsigned combinations;

static void
connect_all (struct model *m, const struct server *server)
{
  unsigned i;

  for (i = 0; i < MODEL_THREADS; ++i)
    m->conns[i] = server_connect (server);
}

static void
disconnect_all (struct model *m)
{
  unsigned i;

  for (i = 0; i < MODEL_THREADS; ++i) {
    nbd_shutdown (m->conns[i], 0);
    nbd_close (m->conns[i]);
  }
}

static struct server *
serve (const struct image *image, int mode, int leaf)
{
  char *cache = test_printf ("cache=%s", mode_names[mode]);
  char *io = test_printf ("io=%s", leaves[leaf].name);
  const char *args[] = { image->path, cache, io, NULL };
  struct server *server = server_start (args);

  free (cache);
  free (io);
  return server;
}

/* Start, let fn do its requests, stop. */
static void
with_server (struct model *m, int mode, int leaf, void (*fn) (struct model *))
{
  struct server *server = serve (m->image, mode, leaf);

  connect_all (m, server);
  fn (m);
  disconnect_all (m);
  server_stop (server);
}

static void
load (struct model *m)
{
  model_run (m);
  model_run_overlaps (m, OVERLAPS);
  model_settle (m);
}

static void
test_combination (int mode, int leaf, enum image_kind kind)
{
  struct image image;
  struct model *m = test_alloc (sizeof *m);
  char *title = test_printf ("cache=%s io=%s", mode_names[mode],
                             leaves[leaf].name);

  image_make (&image, kind, seed);
  model_init (m, &image, &nbd_target, title, seed);
  m->rounds = test_rounds (12);
  m->batches = 12;
  with_server (m, mode, leaf, load);
  model_check_file (m);
  with_server (m, (mode + 2) % NR_MODES, leaf, model_settle);
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
  test_init ("test-model", 1200);
  seed = test_seed ();
  modes_for_each (argc, argv, test_images);
  server_none_left ();
  printf ("%u combinations of mode, leaf and image are right\n",
          combinations);
  return test_end ();
}
