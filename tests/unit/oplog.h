/* SPDX-License-Identifier: BSD-3-Clause */

/* What a test has seen, as lines of text: operations of a disk and of an
 * intent store in the order in which they happened, to be compared with what
 * the test has written down.
 */

#ifndef FATBATCH_TESTS_OPLOG_H
#define FATBATCH_TESTS_OPLOG_H

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

struct oplog {
  /* For operations that a thread of the engine's does at any time: if this says
   * that it is one, they are kept in `late`, where the test fetches them with
   * oplog_take_late().  NULL: all are treated alike.
   */
  bool (*is_background) (void);
  struct oplog *late;           /* borrowed */

  pthread_mutex_t lock;
  bool muted;                   /* nothing is written down */
  char *text;                   /* each line ends with a newline */
  size_t used, size;
};

static inline void
oplog_init (struct oplog *log)
{
  memset (log, 0, sizeof *log);
  pthread_mutex_init (&log->lock, NULL);
  log->text = calloc (1, log->size = 4096);
  CHECK (log->text != NULL);
}

static inline void
oplog_release (struct oplog *log)
{
  pthread_mutex_destroy (&log->lock);
  free (log->text);
}

static inline void
oplog_clear (struct oplog *log)
{
  pthread_mutex_lock (&log->lock);
  log->used = 0;
  log->text[0] = '\0';
  pthread_mutex_unlock (&log->lock);
}

static inline void
oplog_mute (struct oplog *log, bool muted)
{
  pthread_mutex_lock (&log->lock);
  log->muted = muted;
  pthread_mutex_unlock (&log->lock);
}

static inline bool
oplog_is_muted (struct oplog *log)
{
  bool muted;

  pthread_mutex_lock (&log->lock);
  muted = log->muted;
  pthread_mutex_unlock (&log->lock);
  return muted;
}

/* Add one line. */
static inline void __attribute__ ((format (printf, 2, 3)))
oplog_add (struct oplog *log, const char *fmt, ...)
{
  char line[1000];
  va_list args;
  int n;

  va_start (args, fmt);
  n = vsnprintf (line, sizeof line - 1, fmt, args);
  va_end (args);
  CHECK (n >= 0 && (size_t) n < sizeof line - 1);
  line[n++] = '\n';
  line[n] = '\0';

  pthread_mutex_lock (&log->lock);
  if (!log->muted) {
    if (log->used + n + 1 > log->size) {
      log->text = realloc (log->text, log->size = 2 * (log->used + n + 1));
      CHECK (log->text != NULL);
    }
    memcpy (log->text + log->used, line, n + 1);
    log->used += n;
  }
  pthread_mutex_unlock (&log->lock);
}

/* Where such an operation's line belongs. */
static inline struct oplog *
oplog_of_thread (struct oplog *log)
{
  return log->is_background && log->is_background () ? log->late : log;
}

/* Nobody is adding to what is late. */
static inline void
oplog_take_late (struct oplog *log)
{
  char *line, *end;

  for (line = log->late->text; (end = strchr (line, '\n')) != NULL;
       line = end + 1)
    oplog_add (log, "%.*s", (int) (end - line), line);
  oplog_clear (log->late);
}

/* How many lines contain the text. */
static inline unsigned
oplog_count (struct oplog *log, const char *what)
{
  const char *line, *end;
  unsigned nr = 0;

  pthread_mutex_lock (&log->lock);
  for (line = log->text; (end = strchr (line, '\n')) != NULL; line = end + 1)
    if (memmem (line, end - line, what, strlen (what)) != NULL)
      nr++;
  pthread_mutex_unlock (&log->lock);
  return nr;
}

/* The log must be exactly this.  Otherwise both are shown. */
static inline void
oplog_expect (struct oplog *log, const char *name, const char *expected)
{
  const char *line, *end;
  size_t same = 0;

  if (strcmp (log->text, expected) == 0)
    return;
  while (log->text[same] == expected[same])
    same++;
  while (same > 0 && expected[same - 1] != '\n')
    same--;

  fprintf (stderr, "%s: not what was expected\n", name);
  for (line = log->text; (end = strchr (line, '\n')) != NULL; line = end + 1)
    fprintf (stderr, "%c %.*s\n", line < log->text + same ? ' ' : '!',
             (int) (end - line), line);
  fprintf (stderr, "expected there:\n%s", expected + same);
  exit (EXIT_FAILURE);
}

#endif /* FATBATCH_TESTS_OPLOG_H */
