/* SPDX-License-Identifier: BSD-3-Clause */

/* Is on the export what was written there? */

#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench-fat.h"
#include "bench-run.h"
#include "byteorder.h"
#include "util.h"

#define PIECE (UINT64_C (1) << 20)

static const char *
place_name (const struct volume *volume, uint64_t offset)
{
  const struct bpb *bpb = &volume->bpb;

  if (offset < bpb_fat_start (bpb, 0))
    return "reserved sectors";
  if (offset < bpb_fat_start (bpb, 1))
    return "FAT 1";
  if (offset < bpb_data_start (bpb))
    return "FAT 2";
  return "root directory";
}

static void
tell_difference (const struct volume *volume, const uint8_t *got)
{
  const uint8_t *want = volume->metadata;
  uint64_t i;

  for (i = 0; i < volume->metadata_size && got[i] == want[i]; i++)
    ;
  bench_error ("byte %#" PRIx64 " of the export (%s) is 0x%02x, "
               "but 0x%02x was written", i, place_name (volume, i),
               got[i], want[i]);
}

/* Give each file the size of its clusters. */
static void
set_file_sizes (const struct volume *volume, uint8_t *metadata)
{
  const uint8_t *fat = metadata + bpb_fat_start (&volume->bpb, 0);
  uint8_t *entry = metadata + bpb_data_start (&volume->bpb);
  uint64_t size;
  uint32_t cluster, i, n;

  for (i = 0; i < volume->nr_files; i++, entry += 32) {
    n = 0;
    cluster = (uint32_t) load_le16 (entry + 20) << 16 | load_le16 (entry + 26);
    while (cluster >= 2 && cluster < volume->bpb.nr_clusters + 2 &&
           n < volume->bpb.nr_clusters) {
      cluster = load_le32 (fat + (uint64_t) cluster * 4) & 0x0fffffff;
      n++;
    }
    size = min_u64 ((uint64_t) n * volume->bpb.cluster_size, UINT32_MAX);
    if (load_le32 (entry + 28) < size)
      memcpy (entry + 28, (uint8_t[]) {
          (uint8_t) size, (uint8_t) (size >> 8), (uint8_t) (size >> 16),
          (uint8_t) (size >> 24) }, 4);
  }
}

static int
write_copy (int fd, const uint8_t *buf, uint64_t length)
{
  uint64_t i, n;

  for (i = 0; i < length; i += n) {
    n = min_u64 (length - i, PIECE);
    if (buf[i] == 0 && memcmp (buf + i, buf + i + 1, n - 1) == 0)
      continue;
    if (pwrite (fd, buf + i, n, (off_t) i) != (ssize_t) n)
      return -1;
  }
  return 0;
}

int
run_fsck (const char *path, struct bench_result *result)
{
  int status = run_program ("fsck.fat", (const char *[]) {
      "fsck.fat", "-n", path, NULL });

  if (status < 0)
    return BENCH_SERVER;
  result->fsck = status == 0 ? "clean" : "failed";
  if (status != 0)
    bench_error ("fsck.fat -n finds faults");
  return status == 0 ? 0 : BENCH_CHECK_FAILED;
}

static int
check_copy (const struct volume *volume, const uint8_t *metadata,
            struct bench_result *result)
{
  char path[64];
  int fd, status;

  fd = open_temporary (path);
  if (fd == -1)
    return BENCH_SERVER;
  if (ftruncate (fd, (off_t) volume->size) == -1 ||
      write_copy (fd, metadata, volume->metadata_size) == -1) {
    bench_error ("temporary copy of the volume: %s", strerror (errno));
    status = BENCH_SERVER;
  }
  else
    status = run_fsck (path, result);
  close (fd);
  return status;
}

int
volume_check (const struct volume *volume, struct client *client,
              struct bench_result *result)
{
  CLEANUP_FREE uint8_t *got = malloc (volume->metadata_size);
  int status, fsck;

  if (got == NULL) {
    bench_error ("out of memory");
    return BENCH_SERVER;
  }
  status = client_read (client, got, volume->metadata_size, 0);
  if (status != 0)
    return status;
  if (memcmp (got, volume->metadata, volume->metadata_size) != 0) {
    tell_difference (volume, got);
    result->data = "failed";
    status = BENCH_CHECK_FAILED;
  }
  else if (strcmp (result->data, "failed") != 0)
    result->data = "ok";
  set_file_sizes (volume, got);
  fsck = check_copy (volume, got, result);
  return fsck == BENCH_SERVER ? fsck : status != 0 ? status : fsck;
}
