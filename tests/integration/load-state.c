/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load-state.h"

static const char *const part_names[] = {
  "FAT 1", "the mirror", "the directory", "data"
};

static uint64_t
hash (const uint8_t *buf, uint64_t size)        /* FNV-1a */
{
  uint64_t h = UINT64_C (0xcbf29ce484222325), i;

  for (i = 0; i < size; ++i)
    h = (h ^ buf[i]) * UINT64_C (0x100000001b3);
  return h;
}

struct sector *
state_sector (struct state *state, enum part part, uint64_t i)
{
  enum part p;

  for (p = FAT1; p < part; ++p)
    i += state->nr[p];
  return &state->sector[i];
}

uint64_t
state_offset (const struct state *state, enum part part, uint64_t i)
{
  const struct volume *v = &state->volume;

  switch (part) {
  case FAT1: return v->fat1 + i * v->sector;
  case MIRROR: return v->mirror + i * v->sector;
  case DIRECTORY: return v->data + i * v->sector;
  default: return v->data + (state->nr[DIRECTORY] + i) * v->sector;
  }
}

/* -- Sectors ------------------------------------------------------------ */

void
sector_sent (struct sector *s, const uint8_t *buf, uint64_t size,
             const struct sector *fat1)
{
  s->hash[s->nr] = hash (buf, size);
  s->equal[s->nr] = fat1 ? fat1->base + fat1->nr : 0;
  s->nr++;
}

/* The versions before it are gone for good. */
static void
drop_before (struct sector *s, unsigned version)
{
  s->nr -= version;
  s->acked -= version;
  s->base += version;
  memmove (s->hash, s->hash + version, s->nr * sizeof s->hash[0]);
  memmove (s->equal, s->equal + version, s->nr * sizeof s->equal[0]);
}

void
sector_acknowledged (struct sector *s, bool durable)
{
  s->acked = s->nr - 1;
  if (durable)
    drop_before (s, s->acked);
}

uint32_t
sector_position (const struct sector *s)
{
  return s->base + s->acked;
}

void
sector_durable (struct sector *s, uint32_t position)
{
  if (position > s->base)
    drop_before (s, position - s->base);
}

/* -- Files -------------------------------------------------------------- */

static size_t
size_of (const uint64_t nr[PARTS])
{
  return sizeof (struct state) +
    (nr[FAT1] + nr[MIRROR] + nr[DIRECTORY] + nr[DATA]) *
    sizeof (struct sector);
}

struct state *
state_new (const struct volume *v, uint64_t directory, uint64_t data)
{
  uint64_t fat = v->fat_size / v->sector;
  uint64_t nr[PARTS] = { fat, fat, directory, data };
  struct state *state = test_alloc (size_of (nr));

  state->volume = *v;
  memcpy (state->nr, nr, sizeof nr);
  if (v->sector > STATE_SECTOR_MAX ||
      state_offset (state, DATA, data) > v->end)
    test_fail ("the volume is too small");
  return state;
}

struct state *
state_load (const char *path)
{
  struct state *state, head;
  FILE *fp = fopen (path, "re");

  if (!fp || fread (&head, sizeof head, 1, fp) != 1)
    test_fail ("%s: %m", path);
  state = test_alloc (size_of (head.nr));
  rewind (fp);
  if (fread (state, size_of (head.nr), 1, fp) != 1)
    test_fail ("%s: too short", path);
  fclose (fp);
  return state;
}

void
state_save (const struct state *state, const char *path)
{
  FILE *fp = fopen (path, "we");

  if (!fp || fwrite (state, size_of (state->nr), 1, fp) != 1 ||
      fclose (fp) != 0)
    test_fail ("%s: %m", path);
}

/* -- What is there ------------------------------------------------------- */

static void
read_parts (const struct state *state, state_read_fn read,
            uint8_t *bytes[PARTS])
{
  enum part part;

  for (part = FAT1; part < PARTS; ++part) {
    uint64_t size = state->nr[part] * state->volume.sector;

    bytes[part] = test_alloc (size);
    read (bytes[part], size, state_offset (state, part, 0));
  }
}

static void
free_parts (uint8_t *bytes[PARTS])
{
  enum part part;

  for (part = FAT1; part < PARTS; ++part)
    free (bytes[part]);
}

/* The oldest one of rule 2. */
static unsigned
first_version (const struct sector *s, enum cause cause)
{
  return cause == CUT ? 0 : s->acked;
}

static bool
has_version (const struct sector *s, enum cause cause, uint64_t h)
{
  unsigned i;

  for (i = first_version (s, cause); i < s->nr; ++i)
    if (s->hash[i] == h)
      return true;
  return false;
}

/* Rule 3; h is what both have. */
static bool
may_follow_fat1 (const struct sector *s, const struct sector *fat1,
                 enum cause cause, uint64_t h)
{
  unsigned i, newest = fat1->nr;

  while (newest > 0 && fat1->hash[newest - 1] != h)
    newest--;
  for (i = first_version (s, cause); cause != STOP && i < s->nr; ++i)
    if (s->equal[i] > 0 && s->equal[i] <= fat1->base + newest)
      return true;
  return false;
}

static void
fail_sector (struct state *state, enum part part, uint64_t i, uint64_t h)
{
  const struct sector *s = state_sector (state, part, i);
  unsigned v;

  for (v = 0; v < s->nr && s->hash[v] != h; ++v)
    ;
  test_fail ("sector %" PRIu64 " of %s (byte %" PRIu64 ") has %s of %u "
             "versions, of which number 0 is durable and number %u is "
             "acknowledged%s",
             i, part_names[part], state_offset (state, part, i),
             v == s->nr ? "none" : test_printf ("number %u", v), s->nr,
             s->acked, part == MIRROR && s->equal[s->acked] > 0 ?
             ", and was equal to FAT 1" : "");
}

uint64_t
state_judge (struct state *state, enum cause cause, state_read_fn read,
             bool with_mirror)
{
  uint64_t sector = state->volume.sector, behind = 0, i, h;
  uint8_t *bytes[PARTS];
  enum part part;

  read_parts (state, read, bytes);
  for (part = FAT1; part < PARTS; ++part)
    for (i = 0; i < state->nr[part]; ++i) {
      const struct sector *s = state_sector (state, part, i);
      const uint8_t *buf = bytes[part] + i * sector;

      h = hash (buf, sector);
      if (has_version (s, cause, h))
        continue;
      behind += part == MIRROR;
      if (part != MIRROR ||
          (with_mirror &&
           (memcmp (buf, bytes[FAT1] + i * sector, sector) != 0 ||
            !may_follow_fat1 (s, state_sector (state, FAT1, i), cause, h))))
        fail_sector (state, part, i, h);
    }
  free_parts (bytes);
  return behind;
}

void
state_adopt (struct state *state, state_read_fn read)
{
  uint64_t sector = state->volume.sector, i;
  uint8_t *bytes[PARTS];
  enum part part;

  read_parts (state, read, bytes);
  for (part = FAT1; part < PARTS; ++part)
    for (i = 0; i < state->nr[part]; ++i) {
      struct sector *s = state_sector (state, part, i);
      const uint8_t *buf = bytes[part] + i * sector;

      *s = (struct sector) { .nr = 0 };
      sector_sent (s, buf, sector, part == MIRROR &&
                   memcmp (buf, bytes[FAT1] + i * sector, sector) == 0
                   ? state_sector (state, FAT1, i) : NULL);
    }
  free_parts (bytes);
}
