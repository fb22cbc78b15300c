/* SPDX-License-Identifier: BSD-3-Clause */

/* Simple and slow: see fat-reader.h. */

#include <config.h>

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "fat-reader.h"

static uint32_t
get16 (const uint8_t *p)
{
  return p[0] + p[1] * 256u;
}

static uint32_t
get32 (const uint8_t *p)
{
  return get16 (p) + get16 (p + 2) * 65536u;
}

/* fatgen103, "Boot Sector and BPB Structure", and "FAT Type Determination". */
bool
fat_reader_init (struct fat_reader *r, const uint8_t *image, uint64_t size,
                 uint64_t start)
{
  const uint8_t *boot = image + start;
  uint64_t sector, sectors, reserved, nr_fats, fat_sectors, clusters;

  if (start > size || size - start < 512 || get16 (boot + 510) != 0xaa55)
    return false;
  sector = get16 (boot + 11);
  reserved = get16 (boot + 14);
  nr_fats = boot[16];
  sectors = get16 (boot + 19) ? get16 (boot + 19) : get32 (boot + 32);
  fat_sectors = get32 (boot + 36);
  if (sector < 512 || boot[13] == 0 ||
      reserved + nr_fats * fat_sectors >= sectors)
    return false;
  clusters = (sectors - reserved - nr_fats * fat_sectors) / boot[13];
  if (clusters == 0 || (clusters + 2) * 4 > fat_sectors * sector ||
      sectors * sector > size - start)
    return false;

  r->image = image;
  r->fat1 = start + reserved * sector;
  r->data = start + (reserved + nr_fats * fat_sectors) * sector;
  r->cluster_size = sector * boot[13];
  r->root = get32 (boot + 44);
  r->end = clusters + 2;
  r->use = malloc (r->end);
  CHECK (r->use != NULL);
  return true;
}

void
fat_reader_release (struct fat_reader *r)
{
  free (r->use);
}

static uint32_t
entry (const struct fat_reader *r, uint32_t n)
{
  return get32 (r->image + r->fat1 + 4 * (uint64_t) n) & 0x0fffffff;
}

static bool
is_cluster (const struct fat_reader *r, uint32_t n)
{
  return n >= 2 && n < r->end;
}

/* Clusters that are still to be visited as directories' starts. */
struct starts {
  uint32_t *cluster;
  size_t nr, allocated;
};

static void
starts_add (struct starts *s, uint32_t n)
{
  if (s->nr == s->allocated) {
    s->allocated = 2 * s->allocated + 64;
    s->cluster = realloc (s->cluster, s->allocated * sizeof s->cluster[0]);
    CHECK (s->cluster != NULL);
  }
  s->cluster[s->nr++] = n;
}

enum kind { NOTHING, FILE_ENTRY, DIRECTORY_ENTRY };

/* fatgen103, "FAT Directory Structure". */
static enum kind
slot_kind (const struct fat_reader *r, const uint8_t *slot)
{
  if (slot[0] == 0 || slot[0] == 0xe5 || (slot[11] & 0x08))
    return NOTHING;
  if (!memcmp (slot, ".          ", 11) || !memcmp (slot, "..         ", 11))
    return NOTHING;
  if (!is_cluster (r, get16 (slot + 20) * 65536u + get16 (slot + 26)))
    return NOTHING;
  return slot[11] & 0x10 ? DIRECTORY_ENTRY : FILE_ENTRY;
}

static const uint8_t *
slot_at (const struct fat_reader *r, uint32_t n, uint32_t offset)
{
  return r->image + r->data + (n - 2) * (uint64_t) r->cluster_size + offset;
}

/* Rule 2: one chain; what it holds is to be visited, too. */
static void
visit_directory (struct fat_reader *r, uint32_t n, struct starts *starts)
{
  uint32_t offset;

  for (; is_cluster (r, n) && entry (r, n) != 0 && r->use[n] != USE_DIRECTORY;
       n = entry (r, n)) {
    r->use[n] = USE_DIRECTORY;
    for (offset = 0; offset < r->cluster_size; offset += 32) {
      const uint8_t *slot = slot_at (r, n, offset);

      if (slot_kind (r, slot) == DIRECTORY_ENTRY)
        starts_add (starts, get16 (slot + 20) * 65536u + get16 (slot + 26));
    }
  }
}

/* Rule 3.  visited[] has the number of the last file that came along. */
static void
visit_file (struct fat_reader *r, const uint8_t *slot, uint32_t *visited,
            uint32_t id)
{
  uint32_t whole = get32 (slot + 28) / r->cluster_size;
  uint32_t n = get16 (slot + 20) * 65536u + get16 (slot + 26);

  for (; whole > 0 && is_cluster (r, n) && entry (r, n) != 0 &&
         visited[n] != id; n = entry (r, n), --whole) {
    visited[n] = id;
    if (r->use[n] != USE_DIRECTORY)
      r->use[n] = USE_SETTLED;
  }
}

static void
visit_files (struct fat_reader *r)
{
  uint32_t *visited = calloc (r->end, sizeof *visited);
  uint32_t n, offset, id = 0;

  CHECK (visited != NULL);
  for (n = 2; n < r->end; ++n)
    for (offset = 0; r->use[n] == USE_DIRECTORY && offset < r->cluster_size;
         offset += 32)
      if (slot_kind (r, slot_at (r, n, offset)) == FILE_ENTRY)
        visit_file (r, slot_at (r, n, offset), visited, ++id);
  free (visited);
}

void
fat_reader_classify (struct fat_reader *r)
{
  struct starts starts = { 0 };
  uint32_t n;

  for (n = 0; n < r->end; ++n)
    r->use[n] = n >= 2 && entry (r, n) == 0 ? USE_FREE : USE_FRESH;
  starts_add (&starts, r->root);
  while (starts.nr > 0)
    visit_directory (r, starts.cluster[--starts.nr], &starts);
  free (starts.cluster);
  visit_files (r);
}

const char *
fat_use_name (unsigned use)
{
  static const char *const names[] = { "free", "fresh", "settled",
                                       "directory" };

  return use < sizeof names / sizeof names[0] ? names[use] : "?";
}
