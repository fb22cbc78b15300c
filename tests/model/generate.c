/* SPDX-License-Identifier: BSD-3-Clause */

/* Which requests: stripes, ranges in them, and batches. */

#include <config.h>

#include <string.h>

#include "model.h"

#define GRAINS 6

static uint64_t
min_u64 (uint64_t a, uint64_t b)
{
  return a < b ? a : b;
}

/* -- Stripes ----------------------------------------------------------- */

/* Where this round's small stripes begin: often at a boot sector, a FAT, the
 * image's tail.
 */
static uint64_t
hot_start (struct model *m, struct prng *prng)
{
  const struct image *image = m->image;
  const struct image_range *place;

  if (prng_chance (prng, 40))
    return prng_below (prng, m->size);
  if (image->nr_watched > 0 && prng_chance (prng, 60))
    place = &image->places[prng_below (prng, image->nr_watched)];
  else
    place = &image->places[prng_below (prng, image->nr_places)];
  return place->start - min_u64 (place->start, prng_below (prng, 1500));
}

static void
add_stripe (struct model *m, uint64_t start, uint64_t end, unsigned owner)
{
  if (start < end && m->nr_stripes < MODEL_STRIPES_MAX)
    m->stripes[m->nr_stripes++] = (struct stripe) { start, end, owner };
}

/* One large stripe, a zone of many small ones, one large stripe; or, at the
 * coarsest grain, a few large ones.  Each thread has one at least.
 */
void
generate_stripes (struct model *m)
{
  static const uint64_t grains[GRAINS] =
    { 150, 400, 1300, 5000, 40000, 400000 };
  struct prng prng;
  uint64_t pos, grain, end;
  unsigned i, count, owner;

  prng_init (&prng, m->seed, 2000 + m->round);
  grain = grains[prng_below (&prng, GRAINS)];
  count = MODEL_THREADS * (2 + prng_below (&prng, 20));
  pos = grain > 5000 ? 0 : min_u64 (hot_start (m, &prng), m->size - 256);
  m->nr_stripes = 0;
  owner = prng_below (&prng, MODEL_THREADS);
  add_stripe (m, 0, pos, owner);
  for (i = 0; i < count && pos < m->size; ++i) {
    end = min_u64 (m->size, pos + 1 + prng_below (&prng, 2 * grain));
    add_stripe (m, pos, end, (owner + i + 1) % MODEL_THREADS);
    pos = end;
  }
  add_stripe (m, pos, m->size, prng_below (&prng, MODEL_THREADS));
}

static const struct stripe *
choose_stripe (struct model *m, unsigned thread, struct prng *prng)
{
  unsigned first = prng_below (prng, m->nr_stripes);
  unsigned i;

  for (i = 0; i < m->nr_stripes; ++i) {
    const struct stripe *s = &m->stripes[(first + i) % m->nr_stripes];

    if (s->owner == thread)
      return s;
  }
  return NULL;
}

/* -- Ranges ------------------------------------------------------------ */

static uint64_t
choose_length (struct prng *prng, uint64_t max)
{
  switch (prng_below (prng, 10)) {
  case 0: return 1 + prng_below (prng, 16);
  case 1: case 2: case 3: return 1 + prng_below (prng, 1024);
  case 4: return 512 * (1 + prng_below (prng, 16));
  case 5: return 4096 * (1 + prng_below (prng, 8));
  case 6: return 1 + prng_below (prng, 20000);
  case 7: return max;
  case 8: return 512;
  default: return 1 + prng_below (prng, MODEL_LENGTH_MAX >>
                                        prng_below (prng, 10));
  }
}

/* Borders of stripes and of blocks are where things go wrong. */
static void
choose_range (struct prng *prng, const struct stripe *s, uint64_t *offset,
              uint64_t *length)
{
  uint64_t size = s->end - s->start;
  uint64_t n = min_u64 (choose_length (prng, size),
                        min_u64 (size, MODEL_LENGTH_MAX));
  uint64_t block = prng_chance (prng, 50) ? 512 : 4096;
  uint64_t pos = s->start + prng_below (prng, size - n + 1);

  switch (prng_below (prng, 4)) {
  case 0:
    pos = s->start;
    break;
  case 1:
    pos = s->end - n;
    break;
  case 2:
    if (pos - pos % block >= s->start)
      pos -= pos % block;
    break;
  }
  *offset = pos;
  *length = n;
}

/* -- Requests ---------------------------------------------------------- */

static bool
modifies (const struct request *r)
{
  return r->kind == REQUEST_WRITE || r->kind == REQUEST_ZERO ||
    r->kind == REQUEST_TRIM;
}

static bool
overlaps_any (const struct request *requests, size_t nr,
              const struct request *r)
{
  size_t i;

  for (i = 0; i < nr; ++i)
    if ((modifies (r) || modifies (&requests[i])) &&
        r->offset < requests[i].offset + requests[i].length &&
        requests[i].offset < r->offset + r->length)
      return true;
  return false;
}

