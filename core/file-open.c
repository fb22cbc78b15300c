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
#include <sys/mman.h>
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

/* The alignments that O_DIRECT needs: asked from the kernel (6.1 and later),
 * or else found by trying, as QEMU does.
 */
static void
probe_align (struct file *file)
{
  const uint32_t max = 4096;
  CLEANUP_FREE void *buf = NULL;
  uint32_t align;

#ifdef HAVE_STRUCT_STATX_STX_DIO_OFFSET_ALIGN
  struct statx stx;

  if (statx (file->fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &stx) == 0 &&
      (stx.stx_mask & STATX_DIOALIGN) && stx.stx_dio_offset_align != 0) {
    file->align = max_u64 (stx.stx_dio_offset_align, 512);
    file->mem_align = max_u64 (stx.stx_dio_mem_align, 1);
    return;
  }
#endif
  file->align = file->mem_align = max;
  if (posix_memalign (&buf, 2 * max, 2 * max) != 0)
    return;
  for (align = 512; align < max; align *= 2)
    if (pread (file->fd, (char *) buf + align, align, align) >= 0)
      break;
  file->align = file->mem_align = align;
}

/* A partition has no queue, its disk has. */
static bool
is_rotational (const struct stat *st)
{
  static const char *const places[] = { "queue", "../queue" };
  char path[80];
  char c = '0';
  int fd = -1;
  size_t i;

  for (i = 0; fd == -1 && i < 2; ++i) {
    snprintf (path, sizeof path, "/sys/dev/block/%u:%u/%s/rotational",
              major (st->st_rdev), minor (st->st_rdev), places[i]);
    fd = open (path, O_RDONLY | O_CLOEXEC);
  }
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
  /* The kernel does not give access to a part of a block at the end. */
  file->size = align_down (size, logical);
  file->block_size = logical;
  file->preferred_io = max_u64 (4096, physical);
  file->rotational = is_rotational (st);
  if (file->direct)
    file->align = file->mem_align = logical;
  return 0;
}

static int
find_limits (struct file *file, struct fatbatch_error *err)
{
  struct stat st;

  if (fstat (file->fd, &st) == -1)
    return error_set (err, -errno, "%s: cannot stat: %s",
                      file->path, fatbatch_strerror (errno));
  file->align = file->mem_align = file->block_size = 1;
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
    probe_align (file);
  return 0;
}

/* Is fd the file that is open already? */
static bool
is_same_file (const struct file *file, int fd)
{
  struct stat a, b;

  return fstat (file->buffered_fd, &a) == 0 && fstat (fd, &b) == 0 &&
    a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Open the very file that is open already, whatever its path leads to by
 * now: by /proc, or where that is not mounted by the path, and then it must
 * be the same one still.
 */
static int
reopen (const struct file *file, int flags)
{
  char path[64];
  int fd;

  snprintf (path, sizeof path, "/proc/self/fd/%d", file->buffered_fd);
  fd = open (path, flags | O_CLOEXEC);
  if (fd == -1 && errno == ENOENT) {
    fd = open (file->path, flags | O_CLOEXEC | O_NONBLOCK);
    if (fd != -1 && !is_same_file (file, fd)) {
      close (fd);
      return -ESTALE;
    }
  }
  return fd == -1 ? -errno : fd;
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

  r = reopen (file, O_RDONLY | O_DIRECT);
  if (r < 0)
    return open_error (file, "", -r, err);
  file->fd = r;
  return find_limits (file, err);
}

static int
take_read_lock (struct file *file, struct fatbatch_error *err)
{
  const char *conflict = NULL;
  int r;

  r = reopen (file, O_RDONLY);
  if (r < 0)
    return open_error (file, " for locking", -r, err);
  file->lock_fd = r;
  r = imagelock_read (file->lock_fd, &conflict);
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

/* Put the open file of *fd in the place of old, with the number of old: who
 * uses that number at this moment stays with the old open file, which is of
 * the same image.
 */
static int
replace_fd (int *fd, int old)
{
  if (dup3 (*fd, old, O_CLOEXEC) == -1)
    return -errno;
  close (*fd);
  *fd = -1;
  return 0;
}

static int
open_writable (struct file *file, int *fd, int *direct_fd,
               struct fatbatch_error *err)
{
  const char *conflict = NULL;
  int r;

  *fd = reopen (file, O_RDWR);
  if (*fd < 0)
    return open_error (file, " for writing", -*fd, err);
  if (file->direct) {
    *direct_fd = reopen (file, O_RDWR | O_DIRECT);
    if (*direct_fd < 0)
      return open_error (file, " for writing", -*direct_fd, err);
  }
  if (file->lock_fd < 0)
    return 0;
  r = imagelock_write (file->lock_fd, &conflict);
  return r < 0 ? lock_error (file, conflict, r, err) : 0;
}

/* file.h, rule 4.  Some file systems can't (FUSE with direct I/O), and there
 * may be no room in the address space; then it is done without.
 */
static void
map_image (struct file *file)
{
  void *map = MAP_FAILED;

  if (file->size > 0 && file->size <= SIZE_MAX)
    map = mmap (NULL, file->size, PROT_READ, MAP_SHARED, file->fd, 0);
  if (map != MAP_FAILED)
    atomic_store_explicit (&file->map, map, memory_order_release);
}

int
file_set_writable (struct file *file, struct fatbatch_error *err)
{
  int fd = -1, direct_fd = -1, r;

  r = open_writable (file, &fd, &direct_fd, err);
  if (r == 0) {
    if (file->direct)
      r = replace_fd (&direct_fd, file->fd);
    if (r == 0)
      r = replace_fd (&fd, file->buffered_fd);
    if (r < 0)
      open_error (file, " for writing", -r, err);
    else
      map_image (file);
  }
  if (fd >= 0)
    close (fd);
  if (direct_fd >= 0)
    close (direct_fd);
  return r;
}

void
file_close (struct file *file)
{
  if (!file)
    return;
  if (file->map)
    munmap (file->map, file->size);
  if (file->fd >= 0 && file->fd != file->buffered_fd)
    close (file->fd);
  if (file->buffered_fd >= 0)
    close (file->buffered_fd);
  if (file->lock_fd >= 0)
    close (file->lock_fd);
  free (file->path);
  free (file);
}
