/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <liburing.h>
#include <linux/ioprio.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "disk-posix.h"
#include "disk-uring.h"
#include "util.h"

#define RING_ENTRIES 64
#define RINGS_MAX 8             /* more batches than that wait for a ring */

struct ring {
  struct io_uring uring;
  struct ring *next;
};

struct uring_disk {
  struct disk disk;
  struct file *file;            /* borrowed */

  pthread_mutex_t lock;         /* protects what follows */
  pthread_cond_t idle_cond;
  struct ring *idle;
  unsigned nr_rings;            /* idle and in use */
};

/* -- Rings ------------------------------------------------------------- */

static int
ring_new (struct ring **ret)
{
  struct ring *ring = calloc (1, sizeof *ring);
  int r;

  if (!ring)
    return -ENOMEM;
  r = io_uring_queue_init (RING_ENTRIES, &ring->uring, 0);
  if (r < 0) {
    free (ring);
    return r;
  }
  io_uring_ring_dontfork (&ring->uring);
  *ret = ring;
  return 0;
}

static void
ring_free (struct ring *ring)
{
  io_uring_queue_exit (&ring->uring);
  free (ring);
}

/* NULL if there can't be one now: the caller does without. */
static struct ring *
ring_get (struct uring_disk *ud)
{
  struct ring *ring = NULL;

  {
    SCOPED_LOCK (&ud->lock);
    while (!ud->idle && ud->nr_rings >= RINGS_MAX)
      pthread_cond_wait (&ud->idle_cond, &ud->lock);
    if (ud->idle) {
      ring = ud->idle;
      ud->idle = ring->next;
      return ring;
    }
    ud->nr_rings++;
  }
  if (ring_new (&ring) == 0)
    return ring;

  SCOPED_LOCK (&ud->lock);
  ud->nr_rings--;
  pthread_cond_signal (&ud->idle_cond);
  return NULL;
}

static void
ring_put (struct uring_disk *ud, struct ring *ring, bool broken)
{
  if (broken) {
    atomic_fetch_add (&ud->disk.faults.broken_rings, 1);
    ring_free (ring);
  }

  SCOPED_LOCK (&ud->lock);
  if (broken)
    ud->nr_rings--;
  else {
    ring->next = ud->idle;
    ud->idle = ring;
  }
  pthread_cond_signal (&ud->idle_cond);
}

/* -- One submission ---------------------------------------------------- */

static bool
op_wants_ring (const struct disk_op *op)
{
  return op->kind == DISK_READ || op->kind == DISK_WRITE ||
    op->kind == DISK_SYNC;
}

static void
prep_sync (struct io_uring_sqe *sqe, const struct file *file,
           const struct disk_op *op)
{
  io_uring_prep_fsync (sqe, file->fd, IORING_FSYNC_DATASYNC);
  /* The range ends at off + len (io_uring/sync.c, io_fsync()), where 0
   * stands for the whole file, and len has 32 bits.
   */
  if (op->length <= UINT32_MAX) {
    sqe->off = op->offset;
    sqe->len = op->length;
  }
}

static void
prep_op (struct io_uring_sqe *sqe, const struct file *file,
         const struct disk_op *op)
{
  int fd = file_op_fd (file, op);

  switch (op->kind) {
  case DISK_READ:
    io_uring_prep_readv (sqe, fd, op->iov, op->iovcnt, op->offset);
    break;
  case DISK_WRITE:
    io_uring_prep_writev (sqe, fd, op->iov, op->iovcnt, op->offset);
    break;
  default:
    prep_sync (sqe, file, op);
    return;
  }
  if (op->flags & DISK_IDLE)
    sqe->ioprio = IOPRIO_PRIO_VALUE (IOPRIO_CLASS_IDLE, 0);
}

/* What a completion means for its operation (rule 2). */
static int
finish_op (struct file *file, const struct disk_op *op, int res)
{
  if (op->kind == DISK_SYNC)
    return res < 0 ? file_sync_error (-res) : 0;
  if (res == -EINTR || res == -EAGAIN) {
    atomic_fetch_add (&file->faults->interrupted, 1);
    res = 0;
  }
  if (res < 0)
    return res == -EOPNOTSUPP ? -EIO : res;
  if (res > 0 && (uint64_t) res < op->length)
    atomic_fetch_add (&file->faults->short_transfers, 1);
  return file_transfer (file, op, res);
}

/* Submit ops[0..nr), nr <= RING_ENTRIES, and wait for all.  Returns how many
 * were submitted: fewer than nr if the ring broke.
 */
static size_t
ring_run (struct ring *ring, struct file *file, struct disk_op *ops, size_t nr)
{
  size_t submitted = 0, reaped;
  struct io_uring_cqe *cqe;
  int r;

  for (size_t i = 0; i < nr; ++i) {
    struct io_uring_sqe *sqe = io_uring_get_sqe (&ring->uring);

    prep_op (sqe, file, &ops[i]);
    io_uring_sqe_set_data64 (sqe, i);
  }
  while (submitted < nr) {
    r = io_uring_submit_and_wait (&ring->uring, nr - submitted);
    if (r == -EINTR)
      continue;
    if (r <= 0)
      break;
    submitted += r;
  }
  for (reaped = 0; reaped < submitted; ) {
    r = io_uring_wait_cqe (&ring->uring, &cqe);
    if (r < 0) {
      /* The kernel may still use the buffers, so there is no way out but
       * to wait, and not in a tight loop should waiting itself fail.
       */
      if (r != -EINTR)
        nanosleep (&(struct timespec) { .tv_nsec = 1000000 }, NULL);
      continue;
    }
    ops[io_uring_cqe_get_data64 (cqe)].result = cqe->res;
    io_uring_cqe_seen (&ring->uring, cqe);
    reaped++;
  }
  for (size_t i = 0; i < submitted; ++i)
    ops[i].result = finish_op (file, &ops[i], ops[i].result);
  return submitted;
}

