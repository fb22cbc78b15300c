/* SPDX-License-Identifier: BSD-3-Clause */

/* What the directory tree (tree.h) says of each cluster after it has scanned an
 * image, good ones and hostile ones, is what the reference says
 * (fat-reader.h); in bounded time, and whatever it says, reads return what was
 * written (rule 1).
 */

#include <config.h>

#include <unistd.h>

#include "fat-reader.h"
#include "tree-rig.h"

#define NR(rows) (sizeof rows / sizeof rows[0])
#define TIME_MAX 200            /* seconds, for all: it hangs */

#define CLUSTERS 500
#define CLUSTER 512             /* bytes */
#define FOUR_GIB_LESS_1 0xffffffff

static struct image img;

static void
file (uint32_t directory, unsigned slot, uint32_t first, uint32_t size)
{
  image_entry (&img, directory, slot, IS_FILE, first, size);
}

static void
directory (uint32_t parent, unsigned slot, uint32_t n)
{
  image_entry (&img, parent, slot, IS_DIRECTORY, n, 0);
  image_directory (&img, n, parent);
  image_put (&img, n, END_MARK);
}

/* -- Good images --------------------------------------------------------- */

static void
make_empty (void)
{
}

/* Sizes around a multiple of a cluster, each with the chain that it needs. */
static void
make_sizes (void)
{
  static const uint32_t sizes[] = {
    0, 1, CLUSTER - 1, CLUSTER, CLUSTER + 1, 2 * CLUSTER - 1, 2 * CLUSTER,
    2 * CLUSTER + 1, 20 * CLUSTER, 20 * CLUSTER + 100,
  };
  uint32_t n = 10, need;
  size_t i;

  for (i = 0; i < NR (sizes); ++i) {
    need = (sizes[i] + CLUSTER - 1) / CLUSTER;
    file (2, i, need > 0 ? n : 0, sizes[i]);
    if (need > 0)
      image_run (&img, n, n + need - 1);
    n += need;
  }
}

/* As fallocate leaves them: chains that are longer than their sizes. */
static void
make_preallocated (void)
{
  image_run (&img, 10, 40);
  file (2, 0, 10, 3 * CLUSTER + 5);
  image_run (&img, 50, 60);
  file (2, 1, 50, 0);
}

/* Chains that run to and fro through each other. */
static void
make_fragments (void)
{
  uint32_t i;

  for (i = 0; i < 60; ++i) {
    image_put (&img, 400 - 3 * i, i == 59 ? END_MARK : 400 - 3 * (i + 1));
    image_put (&img, 100 + 5 * i % 61,
               i == 59 ? END_MARK : 100 + 5 * (i + 1) % 61);
  }
  file (2, 0, 400, 59 * CLUSTER + 1);
  file (2, 1, 100, 30 * CLUSTER);
}

/* Directories in directories, with files in each. */
static void
make_nested (void)
{
  uint32_t parent = 2, n = 10, i;

  for (i = 0; i < 40; ++i) {
    directory (parent, 2, n);
    file (n, 3, n + 1, 2 * CLUSTER);
    image_run (&img, n + 1, n + 3);
    parent = n;
    n += 5;
  }
}

/* A root and a directory of several clusters, not one after the other. */
static void
make_long_directories (void)
{
  image_put (&img, 2, 300);
  image_put (&img, 300, 20);
  image_put (&img, 20, END_MARK);
  file (300, 0, 30, CLUSTER);
  image_put (&img, 30, END_MARK);
  directory (20, 15, 40);
  image_put (&img, 40, 39);
  image_put (&img, 39, 420);
  image_put (&img, 420, END_MARK);
  file (420, 15, 31, CLUSTER);
  image_put (&img, 31, END_MARK);
}

/* Slots that are nothing, and slots behind the end (dirents.h). */
static void
make_odd_slots (void)
{
  uint8_t *slot;

  image_run (&img, 10, 20);
  image_run (&img, 30, 40);
  image_run (&img, 50, 60);
  file (2, 0, 10, 5 * CLUSTER);
  image_slot (&img, 2, 0)[0] = DELETED_SLOT;
  file (2, 1, 30, 5 * CLUSTER);
  image_slot (&img, 2, 1)[11] = IS_LONG_NAME;
  file (2, 5, 50, 5 * CLUSTER); /* 2 to 4 are zeros */
  slot = image_slot (&img, 2, 6);
  slot_set (slot, "LABEL", 0x08, 30, 5 * CLUSTER);
}

/* FAT entries' high four bits are reserved, and not 0 here. */
static void
make_high_bits (void)
{
  image_put (&img, 10, 0xa000000b);
  image_put (&img, 11, 0xf000000c);
  image_put (&img, 12, 0xffffffff);
  file (2, 0, 10, 3 * CLUSTER);
  image_put (&img, 20, 0xf0000000);
  file (2, 1, 20, CLUSTER);
  image_put (&img, 2, 0x5ffffff8);
}

