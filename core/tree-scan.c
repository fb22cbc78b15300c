/* SPDX-License-Identifier: BSD-3-Clause */

/* The directory tree: the thread's work.  The rules are in tree.h. */

#include <config.h>

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "byteorder.h"
#include "dirents.h"
#include "fattable.h"
#include "monotonic.h"
#include "tree-walk.h"
#include "util.h"

#define FAT_CHUNK (64 * 1024)   /* bytes: what is read at once */

/* Directories that are known and not read yet; more stay unknown. */
#define TODO_MAX (1024 * 1024)
/* Directories' clusters for which requests are waited for together. */
#define BATCH (16 * 1024)

#define PAUSE_NS 200000

#define SCAN_PAUSE_NS UINT64_C (100000000)

/* While there are requests a scan leaves them most of the processor. */
static void
give_way (struct walk *k)
{
  uint64_t requests = stats_get (k->t->stats, STATS_writes) +
    stats_get (k->t->stats, STATS_reads);

  if (requests != k->requests)
    nanosleep (&(struct timespec) { .tv_nsec = PAUSE_NS }, NULL);
  k->requests = requests;
}

/* -- Entries -------------------------------------------------------------- */

/* Rule 9: this entry is there, with that size. */
static void
note_entry (struct walk *k, const struct tree_job *job)
{
  struct tree_volume *v = k->v;
  struct tree_entry *e;

  if (job->slot == 0)
    return;
  for (e = v->entry; e < v->entry + TREE_ENTRIES; ++e)
    if (e->slot == job->slot)
      break;
  if (e == v->entry + TREE_ENTRIES) {
    if (job->kind != TREE_ADD && job->kind != TREE_ADD_DIRECTORY)
      return;                   /* it is older */
    e = &v->entry[v->next_entry];
    v->next_entry = (v->next_entry + 1) % TREE_ENTRIES;
  }
  *e = (struct tree_entry) {
    job->slot, job->first, job->to, job->kind == TREE_ADD_DIRECTORY
  };
}

/* One of those that lead to the chain, or NULL. */
static const struct tree_entry *
find_entry (const struct tree_volume *v, uint32_t first)
{
  const struct tree_entry *e = v->entry + TREE_ENTRIES;

  while (e-- > v->entry)
    if (e->slot != 0 && e->first == first)
      return e;
  return NULL;
}

/* This entry is gone.  Returns another one that leads to its chain, or NULL. */
static const struct tree_entry *
forget_entry (struct walk *k, const struct tree_job *job)
{
  struct tree_volume *v = k->v;
  struct tree_entry *e;

  for (e = v->entry; e < v->entry + TREE_ENTRIES; ++e)
    if (e->slot == job->slot && e->first == job->first)
      memset (e, 0, sizeof *e);
  return find_entry (v, job->first);
}

/* -- Directories ---------------------------------------------------------- */

static void
add_todo (struct walk *k, uint32_t first)
{
  if (k->nr_todo == k->todo_size) {
    size_t size = k->todo_size ? 2 * k->todo_size : 1024;
    uint32_t *todo = size > TODO_MAX ? NULL
      : realloc (k->todo, size * sizeof *todo);

    if (!todo)
      return;
    k->todo = todo;
    k->todo_size = size;
  }
  k->todo[k->nr_todo++] = first;
}

/* The chain from `first` on is a directory's: -> DIRECTORY, and into the batch.
 * False: it has broken; then again from the beginning.
 */
