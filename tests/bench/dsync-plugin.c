/* SPDX-License-Identifier: BSD-3-Clause */

/* The honest baseline of the benchmark: the least that an nbdkit plugin must
 * do to be durable.  It knows nothing of FAT32, merges nothing, and keeps
 * nothing in memory.
 *
 *  1. A write is one pwritev2(2).  FUA is RWF_DSYNC: on return the bytes, and
 *     what is needed to find them, are on the disk.
 *  2. A flush is one fdatasync(2).
 *  3. Requests run in parallel, as many as nbdkit has threads.
 *
 * nbdkit ./dsync-plugin.so IMAGE
 */

#define _GNU_SOURCE
#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

static char *image;
static int image_fd = -1;

static int
dsync_config (const char *key, const char *value)
{
  if (strcmp (key, "file") != 0 || image != NULL) {
    nbdkit_error ("one parameter only: the image");
    return -1;
  }
  image = nbdkit_realpath (value);
  return image == NULL ? -1 : 0;
}

static int
dsync_get_ready (void)
{
  if (image == NULL) {
    nbdkit_error ("which image?");
    return -1;
  }
  image_fd = open (image, O_RDWR | O_CLOEXEC);
  if (image_fd == -1) {
    nbdkit_error ("%s: %m", image);
    return -1;
  }
  return 0;
}

static void
dsync_unload (void)
{
  if (image_fd != -1)
    close (image_fd);
  free (image);
}

static void *
dsync_open (int readonly)
{
  (void) readonly;
  return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t
dsync_get_size (void *handle)
{
  struct stat st;

  (void) handle;
  if (fstat (image_fd, &st) == -1) {
    nbdkit_error ("%s: %m", image);
    return -1;
  }
  return st.st_size;
}

/* All connections share one file and one page cache. */
static int
dsync_can_multi_conn (void *handle)
{
  (void) handle;
  return 1;
}

static int
dsync_can_fua (void *handle)
{
  (void) handle;
  return NBDKIT_FUA_NATIVE;
}

static int
dsync_pread (void *handle, void *buffer, uint32_t count, uint64_t offset,
             uint32_t flags)
{
  char *to = buffer;

  (void) handle;
  (void) flags;
  while (count > 0) {
    ssize_t r = pread (image_fd, to, count, (off_t) offset);
    if (r == -1 && errno == EINTR)
      continue;
    if (r <= 0) {
      if (r == 0)
        errno = EIO;            /* the file has become shorter */
      nbdkit_error ("pread: %m");
      return -1;
    }
    to += r;
    count -= (uint32_t) r;
    offset += (uint64_t) r;
  }
  return 0;
}

static int
dsync_pwrite (void *handle, const void *buffer, uint32_t count,
              uint64_t offset, uint32_t flags)
{
  struct iovec iov = { .iov_base = (void *) buffer, .iov_len = count };
  int dsync = flags & NBDKIT_FLAG_FUA ? RWF_DSYNC : 0;

  (void) handle;
  while (iov.iov_len > 0) {
    ssize_t r = pwritev2 (image_fd, &iov, 1, (off_t) offset, dsync);
    if (r == -1 && errno == EINTR)
      continue;
    if (r <= 0) {
      nbdkit_error ("pwritev2: %m");
      return -1;
    }
    iov.iov_base = (char *) iov.iov_base + r;
    iov.iov_len -= (size_t) r;
    offset += (uint64_t) r;
  }
  return 0;
}

static int
dsync_flush (void *handle, uint32_t flags)
{
  (void) handle;
  (void) flags;
  if (fdatasync (image_fd) == -1) {
    nbdkit_error ("fdatasync: %m");
    return -1;
  }
  return 0;
}

static struct nbdkit_plugin plugin = {
  .name = "dsync",
  .longname = "baseline of the benchmark",
  .unload = dsync_unload,
  .config = dsync_config,
  .magic_config_key = "file",
  .get_ready = dsync_get_ready,
  .open = dsync_open,
  .get_size = dsync_get_size,
  .can_multi_conn = dsync_can_multi_conn,
  .can_fua = dsync_can_fua,
  .pread = dsync_pread,
  .pwrite = dsync_pwrite,
  .flush = dsync_flush,
  .errno_is_preserved = 1,
};

NBDKIT_REGISTER_PLUGIN (plugin)
