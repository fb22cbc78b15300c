/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <unistd.h>

#include "imagelock.h"

/* RAW_LOCK_PERM_BASE and RAW_LOCK_SHARED_BASE of QEMU's file-posix.c, and
 * the bits of its BLK_PERM_*.
 */
enum {
  USES = 100,
  FORBIDS = 200,

  CONSISTENT_READ = 0,
  WRITE = 1,
  RESIZE = 3,
};

static int
lock_byte (int fd, short type, off_t byte)
{
  struct flock fl = {
    .l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1,
  };

  return fcntl (fd, F_OFD_SETLK, &fl) == -1 ? -errno : 0;
}

/* -EAGAIN if anybody else has a lock on the byte. */
static int
check_byte (int fd, off_t byte)
{
  struct flock fl = {
    .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1,
  };

  if (fcntl (fd, F_OFD_GETLK, &fl) == -1)
    return -errno;
  return fl.l_type == F_UNLCK ? 0 : -EAGAIN;
}

struct step {
  off_t take;                   /* the byte to lock */
  off_t check;                  /* the byte that nobody else may hold */
  const char *conflict;
};

static int
take_locks (int fd, const struct step *steps, size_t nr,
            const char **conflict)
{
  size_t i;
  int r = 0;

  /* First all the locks, then all the checks: of two who start at once at
   * least one sees the other.
   */
  for (i = 0; r == 0 && i < nr; ++i)
    r = lock_byte (fd, F_RDLCK, steps[i].take);
  if (r == -EAGAIN || r == -EACCES) {
    *conflict = "has it locked exclusively";
    r = -EAGAIN;
  }
  for (i = 0; r == 0 && i < nr; ++i) {
    r = check_byte (fd, steps[i].check);
    if (r == -EAGAIN)
      *conflict = steps[i].conflict;
  }

  if (r < 0)
    for (i = 0; i < nr; ++i)
      lock_byte (fd, F_UNLCK, steps[i].take);
  return r;
}

int
imagelock_read (int fd, const char **conflict)
{
  static const struct step steps[] = {
    { USES + CONSISTENT_READ, FORBIDS + CONSISTENT_READ,
      "lets nobody else read it" },
    { FORBIDS + WRITE, USES + WRITE, "has it open for writing" },
    { FORBIDS + RESIZE, USES + RESIZE, "may resize it" },
  };

  return take_locks (fd, steps, 3, conflict);
}

int
imagelock_write (int fd, const char **conflict)
{
  static const struct step steps[] = {
    { USES + WRITE, FORBIDS + WRITE,
      "is reading it and lets nobody else write" },
  };

  return take_locks (fd, steps, 1, conflict);
}
