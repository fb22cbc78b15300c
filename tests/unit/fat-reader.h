/* SPDX-License-Identifier: BSD-3-Clause */

/* A reader of FAT32 volumes that is as simple as it can be, to compare with: it
 * looks at all of an image, and follows each chain to its end, one cluster at a
 * time.  It shares no code with core/.
 *
 * Rules, in this order:
 *
 * 1. A cluster whose entry in FAT 1 is 0 (28 bits count) is FREE.
 * 2. DIRECTORY are those of the chains that begin with the root directory's
 *    cluster, or with that of a directory's entry in one of these.
 * 3. SETTLED are the first floor (size / cluster size) clusters of the chains
 *    that files' entries in such directories begin with.
 * 4. Others are FRESH.
 *
 * A chain goes on as long as its entries are cluster numbers of the volume, and
 * ends in front of a cluster that is FREE, or that it has been to.  A directory
 * ends nowhere but with its chain: slots behind a 0 byte count.
 */

#ifndef FATBATCH_TESTS_FAT_READER_H
#define FATBATCH_TESTS_FAT_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As core/clusters.h has them. */
enum fat_use { USE_FREE, USE_FRESH, USE_SETTLED, USE_DIRECTORY };

struct fat_reader {
  const uint8_t *image;         /* borrowed */
  uint64_t fat1, data;          /* bytes of the image */
  uint32_t cluster_size, root;
  uint32_t end;                 /* the last cluster's number, plus 1 */
  uint8_t *use;                 /* of each number below end; 0 and 1: FRESH */
};

/* false: there is no volume that this reader can read. */
extern bool fat_reader_init (struct fat_reader *r, const uint8_t *image,
                             uint64_t size, uint64_t start);
extern void fat_reader_release (struct fat_reader *r);

/* Fill r->use. */
extern void fat_reader_classify (struct fat_reader *r);

extern const char *fat_use_name (unsigned use);

#endif /* FATBATCH_TESTS_FAT_READER_H */
