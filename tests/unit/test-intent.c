/* SPDX-License-Identifier: BSD-3-Clause */

/* Entries of the intent record as bytes: what was written is read back, and
 * anything else is not believed (intent.h, rule 4).
 */

#include <config.h>

#include <criterion/criterion.h>

#include <errno.h>
#include <string.h>

#include "intent.h"

#define MIB (UINT64_C (1024) * 1024)
#define SIZE (64 * MIB)
#define RUN UINT64_C (0x0123456789abcdef)

/* A window of 64 KiB: 128 slots of 512 bytes. */
static const struct intent_entry good = {
  .fat1 = 16384, .mirror = 16384 + 524288, .length = 65536,
  .slot_size = 512, .volume_start = 0, .volume_id = 0x1234abcd,
  .slots = { 0x01, 0x80, [15] = 0xff },
};

static void
set_bits (struct intent_entry *entry, unsigned from, unsigned to)
{
  for (; from < to; ++from)
    entry->slots[from / 8] |= 1 << from % 8;
}

static int
decode_encoded (const struct intent_entry *entry, struct intent_entry *ret)
{
  uint8_t block[INTENT_BLOCK];

  intent_encode (entry, SIZE, RUN, block);
  return intent_decode (block, SIZE, RUN, ret);
}

static void
assert_same (const char *name, const struct intent_entry *a,
             const struct intent_entry *b)
{
  cr_assert (a->fat1 == b->fat1 && a->mirror == b->mirror, "%s: place", name);
  cr_assert (a->length == b->length && a->slot_size == b->slot_size,
             "%s: size", name);
  cr_assert (a->volume_start == b->volume_start &&
             a->volume_id == b->volume_id, "%s: volume", name);
  cr_assert_arr_eq (a->slots, b->slots, sizeof a->slots, "%s: slots", name);
}

struct row {
  const char *name;
  struct intent_entry entry;
  unsigned from, to;            /* bits to set, besides those in entry */
};

static const struct row good_rows[] = {
  { "a few slots", good, 0, 0 },
  { "one slot is the window",
    { .fat1 = 512, .mirror = 1024, .length = 512, .slot_size = 512,
      .volume_start = 0 }, 0, 1 },
  { "a whole window of 512-byte slots",
    { .fat1 = 16384, .mirror = 2 * MIB, .length = 512 * 1024,
      .slot_size = 512, .volume_start = 0 }, 0, 1024 },
  { "a whole window of 4096-byte slots",
    { .fat1 = 131072, .mirror = 2 * MIB, .length = 512 * 1024,
      .slot_size = 4096, .volume_start = 0 }, 0, 128 },
  { "the last slot only",
    { .fat1 = 16384, .mirror = 2 * MIB, .length = 512 * 1024,
      .slot_size = 512, .volume_start = 0 }, 1023, 1024 },
  { "the copies touch",
    { .fat1 = 16384, .mirror = 16384 + 8192, .length = 8192,
      .slot_size = 512, .volume_start = 0 }, 3, 5 },
  { "the mirror ends with the image",
    { .fat1 = MIB, .mirror = SIZE - 8192, .length = 8192,
      .slot_size = 512, .volume_start = MIB - 16384 }, 0, 16 },
  { "not at a multiple of 4096",
    { .fat1 = 63 * 512, .mirror = 1077 * 512, .length = 1001 * 512,
      .slot_size = 512, .volume_start = 31 * 512,
      .volume_id = 0xffffffff }, 999, 1001 },
  { "2048-byte slots",
    { .fat1 = 65536, .mirror = 131072, .length = 65536,
      .slot_size = 2048, .volume_start = 0 }, 0, 32 },
};

#define NR(rows) (sizeof rows / sizeof rows[0])

static struct intent_entry
row_entry (const struct row *row)
{
  struct intent_entry entry = row->entry;

  set_bits (&entry, row->from, row->to);
  return entry;
}

Test (intent, what_was_encoded_is_decoded)
{
  size_t i;

  for (i = 0; i < NR (good_rows); ++i) {
    struct intent_entry entry = row_entry (&good_rows[i]), got;

    memset (&got, 0xee, sizeof got);
    cr_assert_eq (decode_encoded (&entry, &got), 0, "%s", good_rows[i].name);
    assert_same (good_rows[i].name, &entry, &got);
  }
}

Test (intent, the_same_entry_gives_the_same_bytes)
{
  uint8_t a[INTENT_BLOCK], b[INTENT_BLOCK];

  memset (a, 0xff, sizeof a);
  memset (b, 0, sizeof b);
  intent_encode (&good, SIZE, RUN, a);
  intent_encode (&good, SIZE, RUN, b);
  cr_assert_arr_eq (a, b, sizeof a);
}