/* The bytes of a write: often those that the image had, so that there are
 * volumes again where boot sectors were overwritten.
 */
static void
fill (struct model *m, struct prng *prng, struct request *r, bool restore)
{
  if (r->offset + r->length <= m->size &&
      (restore || prng_chance (prng, 30)))
    memcpy (r->buf, m->image->bytes + r->offset, r->length);
  else if (prng_chance (prng, 10))
    memset (r->buf, 0, r->length);
  else
    prng_fill (prng, r->buf, r->length);
}

static enum request_kind
choose_kind (struct prng *prng)
{
  static const struct {
    enum request_kind kind;
    unsigned until;             /* percent */
  } table[] = {
    { REQUEST_WRITE, 45 }, { REQUEST_READ, 70 }, { REQUEST_ZERO, 82 },
    { REQUEST_TRIM, 89 }, { REQUEST_EXTENTS, 94 }, { REQUEST_CACHE, 97 },
    { REQUEST_FLUSH, 100 },
  };
  unsigned n = prng_below (prng, 100), i = 0;

  while (n >= table[i].until)
    i++;
  return table[i].kind;
}

static unsigned
choose_flags (struct prng *prng, enum request_kind kind)
{
  unsigned flags = 0;

  if ((kind == REQUEST_WRITE || kind == REQUEST_ZERO ||
       kind == REQUEST_TRIM) && prng_chance (prng, 20))
    flags |= REQUEST_FUA;
  if (kind == REQUEST_ZERO && prng_chance (prng, 50))
    flags |= REQUEST_NO_HOLE;
  if (kind == REQUEST_ZERO && prng_chance (prng, 30))
    flags |= REQUEST_FAST;
  if (kind == REQUEST_EXTENTS && prng_chance (prng, 30))
    flags |= REQUEST_ONE;
  return flags;
}

static bool
has_torn (const struct model *m, const struct request *r)
{
  if (!m->may_die || r->offset >= m->size)
    return false;
  return memchr (m->states + r->offset, BYTE_TORN,
                 min_u64 (r->length, m->size - r->offset)) != NULL;
}

/* If the stripe has a boot sector or partition table wholly, sometimes write
 * that one, as a mount or mkfs does.
 */
static bool
visit_watched (struct model *m, const struct stripe *s, struct prng *prng,
               struct request *r)
{
  const struct image *image = m->image;
  const struct image_range *place;

  if (image->nr_watched == 0 || !prng_chance (prng, 15))
    return false;
  place = &image->places[prng_below (prng, image->nr_watched)];
  if (place->start < s->start || place->end > s->end)
    return false;
  r->kind = REQUEST_WRITE;
  r->flags = choose_flags (prng, r->kind);
  r->offset = place->start;
  r->length = place->end - place->start;
  return true;
}

static void
generate_request (struct model *m, const struct stripe *s, struct prng *prng,
                  struct request *r)
{
  r->kind = choose_kind (prng);
  r->flags = choose_flags (prng, r->kind);
  if (r->kind == REQUEST_FLUSH)
    return;
  choose_range (prng, s, &r->offset, &r->length);
  if (prng_chance (prng, 2))
    r->length = 0;
  else if (prng_chance (prng, 1)) {
    /* Not inside the image. */
    r->length = 1 + prng_below (prng, 5000);
    r->offset = m->size - prng_below (prng, r->length);
  }
}

size_t
generate_batch (struct model *m, unsigned thread, struct prng *prng,
                uint8_t *arena, struct request requests[MODEL_DEPTH])
{
  size_t nr = 0, want = 1 + prng_below (prng, MODEL_DEPTH), used = 0;
  unsigned tries;

  for (tries = 0; nr < want && tries < 3 * MODEL_DEPTH; ++tries) {
    const struct stripe *s = choose_stripe (m, thread, prng);
    struct request *r = &requests[nr];
    bool restore;

    if (!s)
      break;
    memset (r, 0, sizeof *r);
    restore = visit_watched (m, s, prng, r);
    if (!restore)
      generate_request (m, s, prng, r);
    if (overlaps_any (requests, nr, r) || has_torn (m, r))
      continue;
    if (r->kind == REQUEST_READ || r->kind == REQUEST_WRITE) {
      if (used + r->length > MODEL_ARENA)
        break;
      r->buf = arena + used;    /* of any alignment */
      used += r->length;
    }
    if (r->kind == REQUEST_WRITE)
      fill (m, prng, r, restore && prng_chance (prng, 80));
    nr++;
  }
  if (nr == 0)                  /* all is taken: ask for something cheap */
    requests[nr++] = (struct request) { .kind = REQUEST_FLUSH };
  return nr;
}
