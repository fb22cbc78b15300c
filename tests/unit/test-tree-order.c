/* SPDX-License-Identifier: BSD-3-Clause */

/* Which writes wait for which, once the files on a volume are known (tree.h):
 * who frees clusters for data that is on its way to them, metadata that must
 * be durable for the data that it exposes; and who waits for nobody.
 */

#include <config.h>

#include "tree-order.h"

/* -- Rule 7: what is freed, or cut off --------------------------------- */

struct change {
  const char *name;
  void (*make) (void);          /* in the guest's memory */
  uint64_t (*where) (void);     /* the sector that is written then */
  enum order_kind kind;
  bool waits;                   /* for a write to cluster 12 */
};

static void
nothing (void)
{
}

static void
free_12 (void)
{
  image_put (&img, 11, END_MARK);
  image_put (&img, 12, 0);
  image_put (&img, 13, 0);
}

static void
free_12_by_bits_that_count (void)
{
  image_put (&img, 12, 0xf0000000);
}

static void
free_13 (void)
{
  image_put (&img, 12, END_MARK);
  image_put (&img, 13, 0);
}

static void
free_all_but_12 (void)
{
  image_put (&img, 10, 0);
  image_put (&img, 11, 0);
  image_put (&img, 13, 0);
}

static void
take_30 (void)
{
  image_put (&img, 30, END_MARK);
}

static void
shrink (void)
{
  put_le32 (image_slot (&img, 2, 0) + 28, 1024);
}

static void
shrink_in_a_cluster (void)
{
  put_le32 (image_slot (&img, 2, 0) + 28, 4 * 512 - 1);
}

static void
delete (void)
{
  image_slot (&img, 2, 0)[0] = DELETED_SLOT;
}

static void
replace (void)
{
  slot_set (image_slot (&img, 2, 0), "OTHER", IS_FILE, 20, 0);
}

static void
remove_directory (void)
{
  image_slot (&img, 2, 1)[0] = DELETED_SLOT;
}

static void
rename_it (void)
{
  image_slot (&img, 2, 0)[0] = 'X';
}

static void
grow_another (void)
{
  put_le32 (image_slot (&img, 2, 2) + 28, 1024);
}

static void
touch (void)
{
  put_le32 (image_slot (&img, 2, 0) + 22, 1);
}

static void
add_a_file (void)
{
  image_entry (&img, 5, 2, IS_FILE, 24, 512);
}

static uint64_t
in_fat (void)
{
  return order_fat (12);
}

static uint64_t
in_root (void)
{
  return image_cluster (&img, 2);
}

static uint64_t
in_directory (void)
{
  return image_cluster (&img, 5);
}

static const struct change changes[] = {
  { "free it", free_12, in_fat, ORDER_WRITE, true },
  { "free it, but for its high bits", free_12_by_bits_that_count, in_fat,
    ORDER_WRITE, true },
  { "free its neighbour", free_13, in_fat, ORDER_WRITE, false },
  { "free its neighbours", free_all_but_12, in_fat, ORDER_WRITE, false },
  { "allocate", take_30, in_fat, ORDER_WRITE, false },
  { "the same again", nothing, in_fat, ORDER_WRITE, false },
  { "zero FAT 1", nothing, in_fat, ORDER_ZERO, true },
  { "trim FAT 1", nothing, in_fat, ORDER_TRIM, true },
  { "shrink", shrink, in_root, ORDER_WRITE, true },
  { "shrink in a cluster", shrink_in_a_cluster, in_root, ORDER_WRITE, true },
  { "delete", delete, in_root, ORDER_WRITE, true },
  { "replace", replace, in_root, ORDER_WRITE, true },
  { "remove a directory", remove_directory, in_root, ORDER_WRITE, true },
  { "rename", rename_it, in_root, ORDER_WRITE, false },
  { "grow another", grow_another, in_root, ORDER_WRITE, false },
  { "touch", touch, in_root, ORDER_WRITE, false },
  { "add a file", add_a_file, in_directory, ORDER_WRITE, false },
  { "zero the root", nothing, in_root, ORDER_ZERO, true },
  { "trim the root", nothing, in_root, ORDER_TRIM, true },
};

