/* SPDX-License-Identifier: BSD-3-Clause */

/* Scripts of requests and of what they must cause: see mirror-rig.h. */

#include <config.h>

#include <inttypes.h>

#include "mirror-rig.h"
#include "util.h"

/* The words of a request. */
struct words {
  char text[200];
  char *word[8];                /* those that are not there are "" */
};

static void
split_words (struct words *w, const char *line)
{
  char *next, *save = NULL;
  size_t i;

  CHECK (strlen (line) < sizeof w->text);
  strcpy (w->text, line);
  next = strtok_r (w->text, " ", &save);
  for (i = 0; i < 8; ++i) {
    w->word[i] = next ? next : (char *) "";
    next = next ? strtok_r (NULL, " ", &save) : NULL;
  }
  CHECK (next == NULL);
}

static bool
has_word (const struct words *w, const char *word)
{
  size_t i;

  for (i = 1; i < 8; ++i)
    if (strcmp (w->word[i], word) == 0)
      return true;
  return false;
}

#define IS(name) (strcmp (w->word[0], name) == 0)

/* -- Requests of a client ---------------------------------------------- */

/* The bytes that a request is about; the caller frees. */
static uint8_t *
contents (const struct rig *rig, const struct words *w,
          struct rig_place *place)
{
  uint8_t *buf;

  *place = rig_place (rig, w->word[1]);
  buf = calloc (1, place->length);
  CHECK (buf != NULL);
  if (w->word[2][0] != '\0')
    rig_fill (buf, place, w->word[2]);
  return buf;
}

/* What readers see once it is acknowledged.  Of two at the same time, the one
 * that was started last.
 */
static void
announce (struct rig *rig, const struct rig_place *place,
          const uint8_t *bytes)
{
  SCOPED_LOCK (&rig->lock);
  memcpy (rig->shadow + place->start, bytes, place->length);
}

static int
acknowledge (struct rig *rig, int r)
{
  SCOPED_LOCK (&rig->lock);
  rig->unsure |= r < 0;
  return r;
}

static int
do_write (struct rig *rig, const struct words *w)
{
  struct rig_place place;
  CLEANUP_FREE uint8_t *buf = contents (rig, w, &place);

  announce (rig, &place, buf);
  return acknowledge (rig, fatbatch_write (rig->fb, buf, place.length,
                                           place.start,
                                           IS ("fua") ? FATBATCH_FUA : 0));
}

static int
do_zero_or_trim (struct rig *rig, const struct words *w)
{
  struct rig_place place = rig_place (rig, w->word[1]);
  CLEANUP_FREE uint8_t *zeros = calloc (1, place.length);
  unsigned flags = (has_word (w, "fua") ? FATBATCH_FUA : 0) |
    (has_word (w, "unmap") ? FATBATCH_MAY_UNMAP : 0);
  int r;

  CHECK (zeros != NULL);
  announce (rig, &place, zeros);
  r = IS ("zero")
    ? fatbatch_zero (rig->fb, place.length, place.start, flags)
    : fatbatch_trim (rig->fb, place.length, place.start, flags);
  return acknowledge (rig, r);
}

static int
do_read (struct rig *rig, const struct words *w)
{
  struct rig_place place;
  CLEANUP_FREE uint8_t *expected = contents (rig, w, &place);
  CLEANUP_FREE uint8_t *buf = malloc (place.length);
  int r = fatbatch_read (rig->fb, buf, place.length, place.start);

  if (r == 0 && w->word[2][0] != '\0')
    CHECK (memcmp (buf, expected, place.length) == 0);
  return r;
}

static int
print_extent (void *opaque, uint64_t offset, uint64_t length, bool hole)
{
  struct rig *rig = opaque;

  (void) offset;
  oplog_add (&rig->log, "= %s %" PRIu64, hole ? "hole" : "data", length);
  return 0;
}

static int
do_extents (struct rig *rig, const struct words *w)
{
  struct rig_place place = rig_place (rig, w->word[1]);

  return fatbatch_extents (rig->fb, place.length, place.start, 0,
                           print_extent, rig);
}

