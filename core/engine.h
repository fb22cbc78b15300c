/* SPDX-License-Identifier: BSD-3-Clause */

/* The engine's own structure, for fatbatch.c (requests) and open.c (opening,
 * volumes, reports).
 *
 * Locks, in the order in which they are taken:
 *
 *   1. ranges        the bytes that a request touches, while it is applied to
 *                    the disk; so overlapping requests keep their order of
 *                    arrival.  The only one that is held over I/O, but for
 *   2. scan_lock     from the first read of a scan for volumes until its
 *                    result is there; scans are rare.  Not together with a
 *                    range: a scan waits for no request.
 *   3. layout_lock   shared for a look at the layout, exclusive to replace it
 *   4. each module's own mutex
 *
 * None is held while a request waits for its commit.  A request that is stuck
 * in the disk thus delays only those that overlap it.
 */

#ifndef FATBATCH_ENGINE_H
#define FATBATCH_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "commit.h"
#include "disk.h"
#include "fatbatch.h"
#include "file.h"
#include "layout.h"
#include "rangelock.h"
#include "sharedlock.h"
#include "stats.h"

struct fatbatch {
  struct fatbatch_options options;
  bool write_through;           /* every write is durable on return */

  struct file *file;            /* what disk stands on; NULL in some tests */
  struct disk *disk;

  int uring_error;              /* why it is not on io_uring, or 0 */

  pthread_mutex_t scan_lock;    /* one scan at a time */
  struct sharedlock layout_lock; /* protects layout */
  const struct layout *layout;

  pthread_mutex_t writable_lock; /* the step to writable */
  atomic_bool writable;

  struct rangelock ranges;
  struct commit commit;
  struct stats stats;
};

/* Look for volumes anew, and if anything has changed replace the layout.  If
 * there is no memory for it (-ENOMEM) the layout becomes one that knows of no
 * volume and watches every byte, so that the next write tries again.  Called
 * after each write to watched bytes: the last scan sees them all.
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