/* While a write to cluster 12 is stuck in the disk. */
static void
change_during_a_write (const struct change *change, unsigned flags, bool knows)
{
  struct order_request *data, *q;

  order_hold (DISK_WRITE, image_cluster (&img, 12), 512);
  data = order_async_send (order_data (12, 1), 512, 0);
  order_await_held (1);
  change->make ();
  q = order_async_kind (change->kind, change->where (), 512, flags);
  if (knows && change->waits)
    CHECK (!order_ends (q));
  else
    order_must_end (q);
  CHECK (!atomic_load (&data->done));
  order_let_go (DISK_WRITE);
  order_join ();
  CHECK_EQ (data->result, 0);
  CHECK_EQ (q->result, 0);
}

static void
who_takes_clusters_away_waits_for_writes_to_them (void)
{
  size_t i;
  unsigned flags;

  for (i = 0; i < sizeof changes / sizeof changes[0]; ++i)
    for (flags = 0; flags <= FATBATCH_FUA; flags += FATBATCH_FUA) {
      printf ("  %s%s\n", changes[i].name, flags ? ", FUA" : "");
      fflush (stdout);
      order_open ();
      change_during_a_write (&changes[i], flags, true);
      order_release ();
    }
}

static void
with_durability_block_nobody_waits (void)
{
  size_t i;

  for (i = 0; i < sizeof changes / sizeof changes[0]; ++i) {
    printf ("  %s\n", changes[i].name);
    fflush (stdout);
    order_init ();
    rig.options.durability = FATBATCH_DURABILITY_BLOCK;
    order_start ();
    CHECK (atomic_load (&rig.fb->tree.set) == NULL);
    change_during_a_write (&changes[i], FATBATCH_FUA, false);
    order_release ();
  }
}

/* Many single clusters, more than can be told apart. */
static void
many_freed_clusters_are_waited_for (void)
{
  struct order_request *data, *q;
  unsigned n;

  order_init ();
  for (n = 256; n < 1024; n += 2)
    image_put (&img, n, END_MARK);
  memcpy (rig.bytes, img.bytes, img.size);
  order_start ();
  order_hold (DISK_WRITE, image_cluster (&img, 900), 512);
  data = order_async_send (order_data (900, 1), 512, 0);
  order_await_held (1);
  for (n = 256; n < 1024; n += 2)
    image_put (&img, n, 0);
  q = order_async_send (order_fat (256), 768 * 4, 0);
  CHECK (!order_ends (q));
  order_let_go (DISK_WRITE);
  order_join ();
  CHECK_EQ (data->result, 0);
  CHECK_EQ (q->result, 0);
  CHECK_EQ (order_state (900), CLUSTER_FREE);
  order_release ();
}

/* -- Rule 6: data before what exposes it ------------------------------- */

struct exposure {
  const char *name;
  uint32_t data[3];             /* clusters that are written first */
  void (*make) (void);
  uint64_t (*where) (void);
  const char *expected;
};

static void
take_900 (void)
{
  image_put (&img, 900, END_MARK);
}

static uint64_t
in_fat_900 (void)
{
  return order_fat (900);
}

static uint64_t
in_900 (void)
{
  return order_data (900, 1);
}

static uint64_t
in_12 (void)
{
  return order_data (12, 1);
}

static const struct exposure exposures[] = {
  { "a size that grows", { 20 }, grow_another, in_root,
    "  write data:18\n"
    "  sync data:18\n"
    "  write data:0\n"
    "  sync data:0\n" },
  { "a file that is added", { 900 }, add_a_file, in_directory,
    "  write data:898\n"
    "  sync data:898\n"
    "  write data:3\n"
    "  sync data:3\n" },
  { "FAT 1", { 900 }, take_900, in_fat_900,
    "  write data:898\n"
    "  sync data:898\n"
    "  write fat1:7\n"
    "  sync fat1:7\n" },
  { "several", { 20, 900, 21 }, grow_another, in_root,
    "  write data:18\n"
    "  write data:898\n"
    "  write data:19\n"
    "  sync data:18+2 & sync data:898\n"
    "  write data:0\n"
    "  sync data:0\n" },
  { "what may be a directory", { 800 }, nothing, in_900,
    "  write data:798\n"
    "  sync data:798\n"
    "  write data:898\n"
    "  sync data:898\n" },
  { "data in place, and metadata", { 11, 1501 }, grow_another, in_root,
    "  write data:9\n"
    "  write data:1499\n"
    "  write data:0\n"
    "  sync data:0\n" },
  { "data in place, and FAT 1", { 10, 1503, 13 }, take_900, in_fat_900,
    "  write data:8\n"
    "  write data:1501\n"
    "  write data:11\n"
    "  write fat1:7\n"
    "  sync fat1:7\n" },
  { "other data, and durable data in place", { 800 }, nothing, in_12,
    "  write data:798\n"
    "  write data:10\n"
    "  sync data:10\n" },
  { "both", { 11, 800 }, grow_another, in_root,
    "  write data:9\n"
    "  write data:798\n"
    "  sync data:798\n"
    "  write data:0\n"
    "  sync data:0\n" },
};

