/* SPDX-License-Identifier: BSD-3-Clause */

/* The engine on a disk and a record that write down what they are asked for:
 * see mirror-rig.h.
 */

#include <config.h>

#include <sched.h>

#include "mirror-rig.h"
#include "util.h"

/* -- The disk ---------------------------------------------------------- */

struct rig_disk {
  struct disk disk;
  struct rig *rig;
  bool dead;                    /* the server is: nothing happens any more */
};

const char *const rig_kind_names[DISK_KINDS] = {
  [DISK_READ] = "read", [DISK_WRITE] = "write", [DISK_ZERO] = "zero",
  [DISK_DISCARD] = "trim", [DISK_SYNC] = "sync",
};

static bool
matches (const struct rig_match *match, const struct disk_op *op)
{
  uint64_t end = op->length > UINT64_MAX - op->offset
    ? UINT64_MAX : op->offset + op->length;

  return match->active && match->kind == op->kind &&
    op->offset < match->end && match->start < end;
}

static bool
any_matches (const struct rig_match *match, const struct disk_op *ops,
             size_t nr)
{
  size_t i, kind;

  for (kind = 0; kind < DISK_KINDS; ++kind)
    for (i = 0; i < nr; ++i)
      if (matches (&match[kind], &ops[i]))
        return true;
  return false;
}

static void
wait_while_held_locked (struct rig *rig, const struct rig_match *match,
                        const struct disk_op *ops, size_t nr)
{
  if (!any_matches (match, ops, nr))
    return;
  rig->held++;
  while (any_matches (match, ops, nr))
    pthread_cond_wait (&rig->released, &rig->lock);
  rig->held--;
}

static int
do_op (struct rig *rig, const struct disk_op *op)
{
  uint8_t *p = rig->bytes + op->offset;
  int i;

  if (matches (&rig->fail[op->kind], op))
    return -EIO;
  if (op->kind == DISK_SYNC)
    return 0;
  CHECK (op->length > 0 && op->length <= rig->size &&
         op->offset <= rig->size - op->length);
  if (op->kind == DISK_ZERO || op->kind == DISK_DISCARD)
    memset (p, 0, op->length);
  for (i = 0; i < op->iovcnt; ++i) {
    if (op->kind == DISK_READ)
      memcpy (op->iov[i].iov_base, p, op->iov[i].iov_len);
    else
      memcpy (p, op->iov[i].iov_base, op->iov[i].iov_len);
    p += op->iov[i].iov_len;
  }
  return 0;
}

static void
print_op (const struct rig *rig, const struct disk_op *op, char *buf,
          size_t size)
{
  char place[70];

  if (op->kind == DISK_SYNC && op->length == UINT64_MAX)
    snprintf (place, sizeof place, "all");
  else
    rig_print_place (rig, op->offset, op->length, place, sizeof place);
  snprintf (buf, size, "%s %s%s%s", rig_kind_names[op->kind], place,
            op->flags & DISK_MAY_UNMAP ? " unmap" : "",
            op->result < 0 ? " !" : "");
}

static int
rig_submit (struct disk *disk, struct disk_op *ops, size_t nr)
{
  struct rig_disk *rd = (struct rig_disk *) disk;
  struct rig *rig = rd->rig;
  char line[900] = " ";
  bool muted = oplog_is_muted (&rig->log);
  size_t i, used = 1;
  int r = 0;

  SCOPED_LOCK (&rig->lock);
  wait_while_held_locked (rig, rig->hold, ops, nr);
  for (i = 0; i < nr; ++i) {
    char text[120];

    ops[i].result = rd->dead ? -EIO
      : r < 0 && ops[i].kind == DISK_SYNC ? -ECANCELED
      : do_op (rig, &ops[i]);
    if (r == 0)
      r = ops[i].result;
    if (ops[i].result == -ECANCELED || muted)
      continue;
    print_op (rig, &ops[i], text, sizeof text);
    used += snprintf (line + used, sizeof line - used, "%s %s",
                      i > 0 ? " &" : "", text);
    CHECK (used < sizeof line);
  }
  if (!rd->dead && !muted)
    oplog_add (&rig->log, "%s", line);
  wait_while_held_locked (rig, rig->after, ops, nr);
  return r;
}