/* What has no entry in a directory. */
static void
make_lost_chains (void)
{
  image_run (&img, 10, 100);
  image_directory (&img, 50, 2);
  file (50, 2, 200, CLUSTER);
  image_put (&img, 200, END_MARK);
}

/* The last clusters that there are. */
static void
make_last_clusters (void)
{
  image_put (&img, img.end - 1, img.end - 3);
  image_put (&img, img.end - 3, END_MARK);
  file (2, 0, img.end - 1, 2 * CLUSTER);
  directory (2, 1, img.end - 2);
}

/* -- Hostile images ------------------------------------------------------ */

static void
make_file_loops (void)
{
  image_run (&img, 10, 20);
  image_put (&img, 20, 15);
  file (2, 0, 10, FOUR_GIB_LESS_1);
  image_put (&img, 30, 30);
  file (2, 1, 30, FOUR_GIB_LESS_1);
  image_put (&img, 40, 41);
  image_put (&img, 41, 40);
  file (2, 2, 40, CLUSTER);
}

static void
make_many_files_loop (void)
{
  uint32_t n, i;

  image_run (&img, 10, 400);
  image_put (&img, 400, 10);
  image_run (&img, 450, 499);
  image_put (&img, 2, 450);
  for (n = 450; n < 500; ++n)
    for (i = 0; i < image_slots (&img); ++i)
      file (n, i, 10 + (n * 7 + i) % 390, FOUR_GIB_LESS_1);
}

static void
make_root_loops (void)
{
  image_put (&img, 2, 10);
  image_put (&img, 10, 11);
  image_put (&img, 11, 2);
  file (11, 3, 20, CLUSTER);
  image_put (&img, 20, END_MARK);
}

static void
make_root_points_to_itself (void)
{
  image_put (&img, 2, 2);
  file (2, 3, 20, CLUSTER);
  image_put (&img, 20, END_MARK);
}

/* Files that begin in a loop of directories' clusters. */
static void
make_files_in_looping_root (void)
{
  uint32_t n, i;

  image_run (&img, 2, 101);
  image_put (&img, 101, 2);
  for (n = 2; n < 102; ++n)
    for (i = 0; i < image_slots (&img); ++i)
      file (n, i, 2 + (n + i) % 100, FOUR_GIB_LESS_1);
}

static void
make_directory_contains_itself (void)
{
  directory (2, 0, 10);
  image_entry (&img, 10, 2, IS_DIRECTORY, 10, 0);
  image_entry (&img, 10, 3, IS_DIRECTORY, 2, 0);
  image_entry (&img, 2, 1, IS_DIRECTORY, 2, 0);
  directory (10, 4, 11);
  image_entry (&img, 11, 2, IS_DIRECTORY, 10, 0);
  file (11, 3, 20, CLUSTER);
  image_put (&img, 20, END_MARK);
}

static void
make_directory_in_two_places (void)
{
  directory (2, 0, 10);
  image_entry (&img, 2, 1, IS_DIRECTORY, 10, 0);
  file (10, 3, 20, CLUSTER);
  image_put (&img, 20, END_MARK);
}

/* The second half of one is all of another, and a file's. */
static void
make_directories_cross (void)
{
  directory (2, 0, 10);
  image_run (&img, 10, 14);
  image_entry (&img, 2, 1, IS_DIRECTORY, 12, 0);
  file (2, 2, 13, 2 * CLUSTER);
  file (2, 3, 9, 4 * CLUSTER);
  image_put (&img, 9, 10);
}

static void
make_files_cross (void)
{
  image_run (&img, 10, 40);
  image_put (&img, 50, 20);
  image_put (&img, 60, 39);
  file (2, 0, 10, 15 * CLUSTER);
  file (2, 1, 50, 20 * CLUSTER);
  file (2, 2, 60, CLUSTER);
  file (2, 3, 35, 2 * CLUSTER);
}

static void
make_chains_end_oddly (void)
{
  static const uint32_t ends[] = {
    0, 1, CLUSTERS + 2, CLUSTERS + 3, 0x0ffffff6, 0x0ffffff7, 0x0ffffff8,
    0x0fffffff, 0xf0000000, 0xf0000001, 0xfffffff7, 0x80000000,
  };
  uint32_t n = 10;
  size_t i;

  for (i = 0; i < NR (ends); ++i, n += 10) {
    image_put (&img, n, n + 1);
    image_put (&img, n + 1, ends[i]);
    file (2, i, n, 5 * CLUSTER);
  }
}

