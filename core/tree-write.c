/* SPDX-License-Identifier: BSD-3-Clause */

/* The directory tree: what requests do.  The rules are in tree.h. */

#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "byteorder.h"
#include "dirents.h"
#include "fattable.h"
#include "tree.h"
#include "util.h"

/* -- What a write touches ------------------------------------------------- */

static uint32_t
cluster_at (const struct tree_volume *v, uint64_t pos)
{
  return (pos - v->data) / v->bpb.cluster_size + 2;
}

static void
add_clusters (struct tree_write *w, const struct region *region)
{
  const struct tree_volume *v = w->volume;
  uint32_t first = cluster_at (v, region->start);
  uint32_t last = cluster_at (v, region->end - 1);

  w->clusters = true;
  w->in_place = atomic_load (&v->taking) == 0 &&
    clusters_all (v->clusters, first, last, CLUSTER_SETTLED);
  w->directory = !w->in_place &&
    clusters_any (v->clusters, first, last, CLUSTER_DIRECTORY);
}

/* A write is to one volume; of one to several all are scanned anew, the others
 * from now on and its own when it has been done.
 */
void
tree_add (struct tree *t, struct tree_write *w, const struct disk_op *op,
          const struct layout *layout, const struct region *region)
{
  struct tree_set *set;
  struct tree_volume *v;

  if (region->kind != REGION_DATA &&
      (region->kind != REGION_FAT || region->fat != 0))
    return;
  set = atomic_load (&t->set);
  if (!set || set->layout != layout)
    return;
  v = &set->volume[region->volume];
  if (w->volume && w->volume != v)
    tree_doubt (t, w->volume);
  w->unknown |= w->volume && w->volume != v;
  w->volume = v;
  if (region->kind == REGION_DATA)
    add_clusters (w, region);
  else
    w->fat = true;
  if (w->fat && w->clusters)
    w->unknown = true;
  if ((w->fat || w->directory) &&
      (op->kind == DISK_DISCARD || op->length > TREE_WRITE_MAX))
    w->unknown = true;
}

static bool
is_structural (const struct tree_write *w)
{
  return w->fat || w->directory || w->unknown;
}

/* -- The ordered set ------------------------------------------------------ */

static void
enter_ordered (struct tree *t, struct tree_volume *v, uint64_t start,
               uint64_t end)
{
  SCOPED_LOCK (&v->lock);
  commit_ranges_add (&v->ordered, start, end);
  v->entered = atomic_fetch_add (&t->entered, 1) + 1;
  atomic_store (&v->has_ordered, true);
}

static void
note_loose (struct tree *t, struct tree_volume *v)
{
  uint64_t flushes = atomic_load (&t->flushes);

  if (atomic_load (&v->loose) != flushes)
    atomic_store (&v->loose, flushes);
}

/* Rule 6.  Who comes while it is being synced waits for that, too. */
static int
sync_ordered (struct tree *t, struct tree_volume *v)
{
  struct commit_ranges ranges;
  uint64_t entered;
  int r;

  if (!atomic_load (&v->has_ordered))
    return 0;
  SCOPED_LOCK (&v->order_lock);
  {
    SCOPED_LOCK (&v->lock);
    ranges = v->ordered;
    entered = v->entered;
    v->ordered.nr = 0;
    v->ordered.all = false;
  }
  if (ranges.nr == 0 && !ranges.all)
    return commit_has_failed (t->commit) ? -EIO : 0;
  stats_add (t->stats, STATS_ordered_syncs, 1);
  r = ranges.all ? commit_all (t->commit)
    : commit_many (t->commit, ranges.range, ranges.nr);
  SCOPED_LOCK (&v->lock);
  if (r == 0 && v->entered == entered)
    atomic_store (&v->has_ordered, false);
  return r;                     /* a failure is latched */
}

struct tree_moment
tree_moment (struct tree *t)
{
  return (struct tree_moment) {
    .entered = atomic_load (&t->entered),
    .flush = atomic_fetch_add (&t->flushes, 1) + 1,
  };
}

