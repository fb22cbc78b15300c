/* SPDX-License-Identifier: BSD-3-Clause */

/* The directory tree: the thread's work.  The rules are in tree.h. */

#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "byteorder.h"
#include "dirents.h"
#include "fattable.h"
#include "monotonic.h"
#include "tree.h"
#include "util.h"

#define FAT_BLOCK 4096          /* bytes: what a walk reads at once */
#define FAT_CHUNK (64 * 1024)   /* bytes: what a scan does */
#define CHUNK 1024              /* clusters that are written down together */
#define TRIES 8                 /* of a walk, when its chain breaks */

/* Directories that are known and not read yet; more stay unknown. */
#define TODO_MAX (1024 * 1024)
/* Directories' clusters for which requests are waited for together. */
#define BATCH (16 * 1024)

/* Steps along chains that have been walked before, in a scan, beyond one for
 * each cluster: where chains meet, or are loops.
 */
#define EXTRA_STEPS (1024 * 1024)

#define PAUSE_NS 200000

#define SCAN_PAUSE_NS UINT64_C (1000000000)

struct walk {
  struct tree *t;
  struct tree_volume *v;
  bool scanning;                /* the whole volume */
  uint64_t requests;            /* so many there have been */
  uint64_t extra_steps;         /* left, if scanning */

  uint64_t block;               /* byte of the image; 0: none */
  uint8_t bytes[FAT_BLOCK];

  uint32_t cluster[CHUNK];      /* walked, and not written down yet */
  unsigned nr;

  uint32_t *todo;               /* directories' first clusters */
  size_t nr_todo, todo_size;
  uint32_t *batch;              /* directories' clusters to be read */
  size_t nr_batch;
};

static bool
is_cluster (const struct walk *k, uint32_t n)
{
  return n >= 2 && n < k->v->clusters->end;
}

static bool
must_rest (const struct tree *t)
{
  return atomic_load (&t->stop) || atomic_load (&t->paused);
}

/* Or what is being done has become vain. */
static bool
must_end (const struct walk *k)
{
  return must_rest (k->t) || atomic_load (&k->v->stale);
}

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

/* -- FAT 1 ---------------------------------------------------------------- */

/* 0 if it can't be read: the chain ends there. */
static uint32_t
entry (struct walk *k, uint32_t n)
{
  uint64_t pos = k->v->fat1 + (uint64_t) n * 4;
  uint64_t block = k->v->fat1 + align_down (pos - k->v->fat1, FAT_BLOCK);

  if (k->block != block) {
    size_t count = min_u64 (FAT_BLOCK, k->v->fat1 +
                            bpb_fat_size (&k->v->bpb) - block);

    memset (k->bytes, 0, sizeof k->bytes);
    if (disk_read (k->t->disk, k->bytes, count, block) < 0)
      memset (k->bytes, 0, sizeof k->bytes);
    k->block = block;
  }
  return load_le32 (k->bytes + (pos - block)) & FAT_ENTRY_MASK;
}

static uint32_t
entry_now (struct walk *k, uint32_t n)
{
  k->block = 0;
  return entry (k, n);
}

/* -- Walks ----------------------------------------------------------------- */

/* Write down what was walked, as SETTLED or FRESH; lock is held.  False: a chain
 * has broken since `breaks`, and nothing was written down.  (A cluster may be
 * FREE still: who has allocated it is on its way to the lock.)
 */
static bool
write_down_locked (struct walk *k, uint64_t breaks, enum cluster_state state)
{
  struct tree_volume *v = k->v;
  unsigned i;

  if (v->breaks != breaks && !v->stale)
    return false;
  for (i = 0; i < k->nr && !v->stale; ++i) {
    enum cluster_state old = clusters_get (v->clusters, k->cluster[i]);

    if (k->scanning && (old == CLUSTER_SETTLED || old == CLUSTER_DIRECTORY))
      v->crossed = true;
    if (state == CLUSTER_FRESH ? old == CLUSTER_SETTLED
        : old == CLUSTER_FREE || old == CLUSTER_FRESH)
      clusters_set (v->clusters, k->cluster[i], state);
  }
  k->nr = 0;
  return true;
}

