/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <string.h>

#include "commit.h"
#include "util.h"

/* Ranges as near as this are synced as one: write-back between them costs
 * less than a second sync.
 */
#define NEAR (128 * 1024)

void
commit_init (struct commit *c, struct disk *disk, bool never_sync)
{
  memset (c, 0, sizeof *c);
  c->disk = disk;
  c->never_sync = never_sync;
  c->gathering = 1;
  pthread_mutex_init (&c->lock, NULL);
  pthread_cond_init (&c->changed, NULL);
}

void
commit_release (struct commit *c)
{
  pthread_cond_destroy (&c->changed);
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
    if (start <= r[first].end || start - r[first].end <= NEAR)
      break;
  for (last = first; last < ranges->nr; ++last)
    if (r[last].start > end && r[last].start - end > NEAR)
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

/* -- Groups ------------------------------------------------------------ */

enum group_state { GATHERING, ISSUED, DURABLE, FAILED };

/* The state of a group that somebody has joined. */
static enum group_state
group_state (const struct commit *c, uint64_t group)
{
  if (group <= c->durable)
    return DURABLE;
  if (c->failed != 0 && group >= c->failed)
    return FAILED;
  return group < c->gathering ? ISSUED : GATHERING;
}

/* FAILED from `group` on, for ever.  Later failures change nothing. */
static void
latch_locked (struct commit *c, uint64_t group)
{
  if (c->failed == 0 || group < c->failed)
    c->failed = group;
  pthread_cond_broadcast (&c->changed);
}

/* GATHERING -> ISSUED -> DURABLE or FAILED. */
static void
lead_group_locked (struct commit *c)
{
  struct commit_ranges ranges = c->ranges;
  uint64_t group = c->gathering++;
  int r;

  c->issued = true;
  c->ranges.nr = 0;
  c->ranges.all = false;
  c->stats.groups++;
  c->stats.syncs += ranges.all ? 1 : ranges.nr;

  pthread_mutex_unlock (&c->lock);
  r = sync_ranges (c->disk, &ranges);
  pthread_mutex_lock (&c->lock);

  c->issued = false;
  if (r < 0) {
    c->error = r;
    c->error_group = group;
    latch_locked (c, group);
  }
  else {
    c->durable = group;
    pthread_cond_broadcast (&c->changed);
  }
}

/* Join the gathering group, lead it if nobody else does, and wait. */
static int
join_group (struct commit *c, const struct commit_range *ranges, size_t nr,
            bool all)
{
  uint64_t group;
  size_t i;

  if (c->never_sync)
    return commit_has_failed (c) ? -EIO : 0;

  SCOPED_LOCK (&c->lock);
  group = c->gathering;
  c->ranges.all |= all;
  for (i = 0; i < nr; ++i)
    commit_ranges_add (&c->ranges, ranges[i].start, ranges[i].end);
  c->stats.members++;

  for (;;) {
    switch (group_state (c, group)) {
    case DURABLE:
      return 0;
    case FAILED:
      return group == c->error_group ? c->error : -EIO;
    case GATHERING:
      if (!c->issued) {
        lead_group_locked (c);
        continue;
      }
      break;
    case ISSUED:
      break;
    }
    pthread_cond_wait (&c->changed, &c->lock);
  }
}

int
commit_many (struct commit *c, const struct commit_range *ranges, size_t nr)
{
  size_t i;

  for (i = 0; i < nr; ++i)
    if (ranges[i].start < ranges[i].end)
      return join_group (c, ranges, nr, false);
  return 0;
}

int
commit_range (struct commit *c, uint64_t start, uint64_t end)
{
  return commit_many (c, &(struct commit_range) { start, end }, 1);
}

int
commit_all (struct commit *c)
{
  return join_group (c, NULL, 0, true);
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
