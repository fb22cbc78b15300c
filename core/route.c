/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <stdbool.h>

#include "route.h"
#include "util.h"

/* The windows of FAT 1 that stand for the piece. */
static void
add_slots (struct route *route, const struct mirror_volume *volume,
           const struct region *region)
{
  uint64_t copy = region->fat == 0 ? volume->fat1 : volume->mirror;
  uint64_t start = region->start - copy + volume->fat1;
  uint64_t end = region->end - copy + volume->fat1;

  mirror_widen (volume, &start, &end);
  if (route->kind == ROUTE_PLAIN) {
    route->slots_start = start;
    route->slots_end = end;
  }
  else {
    route->slots_start = min_u64 (route->slots_start, start);
    route->slots_end = max_u64 (route->slots_end, end);
  }
}

void
route_add (struct route *route, enum disk_op_kind kind,
           const struct layout *layout, const struct region *region,
           bool whole)
{
  struct mirror_volume volume;

  if (region->kind != REGION_FAT ||
      !mirror_volume_of (&layout->volumes[region->volume], &volume))
    return;
  add_slots (route, &volume, region);
  if (!whole || kind != DISK_WRITE)
    route->kind = ROUTE_ACROSS;
  else
    route->kind = region->fat == 0 ? ROUTE_FAT1 : ROUTE_MIRROR;
  route->volume = volume;
}
