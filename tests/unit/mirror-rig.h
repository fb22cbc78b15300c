/* SPDX-License-Identifier: BSD-3-Clause */

/* The real engine over a disk and an intent record in memory that write down
 * each operation, and a small language for scripts of requests and the
 * operations that they must cause.  A script is the whole log:
 *
 *   > fua fat1:3 a            a request, begins with ">"
 *     write fat1:3            what it did to the disk, and to the record
 *     sync fat1:3
 *
 * Places: REGION:SECTOR, REGION:SECTOR+SECTORS, or REGION@BYTE+BYTES, counted
 * from the region's start, and REGION is all of it; REGION is boot (with what
 * is reserved behind it), fat1, fat2 or data, of the second volume "b.boot" and
 * so on; disk:SECTOR is counted from the image's start, and "all" is all of it.
 * In the log an operation from one region into another has its first and its
 * last sector, "fat1:3..fat2:4", and one that is not of whole sectors has bytes
 * of the image, "@100+50".
 *
 * Contents: a letter for each sector, of which the last one is repeated.  The
 * bytes follow from the letter and the place in the region, so that "a" is the
 * same in sector 3 of either FAT, and something else in sector 4.  "." is
 * zeros.
 *
 * Operations submitted as one batch are joined by " & "; a failed one has " !".
 *
 * Requests:
 *
 *   write PLACE CONTENTS, fua PLACE CONTENTS
 *   zero PLACE [fua] [unmap], trim PLACE [fua], flush
 *   read PLACE [CONTENTS]       with a check
 *   cache PLACE                 fatbatch_cache_range()
 *   extents PLACE               prints them: "= data 512" or "= hole 512"
 *   boot SPEC [LETTER]          write the boot sector of volume LETTER
 *   dirty 0|1                   write the boot sector's dirty bit (one sector)
 *   sync                        mirror_sync()
 *   settle                      fatbatch_settle()
 *   close                       fatbatch_close()
 *   crash                       the server is killed
 *   open [block] [nostore]      engine_new()
 *   image PLACE CONTENTS        the image's bytes, behind the engine's back;
 *                               if no server runs nothing is checked after it
 *   check PLACE CONTENTS        the image's bytes, as other programs see them
 *   stat NAME VALUE             a counter's value (its name as in fatbatch.h)
 *   fail KIND [PLACE], heal     operations of that kind fail with EIO; KIND is
 *                               as in the log, "record KIND" for the record
 *   hold KIND [PLACE]           batches with operations of that kind wait before
 *   after KIND [PLACE]          they are done, or after
 *   async REQUEST               start one, wait until it waits or has ended
 *   release [KIND N]            those held go on, and no more are held; all
 *                               asynchronous requests end, or with KIND, which
 *                               is all that is not held any more, the N-th
 *
 * A request that fails is followed by "= EIO" or the like; if the engine has
 * something to tell the user that is "= notice" or "= problem".
 *
 * What the engine's own thread does after a request, which is to make a record
 * (mirror.h, rule 10), stands at the request's end.
 *
 * After each request it is checked that reads return what was written (D3), and
 * that a server killed now would be recovered from (D2, D5).
 */

#ifndef FATBATCH_TESTS_MIRROR_RIG_H
#define FATBATCH_TESTS_MIRROR_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "disk-builder.h"
#include "engine.h"
#include "memory-store.h"
#include "oplog.h"

#define RIG_VOLUMES 2
#define RIG_ASYNC 16
#define DISK_KINDS (DISK_SYNC + 1)

struct rig_volume {
  uint64_t start;
  struct fat_spec spec;
};

/* FAT 1 at sector 32, the mirror at 48, data from 64. */
extern const struct rig_volume rig_small;
#define RIG_SMALL_SIZE (128 * 1024)

/* Two such volumes on a disk, so far from each other, and from the partition
 * table, that they are synced apart.
 */
extern const struct rig_volume rig_two[RIG_VOLUMES];

enum rig_region { RIG_BOOT, RIG_FAT1, RIG_FAT2, RIG_DATA, RIG_REGIONS };

struct rig_place {
  uint64_t start, length;       /* bytes of the image */
  uint64_t base;                /* where the region starts */
  uint32_t sector;
};

