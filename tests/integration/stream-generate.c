/* SPDX-License-Identifier: BSD-3-Clause */

/* What mirror-stream sends: mostly what a guest does, and all that it might do
 * instead.  Nothing in a batch overlaps, so its order has no meaning.
 */

#include <config.h>

#include <string.h>

#include "stream.h"

#define BEHIND_MAX 64

/* Slots whose mirror the guest has not written yet. */
struct behind {
  const struct volume *volume;
  uint64_t slot;
};

static struct behind behind[BEHIND_MAX];
static size_t nr_behind;

static uint64_t
below (uint64_t n)
{
  return prng_below (&stream.prng, n);
}

static bool
chance (unsigned percent)
{
  return prng_chance (&stream.prng, percent);
}

/* -- Requests ------------------------------------------------------------ */

static bool
is_free (uint64_t at, uint64_t n)
{
  size_t i;

  for (i = 0; i < stream.nr_batch; ++i)
    if (at < stream.batch[i].offset + stream.batch[i].length &&
        stream.batch[i].offset < at + n)
      return false;
  return true;
}

static struct request *
add_request (enum request_kind kind, uint64_t at, uint64_t n)
{
  struct request *r;

  if (stream.nr_batch == STREAM_DEPTH || n == 0 || n > STREAM_LENGTH_MAX ||
      at >= stream.size || n > stream.size - at || !is_free (at, n))
    return NULL;
  r = &stream.batch[stream.nr_batch++];
  r->kind = kind;
  r->offset = at;
  r->length = n;
  r->flags = kind != REQUEST_READ && kind != REQUEST_EXTENTS &&
    chance (50) ? REQUEST_FUA : 0;
  return r;
}

/* A write of data[]: the array has it at once, since nothing else in the batch
 * touches those bytes.
 */
static bool
add_write (uint64_t at, uint64_t n, const uint8_t *data)
{
  struct request *r = add_request (REQUEST_WRITE, at, n);

  if (!r)
    return false;
  memcpy (r->buf, data, n);
  memcpy (stream.bytes + at, data, n);
  return true;
}

/* What the guest wants to be there, from a random change of what is there. */
static const uint8_t *
some_entries (uint64_t at, uint64_t n)
{
  static uint8_t buf[STREAM_LENGTH_MAX];
  unsigned i, changes = 1 + below (8);

  memcpy (buf, stream.bytes + at, n);
  for (i = 0; i < changes; ++i)
    prng_fill (&stream.prng, buf + below (n / 4) * 4, 4);
  return buf;
}

static const uint8_t *
random_bytes (uint64_t n)
{
  static uint8_t buf[STREAM_LENGTH_MAX];

  prng_fill (&stream.prng, buf, n);
  return buf;
}

static const struct volume *
some_volume (void)
{
  return &stream.volumes[below (stream.nr_volumes)];
}

/* Most in two places, of which one goes across the border of windows (at half
 * a MiB), where there is one; others anywhere.
 */
static uint64_t
some_slot (const struct volume *v, uint64_t nr)
{
  uint64_t slots = v->fat_size / v->sector, border = 512 * 1024 / v->sector;
  uint64_t slot;

  if (nr >= slots)
    return 0;
  switch (below (5)) {
  case 0: slot = below (slots); break;
  case 1: case 2: slot = below (64); break;
  default: slot = border - 32 + below (64); break;
  }
  return slot < slots - nr ? slot : below (slots - nr + 1);
}

static uint64_t
some_slots (const struct volume *v)
{
  uint64_t nr = chance (70) ? 1 : 1 + below (8);

  return nr < v->fat_size / v->sector ? nr : 1;
}

static void
remember_behind (const struct volume *v, uint64_t slot)
{
  size_t i = nr_behind < BEHIND_MAX ? nr_behind++
    : below (BEHIND_MAX);

  behind[i] = (struct behind) { .volume = v, .slot = slot };
}

static void
gen_fat1 (const struct volume *v)
{
  uint64_t nr = some_slots (v), slot = some_slot (v, nr), i;
  uint64_t at = v->fat1 + slot * v->sector, n = nr * v->sector;

  if (is_free (at, n) && add_write (at, n, some_entries (at, n)))
    for (i = 0; i < nr; ++i)
      remember_behind (v, slot + i);
}

static void
copy_slots (const struct volume *v, uint64_t slot, uint64_t nr)
{
  uint64_t at = slot * v->sector;

  if (slot + nr <= v->fat_size / v->sector)
    add_write (v->mirror + at, nr * v->sector, stream.bytes + v->fat1 + at);
}

/* What follows in a guest; the order may be another one. */
static void
gen_mirror (const struct volume *v)
{
  struct behind b;
  size_t i;

  (void) v;
  if (nr_behind == 0)
    return;
  i = below (nr_behind);
  b = behind[i];
  behind[i] = behind[--nr_behind];
  copy_slots (b.volume, b.slot, chance (80) ? 1
              : some_slots (b.volume));
}

static void
gen_mirror_anywhere (const struct volume *v)
{
  uint64_t nr = some_slots (v);

  copy_slots (v, some_slot (v, nr), nr);
}

/* What it has already, equal to FAT 1's or not. */
static void
gen_mirror_again (const struct volume *v)
{
  uint64_t nr = some_slots (v), at = some_slot (v, nr) * v->sector;

  add_write (v->mirror + at, nr * v->sector, stream.bytes + v->mirror + at);
}

static void
gen_mirror_differs (const struct volume *v)
{
  uint64_t nr = some_slots (v), slot = some_slot (v, nr);
  uint64_t n = nr * v->sector;

  add_write (v->mirror + slot * v->sector, n, random_bytes (n));
}

