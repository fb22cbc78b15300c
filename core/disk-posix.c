/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <stdlib.h>

#include "disk-posix.h"

struct posix_disk {
  struct disk disk;
  struct file *file;            /* borrowed */
};

static int
posix_submit (struct disk *disk, struct disk_op *ops, size_t nr)
{
  struct posix_disk *pd = (struct posix_disk *) disk;
  int r = 0;
  size_t i;

  for (i = 0; i < nr; ++i) {
    if (ops[i].kind == DISK_SYNC && r < 0)
      ops[i].result = -ECANCELED;
    else
      ops[i].result = file_op (pd->file, &ops[i]);
    if (r == 0)
      r = ops[i].result;
  }
  return r;
}

static int
posix_extent (struct disk *disk, uint64_t offset, uint64_t length,
              struct disk_extent *ret)
{
  return file_extent (((struct posix_disk *) disk)->file,
                      offset, length, ret);
}

static int
posix_readahead (struct disk *disk, uint64_t offset, uint64_t length)
{
  return file_readahead (((struct posix_disk *) disk)->file, offset, length);
}

static void
posix_write_back (struct disk *disk, uint64_t offset, uint64_t length)
{
  file_write_back (((struct posix_disk *) disk)->file, offset, length);
}

static void
posix_free (struct disk *disk)
{
  free (disk);
}

static const struct disk_ops posix_ops = {
  .name = "posix",
  .submit = posix_submit,
  .extent = posix_extent,
  .readahead = posix_readahead,
  .write_back = posix_write_back,
  .free = posix_free,
};

void
disk_init_from_file (struct disk *disk, const struct disk_ops *ops,
                     struct file *file)
{
  disk_init (disk, ops, file->size, file->align, file->mem_align);
  disk->preferred_io = file->preferred_io;
  disk->rotational = file->rotational;
  file->faults = &disk->faults;
}

int
disk_posix_new (struct file *file, struct disk **ret)
{
  struct posix_disk *pd = calloc (1, sizeof *pd);

  if (!pd)
    return -ENOMEM;
  disk_init_from_file (&pd->disk, &posix_ops, file);
  pd->file = file;
  *ret = &pd->disk;
  return 0;
}
