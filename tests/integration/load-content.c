/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <string.h>

#include "load-client.h"

static const struct load_kind kinds[] = {
  { 50, FAT1, true, false, false },
  { 12, FAT1, false, true, false },
  { 12, FAT1, true, false, true },
  { 3, FAT1, false, false, false },     /* its mirror comes later, or never */
  { 3, MIRROR, false, false, false },   /* differs from FAT 1 */
  { 5, DIRECTORY, false, false, false },
  { 15, DATA, false, false, false },
};

const struct load_kind *
load_choose_kind (struct prng *prng)
{
  const struct load_kind *kind = kinds;
  unsigned at = prng_below (prng, 100);

  for (; at >= kind->weight; ++kind)
    at -= kind->weight;
  return kind;
}

/* Entries 0 and 1 stay. */
static void
change_nibbles (struct prng *prng, uint64_t offset, uint64_t size,
                uint8_t *buf)
{
  uint64_t i;

  for (i = offset > 0 ? 3 : 11; i < size; i += 4)
    buf[i] = (buf[i] & 0x0f) | (prng_next (prng) & 0xf0);
}

/* Up to 4 clusters, of 4 that follow each other. */
static void
allocate (struct prng *prng, uint64_t size, uint8_t *buf)
{
  unsigned at = 4 + prng_below (prng, size / 4 - 8), i;

  for (i = at * 4; i < (at + 4) * 4; i += 4)
    if (!buf[i] && !buf[i + 1] && !buf[i + 2] && !(buf[i + 3] & 0x0f)) {
      memset (buf + i, 0xff, 3);
      buf[i + 3] |= 0x0f;
    }
}

/* Entries of files: when they were made, read and written. */
static void
change_times (struct prng *prng, uint64_t size, uint8_t *buf)
{
  uint64_t i;

  for (i = 0; i < size; i += 32)
    if (buf[i] != 0) {
      prng_fill (prng, buf + i + 13, 7);
      prng_fill (prng, buf + i + 22, 4);
    }
}

void
load_change (struct prng *prng, const struct load_kind *kind,
             uint64_t offset, uint64_t size, uint8_t *buf)
{
  if (kind->allocates)
    allocate (prng, size, buf);
  else if (kind->part == DIRECTORY)
    change_times (prng, size, buf);
  else if (kind->part == DATA)
    prng_fill (prng, buf, size);
  else
    change_nibbles (prng, offset, size, buf);
}
