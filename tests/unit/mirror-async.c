/* SPDX-License-Identifier: BSD-3-Clause */

/* Requests at the same time, in a known order: see mirror-rig.h. */

#include <config.h>

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include "mirror-rig.h"
#include "util.h"

static void *
run_async (void *opaque)
{
  struct rig_request *request = opaque;

  rig_set_foreground ();
  atomic_store (&request->tid, gettid ());
  request->result = rig_run_line (request->rig, request->line);
  atomic_store (&request->done, true);
  return NULL;
}

/* Does the thread sleep, and has not woken up for a while?  For those who wait
 * for something that can't be asked.
 */
static bool
sleeps (struct rig_request *request)
{
  unsigned long switches, before = 0;
  char name[60], line[200];
  bool asleep = false;
  int i;

  for (i = 0; i < 50 && !atomic_load (&request->done); ++i) {
    FILE *f;

    snprintf (name, sizeof name, "/proc/self/task/%d/status",
              atomic_load (&request->tid));
    f = fopen (name, "r");
    while (f && fgets (line, sizeof line, f)) {
      if (strncmp (line, "State:", 6) == 0)
        asleep = strstr (line, "S (") != NULL;
      if (sscanf (line, "voluntary_ctxt_switches: %lu", &switches) == 1)
        asleep = asleep && (i == 0 || switches == before);
    }
    if (f)
      fclose (f);
    before = switches;
    if (!asleep)
      return false;
    nanosleep (&(struct timespec) { .tv_nsec = 1000000 }, NULL);
  }
  return asleep;
}

/* How much waits: at the disk, for ranges, in commit groups. */
static unsigned
count_waiting (struct rig *rig, unsigned *held)
{
  struct commit_stats stats;
  unsigned nr;

  commit_get_stats (&rig->fb->commit, &stats);
  nr = stats.members + rangelock_count_waiting (&rig->fb->ranges) +
    rangelock_count_waiting (&rig->fb->mirror.slots);
  SCOPED_LOCK (&rig->lock);
  *held = rig->held;
  return nr;
}

/* Who has joined a commit group waits if a sync is held; without that it
 * leads.
 */
void
rig_async (struct rig *rig, const char *line)
{
  struct rig_request *request = &rig->async[rig->nr_async++];
  unsigned before, waiting, held_before, held;

  CHECK (rig->nr_async <= RIG_ASYNC);
  before = count_waiting (rig, &held_before);
  CHECK (strlen (line) < sizeof request->line);
  strcpy (request->line, line);
  request->rig = rig;
  atomic_init (&request->tid, 0);
  atomic_init (&request->done, false);
  CHECK_EQ (pthread_create (&request->thread, NULL, run_async, request), 0);
  do {
    sched_yield ();
    waiting = count_waiting (rig, &held);
  } while (!atomic_load (&request->done) && held <= held_before &&
           (held == 0 || waiting <= before) &&
           (held == 0 || atomic_load (&request->tid) == 0 ||
            !sleeps (request)));
}

void
rig_let_go (struct rig *rig, const char *kind, const char *n)
{
  bool all = kind[0] == '\0';
  unsigned i;

  {
    SCOPED_LOCK (&rig->lock);
    for (i = 0; i < DISK_KINDS; ++i)
      if (all || rig_disk_kind (kind) == i)
        rig->hold[i].active = rig->after[i].active = false;
    pthread_cond_broadcast (&rig->released);
  }
  if (!all) {
    while (!atomic_load (&rig->async[atoi (n) - 1].done))
      sched_yield ();
    return;
  }
  for (i = 0; i < rig->nr_async; ++i) {
    CHECK_EQ (pthread_join (rig->async[i].thread, NULL), 0);
    rig_print_result (rig, rig->async[i].result);
  }
  rig->nr_async = 0;
}
