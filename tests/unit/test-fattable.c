/* SPDX-License-Identifier: BSD-3-Clause */

/* Windows of FAT 1 in memory: they follow what is written, and know when they
 * do not know (fattable.h).
 */

#include <config.h>

#include <criterion/criterion.h>

#include "fattable.h"
#include "gated-disk.h"

#define SIZE 65536
#define START 8192              /* the window: [8192, 8192 + 4096) */
#define LENGTH 4096

static struct gated_disk *gd;
static struct fat_window *w;

static void
setup (void)
{
  size_t i;

  gd = gated_new (SIZE, 1);
  for (i = 0; i < SIZE; ++i)
    gd->data[i] = (char) (i * 7 + i / 256);
  cr_assert_eq (fat_window_new (&gd->disk, START, LENGTH, &w), 0);
}

static void
teardown (void)
{
  fat_window_free (w);
  disk_free (&gd->disk);
}

static bool
same_as_disk (void)
{
  return memcmp (w->bytes, gd->data + START, LENGTH) == 0;
}

/* A disk whose reads fail. */
static int
unreadable_submit (struct disk *disk, struct disk_op *ops, size_t nr)
{
  (void) disk;
  return ops[nr - 1].result = -EIO;
}

static const struct disk_ops unreadable_ops = {
  .name = "unreadable", .submit = unreadable_submit, .free = gated_free,
};

TestSuite (fattable, .init = setup, .fini = teardown);

Test (fattable, a_window_has_the_disks_bytes)
{
  cr_assert_eq (w->start, START);
  cr_assert_eq (w->length, LENGTH);
  cr_assert_not (w->unreadable);
  cr_assert (same_as_disk ());
  cr_assert_eq (gd->nr_log, 1);
  cr_assert_eq (gd->log[0].kind, DISK_READ);
  cr_assert_eq (gd->log[0].offset, START);
  cr_assert_eq (gd->log[0].length, LENGTH);
}

Test (fattable, a_window_that_can_not_be_read_is_not_made)
{
  struct fat_window *other = w;

  gd->disk.ops = &unreadable_ops;
  cr_assert_eq (fat_window_new (&gd->disk, START, LENGTH, &other), -EIO);
  cr_assert_eq (other, w, "output touched");
}

/* -- Writes ------------------------------------------------------------ */

static const struct {
  const char *name;
  uint64_t start, end;          /* bytes of the disk */
} writes[] = {
  { "the whole window", START, START + LENGTH },
  { "a sector", START + 512, START + 1024 },
  { "a byte", START + 77, START + 78 },
  { "the first byte", START, START + 1 },
  { "the last byte", START + LENGTH - 1, START + LENGTH },
  { "over the start", START - 300, START + 200 },
  { "over the end", START + LENGTH - 200, START + LENGTH + 300 },
  { "over both", START - 1, START + LENGTH + 1 },
  { "up to the start", START - 512, START },
  { "from the end on", START + LENGTH, START + LENGTH + 512 },
  { "far in front", 0, 512 },
  { "far behind", SIZE - 512, SIZE },
  { "everything", 0, SIZE },
};

#define NR(rows) (sizeof rows / sizeof rows[0])

/* A write of new bytes, in pieces of an iovec. */
static void
make_write (struct disk_op *op, struct iovec iov[8], uint8_t *buf,
            uint64_t start, uint64_t end, unsigned pieces)
{
  uint64_t length = end - start, done = 0;
  unsigned i;

  for (i = 0; i < length; ++i)
    buf[i] = (uint8_t) ~gd->data[start + i];
  if (pieces > length)
    pieces = length;
  for (i = 0; i < pieces; ++i) {
    uint64_t next = i + 1 == pieces ? length : length * (i + 1) / pieces;

    iov[i] = (struct iovec) { buf + done, next - done };
    done = next;
  }
  *op = (struct disk_op) {
    .kind = DISK_WRITE, .offset = start, .length = length,
    .iov = iov, .iovcnt = (int) pieces,
  };
}

Test (fattable, what_is_written_is_taken_over)
{
  static uint8_t buf[SIZE];
  struct iovec iov[8];
  struct disk_op op;
  unsigned pieces;
  size_t i;

  for (i = 0; i < NR (writes); ++i)
    for (pieces = 1; pieces <= 8; ++pieces) {
      make_write (&op, iov, buf, writes[i].start, writes[i].end, pieces);
      cr_assert_eq (disk_submit (&gd->disk, &op, 1), 0);
      fat_window_update (w, &op);
      cr_assert (same_as_disk (), "%s, %u pieces", writes[i].name, pieces);
    }
}

