/* SPDX-License-Identifier: BSD-3-Clause */

/* The intent record in a file.
 *
 * While the server uses the file it holds a lock on it (flock(2)), so that two
 * servers that were given the same intent= don't write into each other's.
 */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "intent.h"
#include "util.h"

struct intent_file {
  struct intent_store store;
  bool never_sync;
  int fd;                       /* -1: not open */
  char path[];
};

/* -- The folder ---------------------------------------------------------- */

/* Make names in the file's folder durable. */
static int
sync_folder (const struct intent_file *f)
{
  CLEANUP_FREE char *copy = strdup (f->path);
  int fd, r;

  if (!copy)
    return -ENOMEM;
  if (f->never_sync)
    return 0;
  fd = open (dirname (copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd == -1)
    return -errno;
  r = fsync (fd) == -1 ? -errno : 0;
  close (fd);
  return r;
}

/* -- Transfers ----------------------------------------------------------- */

static int
write_all (int fd, const void *buf, size_t count, uint64_t offset)
{
  const char *p = buf;
  ssize_t n;

  while (count > 0) {
    n = pwrite (fd, p, count, offset);
    if (n == -1 && errno == EINTR)
      continue;
    if (n == -1)
      return -errno;
    if (n == 0)
      return -EIO;
    p += n;
    offset += n;
    count -= n;
  }
  return 0;
}

static int
read_some (int fd, void *buf, size_t size)
{
  size_t got = 0;
  ssize_t n;

  while (got < size) {
    n = pread (fd, (char *) buf + got, size - got, got);
    if (n == -1 && errno == EINTR)
      continue;
    if (n == -1)
      return -errno;
    if (n == 0)
      break;
    got += n;
  }
  return got;
}

/* -- The store ------------------------------------------------------------ */

static void
file_drop (struct intent_file *f)
{
  if (f->fd >= 0)
    close (f->fd);
  f->fd = -1;
}

/* Who else has it may be a server that is just ending, killed, or a reader that
 * soon lets it go.
 */
#define LOCK_TRIES 50
#define LOCK_PAUSE_NS 20000000

static int
lock_file (int fd, int mode)
{
  struct timespec pause = { .tv_nsec = LOCK_PAUSE_NS };
  unsigned i;

  for (i = 0; flock (fd, mode | LOCK_NB) == -1; ++i) {
    if (errno != EWOULDBLOCK)
      return -errno;
    if (i == LOCK_TRIES)
      return -EBUSY;
    nanosleep (&pause, NULL);
  }
  return 0;
}

/* The error of an open(2) for reading: where no file can be there is none. */
static int
read_error (int err)
{
  switch (err) {
  case ENOTDIR:
  case ENAMETOOLONG:
    return -ENOENT;
  case ELOOP:
    return -EEXIST;
  }
  return -err;
}

/* Opened for reading, so that nothing changes and -r works.  O_NONBLOCK: it may
 * be a FIFO.
 */
static int
file_read (struct intent_store *store, void *buf, size_t size)
{
  struct intent_file *f = (struct intent_file *) store;
  int fd = open (f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct stat st;
  int r = 0;

  if (fd == -1)
    return read_error (errno);
  if (fstat (fd, &st) == -1)
    r = -errno;
  else if (!S_ISREG (st.st_mode))
    r = -EEXIST;
  else
    r = lock_file (fd, LOCK_SH);
  if (r == 0)
    r = read_some (fd, buf, size);
  close (fd);
  return r;
}

static int
file_create (struct intent_store *store, size_t size)
{
  struct intent_file *f = (struct intent_file *) store;
  CLEANUP_FREE void *zeros = calloc (1, size);
  int r;

  if (!zeros)
    return -ENOMEM;
  f->fd = open (f->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW,
                0666);
  if (f->fd == -1)
    return -errno;
  r = lock_file (f->fd, LOCK_EX);
  if (r == 0)
    r = write_all (f->fd, zeros, size, 0);      /* there is room from now on */
  if (r == 0 && !f->never_sync && fsync (f->fd) == -1)
    r = -errno;
  if (r == 0)
    r = sync_folder (f);
  if (r < 0) {
    unlink (f->path);
    file_drop (f);
  }
  return r;
}

static int
file_write (struct intent_store *store, const void *buf, size_t count,
            uint64_t offset)
{
  struct intent_file *f = (struct intent_file *) store;

  return f->fd < 0 ? -EBADF : write_all (f->fd, buf, count, offset);
}

static int
file_sync (struct intent_store *store)
{
  struct intent_file *f = (struct intent_file *) store;

  if (f->never_sync)
    return 0;
  return fdatasync (f->fd) == -1 ? -errno : 0;
}

/* Before the name goes: it may be another server's by now.  Who holds the lock
 * may take the name away, so that it stays this file's until then.
 */
static int
lock_found (struct intent_file *f)
{
  int r;

  if (f->fd >= 0)
    return 0;
  f->fd = open (f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (f->fd == -1)
    return -errno;
  r = lock_file (f->fd, LOCK_EX);
  if (r < 0)
    file_drop (f);
  return r;
}

static int
file_set_aside (struct intent_store *store)
{
  struct intent_file *f = (struct intent_file *) store;
  CLEANUP_FREE char *stale = NULL;
  int r = lock_found (f);

  if (r < 0)
    return r;
  if (asprintf (&stale, "%s.stale", f->path) == -1)
    return -ENOMEM;
  if (rename (f->path, stale) == -1)
    return -errno;
  file_drop (f);
  return sync_folder (f);
}

static int
file_remove (struct intent_store *store)
{
  struct intent_file *f = (struct intent_file *) store;
  int r = lock_found (f);

  if (r < 0 && r != -ENOENT)
    return r;
  if (unlink (f->path) == -1 && errno != ENOENT)
    return -errno;
  file_drop (f);
  return sync_folder (f);
}

static void
file_free (struct intent_store *store)
{
  file_drop ((struct intent_file *) store);
  free (store);
}

static const struct intent_store_ops file_ops = {
  .read = file_read,
  .create = file_create,
  .write = file_write,
  .sync = file_sync,
  .set_aside = file_set_aside,
  .remove = file_remove,
  .free = file_free,
};

int
intent_file_new (const char *path, bool never_sync,
                 struct intent_store **ret)
{
  struct intent_file *f = malloc (sizeof *f + strlen (path) + 1);

  if (!f)
    return -ENOMEM;
  strcpy (f->path, path);
  f->store = (struct intent_store) { &file_ops, f->path };
  f->never_sync = never_sync;
  f->fd = -1;
  *ret = &f->store;
  return 0;
}
