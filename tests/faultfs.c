/* SPDX-License-Identifier: BSD-3-Clause */

/* faultfs [-f] [FUSE options] --control=FILE [--log=FILE] [--direct-io]
 *         [--powercut=SEED [--keep=PERCENT] [--writeback]]
 *         BACKING_DIR MOUNTPOINT
 *
 * A FUSE file system that passes one flat directory through, fails or delays
 * operations on demand, and forgets what was not synced when the power is cut.
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
 *       cut_at=N               with --powercut: see rule 5
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
 *     and with --powercut also
 *
 *       truncate SIZE RESULT   fsyncdir RESULT
 *       create RESULT          unlink RESULT           rename RESULT
 *       cut                    the power was cut just now
 *
 *  5. With --powercut the first N (cut_at) operations of those in the log are
 *     done; with the next one the power is cut, or if there were N already then
 *     with the next operation of any kind.  The backing directory is then what
 *     a disk might hold (powercut.h), and everything fails with EIO from then
 *     on.  Unmount, and mount anew.
 *
 * --writeback: the kernel keeps what is written, until a sync of that range,
 * and only then does it come here: a sync of another range does not cover it.
 * Rule 1 does not hold then.
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
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <fuse.h>

#include "powercut.h"

struct faultfs {
  char *control;                /* paths, as given; NULL if not */
  char *log;
  char *backing;
  char *powercut_seed;
  unsigned keep;
  int direct_io;
  int writeback;
  int backing_fd;
  int log_fd;                   /* -1: no log */
  struct powercut *powercut;    /* NULL: no --powercut */
  unsigned nr_changes;          /* operations for the log; powercut's lock */
};

