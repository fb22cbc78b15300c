/* SPDX-License-Identifier: BSD-3-Clause */

/* Byte range of the disk -> extents with tags.
 *
 * Pure: no I/O, no allocation, no locks, no errors.  The layout may be
 * shared.  Time: O(log volumes) a call.
 *
 * 1. For any range, a loop over region_at gives extents that tile the
 *    range, in order, without gap or overlap.
 * 2. Extents are maximal: two adjacent ones differ in kind, volume or
 *    fat.
 */

#ifndef FATBATCH_REGION_H
#define FATBATCH_REGION_H

#include <stddef.h>
#include <stdint.h>

#include "layout.h"

enum region_kind {
  REGION_OUTSIDE,       /* of the volumes: partition tables, gaps, other
                           file systems */
  REGION_RESERVED,      /* boot sector, its backup, and what is between */
  REGION_FSINFO,        /* the FSInfo sector, and its backup */
  REGION_FAT,           /* one FAT, with its unused end */
  REGION_DATA,          /* clusters */
  REGION_SLACK,         /* after the last cluster, to the volume's end */
};

struct region {
  enum region_kind kind;
  unsigned fat;         /* which FAT, 0 is the first; 0 if not a FAT */
  size_t volume;        /* index into layout->volumes; 0 if OUTSIDE */
  uint64_t start, end;  /* bytes of the disk */
};

/* Tag the longest uniform extent that starts at 'pos' and does not go
 * past 'end'; pos < end.  To walk a range:
 *
 *   for (pos = start; pos < end; pos = region.end)
 *     region_at (layout, pos, end, &region);
 */
extern void region_at (const struct layout *layout, uint64_t pos,
                       uint64_t end, struct region *ret);

/* In one word, for users.  Never NULL. */
extern const char *region_kind_string (enum region_kind kind);

#endif /* FATBATCH_REGION_H */
