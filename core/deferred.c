/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <string.h>
#include <time.h>

#include "byteorder.h"
#include "deferred.h"
#include "util.h"

/* -- Items --------------------------------------------------------------- */

static bool
is_free (const struct deferred_item *item)
{
  return item->sector == 0;     /* no FAT starts an image */
}

static struct deferred_item *
find_locked (struct deferred *d, uint64_t sector)
{
  unsigned i;

  for (i = 0; i < DEFERRED_MAX; ++i)
    if (d->item[i].sector == sector)
      return &d->item[i];
  return NULL;
}

static void
remove_locked (struct deferred *d, struct deferred_item *item)
{
  item->sector = 0;
  atomic_fetch_sub (&d->nr, 1);
}

static uint64_t
now_ns (void)
{
  struct timespec ts;

  clock_gettime (CLOCK_MONOTONIC, &ts);
  return ts.tv_sec * UINT64_C (1000000000) + ts.tv_nsec;
}

/* -- What refers to an item ---------------------------------------------- */

static bool
has_cluster (const struct deferred_item *item, uint32_t cluster)
{
  uint32_t n = cluster - item->first;

  return n < FAT_ENTRIES && fat_entries_has (&item->allocated, n);
}

/* Items other than the sector's own. */
static bool
any_has_locked (const struct deferred *d, uint32_t cluster,
                uint64_t own_sector)
{
  unsigned i;

  for (i = 0; i < DEFERRED_MAX; ++i)
    if (!is_free (&d->item[i]) && d->item[i].sector != own_sector &&
        has_cluster (&d->item[i], cluster))
      return true;
  return false;
}

static bool
fat_sector_refers (struct deferred *d, const struct disk_op *op)
{
  uint8_t buf[FAT_SECTOR];
  unsigned i;

  disk_iov_read (op->iov, op->iovcnt, 0, buf, sizeof buf);
  SCOPED_LOCK (&d->lock);
  for (i = 0; i < FAT_ENTRIES; ++i)
    if (any_has_locked (d, load_le32 (buf + 4 * i) & FAT_ENTRY_MASK,
                        op->offset))
      return true;
  return false;
}

/* Where a directory entry has its first cluster (Microsoft's fatgen103,
 * DIR_FstClusHI and DIR_FstClusLO).
 */
#define SLOT_SIZE 32
#define SLOT_HIGH 20
#define SLOT_LOW 26

static bool
slots_refer_locked (const struct deferred *d, const uint8_t *buf,
                    size_t count)
{
  const uint8_t *p;
  uint32_t cluster;

  for (p = buf; p < buf + count; p += SLOT_SIZE) {
    cluster = (uint32_t) load_le16 (p + SLOT_HIGH) << 16 |
      load_le16 (p + SLOT_LOW);
    if (any_has_locked (d, cluster & FAT_ENTRY_MASK, 0))
      return true;
  }
  return false;
}

/* A slot of which only a part is written may get its number from both. */
static bool
data_refers (struct deferred *d, const struct disk_op *op)
{
  uint8_t buf[4096];
  uint64_t pos;
  size_t n;

  if (op->offset % SLOT_SIZE != 0 || op->length % SLOT_SIZE != 0)
    return true;
  for (pos = 0; pos < op->length; pos += n) {
    n = min_u64 (sizeof buf, op->length - pos);
    disk_iov_read (op->iov, op->iovcnt, pos, buf, n);
    SCOPED_LOCK (&d->lock);
    if (slots_refer_locked (d, buf, n))
      return true;
  }
  return false;
}

/* -- Syncing -------------------------------------------------------------- */

uint64_t
deferred_moment (struct deferred *d)
{
  if (atomic_load (&d->nr) == 0)
    return 0;
  SCOPED_LOCK (&d->lock);
  return d->applied;
}

void
deferred_synced (struct deferred *d, uint64_t start, uint64_t end,
                 uint64_t moment)
{
  unsigned i;

  if (atomic_load (&d->nr) == 0)
    return;
  SCOPED_LOCK (&d->lock);
  for (i = 0; i < DEFERRED_MAX; ++i) {
    struct deferred_item *item = &d->item[i];

    if (!is_free (item) && !item->applying && item->applied <= moment &&
        start <= item->sector && item->sector + FAT_SECTOR <= end)
      remove_locked (d, item);
  }
}

/* The items that were made before `before`, as ranges, once they have been
 * applied.
 */
static unsigned
collect (struct deferred *d, uint64_t before, struct commit_range *ranges,
         uint64_t *moment)
{
  unsigned nr = 0, i;

  SCOPED_LOCK (&d->lock);
  for (i = 0; i < DEFERRED_MAX; ++i) {
    const struct deferred_item *item = &d->item[i];
    uint64_t sector = item->sector;

    if (is_free (item) || item->since > before)
      continue;
    while (item->sector == sector && item->applying)
      pthread_cond_wait (&d->changed, &d->lock);
    ranges[nr++] = (struct commit_range) { sector, sector + FAT_SECTOR };
  }
  *moment = d->applied;
  return nr;
}

static int
sync_made_before (struct deferred *d, uint64_t before,
                  enum stats_counter counter)
{
  struct commit_range ranges[DEFERRED_MAX];
  uint64_t moment;
  unsigned nr = collect (d, before, ranges, &moment), i;
  int r;

  if (nr == 0)
    return 0;
  stats_add (d->stats, counter, 1);
  r = commit_many (d->commit, ranges, nr);
  for (i = 0; r == 0 && i < nr; ++i)
    deferred_synced (d, ranges[i].start, ranges[i].end, moment);
  return r;
}

