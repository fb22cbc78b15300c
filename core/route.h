/* SPDX-License-Identifier: BSD-3-Clause */

/* Which way a write takes: the policy, apart from the doing (fatbatch.c).
 * Pure: no I/O, no lock.
 *
 *   what it touches                                          route
 *   ------------------------------------------------------   ------------
 *   no FAT of a volume that mirrors                          ROUTE_PLAIN
 *   a write to nothing but FAT 1 of one such volume          ROUTE_FAT1
 *   a write to nothing but the mirror of one                 ROUTE_MIRROR
 *   anything else: both copies, two volumes, a FAT and its
 *   neighbours, a zero, a trim                               ROUTE_ACROSS
 *
 * A volume mirrors if it has two FATs that are to be kept equal
 * (mirror_volume_of()).
 */

#ifndef FATBATCH_ROUTE_H
#define FATBATCH_ROUTE_H

#include "disk.h"
#include "mirror.h"
#include "region.h"

enum route_kind { ROUTE_PLAIN, ROUTE_FAT1, ROUTE_MIRROR, ROUTE_ACROSS };

struct route {
  enum route_kind kind;
  struct mirror_volume volume;  /* FAT1, MIRROR */
  uint64_t slots_start, slots_end; /* ACROSS: the hull of the FAT windows that
                                      are touched, as bytes of FAT 1s */
};

/* All zeros is the route of nothing: ROUTE_PLAIN.  Pieces are added from the
 * first to the last byte of the request; layout is the one that the region was
 * found in.
 */
extern void route_add (struct route *route, enum disk_op_kind kind,
                       const struct layout *layout,
                       const struct region *region, bool whole);

#endif /* FATBATCH_ROUTE_H */
