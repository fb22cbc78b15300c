/* SPDX-License-Identifier: BSD-3-Clause */

/* The oracle: allocations whose commit may be deferred (D9).  The rules are in
 * oracle.h.
 */

#include <config.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "byteorder.h"
#include "oracle.h"
#include "util.h"

#define ENTRIES (UNIT / 4)      /* of a sector of a FAT */
#define CLUSTER 0x0fffffff      /* bits of an entry */
#define END_MARK 0x0ffffff8     /* this and more */
#define DIR_ENTRY 32            /* bytes */

/* -- Volumes -------------------------------------------------------------- */

void
oracle_look_at_clusters (const struct oracle *o, struct oracle_volume *v)
{
  size_t i;

  for (i = 0; i < o->layout->nr_volumes; ++i)
    if (o->layout->volumes[i].start == v->fat.start) {
      v->root = o->layout->volumes[i].bpb.root_cluster;
      v->clusters_end = o->layout->volumes[i].bpb.nr_clusters + 2;
    }
  v->named = test_alloc (v->clusters_end + 1);
  memset (v->named, 0, v->clusters_end + 1);
}

void
oracle_forget_names (struct oracle *o)
{
  unsigned i;

  for (i = 0; i < o->nr_volumes; ++i)
    memset (o->volumes[i].named, 0, o->volumes[i].clusters_end + 1);
}

static struct oracle_volume *
find_fat1 (struct oracle *o, uint64_t offset)
{
  struct oracle_volume *v;

  for (v = o->volumes; v < o->volumes + o->nr_volumes; ++v)
    if (v->fat.sector_size == UNIT && offset >= v->fat.fat1 &&
        offset - v->fat.fat1 < v->fat.size)
      return v;
  return NULL;
}

/* The volume in whose clusters, or behind them, these bytes are. */
static struct oracle_volume *
find_data (struct oracle *o, uint64_t offset)
{
  struct oracle_volume *v, *last = NULL;

  for (v = o->volumes; v < o->volumes + o->nr_volumes; ++v)
    if (v->fat.start <= offset && (!last || last->fat.start < v->fat.start))
      last = v;
  return last && offset >= last->fat.mirror + last->fat.size ? last : NULL;
}

/* -- Items ---------------------------------------------------------------- */

static bool
is_pending (const struct unit_history *u)
{
  return u->deferred > u->durable;
}

void
oracle_end_deferring (struct oracle *o)
{
  size_t i;

  for (i = 0; o->defers && i < o->nr_units; ++i)
    o->units[i].durable = (unsigned) max_u64 (o->units[i].durable,
                                              o->units[i].deferred);
}

/* The n-th entry of a sector. */
static uint32_t
entry_at (const uint8_t *sector, uint32_t n)
{
  return load_le32 (sector + 4 * n);
}

/* Something is in the image that refers to a cluster. */
static void
refer (struct oracle *o, struct oracle_volume *v, uint32_t cluster)
{
  struct unit_history *u;
  size_t unit = v->fat.fat1 / UNIT + cluster / ENTRIES;
  uint32_t n = cluster % ENTRIES;

  if (cluster < 2 || cluster >= v->clusters_end)
    return;
  v->named[cluster] = 1;
  if (cluster / ENTRIES >= v->fat.size / UNIT)
    return;
  u = &o->units[unit];
  if (is_pending (u) &&
      (entry_at (u->versions[u->durable].bytes, n) & CLUSTER) == 0 &&
      (entry_at (u->versions[u->deferred].bytes, n) & CLUSTER) != 0)
    u->durable = u->deferred;
}

/* -- What is written ------------------------------------------------------- */

static void
look_at_links (struct oracle *o, struct oracle_volume *v, uint64_t offset,
               const uint8_t *before, const uint8_t *after)
{
  uint64_t sector = (offset - v->fat.fat1) / UNIT;
  uint32_t n, next;

  for (n = 0; n < ENTRIES; ++n) {
    next = entry_at (after, n) & CLUSTER;
    if (entry_at (before, n) != entry_at (after, n) &&
        next / ENTRIES != sector)
      refer (o, v, next);
  }
}

static void
look_at_dir_entries (struct oracle *o, struct oracle_volume *v,
                     const uint8_t *before, const uint8_t *after)
{
  size_t i;

  for (i = 0; i < UNIT; i += DIR_ENTRY) {
    const uint8_t *p = after + i;

    if (memcmp (before + i, p, DIR_ENTRY) != 0 && p[0] != 0 &&
        p[0] != 0xe5 && !(p[11] & 8))
      refer (o, v, (uint32_t) load_le16 (p + 20) << 16 | load_le16 (p + 26));
  }
}

