/* SPDX-License-Identifier: BSD-3-Clause */

/* The oracle, cut by cut: which versions of units are acknowledged and durable,
 * and which slots may lag.  The rules are in oracle.h.
 */

#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "oracle.h"
#include "util.h"

/* -- Slots, cut by cut --------------------------------------------------- */

static bool
slot_is_equal (const struct oracle *o, const struct oracle_volume *v,
               unsigned i)
{
  uint64_t at = (uint64_t) i * v->fat.sector_size;

  return memcmp (o->acked + v->fat.fat1 + at, o->acked + v->fat.mirror + at,
                 v->fat.sector_size) == 0;
}

/* The layout may have changed: if it has, all slots begin anew. */
static void
look_for_volumes (struct oracle *o, size_t at)
{
  struct mirror_volume found[ORACLE_VOLUMES_MAX];
  struct layout *layout;
  unsigned nr, i, k;

  nr = oracle_find_volumes (o->acked, o->size, &layout, found,
                            ORACLE_VOLUMES_MAX);
  if (o->layout && layout_equal (o->layout, layout)) {
    layout_free (layout);
    return;
  }
  layout_free (o->layout);
  o->layout = layout;
  while (o->nr_volumes > 0) {
    free (o->volumes[--o->nr_volumes].slots);
    free (o->volumes[o->nr_volumes].named);
  }
  oracle_end_deferring (o);
  for (i = 0; i < nr; ++i) {
    struct oracle_volume *v = &o->volumes[i];

    v->fat = found[i];
    v->nr_slots = found[i].size / found[i].sector_size;
    v->slots = test_alloc (v->nr_slots * sizeof *v->slots);
    for (k = 0; k < v->nr_slots; ++k)
      v->slots[k] = (struct slot) { slot_is_equal (o, v, k), at, at };
    oracle_look_at_clusters (o, v);
  }
  o->nr_volumes = nr;
}

static bool
is_written (const struct oracle *o, const struct request *r, uint64_t start,
            uint64_t length)
{
  uint64_t from, to;

  oracle_effect (o, r, &from, &to);
  return from < start + length && start < to;
}

static bool
is_covered (const struct request *r, uint64_t start, uint64_t length)
{
  return align_down (r->offset, UNIT) <= start &&
    align_up (r->offset + r->length, UNIT) >= start + length;
}

/* A request that touches a slot was acknowledged: rules 3a and 3b. */
static void
update_slot (const struct oracle *o, const struct oracle_volume *v, unsigned i,
             const struct request *r, bool mirror, bool durable)
{
  struct slot *slot = &v->slots[i];
  bool equal = slot_is_equal (o, v, i);

  if (mirror && !equal)
    slot->may_lag = false;
  else if (equal && (mirror || !slot->may_lag)) {
    slot->last_equal = r->end;
    if (!slot->may_lag || durable)
      slot->first_equal = r->end;
    slot->may_lag = true;
  }
}

static void
update_slots (struct oracle *o, const struct request *r)
{
  const struct oracle_volume *v;
  uint64_t size, fat1, mirror;
  unsigned i;

  for (v = o->volumes; v < o->volumes + o->nr_volumes; ++v) {
    size = v->fat.sector_size;
    for (i = 0; i < v->nr_slots; ++i) {
      fat1 = v->fat.fat1 + i * size;
      mirror = v->fat.mirror + i * size;
      if (is_written (o, r, mirror, size))
        update_slot (o, v, i, r, true, r->fua && is_covered (r, mirror, size));
      else if (is_written (o, r, fat1, size))
        update_slot (o, v, i, r, false, false);
    }
  }
}

/* Did the request, the newest one, change one of the units? */
static bool
has_changed (const struct oracle *o, unsigned request, uint64_t start,
             uint64_t length)
{
  size_t i;

  for (i = unit_first (start); i < unit_last (start, length); ++i)
    if (o->units[i].versions[o->units[i].acked].request == request)
      return true;
  return false;
}

/* Recovery has brought mirrors to what FAT 1 is, and a request that had not
 * been replied to may have turned out to be there.
 */
