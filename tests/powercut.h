/* SPDX-License-Identifier: BSD-3-Clause */

/* What a power cut takes away from the files of one flat directory: faultfs
 * tells here about every change and sync, and in the end has the directory put
 * back to what a disk might hold.
 *
 * Rules:
 *
 * 1. Data.  Of each 512-byte sector that was written, zeroed, punched or cut
 *    off since the file's last sync, the cut keeps what is there or brings back
 *    what was durable, each sector for itself, by lot.  So it is with a file's
 *    size.
 * 2. A sync makes durable what had been written when it began.  What is
 *    written while it runs is not covered; after a cut meanwhile, it may have
 *    made each sector durable, or not.
 * 3. Names.  Creating, deleting and renaming take effect durably, in order,
 *    with the next sync of the directory; a file's own sync is not enough.  Of
 *    those since, the cut keeps the first ones, how many by lot, and undoes the
 *    others: file systems log such changes in order.
 * 4. `keep` is how likely each is to stay: 0, all is lost that can be lost; 100,
 *    nothing is.
 * 5. After powercut_cut() the backing directory must not be changed any more.
 *
 * All functions but powercut_sync_begin() expect the caller to hold
 * powercut_lock(), from before a change until after it.  An I/O error here ends
 * the program.
 */

#ifndef TEST_POWERCUT_H
#define TEST_POWERCUT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct powercut;

extern struct powercut *powercut_new (int directory_fd, uint64_t seed,
                                      unsigned keep);
extern void powercut_lock (struct powercut *p);
extern void powercut_unlock (struct powercut *p);

/* -- Data --------------------------------------------------------------- */

/* [offset, offset + length) of the file will change, and its size may. */
extern void powercut_change (struct powercut *p, int fd, off_t offset,
                             off_t length);
/* The file will be cut off, or made longer. */
extern void powercut_resize (struct powercut *p, int fd, off_t size);

/* A sync begins and ends.  From begin to end no other one does: begin waits,
 * and the lock is not held.  At the end it is, since before it was looked
 * whether the power is cut: nobody is told that a sync succeeded which the cut
 * has taken back.
 */
extern void powercut_sync_begin (struct powercut *p, int fd);
extern void powercut_sync_end (struct powercut *p, int fd, bool success);

/* -- Names -------------------------------------------------------------- */

/* The file was made just now. */
extern void powercut_created (struct powercut *p, const char *name);
/* These two do it, too.  0 or -errno. */
extern int powercut_unlink (struct powercut *p, const char *name);
extern int powercut_rename (struct powercut *p, const char *from,
                            const char *to, unsigned flags);
extern void powercut_names_synced (struct powercut *p);

/* Names of files that are deleted, but not durably. */
extern bool powercut_is_hidden (const char *name);

/* -- The cut ------------------------------------------------------------ */

extern void powercut_cut (struct powercut *p);
extern bool powercut_is_cut (const struct powercut *p);

#endif /* TEST_POWERCUT_H */
