/* SPDX-License-Identifier: BSD-3-Clause */

/* The tree's thread on its way along chains.  The rules are in tree.h. */

#ifndef FATBATCH_TREE_WALK_H
#define FATBATCH_TREE_WALK_H

#include "tree.h"

#define WALK_BLOCK 4096         /* bytes: what is read of FAT 1 at once */
#define WALK_CHUNK 1024         /* clusters that are written down together */
#define WALK_TRIES 8            /* when a chain breaks */

/* Steps along chains that have been walked before, in a scan, beyond one for
 * each cluster: where chains meet, or are loops.  Or all of those for jobs, in
 * a second.
 */
#define WALK_EXTRA_STEPS (1024 * 1024)
#define WALK_REFILL_NS UINT64_C (1000000000)

struct walk {
  struct tree *t;
  struct tree_volume *v;
  bool scanning;                /* the whole volume */
  bool again;                   /* this walk was begun before, and broke */
  uint64_t requests;            /* so many there have been */
  uint64_t extra_steps;         /* left, if scanning */

  uint64_t block;               /* byte of the image; 0: none */
  uint8_t bytes[WALK_BLOCK];

  uint32_t cluster[WALK_CHUNK]; /* walked, and not written down yet */
  unsigned nr;

  uint32_t *todo;               /* directories' first clusters */
  size_t nr_todo, todo_size;
  uint32_t *batch;              /* directories' clusters to be read */
  size_t nr_batch;
};

static inline bool
walk_must_rest (const struct tree *t)
{
  return atomic_load (&t->stop) || atomic_load (&t->paused);
}

/* Or what is being done has become vain. */
static inline bool
walk_must_end (const struct walk *k)
{
  return walk_must_rest (k->t) || atomic_load (&k->v->stale);
}

/* The FAT entry of a cluster, of what was read last; as it is now.  0 if it
 * can't be read: the chain ends there.
 */
extern uint32_t walk_entry (struct walk *k, uint32_t n);
extern uint32_t walk_entry_now (struct walk *k, uint32_t n);

/* Rule 3. */
extern uint64_t walk_breaks (struct walk *k);

/* Rule 5.  `last` is where the chain ended too early, `seen` its entry.  False:
 * that has changed meanwhile.  lock is held.
 */
extern bool walk_note_incomplete_locked (struct walk *k,
                                         const struct tree_job *job,
                                         uint32_t last, uint32_t seen);

/* The first job->to clusters of the chain: -> SETTLED. */
extern void walk_settle (struct walk *k, struct tree_job *job);
/* Clusters job->to up to job->from of it are not in front of an end any more.
 * What is freed meanwhile needs nothing.
 */
extern void walk_unsettle (struct walk *k, const struct tree_job *job);

#endif /* FATBATCH_TREE_WALK_H */