/* -- The leaf ---------------------------------------------------------- */

/* The end of the longest run from `from` that may be in flight together:
 * one submission, no sync after something that it must wait for (rule 2 of
 * disk.h).
 */
static size_t
run_end (const struct disk_op *ops, size_t from, size_t nr)
{
  bool transfers = false;
  size_t i;

  for (i = from; i < nr && i - from < RING_ENTRIES; ++i) {
    if (!op_wants_ring (&ops[i]))
      break;
    if (ops[i].kind != DISK_SYNC)
      transfers = true;
    else if (transfers)
      break;
  }
  return i;
}

static int
first_error (const struct disk_op *ops, size_t nr)
{
  size_t i;

  for (i = 0; i < nr; ++i)
    if (ops[i].result < 0)
      return ops[i].result;
  return 0;
}

/* Operations that no ring does, or that no ring is left for. */
static void
run_plain (struct file *file, struct disk_op *ops, size_t nr, bool cancel)
{
  size_t i;

  for (i = 0; i < nr; ++i)
    ops[i].result = cancel && ops[i].kind == DISK_SYNC ? -ECANCELED
      : file_op (file, &ops[i]);
}

static int
uring_submit (struct disk *disk, struct disk_op *ops, size_t nr)
{
  struct uring_disk *ud = (struct uring_disk *) disk;
  struct ring *ring = NULL;
  bool broken = false;
  size_t i, end, done;

  if (nr == 1 && (ops[0].kind != DISK_SYNC || file_syncs_ranges (ud->file)))
    return ops[0].result = file_op (ud->file, &ops[0]);

  ring = ring_get (ud);
  for (i = 0; i < nr; i = end) {
    bool failed = first_error (ops, i) < 0;

    end = run_end (ops, i, nr);
    if (end == i)
      run_plain (ud->file, &ops[i], ++end - i, failed);
    else if (!ring || broken || (failed && ops[i].kind == DISK_SYNC))
      run_plain (ud->file, &ops[i], end - i, failed);
    else {
      done = ring_run (ring, ud->file, &ops[i], end - i);
      broken = done < end - i;
      run_plain (ud->file, &ops[i + done], end - i - done, failed);
    }
  }
  if (ring)
    ring_put (ud, ring, broken);
  return first_error (ops, nr);
}

static int
uring_extent (struct disk *disk, uint64_t offset, uint64_t length,
              struct disk_extent *ret)
{
  return file_extent (((struct uring_disk *) disk)->file,
                      offset, length, ret);
}

static int
uring_readahead (struct disk *disk, uint64_t offset, uint64_t length)
{
  return file_readahead (((struct uring_disk *) disk)->file, offset, length);
}

static void
uring_write_back (struct disk *disk, uint64_t offset, uint64_t length)
{
  file_write_back (((struct uring_disk *) disk)->file, offset, length);
}

static void
uring_free (struct disk *disk)
{
  struct uring_disk *ud = (struct uring_disk *) disk;
  struct ring *ring, *next;

  for (ring = ud->idle; ring; ring = next) {
    next = ring->next;
    ring_free (ring);
  }
  pthread_cond_destroy (&ud->idle_cond);
  pthread_mutex_destroy (&ud->lock);
  free (ud);
}

static const struct disk_ops uring_ops = {
  .name = "io_uring",
  .submit = uring_submit,
  .extent = uring_extent,
  .readahead = uring_readahead,
  .write_back = uring_write_back,
  .free = uring_free,
};

int
disk_uring_new (struct file *file, struct disk **ret)
{
  struct uring_disk *ud = calloc (1, sizeof *ud);

  if (!ud)
    return -ENOMEM;
  disk_init_from_file (&ud->disk, &uring_ops, file);
  ud->file = file;
  pthread_mutex_init (&ud->lock, NULL);
  pthread_cond_init (&ud->idle_cond, NULL);
  *ret = &ud->disk;
  return 0;
}

int
disk_uring_probe (void)
{
  static const int wanted[] = {
    IORING_OP_READV, IORING_OP_WRITEV, IORING_OP_FSYNC,
  };
  struct io_uring_probe *probe;
  struct ring *ring;
  size_t i;
  int r;

  r = ring_new (&ring);
  if (r < 0)
    return r;
  probe = io_uring_get_probe_ring (&ring->uring);
  if (!probe)
    r = -EOPNOTSUPP;
  for (i = 0; r == 0 && i < sizeof wanted / sizeof wanted[0]; ++i)
    if (!io_uring_opcode_supported (probe, wanted[i]))
      r = -EOPNOTSUPP;
  io_uring_free_probe (probe);
  ring_free (ring);
  return r;
}