/* Zeros are holes, sector by sector. */
static int
rig_extent (struct disk *disk, uint64_t offset, uint64_t length,
            struct disk_extent *ret)
{
  struct rig *rig = ((struct rig_disk *) disk)->rig;
  uint64_t pos = offset, end;
  bool hole = false;

  SCOPED_LOCK (&rig->lock);
  for (; pos < offset + length; pos = end) {
    static const uint8_t zeros[512];

    end = min_u64 (align_down (pos, 512) + 512, offset + length);
    if (pos > offset &&
        hole != (memcmp (rig->bytes + pos, zeros, end - pos) == 0))
      break;
    hole = memcmp (rig->bytes + pos, zeros, end - pos) == 0;
  }
  *ret = (struct disk_extent) { pos - offset, hole };
  return 0;
}

static int
rig_readahead (struct disk *disk, uint64_t offset, uint64_t length)
{
  struct rig *rig = ((struct rig_disk *) disk)->rig;
  char place[70];

  rig_print_place (rig, offset, length, place, sizeof place);
  oplog_add (&rig->log, "  readahead %s", place);
  return 0;
}

static void
rig_disk_free (struct disk *disk)
{
  free (disk);
}

static const struct disk_ops rig_disk_ops = {
  .name = "rig", .submit = rig_submit, .extent = rig_extent,
  .readahead = rig_readahead, .free = rig_disk_free,
};

/* -- Threads ------------------------------------------------------------ */

static _Thread_local bool foreground;

static bool
is_background (void)
{
  return !foreground;
}

void
rig_set_foreground (void)
{
  foreground = true;
}

/* Has the record been made that was asked for, or will never be? */
static bool
thread_is_done (struct mirror *m)
{
  bool wanted;

  {
    SCOPED_LOCK (&m->lock);
    wanted = m->record_wanted && m->thread_runs;
  }
  SCOPED_LOCK (&m->intent_lock);
  return !wanted || commit_has_failed (m->commit);
}

void
rig_wait_for_thread (struct rig *rig)
{
  while (rig->fb && !thread_is_done (&rig->fb->mirror))
    sched_yield ();
  oplog_take_late (&rig->log);
}

/* -- Servers ----------------------------------------------------------- */

static void
notice (void *opaque, bool problem, const char *message)
{
  struct rig *rig = opaque;

  CHECK (strstr (message, "the record: ") != NULL);
  oplog_add (oplog_of_thread (&rig->log), "= %s", problem ? "problem" : "notice");
}

/* Over the rig's image and record, or others' (for rig_check()). */
static int
start_server (struct rig *rig, bool store)
{
  struct rig_disk *rd = calloc (1, sizeof *rd);

  CHECK (rd != NULL);
  rd->rig = rig;
  disk_init (&rd->disk, &rig_disk_ops, rig->size, 1, 1);
  rig->disk = rd;
  rig->store = store ? memory_store_new (&rig->record, &rig->log) : NULL;
  if (store)
    memcpy (rig->store->fail, rig->store_fails, sizeof rig->store_fails);
  return engine_new (&rd->disk, NULL, rig->store ? &rig->store->store : NULL,
                     &rig->options, &rig->fb);
}

int
rig_start (struct rig *rig, bool store)
{
  int r;

  CHECK (rig->fb == NULL);
  r = start_server (rig, store);
  if (r < 0) {
    rig->fb = NULL;
    rig->store = NULL;
  }
  return r;
}

void
rig_open (struct rig *rig)
{
  oplog_mute (&rig->log, true);
  CHECK_EQ (rig_start (rig, true), 0);
  oplog_mute (&rig->log, false);
  oplog_clear (&rig->log);
}

void
rig_close (struct rig *rig)
{
  fatbatch_close (rig->fb);
  rig->fb = NULL;
  rig->store = NULL;
}

/* What the server still does reaches neither the image nor the record. */
void
rig_crash (struct rig *rig)
{
  pthread_mutex_lock (&rig->lock);
  rig->disk->dead = true;
  pthread_mutex_unlock (&rig->lock);
  if (rig->store)
    rig->store->dead = true;
  rig_close (rig);
}

/* -- Checks ------------------------------------------------------------ */

static void
check_readers (struct rig *rig)
{
  uint8_t *buf = malloc (rig->size);

  CHECK (buf != NULL);
  CHECK_EQ (fatbatch_read (rig->fb, buf, rig->size, 0), 0);
  CHECK (memcmp (buf, rig->shadow, rig->size) == 0);
  free (buf);
}

