/* SPDX-License-Identifier: BSD-3-Clause */

/* The intent record in memory: the order of writes and syncs, and what a power
 * cut between any two of them leaves (intent.h, rules 1 to 3).
 */

#include <config.h>

#include "check.h"
#include "intent.h"
#include "memory-store.h"
#include "util.h"

#define SIZE (UINT64_C (64) * 1024 * 1024)

static struct oplog the_log;
static struct memory_record record;
static struct memory_store *store;
static struct intent in;

/* A window's entry, with slots [from, to). */
static struct intent_entry
entry_of (unsigned window, unsigned from, unsigned to)
{
  struct intent_entry entry = {
    .fat1 = 16384 + window * UINT64_C (524288),
    .mirror = SIZE / 2 + window * UINT64_C (524288),
    .length = 524288, .slot_size = 512, .volume_id = 0x1234,
  };

  for (; from < to; ++from)
    entry.slots[from / 8] |= 1 << from % 8;
  return entry;
}

/* -- Power cuts -------------------------------------------------------- */

#define WINDOWS 4

/* What recovery must, and what it may, be asked for in each window. */
static uint8_t must[WINDOWS][INTENT_SLOTS / 8];
static uint8_t may[WINDOWS][INTENT_SLOTS / 8];
static unsigned cuts;

static void
expect_slots (uint8_t set[INTENT_SLOTS / 8], const struct intent_entry *entry)
{
  size_t i;

  for (i = 0; i < INTENT_SLOTS / 8; ++i)
    set[i] |= entry->slots[i];
}

/* Load what a power cut has left. */
static void
check_left (struct memory_record *left)
{
  struct memory_store *ms = memory_store_new (left, NULL);
  uint8_t got[WINDOWS][INTENT_SLOTS / 8] = { { 0 } };
  struct intent_entry *entries = NULL;
  struct intent loaded;
  char reason[200];
  size_t nr = 0, i, w, b;
  int r;

  cuts++;
  intent_init (&loaded, &ms->store, SIZE);
  r = intent_load (&loaded, &entries, &nr, reason, sizeof reason);
  CHECK (r == 0 || r == -ENOENT || r == -EBADMSG);
  for (i = 0; i < nr; ++i) {
    w = (entries[i].fat1 - 16384) / 524288;
    CHECK (w < WINDOWS);
    expect_slots (got[w], &entries[i]);
    /* Nothing but an entry that was given. */
    entries[i] = entry_of (w, 0, 0);
    CHECK_EQ (entries[i].mirror, SIZE / 2 + w * 524288);
  }
  for (w = 0; w < WINDOWS; ++w)
    for (b = 0; b < INTENT_SLOTS / 8; ++b) {
      CHECK_EQ (must[w][b] & ~got[w][b], 0);
      CHECK_EQ (got[w][b] & ~may[w][b], 0);
    }
  free (entries);
  intent_remove (&loaded);
  memory_store_free (&ms->store);
}

/* Cut now: each block that is not durable has reached the disk, has not, or
 * has in part.
 */
static void
cut (struct memory_record *left, unsigned block)
{
  static const unsigned tears[] = { 0, 8, 64, 256, 508, INTENT_BLOCK };
  struct memory_record saved;
  size_t at, i;

  for (; block < INTENT_BLOCKS; ++block)
    if (memcmp (record.bytes + block * INTENT_BLOCK,
                record.durable + block * INTENT_BLOCK, INTENT_BLOCK) != 0)
      break;
  if (block == INTENT_BLOCKS) {
    saved = *left;
    check_left (&saved);
    return;
  }
  at = (size_t) block * INTENT_BLOCK;
  for (i = 0; i < sizeof tears / sizeof tears[0]; ++i) {
    memcpy (left->bytes + at, record.bytes + at, tears[i]);
    memcpy (left->bytes + at + tears[i], record.durable + at + tears[i],
            INTENT_BLOCK - tears[i]);
    cut (left, block + 1);
  }
}

