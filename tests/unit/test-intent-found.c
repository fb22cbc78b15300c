/* SPDX-License-Identifier: BSD-3-Clause */

/* What is found where the intent record should be, and is or is not one:
 * looking changes nothing, and what is not ours stays (intent.h, rules 4 and 5).
 */

#include <config.h>

#include "intent-files.h"

struct found {
  const char *name;
  int result;                   /* of loading; >= 0: entries */
  bool can_create;              /* after loading and removing, if it is ours */
  void (*make) (void);
};

static void
make_nothing (void)
{
}

static void
make_text (void)
{
  make_file (path, "my holiday pictures\n", 20);
}

static void
make_long_text (void)
{
  uint8_t bytes[RECORD_SIZE];

  memset (bytes, 'x', sizeof bytes);
  make_file (path, bytes, sizeof bytes);
}

static void
make_directory (void)
{
  CHECK_EQ (mkdir (path, 0777), 0);
}

/* Whoever opens it to read would wait for a writer for ever. */
static void
make_fifo (void)
{
  CHECK_EQ (mkfifo (path, 0666), 0);
}

static void
make_dangling_link (void)
{
  CHECK_EQ (symlink ("nowhere", path), 0);
}

static void
make_link_to_itself (void)
{
  CHECK_EQ (symlink (strrchr (path, '/') + 1, path), 0);
}

static void
make_changed (size_t at, uint8_t mask, ssize_t size)
{
  uint8_t bytes[RECORD_SIZE + 1] = { 0 };

  leave_record ();
  CHECK_EQ (read_file (path, bytes), RECORD_SIZE);
  bytes[at] ^= mask;
  make_file (path, bytes, size);
}

static void
make_damaged_header (void)
{
  make_changed (17, 0x10, RECORD_SIZE);
}

static void
make_damaged_checksum (void)
{
  make_changed (511, 0x80, RECORD_SIZE);
}

static void
make_damaged_magic (void)
{
  make_changed (3, 0x01, RECORD_SIZE);
}

static void
make_damaged_entry (void)
{
  make_changed (INTENT_BLOCK + 70, 0x01, RECORD_SIZE);
}

static void
make_cut_short (void)
{
  make_changed (0, 0, 2 * INTENT_BLOCK);
}

/* As power cuts leave it while it is made.  No entry was in it, and nobody must
 * have to clean up.
 */
static void
make_empty (void)
{
  make_file (path, "", 0);
}

static void
make_zeros (void)
{
  static const uint8_t zeros[RECORD_SIZE];

  make_file (path, zeros, RECORD_SIZE);
}

static void
make_some_zeros (void)
{
  static const uint8_t zeros[RECORD_SIZE];

  make_file (path, zeros, 4096);
}

static void
make_torn_header (void)
{
  uint8_t bytes[RECORD_SIZE + 1];

  open_store (false);
  CHECK_EQ (intent_create (&in), 0);
  close_store ();
  CHECK_EQ (read_file (path, bytes), RECORD_SIZE);
  memset (bytes + 256, 0, 256);
  make_file (path, bytes, RECORD_SIZE);
}

static const struct found found_rows[] = {
  { "nothing", -ENOENT, true, make_nothing },
  { "a record", 1, true, leave_record },
  { "a text", -EEXIST, false, make_text },
  { "a text of a record's length", -EEXIST, false, make_long_text },
  { "a folder", -EEXIST, false, make_directory },
  { "a FIFO", -EEXIST, false, make_fifo },
  { "a dangling link", -ENOENT, false, make_dangling_link },
  { "a link to itself", -EEXIST, false, make_link_to_itself },
  { "a damaged header", -EBADMSG, true, make_damaged_header },
  { "a damaged header, its checksum", -EBADMSG, true, make_damaged_checksum },
  { "a damaged header, its magic", -EEXIST, false, make_damaged_magic },
  { "a damaged entry", 0, true, make_damaged_entry },
  { "one cut short", -EBADMSG, true, make_cut_short },
  { "an empty file", 0, true, make_empty },
  { "zeros", 0, true, make_zeros },
  { "some zeros", 0, true, make_some_zeros },
  { "a torn header and no entry", 0, true, make_torn_header },
};

static void
what_is_found_is_not_changed_by_looking (void)
{
  uint8_t before[RECORD_SIZE + 1], after[RECORD_SIZE + 1];
  struct stat st_before, st_after;
  size_t i;

  for (i = 0; i < sizeof found_rows / sizeof found_rows[0]; ++i) {
    const struct found *row = &found_rows[i];
    ssize_t size = -1;
    bool there, is_file;

    printf ("  %s\n", row->name);
    fflush (stdout);
    remove_files ();
    row->make ();
    there = lstat (path, &st_before) == 0;
    is_file = there && S_ISREG (st_before.st_mode);
    if (is_file)
      size = read_file (path, before);

    open_store (false);
    CHECK_EQ (load (), row->result);
    oplog_expect (&the_log, row->name, "");
    CHECK_EQ (lstat (path, &st_after) == 0, there);
    if (there)
      CHECK (st_before.st_ino == st_after.st_ino &&
             st_before.st_mode == st_after.st_mode);
    if (is_file) {
      CHECK_EQ (read_file (path, after), size);
      CHECK (memcmp (before, after, size) == 0);
    }

    /* What is not ours can't be replaced either (rule 5). */
    if (row->can_create) {
      CHECK_EQ (intent_remove (&in), 0);
      CHECK_EQ (intent_create (&in), 0);
    }
    else {
      CHECK_EQ (intent_create (&in), -EEXIST);
      CHECK (exists (path));
    }
    close_store ();
  }
}

static void
an_image_of_another_size_is_refused (void)
{
  struct intent_entry *entries;
  char reason[200];
  size_t nr;

  leave_record ();
  open_store (false);
  intent_init (&in, store, SIZE + 512);
  CHECK_EQ (intent_load (&in, &entries, &nr, reason, sizeof reason),
            -EBADMSG);
  CHECK (strstr (reason, "size") != NULL);
  close_store ();
}

int
main (void)
{
  make_folder ();
  RUN_CLEAN (what_is_found_is_not_changed_by_looking);
  RUN_CLEAN (an_image_of_another_size_is_refused);
  return EXIT_SUCCESS;
}
