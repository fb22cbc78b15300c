/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <string.h>

#include "byteorder.h"
#include "deferred.h"
#include "monotonic.h"
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

/* -- Clusters that are named (rule 4) ------------------------------------ */

static void
name (struct deferred *d, uint32_t cluster)
{
  _Atomic uint64_t *word = &d->named[cluster % DEFERRED_NAMES / 64];
  uint64_t bit = UINT64_C (1) << cluster % 64;

  if (!(atomic_load_explicit (word, memory_order_relaxed) & bit))
    atomic_fetch_or_explicit (word, bit, memory_order_relaxed);
}

/* By a write that has left the epoch, or is the caller's own. */
static bool
is_named (struct deferred *d, uint32_t cluster)
{
  return atomic_load_explicit (&d->named[cluster % DEFERRED_NAMES / 64],
                               memory_order_relaxed) >> cluster % 64 & 1;
}

static bool
any_named (struct deferred *d, uint32_t first, const struct fat_entries *e)
{
  unsigned n;

  for (n = 0; n < FAT_ENTRIES; ++n)
    if (fat_entries_has (e, n) && is_named (d, first + n))
      return true;
  return false;
}

void
deferred_set_volume (struct deferred *d, uint32_t root_cluster,
                     uint32_t clusters_end)
{
  name (d, root_cluster);
  if (clusters_end > atomic_load (&d->clusters_end))
    atomic_store (&d->clusters_end, clusters_end);
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
any_has (struct deferred *d, uint32_t cluster, uint64_t own_sector)
{
  unsigned i;

  SCOPED_LOCK (&d->lock);
  for (i = 0; i < DEFERRED_MAX; ++i)
    if (!is_free (&d->item[i]) && d->item[i].sector != own_sector &&
        has_cluster (&d->item[i], cluster))
      return true;
  return false;
}

/* What is looked for, and noted. */
struct look {
  struct deferred *d;
  uint64_t own_sector;          /* for FAT 1; else 0 */
  bool refers;                  /* found: it may refer to an item */
};

static void
look_at_cluster (struct look *look, uint32_t cluster)
{
  name (look->d, cluster);
  if (!look->refers && atomic_load (&look->d->nr) > 0)
    look->refers = any_has (look->d, cluster, look->own_sector);
}

/* Where a directory entry has its first cluster (Microsoft's fatgen103,
 * DIR_FstClusHI and DIR_FstClusLO), and what tells that there is none: a name
 * that begins with 0 or 0xE5 (free), the attribute of labels and long names.
 * A number of more than 28 bits is no cluster's.
 */
#define SLOT_SIZE 32
#define SLOT_ATTR 11
#define SLOT_ATTR_LABEL 0x08
#define SLOT_HIGH 20
#define SLOT_LOW 26

static void
look_at_slots (struct look *look, const uint8_t *buf, size_t count,
               uint32_t clusters_end)
{
  const uint8_t *p;
  uint32_t cluster;

  for (p = buf; p < buf + count; p += SLOT_SIZE) {
    cluster = (uint32_t) load_le16 (p + SLOT_HIGH) << 16 |
      load_le16 (p + SLOT_LOW);
    if (cluster >= 2 && cluster < clusters_end && p[0] != 0 && p[0] != 0xe5 &&
        !(p[SLOT_ATTR] & SLOT_ATTR_LABEL))
      look_at_cluster (look, cluster);
  }
}

/* Entries of the FAT 1 that starts at `fat1` (0: not known), the first at byte
 * `pos` of the image.  before: NULL, or the bytes that they replace.  Within a
 * sector the recognition sees for itself what is named.
 */
static void
look_at_entries (struct look *look, const uint8_t *buf, const uint8_t *before,
                 size_t count, uint64_t pos, uint64_t fat1,
                 uint32_t clusters_end)
{
  uint32_t cluster, own;
  size_t i;

  for (i = 0; i < count; i += 4) {
    cluster = load_le32 (buf + i) & FAT_ENTRY_MASK;
    own = (pos + i - fat1) / FAT_SECTOR * FAT_ENTRIES;
    if (cluster >= 2 && cluster < clusters_end &&
        !(fat1 > 0 && cluster - own < FAT_ENTRIES) &&
        !(before && memcmp (buf + i, before + i, 4) == 0))
      look_at_cluster (look, cluster);
  }
}

/* Is there anything to be done for a write at all? */
static bool
is_off (const struct deferred *d)
{
  return d->delay_ns == 0;
}

/* A slot or entry of which only a part is written gets its number from both,
 * the old and the new bytes: nothing can be deferred any more, and what is
 * must be synced.
 */
static bool
splits (struct deferred *d, const struct disk_op *op, uint32_t unit)
{
  if (op->offset % unit == 0 && op->length % unit == 0)
    return false;
  atomic_store (&d->blind, true);
  return true;
}

#define LOOK_SIZE 4096

/* A write's slots, but for [start, end), which are entries of the FAT 1 at
 * `fat1`; if that is 0, of several, with slots in between.
 */
static bool
write_refers (struct deferred *d, const struct disk_op *op, uint64_t start,
              uint64_t end, uint64_t fat1, uint32_t clusters_end)
{
  uint64_t pos, op_end = op->offset + op->length, next;
  struct look look = { .d = d };
  uint8_t buf[LOOK_SIZE];
  const uint8_t *p;

  for (pos = op->offset; pos < op_end; pos = next) {
    bool entries = start <= pos && pos < end;

    next = min_u64 (pos + sizeof buf, op_end);
    if (entries)
      next = min_u64 (next, end);
    else if (pos < start)
      next = min_u64 (next, start);
    p = disk_iov_peek (op->iov, op->iovcnt, pos - op->offset, buf, next - pos);
    if (entries)
      look_at_entries (&look, p, NULL, next - pos, pos, fat1, clusters_end);
    if (!entries || fat1 == 0)
      look_at_slots (&look, p, next - pos, clusters_end);
  }
  return look.refers;
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
  r = counter == STATS_deferred_expired
    ? commit_background (d->commit, ranges, nr)
    : commit_many (d->commit, ranges, nr);
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

/* An aligned zero names nothing. */
int
deferred_before_data (struct deferred *d, const struct disk_op *op)
{
  uint32_t clusters_end = atomic_load (&d->clusters_end);

  if (is_off (d) || clusters_end == 0)
    return 0;
  if (splits (d, op, SLOT_SIZE) ||
      (op->kind == DISK_WRITE && write_refers (d, op, 0, 0, 0, clusters_end)))
    return deferred_sync (d);
  return 0;
}

int
deferred_before_fat1 (struct deferred *d, const struct disk_op *op,
                      uint64_t fat1, const uint8_t *before)
{
  struct look look = { .d = d, .own_sector = op->offset };
  uint8_t buf[FAT_SECTOR];

  if (is_off (d))
    return 0;
  if (op->length != FAT_SECTOR || (op->offset - fat1) % FAT_SECTOR != 0)
    return deferred_before_any (d, op, op->offset, op->offset + op->length,
                                fat1);
  look_at_entries (&look,
                   disk_iov_peek (op->iov, op->iovcnt, 0, buf, sizeof buf),
                   before, sizeof buf, op->offset, fat1,
                   atomic_load (&d->clusters_end));
  return look.refers ? deferred_sync (d) : 0;
}

/* The volumes may be others afterwards, so any number counts. */
int
deferred_before_any (struct deferred *d, const struct disk_op *op,
                     uint64_t start, uint64_t end, uint64_t fat1)
{
  if (is_off (d))
    return 0;
  if (!splits (d, op, op->offset >= start && op->offset + op->length <= end
               ? 4 : SLOT_SIZE) && op->kind == DISK_WRITE)
    write_refers (d, op, start, end, fat1, FAT_ENTRY_BAD);
  return deferred_sync (d);
}

/* -- The thread (rule 6) --------------------------------------------------- */

/* It looks a few times in each delay, at what is older than from one look to
 * the next, so that nobody has to wake it up for each item; and sleeps when
 * there has been none for so many looks.
 */
#define LOOKS 3
#define IDLE_LOOKS 20

static void
wait_locked (struct deferred *d, bool idle)
{
  if (!idle) {
    monotonic_wait (&d->wake, &d->lock,
                    monotonic_now () + d->delay_ns / LOOKS);
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
    before = monotonic_now () - d->delay_ns / LOOKS;
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
  if (is_off (d) || atomic_load (&d->paused) > 0 || atomic_load (&d->blind))
    return false;
  {
    SCOPED_LOCK (&d->lock);
    item = find_locked (d, sector);
    if (!item) {
      item = find_locked (d, 0);
      if (!item || !wake_thread_locked (d))
        return false;
      *item = (struct deferred_item) {
        .sector = sector, .first = first, .since = monotonic_now (),
      };
      atomic_fetch_add (&d->nr, 1);
    }
    fat_entries_add (&item->allocated, allocated);
    item->applying = true;
    *made = true;
  }
  /* Rules 5 and 4.  One is the caller. */
  if (epoch_count (d->requests) > 1 || atomic_load (&d->paused) > 0 ||
      atomic_load (&d->blind) || any_named (d, first, allocated))
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
  memset (d, 0, sizeof *d);
  d->commit = commit;
  d->requests = requests;
  d->stats = stats;
  d->delay_ns = delay_ns;
  pthread_mutex_init (&d->lock, NULL);
  pthread_cond_init (&d->changed, NULL);
  monotonic_cond_init (&d->wake);
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