static bool
mark_directory_once (struct walk *k, uint32_t first, bool again)
{
  struct tree_volume *v = k->v;
  struct tree_job job = { .kind = TREE_GROW_DIRECTORY };
  uint64_t breaks = walk_breaks (k);
  uint32_t next = first, last = 0, seen = 0, steps;

  for (steps = 0; steps < v->clusters->end && !walk_must_end (k); ++steps) {
    bool known;

    SCOPED_LOCK (&v->lock);
    if (v->breaks != breaks)
      return v->stale;
    if (!clusters_has (k->v->clusters, next)) {
      if (last != 0 && walk_entry_now (k, last) != seen)
        tree_doubt_locked (k->t, v);
      return true;
    }
    /* As it is now: who adds to it later sees that it is a directory. */
    seen = walk_entry_now (k, next);
    if (seen == 0) {
      job.first = next;
      walk_note_incomplete_locked (k, &job, next, 0);
      return true;
    }
    known = clusters_get (v->clusters, next) == CLUSTER_DIRECTORY;
    if (known && !again)
      return true;
    if (!known && k->nr_batch == BATCH) {
      add_todo (k, next);
      return true;
    }
    if (!known) {
      clusters_set (v->clusters, next, CLUSTER_DIRECTORY);
      k->batch[k->nr_batch++] = next;
    }
    last = next;
    next = seen;
  }
  return true;
}

static void
found_entry (struct walk *k, const struct dirent *d, uint64_t slot)
{
  struct tree_job job = {
    .kind = TREE_ADD, .first = d->first,
    .to = tree_whole_clusters (k->v, d->size), .slot = slot
  };

  if (!k->scanning)             /* then all are old */
    note_entry (k, &job);
  if (d->kind == DIRENT_FILE && job.to > 0)
    walk_settle (k, &job);
  else if (d->kind == DIRENT_DIRECTORY &&
           clusters_get (k->v->clusters, d->first) != CLUSTER_DIRECTORY)
    add_todo (k, d->first);
}

static void
read_directory_cluster (struct walk *k, uint32_t n)
{
  struct tree_volume *v = k->v;
  size_t size = v->bpb.cluster_size, at;
  uint64_t start = v->start + bpb_cluster_offset (&v->bpb, n);
  CLEANUP_FREE uint8_t *bytes = malloc (size);

  if (!bytes || disk_read (k->t->disk, bytes, size, start) < 0)
    return;
  for (at = 0; at < size && !walk_must_end (k); at += DIRENT_SIZE) {
    struct dirent d = dirent_parse (bytes + at, v->clusters->end);

    if (d.kind != DIRENT_NOTHING)
      found_entry (k, &d, start + at);
  }
}

/* All that is in todo, and what is found in there. */
static void
read_directories (struct walk *k)
{
  size_t i;
  unsigned tries;

  k->batch = malloc (BATCH * sizeof *k->batch);
  while (k->batch && k->nr_todo > 0 && !walk_must_end (k)) {
    k->nr_batch = 0;
    while (k->nr_todo > 0 && k->nr_batch < BATCH && !walk_must_end (k)) {
      uint32_t first = k->todo[--k->nr_todo];

      for (tries = 0; tries < WALK_TRIES; ++tries)
        if (mark_directory_once (k, first, tries > 0))
          break;
      if (tries == WALK_TRIES)
        tree_doubt (k->t, k->v);
    }
    epoch_wait (k->t->requests);        /* rule 4 */
    for (i = 0; i < k->nr_batch && !walk_must_end (k); ++i) {
      read_directory_cluster (k, k->batch[i]);
      give_way (k);
    }
    stats_add (k->t->stats, STATS_tree_directory_clusters, k->nr_batch);
  }
  free (k->batch);
  free (k->todo);
  k->todo = NULL;
  k->nr_todo = k->todo_size = 0;
}

/* -- Jobs ----------------------------------------------------------------- */

static void
drop_incomplete (struct tree_volume *v, uint32_t first)
{
  SCOPED_LOCK (&v->lock);
  tree_drop_incomplete_locked (v, first);
}

static void
remove_directory (struct walk *k, uint32_t first)
{
  uint32_t next = first, steps = 0;
  uint64_t breaks = walk_breaks (k);

  k->block = 0;
  while (clusters_has (k->v->clusters, next) && !walk_must_end (k) &&
         steps++ < k->v->clusters->end) {
    SCOPED_LOCK (&k->v->lock);
    tree_drop_incomplete_locked (k->v, next);
    if (clusters_get (k->v->clusters, next) != CLUSTER_DIRECTORY)
      break;
    if (k->v->breaks != breaks)
      k->block = 0;
    clusters_set (k->v->clusters, next, walk_entry (k, next) == 0
                  ? CLUSTER_FREE : CLUSTER_FRESH);
    next = walk_entry (k, next);
  }
}

