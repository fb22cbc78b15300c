/* SPDX-License-Identifier: BSD-3-Clause */

/* Clusters that something refers to before they are allocated: their commit is
 * not deferred (D9; deferred.h, rule 4).  Some guests write directories first, and
 * would otherwise lose a file whose fsync(2) has returned.  The language is in
 * mirror-rig.h and deferred-rig.h.
 */

#include <config.h>

#include "deferred-rig.h"

#define NAMED(what, request, ...)                                       \
  { .name = what,                                                       \
    .script =                                                           \
    ARMED                                                               \
    "> " request "\n"                                                   \
    __VA_ARGS__                                                         \
    "> fat fua 4 5=end\n"                                               \
    "  write fat1:4\n"                                                  \
    "  sync fat1:4\n" }

#define NOT_NAMED(what, request, ...)                                   \
  { .name = what,                                                       \
    .script =                                                           \
    ARMED                                                               \
    "> " request "\n"                                                   \
    __VA_ARGS__                                                         \
    "> fat fua 4 5=end\n"                                               \
    "  write fat1:4\n" }

static const struct deferred_row rows[] = {
  NAMED ("by a directory entry", "name fua data:5 0 4:5",
         "  write data:5\n"
         "  sync data:5\n"),
  NAMED ("without FUA", "name write data:5 0 4:5",
         "  write data:5\n"),
  NAMED ("in the middle of 64 KiB", "name write data:5+128 30016 4:5",
         "  write data:5+128\n"),
  NAMED ("in the last slot of 64 KiB", "name write data:5+128 65504 4:5",
         "  write data:5+128\n"),
  NAMED ("in the first slot of a write's second 4 KiB",
         "name write data:5+16 4096 4:5",
         "  write data:5+16\n"),
  NAMED ("outside the clusters", "name write boot:20 64 4:5",
         "  write boot:20\n"),
  NAMED ("one of a chain",
         "name write data:5 0 4:7",
         "  write data:5\n"
         "> fat fua 4 6=7 7=end\n"
         "  write fat1:4\n"
         "  sync fat1:4\n"
         "> name write data:5 0 4:5\n"
         "  write data:5\n"),
  NAMED ("by a link in another sector", "fat fua 6 9=4:5",
         "  write fat1:6\n"
         "  sync fat1:6\n"),
  NAMED ("in its last entry, without FUA", "fat write 6 127=4:5",
         "  write fat1:6\n"),
  NAMED ("in its first, with something in the high nibble",
         "fat write 6 0=^4:5",
         "  write fat1:6\n"),
  NAMED ("a link that is there no more", "fat fua 6 9=4:5",
         "  write fat1:6\n"
         "  sync fat1:6\n"
         "> fat fua 6 9=end\n"
         "  write fat1:6\n"
         "  sync fat1:6\n"),
  NAMED ("a link in several sectors", "link write fat1:8+2 516 4:5",
         "  write fat1:8+2\n"),
  NAMED ("in a part of one", "link write fat1@4100+64 4 4:5",
         "  write @20484+64\n"),
  NAMED ("by a durable link in its own sector", "fat fua 4 9=5",
         "  write fat1:4\n"
         "  sync fat1:4\n"),
  NAMED ("by who knows what: part of a slot", "write data@2586+2 .",
         "  write @35354+2\n"),
  NAMED ("zeros over a part of a slot", "zero data@2580+2",
         "  zero @35348+2\n"),
  NAMED ("a trim of a part of a slot", "trim data@2560+16",
         "  trim @35328+16\n"),
  NAMED ("part of an entry", "write fat1@4098+2 .",
         "  write @20482+2\n"),

  { .name = "the root directory, by the boot sector",
    .script =
    ARMED
    "> fat fua 0 2=end\n"
    "  write fat1:0\n"
    "  sync fat1:0\n"
    "> fat fua 0 3=end\n"
    "  write fat1:0\n" },

  { .name = "by a write to both FATs at once",
    .script =
    ARMED
    "> link write fat1:15+2 8 4:5\n"
    "  record clear 1\n"
    "  record sync\n"
    "  write fat1:15..fat2:0\n"
    "> fua fat1:4 .\n"
    "  read fat1:0+16\n"
    "  read fat2:0+16\n"
    "  write fat1:4\n"
    "  sync fat1:0+16\n"
    "> fua fat2:4 .\n"
    "  record write 1\n"
    "  record sync\n"
    "> fat fua 4 5=end\n"
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> fat fua 4 6=end\n"
    "  write fat1:4\n" },

  { .name = "a sector's first commit is an ordinary one: nobody knows what was "
    "named before the server was started",
    .script =
    "> fua fat1:3 .\n"
    "  read fat1:0+16\n"
    "  read fat2:0+16\n"
    "  write fat1:3\n"
    "  sync boot:0..fat1:15\n"
    "  record create\n"
    "  record write 0\n"
    "  record sync\n"
    "> fua fat2:3 .\n"
    "  record write 1\n"
    "  record sync\n"
    "> fat fua 4 5=end\n"
    "  write fat1:4\n"
    "  sync fat1:4\n"
    "> fat fua 4 6=end\n"
    "  write fat1:4\n" },

  NOT_NAMED ("another cluster", "name fua data:5 0 4:6",
             "  write data:5\n"
             "  sync data:5\n"),
  NOT_NAMED ("the number, not in its place", "name fua data:5 16 4:5",
             "  write data:5\n"
             "  sync data:5\n"),
  NOT_NAMED ("a free directory entry", "name write data:5 0 4:5 free",
             "  write data:5\n"),
  NOT_NAMED ("a deleted one", "name write data:5 0 4:5 deleted",
             "  write data:5\n"),
  NOT_NAMED ("a label, or part of a long name",
             "name write data:5 0 4:5 label",
             "  write data:5\n"),
  NOT_NAMED ("other data", "fua data:5+8 z",
             "  write data:5+8\n"
             "  sync data:5+8\n"),
  NOT_NAMED ("zeros", "zero data:5+8",
             "  zero data:5+8\n"),
  NOT_NAMED ("a link to another one", "fat fua 6 9=4:6",
             "  write fat1:6\n"
             "  sync fat1:6\n"),
  NOT_NAMED ("used and freed in its own sector", "fat fua 4 5=end",
             "  write fat1:4\n"
             "> fat fua 4 4=5\n"
             "  write fat1:4\n"
             "  sync fat1:4\n"
             "> fat fua 4 4=free 5=free\n"
             "  write fat1:4\n"
             "  sync fat1:4\n"),
};

int
main (void)
{
  static struct rig rig;

  alarm (300);
  DEFERRED_RUN_ROWS (&rig, rows);
  return EXIT_SUCCESS;
}
