/* SPDX-License-Identifier: BSD-3-Clause */

/* What a workload does, at random; here what guests do. */

#include <config.h>

#include <string.h>

#include "scene.h"

void
make_content (const struct scene *s, unsigned slot, uint8_t buf[SLOT_MAX])
{
  struct workload *wl = s->wl;
  const uint8_t *live = wl->oracle.live;
  unsigned entries = 1 + below (wl, 3);
  size_t size = s->v.sector_size;

  memcpy (buf, live + fat1_of (s, slot), size);
  switch (below (wl, 20)) {
  case 0:
    memcpy (buf, live + mirror_of (s, slot), size);
    return;
  case 1:
    memcpy (buf, wl->last, UNIT);
    return;
  case 2:
    memset (buf, 0, size);
    return;
  }
  while (entries-- > 0) {
    uint32_t entry = (uint32_t) ++wl->counter;

    memcpy (buf + 4 * below (wl, size / 4), &entry, sizeof entry);
  }
  if (chance (wl, 30))
    memcpy (wl->last, buf, UNIT);
}

void
write_fat1 (const struct scene *s, unsigned slot)
{
  uint8_t buf[SLOT_MAX];

  make_content (s, slot, buf);
  send_write (s->wl, fat1_of (s, slot), s->v.sector_size, buf,
              choose_fua (s->wl));
}

void
copy_to_mirror (const struct scene *s, unsigned slot, unsigned n)
{
  uint8_t buf[BATCH_MAX * SLOT_MAX];

  s->wl->mirrored = slot;
  memcpy (buf, s->wl->oracle.live + fat1_of (s, slot), n * s->v.sector_size);
  send_write (s->wl, mirror_of (s, slot), n * s->v.sector_size, buf,
              choose_fua (s->wl));
}

/* The stream of a synchronous mount: FAT 1, the mirror, mostly the same
 * sector.
 */
void
act_pairs (struct scene *s)
{
  unsigned n = 1 + below (s->wl, 4);

  while (n-- > 0) {
    write_fat1 (s, s->slot);
    copy_to_mirror (s, s->slot, 1);
    if (chance (s->wl, 25))
      s->slot = choose_slot (s);
  }
}

/* Several sectors of FAT 1, then of the mirror, each by itself or together. */
static void
act_batch (struct scene *s)
{
  unsigned n = clip (s, 2 + below (s->wl, BATCH_MAX - 1)), i;
  uint8_t buf[BATCH_MAX * SLOT_MAX];
  bool together = chance (s->wl, 40);

  if (chance (s->wl, 40)) {
    for (i = 0; i < n; ++i)
      make_content (s, s->slot + i, buf + i * s->v.sector_size);
    send_write (s->wl, fat1_of (s, s->slot), n * s->v.sector_size, buf,
                choose_fua (s->wl));
  }
  else
    for (i = 0; i < n; ++i)
      write_fat1 (s, s->slot + i);
  if (together)
    copy_to_mirror (s, s->slot, n);
  else
    for (i = 0; i < n; ++i)
      copy_to_mirror (s, s->slot + i, 1);
}

void
act_fat1_only (struct scene *s)
{
  write_fat1 (s, s->slot);
}

void
act_mirror_only (struct scene *s)
{
  copy_to_mirror (s, s->slot, clip (s, 1 + below (s->wl, 3)));
}

static bool
is_equal (const struct scene *s, unsigned slot)
{
  const uint8_t *live = s->wl->oracle.live;

  return memcmp (live + fat1_of (s, slot), live + mirror_of (s, slot),
                 s->v.sector_size) == 0;
}

/* The mirror of more slots than of the one that was written to, if possible of
 * one that did not equal FAT 1, and so can't be deferred yet.
 */
void
act_neighbours (struct scene *s)
{
  write_fat1 (s, s->slot);
  if (s->slot > 0 && (!is_equal (s, s->slot - 1) || chance (s->wl, 30)))
    s->slot--;
  copy_to_mirror (s, s->slot, clip (s, 2 + below (s->wl, 2)));
}

