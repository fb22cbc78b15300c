/* SPDX-License-Identifier: BSD-3-Clause */

/* A disk in memory whose batches stop at a gate, so that a test decides what
 * happens while one is under way, and that writes down what it was asked for.
 */

#ifndef FATBATCH_TESTS_GATED_DISK_H
#define FATBATCH_TESTS_GATED_DISK_H

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "disk.h"

#define GATED_LOG_MAX 4096

struct gated_disk {
  struct disk disk;
  char *data;

  pthread_mutex_t lock;         /* protects what follows */
  pthread_cond_t changed;
  bool gate_closed;             /* batches wait before they do anything */
  unsigned waiting;             /* batches at the gate */
  unsigned batches;             /* begun, ever */
  unsigned inside, inside_max;  /* past the gate now, and at most at once */
  int fail_sync;                /* the result of coming syncs */
  bool check_align;             /* nothing unaligned may arrive (rule 4) */
  size_t nr_log;
  struct disk_op log[GATED_LOG_MAX]; /* without iovec */
};

static inline void
gated_check_align (const struct gated_disk *gd, const struct disk_op *op)
{
  uint64_t mask = gd->disk.align - 1;
  int i;

  if (!gd->check_align || op->kind == DISK_SYNC || op->flags & DISK_BUFFERED)
    return;
  CHECK_EQ (op->offset & mask, 0);
  CHECK_EQ (op->length & mask, 0);
  for (i = 0; i < op->iovcnt; ++i) {
    CHECK_EQ ((uintptr_t) op->iov[i].iov_base & (gd->disk.mem_align - 1), 0);
    CHECK_EQ (op->iov[i].iov_len & mask, 0);
  }
}

static inline int
gated_op (struct gated_disk *gd, const struct disk_op *op)
{
  char *p = gd->data + op->offset;
  int i;

  if (op->kind == DISK_SYNC)
    return gd->fail_sync;
  CHECK (op->length > 0);
  CHECK (op->offset + op->length <= gd->disk.size);
  gated_check_align (gd, op);
  for (i = 0; i < op->iovcnt; ++i) {
    if (op->kind == DISK_READ)
      memcpy (op->iov[i].iov_base, p, op->iov[i].iov_len);
    else
      memcpy (p, op->iov[i].iov_base, op->iov[i].iov_len);
    p += op->iov[i].iov_len;
  }
  if (op->kind == DISK_ZERO)
    memset (p, 0, op->length);
  return 0;
}

static inline int
gated_submit (struct disk *disk, struct disk_op *ops, size_t nr)
{
  struct gated_disk *gd = (struct gated_disk *) disk;
  int r = 0;
  size_t i;

  pthread_mutex_lock (&gd->lock);
  gd->batches++;
  gd->waiting++;
  pthread_cond_broadcast (&gd->changed);
  while (gd->gate_closed)
    pthread_cond_wait (&gd->changed, &gd->lock);
  gd->waiting--;
  gd->inside++;
  if (gd->inside_max < gd->inside)
    gd->inside_max = gd->inside;
  pthread_mutex_unlock (&gd->lock);
  sched_yield ();               /* give a second batch a chance to be here */
  pthread_mutex_lock (&gd->lock);

  for (i = 0; i < nr; ++i) {
    CHECK (gd->nr_log < GATED_LOG_MAX);
    gd->log[gd->nr_log] = ops[i];
    gd->log[gd->nr_log++].iov = NULL;
    ops[i].result = gated_op (gd, &ops[i]);
    if (r == 0)
      r = ops[i].result;
  }
  gd->inside--;
  pthread_cond_broadcast (&gd->changed);
  pthread_mutex_unlock (&gd->lock);
  return r;
}

static inline void
gated_free (struct disk *disk)
{
  struct gated_disk *gd = (struct gated_disk *) disk;

  pthread_cond_destroy (&gd->changed);
  pthread_mutex_destroy (&gd->lock);
  free (gd->data);
  free (gd);
}

static const struct disk_ops gated_ops = {
  .name = "gated",
  .submit = gated_submit,
  .free = gated_free,
};

static inline struct gated_disk *
gated_new (uint64_t size, uint32_t align)
{
  struct gated_disk *gd = calloc (1, sizeof *gd);

  CHECK (gd != NULL);
  disk_init (&gd->disk, &gated_ops, size, align, align < 4096 ? align : 4096);
  gd->disk.preferred_io = 4096;
  gd->check_align = true;
  gd->data = calloc (1, size + 1);
  CHECK (gd->data != NULL);
  pthread_mutex_init (&gd->lock, NULL);
  pthread_cond_init (&gd->changed, NULL);
  return gd;
}

static inline void
gated_set (struct gated_disk *gd, bool closed)
{
  pthread_mutex_lock (&gd->lock);
  gd->gate_closed = closed;
  pthread_cond_broadcast (&gd->changed);
  pthread_mutex_unlock (&gd->lock);
}

/* Wait until `nr` batches stand at the closed gate. */
static inline void
gated_await (struct gated_disk *gd, unsigned nr)
{
  pthread_mutex_lock (&gd->lock);
  while (gd->waiting < nr)
    pthread_cond_wait (&gd->changed, &gd->lock);
  pthread_mutex_unlock (&gd->lock);
}

#endif /* FATBATCH_TESTS_GATED_DISK_H */
