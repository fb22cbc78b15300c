/* SPDX-License-Identifier: BSD-3-Clause */

/* What a write to a sector of FAT 1 may be, for its commit to be deferred (D9,
 * fat_sector_allocates()): it turns free clusters into allocated ones, and does
 * nothing else.
 */

#include <config.h>

#include <criterion/criterion.h>
#include <string.h>

#include "disk-builder.h"
#include "fattable.h"

#define END 0x0fffffff
#define CHANGES_MAX 6

/* Sectors, by their first entry: of the FAT's start, of its midst, and the last
 * one of the largest FAT.
 */
#define FIRST 0
#define MIDST 0x00012380
#define LAST 0x0fffff80

struct row {
  const char *name;
  uint32_t first;
  bool allocates;
  struct change { unsigned entry; uint32_t before, after; }
    change[CHANGES_MAX];        /* up to one from 0 to 0, of entry 0 */
};

static const struct row rows[] = {
  /* End marks. */
  { "an end mark", MIDST, true, { { 5, 0, END } } },
  { "in the sector's first entry", MIDST, true, { { 0, 0, END } } },
  { "in its last", MIDST, true, { { 127, 0, END } } },
  { "several", MIDST, true, { { 5, 0, END }, { 63, 0, END }, { 64, 0, END } } },
  { "the lowest end mark", MIDST, true, { { 5, 0, 0x0ffffff8 } } },
  { "0x0ffffff9", MIDST, true, { { 5, 0, 0x0ffffff9 } } },
  { "0x0ffffffe", MIDST, true, { { 5, 0, 0x0ffffffe } } },
  { "a bad cluster", MIDST, false, { { 5, 0, FAT_ENTRY_BAD } } },
  { "0x0ffffff6", MIDST, false, { { 5, 0, 0x0ffffff6 } } },
  { "0x0ffffff0", MIDST, false, { { 5, 0, 0x0ffffff0 } } },
  { "0x0fffffef", MIDST, false, { { 5, 0, 0x0fffffef } } },
  { "1", MIDST, false, { { 5, 0, 1 } } },
  { "an end mark, and a bad cluster", MIDST, false,
    { { 5, 0, END }, { 6, 0, FAT_ENTRY_BAD } } },
  { "a bad cluster, and an end mark", MIDST, false,
    { { 5, 0, FAT_ENTRY_BAD }, { 6, 0, END } } },

  /* Chains. */
  { "a chain", MIDST, true,
    { { 5, 0, MIDST + 6 }, { 6, 0, MIDST + 7 }, { 7, 0, END } } },
  { "backwards", MIDST, true, { { 6, 0, MIDST + 5 }, { 5, 0, END } } },
  { "from the last entry to the first", MIDST, true,
    { { 127, 0, MIDST }, { 0, 0, END } } },
  { "from the first to the last", MIDST, true,
    { { 0, 0, MIDST + 127 }, { 127, 0, END } } },
  { "over both words of the set", MIDST, true,
    { { 63, 0, MIDST + 64 }, { 64, 0, END } } },
  { "two chains", MIDST, true,
    { { 5, 0, MIDST + 6 }, { 6, 0, END }, { 9, 0, MIDST + 8 },
      { 8, 0, END } } },
  { "in the FAT's first sector", FIRST, true,
    { { 2, 0, 3 }, { 3, 0, END } } },
  { "a loop, to which nothing refers, either", MIDST, true,
    { { 5, 0, MIDST + 6 }, { 6, 0, MIDST + 5 } } },
  { "that goes on in the next sector", MIDST, false,
    { { 127, 0, MIDST + 128 } } },
  { "in the sector before", MIDST, false, { { 0, 0, MIDST - 1 } } },
  { "exactly a sector further", MIDST, false,
    { { 5, 0, MIDST + 128 + 6 }, { 6, 0, END } } },
  { "exactly a sector before", MIDST, false,
    { { 5, 0, MIDST - 128 + 6 }, { 6, 0, END } } },
  { "into a cluster that was there", MIDST, false,
    { { 5, 0, MIDST + 6 }, { 6, END, END } } },
  { "into a free one", MIDST, false,
    { { 5, 0, MIDST + 6 }, { 6, 0, 0 } } },
  { "all in order but its end", MIDST, false,
    { { 5, 0, MIDST + 6 }, { 6, 0, MIDST + 7 }, { 7, 0, MIDST + 8 } } },

  /* Links, which refer, and all that is no allocation. */
  { "nothing", MIDST, false, { { 0, 0, 0 } } },
  { "nothing, where something is", MIDST, false,
    { { 5, END, END }, { 6, MIDST + 5, MIDST + 5 } } },
  { "a link to a new cluster", MIDST, false,
    { { 5, END, MIDST + 6 }, { 6, 0, END } } },
  { "a link to an old one", MIDST, false,
    { { 5, END, MIDST + 6 }, { 6, END, END } } },
  { "an allocation, and a change elsewhere", MIDST, false,
    { { 5, 0, END }, { 90, MIDST + 7, MIDST + 8 } } },
  { "freed", MIDST, false, { { 5, END, 0 } } },
  { "one freed, another one allocated", MIDST, false,
    { { 5, END, 0 }, { 6, 0, END } } },
  { "one allocated, another one freed", MIDST, false,
    { { 5, 0, END }, { 6, END, 0 } } },
  { "another end mark", MIDST, false, { { 5, END, 0x0ffffff8 } } },
  { "a bad one is good again", MIDST, false, { { 5, FAT_ENTRY_BAD, END } } },
  { "1 was there", MIDST, false, { { 5, 1, END } } },
  { "beside others that stay", MIDST, true,
    { { 5, 0, END }, { 4, MIDST + 3, MIDST + 3 }, { 6, END, END },
      { 7, FAT_ENTRY_BAD, FAT_ENTRY_BAD }, { 8, 1, 1 } } },

  /* What is there names it already. */
  { "named by the entry before", MIDST, false,
    { { 5, 0, END }, { 4, MIDST + 5, MIDST + 5 } } },
  { "by the last one", MIDST, false,
    { { 0, 0, END }, { 127, MIDST, MIDST } } },
  { "by the first one", MIDST, false,
    { { 0, MIDST + 127, MIDST + 127 }, { 127, 0, END } } },
  { "with something in its high nibble", MIDST, false,
    { { 5, 0, END },
      { 4, UINT32_C (0xf0000000) + MIDST + 5,
        UINT32_C (0xf0000000) + MIDST + 5 } } },
  { "one of a chain", MIDST, false,
    { { 5, 0, MIDST + 6 }, { 6, 0, END }, { 9, MIDST + 6, MIDST + 6 } } },
  { "by one that is linked anew", MIDST, false,
    { { 5, 0, END }, { 6, 0, MIDST + 5 }, { 4, MIDST + 5, MIDST + 5 } } },
  { "in the FAT's first sector, by entry 1", FIRST, false,
    { { 2, 0, END }, { 1, 2, 2 } } },
  { "a sector further on", MIDST, true,
    { { 5, 0, END }, { 4, MIDST + 128 + 5, MIDST + 128 + 5 } } },

  /* The entries that are no clusters. */
  { "entry 0", FIRST, false, { { 0, 0, END } } },
  { "entry 1", FIRST, false, { { 1, 0, END } } },
  { "entry 2", FIRST, true, { { 2, 0, END } } },
  { "entry 1, with others", FIRST, false, { { 1, 0, END }, { 2, 0, END } } },
  { "the dirty bits in entry 1", FIRST, false,
    { { 1, END, 0x07ffffff }, { 2, 0, END } } },
  { "a chain into entry 1", FIRST, false, { { 2, 0, 1 }, { 1, 0, END } } },
  { "a link to 0 and high bits", FIRST, false,
    { { 2, 0, UINT32_C (0x10000000) } } },

  /* The high nibble, which is nobody's. */
  { "kept", MIDST, true,
    { { 5, UINT32_C (0xa0000000), UINT32_C (0xafffffff) } } },
  { "kept in a chain", MIDST, true,
    { { 5, UINT32_C (0x10000000), UINT32_C (0x10000000) + MIDST + 6 },
      { 6, UINT32_C (0xf0000000), UINT32_C (0xffffffff) } } },
  { "set", MIDST, false, { { 5, 0, UINT32_C (0xffffffff) } } },
  { "cleared", MIDST, false, { { 5, UINT32_C (0x10000000), END } } },
  { "its lowest bit only", MIDST, false,
    { { 5, 0, UINT32_C (0x1fffffff) } } },
  { "nothing but that", MIDST, false,
    { { 5, UINT32_C (0x10000000), 0 } } },
  { "in an entry that stays allocated", MIDST, false,
    { { 5, 0, END }, { 6, END, UINT32_C (0x1fffffff) } } },

  /* Where arithmetic ends. */
  { "the last sector", LAST, true, { { 100, 0, END } } },
  { "a chain there", LAST, true, { { 0, 0, LAST + 5 }, { 5, 0, END } } },
  { "from there to 0", LAST, false, { { 5, 0, 0x0fffff7f } } },
  { "from the FAT's first sector to the end of all", FIRST, false,
    { { 2, 0, 0x0ffffff6 }, { 126, 0, END } } },
};

