/* SPDX-License-Identifier: BSD-3-Clause */

/* A simulation of clients that commit: real threads and a real struct commit,
 * but time and the disk are the test's.  Nothing goes on until all threads
 * have settled, so that what happens is the same each time.
 */

#ifndef FATBATCH_TESTS_PLUG_SIM_H
#define FATBATCH_TESTS_PLUG_SIM_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include "check.h"
#include "commit.h"
#include "disk.h"

#define US UINT64_C (1000)
#define MS UINT64_C (1000000)
#define SIM_FAR (1024 * 1024)   /* so far apart ranges are not merged */
#define SIM_CLIENTS 24
#define SIM_BATCHES 4096
#define NEVER UINT64_MAX

struct sim_client {
  pthread_t thread;             /* from its first request on */
  bool has_thread;
  sem_t go, done;
  enum commit_kind kind;
  bool active;                  /* its request is under way */
  bool quit;                    /* instead of a request */
  int result;
  uint64_t due;                 /* when it writes next */
  uint64_t think;
  unsigned burst;               /* number; 0 = on its own */
};

struct sim {
  struct disk disk;             /* first */
  struct commit commit;
  _Atomic uint64_t time;
  atomic_uint reads;            /* of the clock */
  uint64_t sync_ns;             /* what a sync takes */
  int fail_sync;                /* the result of coming syncs */

  /* Under commit.lock: */
  unsigned waits;               /* of the clock, ever */
  uint64_t wait_until;          /* who waits in a plug, until when; or 0 */
  pthread_cond_t *wait_cond;

  pthread_mutex_t lock;         /* protects what follows */
  pthread_cond_t changed;
  bool at_gate, let_through;
  unsigned inside, inside_max;
  uint64_t sync_end;            /* of the batch at the gate */
  unsigned nr_batches;
  struct sim_batch {
    unsigned nr;                /* operations: one for each client */
    bool all;                   /* the whole image */
    uint32_t clients;           /* bits */
  } batch[SIM_BATCHES];

  unsigned nr_clients;
  unsigned started;             /* requests, ever */
  unsigned answered;
  struct sim_client client[SIM_CLIENTS];
};

static struct sim sim;

/* -- Time and disk, as the threads see them ------------------------------ */

static inline uint64_t
sim_now (void *opaque)
{
  struct sim *s = opaque;

  atomic_fetch_add (&s->reads, 1);
  return atomic_load (&s->time);
}

static inline void
sim_wait (void *opaque, pthread_cond_t *cond, pthread_mutex_t *lock,
          uint64_t deadline)
{
  struct sim *s = opaque;

  CHECK (deadline == s->commit.plug.window.end);
  CHECK (deadline > atomic_load (&s->time));
  s->waits++;
  s->wait_until = deadline;
  s->wait_cond = cond;
  pthread_cond_wait (cond, lock);
  if (s->wait_until == deadline)        /* and not the next one's */
    s->wait_until = 0;
}

static inline int
sim_submit (struct disk *disk, struct disk_op *ops, size_t nr)
{
  struct sim *s = (struct sim *) disk;
  struct sim_batch *b;
  size_t i;

  pthread_mutex_lock (&s->lock);
  CHECK (s->nr_batches < SIM_BATCHES);
  CHECK (!s->at_gate);          /* rule 3 of commit.h */
  b = &s->batch[s->nr_batches++];
  *b = (struct sim_batch) { .nr = nr };
  for (i = 0; i < nr; ++i) {
    CHECK_EQ (ops[i].kind, DISK_SYNC);
    ops[i].result = s->fail_sync;
    if (ops[i].length == UINT64_MAX)
      b->all = true;
    else
      b->clients |= UINT32_C (1) << ops[i].offset / SIM_FAR;
  }
  s->sync_end = atomic_load (&s->time) + s->sync_ns;
  s->at_gate = true;
  while (!s->let_through)
    pthread_cond_wait (&s->changed, &s->lock);
  s->at_gate = s->let_through = false;
  pthread_mutex_unlock (&s->lock);
  return ops[0].result;
}

static inline int
sim_request (const struct sim_client *client)
{
  uint64_t at = (uint64_t) (client - sim.client) * SIM_FAR;
  struct commit_range range = { at, at + 512 };

  switch (client->kind) {
  case COMMIT_FUA:
    return commit_range (&sim.commit, at, at + 512);
  case COMMIT_FLUSH:
    return commit_all (&sim.commit);
  case COMMIT_BACKGROUND:
    return commit_background (&sim.commit, &range, 1);
  }
  return -EINVAL;
}

static inline void *
sim_run_client (void *opaque)
{
  struct sim_client *client = opaque;

  for (;;) {
    sem_wait (&client->go);
    if (client->quit)
      return NULL;
    client->result = sim_request (client);
    sem_post (&client->done);
  }
}

