/* SPDX-License-Identifier: BSD-3-Clause */

/* disk_submit(): whatever the engine asks for, a leaf that needs aligned
 * transfers (O_DIRECT) sees only such, and the bytes come out right.
 */

#include <config.h>

#include <criterion/criterion.h>

#include "gated-disk.h"
#include "util.h"

#define MAX_SIZE (5 * 1024 * 1024)

static unsigned seed;

static uint64_t
random_below (uint64_t n)
{
  return n == 0 ? 0 : ((uint64_t) rand_r (&seed) << 15 ^ rand_r (&seed)) % n;
}

/* What the leaf has been asked since the last call. */
static void
check_log (struct gated_disk *gd)
{
  uint64_t tail = align_down (gd->disk.size, gd->disk.align);
  size_t i;

  for (i = 0; i < gd->nr_log; ++i) {
    const struct disk_op *op = &gd->log[i];
    uint64_t end = op->offset + op->length;

    if (op->kind == DISK_SYNC)
      continue;
    if (op->flags & DISK_BUFFERED)
      cr_assert (op->offset >= tail, "buffered transfer before the tail");
    else
      cr_assert (end <= tail, "direct transfer of the tail");
  }
  gd->nr_log = 0;
}

/* Cut buf into an iovec of random pieces. */
static int
random_iov (struct iovec iov[8], char *buf, size_t count)
{
  int n = 0;

  while (n < 7 && count > 1 && random_below (2)) {
    size_t len = 1 + random_below (count - 1);

    iov[n++] = (struct iovec) { buf, len };
    buf += len;
    count -= len;
  }
  iov[n++] = (struct iovec) { buf, count };
  return n;
}

static void
random_range (uint64_t size, uint64_t *start, uint64_t *end)
{
  static const uint64_t limits[] = { 3, 700, 5000, 100000, MAX_SIZE };
  uint64_t max = limits[random_below (5)];

  *start = random_below (4) == 0 && size > max ? size - random_below (max + 1)
    : random_below (size);
  if (random_below (4) == 0)
    *start = align_down (*start, 512);
  *end = min_u64 (size, *start + 1 + random_below (max));
  if (*start == *end)
    *start = *end - 1;
}

static void
one_random_op (struct gated_disk *gd, char *model, char *buf)
{
  struct iovec iov[8];
  struct disk_op op = { .iov = iov };
  uint64_t start, end, i;

  random_range (gd->disk.size, &start, &end);
  op.offset = start;
  op.length = end - start;
  buf += random_below (3) * 256;
  switch (random_below (4)) {
  case 0:
    op.kind = DISK_READ;
    op.iovcnt = random_iov (iov, buf, op.length);
    cr_assert_eq (disk_submit (&gd->disk, &op, 1), 0);
    cr_assert_eq (memcmp (buf, model + start, op.length), 0);
    break;
  case 1:
    op.kind = DISK_ZERO;
    cr_assert_eq (disk_submit (&gd->disk, &op, 1), 0);
    memset (model + start, 0, op.length);
    break;
  default:
    op.kind = DISK_WRITE;
    op.iovcnt = random_iov (iov, buf, op.length);
    for (i = 0; i < op.length; ++i)
      buf[i] = rand_r (&seed);
    cr_assert_eq (disk_submit (&gd->disk, &op, 1), 0);
    memcpy (model + start, buf, op.length);
    break;
  }
}

Test (disk, random_requests_agree_with_a_byte_array)
{
  static const struct {
    const char *name;
    uint64_t size;
    uint32_t align;
  } rows[] = {
    { "any alignment", 100000, 1 },
    { "512", 1024 * 1024, 512 },
    { "512, odd size", 1024 * 1024 + 300, 512 },
    { "512, smaller than a block", 300, 512 },
    { "4096", MAX_SIZE, 4096 },
    { "4096, odd size", MAX_SIZE - 4095, 4096 },
    { "4096, size of 512s", 4096 * 9 + 512 * 3, 4096 },
    { "64 KiB", 65536 * 20 + 1, 65536 },
  };
  size_t row;
  int i;

  for (row = 0; row < sizeof rows / sizeof rows[0]; ++row) {
    struct gated_disk *gd = gated_new (rows[row].size, rows[row].align);
    char *model = calloc (1, rows[row].size);
    char *buf = NULL;

    seed = row + 1;
    cr_assert_eq (posix_memalign ((void **) &buf, 65536,
                                  MAX_SIZE + 65536), 0);
    for (i = 0; i < 300; ++i) {
      one_random_op (gd, model, buf);
      check_log (gd);
    }
    cr_assert_eq (memcmp (gd->data, model, rows[row].size), 0,
                  "%s: contents differ", rows[row].name);
    free (buf);
    free (model);
    disk_free (&gd->disk);
  }
}