#define NR(array) (sizeof (array) / sizeof (array)[0])

/* The same with nothing around it, and among clusters in use. */
static void
try_row (const struct row *row, uint32_t others)
{
  uint8_t before[FAT_SECTOR], after[FAT_SECTOR];
  struct fat_entries changed = { { 0 } }, got;
  bool allocates;
  unsigned i;

  for (i = 0; i < FAT_ENTRIES; ++i)
    put_le32 (before + 4 * i, others);
  memcpy (after, before, sizeof after);
  for (i = 0; i < CHANGES_MAX; ++i) {
    const struct change *c = &row->change[i];

    if (c->before == 0 && c->after == 0 && c->entry == 0)
      continue;
    put_le32 (before + 4 * c->entry, c->before);
    put_le32 (after + 4 * c->entry, c->after);
    if (c->before != c->after)
      fat_entries_set (&changed, c->entry);
  }
  memset (&got, 0xff, sizeof got);
  allocates = fat_sector_allocates (before, after, row->first, &got);
  cr_expect_eq (allocates, row->allocates, "%s, among %08x", row->name,
                others);
  if (allocates && row->allocates)
    cr_expect (memcmp (&got, &changed, sizeof got) == 0,
               "%s, among %08x: the entries", row->name, others);
}

Test (allocates, rows)
{
  size_t i;

  for (i = 0; i < NR (rows); ++i) {
    try_row (&rows[i], 0);
    try_row (&rows[i], END);
    try_row (&rows[i], FAT_ENTRY_BAD);
  }
}

