/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <string.h>

#include "disk-builder.h"
#include "images.h"

#define SIZE_OF(spec) ((uint64_t) (spec).total_sectors * (spec).sector_size)

/* Volumes.  sector size, sectors per cluster, reserved, FATs, FAT's and all
 * sectors, root, flags, FSInfo, backup.
 */
#define SMALL { 512, 1, 8, 2, 16, 8 + 32 + 24, 2, 0, 1, 6 }
#define MORE_CLUSTERS { 512, 1, 8, 2, 16, 8 + 32 + 400, 2, 0, 1, 6 }
#define UNALIGNED { 512, 2, 7, 2, 21, 7 + 42 + 31, 2, 0, 1, 0 }
#define LONGER_FAT { 512, 1, 32, 2, 64, 32 + 128 + 40, 2, 0, 1, 6 }
#define SECTORS_4K { 4096, 1, 3, 2, 4, 3 + 8 + 5, 2, 0, 1, 0 }
#define SECTORS_1K { 1024, 1, 4, 2, 9, 4 + 18 + 12, 2, 0, 1, 0 }
/* Two windows of FAT, and three. */
#define TWO_WINDOWS { 512, 1, 9, 2, 1030, 9 + 2060 + 20, 2, 0, 1, 6 }
#define THREE_WINDOWS { 512, 1, 8, 2, 2100, 8 + 4200 + 20, 2, 0, 1, 6 }

struct image_row {
  const char *name;
  uint32_t align;
  unsigned weight;              /* of 100 */
  uint64_t extra;               /* bytes after the volumes */
  unsigned nr_volumes;          /* more than one: with an MBR */
  struct fat_spec volumes[2];
  bool large;
};

static const struct image_row rows[] = {
  { "bare volume", 1, 7, 0, 1, { SMALL }, false },
  { "bare volume, more clusters", 1, 20, 0, 1, { MORE_CLUSTERS }, false },
  { "bare volume, FATs not aligned", 1, 10, 1536, 1, { UNALIGNED }, false },
  { "bare volume, longer FATs", 1, 8, 0, 1, { LONGER_FAT }, false },
  { "disk aligned to 4096", 4096, 6, 0, 1, { SMALL }, false },
  { "disk aligned to 4096, FATs not", 4096, 8, 512, 1, { UNALIGNED }, false },
  { "disk aligned to 512, odd size", 512, 6, 1000, 1, { UNALIGNED }, false },
  { "sectors of 4096 bytes", 1, 6, 0, 1, { SECTORS_4K }, false },
  { "sectors of 4096 bytes, disk aligned", 4096, 6, 0, 1, { SECTORS_4K },
    false },
  { "sectors of 1024 bytes", 1, 4, 0, 1, { SECTORS_1K }, false },
  { "MBR, two volumes", 1, 9, 0, 2, { SMALL, UNALIGNED }, false },
  { "MBR, two volumes, disk aligned to 4096", 4096, 6, 700, 2,
    { UNALIGNED, SMALL }, false },
  { "FAT of two windows", 1, 3, 0, 1, { TWO_WINDOWS }, true },
  { "FAT of three windows", 1, 1, 0, 1, { THREE_WINDOWS }, true },
};

#define NR_ROWS (sizeof rows / sizeof rows[0])
/* Sectors in front of the first partition, and between them. */
#define GAP 4

static uint64_t
volume_start (const struct image_row *row, unsigned i)
{
  uint64_t start = row->nr_volumes > 1 ? GAP * 512 : 0;
  unsigned k;

  for (k = 0; k < i; ++k)
    start += SIZE_OF (row->volumes[k]) + GAP * 512;
  return start;
}

void
image_choose (struct image *image, struct prng *prng)
{
  unsigned n = prng_below (prng, 100), i = 0;
  const struct image_row *row;

  while (n >= rows[i].weight)
    n -= rows[i++].weight;
  row = &rows[i];
  image->row = row;
  image->name = row->name;
  image->align = row->align;
  image->large = row->large;
  image->size = volume_start (row, row->nr_volumes - 1) +
    SIZE_OF (row->volumes[row->nr_volumes - 1]) + row->extra;
}

/* -- Tables -------------------------------------------------------------- */

static void
put_partition (uint8_t sector[512], unsigned i, uint64_t start, uint64_t size)
{
  uint8_t *p = sector + 446 + 16 * i;

  p[4] = 0x0c;
  put_le32 (p + 8, (uint32_t) (start / 512));
  put_le32 (p + 12, (uint32_t) (size / 512));
  put_le16 (sector + 510, 0xaa55);
}

