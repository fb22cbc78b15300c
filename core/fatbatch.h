/* SPDX-License-Identifier: BSD-3-Clause */

/* fatbatch: an engine that serves one disk image and knows the FAT32 volumes
 * in it.  The one header that a user of the engine needs.
 *
 * The contract that the calls below cite (D1, D2, ...) is in DESIGN.md,
 * "Durability contract".
 *
 * Rules:
 *
 * 1. One struct fatbatch for an image, shared by all connections.  Every
 *    call may be made from any thread at any time, but for fatbatch_open()
 *    and fatbatch_close().
 * 2. Offsets, lengths and buffers may have any alignment.  A range that is
 *    not inside the image is -EINVAL, and nothing is done; a length of 0 is
 *    fine, and nothing is done.
 * 3. Calls that return int return 0 or -errno.  On failure outputs are
 *    untouched, except for the buffer of a read.
 * 4. Overlapping requests take effect in the order in which they arrive.
 * 5. After a failed write, zero, trim or sync, all requests that promise
 *    durability fail with -EIO until the image is opened again (D6).
 */

#ifndef FATBATCH_H
#define FATBATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fatbatch;

/* QEMU's cache modes (qemu(1), -drive cache=). */
enum fatbatch_cache {
  FATBATCH_WRITEBACK,           /* page cache */
  FATBATCH_WRITETHROUGH,        /* page cache, every write durable */
  FATBATCH_NONE,                /* O_DIRECT */
  FATBATCH_DIRECTSYNC,          /* O_DIRECT, every write durable */
  FATBATCH_UNSAFE,              /* page cache, FUA and flush ignored */
};

enum fatbatch_io {
  FATBATCH_IO_AUTO,             /* io_uring, or posix where there is none */
  FATBATCH_IO_URING,
  FATBATCH_IO_POSIX,
};

enum fatbatch_durability {
  FATBATCH_DURABILITY_FAT,      /* D5 and D9 hold: FAT mirrors, and commits of
                                   allocations, may be deferred */
  FATBATCH_DURABILITY_BLOCK,    /* NBD's letter, request by request */
};

/* Places between the steps by which a mirror is deferred and brought back, at
 * which tests stop or kill the server.
 */
enum fatbatch_point {
  MIRROR_ARMED = 1,             /* record durable, write not acknowledged */
  MIRROR_WRITTEN,               /* mirrors written, not synced */
  MIRROR_SYNCED,                /* synced, record not cleared */
  MIRROR_DISARMED,              /* record cleared, write not yet applied */
  MIRROR_RECOVERING,            /* a window recovered, others not */
  MIRROR_RECOVERED,             /* all recovered and synced, record there */
};

struct fatbatch_options {
  enum fatbatch_cache cache;
  enum fatbatch_io io;
  bool lock;                    /* take image locks, as QEMU does */
  enum fatbatch_durability durability;
  uint32_t commit_delay_ms;     /* an allocation's commit is deferred for so
                                   long; 0: not at all */
  uint32_t mirror_delay_ms;     /* a deferred mirror is written after this */
  uint64_t mirror_batch;        /* bytes: or when this much is deferred */
  bool serial;                  /* writes take turns (tree.h, rule 8) */

  /* Where the intent record is; NULL: beside the image, PATH.fatbatch.
   * Borrowed, until fatbatch_open() returns.  Without one (no_intent)
   * mirrors are written at once, but a record that an earlier run has left is
   * honoured all the same.
   */
  const char *intent;
  bool no_intent;

  /* Called with a sentence for the user about something that the engine goes
   * on from: `problem` if he should do something about it.  From any thread,
   * with no lock held that a call of the engine needs.  Optional.
   */
  void (*notice) (void *opaque, bool problem, const char *message);
  void *notice_opaque;

  /* For tests: called with locks held, so it may only look, and kill. */
  void (*reached) (void *opaque, enum fatbatch_point point);
  void *reached_opaque;
};

/* Why opening failed: a sentence for the user that names the file. */
struct fatbatch_error {
  char message[1024];
};

/* Requests' flags. */
enum {
  FATBATCH_FUA = 1 << 0,        /* durable on return (D1) */
  FATBATCH_MAY_UNMAP = 1 << 1,  /* zero: a hole will do */
  FATBATCH_FAST = 1 << 2,       /* zero: -EOPNOTSUPP rather than slow */
  FATBATCH_ONE = 1 << 3,        /* extents: the first one is enough */
};

