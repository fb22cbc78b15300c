/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "powercut.h"

#define SECTOR 512
#define HIDDEN ".powercut-deleted."

/* A sector that is not durable as it is. */
struct unsynced {
  struct unsynced *next;
  off_t nr;
  bool syncing;                 /* the sync under way covers it... */
  bool changed_since;           /* ...as it is in `covered`, not in the file */
  uint8_t durable[SECTOR], covered[SECTOR];
};

struct file {
  struct file *next;
  dev_t dev;
  ino_t ino;
  int fd;                       /* ours; keeps the inode from being reused */
  off_t durable_size, sync_size;
  struct unsynced *unsynced;
  struct unsynced **by_nr;      /* nr_max of them */
  off_t nr_max;
};

enum name_kind { NAME_CREATED, NAME_DELETED, NAME_RENAMED };

/* DELETED: `name` is called `other` meanwhile.  RENAMED: from other to name. */
struct name_change {
  struct name_change *older;
  enum name_kind kind;
  char *name, *other;
};

struct powercut {
  int directory_fd;
  uint64_t random;
  unsigned keep, nr_hidden, nr_changes;
  bool cut;
  pthread_mutex_t lock, sync_lock;
  struct file *files;
  struct name_change *newest;
};

static void __attribute__ ((noreturn))
die (const char *what)
{
  fprintf (stderr, "faultfs: power cut: %s: %s\n", what, strerror (errno));
  exit (EXIT_FAILURE);
}

static void *
alloc (size_t size)
{
  void *p = calloc (1, size);

  if (p == NULL)
    die ("calloc");
  return p;
}

static char *
copy_text (const char *text)
{
  char *copy = strdup (text);

  if (copy == NULL)
    die ("strdup");
  return copy;
}

