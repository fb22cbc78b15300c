/* SPDX-License-Identifier: BSD-3-Clause */

/* The directory tree of each FAT32 volume: which bytes lie in front of a
 * file's end.  Writes there change nothing but bytes that a reader may see
 * anyway, so they wait for nobody.  Others are ordered.
 *
 * A write to a volume's clusters is
 *
 *   in place     all of its clusters are SETTLED (clusters.h).  It takes no
 *                lock but its range.
 *   structural   it touches a DIRECTORY
 *   ordered      anything else: when it has been applied, and unless it is
 *                durable then, its range enters the ordered set
 *
 * Writes to FAT 1 are structural, too.
 *
 * What is settled is found out by a thread:
 *
 *   full scan: FAT 1, and the directories from the root on
 *        |  ^
 *        |  |  more has changed than can be followed, or in a way that can't:
 *        |  |  all that was SETTLED or a DIRECTORY is FRESH
 *        v  |
 *   following: the writes to FAT 1 and directories say what has changed;
 *              jobs for the thread
 *
 * Rules:
 *
 * 1. All of this is advice (D7).  Whatever is on the image, it takes bounded
 *    memory, and the thread's time is bounded for each scan and between scans.
 * 2. Only the thread makes a cluster SETTLED or DIRECTORY.  Requests take that
 *    away, at once: a FAT entry that becomes 0 makes its cluster FREE; and where
 *    it takes a walk to find out which clusters lie behind an end now, nothing
 *    counts as SETTLED until the thread has done that.
 * 3. What the thread has read may be old when it comes to write it down.  So
 *    requests count what invalidates a walk along a chain (`breaks`: an entry
 *    that was not 0 and no end mark changes, an entry in a directory goes or
 *    becomes smaller), and a walk counts only if there was nothing of the sort
 *    since it began.  What only adds to a chain does not matter.
 * 4. A cluster is DIRECTORY before its content is read, and who has not seen
 *    that has ended (epoch_wait()).  So a change of a directory's content is
 *    either read, or followed.
 * 5. A chain that does not go as far as its file's size is remembered; the
 *    thread goes on when the entry changes where it ended.  Guests write sizes
 *    and chains in any order.
 * 6. A durable write to FAT 1, or to clusters that may be a directory, is
 *    applied when the ordered set is durable: metadata never survives without
 *    the data that it exposes (D4).  If settled clusters are taken away from a
 *    file, what was written in place since the last flush belongs to that set,
 *    too: the clusters' next owner may have sent it.
 * 7. A write to FAT 1 that frees clusters is acknowledged when the writes to
 *    them that were being applied have ended.  One to a directory that makes a
 *    file smaller, or takes it away, waits for all that are being applied.
 * 8. With parallel=off writes take turns: each holds `turn` while it is
 *    applied, and structural ones until they are durable.
 * 9. Who renames a file writes the new entry and takes the old one away, in any
 *    order.  So the last entries that have come are remembered: when one goes,
 *    and another leads to the same chain, the chain goes on.
 *
 * Locks, after the request's range: turn, then whatever is needed to apply the
 * write; order_lock; lock (the structure lock), a leaf.
 */

#ifndef FATBATCH_TREE_H
#define FATBATCH_TREE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "clusters.h"
#include "commit.h"
#include "disk.h"
#include "epoch.h"
#include "layout.h"
#include "rangelock.h"
#include "region.h"
#include "stats.h"

#define TREE_JOBS 1024
#define TREE_FILES 64           /* whose chains' ends are remembered */
#define TREE_INCOMPLETE 64      /* rule 5 */
#define TREE_ENTRIES 256        /* rule 9 */
#define TREE_WRITE_MAX (512 * 1024) /* metadata longer than that is not looked
                                       at, but scanned anew */
#define TREE_RUNS 128           /* of freed clusters, in one write */
/* Windows of clusters in memory, of all volumes: 24 MiB. */
#define TREE_WINDOWS_MAX 768

enum tree_job_kind {
  TREE_ADD,                     /* a file has got an entry */
  TREE_GROW,                    /* its size in there, or its chain, has grown */
  TREE_SHRINK,                  /* its size has become smaller */
  TREE_REMOVE,                  /* the entry has gone */
  TREE_CUT,                     /* no chain leads to `first` any more */
  TREE_ADD_DIRECTORY,
  TREE_GROW_DIRECTORY,
  TREE_REMOVE_DIRECTORY,
};