/* Open an image for reading.  With options->lock nobody else may write to it
 * from now on; see fatbatch_set_writable().  No thread and no ring is made
 * before the first request, so the caller may fork in between.
 */
extern int fatbatch_open (const char *path,
                          const struct fatbatch_options *options,
                          struct fatbatch **ret, struct fatbatch_error *err);

/* Ends as fatbatch_settle() does, and does not sync what that doesn't.  No
 * request may be under way.  NULL is fine.
 */
extern void fatbatch_close (struct fatbatch *fb);

/* Write all deferred mirrors, make them durable, and remove the intent
 * record: on return 0 the image alone is complete (D8).  Requests may be under
 * way; what they defer meanwhile may stay deferred.  On failure the record
 * stays, for the next open.
 */
extern int fatbatch_settle (struct fatbatch *fb);

/* Make the image writable, and bring back the mirrors that a run which did not
 * end well has left deferred.  If it fails (-EACCES, -EROFS, -EBUSY for a lock,
 * ...) the image stays readable, and such mirrors are read as if they had been
 * brought back.  Once it is writable this does nothing.
 */
extern int fatbatch_set_writable (struct fatbatch *fb,
                                  struct fatbatch_error *err);

struct fatbatch_info {
  uint64_t size;                /* bytes */
  uint32_t preferred_io;        /* bytes, a power of two */
  bool writable, rotational;
  bool has_extents;             /* else all is reported as data */
  bool page_cache;              /* fatbatch_cache_range() has a meaning */
  const char *io;               /* "io_uring" or "posix" */
  int uring_error;              /* 0, or -errno: why io=auto is posix */
};
extern void fatbatch_get_info (struct fatbatch *fb,
                               struct fatbatch_info *ret);

/* Returns the last acknowledged bytes (D3). */
extern int fatbatch_read (struct fatbatch *fb, void *buf, size_t count,
                          uint64_t offset);

/* Flags: FATBATCH_FUA.  On return the bytes survive a kill of the process
 * (D2); with FUA, or in a mode that makes every write durable, also a power
 * cut (D1).
 */
extern int fatbatch_write (struct fatbatch *fb, const void *buf, size_t count,
                           uint64_t offset, unsigned flags);

/* Flags: FATBATCH_FUA, FATBATCH_MAY_UNMAP, FATBATCH_FAST.  Durable as a
 * write is.
 */
extern int fatbatch_zero (struct fatbatch *fb, uint64_t count,
                          uint64_t offset, unsigned flags);

/* The range's contents no longer matter.  Holes are punched where that is
 * possible.  Flags: FATBATCH_FUA.
 */
extern int fatbatch_trim (struct fatbatch *fb, uint64_t count,
                          uint64_t offset, unsigned flags);

/* On return all that was acknowledged before is durable (D1). */
extern int fatbatch_flush (struct fatbatch *fb);

/* Has a write or sync failed (rule 5)? */
extern bool fatbatch_has_failed (struct fatbatch *fb);

/* Start reading the range into the page cache. */
extern int fatbatch_cache_range (struct fatbatch *fb, uint64_t count,
                                 uint64_t offset);

/* Calls fn for each extent of the range, in order, clipped to the range.
 * fn returns 0, or anything else to stop, which is returned.  Flags:
 * FATBATCH_ONE.
 */
typedef int (*fatbatch_extent_fn) (void *opaque, uint64_t offset,
                                   uint64_t length, bool hole);
extern int fatbatch_extents (struct fatbatch *fb, uint64_t count,
                             uint64_t offset, unsigned flags,
                             fatbatch_extent_fn fn, void *opaque);

/* One line about what is on the image, such as "MBR; partition 1: FAT32
 * volume BOOT, 256 MiB".  Cut to size, always NUL-terminated.
 */
extern void fatbatch_describe (struct fatbatch *fb, char *buf, size_t size);