static void
remove_entry (struct walk *k, struct tree_job *job)
{
  const struct tree_entry *other = forget_entry (k, job);

  drop_incomplete (k->v, job->first);
  if (other && other->directory != (job->kind == TREE_REMOVE_DIRECTORY))
    tree_doubt (k->t, k->v);    /* the cluster has been freed in between */
  else if (job->kind == TREE_REMOVE) {
    if (other) {
      job->to = other->to;      /* maybe with another size */
      job->slot = other->slot;
    }
    walk_unsettle (k, job);
    if (other)
      walk_settle (k, job);
  }
  else if (!other)
    remove_directory (k, job->first);
}

/* A job that was incomplete may be older than what its entry says now. */
static bool
entry_is_there (struct walk *k, struct tree_job *job)
{
  uint8_t slot[DIRENT_SIZE];
  struct dirent d;

  if (job->slot == 0)
    return true;
  if (disk_read (k->t->disk, slot, sizeof slot, job->slot) < 0)
    return false;
  d = dirent_parse (slot, k->v->clusters->end);
  if (d.kind != DIRENT_FILE || d.first != job->first)
    return false;
  job->to = tree_whole_clusters (k->v, d.size);
  return true;
}

/* A new entry leads to a chain that is some file's already.  If that is not one
 * of those that have come lately, it may be renamed, or its clusters may have
 * been freed and allocated again where nobody could see it.
 */
static bool
is_surprise (const struct walk *k, const struct tree_job *job)
{
  return clusters_get (k->v->clusters, job->first) == CLUSTER_SETTLED &&
    !find_entry (k->v, job->first);
}

/* No chain leads there any more, but it may be another's beginning. */
static void
cut (struct walk *k, struct tree_job *job)
{
  const struct tree_entry *other = forget_entry (k, job);

  walk_unsettle (k, job);
  if (other && !other->directory) {
    job->to = other->to;
    walk_settle (k, job);
  }
}

static void
do_job (struct walk *k, struct tree_job *job)
{
  bool takes = tree_job_takes (job);

  switch (job->kind) {
  case TREE_ADD:
  case TREE_GROW:
    if (job->kind == TREE_GROW && !entry_is_there (k, job))
      break;
    if (job->kind == TREE_ADD && is_surprise (k, job)) {
      tree_doubt (k->t, k->v);
      break;
    }
    note_entry (k, job);
    walk_settle (k, job);
    break;
  case TREE_SHRINK:
    note_entry (k, job);
    drop_incomplete (k->v, job->first);
    walk_unsettle (k, job);
    walk_settle (k, job);       /* if it is longer than its chain still */
    break;
  case TREE_ADD_DIRECTORY:
  case TREE_GROW_DIRECTORY:
    note_entry (k, job);
    add_todo (k, job->first);
    read_directories (k);
    break;
  case TREE_REMOVE:
  case TREE_REMOVE_DIRECTORY:
    remove_entry (k, job);
    break;
  case TREE_CUT:
    cut (k, job);
    break;
  }
  if (takes)
    atomic_fetch_sub (&k->v->taking, 1);
}

/* -- Scans ---------------------------------------------------------------- */

static bool
is_hole (struct tree *t, uint64_t start, uint64_t count)
{
  struct disk_extent extent;

  return t->disk->ops->extent &&
    t->disk->ops->extent (t->disk, start, count, &extent) == 0 &&
    extent.hole && extent.length >= count;
}

static void
read_entries (struct walk *k, uint64_t at, size_t count, uint8_t *bytes)
{
  uint64_t start = k->v->fat1 + at;

  if (is_hole (k->t, start, count) ||
      disk_read (k->t->disk, bytes, count, start) < 0)
    memset (bytes, 0, count);
}

/* FREE or not: the entries of a piece of FAT 1.  A request that has changed it
 * either has come to the lock since it was read, and then it is read again, or
 * will.
 */