static bool
write_down (struct walk *k, uint64_t breaks, enum cluster_state state)
{
  SCOPED_LOCK (&k->v->lock);
  return write_down_locked (k, breaks, state);
}

static uint64_t
breaks_now (struct walk *k)
{
  SCOPED_LOCK (&k->v->lock);
  return k->v->breaks;
}

/* Rule 5.  `last` is where the chain ended too early.  False: its entry has
 * changed meanwhile.
 */
static bool
note_incomplete_locked (struct walk *k, const struct tree_job *job,
                        uint32_t last, uint32_t seen)
{
  struct tree_volume *v = k->v;
  unsigned i;

  if (entry_now (k, last) != seen)
    return false;
  for (i = 0; i < v->nr_incomplete; ++i)
    if (v->incomplete[i].job.first == job->first &&
        v->incomplete[i].last == last)
      break;
  if (i == TREE_INCOMPLETE)
    return true;                /* advice: the next scan will find it */
  v->incomplete[i] = (struct tree_incomplete) { *job, last };
  if (i == v->nr_incomplete)
    v->nr_incomplete++;
  return true;
}

/* Where a walk along a file's chain may begin. */
static struct tree_file *
find_file (struct walk *k, uint32_t first, uint64_t breaks)
{
  struct tree_volume *v = k->v;
  struct tree_file *f, *oldest = &v->file[0];

  for (f = v->file; f < v->file + TREE_FILES; ++f) {
    if (f->first == first)
      break;
    if (f->used < oldest->used)
      oldest = f;
  }
  if (f == v->file + TREE_FILES)
    f = oldest;
  if (f->first != first || f->breaks != breaks)
    *f = (struct tree_file) { .first = first, .breaks = breaks };
  f->used = ++v->files_used;
  return f;
}

/* In a scan: may a step be made to a cluster that was walked before? */
static bool
may_step (struct walk *k, uint32_t n)
{
  if (!k->scanning || clusters_get (k->v->clusters, n) == CLUSTER_FRESH)
    return true;
  if (k->extra_steps == 0)
    return false;
  k->extra_steps--;
  return true;
}

/* Go on to cluster job->to of the chain.  False: it has broken. */
static bool
settle_once (struct walk *k, struct tree_job *job)
{
  uint64_t breaks = breaks_now (k);
  struct tree_file *f = find_file (k, job->first, breaks);
  uint32_t next, seen;

  k->block = 0;
  k->nr = 0;
  next = f->n > 0 ? entry (k, f->last) : job->first;
  while (f->n < job->to && !must_end (k)) {
    if (is_cluster (k, next) && (seen = entry (k, next)) != 0 &&
        may_step (k, next)) {
      k->cluster[k->nr++] = next;
      f->last = next;
      f->n++;
      next = seen;
      if (k->nr == CHUNK && !write_down (k, breaks, CLUSTER_SETTLED))
        return false;
      continue;
    }
    /* The chain ends: at a cluster that is not allocated, or behind one. */
    if (is_cluster (k, next) && entry (k, next) != 0)
      break;
    SCOPED_LOCK (&k->v->lock);
    if (!write_down_locked (k, breaks, CLUSTER_SETTLED))
      return false;
    if (is_cluster (k, next)
        ? note_incomplete_locked (k, job, next, 0)
        : f->n > 0 && note_incomplete_locked (k, job, f->last, next))
      break;
    if (!is_cluster (k, next)) {
      if (f->n == 0)
        break;
      next = entry (k, f->last);
    }
  }
  return write_down (k, breaks, CLUSTER_SETTLED);
}

