/* SPDX-License-Identifier: BSD-3-Clause */

/* The engine's own structure, for fatbatch.c (requests) and open.c (opening,
 * volumes, reports).
 *
 * Locks, in the order in which they are taken:
 *
 *   1. ranges        the bytes that a request touches, while it is applied to
 *                    the disk; so overlapping requests keep their order of
 *                    arrival.  The only one that is held over I/O, but for
 *   2. scan_lock     for a write to bytes that the layout was read from: from
 *                    the look at what it would change until the layout says so.
 *                    Such writes are rare.
 *   3. those of the mirrors (mirror.h)
 *   4. each module's own mutex
 *
 * Who looks at the layout is inside `epoch` meanwhile: a layout that has been
 * replaced is freed, and mirrors are deferred again, when all those who may
 * have seen it have left.
 *
 * None is held while a request waits for its commit.  A request that is stuck
 * in the disk thus delays only those that overlap it.
 */

#ifndef FATBATCH_ENGINE_H
#define FATBATCH_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "commit.h"
#include "deferred.h"
#include "disk.h"
#include "epoch.h"
#include "fatbatch.h"
#include "file.h"
#include "layout.h"
#include "mirror.h"
#include "rangelock.h"
#include "stats.h"
#include "tree.h"

struct fatbatch {
  struct fatbatch_options options;
  bool write_through;           /* every write is durable on return */

  struct file *file;            /* what disk stands on; NULL in some tests */
  struct disk *disk;

  int uring_error;              /* why it is not on io_uring, or 0 */

  pthread_mutex_t scan_lock;    /* for changes of layout */
  struct epoch epoch;           /* of those who look at it */
  const struct layout *_Atomic layout;

  pthread_mutex_t writable_lock; /* the step to writable */
  atomic_bool writable;

  struct rangelock ranges;
  struct commit commit;
  struct deferred deferred;
  struct intent_store *store;   /* NULL in some tests */
  struct mirror mirror;
  struct tree tree;
  struct stats stats;
};

/* Look for volumes anew, and if anything has changed replace the layout, and
 * wait for those who may have seen the old one.  If there is no memory for it
 * (-ENOMEM) the layout becomes one that knows of no volume and watches every
 * byte, so that the next write tries again.  scan_lock is held.  (relayout.c,
 * as the next three)
 */
extern int engine_scan_layout (struct fatbatch *fb);

/* Would the layout be another one after this operation?  scan_lock is held. */
extern bool engine_would_change_layout (struct fatbatch *fb,
                                        const struct disk_op *op);

/* Around an operation that changes it, or may have changed it; after a failure
 * of the first it must not be done, but the second must be called.  scan_lock
 * is held, and the caller is not inside the epoch.
 */
extern int engine_begin_layout_change (struct fatbatch *fb);
extern void engine_end_layout_change (struct fatbatch *fb);

/* An engine over a disk; it owns disk, file and store from then on, also on
 * failure.  file is what fatbatch_set_writable() makes writable; a disk that
 * stands on none (in tests) is writable as it is.  store: where the intent
 * record is, NULL for none.
 */
extern int engine_new (struct disk *disk, struct file *file,
                       struct intent_store *store,
                       const struct fatbatch_options *options,
                       struct fatbatch **ret);

/* The image is writable: find out about its files (tree.h).  Once.  Done by
 * fatbatch_set_writable(); an engine that stands on no file does without, but
 * for tests that call this.
 */
extern void engine_start_tree (struct fatbatch *fb);

#endif /* FATBATCH_ENGINE_H */
