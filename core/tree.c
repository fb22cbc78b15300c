/* SPDX-License-Identifier: BSD-3-Clause */

/* The directory tree: beginning, end, and the thread.  The rules are in
 * tree.h.
 */

#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "monotonic.h"
#include "tree.h"
#include "util.h"

/* -- Sets --------------------------------------------------------------- */

static void
set_free (struct tree_set *set)
{
  size_t i;

  if (!set)
    return;
  for (i = 0; i < set->nr; ++i) {
    struct tree_volume *v = &set->volume[i];

    clusters_free (v->clusters);
    pthread_mutex_destroy (&v->order_lock);
    pthread_mutex_destroy (&v->lock);
  }
  free (set->volume);
  free (set);
}

static void
volume_init (struct tree_volume *v, const struct layout_volume *volume,
             unsigned max, bool ordered)
{
  v->start = volume->start;
  v->bpb = volume->bpb;
  v->fat1 = volume->start + bpb_fat_start (&volume->bpb, 0);
  v->data = volume->start + bpb_data_start (&volume->bpb);
  v->clusters = clusters_new (volume->bpb.nr_clusters + 2, max);
  atomic_init (&v->stale, true);
  v->ordered.all = ordered;
  atomic_init (&v->has_ordered, ordered);
  pthread_mutex_init (&v->order_lock, NULL);
  pthread_mutex_init (&v->lock, NULL);
}

static struct tree_set *
set_new (const struct layout *layout, bool ordered)
{
  struct tree_set *set = calloc (1, sizeof *set);
  size_t i, nr = layout->nr_volumes;

  if (!set)
    return NULL;
  set->layout = layout;
  set->volume = calloc (nr, sizeof *set->volume);
  if (!set->volume) {
    free (set);
    return NULL;
  }
  for (set->nr = i = 0; i < nr; ++i, ++set->nr)
    volume_init (&set->volume[i], &layout->volumes[i],
                 max_u64 (TREE_WINDOWS_MAX / nr, 1), ordered);
  for (i = 0; i < nr; ++i)
    if (!set->volume[i].clusters) {
      set_free (set);
      return NULL;
    }
  return set;
}

void
tree_forget_layout (struct tree *t)
{
  struct tree_set *old;

  {
    SCOPED_LOCK (&t->lock);
    atomic_store (&t->paused, true);
    pthread_cond_broadcast (&t->wake);
    while (t->busy)
      pthread_cond_wait (&t->idle_cond, &t->lock);
    old = atomic_exchange (&t->set, NULL);
    t->ordered = t->started;
  }
  if (old)
    epoch_wait (t->requests);
  set_free (old);
}

/* Without memory nothing is known. */
void
tree_set_layout (struct tree *t, const struct layout *layout)
{
  SCOPED_LOCK (&t->lock);
  if (t->started && layout->nr_volumes > 0)
    atomic_store (&t->set, set_new (layout, t->ordered));
  atomic_store (&t->paused, false);
  t->wanted = true;
  pthread_cond_broadcast (&t->wake);
}

/* -- Jobs --------------------------------------------------------------- */

static void
wake_thread (struct tree *t)
{
  SCOPED_LOCK (&t->lock);
  t->wanted = true;
  pthread_cond_broadcast (&t->wake);
}

void
tree_owners_change_locked (struct tree *t, struct tree_volume *v)
{
  v->breaks++;
  if (atomic_exchange (&v->loose, 0) < atomic_load (&t->flushed))
    return;
  v->ordered.all = true;        /* nobody knows where it was */
  v->entered = atomic_fetch_add (&t->entered, 1) + 1;
  atomic_store (&v->has_ordered, true);
}

void
tree_doubt_locked (struct tree *t, struct tree_volume *v)
{
  tree_owners_change_locked (t, v);
  if (v->stale)
    return;
  atomic_store (&v->stale, true);
  clusters_unsettle (v->clusters);
  stats_add (t->stats, STATS_tree_doubts, 1);
  wake_thread (t);
}

