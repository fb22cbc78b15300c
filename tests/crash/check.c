/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "util.h"

static bool
wrong (struct checker *c, const char *fmt, ...)
{
  va_list args;

  va_start (args, fmt);
  vsnprintf (c->why, sizeof c->why, fmt, args);
  va_end (args);
  return false;
}

/* -- Rules 1 to 3, and 5 ------------------------------------------------- */

static struct fatbatch *
open_engine (struct checker *c, struct machine *m)
{
  struct fatbatch_options options;
  struct fatbatch *fb;
  int r;

  workload_options (&options);
  r = engine_new (machine_disk (m), NULL, machine_store (m), &options, &fb);
  if (r == 0)
    return fb;
  wrong (c, "engine_new() fails: %s", strerror (-r));
  return NULL;
}

static bool
is_set_aside (const struct machine *m)
{
  size_t i;

  for (i = 0; i < m->nr_log; ++i)
    if (m->log[i].kind == LOG_RECORD_SET_ASIDE)
      return true;
  return false;
}

static bool
check_recovered (struct checker *c, struct machine *m, struct fatbatch *fb)
{
  struct fatbatch_stats stats;
  char why[300];

  fatbatch_get_stats (fb, &stats);
  c->tally->recoveries += stats.recoveries;
  c->tally->recovered_sectors += stats.recovered_sectors;
  if (m->has_record || is_set_aside (m))
    return wrong (c, "after recovery the record is there, or set aside");
  if (!oracle_allows (c->oracle, m->image, c->killed, why, sizeof why) ||
      !workload_reads_equal (fb, m->image, why, sizeof why))
    return wrong (c, "%s", why);
  return true;
}

/* The engine is closed; nr: entries of the log before that. */
static bool
check_again (struct checker *c, struct machine *m, size_t nr)
{
  struct fatbatch *fb = open_engine (c, m);

  if (!fb)
    return false;
  fatbatch_close (fb);
  return m->nr_log == nr ||
    wrong (c, "closed and opened again, it is written to again");
}

/* The second half of rule 2. */
static bool
check_changes (struct checker *c, const struct machine *m)
{
  const uint8_t *before = c->crashed.image;
  struct mirror_volume v[ORACLE_VOLUMES_MAX];
  struct layout *layout;
  unsigned nr, k;
  size_t i;

  if (memcmp (before, m->image, m->nr_units * UNIT) == 0)
    return true;
  c->tally->recovered++;
  nr = oracle_find_volumes (before, m->size, &layout, v, ORACLE_VOLUMES_MAX);
  layout_free (layout);
  for (i = 0; i < m->nr_units; ++i) {
    if (memcmp (before + i * UNIT, m->image + i * UNIT, UNIT) == 0)
      continue;
    for (k = 0; k < nr; ++k)
      if (i * UNIT >= v[k].mirror && i * UNIT < v[k].mirror + v[k].size)
        break;
    if (k == nr)
      return wrong (c, "recovery changes unit %zu, which is not a mirror's",
                    i);
  }
  return true;
}

/* -- Rule 6 --------------------------------------------------------------- */

/* A slot of FAT 1, and the same to its mirror.  Puts them into `expected`, too.
 * 0 or -errno.
 */
static int
write_slot (struct fatbatch *fb, const struct mirror_volume *v,
            struct prng *prng, uint8_t *expected)
{
  uint64_t at = prng_below (prng, v->size / v->sector_size) * v->sector_size;
  uint8_t buf[4096];
  int r;

  prng_fill (prng, buf, v->sector_size);
  memcpy (expected + v->fat1 + at, buf, v->sector_size);
  memcpy (expected + v->mirror + at, buf, v->sector_size);
  r = fatbatch_write (fb, buf, v->sector_size, v->fat1 + at, FATBATCH_FUA);
  return r < 0 ? r : fatbatch_write (fb, buf, v->sector_size, v->mirror + at,
                                     FATBATCH_FUA);
}

static bool
check_use (struct checker *c, struct machine *m, struct fatbatch *fb,
           struct prng *prng)
{
  CLEANUP_FREE uint8_t *expected = test_alloc (m->size);
  struct mirror_volume v;
  struct layout *layout;
  int r = 0;

  memcpy (expected, m->image, m->size);
  if (oracle_find_volumes (m->image, m->size, &layout, &v, 1) > 0)
    r = write_slot (fb, &v, prng, expected);
  layout_free (layout);
  if (r < 0)
    return wrong (c, "a write after recovery fails: %s", strerror (-r));
  r = fatbatch_settle (fb);
  if (r < 0)
    return wrong (c, "fatbatch_settle() after recovery fails: %s",
                  strerror (-r));
  if (memcmp (expected, m->image, m->size) != 0 || m->has_record)
    return wrong (c, "D8: after recovery, writes and a clean stop %s",
                  m->has_record ? "the record is there"
                  : "the image is not as it should be");
  return true;
}

/* -- Rule 7 --------------------------------------------------------------- */

