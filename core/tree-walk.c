/* SPDX-License-Identifier: BSD-3-Clause */

/* The directory tree: along chains.  The rules are in tree.h. */

#include <config.h>

#include <string.h>

#include "byteorder.h"
#include "fattable.h"
#include "monotonic.h"
#include "tree-walk.h"
#include "util.h"

/* -- FAT 1 ---------------------------------------------------------------- */

uint32_t
walk_entry (struct walk *k, uint32_t n)
{
  uint64_t pos = k->v->fat1 + (uint64_t) n * 4;
  uint64_t block = k->v->fat1 + align_down (pos - k->v->fat1, WALK_BLOCK);

  if (k->block != block) {
    size_t count = min_u64 (WALK_BLOCK, k->v->fat1 +
                            bpb_fat_size (&k->v->bpb) - block);

    memset (k->bytes, 0, sizeof k->bytes);
    if (disk_read (k->t->disk, k->bytes, count, block) < 0)
      memset (k->bytes, 0, sizeof k->bytes);
    k->block = block;
  }
  return load_le32 (k->bytes + (pos - block)) & FAT_ENTRY_MASK;
}

uint32_t
walk_entry_now (struct walk *k, uint32_t n)
{
  k->block = 0;
  return walk_entry (k, n);
}

/* -- Walks ---------------------------------------------------------------- */

/* Write down what was walked, as SETTLED or FRESH; lock is held.  False: a
 * chain has broken since `breaks`, and nothing was written down.  (A cluster
 * may be FREE still: who has allocated it is on its way to the lock.)
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

    if (k->scanning && !k->again &&
        (old == CLUSTER_SETTLED || old == CLUSTER_DIRECTORY))
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

uint64_t
walk_breaks (struct walk *k)
{
  SCOPED_LOCK (&k->v->lock);
  return k->v->breaks;
}

bool
walk_note_incomplete_locked (struct walk *k, const struct tree_job *job,
                        uint32_t last, uint32_t seen)
{
  struct tree_volume *v = k->v;
  unsigned i;

  if (walk_entry_now (k, last) != seen)
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

/* Rule 1: may a step be made to this cluster?  In a scan, those to clusters
 * that were walked before are counted; in jobs all are.
 */
static bool
may_step (struct walk *k, uint32_t n)
{
  uint64_t *left = k->scanning ? &k->extra_steps : &k->v->steps;

  if (k->scanning && clusters_is_known (k->v->clusters, n) &&
      clusters_get (k->v->clusters, n) == CLUSTER_FRESH)
    return true;
  if (*left == 0)
    return false;
  --*left;
  return true;
}

/* Before a job. */
static void
refill_steps (struct walk *k)
{
  uint64_t now = monotonic_now ();

  if (now < k->v->steps_at)
    return;
  k->v->steps_at = now + max_u64 (WALK_REFILL_NS, 10 * k->v->jobs_ns);
  k->v->jobs_ns = 0;
  k->v->steps = WALK_EXTRA_STEPS + k->v->bpb.nr_clusters;
}

/* Go on to cluster job->to of the chain.  False: it has broken. */
static bool
settle_once (struct walk *k, struct tree_job *job)
{
  uint64_t breaks = walk_breaks (k);
  struct tree_file *f = find_file (k, job->first, breaks);
  uint32_t next, seen;

  k->block = 0;
  k->nr = 0;
  next = f->n > 0 ? walk_entry (k, f->last) : job->first;
  while (f->n < job->to && !walk_must_end (k)) {
    if (clusters_has (k->v->clusters, next) &&
        (seen = walk_entry (k, next)) != 0 && may_step (k, next)) {
      k->cluster[k->nr++] = next;
      f->last = next;
      f->n++;
      next = seen;
      if (k->nr == WALK_CHUNK && !write_down (k, breaks, CLUSTER_SETTLED))
        return false;
      continue;
    }
    /* Too many steps; or the chain ends: at a cluster that is not allocated,
     * or behind one.
     */
    if (clusters_has (k->v->clusters, next) && walk_entry (k, next) != 0) {
      if (!k->scanning)
        tree_doubt (k->t, k->v);
      break;
    }
    SCOPED_LOCK (&k->v->lock);
    if (!write_down_locked (k, breaks, CLUSTER_SETTLED))
      return false;
    if (clusters_has (k->v->clusters, next)
        ? walk_note_incomplete_locked (k, job, next, 0)
        : f->n > 0 && walk_note_incomplete_locked (k, job, f->last, next))
      break;
    if (!clusters_has (k->v->clusters, next)) {
      if (f->n == 0)
        break;
      next = walk_entry (k, f->last);
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

void
walk_settle (struct walk *k, struct tree_job *job)
{
  unsigned i;

  refill_steps (k);
  job->kind = TREE_GROW;
  job->to = min_u64 (job->to, k->v->bpb.nr_clusters);   /* longer: a loop */
  for (i = 0; i < WALK_TRIES && !walk_must_end (k); ++i) {
    k->again = i > 0;
    if (settle_once (k, job))
      return;
    forget_file (k, job->first);
  }
  if (!walk_must_end (k))
    tree_doubt (k->t, k->v);    /* later, when it is quieter */
}

/* Rule 3 is for what is added. */
static void
take_back (struct walk *k)
{
  SCOPED_LOCK (&k->v->lock);
  write_down_locked (k, k->v->breaks, CLUSTER_FRESH);
}

void
walk_unsettle (struct walk *k, const struct tree_job *job)
{
  uint32_t next = job->first, n;

  if (k->v->crossed) {
    tree_doubt (k->t, k->v);
    return;
  }
  refill_steps (k);
  forget_file (k, job->first);
  k->block = 0;
  k->nr = 0;
  for (n = 0; n < job->from && clusters_has (k->v->clusters, next) &&
         !walk_must_end (k); ++n) {
    if (!may_step (k, next)) {
      tree_doubt (k->t, k->v);
      return;
    }
    if (n >= job->to)
      k->cluster[k->nr++] = next;
    if (k->nr == WALK_CHUNK)
      take_back (k);
    next = walk_entry (k, next);
  }
  take_back (k);
}
