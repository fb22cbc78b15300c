/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <stddef.h>

#include "rangelock.h"
#include "util.h"

#define ALL_SHARDS ((1u << RANGELOCK_SHARDS) - 1)

void
rangelock_init (struct rangelock *rl)
{
  size_t i;

  for (i = 0; i < RANGELOCK_SHARDS; ++i) {
    pthread_mutex_init (&rl->shard[i].lock, NULL);
    rl->shard[i].oldest = rl->shard[i].newest = NULL;
  }
}

void
rangelock_release (struct rangelock *rl)
{
  size_t i;

  for (i = 0; i < RANGELOCK_SHARDS; ++i)
    pthread_mutex_destroy (&rl->shard[i].lock);
}

/* The shards of a range that is not empty. */
static unsigned
find_shards (uint64_t start, uint64_t end)
{
  uint64_t stripe = start / RANGELOCK_STRIPE;
  uint64_t last = (end - 1) / RANGELOCK_STRIPE;
  unsigned shards = 0;

  if (last - stripe >= RANGELOCK_SHARDS - 1)
    return ALL_SHARDS;
  for (; stripe <= last; ++stripe)
    shards |= 1u << stripe % RANGELOCK_SHARDS;
  return shards;
}

/* For each shard of a set, in ascending order. */
#define FOR_EACH_SHARD(i, shards)                                       \
  for (unsigned left_ = (shards), i;                                    \
       left_ && (i = __builtin_ctz (left_), true);                      \
       left_ &= left_ - 1)

/* Rules 1 and 3. */
static bool
conflicts (const struct range *a, const struct range *b)
{
  return (a->exclusive || b->exclusive) &&
    a->start < b->end && b->start < a->end;
}

/* Put the range behind all others, and return how many block it. */
static unsigned
arrive_locked (struct rangelock_shard *shard, struct range *range,
               struct range_node *node)
{
  const struct range_node *older;
  unsigned blockers = 0;

  for (older = shard->oldest; older; older = older->next)
    if (conflicts (older->range, range))
      blockers++;

  node->range = range;
  node->prev = shard->newest;
  node->next = NULL;
  if (shard->newest)
    shard->newest->next = node;
  else
    shard->oldest = node;
  shard->newest = node;
  return blockers;
}

/* Take the range out, and let go whom it alone has blocked. */
static void
leave_locked (struct rangelock_shard *shard, struct range *range,
              struct range_node *node)
{
  struct range_node *younger;

  for (younger = node->next; younger; younger = younger->next)
    if (conflicts (range, younger->range) &&
        atomic_fetch_sub (&younger->range->blockers, 1) == 1)
      sem_post (&younger->range->unblocked);

  if (node->prev)
    node->prev->next = node->next;
  else
    shard->oldest = node->next;
  if (node->next)
    node->next->prev = node->prev;
  else
    shard->newest = node->prev;
}

bool
range_lock (struct rangelock *rl, struct range *range,
            uint64_t start, uint64_t end, bool exclusive)
{
  unsigned blockers = 0;

  range->start = start;
  range->end = end;
  range->exclusive = exclusive;
  range->shards = start < end ? find_shards (start, end) : 0;

  FOR_EACH_SHARD (i, range->shards)
    pthread_mutex_lock (&rl->shard[i].lock);
  FOR_EACH_SHARD (i, range->shards)
    blockers += arrive_locked (&rl->shard[i], range, &range->node[i]);
  /* With the locks held: nobody can count down before. */
  atomic_init (&range->blockers, blockers);
  if (blockers > 0)
    sem_init (&range->unblocked, 0, 0);
  FOR_EACH_SHARD (i, range->shards)
    pthread_mutex_unlock (&rl->shard[i].lock);

  if (blockers == 0)
    return false;
  while (sem_wait (&range->unblocked) == -1)
    ;                           /* EINTR */
  sem_destroy (&range->unblocked);
  return true;
}

void
range_unlock (struct rangelock *rl, struct range *range)
{
  FOR_EACH_SHARD (i, range->shards) {
    SCOPED_LOCK (&rl->shard[i].lock);
    leave_locked (&rl->shard[i], range, &range->node[i]);
  }
}

unsigned
rangelock_count_waiting (struct rangelock *rl)
{
  const struct range_node *node;
  unsigned nr = 0;

  FOR_EACH_SHARD (i, ALL_SHARDS) {
    SCOPED_LOCK (&rl->shard[i].lock);
    for (node = rl->shard[i].oldest; node; node = node->next)
      /* A range in several shards is counted in its first. */
      if ((unsigned) __builtin_ctz (node->range->shards) == i &&
          atomic_load (&node->range->blockers) > 0)
        nr++;
  }
  return nr;
}
