/* SPDX-License-Identifier: BSD-3-Clause */

/* Mirrors: a batch of slots on its way into the image.  The states and rules
 * are in mirror.h.
 */

#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mirror-window.h"
#include "util.h"

void
mirror_batch_release (struct mirror_batch *b)
{
  free (b->bytes);
  free (b->ops);
  free (b->iov);
}

int
mirror_batch_reserve (struct mirror_batch *b, size_t slots, size_t bytes)
{
  b->bytes = malloc (bytes);
  b->ops = calloc (slots, sizeof *b->ops);
  b->iov = calloc (slots, sizeof *b->iov);
  b->slots_max = slots;
  b->bytes_max = bytes;
  return b->bytes && b->ops && b->iov ? 0 : -ENOMEM;
}

/* A slot's mirror: to the end of the last run, or as a new one. */
static void
batch_add (struct mirror_batch *b, uint64_t offset, const uint8_t *bytes,
           size_t count)
{
  struct disk_op *op = &b->ops[b->nr];
  uint8_t *to = b->bytes + b->used;

  memcpy (to, bytes, count);
  b->used += count;
  b->slots++;
  if (b->nr > 0 && op[-1].offset + op[-1].length == offset) {
    op[-1].length += count;
    b->iov[b->nr - 1].iov_len += count;
    return;
  }
  b->iov[b->nr] = (struct iovec) { to, count };
  *op = (struct disk_op) {
    .kind = DISK_WRITE, .offset = offset, .length = count,
    .iov = &b->iov[b->nr], .iovcnt = 1,
  };
  b->nr++;
}

void
mirror_batch_collect_locked (struct mirror *m, struct mirror_batch *b,
                             struct mirror_window *w)
{
  unsigned i;

  if (w->dirty == 0)
    return;
  for (i = 0; i < w->nr_slots && b->slots < b->slots_max &&
         b->used + w->slot_size <= b->bytes_max; ++i) {
    size_t at = (size_t) i * w->slot_size;

    if (w->state[i] == DEFERRED)
      memcpy (w->kept + at, w->fat->bytes + at, w->slot_size);
    else if (w->state[i] != DIVERGED)
      continue;
    batch_add (b, w->mirror + at, w->kept + at, w->slot_size);
    mirror_set_state_locked (m, w, i, WRITING);
  }
  w->in_flight++;
  b->windows[b->nr_windows++] = w;
}

/* WRITING -> WRITTEN; after a failure back to DIVERGED. */
static void
batch_finish (struct mirror *m, struct mirror_batch *b, int result)
{
  unsigned n, i;

  SCOPED_LOCK (&m->lock);
  m->batches_ended++;
  for (n = 0; n < b->nr_windows; ++n) {
    struct mirror_window *w = b->windows[n];

    for (i = 0; i < w->nr_slots; ++i)
      if (w->state[i] == WRITING)
        mirror_set_state_locked (m, w, i, result < 0 ? DIVERGED : WRITTEN);
    w->in_flight--;
  }
  pthread_cond_broadcast (&m->changed);
}

int
mirror_batch_write (struct mirror *m, struct mirror_batch *b, unsigned flags)
{
  size_t i;
  int r = 0;

  for (i = 0; i < b->nr; ++i)
    b->ops[i].flags = flags;
  if (b->nr > 0) {
    r = disk_submit (m->disk, b->ops, b->nr);
    stats_add (m->stats, STATS_mirror_batches, 1);
  }
  if (r < 0)
    commit_fail (m->commit);
  else
    stats_add (m->stats, STATS_mirrors_written, b->slots);
  batch_finish (m, b, r);
  if (r == 0 && b->nr > 0)
    mirror_reached (m, MIRROR_WRITTEN);
  return r;
}
