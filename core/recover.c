/* SPDX-License-Identifier: BSD-3-Clause */

/* Mirrors that a run which did not end well has left deferred (D5).
 *
 *     mirror_find_left()             mirror_recover()
 *   record ------------> left ------------------------> mirrors written, synced,
 *                         |                             record deleted
 *                         +-- reads return FAT 1's bytes meanwhile, which is
 *                             all that happens while the image is read-only
 *
 * Rules:
 *
 * 1. Only what the record's sound entries name is written, and only where
 *    their volume is still what it was: a boot sector at the same place that
 *    describes the same FATs, with the same serial number.  The boot sector
 *    decides whether to copy, never what.
 * 2. The record goes when the mirrors are durable.  So a crash in here leaves
 *    everything to be done again, and doing it twice does no harm.
 */

#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mirror-window.h"
#include "util.h"

/* -- Finding -------------------------------------------------------------- */

static bool
entry_fits (const struct intent_entry *e, const struct layout *layout)
{
  struct mirror_volume v;
  size_t i;

  for (i = 0; i < layout->nr_volumes; ++i)
    if (mirror_volume_of (&layout->volumes[i], &v) &&
        v.start == e->volume_start && v.id == e->volume_id &&
        v.sector_size == e->slot_size && e->fat1 >= v.fat1 &&
        (e->fat1 - v.fat1) % FATTABLE_WINDOW == 0 &&
        e->fat1 - v.fat1 + e->length <= v.size &&
        e->mirror == v.mirror + (e->fat1 - v.fat1))
      return true;
  return false;
}

/* Keep the entries that fit. */
static size_t
keep_fitting (struct intent_entry *entries, size_t nr,
              const struct layout *layout)
{
  size_t i, kept = 0;

  for (i = 0; i < nr; ++i)
    if (entry_fits (&entries[i], layout))
      entries[kept++] = entries[i];
  return kept;
}

int
mirror_find_left (struct mirror *m, const struct layout *layout,
                  char *notice, size_t notice_size)
{
  struct intent *in = &m->intent;
  size_t nr, fitting;
  char reason[128];
  int r;

  notice[0] = '\0';
  if (!in->store)
    return 0;
  r = intent_load (in, &m->left, &nr, reason, sizeof reason);
  switch (r) {
  case 0:
    break;
  case -ENOENT:
    return 0;
  case -EBADMSG:
    m->left_record = LEFT_STALE;
    snprintf (notice, notice_size, "%s: this intent record is not used: %s; "
              "FAT mirrors that it may name are left as they are, and it is "
              "renamed %s.stale once the image is written to",
              in->store->name, reason, in->store->name);
    return 0;
  case -EEXIST:
    atomic_store (&m->intent_broken, true);
    snprintf (notice, notice_size, "%s: this is no intent record of fatbatch, "
              "and is left alone; FAT mirrors are written at once, which is "
              "slower (move the file away, or use intent=PATH)",
              in->store->name);
    return 0;
  case -EBUSY:
    atomic_store (&m->intent_broken, true);
    snprintf (notice, notice_size, "%s: another server uses this intent "
              "record; FAT mirrors are written at once, which is slower (use "
              "intent=PATH, with a path for each image)", in->store->name);
    return 0;
  default:
    snprintf (notice, notice_size, "%s: this intent record cannot be read: "
              "%s; it may name FAT mirrors that are behind, so the image is "
              "not served without it: make it readable", in->store->name,
              fatbatch_strerror (-r));
    return r;
  }

  fitting = keep_fitting (m->left, nr, layout);
  m->left_record = fitting == nr ? LEFT_FITS : LEFT_STALE;
  atomic_store (&m->nr_left, fitting);
  if (fitting < nr)
    snprintf (notice, notice_size, "%s: %zu of %zu FAT windows in this intent "
              "record are not where it says in this image, or belong to "
              "another volume; they are left as they are",
              in->store->name, nr - fitting, nr);
  else if (reason[0])
    snprintf (notice, notice_size, "%s: of this intent record %s, and not "
              "used", in->store->name, reason);
  return 0;
}

/* -- Recovering ----------------------------------------------------------- */

/* Write [first, last) of FAT 1's bytes over the mirror. */
static int
copy_slots (struct mirror *m, const struct intent_entry *e,
            const uint8_t *fat1, unsigned first, unsigned last)
{
  size_t at = (size_t) first * e->slot_size;

  stats_add (m->stats, STATS_recovered_sectors, last - first);
  return disk_write (m->disk, fat1 + at, (size_t) (last - first) *
                     e->slot_size, e->mirror + at);
}

/* Copy where the record says so and the bytes differ, in runs. */
static int
recover_window (struct mirror *m, const struct intent_entry *e)
{
  CLEANUP_FREE uint8_t *fat1 = malloc (e->length);
  CLEANUP_FREE uint8_t *mirror = malloc (e->length);
  unsigned nr = e->length / e->slot_size, first = 0, i;
  int r;

  if (!fat1 || !mirror)
    return -ENOMEM;
  r = disk_read (m->disk, fat1, e->length, e->fat1);
  if (r == 0)
    r = disk_read (m->disk, mirror, e->length, e->mirror);
  for (i = 0; r == 0 && i < nr; ++i) {
    size_t at = (size_t) i * e->slot_size;

    if (mirror_bit (e->slots, i) &&
        memcmp (fat1 + at, mirror + at, e->slot_size) != 0)
      continue;
    if (first < i)
      r = copy_slots (m, e, fat1, first, i);
    first = i + 1;
  }
  if (r == 0 && first < nr)
    r = copy_slots (m, e, fat1, first, nr);
  return r;
}

static int
recover_all (struct mirror *m, size_t nr)
{
  size_t i;
  int r = 0;

  for (i = 0; i < nr && r == 0; ++i) {
    r = recover_window (m, &m->left[i]);
    if (r == 0)
      mirror_reached (m, MIRROR_RECOVERING);
  }
  if (r == 0 && nr > 0)
    r = commit_all (m->commit);
  if (r == 0)
    stats_add (m->stats, STATS_recoveries, nr);
  return r;
}

int
mirror_recover (struct mirror *m, char *notice, size_t notice_size)
{
  size_t nr = atomic_load (&m->nr_left);
  int r;

  notice[0] = '\0';
  if (m->left_record == LEFT_NOTHING)
    return 0;
  r = recover_all (m, nr);
  if (r < 0)
    return r;
  if (nr > 0) {
    mirror_reached (m, MIRROR_RECOVERED);
    snprintf (notice, notice_size, "%s: the FAT mirrors that a run which did "
              "not end well has left were brought back: %" PRIu64 " sectors "
              "in %zu windows", m->intent.store->name,
              stats_get (m->stats, STATS_recovered_sectors), nr);
  }
  r = m->left_record == LEFT_STALE ? intent_set_aside (&m->intent)
    : intent_remove (&m->intent);
  if (r == -EBUSY)              /* another server has made its own meanwhile */
    atomic_store (&m->intent_broken, true);
  else if (r < 0)
    return r;
  m->left_record = LEFT_NOTHING;
  atomic_store (&m->nr_left, 0);
  return 0;
}