/* Numbers > 0 are what the control file asks for. */
struct faults {
  int fsync_error;
  int write_error;
  int read_error;
  unsigned fsync_delay_us;
  unsigned cut_at;
  int cut;                      /* cut_at was given */
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

static int
parse_number (const char *value, unsigned *number)
{
  char *end;

  *number = (unsigned) strtoul (value, &end, 10);
  return *value != '\0' && *end == '\0';
}

/* False if the line means nothing (rule 2). */
static int
parse_fault (const char *key, const char *value, struct faults *faults)
{
  if (strcmp (key, "fsync_delay_us") == 0)
    return parse_number (value, &faults->fsync_delay_us);
  if (strcmp (key, "cut_at") == 0) {
    faults->cut = 1;
    return get_faultfs ()->powercut != NULL &&
      parse_number (value, &faults->cut_at);
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

/* -- Power cuts --------------------------------------------------------- */

static struct powercut *
get_powercut (void)
{
  return get_faultfs ()->powercut;
}

/* Before each operation; leaves the lock taken, if there is --powercut, so that
 * no cut comes between what is told to powercut.h and what is done.  Returns
 * -EIO if there is no power (any more).
 */
static int
begin_operation (const struct faults *faults, bool changes)
{
  struct faultfs *faultfs = get_faultfs ();

  if (faultfs->powercut == NULL)
    return 0;
  powercut_lock (faultfs->powercut);
  if (faults->cut && faultfs->nr_changes >= faults->cut_at &&
      !powercut_is_cut (faultfs->powercut)) {
    powercut_cut (faultfs->powercut);
    log_operation ("cut\n");
  }
  if (changes)
    faultfs->nr_changes++;
  return powercut_is_cut (faultfs->powercut) ? -EIO : 0;
}

static void
end_operation (void)
{
  if (get_powercut () != NULL)
    powercut_unlock (get_powercut ());
}

/* The same for those that neither change anything nor are told to
 * powercut.h.
 */
static int
check_power (const struct faults *faults)
{
  int r = begin_operation (faults, false);

  end_operation ();
  return r;
}

/* -- Operations --------------------------------------------------------- */

static void *
faultfs_init (struct fuse_conn_info *conn, struct fuse_config *config)
{
  if (get_faultfs ()->writeback)
    conn->want |= conn->capable & FUSE_CAP_WRITEBACK_CACHE;
  /* Tests change the backing directory behind our back. */
  config->attr_timeout = 0;
  config->entry_timeout = 0;
  config->negative_timeout = 0;
  config->hard_remove = 1;
  config->nullpath_ok = 1;
  return get_faultfs ();
}

static int
faultfs_getattr (const char *path, struct stat *st, struct fuse_file_info *fi)
{
  struct faults faults = read_faults ();
  int r = check_power (&faults);

  if (r != 0)
    return r;
  if (fi != NULL)
    return result (fstat ((int) fi->fh, st));
  return result (fstatat (get_backing_fd (), get_name (path), st,
                          AT_SYMLINK_NOFOLLOW));
}

/* O_DIRECT would make demands on the alignment of FUSE's buffers; and syncs are
 * asked for by the kernel, as operations of their own.  A kernel that keeps what
 * is written has to read, too.
 */
static int
backing_flags (int flags)
{
  flags &= ~(O_DIRECT | O_APPEND | O_SYNC | O_NOFOLLOW | O_TRUNC);
  if (get_faultfs ()->writeback && (flags & O_ACCMODE) == O_WRONLY)
    flags = (flags & ~O_ACCMODE) | O_RDWR;
  return flags | O_CLOEXEC;
}

static int
open_backing (const char *path, mode_t mode, struct fuse_file_info *fi)
{
  const char *name = get_name (path);
  bool is_new = (fi->flags & O_CREAT) &&
    faccessat (get_backing_fd (), name, F_OK, AT_SYMLINK_NOFOLLOW) == -1;
  int fd = openat (get_backing_fd (), name, backing_flags (fi->flags), mode);

  if (fd == -1)
    return -errno;
  if (get_powercut () != NULL && is_new)
    powercut_created (get_powercut (), name);
  if (fi->flags & O_TRUNC) {
    if (get_powercut () != NULL)
      powercut_resize (get_powercut (), fd, 0);
    if (ftruncate (fd, 0) == -1) {
      int r = -errno;
      close (fd);
      return r;
    }
  }
  fi->fh = (uint64_t) fd;
  fi->direct_io = get_faultfs ()->direct_io || (fi->flags & O_DIRECT);
  return 0;
}

static int
faultfs_create (const char *path, mode_t mode, struct fuse_file_info *fi)
{
  struct faults faults = read_faults ();
  int r = begin_operation (&faults, true);

  if (r == 0)
    r = open_backing (path, mode, fi);
  if (get_powercut () != NULL)
    log_operation ("create %d\n", r);
  end_operation ();
  return r;
}

static int
faultfs_open (const char *path, struct fuse_file_info *fi)
{
  struct faults faults = read_faults ();
  int r = begin_operation (&faults, false);

  if (r == 0)
    r = open_backing (path, 0, fi);
  end_operation ();
  return r;
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
  int r = check_power (&faults);

  (void) path;
  if (r != 0)
    return r;
  if (faults.read_error != 0)
    return -faults.read_error;
  return result (pread ((int) fi->fh, data, length, offset));
}

static int
faultfs_write (const char *path, const char *data, size_t length,
               off_t offset, struct fuse_file_info *fi)
{
  struct faults faults = read_faults ();
  int r = begin_operation (&faults, true);

  (void) path;
  if (r == 0)
    r = -faults.write_error;
  if (r == 0 && get_powercut () != NULL)
    powercut_change (get_powercut (), (int) fi->fh, offset, (off_t) length);
  if (r == 0)
    r = result (pwrite ((int) fi->fh, data, length, offset));
  log_operation ("write %lld %zu %d\n", (long long) offset, length, r);
  end_operation ();
  return r;
}

static int
faultfs_fallocate (const char *path, int mode, off_t offset, off_t length,
                   struct fuse_file_info *fi)
{
  struct faults faults = read_faults ();
  int r = begin_operation (&faults, true);

  (void) path;
  if (r == 0)
    r = -faults.write_error;
  if (r == 0 && get_powercut () != NULL)
    powercut_change (get_powercut (), (int) fi->fh, offset, length);
  if (r == 0)
    r = result (fallocate ((int) fi->fh, mode, offset, length));
  log_operation ("fallocate %d %lld %lld %d\n", mode, (long long) offset,
                 (long long) length, r);
  end_operation ();
  return r;
}

static int
truncate_backing (int fd, off_t size)
{
  if (get_powercut () != NULL)
    powercut_resize (get_powercut (), fd, size);
  return result (ftruncate (fd, size));
}

static int
faultfs_truncate (const char *path, off_t size, struct fuse_file_info *fi)
{
  struct faults faults = read_faults ();
  int r = begin_operation (&faults, true);
  int fd = -1;

  if (r == 0)
    r = -faults.write_error;
  if (r == 0 && fi != NULL)
    r = truncate_backing ((int) fi->fh, size);
  else if (r == 0) {
    fd = openat (get_backing_fd (), get_name (path), O_WRONLY | O_CLOEXEC);
    r = fd == -1 ? -errno : truncate_backing (fd, size);
  }
  if (get_powercut () != NULL)
    log_operation ("truncate %lld %d\n", (long long) size, r);
  end_operation ();
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

/* The lock is not held meanwhile: others write, and the power may be cut; but
 * at the end, when it is settled whether it was.
 */
static int
sync_for_powercut (const struct faults *faults, int fd)
{
  powercut_sync_begin (get_powercut (), fd);
  if (faults->fsync_delay_us != 0)
    usleep (faults->fsync_delay_us);

  int r = begin_operation (faults, true);
  if (r == 0)
    r = -faults->fsync_error;
  powercut_sync_end (get_powercut (), fd, r == 0);
  end_operation ();
  return r;
}

static int
faultfs_fsync (const char *path, int datasync, struct fuse_file_info *fi)
{
  struct faults faults = read_faults ();
  int r = -faults.fsync_error;

  (void) path;
  if (get_powercut () != NULL)
    r = sync_for_powercut (&faults, (int) fi->fh);
  else {
    if (faults.fsync_delay_us != 0)
      usleep (faults.fsync_delay_us);
    if (r == 0)
      r = result (datasync ? fdatasync ((int) fi->fh) : fsync ((int) fi->fh));
  }
  log_operation ("%s %d\n", datasync ? "fdatasync" : "fsync", r);
  return r;
}

static int
faultfs_fsyncdir (const char *path, int datasync, struct fuse_file_info *fi)
{
  struct faults faults = read_faults ();
  int r = begin_operation (&faults, true);

  (void) path;
  (void) datasync;
  (void) fi;
  if (r == 0)
    r = -faults.fsync_error;
  if (r == 0 && get_powercut () != NULL)
    powercut_names_synced (get_powercut ());
  else if (r == 0)
    r = result (fsync (get_backing_fd ()));
  if (get_powercut () != NULL)
    log_operation ("fsyncdir %d\n", r);
  end_operation ();
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
    if (!powercut_is_hidden (d->d_name))
      fill (buffer, d->d_name, NULL, 0, 0);
  closedir (dir);
  return 0;
}

static int
faultfs_unlink (const char *path)
{
  struct faults faults = read_faults ();
  int r = begin_operation (&faults, true);

  if (r == 0 && get_powercut () != NULL)
    r = powercut_unlink (get_powercut (), get_name (path));
  else if (r == 0)
    r = result (unlinkat (get_backing_fd (), get_name (path), 0));
  if (get_powercut () != NULL)
    log_operation ("unlink %d\n", r);
  end_operation ();
  return r;
}

static int
faultfs_rename (const char *from, const char *to, unsigned flags)
{
  struct faults faults = read_faults ();
  int r = begin_operation (&faults, true);

  from = get_name (from);
  to = get_name (to);
  if (r == 0 && get_powercut () != NULL)
    r = powercut_rename (get_powercut (), from, to, flags);
  else if (r == 0)
    r = result (renameat2 (get_backing_fd (), from, get_backing_fd (), to,
                           flags));
  if (get_powercut () != NULL)
    log_operation ("rename %d\n", r);
  end_operation ();
  return r;
}

/* A kernel that keeps what is written says so later. */
static int
faultfs_utimens (const char *path, const struct timespec times[2],
                 struct fuse_file_info *fi)
{
  if (fi != NULL)
    return result (futimens ((int) fi->fh, times));
  return result (utimensat (get_backing_fd (), get_name (path), times,
                            AT_SYMLINK_NOFOLLOW));
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
  .fsyncdir = faultfs_fsyncdir,
  .readdir = faultfs_readdir,
  .unlink = faultfs_unlink,
  .rename = faultfs_rename,
  .utimens = faultfs_utimens,
  .statfs = faultfs_statfs,
};

static const struct fuse_opt options[] = {
  { "--control=%s", offsetof (struct faultfs, control), 0 },
  { "--log=%s", offsetof (struct faultfs, log), 0 },
  { "--direct-io", offsetof (struct faultfs, direct_io), 1 },
  { "--powercut=%s", offsetof (struct faultfs, powercut_seed), 0 },
  { "--keep=%u", offsetof (struct faultfs, keep), 0 },
  { "--writeback", offsetof (struct faultfs, writeback), 1 },
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
             "[--direct-io] [--powercut=SEED [--keep=PERCENT] "
             "[--writeback]] BACKING_DIR MOUNTPOINT\n");
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

  if (faultfs.powercut_seed != NULL)
    faultfs.powercut = powercut_new (faultfs.backing_fd,
                                     strtoull (faultfs.powercut_seed, NULL, 0),
                                     faultfs.keep);

  umask (0);
  int r = fuse_main (args.argc, args.argv, &operations, &faultfs);

  fuse_opt_free_args (&args);
  if (faultfs.log_fd != -1)
    close (faultfs.log_fd);
  close (faultfs.backing_fd);
  free (faultfs.backing);
  free (faultfs.control);
  free (faultfs.log);
  free (faultfs.powercut_seed);
  return r;
}
