/* SPDX-License-Identifier: BSD-3-Clause */

/* faultfs [-f] [FUSE options] --control=FILE [--log=FILE] [--direct-io]
 *         BACKING_DIR MOUNTPOINT
 *
 * A FUSE file system that passes one flat directory through, and fails or
 * delays operations on demand.
 *
 * Rules:
 *
 *  1. A write is in the backing file when it returns: nothing is cached
 *     here, so the backing file shows what a reader of the mount would see.
 *  2. The control file is read again before each operation.  It holds lines
 *     KEY=VALUE; a key that is absent (or the file) means no fault:
 *
 *       fsync_error=ERRNO      each fsync, fdatasync and O_DSYNC write fails
 *       write_error=ERRNO      each write, fallocate and truncate fails
 *       read_error=ERRNO       each read that reaches us fails
 *       fsync_delay_us=N       each fsync takes that much longer
 *
 *     ERRNO is EIO, ENOSPC, EDQUOT or EROFS.  Anything else ends the
 *     program: a test with a misspelt fault must not pass.  Replace the
 *     file by rename; one that is being written can be read half.
 *  3. A failed operation does nothing to the backing file.
 *  4. The log gets one line for each operation that changes or syncs a
 *     file, in one write(2), when the operation is done and before its
 *     caller learns the result (0 or more: success; else -errno):
 *
 *       write OFF LEN RESULT
 *       fallocate MODE OFF LEN RESULT
 *       fsync RESULT           fdatasync RESULT
 *
 * --direct-io sends every read and write here even if the opener did not use
 * O_DIRECT, so that read_error is not hidden by the page cache.
 */

#include <config.h>
#define FUSE_USE_VERSION 312

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fuse.h>

struct faultfs {
  char *control;                /* paths, as given; NULL if not */
  char *log;
  char *backing;
  int direct_io;
  int backing_fd;
  int log_fd;                   /* -1: no log */
};

/* Numbers > 0 are what the control file asks for. */
struct faults {
  int fsync_error;
  int write_error;
  int read_error;
  unsigned fsync_delay_us;
};

static struct faultfs *
get_faultfs (void)
{
  return fuse_get_context ()->private_data;
}

static int
get_backing_fd (void)
{
  return get_faultfs ()->backing_fd;
}

/* The only directory is "/": the rest of a path is a plain name. */
static const char *
get_name (const char *path)
{
  return path[1] == '\0' ? "." : path + 1;
}

static int
result (long r)
{
  return r == -1 ? -errno : (int) r;
}

static int
parse_errno (const char *name)
{
  static const int numbers[] = { EIO, ENOSPC, EDQUOT, EROFS };

  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
    if (strcmp (name, strerrorname_np (numbers[i])) == 0)
      return numbers[i];
  return 0;
}

/* False if the line means nothing (rule 2). */
static int
parse_fault (const char *key, const char *value, struct faults *faults)
{
  if (strcmp (key, "fsync_delay_us") == 0) {
    char *end;
    unsigned long us = strtoul (value, &end, 10);
    faults->fsync_delay_us = (unsigned) us;
    return *value != '\0' && *end == '\0';
  }

  int number = parse_errno (value);
  if (strcmp (key, "fsync_error") == 0)
    faults->fsync_error = number;
  else if (strcmp (key, "write_error") == 0)
    faults->write_error = number;
  else if (strcmp (key, "read_error") == 0)
    faults->read_error = number;
  else
    return 0;
  return number != 0;
}

static struct faults
read_faults (void)
{
  struct faults faults = { 0 };
  const char *path = get_faultfs ()->control;
  FILE *fp = path != NULL ? fopen (path, "re") : NULL;
  char line[128];

  if (fp == NULL)
    return faults;
  while (fgets (line, sizeof line, fp) != NULL) {
    line[strcspn (line, "\n")] = '\0';
    char *value = strchr (line, '=');
    if (value != NULL)
      *value++ = '\0';
    if (line[0] != '\0' &&
        (value == NULL || !parse_fault (line, value, &faults))) {
      fprintf (stderr, "faultfs: %s: bad line: %s\n", path, line);
      exit (EXIT_FAILURE);
    }
  }
  fclose (fp);
  return faults;
}

