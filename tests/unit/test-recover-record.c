/* SPDX-License-Identifier: BSD-3-Clause */

/* What a server does about a record that it finds at open, and that is foreign,
 * stale, torn or damaged: nothing is written but what a sound entry of this
 * image asks for (recover.c, rule 1; intent.h, rules 4 and 5).
 */

#include <config.h>

#include <unistd.h>

#include "mirror-rig.h"
#include "util.h"

static struct rig rig;

/* A server was killed that had slot 3 deferred; and the image as recovery would
 * bring it back.
 */
static uint8_t recovered[RIG_SMALL_SIZE];

static void
leave_3 (void)
{
  struct rig_place place;

  rig_init (&rig, RIG_SMALL_SIZE, &rig_small, 1);
  rig_open (&rig);
  rig.quick = true;
  rig_request (&rig, "write fat1:3 a");
  rig_request (&rig, "write fat2:3 a");
  rig_crash (&rig);
  rig.unsure = true;
  memcpy (recovered, rig.bytes, rig.size);
  place = rig_place (&rig, "fat2:3");
  rig_fill (recovered + place.start, &place, "a");
}

static void
start (const char *name)
{
  printf ("  %s\n", name);
  fflush (stdout);
  oplog_clear (&rig.log);
  CHECK_EQ (rig_start (&rig, true), 0);
}

/* -- Records of something else ----------------------------------------- */

/* The entry in the record, to be changed.  It is sealed again. */
static struct intent_entry
get_entry (void)
{
  struct intent_entry entry;

  CHECK_EQ (intent_decode (rig.record.bytes + INTENT_BLOCK, rig.size,
                           load_le64 (rig.record.bytes + 24), &entry), 0);
  return entry;
}

static void
put_entry (const struct intent_entry *entry)
{
  intent_encode (entry, rig.size, load_le64 (rig.record.bytes + 24),
                 rig.record.bytes + INTENT_BLOCK);
}

/* An entry has no bits behind its window. */
static void
cut_slots (struct intent_entry *entry)
{
  unsigned i;

  for (i = entry->length / 512; i < INTENT_SLOTS; ++i)
    entry->slots[i / 8] &= ~(1 << i % 8);
}

/* A record with good checksums that asks for something else than the image has.
 * Recovery would write to a place that a client has chosen.
 */
static void
a_record_that_is_not_of_this_image_writes_nothing (void)
{
  static const struct {
    const char *name;
    int64_t fat1, mirror, length, volume; /* added to the entry's */
    uint32_t id;                /* likewise */
    size_t boot_at;             /* or a change of the boot sector */
    uint8_t boot_byte;
  } rows[] = {
    { "another serial number", .id = 1 },
    { "another serial number in the boot sector", .boot_at = 67,
      .boot_byte = 0x77 },
    { "mirror a sector further on", .mirror = 512 },
    { "mirror in the data", .mirror = 65536 },
    { "mirror is the boot sector", .mirror = -24576, .length = -7680 },
    { "FAT 1 a sector further on", .fat1 = 512, .mirror = 512,
      .length = -512 },
    { "FAT 1 and mirror swapped", .fat1 = 8192, .mirror = -8192 },
    { "a volume that does not start there", .volume = 512 },
    { "longer than the FAT", .fat1 = 0, .mirror = 512, .length = 512 },
    { "in front of FAT 1", .fat1 = -512, .mirror = -512 },
    { "one FAT", .boot_at = 16, .boot_byte = 1 },
    { "mirroring off", .boot_at = 40, .boot_byte = 0x80 },
    { "longer FATs", .boot_at = 36, .boot_byte = 17 },
    { "shorter FATs", .boot_at = 36, .boot_byte = 15 },
    { "more reserved sectors", .boot_at = 14, .boot_byte = 33 },
  };
  CLEANUP_FREE uint8_t *before = malloc (RIG_SMALL_SIZE);
  size_t i;

  for (i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    struct intent_entry entry;

    leave_3 ();
    entry = get_entry ();
    entry.fat1 += rows[i].fat1;
    entry.mirror += rows[i].mirror;
    entry.length += rows[i].length;
    entry.volume_start += rows[i].volume;
    entry.volume_id += rows[i].id;
    cut_slots (&entry);
    put_entry (&entry);
    if (rows[i].boot_at > 0)
      rig.bytes[rows[i].boot_at] = rows[i].boot_byte;
    memcpy (before, rig.bytes, rig.size);

    start (rows[i].name);
    CHECK (memcmp (before, rig.bytes, rig.size) == 0);
    CHECK_EQ (oplog_count (&rig.log, "= problem"), 1);
    CHECK_EQ (oplog_count (&rig.log, "write"), 0);
    CHECK (!rig.record.exists && rig.record.aside);

    /* It is not in the way of a new one. */
    oplog_clear (&rig.log);
    rig_request (&rig, "write fat1:5 b");
    rig_request (&rig, "write fat2:5 b");
    CHECK (!rig.record.exists ||
           oplog_count (&rig.log, "record create") == 1);
    rig_release (&rig);
  }
}