/* 0 <= result < n (splitmix64). */
static unsigned
draw (struct powercut *p, unsigned n)
{
  uint64_t z = p->random += UINT64_C (0x9e3779b97f4a7c15);

  z = (z ^ (z >> 30)) * UINT64_C (0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C (0x94d049bb133111eb);
  return (unsigned) ((z ^ (z >> 31)) % n);
}

static bool
is_kept (struct powercut *p)
{
  return draw (p, 100) < p->keep;
}

struct powercut *
powercut_new (int directory_fd, uint64_t seed, unsigned keep)
{
  struct powercut *p = alloc (sizeof *p);

  p->directory_fd = directory_fd;
  p->random = seed;
  p->keep = keep;
  pthread_mutex_init (&p->lock, NULL);
  pthread_mutex_init (&p->sync_lock, NULL);
  return p;
}

void
powercut_lock (struct powercut *p)
{
  pthread_mutex_lock (&p->lock);
}

void
powercut_unlock (struct powercut *p)
{
  pthread_mutex_unlock (&p->lock);
}

/* -- Data --------------------------------------------------------------- */

static off_t
size_of (int fd)
{
  struct stat st;

  if (fstat (fd, &st) == -1)
    die ("fstat");
  return st.st_size;
}

/* The caller's descriptor may be write-only, and is closed some time. */
static struct file *
find_file (struct powercut *p, int fd)
{
  struct stat st;
  struct file *f;
  char path[64];

  if (fstat (fd, &st) == -1)
    die ("fstat");
  for (f = p->files; f != NULL; f = f->next)
    if (f->dev == st.st_dev && f->ino == st.st_ino)
      return f;

  f = alloc (sizeof *f);
  f->dev = st.st_dev;
  f->ino = st.st_ino;
  f->durable_size = st.st_size;
  snprintf (path, sizeof path, "/proc/self/fd/%d", fd);
  f->fd = open (path, O_RDWR | O_CLOEXEC);
  if (f->fd == -1)
    die (path);
  f->next = p->files;
  p->files = f;
  return f;
}

/* What is behind the file's end counts as zeros. */
static void
read_sector (const struct file *f, off_t nr, uint8_t *buf)
{
  ssize_t r = pread (f->fd, buf, SECTOR, nr * SECTOR);

  if (r == -1)
    die ("pread");
  memset (buf + r, 0, (size_t) (SECTOR - r));
}

static void
make_room (struct file *f, off_t nr)
{
  off_t nr_max = f->nr_max > 0 ? f->nr_max : 64;

  while (nr_max <= nr)
    nr_max *= 2;
  if (nr_max == f->nr_max)
    return;
  f->by_nr = realloc (f->by_nr, (size_t) nr_max * sizeof f->by_nr[0]);
  if (f->by_nr == NULL)
    die ("realloc");
  memset (f->by_nr + f->nr_max, 0,
          (size_t) (nr_max - f->nr_max) * sizeof f->by_nr[0]);
  f->nr_max = nr_max;
}

static void
change_sector (struct file *f, off_t nr)
{
  struct unsynced *u;

  make_room (f, nr);
  u = f->by_nr[nr];
  if (u == NULL) {
    u = f->by_nr[nr] = alloc (sizeof *u);
    u->nr = nr;
    u->next = f->unsynced;
    f->unsynced = u;
    read_sector (f, nr, u->durable);
  }
  else if (u->syncing && !u->changed_since) {
    u->changed_since = true;
    read_sector (f, nr, u->covered);
  }
}

void
powercut_change (struct powercut *p, int fd, off_t offset, off_t length)
{
  struct file *f = find_file (p, fd);

  for (off_t nr = offset / SECTOR; nr * SECTOR < offset + length; nr++)
    change_sector (f, nr);
}

void
powercut_resize (struct powercut *p, int fd, off_t size)
{
  off_t old_size = size_of (fd);

  powercut_change (p, fd, size, old_size > size ? old_size - size : 0);
}

void
powercut_sync_begin (struct powercut *p, int fd)
{
  pthread_mutex_lock (&p->sync_lock);
  powercut_lock (p);
  struct file *f = find_file (p, fd);
  for (struct unsynced *u = f->unsynced; u != NULL; u = u->next)
    u->syncing = true;
  f->sync_size = size_of (fd);
  powercut_unlock (p);
}

void
powercut_sync_end (struct powercut *p, int fd, bool success)
{
  struct file *f = find_file (p, fd);
  struct unsynced **link = &f->unsynced;

  while (*link != NULL && !p->cut) {
    struct unsynced *u = *link;

    if (u->syncing && success && !u->changed_since) {
      f->by_nr[u->nr] = NULL;
      *link = u->next;
      free (u);
      continue;
    }
    if (u->syncing && success)
      memcpy (u->durable, u->covered, SECTOR);
    u->syncing = u->changed_since = false;
    link = &u->next;
  }
  if (success && !p->cut)
    f->durable_size = f->sync_size;
  pthread_mutex_unlock (&p->sync_lock);
}

/* -- Names -------------------------------------------------------------- */

static void
add_name_change (struct powercut *p, enum name_kind kind, const char *name,
                 const char *other)
{
  struct name_change *c = alloc (sizeof *c);

  c->kind = kind;
  c->name = copy_text (name);
  c->other = other != NULL ? copy_text (other) : NULL;
  c->older = p->newest;
  p->newest = c;
  p->nr_changes++;
}

/* The newest one is done with. */
static void
drop_name_change (struct powercut *p)
{
  struct name_change *c = p->newest;

  p->newest = c->older;
  p->nr_changes--;
  free (c->name);
  free (c->other);
  free (c);
}

void
powercut_created (struct powercut *p, const char *name)
{
  int fd = openat (p->directory_fd, name, O_RDWR | O_CLOEXEC);

  if (fd == -1)
    die (name);
  find_file (p, fd)->durable_size = 0;
  close (fd);
  add_name_change (p, NAME_CREATED, name, NULL);
}

int
powercut_unlink (struct powercut *p, const char *name)
{
  char hidden[64];

  snprintf (hidden, sizeof hidden, HIDDEN "%u", p->nr_hidden++);
  if (renameat (p->directory_fd, name, p->directory_fd, hidden) == -1)
    return -errno;
  add_name_change (p, NAME_DELETED, name, hidden);
  return 0;
}

int
powercut_rename (struct powercut *p, const char *from, const char *to,
                 unsigned flags)
{
  bool replaces = faccessat (p->directory_fd, to, F_OK, 0) == 0;

  if (flags & ~(unsigned) RENAME_NOREPLACE)
    return -EINVAL;
  if (replaces && flags != 0)
    return -EEXIST;
  if (faccessat (p->directory_fd, from, F_OK, 0) == -1)
    return -errno;
  if (replaces)
    powercut_unlink (p, to);
  if (renameat (p->directory_fd, from, p->directory_fd, to) == -1)
    die (from);
  add_name_change (p, NAME_RENAMED, to, from);
  return 0;
}

void
powercut_names_synced (struct powercut *p)
{
  while (p->newest != NULL) {
    if (p->newest->kind == NAME_DELETED)
      unlinkat (p->directory_fd, p->newest->other, 0);
    drop_name_change (p);
  }
}

bool
powercut_is_hidden (const char *name)
{
  return strncmp (name, HIDDEN, strlen (HIDDEN)) == 0;
}

/* -- The cut ------------------------------------------------------------ */

static void
undo_name_change (struct powercut *p)
{
  struct name_change *c = p->newest;
  int r = c->kind == NAME_CREATED ? unlinkat (p->directory_fd, c->name, 0)
    : c->kind == NAME_DELETED ? renameat (p->directory_fd, c->other,
                                          p->directory_fd, c->name)
    : renameat (p->directory_fd, c->name, p->directory_fd, c->other);

  if (r == -1)
    die (c->name);
  drop_name_change (p);
}

static void
cut_names (struct powercut *p)
{
  unsigned kept = 0;

  while (kept < p->nr_changes && is_kept (p))
    kept++;
  while (p->nr_changes > kept)
    undo_name_change (p);
  powercut_names_synced (p);
}

static void
cut_file (struct powercut *p, struct file *f)
{
  off_t size = size_of (f->fd);

  if (size != f->durable_size && !is_kept (p)) {
    size = f->durable_size;
    if (ftruncate (f->fd, size) == -1)
      die ("ftruncate");
  }
  for (struct unsynced *u = f->unsynced; u != NULL; u = u->next) {
    const uint8_t *data = u->changed_since && draw (p, 2) ? u->covered
      : u->durable;
    off_t left = size - u->nr * SECTOR;
    size_t length = left < SECTOR ? (size_t) left : SECTOR;

    if (left <= 0 || is_kept (p))
      continue;
    if (pwrite (f->fd, data, length, u->nr * SECTOR) != (ssize_t) length)
      die ("pwrite");
  }
}

void
powercut_cut (struct powercut *p)
{
  if (p->cut)
    return;
  p->cut = true;
  for (struct file *f = p->files; f != NULL; f = f->next)
    cut_file (p, f);
  cut_names (p);
}

bool
powercut_is_cut (const struct powercut *p)
{
  return p->cut;
}