/* What came in meanwhile may not be durable, and keeps all the rest. */
void
tree_flushed (struct tree *t, struct tree_moment moment)
{
  epoch_token token = epoch_enter (t->requests);
  struct tree_set *set = atomic_load (&t->set);
  uint64_t flushed = atomic_load (&t->flushed);
  size_t i;

  while (flushed < moment.flush &&
         !atomic_compare_exchange_weak (&t->flushed, &flushed, moment.flush))
    ;
  for (i = 0; set && i < set->nr; ++i) {
    struct tree_volume *v = &set->volume[i];

    SCOPED_LOCK (&v->order_lock);
    SCOPED_LOCK (&v->lock);
    if (v->entered > moment.entered)
      continue;
    v->ordered.nr = 0;
    v->ordered.all = false;
    atomic_store (&v->has_ordered, false);
  }
  epoch_leave (token);
}

/* -- Before --------------------------------------------------------------- */

/* Whole slots or entries: the bytes that are about to be replaced. */
static int
read_before (struct tree *t, struct tree_write *w, const struct disk_op *op)
{
  uint64_t base = w->fat ? w->volume->fat1 : w->volume->data;
  uint64_t unit = w->fat ? 4 : DIRENT_SIZE;

  w->start = base + align_down (op->offset - base, unit);
  w->end = base + align_up (op->offset + op->length - base, unit);
  w->before = w->end - w->start <= sizeof w->sector ? w->sector
    : malloc (w->end - w->start);
  if (!w->before)
    return -ENOMEM;
  /* Bytes of entries that it has in part are others' to change. */
  if (w->fat && t->peek && w->start == op->offset &&
      w->end == op->offset + op->length &&
      t->peek (t->peek_opaque, w->before, w->start, w->end))
    return 0;
  return disk_read (t->disk, w->before, w->end - w->start, w->start);
}

int
tree_before (struct tree *t, struct tree_write *w, const struct disk_op *op,
             bool durable)
{
  bool structural = is_structural (w);
  int r;

  if (!w->volume)
    return 0;
  stats_add (t->stats, structural ? STATS_structural_writes
             : w->in_place ? STATS_inplace_writes : STATS_ordered_writes, 1);
  if (!t->parallel) {
    pthread_mutex_lock (&t->turn);
    w->takes_turn = true;
  }
  if (durable && !w->in_place) {
    r = sync_ordered (t, w->volume);
    if (r < 0)
      return r;
  }
  if (structural && !w->unknown && read_before (t, w, op) < 0)
    w->unknown = true;
  return 0;
}

/* -- After: FAT 1 --------------------------------------------------------- */

/* Rule 7.  Clusters are freed in ascending order mostly. */
static void
add_freed (struct tree_write *w, uint32_t n)
{
  const struct tree_volume *v = w->volume;
  uint64_t start = v->start + bpb_cluster_offset (&v->bpb, n);

  if (w->nr_runs > 0 && w->run[w->nr_runs - 1].end == start)
    w->run[w->nr_runs - 1].end += v->bpb.cluster_size;
  else if (w->nr_runs == TREE_RUNS)
    w->wait_for_all = true;
  else {
    w->run[w->nr_runs].start = start;
    w->run[w->nr_runs++].end = start + v->bpb.cluster_size;
  }
}

/* Rule 5. */
static void
resume_incomplete_locked (struct tree *t, struct tree_volume *v, uint32_t n)
{
  unsigned i;

  for (i = 0; i < v->nr_incomplete; ++i)
    if (v->incomplete[i].last == n) {
      tree_add_job_locked (t, v, v->incomplete[i].job);
      v->incomplete[i--] = v->incomplete[--v->nr_incomplete];
    }
}

