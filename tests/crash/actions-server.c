/* SPDX-License-Identifier: BSD-3-Clause */

/* What the server does, by itself and while a guest goes on. */

#include <config.h>

#include <string.h>

#include "mirror-window.h"
#include "scene.h"
#include "turns.h"

/* More than mirror_delay_ms, and than a window has to be quiet for. */
#define SYNC_NS UINT64_C (1000000000)
#define DISARM_NS UINT64_C (20000000000)

static void
must_succeed (struct workload *wl, int r, const char *what)
{
  if (r < 0 && !wl->machine.dead)
    workload_fail (wl, "%s fails: %s", what, strerror (-r));
}

static void
act_sync (struct scene *s)
{
  must_succeed (s->wl, mirror_sync (&s->wl->fb->mirror), "mirror_sync()");
}

static void
act_settle (struct scene *s)
{
  must_succeed (s->wl, mirror_settle (&s->wl->fb->mirror, chance (s->wl, 50)),
                "mirror_settle()");
}

/* Too many windows are open elsewhere. */
static void
act_evict (struct scene *s)
{
  must_succeed (s->wl, mirror_evict (&s->wl->fb->mirror, UINT64_MAX),
                "mirror_evict()");
}

static void
act_restart (struct scene *s)
{
  if (s->wl->machine.dead)
    return;
  stop_server (s->wl);
  if (!s->wl->failed)
    start_server (s->wl);
}

static void
act_kill (struct scene *s)
{
  kill_server (s->wl);
  start_server (s->wl);
}

/* In one of the next operations. */
static void
act_kill_soon (struct scene *s)
{
  s->wl->machine.die_at = s->wl->machine.ops + below (s->wl, 12);
}

/* -- While something else goes on ----------------------------------------- */

/* Requests that pass a batch, or wait for no longer than is needed to see it.
 * While a sync is under way a request that needs one would wait.
 */
static void
act_meanwhile (struct scene *s, int at)
{
  struct workload *wl = s->wl;
  unsigned fua = wl->fua_percent, n = 1 + below (wl, 3);

  if (chance (wl, at == LOG_SYNC ? 80 : 40))
    wl->fua_percent = 0;
  while (n-- > 0) {
    s->slot = chance (wl, 50) ? wl->mirrored % s->nr_slots : choose_slot (s);
    switch (below (wl, 20)) {
    case 0: act_data (s); break;
    case 1: case 2: case 3: act_fat1_only (s); break;
    case 4: case 5: case 6: act_mirror_only (s); break;
    case 7: act_mirror_differs (s); break;
    case 8: case 9: case 10: case 11: case 12: act_neighbours (s); break;
    default: act_pairs (s); break;
    }
  }
  wl->fua_percent = fua;
}

/* A write of FAT 1 waits for its sync while others go on: what is written then
 * is not durable by it.
 */
static void
act_during_sync (struct scene *s)
{
  struct workload *wl = s->wl;
  uint8_t buf[SLOT_MAX];
  unsigned slot = s->slot, fua = wl->fua_percent;
  struct background_write b = {
    .wl = wl, .offset = fat1_of (s, slot), .length = s->v.sector_size,
    .bytes = buf,
  };

  if (wl->machine.die_at != UINT64_MAX)
    return;
  make_content (s, slot, buf);
  if (send_in_background (&b)) {
    if (chance (wl, 60) && wl->options.cache != FATBATCH_WRITETHROUGH) {
      wl->fua_percent = 0;
      write_fat1 (s, slot);
      wl->fua_percent = fua;
    }
    else
      act_meanwhile (s, LOG_SYNC);
  }
  finish_in_background (&b);
  if (chance (wl, 70))
    copy_to_mirror (s, slot, 1);
}

/* A slot that is deferred, beside one that the record does not have, and
 * another deferred one somewhere.  Returns whether there is place for that.
 */
static bool
prepare_neighbours (struct scene *s)
{
  struct scene next = *s;

  next.slot++;
  if (next.slot >= s->nr_slots)
    return false;
  act_mirror_differs (&next);
  next.slot = choose_slot (s);
  act_pairs (&next);
  write_fat1 (s, s->slot);
  copy_to_mirror (s, s->slot, 1);
  return true;
}

/* Both of them, which is done in place; or the first one again, to be deferred
 * again.
 */
static void
write_neighbours (struct scene *s, bool both)
{
  unsigned fua = s->wl->fua_percent;

  s->wl->fua_percent = both ? 0 : 100;
  write_fat1 (s, s->slot);
  copy_to_mirror (s, s->slot, both ? 2 : 1);
  s->wl->fua_percent = fua;
}

/* Go on with requests while another thread is held, perhaps several times. */
static void
act_while_held (struct scene *s, bool prepared)
{
  struct scene here = *s;
  unsigned i;
  int what;

  for (i = 0; turns_is_held (&what); ++i) {
    if (prepared && chance (s->wl, 60))
      write_neighbours (&here, i > 0 || what == LOG_SYNC);
    else
      act_meanwhile (s, what);
    turns_let_go ();
    if (chance (s->wl, 60))
      turns_hold_others (below (s->wl, 2));
    turns_run_others ();
  }
  turns_let_go ();
}

/* Time goes by, and the engine's own thread writes mirrors, and if it is much
 * time clears the record.  It begins with that before a request, or in the
 * middle of one.
 */
static void
act_sleep (struct scene *s)
{
  uint64_t ns = chance (s->wl, 60) ? SYNC_NS : DISARM_NS;
  bool prepared = chance (s->wl, 40) && prepare_neighbours (s);

  turns_hold_others (below (s->wl, 3));
  if (chance (s->wl, 60))
    turns_sleep (ns);
  else {
    turns_sleep_at (below (s->wl, 3), ns);
    if (prepared && chance (s->wl, 60))
      write_neighbours (s, true);
    else
      act_meanwhile (s, LOG_WRITE);
  }
  act_while_held (s, prepared);
}

struct background {
  struct mirror *m;
  bool evicts;
  int result;
};

static void *
run_background (void *opaque)
{
  struct background *b = opaque;

  b->result = b->evicts ? mirror_evict (b->m, UINT64_MAX)
    : mirror_settle (b->m, true);
  return NULL;
}

/* The last client but one leaves, or many windows are used. */
static void
act_in_background (struct scene *s)
{
  struct background b = { &s->wl->fb->mirror, chance (s->wl, 40), 0 };
  bool prepared = chance (s->wl, 50) && prepare_neighbours (s);
  pthread_t id;

  turns_hold_others (below (s->wl, 3));
  if (pthread_create (&id, NULL, run_background, &b) != 0)
    test_fail ("pthread_create");
  turns_run_others ();
  act_while_held (s, prepared);
  pthread_join (id, NULL);
  must_succeed (s->wl, b.result, "writing mirrors");
}

const struct action server_actions[] = {
  { act_sync, 15 }, { act_settle, 9 }, { act_evict, 6 }, { act_restart, 3 },
  { act_kill, 9 }, { act_kill_soon, 9 }, { act_sleep, 18 },
  { act_in_background, 12 }, { act_during_sync, 9 }, { NULL, 0 },
};
