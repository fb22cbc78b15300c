/* SPDX-License-Identifier: BSD-3-Clause */

/* Deferred mirrors with many requests at once: nobody waits for ever, and the
 * image comes out right.  ThreadSanitizer sees to the rest.
 */

#include <config.h>

#include <inttypes.h>

#include "mirror-window.h"
#include "rig-load.h"
#include "util.h"

/* Three windows and 100 slots. */
static const struct rig_volume four_windows = {
  0, { 512, 1, 32, 2, 3172, 6500, 2, 0, 1, 6 }
};

/* -- Nobody waits for ever --------------------------------------------- */

/* The work on several windows starts while FAT 1 of the second one is stuck in
 * the disk; then somebody comes who needs all of them.
 */
static void
work_against (const char *work, const char *other)
{
  printf ("  %s, %s\n", work, other);
  fflush (stdout);
  load_init (&four_windows);
  load_open ();
  load_pair ("write", 3);
  load_pair ("write", 1027);
  load_pair ("write", 2051);
  load_request ("hold write fat1:1030");
  load_request ("async write fat1:1030 q");
  load_request ("%s", work);
  load_request ("%s", other);
  load_request ("release");
  load_release ();
}

static void
work_on_many_windows_and_who_needs_them_all (void)
{
  static const char *const works[] = { "async sync", "async settle" };
  static const char *const others[] = {
    "async read fat2", "async zero fat2:0+3000", "async write fat1:0+3000 r",
    "async write fat2:0+3000 r", "async boot moved", "async settle",
  };
  size_t i, j;

  for (i = 0; i < sizeof works / sizeof works[0]; ++i)
    for (j = 0; j < sizeof others / sizeof others[0]; ++j)
      work_against (works[i], others[j]);
}

/* -- Writes in place, and batches -------------------------------------- */

/* Is there an entry in the record's first block? */
static bool
is_armed (void)
{
  static const uint8_t empty[INTENT_BLOCK];

  return rig.record.exists &&
    memcmp (rig.record.bytes + INTENT_BLOCK, empty, INTENT_BLOCK) != 0;
}

static void
in_place_waits_for_the_batch_that_is_on_its_way (void)
{
  static const char *const others[] = {
    "async write fat2:3 x", "async write fat2@1600+100 x",
    "async zero fat2:3", "async trim fat2:0+8", "async zero fat1:3",
    "async boot moved", "async write fat1:100+3100 x",
  };
  size_t i;

  for (i = 0; i < sizeof others / sizeof others[0]; ++i) {
    printf ("  %s\n", others[i]);
    fflush (stdout);
    load_init (&four_windows);
    load_open ();
    load_pair ("fua", 3);
    load_request ("hold write fat2:3");
    load_request ("async sync");
    load_request ("%s", others[i]);
    CHECK (is_armed ());        /* rule 5 */
    load_request ("release");
    CHECK (!rig.unsure);
    rig.quick = false;
    rig_check (&rig);
    load_release ();
  }
}

/* Likewise, though nothing has to be drained for bytes that are FAT 1's. */
static void
equal_bytes_wait_for_the_batch_that_is_on_its_way (void)
{
  unsigned held;

  load_init (&rig_small);
  load_open ();
  load_request ("image fat2:4 x");      /* not in the record: so in place */
  load_pair ("fua", 3);
  load_request ("write fat1:3+2 ab");
  load_request ("hold write fat2:3");
  load_request ("async sync");
  load_request ("async write fat2:3+2 ab");
  pthread_mutex_lock (&rig.lock);
  held = rig.held;
  pthread_mutex_unlock (&rig.lock);
  CHECK_EQ (held, 1);
  load_request ("release");
  load_request ("check fat2:3+2 ab");
  load_release ();
}

/* A batch that starts when the new bytes are in the image already, but nobody
 * has been told, must not bring the old ones there.
 */
static void
no_batch_starts_during_a_write_in_place (void)
{
  load_init (&rig_small);
  load_open ();
  load_request ("image fat2:4 x");      /* not in the record: so in place */
  load_pair ("fua", 3);
  load_request ("write fat1:3+2 ab");
  load_request ("after write fat2:4");
  load_request ("async write fat2:3+2 ab");
  load_request ("async sync");
  load_request ("release");
  load_request ("check fat2:3+2 ab");
  load_request ("read fat2:3+2 ab");
  load_release ();
}

/* -- Everything at once ------------------------------------------------ */

#define WRITERS 3
#define ROUNDS 400

static atomic_uint writers_left;

/* A write that is applied to the shadow, too. */
static void
write_place (const char *name, const char *letters, bool fua)
{
  struct rig_place place = rig_place (&rig, name);
  CLEANUP_FREE uint8_t *buf = malloc (place.length);

  rig_fill (buf, &place, letters);
  memcpy (rig.shadow + place.start, buf, place.length);
  CHECK_EQ (fatbatch_write (rig.fb, buf, place.length, place.start,
                            fua ? FATBATCH_FUA : 0), 0);
}

static void
check_place (const char *name)
{
  struct rig_place place = rig_place (&rig, name);
  CLEANUP_FREE uint8_t *buf = malloc (place.length);

  CHECK_EQ (fatbatch_read (rig.fb, buf, place.length, place.start), 0);
  CHECK (memcmp (buf, rig.shadow + place.start, place.length) == 0);
}