static void
scan_entries (struct walk *k, uint64_t at, size_t count, uint8_t *bytes)
{
  struct tree_volume *v = k->v;
  uint32_t n = at / 4, end = min_u64 (n + count / 4, v->clusters->end);
  uint64_t changes;
  size_t i;

  {
    SCOPED_LOCK (&v->lock);
    changes = v->changes;
  }
  read_entries (k, at, count, bytes);
  SCOPED_LOCK (&v->lock);
  if (v->changes != changes)
    read_entries (k, at, count, bytes);
  clusters_know (v->clusters, n);
  if (all_zero (bytes, count) && n >= 2 &&
      clusters_all (v->clusters, n, end - 1, CLUSTER_FREE))
    return;                     /* most of a FAT */
  for (i = 0; n < end; ++n, i += 4) {
    bool free = (load_le32 (bytes + i) & FAT_ENTRY_MASK) == 0;

    if (free != (clusters_get (v->clusters, n) == CLUSTER_FREE))
      clusters_set (v->clusters, n, free ? CLUSTER_FREE : CLUSTER_FRESH);
  }
}

static void
scan_fat (struct walk *k)
{
  CLEANUP_FREE uint8_t *bytes = malloc (FAT_CHUNK);
  uint64_t size = (uint64_t) k->v->clusters->end * 4, at;

  for (at = 0; bytes && at < size && !walk_must_end (k); at += FAT_CHUNK) {
    scan_entries (k, at, min_u64 (FAT_CHUNK, bpb_fat_size (&k->v->bpb) - at),
                  bytes);
    give_way (k);
  }
}

static void
scan_volume (struct walk *k)
{
  struct tree_volume *v = k->v;
  uint64_t began = monotonic_now (), took;

  stats_add (k->t->stats, STATS_tree_scans, 1);
  memset (v->file, 0, sizeof v->file);
  v->crossed = false;
  memset (v->entry, 0, sizeof v->entry);
  k->scanning = true;
  k->extra_steps = WALK_EXTRA_STEPS + v->bpb.nr_clusters;
  scan_fat (k);
  add_todo (k, v->bpb.root_cluster);
  read_directories (k);
  k->scanning = false;
  took = monotonic_now () - began;
  stats_add (k->t->stats, STATS_tree_scan_ns, took);

  SCOPED_LOCK (&v->lock);
  v->scan_at = began + took + max_u64 (SCAN_PAUSE_NS, 10 * took);
  if (walk_must_end (k) && !v->stale) {  /* unfinished */
    atomic_store (&v->stale, true);
    clusters_unsettle (v->clusters);
    v->scan_at = 0;
  }
}

enum work { WORK_NONE, WORK_LATER, WORK_SCAN, WORK_JOB };

static enum work
next_work_locked (struct tree_volume *v, struct tree_job *job)
{
  if (v->stale) {
    v->nr_jobs = v->nr_incomplete = 0;
    atomic_store (&v->taking, 0);
    if (monotonic_now () < v->scan_at)
      return WORK_LATER;
    atomic_store (&v->stale, false);
    return WORK_SCAN;
  }
  if (v->nr_jobs == 0)
    return WORK_NONE;
  *job = v->job[v->next_job];
  v->next_job = (v->next_job + 1) % TREE_JOBS;
  v->nr_jobs--;
  return WORK_JOB;
}

uint64_t
tree_work (struct tree *t, struct tree_volume *v)
{
  CLEANUP_FREE struct walk *k = calloc (1, sizeof *k);
  struct tree_job job;
  enum work work;
  uint64_t began;

  if (!k)
    return monotonic_now () + SCAN_PAUSE_NS;
  k->t = t;
  k->v = v;
  while (!walk_must_rest (t)) {
    {
      SCOPED_LOCK (&v->lock);
      work = next_work_locked (v, &job);
      if (work == WORK_LATER)
        return v->scan_at;
    }
    if (work == WORK_NONE)
      return UINT64_MAX;
    k->block = 0;
    if (work == WORK_SCAN)
      scan_volume (k);
    else {
      began = monotonic_now ();
      do_job (k, &job);
      v->jobs_ns += monotonic_now () - began;
    }
  }
  return 0;
}
