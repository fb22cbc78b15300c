/* SPDX-License-Identifier: BSD-3-Clause */

/* mirror-stream URI SEED BATCHES [--image=FILE] [--boot] VOLUME...
 *
 * Random requests around FATs and their mirrors, several in flight: mostly
 * what a guest sends (a sector of FAT 1, then the same bytes to the mirror),
 * and all that it might send instead.  The same seed sends the same requests,
 * so that two servers' images can be compared.
 *
 * What was read at the start and all that was written since is what reads must
 * return (D3); extents that are holes must hold zeros.
 *
 * --image: what is served.  Now and then the (only) connection is closed; the
 * image file alone must then soon be complete, and FILE.fatbatch be gone.
 *
 * --boot: boot sectors change, too: the dirty bit, but also whether there is a
 * volume, and whether it mirrors.
 *
 * Of each volume's data only the beginning is used.  Nothing else is looked
 * at: that it stays as it is shows when images are compared.
 *
 * Trims are multiples of 4096 bytes, which all servers make zeros here.
 */

#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <libnbd.h>

#include "stream.h"

#define PIECE (16 * 1024 * 1024)
#define COMPLETE_SECONDS 30

struct stream stream;

static const char *uri, *image;
static struct nbd_handle *nbd;

/* -- Connection --------------------------------------------------------- */

static void
connect_server (void)
{
  nbd = nbd_create ();
  if (!nbd ||
      nbd_add_meta_context (nbd, LIBNBD_CONTEXT_BASE_ALLOCATION) == -1 ||
      nbd_connect_uri (nbd, uri) == -1)
    test_fail ("%s: %s", uri, nbd_get_error ());
}

static void
disconnect (void)
{
  nbd_shutdown (nbd, 0);
  nbd_close (nbd);
}

static void
read_all (uint8_t *buf)
{
  uint64_t at;

  for (at = 0; at < stream.size; at += PIECE)
    if (nbd_pread (nbd, buf + at, stream.size - at < PIECE ? stream.size - at
                   : PIECE, at, 0) == -1)
      test_fail ("read: %s", nbd_get_error ());
}

static const char *
place (uint64_t at)
{
  size_t i;

  for (i = 0; i < stream.nr_volumes; ++i) {
    const struct volume *v = &stream.volumes[i];

    if (at >= v->start && at < v->end)
      return at < v->fat1 ? "reserved" : at < v->mirror ? "FAT 1" :
        at < v->data ? "mirror" : "data";
  }
  return "outside";
}

static void
check_bytes (const char *what, const uint8_t *got, uint64_t at, uint64_t n)
{
  uint64_t i;

  if (memcmp (got, stream.bytes + at, n) == 0)
    return;
  for (i = 0; got[i] == stream.bytes[at + i]; ++i)
    ;
  test_fail ("%s: byte %" PRIu64 " (%s) is 0x%02x, not 0x%02x", what, at + i,
             place (at + i), got[i], stream.bytes[at + i]);
}

static bool
image_is_complete (uint8_t *buf)
{
  char *intent = test_printf ("%s.fatbatch", image);
  bool gone = access (intent, F_OK) == -1;
  FILE *fp = fopen (image, "re");

  free (intent);
  if (!fp || fread (buf, stream.size, 1, fp) != 1)
    test_fail ("%s: %m", image);
  fclose (fp);
  return gone && memcmp (buf, stream.bytes, stream.size) == 0;
}

static void
reconnect (void)
{
  uint8_t *buf;
  time_t end = time (NULL) + COMPLETE_SECONDS;

  disconnect ();
  if (image) {
    buf = test_alloc (stream.size);
    while (!image_is_complete (buf)) {
      if (time (NULL) > end) {
        check_bytes ("image file after the last disconnect", buf, 0,
                     stream.size);
        test_fail ("%s.fatbatch is there after the last disconnect", image);
      }
      nanosleep (&(struct timespec) { .tv_nsec = 20000000 }, NULL);
    }
    free (buf);
  }
  connect_server ();
}

/* -- Running ------------------------------------------------------------ */

