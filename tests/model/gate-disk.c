/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "gate-disk.h"
#include "testlib.h"

_Thread_local unsigned gate_actor;
const char *gate_row;

static void
record_locked (struct gate_disk *gd, enum disk_op_kind kind, bool leaves)
{
  if (gd->nr_events == GATE_LOG)
    test_fail ("%s: more than %d operations", gate_row, GATE_LOG);
  gd->events[gd->nr_events++] = (struct gate_event) {
    .actor = gate_actor, .kind = kind, .leaves = leaves,
  };
  pthread_cond_broadcast (&gd->changed);
}

static void
transfer_locked (struct gate_disk *gd, const struct disk_op *op)
{
  uint8_t *p = gd->bytes + op->offset;
  int i;

  if (op->kind == DISK_ZERO || op->kind == DISK_DISCARD)
    memset (p, 0, op->length);
  for (i = 0; i < op->iovcnt; p += op->iov[i].iov_len, ++i) {
    if (op->kind == DISK_READ)
      memcpy (op->iov[i].iov_base, p, op->iov[i].iov_len);
    else
      memcpy (p, op->iov[i].iov_base, op->iov[i].iov_len);
  }
}

static int
gate_submit (struct disk *disk, struct disk_op *ops, size_t nr)
{
  struct gate_disk *gd = (struct gate_disk *) disk;
  size_t i;

  pthread_mutex_lock (&gd->lock);
  for (i = 0; i < nr; ++i) {
    record_locked (gd, ops[i].kind, false);
    while (gd->closed && gd->closed_actor == gate_actor &&
           gd->closed_kind == ops[i].kind) {
      gd->waiting = true;
      pthread_cond_broadcast (&gd->changed);
      pthread_cond_wait (&gd->changed, &gd->lock);
    }
    transfer_locked (gd, &ops[i]);
    ops[i].result = 0;
    record_locked (gd, ops[i].kind, true);
  }
  pthread_mutex_unlock (&gd->lock);
  return 0;
}

static void
gate_free (struct disk *disk)
{
  struct gate_disk *gd = (struct gate_disk *) disk;

  pthread_cond_destroy (&gd->changed);
  pthread_mutex_destroy (&gd->lock);
  free (gd);
}

static const struct disk_ops gate_ops = {
  .name = "gate", .submit = gate_submit, .free = gate_free,
};

struct gate_disk *
gate_disk_new (uint32_t align)
{
  struct gate_disk *gd = test_alloc (sizeof *gd);

  disk_init (&gd->disk, &gate_ops, GATE_DISK_SIZE, align, align);
  gd->disk.preferred_io = 4096;
  pthread_mutex_init (&gd->lock, NULL);
  pthread_cond_init (&gd->changed, NULL);
  return gd;
}

void
gate_close (struct gate_disk *gd, unsigned actor, enum disk_op_kind kind)
{
  pthread_mutex_lock (&gd->lock);
  gd->closed = true;
  gd->waiting = false;
  gd->closed_actor = actor;
  gd->closed_kind = kind;
  pthread_mutex_unlock (&gd->lock);
}

void
gate_open (struct gate_disk *gd)
{
  pthread_mutex_lock (&gd->lock);
  gd->closed = false;
  pthread_cond_broadcast (&gd->changed);
  pthread_mutex_unlock (&gd->lock);
}

static void
wait_for (struct gate_disk *gd, const bool *flag, const char *what)
{
  struct timespec end;

  clock_gettime (CLOCK_REALTIME, &end);
  end.tv_sec += GATE_SECONDS;
  pthread_mutex_lock (&gd->lock);
  while (!*flag)
    if (pthread_cond_timedwait (&gd->changed, &gd->lock, &end) != 0)
      test_fail ("%s: %s", gate_row, what);
  pthread_mutex_unlock (&gd->lock);
}

void
gate_wait_closed (struct gate_disk *gd, const char *what)
{
  wait_for (gd, &gd->waiting, what);
}

void
gate_set_done (struct gate_disk *gd, unsigned actor)
{
  pthread_mutex_lock (&gd->lock);
  gd->done[actor] = true;
  pthread_cond_broadcast (&gd->changed);
  pthread_mutex_unlock (&gd->lock);
}

void
gate_wait_done (struct gate_disk *gd, unsigned actor, const char *what)
{
  wait_for (gd, &gd->done[actor], what);
}

bool
gate_has_entered (struct gate_disk *gd, unsigned actor)
{
  bool entered = false;
  unsigned i;

  pthread_mutex_lock (&gd->lock);
  for (i = 0; i < gd->nr_events; ++i)
    if (gd->events[i].actor == actor)
      entered = true;
  pthread_mutex_unlock (&gd->lock);
  return entered;
}

bool
gate_in_order (struct gate_disk *gd, unsigned first, enum disk_op_kind kind,
               unsigned second)
{
  unsigned i, last_of_first = 0, first_of_second = GATE_LOG;
  bool acted = false;

  pthread_mutex_lock (&gd->lock);
  for (i = 0; i < gd->nr_events; ++i) {
    if (gd->events[i].actor == first && gd->events[i].kind == kind) {
      last_of_first = i;
      acted = true;
    }
    if (gd->events[i].actor == second && first_of_second == GATE_LOG)
      first_of_second = i;
  }
  pthread_mutex_unlock (&gd->lock);
  return acted && first_of_second < GATE_LOG &&
    last_of_first < first_of_second;
}
