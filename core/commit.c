/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <string.h>
#include <sys/prctl.h>

#include "commit.h"
#include "monotonic.h"
#include "util.h"

/* -- Time -------------------------------------------------------------- */

static uint64_t
clock_now (void *opaque __attribute__ ((unused)))
{
  return monotonic_now ();
}

/* The kernel lets a thread sleep 50 us longer than it has asked for
 * (prctl(2), PR_SET_TIMERSLACK), about as long as a whole plug.
 */
static void
clock_wait (void *opaque __attribute__ ((unused)), pthread_cond_t *cond,
            pthread_mutex_t *lock, uint64_t deadline)
{
  prctl (PR_SET_TIMERSLACK, 1UL);
  monotonic_wait (cond, lock, deadline);
  prctl (PR_SET_TIMERSLACK, 0UL);       /* the thread's default */
}

static uint64_t
now (const struct commit *c)
{
  return c->clock.now (c->clock.opaque);
}

void
commit_init (struct commit *c, struct disk *disk, bool never_sync)
{
  memset (c, 0, sizeof *c);
  c->disk = disk;
  c->never_sync = never_sync;
  c->clock.now = clock_now;
  c->clock.wait = clock_wait;
  c->gathering = 1;
  /* What others have left in the page cache is not known.  With O_DIRECT
   * nothing is in it.
   */
  atomic_init (&c->loose, disk->align > 1 ? 0 : COMMIT_NEAR + 1);
  pthread_mutex_init (&c->lock, NULL);
  monotonic_cond_init (&c->may_lead);
  monotonic_cond_init (&c->ended[0]);
  monotonic_cond_init (&c->ended[1]);
}

void
commit_release (struct commit *c)
{
  pthread_cond_destroy (&c->ended[1]);
  pthread_cond_destroy (&c->ended[0]);
  pthread_cond_destroy (&c->may_lead);
  pthread_mutex_destroy (&c->lock);
}

/* -- Ranges ------------------------------------------------------------ */

void
commit_ranges_add (struct commit_ranges *ranges, uint64_t start, uint64_t end)
{
  struct commit_range *r = ranges->range;
  unsigned first, last;

  if (ranges->all || start >= end)
    return;

  /* [first, last) are those that the new range swallows. */
  for (first = 0; first < ranges->nr; ++first)
    if (start <= r[first].end || start - r[first].end <= COMMIT_NEAR)
      break;
  for (last = first; last < ranges->nr; ++last)
    if (r[last].start > end && r[last].start - end > COMMIT_NEAR)
      break;

  if (first == last && ranges->nr == COMMIT_RANGES_MAX) {
    ranges->all = true;
    return;
  }
  if (first < last) {
    start = min_u64 (start, r[first].start);
    end = max_u64 (end, r[last - 1].end);
  }
  memmove (&r[first + 1], &r[last], (ranges->nr - last) * sizeof *r);
  r[first] = (struct commit_range) { start, end };
  ranges->nr = ranges->nr - (last - first) + 1;
}

/* Rule 2: one range, if what is loose allows it. */
static void
join_ranges (struct commit *c)
{
  struct commit_ranges *ranges = &c->ranges;

  if (ranges->all || ranges->nr < 2 ||
      atomic_load (&c->loose) > COMMIT_NEAR)
    return;
  ranges->range[0].end = ranges->range[ranges->nr - 1].end;
  ranges->nr = 1;
}

static int
sync_ranges (struct disk *disk, const struct commit_ranges *ranges)
{
  struct disk_op ops[COMMIT_RANGES_MAX];
  unsigned i;

  memset (ops, 0, sizeof ops);
  for (i = 0; i < ranges->nr; ++i) {
    ops[i].kind = DISK_SYNC;
    ops[i].offset = ranges->range[i].start;
    ops[i].length = ranges->range[i].end - ranges->range[i].start;
  }
  if (ranges->all) {
    ops[0].kind = DISK_SYNC;
    ops[0].offset = 0;
    ops[0].length = UINT64_MAX;
    i = 1;
  }
  return disk_submit (disk, ops, i);
}