static void
data_is_durable_before_what_exposes_it (void)
{
  size_t i, k;

  for (i = 0; i < sizeof exposures / sizeof exposures[0]; ++i) {
    const struct exposure *e = &exposures[i];

    printf ("  %s\n", e->name);
    fflush (stdout);
    order_open ();
    for (k = 0; k < 3 && e->data[k] > 0; ++k)
      order_plain_data (e->data[k], 1);
    e->make ();
    CHECK_EQ (order_send (e->where (), 512, FATBATCH_FUA), 0);
    order_expect (e->name, e->expected);
    order_check_reads ();
    order_release ();
  }
}

/* A write of several clusters is in place if all of them are. */
static void
a_write_is_in_place_as_a_whole_or_not_at_all (void)
{
  order_open ();
  order_plain_data (10, 4);
  order_plain_data (13, 2);
  order_plain_data (1499, 3);
  grow_another ();
  CHECK_EQ (order_send (in_root (), 512, FATBATCH_FUA), 0);
  order_expect ("as a whole",
                "  write data:8+4\n"
                "  write data:11+2\n"
                "  write data:1497+3\n"
                "  sync data:11+2 & sync data:1497+3\n"
                "  write data:0\n"
                "  sync data:0\n");
  order_release ();
}

/* The last cluster of a file is not full. */
static void
a_cluster_with_the_end_in_it_is_not_in_place (void)
{
  order_init ();
  put_le32 (image_slot (&img, 2, 0) + 28, 4 * 512 - 1);
  memcpy (rig.bytes, img.bytes, img.size);
  order_start ();
  order_plain_data (12, 1);
  order_plain_data (13, 1);
  grow_another ();
  CHECK_EQ (order_send (in_root (), 512, FATBATCH_FUA), 0);
  order_expect ("the end",
                "  write data:10\n"
                "  write data:11\n"
                "  sync data:11\n"
                "  write data:0\n"
                "  sync data:0\n");
  order_release ();
}

static void
zeros_are_data_and_trims_are_not (void)
{
  order_open ();
  CHECK_EQ (fatbatch_zero (rig.fb, 512, image_cluster (&img, 20), 0), 0);
  CHECK_EQ (fatbatch_trim (rig.fb, 512, image_cluster (&img, 800), 0), 0);
  grow_another ();
  CHECK_EQ (order_send (in_root (), 512, FATBATCH_FUA), 0);
  order_expect ("zeros",
                "  zero data:18\n"
                "  trim data:798\n"
                "  sync data:18\n"
                "  write data:0\n"
                "  sync data:0\n");
  order_release ();
}

static void
metadata_that_need_not_be_durable_waits_for_nothing (void)
{
  order_open ();
  order_plain_data (20, 1);
  grow_another ();
  take_900 ();
  CHECK_EQ (order_send (in_root (), 512, 0), 0);
  CHECK_EQ (order_send (in_fat_900 (), 512, 0), 0);
  order_expect ("plain",
                "  write data:18\n"
                "  write data:0\n"
                "  write fat1:7\n");
  order_release ();
}

/* Durable data is in no set. */
static void
durable_data_is_synced_once (void)
{
  order_open ();
  CHECK_EQ (order_send (order_data (20, 1), 512, FATBATCH_FUA), 0);
  grow_another ();
  CHECK_EQ (order_send (in_root (), 512, FATBATCH_FUA), 0);
  order_expect ("once",
                "  write data:18\n"
                "  sync data:18\n"
                "  write data:0\n"
                "  sync data:0\n");
  order_release ();
}

