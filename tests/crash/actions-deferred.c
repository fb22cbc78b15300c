/* SPDX-License-Identifier: BSD-3-Clause */

/* Allocations whose commit may be deferred (D9), and what refers to them: files
 * that are made and grow, in any order.
 */

#include <config.h>

#include <string.h>

#include "byteorder.h"
#include "disk-builder.h"
#include "scene.h"
#include "turns.h"

#define ENTRIES (UNIT / 4)
#define CHAIN_MAX 3
#define END_MARK 0x0fffffff
#define DATA_AFTER 16           /* sectors of data that are left alone, so that
                                   no block has a part of a FAT, too */

static bool
percent_fua (struct scene *s, unsigned percent)
{
  return s->wl->fua_percent == 100 || chance (s->wl, percent);
}

/* By the boot sector, no cluster has this number, or a later one. */
static unsigned
clusters_end (const struct scene *s)
{
  const uint8_t *boot = s->wl->oracle.live + s->v.start;
  uint64_t data = load_le32 (boot + 32) - (s->v.mirror + s->v.size -
                                           s->v.start) / UNIT;

  return (unsigned) (data / boot[13]) + 2;
}

static bool
is_free (const struct scene *s, uint32_t cluster)
{
  return (load_le32 (s->wl->oracle.live + s->v.fat1 + 4 * cluster) &
          END_MARK) == 0;
}

/* A free cluster in the scene's slot; 0 if there is none. */
static uint32_t
find_free (const struct scene *s)
{
  unsigned tries = 200;
  uint32_t cluster;

  while (tries-- > 0) {
    cluster = s->slot * ENTRIES + below (s->wl, ENTRIES);
    if (cluster >= 2 && is_free (s, cluster) &&
        (cluster < clusters_end (s) || tries < 20))
      return cluster;
  }
  return 0;
}

/* Another slot that has clusters, if possible. */
static unsigned
other_slot (const struct scene *s)
{
  unsigned nr = (unsigned) min_u64 (s->nr_slots,
                                    clusters_end (s) / ENTRIES + 1);

  return nr > 1 && chance (s->wl, 90) ? below (s->wl, nr)
    : below (s->wl, s->nr_slots);
}

static void
put_entry (uint8_t *sector, uint32_t cluster, uint32_t next)
{
  uint8_t *p = sector + 4 * (cluster % ENTRIES);

  put_le32 (p, (load_le32 (p) & ~(uint32_t) END_MARK) | next);
}

static void
send_slot (struct scene *s, unsigned slot, const uint8_t *sector, bool fua,
           unsigned twin_percent)
{
  send_write (s->wl, fat1_of (s, slot), UNIT, sector, fua);
  if (!chance (s->wl, twin_percent))
    return;
  s->wl->mirrored = slot;
  send_write (s->wl, mirror_of (s, slot), UNIT,
              s->wl->oracle.live + fat1_of (s, slot), percent_fua (s, 90));
}

/* A cluster, or a chain that ends with it: its bytes. */
static bool
make_allocation (struct scene *s, uint32_t cluster, uint8_t sector[UNIT])
{
  unsigned n = chance (s->wl, 60) ? 0 : below (s->wl, CHAIN_MAX);
  uint32_t next = cluster, before;

  if (cluster == 0)
    return false;
  memcpy (sector, s->wl->oracle.live + fat1_of (s, s->slot), UNIT);
  put_entry (sector, cluster, chance (s->wl, 80) ? END_MARK : 0x0ffffff8);
  while (n-- > 0) {
    before = find_free (s);
    if (before == 0 || load_le32 (sector + 4 * (before % ENTRIES)) & END_MARK)
      break;
    put_entry (sector, before, next);
    next = before;
  }
  s->wl->fresh = next;
  return true;
}

/* Returns the head of what is allocated; 0 if nothing is free there. */
static uint32_t
allocate (struct scene *s, uint32_t cluster)
{
  uint8_t sector[UNIT];

  if (!make_allocation (s, cluster, sector))
    return 0;
  send_slot (s, s->slot, sector, percent_fua (s, 90), 85);
  return s->wl->fresh;
}