/* The last window of two, which is short, as one that reaches out of the FAT:
 * in front of FAT 1, from the reserved sectors into it; or behind the mirror,
 * from there into the data.
 */
static void
a_window_does_not_reach_out_of_the_fat (void)
{
  static const struct rig_volume volume = {
    0, { 512, 1, 1100, 2, 1200, 3600, 2, 0, 1, 6 }
  };
  static const struct {
    const char *name;
    int64_t start;              /* added to both copies' */
    uint32_t length;
    unsigned slot;              /* which is asked for */
  } rows[] = {
    { "in front", -2 * 524288, 524288, 6 },
    { "behind", 0, 177 * 512, 176 },
  };
  CLEANUP_FREE uint8_t *before = malloc (fat_spec_size (&volume.spec));
  size_t i;

  for (i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    struct intent_entry entry;

    rig_init (&rig, fat_spec_size (&volume.spec), &volume, 1);
    rig_open (&rig);
    rig.quick = true;
    rig_request (&rig, "write fat1:1030 a");
    rig_request (&rig, "write fat2:1030 a");
    rig_crash (&rig);
    rig.unsure = true;
    entry = get_entry ();
    CHECK_EQ (entry.length, 176 * 512);
    entry.fat1 += rows[i].start;
    entry.mirror += rows[i].start;
    entry.length = rows[i].length;
    memset (entry.slots, 0, sizeof entry.slots);
    entry.slots[rows[i].slot / 8] = 1 << rows[i].slot % 8;
    put_entry (&entry);
    memset (rig.bytes + entry.fat1 + rows[i].slot * 512, 'x', 512);
    memcpy (before, rig.bytes, rig.size);

    start (rows[i].name);
    CHECK (memcmp (before, rig.bytes, rig.size) == 0);
    CHECK_EQ (oplog_count (&rig.log, "= problem"), 1);
    rig_release (&rig);
  }
}

/* A slot is what the volume says, whatever the entry says. */
static void
another_sector_size_is_another_volume (void)
{
  struct intent_entry entry;

  leave_3 ();
  entry = get_entry ();
  entry.slot_size = 1024;
  memset (entry.slots, 0, sizeof entry.slots);
  entry.slots[0] = 0xff;
  put_entry (&entry);
  start ("1024");
  CHECK_EQ (oplog_count (&rig.log, "= problem"), 1);
  CHECK_EQ (oplog_count (&rig.log, "write"), 0);
  rig_release (&rig);
}

static void
an_image_of_another_size_is_another_image (void)
{
  static const struct rig_volume *volume = &rig_small;
  struct memory_record record;

  leave_3 ();
  record = rig.record;
  rig_release (&rig);
  rig_init (&rig, RIG_SMALL_SIZE + 512, volume, 1);
  rig.quick = rig.unsure = true;
  rig.record = record;
  start ("a sector longer");
  CHECK_EQ (oplog_count (&rig.log, "= problem"), 1);
  CHECK_EQ (oplog_count (&rig.log, "write"), 0);
  CHECK (!rig.record.exists && rig.record.aside);
  rig_release (&rig);
}

static void
a_file_that_is_not_ours_is_left_alone (void)
{
  struct memory_record before;

  rig_init (&rig, RIG_SMALL_SIZE, &rig_small, 1);
  rig.quick = true;
  rig.record.exists = true;
  rig.record.size = 30;
  memcpy (rig.record.bytes, "my holiday pictures\n", 20);
  before = rig.record;
  CHECK_EQ (rig_start (&rig, true), 0);
  oplog_expect (&rig.log, "open", "  read boot:0\n"
                                  "  record read\n"
                                  "= problem\n");
  rig_run (&rig, "in place",
           "> fua fat1:3 a\n"
           "  write fat1:3\n"
           "  sync fat1:3\n"
           "> fua fat2:3 a\n"
           "  write fat2:3\n"
           "  sync fat2:3\n"
           "> close\n");
  CHECK (memcmp (&before, &rig.record, sizeof before) == 0);
  rig_release (&rig);
}

