/* SPDX-License-Identifier: BSD-3-Clause */

/* The intent record in a real file: what makes it durable, what can't be made,
 * and two servers with one file (intent.h, rules 1, 5 and 6).
 */

#include <config.h>

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/resource.h>

#include "intent-files.h"

/* -- Life of a file ---------------------------------------------------- */

static void
making_a_store_touches_nothing (void)
{
  open_store (false);
  CHECK (!exists (path));
  CHECK_EQ (load (), -ENOENT);
  CHECK (!exists (path));
  CHECK_EQ (intent_remove (&in), 0);
  close_store ();
}

/* Rule 1: the name too. */
static void
an_entry_is_durable_with_the_name_of_its_file (void)
{
  uint8_t bytes[RECORD_SIZE + 1];
  unsigned block = 0;
  const char *folder, *file;

  open_store (false);
  CHECK_EQ (intent_create (&in), 0);
  folder = strstr (the_log.text, "fsync folder");
  file = strstr (the_log.text, "sync file");
  CHECK (folder != NULL && file != NULL);

  oplog_clear (&the_log);
  CHECK_EQ (intent_arm (&in, &entry, &block), 0);
  oplog_expect (&the_log, "arm", "fdatasync file\n");
  oplog_clear (&the_log);
  CHECK_EQ (intent_arm (&in, &entry, &block), 0);
  CHECK (oplog_count (&the_log, "fdatasync file") >= 1);
  CHECK_EQ (read_file (path, bytes), RECORD_SIZE);
  close_store ();

  open_store (false);
  CHECK_EQ (load (), 1);
  oplog_expect (&the_log, "load", "");
  CHECK_EQ (intent_remove (&in), 0);
  oplog_expect (&the_log, "remove", "fsync folder\n");
  CHECK (!exists (path));
  close_store ();
}

/* The file has its blocks on the disk from the beginning: an entry in a full
 * file system fails when the record is made, not when it is needed.
 */
static void
there_is_room_for_all_entries_from_the_start (void)
{
  struct stat st;

  open_store (false);
  CHECK_EQ (intent_create (&in), 0);
  CHECK_EQ (stat (path, &st), 0);
  CHECK_EQ (st.st_size, RECORD_SIZE);
  CHECK (st.st_blocks * 512 >= RECORD_SIZE);
  close_store ();
}

static void
unsafe_syncs_nothing (void)
{
  unsigned block = 0;

  open_store (true);
  CHECK_EQ (intent_create (&in), 0);
  CHECK_EQ (intent_arm (&in, &entry, &block), 0);
  CHECK_EQ (intent_arm (&in, &entry, &block), 0);
  CHECK_EQ (load (), -EBUSY);   /* it is in use, by ourselves */
  CHECK_EQ (intent_disarm (&in, &block, 1), 0);
  CHECK_EQ (intent_remove (&in), 0);
  CHECK_EQ (intent_create (&in), 0);
  CHECK_EQ (intent_set_aside (&in), 0);
  oplog_expect (&the_log, "never_sync", "");
  close_store ();
}

static void
set_aside_keeps_it_under_another_name (void)
{
  uint8_t before[RECORD_SIZE + 1], after[RECORD_SIZE + 1];

  leave_record ();
  CHECK_EQ (read_file (path, before), RECORD_SIZE);
  make_file (stale, "older", 5);
  open_store (false);
  CHECK_EQ (intent_set_aside (&in), 0);
  oplog_expect (&the_log, "set_aside", "fsync folder\n");
  CHECK (!exists (path));
  CHECK_EQ (read_file (stale, after), RECORD_SIZE);
  CHECK (memcmp (before, after, RECORD_SIZE) == 0);
  CHECK_EQ (load (), -ENOENT);
  CHECK_EQ (intent_create (&in), 0);
  close_store ();
}

/* -- What can't be made ------------------------------------------------ */

/* Where no file can be there is no record, and none can be made. */
static void
a_path_that_can_not_be (void)
{
  static const struct {
    const char *name;           /* in the folder */
    int create;
  } rows[] = {
    { "nowhere/record", -ENOENT },
    { "file/record", -ENOTDIR },
    { NULL, -ENAMETOOLONG },
  };
  struct intent_entry *entries;
  struct intent_store *s;
  char name[600], longest[300], reason[200];
  struct intent i;
  size_t nr, row;

  make_file (other, "x", 1);
  memset (longest, 'x', sizeof longest - 1);
  longest[sizeof longest - 1] = '\0';
  for (row = 0; row < sizeof rows / sizeof rows[0]; ++row) {
    snprintf (name, sizeof name, "%s/%s", dir, rows[row].name
              ? rows[row].name : longest);
    CHECK_EQ (intent_file_new (name, false, &s), 0);
    intent_init (&i, s, SIZE);
    CHECK_EQ (intent_load (&i, &entries, &nr, reason, sizeof reason),
              -ENOENT);
    CHECK_EQ (intent_create (&i), rows[row].create);
    CHECK (!i.created);
    CHECK_EQ (intent_create (&i), rows[row].create);
    s->ops->free (s);
  }
}

