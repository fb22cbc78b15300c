/* SPDX-License-Identifier: BSD-3-Clause */

/* For tests of what happens by itself or at the same time: a rig whose log is
 * not looked at, but what it comes to.
 */

#ifndef FATBATCH_TESTS_RIG_LOAD_H
#define FATBATCH_TESTS_RIG_LOAD_H

#include <unistd.h>

#include "mirror-rig.h"

static struct rig rig;

static inline void
load_init (const struct rig_volume *volume)
{
  rig_init (&rig, fat_spec_size (&volume->spec), volume, 1);
  rig.quick = true;
}

static inline void
load_open (void)
{
  rig_open (&rig);
  oplog_mute (&rig.log, true);
}

static inline void __attribute__ ((format (printf, 1, 2)))
load_request (const char *fmt, ...)
{
  char line[100];
  va_list args;

  va_start (args, fmt);
  vsnprintf (line, sizeof line, fmt, args);
  va_end (args);
  rig_request (&rig, line);
}

/* Write the pair, and so defer the mirror.  `kind`: "write" or "fua". */
static inline void
load_pair (const char *kind, unsigned sector)
{
  load_request ("%s fat1:%u p", kind, sector);
  load_request ("%s fat2:%u p", kind, sector);
}

/* Poll, and give up by the alarm only. */
static inline void
load_await (const char *name, uint64_t at_least)
{
  while (rig_stat (&rig, name) < at_least)
    usleep (1000);
}

/* D8. */
static inline void
load_release (void)
{
  CHECK_EQ (fatbatch_settle (rig.fb), 0);
  CHECK (memcmp (rig.bytes, rig.shadow, rig.size) == 0);
  CHECK (!rig.record.exists);
  rig_release (&rig);
}

#endif /* FATBATCH_TESTS_RIG_LOAD_H */
