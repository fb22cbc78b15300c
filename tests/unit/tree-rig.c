/* SPDX-License-Identifier: BSD-3-Clause */

/* See tree-rig.h. */

#include <config.h>

#include "fat-reader.h"
#include "tree-rig.h"
#include "util.h"

/* The engine's thread scans again after some seconds at most. */
#define IDLE_WITHIN 60          /* seconds, as tree_wait_idle() has them */
#define SHOWN_MAX 10            /* clusters that differ */

/* -- The disk ------------------------------------------------------------ */

struct tree_disk {
  struct disk disk;
  struct tree_rig *rig;
};

static void
do_op (struct tree_rig *rig, const struct disk_op *op)
{
  uint8_t *p = rig->bytes + op->offset;
  int i;

  if (op->kind == DISK_SYNC)
    return;
  CHECK (op->length > 0 && op->length <= rig->image->size &&
         op->offset <= rig->image->size - op->length);
  if (op->kind == DISK_ZERO || op->kind == DISK_DISCARD)
    memset (p, 0, op->length);
  for (i = 0; i < op->iovcnt; ++i) {
    if (op->kind == DISK_READ)
      memcpy (op->iov[i].iov_base, p, op->iov[i].iov_len);
    else
      memcpy (p, op->iov[i].iov_base, op->iov[i].iov_len);
    p += op->iov[i].iov_len;
  }
}

static int
tree_disk_submit (struct disk *disk, struct disk_op *ops, size_t nr)
{
  struct tree_rig *rig = ((struct tree_disk *) disk)->rig;
  size_t i;

  SCOPED_LOCK (&rig->lock);
  for (i = 0; i < nr; ++i) {
    do_op (rig, &ops[i]);
    ops[i].result = 0;
  }
  return 0;
}

static void
tree_disk_free (struct disk *disk)
{
  free (disk);
}

static const struct disk_ops tree_disk_ops = {
  .name = "tree", .submit = tree_disk_submit, .free = tree_disk_free,
};

/* -- The engine ---------------------------------------------------------- */

void
tree_rig_init (struct tree_rig *rig, const struct image *image)
{
  memset (rig, 0, sizeof *rig);
  rig->image = image;
  rig->bytes = malloc (image->size);
  CHECK (rig->bytes != NULL);
  memcpy (rig->bytes, image->bytes, image->size);
  pthread_mutex_init (&rig->lock, NULL);
  rig->options = (struct fatbatch_options) {
    .cache = FATBATCH_WRITEBACK, .durability = FATBATCH_DURABILITY_FAT,
    .mirror_delay_ms = 3600000, .mirror_batch = UINT64_C (1) << 30,
  };
}

void
tree_rig_open (struct tree_rig *rig)
{
  struct tree_disk *td = calloc (1, sizeof *td);
  struct memory_store *store = memory_store_new (&rig->record, NULL);

  CHECK (td != NULL);
  td->rig = rig;
  disk_init (&td->disk, &tree_disk_ops, rig->image->size, 1, 1);
  CHECK_EQ (engine_new (&td->disk, NULL, &store->store, &rig->options,
                        &rig->fb), 0);
  engine_start_tree (rig->fb);
}

void
tree_rig_close (struct tree_rig *rig)
{
  fatbatch_close (rig->fb);
  rig->fb = NULL;
}

void
tree_rig_release (struct tree_rig *rig)
{
  tree_rig_close (rig);
  free (rig->bytes);
  pthread_mutex_destroy (&rig->lock);
}

/* -- Looks --------------------------------------------------------------- */

void
tree_rig_wait (struct tree_rig *rig)
{
  tree_wait_idle (&rig->fb->tree, IDLE_WITHIN);
}

static const struct clusters *
clusters_of (struct fatbatch *fb, uint64_t start)
{
  struct tree_set *set = atomic_load (&fb->tree.set);
  size_t i;

  for (i = 0; set && i < set->nr; ++i)
    if (set->volume[i].start == start)
      return set->volume[i].clusters;
  return NULL;
}