/* -- The test's side ----------------------------------------------------- */

static const struct disk_ops sim_ops = { .name = "sim", .submit = sim_submit };

static inline void
sim_begin (uint64_t sync_ns)
{
  memset (&sim, 0, sizeof sim);
  disk_init (&sim.disk, &sim_ops, UINT64_C (1) << 40, 1, 1);
  commit_init (&sim.commit, &sim.disk, false);
  sim.commit.clock.opaque = &sim;
  sim.commit.clock.now = sim_now;
  sim.commit.clock.wait = sim_wait;
  sim.time = UINT64_C (1000) * MS;
  sim.sync_ns = sync_ns;
  pthread_mutex_init (&sim.lock, NULL);
  pthread_cond_init (&sim.changed, NULL);
}

static inline bool
sim_at_gate (void)
{
  bool at_gate;

  pthread_mutex_lock (&sim.lock);
  at_gate = sim.at_gate && !sim.let_through;
  pthread_mutex_unlock (&sim.lock);
  return at_gate;
}

/* Has everything that can happen at this time happened?  That is: all requests
 * have joined, and if somebody waits, then for a sync, or in a plug.
 */
static inline bool
sim_is_settled (void)
{
  struct commit *c = &sim.commit;
  bool settled;

  pthread_mutex_lock (&c->lock);
  settled = c->stats.members == sim.started;
  if (c->failed != 0)
    settled = settled && (!c->issued || sim_at_gate ());
  else if (c->issued)
    settled = settled && sim_at_gate ();
  else if (c->members > 0)
    settled = settled && c->plug.window.end != 0 &&
      sim.wait_until > atomic_load (&sim.time);
  pthread_mutex_unlock (&c->lock);
  return settled;
}

static inline void
sim_settle (void)
{
  unsigned tries;

  for (tries = 0; !sim_is_settled (); ++tries)
    if (tries < 20)
      sched_yield ();
    else {                      /* valgrind runs one thread at a time */
      nanosleep (&(struct timespec) { .tv_nsec = 20000 }, NULL);
      CHECK (tries < 500000);   /* somebody is stuck */
    }
}

static inline void
sim_start_client (unsigned i)
{
  struct sim_client *client = &sim.client[i];

  CHECK (!client->active);
  if (!client->has_thread) {
    sem_init (&client->go, 0, 0);
    sem_init (&client->done, 0, 0);
    client->has_thread = true;
    CHECK_EQ (pthread_create (&client->thread, NULL, sim_run_client, client),
              0);
  }
  /* Others write, too, so that clients' ranges stay apart and tell who they
   * are.
   */
  commit_note_write (&sim.commit, COMMIT_NEAR + 1);
  client->active = true;
  client->due = NEVER;
  sim.started++;
  sem_post (&client->go);
  sim_settle ();
}

/* It must have an answer, or get it without more. */
static inline int
sim_join_client (unsigned i)
{
  struct sim_client *client = &sim.client[i];

  CHECK (client->active);
  sem_wait (&client->done);
  client->active = false;
  sim.answered++;
  return client->result;
}

/* The batch at the gate ends. */
static inline void
sim_end_sync (void)
{
  pthread_mutex_lock (&sim.lock);
  CHECK (sim.at_gate);
  if (atomic_load (&sim.time) < sim.sync_end)
    atomic_store (&sim.time, sim.sync_end);
  sim.let_through = true;
  pthread_cond_broadcast (&sim.changed);
  pthread_mutex_unlock (&sim.lock);
}

/* Time goes on, and who waits in a plug wakes if it is up. */
static inline void
sim_advance_to (uint64_t time)
{
  pthread_mutex_lock (&sim.commit.lock);
  CHECK (time >= atomic_load (&sim.time));
  atomic_store (&sim.time, time);
  if (sim.wait_until > 0 && time >= sim.wait_until)
    pthread_cond_broadcast (sim.wait_cond);
  pthread_mutex_unlock (&sim.commit.lock);
  sim_settle ();
}

static inline void
sim_end (void)
{
  unsigned i;

  for (i = 0; i < SIM_CLIENTS; ++i) {
    struct sim_client *client = &sim.client[i];

    CHECK (!client->active);
    if (!client->has_thread)
      continue;
    client->quit = true;
    sem_post (&client->go);
    CHECK_EQ (pthread_join (client->thread, NULL), 0);
    sem_destroy (&client->done);
    sem_destroy (&client->go);
  }
  commit_release (&sim.commit);
  pthread_cond_destroy (&sim.changed);
  pthread_mutex_destroy (&sim.lock);
}

#endif /* FATBATCH_TESTS_PLUG_SIM_H */