void
tree_doubt (struct tree *t, struct tree_volume *v)
{
  SCOPED_LOCK (&v->lock);
  tree_doubt_locked (t, v);
}

void
tree_add_job_locked (struct tree *t, struct tree_volume *v,
                     struct tree_job job)
{
  if (v->stale)
    return;                     /* the scan will see it */
  if (v->nr_jobs == TREE_JOBS) {
    tree_doubt_locked (t, v);
    return;
  }
  if (tree_job_takes (&job))
    atomic_fetch_add (&v->taking, 1);
  v->job[(v->next_job + v->nr_jobs++) % TREE_JOBS] = job;
  wake_thread (t);
}

void
tree_drop_incomplete_locked (struct tree_volume *v, uint32_t first)
{
  unsigned i;

  for (i = 0; i < v->nr_incomplete; ++i)
    if (v->incomplete[i].job.first == first)
      v->incomplete[i--] = v->incomplete[--v->nr_incomplete];
}

/* -- The thread --------------------------------------------------------- */

static uint64_t
work_on_set (struct tree *t, struct tree_set *set)
{
  uint64_t next = UINT64_MAX;
  size_t i;

  for (i = 0; set && i < set->nr; ++i)
    next = min_u64 (next, tree_work (t, &set->volume[i]));
  return next;
}

static void *
run (void *opaque)
{
  struct tree *t = opaque;
  struct tree_set *set;
  uint64_t next;

  pthread_mutex_lock (&t->lock);
  while (!t->stop) {
    if (t->paused || (!t->wanted && monotonic_now () < t->next)) {
      if (t->paused || t->next == UINT64_MAX)
        pthread_cond_wait (&t->wake, &t->lock);
      else
        monotonic_wait (&t->wake, &t->lock, t->next);
      continue;
    }
    t->wanted = false;
    t->busy = true;
    set = atomic_load (&t->set);
    pthread_mutex_unlock (&t->lock);
    next = work_on_set (t, set);
    pthread_mutex_lock (&t->lock);
    t->busy = false;
    t->next = next;
    pthread_cond_broadcast (&t->idle_cond);
  }
  pthread_mutex_unlock (&t->lock);
  return NULL;
}

void
tree_start (struct tree *t)
{
  SCOPED_LOCK (&t->lock);
  if (t->started)
    return;
  t->started = true;
  t->thread_runs = pthread_create (&t->thread, NULL, run, t) == 0;
}

void
tree_wait_idle (struct tree *t, unsigned seconds)
{
  uint64_t ns = seconds * UINT64_C (1000000000);

  SCOPED_LOCK (&t->lock);
  while (t->thread_runs && !t->stop &&
         (t->busy || t->wanted ||
          (t->next != UINT64_MAX && t->next < monotonic_now () + ns)))
    monotonic_wait (&t->idle_cond, &t->lock, monotonic_now () + 1000000);
}

void
tree_init (struct tree *t, struct disk *disk, struct commit *commit,
           struct epoch *requests, struct rangelock *ranges,
           struct stats *stats, bool parallel)
{
  memset (t, 0, sizeof *t);
  t->disk = disk;
  t->commit = commit;
  t->requests = requests;
  t->ranges = ranges;
  t->stats = stats;
  t->parallel = parallel;
  t->next = UINT64_MAX;
  atomic_init (&t->flushes, 1);
  atomic_init (&t->flushed, 1);
  pthread_mutex_init (&t->turn, NULL);
  pthread_mutex_init (&t->lock, NULL);
  monotonic_cond_init (&t->wake);
  monotonic_cond_init (&t->idle_cond);
}

void
tree_release (struct tree *t)
{
  {
    SCOPED_LOCK (&t->lock);
    atomic_store (&t->stop, true);
    pthread_cond_broadcast (&t->wake);
  }
  if (t->thread_runs)
    pthread_join (t->thread, NULL);
  set_free (atomic_load (&t->set));
  pthread_cond_destroy (&t->idle_cond);
  pthread_cond_destroy (&t->wake);
  pthread_mutex_destroy (&t->lock);
  pthread_mutex_destroy (&t->turn);
}