/* The same, of directories. */
static void
make_directories_end_oddly (void)
{
  static const uint32_t ends[] = {
    0, 1, CLUSTERS + 2, 0x0ffffff6, 0x0ffffff7, 0xf0000000, 0xf0000001,
  };
  uint32_t n = 10;
  size_t i;

  for (i = 0; i < NR (ends); ++i, n += 10) {
    directory (2, i, n);
    image_put (&img, n, n + 1);
    image_put (&img, n + 1, ends[i]);
    file (n + 1, 2, n + 2, CLUSTER);
    image_put (&img, n + 2, END_MARK);
  }
}

/* Entries of files and directories whose first cluster is free. */
static void
make_first_cluster_free (void)
{
  file (2, 0, 10, CLUSTER);
  image_entry (&img, 2, 1, IS_DIRECTORY, 11, 0);
  file (11, 2, 12, CLUSTER);
  image_put (&img, 12, END_MARK);
  image_put (&img, 20, 21);     /* and 21 is free */
  file (2, 2, 20, 2 * CLUSTER);
}

static void
make_size_larger_than_chain (void)
{
  image_run (&img, 10, 12);
  file (2, 0, 10, FOUR_GIB_LESS_1);
  image_put (&img, 20, END_MARK);
  file (2, 1, 20, 2 * CLUSTER);
}

static void
make_root_free (void)
{
  file (2, 0, 10, CLUSTER);
  image_put (&img, 10, END_MARK);
  image_put (&img, 2, 0);
}

static void
make_root_chain_out_of_range (void)
{
  image_put (&img, 2, 0x0ffffff7);
  file (2, 0, 10, CLUSTER);
  image_put (&img, 10, 1);
}

/* Each slot of each directory leads to each other one. */
static void
make_directories_everywhere (void)
{
  uint32_t n, i;

  for (n = 2; n < img.end; ++n) {
    image_put (&img, n, n % 3 == 0 ? END_MARK : 2 + (n * 7) % CLUSTERS);
    for (i = 0; i < image_slots (&img); ++i)
      image_entry (&img, n, i, n % 7 == 0 ? IS_FILE : IS_DIRECTORY,
                   2 + (n * 31 + i * 97) % CLUSTERS, FOUR_GIB_LESS_1);
  }
}

/* A file as long as the volume, for each slot of a long root. */
static void
make_one_chain_many_entries (void)
{
  uint32_t n, i;

  image_run (&img, 2, 201);
  image_run (&img, 210, img.end - 1);
  for (n = 2; n < 202; ++n)
    for (i = 0; i < image_slots (&img); ++i)
      file (n, i, 210, FOUR_GIB_LESS_1);
}

static void
make_noise (void)
{
  uint64_t state = 12345, i;

  for (i = img.fat1; i < img.size; ++i) {
    state = state * UINT64_C (6364136223846793005) + 1442695040888963407;
    img.bytes[i] = (uint8_t) (state >> 40);
  }
  for (i = 2; i < img.end; ++i) /* chains that lead somewhere */
    image_put (&img, i, image_get (&img, i) % (CLUSTERS + 10));
}

/* -- All of them --------------------------------------------------------- */

static const struct row {
  const char *name;
  void (*make) (void);
} rows[] = {
  { "an empty volume", make_empty },
  { "files of many sizes", make_sizes },
  { "preallocated files", make_preallocated },
  { "fragments", make_fragments },
  { "nested directories", make_nested },
  { "long directories", make_long_directories },
  { "odd slots", make_odd_slots },
  { "high bits", make_high_bits },
  { "lost chains", make_lost_chains },
  { "the last clusters", make_last_clusters },
  { "files loop", make_file_loops },
  { "many files loop", make_many_files_loop },
  { "the root loops", make_root_loops },
  { "the root points to itself", make_root_points_to_itself },
  { "files in a looping root", make_files_in_looping_root },
  { "a directory contains itself", make_directory_contains_itself },
  { "a directory in two places", make_directory_in_two_places },
  { "directories cross", make_directories_cross },
  { "files cross", make_files_cross },
  { "chains end oddly", make_chains_end_oddly },
  { "directories end oddly", make_directories_end_oddly },
  { "the first cluster is free", make_first_cluster_free },
  { "a size larger than the chain", make_size_larger_than_chain },
  { "the root is free", make_root_free },
  { "the root's chain out of range", make_root_chain_out_of_range },
  { "directories everywhere", make_directories_everywhere },
  { "one chain, many entries", make_one_chain_many_entries },
  { "noise", make_noise },
};

static void
check_image (const char *name)
{
  struct tree_rig rig;

  tree_rig_init (&rig, &img);
  tree_rig_open (&rig);
  tree_rig_check (&rig, name);
  tree_rig_release (&rig);
}