static void
gen_part (const struct volume *v)
{
  uint64_t at = some_slot (v, 8) * v->sector + below (2048);
  uint64_t n = 1 + below (1500);

  if (at + n > v->fat_size)
    return;
  switch (below (3)) {
  case 0: add_write (v->fat1 + at, n, random_bytes (n)); break;
  case 1: add_write (v->mirror + at, n, random_bytes (n)); break;
  default: add_write (v->mirror + at, n, stream.bytes + v->fat1 + at); break;
  }
}

static void
gen_large (const struct volume *v)
{
  uint64_t slots = v->fat_size / v->sector, n = STREAM_LENGTH_MAX / v->sector;
  uint64_t nr = 1 + below (n < slots ? n : slots);
  uint64_t slot = below (slots - nr + 1);

  if (chance (70))
    copy_slots (v, slot, nr);
  else
    add_write (v->fat1 + slot * v->sector, nr * v->sector,
               some_entries (v->fat1 + slot * v->sector, nr * v->sector));
}

/* Over the border of two regions: FAT 1 and the mirror, and others. */
static void
gen_across (const struct volume *v)
{
  uint64_t borders[] = { v->mirror, v->mirror, v->fat1, v->data };
  uint64_t border = borders[below (4)];
  uint64_t unit = chance (70) ? v->sector : 1;
  uint64_t at = border - (1 + below (8)) * unit;
  uint64_t n = border - at + (1 + below (8)) * unit;

  /* The boot sector is not to be hit by chance. */
  if (at >= v->start + 2 * v->sector)
    add_write (at, n, chance (50) ? random_bytes (n)
               : stream.bytes + at);
}

static void
gen_zero (const struct volume *v)
{
  uint64_t at = (chance (60) ? v->mirror : v->fat1) +
    some_slot (v, 16) * v->sector;
  uint64_t n = v->sector * (1 + below (12));
  struct request *r = at + n <= v->end
    ? add_request (REQUEST_ZERO, at, n) : NULL;

  if (!r)
    return;
  if (chance (50))
    r->flags |= REQUEST_NO_HOLE;
  memset (stream.bytes + at, 0, n);
}

static void
gen_trim (const struct volume *v)
{
  uint64_t at = (chance (60) ? v->mirror : v->fat1) +
    some_slot (v, 16) * v->sector;
  uint64_t n = 4096 * (1 + below (3));

  at = (at + 4095) / 4096 * 4096;
  if (at + n <= v->end && add_request (REQUEST_TRIM, at, n))
    memset (stream.bytes + at, 0, n);
}

static void
gen_data (const struct volume *v)
{
  uint64_t n = chance (70) ? v->sector
    : 1 + below (65536);
  uint64_t end = v->end - v->data > STREAM_DATA_MAX
    ? v->data + STREAM_DATA_MAX : v->end;
  uint64_t at = v->data + below ((end - v->data) / 512) * 512;

  if (at + n <= end)
    add_write (at, n, random_bytes (n));
}

/* Each of these undoes itself when it comes again. */
static void
gen_boot (const struct volume *v)
{
  static const struct { unsigned at; uint8_t change; } changes[] = {
    { 65, 1 }, { 65, 1 }, { 65, 1 },    /* the dirty bit */
    { 40, 0x80 },                       /* BPB_ExtFlags: no mirroring */
    { 510, 0xff },                      /* no boot sector */
    { 16, 3 },                          /* NumFATs: 2 and 1 */
  };
  uint8_t sector[4096];
  unsigned i = below (6);

  if (!stream.boot)
    return;
  memcpy (sector, stream.bytes + v->start, v->sector);
  sector[changes[i].at] ^= changes[i].change;
  add_write (v->start, v->sector, sector);
}

static void
gen_flush (const struct volume *v)
{
  struct request *r = &stream.batch[stream.nr_batch];

  (void) v;
  if (stream.nr_batch == STREAM_DEPTH)
    return;
  stream.nr_batch++;
  r->kind = REQUEST_FLUSH;
  r->flags = 0;
  r->offset = r->length = 0;
}

static void
gen_read (const struct volume *v)
{
  uint64_t starts[] = { v->mirror, v->mirror, v->fat1, v->data };
  uint64_t at = starts[below (4)] + some_slot (v, 8) * v->sector;
  uint64_t n = v->sector * (1 + below (64));

  if (chance (20)) {
    at += below (v->sector);
    n = 1 + below (n);
  }
  add_request (chance (80) ? REQUEST_READ : REQUEST_EXTENTS, at,
               n);
}

static const struct {
  unsigned weight;
  void (*generate) (const struct volume *v);
} generators[] = {
  { 300, gen_fat1 },
  { 300, gen_mirror },
  { 40, gen_mirror_anywhere },
  { 20, gen_mirror_again },
  { 20, gen_mirror_differs },
  { 30, gen_part },
  { 10, gen_large },
  { 10, gen_across },
  { 15, gen_zero },
  { 10, gen_trim },
  { 60, gen_data },
  { 5, gen_boot },
  { 20, gen_flush },
  { 160, gen_read },
};

void
stream_generate (void)
{
  unsigned wanted = 1 + below (STREAM_DEPTH), i, k, at;

  stream.nr_batch = 0;
  for (i = 0; i < 2 * STREAM_DEPTH && stream.nr_batch < wanted; ++i) {
    at = below (1000);
    for (k = 0; at >= generators[k].weight; ++k)
      at -= generators[k].weight;
    generators[k].generate (some_volume ());
  }
}