static int
do_cache (struct rig *rig, const struct words *w)
{
  struct rig_place place = rig_place (rig, w->word[1]);

  return fatbatch_cache_range (rig->fb, place.length, place.start);
}

/* The boot sectors that a script may write. */
static const struct {
  const char *name;
  struct fat_spec spec;
} specs[] = {
  { "small", { 512, 1, 32, 2, 16, 256, 2, 0, 1, 6 } },
  { "moved", { 512, 1, 40, 2, 16, 256, 2, 0, 1, 6 } },
  { "one-fat", { 512, 1, 32, 1, 32, 256, 2, 0, 1, 6 } },
};

static int
do_boot (struct rig *rig, const struct words *w)
{
  struct rig_place place = rig_place (rig, "boot:0");
  uint8_t sector[512];
  size_t i;

  if (strcmp (w->word[2], "b") == 0)
    place = rig_place (rig, "b.boot:0");
  memcpy (sector, rig->shadow + place.start, 512);
  if (IS ("dirty"))
    sector[65] = w->word[1][0] - '0';
  else {
    for (i = 0; strcmp (specs[i].name, w->word[1]) != 0; ++i)
      CHECK (i + 1 < sizeof specs / sizeof specs[0]);
    build_boot_sector (sector, &specs[i].spec);
  }
  announce (rig, &place, sector);
  return acknowledge (rig, fatbatch_write (rig->fb, sector, 512, place.start,
                                           has_word (w, "fua")
                                           ? FATBATCH_FUA : 0));
}

/* -- The rest ---------------------------------------------------------- */

static int
do_open (struct rig *rig, const struct words *w)
{
  int r;

  rig->options.durability = has_word (w, "block")
    ? FATBATCH_DURABILITY_BLOCK : FATBATCH_DURABILITY_FAT;
  r = rig_start (rig, !has_word (w, "nostore"));
  if (r == 0)
    rig_adopt (rig);
  return r;
}

static int
do_image (struct rig *rig, const struct words *w)
{
  struct rig_place place;
  CLEANUP_FREE uint8_t *buf = contents (rig, w, &place);

  if (IS ("check")) {
    CHECK (memcmp (rig->bytes + place.start, buf, place.length) == 0);
    return 0;
  }
  memcpy (rig->bytes + place.start, buf, place.length);
  memcpy (rig->shadow + place.start, buf, place.length);
  rig->unsure |= rig->fb == NULL;
  return 0;
}