/* A mirror's sector may have come back as FAT 1's (D5), nothing else. */
static void
check_recovered (const struct rig *rig, const uint8_t *got)
{
  uint64_t start, end, fat1, pos;
  unsigned v;

  for (pos = 0; pos < rig->size; pos += 512) {
    if (memcmp (got + pos, rig->shadow + pos, 512) == 0)
      continue;
    for (v = 0; v < rig->nr_volumes; ++v) {
      rig_region (&rig->volume[v], RIG_FAT1, &fat1, &end);
      rig_region (&rig->volume[v], RIG_FAT2, &start, &end);
      if (pos >= start && pos < end)
        break;
    }
    CHECK (v < rig->nr_volumes);
    CHECK (memcmp (got + pos, rig->shadow + (pos - start + fat1), 512) == 0);
  }
}

void
rig_adopt (struct rig *rig)
{
  if (rig->unsure)
    return;
  check_recovered (rig, rig->bytes);
  memcpy (rig->shadow, rig->bytes, rig->size);
}

/* Kill a copy of the server, and start another one. */
static void
check_kill (struct rig *rig)
{
  struct rig *copy = calloc (1, sizeof *copy);

  CHECK (copy != NULL);
  rig_init (copy, rig->size, rig->volume, rig->nr_volumes);
  memcpy (copy->bytes, rig->bytes, rig->size);
  copy->record = rig->record;
  rig_open (copy);
  CHECK_EQ (fatbatch_settle (copy->fb), 0);
  rig_close (copy);
  check_recovered (rig, copy->bytes);
  CHECK (!copy->record.exists);
  rig_release (copy);
  free (copy);
}

void
rig_check (struct rig *rig)
{
  bool muted = oplog_is_muted (&rig->log);

  if (rig->unsure || rig->quick || rig->nr_async > 0 ||
      rig->fail[DISK_READ].active)
    return;
  oplog_mute (&rig->log, true);
  if (rig->fb)
    check_readers (rig);
  check_kill (rig);
  oplog_mute (&rig->log, muted);
}

/* -- The image --------------------------------------------------------- */

static void
put_table (struct rig *rig)
{
  uint8_t *sector = rig->bytes;
  unsigned i;

  for (i = 0; i < rig->nr_volumes; ++i) {
    uint8_t *p = sector + 446 + 16 * i;

    p[4] = 0x0c;
    put_le32 (p + 8, rig->volume[i].start / 512);
    put_le32 (p + 12, fat_spec_size (&rig->volume[i].spec) / 512);
  }
  put_le16 (sector + 510, 0xaa55);
}

void
rig_init (struct rig *rig, uint64_t size, const struct rig_volume *volumes,
          unsigned nr)
{
  unsigned i;

  memset (rig, 0, sizeof *rig);
  oplog_init (&rig->log);
  oplog_init (&rig->late);
  rig->log.late = &rig->late;
  rig->log.is_background = is_background;
  rig_set_foreground ();
  pthread_mutex_init (&rig->lock, NULL);
  pthread_cond_init (&rig->released, NULL);
  rig->size = size;
  rig->bytes = calloc (1, size);
  rig->shadow = malloc (size);
  CHECK (rig->bytes != NULL && rig->shadow != NULL);
  rig->nr_volumes = nr;
  for (i = 0; i < nr; ++i) {
    rig->volume[i] = volumes[i];
    build_boot_sector (rig->bytes + volumes[i].start, &volumes[i].spec);
  }
  if (nr > 0 && volumes[0].start > 0)
    put_table (rig);
  memcpy (rig->shadow, rig->bytes, size);

  /* By itself the background does nothing, in the time that a test takes. */
  rig->options = (struct fatbatch_options) {
    .cache = FATBATCH_WRITEBACK, .durability = FATBATCH_DURABILITY_FAT,
    .mirror_delay_ms = 3600000, .mirror_batch = UINT64_C (1) << 30,
    .notice = notice, .notice_opaque = rig,
  };
}

void
rig_release (struct rig *rig)
{
  if (rig->fb)
    rig_crash (rig);
  pthread_cond_destroy (&rig->released);
  pthread_mutex_destroy (&rig->lock);
  oplog_release (&rig->log);
  oplog_release (&rig->late);
  free (rig->bytes);
  free (rig->shadow);
}
