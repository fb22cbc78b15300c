/* SPDX-License-Identifier: BSD-3-Clause */

/* Order of writes (tree.h, rules 3, 6 and 7) where it is hard: failures with
 * somebody waiting, layouts that change, chains that are cut, a thread that is
 * late, a guest that is busy during a scan.
 *
 *   test-tree-order-hard [N]          the N-th test only
 */

#include <config.h>

#include "tree-order.h"

static bool
log_has_before (const char *first, const char *second)
{
  const char *a, *b;

  SCOPED_LOCK (&rig.log.lock);
  a = strstr (rig.log.text, first);
  b = strstr (rig.log.text, second);
  if (!a || !b || a > b)
    fprintf (stderr, "%s", rig.log.text);
  return a && b && a < b;
}

static bool
log_has (const char *line)
{
  SCOPED_LOCK (&rig.log.lock);
  return strstr (rig.log.text, line) != NULL;
}

/* -- Rule 6 ------------------------------------------------------------ */

/* Who waits behind a sync that fails has not been given what he waits for. */
static void
who_waits_for_a_sync_that_fails_is_not_applied (void)
{
  struct order_request *q[2];

  order_open ();
  order_plain_data (20, 1);
  order_hold (DISK_SYNC, image_cluster (&img, 20), 512);
  order_fail (DISK_SYNC, image_cluster (&img, 20), 512);
  put_le32 (image_slot (&img, 2, 2) + 28, 1024);
  q[0] = order_async_send (image_cluster (&img, 2), 512, FATBATCH_FUA);
  order_await_held (1);
  image_put (&img, 900, END_MARK);
  q[1] = order_async_send (order_fat (900), 512, FATBATCH_FUA);
  CHECK (!order_ends (q[1]));
  order_let_go (DISK_SYNC);
  order_join ();
  CHECK_EQ (q[0]->result, -EIO);
  CHECK_EQ (q[1]->result, -EIO);
  CHECK (!log_has ("  write data:0\n"));
  CHECK (!log_has ("  write fat1:7\n"));
  order_release ();
}

/* A label changes, and all else stays where it is. */
static void
a_new_layout_forgets_no_data (void)
{
  uint64_t before;

  order_open ();
  before = rig_stat (&rig, "tree_scans");
  order_plain_data (20, 1);
  memcpy (img.bytes + 71, "ANOTHER    ", 11);
  CHECK_EQ (order_send (0, 512, 0), 0);
  order_wait_idle ();
  CHECK_EQ (rig_stat (&rig, "tree_scans"), before + 1);
  oplog_clear (&rig.log);
  put_le32 (image_slot (&img, 2, 2) + 28, 1024);
  CHECK_EQ (order_send (image_cluster (&img, 2), 512, FATBATCH_FUA), 0);
  CHECK (log_has_before ("  sync ", "  write data:0\n"));
  order_release ();
}

/* A boot sector, what is behind it, and a sector of FAT 1, in one write that
 * does not change where things are.
 */
static void
a_write_to_a_boot_sector_and_more_waits_for_data (void)
{
  order_open ();
  order_plain_data (20, 1);
  image_put (&img, 30, END_MARK);
  CHECK_EQ (fatbatch_write (rig.fb, img.bytes, img.fat1 + 512, 0,
                            FATBATCH_FUA), 0);
  CHECK (log_has_before ("  sync data:18\n", "  write boot:0..fat1:0\n"));
  order_release ();
}

/* A file is cut off in FAT 1, and what follows gets another owner in the
 * guest's memory before it is seen as free.
 */