/* A flipped bit anywhere, also one in bytes that mean nothing. */
Test (intent, each_flipped_bit_is_noticed)
{
  struct intent_entry got, untouched;
  uint8_t block[INTENT_BLOCK];
  size_t i;
  unsigned bit;

  memset (&untouched, 0xee, sizeof untouched);
  for (i = 0; i < NR (good_rows); ++i) {
    struct intent_entry entry = row_entry (&good_rows[i]);

    intent_encode (&entry, SIZE, RUN, block);
    for (bit = 0; bit < INTENT_BLOCK * 8; ++bit) {
      block[bit / 8] ^= 1 << bit % 8;
      got = untouched;
      cr_assert_eq (intent_decode (block, SIZE, RUN, &got), -EBADMSG,
                    "%s: bit %u", good_rows[i].name, bit);
      cr_assert_arr_eq ((char *) &got, (char *) &untouched, sizeof got,
                        "%s: bit %u: output touched", good_rows[i].name, bit);
      block[bit / 8] ^= 1 << bit % 8;
    }
  }
}

/* What a torn write may leave: part of a block, and zeros or an older entry
 * in the rest.
 */
Test (intent, a_torn_block_is_noticed)
{
  struct intent_entry other = good, got;
  uint8_t new[INTENT_BLOCK], old[INTENT_BLOCK], torn[INTENT_BLOCK];
  unsigned at, i;

  set_bits (&other, 20, 100);
  other.volume_id++;
  intent_encode (&good, SIZE, RUN, old);
  intent_encode (&other, SIZE, RUN, new);
  for (at = 0; at <= INTENT_BLOCK; ++at)
    for (i = 0; i < 4; ++i) {
      const uint8_t *head = i & 1 ? new : old, *tail = i & 1 ? old : new;

      memcpy (torn, head, at);
      if (i & 2)
        memset (torn + at, 0, INTENT_BLOCK - at);
      else
        memcpy (torn + at, tail + at, INTENT_BLOCK - at);
      if (memcmp (torn, old, INTENT_BLOCK) == 0 ||
          memcmp (torn, new, INTENT_BLOCK) == 0)
        continue;
      cr_assert_eq (intent_decode (torn, SIZE, RUN, &got),
                    i & 2 && at == 0 ? 1 : -EBADMSG, "at %u, %u", at, i);
    }
}

Test (intent, zeros_are_an_empty_block)
{
  uint8_t block[INTENT_BLOCK] = { 0 };
  struct intent_entry got;

  cr_assert_eq (intent_decode (block, SIZE, RUN, &got), 1);
  block[INTENT_BLOCK - 1] = 1;
  cr_assert_eq (intent_decode (block, SIZE, RUN, &got), -EBADMSG);
  memset (block, 0xff, sizeof block);
  cr_assert_eq (intent_decode (block, SIZE, RUN, &got), -EBADMSG);
}

Test (intent, another_image_or_run_is_not_ours)
{
  static const struct {
    const char *name;
    uint64_t size, run;
    int result;
  } rows[] = {
    { "the same", SIZE, RUN, 0 },
    { "a byte longer", SIZE + 1, RUN, -EBADMSG },
    { "a sector shorter", SIZE - 512, RUN, -EBADMSG },
    { "twice as long", 2 * SIZE, RUN, -EBADMSG },
    { "empty", 0, RUN, -EBADMSG },
    { "4 GiB longer", SIZE + (UINT64_C (1) << 32), RUN, -EBADMSG },
    { "another run", SIZE, RUN + 1, -EBADMSG },
    { "another run, upper half", SIZE, RUN ^ (UINT64_C (1) << 63), -EBADMSG },
    { "no run", SIZE, 0, -EBADMSG },
  };
  struct intent_entry got;
  uint8_t block[INTENT_BLOCK];
  size_t i;

  intent_encode (&good, SIZE, RUN, block);
  for (i = 0; i < NR (rows); ++i)
    cr_assert_eq (intent_decode (block, rows[i].size, rows[i].run, &got),
                  rows[i].result, "%s", rows[i].name);
}

/* Well-formed blocks whose contents can't be: each would make recovery copy
 * from or to where it must not.
 */