/* What a disk operation must be so that something happens to it. */
struct rig_match {
  bool active;
  enum disk_op_kind kind;
  uint64_t start, end;          /* bytes of the image */
};

struct rig_disk;

struct rig {
  struct oplog log, late;
  uint64_t size;
  uint8_t *bytes;               /* the image: bytes that survive the server */
  uint8_t *shadow;              /* what readers must see */
  struct rig_volume volume[RIG_VOLUMES];
  unsigned nr_volumes;
  struct memory_record record;
  int store_fails[STORE_OPS];   /* for each store that is made */
  struct fatbatch_options options;

  struct fatbatch *fb;          /* NULL: no server */
  struct memory_store *store;   /* the engine's; NULL: none */
  struct rig_disk *disk;        /* the engine's */

  bool unsure;                  /* something failed: no checks any more */
  bool quick;                   /* no checks: the image is too big */

  pthread_mutex_t lock;         /* protects what follows, and bytes */
  pthread_cond_t released;
  struct rig_match fail[DISK_KINDS], hold[DISK_KINDS], after[DISK_KINDS];
  unsigned held;                /* batches that wait */

  struct rig_request {
    struct rig *rig;
    char line[200];
    pthread_t thread;
    atomic_int tid;
    atomic_bool done;
    int result;
  } async[RIG_ASYNC];
  unsigned nr_async;
};

/* An image with these volumes: the first one at its start and bare, or both
 * partitions of an MBR.  FATs are zeros.  No server yet.
 */
extern void rig_init (struct rig *rig, uint64_t size,
                      const struct rig_volume *volumes, unsigned nr);
extern void rig_release (struct rig *rig);

/* Start a server; nothing of that goes into the log. */
extern void rig_open (struct rig *rig);

/* Run a script, and compare. */
extern void rig_run (struct rig *rig, const char *name, const char *script);

/* The rows of a table of scripts. */
struct rig_row {
  const char *name;
  const char *script;
  enum fatbatch_cache cache;
  const struct rig_volume *volumes;     /* NULL: rig_small */
  unsigned nr_volumes;          /* 0: 1 */
};

/* Run a row with a new image, and a server that is there already. */
extern void rig_run_row (const struct rig_row *row);

#define RIG_RUN_ROWS(rows)                                              \
  do {                                                                  \
    for (size_t i_ = 0; i_ < sizeof (rows) / sizeof (rows)[0]; ++i_)    \
      rig_run_row (&(rows)[i_]);                                        \
  } while (0)

/* The pieces, for tests that are no scripts. */
extern void rig_request (struct rig *rig, const char *line);
extern struct rig_place rig_place (const struct rig *rig, const char *text);
extern void rig_fill (uint8_t *buf, const struct rig_place *place,
                      const char *letters);
extern void rig_check (struct rig *rig);

/* -- For the rig's own files ------------------------------------------- */

/* mirror-place.c */
extern void rig_region (const struct rig_volume *volume, unsigned region,
                        uint64_t *start, uint64_t *end);
extern void rig_print_place (const struct rig *rig, uint64_t offset,
                             uint64_t length, char *buf, size_t size);

/* mirror-async.c */
extern void rig_async (struct rig *rig, const char *line);
extern void rig_let_go (struct rig *rig, const char *kind, const char *n);

/* mirror-script.c */
extern int rig_run_line (struct rig *rig, const char *line);
extern void rig_print_result (struct rig *rig, int r);
extern enum disk_op_kind rig_disk_kind (const char *name);

/* mirror-rig.c */
extern const char *const rig_kind_names[DISK_KINDS];
extern int rig_start (struct rig *rig, bool store);
extern void rig_crash (struct rig *rig);
/* The image has been recovered: readers must see it as it is. */
extern void rig_adopt (struct rig *rig);
extern void rig_close (struct rig *rig);
/* The calling thread's operations are a request's. */
extern void rig_set_foreground (void);
/* Wait for the engine's thread, and take its lines over. */
extern void rig_wait_for_thread (struct rig *rig);
/* A counter's value, by its name in fatbatch.h. */
extern uint64_t rig_stat (struct rig *rig, const char *name);

#endif /* FATBATCH_TESTS_MIRROR_RIG_H */
