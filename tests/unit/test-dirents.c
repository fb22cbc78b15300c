/* SPDX-License-Identifier: BSD-3-Clause */

/* Slots of directories: which are files and directories, and where they begin
 * (dirents.h; fatgen103, "FAT Directory Structure").
 */

#include <config.h>

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "dirents.h"
#include "disk-builder.h"

#define NR(rows) (sizeof rows / sizeof rows[0])

#define END 0x00123456          /* of the volume */

#define READ_ONLY 0x01
#define HIDDEN 0x02
#define SYSTEM 0x04
#define VOLUME_ID 0x08
#define DIRECTORY 0x10
#define ARCHIVE 0x20
#define LONG_NAME 0x0f

struct slot {
  const char *name;             /* 11 bytes */
  uint8_t attr;
  uint32_t first;               /* both halves */
  uint32_t size;
};

static void
make_slot (uint8_t bytes[DIRENT_SIZE], const struct slot *slot)
{
  memset (bytes, 0, DIRENT_SIZE);
  memcpy (bytes, slot->name, 11);
  bytes[11] = slot->attr;
  put_le16 (bytes + 20, (uint16_t) (slot->first >> 16));
  put_le16 (bytes + 26, (uint16_t) slot->first);
  put_le32 (bytes + 28, slot->size);
}

