/* SPDX-License-Identifier: BSD-3-Clause */

#define _GNU_SOURCE

#include <config.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "image.h"
#include "testlib.h"

#define MIB (1024 * 1024)
#define SECTOR 512

static const struct {
  const char *name;
  uint64_t size;
} kinds[IMAGE_KINDS] = {
  /* With O_DIRECT the last 300 bytes go through the page cache, and the two
   * blocks in front of them, in the same page, do not.
   */
  [IMAGE_PLAIN] = { "plain", 3 * MIB + 2 * SECTOR + 300 },
  [IMAGE_FAT32] = { "fat32", 4 * MIB },
  [IMAGE_MBR] = { "mbr", 5 * MIB + 512 },
};

/* Partitions, in sectors. */
static const struct {
  uint32_t start, count;
  uint8_t type;
} partitions[2] = {
  { 63, 4033, 0x0c },
  { 4099, 6000, 0xef },
};

static void
run (const char *command)
{
  int status = system (command);

  if (WIFEXITED (status) && WEXITSTATUS (status) == 127)
    test_skip ("not found: %s", command);
  if (status != 0)
    test_fail ("status 0x%x: %s", status, command);
}

static void
write_at (int fd, const void *buf, size_t count, uint64_t offset)
{
  if (pwrite (fd, buf, count, offset) != (ssize_t) count)
    test_fail ("making an image: write: %m");
}

static void
add_place (struct image *image, uint64_t start, uint64_t end)
{
  image->places[image->nr_places++] = (struct image_range) { start, end };
}

static void
make_volume (struct image *image, uint64_t start, uint64_t sectors)
{
  char *command =
    test_printf ("PATH=$PATH:/usr/sbin:/sbin mkfs.fat -F 32 -s 1 -R 32 "
                 "--offset=%ju '%s' %ju >/dev/null 2>'%s/mkfs.log'",
                 (uintmax_t) start, image->path, (uintmax_t) sectors / 2,
                 test_dir ());

  run (command);
  free (command);
}

static void
put_le32 (uint8_t *p, uint32_t value)
{
  p[0] = value;
  p[1] = value >> 8;
  p[2] = value >> 16;
  p[3] = value >> 24;
}

static void
make_mbr (int fd)
{
  uint8_t sector[SECTOR] = { 0 };
  size_t i;

  for (i = 0; i < 2; ++i) {
    uint8_t *entry = sector + 446 + 16 * i;

    entry[4] = partitions[i].type;
    put_le32 (entry + 8, partitions[i].start);
    put_le32 (entry + 12, partitions[i].count);
  }
  sector[510] = 0x55;
  sector[511] = 0xaa;
  write_at (fd, sector, sizeof sector, 0);
}

/* Steering sectors first (nr_watched), FATs after them. */
static void
add_places (struct image *image)
{
  size_t i;

  add_place (image, 0, SECTOR);
  if (image->kind == IMAGE_MBR)
    for (i = 0; i < 2; ++i)
      add_place (image, partitions[i].start * SECTOR,
                 (partitions[i].start + 1) * SECTOR);
  image->nr_watched = image->kind == IMAGE_PLAIN ? 0 : image->nr_places;
  if (image->kind == IMAGE_FAT32)
    add_place (image, 32 * SECTOR, 160 * SECTOR);
  if (image->kind == IMAGE_MBR)
    for (i = 0; i < 2; ++i)
      add_place (image, (partitions[i].start + 32) * SECTOR,
                 (partitions[i].start + 110) * SECTOR);
  /* The tail, where O_DIRECT ends. */
  add_place (image, image->size - 8192, image->size);
}

static void
fill_plain (struct image *image, int fd, uint64_t seed)
{
  uint8_t *buf = test_alloc (image->size);
  struct prng prng;

  prng_init (&prng, seed, 1000);
  prng_fill (&prng, buf, image->size);
  memset (buf + MIB, 0, MIB);
  write_at (fd, buf, MIB, 0);   /* the second MiB stays a hole */
  write_at (fd, buf + 2 * MIB, image->size - 2 * MIB, 2 * MIB);
  free (buf);
}

void
image_make (struct image *image, enum image_kind kind, uint64_t seed)
{
  static unsigned count;
  int fd;

  memset (image, 0, sizeof *image);
  image->kind = kind;
  image->name = kinds[kind].name;
  image->size = kinds[kind].size;
  image->path = test_printf ("%s/image.%u", test_dir (), ++count);
  fd = open (image->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd == -1 || ftruncate (fd, image->size) == -1)
    test_fail ("%s: %m", image->path);
  switch (kind) {
  case IMAGE_FAT32:
    make_volume (image, 0, image->size / SECTOR);
    break;
  case IMAGE_MBR:
    make_volume (image, partitions[0].start, partitions[0].count);
    make_volume (image, partitions[1].start, partitions[1].count);
    make_mbr (fd);
    break;
  default:
    fill_plain (image, fd, seed);
    break;
  }
  close (fd);
  add_places (image);
  image->bytes = test_alloc (image->size);
  test_read_file (image->path, image->bytes, image->size);
}

void
image_release (struct image *image)
{
  unlink (image->path);
  free (image->path);
  free (image->bytes);
}
