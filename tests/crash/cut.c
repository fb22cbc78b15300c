/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cut.h"
#include "util.h"

/* As many states of a power cut as this are all made. */
#define ALL_STATES_MAX 16

/* -- A medium: the image, or the record ---------------------------------- */

static void
medium_init (struct medium *md, size_t nr_units, const uint8_t *bytes)
{
  md->nr_units = nr_units;
  md->durable = test_alloc (nr_units * UNIT);
  md->page = test_alloc (nr_units * UNIT);
  md->units = test_alloc (nr_units * sizeof *md->units);
  md->dirty = test_alloc (nr_units * sizeof *md->dirty);
  md->nr_dirty = 0;
  if (bytes) {
    memcpy (md->durable, bytes, nr_units * UNIT);
    memcpy (md->page, bytes, nr_units * UNIT);
  }
}

static void
medium_release (struct medium *md)
{
  size_t i;

  for (i = 0; i < md->nr_units; ++i)
    free (md->units[i].writes);
  free (md->durable);
  free (md->page);
  free (md->units);
  free (md->dirty);
}

static void
medium_write_unit (struct medium *md, size_t i, size_t at,
                   const uint8_t *bytes)
{
  struct unit_pending *u = &md->units[i];

  if (u->nr == u->max) {
    u->max = 2 * u->max + 2;
    u->writes = reallocarray (u->writes, u->max, sizeof *u->writes);
    if (!u->writes)
      test_fail ("out of memory");
  }
  if (u->nr == 0)
    md->dirty[md->nr_dirty++] = i;
  u->writes[u->nr++] = (struct pending) { at, bytes };
  memcpy (md->page + i * UNIT, bytes, UNIT);
}

static void
medium_write (struct medium *md, size_t at, const struct log_entry *e)
{
  size_t first = unit_first (e->offset), i;

  for (i = first; i < unit_last (e->offset, e->length); ++i)
    medium_write_unit (md, i, at, e->bytes + (i - first) * UNIT);
}

/* What had been written before `from` is durable, unless written again. */
static void
sync_unit (struct medium *md, size_t i, size_t from)
{
  struct unit_pending *u = &md->units[i];
  unsigned n;

  for (n = 0; n < u->nr && u->writes[n].at < from; ++n)
    ;
  if (n == 0)
    return;
  memcpy (md->durable + i * UNIT, u->writes[n - 1].bytes, UNIT);
  u->nr -= n;
  memmove (u->writes, u->writes + n, u->nr * sizeof *u->writes);
}

static void
medium_sync (struct medium *md, const struct log_entry *e)
{
  size_t i, kept = 0;

  for (i = 0; i < md->nr_dirty; ++i) {
    size_t unit = md->dirty[i];

    if (unit >= unit_first (e->offset) &&
        unit < unit_last (e->offset, e->length))
      sync_unit (md, unit, e->from);
    if (md->units[unit].nr > 0)
      md->dirty[kept++] = unit;
  }
  md->nr_dirty = kept;
}

/* Start again with zeros. */
static void
medium_clear (struct medium *md)
{
  size_t i;

  for (i = 0; i < md->nr_dirty; ++i)
    md->units[md->dirty[i]].nr = 0;
  md->nr_dirty = 0;
  memset (md->durable, 0, md->nr_units * UNIT);
  memset (md->page, 0, md->nr_units * UNIT);
}

/* -- The cursor ---------------------------------------------------------- */

void
cut_init (struct cut *c, const struct machine *m, const uint8_t *image,
          const uint8_t *record, bool has_record, size_t record_size)
{
  memset (c, 0, sizeof *c);
  c->m = m;
  c->has_record = has_record;
  c->record_size = record_size;
  medium_init (&c->image, m->nr_units, image);
  medium_init (&c->record, RECORD_SIZE_MAX / UNIT, record);
}

void
cut_release (struct cut *c)
{
  medium_release (&c->image);
  medium_release (&c->record);
}

void
cut_advance (struct cut *c)
{
  const struct log_entry *e = &c->m->log[c->pos];

  switch (e->kind) {
  case LOG_WRITE:
    medium_write (&c->image, c->pos, e);
    break;
  case LOG_SYNC:
    medium_sync (&c->image, e);
    break;
  case LOG_RECORD_CREATE:
    medium_clear (&c->record);
    c->record_size = e->length;
    c->has_record = true;
    break;
  case LOG_RECORD_REMOVE:
  case LOG_RECORD_SET_ASIDE:
    medium_clear (&c->record);
    c->has_record = false;
    break;
  case LOG_RECORD_WRITE:
    medium_write (&c->record, c->pos, e);
    break;
  case LOG_RECORD_SYNC:
    medium_sync (&c->record, e);
    break;
  case LOG_BEGIN:
  case LOG_APPLIED:
  case LOG_END:
  case LOG_SLEPT:
    break;
  }
  c->pos++;
}
