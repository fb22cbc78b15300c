/* SPDX-License-Identifier: BSD-3-Clause */

/* Little-endian loads from and stores to byte buffers of any alignment.
 *
 * On-disk structures are never cast to packed structs: the bytes come
 * from whoever wrote the image.
 */

#ifndef FATBATCH_BYTEORDER_H
#define FATBATCH_BYTEORDER_H

#include <stdint.h>

static inline uint16_t
load_le16 (const uint8_t *p)
{
  return (uint16_t) (p[0] | p[1] << 8);
}

static inline uint32_t
load_le32 (const uint8_t *p)
{
  return load_le16 (p) | (uint32_t) load_le16 (p + 2) << 16;
}

static inline uint64_t
load_le64 (const uint8_t *p)
{
  return load_le32 (p) | (uint64_t) load_le32 (p + 4) << 32;
}

static inline void
store_le32 (uint8_t *p, uint32_t x)
{
  p[0] = (uint8_t) x;
  p[1] = (uint8_t) (x >> 8);
  p[2] = (uint8_t) (x >> 16);
  p[3] = (uint8_t) (x >> 24);
}

static inline void
store_le64 (uint8_t *p, uint64_t x)
{
  store_le32 (p, (uint32_t) x);
  store_le32 (p + 4, (uint32_t) (x >> 32));
}

#endif /* FATBATCH_BYTEORDER_H */
