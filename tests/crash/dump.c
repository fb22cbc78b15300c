/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <inttypes.h>
#include <stdio.h>

#include "crc32.h"
#include "dump.h"

#define ENTRIES_MAX 150         /* the last ones are what matters */

/* By the layout that the image had at the start. */
struct map {
  struct mirror_volume volumes[ORACLE_VOLUMES_MAX];
  unsigned nr;
};

static void
print_place (const struct map *map, uint64_t offset)
{
  const struct mirror_volume *v;
  uint64_t slot;

  for (v = map->volumes; v < map->volumes + map->nr; ++v) {
    if (offset >= v->fat1 && offset < v->fat1 + v->size) {
      slot = (offset - v->fat1) / v->sector_size;
      printf (" FAT1[%" PRIu64 "]", slot);
    }
    else if (offset >= v->mirror && offset < v->mirror + v->size) {
      slot = (offset - v->mirror) / v->sector_size;
      printf (" mirror[%" PRIu64 "]", slot);
    }
    else if (offset == v->start)
      printf (" boot");
  }
}

static void
print_range (const struct map *map, uint64_t offset, uint64_t length)
{
  printf (" %" PRIu64 "+%" PRIu64, offset, length);
  if (length > 0)
    print_place (map, offset);
}

static void
print_request (const struct map *map, const struct request *r, unsigned n)
{
  static const char *const names[] = {
    [REQ_WRITE] = "write", [REQ_ZERO] = "zero", [REQ_TRIM] = "trim",
    [REQ_FLUSH] = "flush", [REQ_REOPEN] = "(start)",
  };

  printf ("-- request %u: %s", n, names[r->kind]);
  if (r->kind != REQ_FLUSH && r->kind != REQ_REOPEN)
    print_range (map, r->offset, r->length);
  printf ("%s\n", r->fua ? " FUA" : "");
}

static void
print_write (const struct map *map, const struct log_entry *e)
{
  static const char *const names[] = {
    [DISK_READ] = "", [DISK_WRITE] = "write", [DISK_ZERO] = "zero",
    [DISK_DISCARD] = "discard", [DISK_SYNC] = "",
  };
  size_t size = UNIT * (unit_last (e->offset, e->length) -
                        unit_first (e->offset));

  printf ("%s", names[e->op]);
  print_range (map, e->offset, e->length);
  printf (" crc %08" PRIx32 "\n", crc32_ieee (0, e->bytes, size));
}

static void
print_entry (const struct workload *wl, const struct map *map, size_t at)
{
  const struct log_entry *e = &wl->machine.log[at];

  printf ("%5zu ", at);
  switch (e->kind) {
  case LOG_WRITE:
    print_write (map, e);
    break;
  case LOG_SYNC:
    printf ("sync");
    print_range (map, e->offset, e->length);
    printf (e->from != at ? " as of %zu\n" : "\n", e->from);
    break;
  case LOG_RECORD_CREATE: printf ("record: create\n"); break;
  case LOG_RECORD_REMOVE: printf ("record: remove\n"); break;
  case LOG_RECORD_SET_ASIDE: printf ("record: set aside\n"); break;
  case LOG_RECORD_WRITE:
    printf ("record: write %" PRIu64 "+%" PRIu64 " \"%.8s\"\n", e->offset,
            e->length, (const char *) e->bytes);
    break;
  case LOG_RECORD_SYNC: printf ("record: sync\n"); break;
  case LOG_BEGIN:
    print_request (map, &wl->oracle.requests[e->request], e->request);
    break;
  case LOG_APPLIED: printf ("-- applied: %u\n", e->request); break;
  case LOG_SLEPT: printf ("-- the delay is over\n"); break;
  case LOG_END: printf ("-- acknowledged: %u\n", e->request); break;
  }
}

void
dump_log (const struct workload *wl, size_t end)
{
  struct layout *layout;
  struct map map;
  size_t at = end > ENTRIES_MAX ? end - ENTRIES_MAX : 0;

  map.nr = oracle_find_volumes (wl->initial, wl->machine.size, &layout,
                                map.volumes, ORACLE_VOLUMES_MAX);
  layout_free (layout);
  printf ("the log%s:\n", at > 0 ? ", its last part" : "");
  for (; at < end; ++at)
    print_entry (wl, &map, at);
}
