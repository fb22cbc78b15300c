/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "disk-posix.h"
#include "disk-uring.h"
#include "engine.h"
#include "error.h"
#include "util.h"

_Static_assert (COMMIT_TIME_BUCKETS <= FATBATCH_BUCKETS &&
                COMMIT_SIZE_BUCKETS <= FATBATCH_BUCKETS,
                "histograms are copied");

/* -- What an earlier run has left ---------------------------------------- */

static void
tell (struct fatbatch *fb, bool problem, const char *message)
{
  if (message[0] && fb->options.notice)
    fb->options.notice (fb->options.notice_opaque, problem, message);
}

static int
find_left (struct fatbatch *fb)
{
  struct fatbatch_error notice;
  int r;

  r = mirror_find_left (&fb->mirror, fb->layout, notice.message,
                        sizeof notice.message);
  tell (fb, true, notice.message);
  return r;
}

static int
recover (struct fatbatch *fb)
{
  struct fatbatch_error notice;
  int r;

  r = mirror_recover (&fb->mirror, notice.message, sizeof notice.message);
  if (r < 0)
    return r;
  epoch_wait (&fb->epoch);      /* for readers who saw it not yet done */
  tell (fb, false, notice.message);
  return 0;
}

/* -- Opening and closing ----------------------------------------------- */

static bool
peek_fat1 (void *opaque, void *buf, uint64_t start, uint64_t end)
{
  return mirror_peek (opaque, buf, start, end);
}

int
engine_new (struct disk *disk, struct file *file, struct intent_store *store,
            const struct fatbatch_options *options, struct fatbatch **ret)
{
  struct fatbatch *fb;
  int r;

  /* Its parts are aligned to cache lines. */
  fb = aligned_alloc (_Alignof (struct fatbatch), sizeof *fb);
  if (!fb) {
    disk_free (disk);
    file_close (file);
    intent_store_free (store);
    return -ENOMEM;
  }
  memset (fb, 0, sizeof *fb);
  fb->options = *options;
  fb->write_through = options->cache == FATBATCH_WRITETHROUGH ||
    options->cache == FATBATCH_DIRECTSYNC;
  fb->disk = disk;
  fb->file = file;
  fb->store = store;
  atomic_init (&fb->writable, file == NULL);
  pthread_mutex_init (&fb->scan_lock, NULL);
  pthread_mutex_init (&fb->writable_lock, NULL);
  epoch_init (&fb->epoch);
  rangelock_init (&fb->ranges);
  commit_init (&fb->commit, disk, options->cache == FATBATCH_UNSAFE);
  mirror_init (&fb->mirror, disk, &fb->commit, &fb->deferred, &fb->stats,
               store, options);
  /* Only where mirrors are, or writes would be looked at in vain; and with
   * cache=unsafe nothing waits for a commit anyway.
   */
  deferred_init (&fb->deferred, &fb->commit, &fb->epoch, &fb->stats,
                 fb->mirror.enabled && options->cache != FATBATCH_UNSAFE
                 ? options->commit_delay_ms * UINT64_C (1000000) : 0);

  tree_init (&fb->tree, disk, &fb->commit, &fb->epoch, &fb->ranges,
             &fb->stats, !options->serial);
  fb->tree.peek = peek_fat1;
  fb->tree.peek_opaque = &fb->mirror;
  r = engine_scan_layout (fb);
  if (r == 0)
    r = find_left (fb);
  if (r == 0 && !file)
    r = recover (fb);
  if (r < 0) {
    fatbatch_close (fb);
    return r;
  }
  *ret = fb;
  return 0;
}

void
fatbatch_close (struct fatbatch *fb)
{
  if (!fb)
    return;
  tree_release (&fb->tree);
  mirror_settle (&fb->mirror, true);
  mirror_release (&fb->mirror);
  deferred_release (&fb->deferred);
  commit_release (&fb->commit);
  rangelock_release (&fb->ranges);
  epoch_release (&fb->epoch);
  pthread_mutex_destroy (&fb->writable_lock);
  pthread_mutex_destroy (&fb->scan_lock);
  layout_free (fb->layout);
  disk_free (fb->disk);
  file_close (fb->file);
  intent_store_free (fb->store);
  free (fb);
}

int
fatbatch_probe_uring (void)
{
  return disk_uring_probe ();
}

/* Which leaf, by what is wished for and what there is.  With io=posix io_uring
 * is not so much as asked for: a seccomp filter may kill who tries.
 */
