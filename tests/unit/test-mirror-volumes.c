/* SPDX-License-Identifier: BSD-3-Clause */

/* Mirrors of several volumes, of volumes of other kinds, and of volumes whose
 * place changes: the exact operations (mirror.h, rules 1, 2 and 5; relayout.c,
 * rules 1 and 2).  The language is in mirror-rig.h.
 */

#include <config.h>

#include <unistd.h>

#include "mirror-lines.h"
#include "mirror-rig.h"

/* -- Volumes of other kinds -------------------------------------------- */

static const struct rig_volume
  one_fat = { 0, { 512, 1, 32, 1, 16, 256, 2, 0, 1, 6 } },
  three_fats = { 0, { 512, 1, 32, 3, 16, 256, 2, 0, 1, 6 } },
  not_mirrored = { 0, { 512, 1, 32, 2, 16, 256, 2, 0x80, 1, 6 } },
  big_sectors = { 0, { 4096, 1, 4, 2, 2, 32, 2, 0, 1, 0 } },
  /* Three windows and 100 slots. */
  four_windows = { 0, { 512, 1, 32, 2, 3172, 8192, 2, 0, 1, 6 } };

/* The volumes are looked for. */
#define SCAN_BOTH                                                       \
  "  read @0+512\n"                                                     \
  "  read @0+512\n"                                                     \
  "  read boot:0\n"                                                     \
  "  read b.boot:0\n"

/* Both are written, and their windows disarmed. */
#define DRAIN_BOTH                                                      \
  "  write b.fat2:3\n"                                                  \
  "  sync b.fat2:3\n"                                                   \
  "  record clear 2\n"                                                  \
  "  record sync\n"                                                     \
  DRAIN_3

/* Slot 3 of each volume is deferred. */
#define DEFER_BOTH                                                      \
  "> fua fat1:3 a\n"                                                    \
  COMPARE                                                               \
  "  write fat1:3\n"                                                    \
  "  sync @0+512 & sync boot:0..fat1:15 & sync b.boot:0\n"              \
  "  record create\n"                                                   \
  "  record write 0\n"                                                  \
  "  record sync\n"                                                     \
  "> fua fat2:3 a\n"                                                    \
  "  record write 1\n"                                                  \
  "  record sync\n"                                                     \
  "> fua b.fat1:3 b\n"                                                  \
  "  read b.fat1:0+16\n"                                                \
  "  read b.fat2:0+16\n"                                                \
  "  write b.fat1:3\n"                                                  \
  "  sync b.fat1:0+16\n"                                                \
  "> fua b.fat2:3 b\n"                                                  \
  "  record write 2\n"                                                  \
  "  record sync\n"

#define PLAIN                                                           \
  "> fua fat1:3 a\n"                                                    \
  "  write fat1:3\n"                                                    \
  "  sync fat1:3\n"                                                     \
  "> fua fat2:3 a\n"                                                    \
  "  write fat2:3\n"                                                    \
  "  sync fat2:3\n"                                                     \
  "> close\n"

