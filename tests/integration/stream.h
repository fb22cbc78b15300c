/* SPDX-License-Identifier: BSD-3-Clause */

/* The two halves of mirror-stream: what is sent (stream-generate.c), and what
 * is expected of the answers (mirror-stream.c).
 */

#ifndef TEST_STREAM_H
#define TEST_STREAM_H

#include "../model/target.h"
#include "fat-volume.h"

#define STREAM_DEPTH 8          /* requests of a batch */
#define STREAM_LENGTH_MAX (256 * 1024)
#define STREAM_VOLUMES_MAX 4
#define STREAM_DATA_MAX (2 * 1024 * 1024)       /* of a volume that is used */

struct stream {
  uint8_t *bytes;               /* what the image should have */
  uint64_t size;                /* as far as it is of interest */
  struct volume volumes[STREAM_VOLUMES_MAX];
  size_t nr_volumes;
  bool boot;                    /* boot sectors change, too */
  struct prng prng;
  struct request batch[STREAM_DEPTH];   /* with buffers */
  size_t nr_batch;
};

extern struct stream stream;

/* Fill the batch; `bytes` has it at once. */
extern void stream_generate (void);

#endif /* TEST_STREAM_H */
