/* SPDX-License-Identifier: BSD-3-Clause */

/* The oracle's judgement, at a cut.  The rules are in oracle.h. */

#include <config.h>

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "oracle.h"

static bool
is_in_flight (const struct oracle *o, unsigned request)
{
  unsigned i;

  for (i = 0; i < o->nr_flight; ++i)
    if (o->flight[i] == request)
      return true;
  return false;
}

/* Is one of a unit's versions, from number `from` on, what the image has?
 * Between the first and the newest acknowledged one there may be such that were
 * lost with a server that was killed.
 */
static bool
has_version (const struct oracle *o, size_t i, unsigned from,
             const uint8_t *image)
{
  const struct unit_history *u = &o->units[i];
  unsigned n;

  for (n = from; n < u->nr; ++n) {
    unsigned request = u->versions[n].request;

    if ((n <= u->acked ? o->requests[request].acked
         : is_in_flight (o, request)) &&
        memcmp (image + i * UNIT, u->versions[n].bytes, UNIT) == 0)
      return true;
  }
  return false;
}

/* Rule 3. */
static bool
may_lag (const struct oracle *o, const struct oracle_volume *v, unsigned i,
         const uint8_t *image)
{
  uint64_t at = (uint64_t) i * v->fat.sector_size;
  size_t first = unit_first (v->fat.fat1 + at), k;
  const struct slot *slot = &v->slots[i];

  if (!slot->may_lag || o->no_lag ||
      memcmp (image + v->fat.fat1 + at, image + v->fat.mirror + at,
              v->fat.sector_size) != 0)
    return false;
  for (k = first; k < first + v->fat.sector_size / UNIT; ++k) {
    const struct unit_history *u = &o->units[k];
    unsigned n = u->acked;

    while (!o->requests[u->versions[n].request].acked ||
           o->requests[u->versions[n].request].end > slot->first_equal)
      n--;                      /* version 0 is from the beginning */
    if (n > u->durable && n <= u->deferred)
      n = u->durable;           /* rule 4 */
    if (!has_version (o, k, n, image))
      return false;
  }
  return true;
}

/* The slot of which a unit is part of the mirror; NULL if of none. */
static const struct oracle_volume *
find_mirror (const struct oracle *o, size_t unit, unsigned *slot)
{
  uint64_t at = (uint64_t) unit * UNIT;
  const struct oracle_volume *v;

  for (v = o->volumes; v < o->volumes + o->nr_volumes; ++v)
    if (at >= v->fat.mirror && at - v->fat.mirror < v->fat.size) {
      *slot = (at - v->fat.mirror) / v->fat.sector_size;
      return v;
    }
  return NULL;
}

static void
explain (const struct oracle *o, size_t unit, const uint8_t *image,
         bool killed, char *why, size_t why_size)
{
  const struct unit_history *u = &o->units[unit];
  unsigned slot = 0, n, is = UINT_MAX;
  const struct oracle_volume *v = find_mirror (o, unit, &slot);

  for (n = 0; n < u->nr && is == UINT_MAX; ++n)
    if (memcmp (image + unit * UNIT, u->versions[n].bytes, UNIT) == 0)
      is = u->versions[n].request;
  n = snprintf (why, why_size, "unit %zu (byte %zu) ", unit, unit * UNIT);
  if (is != UINT_MAX)
    n += snprintf (why + n, why_size - n, "has the bytes of request %u", is);
  else
    n += snprintf (why + n, why_size - n, "has bytes that no request wrote");
  n += snprintf (why + n, why_size - n, "; %s is request %u",
                 killed ? "acknowledged" : "durable",
                 u->versions[killed ? u->acked : u->durable].request);
  if (v)
    snprintf (why + n, why_size - n, "; mirror slot %u, %s", slot,
              v->slots[slot].may_lag ? "which was equal to FAT 1"
              : "which was not equal to FAT 1");
}

bool
oracle_allows (const struct oracle *o, const uint8_t *image, bool killed,
               char *why, size_t why_size)
{
  const struct oracle_volume *v;
  unsigned slot;
  size_t i;

  for (i = 0; i < o->nr_units; ++i) {
    const struct unit_history *u = &o->units[i];

    if (i % 8 == 0 && i + 8 <= o->nr_units &&
        memcmp (image + i * UNIT, o->acked + i * UNIT, 8 * UNIT) == 0) {
      i += 7;
      continue;
    }
    if (has_version (o, i, killed ? u->acked : u->durable, image))
      continue;
    v = find_mirror (o, i, &slot);
    if (v && may_lag (o, v, slot, image))
      continue;
    explain (o, i, image, killed, why, why_size);
    return false;
  }
  return killed || !oracle_mirror_is_ahead (o, image, why, why_size);
}