/* Each entry, and each one to each other one. */
Test (allocates, everywhere_in_the_sector)
{
  uint8_t before[FAT_SECTOR] = { 0 }, after[FAT_SECTOR];
  struct fat_entries got;
  unsigned i, j;

  for (i = 0; i < FAT_ENTRIES; ++i)
    for (j = 0; j < FAT_ENTRIES; ++j) {
      memset (after, 0, sizeof after);
      put_le32 (after + 4 * i, MIDST + j);
      if (i != j)
        cr_assert_not (fat_sector_allocates (before, after, MIDST, &got),
                       "%u to %u, which is free", i, j);
      put_le32 (after + 4 * j, END);
      cr_assert (fat_sector_allocates (before, after, MIDST, &got),
                 "%u to %u", i, j);
      cr_assert (fat_entries_has (&got, i) && fat_entries_has (&got, j));
      cr_assert_eq (__builtin_popcountll (got.bits[0]) +
                    __builtin_popcountll (got.bits[1]), 1 + (i != j));
    }
}

/* Every bit of an entry that was not free makes a difference. */
Test (allocates, only_from_free)
{
  uint8_t before[FAT_SECTOR] = { 0 }, after[FAT_SECTOR] = { 0 };
  struct fat_entries got;
  unsigned bit;

  for (bit = 0; bit < 28; ++bit) {
    put_le32 (before + 4 * 5, UINT32_C (1) << bit);
    put_le32 (after + 4 * 5, END);
    cr_assert_not (fat_sector_allocates (before, after, MIDST, &got),
                   "bit %u", bit);
  }
}

/* -- Sets of entries ----------------------------------------------------- */

Test (allocates, sets)
{
  struct fat_entries a = { { 0 } }, b = { { 0 } };
  unsigned i, j;

  for (i = 0; i < FAT_ENTRIES; ++i) {
    memset (&a, 0, sizeof a);
    fat_entries_set (&a, i);
    for (j = 0; j < FAT_ENTRIES; ++j)
      cr_assert_eq (fat_entries_has (&a, j), i == j);
    fat_entries_add (&b, &a);
    for (j = 0; j < FAT_ENTRIES; ++j)
      cr_assert_eq (fat_entries_has (&b, j), j <= i);
  }
}
