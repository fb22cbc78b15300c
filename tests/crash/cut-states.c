/* SPDX-License-Identifier: BSD-3-Clause */

/* The states of a cut. */

#include <config.h>

#include <stdio.h>
#include <string.h>

#include "cut.h"

/* As many states of a power cut as this are all made. */
#define ALL_STATES_MAX 16

/* What one can have of a unit: its durable bytes (0), those of a write (1 to
 * nr), and of the record the torn ones (nr + 1 to 2 nr, one half or the
 * other).
 */
static unsigned
count_choices (const struct medium *md, size_t unit, bool tears)
{
  unsigned nr = md->units[unit].nr;

  return 1 + nr + (tears ? nr : 0);
}

static void
choose_unit (const struct medium *md, size_t unit, unsigned choice,
             uint8_t *to)
{
  const struct unit_pending *u = &md->units[unit];
  const uint8_t *bytes;

  to += unit * UNIT;
  if (choice == 0)
    return;
  if (choice <= u->nr)
    memcpy (to, u->writes[choice - 1].bytes, UNIT);
  else {
    bytes = u->writes[choice - u->nr - 1].bytes;
    if (choice & 1)
      memcpy (to, bytes, UNIT / 2);
    else
      memcpy (to + UNIT / 2, bytes + UNIT / 2, UNIT / 2);
  }
}

/* The new bytes up to some place, or from there on; machine words are whole. */
static void
tear_unit (const struct medium *md, size_t unit, struct prng *prng,
           uint8_t *to)
{
  const struct unit_pending *u = &md->units[unit];
  const uint8_t *bytes = u->writes[prng_below (prng, u->nr)].bytes;
  size_t at = 8 * prng_below (prng, UNIT / 8);

  to += unit * UNIT;
  if (prng_chance (prng, 50))
    memcpy (to, bytes, at);
  else
    memcpy (to + at, bytes + at, UNIT - at);
}

/* 0 if they are too many. */
static unsigned
count_all (const struct cut *c)
{
  const struct medium *media[] = { &c->image, &c->record };
  unsigned nr = 1, k;
  size_t i;

  for (k = 0; k < 2; ++k)
    for (i = 0; i < media[k]->nr_dirty; ++i) {
      nr *= count_choices (media[k], media[k]->dirty[i], k == 1);
      if (nr > ALL_STATES_MAX)
        return 0;
    }
  return nr;
}

static void
make_numbered (const struct cut *c, unsigned n, struct machine *to)
{
  const struct medium *media[] = { &c->image, &c->record };
  uint8_t *bytes[] = { to->image, to->record };
  unsigned k, choices;
  size_t i;

  for (k = 0; k < 2; ++k)
    for (i = 0; i < media[k]->nr_dirty; ++i) {
      choices = count_choices (media[k], media[k]->dirty[i], k == 1);
      choose_unit (media[k], media[k]->dirty[i], n % choices, bytes[k]);
      n /= choices;
    }
}

enum style { COIN, EVEN, MOSTLY_LOST, MOSTLY_KEPT, BEFORE, ONE_LOST, ONE_KEPT,
             NR_STYLES };

struct choice {
  enum style style;
  size_t at;                    /* a place in the log */
};

/* The newest write that was done before place `at`: as if the disk had written
 * everything in order up to there.
 */
static unsigned
newest_before (const struct unit_pending *u, size_t at)
{
  unsigned n = u->nr;

  while (n > 0 && u->writes[n - 1].at >= at)
    n--;
  return n;
}

static unsigned
random_choice (const struct unit_pending *u, const struct choice *choice,
               struct prng *prng)
{
  static const unsigned kept[] = {
    [COIN] = 50, [MOSTLY_LOST] = 12, [MOSTLY_KEPT] = 88,
  };
  unsigned n;

  switch (choice->style) {
  case COIN:
  case MOSTLY_LOST:
  case MOSTLY_KEPT:
    if (!prng_chance (prng, kept[choice->style]))
      return 0;
    return prng_chance (prng, 70) ? u->nr : 1 + prng_below (prng, u->nr);
  case EVEN:
    return prng_below (prng, u->nr + 1);
  case BEFORE:
    return newest_before (u, choice->at);
  case ONE_LOST:
    n = u->nr;
    return u->writes[n - 1].at == choice->at ? n - 1 : n;
  case ONE_KEPT:
    n = newest_before (u, choice->at + 1);
    return n > 0 && u->writes[n - 1].at == choice->at ? n : 0;
  case NR_STYLES:
    break;
  }
  return 0;
}