static struct disk_op
write_op (struct iovec *iov, void *buf, uint64_t offset, size_t count)
{
  *iov = (struct iovec) { buf, count };
  return (struct disk_op) {
    .kind = DISK_WRITE, .offset = offset, .length = count,
    .iov = iov, .iovcnt = 1,
  };
}

Test (disk, an_aligned_batch_reaches_the_leaf_as_it_is)
{
  struct gated_disk *gd = gated_new (65536, 512);
  static char buf[1024] __attribute__ ((aligned (4096)));
  struct iovec iov[2];
  struct disk_op ops[] = {
    write_op (&iov[0], buf, 0, 512),
    write_op (&iov[1], buf + 512, 4096, 512),
    { .kind = DISK_SYNC, .offset = 0, .length = 4608 },
  };

  cr_assert_eq (disk_submit (&gd->disk, ops, 3), 0);
  cr_assert_eq (gd->batches, 1);
  cr_assert_eq (gd->nr_log, 3);
  disk_free (&gd->disk);
}

/* The order of a mixed batch: the sync comes after the bounced write. */
Test (disk, a_sync_comes_after_bounced_writes)
{
  struct gated_disk *gd = gated_new (65536, 512);
  static char buf[1024] __attribute__ ((aligned (4096)));
  struct iovec iov[2];
  struct disk_op ops[] = {
    write_op (&iov[0], buf, 0, 512),
    write_op (&iov[1], buf, 1000, 10),
    { .kind = DISK_SYNC, .offset = 0, .length = 2048 },
  };

  cr_assert_eq (disk_submit (&gd->disk, ops, 3), 0);
  cr_assert_eq (gd->nr_log, 4);
  cr_assert_eq (gd->log[1].kind, DISK_READ);
  cr_assert_eq (gd->log[2].kind, DISK_WRITE);
  cr_assert_eq (gd->log[3].kind, DISK_SYNC);
  disk_free (&gd->disk);
}

/* A leaf of which every write fails. */
static int
failing_submit (struct disk *disk, struct disk_op *ops, size_t nr)
{
  struct gated_disk *gd = (struct gated_disk *) disk;
  int r = 0;
  size_t i;

  for (i = 0; i < nr; ++i) {
    gd->log[gd->nr_log++] = ops[i];
    ops[i].result = ops[i].kind == DISK_WRITE ? -ENOSPC : 0;
    if (r == 0)
      r = ops[i].result;
  }
  return r;
}

/* Rule 2: the failure of a bounced write cancels the sync behind it. */
Test (disk, a_failed_bounced_write_cancels_the_sync)
{
  static const struct disk_ops failing_ops = {
    .name = "failing", .submit = failing_submit, .free = gated_free,
  };
  struct gated_disk *gd = gated_new (65536, 512);
  static char buf[1024];
  struct iovec iov;
  struct disk_op ops[] = {
    write_op (&iov, buf, 1000, 10),
    { .kind = DISK_SYNC, .offset = 0, .length = 2048 },
  };
  size_t i;

  gd->disk.ops = &failing_ops;
  cr_assert_eq (disk_submit (&gd->disk, ops, 2), -ENOSPC);
  cr_assert_eq (ops[0].result, -ENOSPC);
  cr_assert_eq (ops[1].result, -ECANCELED);
  for (i = 0; i < gd->nr_log; ++i)
    cr_assert_neq (gd->log[i].kind, DISK_SYNC);
  disk_free (&gd->disk);
}

/* Discard is advice: the blocks at its ends hold other data too. */
Test (disk, a_discard_leaves_partial_blocks_alone)
{
  struct gated_disk *gd = gated_new (65536, 4096);
  struct disk_op op = { .kind = DISK_DISCARD, .offset = 100,
                        .length = 3 * 4096 };

  cr_assert_eq (disk_submit (&gd->disk, &op, 1), 0);
  cr_assert_eq (gd->nr_log, 1);
  cr_assert_eq (gd->log[0].offset, 4096);
  cr_assert_eq (gd->log[0].length, 2 * 4096);

  op.length = 4000;
  cr_assert_eq (disk_submit (&gd->disk, &op, 1), 0);
  cr_assert_eq (gd->nr_log, 1);
  disk_free (&gd->disk);
}
