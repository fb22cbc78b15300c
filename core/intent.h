/* SPDX-License-Identifier: BSD-3-Clause */

/* The intent record: a small file that says, durably, which sectors of a FAT
 * mirror may lag behind FAT 1.  If the server dies, the next one copies FAT 1
 * over them (D5).
 *
 * The record is a row of 512-byte blocks.  Block 0 is the header; each of the
 * others is the entry of one FAT window, or empty.  A block is written as a
 * whole and has its own checksum, so it is there or not there, and what
 * happens to one says nothing about another.
 *
 *              intent_arm(): block written and synced
 *     EMPTY ------------------------------------------> ARMED
 *       ^                                                 | intent_arm() again:
 *       |                                                 | other slots
 *       +---------------------------------------------- ARMED
 *              intent_disarm(): blocks written, one sync
 *
 * Rules:
 *
 * 1. An entry is durable when intent_arm() returns, the header and the file's
 *    name included.  Until then, and if a block is torn by a crash, the window
 *    counts as not armed; the caller has acknowledged nothing that needs it.
 * 2. When intent_arm() is called again for an armed block, a torn block would
 *    lose what it said before.  So the entry goes to another block first, and
 *    the old one is cleared when the new one is durable.  While both are there
 *    they ask for the same copy, of FAT 1 over the mirror.
 * 3. intent_disarm() is called when everything that the entries stand for is
 *    durable in the image; it may be lost or torn without harm until it
 *    returns, but afterwards it is durable.
 * 4. Nothing read back is believed without its checksum, and nothing that does
 *    not belong to this image (size, run, geometry: see intent_load()).
 * 5. A file that is not ours is not touched.  A record of ours that does not
 *    fit is kept under another name (.stale).
 * 6. After a failed write or sync of the record nothing is known about what it
 *    says.  The caller must latch (D6).
 *
 * Lock: none inside.  The caller lets one thread in at a time.
 */

#ifndef FATBATCH_INTENT_H
#define FATBATCH_INTENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INTENT_BLOCK 512        /* bytes */
#define INTENT_BLOCKS 80        /* header, windows, and room for rule 2 */
#define INTENT_SLOTS 1024       /* sectors of a window, at most */

/* -- Where the record is stored: a file, or a test's memory ------------- */

struct intent_store;

struct intent_store_ops {
  /* Read all of it, at most size bytes.  Returns how many, -ENOENT if there
   * is no record, or -errno.  Changes nothing.
   */
  int (*read) (struct intent_store *store, void *buf, size_t size);
  /* Make a new one of `size` bytes of zeros, durable with its name.  There is
   * none.
   */
  int (*create) (struct intent_store *store, size_t size);
  /* Write inside of it; not durable before sync. */
  int (*write) (struct intent_store *store, const void *buf, size_t count,
                uint64_t offset);
  int (*sync) (struct intent_store *store);
  /* Give it the name with .stale at its end. */
  int (*set_aside) (struct intent_store *store);
  /* Delete it.  Durable on return.  None there is fine. */
  int (*remove) (struct intent_store *store);
  void (*free) (struct intent_store *store);
};

struct intent_store {
  const struct intent_store_ops *ops;
  const char *name;             /* for messages; lives as long as the store */
};

/* NULL is fine. */
static inline void
intent_store_free (struct intent_store *store)
{
  if (store)
    store->ops->free (store);
}

/* A file.  `path` is copied.  never_sync: nothing needs to be durable
 * (cache=unsafe).  Nothing is opened or made yet.  0 or -ENOMEM.
 */
extern int intent_file_new (const char *path, bool never_sync,
                            struct intent_store **ret);

/* -- The record --------------------------------------------------------- */

/* What an entry asks for: wherever slots has a bit, copy the slot, slot_size
 * bytes, from `fat1` on to the same place from `mirror` on.
 */
struct intent_entry {
  uint64_t fat1, mirror;        /* bytes of the image: the window in both */
  uint32_t length;              /* bytes: of the window */
  uint32_t slot_size;           /* bytes: of a sector of the volume */
  uint64_t volume_start;        /* bytes of the image */
  uint32_t volume_id;           /* serial number in the boot sector */
  uint8_t slots[INTENT_SLOTS / 8];
};

struct intent {
  struct intent_store *store;   /* borrowed */
  uint64_t image_size;
  uint64_t run;                 /* random; tells this record's blocks */
  bool created;
  bool used[INTENT_BLOCKS];
};

extern void intent_init (struct intent *in, struct intent_store *store,
                         uint64_t image_size);

/* Look for a record.  On return *entries (malloc'ed, the caller frees it) has
 * the `*nr` entries whose blocks are sound, of this image's size, and in
 * themselves consistent: ranges inside the image, whole slots, FAT 1 and
 * mirror not overlapping.  That their volumes are still there is for the
 * caller to see.
 *
 * Returns 0; -ENOENT: no record; -EBADMSG: a record of ours that is damaged
 * or of another image, with why in reason (an entry may be damaged while
 * others are sound: then 0, and a reason); -EEXIST: a file that is not ours;
 * or another -errno.  Changes nothing.
 */
extern int intent_load (struct intent *in, struct intent_entry **entries,
                        size_t *nr, char *reason, size_t reason_size);

/* Make the file, with a header and no entry; durable on return.  -EEXIST: there
 * is one.  On failure there is none.
 */
extern int intent_create (struct intent *in);

/* Make the entry durable (rule 1), in a block of its own; *block: 0, or its
 * present block (rule 2); updated.  The file has been made.  -ENOSPC: no block
 * is free, and nothing was done; any other failure is rule 6.
 */
extern int intent_arm (struct intent *in, const struct intent_entry *entry,
                       unsigned *block);

/* Clear blocks, with one sync (rule 3). */
extern int intent_disarm (struct intent *in, const unsigned *blocks,
                          size_t nr);

/* Is any block armed? */
extern bool intent_is_armed (const struct intent *in);

/* Delete the record, whatever it says; it is made anew when needed. */
extern int intent_remove (struct intent *in);

/* Rename one that does not fit (rule 5). */
extern int intent_set_aside (struct intent *in);

/* Exported for tests: an entry as it is on the disk, and back.  parse returns
 * 0; 1: an empty block (all zeros); -EBADMSG: anything else.
 */
extern void intent_encode (const struct intent_entry *entry,
                           uint64_t image_size, uint64_t run,
                           uint8_t block[INTENT_BLOCK]);
extern int intent_decode (const uint8_t block[INTENT_BLOCK],
                          uint64_t image_size, uint64_t run,
                          struct intent_entry *ret);

#endif /* FATBATCH_INTENT_H */