static int
choose_disk (struct file *file, enum fatbatch_io io, struct disk **ret,
             int *uring_error, struct fatbatch_error *err)
{
  bool uring = io != FATBATCH_IO_POSIX;
  int r;

  *uring_error = uring ? disk_uring_probe () : 0;
  if (*uring_error < 0 && io == FATBATCH_IO_URING)
    return error_set (err, *uring_error,
                      "io=uring: io_uring cannot be used here: %s; it may be "
                      "forbidden by seccomp or by the sysctl "
                      "kernel.io_uring_disabled: use io=auto or io=posix",
                      fatbatch_strerror (-*uring_error));
  if (uring && *uring_error == 0)
    r = disk_uring_new (file, ret);
  else
    r = disk_posix_new (file, ret);
  return r < 0 ? error_set (err, r, "%s: %s", file->path,
                            fatbatch_strerror (-r)) : 0;
}

/* Where the intent record is: beside the image, if nothing else is said, and
 * not beside a symbolic link to it: another start may use another name.  A
 * block device has no such place.
 */
static int
choose_store (const struct file *file, const struct fatbatch_options *options,
              struct intent_store **ret, struct fatbatch_error *err)
{
  CLEANUP_FREE char *beside = NULL, *real = NULL;
  const char *path = options->intent;
  int r;

  if (!path && file->is_block)
    return 0;
  if (!path) {
    real = realpath (file->path, NULL);
    if (asprintf (&beside, "%s.fatbatch", real ? real : file->path) == -1)
      return error_set (err, -ENOMEM, "%s: %s", file->path,
                        fatbatch_strerror (ENOMEM));
    path = beside;
  }
  r = intent_file_new (path, options->cache == FATBATCH_UNSAFE, ret);
  return r < 0 ? error_set (err, r, "%s: %s", path, fatbatch_strerror (-r))
    : 0;
}

/* A user of a block device wonders why FAT mirrors are not deferred. */
static void
tell_if_no_place (struct fatbatch *fb)
{
  struct mirror_volume volume;
  struct fatbatch_error notice;
  size_t i;

  if (fb->store || fb->options.no_intent ||
      fb->options.durability == FATBATCH_DURABILITY_BLOCK)
    return;
  for (i = 0; i < fb->layout->nr_volumes; ++i)
    if (mirror_volume_of (&fb->layout->volumes[i], &volume))
      break;
  if (i == fb->layout->nr_volumes)
    return;
  error_set (&notice, 0, "%s: a block device has no place for an intent record "
             "beside it: FAT mirrors are written at once, which is slower "
             "(intent=PATH gives it one, intent=none says that this is meant)",
             fb->file->path);
  tell (fb, true, notice.message);
}

int
fatbatch_open (const char *path, const struct fatbatch_options *options,
               struct fatbatch **ret, struct fatbatch_error *err)
{
  bool direct = options->cache == FATBATCH_NONE ||
    options->cache == FATBATCH_DIRECTSYNC;
  struct intent_store *store = NULL;
  struct file *file;
  struct disk *disk;
  int uring_error = 0, r;

  r = file_open (path, direct, options->lock, &file, err);
  if (r < 0)
    return r;
  r = choose_store (file, options, &store, err);
  if (r == 0)
    r = choose_disk (file, options->io, &disk, &uring_error, err);
  if (r < 0) {
    intent_store_free (store);
    file_close (file);
    return r;
  }
  r = engine_new (disk, file, store, options, ret);
  if (r < 0)
    return error_set (err, r, "%s: %s", path, fatbatch_strerror (-r));
  (*ret)->uring_error = uring_error;
  tell_if_no_place (*ret);
  return 0;
}

/* Nobody else changes the layout meanwhile. */
void
engine_start_tree (struct fatbatch *fb)
{
  SCOPED_LOCK (&fb->scan_lock);
  if (fb->options.durability == FATBATCH_DURABILITY_BLOCK)
    return;                     /* request by request, whatever it is of */
  tree_start (&fb->tree);
  tree_set_layout (&fb->tree, fb->layout);
}

int
fatbatch_set_writable (struct fatbatch *fb, struct fatbatch_error *err)
{
  int r;

  SCOPED_LOCK (&fb->writable_lock);
  if (atomic_load (&fb->writable))
    return 0;
  r = file_set_writable (fb->file, err);
  if (r < 0)
    return r;
  r = recover (fb);
  if (r < 0 && fb->mirror.left_record == LEFT_STALE &&
      atomic_load (&fb->mirror.nr_left) == 0)
    return error_set (err, r, "%s: the intent record %s is not used, and "
                      "cannot be renamed %s.stale: %s; the image stays "
                      "read-only: move the record away", fb->file->path,
                      fb->store->name, fb->store->name,
                      fatbatch_strerror (-r));
  if (r < 0)
    return error_set (err, r, "%s: bringing back the FAT mirrors that a run "
                      "which did not end well has left failed: %s; nothing is "
                      "lost: %s still says what is to be done",
                      fb->file->path, fatbatch_strerror (-r),
                      fb->store->name);
  atomic_store (&fb->writable, true);
  engine_start_tree (fb);
  return 0;
}