static void
entry_changed_locked (struct tree *t, struct tree_write *w, uint32_t n,
                      uint32_t old, uint32_t new)
{
  struct tree_volume *v = w->volume;
  enum cluster_state state = clusters_get (v->clusters, n);

  if (new == 0) {
    if (state == CLUSTER_SETTLED)
      tree_owners_change_locked (t, v);
    v->breaks++;
    clusters_set (v->clusters, n, CLUSTER_FREE);
    add_freed (w, n);
  }
  else if (old == 0) {
    if (state == CLUSTER_FREE)
      clusters_set (v->clusters, n, CLUSTER_FRESH);
  }
  else if (old >= FAT_ENTRY_END) {
    if (state == CLUSTER_DIRECTORY && clusters_has (v->clusters, new))
      tree_add_job_locked (t, v, (struct tree_job) {
        .kind = TREE_GROW_DIRECTORY, .first = new
      });
  }
  else if (new >= FAT_ENTRY_END && state != CLUSTER_DIRECTORY) {
    tree_owners_change_locked (t, v);   /* what followed will be freed */
    tree_add_job_locked (t, v, (struct tree_job) {
      .kind = TREE_CUT, .first = old, .from = v->bpb.nr_clusters
    });
  }
  else
    tree_doubt_locked (t, v);
  resume_incomplete_locked (t, v, n);
}

/* Entry `at` of the write, old and new; false: it is not of a cluster, or has
 * not changed.
 */
static bool
changed_entry (const struct tree_write *w, const uint8_t *after, uint64_t at,
               uint32_t *n, uint32_t *old, uint32_t *new)
{
  *n = (w->start - w->volume->fat1 + at) / 4;
  *old = load_le32 (w->before + at) & FAT_ENTRY_MASK;
  *new = load_le32 (after + at) & FAT_ENTRY_MASK;
  return *old != *new && clusters_has (w->volume->clusters, *n);
}

/* Who gets a cluster gets a FREE or FRESH one; or it has been freed and
 * allocated again between two writes of its entry.
 */
static void
fat_changed_locked (struct tree *t, struct tree_write *w,
                    const uint8_t *after)
{
  struct tree_volume *v = w->volume;
  uint64_t at, size = w->end - w->start;
  uint32_t n, old, new;

  v->changes++;
  for (at = 0; at < size; at += 4)
    if (changed_entry (w, after, at, &n, &old, &new))
      entry_changed_locked (t, w, n, old, new);
  for (at = 0; at < size; at += 4)
    if (changed_entry (w, after, at, &n, &old, &new) && new != 0 &&
        clusters_has (v->clusters, new) &&
        clusters_get (v->clusters, new) >= CLUSTER_SETTLED)
      tree_doubt_locked (t, v);
}

/* -- After: directories --------------------------------------------------- */

static void
entry_added_locked (struct tree *t, struct tree_volume *v,
                    const struct dirent *d, uint64_t slot)
{
  if (d->kind == DIRENT_FILE)
    tree_add_job_locked (t, v, (struct tree_job) {
      .kind = TREE_ADD, .first = d->first,
      .to = tree_whole_clusters (v, d->size), .slot = slot
    });
  else if (d->kind == DIRENT_DIRECTORY)
    tree_add_job_locked (t, v, (struct tree_job) {
      .kind = TREE_ADD_DIRECTORY, .first = d->first, .slot = slot
    });
}

static void
entry_removed_locked (struct tree *t, struct tree_write *w,
                      const struct dirent *d, uint64_t slot)
{
  struct tree_volume *v = w->volume;

  if (d->kind == DIRENT_NOTHING)
    return;
  w->wait_for_all = true;
  tree_owners_change_locked (t, v);
  tree_drop_incomplete_locked (v, d->first);    /* not only with the job */
  tree_add_job_locked (t, v, (struct tree_job) {
    .kind = d->kind == DIRENT_FILE ? TREE_REMOVE : TREE_REMOVE_DIRECTORY,
    .first = d->first, .from = tree_whole_clusters (v, d->size), .slot = slot
  });
}

static void
size_changed_locked (struct tree *t, struct tree_write *w,
                     const struct dirent *old, const struct dirent *new,
                     uint64_t slot)
{
  struct tree_volume *v = w->volume;
  uint32_t from = tree_whole_clusters (v, old->size);
  uint32_t to = tree_whole_clusters (v, new->size);

  if (new->size < old->size)
    w->wait_for_all = true;
  if (from == to)
    return;
  if (to < from) {
    tree_owners_change_locked (t, v);
    tree_drop_incomplete_locked (v, old->first);
  }
  tree_add_job_locked (t, v, (struct tree_job) {
    .kind = from < to ? TREE_GROW : TREE_SHRINK, .first = old->first,
    .from = from, .to = to, .slot = slot
  });
}