void
act_data (struct scene *s)
{
  uint64_t start = s->v.mirror + s->v.size;
  uint64_t size = s->wl->machine.size, offset, length;
  uint8_t buf[4096];

  if (start >= size)
    return;
  offset = start + below (s->wl, size - start);
  length = min_u64 (size - offset, 1 + below (s->wl, sizeof buf));
  if (chance (s->wl, 60)) {
    offset -= offset % 512;
    length = min_u64 (size - offset, align_up (length, 512));
  }
  length = min_u64 (length, sizeof buf);
  prng_fill (&s->wl->prng, buf, length);
  send_write (s->wl, offset, length, buf, choose_fua (s->wl));
}

/* A mount: the same geometry. */
static void
act_dirty_bit (struct scene *s)
{
  uint8_t sector[UNIT];

  memcpy (sector, s->wl->oracle.live + s->v.start, UNIT);
  sector[65] ^= 1;
  if (chance (s->wl, 70))
    send_write (s->wl, s->v.start, UNIT, sector, choose_fua (s->wl));
  else
    send_write (s->wl, s->v.start + 65, 1, sector + 65, choose_fua (s->wl));
}

static void
act_fsinfo (struct scene *s)
{
  uint8_t sector[UNIT];
  uint32_t n = (uint32_t) ++s->wl->counter;

  memcpy (sector, s->wl->oracle.live + s->v.start + s->v.sector_size, UNIT);
  memcpy (sector + 488, &n, sizeof n);
  send_write (s->wl, s->v.start + s->v.sector_size, UNIT, sector,
              choose_fua (s->wl));
}

static void
act_flush (struct scene *s)
{
  send_flush (s->wl);
}

/* -- All of them --------------------------------------------------------- */

static const struct action guest_actions[] = {
  { act_pairs, 40 }, { act_batch, 14 }, { act_fat1_only, 6 },
  { act_mirror_only, 3 }, { act_neighbours, 3 }, { act_data, 5 },
  { act_dirty_bit, 2 }, { act_fsinfo, 2 }, { act_flush, 6 }, { NULL, 0 },
};

void
act_one_of (const struct action *table, struct scene *s)
{
  unsigned sum = 0, n;
  size_t i;

  for (i = 0; table[i].weight > 0; ++i)
    sum += table[i].weight;
  n = below (s->wl, sum);
  for (i = 0; n >= table[i].weight; ++i)
    n -= table[i].weight;
  table[i].fn (s);
}

/* Slots near the ends of FATs and windows are among the favourites, and slots
 * beside each other.
 */
void
actions_init (struct workload *wl)
{
  static const unsigned borders[] = { 0, 1, 1023, 1024, 2047, 2048, 15, 20 };
  unsigned i;

  for (i = 0; i < 4; ++i)
    if (i > 0 && chance (wl, 40))
      wl->hot[i] = wl->hot[i - 1] + 1;
    else
      wl->hot[i] = chance (wl, 50) ? borders[below (wl, 8)]
        : below (wl, 65536);
}

/* No volume has a mirror: most often there is one again. */
static void
act_without_volume (struct workload *wl)
{
  struct scene s = { .wl = wl };
  uint8_t sector[UNIT];
  uint64_t at;

  if (chance (wl, 30)) {
    act_data (&s);
    return;
  }
  at = image_restore_table (&wl->image, &wl->prng, sector);
  send_write (wl, at, UNIT, sector, choose_fua (wl));
}

void
act (struct workload *wl)
{
  struct mirror_volume volumes[ORACLE_VOLUMES_MAX];
  struct scene s = { .wl = wl };
  struct layout *layout;
  unsigned nr;

  nr = oracle_find_volumes (wl->oracle.live, wl->machine.size, &layout,
                            volumes, ORACLE_VOLUMES_MAX);
  layout_free (layout);
  if (nr == 0)
    act_without_volume (wl);
  else {
    s.v = volumes[below (wl, nr)];
    s.nr_slots = s.v.size / s.v.sector_size;
    s.slot = choose_slot (&s);
    if (wl->options.commit_delay_ms > 0 && chance (wl, 40))
      act_deferred (&s);
    else if (chance (wl, wl->disorder))
      act_one_of (odd_actions, &s);
    else if (chance (wl, 25))
      act_one_of (server_actions, &s);
    else
      act_one_of (guest_actions, &s);
  }
  if (wl->machine.dead && !wl->failed) {
    kill_server (wl);
    start_server (wl);
  }
}
