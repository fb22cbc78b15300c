/* SPDX-License-Identifier: BSD-3-Clause */

/* Opening an image: what it is, how it may be accessed, and its locks. */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "error.h"
#include "file.h"
#include "imagelock.h"
#include "util.h"

static int
open_error (const struct file *file, const char *what, int err,
            struct fatbatch_error *error)
{
  if (err == EINVAL && file->direct)
    return error_set (error, -err,
                      "%s: cannot open with O_DIRECT: %s; this file system "
                      "may not support it: use cache=writeback or "
                      "cache=writethrough", file->path, fatbatch_strerror (err));
  return error_set (error, -err, "%s: cannot open%s: %s",
                    file->path, what, fatbatch_strerror (err));
}

static int
lock_error (const struct file *file, const char *conflict, int r,
            struct fatbatch_error *err)
{
  if (r == -EAGAIN)
    return error_set (err, -EBUSY,
                      "%s: cannot lock the image: another process (QEMU, or "
                      "another server) %s; stop it, or use lock=off at your "
                      "own risk", file->path, conflict);
  return error_set (err, r,
                    "%s: cannot lock the image: %s; this file system may not "
                    "support OFD locks: use lock=off",
                    file->path, fatbatch_strerror (-r));
}

/* The alignment that O_DIRECT needs: asked from the kernel (6.1 and later),
 * or else found by trying, as QEMU does.
 */