/* -- Statistics -------------------------------------------------------- */

static void
histogram_add (uint64_t *buckets, unsigned nr, uint64_t value)
{
  unsigned i = value == 0 ? 0 : 63 - __builtin_clzll (value);

  buckets[i < nr ? i : nr - 1]++;
}

/* -- Groups ------------------------------------------------------------ */

enum group_state { GATHERING, PLUGGED, ISSUED, DURABLE, FAILED };

/* The state of a group that somebody has joined. */
static enum group_state
group_state (const struct commit *c, uint64_t group)
{
  if (group <= c->durable)
    return DURABLE;
  if (c->failed != 0 && group >= c->failed)
    return FAILED;
  if (group < c->gathering)
    return ISSUED;
  return c->plug.window.end == 0 ? GATHERING : PLUGGED;
}

/* FAILED from `group` on, for ever.  Later failures change nothing. */
static void
latch_locked (struct commit *c, uint64_t group)
{
  if (c->failed == 0 || group < c->failed)
    c->failed = group;
  pthread_cond_broadcast (&c->may_lead);
  pthread_cond_broadcast (&c->ended[0]);
  pthread_cond_broadcast (&c->ended[1]);
}

static void
add_member_locked (struct commit *c, const struct commit_range *ranges,
                   size_t nr, enum commit_kind kind, uint64_t joined)
{
  size_t i;

  for (i = 0; i < nr; ++i)
    commit_ranges_add (&c->ranges, ranges[i].start, ranges[i].end);
  if (kind == COMMIT_FUA)
    plug_join (&c->plug, joined);
  else if (kind == COMMIT_FLUSH)
    c->has_flush = c->ranges.all = true;
  c->members++;
  c->stats.members++;
}

static void
count_group_locked (struct commit *c, uint64_t at)
{
  struct commit_stats *stats = &c->stats;
  const struct plug *p = &c->plug;

  stats->groups++;
  stats->syncs += c->ranges.all ? 1 : c->ranges.nr;
  stats->saved += c->members - 1;
  histogram_add (stats->sizes, COMMIT_SIZE_BUCKETS, c->members);
  if (p->window.end != 0) {
    stats->plugs++;
    stats->plugs_complete += p->window.came >= p->wants;
    stats->plug_ns += at - p->window.began;
  }
}

/* GATHERING or PLUGGED -> ISSUED.  The next group begins to gather. */
static void
issue_group_locked (struct commit *c, uint64_t at)
{
  count_group_locked (c, at);
  if (c->ranges.all)            /* all that was noted is synced now */
    atomic_store (&c->loose, 0);
  plug_issue (&c->plug, at, c->has_flush);
  c->ranges.nr = 0;
  c->ranges.all = false;
  c->members = 0;
  c->has_flush = false;
  c->gathering++;
  c->issued = true;
}

/* ISSUED -> DURABLE or FAILED. */
static void
end_group_locked (struct commit *c, uint64_t group, int result)
{
  c->issued = false;
  if (result < 0) {
    c->error = result;
    c->error_group = group;
    latch_locked (c, group);
  }
  else
    c->durable = group;
}

/* From beginning to end; the caller wakes the others afterwards.  Returns the
 * time.
 */
static uint64_t
lead_group_locked (struct commit *c, uint64_t at)
{
  uint64_t group = c->gathering, end;
  unsigned clients = c->plug.clients;
  bool usual = clients == c->members && !c->ranges.all;
  struct commit_ranges ranges;
  int r;

  join_ranges (c);
  ranges = c->ranges;
  issue_group_locked (c, at);

  pthread_mutex_unlock (&c->lock);
  r = sync_ranges (c->disk, &ranges);
  end = now (c);
  pthread_mutex_lock (&c->lock);

  end_group_locked (c, group, r);
  plug_finish (&c->plug, clients, usual && r == 0 ? end - at : 0);
  return end;
}

