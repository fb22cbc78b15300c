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
  struct layout *layout;
  int r;

  r = layout_scan (layout_read, fb->disk, fb->disk->size, &layout);
  layout_free (fb->layout);
  fb->layout = r < 0 ? &layout_unknown : layout;
  stats_add (&fb->stats.layout_scans, 1);
  return r;
}

static void
layout_lock_init (pthread_rwlock_t *lock)
{
  pthread_rwlockattr_t attr;

  /* glibc prefers readers, and under a steady load a write to the partition
   * table would wait for ever.
   */
  pthread_rwlockattr_init (&attr);
  pthread_rwlockattr_setkind_np
    (&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
  pthread_rwlock_init (lock, &attr);
  pthread_rwlockattr_destroy (&attr);
}

int
engine_new (struct disk *disk, struct file *file,
            const struct fatbatch_options *options, struct fatbatch **ret)
{
  struct fatbatch *fb = calloc (1, sizeof *fb);
  int r;

  if (!fb) {
    disk_free (disk);
    file_close (file);
    return -ENOMEM;
  }
  fb->options = *options;
  fb->write_through = options->cache == FATBATCH_WRITETHROUGH ||
    options->cache == FATBATCH_DIRECTSYNC;
  fb->disk = disk;
  fb->file = file;
  fb->writable = file == NULL;
  layout_lock_init (&fb->layout_lock);
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
  pthread_rwlock_destroy (&fb->layout_lock);
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

/* Which leaf, by what is wished for and what there is. */
static int
choose_disk (struct file *file, enum fatbatch_io io, struct disk **ret,
             struct fatbatch_error *err)
{
  int r = io == FATBATCH_IO_POSIX ? -EOPNOTSUPP : disk_uring_probe ();

  if (r < 0 && io == FATBATCH_IO_URING)
    return error_set (err, r, "io=uring: io_uring cannot be used here: %s; "
                      "it may be forbidden by seccomp or by the sysctl "
                      "kernel.io_uring_disabled: use io=auto or io=posix",
                      fatbatch_strerror (-r));
  r = r < 0 ? disk_posix_new (file, ret) : disk_uring_new (file, ret);
  return r < 0 ? error_set (err, r, "%s: %s", file->path, fatbatch_strerror (-r)) : 0;
}

int
fatbatch_open (const char *path, const struct fatbatch_options *options,
               struct fatbatch **ret, struct fatbatch_error *err)
{
  bool direct = options->cache == FATBATCH_NONE ||
    options->cache == FATBATCH_DIRECTSYNC;
  struct file *file;
  struct disk *disk;
  int r;

  r = file_open (path, direct, options->lock, &file, err);
  if (r < 0)
    return r;
  r = choose_disk (file, options->io, &disk, err);
  if (r < 0) {
    file_close (file);
    return r;
  }
  r = engine_new (disk, file, options, ret);
  return r < 0 ? error_set (err, r, "%s: %s", path, fatbatch_strerror (-r)) : 0;
}

int
fatbatch_set_writable (struct fatbatch *fb, struct fatbatch_error *err)
{
  int r = 0;

  pthread_rwlock_wrlock (&fb->layout_lock);
  if (!fb->writable) {
    r = file_set_writable (fb->file, err);
    fb->writable = r == 0;
  }
  pthread_rwlock_unlock (&fb->layout_lock);
  return r;
}

/* -- Reports ----------------------------------------------------------- */

void
fatbatch_get_info (struct fatbatch *fb, struct fatbatch_info *ret)
{
  pthread_rwlock_rdlock (&fb->layout_lock);
  ret->size = fb->disk->size;
  ret->preferred_io = max_u64 (fb->disk->preferred_io, fb->disk->align);
  ret->writable = fb->writable;
  ret->rotational = fb->disk->rotational;
  ret->has_extents = fb->file && fb->file->has_extents;
  ret->page_cache = fb->file && !fb->file->direct;
  ret->io = fb->disk->ops->name;
  pthread_rwlock_unlock (&fb->layout_lock);
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
  static const char *const tables[] = {
    [PARTITION_NONE] = "no partition table",
    [PARTITION_MBR] = "MBR",
    [PARTITION_GPT] = "GPT",
  };
  struct text text = { buf, size, 0 };
  const struct layout *layout;
  size_t i;

  buf[0] = '\0';
  pthread_rwlock_rdlock (&fb->layout_lock);
  layout = fb->layout;
  if (layout->nr_volumes != 1 || layout->volumes[0].partition != 0)
    text_add (&text, "%s", tables[layout->table]);
  if (layout->nr_volumes == 0)
    text_add (&text, "; no FAT32 volume");
  for (i = 0; i < layout->nr_volumes; ++i)
    describe_volume (&text, &layout->volumes[i]);
  pthread_rwlock_unlock (&fb->layout_lock);
}
