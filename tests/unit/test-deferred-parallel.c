/* SPDX-License-Identifier: BSD-3-Clause */

/* Deferred commits (D9) with threads: the one that syncs what is old
 * (deferred.h, rule 5), requests that meet while one is being applied (rules 2
 * and 4), and everything at once, before a disk that knows what is durable:
 * nothing that refers to an allocation may get there before that is.
 */

#include <config.h>

#include "deferred-rig.h"

static struct rig rig;

/* FATs of 40 sectors, and as many clusters as they have entries. */
static const struct rig_volume volume = {
  0, { 512, 1, 32, 2, 40, 112 + 5118, 2, 0, 1, 6 }
};

/* Poll, and give up by the alarm only. */
#define AWAIT(condition)                                                \
  do {                                                                  \
    while (!(condition))                                                \
      usleep (500);                                                     \
  } while (0)

/* -- The thread ------------------------------------------------------------ */

static bool
is_idle (void)
{
  SCOPED_LOCK (&rig.fb->deferred.lock);
  return rig.fb->deferred.idle;
}

static void
what_is_old_is_synced (void)
{
  unsigned i;

  deferred_open (&rig, &volume, 3);
  for (i = 0; i < 3; ++i) {
    uint64_t before = rig_stat (&rig, "deferred_expired");

    oplog_clear (&rig.log);
    deferred_request (&rig, "fat fua %u 5=end", 4 + i);
    AWAIT (deferred_count (&rig) == 0);
    oplog_expect (&rig.log, "expired", i == 0 ?
                  "> fat fua 4 5=end\n"
                  "  write fat1:4\n"
                  "  sync fat1:4\n" : i == 1 ?
                  "> fat fua 5 5=end\n"
                  "  write fat1:5\n"
                  "  sync fat1:5\n" :
                  "> fat fua 6 5=end\n"
                  "  write fat1:6\n"
                  "  sync fat1:6\n");
    CHECK_EQ (rig_stat (&rig, "deferred_expired"), before + 1);
    CHECK_EQ (rig_stat (&rig, "deferred_forced"), 0);
    AWAIT (i == 0 || is_idle ());       /* it sleeps, and wakes up again */
  }
  rig_release (&rig);
}

/* When it was made counts, not when something was added last. */
static void
its_time_does_not_begin_anew (void)
{
  struct deferred_item item;
  struct deferred *d;

  deferred_open (&rig, &volume, FOREVER);
  d = &rig.fb->deferred;
  deferred_request (&rig, "fat fua 4 5=end");
  {
    SCOPED_LOCK (&d->lock);
    item = d->item[0];
  }
  usleep (1);
  deferred_request (&rig, "fat fua 4 6=end");
  {
    SCOPED_LOCK (&d->lock);
    CHECK_EQ (d->item[0].sector, item.sector);
    CHECK_EQ (d->item[0].since, item.since);
    CHECK_EQ (d->item[0].applied, item.applied + 1);
  }
  rig_release (&rig);
}

static void
its_failure_is_latched (void)
{
  unsigned syncs;

  deferred_open (&rig, &volume, 3);
  deferred_request (&rig, "fail sync fat1:4");
  deferred_request (&rig, "fat fua 4 5=end");
  AWAIT (fatbatch_has_failed (rig.fb));
  AWAIT (is_idle ());           /* and does not try again */
  deferred_request (&rig, "heal");
  syncs = oplog_count (&rig.log, "  sync");
  CHECK_EQ (syncs, 1);
  CHECK_EQ (fatbatch_flush (rig.fb), -EIO);
  deferred_request (&rig, "fat fua 5 5=end");
  deferred_request (&rig, "name write data:0 0 4:5");
  CHECK_EQ (oplog_count (&rig.log, "= EIO"), 2);
  CHECK_EQ (oplog_count (&rig.log, "  sync"), syncs);
  CHECK_EQ (oplog_count (&rig.log, "  write data"), 0);
  rig_release (&rig);
}

/* The end comes while it waits for its time. */
static void
it_ends_at_any_time (void)
{
  unsigned i;

  for (i = 0; i < 3; ++i) {
    deferred_open (&rig, &volume, i == 0 ? FOREVER : 3);
    deferred_request (&rig, "fat fua 4 5=end");
    if (i == 2)
      AWAIT (is_idle ());
    CHECK_EQ (fatbatch_settle (rig.fb), 0);
    CHECK (!rig.record.exists);
    rig_close (&rig);
    rig_release (&rig);
  }
}

/* -- Requests that meet ------------------------------------------------------ */

