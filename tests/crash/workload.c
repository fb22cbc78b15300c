/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "requests.h"
#include "turns.h"
#include "util.h"

void
workload_options (struct fatbatch_options *options)
{
  *options = (struct fatbatch_options) {
    .cache = FATBATCH_WRITEBACK,
    .durability = FATBATCH_DURABILITY_FAT,
    .mirror_delay_ms = 500,
    .mirror_batch = 1 << 30,
  };
}

/* Half of the cases are virtual machines whose every write is durable, by FUA
 * or by the cache mode.
 */
static void
choose_guest (struct workload *wl)
{
  static const unsigned fua[] = { 100, 100, 50, 10, 0, 0 };
  unsigned n = prng_below (&wl->prng, 6);

  wl->fua_percent = fua[n];
  if (n == 0)
    wl->options.cache = FATBATCH_WRITETHROUGH;
  if (prng_chance (&wl->prng, 3))
    wl->options.durability = FATBATCH_DURABILITY_BLOCK;
  wl->no_store = prng_chance (&wl->prng, 3);
  if (prng_chance (&wl->prng, 20))
    wl->options.mirror_batch = 2048;    /* written all the time */
  if (prng_chance (&wl->prng, 50))
    wl->options.commit_delay_ms = 10;
  wl->disorder = prng_chance (&wl->prng, 30) ? 0 : 40;
}

static void
set_up (struct workload *wl, uint64_t seed, unsigned number)
{
  struct machine *m = &wl->machine;

  memset (wl, 0, sizeof *wl);
  prng_init (&wl->prng, seed, 2 * (uint64_t) number);
  workload_options (&wl->options);
  choose_guest (wl);
  image_choose (&wl->image, &wl->prng);
  machine_init (m, wl->image.size, wl->image.align,
                prng_chance (&wl->prng, 70));
  machine_reset (m, prng_next (&wl->prng));
  turns_begin (prng_next (&wl->prng), 30);
  image_fill (&wl->image, &wl->prng, m->image);
  wl->initial = test_alloc (m->nr_units * UNIT);
  memcpy (wl->initial, m->image, m->nr_units * UNIT);
  oracle_init (&wl->oracle, m, wl->options.cache == FATBATCH_WRITETHROUGH,
               wl->options.durability == FATBATCH_DURABILITY_BLOCK ||
               wl->no_store, wl->options.commit_delay_ms > 0);
  actions_init (wl);
}

void
workload_run (struct workload *wl, uint64_t seed, unsigned number)
{
  unsigned actions;

  set_up (wl, seed, number);
  actions = 6 + prng_below (&wl->prng, 20);
  start_server (wl);
  while (actions-- > 0 && !wl->failed)
    act (wl);
  wl->machine.die_at = UINT64_MAX;
  if (!wl->failed)
    stop_server (wl);
  if (wl->fb)
    kill_server (wl);
}

void
workload_release (struct workload *wl)
{
  oracle_release (&wl->oracle);
  machine_release (&wl->machine);
  free (wl->initial);
}