static void
check_cuts (void)
{
  struct memory_record left = record;

  if (!record.exists)
    return;
  memcpy (left.bytes, record.durable, sizeof left.bytes);
  cut (&left, 0);
}

/* The store, with a power cut after each operation. */
static int
cutting_create (struct intent_store *s, size_t size)
{
  int r = memory_store_create (s, size);

  check_cuts ();
  return r;
}

static int
cutting_write (struct intent_store *s, const void *buf, size_t count,
               uint64_t offset)
{
  int r = memory_store_write (s, buf, count, offset);

  check_cuts ();
  return r;
}

static int
cutting_sync (struct intent_store *s)
{
  int r = memory_store_sync (s);

  check_cuts ();
  return r;
}

static const struct intent_store_ops cutting_ops = {
  .read = memory_store_read, .create = cutting_create,
  .write = cutting_write, .sync = cutting_sync,
  .set_aside = memory_store_set_aside, .remove = memory_store_remove,
  .free = memory_store_free,
};

/* -- Calls, with what they promise ------------------------------------- */

static void
setup (void)
{
  oplog_init (&the_log);
  memset (&record, 0, sizeof record);
  memset (must, 0, sizeof must);
  memset (may, 0, sizeof may);
  store = memory_store_new (&record, &the_log);
  store->store.ops = &cutting_ops;
  intent_init (&in, &store->store, SIZE);
}

static void
teardown (void)
{
  memory_store_free (&store->store);
  oplog_release (&the_log);
}

static void
create (void)
{
  CHECK_EQ (intent_create (&in), 0);
  CHECK (in.created);
  CHECK (!intent_is_armed (&in));
}

/* Until it returns the slots that both entries have must be there, and those of
 * either may be.
 */
static void
arm (unsigned window, const struct intent_entry *entry, unsigned *block)
{
  unsigned before = *block;
  size_t i;

  expect_slots (may[window], entry);
  for (i = 0; i < INTENT_SLOTS / 8; ++i)
    must[window][i] &= entry->slots[i];
  CHECK_EQ (intent_arm (&in, entry, block), 0);
  CHECK (*block != 0 && *block < INTENT_BLOCKS && *block != before);
  memcpy (must[window], entry->slots, sizeof must[window]);
  memcpy (may[window], entry->slots, sizeof may[window]);
  CHECK (intent_is_armed (&in));
  check_cuts ();
}

static void
disarm (const unsigned *windows, const unsigned *blocks, size_t nr)
{
  size_t i;

  for (i = 0; i < nr; ++i)
    memset (must[windows[i]], 0, sizeof must[0]);
  CHECK_EQ (intent_disarm (&in, blocks, nr), 0);
  for (i = 0; i < nr; ++i)
    memset (may[windows[i]], 0, sizeof may[0]);
  check_cuts ();
}

/* -- Tests ------------------------------------------------------------- */

static void
a_new_record_has_no_entry (void)
{
  setup ();
  create ();
  oplog_expect (&the_log, "create",
                "  record create\n"
                "  record write 0\n"
                "  record sync\n");
  CHECK (memcmp (record.bytes, record.durable, sizeof record.bytes) == 0);
  teardown ();
}

/* Rule 1. */
static void
an_armed_entry_is_durable (void)
{
  struct intent_entry entry = entry_of (0, 3, 10);
  unsigned block = 0;

  setup ();
  create ();
  oplog_clear (&the_log);
  arm (0, &entry, &block);
  oplog_expect (&the_log, "arm", "  record write 1\n"
                                 "  record sync\n");
  teardown ();
}

/* Rule 2: the new entry is durable before the old one is touched. */
static void
arming_again_never_loses_the_old_entry (void)
{
  static const struct {
    const char *name;
    unsigned from, to;
  } rows[] = {
    { "more slots", 0, 20 }, { "fewer slots", 5, 6 },
    { "others", 100, 1024 }, { "the same", 3, 10 },
  };
  struct intent_entry first = entry_of (0, 3, 10);
  size_t i;

  for (i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    struct intent_entry again = entry_of (0, rows[i].from, rows[i].to);
    unsigned block = 0;

    printf ("  %s\n", rows[i].name);
    setup ();
    create ();
    arm (0, &first, &block);
    oplog_clear (&the_log);
    arm (0, &again, &block);
    oplog_expect (&the_log, rows[i].name, "  record write 2\n"
                                          "  record sync\n"
                                          "  record clear 1\n"
                                          "  record sync\n");
    teardown ();
  }
}