uint64_t
rig_stat (struct rig *rig, const char *name)
{
  struct fatbatch_stats stats;

  fatbatch_get_stats (rig->fb, &stats);
#define GET(counter, help)                                              \
  if (strcmp (name, #counter) == 0)                                     \
    return stats.counter;
  FATBATCH_COUNTERS (GET)
#undef GET
  CHECK (!"a counter");
  return 0;
}

static int
do_stat (struct rig *rig, const struct words *w)
{
  CHECK_EQ (rig_stat (rig, w->word[1]), strtoull (w->word[2], NULL, 10));
  return 0;
}

enum disk_op_kind
rig_disk_kind (const char *name)
{
  unsigned i;

  for (i = 0; strcmp (rig_kind_names[i], name) != 0; ++i)
    CHECK (i + 1 < DISK_KINDS);
  return i;
}

/* Something happens to operations of that kind from now on. */
static void
set_match (struct rig *rig, struct rig_match *matches, const char *kind_name,
           const char *place_name)
{
  struct rig_place place = rig_place (rig, place_name[0] ? place_name
                                      : "all");
  enum disk_op_kind kind = rig_disk_kind (kind_name);

  SCOPED_LOCK (&rig->lock);
  matches[kind] = (struct rig_match) {
    true, kind, place.start, place.start + place.length
  };
}

static int
do_fail (struct rig *rig, const struct words *w)
{
  static const char *const names[STORE_OPS] = {
    "read", "create", "write", "sync", "aside", "remove"
  };
  unsigned i;

  if (strcmp (w->word[1], "record") == 0) {
    for (i = 0; strcmp (names[i], w->word[2]) != 0; ++i)
      CHECK (i + 1 < STORE_OPS);
    rig->store->fail[i] = -EIO;
    return 0;
  }
  set_match (rig, rig->fail, w->word[1], w->word[2]);
  return 0;
}

static void
heal (struct rig *rig)
{
  SCOPED_LOCK (&rig->lock);
  memset (rig->fail, 0, sizeof rig->fail);
  if (rig->store)
    memset (rig->store->fail, 0, sizeof rig->store->fail);
}

/* -- Scripts ----------------------------------------------------------- */

void
rig_print_result (struct rig *rig, int r)
{
  if (r < 0)
    oplog_add (&rig->log, "= %s", strerrorname_np (-r));
}

static int
run_words (struct rig *rig, const struct words *w)
{
  int r = 0;

  if (IS ("write") || IS ("fua"))
    r = do_write (rig, w);
  else if (IS ("zero") || IS ("trim"))
    r = do_zero_or_trim (rig, w);
  else if (IS ("flush"))
    r = fatbatch_flush (rig->fb);
  else if (IS ("read"))
    r = do_read (rig, w);
  else if (IS ("extents"))
    r = do_extents (rig, w);
  else if (IS ("cache"))
    r = do_cache (rig, w);
  else if (IS ("boot") || IS ("dirty"))
    r = do_boot (rig, w);
  else if (IS ("sync"))
    r = mirror_sync (&rig->fb->mirror);
  else if (IS ("settle"))
    r = fatbatch_settle (rig->fb);
  else if (IS ("close"))
    rig_close (rig);
  else if (IS ("crash"))
    rig_crash (rig);
  else if (IS ("open"))
    r = do_open (rig, w);
  else if (IS ("image") || IS ("check"))
    r = do_image (rig, w);
  else if (IS ("stat"))
    r = do_stat (rig, w);
  else if (IS ("fail"))
    r = do_fail (rig, w);
  else if (IS ("heal"))
    heal (rig);
  else if (IS ("hold"))
    set_match (rig, rig->hold, w->word[1], w->word[2]);
  else if (IS ("after"))
    set_match (rig, rig->after, w->word[1], w->word[2]);
  else if (IS ("release"))
    rig_let_go (rig, w->word[1], w->word[2]);
  else
    CHECK (!"a request");
  return r;
}

int
rig_run_line (struct rig *rig, const char *line)
{
  struct words w;

  split_words (&w, line);
  return run_words (rig, &w);
}

void
rig_request (struct rig *rig, const char *line)
{
  oplog_add (&rig->log, "> %s", line);
  if (strncmp (line, "async ", 6) == 0) {
    rig_async (rig, line + 6);
    rig_wait_for_thread (rig);
    return;
  }
  rig_print_result (rig, rig_run_line (rig, line));
  rig_wait_for_thread (rig);
  rig_check (rig);
}

void
rig_run (struct rig *rig, const char *name, const char *script)
{
  const char *line, *end;
  char request[200];

  printf ("  %s\n", name);
  fflush (stdout);
  oplog_clear (&rig->log);
  for (line = script; (end = strchr (line, '\n')) != NULL; line = end + 1)
    if (line[0] == '>') {
      CHECK ((size_t) (end - line) < sizeof request);
      snprintf (request, sizeof request, "%.*s", (int) (end - line) - 2,
                line + 2);
      rig_request (rig, request);
    }
  oplog_expect (&rig->log, name, script);
}

/* The image ends with the last volume. */
void
rig_run_row (const struct rig_row *row)
{
  const struct rig_volume *volumes = row->volumes ? row->volumes : &rig_small;
  unsigned nr = row->nr_volumes > 0 ? row->nr_volumes : 1;
  static struct rig rig;

  rig_init (&rig, volumes[nr - 1].start +
            fat_spec_size (&volumes[nr - 1].spec), volumes, nr);
  rig.options.cache = row->cache;
  rig_open (&rig);
  rig_run (&rig, row->name, row->script);
  rig_release (&rig);
}
