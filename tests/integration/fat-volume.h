/* SPDX-License-Identifier: BSD-3-Clause */

/* Where the parts of a FAT volume are, as scripts tell it (mirror-lib.sh,
 * locate_volume): START:FAT1:MIRROR:FAT-SIZE:SECTOR:DATA:END, all in bytes of
 * the image.  A volume with one FAT has a MIRROR all the same, which is data
 * then.
 */

#ifndef TEST_FAT_VOLUME_H
#define TEST_FAT_VOLUME_H

#include <inttypes.h>
#include <stdio.h>

#include "../model/testlib.h"

struct volume {
  uint64_t start, fat1, mirror, fat_size, sector, data, end;
};

static inline struct volume
volume_parse (const char *text)
{
  struct volume v;
  int used = -1;

  if (sscanf (text, "%" SCNu64 ":%" SCNu64 ":%" SCNu64 ":%" SCNu64 ":%" SCNu64
              ":%" SCNu64 ":%" SCNu64 "%n", &v.start, &v.fat1, &v.mirror,
              &v.fat_size, &v.sector, &v.data, &v.end, &used) != 7 ||
      text[used] != '\0' || v.sector == 0 || v.fat_size < v.sector ||
      v.data <= v.mirror || v.end <= v.data)
    test_fail ("not a volume: %s", text);
  return v;
}

#endif /* TEST_FAT_VOLUME_H */