static const struct row bad_rows[] = {
  { "fat1 ends beyond the image",
    { .fat1 = SIZE - 512, .mirror = MIB, .length = 1024, .slot_size = 512 },
    0, 1 },
  { "the mirror ends beyond the image",
    { .fat1 = MIB, .mirror = SIZE - 512, .length = 1024, .slot_size = 512 },
    0, 1 },
  { "fat1 starts beyond the image",
    { .fat1 = 2 * SIZE, .mirror = MIB, .length = 1024, .slot_size = 512 },
    0, 1 },
  { "the mirror starts at the image's end",
    { .fat1 = MIB, .mirror = SIZE, .length = 512, .slot_size = 512 }, 0, 1 },
  { "fat1 wraps",
    { .fat1 = UINT64_MAX - 511, .mirror = MIB, .length = 1024,
      .slot_size = 512 }, 0, 1 },
  { "the mirror wraps",
    { .fat1 = MIB, .mirror = UINT64_MAX - 511, .length = 1024,
      .slot_size = 512 }, 0, 1 },
  { "the mirror wraps to 0",
    { .fat1 = MIB, .mirror = UINT64_MAX - 1023, .length = 1024,
      .slot_size = 512 }, 0, 1 },
  { "the same place twice",
    { .fat1 = MIB, .mirror = MIB, .length = 1024, .slot_size = 512 }, 0, 1 },
  { "overlap by a slot, mirror behind",
    { .fat1 = MIB, .mirror = MIB + 1024 - 512, .length = 1024,
      .slot_size = 512 }, 0, 1 },
  { "overlap by a slot, mirror in front",
    { .fat1 = MIB, .mirror = MIB - 1024 + 512, .length = 1024,
      .slot_size = 512 }, 0, 1 },
  { "overlap by a byte",
    { .fat1 = MIB, .mirror = MIB + 1023, .length = 1024, .slot_size = 512 },
    0, 1 },
  { "the volume starts at the image's end",
    { .fat1 = MIB, .mirror = 2 * MIB, .length = 1024, .slot_size = 512,
      .volume_start = SIZE }, 0, 1 },
  { "length 0",
    { .fat1 = MIB, .mirror = 2 * MIB, .length = 0, .slot_size = 512 }, 0, 0 },
  { "length of half a slot",
    { .fat1 = MIB, .mirror = 2 * MIB, .length = 256, .slot_size = 512 },
    0, 1 },
  { "length of one and a half slots",
    { .fat1 = MIB, .mirror = 2 * MIB, .length = 768, .slot_size = 512 },
    0, 1 },
  { "length of sectors, but not of slots",
    { .fat1 = MIB, .mirror = 2 * MIB, .length = 4096 + 512,
      .slot_size = 4096 }, 0, 1 },
  { "more slots than bits",
    { .fat1 = MIB, .mirror = 2 * MIB, .length = 1025 * 512,
      .slot_size = 512 }, 0, 1024 },
  { "length of 4 GiB",
    { .fat1 = MIB, .mirror = 2 * MIB, .length = 0xfffff000,
      .slot_size = 4096 }, 0, 1024 },
  { "slots of 0 bytes",
    { .fat1 = MIB, .mirror = 2 * MIB, .length = 1024, .slot_size = 0 }, 0, 1 },
  { "slots of 1 byte",
    { .fat1 = MIB, .mirror = 2 * MIB, .length = 1024, .slot_size = 1 }, 0, 1 },
  { "slots of 256 bytes",
    { .fat1 = MIB, .mirror = 2 * MIB, .length = 1024, .slot_size = 256 },
    0, 1 },
  { "slots of 513 bytes",
    { .fat1 = MIB, .mirror = 2 * MIB, .length = 1026, .slot_size = 513 },
    0, 1 },
  { "slots of 1536 bytes",
    { .fat1 = MIB, .mirror = 2 * MIB, .length = 3072, .slot_size = 1536 },
    0, 1 },
  { "slots of 8192 bytes",
    { .fat1 = MIB, .mirror = 2 * MIB, .length = 16384, .slot_size = 8192 },
    0, 1 },
  { "slots of 2 GiB",
    { .fat1 = MIB, .mirror = 2 * MIB, .length = 0x80000000,
      .slot_size = 0x80000000 }, 0, 1 },
  { "a bit beyond the window",
    { .fat1 = MIB, .mirror = 2 * MIB, .length = 1024, .slot_size = 512 },
    2, 3 },
  { "the last bit, beyond the window",
    { .fat1 = MIB, .mirror = 2 * MIB, .length = 1023 * 512,
      .slot_size = 512 }, 1023, 1024 },
  { "bits beyond the window, 4096-byte slots",
    { .fat1 = MIB, .mirror = 2 * MIB, .length = 65536, .slot_size = 4096 },
    0, 17 },
};

Test (intent, what_can_not_be_is_refused)
{
  struct intent_entry got, untouched;
  size_t i;

  memset (&untouched, 0xee, sizeof untouched);
  for (i = 0; i < NR (bad_rows); ++i) {
    struct intent_entry entry = row_entry (&bad_rows[i]);

    got = untouched;
    cr_expect_eq (decode_encoded (&entry, &got), -EBADMSG, "%s",
                  bad_rows[i].name);
    cr_expect_arr_eq ((char *) &got, (char *) &untouched, sizeof got,
                      "%s: output touched", bad_rows[i].name);
  }
}