static void
what_is_cut_off_is_not_in_place (void)
{
  order_open ();
  image_put (&img, 11, END_MARK);
  CHECK_EQ (order_send (order_fat (11), 512, 0), 0);
  put_le32 (image_slot (&img, 2, 0) + 28, 1024);
  CHECK_EQ (order_send (image_cluster (&img, 2), 512, FATBATCH_FUA), 0);
  order_wait_idle ();
  oplog_clear (&rig.log);
  order_plain_data (12, 2);
  image_entry (&img, 2, 6, IS_FILE, 12, 1024);
  CHECK_EQ (order_send (image_cluster (&img, 2), 512, FATBATCH_FUA), 0);
  CHECK (log_has_before ("  sync data:10+2\n", "  write data:0\n"));
  order_release ();
}

/* The thread is busy when a file becomes smaller. */
static void
what_is_behind_an_end_is_not_in_place_at_once (void)
{
  order_open ();
  order_hold (DISK_READ, img.fat1, 4096);
  put_le32 (image_slot (&img, 2, 3) + 28, 512);
  CHECK_EQ (order_send (image_cluster (&img, 2), 512, 0), 0);
  order_await_held (1);
  put_le32 (image_slot (&img, 2, 0) + 28, 0);
  CHECK_EQ (order_send (image_cluster (&img, 2), 512, FATBATCH_FUA), 0);
  oplog_clear (&rig.log);
  order_plain_data (12, 1);
  put_le32 (image_slot (&img, 2, 0) + 28, 2048);
  CHECK_EQ (order_send (image_cluster (&img, 2), 512, FATBATCH_FUA), 0);
  order_let_go (DISK_READ);
  CHECK (log_has_before ("  sync data:10\n", "  write data:0\n"));
  order_wait_idle ();
  order_release ();
}

/* The guest has freed 12 and 13 in its memory, and sent them as another file's
 * data; its metadata follows.
 */
static void
data_of_the_next_owner_is_ordered (void)
{
  order_open ();
  order_plain_data (12, 2);
  image_put (&img, 11, END_MARK);
  CHECK_EQ (order_send (order_fat (11), 512, 0), 0);
  put_le32 (image_slot (&img, 2, 0) + 28, 1024);
  image_entry (&img, 5, 2, IS_FILE, 12, 1024);
  CHECK_EQ (order_send (image_cluster (&img, 2), 512, 0), 0);
  order_wait_idle ();
  oplog_clear (&rig.log);
  CHECK_EQ (order_send (image_cluster (&img, 5), 512, FATBATCH_FUA), 0);
  CHECK (log_has_before ("  sync all\n", "  write data:3\n"));
  order_release ();
}

/* The same during a flush, which makes it durable in the end. */
static void
data_of_the_next_owner_is_ordered_during_a_flush (void)
{
  struct order_request *flush, *q;

  order_open ();
  order_plain_data (12, 2);
  order_hold (DISK_SYNC, 0, rig.size);
  flush = order_async_kind (ORDER_FLUSH, 0, 0, 0);
  order_await_held (1);
  image_put (&img, 11, END_MARK);
  CHECK_EQ (order_send (order_fat (11), 512, 0), 0);
  image_entry (&img, 5, 2, IS_FILE, 12, 1024);
  oplog_clear (&rig.log);
  q = order_async_send (image_cluster (&img, 5), 512, FATBATCH_FUA);
  order_ends (q);
  CHECK (!atomic_load (&flush->done));
  CHECK (!log_has ("  write data:3\n"));
  order_let_go (DISK_SYNC);
  order_join ();
  CHECK_EQ (q->result, 0);
  order_release ();
}

/* The same if nobody can follow what is done to FAT 1. */
static void
data_of_the_next_owner_is_ordered_in_doubt (void)
{
  order_open ();
  order_plain_data (12, 2);
  CHECK_EQ (fatbatch_trim (rig.fb, 512, order_fat (12), 0), 0);
  image_put (&img, 11, END_MARK);
  put_le32 (image_slot (&img, 2, 0) + 28, 1024);
  image_entry (&img, 5, 2, IS_FILE, 12, 1024);
  CHECK_EQ (order_send (order_fat (12), 512, FATBATCH_FUA), 0);
  CHECK_EQ (order_send (image_cluster (&img, 2), 512, FATBATCH_FUA), 0);
  CHECK_EQ (order_send (image_cluster (&img, 5), 512, FATBATCH_FUA), 0);
  CHECK (log_has_before ("  sync all\n", "  write data:3\n") ||
         log_has_before ("  sync data:10+2\n", "  write data:3\n"));
  order_release ();
}

