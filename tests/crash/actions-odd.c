/* SPDX-License-Identifier: BSD-3-Clause */

/* What no guest does, or few. */

#include <config.h>

#include <string.h>

#include "scene.h"

#define LONG_WRITE_MAX (96 * 1024)

/* Other bytes than FAT 1's, in some slots of several. */
void
act_mirror_differs (struct scene *s)
{
  unsigned n = clip (s, 1 + below (s->wl, 4)), i;
  uint8_t buf[4 * SLOT_MAX];
  struct workload *wl = s->wl;

  memcpy (buf, wl->oracle.live + fat1_of (s, s->slot), n * s->v.sector_size);
  for (i = 0; i < n; ++i)
    if (i == 0 || chance (wl, 40))
      make_content (s, s->slot + i, buf + i * s->v.sector_size);
  send_write (wl, mirror_of (s, s->slot), n * s->v.sector_size, buf,
              choose_fua (wl));
}

/* The mirror first, then FAT 1, then the mirror again: at the second one FAT 1
 * may be older, on the disk, than the mirror.
 */
static void
act_mirror_first (struct scene *s)
{
  uint8_t buf[SLOT_MAX];

  make_content (s, s->slot, buf);
  send_write (s->wl, mirror_of (s, s->slot), s->v.sector_size, buf,
              chance (s->wl, 70));
  send_write (s->wl, fat1_of (s, s->slot), s->v.sector_size, buf,
              chance (s->wl, 20));
  if (chance (s->wl, 80))
    copy_to_mirror (s, s->slot, 1);
}

/* What is there already: after a reconnect a client sends again what it has had
 * no reply to.
 */
static void
act_again (struct scene *s)
{
  unsigned n = clip (s, 1 + below (s->wl, 3));
  uint64_t at = chance (s->wl, 60) ? mirror_of (s, s->slot)
    : fat1_of (s, s->slot);
  uint8_t buf[3 * SLOT_MAX];

  memcpy (buf, s->wl->oracle.live + at, n * s->v.sector_size);
  send_write (s->wl, at, n * s->v.sector_size, buf, choose_fua (s->wl));
}

/* Part of a slot, or of two, in either copy; for the mirror often what FAT 1
 * has there.
 */
static void
act_partial (struct scene *s)
{
  struct workload *wl = s->wl;
  bool mirror = chance (wl, 50);
  uint64_t at = below (wl, s->v.size - 1), n = 1 + below (wl, 700);
  uint8_t buf[700];

  if (chance (wl, 70))
    at = (uint64_t) s->slot * s->v.sector_size + below (wl, s->v.sector_size);
  n = min_u64 (n, s->v.size - at);
  prng_fill (&wl->prng, buf, n);
  if (mirror && chance (wl, 60))
    memcpy (buf, wl->oracle.live + s->v.fat1 + at, n);
  send_write (wl, (mirror ? s->v.mirror : s->v.fat1) + at, n, buf,
              choose_fua (wl));
}

/* Any range around one of the FATs' borders, or all of them; bytes that are
 * there already, or others, or the volume's FATs made equal.
 */
static void
choose_long_range (struct scene *s, uint64_t *offset, uint64_t *length)
{
  const uint64_t borders[] = {
    s->v.fat1, s->v.mirror, s->v.mirror + s->v.size,
    fat1_of (s, s->slot), mirror_of (s, s->slot),
  };
  uint64_t border = borders[below (s->wl, 5)], size = s->wl->machine.size;
  uint64_t before = below (s->wl, 3000), after = 1 + below (s->wl, 6000);

  if (chance (s->wl, 60)) {
    before -= before % 512;
    after = align_up (after, 512);
  }
  *offset = border - min_u64 (border, before);
  *length = min_u64 (border + after, size) - *offset;
  if (chance (s->wl, 15)) {
    *offset = s->v.fat1;
    *length = min_u64 (2 * s->v.size, LONG_WRITE_MAX);
  }
}

