/* SPDX-License-Identifier: BSD-3-Clause */

/* Directory entries: which clusters files and directories begin with, and how
 * long files are (Microsoft's fatgen103, "FAT Directory Structure").  Pure.
 *
 * Rules:
 *
 * 1. Free and deleted slots, parts of long names, volume labels, and the
 *    entries "." and ".." are nothing; so is one without a cluster, or with one
 *    that the volume does not have.
 * 2. Slots behind one whose first byte is 0, the end of a directory, count as
 *    others do.  Linux looks at them, too, and those who make a directory clear
 *    its clusters.
 */

#ifndef FATBATCH_DIRENTS_H
#define FATBATCH_DIRENTS_H

#include <stdint.h>

#define DIRENT_SIZE 32          /* bytes of a slot */

enum dirent_kind { DIRENT_NOTHING, DIRENT_FILE, DIRENT_DIRECTORY };

struct dirent {
  enum dirent_kind kind;
  uint32_t first;               /* cluster; 0 if nothing */
  uint32_t size;                /* bytes; 0 but for files */
};

/* clusters_end: the volume's last cluster, plus 1. */
extern struct dirent dirent_parse (const uint8_t slot[DIRENT_SIZE],
                                   uint32_t clusters_end);

#endif /* FATBATCH_DIRENTS_H */