/* A writer has every third slot for itself, in the middle of each window. */
static void *
write_often (void *opaque)
{
  unsigned id = (uintptr_t) opaque, seed = id + 1, i;

  for (i = 0; i < ROUNDS; ++i) {
    unsigned slot = rand_r (&seed) % 3 * 1024 + 300 +
      rand_r (&seed) % 30 * 3 + id;
    char letter[2] = { 'a' + rand_r (&seed) % 26 };
    char fat1[30], fat2[30];

    snprintf (fat1, sizeof fat1, "fat1:%u", slot);
    snprintf (fat2, sizeof fat2, "fat2:%u", slot);
    write_place (fat1, letter, rand_r (&seed) % 4 == 0);
    check_place (fat2);
    if (rand_r (&seed) % 8 == 0)
      continue;                 /* no mirror write this time */
    if (rand_r (&seed) % 50 == 0)
      letter[0] = 'A';          /* or a different one */
    write_place (fat2, letter, rand_r (&seed) % 4 == 0);
    check_place (fat2);
  }
  atomic_fetch_sub (&writers_left, 1);
  return NULL;
}

/* Requests over the edges of windows: these slots are nobody else's. */
static void
span_windows (unsigned *seed)
{
  char letter[2] = { 'a' + rand_r (seed) % 3 };
  unsigned window = 1 + rand_r (seed) % 2;
  char fat1[30], fat2[30];

  snprintf (fat1, sizeof fat1, "fat1:%u+100", window * 1024 - 50);
  snprintf (fat2, sizeof fat2, "fat2:%u+100", window * 1024 - 50);
  switch (rand_r (seed) % 4) {
  case 0:
    write_place (fat1, letter, false);
    break;
  case 1:
    write_place (fat2, letter, rand_r (seed) % 2 == 0);
    break;
  case 2:
    write_place (fat1, letter, false);
    write_place (fat2, letter, rand_r (seed) % 2 == 0);
    break;
  default:
    load_request ("zero %s", rand_r (seed) % 2 ? fat1 : fat2);
  }
  check_place (fat2);
}

static void
write_boot (unsigned *seed)
{
  uint8_t sector[512];

  memcpy (sector, rig.shadow, 512);
  sector[65] ^= 1;              /* the dirty bit */
  if (rand_r (seed) % 10 == 0)
    sector[67] ^= 1;            /* another volume, as far as we know */
  memcpy (rig.shadow, sector, 512);
  CHECK_EQ (fatbatch_write (rig.fb, sector, 512, 0, 0), 0);
}

static int
see_extent (void *opaque, uint64_t offset, uint64_t length, bool hole)
{
  (void) opaque, (void) offset, (void) hole;
  CHECK (length > 0);
  return 0;
}

static void *
disturb (void *opaque)
{
  struct rig_place fat2 = rig_place (&rig, "fat2");
  CLEANUP_FREE uint8_t *buf = malloc (fat2.length);
  unsigned seed = 99;

  (void) opaque;
  while (atomic_load (&writers_left) > 0)
    switch (rand_r (&seed) % 7) {
    case 0:
      CHECK_EQ (mirror_sync (&rig.fb->mirror), 0);
      break;
    case 1:
      CHECK_EQ (fatbatch_settle (rig.fb), 0);
      break;
    case 2:
      CHECK_EQ (fatbatch_read (rig.fb, buf, fat2.length, fat2.start), 0);
      break;
    case 3:
      CHECK_EQ (fatbatch_flush (rig.fb), 0);
      break;
    case 4:
      CHECK_EQ (fatbatch_extents (rig.fb, fat2.length, fat2.start, 0,
                                  see_extent, NULL), 0);
      break;
    case 5:
      write_boot (&seed);
      break;
    default:
      span_windows (&seed);
    }
  return NULL;
}

static void
writers_readers_and_the_background_at_once (void)
{
  pthread_t threads[WRITERS + 1];
  uintptr_t i;

  load_init (&four_windows);
  rig.options.mirror_delay_ms = 1;
  load_open ();
  atomic_store (&writers_left, WRITERS);
  for (i = 0; i < WRITERS + 1; ++i)
    CHECK_EQ (pthread_create (&threads[i], NULL,
                              i < WRITERS ? write_often : disturb,
                              (void *) i), 0);
  for (i = 0; i < WRITERS + 1; ++i)
    CHECK_EQ (pthread_join (threads[i], NULL), 0);
  printf ("  %" PRIu64 " deferred, %" PRIu64 " diverged, %" PRIu64
          " batches\n", rig_stat (&rig, "mirrors_deferred"),
          rig_stat (&rig, "mirrors_diverged"), rig_stat (&rig, "mirror_batches"));
  CHECK (rig_stat (&rig, "mirrors_deferred") > 0);
  load_release ();
}

int
main (void)
{
  alarm (300);
  RUN (in_place_waits_for_the_batch_that_is_on_its_way);
  RUN (equal_bytes_wait_for_the_batch_that_is_on_its_way);
  RUN (no_batch_starts_during_a_write_in_place);
  RUN (writers_readers_and_the_background_at_once);
  RUN (work_on_many_windows_and_who_needs_them_all);
  return EXIT_SUCCESS;
}
