/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "recorder.h"
#include "turns.h"
#include "util.h"

/* -- The log ------------------------------------------------------------- */

struct log_entry *
machine_log_add (struct machine *m, enum log_kind kind)
{
  struct log_entry *e;

  if (m->nr_log == m->max_log) {
    m->max_log = 2 * m->max_log + 64;
    m->log = reallocarray (m->log, m->max_log, sizeof *m->log);
    if (!m->log)
      test_fail ("out of memory");
  }
  e = &m->log[m->nr_log++];
  *e = (struct log_entry) { .kind = kind };
  return e;
}

void
machine_log_write (struct machine *m, enum log_kind kind, enum disk_op_kind op,
                   const uint8_t *from, uint64_t offset, uint64_t length)
{
  struct log_entry *e = machine_log_add (m, kind);
  size_t first = unit_first (offset);
  size_t size = (unit_last (offset, length) - first) * UNIT;

  e->op = op;
  e->offset = offset;
  e->length = length;
  e->bytes = test_alloc (size);
  memcpy (e->bytes, from + first * UNIT, size);
}

size_t
machine_mark (struct machine *m, enum log_kind kind, unsigned request)
{
  machine_log_add (m, kind)->request = request;
  return m->nr_log - 1;
}

int
machine_begin_op (struct machine *m, enum log_kind kind)
{
  turns_at_operation (kind);
  if (m->ops == m->die_at)
    m->dead = true;
  if (m->dead)
    return -EIO;
  m->ops++;
  return 0;
}

/* -- The disk ------------------------------------------------------------ */

struct machine_disk {
  struct disk disk;
  struct machine *m;
};

static void
check_op (const struct machine *m, const struct disk_op *op)
{
  uint64_t mask = m->align - 1;

  if (op->length == 0 || op->length > m->size ||
      op->offset > m->size - op->length)
    test_fail ("the disk was asked for [%ju, +%ju) of %ju bytes",
               (uintmax_t) op->offset, (uintmax_t) op->length,
               (uintmax_t) m->size);
  if (!(op->flags & DISK_BUFFERED) && ((op->offset | op->length) & mask))
    test_fail ("the disk was asked for [%ju, +%ju), not aligned to %u",
               (uintmax_t) op->offset, (uintmax_t) op->length, m->align);
}

static void
read_image (const struct machine *m, const struct disk_op *op)
{
  const uint8_t *p = m->image + op->offset;
  int i;

  for (i = 0; i < op->iovcnt; p += op->iov[i++].iov_len)
    memcpy (op->iov[i].iov_base, p, op->iov[i].iov_len);
}

static void
change_image (struct machine *m, const struct disk_op *op)
{
  uint8_t *p = m->image + op->offset;
  int i;

  if (op->kind == DISK_DISCARD && !m->discards)
    return;
  if (op->kind == DISK_WRITE)
    for (i = 0; i < op->iovcnt; p += op->iov[i++].iov_len)
      memcpy (p, op->iov[i].iov_base, op->iov[i].iov_len);
  else
    memset (p, 0, op->length);
  machine_log_write (m, LOG_WRITE, op->kind, m->image, op->offset, op->length);
}

static int
sync_image (struct machine *m, const struct disk_op *op)
{
  size_t from = m->nr_log;      /* rule 2 */
  int r = machine_begin_op (m, LOG_SYNC);
  struct log_entry *e;

  if (r < 0)
    return r;
  e = machine_log_add (m, LOG_SYNC);
  e->from = from;
  e->offset = min_u64 (op->offset, m->size);
  e->length = min_u64 (op->length, m->size - e->offset);
  return 0;
}

static int
do_op (struct machine *m, const struct disk_op *op)
{
  int r = 0;

  if (op->kind == DISK_SYNC)
    return sync_image (m, op);
  check_op (m, op);
  if (op->kind == DISK_READ)
    read_image (m, op);
  else {
    r = machine_begin_op (m, LOG_WRITE);
    if (r == 0)
      change_image (m, op);
  }
  return r;
}

/* A run without a sync, in an order that depends on the seed and the run. */
static int
submit_run (struct machine *m, struct disk_op *ops, size_t nr)
{
  size_t order[64], i;
  struct prng prng;
  int r = 0;

  if (nr > 1)
    prng_init (&prng, m->seed, ops[nr - 1].offset);
  for (i = 0; i < nr && i < 64; ++i) {
    size_t j = i > 0 ? prng_below (&prng, i + 1) : 0;

    order[i] = order[j];
    order[j] = i;
  }
  for (i = 0; i < nr; ++i) {
    struct disk_op *op = &ops[i < 64 ? order[i] : i];

    op->result = do_op (m, op);
  }
  for (i = 0; i < nr && r == 0; ++i)
    r = ops[i].result;
  return r;
}

static int
machine_submit (struct disk *disk, struct disk_op *ops, size_t nr)
{
  struct machine *m = ((struct machine_disk *) disk)->m;
  size_t i, run = 0;
  int r = 0, err;

  for (i = 0; i <= nr; ++i) {
    if (i < nr && ops[i].kind != DISK_SYNC)
      continue;
    err = submit_run (m, &ops[run], i - run);
    r = r ? r : err;
    if (i == nr)
      break;
    ops[i].result = r ? -ECANCELED : do_op (m, &ops[i]);
    r = r ? r : ops[i].result;
    run = i + 1;
  }
  return r;
}

static void
machine_disk_free (struct disk *disk)
{
  free (disk);
}

static const struct disk_ops machine_disk_ops = {
  .name = "machine", .submit = machine_submit, .free = machine_disk_free,
};

struct disk *
machine_disk (struct machine *m)
{
  struct machine_disk *md = test_alloc (sizeof *md);

  /* Any memory will do: where a buffer lies is not the seed's to say. */
  disk_init (&md->disk, &machine_disk_ops, m->size, m->align, 1);
  md->disk.preferred_io = 4096;
  md->m = m;
  return &md->disk;
}

/* -- The machine --------------------------------------------------------- */

void
machine_init (struct machine *m, uint64_t size, uint32_t align, bool discards)
{
  memset (m, 0, sizeof *m);
  m->size = size;
  m->nr_units = unit_last (0, size);
  m->align = align;
  m->discards = discards;
  m->image = test_alloc (m->nr_units * UNIT);
  machine_reset (m, 0);
}

void
machine_release (struct machine *m)
{
  machine_reset (m, 0);
  free (m->log);
  free (m->image);
}

void
machine_reset (struct machine *m, uint64_t seed)
{
  while (m->nr_log > 0)
    free (m->log[--m->nr_log].bytes);
  m->ops = 0;
  m->die_at = UINT64_MAX;
  m->dead = false;
  m->seed = seed;
}