static const struct rig_row volumes[] = {
  { .name = "one FAT: what is behind it is data",
    .script =
    "> fua fat1:3 a\n"
    "  write fat1:3\n"
    "  sync fat1:3\n"
    "> fua data:3 a\n"
    "  write data:3\n"
    "  sync data:3\n",
    .volumes = &one_fat },

  { .name = "three FATs", .script = PLAIN, .volumes = &three_fats },

  { .name = "BPB_ExtFlags bit 7", .script = PLAIN,
    .volumes = &not_mirrored },

  { .name = "durability=block is a plain server",
    .script =
    "> close\n"
    "> open block\n"
    "  read boot:0\n"
    PLAIN },

  { .name = "no place for a record: a plain server",
    .script =
    "> close\n"
    "> open nostore\n"
    "  read boot:0\n"
    PLAIN },

  { .name = "4096-byte sectors: a slot is 8 of 512 bytes",
    .script =
    "> fua fat1:1 a\n"
    "  read fat1:0+2\n"
    "  read fat2:0+2\n"
    "  write fat1:1\n"
    "  sync boot:0..fat1:1\n"
    "  record create\n"
    "  record write 0\n"
    "  record sync\n"
    "> fua fat2:1 a\n"
    "  record write 1\n"
    "  record sync\n"
    "> fua fat1@4096+512 b\n"
    "  write @20480+512\n"
    "  sync @20480+512\n"
    "> read fat2:1 a\n"
    "  read fat2:1\n"
    "> fua fat2@4096+512 b\n"   /* part of a slot: written out, in place */
    "  write fat2:1\n"
    "  sync fat2:1\n"
    "  record clear 1\n"
    "  record sync\n"
    "  write @28672+512\n"
    "  read fat2:1\n"
    "  sync @28672+512\n"
    "> fua fat2:0 .\n"          /* the copies are equal: so it goes on */
    "  sync fat1:1\n"           /* of which only a part was synced */
    "  record write 1\n"
    "  record sync\n",
    .volumes = &big_sectors },

  { .name = "two volumes: one batch, and one sync for both",
    .script =
    DEFER_BOTH
    "> sync\n"
    "  write fat2:3 & write b.fat2:3\n"
    "  sync fat2:3 & sync b.fat2:3\n"
    "> fua b.fat2:4 x\n"        /* only its own volume is drained */
    "  record clear 2\n"
    "  record sync\n"
    "  write b.fat2:4\n"
    "  read b.fat2:4\n"
    "  sync b.fat2:4\n"
    "> fua fat1:3 c\n"
    "  write fat1:3\n"
    "  sync fat1:3\n"
    "> fua fat2:3 c\n",
    .volumes = rig_two, .nr_volumes = 2 },

  { .name = "two volumes: a request over FATs of both",
    .script =
    DEFER_BOTH
    "> zero disk:440+620\n"     /* from one's mirror to the other's FAT 1 */
    SCAN_BOTH
    DRAIN_BOTH
    "  zero fat2:8..b.fat1:3\n"
    SCAN_BOTH
    "> read fat2:3 a\n"
    "  read fat2:3\n"
    "> read b.fat2:3 b\n"
    "  read b.fat2:3\n",
    .volumes = rig_two, .nr_volumes = 2 },

  { .name = "two volumes: without a partition table there is none",
    .script =
    DEFER_BOTH
    "> zero disk:0\n"
    "  read @0+512\n"
    "  read @0+512\n"
    DRAIN_BOTH
    "  zero @0+512\n"
    "  read @0+512\n"
    "  read @0+512\n"
    "> write fat1:3 c\n"
    "  write fat1:3\n"
    "> write fat2:3 c\n"
    "  write fat2:3\n",
    .volumes = rig_two, .nr_volumes = 2 },

  { .name = "two volumes: one becomes another, and the other goes on",
    .script =
    DEFER_BOTH
    "> boot moved b\n"
    SCAN_BOTH
    DRAIN_BOTH
    "  write b.boot:0\n"
    SCAN_BOTH
    "> fua fat1:3 c\n"
    COMPARE
    "  write fat1:3\n"
    "  sync @0+512 & sync boot:0..fat1:15 & sync b.boot:0\n"
    "> fua fat2:3 c\n"
    "  record write 1\n"
    "  record sync\n",
    .volumes = rig_two, .nr_volumes = 2 },

  { .name = "a FAT of several windows, and a request over the edge of two",
    .script =
    "> fua fat1:1023+2 ab\n"
    "  read fat1:0+1024\n"
    "  read fat2:0+1024\n"
    "  read fat1:1024+1024\n"
    "  read fat2:1024+1024\n"
    "  write fat1:1023+2\n"
    "  sync boot:0..fat1:2047\n"
    "  record create\n"
    "  record write 0\n"
    "  record sync\n"
    "> fua fat2:1023+2 ab\n"
    "  record write 1\n"
    "  record sync\n"
    "  record write 2\n"
    "  record sync\n"
    "> fua fat1:3171 c\n"       /* the last one, a short window */
    "  read fat1:3072+100\n"
    "  read fat2:3072+100\n"
    "  write fat1:3171\n"
    "  sync fat1:3072+100\n"
    "> fua fat2:3171 c\n"
    "  record write 3\n"
    "  record sync\n"
    "> close\n"
    "  write fat2:1023+2 & write fat2:3171\n"
    "  sync fat2:1023+2 & sync fat2:3171\n"
    "  record clear 1\n"
    "  record clear 2\n"
    "  record clear 3\n"
    "  record sync\n"
    "  record remove\n",
    .volumes = &four_windows },
};