/* The place in the log of a write that is pending. */
static size_t
random_place (const struct medium *md, struct prng *prng)
{
  const struct unit_pending *u;

  if (md->nr_dirty == 0)
    return 0;
  u = &md->units[md->dirty[prng_below (prng, md->nr_dirty)]];
  return u->writes[prng_below (prng, u->nr)].at;
}

static void
make_random (const struct medium *md, bool tears, struct prng *prng,
             uint8_t *to)
{
  struct choice choice = {
    (enum style) prng_below (prng, NR_STYLES), random_place (md, prng),
  };
  size_t i;

  for (i = 0; i < md->nr_dirty; ++i) {
    const struct unit_pending *u = &md->units[md->dirty[i]];
    unsigned n = random_choice (u, &choice, prng);

    choose_unit (md, md->dirty[i], n, to);
    if (tears && prng_chance (prng, 30))
      tear_unit (md, md->dirty[i], prng, to);
  }
}

static void
make_all_or_nothing (const struct medium *md, bool all, uint8_t *to)
{
  size_t i;

  for (i = 0; all && i < md->nr_dirty; ++i)
    choose_unit (md, md->dirty[i], md->units[md->dirty[i]].nr, to);
}

/* The next operation has got as far as some unit of several.  A record that is
 * being made has some of its zeros.
 */
static bool
apply_part (const struct cut *c, struct prng *prng, struct machine *to)
{
  const struct log_entry *e = &c->m->log[c->pos];
  size_t first, nr;

  if (c->pos == c->m->nr_log)
    return false;
  if (e->kind == LOG_RECORD_CREATE) {
    to->has_record = true;
    to->record_size = prng_below (prng, e->length / UNIT) * UNIT;
    memset (to->record, 0, sizeof to->record);
    return true;
  }
  if (e->kind != LOG_WRITE)
    return false;
  first = unit_first (e->offset);
  nr = unit_last (e->offset, e->length) - first;
  if (nr < 2)
    return false;
  memcpy (to->image + first * UNIT, e->bytes,
          (1 + prng_below (prng, nr - 1)) * UNIT);
  return true;
}

unsigned
cut_count_states (const struct cut *c, unsigned want)
{
  unsigned all = count_all (c);

  return STATE_POWER + (all > 0 ? all : want);
}

bool
cut_make_state (const struct cut *c, unsigned state, unsigned nr_states,
                struct prng *prng, struct machine *to)
{
  bool killed = state < STATE_POWER;
  unsigned n = state - STATE_POWER;
  size_t bytes = c->image.nr_units * UNIT;

  to->has_record = c->has_record;
  to->record_size = c->record_size;
  memcpy (to->image, killed ? c->image.page : c->image.durable, bytes);
  if (c->has_record)
    memcpy (to->record, killed ? c->record.page : c->record.durable,
            c->record_size);
  if (killed)
    return state == STATE_KILLED || apply_part (c, prng, to);

  if (nr_states - STATE_POWER == count_all (c))
    make_numbered (c, n, to);
  else if (n < 4) {
    make_all_or_nothing (&c->image, n & 1, to->image);
    make_all_or_nothing (&c->record, n == 1 || n == 2, to->record);
  }
  else {
    make_random (&c->image, false, prng, to->image);
    make_random (&c->record, true, prng, to->record);
  }
  return true;
}

static void
print_medium (const char *name, const struct medium *md, const uint8_t *state)
{
  const uint8_t *bytes;
  unsigned n;
  size_t i, unit;

  for (i = 0; i < md->nr_dirty; ++i) {
    unit = md->dirty[i];
    bytes = state + unit * UNIT;
    for (n = md->units[unit].nr; n > 0; --n)
      if (memcmp (bytes, md->units[unit].writes[n - 1].bytes, UNIT) == 0)
        break;
    if (n > 0)
      printf ("  %s unit %zu: as of operation %zu\n", name, unit,
              md->units[unit].writes[n - 1].at);
    else
      printf ("  %s unit %zu: %s\n", name, unit,
              memcmp (bytes, md->durable + unit * UNIT, UNIT) == 0
              ? "as it was durable" : "torn");
  }
}

void
cut_print_state (const struct cut *c, const struct machine *state)
{
  print_medium ("image", &c->image, state->image);
  if (c->has_record)
    print_medium ("record", &c->record, state->record);
}