static bool
same_chain (const struct dirent *a, const struct dirent *b)
{
  return a->kind == b->kind && a->first == b->first;
}

/* One slot; what was there goes before anything comes. */
static void
slot_changed_locked (struct tree *t, struct tree_write *w, uint64_t at,
                     const uint8_t *after, bool removals)
{
  struct tree_volume *v = w->volume;
  struct dirent old = dirent_parse (w->before + at, v->clusters->end);
  struct dirent new = dirent_parse (after + at, v->clusters->end);
  uint64_t slot = w->start + at;

  if (!same_chain (&old, &new)) {
    if (removals)
      entry_removed_locked (t, w, &old, slot);
    else
      entry_added_locked (t, v, &new, slot);
  }
  else if (!removals && old.kind == DIRENT_FILE)
    size_changed_locked (t, w, &old, &new, slot);
}

/* Only slots in directories' clusters count. */
static void
directory_changed_locked (struct tree *t, struct tree_write *w,
                          const uint8_t *after)
{
  const struct tree_volume *v = w->volume;
  uint64_t at;
  int removals;

  for (removals = 1; removals >= 0; --removals)
    for (at = 0; at < w->end - w->start; at += DIRENT_SIZE)
      if (memcmp (w->before + at, after + at, DIRENT_SIZE) != 0 &&
          clusters_get (v->clusters, cluster_at (v, w->start + at)) ==
          CLUSTER_DIRECTORY)
        slot_changed_locked (t, w, at, after, removals);
}

/* -- After ---------------------------------------------------------------- */

static void
structure_changed (struct tree *t, struct tree_write *w,
                   const struct disk_op *op, int result)
{
  CLEANUP_FREE uint8_t *allocated = NULL;
  size_t size = w->end - w->start;
  uint8_t sector[sizeof w->sector], *after = NULL;

  if (!w->unknown && result == 0)
    after = size <= sizeof sector ? sector : (allocated = malloc (size));
  if (!after) {
    w->wait_for_all = true;
    tree_doubt (t, w->volume);
    return;
  }
  memcpy (after, w->before, size);
  if (op->kind == DISK_WRITE)
    disk_iov_read (op->iov, op->iovcnt, 0,
                   after + (op->offset - w->start), op->length);
  else
    memset (after + (op->offset - w->start), 0, op->length);

  SCOPED_LOCK (&w->volume->lock);
  if (w->fat)
    fat_changed_locked (t, w, after);
  else
    directory_changed_locked (t, w, after);
}

void
tree_after (struct tree *t, struct tree_write *w, const struct disk_op *op,
            int result, bool durable)
{
  bool structural = is_structural (w);

  if (!w->volume)
    return;
  if (structural)
    structure_changed (t, w, op, result);
  if (w->in_place && !durable)
    note_loose (t, w->volume);
  if (w->clusters && !w->in_place && !durable && op->kind != DISK_DISCARD)
    enter_ordered (t, w->volume, op->offset, op->offset + op->length);
  if (w->takes_turn && !(structural && durable)) {
    pthread_mutex_unlock (&t->turn);
    w->takes_turn = false;
  }
  if (w->before != w->sector)
    free (w->before);
  w->before = NULL;
}

void
tree_finish (struct tree *t, struct tree_write *w)
{
  struct range range;
  unsigned i;

  if (w->takes_turn)
    pthread_mutex_unlock (&t->turn);
  w->takes_turn = false;
  if (w->nr_runs == 0 && !w->wait_for_all)
    return;
  stats_add (t->stats, STATS_truncate_waits, 1);
  if (w->wait_for_all)
    epoch_wait (t->requests);
  for (i = 0; i < w->nr_runs; ++i) {
    range_lock (t->ranges, &range, w->run[i].start, w->run[i].end, false);
    range_unlock (t->ranges, &range);
  }
}
