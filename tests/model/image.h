/* SPDX-License-Identifier: BSD-3-Clause */

/* Images to test on. */

#ifndef TEST_IMAGE_H
#define TEST_IMAGE_H

#include <stdint.h>

enum image_kind {
  IMAGE_PLAIN,                  /* random bytes, size no multiple of 512 */
  IMAGE_FAT32,                  /* a bare FAT32 volume */
  IMAGE_MBR,                    /* two FAT32 partitions, the first at an odd
                                   sector (63) */
  IMAGE_KINDS
};

struct image_range {
  uint64_t start, end;          /* bytes, [start, end) */
};

#define IMAGE_PLACES_MAX 8

struct image {
  enum image_kind kind;
  const char *name;
  char *path;
  uint64_t size;                /* bytes */
  uint8_t *bytes;               /* as made */

  /* Boot sectors and partition tables, whose bytes steer the server; then
   * FATs and other places worth a visit.
   */
  unsigned nr_places, nr_watched;
  struct image_range places[IMAGE_PLACES_MAX];
};

/* Makes it in the scratch folder.  Skips the test without mkfs.fat. */
extern void image_make (struct image *image, enum image_kind kind,
                        uint64_t seed);
/* Removes the file too. */
extern void image_release (struct image *image);

#endif /* TEST_IMAGE_H */