static void
check_hole (const struct request *r)
{
  uint64_t at = r->offset, n, i;
  unsigned e;

  for (e = 0; e < r->nr_extents && at < r->offset + r->length; ++e) {
    n = r->extents[e].length;
    if (n > r->offset + r->length - at)
      n = r->offset + r->length - at;
    if (r->extents[e].hole)
      for (i = 0; i < n; ++i)
        if (stream.bytes[at + i] != 0)
          test_fail ("byte %" PRIu64 " (%s) is in a hole, and should be "
                     "0x%02x", at + i, place (at + i), stream.bytes[at + i]);
    at += n;
  }
}

static void
run_batch (void)
{
  unsigned i;

  stream_generate ();
  if (!nbd_target.run (nbd, stream.batch, stream.nr_batch))
    test_fail ("the connection died");
  for (i = 0; i < stream.nr_batch; ++i) {
    const struct request *r = &stream.batch[i];

    if (r->result != 0)
      test_fail ("request %d at %" PRIu64 " (%s), %" PRIu64 " bytes: %s",
                 (int) r->kind, r->offset, place (r->offset), r->length,
                 strerror (-r->result));
    if (r->kind == REQUEST_READ)
      check_bytes ("read", r->buf, r->offset, r->length);
    if (r->kind == REQUEST_EXTENTS)
      check_hole (r);
  }
}

static void
check_all (void)
{
  uint8_t *buf = test_alloc (stream.size);

  read_all (buf);
  check_bytes ("all, read back", buf, 0, stream.size);
  free (buf);
}

/* Quickly, so that what the server does in the background may be under way. */
static void
check_mirrors (void)
{
  uint8_t *buf = test_alloc (stream.size);
  size_t i;

  for (i = 0; i < stream.nr_volumes; ++i) {
    const struct volume *v = &stream.volumes[i];

    if (nbd_pread (nbd, buf, v->fat_size, v->mirror, 0) == -1)
      test_fail ("read: %s", nbd_get_error ());
    check_bytes ("mirror, read back", buf, v->mirror, v->fat_size);
  }
  free (buf);
}

static void
choose_size (void)
{
  uint64_t end = 0, total = nbd_get_size (nbd);
  size_t i;

  for (i = 0; i < stream.nr_volumes; ++i)
    if (stream.volumes[i].data + STREAM_DATA_MAX > end)
      end = stream.volumes[i].data + STREAM_DATA_MAX;
  stream.size = end < total ? end : total;
}

static void
parse_arguments (int argc, char *argv[])
{
  int i;

  if (argc < 5)
    test_fail ("usage: mirror-stream URI SEED BATCHES [--image=FILE] "
               "[--boot] VOLUME...");
  uri = argv[1];
  for (i = 4; i < argc; ++i)
    if (strncmp (argv[i], "--image=", 8) == 0)
      image = argv[i] + 8;
    else if (strcmp (argv[i], "--boot") == 0)
      stream.boot = true;
    else if (stream.nr_volumes < STREAM_VOLUMES_MAX)
      stream.volumes[stream.nr_volumes++] = volume_parse (argv[i]);
  if (stream.nr_volumes == 0)
    test_fail ("no volume");
}

int
main (int argc, char *argv[])
{
  unsigned long i, batches;

  parse_arguments (argc, argv);
  prng_init (&stream.prng, strtoull (argv[2], NULL, 0), 0);
  batches = strtoul (argv[3], NULL, 0);
  connect_server ();
  choose_size ();
  stream.bytes = test_alloc (stream.size);
  read_all (stream.bytes);
  for (i = 0; i < STREAM_DEPTH; ++i)
    stream.batch[i].buf = test_alloc (STREAM_LENGTH_MAX);

  for (i = 0; i < batches; ++i) {
    run_batch ();
    if (prng_chance (&stream.prng, 10))
      check_mirrors ();
    if (prng_below (&stream.prng, batches) < 3)
      reconnect ();
    if (prng_below (&stream.prng, batches) < 3)
      check_all ();
  }
  check_all ();
  disconnect ();
  for (i = 0; i < STREAM_DEPTH; ++i)
    free (stream.batch[i].buf);
  free (stream.bytes);
  return 0;
}
