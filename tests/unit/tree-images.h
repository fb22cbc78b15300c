/* SPDX-License-Identifier: BSD-3-Clause */

/* FAT32 volumes in memory, made entry by entry and slot by slot, so that they
 * may be as wrong as a test wants them.
 */

#ifndef FATBATCH_TESTS_TREE_IMAGES_H
#define FATBATCH_TESTS_TREE_IMAGES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "byteorder.h"
#include "check.h"
#include "disk-builder.h"

#define END_MARK 0x0fffffff
#define SLOT_SIZE 32
#define DELETED_SLOT 0xe5
#define IS_DIRECTORY 0x10
#define IS_FILE 0x20
#define IS_LONG_NAME 0x0f

struct image {
  uint8_t *bytes;
  uint64_t size;
  uint64_t start;               /* of the volume; bytes, as all of these */
  uint64_t fat1, fat_size, data;
  uint32_t nr_fats, cluster_size, root;
  uint32_t end;                 /* the last cluster's number, plus 1 */
};

/* A FAT32 boot sector for so many clusters. */
static inline struct fat_spec
image_spec (uint32_t clusters, unsigned sectors_per_cluster, unsigned nr_fats)
{
  uint32_t fat_sectors = ((clusters + 2) * 4 + 511) / 512;

  return (struct fat_spec) {
    .sector_size = 512, .sectors_per_cluster = (uint8_t) sectors_per_cluster,
    .reserved = 32, .nr_fats = (uint8_t) nr_fats, .fat_sectors = fat_sectors,
    .total_sectors = 32 + nr_fats * fat_sectors +
      clusters * sectors_per_cluster,
    .root_cluster = 2, .fsinfo = 1, .backup = 6,
  };
}

static inline uint32_t
image_get (const struct image *img, uint32_t n)
{
  return load_le32 (img->bytes + img->fat1 + 4 * (uint64_t) n);
}

/* In all FATs. */
static inline void
image_put (struct image *img, uint32_t n, uint32_t value)
{
  unsigned i;

  for (i = 0; i < img->nr_fats; ++i)
    put_le32 (img->bytes + img->fat1 + i * img->fat_size + 4 * (uint64_t) n,
              value);
}

/* The volume at `start` of the bytes that are there. */
static inline void
image_volume (struct image *img, uint64_t start, const struct fat_spec *spec)
{
  CHECK (start + fat_spec_size (spec) <= img->size);
  build_boot_sector (img->bytes + start, spec);
  img->start = start;
  img->fat1 = start + (uint64_t) spec->reserved * spec->sector_size;
  img->fat_size = (uint64_t) spec->fat_sectors * spec->sector_size;
  img->nr_fats = spec->nr_fats;
  img->data = img->fat1 + img->nr_fats * img->fat_size;
  img->cluster_size = spec->sectors_per_cluster * spec->sector_size;
  img->end = (spec->total_sectors - spec->reserved -
              img->nr_fats * spec->fat_sectors) / spec->sectors_per_cluster
    + 2;
  img->root = spec->root_cluster;
  image_put (img, 0, 0x0ffffff8);
  image_put (img, 1, END_MARK);
  image_put (img, img->root, END_MARK);
}

/* An image with nothing but an empty volume. */
static inline void
image_init (struct image *img, const struct fat_spec *spec)
{
  memset (img, 0, sizeof *img);
  img->size = fat_spec_size (spec);
  img->bytes = calloc (1, img->size);
  CHECK (img->bytes != NULL);
  image_volume (img, 0, spec);
}

static inline void
image_release (struct image *img)
{
  free (img->bytes);
  img->bytes = NULL;
}

static inline uint64_t
image_cluster (const struct image *img, uint32_t n)
{
  CHECK (n >= 2 && n < img->end);
  return img->data + (n - 2) * (uint64_t) img->cluster_size;
}

static inline unsigned
image_slots (const struct image *img)
{
  return img->cluster_size / SLOT_SIZE;
}

static inline uint8_t *
image_slot (const struct image *img, uint32_t n, unsigned i)
{
  CHECK (i < image_slots (img));
  return img->bytes + image_cluster (img, n) + i * SLOT_SIZE;
}

static inline void
slot_set_chain (uint8_t *slot, uint32_t first, uint32_t size)
{
  put_le16 (slot + 20, (uint16_t) (first >> 16));
  put_le16 (slot + 26, (uint16_t) first);
  put_le32 (slot + 28, size);
}

static inline void
slot_set (uint8_t *slot, const char *name, unsigned attr, uint32_t first,
          uint32_t size)
{
  memset (slot, 0, SLOT_SIZE);
  memset (slot, ' ', 11);
  memcpy (slot, name, strlen (name) < 11 ? strlen (name) : 11);
  slot[11] = (uint8_t) attr;
  slot_set_chain (slot, first, size);
}

/* A slot in cluster n, and clusters one after the other, with an end mark. */
static inline void
image_entry (struct image *img, uint32_t n, unsigned i, unsigned attr,
             uint32_t first, uint32_t size)
{
  char name[30];

  snprintf (name, sizeof name, "N%u", i);
  slot_set (image_slot (img, n, i), name, attr, first, size);
}

static inline void
image_run (struct image *img, uint32_t first, uint32_t last)
{
  uint32_t n;

  for (n = first; n < last; ++n)
    image_put (img, n, n + 1);
  image_put (img, last, END_MARK);
}

/* A directory of one cluster, with its own two entries. */
static inline void
image_directory (struct image *img, uint32_t n, uint32_t parent)
{
  memset (img->bytes + image_cluster (img, n), 0, img->cluster_size);
  slot_set (image_slot (img, n, 0), ".", IS_DIRECTORY, n, 0);
  slot_set (image_slot (img, n, 1), "..", IS_DIRECTORY,
            parent == img->root ? 0 : parent, 0);
}

#endif /* FATBATCH_TESTS_TREE_IMAGES_H */
