/* SPDX-License-Identifier: BSD-3-Clause */

/* Places in an image, and what is written there, as text: see mirror-rig.h. */

#include <config.h>

#include <inttypes.h>

#include "mirror-rig.h"
#include "util.h"

const struct rig_volume rig_small = {
  0, { 512, 1, 32, 2, 16, 256, 2, 0, 1, 6 }
};
const struct rig_volume rig_two[RIG_VOLUMES] = {
  { 196608, { 512, 1, 32, 2, 16, 256, 2, 0, 1, 6 } },
  { 524288, { 512, 1, 32, 2, 16, 256, 2, 0, 1, 6 } },
};

static const char *const region_names[RIG_REGIONS] = {
  "boot", "fat1", "fat2", "data"
};

void
rig_region (const struct rig_volume *volume, unsigned region,
              uint64_t *start, uint64_t *end)
{
  const struct fat_spec *spec = &volume->spec;
  const uint64_t edge[RIG_REGIONS + 1] = {
    0, spec->reserved, spec->reserved + (uint64_t) spec->fat_sectors,
    spec->reserved + (uint64_t) spec->nr_fats * spec->fat_sectors,
    spec->total_sectors
  };

  *start = volume->start + edge[region] * spec->sector_size;
  *end = volume->start + edge[region + 1] * spec->sector_size;
}

struct rig_place
rig_place (const struct rig *rig, const char *text)
{
  struct rig_place place = { .sector = 512 };
  const struct rig_volume *volume = &rig->volume[0];
  uint64_t end, first, count = 1;
  unsigned region;
  char unit;

  if (strcmp (text, "all") == 0) {
    place.length = rig->size;
    return place;
  }
  if (strncmp (text, "disk", 4) == 0) {
    CHECK (sscanf (text + 4, ":%" SCNu64 "+%" SCNu64, &first, &count) >= 1);
    place.start = first * 512;
    place.length = count * 512;
    return place;
  }
  if (text[1] == '.') {
    volume = &rig->volume[text[0] - 'a'];
    text += 2;
  }
  for (region = 0; region < RIG_REGIONS; ++region)
    if (strncmp (text, region_names[region], 4) == 0)
      break;
  CHECK (region < RIG_REGIONS);
  rig_region (volume, region, &place.base, &end);
  place.sector = volume->spec.sector_size;
  if (text[4] == '\0') {
    place.start = place.base;
    place.length = end - place.base;
    return place;
  }
  CHECK (sscanf (text + 4, "%c%" SCNu64 "+%" SCNu64, &unit, &first,
                 &count) >= 2);
  place.start = place.base + (unit == ':' ? first * place.sector : first);
  place.length = unit == ':' ? count * place.sector : count;
  return place;
}

/* The region of a byte, and its sector there.  False: none, or it is not a
 * sector's first.
 */
static bool
find_sector (const struct rig *rig, uint64_t pos, char *buf, size_t size,
             uint64_t *region_end)
{
  uint64_t start;
  unsigned v, region;

  for (v = 0; v < rig->nr_volumes; ++v)
    for (region = 0; region < RIG_REGIONS; ++region) {
      rig_region (&rig->volume[v], region, &start, region_end);
      if (pos < start || pos >= *region_end)
        continue;
      pos -= start;
      snprintf (buf, size, "%s%s:%" PRIu64, v > 0 ? "b." : "",
                region_names[region],
                pos / rig->volume[v].spec.sector_size);
      return pos % rig->volume[v].spec.sector_size == 0;
    }
  return false;
}

/* The other way round: "fat1:3", "fat1:3+2", or from one region to another
 * "fat1:3..fat2:4" (the last sector), or bytes.
 */
void
rig_print_place (const struct rig *rig, uint64_t offset, uint64_t length,
                 char *buf, size_t size)
{
  const uint32_t sector = rig->nr_volumes > 0
    ? rig->volume[0].spec.sector_size : 512;
  uint64_t end, last_end;
  char first[30], last[30];

  snprintf (buf, size, "@%" PRIu64 "+%" PRIu64, offset, length);
  if (length % sector != 0 ||
      !find_sector (rig, offset, first, sizeof first, &end) ||
      !find_sector (rig, offset + length - sector, last, sizeof last,
                    &last_end))
    return;
  if (end != last_end)
    snprintf (buf, size, "%s..%s", first, last);
  else if (length > sector)
    snprintf (buf, size, "%s+%" PRIu64, first, length / sector);
  else
    snprintf (buf, size, "%s", first);
}

void
rig_fill (uint8_t *buf, const struct rig_place *place, const char *letters)
{
  const uint64_t at = place->start - place->base;
  const uint64_t first = at / place->sector;
  const size_t nr = strlen (letters);
  uint64_t i;

  for (i = 0; i < place->length; ++i) {
    uint64_t sector = (at + i) / place->sector;
    uint64_t n = min_u64 (sector - first, nr - 1);
    const uint8_t bytes[4] = {
      letters[n], sector & 0xff, sector >> 8,
      (at + i) % place->sector / 4 & 0xff
    };

    buf[i] = letters[n] == '.' ? 0 : bytes[(at + i) % 4];
  }
}
