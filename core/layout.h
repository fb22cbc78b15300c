/* SPDX-License-Identifier: BSD-3-Clause */

/* What is where on the disk: an immutable snapshot.
 *
 * Allocated by layout_scan, freed by layout_free, never changed between:
 * any number of threads may use one without a lock.
 *
 * 1. A layout is a pure function of the bytes in its watched ranges and
 *    of the device's size.
 * 2. Volumes are sorted by start and do not overlap; each is FAT32 by
 *    bpb_parse and lies inside the device.
 * 3. Watched ranges are sorted, merged and inside the device.
 * 4. A disk without a partition table, bare volumes among them, has one
 *    watched range, [0, 512), or none if it is shorter.  Elsewhere it is
 *    the table's sectors and the first sector of each partition: never a
 *    FAT, unless a hostile image makes them overlap.
 * 5. Reads, memory and time are bounded, whatever the bytes.
 */

#ifndef FATBATCH_LAYOUT_H
#define FATBATCH_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpb.h"
#include "partition.h"

struct layout_volume {
  uint64_t start, end;          /* bytes of the device: the partition as
                                   far as the device reaches */
  unsigned partition;           /* its number, 0 for a bare volume */
  struct bpb bpb;               /* offsets in it count from start */
};

struct layout_range {
  uint64_t start, end;          /* bytes of the device, [start, end) */
};

struct layout {
  enum partition_table table;
  size_t nr_volumes;
  const struct layout_volume *volumes;
  size_t nr_watched;
  const struct layout_range *watched;   /* all that the scan has read */
};

/* Look at a device of 'size' bytes.
 *
 * A FAT32 boot sector in sector 0 is a bare volume: no partition table is
 * looked for, since mkfs.fat and Windows put a fake one there.  Else the
 * FAT32 volumes are those partitions that start with a valid boot sector,
 * whatever their types say; of two that overlap, the first in the table.
 * If no partition of an MBR has one, the table is tried again in units of
 * 4096 bytes, and volumes with sectors of that size count: such is a disk
 * with 4 KiB logical blocks.
 *
 * What can't be read is taken as not there.  Returns 0, or -ENOMEM, then
 * '*ret' is untouched.
 */
extern int layout_scan (partition_read_fn read, void *opaque, uint64_t size,
                        struct layout **ret);

/* Nothing is known: no volumes, and every byte is watched.  For whoever
 * could not scan.
 */
extern const struct layout layout_unknown;

/* NULL and layout_unknown are fine. */
extern void layout_free (const struct layout *layout);

/* Can a change of bytes in [start, end) change the layout? */
extern bool layout_watches (const struct layout *layout,
                            uint64_t start, uint64_t end);

/* Is one as good as the other: the same table, the same volumes with the
 * same geometry, labels and ids, the same watched ranges?  Dirty bits may
 * differ: they change with each mount.
 */
extern bool layout_equal (const struct layout *a, const struct layout *b);

#endif /* FATBATCH_LAYOUT_H */
