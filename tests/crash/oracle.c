/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "oracle.h"
#include "util.h"

/* -- Volumes ------------------------------------------------------------- */

struct bytes {
  const uint8_t *p;
  uint64_t size;
};

static int
read_bytes (void *opaque, void *buf, size_t count, uint64_t offset)
{
  const struct bytes *bytes = opaque;

  if (offset > bytes->size || count > bytes->size - offset)
    test_fail ("layout_scan() reads outside of the image");
  memcpy (buf, bytes->p + offset, count);
  return 0;
}

unsigned
oracle_find_volumes (const uint8_t *image, uint64_t size,
                     struct layout **layout, struct mirror_volume *ret,
                     unsigned max)
{
  struct bytes bytes = { image, size };
  unsigned nr = 0;
  size_t i;

  if (layout_scan (read_bytes, &bytes, size, layout) < 0)
    test_fail ("out of memory");
  for (i = 0; i < (*layout)->nr_volumes && nr < max; ++i)
    if (mirror_volume_of (&(*layout)->volumes[i], &ret[nr]))
      nr++;
  return nr;
}

/* -- While requests run -------------------------------------------------- */

static void
add_version (struct oracle *o, size_t unit, unsigned request,
             const uint8_t *bytes)
{
  struct unit_history *u = &o->units[unit];

  if (u->nr == u->max) {
    u->max = 2 * u->max + 1;
    u->versions = reallocarray (u->versions, u->max, sizeof *u->versions);
    if (!u->versions)
      test_fail ("out of memory");
  }
  u->versions[u->nr].request = request;
  memcpy (u->versions[u->nr++].bytes, bytes, UNIT);
}

static unsigned
add_request (struct oracle *o, const struct request *r)
{
  if (o->nr_requests == o->max_requests) {
    o->max_requests = 2 * o->max_requests + 64;
    o->requests = reallocarray (o->requests, o->max_requests,
                                sizeof *o->requests);
    if (!o->requests)
      test_fail ("out of memory");
  }
  o->requests[o->nr_requests] = *r;
  o->requests[o->nr_requests].acked = false;
  return o->nr_requests++;
}

void
oracle_init (struct oracle *o, const struct machine *m, bool all_durable,
             bool no_lag, bool defers)
{
  static const struct request start = { .kind = REQ_REOPEN };
  size_t i;

  memset (o, 0, sizeof *o);
  o->size = m->size;
  o->nr_units = m->nr_units;
  o->discard_align = m->discards ? m->align : 0;
  o->all_durable = all_durable;
  o->no_lag = no_lag;
  o->defers = defers && !no_lag;
  o->units = test_alloc (o->nr_units * sizeof *o->units);
  o->live = test_alloc (o->nr_units * UNIT);
  o->acked = test_alloc (o->nr_units * UNIT);
  o->page = test_alloc (o->nr_units * UNIT);
  memcpy (o->live, m->image, o->nr_units * UNIT);
  add_request (o, &start);
  o->requests[0].acked = true;
  for (i = 0; i < o->nr_units; ++i)
    add_version (o, i, 0, m->image + i * UNIT);
}

void
oracle_release (struct oracle *o)
{
  size_t i;

  while (o->nr_volumes > 0) {
    free (o->volumes[--o->nr_volumes].slots);
    free (o->volumes[o->nr_volumes].named);
  }
  layout_free (o->layout);
  for (i = 0; i < o->nr_units; ++i)
    free (o->units[i].versions);
  free (o->units);
  free (o->requests);
  free (o->live);
  free (o->acked);
  free (o->page);
}

void
oracle_effect (const struct oracle *o, const struct request *r,
               uint64_t *start, uint64_t *end)
{
  *start = r->offset;
  *end = r->offset + r->length;
  if (r->kind == REQ_FLUSH || r->kind == REQ_REOPEN ||
      (r->kind == REQ_TRIM && o->discard_align == 0))
    *end = *start;
  else if (r->kind == REQ_TRIM) {
    *start = align_up (*start, o->discard_align);
    *end = max_u64 (*start, align_down (*end, o->discard_align));
  }
}

void
oracle_units (const struct oracle *o, const struct request *r, size_t *first,
              size_t *last)
{
  uint64_t start, end;

  oracle_effect (o, r, &start, &end);
  *first = unit_first (start);
  *last = start < end ? unit_last (start, end - start) : *first;
}

unsigned
oracle_begin (struct oracle *o, const struct request *r, const void *bytes)
{
  unsigned request = add_request (o, r);
  uint64_t start, end, from, to;
  uint8_t unit[UNIT];
  size_t i, last;

  if (o->all_durable && r->kind != REQ_REOPEN)
    o->requests[request].fua = true;
  oracle_effect (o, r, &start, &end);
  oracle_units (o, r, &i, &last);
  for (; i < last; ++i) {
    from = max_u64 (start, i * UNIT);
    to = min_u64 (end, (i + 1) * UNIT);
    memcpy (unit, o->live + i * UNIT, UNIT);
    if (r->kind == REQ_WRITE)
      memcpy (unit + from % UNIT, (const uint8_t *) bytes + (from - r->offset),
              to - from);
    else
      memset (unit + from % UNIT, 0, to - from);
    add_version (o, i, request, unit);
  }
  return request;
}

static void
read_from_now_on (struct oracle *o, unsigned request)
{
  size_t i, last;

  oracle_units (o, &o->requests[request], &i, &last);
  for (; i < last; ++i)
    memcpy (o->live + i * UNIT,
            o->units[i].versions[o->units[i].nr - 1].bytes, UNIT);
}

void
oracle_applied (struct oracle *o, unsigned request, size_t at)
{
  o->requests[request].acked = true;
  o->requests[request].end = at;
  read_from_now_on (o, request);
}

void
oracle_end (struct oracle *o, unsigned request, size_t at)
{
  if (!o->requests[request].acked)
    oracle_applied (o, request, at);
}

void
oracle_reopened (struct oracle *o, unsigned request, size_t at,
                 const uint8_t *image)
{
  size_t i;

  o->requests[request].acked = true;
  o->requests[request].end = at;
  for (i = 0; i < o->nr_units; ++i)
    if (memcmp (o->live + i * UNIT, image + i * UNIT, UNIT) != 0)
      add_version (o, i, request, image + i * UNIT);
  memcpy (o->live, image, o->nr_units * UNIT);
}