/* Rule 3. */
static void
disarming_is_durable_with_one_sync (void)
{
  static const unsigned windows[] = { 0, 1, 2 };
  unsigned blocks[3] = { 0 }, i;

  setup ();
  create ();
  for (i = 0; i < 3; ++i) {
    struct intent_entry entry = entry_of (i, i, 2 * i + 1);

    arm (i, &entry, &blocks[i]);
  }
  oplog_clear (&the_log);
  disarm (windows, blocks, 2);
  oplog_expect (&the_log, "two", "  record clear 1\n"
                                 "  record clear 2\n"
                                 "  record sync\n");
  CHECK (intent_is_armed (&in));
  disarm (windows + 2, blocks + 2, 1);
  CHECK (!intent_is_armed (&in));
  teardown ();
}

static void
blocks_are_used_again (void)
{
  static const unsigned window = 0;
  unsigned round;

  setup ();
  create ();
  for (round = 0; round < 2 * INTENT_BLOCKS; ++round) {
    struct intent_entry entry = entry_of (0, 0, round % 100 + 1);
    unsigned block = 0;

    arm (0, &entry, &block);
    arm (0, &entry, &block);
    disarm (&window, &block, 1);
  }
  CHECK (!intent_is_armed (&in));
  teardown ();
}

static void
a_full_record_refuses_and_does_nothing (void)
{
  struct intent_entry entry = entry_of (0, 0, 1);
  unsigned blocks[INTENT_BLOCKS] = { 0 }, i;

  setup ();
  create ();
  for (i = 1; i < INTENT_BLOCKS; ++i)
    arm (0, &entry, &blocks[i]);
  oplog_clear (&the_log);
  CHECK_EQ (intent_arm (&in, &entry, &blocks[0]), -ENOSPC);
  CHECK_EQ (blocks[0], 0);
  blocks[0] = blocks[1];
  CHECK_EQ (intent_arm (&in, &entry, &blocks[0]), -ENOSPC);
  CHECK_EQ (blocks[0], blocks[1]);
  oplog_expect (&the_log, "full", "");
  CHECK_EQ (intent_disarm (&in, &blocks[1], 1), 0);
  blocks[0] = 0;
  CHECK_EQ (intent_arm (&in, &entry, &blocks[0]), 0);
  teardown ();
}

/* Random calls, cut everywhere. */
static void
at_any_time_the_record_says_what_it_must (void)
{
  unsigned seed = 1, blocks[WINDOWS] = { 0 }, round, w;

  setup ();
  create ();
  for (round = 0; round < 300; ++round) {
    unsigned from = rand_r (&seed) % 1024, nr = rand_r (&seed) % 8 + 1;
    struct intent_entry entry;

    w = rand_r (&seed) % WINDOWS;
    if (blocks[w] == 0 || rand_r (&seed) % 2) {
      entry = entry_of (w, from, from + nr < 1024 ? from + nr : 1024);
      arm (w, &entry, &blocks[w]);
    }
    else {
      disarm (&w, &blocks[w], 1);
      blocks[w] = 0;
    }
  }
  printf ("  %u cuts\n", cuts);
  teardown ();
}

/* -- Failures ---------------------------------------------------------- */

