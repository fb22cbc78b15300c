/* SPDX-License-Identifier: BSD-3-Clause */

/* For tests of the intent record in a real file: a folder of their own, and a
 * log of syncs.
 */

#ifndef FATBATCH_TESTS_INTENT_FILES_H
#define FATBATCH_TESTS_INTENT_FILES_H

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"
#include "intent.h"
#include "oplog.h"

#define SIZE (UINT64_C (64) * 1024 * 1024)
#define RECORD_SIZE (INTENT_BLOCKS * INTENT_BLOCK)

static char dir[200], path[220], stale[230], other[230];
static struct oplog the_log;
static struct intent_store *store;
static struct intent in;

/* -- Syncs ------------------------------------------------------------- */

/* The C library's functions are replaced, so that they can be counted. */
static inline void
log_sync (const char *name, int fd)
{
  struct stat st;

  if (fstat (fd, &st) == 0)
    oplog_add (&the_log, "%s %s", name, S_ISDIR (st.st_mode) ? "folder"
               : "file");
}

int
fsync (int fd)
{
  log_sync ("fsync", fd);
  return syscall (SYS_fsync, fd);
}

int
fdatasync (int fd)
{
  log_sync ("fdatasync", fd);
  return syscall (SYS_fdatasync, fd);
}

/* -- Files ------------------------------------------------------------- */

static inline void
remove_files (void)
{
  unlink (path);
  rmdir (path);
  unlink (stale);
  unlink (other);
}

static inline void
remove_all (void)
{
  remove_files ();
  rmdir (dir);
}

/* Something waits for ever. */
static inline void
give_up (int signal_nr)
{
  remove_all ();
  _exit (128 + signal_nr);
}

static inline void
make_file (const char *name, const void *bytes, size_t count)
{
  FILE *f = fopen (name, "w");

  CHECK (f != NULL);
  CHECK_EQ (fwrite (bytes, 1, count, f), count);
  CHECK_EQ (fclose (f), 0);
}

/* All of a file, at most a record and a byte; -1: there is none. */
static inline ssize_t
read_file (const char *name, uint8_t buf[RECORD_SIZE + 1])
{
  FILE *f = fopen (name, "r");
  ssize_t n;

  if (!f)
    return -1;
  n = fread (buf, 1, RECORD_SIZE + 1, f);
  fclose (f);
  return n;
}

static inline bool
exists (const char *name)
{
  struct stat st;

  return lstat (name, &st) == 0;
}

/* -- Records ----------------------------------------------------------- */

static const struct intent_entry entry = {
  .fat1 = 16384, .mirror = 1 << 20, .length = 8192, .slot_size = 512,
  .volume_id = 7, .slots = { 0x0f },
};

static inline void
open_store (bool never_sync)
{
  CHECK_EQ (intent_file_new (path, never_sync, &store), 0);
  CHECK (strcmp (store->name, path) == 0);
  intent_init (&in, store, SIZE);
  oplog_clear (&the_log);
}

static inline void
close_store (void)
{
  store->ops->free (store);
}

/* A record with one entry, and nobody who uses it. */
static inline void
leave_record (void)
{
  unsigned block = 0;

  open_store (false);
  CHECK_EQ (intent_create (&in), 0);
  CHECK_EQ (intent_arm (&in, &entry, &block), 0);
  close_store ();
}

/* Returns intent_load()'s result, or the number of entries. */
static inline int
load (void)
{
  struct intent_entry *entries = NULL;
  char reason[200];
  size_t nr = 0;
  int r = intent_load (&in, &entries, &nr, reason, sizeof reason);

  free (entries);
  if (r == -EBADMSG)
    CHECK (reason[0] != '\0');
  return r < 0 ? r : (int) nr;
}

/* -- The folder -------------------------------------------------------- */

static inline void
make_folder (void)
{
  const char *tmp = getenv ("TMPDIR");

  oplog_init (&the_log);
  snprintf (dir, sizeof dir, "%s/test-intent.XXXXXX", tmp ? tmp
            : "/var/tmp");
  CHECK (mkdtemp (dir) != NULL);
  snprintf (path, sizeof path, "%s/record", dir);
  snprintf (stale, sizeof stale, "%s.stale", path);
  snprintf (other, sizeof other, "%s/file", dir);
  atexit (remove_all);
  signal (SIGALRM, give_up);
  alarm (120);
}

/* Run one test in a clean folder. */
#define RUN_CLEAN(test) do { remove_files (); RUN (test); } while (0)

#endif /* FATBATCH_TESTS_INTENT_FILES_H */