void
oracle_written (struct oracle *o, const struct log_entry *e)
{
  const uint8_t *after = e->bytes;
  struct oracle_volume *v;
  size_t i;

  if (!o->defers)
    return;
  for (i = unit_first (e->offset); i < unit_last (e->offset, e->length);
       ++i, after += UNIT) {
    uint8_t *before = o->page + i * UNIT;

    if ((v = find_fat1 (o, i * UNIT)) != NULL)
      look_at_links (o, v, i * UNIT, before, after);
    else if ((v = find_data (o, i * UNIT)) != NULL)
      look_at_dir_entries (o, v, before, after);
    memcpy (before, after, UNIT);
  }
}

/* -- What is acknowledged --------------------------------------------------- */

/* Rule 4a. */
static bool
only_allocates (const struct oracle_volume *v, uint64_t offset,
                const uint8_t *before, const uint8_t *after)
{
  uint32_t first = (uint32_t) ((offset - v->fat.fat1) / 4), n;
  bool any = false;

  for (n = 0; n < ENTRIES; ++n) {
    uint32_t old = entry_at (before, n), new = entry_at (after, n);
    uint32_t next = new & CLUSTER, k = next - first;
    bool takes = old != new;
    bool names = k < ENTRIES && entry_at (before, k) != entry_at (after, k);

    if (takes && ((old & CLUSTER) != 0 || (old ^ new) > CLUSTER ||
                  first + n < 2 || (next < END_MARK && !names)))
      return false;
    if (!takes && names)
      return false;
    if (takes && first + n < v->clusters_end &&
        (v->named[first + n] || first + n == v->root))
      return false;
    any |= takes;
  }
  return any;
}

bool
oracle_defer (struct oracle *o, unsigned request)
{
  const struct request *r = &o->requests[request];
  struct oracle_volume *v;
  struct unit_history *u;
  size_t unit = r->offset / UNIT;
  unsigned n;

  if (!o->defers || r->kind != REQ_WRITE || r->length != UNIT ||
      r->offset % UNIT != 0 || (v = find_fat1 (o, r->offset)) == NULL)
    return false;
  u = &o->units[unit];
  for (n = u->nr - 1; u->versions[n].request != request; --n)
    ;
  if (n <= u->acked || !only_allocates (v, r->offset, o->acked + r->offset,
                                        u->versions[n].bytes))
    return false;
  if (!(is_pending (u) && u->deferred == u->acked))
    u->durable = (unsigned) max_u64 (u->durable, u->acked);
  u->deferred = n;
  return true;
}

/* -- Judgement -------------------------------------------------------------- */

static bool
is_unit (const uint8_t *a, const struct version *v)
{
  return memcmp (a, v->bytes, UNIT) == 0;
}

/* Rule 4d: the mirror's unit m has what the write of version n of FAT 1's u
 * was repeated with, and the image's FAT 1 is older.
 */
static bool
is_ahead (const struct unit_history *u, const struct unit_history *m,
          const uint8_t *fat1, const uint8_t *mirror)
{
  unsigned n, k;

  for (n = u->durable; n <= u->deferred && !is_unit (mirror, &u->versions[n]);
       ++n)
    ;
  if (n > u->deferred || n == u->durable)
    return false;
  for (k = n; k < u->nr; ++k)
    if (is_unit (fat1, &u->versions[k]))
      return false;
  for (k = 0; k < m->nr; ++k)
    if (is_unit (mirror, &m->versions[k]) &&
        m->versions[k].request < u->versions[n].request)
      return false;
  return true;
}

bool
oracle_mirror_is_ahead (const struct oracle *o, const uint8_t *image,
                        char *why, size_t why_size)
{
  const struct oracle_volume *v;
  size_t i, fat1, mirror;

  if (!o->defers)
    return false;
  for (v = o->volumes; v < o->volumes + o->nr_volumes; ++v)
    for (i = 0; i < v->fat.size / UNIT; ++i) {
      fat1 = v->fat.fat1 / UNIT + i;
      mirror = v->fat.mirror / UNIT + i;
      if (!is_pending (&o->units[fat1]) ||
          !is_ahead (&o->units[fat1], &o->units[mirror], image + fat1 * UNIT,
                     image + mirror * UNIT))
        continue;
      snprintf (why, why_size, "D9: the mirror, unit %zu, has an allocation "
                "that FAT 1, unit %zu, has not", mirror, fat1);
      return true;
    }
  return false;
}
