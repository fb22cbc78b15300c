/* SPDX-License-Identifier: BSD-3-Clause */

/* Small images with FAT32 volumes, made in memory: much smaller than any tool
 * would make them, so that a crash test can look at all of their bytes a
 * hundred thousand times.
 */

#ifndef CRASH_IMAGES_H
#define CRASH_IMAGES_H

#include "oracle.h"

struct image_row;

struct image {
  const struct image_row *row;
  const char *name;
  uint64_t size;                /* bytes */
  uint32_t align;               /* of the disk */
  bool large;                   /* takes long: make fewer states of it */
};

/* One of the rows.  A large one is rare. */
extern void image_choose (struct image *image, struct prng *prng);

/* Fill in all bytes, FATs that differ in some slots included. */
extern void image_fill (const struct image *image, struct prng *prng,
                        uint8_t *bytes);

/* Put a volume's boot sector, or the partition table, into 512 bytes: the one
 * that the image had at first, or a change of it: another geometry, another
 * serial number, none at all.  Returns its offset.
 */
extern uint64_t image_restore_table (const struct image *image,
                                     struct prng *prng, uint8_t sector[512]);
extern uint64_t image_change_table (const struct image *image,
                                    struct prng *prng, uint8_t sector[512]);

/* What mkfs writes to one of the volumes: with another serial number, often
 * another geometry.  Returns the volume's place, and its size.
 */
extern uint64_t image_format (const struct image *image, struct prng *prng,
                              uint8_t sector[512], uint64_t *size);

#endif /* CRASH_IMAGES_H */