/* Wait until the group's state may have changed.  Returns the time. */
static uint64_t
wait_locked (struct commit *c, uint64_t group, bool first, bool plugs)
{
  enum group_state state = group_state (c, group);

  if (state == PLUGGED && plugs)
    c->clock.wait (c->clock.opaque, &c->ended[group % 2], &c->lock,
                   c->plug.window.end);
  else
    pthread_cond_wait (state == GATHERING && first
                       ? &c->may_lead : &c->ended[group % 2], &c->lock);
  return now (c);
}

/* Rule 10.  The group may be issued meanwhile, and end. */
static void
start_write_back_unlocked (struct commit *c, const struct commit_range *ranges,
                           size_t nr)
{
  size_t i;

  if (!c->disk->ops->write_back)
    return;
  pthread_mutex_unlock (&c->lock);
  for (i = 0; i < nr; ++i)
    c->disk->ops->write_back (c->disk, ranges[i].start,
                              ranges[i].end - ranges[i].start);
  pthread_mutex_lock (&c->lock);
}

/* Join the gathering group, lead it if it is time and nobody else does, and
 * wait.
 */
static int
join_group (struct commit *c, const struct commit_range *ranges, size_t nr,
            enum commit_kind kind)
{
  bool first, plugs = false, leads = false;
  enum group_state state;
  uint64_t group, joined, at;
  int r;

  if (c->never_sync)
    return commit_has_failed (c) ? -EIO : 0;

  joined = at = now (c);
  pthread_mutex_lock (&c->lock);
  group = c->gathering;
  first = c->members == 0;
  add_member_locked (c, ranges, nr, kind, joined);
  if (c->issued && kind == COMMIT_FUA)
    start_write_back_unlocked (c, ranges, nr);

  while ((state = group_state (c, group)) < DURABLE) {
    if (state == GATHERING && !c->issued) {
      plugs = !c->has_flush && plug_begin (&c->plug, at);
      leads = !plugs;
    }
    else if (state == PLUGGED)
      leads = c->has_flush || plug_is_over (&c->plug, at);

    if (leads)
      at = lead_group_locked (c, at);
    else
      at = wait_locked (c, group, first, plugs);
  }
  r = state == DURABLE ? 0 : group == c->error_group ? c->error : -EIO;
  histogram_add (c->stats.waits[kind], COMMIT_TIME_BUCKETS, at - joined);
  pthread_mutex_unlock (&c->lock);

  if (leads) {
    pthread_cond_broadcast (&c->may_lead);
    pthread_cond_broadcast (&c->ended[group % 2]);
  }
  return r;
}

static int
join_if_any (struct commit *c, const struct commit_range *ranges, size_t nr,
             enum commit_kind kind)
{
  size_t i;

  for (i = 0; i < nr; ++i)
    if (ranges[i].start < ranges[i].end)
      return join_group (c, ranges, nr, kind);
  return 0;
}

int
commit_many (struct commit *c, const struct commit_range *ranges, size_t nr)
{
  return join_if_any (c, ranges, nr, COMMIT_FUA);
}

int
commit_range (struct commit *c, uint64_t start, uint64_t end)
{
  return commit_many (c, &(struct commit_range) { start, end }, 1);
}

int
commit_background (struct commit *c, const struct commit_range *ranges,
                   size_t nr)
{
  return join_if_any (c, ranges, nr, COMMIT_BACKGROUND);
}

int
commit_all (struct commit *c)
{
  return join_group (c, NULL, 0, COMMIT_FLUSH);
}

void
commit_fail (struct commit *c)
{
  SCOPED_LOCK (&c->lock);
  latch_locked (c, c->gathering);
}

bool
commit_has_failed (struct commit *c)
{
  SCOPED_LOCK (&c->lock);
  return c->failed != 0;
}

void
commit_get_stats (struct commit *c, struct commit_stats *ret)
{
  SCOPED_LOCK (&c->lock);
  *ret = c->stats;
}
