/* SPDX-License-Identifier: BSD-3-Clause */

/* The plugin's parameters: parsed, checked, and complained about with the
 * values that are allowed.  Called from one thread, before the server runs.
 */

#ifndef FATBATCH_PARAMS_H
#define FATBATCH_PARAMS_H

#include "fatbatch.h"

struct params {
  char *path;                   /* absolute: nbdkit changes its folder */
  char *intent;                 /* likewise; NULL: beside the image */
  struct fatbatch_options options;
};

#define PARAMS_DEFAULT { .options = {                                   \
  .lock = true, .commit_delay_ms = 10, .mirror_delay_ms = 500,          \
  .mirror_batch = 1024 * 1024,                                          \
} }

#define PARAMS_HELP                                                     \
  "file=<FILENAME>  (required) The disk image to serve: a raw image or\n" \
  "                 a block device, of a FAT32 volume or a disk with\n" \
  "                 MBR or GPT partitions.\n"                           \
  "cache=writeback|writethrough|none|directsync|unsafe\n"               \
  "                 Page cache or O_DIRECT, and whether each write is\n" \
  "                 durable when acknowledged, as in QEMU\n"            \
  "                 (default: writeback).\n"                            \
  "durability=fat|block\n"                                              \
  "                 fat: a write to the second FAT that repeats the first\n" \
  "                 is done later, with many others, and survives a crash\n" \
  "                 by an intent record; and see commit-delay.  block:\n" \
  "                 NBD's letter, request by request (default: fat).\n" \
  "commit-delay=<SECONDS>\n"                                            \
  "                 How long a synchronous write that only allocates\n" \
  "                 clusters, to which nothing refers yet, may wait for\n" \
  "                 its sync; 0: not at all (default: 0.01).\n"         \
  "mirror-delay=<SECONDS>\n"                                            \
  "                 How much later mirrors are written, at most\n"      \
  "                 (default: 0.5).\n"                                  \
  "mirror-batch=<SIZE>\n"                                               \
  "                 How much is put off, at most (default: 1M).\n"      \
  "parallel=on|off  on: writes in front of a file's end wait for nobody;\n" \
  "                 off: writes take turns, for comparison (default: on).\n" \
  "intent=<FILENAME>|none\n"                                            \
  "                 Where the intent record is (default: the image's path\n" \
  "                 with .fatbatch at its end); none: no record, and\n"  \
  "                 nothing is put off.\n"                              \
  "io=auto|uring|posix\n"                                               \
  "                 How the image is accessed (default: auto: io_uring,\n" \
  "                 or posix where it is missing or forbidden).\n"      \
  "lock=on|off      Lock the image as QEMU does (default: on)."

/* 0, or -1 after nbdkit_error(). */
extern int params_set (struct params *params, const char *key,
                       const char *value);
/* Is everything there that is required?  0, or -1 after nbdkit_error(). */
extern int params_check (const struct params *params);
extern void params_release (struct params *params);

/* For reports: the chosen cache mode; all allowed values. */
extern const char *params_cache_name (const struct params *params);
extern const char *params_cache_names (void);
extern const char *params_durability_names (void);
extern const char *params_io_names (void);

#endif /* FATBATCH_PARAMS_H */