static const struct {
  const char *name;
  struct slot slot;
  struct dirent want;
} rows[] = {
  /* Files. */
  { "a file", { "README  TXT", ARCHIVE, 5, 1000 }, { DIRENT_FILE, 5, 1000 } },
  { "no attribute", { "README  TXT", 0, 5, 1000 }, { DIRENT_FILE, 5, 1000 } },
  { "read-only, hidden, system",
    { "IO      SYS", READ_ONLY | HIDDEN | SYSTEM, 5, 1 },
    { DIRENT_FILE, 5, 1 } },
  { "attribute bits that are reserved", { "A          ", 0xc0, 5, 1 },
    { DIRENT_FILE, 5, 1 } },
  { "size 0, with a cluster", { "A          ", ARCHIVE, 5, 0 },
    { DIRENT_FILE, 5, 0 } },
  { "the largest size", { "A          ", ARCHIVE, 5, 0xffffffff },
    { DIRENT_FILE, 5, 0xffffffff } },
  { "a size with the high bit", { "A          ", ARCHIVE, 5, 0x80000000 },
    { DIRENT_FILE, 5, 0x80000000 } },
  { "a name that begins with 0x05, for 0xe5", { "\x05" "AB        ", 0, 5, 1 },
    { DIRENT_FILE, 5, 1 } },
  { "a name of control characters", { "\x01\x02\x03        ", 0, 5, 1 },
    { DIRENT_FILE, 5, 1 } },
  { "a name of blanks", { "           ", 0, 5, 1 }, { DIRENT_FILE, 5, 1 } },
  { "a hidden file's name of Unix", { ".A         ", 0, 5, 1 },
    { DIRENT_FILE, 5, 1 } },
  { "three dots", { "...        ", 0, 5, 1 }, { DIRENT_FILE, 5, 1 } },
  { "a dot in the extension", { ".       .  ", 0, 5, 1 },
    { DIRENT_FILE, 5, 1 } },
  { "0xe5 not first", { "A\xe5         ", 0, 5, 1 }, { DIRENT_FILE, 5, 1 } },
  { "0 not first", { "A\0         ", 0, 5, 1 }, { DIRENT_FILE, 5, 1 } },

  /* Directories. */
  { "a directory", { "SUB        ", DIRECTORY, 7, 0 },
    { DIRENT_DIRECTORY, 7, 0 } },
  { "a directory with a size", { "SUB        ", DIRECTORY, 7, 4096 },
    { DIRENT_DIRECTORY, 7, 0 } },
  { "a hidden directory", { "SUB        ", DIRECTORY | HIDDEN | SYSTEM, 7, 0 },
    { DIRENT_DIRECTORY, 7, 0 } },
  { "a directory with the archive bit", { "SUB        ",
                                          DIRECTORY | ARCHIVE, 7, 0 },
    { DIRENT_DIRECTORY, 7, 0 } },

  /* Nothing. */
  { "the end", { "\0          ", 0, 0, 0 }, { DIRENT_NOTHING, 0, 0 } },
  { "the end, with the rest of a file", { "\0EADME  TXT", ARCHIVE, 5, 1000 },
    { DIRENT_NOTHING, 0, 0 } },
  { "the end, with the rest of a directory",
    { "\0UB        ", DIRECTORY, 5, 0 },
    { DIRENT_NOTHING, 0, 0 } },
  { "deleted", { "\xe5" "EADME  TXT", ARCHIVE, 5, 1000 },
    { DIRENT_NOTHING, 0, 0 } },
  { "a deleted directory", { "\xe5" "UB        ", DIRECTORY, 7, 0 },
    { DIRENT_NOTHING, 0, 0 } },
  { "a volume label", { "MY DISK    ", VOLUME_ID, 0, 0 },
    { DIRENT_NOTHING, 0, 0 } },
  { "a volume label with a cluster", { "MY DISK    ", VOLUME_ID, 5, 100 },
    { DIRENT_NOTHING, 0, 0 } },
  { "a label that is a directory", { "MY DISK    ", VOLUME_ID | DIRECTORY, 5,
                                     100 },
    { DIRENT_NOTHING, 0, 0 } },
  { "a part of a long name", { "\x41" "a.b.c.d.e.", LONG_NAME, 5, 100 },
    { DIRENT_NOTHING, 0, 0 } },
  { "one with more attributes", { "\x41" "a.b.c.d.e.", LONG_NAME | ARCHIVE, 5,
                                  100 },
    { DIRENT_NOTHING, 0, 0 } },
  { "dot", { ".          ", DIRECTORY, 5, 0 }, { DIRENT_NOTHING, 0, 0 } },
  { "dot dot", { "..         ", DIRECTORY, 5, 0 }, { DIRENT_NOTHING, 0, 0 } },
  { "dot dot of the root's children", { "..         ", DIRECTORY, 0, 0 },
    { DIRENT_NOTHING, 0, 0 } },
  { "dot that is a file", { ".          ", ARCHIVE, 5, 10 },
    { DIRENT_NOTHING, 0, 0 } },

  /* Clusters. */
  { "a file without a cluster", { "A          ", 0, 0, 0 },
    { DIRENT_NOTHING, 0, 0 } },
  { "one with a size nevertheless", { "A          ", 0, 0, 1000 },
    { DIRENT_NOTHING, 0, 0 } },
  { "a directory at 0", { "A          ", DIRECTORY, 0, 0 },
    { DIRENT_NOTHING, 0, 0 } },
  { "cluster 1", { "A          ", 0, 1, 10 }, { DIRENT_NOTHING, 0, 0 } },
  { "a directory at 1", { "A          ", DIRECTORY, 1, 0 },
    { DIRENT_NOTHING, 0, 0 } },
  { "the first cluster", { "A          ", 0, 2, 10 }, { DIRENT_FILE, 2, 10 } },
  { "the last", { "A          ", 0, END - 1, 10 },
    { DIRENT_FILE, END - 1, 10 } },
  { "a directory in the last", { "A          ", DIRECTORY, END - 1, 0 },
    { DIRENT_DIRECTORY, END - 1, 0 } },
  { "one behind it", { "A          ", 0, END, 10 }, { DIRENT_NOTHING, 0, 0 } },
  { "a directory behind it", { "A          ", DIRECTORY, END, 0 },
    { DIRENT_NOTHING, 0, 0 } },
  { "the high half counts", { "A          ", 0, 0x00100002, 10 },
    { DIRENT_FILE, 0x00100002, 10 } },
  { "the high half alone", { "A          ", 0, 0x00120000, 10 },
    { DIRENT_FILE, 0x00120000, 10 } },
  { "the low half's largest", { "A          ", 0, 0xffff, 10 },
    { DIRENT_FILE, 0xffff, 10 } },
  /* Of FAT entries the high four bits are reserved.  Of these they are not. */
  { "bit 28", { "A          ", 0, 0x10000005, 10 }, { DIRENT_NOTHING, 0, 0 } },
  { "all high bits", { "A          ", 0, 0xf0000005, 10 },
    { DIRENT_NOTHING, 0, 0 } },
  { "an end mark", { "A          ", 0, 0x0fffffff, 10 },
    { DIRENT_NOTHING, 0, 0 } },
  { "the bad mark", { "A          ", 0, 0x0ffffff7, 10 },
    { DIRENT_NOTHING, 0, 0 } },
  { "all ones", { "A          ", 0, 0xffffffff, 0xffffffff },
    { DIRENT_NOTHING, 0, 0 } },
};