struct tree_job {
  enum tree_job_kind kind;
  uint32_t first;               /* cluster: of the chain; GROW_DIRECTORY: of the
                                   part of it that is new */
  uint32_t from, to;            /* whole clusters in front of the file's end,
                                   before (SHRINK, REMOVE) and now */
  uint64_t slot;                /* of the entry: byte of the image; 0: none */
};

struct tree_volume {
  uint64_t start;               /* byte of the image */
  struct bpb bpb;
  uint64_t fat1, data;          /* bytes of the image */

  struct clusters *clusters;
  pthread_mutex_t order_lock;   /* while the ordered set is being synced */
  atomic_bool has_ordered;      /* something is in it, or being synced */

  pthread_mutex_t lock;         /* the structure lock: protects what follows,
                                   and changes of clusters */
  struct commit_ranges ordered;
  uint64_t entered;             /* into it last: number of that, of all
                                   volumes' */
  atomic_uint_fast64_t loose;   /* the newest plain write in place came after
                                   so many flushes had begun; 0: none */
  atomic_uint taking;           /* jobs that take SETTLED away; while there is
                                   one no write is in place */
  uint64_t breaks;              /* rule 3 */
  uint64_t changes;             /* of FAT 1, counted */
  atomic_bool stale;            /* to be scanned; nothing is SETTLED or a
                                   DIRECTORY until then */
  uint64_t scan_at;             /* ns: not before */
  struct tree_job job[TREE_JOBS];
  unsigned next_job, nr_jobs;
  struct tree_incomplete {
    struct tree_job job;        /* to be done when this changes: */
    uint32_t last;
  } incomplete[TREE_INCOMPLETE];
  unsigned nr_incomplete;

  /* The thread's own: how far it has walked along files' chains. */
  struct tree_file {
    uint32_t first, n, last;    /* n clusters, of which last is the last */
    uint64_t breaks, used;
  } file[TREE_FILES];
  uint64_t files_used;
  bool crossed;                 /* chains meet: what one file gives up may be
                                   another's */
  struct tree_entry {           /* rule 9 */
    uint64_t slot;
    uint32_t first, to;
    bool directory;
  } entry[TREE_ENTRIES];
  unsigned next_entry;
  uint64_t steps, steps_at;     /* rule 1: left for jobs, and when (ns) there
                                   will be more */
  uint64_t jobs_ns;             /* what jobs have taken meanwhile */
};

/* The volumes of one layout.  Whoever is in the epoch may look at it. */
struct tree_set {
  const struct layout *layout;  /* borrowed; only its address counts */
  size_t nr;
  struct tree_volume *volume;   /* in the layout's order */
};

struct tree {
  struct disk *disk;            /* borrowed, as all of these */
  struct commit *commit;
  struct epoch *requests;
  struct rangelock *ranges;
  struct stats *stats;
  bool parallel;
  /* Copies bytes of a FAT 1 that somebody has in memory; false: nobody has all
   * of them.  The caller holds their range.
   */
  bool (*peek) (void *opaque, void *buf, uint64_t start, uint64_t end);
  void *peek_opaque;
  bool ordered;                 /* the layout has changed: what was written
                                   before is ordered, wherever it is now */
  pthread_mutex_t turn;         /* rule 8 */

  struct tree_set *_Atomic set; /* NULL: nothing is known */
  atomic_uint_fast64_t entered; /* into ordered sets, counted */
  atomic_uint_fast64_t flushes; /* begun, counted from 1 */
  atomic_uint_fast64_t flushed; /* the newest of them that has ended well */

  pthread_mutex_t lock;         /* protects what follows */
  pthread_cond_t wake;          /* the thread: there is work */
  pthread_cond_t idle_cond;     /* others: there is none, or it was paused */
  bool started, thread_runs;
  atomic_bool stop;
  atomic_bool paused;           /* the set is about to change */
  bool busy;                    /* the thread is at work */
  bool wanted;                  /* there may be work */
  uint64_t next;                /* ns: when it looks again */
  pthread_t thread;
};

extern void tree_init (struct tree *t, struct disk *disk,
                       struct commit *commit, struct epoch *requests,
                       struct rangelock *ranges, struct stats *stats,
                       bool parallel);
