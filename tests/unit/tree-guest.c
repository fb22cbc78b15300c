/* SPDX-License-Identifier: BSD-3-Clause */

/* See tree-guest.h. */

#include <config.h>

#include "tree-guest.h"

uint32_t
guest_draw (struct guest *g, uint32_t below)
{
  g->random = g->random * UINT64_C (6364136223846793005) +
    UINT64_C (1442695040888963407);
  return (uint32_t) ((g->random >> 33) % below);
}

#define SAY(g, ...)                                                     \
  do {                                                                  \
    if ((g)->chatty)                                                    \
      printf ("  " __VA_ARGS__);                                        \
  } while (0)

/* -- Clusters ------------------------------------------------------------- */

static bool
ends (uint32_t entry)
{
  return entry >= 0x0ffffff8;
}

/* 0: the volume is full. */
static uint32_t
alloc_cluster (struct guest *g)
{
  uint32_t nr = g->cache.end - 2, i;

  if (guest_draw (g, 4) == 0)
    g->hint = guest_draw (g, nr);       /* fragments */
  for (i = 0; i < nr; ++i) {
    uint32_t n = 2 + (g->hint + i) % nr;

    if (image_get (&g->cache, n) == 0) {
      image_put (&g->cache, n, END_MARK);
      g->hint = n - 2;
      return n;
    }
  }
  return 0;
}

static void
free_chain (struct guest *g, uint32_t n)
{
  while (n >= 2 && !ends (n)) {
    uint32_t next = image_get (&g->cache, n);

    image_put (&g->cache, n, 0);
    n = next;
  }
}

static uint32_t
chain_length (struct guest *g, uint32_t n)
{
  uint32_t length = 0;

  for (; n >= 2 && !ends (n); n = image_get (&g->cache, n))
    length++;
  return length;
}

static uint32_t
chain_at (struct guest *g, uint32_t n, uint32_t index)
{
  while (index-- > 0)
    n = image_get (&g->cache, n);
  return n;
}

/* Random bytes; not such as an entry of a directory. */
static void
fill_cluster (struct guest *g, uint32_t n)
{
  uint64_t at = image_cluster (&g->cache, n);
  uint32_t i;

  for (i = 0; i < g->cache.cluster_size; i += 4)
    put_le32 (g->cache.bytes + at + i, guest_draw (g, UINT32_MAX) | 0x01010101);
}

/* -- Entries --------------------------------------------------------------- */

static void
store_node (struct guest *g, const struct guest_node *node)
{
  slot_set_chain (image_slot (&g->cache, node->slot_cluster, node->slot),
                  node->first, node->size);
}

/* A directory grows by a cluster if it is full.  False: so is the volume. */
static bool
find_slot (struct guest *g, unsigned parent, uint32_t *cluster,
           unsigned *slot)
{
  uint32_t n = g->node[parent].first, last = n, added;
  unsigned i;

  for (; !ends (n); last = n, n = image_get (&g->cache, n))
    for (i = 0; i < image_slots (&g->cache); ++i) {
      uint8_t first = image_slot (&g->cache, n, i)[0];

      if (first == 0 || first == DELETED_SLOT) {
        *cluster = n;
        *slot = i;
        return true;
      }
    }
  added = alloc_cluster (g);
  if (added == 0)
    return false;
  SAY (g, "directory at %u grows by %u\n", g->node[parent].first, added);
  memset (g->cache.bytes + image_cluster (&g->cache, added), 0,
          g->cache.cluster_size);
  image_put (&g->cache, last, added);
  *cluster = added;
  *slot = 0;
  return true;
}

/* Now and then a part of a long name stands in front. */
static bool
make_entry (struct guest *g, unsigned parent, struct guest_node *node)
{
  char name[12];

  if (guest_draw (g, 4) == 0) {
    if (!find_slot (g, parent, &node->slot_cluster, &node->slot))
      return false;
    slot_set (image_slot (&g->cache, node->slot_cluster, node->slot), "Al",
              IS_LONG_NAME, 0, 0x00610062);
  }
  if (!find_slot (g, parent, &node->slot_cluster, &node->slot))
    return false;
  snprintf (name, sizeof name, "F%06u", guest_draw (g, 1000000));
  slot_set (image_slot (&g->cache, node->slot_cluster, node->slot), name,
            node->is_directory ? IS_DIRECTORY : IS_FILE, node->first,
            node->size);
  node->parent = parent;
  return true;
}