static void
forget_file (struct walk *k, uint32_t first)
{
  struct tree_file *f;

  for (f = k->v->file; f < k->v->file + TREE_FILES; ++f)
    if (f->first == first)
      memset (f, 0, sizeof *f);
}

static void
doubt (struct walk *k)
{
  SCOPED_LOCK (&k->v->lock);
  tree_doubt_locked (k->t, k->v);
}

static void
settle (struct walk *k, struct tree_job *job)
{
  unsigned i;

  job->kind = TREE_GROW;
  job->to = min_u64 (job->to, k->v->bpb.nr_clusters);   /* longer: a loop */
  for (i = 0; i < TRIES && !must_end (k); ++i) {
    if (settle_once (k, job))
      return;
    forget_file (k, job->first);
  }
  if (!must_end (k))
    doubt (k);                  /* later, when it is quieter */
}

/* Rule 3 is for what is added. */
static void
take_back (struct walk *k)
{
  SCOPED_LOCK (&k->v->lock);
  write_down_locked (k, k->v->breaks, CLUSTER_FRESH);
}

/* Clusters `to` up to `from` of a chain are not in front of an end any more.
 * What is freed meanwhile needs nothing.
 */
static void
unsettle (struct walk *k, const struct tree_job *job)
{
  uint32_t next = job->first, n;

  if (k->v->crossed) {
    doubt (k);
    return;
  }
  forget_file (k, job->first);
  k->block = 0;
  k->nr = 0;
  for (n = 0; n < job->from && is_cluster (k, next) && !must_end (k); ++n) {
    if (n >= job->to)
      k->cluster[k->nr++] = next;
    if (k->nr == CHUNK)
      take_back (k);
    next = entry (k, next);
  }
  take_back (k);
}

/* -- Entries ---------------------------------------------------------------- */

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
  *e = (struct tree_entry) { job->slot, job->first, job->to };
}

/* This entry is gone.  Returns another one that leads to its chain, or NULL. */
static const struct tree_entry *
forget_entry (struct walk *k, const struct tree_job *job)
{
  struct tree_volume *v = k->v;
  const struct tree_entry *other = NULL;
  struct tree_entry *e;

  for (e = v->entry; e < v->entry + TREE_ENTRIES; ++e)
    if (e->slot == job->slot && e->first == job->first)
      memset (e, 0, sizeof *e);
    else if (e->slot != 0 && e->first == job->first)
      other = e;
  return other;
}

/* -- Directories ------------------------------------------------------------ */

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
 * False: it has broken.
 */