/* -- Rule 6, with syncs under way -------------------------------------- */

/* Another one that comes while the sync for the first one runs. */
static void
who_comes_during_the_sync_waits_for_it (void)
{
  struct order_request *q[4];
  unsigned i;

  order_open ();
  order_plain_data (20, 1);
  order_hold (DISK_SYNC, image_cluster (&img, 20), 512);
  grow_another ();
  q[0] = order_async_send (in_root (), 512, FATBATCH_FUA);
  order_await_held (1);
  take_900 ();
  q[1] = order_async_send (in_fat_900 (), 512, FATBATCH_FUA);
  add_a_file ();
  q[2] = order_async_send (in_directory (), 512, FATBATCH_FUA);
  q[3] = order_async_send (in_900 (), 512, FATBATCH_FUA);
  for (i = 0; i < 4; ++i)
    CHECK (!order_ends (q[i]));
  order_expect ("held", "  write data:18\n");
  order_let_go (DISK_SYNC);
  order_join ();
  for (i = 0; i < 4; ++i)
    CHECK_EQ (q[i]->result, 0);
  CHECK (strncmp (rig.log.text, "  sync data:18\n", 15) == 0);
  CHECK_EQ (rig_stat (&rig, "ordered_syncs"), 1);
  order_check_reads ();
  order_release ();
}

/* What is not metadata does not, nor what need not be durable. */
static void
others_do_not_wait_for_the_sync (void)
{
  struct order_request *q;

  order_open ();
  order_plain_data (20, 1);
  order_hold (DISK_SYNC, image_cluster (&img, 20), 512);
  grow_another ();
  q = order_async_send (in_root (), 512, FATBATCH_FUA);
  order_await_held (1);
  order_plain_data (11, 1);
  order_plain_data (800, 1);
  take_900 ();
  CHECK_EQ (order_send (in_fat_900 (), 512, 0), 0);
  CHECK (!atomic_load (&q->done));
  order_let_go (DISK_SYNC);
  order_join ();
  CHECK_EQ (q->result, 0);
  order_release ();
}

static void
data_that_comes_during_the_sync_is_synced_next_time (void)
{
  struct order_request *q;

  order_open ();
  order_plain_data (20, 1);
  order_hold (DISK_SYNC, image_cluster (&img, 20), 512);
  grow_another ();
  q = order_async_send (in_root (), 512, FATBATCH_FUA);
  order_await_held (1);
  order_plain_data (800, 1);
  order_plain_data (20, 1);     /* once more */
  order_let_go (DISK_SYNC);
  order_join ();
  CHECK_EQ (q->result, 0);
  oplog_clear (&rig.log);
  take_900 ();
  CHECK_EQ (order_send (in_fat_900 (), 512, FATBATCH_FUA), 0);
  order_expect ("next time",
                "  sync data:18 & sync data:798\n"
                "  write fat1:7\n"
                "  sync fat1:7\n");
  grow_another ();
  CHECK_EQ (order_send (in_root (), 512, FATBATCH_FUA), 0);
  order_expect ("no more",
                "  write data:0\n"
                "  sync data:0\n");
  order_release ();
}

static void
a_flush_leaves_nothing_to_be_synced (void)
{
  order_open ();
  order_plain_data (20, 1);
  order_plain_data (800, 1);
  CHECK_EQ (fatbatch_flush (rig.fb), 0);
  grow_another ();
  CHECK_EQ (order_send (in_root (), 512, FATBATCH_FUA), 0);
  order_expect ("after a flush",
                "  write data:18\n"
                "  write data:798\n"
                "  sync all\n"
                "  write data:0\n"
                "  sync data:0\n");
  order_release ();
}