static void
show (const struct fat_reader *r, uint32_t n, unsigned got)
{
  const uint8_t *p = r->image + r->fat1 + 4 * (uint64_t) n;

  fprintf (stderr, "cluster %" PRIu32 " (entry %#" PRIx32 ") is %s, not %s\n",
           n, load_le32 (p), fat_use_name (got), fat_use_name (r->use[n]));
}

/* Does a cluster that is taken for `got` only cost more than it should? */
static bool
is_careful (enum cluster_state got, enum cluster_state use)
{
  return use != CLUSTER_FREE &&
    (got == CLUSTER_FRESH || got == CLUSTER_DIRECTORY);
}

bool
tree_states_careful (struct fatbatch *fb, const uint8_t *image, uint64_t size,
                     uint64_t start)
{
  const struct clusters *c = clusters_of (fb, start);
  struct fat_reader r;
  bool careful = true;
  uint32_t n;

  CHECK (fat_reader_init (&r, image, size, start));
  fat_reader_classify (&r);
  for (n = 0; n < r.end; ++n)
    if (clusters_get (c, n) != r.use[n] &&
        !is_careful (clusters_get (c, n), r.use[n]))
      careful = false;
  fat_reader_release (&r);
  return careful;
}

bool
tree_states_agree (struct fatbatch *fb, const uint8_t *image, uint64_t size,
                   uint64_t start)
{
  const struct clusters *c = clusters_of (fb, start);
  struct fat_reader r;
  unsigned differ = 0;
  uint32_t n;

  CHECK (fat_reader_init (&r, image, size, start));
  CHECK (c != NULL && c->end == r.end);
  fat_reader_classify (&r);
  for (n = 0; n < r.end; ++n)
    if (clusters_get (c, n) != r.use[n] && differ++ < SHOWN_MAX)
      show (&r, n, clusters_get (c, n));
  if (differ > SHOWN_MAX)
    fprintf (stderr, "and %u more\n", differ - SHOWN_MAX);
  fat_reader_release (&r);
  return differ == 0;
}

void
tree_rig_check_reads (struct tree_rig *rig, const char *name)
{
  CLEANUP_FREE uint8_t *buf = malloc (rig->image->size);
  uint64_t i;

  CHECK (buf != NULL);
  CHECK_EQ (fatbatch_read (rig->fb, buf, rig->image->size, 0), 0);
  for (i = 0; i < rig->image->size; ++i)
    if (buf[i] != rig->image->bytes[i]) {
      fprintf (stderr, "%s: byte %" PRIu64 " reads as %#x, not %#x\n", name, i,
               buf[i], rig->image->bytes[i]);
      exit (EXIT_FAILURE);
    }
}

static void
scan_anew (struct tree_rig *rig)
{
  struct tree *t = &rig->fb->tree;
  struct tree_volume *v = &atomic_load (&t->set)->volume[0];

  SCOPED_LOCK (&v->lock);
  tree_doubt_locked (t, v);
}

bool
tree_rig_check_followed (struct tree_rig *rig, const char *name)
{
  const struct image *i = rig->image;
  bool agree;

  tree_rig_wait (rig);
  tree_rig_check_reads (rig, name);
  agree = tree_states_agree (rig->fb, i->bytes, i->size, i->start);
  if (agree)
    return true;
  if (!tree_states_careful (rig->fb, i->bytes, i->size, i->start)) {
    fprintf (stderr, "%s: failed\n", name);
    exit (EXIT_FAILURE);
  }
  scan_anew (rig);
  tree_rig_check (rig, name);
  return false;
}

void
tree_rig_check (struct tree_rig *rig, const char *name)
{
  tree_rig_wait (rig);
  tree_rig_check_reads (rig, name);
  if (tree_states_agree (rig->fb, rig->image->bytes, rig->image->size,
                         rig->image->start))
    return;
  fprintf (stderr, "%s: failed\n", name);
  exit (EXIT_FAILURE);
}