/* A file is cut short: what was in use still is. */
static void
truncate_one (struct scene *s)
{
  uint32_t cluster = s->slot * ENTRIES + 2 + below (s->wl, ENTRIES - 2);
  uint8_t sector[UNIT];

  if (is_free (s, cluster))
    return;
  memcpy (sector, s->wl->oracle.live + fat1_of (s, s->slot), UNIT);
  put_entry (sector, cluster, END_MARK);
  send_slot (s, s->slot, sector, percent_fua (s, 90), 60);
}

/* Files are made.  The first commit arms the window, later ones may be
 * deferred.
 */
static void
act_allocate (struct scene *s)
{
  unsigned n = 1 + below (s->wl, 3);

  while (n-- > 0)
    allocate (s, find_free (s));
  if (chance (s->wl, 10))
    truncate_one (s);
}

/* A file that grows: an entry of another cluster of the slot names it. */
static void
link_from (struct scene *s, unsigned slot, uint32_t cluster)
{
  uint8_t sector[2 * UNIT];
  unsigned from = slot == 0 ? 2 + below (s->wl, ENTRIES - 2)
    : below (s->wl, ENTRIES);

  if (cluster % ENTRIES == from && slot == cluster / ENTRIES)
    from = from < ENTRIES - 1 ? from + 1 : from - 1;
  memcpy (sector, s->wl->oracle.live + fat1_of (s, slot), UNIT);
  put_entry (sector, from, cluster);
  if (slot + 1 < s->nr_slots && chance (s->wl, 35)) {   /* two sectors */
    memcpy (sector + UNIT, s->wl->oracle.live + fat1_of (s, slot + 1), UNIT);
    send_write (s->wl, fat1_of (s, slot), 2 * UNIT, sector,
                percent_fua (s, 40));
    return;
  }
  send_slot (s, slot, sector, percent_fua (s, 60), 60);
}

static void
make_dir_entry (struct scene *s, uint8_t entry[32], uint32_t cluster)
{
  memset (entry, 0, 32);
  memcpy (entry, "FILE    TXT\x20", 12);
  put_le32 (entry + 4, (uint32_t) ++s->wl->counter | 0x20202020);
  put_le16 (entry + 20, (uint16_t) (cluster >> 16));
  put_le16 (entry + 26, (uint16_t) cluster);
}

/* Where a directory could be: a sector of data. */
static uint64_t
choose_dir (struct scene *s)
{
  uint64_t start = s->v.mirror + s->v.size;
  uint64_t size = (uint64_t) (clusters_end (s) - 2) * UNIT;

  size = min_u64 (size, s->wl->machine.size - start) / UNIT;
  return size <= DATA_AFTER ? 0
    : start + UNIT * (DATA_AFTER + below (s->wl, size - DATA_AFTER));
}

static void
name_in_dir (struct scene *s, uint32_t cluster)
{
  uint64_t at = choose_dir (s);
  unsigned place = 32 * below (s->wl, UNIT / 32);
  uint8_t sector[UNIT];

  if (at == 0)
    return;
  memcpy (sector, s->wl->oracle.live + at, UNIT);
  make_dir_entry (s, sector + place, cluster);
  if (chance (s->wl, 5)) {      /* in two parts */
    put_le16 (sector + place + 26, 0);
    send_write (s->wl, at, UNIT, sector, percent_fua (s, 50));
    put_le16 (sector + place + 26, (uint16_t) cluster);
    send_write (s->wl, at + place + 26, 2, sector + place + 26,
                percent_fua (s, 50));
  }
  else if (chance (s->wl, 70))
    send_write (s->wl, at, UNIT, sector, percent_fua (s, 50));
  else
    send_write (s->wl, at + place, 32, sector + place, percent_fua (s, 50));
}