static void
data_that_comes_during_a_flush_stays (void)
{
  struct order_request *flush;

  order_open ();
  order_plain_data (20, 1);
  order_hold (DISK_SYNC, 0, rig.size);
  flush = order_async_kind (ORDER_FLUSH, 0, 0, 0);
  order_await_held (1);
  order_plain_data (800, 1);
  order_let_go (DISK_SYNC);
  order_join ();
  CHECK_EQ (flush->result, 0);
  oplog_clear (&rig.log);
  grow_another ();
  CHECK_EQ (order_send (in_root (), 512, FATBATCH_FUA), 0);
  order_expect ("stays",          /* in one piece: commit.h, rule 2 */
                "  sync data:18+781\n"
                "  write data:0\n"
                "  sync data:0\n");
  order_release ();
}

/* Data that is being written, not acknowledged, when the flush begins. */
static void
data_under_way_when_a_flush_begins_stays (void)
{
  struct order_request *data;

  order_open ();
  order_set (rig.after, DISK_WRITE, image_cluster (&img, 800), 512);
  data = order_async_send (order_data (800, 1), 512, 0);
  order_await_held (1);
  CHECK_EQ (fatbatch_flush (rig.fb), 0);
  order_let_go (DISK_WRITE);
  order_join ();
  CHECK_EQ (data->result, 0);
  oplog_clear (&rig.log);
  grow_another ();
  CHECK_EQ (order_send (in_root (), 512, FATBATCH_FUA), 0);
  order_expect ("under way",
                "  sync data:798\n"
                "  write data:0\n"
                "  sync data:0\n");
  order_release ();
}

static void
a_flush_that_fails_empties_nothing (void)
{
  struct tree_set *set;

  order_open ();
  order_plain_data (20, 1);
  order_fail (DISK_SYNC, 0, rig.size);
  CHECK_EQ (fatbatch_flush (rig.fb), -EIO);
  rig.fail[DISK_SYNC].active = false;
  set = atomic_load (&rig.fb->tree.set);
  CHECK (atomic_load (&set->volume[0].has_ordered));
  grow_another ();
  oplog_clear (&rig.log);
  CHECK_EQ (order_send (in_root (), 512, FATBATCH_FUA), -EIO);
  order_expect ("failed", "");
  order_release ();
}

/* D6: it is latched, and the metadata is not applied. */
static void
a_sync_that_fails_is_latched (void)
{
  order_open ();
  order_plain_data (20, 1);
  order_fail (DISK_SYNC, image_cluster (&img, 20), 512);
  grow_another ();
  CHECK_EQ (order_send (in_root (), 512, FATBATCH_FUA), -EIO);
  order_expect ("fails",
                "  write data:18\n"
                "  sync data:18 !\n");
  CHECK (fatbatch_has_failed (rig.fb));
  rig.fail[DISK_SYNC].active = false;
  CHECK_EQ (order_send (in_root (), 512, FATBATCH_FUA), -EIO);
  CHECK_EQ (order_send (in_fat_900 (), 512, FATBATCH_FUA), -EIO);
  CHECK_EQ (fatbatch_flush (rig.fb), -EIO);
  order_expect ("latched", "");
  order_plain_data (21, 1);     /* promises nothing */
  order_release ();
}

/* -- In place: at once ------------------------------------------------- */

/* Writes to clusters 10, 12 and 1501 are at the disk together. */
static void
at_the_disk_together (unsigned expected)
{
  static const uint32_t clusters[] = { 10, 12, 1501 };
  struct order_request *q[3];
  unsigned i;

  order_hold (DISK_WRITE, image_cluster (&img, 10),
              image_cluster (&img, 1502) - image_cluster (&img, 10));
  for (i = 0; i < 3; ++i)
    q[i] = order_async_send (order_data (clusters[i], 1), 512, 0);
  order_await_held (expected);
  usleep (ORDER_A_WHILE);
  CHECK_EQ (order_held (), expected);
  order_let_go (DISK_WRITE);
  for (i = 0; i < 3; ++i)
    order_must_end (q[i]);
}

static void
in_place_writes_run_at_once (void)
{
  order_open ();
  at_the_disk_together (3);
  order_join ();
  order_check_reads ();
  order_release ();
}

static void
in_place_writes_run_while_metadata_waits (void)
{
  struct order_request *q;

  order_open ();
  order_plain_data (20, 1);
  order_hold (DISK_SYNC, image_cluster (&img, 20), 512);
  grow_another ();
  q = order_async_send (in_root (), 512, FATBATCH_FUA);
  order_await_held (1);
  at_the_disk_together (4);
  CHECK (!atomic_load (&q->done));
  order_let_go (DISK_SYNC);
  order_join ();
  order_release ();
}