static void __attribute__ ((format (printf, 1, 2)))
log_operation (const char *format, ...)
{
  int fd = get_faultfs ()->log_fd;
  char line[128];
  va_list args;

  if (fd == -1)
    return;
  va_start (args, format);
  int length = vsnprintf (line, sizeof line, format, args);
  va_end (args);
  if (write (fd, line, (size_t) length) != length) {
    perror ("faultfs: log");
    exit (EXIT_FAILURE);
  }
}

static void *
faultfs_init (struct fuse_conn_info *conn, struct fuse_config *config)
{
  (void) conn;
  /* Tests change the backing directory behind our back. */
  config->attr_timeout = 0;
  config->entry_timeout = 0;
  config->negative_timeout = 0;
  config->hard_remove = 1;
  return get_faultfs ();
}

static int
faultfs_getattr (const char *path, struct stat *st, struct fuse_file_info *fi)
{
  if (fi != NULL)
    return result (fstat ((int) fi->fh, st));
  return result (fstatat (get_backing_fd (), get_name (path), st,
                          AT_SYMLINK_NOFOLLOW));
}

static int
faultfs_create (const char *path, mode_t mode, struct fuse_file_info *fi)
{
  /* O_DIRECT would make demands on the alignment of FUSE's buffers; and
   * syncs are asked for by the kernel, as operations of their own.
   */
  int flags = fi->flags & ~(O_DIRECT | O_APPEND | O_SYNC | O_NOFOLLOW);
  int fd = openat (get_backing_fd (), get_name (path), flags | O_CLOEXEC,
                   mode);

  if (fd == -1)
    return -errno;
  fi->fh = (uint64_t) fd;
  fi->direct_io = get_faultfs ()->direct_io || (fi->flags & O_DIRECT);
  return 0;
}

static int
faultfs_open (const char *path, struct fuse_file_info *fi)
{
  return faultfs_create (path, 0, fi);
}

static int
faultfs_release (const char *path, struct fuse_file_info *fi)
{
  (void) path;
  return result (close ((int) fi->fh));
}

/* Of each close(2): nothing is kept here that could be written (rule 1). */
static int
faultfs_flush (const char *path, struct fuse_file_info *fi)
{
  (void) path;
  (void) fi;
  return 0;
}

static int
faultfs_read (const char *path, char *data, size_t length, off_t offset,
              struct fuse_file_info *fi)
{
  struct faults faults = read_faults ();

  (void) path;
  if (faults.read_error != 0)
    return -faults.read_error;
  return result (pread ((int) fi->fh, data, length, offset));
}

static int
faultfs_write (const char *path, const char *data, size_t length,
               off_t offset, struct fuse_file_info *fi)
{
  struct faults faults = read_faults ();
  int r = -faults.write_error;

  (void) path;
  if (r == 0)
    r = result (pwrite ((int) fi->fh, data, length, offset));
  log_operation ("write %lld %zu %d\n", (long long) offset, length, r);
  return r;
}

static int
faultfs_fallocate (const char *path, int mode, off_t offset, off_t length,
                   struct fuse_file_info *fi)
{
  struct faults faults = read_faults ();
  int r = -faults.write_error;

  (void) path;
  if (r == 0)
    r = result (fallocate ((int) fi->fh, mode, offset, length));
  log_operation ("fallocate %d %lld %lld %d\n", mode, (long long) offset,
                 (long long) length, r);
  return r;
}

static int
faultfs_truncate (const char *path, off_t size, struct fuse_file_info *fi)
{
  struct faults faults = read_faults ();

  if (faults.write_error != 0)
    return -faults.write_error;
  if (fi != NULL)
    return result (ftruncate ((int) fi->fh, size));

  int fd = openat (get_backing_fd (), get_name (path), O_WRONLY | O_CLOEXEC);
  int r = fd == -1 ? -errno : result (ftruncate (fd, size));
  if (fd != -1)
    close (fd);
  return r;
}

static off_t
faultfs_lseek (const char *path, off_t offset, int whence,
               struct fuse_file_info *fi)
{
  off_t r = lseek ((int) fi->fh, offset, whence);

  (void) path;
  return r == -1 ? -errno : r;
}