static void
remove_entry (struct guest *g, const struct guest_node *node)
{
  image_slot (&g->cache, node->slot_cluster, node->slot)[0] = DELETED_SLOT;
}

/* -- Nodes ----------------------------------------------------------------- */

/* A node of that kind, or 0: there is none but the root. */
static unsigned
some_node (struct guest *g, bool is_directory)
{
  unsigned begin = guest_draw (g, GUEST_NODES), i;

  for (i = 0; i < GUEST_NODES; ++i) {
    unsigned k = (begin + i) % GUEST_NODES;

    if (g->node[k].used && g->node[k].is_directory == is_directory &&
        (k != 0 || is_directory))
      return k;
  }
  return 0;
}

static struct guest_node *
free_node (struct guest *g)
{
  unsigned i;

  for (i = 0; i < GUEST_NODES; ++i)
    if (!g->node[i].used) {
      memset (&g->node[i], 0, sizeof g->node[i]);
      return &g->node[i];
    }
  return NULL;
}

static bool
is_inside (const struct guest *g, unsigned k, unsigned directory)
{
  for (; k != 0; k = g->node[k].parent)
    if (k == directory)
      return true;
  return directory == 0;
}

static bool
has_children (const struct guest *g, unsigned directory)
{
  unsigned i;

  for (i = 1; i < GUEST_NODES; ++i)
    if (g->node[i].used && g->node[i].parent == directory)
      return true;
  return false;
}

/* -- What files do --------------------------------------------------------- */

/* So many more clusters, with data or as they are. */
static void
add_clusters (struct guest *g, struct guest_node *node, uint32_t nr, bool fill)
{
  uint32_t length = chain_length (g, node->first), n;

  while (nr-- > 0 && (n = alloc_cluster (g)) != 0) {
    if (fill)
      fill_cluster (g, n);
    if (length == 0)
      node->first = n;
    else
      image_put (&g->cache, chain_at (g, node->first, length - 1), n);
    length++;
  }
}

static void
append (struct guest *g, struct guest_node *node, uint32_t bytes)
{
  uint32_t size = node->size + bytes, have, room;

  have = chain_length (g, node->first);
  if ((size + g->cache.cluster_size - 1) / g->cache.cluster_size > have)
    add_clusters (g, node, (size + g->cache.cluster_size - 1) /
                  g->cache.cluster_size - have, true);
  room = chain_length (g, node->first) * g->cache.cluster_size;
  node->size = size < room ? size : room;
  store_node (g, node);
  SAY (g, "append: file at %u has %u bytes, %u clusters\n", node->first,
       node->size, chain_length (g, node->first));
}

static uint32_t
some_bytes (struct guest *g)
{
  uint32_t clusters = guest_draw (g, guest_draw (g, 8) == 0 ? 40 : 6);

  return clusters * g->cache.cluster_size +
    (guest_draw (g, 2) ? guest_draw (g, g->cache.cluster_size) : 0);
}

static void
create (struct guest *g)
{
  struct guest_node *node = free_node (g);

  if (!node || !make_entry (g, some_node (g, true), node))
    return;
  node->used = true;
  SAY (g, "create in %u\n", g->node[node->parent].first);
  if (guest_draw (g, 4) > 0)
    append (g, node, some_bytes (g));
}

static void
truncate_to (struct guest *g, struct guest_node *node, uint32_t size)
{
  uint32_t keep = (size + g->cache.cluster_size - 1) / g->cache.cluster_size;
  uint32_t last;

  SAY (g, "truncate file at %u from %u to %u\n", node->first, node->size,
       size);
  if (keep == 0) {
    free_chain (g, node->first);
    node->first = 0;
  }
  else if (keep < chain_length (g, node->first)) {
    last = chain_at (g, node->first, keep - 1);
    free_chain (g, image_get (&g->cache, last));
    image_put (&g->cache, last, END_MARK);
  }
  node->size = size;
  store_node (g, node);
}