/* Another server uses it, or made its own meanwhile. */
static void
another_servers_record_is_left_alone (void)
{
  static const char pair[] =
    "> fua fat1:3 b\n"
    "  write fat1:3\n"
    "  sync fat1:3\n"
    "> fua fat2:3 b\n"
    "  write fat2:3\n"
    "  sync fat2:3\n"
    "> close\n";
  struct memory_record before;

  leave_3 ();
  before = rig.record;
  rig.store_fails[STORE_READ] = -EBUSY;
  start ("in use");
  CHECK_EQ (oplog_count (&rig.log, "= problem"), 1);
  CHECK_EQ (oplog_count (&rig.log, "write"), 0);
  rig_run (&rig, "in place", pair);
  CHECK (memcmp (&before, &rig.record, sizeof before) == 0);
  rig_release (&rig);

  leave_3 ();
  before = rig.record;
  rig.store_fails[STORE_REMOVE] = -EBUSY;
  start ("replaced");
  CHECK (memcmp (recovered, rig.bytes, rig.size) == 0);
  rig_run (&rig, "in place", pair);
  CHECK (memcmp (&before, &rig.record, sizeof before) == 0);
  rig_release (&rig);
}

/* -- Damaged ones ------------------------------------------------------ */

/* A bit has flipped in the header, in the entry, or in an empty block.  In the
 * last case the entry is sound, and what it asks for is done, but nothing else.
 * (That each bit is noticed is test-intent.c's.)
 */
static void
a_flipped_bit_writes_no_more_than_it_says (void)
{
  CLEANUP_FREE uint8_t *before = malloc (RIG_SMALL_SIZE);
  unsigned at, nr = 3 * INTENT_BLOCK;

  /* All bytes of the fields at the start, and some of the rest. */
  for (at = 0; at < nr; at += at % INTENT_BLOCK < 64 ? 1 : 37) {
    bool in_header = at < INTENT_BLOCK, in_entry = at / INTENT_BLOCK == 1;
    bool is;

    leave_3 ();
    rig.record.bytes[at] ^= 1 << at % 8;
    memcpy (before, rig.bytes, rig.size);
    oplog_clear (&rig.log);
    CHECK_EQ (rig_start (&rig, true), 0);
    is = memcmp (recovered, rig.bytes, rig.size) == 0;
    CHECK (is || memcmp (before, rig.bytes, rig.size) == 0);
    CHECK_EQ (is, !in_header && !in_entry);
    CHECK_EQ (oplog_count (&rig.log, "= problem"), 1);
    /* What does not look like ours is left alone, header or not. */
    CHECK_EQ (rig.record.exists, at < 8);
    CHECK_EQ (rig.record.aside, in_header && at >= 8);
    rig_release (&rig);
  }
}

/* A power cut in the middle of the header or an entry. */
static void
a_torn_block_is_no_block (void)
{
  CLEANUP_FREE uint8_t *before = malloc (RIG_SMALL_SIZE);
  unsigned block, torn;

  for (block = 0; block < 2; ++block)
    for (torn = 8; torn < INTENT_BLOCK; torn += 72) {
      leave_3 ();
      memset (rig.record.bytes + block * INTENT_BLOCK + torn, 0,
              INTENT_BLOCK - torn);
      memcpy (before, rig.bytes, rig.size);
      oplog_clear (&rig.log);
      CHECK_EQ (rig_start (&rig, true), 0);
      CHECK (memcmp (before, rig.bytes, rig.size) == 0);
      CHECK_EQ (rig.record.aside, block == 0);
      CHECK (!rig.record.exists);
      rig_release (&rig);
    }
}

/* A power cut while the record was made leaves zeros, or a header that is torn;
 * there was no entry, and nobody has to be told.
 */
static void
a_record_whose_making_was_cut_off_is_made_anew (void)
{
  size_t torn, size;

  for (torn = 0; torn <= INTENT_BLOCK; torn += 64) {
    leave_3 ();
    memset (rig.record.bytes + torn, 0, MEMORY_RECORD_SIZE - torn);
    oplog_clear (&rig.log);
    CHECK_EQ (rig_start (&rig, true), 0);
    oplog_expect (&rig.log, "open", "  read boot:0\n"
                                    "  record read\n"
                                    "  record remove\n");
    rig_release (&rig);
  }
  for (size = 0; size <= MEMORY_RECORD_SIZE; size += 4096) {
    leave_3 ();
    rig.record.size = size;
    memset (rig.record.bytes, 0, MEMORY_RECORD_SIZE);
    oplog_clear (&rig.log);
    CHECK_EQ (rig_start (&rig, true), 0);
    oplog_expect (&rig.log, "open", "  read boot:0\n"
                                    "  record read\n"
                                    "  record remove\n");
    rig_release (&rig);
  }
}

int
main (void)
{
  alarm (300);
  RUN (a_record_that_is_not_of_this_image_writes_nothing);
  RUN (a_window_does_not_reach_out_of_the_fat);
  RUN (another_sector_size_is_another_volume);
  RUN (an_image_of_another_size_is_another_image);
  RUN (a_file_that_is_not_ours_is_left_alone);
  RUN (another_servers_record_is_left_alone);
  RUN (a_flipped_bit_writes_no_more_than_it_says);
  RUN (a_torn_block_is_no_block);
  RUN (a_record_whose_making_was_cut_off_is_made_anew);
  return EXIT_SUCCESS;
}
