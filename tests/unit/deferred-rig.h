/* SPDX-License-Identifier: BSD-3-Clause */

/* Scripts of mirror-rig.h, with requests about entries of FATs, for tests of
 * deferred commits (D9):
 *
 *   fat write|fua S ENTRY=VALUE...  sector S of FAT 1, with these entries and
 *                               otherwise as it was.  VALUE: "end", "free", the
 *                               number of an entry of the same sector, or S:N
 *                               of another one; after "^" all bits are set in
 *                               its high nibble
 *   mirror write|fua S          the same sector of FAT 2, with FAT 1's bytes
 *   name write|fua PLACE BYTE S:N [free|deleted|label]  zeros, but for a
 *                               directory entry at that byte whose first cluster
 *                               is that of entry N in sector S
 *   link write|fua PLACE BYTE S:N  zeros, but for a FAT's entry at that byte
 *
 * Commits are deferred for longer than a test takes.
 */

#ifndef FATBATCH_TESTS_DEFERRED_RIG_H
#define FATBATCH_TESTS_DEFERRED_RIG_H

#include <unistd.h>

#include "mirror-lines.h"
#include "mirror-rig.h"
#include "util.h"

#define FOREVER 3600000         /* ms */
#define END_MARK UINT32_C (0x0fffffff)

/* FATs of 16 sectors, and as many clusters as they have entries. */
static const struct rig_volume deferred_volume = {
  0, { 512, 1, 32, 2, 16, 64 + 2046, 2, 0, 1, 6 }
};

/* All of FAT 1 has been committed since the server was started, and slot 3's
 * mirror was written so that the window is armed: all slots are recorded.
 */
#define ARMED                                                           \
  "> fua fat1:0+16 .\n"                                                 \
  "  read fat1:0+16\n"                                                  \
  "  read fat2:0+16\n"                                                  \
  "  write fat1:0+16\n"                                                 \
  "  sync boot:0..fat1:15\n"                                            \
  "  record create\n"                                                   \
  "  record write 0\n"                                                  \
  "  record sync\n"                                                     \
  "> fua fat2:3 .\n"                                                    \
  "  record write 1\n"                                                  \
  "  record sync\n"                                                     \
  "> sync\n"                                                            \
  "  write fat2:3\n"                                                    \
  "  sync fat2:3\n"

/* An item: cluster 4:5. */
#define DEFER_4_5                                                       \
  "> fat fua 4 5=end\n"                                                 \
  "  write fat1:4\n"

/* Is there none that may still be an item?  Then naming it costs nothing. */
#define NAME_4_5                                                        \
  "> name write data:0 0 4:5\n"

static inline uint32_t
deferred_value (const char *text, unsigned own_sector)
{
  unsigned sector, entry;

  if (text[0] == '^')
    return UINT32_C (0xf0000000) | deferred_value (text + 1, own_sector);
  if (strcmp (text, "end") == 0)
    return END_MARK;
  if (strcmp (text, "free") == 0)
    return 0;
  if (sscanf (text, "%u:%u", &sector, &entry) == 2)
    return sector * 128 + entry;
  return own_sector * 128 + (unsigned) strtoul (text, NULL, 10);
}

/* A write, which readers see from its start on. */
static inline int
deferred_write (struct rig *rig, const char *kind, const uint8_t *bytes,
                const struct rig_place *place)
{
  int r;

  {
    SCOPED_LOCK (&rig->lock);
    memcpy (rig->shadow + place->start, bytes, place->length);
  }
  r = fatbatch_write (rig->fb, bytes, place->length, place->start,
                      strcmp (kind, "fua") == 0 ? FATBATCH_FUA : 0);
  if (r < 0) {
    SCOPED_LOCK (&rig->lock);
    rig->unsure = true;
  }
  return r;
}

static inline struct rig_place
deferred_slot (const struct rig *rig, const char *fat, unsigned sector)
{
  char text[40];

  snprintf (text, sizeof text, "%s:%u", fat, sector);
  return rig_place (rig, text);
}

/* A directory entry, or what looks like one. */
static inline void
deferred_put_name (uint8_t *slot, uint32_t cluster, const char *state)
{
  memcpy (slot, "NAME       ", 11);
  put_le16 (slot + 20, (uint16_t) (cluster >> 16));
  put_le16 (slot + 26, (uint16_t) cluster);
  if (state && strcmp (state, "free") == 0)
    slot[0] = 0;
  else if (state && strcmp (state, "deleted") == 0)
    slot[0] = 0xe5;
  else if (state)
    slot[11] = 0x08;
}