static uint32_t
probe_align (int fd)
{
  const uint32_t max = 4096;
  CLEANUP_FREE void *buf = NULL;
  uint32_t align;

#ifdef HAVE_STRUCT_STATX_STX_DIO_OFFSET_ALIGN
  struct statx stx;

  if (statx (fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 &&
      (stx.stx_mask & STATX_DIOALIGN) && stx.stx_dio_offset_align != 0) {
    align = max_u64 (stx.stx_dio_offset_align, stx.stx_dio_mem_align);
    return max_u64 (align, 512);
  }
#endif
  if (posix_memalign (&buf, 2 * max, 2 * max) != 0)
    return max;
  for (align = 512; align < max; align *= 2)
    if (pread (fd, (char *) buf + align, align, align) >= 0)
      break;
  return align;
}

static bool
is_rotational (const struct stat *st)
{
  char path[80];
  char c = '0';
  int fd;

  snprintf (path, sizeof path, "/sys/dev/block/%u:%u/queue/rotational",
            major (st->st_rdev), minor (st->st_rdev));
  fd = open (path, O_RDONLY | O_CLOEXEC);
  if (fd == -1)
    return false;
  if (read (fd, &c, 1) != 1)
    c = '0';
  close (fd);
  return c == '1';
}

static int
find_block_limits (struct file *file, const struct stat *st,
                   struct fatbatch_error *err)
{
  uint64_t size;
  int logical;
  unsigned physical;

  if (ioctl (file->fd, BLKGETSIZE64, &size) == -1 ||
      ioctl (file->fd, BLKSSZGET, &logical) == -1)
    return error_set (err, -errno, "%s: cannot get the device's size: %s",
                      file->path, fatbatch_strerror (errno));
  if (ioctl (file->fd, BLKPBSZGET, &physical) == -1)
    physical = logical;
  file->size = size;
  file->block_size = logical;
  file->preferred_io = max_u64 (4096, physical);
  file->rotational = is_rotational (st);
  if (file->direct)
    file->align = logical;
  return 0;
}

static int
find_limits (struct file *file, struct fatbatch_error *err)
{
  struct stat st;

  if (fstat (file->fd, &st) == -1)
    return error_set (err, -errno, "%s: cannot stat: %s",
                      file->path, fatbatch_strerror (errno));
  file->align = file->block_size = 1;
  file->is_block = S_ISBLK (st.st_mode);
  if (file->is_block)
    return find_block_limits (file, &st, err);

  if (!S_ISREG (st.st_mode))
    return error_set (err, S_ISDIR (st.st_mode) ? -EISDIR : -EINVAL,
                      "%s: is %s; give a disk image: a regular file or a "
                      "block device", file->path,
                      S_ISDIR (st.st_mode) ? "a directory" : "a special file");
  file->size = st.st_size;
  file->preferred_io = 4096;
  if (file->direct)
    file->align = probe_align (file->fd);
  return 0;
}

static int
open_fds (struct file *file, struct fatbatch_error *err)
{
  int r;

  /* O_NONBLOCK: a FIFO must be refused, not waited for. */
  file->fd = file->buffered_fd =
    open (file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file->fd == -1)
    return error_set (err, -errno, "%s: cannot open: %s",
                      file->path, fatbatch_strerror (errno));
  r = find_limits (file, err);
  if (r < 0 || !file->direct)
    return r;

  file->fd = open (file->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
  if (file->fd == -1)
    return open_error (file, "", errno, err);
  return find_limits (file, err);
}

static int
take_read_lock (struct file *file, struct fatbatch_error *err)
{
  const char *conflict = NULL;
  int r;

  file->lock_fd = open (file->path, O_RDONLY | O_CLOEXEC);
  r = file->lock_fd == -1 ? -errno : imagelock_read (file->lock_fd, &conflict);
  return r < 0 ? lock_error (file, conflict, r, err) : 0;
}

int
file_open (const char *path, bool direct, bool lock, struct file **ret,
           struct fatbatch_error *err)
{
  struct file *file = calloc (1, sizeof *file);
  int r = -ENOMEM;

  if (file) {
    file->fd = file->buffered_fd = file->lock_fd = -1;
    file->direct = direct;
    file->path = strdup (path);
  }
  if (!file || !file->path) {
    error_set (err, r, "%s: cannot open: %s", path, fatbatch_strerror (-r));
    goto out;
  }
  r = open_fds (file, err);
  if (r < 0)
    goto out;
  file->has_extents = !file->is_block &&
    (lseek (file->buffered_fd, 0, SEEK_HOLE) != -1 || errno == ENXIO);
  if (lock) {
    r = take_read_lock (file, err);
    if (r < 0)
      goto out;
  }
  *ret = file;
  return 0;

 out:
  file_close (file);
  return r;
}

/* Open the very file that is open already, whatever its path leads to by
 * now.
 */
static int
reopen (const struct file *file, int flags)
{
  char path[64];
  int fd;

  snprintf (path, sizeof path, "/proc/self/fd/%d", file->buffered_fd);
  fd = open (path, flags | O_CLOEXEC);
  return fd == -1 ? -errno : fd;
}

int
file_set_writable (struct file *file, struct fatbatch_error *err)
{
  const char *conflict = NULL;
  int fd, direct_fd, r;

  fd = reopen (file, O_RDWR);
  if (fd < 0)
    return open_error (file, " for writing", -fd, err);
  direct_fd = file->direct ? reopen (file, O_RDWR | O_DIRECT) : fd;
  if (direct_fd < 0) {
    close (fd);
    return open_error (file, " for writing", -direct_fd, err);
  }
  if (file->lock_fd >= 0) {
    r = imagelock_write (file->lock_fd, &conflict);
    if (r < 0) {
      close (fd);
      if (direct_fd != fd)
        close (direct_fd);
      return lock_error (file, conflict, r, err);
    }
  }

  if (file->fd != file->buffered_fd)
    close (file->fd);
  close (file->buffered_fd);
  file->buffered_fd = fd;
  file->fd = direct_fd;
  return 0;
}

void
file_close (struct file *file)
{
  if (!file)
    return;
  if (file->fd >= 0 && file->fd != file->buffered_fd)
    close (file->fd);
  if (file->buffered_fd >= 0)
    close (file->buffered_fd);
  if (file->lock_fd >= 0)
    close (file->lock_fd);
  free (file->path);
  free (file);
}
