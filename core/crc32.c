/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <stddef.h>
#include <stdint.h>

#include "crc32.h"

/* The remainders of the 16 nibbles by the reflected polynomial
 * 0xEDB88320: half a byte a step is fast enough for partition tables,
 * and the table can be checked by eye.
 */
static const uint32_t nibble_crc[16] = {
  0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac,
  0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
  0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
  0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
};

uint32_t
crc32_ieee (uint32_t crc, const void *buf, size_t len)
{
  const uint8_t *p = buf;
  size_t i;

  crc = ~crc;
  for (i = 0; i < len; ++i) {
    crc ^= p[i];
    crc = crc >> 4 ^ nibble_crc[crc & 15];
    crc = crc >> 4 ^ nibble_crc[crc & 15];
  }
  return ~crc;
}