/* It waits for a write, and others come meanwhile. */
static void
in_place_writes_run_while_a_truncation_waits (void)
{
  struct order_request *data, *q;

  order_open ();
  order_set (rig.after, DISK_WRITE, image_cluster (&img, 1500), 512);
  data = order_async_send (order_data (1500, 1), 512, 0);
  order_await_held (1);
  image_slot (&img, 2, 4)[0] = DELETED_SLOT;
  q = order_async_send (in_root (), 512, FATBATCH_FUA);
  CHECK (!order_ends (q));
  order_plain_data (10, 4);
  order_plain_data (12, 1);
  CHECK (!atomic_load (&data->done));
  CHECK (!atomic_load (&q->done));
  order_let_go (DISK_WRITE);
  order_join ();
  CHECK_EQ (q->result, 0);
  order_release ();
}

static void
serial_writes_take_turns (void)
{
  order_init ();
  rig.options.serial = true;
  order_start ();
  at_the_disk_together (1);
  order_join ();
  order_check_reads ();
  order_release ();
}

/* Rule 8: until it is durable. */
static void
a_serial_structural_write_keeps_its_turn (void)
{
  struct order_request *q, *data;

  order_init ();
  rig.options.serial = true;
  order_start ();
  order_hold (DISK_SYNC, in_root (), 512);
  grow_another ();
  q = order_async_send (in_root (), 512, FATBATCH_FUA);
  order_await_held (1);
  data = order_async_send (order_data (12, 1), 512, 0);
  CHECK (!order_ends (data));
  order_expect ("the turn", "  write data:0\n");
  order_let_go (DISK_SYNC);
  order_join ();
  CHECK_EQ (q->result, 0);
  CHECK_EQ (data->result, 0);
  order_release ();
}

/* And gives it up if it fails. */
static void
a_serial_write_that_fails_gives_its_turn_up (void)
{
  order_init ();
  rig.options.serial = true;
  order_start ();
  order_plain_data (20, 1);
  order_fail (DISK_SYNC, image_cluster (&img, 20), 512);
  grow_another ();
  CHECK_EQ (order_send (in_root (), 512, FATBATCH_FUA), -EIO);
  rig.fail[DISK_SYNC].active = false;
  order_fail (DISK_WRITE, image_cluster (&img, 12), 512);
  CHECK_EQ (order_send (order_data (12, 1), 512, 0), -EIO);
  rig.fail[DISK_WRITE].active = false;
  CHECK_EQ (order_send (in_root (), 512, 0), 0);
  order_plain_data (12, 1);
  order_release ();
}

int
main (void)
{
  alarm (120);
  RUN (who_takes_clusters_away_waits_for_writes_to_them);
  RUN (with_durability_block_nobody_waits);
  RUN (many_freed_clusters_are_waited_for);
  RUN (data_is_durable_before_what_exposes_it);
  RUN (a_write_is_in_place_as_a_whole_or_not_at_all);
  RUN (a_cluster_with_the_end_in_it_is_not_in_place);
  RUN (zeros_are_data_and_trims_are_not);
  RUN (metadata_that_need_not_be_durable_waits_for_nothing);
  RUN (durable_data_is_synced_once);
  RUN (who_comes_during_the_sync_waits_for_it);
  RUN (others_do_not_wait_for_the_sync);
  RUN (data_that_comes_during_the_sync_is_synced_next_time);
  RUN (a_flush_leaves_nothing_to_be_synced);
  RUN (data_that_comes_during_a_flush_stays);
  RUN (data_under_way_when_a_flush_begins_stays);
  RUN (a_flush_that_fails_empties_nothing);
  RUN (a_sync_that_fails_is_latched);
  RUN (in_place_writes_run_at_once);
  RUN (in_place_writes_run_while_metadata_waits);
  RUN (in_place_writes_run_while_a_truncation_waits);
  RUN (serial_writes_take_turns);
  RUN (a_serial_structural_write_keeps_its_turn);
  RUN (a_serial_write_that_fails_gives_its_turn_up);
  return EXIT_SUCCESS;
}
