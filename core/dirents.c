/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <string.h>

#include "byteorder.h"
#include "dirents.h"

#define DELETED 0xe5
#define ATTR_VOLUME_ID 0x08     /* parts of long names have it, too */
#define ATTR_DIRECTORY 0x10

struct dirent
dirent_parse (const uint8_t slot[DIRENT_SIZE], uint32_t clusters_end)
{
  struct dirent nothing = { DIRENT_NOTHING, 0, 0 };
  uint32_t first = (uint32_t) load_le16 (slot + 20) << 16 |
    load_le16 (slot + 26);

  if (slot[0] == 0 || slot[0] == DELETED || slot[11] & ATTR_VOLUME_ID ||
      memcmp (slot, ".          ", 11) == 0 ||
      memcmp (slot, "..         ", 11) == 0 ||
      first < 2 || first >= clusters_end)
    return nothing;
  if (slot[11] & ATTR_DIRECTORY)
    return (struct dirent) { DIRENT_DIRECTORY, first, 0 };
  return (struct dirent) { DIRENT_FILE, first, load_le32 (slot + 28) };
}