static bool
mark_directory_once (struct walk *k, uint32_t first)
{
  struct tree_volume *v = k->v;
  struct tree_job job = { .kind = TREE_GROW_DIRECTORY, .first = first };
  uint64_t breaks = breaks_now (k);
  uint32_t next = first, last = 0, seen = 0;
  size_t begin = k->nr_batch;

  k->block = 0;
  while (!must_end (k)) {
    SCOPED_LOCK (&v->lock);
    if (v->stale)
      return true;
    if (v->breaks != breaks) {
      k->nr_batch = begin;
      return false;
    }
    k->block = 0;               /* as it is now: who adds to it later sees
                                   that it is a directory */
    if (!is_cluster (k, next)) {
      if (last != 0 && entry_now (k, last) != seen)
        tree_doubt_locked (k->t, v);
      return true;
    }
    seen = entry (k, next);
    if (seen == 0) {
      job.first = next;
      note_incomplete_locked (k, &job, next, 0);
      return true;
    }
    if (clusters_get (v->clusters, next) == CLUSTER_DIRECTORY)
      return true;
    if (k->nr_batch == BATCH) {
      add_todo (k, next);
      return true;
    }
    clusters_set (v->clusters, next, CLUSTER_DIRECTORY);
    k->batch[k->nr_batch++] = next;
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
    .to = d->size / k->v->bpb.cluster_size, .slot = slot
  };

  if (!k->scanning)             /* then all are old */
    note_entry (k, &job);
  if (d->kind == DIRENT_FILE && job.to > 0)
    settle (k, &job);
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
  for (at = 0; at < size && !must_end (k); at += DIRENT_SIZE) {
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
  while (k->batch && k->nr_todo > 0 && !must_end (k)) {
    k->nr_batch = 0;
    while (k->nr_todo > 0 && k->nr_batch < BATCH && !must_end (k)) {
      uint32_t first = k->todo[--k->nr_todo];

      for (tries = 0; tries < TRIES; ++tries)
        if (mark_directory_once (k, first))
          break;
    }
    epoch_wait (k->t->requests);        /* rule 4 */
    for (i = 0; i < k->nr_batch && !must_end (k); ++i) {
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

/* -- Jobs ------------------------------------------------------------------- */

static void
drop_incomplete (struct tree_volume *v, uint32_t first)
{
  unsigned i;

  SCOPED_LOCK (&v->lock);
  for (i = 0; i < v->nr_incomplete; ++i)
    if (v->incomplete[i].job.first == first)
      v->incomplete[i--] = v->incomplete[--v->nr_incomplete];
}

static void
remove_directory (struct walk *k, uint32_t first)
{
  uint32_t next = first, steps = 0;
  uint64_t breaks = breaks_now (k);

  k->block = 0;
  while (is_cluster (k, next) && !must_end (k) &&
         clusters_get (k->v->clusters, next) == CLUSTER_DIRECTORY &&
         steps++ < k->v->clusters->end) {
    SCOPED_LOCK (&k->v->lock);
    if (k->v->breaks != breaks)
      k->block = 0;
    clusters_set (k->v->clusters, next, entry (k, next) == 0
                  ? CLUSTER_FREE : CLUSTER_FRESH);
    next = entry (k, next);
  }
}

static void
remove_entry (struct walk *k, struct tree_job *job)
{
  const struct tree_entry *other = forget_entry (k, job);

  if (other)
    job->to = other->to;        /* maybe with another size */
  if (!other)
    drop_incomplete (k->v, job->first);
  if (job->kind == TREE_REMOVE)
    unsettle (k, job);
  else if (!other)
    remove_directory (k, job->first);
}

static void
do_job (struct walk *k, struct tree_job *job)
{
  switch (job->kind) {
  case TREE_ADD:
  case TREE_GROW:
    note_entry (k, job);
    settle (k, job);
    break;
  case TREE_SHRINK:
    note_entry (k, job);
    drop_incomplete (k->v, job->first);
    unsettle (k, job);
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
  }
}

/* -- Scans ------------------------------------------------------------------ */

static bool
is_hole (struct tree *t, uint64_t start, uint64_t count)
{
  struct disk_extent extent;

  return t->disk->ops->extent &&
    t->disk->ops->extent (t->disk, start, count, &extent) == 0 &&
    extent.hole && extent.length >= count;
}

static bool
is_zero (const uint8_t *bytes, size_t count)
{
  return bytes[0] == 0 && memcmp (bytes, bytes + 1, count - 1) == 0;
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
  if (is_zero (bytes, count) && n >= 2 &&
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

  for (at = 0; bytes && at < size && !must_end (k); at += FAT_CHUNK) {
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
  k->extra_steps = EXTRA_STEPS + v->bpb.nr_clusters;
  scan_fat (k);
  add_todo (k, v->bpb.root_cluster);
  read_directories (k);
  k->scanning = false;
  took = monotonic_now () - began;
  stats_add (k->t->stats, STATS_tree_scan_ns, took);

  SCOPED_LOCK (&v->lock);
  v->scan_at = began + took + max_u64 (SCAN_PAUSE_NS, 10 * took);
  if (must_end (k) && !v->stale) {     /* unfinished */
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

  if (!k)
    return monotonic_now () + SCAN_PAUSE_NS;
  k->t = t;
  k->v = v;
  while (!must_rest (t)) {
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
    else
      do_job (k, &job);
  }
  return 0;
}