/* -- Scans, and guests that don't wait for them ------------------------ */

/* Called before the disk does a batch. */
static void (*before_batch) (const struct disk_op *op);
static const struct disk_ops *rig_ops;
static struct disk_ops hooked_ops;

static int
hooked_submit (struct disk *disk, struct disk_op *ops, size_t nr)
{
  before_batch (ops);
  return rig_ops->submit (disk, ops, nr);
}

static void
start_with_hook (void (*hook) (const struct disk_op *op))
{
  CHECK_EQ (rig_start (&rig, false), 0);
  before_batch = hook;
  rig_ops = rig.fb->disk->ops;
  hooked_ops = *rig_ops;
  hooked_ops.submit = hooked_submit;
  rig.fb->disk->ops = &hooked_ops;
  engine_start_tree (rig.fb);
}

/* A long file, of which the thread reads FAT 1's first block at its beginning
 * and at its end; before the latter something else is freed.
 */
static bool second_block, has_freed;

static void
free_one_in_a_walk (const struct disk_op *op)
{
  if (op->kind != DISK_READ || op->length != 4096 || has_freed)
    return;
  if (op->offset == img.fat1 + 4096)
    second_block = true;
  else if (second_block && op->offset == img.fat1) {
    has_freed = true;
    image_put (&img, 27, 0);
    CHECK_EQ (order_send (order_fat (27), 512, 0), 0);
  }
}

static void
a_walk_that_begins_anew_meets_no_other (void)
{
  order_init ();
  image_run (&img, 100, 1900);
  image_run (&img, 40, 60);
  image_put (&img, 1900, 40);
  image_entry (&img, 2, 3, IS_FILE, 100, 1822 * 512);
  image_slot (&img, 2, 4)[0] = DELETED_SLOT;
  memcpy (rig.bytes, img.bytes, img.size);
  second_block = has_freed = false;
  start_with_hook (free_one_in_a_walk);
  order_wait_idle ();
  CHECK (has_freed);
  CHECK_EQ (order_state (100), CLUSTER_SETTLED);
  CHECK_EQ (order_state (60), CLUSTER_SETTLED);
  CHECK (!atomic_load (&rig.fb->tree.set)->volume[0].crossed);
  order_release ();
}

/* A directory of many clusters, with a file in each. */
#define DIRECTORY_CLUSTERS 600

static atomic_bool busy;

static void *
keep_freeing (void *opaque)
{
  uint32_t value = 0;

  (void) opaque;
  while (atomic_load (&busy)) {
    value = value ? 0 : END_MARK;
    CHECK_EQ (fatbatch_write (rig.fb, &value, 4, img.fat1 + 4 * 2000, 0), 0);
    usleep (50);
  }
  return NULL;
}

static unsigned
count_unknown (void)
{
  unsigned n, nr = 0;

  for (n = 100; n < 100 + DIRECTORY_CLUSTERS; ++n)
    nr += order_state (n) != CLUSTER_DIRECTORY ||
      order_state (n + DIRECTORY_CLUSTERS) != CLUSTER_SETTLED;
  return nr;
}

