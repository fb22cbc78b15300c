/* SPDX-License-Identifier: BSD-3-Clause */

/* CRC-32 as in IEEE 802.3, zlib and GPT. */

#ifndef FATBATCH_CRC32_H
#define FATBATCH_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Continue 'crc' (0 at first) over 'len' bytes. */
extern uint32_t crc32_ieee (uint32_t crc, const void *buf, size_t len);

#endif /* FATBATCH_CRC32_H */