/* As in a full file system: the record fits in part. */
static void
no_room_leaves_no_file (void)
{
  struct rlimit limit, small;

  CHECK_EQ (getrlimit (RLIMIT_FSIZE, &limit), 0);
  small = limit;
  small.rlim_cur = RECORD_SIZE / 2;
  signal (SIGXFSZ, SIG_IGN);
  CHECK_EQ (setrlimit (RLIMIT_FSIZE, &small), 0);
  open_store (false);
  CHECK_EQ (intent_create (&in), -EFBIG);
  CHECK_EQ (setrlimit (RLIMIT_FSIZE, &limit), 0);
  CHECK (!exists (path));
  CHECK (!in.created);
  CHECK_EQ (intent_create (&in), 0);    /* later there is room */
  close_store ();
}

/* -- Two servers ------------------------------------------------------- */

static void
a_second_server_does_not_touch_it (void)
{
  uint8_t before[RECORD_SIZE + 1], after[RECORD_SIZE + 1];
  struct intent_store *second;
  struct intent in2;
  struct intent_entry *entries;
  unsigned block = 0;
  char reason[200];
  size_t nr;

  open_store (false);
  CHECK_EQ (intent_create (&in), 0);
  CHECK_EQ (intent_arm (&in, &entry, &block), 0);
  CHECK_EQ (read_file (path, before), RECORD_SIZE);

  CHECK_EQ (intent_file_new (path, false, &second), 0);
  intent_init (&in2, second, SIZE);
  CHECK_EQ (intent_load (&in2, &entries, &nr, reason, sizeof reason),
            -EBUSY);
  CHECK_EQ (intent_create (&in2), -EEXIST);
  second->ops->free (second);

  CHECK_EQ (read_file (path, after), RECORD_SIZE);
  CHECK (memcmp (before, after, RECORD_SIZE) == 0);
  CHECK_EQ (intent_disarm (&in, &block, 1), 0);
  close_store ();
}

/* A server that was killed may hold its lock a little longer than it seems to
 * live.
 */
static void *
let_go_later (void *opaque)
{
  usleep (50000);
  close ((int) (intptr_t) opaque);
  return NULL;
}

static void
a_lock_that_goes_soon_is_waited_for (void)
{
  pthread_t thread;
  int fd;

  leave_record ();
  fd = open (path, O_RDONLY);
  CHECK (fd != -1);
  CHECK_EQ (flock (fd, LOCK_EX), 0);
  open_store (false);
  CHECK_EQ (pthread_create (&thread, NULL, let_go_later,
                            (void *) (intptr_t) fd), 0);
  CHECK_EQ (load (), 1);
  CHECK_EQ (pthread_join (thread, NULL), 0);
  close_store ();
}

/* One has found the record of an earlier run, and comes back to it when another
 * has made its own there.
 */
static void
a_record_made_meanwhile_is_not_taken_away (void)
{
  static int (*const calls[]) (struct intent *) = {
    intent_remove, intent_set_aside
  };
  struct intent_store *second;
  struct intent in2;
  unsigned block;
  size_t i;

  for (i = 0; i < 2; ++i) {
    remove_files ();
    leave_record ();
    open_store (false);
    CHECK_EQ (load (), 1);

    CHECK_EQ (intent_file_new (path, false, &second), 0);
    intent_init (&in2, second, SIZE);
    CHECK_EQ (intent_remove (&in2), 0);
    CHECK_EQ (intent_create (&in2), 0);
    block = 0;
    CHECK_EQ (intent_arm (&in2, &entry, &block), 0);

    CHECK_EQ (calls[i] (&in), -EBUSY);
    CHECK (exists (path));
    second->ops->free (second);
    CHECK_EQ (load (), 1);
    close_store ();
  }
}

int
main (void)
{
  make_folder ();
  RUN_CLEAN (making_a_store_touches_nothing);
  RUN_CLEAN (an_entry_is_durable_with_the_name_of_its_file);
  RUN_CLEAN (there_is_room_for_all_entries_from_the_start);
  RUN_CLEAN (unsafe_syncs_nothing);
  RUN_CLEAN (set_aside_keeps_it_under_another_name);
  RUN_CLEAN (a_path_that_can_not_be);
  RUN_CLEAN (no_room_leaves_no_file);
  RUN_CLEAN (a_second_server_does_not_touch_it);
  RUN_CLEAN (a_lock_that_goes_soon_is_waited_for);
  RUN_CLEAN (a_record_made_meanwhile_is_not_taken_away);
  return EXIT_SUCCESS;
}