static void
a_failure_is_reported (void)
{
  static const struct {
    const char *name;
    enum memory_store_op op;
  } rows[] = { { "write", STORE_WRITE }, { "sync", STORE_SYNC } };
  struct intent_entry entry = entry_of (0, 0, 5);
  size_t i;

  for (i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    unsigned block = 0, old;
    int r;

    printf ("  %s\n", rows[i].name);
    setup ();
    create ();
    store->fail[rows[i].op] = -EIO;
    expect_slots (may[0], &entry);
    CHECK_EQ (intent_arm (&in, &entry, &block), -EIO);
    CHECK_EQ (block, 0);

    store->fail[rows[i].op] = 0;
    arm (0, &entry, &block);
    store->fail[rows[i].op] = -ENOSPC;  /* not a full record */
    old = block;
    r = intent_arm (&in, &entry, &block);
    CHECK (r < 0 && r != -ENOSPC);
    CHECK_EQ (block, old);
    memset (must, 0, sizeof must);
    CHECK (intent_disarm (&in, &block, 1) < 0);
    CHECK (intent_is_armed (&in));
    teardown ();
  }
}

static void
where_creation_fails_no_record_is_left (void)
{
  static const enum memory_store_op ops[] = {
    STORE_CREATE, STORE_WRITE, STORE_SYNC
  };
  size_t i;

  for (i = 0; i < sizeof ops / sizeof ops[0]; ++i) {
    setup ();
    store->fail[ops[i]] = -ENOSPC;
    CHECK_EQ (intent_create (&in), -ENOSPC);
    CHECK (!in.created);
    CHECK (!record.exists);
    store->fail[ops[i]] = 0;
    create ();                  /* later it may work */
    teardown ();
  }
}

static void
check_same (const struct intent_entry *a, const struct intent_entry *b)
{
  uint8_t block_a[INTENT_BLOCK], block_b[INTENT_BLOCK];

  intent_encode (a, SIZE, 1, block_a);
  intent_encode (b, SIZE, 1, block_b);
  CHECK (memcmp (block_a, block_b, INTENT_BLOCK) == 0);
}

/* -- Life of a record -------------------------------------------------- */

static void
a_removed_record_is_made_anew (void)
{
  struct intent_entry entry = entry_of (1, 0, 5), *entries = NULL;
  unsigned block = 0;
  char reason[200];
  uint64_t run;
  size_t nr = 0;

  setup ();
  create ();
  arm (1, &entry, &block);
  run = in.run;
  CHECK_EQ (intent_remove (&in), 0);
  CHECK (!record.exists && !in.created && !intent_is_armed (&in));
  memset (must, 0, sizeof must);
  memset (may, 0, sizeof may);
  CHECK_EQ (intent_load (&in, &entries, &nr, reason, sizeof reason),
            -ENOENT);

  block = 0;
  create ();
  CHECK (in.run != run);
  arm (1, &entry, &block);
  CHECK_EQ (intent_load (&in, &entries, &nr, reason, sizeof reason), 0);
  CHECK_EQ (nr, 1);
  check_same (&entries[0], &entry);
  CHECK_EQ (reason[0], '\0');
  free (entries);
  teardown ();
}

/* An entry of an earlier record, in a block that was not overwritten. */
static void
an_entry_of_another_run_is_not_believed (void)
{
  struct intent_entry entry = entry_of (1, 0, 5), *entries = NULL;
  unsigned block = 0;
  char reason[200];
  size_t nr = 99;

  setup ();
  create ();
  arm (1, &entry, &block);
  intent_encode (&entry, SIZE, in.run + 1, record.bytes + 5 * INTENT_BLOCK);
  CHECK_EQ (intent_load (&in, &entries, &nr, reason, sizeof reason), 0);
  CHECK_EQ (nr, 1);
  CHECK (reason[0] != '\0');
  free (entries);
  teardown ();
}

int
main (void)
{
  RUN (a_new_record_has_no_entry);
  RUN (an_armed_entry_is_durable);
  RUN (arming_again_never_loses_the_old_entry);
  RUN (disarming_is_durable_with_one_sync);
  RUN (blocks_are_used_again);
  RUN (a_full_record_refuses_and_does_nothing);
  RUN (at_any_time_the_record_says_what_it_must);
  RUN (a_failure_is_reported);
  RUN (where_creation_fails_no_record_is_left);
  RUN (a_removed_record_is_made_anew);
  RUN (an_entry_of_another_run_is_not_believed);
  return EXIT_SUCCESS;
}