/* Counters since the image was opened.  F (name, help). */
#define FATBATCH_COUNTERS(F)                                            \
  F (reads, "read requests")                                            \
  F (read_bytes, "bytes read by requests that succeeded")               \
  F (writes, "write requests")                                          \
  F (write_bytes, "bytes written by requests that succeeded")           \
  F (zeroes, "zero requests")                                           \
  F (trims, "trim requests")                                            \
  F (flushes, "flush requests")                                         \
  F (fua, "write, zero and trim requests with FUA")                     \
  F (errors, "failed requests")                                         \
  F (outside_pieces, "pieces of writes outside FAT32 volumes")          \
  F (reserved_pieces, "pieces of writes to reserved sectors")           \
  F (fsinfo_pieces, "pieces of writes to FSInfo sectors")               \
  F (fat_pieces, "pieces of writes to FAT 1")                           \
  F (mirror_pieces, "pieces of writes to FAT mirrors")                  \
  F (data_pieces, "pieces of writes to clusters")                       \
  F (range_waits, "requests that waited for an overlapping one")        \
  F (layout_scans, "times that the volumes were looked for")            \
  F (commit_members, "requests that waited for a sync")                 \
  F (commit_groups, "groups of such requests, each one batch of syncs") \
  F (commits_saved, "batches of syncs that sharing has saved")          \
  F (commit_plugs, "groups that waited a moment for the rest of a burst") \
  F (commit_plugs_complete, "of those, all that were expected came")    \
  F (commit_plug_ns, "ns that they waited, all together")               \
  F (syncs, "ranged syncs submitted")                                   \
  F (commits_deferred, "allocations acknowledged before their sync")    \
  F (deferred_forced, "syncs of such before a write that may refer to them") \
  F (deferred_expired, "syncs of such because their time was over")     \
  F (mirrors_deferred, "mirror sectors acknowledged without a write")   \
  F (mirrors_diverged, "of those, FAT 1 changed first")                 \
  F (mirrors_written, "deferred mirror sectors written, in batches")    \
  F (mirror_batches, "batches of deferred mirrors")                     \
  F (mirror_syncs, "ranged syncs of such batches")                      \
  F (windows_compared, "FAT windows whose copies were compared")        \
  F (windows_armed, "times that a window's record was made durable")    \
  F (windows_disarmed, "times that a window's record was cleared")      \
  F (recoveries, "FAT windows brought back after a crash")              \
  F (recovered_sectors, "mirror sectors that differed there")           \
  F (inplace_writes, "writes to clusters in front of files' ends")      \
  F (ordered_writes, "other writes to clusters")                        \
  F (structural_writes, "writes to FAT 1 and directories")              \
  F (ordered_syncs, "syncs of data before metadata that may expose it") \
  F (truncate_waits, "writes that waited for others to freed clusters") \
  F (tree_scans, "scans of a volume's FAT 1 and directories")           \
  F (tree_scan_ns, "ns that they took")                                 \
  F (tree_directory_clusters, "directories' clusters read")             \
  F (tree_doubts, "times that changes could not be followed, for a scan") \
  F (io_eio, "reads, writes and syncs of the image that failed: EIO")   \
  F (io_enospc, "that failed: ENOSPC")                                  \
  F (io_other_errors, "that failed with another error")                 \
  F (io_short, "short reads and writes that were continued")            \
  F (io_interrupted, "reads and writes that were interrupted and continued") \
  F (io_broken_rings, "io_uring rings that failed half-way; plain calls went on")

struct fatbatch_stats {
#define FATBATCH_COUNTER_FIELD(name, help) uint64_t name;
  FATBATCH_COUNTERS (FATBATCH_COUNTER_FIELD)
#undef FATBATCH_COUNTER_FIELD
};
extern void fatbatch_get_stats (struct fatbatch *fb,
                                struct fatbatch_stats *ret);

/* Distributions.  Bucket i counts what is in [2^i, 2^(i+1)); the first one 0,
 * too, and the last one all that is larger.  F (name, help).
 */
#define FATBATCH_BUCKETS 36
#define FATBATCH_HISTOGRAMS(F)                                          \
  F (group_sizes, "requests in a group that shared syncs")              \
  F (fua_wait_ns, "ns that a FUA request waited for its sync")          \
  F (flush_wait_ns, "ns that a flush waited")                           \
  F (background_wait_ns, "ns that a batch of mirrors, or a deferred "   \
     "commit, waited")

struct fatbatch_histograms {
#define FATBATCH_HISTOGRAM_FIELD(name, help) uint64_t name[FATBATCH_BUCKETS];
  FATBATCH_HISTOGRAMS (FATBATCH_HISTOGRAM_FIELD)
#undef FATBATCH_HISTOGRAM_FIELD
};
extern void fatbatch_get_histograms (struct fatbatch *fb,
                                     struct fatbatch_histograms *ret);

/* The text of an errno value, from any thread.  Never NULL. */
extern const char *fatbatch_strerror (int err);

/* Can io_uring be used here?  0, or -errno that says why not. */
extern int fatbatch_probe_uring (void);

#endif /* FATBATCH_H */