/* Empty pieces, and pieces that end where the window starts. */
Test (fattable, odd_vectors)
{
  static char a[600], b[600];
  struct iovec iov[5] = {
    { a, 0 }, { a, 512 }, { a, 0 }, { b, 512 }, { b, 0 }
  };
  struct disk_op op = {
    .kind = DISK_WRITE, .offset = START - 512, .length = 1024,
    .iov = iov, .iovcnt = 5,
  };

  memset (a, 'a', sizeof a);
  memset (b, 'b', sizeof b);
  cr_assert_eq (disk_submit (&gd->disk, &op, 1), 0);
  fat_window_update (w, &op);
  cr_assert (same_as_disk ());
  cr_assert (fat_window_equals (w, START, &op, START, START + 512));
}

/* -- Failures ---------------------------------------------------------- */

Test (fattable, after_a_failed_write_the_part_is_read_again)
{
  size_t i;

  for (i = 0; i < NR (writes); ++i) {
    uint64_t start = writes[i].start, end = writes[i].end;
    uint64_t from = start < START ? START : start;
    uint64_t to = end > START + LENGTH ? START + LENGTH : end;

    memset (gd->data + start, (int) i, end - start);
    gd->nr_log = 0;
    fat_window_reload (w, &gd->disk, start, end);
    cr_assert (same_as_disk (), "%s", writes[i].name);
    cr_assert_not (w->unreadable, "%s", writes[i].name);
    cr_assert_eq (gd->nr_log, from < to ? 1 : 0, "%s", writes[i].name);
    if (from < to)
      cr_assert (gd->log[0].offset == from && gd->log[0].length == to - from,
                 "%s", writes[i].name);
  }
}

Test (fattable, what_can_not_be_read_again_equals_nothing)
{
  struct iovec iov = { w->bytes, LENGTH };
  struct disk_op op = {
    .kind = DISK_WRITE, .offset = START, .length = LENGTH,
    .iov = &iov, .iovcnt = 1,
  };

  gd->disk.ops = &unreadable_ops;
  fat_window_reload (w, &gd->disk, 0, START);   /* not of the window */
  cr_assert_not (w->unreadable);
  cr_assert (fat_window_equals (w, START, &op, START, START + LENGTH));
  fat_window_reload (w, &gd->disk, START + 512, START + 1024);
  cr_assert (w->unreadable);
  cr_assert_not (fat_window_equals (w, START, &op, START, START + LENGTH));
  gd->disk.ops = &gated_ops;
  fat_window_reload (w, &gd->disk, START, START + 512);
  cr_assert (w->unreadable, "and it stays so");
}

/* -- Comparing --------------------------------------------------------- */

/* A write somewhere else, to the mirror say, with the window's bytes. */
Test (fattable, equal_is_byte_by_byte)
{
  static char buf[LENGTH];
  enum { MIRROR = 40000 };
  unsigned pieces, at;

  for (pieces = 1; pieces <= 3; ++pieces) {
    struct iovec iov[3];
    struct disk_op op = {
      .kind = DISK_WRITE, .offset = MIRROR, .length = LENGTH,
      .iov = iov, .iovcnt = (int) pieces,
    };

    memcpy (buf, w->bytes, LENGTH);
    iov[0] = (struct iovec) { buf, pieces == 1 ? LENGTH : 700 };
    iov[1] = (struct iovec) { buf + 700, pieces == 2 ? LENGTH - 700 : 1 };
    iov[2] = (struct iovec) { buf + 701, LENGTH - 701 };
    cr_assert (fat_window_equals (w, START, &op, MIRROR, MIRROR + LENGTH));
    for (at = 0; at < LENGTH; at += 37) {
      bool same;

      buf[at] ^= 0x10;
      cr_assert_not (fat_window_equals (w, START, &op, MIRROR,
                                        MIRROR + LENGTH));
      /* A part sees only its own bytes. */
      same = fat_window_equals (w, START + 1024, &op, MIRROR + 1024,
                                MIRROR + 1536);
      cr_assert_eq (same, at < 1024 || at >= 1536, "byte %u", at);
      buf[at] ^= 0x10;
    }
  }
}

Test (fattable, equal_at_another_place_is_not_equal)
{
  static char buf[512];
  struct iovec iov = { buf, sizeof buf };
  struct disk_op op = {
    .kind = DISK_WRITE, .offset = 40000, .length = sizeof buf,
    .iov = &iov, .iovcnt = 1,
  };

  memcpy (buf, w->bytes + 512, sizeof buf);
  cr_assert (fat_window_equals (w, START + 512, &op, 40000, 40512));
  cr_assert_not (fat_window_equals (w, START, &op, 40000, 40512));
  cr_assert_not (fat_window_equals (w, START + 1024, &op, 40000, 40512));
}
