/* SPDX-License-Identifier: BSD-3-Clause */

/* Mirrors: the thread, beginning and end.  The states and rules are in
 * mirror.h.
 */

#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "mirror-window.h"
#include "monotonic.h"
#include "util.h"

/* -- The thread ---------------------------------------------------------- */

/* Windows that make room together: those that have not been written to for the
 * longest.
 */
#define EVICT 8

/* An armed window in which nothing has happened for so long is disarmed. */
#define QUIET_NS UINT64_C (5000000000)

#define RETRY_NS UINT64_C (100000000)

/* Before when the EVICT oldest were written to last. */
static uint64_t
eviction_limit_locked (const struct mirror *m)
{
  uint64_t limit = 0, next;
  unsigned i, n;

  for (n = 0; n < EVICT; ++n) {
    next = UINT64_MAX;
    for (i = 0; i < m->nr_windows; ++i)
      if (m->window[i]->touched > limit)
        next = min_u64 (next, m->window[i]->touched);
    if (next < UINT64_MAX)
      limit = next;
  }
  return limit;
}

enum work {
  WORK_NONE, WORK_RECORD, WORK_SYNC, WORK_DISARM, WORK_EVICT
};

/* What is to be done now, or when to look again. */
static enum work
find_work_locked (struct mirror *m, uint64_t now, uint64_t *deadline)
{
  uint64_t dirty = 0;
  unsigned i;

  *deadline = UINT64_MAX;
  if (commit_has_failed (m->commit))
    return WORK_NONE;           /* rule 8 */
  if (m->record_wanted)
    return WORK_RECORD;
  if (m->room_wanted)
    return WORK_EVICT;
  for (i = 0; i < m->nr_windows; ++i) {
    const struct mirror_window *w = m->window[i];

    if (w->block == 0 || w->in_place || w->in_flight > 0)
      continue;                 /* others are at it, and will wake us up */
    dirty += (uint64_t) w->dirty * w->slot_size;
    if (dirty > 0 && dirty >= m->batch)
      return WORK_SYNC;
    if (w->dirty > 0) {
      if (w->dirty_since + m->delay_ns <= now)
        return WORK_SYNC;
      *deadline = min_u64 (*deadline, w->dirty_since + m->delay_ns);
    }
    if (w->touched + QUIET_NS <= now)
      return WORK_DISARM;
    *deadline = min_u64 (*deadline, w->touched + QUIET_NS);
  }
  return WORK_NONE;
}

static void
wait_locked (struct mirror *m, uint64_t deadline)
{
  if (deadline == UINT64_MAX)
    pthread_cond_wait (&m->changed, &m->lock);
  else
    monotonic_wait (&m->changed, &m->lock, deadline);
}

/* What the disk failed has been latched, and requests are told. */
static int
do_work (struct mirror *m, enum work work, uint64_t eviction_limit)
{
  switch (work) {
  case WORK_RECORD:
    mirror_prepare_record (m);
    return 0;
  case WORK_EVICT:
    return mirror_evict (m, eviction_limit);
  case WORK_DISARM:
    return mirror_sync_idle (m, monotonic_now () - QUIET_NS);
  case WORK_SYNC:
  case WORK_NONE:
    break;
  }
  return mirror_sync_idle (m, 0);
}

static void *
run (void *opaque)
{
  struct mirror *m = opaque;
  uint64_t deadline, limit;
  enum work work;
  int r;

  pthread_mutex_lock (&m->lock);
  while (!m->stop) {
    work = find_work_locked (m, monotonic_now (), &deadline);
    if (work == WORK_NONE) {
      wait_locked (m, deadline);
      continue;
    }
    if (work == WORK_EVICT)
      m->room_wanted = false;
    limit = eviction_limit_locked (m);
    pthread_mutex_unlock (&m->lock);
    r = do_work (m, work, limit);
    pthread_mutex_lock (&m->lock);
    if (r < 0 && !m->stop)      /* no memory: try again, but not at once */
      wait_locked (m, monotonic_now () + RETRY_NS);
  }
  pthread_mutex_unlock (&m->lock);
  return NULL;
}

int
mirror_wake_thread_locked (struct mirror *m)
{
  int r;

  if (m->thread_runs) {
    pthread_cond_broadcast (&m->changed);
    return 0;
  }
  r = pthread_create (&m->thread, NULL, run, m);
  m->thread_runs = r == 0;
  return -r;
}

/* -- Beginning and end ---------------------------------------------------- */

void
mirror_set_layout (struct mirror *m, const struct layout *layout)
{
  struct mirror_volume volume;
  bool has_volumes = false;
  size_t i;

  for (i = 0; i < layout->nr_volumes; ++i) {
    const struct bpb *bpb = &layout->volumes[i].bpb;

    if (!mirror_volume_of (&layout->volumes[i], &volume))
      continue;
    has_volumes = true;
    deferred_set_volume (m->deferred, bpb->root_cluster,
                         bpb->nr_clusters + 2);
  }
  SCOPED_LOCK (&m->lock);
  m->has_volumes = has_volumes;
  m->layout_durable = false;
  m->layouts++;
  m->nr_watched = layout->nr_watched <= COMMIT_RANGES_MAX
    ? layout->nr_watched : 0;
  for (i = 0; i < m->nr_watched; ++i)
    m->watched[i] = (struct commit_range) {
      layout->watched[i].start, layout->watched[i].end
    };
}

void
mirror_init (struct mirror *m, struct disk *disk, struct commit *commit,
             struct deferred *deferred, struct stats *stats,
             struct intent_store *store,
             const struct fatbatch_options *options)
{
  memset (m, 0, sizeof *m);
  m->disk = disk;
  m->commit = commit;
  m->deferred = deferred;
  m->stats = stats;
  m->enabled = store && !options->no_intent &&
    options->durability == FATBATCH_DURABILITY_FAT;
  m->delay_ns = options->mirror_delay_ms * UINT64_C (1000000);
  m->batch = options->mirror_batch;
  m->notice = options->notice;
  m->notice_opaque = options->notice_opaque;
  m->reached = options->reached;
  m->reached_opaque = options->reached_opaque;
  pthread_mutex_init (&m->sync_lock, NULL);
  pthread_mutex_init (&m->intent_lock, NULL);
  pthread_mutex_init (&m->lock, NULL);
  monotonic_cond_init (&m->changed);
  rangelock_init (&m->slots);
  if (store)
    intent_init (&m->intent, store, disk->size);
}

void
mirror_release (struct mirror *m)
{
  {
    SCOPED_LOCK (&m->lock);
    m->stop = true;
    pthread_cond_broadcast (&m->changed);
  }
  if (m->thread_runs)
    pthread_join (m->thread, NULL);
  while (m->nr_windows > 0)
    mirror_forget (m, m->window[m->nr_windows - 1]);
  free (m->left);
  rangelock_release (&m->slots);
  pthread_cond_destroy (&m->changed);
  pthread_mutex_destroy (&m->lock);
  pthread_mutex_destroy (&m->intent_lock);
  pthread_mutex_destroy (&m->sync_lock);
}
