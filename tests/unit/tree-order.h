/* SPDX-License-Identifier: BSD-3-Clause */

/* For tests of which writes wait for which (tree.h, rules 6 to 8): the engine
 * with its directory tree, over the disk of mirror-rig.h, which holds what it
 * is told to hold and writes down the order of all that requests do.
 *
 * Clusters of a sector, of this volume:
 *
 *   2           the root:  slot 0: a file, 10 to 13; all of it is in use
 *                          slot 1: a directory, 5
 *                          slot 2: a file, 20 to 27; its size is 0
 *                          slot 3: a file, 800 to 803; its size is 0
 *   5           that directory; empty
 *   1500        a file, 1500 to 1503, in slot 4; all of it is in use
 *
 * Those with another hundred are synced apart from each other (COMMIT_NEAR).
 */

#ifndef FATBATCH_TESTS_TREE_ORDER_H
#define FATBATCH_TESTS_TREE_ORDER_H

#include <unistd.h>

#include "mirror-rig.h"
#include "tree-images.h"
#include "util.h"

#define ORDER_ASYNC 8
#define ORDER_A_WHILE 50000     /* us: who has not ended by then waits */

static const struct rig_volume order_volume = {
  0, { 512, 1, 32, 2, 16, 64 + 2046, 2, 0, 1, 6 }
};

enum order_kind { ORDER_WRITE, ORDER_ZERO, ORDER_TRIM, ORDER_FLUSH };

/* A request on a thread of its own. */
struct order_request {
  enum order_kind kind;
  uint64_t offset, length;
  unsigned flags;
  uint8_t bytes[8 * 512];       /* of a write */
  pthread_t thread;
  atomic_bool done;
  int result;
};

static struct rig rig;
static struct image img;        /* what a guest has in memory */
static struct order_request order_async[ORDER_ASYNC];
static unsigned order_nr_async;

/* -- The image --------------------------------------------------------- */

static inline void
order_fill_image (void)
{
  image_run (&img, 10, 13);
  image_put (&img, 5, END_MARK);
  image_run (&img, 20, 27);
  image_run (&img, 800, 803);
  image_run (&img, 1500, 1503);
  image_entry (&img, 2, 0, IS_FILE, 10, 4 * 512);
  image_entry (&img, 2, 1, IS_DIRECTORY, 5, 0);
  image_entry (&img, 2, 2, IS_FILE, 20, 0);
  image_entry (&img, 2, 3, IS_FILE, 800, 0);
  image_entry (&img, 2, 4, IS_FILE, 1500, 4 * 512);
  image_directory (&img, 5, 2);
}

static inline enum cluster_state
order_state (uint32_t n)
{
  return clusters_get (atomic_load (&rig.fb->tree.set)->volume[0].clusters, n);
}

static inline void
order_wait_idle (void)
{
  tree_wait_idle (&rig.fb->tree, 1);
}

/* Without a record, so that FATs are written in place. */
static inline void
order_start (void)
{
  CHECK_EQ (rig_start (&rig, false), 0);
  engine_start_tree (rig.fb);
  order_wait_idle ();
  oplog_clear (&rig.log);
}

static inline void
order_init (void)
{
  rig_init (&rig, fat_spec_size (&order_volume.spec), &order_volume, 1);
  rig.quick = true;
  memset (&img, 0, sizeof img);
  img.size = rig.size;
  img.bytes = calloc (1, img.size);
  CHECK (img.bytes != NULL);
  image_volume (&img, 0, &order_volume.spec);
  order_fill_image ();
  memcpy (rig.bytes, img.bytes, img.size);
}

static inline void
order_open (void)
{
  order_init ();
  order_start ();
  CHECK_EQ (order_state (11), CLUSTER_SETTLED);
  CHECK_EQ (order_state (1503), CLUSTER_SETTLED);
  CHECK_EQ (order_state (20), CLUSTER_FRESH);
  CHECK_EQ (order_state (5), CLUSTER_DIRECTORY);
  CHECK_EQ (order_state (100), CLUSTER_FREE);
}

static inline void
order_release (void)
{
  CHECK_EQ (order_nr_async, 0);
  rig_release (&rig);
  image_release (&img);
}

/* -- Requests ---------------------------------------------------------- */

/* Bytes of the image, as the guest has them. */
static inline int
order_send (uint64_t offset, uint64_t length, unsigned flags)
{
  return fatbatch_write (rig.fb, img.bytes + offset, length, offset, flags);
}

/* Another content for whole clusters. */
static inline uint64_t
order_data (uint32_t n, unsigned nr)
{
  uint64_t offset = image_cluster (&img, n), i;

  for (i = 0; i < nr * (uint64_t) 512; ++i)
    img.bytes[offset + i] += 1 + (uint8_t) n;
  return offset;
}