static void
update_recovered_slots (struct oracle *o, unsigned request)
{
  const struct oracle_volume *v;
  uint64_t at;
  unsigned i;

  for (v = o->volumes; v < o->volumes + o->nr_volumes; ++v)
    for (i = 0; i < v->nr_slots; ++i) {
      at = v->fat.mirror + (uint64_t) i * v->fat.sector_size;
      update_slot (o, v, i, &o->requests[request],
                   has_changed (o, request, at, v->fat.sector_size), false);
    }
}

/* -- The cursor ---------------------------------------------------------- */

void
oracle_rewind (struct oracle *o)
{
  size_t i;

  for (i = 0; i < o->nr_units; ++i) {
    o->units[i].acked = o->units[i].durable = o->units[i].deferred = 0;
    memcpy (o->acked + i * UNIT, o->units[i].versions[0].bytes, UNIT);
    memcpy (o->page + i * UNIT, o->units[i].versions[0].bytes, UNIT);
  }
  o->nr_flight = 0;
  layout_free (o->layout);
  o->layout = NULL;
  look_for_volumes (o, 0);
}

/* The request's version, if it has one here.  A newer one may have been
 * acknowledged since this one was applied.
 */
static void
acknowledge_unit (struct oracle *o, size_t i, unsigned request, bool durable)
{
  struct unit_history *u = &o->units[i];
  unsigned n = u->nr - 1;

  while (n > 0 && u->versions[n].request > request)
    n--;
  if (u->versions[n].request != request)
    return;
  if (durable && u->durable < n)
    u->durable = n;
  if (u->acked < n) {
    u->acked = n;
    memcpy (o->acked + i * UNIT, u->versions[n].bytes, UNIT);
  }
}

static void
acknowledge_flush (struct oracle *o)
{
  struct oracle_volume *v;
  unsigned k;
  size_t i;

  for (i = 0; i < o->nr_units; ++i)
    o->units[i].durable = o->units[i].acked;
  for (v = o->volumes; v < o->volumes + o->nr_volumes; ++v)
    for (k = 0; k < v->nr_slots; ++k)
      v->slots[k].first_equal = v->slots[k].last_equal;
}

/* durable: and it is that from now on. */
static void
acknowledge (struct oracle *o, unsigned request, bool durable)
{
  const struct request *r = &o->requests[request];
  bool reopen = r->kind == REQ_REOPEN;
  uint64_t start, end;
  size_t i, last;

  if (durable && oracle_defer (o, request))
    durable = false;
  if (reopen) {
    oracle_end_deferring (o);
    oracle_forget_names (o);
  }
  if (r->kind == REQ_FLUSH) {
    acknowledge_flush (o);
    return;
  }
  oracle_units (o, r, &i, &last);
  for (last = reopen ? o->nr_units : last; i < last; ++i)
    acknowledge_unit (o, i, request, durable);
  oracle_effect (o, r, &start, &end);
  if (reopen || layout_watches (o->layout, start, end))
    look_for_volumes (o, r->end);
  if (reopen)
    update_recovered_slots (o, request);
  else
    update_slots (o, r);
}

/* Who was in flight when a server was killed is lost. */
static void
land (struct oracle *o, unsigned request)
{
  unsigned i, kept = 0;

  for (i = 0; i < o->nr_flight; ++i)
    if (o->flight[i] != request && o->requests[request].kind != REQ_REOPEN)
      o->flight[kept++] = o->flight[i];
  o->nr_flight = kept;
}

void
oracle_advance (struct oracle *o, const struct log_entry *e)
{
  if (e->kind == LOG_WRITE)
    oracle_written (o, e);
  else if (e->kind == LOG_SLEPT)
    oracle_end_deferring (o);
  else if (e->kind == LOG_BEGIN) {
    if (o->nr_flight == 2)
      test_fail ("three requests in flight");
    o->flight[o->nr_flight++] = e->request;
  }
  else if (e->kind == LOG_APPLIED)
    acknowledge (o, e->request, false);
  else if (e->kind == LOG_END) {
    acknowledge (o, e->request, o->requests[e->request].fua);
    land (o, e->request);
  }
}
