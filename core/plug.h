/* SPDX-License-Identifier: BSD-3-Clause */

/* The plug of group commit: whether the leader of a group should wait for more
 * members, for how many, and for how long.  This is the policy; commit.c does
 * it, and holds its lock around everything here.
 *
 * Rules, going on from those of commit.h:
 *
 * 5. Clients are members with FUA.  Others are not counted, and not waited
 *    for.
 * 6. As many are expected as the most clients that waited at once, gathering
 *    or issued, in the time of one of the last PLUG_HISTORY groups.  (The size
 *    of the last group would not do: a burst that is split once is then split
 *    for ever.)  A lone writer expects one, and that is itself.
 * 7. A plug lasts while clients keep coming: each has a quarter of a sync's
 *    time from the one before it, and all of them together have half of a
 *    sync's time, and at most PLUG_MAX_NS.  A sync's time is that of the
 *    shortest of the last PLUG_HISTORY.  If a quarter of it is less than
 *    PLUG_MIN_NS there are no plugs.
 * 8. A plug pays if enough come of those that it waits for.  At the beginning
 *    of a burst that is three quarters: the client waits for all of them, so
 *    that a part saves nothing.  Behind a sync, with those who have gathered
 *    during that, it must save those who come as much time as it takes from
 *    those who are there, and from as many that will gather during the next.
 *    After PLUG_MISSES in a row of one kind that did not pay there are no more
 *    of that kind, until a group without one shows that it would have paid: by
 *    those who came soon after it was issued.
 */

#ifndef FATBATCH_PLUG_H
#define FATBATCH_PLUG_H

#include <stdbool.h>
#include <stdint.h>

#include "util.h"

#define PLUG_HISTORY 4          /* groups */
#define PLUG_MIN_NS 60000       /* twice what it takes to wake a thread */
#define PLUG_MAX_NS 1000000
#define PLUG_MISSES 3

/* Rule 7: a plug, or for a group without one what would have been it. */
struct plug_window {
  uint64_t began, end, limit;   /* end moves on to limit; 0 = none */
  uint64_t last;                /* when the last of those who came did */
  uint64_t sync;                /* ns */
  bool behind;                  /* with who has gathered during a sync */
  unsigned there, came;         /* clients */
};

struct plug {
  unsigned waiting;             /* clients, gathering or issued */
  unsigned peak;                /* the most of them since the last group */
  unsigned peaks[PLUG_HISTORY]; /* those of the groups before */
  unsigned next_peak;           /* the oldest */
  uint64_t syncs[PLUG_HISTORY]; /* ns; 0 = not known yet */
  unsigned next_sync;
  unsigned misses[2];           /* rule 8; [1]: behind a sync */

  /* Of the group that gathers: */
  unsigned clients;
  bool behind;                  /* it began to gather during a sync */
  unsigned wants;               /* clients that the plug waits for */
  struct plug_window window;    /* end = 0: not plugged */

  struct plug_window missed;    /* of the issued group */
};

/* Rule 6. */
static inline unsigned
plug_expected (const struct plug *p)
{
  unsigned i, most = 0;

  for (i = 0; i < PLUG_HISTORY; ++i)
    if (most < p->peaks[i])
      most = p->peaks[i];
  return most;
}

/* ns; 0 = not known, or too short (rule 7). */
static inline uint64_t
plug_sync (const struct plug *p)
{
  uint64_t shortest = 0;
  unsigned i;

  for (i = 0; i < PLUG_HISTORY; ++i)
    if (p->syncs[i] > 0 && (shortest == 0 || p->syncs[i] < shortest))
      shortest = p->syncs[i];
  return shortest / 4 < PLUG_MIN_NS ? 0 : shortest;
}

/* -- Windows ------------------------------------------------------------ */

static inline void
plug_window_extend (struct plug_window *w, uint64_t at)
{
  w->end = min_u64 (at + w->sync / 4, w->limit);
}

static inline void
plug_window_open (struct plug_window *w, const struct plug *p, uint64_t at)
{
  uint64_t sync = plug_sync (p);

  *w = (struct plug_window) {
    .began = at, .limit = at + min_u64 (sync / 2, PLUG_MAX_NS), .sync = sync,
    .behind = p->behind, .there = p->clients,
  };
  if (sync > 0)
    plug_window_extend (w, at);
}

static inline void
plug_window_join (struct plug_window *w, uint64_t at)
{
  if (at >= w->end)
    return;
  w->came++;
  w->last = at;
  plug_window_extend (w, at);
}

/* Rule 8.  The window has lasted until `at`; wanted: how many others there
 * were.
 */
static inline bool
plug_window_pays (const struct plug_window *w, uint64_t at, unsigned wanted)
{
  uint64_t took = at - w->began;

  if (w->came == 0)
    return false;
  if (!w->behind)
    return 4 * w->came >= 3 * wanted;
  return took < w->sync &&
    w->came * (w->sync - took) >= 2 * w->there * took;
}

/* -- What happens to a group -------------------------------------------- */

/* A client has joined. */
static inline void
plug_join (struct plug *p, uint64_t at)
{
  p->clients++;
  if (p->peak < ++p->waiting)
    p->peak = p->waiting;
  plug_window_join (&p->window, at);
  plug_window_join (&p->missed, at);
}

/* No sync is under way: should the group be plugged? */
static inline bool
plug_begin (struct plug *p, uint64_t at)
{
  unsigned expected = plug_expected (p);

  if (p->clients == 0 || p->clients >= expected || plug_sync (p) == 0 ||
      p->misses[p->behind] >= PLUG_MISSES)
    return false;
  plug_window_open (&p->window, p, at);
  p->wants = expected - p->clients;
  return true;
}

static inline bool
plug_is_over (const struct plug *p, uint64_t at)
{
  return p->window.came >= p->wants || at >= p->window.end;
}

/* The group is issued, and the next one gathers.  cut: its plug was ended by
 * something else than rule 7, and says nothing.
 */
static inline void
plug_issue (struct plug *p, uint64_t at, bool cut)
{
  if (p->window.end == 0)
    plug_window_open (&p->missed, p, at);
  else if (plug_window_pays (&p->window, at, p->wants))
    p->misses[p->behind] = 0;
  else if (!cut)
    p->misses[p->behind]++;

  if (p->clients > 0) {
    p->peaks[p->next_peak] = p->peak;
    p->next_peak = (p->next_peak + 1) % PLUG_HISTORY;
    p->peak = 0;
  }
  p->clients = 0;
  p->window.end = 0;
}

/* Would a plug have paid for the issued group, which had none?  It would have
 * ended with the last one that was expected.
 */
static inline bool
plug_would_have_paid (const struct plug *p)
{
  const struct plug_window *missed = &p->missed;
  bool all = missed->there + missed->came >= plug_expected (p);

  return missed->end != 0 &&
    plug_window_pays (missed, all ? missed->last : missed->end, p->clients);
}

/* A group of so many clients has ended.  sync_ns: how long its sync took, 0
 * if that says nothing of others.
 */
static inline void
plug_finish (struct plug *p, unsigned clients, uint64_t sync_ns)
{
  p->waiting -= clients;
  if (plug_would_have_paid (p))
    p->misses[p->missed.behind] = 0;
  p->missed.end = 0;
  p->behind = p->clients > 0;
  if (sync_ns > 0) {
    p->syncs[p->next_sync] = sync_ns;
    p->next_sync = (p->next_sync + 1) % PLUG_HISTORY;
  }
}

#endif /* FATBATCH_PLUG_H */