static inline void
order_plain_data (uint32_t n, unsigned nr)
{
  CHECK_EQ (order_send (order_data (n, nr), nr * 512, 0), 0);
}

/* Where the sector of a cluster's entry is. */
static inline uint64_t
order_fat (uint32_t n)
{
  return img.fat1 + n / 128 * 512;
}

static inline void *
order_run (void *opaque)
{
  struct order_request *q = opaque;

  rig_set_foreground ();
  switch (q->kind) {
  case ORDER_WRITE:
    q->result = fatbatch_write (rig.fb, q->bytes, q->length, q->offset,
                                q->flags);
    break;
  case ORDER_ZERO:
    q->result = fatbatch_zero (rig.fb, q->length, q->offset, q->flags);
    break;
  case ORDER_TRIM:
    q->result = fatbatch_trim (rig.fb, q->length, q->offset, q->flags);
    break;
  case ORDER_FLUSH:
    q->result = fatbatch_flush (rig.fb);
    break;
  }
  atomic_store (&q->done, true);
  return NULL;
}

static inline struct order_request *
order_async_kind (enum order_kind kind, uint64_t offset, uint64_t length,
                  unsigned flags)
{
  struct order_request *q = &order_async[order_nr_async++];

  CHECK (order_nr_async <= ORDER_ASYNC);
  CHECK (length <= sizeof q->bytes);
  *q = (struct order_request) { kind, offset, length, flags, .result = 1 };
  memcpy (q->bytes, img.bytes + offset, length);
  CHECK_EQ (pthread_create (&q->thread, NULL, order_run, q), 0);
  return q;
}

static inline struct order_request *
order_async_send (uint64_t offset, uint64_t length, unsigned flags)
{
  return order_async_kind (ORDER_WRITE, offset, length, flags);
}

/* Has it ended, or will it soon? */
static inline bool
order_ends (struct order_request *q)
{
  unsigned i;

  for (i = 0; i < 100 && !atomic_load (&q->done); ++i)
    usleep (ORDER_A_WHILE / 100);
  return atomic_load (&q->done);
}

/* Else the test's alarm() goes off. */
static inline void
order_must_end (struct order_request *q)
{
  while (!atomic_load (&q->done))
    usleep (200);
}

static inline void
order_join (void)
{
  unsigned i;

  for (i = 0; i < order_nr_async; ++i)
    CHECK_EQ (pthread_join (order_async[i].thread, NULL), 0);
  order_nr_async = 0;
}

/* -- The disk ---------------------------------------------------------- */

static inline void
order_set (struct rig_match *matches, enum disk_op_kind kind, uint64_t start,
           uint64_t length)
{
  SCOPED_LOCK (&rig.lock);
  matches[kind] = (struct rig_match) { true, kind, start, start + length };
}

static inline void
order_hold (enum disk_op_kind kind, uint64_t start, uint64_t length)
{
  order_set (rig.hold, kind, start, length);
}

static inline void
order_fail (enum disk_op_kind kind, uint64_t start, uint64_t length)
{
  order_set (rig.fail, kind, start, length);
}

static inline unsigned
order_held (void)
{
  SCOPED_LOCK (&rig.lock);
  return rig.held;
}

static inline void
order_await_held (unsigned nr)
{
  while (order_held () < nr)
    usleep (200);
}

static inline void
order_let_go (enum disk_op_kind kind)
{
  SCOPED_LOCK (&rig.lock);
  rig.hold[kind].active = rig.after[kind].active = false;
  pthread_cond_broadcast (&rig.released);
}

/* -- The log ----------------------------------------------------------- */

/* All that was written and synced, without what was read. */
static inline void
order_drop_reads (char *text)
{
  char *line, *end;

  for (line = text; (end = strchr (line, '\n')) != NULL; )
    if (strncmp (line, "  read ", 7) == 0)
      memmove (line, end + 1, strlen (end));
    else
      line = end + 1;
}

/* That is what has been done since the last time. */
static inline void
order_expect (const char *name, const char *expected)
{
  {
    SCOPED_LOCK (&rig.log.lock);
    order_drop_reads (rig.log.text);
    rig.log.used = strlen (rig.log.text);
  }
  oplog_expect (&rig.log, name, expected);
  oplog_clear (&rig.log);
}

/* Readers see what the guest has, but for the mirror, which it has not
 * written.
 */
static inline void
order_check_reads (void)
{
  CLEANUP_FREE uint8_t *buf = malloc (img.size);
  uint64_t mirror = img.fat1 + img.fat_size;

  CHECK (buf != NULL);
  CHECK_EQ (fatbatch_read (rig.fb, buf, img.size, 0), 0);
  CHECK (memcmp (buf, img.bytes, mirror) == 0);
  CHECK (memcmp (buf + img.data, img.bytes + img.data,
                 img.size - img.data) == 0);
}

#endif /* FATBATCH_TESTS_TREE_ORDER_H */
