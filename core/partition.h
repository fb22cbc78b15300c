/* SPDX-License-Identifier: BSD-3-Clause */

/* Partition tables -> byte ranges: MBR with logical partitions, GPT,
 * and the two together.
 *
 * Pure but for reads through a callback; no locks, no allocation.  The
 * bytes are hostile input.
 *
 * 1. Never reads beyond the device's end; whatever the bytes, reads at
 *    most PARTITION_MAX_READS times, 4096 bytes at most each time.
 * 2. Reads sector 0; EBRs only where an extended partition says so; GPT
 *    headers only if the MBR has an entry of type 0xEE.
 * 3. The result depends on nothing but the bytes read and the size.
 * 4. What can't be read is taken as not there.
 * 5. Each partition in the list has start < end and start < size.  end
 *    is as written (up to UINT64_MAX), so it may be beyond the device,
 *    and partitions may overlap.
 *
 * Types are hints for people.  All partitions are listed, except for
 * extended ones (the containers of the logical ones) and 0xEE.
 */

#ifndef FATBATCH_PARTITION_H
#define FATBATCH_PARTITION_H

#include <stddef.h>
#include <stdint.h>

#define PARTITION_MAX 128
#define PARTITION_MAX_READS 1200

/* Read exactly 'count' bytes.  0 or -errno; any error but -ENOMEM means
 * that there is nothing to be found there.
 */
typedef int (*partition_read_fn) (void *opaque, void *buf, size_t count,
                                  uint64_t offset);

struct partition {
  uint64_t start, end;          /* bytes of the device, [start, end) */
  unsigned number;              /* as Linux counts: 1 is sda1, logical
                                   partitions from 5 */
  uint8_t mbr_type;             /* 0 in a GPT */
  uint8_t type_guid[16];        /* as on disk; zeroes in an MBR */
};

enum partition_table { PARTITION_NONE, PARTITION_MBR, PARTITION_GPT };

struct partition_list {
  enum partition_table table;
  uint32_t block_size;          /* what the table counts in: 512 or 4096 */
  size_t nr;
  struct partition parts[PARTITION_MAX];        /* in the table's order */
};

/* List the partitions of a device of 'size' bytes.
 *
 * GPT: a header at byte 512 or 4096 (logical blocks of 512 or 4096
 * bytes), else the backup in the last block of either size; headers and
 * entries must have a correct CRC.  A valid GPT wins over the other
 * entries of a hybrid MBR; without one those count.
 *
 * MBR: read as Linux does (block/partitions/msdos.c), in units of 512
 * bytes; see partition_scan_mbr for others.
 *
 * Returns 0, or -ENOMEM if a read did, then '*ret' is untouched.
 */
extern int partition_scan (partition_read_fn read, void *opaque,
                           uint64_t size, struct partition_list *ret);

/* The same for the MBR alone, in units of 'block_size' bytes: nothing in
 * an MBR tells its unit, the disk's logical block size does.
 */
extern int partition_scan_mbr (partition_read_fn read, void *opaque,
                               uint64_t size, uint32_t block_size,
                               struct partition_list *ret);

/* "none", "MBR", "GPT". */
extern const char *partition_table_string (enum partition_table table);

#endif /* FATBATCH_PARTITION_H */