static void *
run_line (void *opaque)
{
  CHECK_EQ (deferred_run (&rig, opaque), 0);
  return NULL;
}

static bool
is_held (void)
{
  SCOPED_LOCK (&rig.lock);
  return rig.held > 0;
}

/* Who may refer to it waits until it has been applied, too. */
static void
what_is_being_applied_is_waited_for (void)
{
  static const struct { const char *request, *after; } rows[] = {
    { "async write data@2586+2 .", "  write @59930+2\n" },
    { "async write fat1:6+2 .", "  write fat1:6+2\n" },
    { "async dirty 1", "  read boot:0\n  write boot:0\n" },
    { "async settle", "  record clear 1\n"
                      "  record sync\n"
                      "  record remove\n" },
  };
  size_t i;

  for (i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    char line[] = "fat fua 4 5=end", expected[300];
    pthread_t thread;

    deferred_open (&rig, &volume, FOREVER);
    deferred_request (&rig, "sync");
    oplog_clear (&rig.log);
    deferred_request (&rig, "hold write fat1:4");
    CHECK_EQ (pthread_create (&thread, NULL, run_line, line), 0);
    AWAIT (is_held ());
    deferred_request (&rig, "%s", rows[i].request);
    deferred_request (&rig, "release");
    CHECK_EQ (pthread_join (thread, NULL), 0);
    snprintf (expected, sizeof expected,
              "> hold write fat1:4\n"
              "> %s\n"
              "> release\n"
              "  write fat1:4\n"
              "  sync fat1:4\n"
              "%s", rows[i].request, rows[i].after);
    oplog_expect (&rig.log, rows[i].request, expected);
    CHECK_EQ (deferred_count (&rig), 0);
    rig_release (&rig);
  }
}

/* -- Everything at once ------------------------------------------------------ */

#define APPENDERS 2
#define SECTORS 14              /* of each one's clusters */
#define DEFERRED_ENOUGH 100

static uint8_t *durable;        /* the image after a power cut; rig.lock */
static const struct disk_ops *rig_ops;
static atomic_uint newest[APPENDERS], appending;
static struct rig_place fat1;

static void
check_reference (uint32_t cluster, uint64_t own_sector)
{
  uint64_t at = fat1.start + 4 * (uint64_t) cluster;

  if (cluster >= 2 && at < fat1.start + fat1.length &&
      at / 512 * 512 != own_sector)
    CHECK (load_le32 (durable + at) != 0);
}

/* What is on its way into the image refers to nothing but what is durable. */
static void
check_write_locked (const struct disk_op *op)
{
  uint8_t buf[512];
  uint64_t pos;
  unsigned i;

  if (op->kind != DISK_WRITE || op->length != 512)
    return;
  disk_iov_read (op->iov, op->iovcnt, 0, buf, sizeof buf);
  pos = op->offset;
  if (pos >= fat1.start && pos < fat1.start + fat1.length)
    for (i = 0; i < 128; ++i)
      check_reference (load_le32 (buf + 4 * i) & 0x0fffffff, pos);
  else if (pos >= fat1.start + 2 * fat1.length)
    for (i = 0; i < 512; i += 32)
      check_reference (load_le16 (buf + i + 26), 0);
}

static uint64_t
sync_start (const struct disk_op *op)
{
  return min_u64 (op->offset, rig.size);
}

static uint64_t
sync_length (const struct disk_op *op)
{
  return min_u64 (op->length, rig.size - sync_start (op));
}

/* A sync makes durable what was there when it began. */
static int
oracle_submit (struct disk *disk, struct disk_op *ops, size_t nr)
{
  bool syncs = ops[0].kind == DISK_SYNC;
  uint8_t *before = NULL;
  size_t i;
  int r;

  {
    SCOPED_LOCK (&rig.lock);
    if (syncs) {
      before = malloc (rig.size);
      CHECK (before != NULL);
      for (i = 0; i < nr; ++i)
        memcpy (before + sync_start (&ops[i]), rig.bytes +
                sync_start (&ops[i]), sync_length (&ops[i]));
    }
    for (i = 0; i < nr; ++i)
      check_write_locked (&ops[i]);
  }
  if (syncs)
    usleep (100);               /* others come meanwhile */
  r = rig_ops->submit (disk, ops, nr);
  if (syncs) {
    SCOPED_LOCK (&rig.lock);
    for (i = 0; i < nr; ++i)
      memcpy (durable + sync_start (&ops[i]), before + sync_start (&ops[i]),
              sync_length (&ops[i]));
    free (before);
  }
  return r;
}

