/* SPDX-License-Identifier: BSD-3-Clause */

/* Actions: where they take place, and what they have in common. */

#ifndef CRASH_SCENE_H
#define CRASH_SCENE_H

#include "requests.h"
#include "util.h"

#define BATCH_MAX 8             /* slots */
#define SLOT_MAX 4096           /* bytes */

/* The scene of an action: a volume, and a slot in it. */
struct scene {
  struct workload *wl;
  struct mirror_volume v;
  unsigned nr_slots, slot;
};

struct action {
  void (*fn) (struct scene *s);
  unsigned weight;              /* against the others' of its table */
};

/* What no guest does, or few (actions-odd.c); what the server does
 * (actions-server.c).  A weight of 0 ends a table.
 */
extern const struct action odd_actions[], server_actions[];

/* Of what guests do (actions.c). */
extern void act_pairs (struct scene *s);
extern void act_fat1_only (struct scene *s);
extern void act_mirror_only (struct scene *s);
extern void act_neighbours (struct scene *s);
extern void act_data (struct scene *s);
extern void act_mirror_differs (struct scene *s);
/* Of what D9 is about (actions-deferred.c). */
extern void act_deferred (struct scene *s);

extern void act_one_of (const struct action *table, struct scene *s);

/* New bytes for a slot of FAT 1: some entries change.  Or old ones. */
extern void make_content (const struct scene *s, unsigned slot,
                          uint8_t buf[SLOT_MAX]);
/* Such bytes to FAT 1. */
extern void write_fat1 (const struct scene *s, unsigned slot);
/* n slots of FAT 1 to the mirror, in one request. */
extern void copy_to_mirror (const struct scene *s, unsigned slot, unsigned n);

static inline bool
chance (struct workload *wl, unsigned percent)
{
  return prng_chance (&wl->prng, percent);
}

static inline unsigned
below (struct workload *wl, uint64_t n)
{
  return (unsigned) prng_below (&wl->prng, n);
}

static inline bool
choose_fua (struct workload *wl)
{
  return chance (wl, wl->fua_percent);
}

static inline uint64_t
fat1_of (const struct scene *s, unsigned slot)
{
  return s->v.fat1 + (uint64_t) slot * s->v.sector_size;
}

static inline uint64_t
mirror_of (const struct scene *s, unsigned slot)
{
  return s->v.mirror + (uint64_t) slot * s->v.sector_size;
}

static inline unsigned
choose_slot (const struct scene *s)
{
  struct workload *wl = s->wl;

  return (chance (wl, 75) ? wl->hot[below (wl, 4)]
          : below (wl, s->nr_slots)) % s->nr_slots;
}

/* Slots from the scene's on, at most n. */
static inline unsigned
clip (const struct scene *s, unsigned n)
{
  return (unsigned) min_u64 (n, s->nr_slots - s->slot);
}

#endif /* CRASH_SCENE_H */
