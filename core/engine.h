/* SPDX-License-Identifier: BSD-3-Clause */

/* The engine's own structure, for fatbatch.c (requests) and open.c (opening,
 * volumes, reports).
 *
 * Locks, in the order in which they are taken; each module's own mutex comes
 * after these and is never held over I/O:
 *
 *   1. layout_lock   shared by each request while it is applied to the
 *                    disk; exclusive for a request that may change the
 *                    layout, and for the step from readable to writable
 *   2. ranges        the bytes that the request touches
 *
 * None is held while a request waits for its commit.
 */

#ifndef FATBATCH_ENGINE_H
#define FATBATCH_ENGINE_H

#include <pthread.h>

#include "commit.h"
#include "disk.h"
#include "fatbatch.h"
#include "file.h"
#include "layout.h"
#include "rangelock.h"
#include "stats.h"

struct fatbatch {
  struct fatbatch_options options;
  bool write_through;           /* every write is durable on return */

  struct file *file;            /* what disk stands on; NULL in some tests */
  struct disk *disk;

  pthread_rwlock_t layout_lock; /* protects layout, writable, file's fds */
  const struct layout *layout;
  bool writable;

  struct rangelock ranges;
  struct commit commit;
  struct stats stats;
};

/* Look for volumes anew.  layout_lock is held exclusively, or nobody else has
 * the engine yet.  If there is no memory for it (-ENOMEM) the layout becomes
 * one that knows of no volume and watches every byte, so that the next write
 * tries again.
 */
extern int engine_scan_layout (struct fatbatch *fb);

/* An engine over a disk; it owns both from then on, also on failure.  file
 * is what fatbatch_set_writable() makes writable; a disk that stands on none
 * (in tests) is writable as it is.
 */
extern int engine_new (struct disk *disk, struct file *file,
                       const struct fatbatch_options *options,
                       struct fatbatch **ret);

#endif /* FATBATCH_ENGINE_H */