static void __attribute__ ((format (printf, 1, 2)))
run (const char *fmt, ...)
{
  char line[100];
  va_list args;

  va_start (args, fmt);
  vsnprintf (line, sizeof line, fmt, args);
  va_end (args);
  CHECK_EQ (deferred_is_request (line) ? deferred_run (&rig, line)
            : rig_run_line (&rig, line), 0);
}

/* A file that grows by a cluster at a time, with its mirror, and now and then
 * what a guest does besides.
 */
static void *
append (void *opaque)
{
  unsigned id = (uintptr_t) opaque, seed = id + 1, n;
  unsigned first = 10 + id * SECTORS;

  for (n = 0; n < SECTORS * 128; ++n) {
    unsigned s = first + n / 128, e = n % 128;

    run ("fat fua %u %u=end", s, e);
    if (rand_r (&seed) % 8 > 0)
      run ("mirror fua %u", s);
    atomic_store (&newest[id], s * 128 + e);
    if (n > 0) {
      unsigned p = first + (n - 1) / 128, q = (n - 1) % 128;

      run ("fat %s %u %u=%u:%u", rand_r (&seed) % 8 > 0 ? "fua" : "write",
           p, q, s, e);
      run ("mirror fua %u", p);
    }
    if (rand_r (&seed) % 8 == 0)
      run ("name write data:%u 64 %u:%u", id, s, e);
    if (rig_stat (&rig, "commits_deferred") > DEFERRED_ENOUGH &&
        rig_stat (&rig, "deferred_forced") > DEFERRED_ENOUGH &&
        rig_stat (&rig, "deferred_expired") > 0 && n > 400)
      break;
  }
  atomic_fetch_sub (&appending, 1);
  return NULL;
}

/* Others, who may name any cluster that has been acknowledged. */
static void *
disturb (void *opaque)
{
  unsigned seed = 99, cluster;

  (void) opaque;
  while (atomic_load (&appending) > 0) {
    cluster = atomic_load (&newest[rand_r (&seed) % APPENDERS]);
    switch (rand_r (&seed) % 100) {
    case 0:
      run ("settle");
      break;
    case 1:
      run ("sync");
      break;
    case 2 ... 4:
      run ("flush");
      break;
    case 5 ... 6:
      run ("dirty %u", rand_r (&seed) % 2);
      break;
    case 7 ... 20:
      if (cluster > 0)
        run ("name write data:9 %u %u:%u", rand_r (&seed) % 16 * 32,
             cluster / 128, cluster % 128);
      break;
    case 21 ... 25:
      if (cluster > 0)
        run ("fat fua 5 7=%u:%u", cluster / 128, cluster % 128);
      break;
    default:
      usleep (200);
    }
  }
  return NULL;
}

static void
nothing_is_referred_to_before_it_is_durable (void)
{
  pthread_t threads[APPENDERS + 1];
  struct disk_ops ops;
  uintptr_t i;

  deferred_open (&rig, &volume, 2);
  oplog_mute (&rig.log, true);
  fat1 = rig_place (&rig, "fat1");
  durable = malloc (rig.size);
  CHECK (durable != NULL);
  memcpy (durable, rig.bytes, rig.size);
  rig_ops = rig.fb->disk->ops;
  ops = *rig_ops;
  ops.submit = oracle_submit;
  rig.fb->disk->ops = &ops;

  atomic_store (&appending, APPENDERS);
  for (i = 0; i < APPENDERS + 1; ++i)
    CHECK_EQ (pthread_create (&threads[i], NULL,
                              i < APPENDERS ? append : disturb,
                              (void *) i), 0);
  for (i = 0; i < APPENDERS + 1; ++i)
    CHECK_EQ (pthread_join (threads[i], NULL), 0);
  CHECK (rig_stat (&rig, "commits_deferred") > DEFERRED_ENOUGH);
  CHECK_EQ (fatbatch_flush (rig.fb), 0);
  CHECK (memcmp (durable, rig.bytes, rig.size) == 0);
  rig_close (&rig);
  CHECK (memcmp (rig.bytes, rig.shadow, rig.size) == 0);        /* D8 */
  free (durable);
  rig_release (&rig);
}

int
main (void)
{
  alarm (300);
  RUN (what_is_old_is_synced);
  RUN (its_time_does_not_begin_anew);
  RUN (its_failure_is_latched);
  RUN (it_ends_at_any_time);
  RUN (what_is_being_applied_is_waited_for);
  RUN (nothing_is_referred_to_before_it_is_durable);
  return EXIT_SUCCESS;
}