static int
faultfs_fsync (const char *path, int datasync, struct fuse_file_info *fi)
{
  struct faults faults = read_faults ();
  int r = -faults.fsync_error;

  (void) path;
  if (faults.fsync_delay_us != 0)
    usleep (faults.fsync_delay_us);
  if (r == 0)
    r = result (datasync ? fdatasync ((int) fi->fh) : fsync ((int) fi->fh));
  log_operation ("%s %d\n", datasync ? "fdatasync" : "fsync", r);
  return r;
}

static int
faultfs_readdir (const char *path, void *buffer, fuse_fill_dir_t fill,
                 off_t offset, struct fuse_file_info *fi,
                 enum fuse_readdir_flags flags)
{
  int fd = openat (get_backing_fd (), ".", O_RDONLY | O_CLOEXEC);
  DIR *dir = fd == -1 ? NULL : fdopendir (fd);

  (void) path;
  (void) offset;
  (void) fi;
  (void) flags;
  if (dir == NULL)
    return -errno;
  for (struct dirent *d = readdir (dir); d != NULL; d = readdir (dir))
    fill (buffer, d->d_name, NULL, 0, 0);
  closedir (dir);
  return 0;
}

static int
faultfs_unlink (const char *path)
{
  return result (unlinkat (get_backing_fd (), get_name (path), 0));
}

static int
faultfs_rename (const char *from, const char *to, unsigned flags)
{
  return result (renameat2 (get_backing_fd (), get_name (from),
                            get_backing_fd (), get_name (to), flags));
}

static int
faultfs_statfs (const char *path, struct statvfs *st)
{
  (void) path;
  return result (fstatvfs (get_backing_fd (), st));
}

static const struct fuse_operations operations = {
  .init = faultfs_init,
  .getattr = faultfs_getattr,
  .create = faultfs_create,
  .open = faultfs_open,
  .release = faultfs_release,
  .flush = faultfs_flush,
  .read = faultfs_read,
  .write = faultfs_write,
  .fallocate = faultfs_fallocate,
  .truncate = faultfs_truncate,
  .lseek = faultfs_lseek,
  .fsync = faultfs_fsync,
  .readdir = faultfs_readdir,
  .unlink = faultfs_unlink,
  .rename = faultfs_rename,
  .statfs = faultfs_statfs,
};

static const struct fuse_opt options[] = {
  { "--control=%s", offsetof (struct faultfs, control), 0 },
  { "--log=%s", offsetof (struct faultfs, log), 0 },
  { "--direct-io", offsetof (struct faultfs, direct_io), 1 },
  FUSE_OPT_END
};

/* The first plain argument is ours, the second is for fuse_main. */
static int
take_backing (void *data, const char *arg, int key, struct fuse_args *args)
{
  struct faultfs *faultfs = data;

  (void) args;
  if (key != FUSE_OPT_KEY_NONOPT || faultfs->backing != NULL)
    return 1;
  faultfs->backing = strdup (arg);
  return 0;
}

int
main (int argc, char *argv[])
{
  struct fuse_args args = FUSE_ARGS_INIT (argc, argv);
  struct faultfs faultfs = { .log_fd = -1 };

  if (fuse_opt_parse (&args, &faultfs, options, take_backing) == -1)
    return EXIT_FAILURE;
  if (faultfs.backing == NULL) {
    fprintf (stderr, "usage: faultfs [-f] [--control=FILE] [--log=FILE] "
             "[--direct-io] BACKING_DIR MOUNTPOINT\n");
    return EXIT_FAILURE;
  }

  faultfs.backing_fd = open (faultfs.backing,
                             O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (faultfs.backing_fd == -1) {
    fprintf (stderr, "faultfs: %s: %m\n", faultfs.backing);
    return EXIT_FAILURE;
  }
  if (faultfs.log != NULL) {
    faultfs.log_fd = open (faultfs.log, O_WRONLY | O_CREAT | O_APPEND |
                           O_CLOEXEC, 0644);
    if (faultfs.log_fd == -1) {
      fprintf (stderr, "faultfs: %s: %m\n", faultfs.log);
      return EXIT_FAILURE;
    }
  }

  umask (0);
  int r = fuse_main (args.argc, args.argv, &operations, &faultfs);

  fuse_opt_free_args (&args);
  if (faultfs.log_fd != -1)
    close (faultfs.log_fd);
  close (faultfs.backing_fd);
  free (faultfs.backing);
  free (faultfs.control);
  free (faultfs.log);
  return r;
}