static void
refer (struct scene *s, uint32_t cluster)
{
  unsigned other = other_slot (s);

  if (cluster == 0)
    return;
  switch (below (s->wl, 5)) {
  case 0: link_from (s, s->slot, cluster); break;
  case 1: case 2: link_from (s, other, cluster); break;
  default: name_in_dir (s, cluster); break;
  }
}

/* Allocated, then linked or named: or something else comes in between. */
static void
act_allocate_and_refer (struct scene *s)
{
  uint32_t cluster = allocate (s, find_free (s));

  if (chance (s->wl, 20))
    act_data (s);
  refer (s, cluster);
}

/* The other way round. */
static void
act_refer_and_allocate (struct scene *s)
{
  uint32_t cluster = find_free (s);

  refer (s, cluster);
  if (cluster != 0 && is_free (s, cluster))
    allocate (s, cluster);
}

static void
act_refer_later (struct scene *s)
{
  s->slot = (s->wl->fresh / ENTRIES) % s->nr_slots;
  refer (s, s->wl->fresh);
}

/* So long that nothing is deferred any more, and so the power may be cut
 * without anything being lost that had been acknowledged as durable.
 */
static void
act_delay (struct scene *s)
{
  struct workload *wl = s->wl;
  int what;

  if (wl->machine.die_at != UINT64_MAX)
    return;
  turns_run_others ();
  turns_sleep (wl->options.commit_delay_ms * UINT64_C (1000000));
  if (!wl->machine.dead && !turns_is_held (&what))
    machine_mark (&wl->machine, LOG_SLEPT, 0);
}

/* More is allocated while the sync of what was is under way. */
static void
act_allocate_in_sync (struct scene *s)
{
  struct workload *wl = s->wl;
  uint32_t cluster = 0;
  int what;

  allocate (s, find_free (s));
  turns_run_others ();
  turns_hold_others (0);
  turns_sleep (wl->options.commit_delay_ms * UINT64_C (1000000));
  if (turns_is_held (&what) && what == LOG_SYNC)
    cluster = allocate (s, find_free (s));
  turns_let_go ();
  turns_run_others ();
  refer (s, cluster);
}

/* The record is cleared. */
static void
act_settle_soon (struct scene *s)
{
  allocate (s, find_free (s));
  if (mirror_settle (&s->wl->fb->mirror, false) < 0 && !s->wl->machine.dead)
    workload_fail (s->wl, "mirror_settle() fails");
}

/* A write that names a cluster is on its way while that is allocated. */
static void
act_race (struct scene *s)
{
  struct workload *wl = s->wl;
  uint8_t entry[32], sector[UNIT];
  uint32_t cluster = find_free (s);
  uint64_t at = choose_dir (s);
  struct background_write b = {
    .wl = wl, .offset = at, .length = sizeof entry, .bytes = entry,
    .at_write = true,
  };

  if (wl->machine.die_at != UINT64_MAX || at == 0 ||
      !make_allocation (s, cluster, sector))
    return;
  make_dir_entry (s, entry, wl->fresh);
  turns_run_others ();
  if (send_in_background (&b)) {
    wl->reads_wait = true;
    send_write (wl, fat1_of (s, s->slot), UNIT, sector, true);
    wl->reads_wait = false;
  }
  finish_in_background (&b);
}

static void
act_flush (struct scene *s)
{
  send_flush (s->wl);
}

static const struct action deferred_actions[] = {
  { act_allocate, 20 }, { act_allocate_and_refer, 30 },
  { act_refer_and_allocate, 12 }, { act_refer_later, 8 }, { act_delay, 8 },
  { act_settle_soon, 8 },
  { act_allocate_in_sync, 8 }, { act_race, 10 }, { act_flush, 4 }, { NULL, 0 },
};

void
act_deferred (struct scene *s)
{
  unsigned n = 2 + below (s->wl, 3);

  if (s->v.sector_size != UNIT)
    return;
  s->slot = chance (s->wl, 90) ? other_slot (s) : s->slot;
  act_allocate (s);             /* arms the window */
  while (n-- > 0 && !s->wl->failed && !s->wl->machine.dead)
    act_one_of (deferred_actions, s);
}