int
deferred_sync (struct deferred *d)
{
  return atomic_load (&d->nr) == 0 ? 0
    : sync_made_before (d, UINT64_MAX, STATS_deferred_forced);
}

int
deferred_before_data (struct deferred *d, const struct disk_op *op)
{
  return atomic_load (&d->nr) > 0 && op->kind == DISK_WRITE &&
    data_refers (d, op) ? deferred_sync (d) : 0;
}

int
deferred_before_fat1 (struct deferred *d, const struct disk_op *op)
{
  if (atomic_load (&d->nr) == 0)
    return 0;
  if (op->offset % FAT_SECTOR == 0 && op->length == FAT_SECTOR &&
      !fat_sector_refers (d, op))
    return 0;
  return deferred_sync (d);
}

/* -- The thread (rule 5) --------------------------------------------------- */

/* It looks a few times in each delay, at what is older than from one look to
 * the next, so that nobody has to wake it up for each item; and sleeps when
 * there has been none for so many looks.
 */
#define LOOKS 3
#define IDLE_LOOKS 20

static void
wait_locked (struct deferred *d, bool idle)
{
  uint64_t until = now_ns () + d->delay_ns / LOOKS;
  struct timespec ts = {
    .tv_sec = until / 1000000000, .tv_nsec = until % 1000000000,
  };

  if (!idle) {
    pthread_cond_timedwait (&d->wake, &d->lock, &ts);
    return;
  }
  d->idle = true;
  while (d->idle && !d->stop)
    pthread_cond_wait (&d->wake, &d->lock);
}

/* What fails here has been latched; requests are told. */
static void *
run (void *opaque)
{
  struct deferred *d = opaque;
  unsigned idle_looks = 0;
  bool failed = false;
  uint64_t before;

  pthread_mutex_lock (&d->lock);
  while (!d->stop) {
    idle_looks = atomic_load (&d->nr) == 0 ? idle_looks + 1 : 0;
    wait_locked (d, failed || idle_looks > IDLE_LOOKS);
    before = now_ns () - d->delay_ns / LOOKS;
    pthread_mutex_unlock (&d->lock);
    failed = commit_has_failed (d->commit);
    if (!failed)
      sync_made_before (d, before, STATS_deferred_expired);
    pthread_mutex_lock (&d->lock);
  }
  pthread_mutex_unlock (&d->lock);
  return NULL;
}

static bool
wake_thread_locked (struct deferred *d)
{
  if (!d->thread_runs)
    d->thread_runs = pthread_create (&d->thread, NULL, run, d) == 0;
  else if (d->idle) {
    d->idle = false;
    pthread_cond_signal (&d->wake);
  }
  return d->thread_runs;
}

/* -- Making them ------------------------------------------------------------ */

bool
deferred_begin (struct deferred *d, uint64_t sector, uint32_t first,
                const struct fat_entries *allocated, bool *made)
{
  struct deferred_item *item;

  *made = false;
  if (d->delay_ns == 0 || atomic_load (&d->paused) > 0)
    return false;
  {
    SCOPED_LOCK (&d->lock);
    item = find_locked (d, sector);
    if (!item) {
      item = find_locked (d, 0);
      if (!item || !wake_thread_locked (d))
        return false;
      *item = (struct deferred_item) {
        .sector = sector, .first = first, .since = now_ns (),
      };
      atomic_fetch_add (&d->nr, 1);
    }
    fat_entries_add (&item->allocated, allocated);
    item->applying = true;
    *made = true;
  }
  /* Rule 4.  One is the caller. */
  if (epoch_count (d->requests) > 1 || atomic_load (&d->paused) > 0)
    return false;
  stats_add (d->stats, STATS_commits_deferred, 1);
  return true;
}

void
deferred_applied (struct deferred *d, uint64_t sector)
{
  struct deferred_item *item;

  SCOPED_LOCK (&d->lock);
  item = find_locked (d, sector);
  item->applying = false;
  item->applied = ++d->applied;
  pthread_cond_broadcast (&d->changed);
}

void
deferred_pause (struct deferred *d)
{
  atomic_fetch_add (&d->paused, 1);
}

void
deferred_resume (struct deferred *d)
{
  atomic_fetch_sub (&d->paused, 1);
}

/* -- Beginning and end ------------------------------------------------------ */

void
deferred_init (struct deferred *d, struct commit *commit,
               struct epoch *requests, struct stats *stats,
               uint64_t delay_ns)
{
  pthread_condattr_t attr;

  memset (d, 0, sizeof *d);
  d->commit = commit;
  d->requests = requests;
  d->stats = stats;
  d->delay_ns = delay_ns;
  pthread_mutex_init (&d->lock, NULL);
  pthread_cond_init (&d->changed, NULL);
  pthread_condattr_init (&attr);
  pthread_condattr_setclock (&attr, CLOCK_MONOTONIC);
  pthread_cond_init (&d->wake, &attr);
  pthread_condattr_destroy (&attr);
}

void
deferred_release (struct deferred *d)
{
  {
    SCOPED_LOCK (&d->lock);
    d->stop = true;
    pthread_cond_signal (&d->wake);
  }
  if (d->thread_runs)
    pthread_join (d->thread, NULL);
  pthread_cond_destroy (&d->wake);
  pthread_cond_destroy (&d->changed);
  pthread_mutex_destroy (&d->lock);
}
