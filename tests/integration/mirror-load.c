/* SPDX-License-Identifier: BSD-3-Clause */

/* A load on FATs, mirrors, a directory and data, by several clients with
 * several requests in flight each, until the server dies or fails; and whether
 * what was promised is there afterwards (load-state.h).
 *
 *   mirror-load new STATE IMAGE VOLUME DIRECTORY DATA
 *       IMAGE is what the next server will have.  Its clusters begin with so
 *       many sectors of the root directory, and of a file.
 *   mirror-load run STATE SEED URI [--stop=N] [--kill=PID] [--all-durable]
 *                   [--may-fail]
 *       --stop: after N acknowledged requests; with --kill, by killing that
 *       server.  --all-durable: the server makes each write durable
 *       (cache=writethrough, directsync).  --may-fail: a failed request is the
 *       end of the load, but not a failed test.  Prints how many requests were
 *       acknowledged.
 *   mirror-load file STATE IMAGE kill|cut|stop
 *       Nobody serves IMAGE any more: is it right?  After a kill or power cut,
 *       the mirror need not be (D4); then prints how many sectors of it are
 *       behind.
 *   mirror-load check STATE URI kill|cut
 *       It is served again: is all of it right?  Prints how many mirror
 *       sectors have followed FAT 1.
 *   mirror-load finish STATE URI PRISTINE
 *       As a guest would: free what was allocated, and make the mirror equal
 *       to FAT 1.  PRISTINE: the image in the beginning.
 */

#include <config.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <libnbd.h>

#include "load-client.h"

static struct state *state;
static int image_fd = -1;
static struct nbd_handle *nbd;

static void __attribute__ ((noreturn))
usage (void)
{
  test_fail ("usage: see the head of mirror-load.c");
}

/* -- Reading ------------------------------------------------------------- */

static void
open_image (const char *path)
{
  image_fd = open (path, O_RDONLY | O_CLOEXEC);
  if (image_fd == -1)
    test_fail ("%s: %m", path);
}

static void
read_image (void *buf, uint64_t size, uint64_t offset)
{
  if (pread (image_fd, buf, size, offset) != (ssize_t) size)
    test_fail ("the image cannot be read");
}

static void
read_server (void *buf, uint64_t size, uint64_t offset)
{
  load_read (nbd, buf, size, offset);
}

static void
disconnect (void)
{
  nbd_shutdown (nbd, 0);
  nbd_close (nbd);
}

/* -- What is there -------------------------------------------------------- */

static void
do_new (char **args)
{
  struct volume volume = volume_parse (args[1]);

  state = state_new (&volume, strtoull (args[2], NULL, 0),
                     strtoull (args[3], NULL, 0));
  open_image (args[0]);
  state_adopt (state, read_image);
}

static enum cause
parse_cause (const char *name)
{
  if (strcmp (name, "kill") == 0)
    return KILL;
  if (strcmp (name, "cut") == 0)
    return CUT;
  if (strcmp (name, "stop") == 0)
    return STOP;
  usage ();
}

static void
do_file (char **args)
{
  enum cause cause = parse_cause (args[1]);

  open_image (args[0]);
  printf ("%" PRIu64 "\n",
          state_judge (state, cause, read_image, cause == STOP));
}

static void
do_check (char **args)
{
  nbd = load_connect (args[0]);
  printf ("%" PRIu64 "\n",
          state_judge (state, parse_cause (args[1]), read_server, true));
  state_adopt (state, read_server);
  disconnect ();
}

/* -- Finishing ------------------------------------------------------------ */

static void
write_server (const void *buf, uint64_t offset, bool fua)
{
  if (nbd_pwrite (nbd, buf, state->volume.sector, offset,
                  fua ? LIBNBD_CMD_FLAG_FUA : 0) == -1)
    test_fail ("write: %s", nbd_get_error ());
}

/* Are entries the same, but for the high nibble? */
static bool
same_entries (const uint8_t *a, const uint8_t *b, uint64_t size)
{
  uint64_t i;

  for (i = 0; i < size; ++i)
    if (((a[i] ^ b[i]) & (i % 4 == 3 ? 0x0f : 0xff)) != 0)
      return false;
  return true;
}

static void
do_finish (char **args)
{
  uint64_t sector = state->volume.sector, nr = state->nr[FAT1], i;
  uint8_t *fat1 = test_alloc (nr * sector);
  uint8_t *mirror = test_alloc (nr * sector);
  uint8_t *pristine = test_alloc (nr * sector);

  open_image (args[1]);
  nbd = load_connect (args[0]);
  read_image (pristine, nr * sector, state_offset (state, FAT1, 0));
  read_server (fat1, nr * sector, state_offset (state, FAT1, 0));
  read_server (mirror, nr * sector, state_offset (state, MIRROR, 0));
  for (i = 0; i < nr; ++i) {
    uint8_t *bytes = fat1 + i * sector;

    if (!same_entries (bytes, pristine + i * sector, sector)) {
      memcpy (bytes, pristine + i * sector, sector);
      write_server (bytes, state_offset (state, FAT1, i), i % 2 == 0);
    }
    if (memcmp (bytes, mirror + i * sector, sector) != 0)
      write_server (bytes, state_offset (state, MIRROR, i), i % 3 == 0);
  }
  free (fat1);
  free (mirror);
  free (pristine);
  state_adopt (state, read_server);
  disconnect ();
}

/* -- The load ------------------------------------------------------------- */

static void
do_run (char **args)
{
  struct load load = {
    .state = state, .seed = strtoull (args[0], NULL, 0), .uri = args[1],
    .stop_after = UINT64_MAX,
  };

  for (args += 2; *args; ++args)
    if (strncmp (*args, "--stop=", 7) == 0)
      load.stop_after = strtoull (*args + 7, NULL, 0);
    else if (strncmp (*args, "--kill=", 7) == 0)
      load.victim = atoi (*args + 7);
    else if (strcmp (*args, "--all-durable") == 0)
      load.all_durable = true;
    else if (strcmp (*args, "--may-fail") == 0)
      load.may_fail = true;
    else
      usage ();
  printf ("%" PRIu64 "\n", load_run (&load));
}

static const struct {
  const char *name;
  int args, args_max;           /* after STATE */
  void (*fn) (char **args);
} verbs[] = {
  { "new", 4, 4, do_new },
  { "run", 2, 6, do_run },
  { "file", 2, 2, do_file },
  { "check", 2, 2, do_check },
  { "finish", 2, 2, do_finish },
};

int
main (int argc, char *argv[])
{
  unsigned i, nr = sizeof verbs / sizeof verbs[0];

  signal (SIGPIPE, SIG_IGN);
  for (i = 0; i < nr && argc > 2; ++i)
    if (strcmp (argv[1], verbs[i].name) == 0)
      break;
  if (argc < 3 || i == nr || argc - 3 < verbs[i].args ||
      argc - 3 > verbs[i].args_max)
    usage ();
  if (verbs[i].fn != do_new)
    state = state_load (argv[2]);
  verbs[i].fn (argv + 3);
  state_save (state, argv[2]);
  free (state);
  if (image_fd != -1)
    close (image_fd);
  return 0;
}