static void
a_directory_is_read_when_the_guest_rests (void)
{
  pthread_t thread;
  unsigned n;

  order_init ();
  image_put (&img, 2, 100);
  image_run (&img, 100, 99 + DIRECTORY_CLUSTERS);
  for (n = 100; n < 100 + DIRECTORY_CLUSTERS; ++n) {
    image_put (&img, n + DIRECTORY_CLUSTERS, END_MARK);
    memset (img.bytes + image_cluster (&img, n), 0, 512);
    image_entry (&img, n, 0, IS_FILE, n + DIRECTORY_CLUSTERS, 512);
  }
  memcpy (rig.bytes, img.bytes, img.size);
  CHECK_EQ (rig_start (&rig, false), 0);
  atomic_store (&busy, true);
  CHECK_EQ (pthread_create (&thread, NULL, keep_freeing, NULL), 0);
  engine_start_tree (rig.fb);
  usleep (200000);
  atomic_store (&busy, false);
  CHECK_EQ (pthread_join (thread, NULL), 0);
  tree_wait_idle (&rig.fb->tree, 60);
  n = count_unknown ();
  CHECK_EQ (n, 0);
  order_release ();
}

/* -- Rule 1 ------------------------------------------------------------ */

static atomic_ulong fat_reads;

static void
count_fat_reads (const struct disk_op *op)
{
  if (op->kind == DISK_READ && op->length == 4096 &&
      op->offset >= img.fat1 && op->offset < img.fat1 + img.fat_size)
    atomic_fetch_add (&fat_reads, 1);
}

/* One write to a directory, and as many files as there may be jobs, each with
 * a chain that leads into a loop.
 */
#define LOOPED_CLUSTERS 60

static void
make_looped_directory (void)
{
  unsigned i;

  image_put (&img, 1100, 40);
  image_put (&img, 40, 1100);
  image_run (&img, 1910, 1909 + LOOPED_CLUSTERS);
  image_put (&img, 5, 1910);
  for (i = 0; i < LOOPED_CLUSTERS * 16; ++i)
    image_put (&img, 110 + i, 1100);
  memcpy (rig.bytes, img.bytes, img.size);
  for (i = 0; i < LOOPED_CLUSTERS * 16; ++i)
    image_entry (&img, 1910 + i / 16, i % 16, IS_FILE, 110 + i, UINT32_MAX);
}

static void
loops_cost_little_between_scans (void)
{
  order_init ();
  make_looped_directory ();
  oplog_mute (&rig.log, true);
  oplog_mute (&rig.late, true);
  start_with_hook (count_fat_reads);
  order_wait_idle ();
  CHECK_EQ (order_state (1909 + LOOPED_CLUSTERS), CLUSTER_DIRECTORY);
  atomic_store (&fat_reads, 0);
  CHECK_EQ (order_send (image_cluster (&img, 1910), LOOPED_CLUSTERS * 512, 0),
            0);
  usleep (1500000);
  printf ("  %lu blocks of FAT 1 read, by %u clusters\n",
          atomic_load (&fat_reads), img.end - 2);
  CHECK (atomic_load (&fat_reads) < 3 * (1024 * 1024 + img.end));
  order_release ();
}

static void (*const tests[]) (void) = {
  who_waits_for_a_sync_that_fails_is_not_applied,
  a_new_layout_forgets_no_data,
  what_is_cut_off_is_not_in_place,
  what_is_behind_an_end_is_not_in_place_at_once,
  a_walk_that_begins_anew_meets_no_other,
  a_directory_is_read_when_the_guest_rests,
  loops_cost_little_between_scans,
  a_write_to_a_boot_sector_and_more_waits_for_data,
  data_of_the_next_owner_is_ordered,
  data_of_the_next_owner_is_ordered_during_a_flush,
  data_of_the_next_owner_is_ordered_in_doubt,
};

int
main (int argc, char **argv)
{
  size_t i, nr = sizeof tests / sizeof tests[0];

  alarm (120);
  for (i = 0; i < nr; ++i)
    if (argc < 2 || strtoul (argv[1], NULL, 10) == i + 1) {
      printf ("%zu\n", i + 1);
      fflush (stdout);
      tests[i] ();
    }
  return EXIT_SUCCESS;
}
