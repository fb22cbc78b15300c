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

/* -- Opening and closing ----------------------------------------------- */

static int
layout_read (void *opaque, void *buf, size_t count, uint64_t offset)
{
  return disk_read (opaque, buf, count, offset);
}

int
engine_scan_layout (struct fatbatch *fb)
{
  const struct layout *old;
  struct layout *layout;
  int r;

  SCOPED_LOCK (&fb->scan_lock);
  stats_add (&fb->stats, STATS_layout_scans, 1);
  r = layout_scan (layout_read, fb->disk, fb->disk->size, &layout);
  old = fb->layout;             /* only changed with scan_lock held */
  if (r == 0 && old && layout_equal (old, layout)) {
    layout_free (layout);
    return 0;
  }
  sharedlock_lock (&fb->layout_lock);
  fb->layout = r < 0 ? &layout_unknown : layout;
  sharedlock_unlock (&fb->layout_lock);
  layout_free (old);
  return r;
}

int
engine_new (struct disk *disk, struct file *file,
            const struct fatbatch_options *options, struct fatbatch **ret)
{
  struct fatbatch *fb;
  int r;

  /* Its parts are aligned to cache lines. */
  fb = aligned_alloc (_Alignof (struct fatbatch), sizeof *fb);
  if (!fb) {
    disk_free (disk);
    file_close (file);
    return -ENOMEM;
  }
  memset (fb, 0, sizeof *fb);
  fb->options = *options;
  fb->write_through = options->cache == FATBATCH_WRITETHROUGH ||
    options->cache == FATBATCH_DIRECTSYNC;
  fb->disk = disk;
  fb->file = file;
  atomic_init (&fb->writable, file == NULL);
  pthread_mutex_init (&fb->scan_lock, NULL);
  pthread_mutex_init (&fb->writable_lock, NULL);
  sharedlock_init (&fb->layout_lock);
  rangelock_init (&fb->ranges);
  commit_init (&fb->commit, disk, options->cache == FATBATCH_UNSAFE);

  r = engine_scan_layout (fb);
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
  commit_release (&fb->commit);
  rangelock_release (&fb->ranges);
  sharedlock_release (&fb->layout_lock);
  pthread_mutex_destroy (&fb->writable_lock);
  pthread_mutex_destroy (&fb->scan_lock);
  layout_free (fb->layout);
  disk_free (fb->disk);
  file_close (fb->file);
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

int
fatbatch_open (const char *path, const struct fatbatch_options *options,
               struct fatbatch **ret, struct fatbatch_error *err)
{
  bool direct = options->cache == FATBATCH_NONE ||
    options->cache == FATBATCH_DIRECTSYNC;
  struct file *file;
  struct disk *disk;
  int uring_error, r;

  r = file_open (path, direct, options->lock, &file, err);
  if (r < 0)
    return r;
  r = choose_disk (file, options->io, &disk, &uring_error, err);
  if (r < 0) {
    file_close (file);
    return r;
  }
  r = engine_new (disk, file, options, ret);
  if (r < 0)
    return error_set (err, r, "%s: %s", path, fatbatch_strerror (-r));
  (*ret)->uring_error = uring_error;
  return 0;
}

int
fatbatch_set_writable (struct fatbatch *fb, struct fatbatch_error *err)
{
  int r;

  SCOPED_LOCK (&fb->writable_lock);
  if (atomic_load (&fb->writable))
    return 0;
  r = file_set_writable (fb->file, err);
  if (r == 0)
    atomic_store (&fb->writable, true);
  return r;
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
  struct commit_stats commit;

  stats_read (&fb->stats, ret);
  commit_get_stats (&fb->commit, &commit);
  ret->commit_members = commit.members;
  ret->commit_groups = commit.groups;
  ret->syncs = commit.syncs;
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
  unsigned slot;
  size_t i;

  buf[0] = '\0';
  slot = sharedlock_lock_shared (&fb->layout_lock);
  layout = fb->layout;
  if (layout->nr_volumes != 1 || layout->volumes[0].partition != 0)
    text_add (&text, "%s", layout->table == PARTITION_NONE
              ? "no partition table" : partition_table_string (layout->table));
  if (layout->nr_volumes == 0)
    text_add (&text, "; no FAT32 volume");
  for (i = 0; i < layout->nr_volumes; ++i)
    describe_volume (&text, &layout->volumes[i]);
  sharedlock_unlock_shared (&fb->layout_lock, slot);
}