/* -- Where the FATs are ------------------------------------------------ */

static const struct rig_row geometry[] = {
  { .name = "mkfs: mirrors are written before the boot sector",
    .script =
    DEFER_3
    "> boot moved fua\n"
    "  read boot:0\n"
    DRAIN_3
    "  write boot:0\n"
    "  read boot:0\n"
    "  sync boot:0\n"
    /* FAT 1 is now where sector 8 of it was, and the mirror behind that.  What
     * says that it is one is new (rule 2).
     */
    "> fua fat1:8 b\n"
    "  read fat1:8..fat2:7\n"
    "  read fat2:8..data:7\n"
    "  write fat1:8\n"
    "  sync boot:0..fat2:7\n"
    "> fua fat1:3 b\n"
    "  write fat1:3\n"
    "  sync fat1:3\n"
    /* The first one's mirror. */
    "> fua fat2:8 b\n"
    "  record write 1\n"
    "  record sync\n"
    "> settle\n"
    "  write fat2:8\n"
    "  sync fat2:8\n"
    "  record clear 1\n"
    "  record sync\n"
    "  record remove\n" },

  { .name = "mkfs.fat: discards everything, and writes it anew",
    .script =
    DEFER_3
    "> trim all\n"
    DRAIN_3
    "  trim boot:0..data:191\n"
    "  read boot:0\n"
    "  read boot:0\n"
    "> zero fat1:0+32\n"        /* no FAT that we know of, yet */
    "  zero fat1:0..fat2:15\n"
    "> write fat1:0 f\n"
    "  write fat1:0\n"
    "> write fat2:0 f\n"
    "  write fat2:0\n"
    "> boot small\n"
    "  read boot:0\n"
    "  write boot:0\n"
    "  read boot:0\n"
    "> flush\n"
    "  sync all\n"
    "> fua fat1:3 b\n"          /* and mount */
    COMPARE
    "  write fat1:3\n"
    "  sync fat1:0+16\n"
    "> fua fat2:3 b\n"
    "  record write 1\n"
    "  record sync\n" },

  { .name = "a volume that has one FAT from now on",
    .script =
    DEFER_3
    "> boot one-fat\n"
    "  read boot:0\n"
    DRAIN_3
    "  write boot:0\n"
    "  read boot:0\n"
    "> fua fat2:3 b\n"
    "  write fat2:3\n"
    "  sync fat2:3\n" },

  { .name = "the same again is no change",
    .script =
    DEFER_3
    "> boot small fua\n"
    "  read boot:0\n"
    "  write boot:0\n"
    "  sync boot:0\n" },

  { .name = "an image that becomes a volume",
    .script =
    "> boot one-fat\n"
    "  read boot:0\n"
    "  write boot:0\n"
    "  read boot:0\n"
    "> boot small\n"
    "  read boot:0\n"
    "  write boot:0\n"
    "  read boot:0\n"
    DEFER_3 },

  /* Who knows what is there afterwards. */
  { .name = "a trim of the boot sector",
    .script =
    DEFER_3
    "> trim boot:0\n"
    DRAIN_3
    "  trim boot:0\n"
    "  read boot:0\n"
    "  read boot:0\n" },

  { .name = "a boot sector and FAT 1 in one write",
    .script =
    DEFER_3
    "> write boot:0+35 x\n"
    "  read boot:0\n"
    "  read boot:0\n"
    DRAIN_3
    "  write boot:0..fat1:2\n"
    "  read boot:0\n"
    "  read boot:0\n" },
};

int
main (void)
{
  alarm (300);
  RIG_RUN_ROWS (volumes);
  RIG_RUN_ROWS (geometry);
  return EXIT_SUCCESS;
}