/* -- Reports ----------------------------------------------------------- */

void
fatbatch_get_info (struct fatbatch *fb, struct fatbatch_info *ret)
{
  ret->size = fb->disk->size;
  ret->preferred_io = max_u64 (fb->disk->preferred_io, fb->disk->align);
  ret->writable = atomic_load (&fb->writable);
  ret->rotational = fb->disk->rotational;
  ret->has_extents = fb->file && fb->file->has_extents;
  ret->page_cache = fb->file && !fb->file->direct;
  ret->io = fb->disk->ops->name;
  ret->uring_error = fb->uring_error;
}

void
fatbatch_get_stats (struct fatbatch *fb, struct fatbatch_stats *ret)
{
  const struct disk_faults *faults = &fb->disk->faults;
  struct commit_stats commit;

  stats_read (&fb->stats, ret);
  commit_get_stats (&fb->commit, &commit);
  ret->commit_members = commit.members;
  ret->commit_groups = commit.groups;
  ret->commits_saved = commit.saved;
  ret->commit_plugs = commit.plugs;
  ret->commit_plugs_complete = commit.plugs_complete;
  ret->commit_plug_ns = commit.plug_ns;
  ret->syncs = commit.syncs;
  ret->io_eio = atomic_load (&faults->eio);
  ret->io_enospc = atomic_load (&faults->enospc);
  ret->io_other_errors = atomic_load (&faults->others);
  ret->io_short = atomic_load (&faults->short_transfers);
  ret->io_interrupted = atomic_load (&faults->interrupted);
  ret->io_broken_rings = atomic_load (&faults->broken_rings);
}

void
fatbatch_get_histograms (struct fatbatch *fb, struct fatbatch_histograms *ret)
{
  struct commit_stats commit;

  commit_get_stats (&fb->commit, &commit);
  memset (ret, 0, sizeof *ret);
  memcpy (ret->group_sizes, commit.sizes, sizeof commit.sizes);
  memcpy (ret->fua_wait_ns, commit.waits[COMMIT_FUA],
          sizeof commit.waits[COMMIT_FUA]);
  memcpy (ret->flush_wait_ns, commit.waits[COMMIT_FLUSH],
          sizeof commit.waits[COMMIT_FLUSH]);
  memcpy (ret->background_wait_ns, commit.waits[COMMIT_BACKGROUND],
          sizeof commit.waits[COMMIT_BACKGROUND]);
}

/* Text that grows to the right and is cut at the buffer's end. */
struct text {
  char *buf;
  size_t size, used;
};

static void
text_add (struct text *text, const char *fmt, ...)
{
  va_list args;
  int n;

  va_start (args, fmt);
  n = vsnprintf (text->buf + text->used, text->size - text->used, fmt, args);
  va_end (args);
  if (n > 0)
    text->used = min_u64 (text->used + n, text->size - 1);
}

static void
describe_volume (struct text *text, const struct layout_volume *volume)
{
  const struct bpb *bpb = &volume->bpb;

  if (volume->partition > 0)
    text_add (text, "; partition %u: ", volume->partition);
  text_add (text, "FAT32 volume%s%s, %" PRIu64 " MiB, %" PRIu32
            "-byte clusters, %" PRIu32 " FAT%s",
            bpb->label[0] ? " " : "", bpb->label,
            bpb->total_sectors * bpb->sector_size >> 20,
            bpb->cluster_size, bpb->nr_fats, bpb->nr_fats == 1 ? "" : "s");
  if (bpb_few_clusters (bpb))
    text_add (text, ", fewer clusters than FAT32 should have");
}

void
fatbatch_describe (struct fatbatch *fb, char *buf, size_t size)
{
  struct text text = { buf, size, 0 };
  const struct layout *layout;
  epoch_token token;
  size_t i;

  buf[0] = '\0';
  token = epoch_enter (&fb->epoch);
  layout = atomic_load (&fb->layout);
  if (layout->nr_volumes != 1 || layout->volumes[0].partition != 0)
    text_add (&text, "%s", layout->table == PARTITION_NONE
              ? "no partition table" : partition_table_string (layout->table));
  if (layout->nr_volumes == 0)
    text_add (&text, "; no FAT32 volume");
  for (i = 0; i < layout->nr_volumes; ++i)
    describe_volume (&text, &layout->volumes[i]);
  epoch_leave (token);
}
