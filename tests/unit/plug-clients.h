/* SPDX-License-Identifier: BSD-3-Clause */

/* What the clients of a simulation (plug-sim.h) do, and what tests of the plug
 * expect of it.
 *
 * A client writes again `think` after its write was acknowledged, or, as part
 * of a burst, when those of the whole burst have been.
 */

#ifndef FATBATCH_TESTS_PLUG_CLIENTS_H
#define FATBATCH_TESTS_PLUG_CLIENTS_H

#include "plug-sim.h"

/* -- Habits -------------------------------------------------------------- */

static inline void
sim_add_client (uint64_t first, uint64_t think, unsigned burst)
{
  struct sim_client *client = &sim.client[sim.nr_clients++];

  CHECK (sim.nr_clients <= SIM_CLIENTS);
  client->due = atomic_load (&sim.time) + first;
  client->think = think;
  client->burst = burst;
}

/* nr clients at once, `gap` from one to the next; and again when all have been
 * served, `think` later.
 */
static inline void
sim_add_burst (unsigned nr, uint64_t gap, uint64_t think, unsigned burst)
{
  unsigned i;

  for (i = 0; i < nr; ++i)
    sim_add_client (i * gap, think + i * gap, burst);
}

static inline void
sim_answer (unsigned i)
{
  struct sim_client *client = &sim.client[i];
  uint64_t now = atomic_load (&sim.time);
  unsigned j;

  CHECK_EQ (sim_join_client (i), 0);
  if (client->burst == 0)
    client->due = now + client->think;
  else {
    for (j = 0; j < sim.nr_clients; ++j)
      if (sim.client[j].burst == client->burst &&
          (sim.client[j].active || sim.client[j].due != NEVER))
        return;
    for (j = 0; j < sim.nr_clients; ++j)
      if (sim.client[j].burst == client->burst)
        sim.client[j].due = now + sim.client[j].think;
  }
}

/* Let the clients do as they do, until so many more requests have been
 * answered.
 */
static inline void
sim_run (unsigned requests)
{
  unsigned until = sim.answered + requests, i, next;
  uint64_t due, plug;
  uint32_t members;

  while (sim.answered < until) {
    next = 0;
    for (i = 1; i < sim.nr_clients; ++i)
      if (sim.client[i].due < sim.client[next].due)
        next = i;
    due = sim.client[next].due;
    pthread_mutex_lock (&sim.commit.lock);
    plug = sim.commit.plug.window.end > 0 ? sim.wait_until : NEVER;
    pthread_mutex_unlock (&sim.commit.lock);

    if (sim_at_gate () && sim.sync_end <= due) {
      members = sim.batch[sim.nr_batches - 1].clients;
      sim_end_sync ();
      for (i = 0; i < sim.nr_clients; ++i)
        if (members >> i & 1)
          sim_answer (i);
      sim_settle ();
    }
    else if (plug <= due)
      sim_advance_to (plug);
    else {
      sim_advance_to (due);
      sim_start_client (next);
    }
  }
}

/* No more requests, and what is under way ends. */
static inline void
sim_drain (void)
{
  uint32_t members;
  unsigned i;

  for (i = 0; i < sim.nr_clients; ++i)
    sim.client[i].due = NEVER;
  while (sim.answered < sim.started) {
    if (!sim_at_gate ()) {
      sim_advance_to (sim.wait_until);
      continue;
    }
    members = sim.batch[sim.nr_batches - 1].clients;
    sim_end_sync ();
    for (i = 0; i < sim.nr_clients; ++i)
      if (members >> i & 1)
        CHECK_EQ (sim_join_client (i), 0);
    sim_settle ();
  }
}

/* -- For tests ----------------------------------------------------------- */

#define SYNC (1200 * US)
#define PLUG (SYNC / 4)         /* if nobody else comes (plug.h, rule 7) */
#define BURST 8
#define GAP (10 * US)

/* All clients go home; none may be waiting. */
static inline void
stop (void)
{
  unsigned i;

  for (i = 0; i < sim.nr_clients; ++i) {
    CHECK (!sim.client[i].active);
    sim.client[i].due = NEVER;
  }
}

/* Bursts have come, so that one is expected.  Clients 0 to 7 are free. */
static inline void
begin_with_a_habit (void)
{
  sim_begin (SYNC);
  sim_add_burst (BURST, GAP, MS, 1);
  sim_run (3 * BURST);
  stop ();
  CHECK_EQ (plug_expected (&sim.commit.plug), BURST);
  CHECK_EQ (sim.commit.plug.misses[false], 0);
}

static inline void
expect_batch (unsigned i, uint32_t clients)
{
  CHECK (i < sim.nr_batches);
  CHECK_EQ (sim.batch[i].clients, clients);
  CHECK (!sim.batch[i].all);
}

/* End the sync at the gate; clients first to last - 1 must get this result. */
static inline void
expect_answers (unsigned first, unsigned last, int result)
{
  unsigned i;

  sim_end_sync ();
  for (i = first; i < last; ++i)
    CHECK_EQ (sim_join_client (i), result);
  sim_settle ();
}

#endif /* FATBATCH_TESTS_PLUG_CLIENTS_H */