/* Read all, as an engine does until it is writable, into c->left. */
static bool
read_left (struct checker *c, struct machine *m)
{
  struct fatbatch_options options;
  struct mirror_volume v;
  struct commit commit;
  struct epoch epoch;
  struct deferred deferred;
  struct mirror mirror;
  struct layout *layout;
  char notice[512];
  int r;
  struct stats *stats = aligned_alloc (_Alignof (struct stats),
                                       sizeof *stats);
  struct intent_store *store = machine_store (m);
  struct disk *disk = machine_disk (m);

  memset (stats, 0, sizeof *stats);
  workload_options (&options);
  commit_init (&commit, disk, false);
  epoch_init (&epoch);
  deferred_init (&deferred, &commit, &epoch, stats, 0);
  mirror_init (&mirror, disk, &commit, &deferred, stats, store, &options);
  oracle_find_volumes (m->image, m->size, &layout, &v, 1);
  r = mirror_find_left (&mirror, layout, notice, sizeof notice);
  if (r == 0)
    r = mirror_read (&mirror, c->left, m->size, 0);
  layout_free (layout);
  mirror_release (&mirror);
  deferred_release (&deferred);
  epoch_release (&epoch);
  commit_release (&commit);
  store->ops->free (store);
  disk_free (disk);
  free (stats);
  if (r < 0)
    return wrong (c, "reads before recovery fail: %s", strerror (-r));
  return m->nr_log == 0 || wrong (c, "reads before recovery write");
}

static bool
check_left (struct checker *c, const struct machine *m)
{
  return memcmp (c->left, m->image, m->size) == 0 ||
    wrong (c, "reads before recovery return other bytes than the image has "
           "after it");
}

/* -- All rules ------------------------------------------------------------ */

/* Recover a machine.  use: rule 6, too. */
static bool
recover (struct checker *c, struct machine *m, bool use, struct prng *prng)
{
  struct fatbatch *fb = open_engine (c, m);
  size_t nr;
  bool good;

  if (!fb)
    return false;
  nr = m->nr_log;
  good = check_recovered (c, m, fb);
  if (good && use)
    good = check_use (c, m, fb, prng);
  fatbatch_close (fb);
  return good && (use || check_again (c, m, nr));
}

/* Rule 4: cut `after`'s recovery, which made nr_log operations.  What a kill
 * has left is in the page cache, and can't be cut from the power in here: the
 * workloads do that (kill_server()).
 */
static bool
crash_again (struct checker *c, size_t nr_log, struct prng *prng)
{
  const struct medium_state *s = &c->crashed;
  size_t at = prng_below (prng, nr_log + 1), n;
  unsigned nr_states, state;
  struct cut cut;
  bool good = true;

  c->tally->cut_recoveries++;
  cut_init (&cut, &c->after, s->image, s->record, s->has_record,
            s->record_size);
  while (cut.pos < at)
    cut_advance (&cut);
  nr_states = cut_count_states (&cut, 8);
  state = c->killed ? STATE_KILLED : prng_below (prng, nr_states);
  machine_reset (&c->again, 1);
  if (cut_make_state (&cut, state, nr_states, prng, &c->again)) {
    good = recover (c, &c->again, false, prng);
    n = strlen (c->why);
    if (!good)
      snprintf (c->why + n, sizeof c->why - n, " (after a second crash, at "
                "operation %zu of recovery, state %u)", at, state);
  }
  cut_release (&cut);
  return good;
}

bool
checker_check (struct checker *c, bool killed, struct prng *prng)
{
  struct machine *m = &c->after;
  struct medium_state *s = &c->crashed;
  bool good, twice, use, left;
  size_t nr_log;

  c->tally->states++;
  c->killed = killed;
  s->has_record = m->has_record;
  s->record_size = m->record_size;
  memcpy (s->image, m->image, m->nr_units * UNIT);
  if (m->has_record)
    memcpy (s->record, m->record, m->record_size);
  twice = m->has_record && prng_chance (prng, 25);
  use = !twice && prng_chance (prng, 6);
  left = !use && prng_chance (prng, 12);

  good = (!left || read_left (c, m)) && recover (c, m, use, prng);
  nr_log = m->nr_log;
  if (good && left)
    good = check_left (c, m);
  if (good && !use)
    good = check_changes (c, m);
  if (good && twice && nr_log > 0)
    good = crash_again (c, nr_log, prng);
  return good;
}

void
checker_init (struct checker *c, const struct machine *m,
              const struct oracle *oracle, struct tally *tally)
{
  memset (c, 0, sizeof *c);
  c->oracle = oracle;
  c->tally = tally;
  machine_init (&c->after, m->size, m->align, m->discards);
  machine_init (&c->again, m->size, m->align, m->discards);
  c->crashed.image = test_alloc (m->nr_units * UNIT);
  c->left = test_alloc (m->nr_units * UNIT);
}

void
checker_release (struct checker *c)
{
  machine_release (&c->after);
  machine_release (&c->again);
  free (c->crashed.image);
  free (c->left);
}
