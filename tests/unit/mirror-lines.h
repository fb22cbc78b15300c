/* SPDX-License-Identifier: BSD-3-Clause */

/* Lines that many scripts have in common: see mirror-rig.h.  They are about
 * rig_small, whose FATs have 16 sectors.
 */

#ifndef FATBATCH_TESTS_MIRROR_LINES_H
#define FATBATCH_TESTS_MIRROR_LINES_H

/* The first write to a FAT: both copies are compared. */
#define COMPARE                                                         \
  "  read fat1:0+16\n"                                                  \
  "  read fat2:0+16\n"

/* The first equal mirror write: FAT 1, and what says that it is one, are made
 * durable (mirror.h, rule 2), and then the record.
 */
#define ARM                                                             \
  "  sync boot:0..fat1:15\n"                                            \
  "  record create\n"                                                   \
  "  record write 0\n"                                                  \
  "  record sync\n"                                                     \
  "  record write 1\n"                                                  \
  "  record sync\n"

/* The first durable write to FAT 1 of a window prepares that: all but the entry
 * (rule 10).
 */
#define PREPARE                                                         \
  "  sync boot:0..fat1:15\n"                                            \
  "  record create\n"                                                   \
  "  record write 0\n"                                                  \
  "  record sync\n"

#define ARM_PREPARED                                                    \
  "  record write 1\n"                                                  \
  "  record sync\n"

/* Slot 3 is deferred. */
#define DEFER_3                                                         \
  "> fua fat1:3 a\n"                                                    \
  COMPARE                                                               \
  "  write fat1:3\n"                                                    \
  PREPARE                                                               \
  "> fua fat2:3 a\n"                                                    \
  ARM_PREPARED

/* It is written, and the window is disarmed (rule 5). */
#define DRAIN_3                                                         \
  "  write fat2:3\n"                                                    \
  "  sync fat2:3\n"                                                     \
  "  record clear 1\n"                                                  \
  "  record sync\n"

/* A later server finds a record of the window, and looks at its copies. */
#define FIND_LEFT                                                       \
  "> open\n"                                                            \
  "  read boot:0\n"                                                     \
  "  record read\n"                                                     \
  "  read fat1:0+16\n"                                                  \
  "  read fat2:0+16\n"

/* They are equal, or are made so: that is made durable, and the record goes. */
#define END_RECOVERY                                                    \
  "  sync all\n"                                                        \
  "  record remove\n"                                                   \
  "= notice\n"

/* It finds slot 3's mirror behind. */
#define RECOVER_3                                                       \
  FIND_LEFT                                                             \
  "  write fat2:3\n"                                                    \
  END_RECOVERY

/* No promise of durability any more, but other requests are served. */
#define LATCHED                                                         \
  "> flush\n"                                                           \
  "= EIO\n"                                                             \
  "> fua data:0 z\n"                                                    \
  "= EIO\n"                                                             \
  "> write data:0 z\n"                                                  \
  "  write data:0\n"                                                    \
  "> read data:0 z\n"                                                   \
  "  read data:0\n"

#endif /* FATBATCH_TESTS_MIRROR_LINES_H */