/* `words`: of the request, what it is and all that follows. */
static inline int
deferred_run (struct rig *rig, char *words)
{
  char *save = NULL, *what = strtok_r (words, " ", &save);
  char *kind = strtok_r (NULL, " ", &save);
  char *where = strtok_r (NULL, " ", &save), *word;
  unsigned sector = (unsigned) strtoul (where, NULL, 10);
  CLEANUP_FREE uint8_t *buf = NULL;
  struct rig_place place;

  if (strcmp (what, "name") == 0 || strcmp (what, "link") == 0) {
    uint32_t cluster;
    size_t at;

    place = rig_place (rig, where);
    buf = calloc (1, place.length);
    CHECK (buf != NULL);
    at = strtoul (strtok_r (NULL, " ", &save), NULL, 10);
    cluster = deferred_value (strtok_r (NULL, " ", &save), 0);
    CHECK (at + 32 <= place.length);
    if (what[0] == 'l')
      put_le32 (buf + at, cluster);
    else
      deferred_put_name (buf + at, cluster, strtok_r (NULL, " ", &save));
    return deferred_write (rig, kind, buf, &place);
  }

  place = deferred_slot (rig, "fat1", sector);
  buf = malloc (place.length);
  CHECK (buf != NULL);
  {
    SCOPED_LOCK (&rig->lock);
    memcpy (buf, rig->shadow + place.start, place.length);
  }
  if (strcmp (what, "mirror") == 0)
    place = deferred_slot (rig, "fat2", sector);
  while ((word = strtok_r (NULL, " ", &save)) != NULL) {
    char *value = strchr (word, '=');

    CHECK (value != NULL);
    *value++ = '\0';
    put_le32 (buf + 4 * strtoul (word, NULL, 10),
              deferred_value (value, sector));
  }
  return deferred_write (rig, kind, buf, &place);
}

static inline bool
deferred_is_request (const char *line)
{
  return strncmp (line, "fat ", 4) == 0 ||
    strncmp (line, "mirror ", 7) == 0 || strncmp (line, "name ", 5) == 0 ||
    strncmp (line, "link ", 5) == 0;
}

/* As rig_request(). */
static inline void __attribute__ ((format (printf, 2, 3)))
deferred_request (struct rig *rig, const char *fmt, ...)
{
  char line[200];
  va_list args;

  va_start (args, fmt);
  vsnprintf (line, sizeof line, fmt, args);
  va_end (args);
  if (!deferred_is_request (line)) {
    rig_request (rig, line);
    return;
  }
  oplog_add (&rig->log, "> %s", line);
  rig_print_result (rig, deferred_run (rig, line));
  rig_wait_for_thread (rig);
  rig_check (rig);
}

/* As rig_run(). */
static inline void
deferred_script (struct rig *rig, const char *name, const char *script)
{
  const char *line, *end;

  printf ("  %s\n", name);
  fflush (stdout);
  oplog_clear (&rig->log);
  for (line = script; (end = strchr (line, '\n')) != NULL; line = end + 1)
    if (line[0] == '>')
      deferred_request (rig, "%.*s", (int) (end - line) - 2, line + 2);
  oplog_expect (&rig->log, name, script);
}

/* The rows of a table of scripts. */
struct deferred_row {
  const char *name;
  const char *script;
  enum fatbatch_cache cache;
  const struct rig_volume *volumes;     /* NULL: the one above */
  unsigned nr_volumes;          /* 0: 1 */
};

static inline void
deferred_run_rows (struct rig *rig, const struct deferred_row *rows,
                   size_t nr)
{
  size_t i;

  for (i = 0; i < nr; ++i) {
    const struct rig_volume *volumes = rows[i].volumes ? rows[i].volumes
      : &deferred_volume;
    unsigned n = rows[i].nr_volumes > 0 ? rows[i].nr_volumes : 1;

    rig_init (rig, volumes[n - 1].start +
              fat_spec_size (&volumes[n - 1].spec), volumes, n);
    rig->options.cache = rows[i].cache;
    rig->options.commit_delay_ms = FOREVER;
    rig_open (rig);
    deferred_script (rig, rows[i].name, rows[i].script);
    rig_release (rig);
  }
}

#define DEFERRED_RUN_ROWS(rig, rows)                                    \
  deferred_run_rows (rig, rows, sizeof (rows) / sizeof (rows)[0])

/* The same with this volume, and nothing is checked behind the server's back. */
static inline void
deferred_open (struct rig *rig, const struct rig_volume *volume,
               uint32_t delay_ms)
{
  unsigned nr = volume->spec.fat_sectors, i;

  rig_init (rig, fat_spec_size (&volume->spec), volume, 1);
  rig->options.commit_delay_ms = delay_ms;
  rig->quick = true;
  rig_open (rig);
  for (i = 0; i < nr; i += 64)
    deferred_request (rig, "fua fat1:%u+%u .", i, nr - i < 64 ? nr - i : 64);
  deferred_request (rig, "fua fat2:3 .");
  deferred_request (rig, "sync");
  oplog_clear (&rig->log);
}

/* How many items there are. */
static inline unsigned
deferred_count (struct rig *rig)
{
  return atomic_load (&rig->fb->deferred.nr);
}

#endif /* FATBATCH_TESTS_DEFERRED_RIG_H */