static void
put_mbr (const struct image_row *row, uint8_t sector[512])
{
  unsigned i;

  memset (sector, 0, 512);
  for (i = 0; i < row->nr_volumes; ++i)
    put_partition (sector, i, volume_start (row, i),
                   SIZE_OF (row->volumes[i]));
}

uint64_t
image_restore_table (const struct image *image, struct prng *prng,
                     uint8_t sector[512])
{
  const struct image_row *row = image->row;
  unsigned i = prng_below (prng, row->nr_volumes);

  if (row->nr_volumes > 1 && prng_chance (prng, 40)) {
    put_mbr (row, sector);
    return 0;
  }
  build_boot_sector (sector, &row->volumes[i]);
  return volume_start (row, i);
}

/* mkfs with other options. */
static void
change_spec (struct fat_spec *spec, struct prng *prng)
{
  switch (prng_below (prng, 6)) {
  case 0:
    spec->fat_sectors -= 1 + prng_below (prng, spec->fat_sectors / 2);
    break;
  case 1:
    spec->fat_sectors += 1 + prng_below (prng, 3);
    break;
  case 2:
    spec->reserved += 1 + prng_below (prng, 3);
    break;
  case 3:
    spec->nr_fats = 1;
    break;
  case 4:
    spec->ext_flags = 0x80;     /* no mirroring */
    break;
  default:
    spec->total_sectors -= 2;
    break;
  }
}

static void
change_mbr (uint8_t sector[512], struct prng *prng)
{
  uint8_t *p = sector + 446 + 16 * prng_below (prng, 2);

  switch (prng_below (prng, 3)) {
  case 0:
    memset (p, 0, 16);
    break;
  case 1:
    put_le32 (p + 8, load_le32 (p + 8) + 1);
    break;
  default:
    put_le32 (p + 12, load_le32 (p + 12) - 1);
    break;
  }
}

uint64_t
image_change_table (const struct image *image, struct prng *prng,
                    uint8_t sector[512])
{
  const struct image_row *row = image->row;
  unsigned i = prng_below (prng, row->nr_volumes);
  struct fat_spec spec = row->volumes[i];

  if (row->nr_volumes > 1 && prng_chance (prng, 40)) {
    put_mbr (row, sector);
    change_mbr (sector, prng);
    return 0;
  }
  if (prng_chance (prng, 70))
    change_spec (&spec, prng);
  build_boot_sector (sector, &spec);
  if (prng_chance (prng, 30))
    put_le32 (sector + 67, (uint32_t) prng_next (prng));
  else if (prng_chance (prng, 10))
    memset (sector, 0, 512);
  return volume_start (row, i);
}

uint64_t
image_format (const struct image *image, struct prng *prng,
              uint8_t sector[512], uint64_t *size)
{
  const struct image_row *row = image->row;
  unsigned i = prng_below (prng, row->nr_volumes);
  struct fat_spec spec = row->volumes[i];

  *size = SIZE_OF (spec);
  if (prng_chance (prng, 50))
    change_spec (&spec, prng);
  build_boot_sector (sector, &spec);
  put_le32 (sector + 67, (uint32_t) prng_next (prng));
  return volume_start (row, i);
}

/* -- Contents ------------------------------------------------------------ */

static void
fill_volume (const struct fat_spec *spec, struct prng *prng, uint8_t *bytes)
{
  /* Often the FATs are equal; else they are not in a few slots, or in nearly
   * all of them.
   */
  static const unsigned differ[] = { 0, 0, 15, 40, 90 };
  unsigned percent = differ[prng_below (prng, 5)], i;
  uint8_t *fat1 = bytes + (size_t) spec->reserved * spec->sector_size;
  size_t size = (size_t) spec->fat_sectors * spec->sector_size, n;

  prng_fill (prng, bytes, SIZE_OF (*spec));
  if (prng_chance (prng, 80))   /* half of the clusters are free */
    for (n = 0; n < size; n += 8)
      memset (fat1 + n, 0, 4);
  build_boot_sector (bytes, spec);
  memcpy (fat1 + size, fat1, size);
  for (i = 0; i < spec->fat_sectors; ++i)
    if (prng_chance (prng, percent))
      fat1[size + i * spec->sector_size + prng_below (prng, 512)] ^= 0x55;
}

void
image_fill (const struct image *image, struct prng *prng, uint8_t *bytes)
{
  const struct image_row *row = image->row;
  unsigned i;

  prng_fill (prng, bytes, image->size);
  if (row->nr_volumes > 1)
    put_mbr (row, bytes);
  for (i = 0; i < row->nr_volumes; ++i)
    fill_volume (&row->volumes[i], prng, bytes + volume_start (row, i));
}