static void
act_long_write (struct scene *s)
{
  static uint8_t buf[LONG_WRITE_MAX];
  struct workload *wl = s->wl;
  uint64_t offset, length, from, to;

  choose_long_range (s, &offset, &length);
  if (chance (wl, 50))
    memcpy (buf, wl->oracle.live + offset, length);
  else
    prng_fill (&wl->prng, buf, length);
  /* What is of the mirror becomes FAT 1's. */
  from = max_u64 (offset, s->v.mirror);
  to = min_u64 (offset + length, s->v.mirror + s->v.size);
  if (chance (wl, 50) && from < to)
    memcpy (buf + (from - offset),
            wl->oracle.live + s->v.fat1 + (from - s->v.mirror), to - from);
  send_write (wl, offset, length, buf, choose_fua (wl));
}

static void
act_zero_or_trim (struct scene *s)
{
  uint64_t offset, length;
  unsigned flags = choose_fua (s->wl) ? FATBATCH_FUA : 0;

  choose_long_range (s, &offset, &length);
  if (chance (s->wl, 5)) {
    offset = s->v.start;
    length = s->wl->machine.size - offset;
  }
  if (chance (s->wl, 40)) {
    send_trim (s->wl, offset, length, flags != 0);
    return;
  }
  flags |= chance (s->wl, 50) ? FATBATCH_MAY_UNMAP : 0;
  flags |= chance (s->wl, 20) ? FATBATCH_FAST : 0;
  send_zero (s->wl, offset, length, flags);
}

/* Another geometry, used at once, and later the old one again. */
static void
act_change_table (struct scene *s)
{
  struct workload *wl = s->wl;
  uint8_t sector[UNIT];
  uint64_t at = chance (wl, 60)
    ? image_change_table (&wl->image, &wl->prng, sector)
    : image_restore_table (&wl->image, &wl->prng, sector);

  if (chance (wl, 80))
    send_write (wl, at, UNIT, sector, choose_fua (wl));
  else                          /* up to behind the FATs' sizes */
    send_write (wl, at, 40, sector, choose_fua (wl));
}

/* The new volume's FATs: nothing is used but the root. */
static void
clear_fats (struct workload *wl, uint64_t start)
{
  static const uint8_t used[12] = "\xf8\xff\xff\x0f\xff\xff\xff\x0f"
                                  "\xf8\xff\xff\x0f";
  static uint8_t fat[LONG_WRITE_MAX];
  struct mirror_volume v[ORACLE_VOLUMES_MAX];
  struct layout *layout;
  unsigned nr, i;

  nr = oracle_find_volumes (wl->oracle.live, wl->machine.size, &layout, v,
                            ORACLE_VOLUMES_MAX);
  layout_free (layout);
  memcpy (fat, used, sizeof used);
  for (i = 0; i < nr; ++i)
    if (v[i].start == start) {
      uint64_t length = min_u64 (v[i].size, LONG_WRITE_MAX);

      send_write (wl, v[i].fat1, length, fat, choose_fua (wl));
      send_write (wl, v[i].mirror, length, fat, choose_fua (wl));
    }
}

static void
act_mkfs (struct scene *s)
{
  struct workload *wl = s->wl;
  uint8_t sector[UNIT];
  uint64_t size, at = image_format (&wl->image, &wl->prng, sector, &size);

  if (chance (wl, 50))
    send_trim (wl, at, size, false);
  else if (chance (wl, 50))
    send_zero (wl, at, size, FATBATCH_MAY_UNMAP);
  if (chance (wl, 50))
    clear_fats (wl, at);        /* where they have been */
  send_write (wl, at, UNIT, sector, choose_fua (wl));
  clear_fats (wl, at);
  send_flush (wl);
}

const struct action odd_actions[] = {
  { act_mirror_differs, 25 }, { act_again, 15 }, { act_mirror_first, 15 },
  { act_partial, 20 },
  { act_long_write, 14 }, { act_zero_or_trim, 12 }, { act_change_table, 14 },
  { act_mkfs, 6 }, { NULL, 0 },
};