/* Ends the thread.  No request may be under way. */
extern void tree_release (struct tree *t);

/* The image is writable: begin.  Before that, nothing is known. */
extern void tree_start (struct tree *t);

/* The layout is another one.  Between the two nothing is known, and the thread
 * rests.  No caller is in the epoch, and one thread at a time.
 */
extern void tree_forget_layout (struct tree *t);
extern void tree_set_layout (struct tree *t, const struct layout *layout);

/* Wait until the thread has nothing to do that it may do now, or would do
 * within `seconds`.  For tests.
 */
extern void tree_wait_idle (struct tree *t, unsigned seconds);

/* -- Requests (tree-write.c) -------------------------------------------- */

/* A write, zero or trim on its way. */
struct tree_write {
  struct tree_volume *volume;   /* NULL: it touches no volume's FAT 1 or
                                   clusters, or nothing is known */
  bool clusters, in_place, directory; /* touches; all settled; any */
  bool fat;                     /* touches FAT 1 */
  bool unknown;                 /* not looked at: scan anew */
  bool takes_turn;              /* holds `turn` */
  uint8_t *before;              /* the bytes that it replaces: `sector`, or
                                   malloc'ed; NULL: none needed */
  uint64_t start, end;          /* where they are: bytes of the image */

  bool wait_for_all;            /* rule 7 */
  unsigned nr_runs;
  struct { uint64_t start, end; } run[TREE_RUNS]; /* bytes of the image */
  uint8_t sector[512];
};

static inline void
tree_write_init (struct tree_write *w)
{
  memset (w, 0, offsetof (struct tree_write, run));
}

/* It touches this region.  The caller is in the epoch, and layout is what it
 * has found there.
 */
extern void tree_add (struct tree *t, struct tree_write *w,
                      const struct disk_op *op, const struct layout *layout,
                      const struct region *region);
/* Around the write: before it is applied, and afterwards with its result, still
 * in the epoch and with its range.  durable: it will be.  The first may fail
 * with -errno, and then it must not be applied; the second is to be called
 * nevertheless.
 */
extern int tree_before (struct tree *t, struct tree_write *w,
                        const struct disk_op *op, bool durable);
extern void tree_after (struct tree *t, struct tree_write *w,
                        const struct disk_op *op, int result, bool durable);
/* Before it is acknowledged, holding nothing (rule 7); durable or not. */
extern void tree_finish (struct tree *t, struct tree_write *w);

/* A flush has the ordered sets become durable: a moment before it, and, if it
 * has succeeded, afterwards.
 */
struct tree_moment { uint64_t entered, flush; };
extern struct tree_moment tree_moment (struct tree *t);
extern void tree_flushed (struct tree *t, struct tree_moment moment);

/* -- Between the files --------------------------------------------------- */

/* lock is held: */
extern void tree_add_job_locked (struct tree *t, struct tree_volume *v,
                                 struct tree_job job);
/* How many clusters lie wholly in front of the end of a file of that size. */
static inline uint32_t
tree_whole_clusters (const struct tree_volume *v, uint32_t size)
{
  return size / v->bpb.cluster_size;
}
/* Nothing is to be resumed of the chain that begins there (rule 5). */
extern void tree_drop_incomplete_locked (struct tree_volume *v,
                                         uint32_t first);
/* Does it take SETTLED away? */
static inline bool
tree_job_takes (const struct tree_job *job)
{
  return job->kind == TREE_SHRINK || job->kind == TREE_REMOVE ||
    job->kind == TREE_CUT;
}
/* Clusters get, or may get, another owner: what was written to them in place is
 * data that metadata may expose (rule 6).
 */
extern void tree_owners_change_locked (struct tree *t, struct tree_volume *v);
/* Scan the volume anew.  The second takes the lock. */
extern void tree_doubt_locked (struct tree *t, struct tree_volume *v);
extern void tree_doubt (struct tree *t, struct tree_volume *v);

/* The thread's work (tree-scan.c).  What is to be done is done, or `paused` is
 * set; returns when to look again, in ns, or UINT64_MAX.
 */
extern uint64_t tree_work (struct tree *t, struct tree_volume *v);

#endif /* FATBATCH_TREE_H */