static void
overwrite (struct guest *g, const struct guest_node *node)
{
  uint32_t i, nr = (node->size + g->cache.cluster_size - 1) /
    g->cache.cluster_size;

  if (nr == 0)
    return;
  i = guest_draw (g, nr);
  SAY (g, "overwrite cluster %u of file at %u\n", i, node->first);
  fill_cluster (g, chain_at (g, node->first, i));
}

static void
delete (struct guest *g, struct guest_node *node)
{
  SAY (g, "delete %s at %u, %u bytes\n",
       node->is_directory ? "directory" : "file", node->first, node->size);
  remove_entry (g, node);
  free_chain (g, node->first);
  node->used = false;
}

static void
act_on_file (struct guest *g)
{
  struct guest_node *node = &g->node[some_node (g, false)];

  if (node == &g->node[0])
    create (g);
  else
    switch (guest_draw (g, 9)) {
    case 0: case 1: case 2:
      append (g, node, some_bytes (g));
      break;
    case 3:
      truncate_to (g, node, 0);
      break;
    case 4: case 5:
      truncate_to (g, node, guest_draw (g, node->size + 1));
      break;
    case 6:
      delete (g, node);
      break;
    case 7:
      overwrite (g, node);
      break;
    default:                    /* fallocate -n */
      add_clusters (g, node, 1 + guest_draw (g, 5), false);
      store_node (g, node);
      SAY (g, "preallocate: file at %u has %u clusters\n", node->first,
           chain_length (g, node->first));
      break;
    }
}

/* -- What directories do --------------------------------------------------- */

static void
make_directory (struct guest *g)
{
  struct guest_node *node = free_node (g);
  unsigned parent = some_node (g, true);

  if (!node || (node->first = alloc_cluster (g)) == 0)
    return;
  node->is_directory = true;
  if (!make_entry (g, parent, node)) {
    free_chain (g, node->first);
    return;
  }
  node->used = true;
  image_directory (&g->cache, node->first, g->node[parent].first);
  SAY (g, "mkdir %u in %u\n", node->first, g->node[parent].first);
}

static void
remove_directory (struct guest *g)
{
  unsigned k = some_node (g, true);

  if (k != 0 && !has_children (g, k))
    delete (g, &g->node[k]);
}

/* To another name, maybe in another directory. */
static void
move (struct guest *g)
{
  bool is_directory = guest_draw (g, 4) == 0;
  unsigned k = some_node (g, is_directory), parent = some_node (g, true);
  struct guest_node old = g->node[k];

  if (k == 0 || (is_directory && is_inside (g, parent, k)) ||
      !make_entry (g, parent, &g->node[k])) {
    g->node[k] = old;
    return;
  }
  remove_entry (g, &old);
  if (is_directory)
    slot_set_chain (image_slot (&g->cache, old.first, 1),
                    parent == 0 ? 0 : g->node[parent].first, 0);
  SAY (g, "move %u from %u to %u\n", old.first, g->node[old.parent].first,
       g->node[parent].first);
}

/* Over a file that is there: its entry gets the other's chain. */
static void
replace (struct guest *g)
{
  unsigned from = some_node (g, false), to = some_node (g, false);
  struct guest_node *node = &g->node[to];

  if (from == 0 || to == 0 || from == to)
    return;
  SAY (g, "replace %u by %u\n", node->first, g->node[from].first);
  free_chain (g, node->first);
  node->first = g->node[from].first;
  node->size = g->node[from].size;
  store_node (g, node);
  remove_entry (g, &g->node[from]);
  g->node[from].used = false;
}

void
guest_act (struct guest *g)
{
  switch (guest_draw (g, 12)) {
  case 0: case 1: case 2:
    create (g);
    break;
  case 3:
    make_directory (g);
    break;
  case 4:
    remove_directory (g);
    break;
  case 5: case 6:
    move (g);
    break;
  case 7:
    replace (g);
    break;
  default:
    act_on_file (g);
    break;
  }
}

void
guest_init (struct guest *g, const struct fat_spec *spec, uint64_t seed)
{
  memset (g, 0, sizeof *g);
  g->random = seed;
  image_init (&g->cache, spec);
  g->node[0] = (struct guest_node) {
    .used = true, .is_directory = true, .first = g->cache.root
  };
}

void
guest_release (struct guest *g)
{
  image_release (&g->cache);
}