static void
expect (const char *name, const uint8_t bytes[DIRENT_SIZE], uint32_t end,
        const struct dirent *want)
{
  struct dirent got = dirent_parse (bytes, end);

  cr_expect_eq (got.kind, want->kind, "%s: kind %d, not %d", name, got.kind,
                want->kind);
  cr_expect_eq (got.first, want->first, "%s: first %#x, not %#x", name,
                got.first, want->first);
  cr_expect_eq (got.size, want->size, "%s: size %u, not %u", name, got.size,
                want->size);
}

Test (dirents, slots)
{
  uint8_t bytes[DIRENT_SIZE];
  size_t i;

  for (i = 0; i < NR (rows); ++i) {
    make_slot (bytes, &rows[i].slot);
    expect (rows[i].name, bytes, END, &rows[i].want);
  }
}

/* Dates, times and reserved bytes say nothing. */
Test (dirents, other_bytes_do_not_count)
{
  uint8_t bytes[DIRENT_SIZE];
  size_t i, k;

  for (i = 0; i < NR (rows); ++i) {
    make_slot (bytes, &rows[i].slot);
    for (k = 12; k < 26; ++k)
      if (k != 20 && k != 21)
        bytes[k] = 0xff;
    expect (rows[i].name, bytes, END, &rows[i].want);
  }
}

/* A slot may lie anywhere. */
Test (dirents, any_alignment)
{
  uint8_t bytes[DIRENT_SIZE + 8];
  size_t i, k;

  for (i = 0; i < NR (rows); ++i)
    for (k = 0; k < 8; ++k) {
      make_slot (bytes + k, &rows[i].slot);
      expect (rows[i].name, bytes + k, END, &rows[i].want);
    }
}

/* The smallest volume has one cluster. */
Test (dirents, the_smallest_volume)
{
  static const struct slot two = { "A          ", 0, 2, 10 },
    three = { "A          ", 0, 3, 10 };
  static const struct dirent file = { DIRENT_FILE, 2, 10 },
    nothing = { DIRENT_NOTHING, 0, 0 };
  uint8_t bytes[DIRENT_SIZE];

  make_slot (bytes, &two);
  expect ("its cluster", bytes, 3, &file);
  make_slot (bytes, &three);
  expect ("another", bytes, 3, &nothing);
}

/* Each value of the first byte, and each one of the attributes. */
Test (dirents, each_first_byte_and_attribute)
{
  unsigned first, attr;

  for (first = 0; first < 256; ++first)
    for (attr = 0; attr < 256; ++attr) {
      struct slot slot = { "XBCDEFGHIJK", (uint8_t) attr, 9, 4097 };
      bool there = first != 0 && first != 0xe5 && !(attr & VOLUME_ID);
      struct dirent want = { DIRENT_NOTHING, 0, 0 };
      uint8_t bytes[DIRENT_SIZE];
      char name[60];

      if (there && attr & DIRECTORY)
        want = (struct dirent) { DIRENT_DIRECTORY, 9, 0 };
      else if (there)
        want = (struct dirent) { DIRENT_FILE, 9, 4097 };
      make_slot (bytes, &slot);
      bytes[0] = (uint8_t) first;
      snprintf (name, sizeof name, "first byte %#x, attributes %#x", first,
                attr);
      expect (name, bytes, END, &want);
    }
}