static void
test_scans (void)
{
  struct fat_spec spec = image_spec (CLUSTERS, CLUSTER / 512, 2);
  size_t i;

  for (i = 0; i < NR (rows); ++i) {
    printf ("  %s\n", rows[i].name);
    fflush (stdout);
    image_init (&img, &spec);
    rows[i].make ();
    check_image (rows[i].name);
    image_release (&img);
  }
}

/* Of more clusters than a window has (clusters.h), in the last one, too. */
static void
test_a_volume_of_several_windows (void)
{
  struct fat_spec spec = image_spec (2 * CLUSTERS_WINDOW + 100, 1, 1);
  const uint32_t far = 2 * CLUSTERS_WINDOW;

  image_init (&img, &spec);
  image_run (&img, CLUSTERS_WINDOW - 10, CLUSTERS_WINDOW + 2000);
  file (2, 0, CLUSTERS_WINDOW - 10, 1500 * CLUSTER);
  directory (2, 1, far + 5);
  file (far + 5, 2, far - 3, 2 * CLUSTER);
  image_put (&img, far - 3, far + 50);
  image_put (&img, far + 50, END_MARK);
  check_image ("several windows");
  image_release (&img);
}

/* Large clusters: directories of many slots, files that are less than one. */
static void
test_large_clusters (void)
{
  struct fat_spec spec = image_spec (100, 64, 2);

  image_init (&img, &spec);
  image_run (&img, 10, 12);
  file (2, 1023, 10, 2 * 32768 + 1);
  image_put (&img, 20, END_MARK);
  file (2, 0, 20, 32767);
  check_image ("large clusters");
  image_release (&img);
}

static void
put_partition (unsigned i, uint64_t start, const struct fat_spec *spec)
{
  uint8_t *p = img.bytes + 446 + 16 * i;

  p[4] = 0x0c;
  put_le32 (p + 8, (uint32_t) (start / 512));
  put_le32 (p + 12, spec->total_sectors);
  put_le16 (img.bytes + 510, 0xaa55);
}

/* Two partitions; what is in the first one says nothing about the second. */
static void
test_two_volumes (void)
{
  struct fat_spec spec = image_spec (CLUSTERS, 1, 2);
  struct fat_spec other = image_spec (300, 2, 1);
  uint64_t start = 4096, other_start = start + fat_spec_size (&spec) + 1024;
  struct tree_rig rig;

  memset (&img, 0, sizeof img);
  img.size = other_start + fat_spec_size (&other) + 512;
  img.bytes = calloc (1, img.size);
  CHECK (img.bytes != NULL);
  put_partition (0, start, &spec);
  put_partition (1, other_start, &other);
  image_volume (&img, other_start, &other);
  directory (2, 0, 250);
  file (250, 2, 270, 1024);
  image_put (&img, 270, END_MARK);
  image_volume (&img, start, &spec);
  make_fragments ();

  tree_rig_init (&rig, &img);
  tree_rig_open (&rig);
  tree_rig_check (&rig, "the first volume");
  CHECK (tree_states_agree (rig.fb, img.bytes, img.size, other_start));
  tree_rig_release (&rig);
  image_release (&img);
}

/* -- While it is served -------------------------------------------------- */

/* Somewhere in the FATs or behind them. */
static void
write_somewhere (struct tree_rig *rig, unsigned k)
{
  uint64_t offset = img.fat1 + (k * UINT64_C (7919) * 512 + k * 100) %
    (img.size - img.fat1 - 1500);

  memset (img.bytes + offset, (int) k, 700 + k);
  CHECK_EQ (fatbatch_write (rig->fb, img.bytes + offset, 700 + k, offset,
                            k % 3 == 0 ? FATBATCH_FUA : 0), 0);
}

/* A hostile image, and writes that no guest would send.  What they change can't
 * always be followed, so states may be others than the reference's until the
 * next scan; bytes may not.
 */
static void
test_writes_to_hostile_images (void)
{
  struct fat_spec spec = image_spec (CLUSTERS, CLUSTER / 512, 2);
  struct tree_rig rig;
  size_t i;
  unsigned k;

  for (i = 0; i < NR (rows); ++i) {
    image_init (&img, &spec);
    rows[i].make ();
    tree_rig_init (&rig, &img);
    tree_rig_open (&rig);
    for (k = 0; k < 40; ++k)
      write_somewhere (&rig, k);
    tree_rig_wait (&rig);
    tree_rig_check_reads (&rig, rows[i].name);
    tree_rig_close (&rig);
    tree_rig_open (&rig);
    tree_rig_check (&rig, rows[i].name);
    tree_rig_release (&rig);
    image_release (&img);
  }
}

int
main (void)
{
  alarm (TIME_MAX);
  RUN (test_scans);
  RUN (test_a_volume_of_several_windows);
  RUN (test_large_clusters);
  RUN (test_two_volumes);
  RUN (test_writes_to_hostile_images);
  return 0;
}
