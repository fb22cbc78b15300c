/* SPDX-License-Identifier: BSD-3-Clause */

/* An nbdkit plugin that serves an image of a FAT32 volume and writes down
 * what the client sends, in the format that `fatbatch bench replay` reads:
 * see fatbatch(1).
 *
 *   gcc -shared -fPIC -o record.so record.c
 *   nbdkit ./record.so volume.img trace=FILE [delay=MICROSECONDS] [max=BYTES]
 *          [fsck=1]
 *
 * The content of metadata is recorded, as differences from what was there.
 * So is that of data if no more than max= bytes have changed (which must be
 * enough for directories); a replay fills the rest with random bytes.
 *
 * What is in the image in the end is not what a replay leaves, but the file
 * system on it is: so a difference is only used where the replay's bytes
 * are known to be the image's ('unknown' has the exceptions).
 */

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
#define SECTOR 512

static char *file, *trace;
static unsigned delay = 500, max_recorded = 256;
static int with_fsck;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* All under the lock. */
static FILE *out;
static uint8_t *image;
static uint8_t *unknown;        /* a byte for each sector */
static uint64_t size, data_start;
static unsigned long sent, answered;
static unsigned long *ended;    /* since the last one was sent */
static size_t nr_ended;

static int
record_config (const char *key, const char *value)
{
  if (strcmp (key, "file") == 0)
    file = nbdkit_realpath (value);
  else if (strcmp (key, "trace") == 0)
    trace = nbdkit_absolute_path (value);
  else if (strcmp (key, "delay") == 0)
    return nbdkit_parse_unsigned ("delay", value, &delay);
  else if (strcmp (key, "max") == 0)
    return nbdkit_parse_unsigned ("max", value, &max_recorded);
  else if (strcmp (key, "fsck") == 0)
    return (with_fsck = nbdkit_parse_bool (value)) == -1 ? -1 : 0;
  else {
    nbdkit_error ("unknown parameter '%s'", key);
    return -1;
  }
  return 0;
}

/* OFFSET:HEX for each run in which 'now' differs from 'then' (NULL: from
 * zeros).  Nearby runs are one.  Returns how many bytes that were.
 */
static size_t
put_changes (FILE *fp, const uint8_t *now, const uint8_t *then, size_t length,
             const char *first)
{
  size_t i, j, end, n = 0;
  const char *comma = first;

#define CHANGED(i) (now[i] != (then ? then[i] : 0))
  for (i = 0; i < length; i = end) {
    end = i + 1;
    if (!CHANGED (i))
      continue;
    for (j = i; j < length && j < end + 4; j++)
      if (CHANGED (j))
        end = j + 1;
    n += end - i;
    if (fp) {
      fprintf (fp, "%s%zu:", comma, i);
      for (j = i; j < end; j++)
        fprintf (fp, "%02x", now[j]);
    }
    comma = ",";
  }
#undef CHANGED
  return n;
}

static void
put_initial (void)
{
  uint64_t at;

  for (at = 0; at < size; at += SECTOR) {
    if (put_changes (NULL, image + at, NULL, SECTOR, "") == 0)
      continue;
    fprintf (out, "I 0x%llx ", (unsigned long long) at);
    put_changes (out, image + at, NULL, SECTOR, "");
    fputc ('\n', out);
  }
}

static int
record_get_ready (void)
{
  struct stat st;
  int fd;

  if (!file || !trace || (fd = open (file, O_RDWR)) == -1 ||
      fstat (fd, &st) == -1) {
    nbdkit_error ("file= and trace= are needed");
    return -1;
  }
  size = (uint64_t) st.st_size;
  image = mmap (NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close (fd);
  unknown = calloc (size / SECTOR + 1, 1);
  out = fopen (trace, "w");
  if (image == MAP_FAILED || !unknown || !out) {
    nbdkit_error ("cannot map the image, or write the trace");
    return -1;
  }
  /* Reserved sectors, two FATs. */
  data_start = (uint64_t) SECTOR * (image[14] | image[15] << 8)
    + (uint64_t) 2 * SECTOR * (image[36] | image[37] << 8 | image[38] << 16);
  fprintf (out, "fatbatch-trace 1\n");
  if (getenv ("TRACE_COMMENT"))
    fprintf (out, "# %s\n", getenv ("TRACE_COMMENT"));
  fprintf (out, "size %llu\n", (unsigned long long) size);
  if (with_fsck)
    fprintf (out, "fsck\n");
  put_initial ();
  return 0;
}

static void
record_unload (void)
{
  if (out)
    fclose (out);
  free (file);
  free (trace);
  free (unknown);
  free (ended);
}

static void *
record_open (int readonly)
{
  return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t
record_get_size (void *handle)
{
  return (int64_t) size;
}

static int
record_can_fua (void *handle)
{
  return NBDKIT_FUA_NATIVE;
}

static int
record_can_multi_conn (void *handle)
{
  return 1;
}

static int
record_pread (void *handle, void *buf, uint32_t count, uint64_t offset,
              uint32_t flags)
{
  pthread_mutex_lock (&lock);
  memcpy (buf, image + offset, count);
  pthread_mutex_unlock (&lock);
  return 0;
}

static unsigned long
begin_locked (void)
{
  return ++sent;
}

/* Which requests had been answered, that the last line did not know of. */
static void
put_waits (void)
{
  size_t i;

  if (answered == sent - 1)
    fprintf (out, "*");
  else if (nr_ended == 0)
    fprintf (out, "-");
  for (i = 0; answered != sent - 1 && i < nr_ended; i++)
    fprintf (out, "%s%lu", i ? "," : "", ended[i]);
  nr_ended = 0;
}

static void
end_request (unsigned long nr)
{
  if (delay)
    usleep (delay);             /* so that others can be in flight */
  pthread_mutex_lock (&lock);
  answered++;
  ended = realloc (ended, (nr_ended + 1) * sizeof *ended);
  if (!ended)
    abort ();
  ended[nr_ended++] = nr;
  pthread_mutex_unlock (&lock);
}

static void
put_data (const uint8_t *buf, uint32_t count, uint64_t offset)
{
  const uint8_t *old = image + offset;
  uint64_t first = offset / SECTOR, n = (count + SECTOR - 1) / SECTOR;
  size_t limit = offset < data_start ? SIZE_MAX : max_recorded;
  bool known = memchr (unknown + first, 1, n) == NULL;
  size_t changed = put_changes (NULL, buf, old, count, "");

  if (known && changed <= limit) {
    fprintf (out, changed ? " " : " same");
    put_changes (out, buf, old, count, "");
  }
  else if (put_changes (NULL, buf, NULL, count, "") <= limit) {
    fprintf (out, " zero");
    put_changes (out, buf, NULL, count, ",");
    memset (unknown + first, 0, n);
  }
  else
    memset (unknown + first, 1, n);
}

static int
record_pwrite (void *handle, const void *buf, uint32_t count,
               uint64_t offset, uint32_t flags)
{
  unsigned long nr;

  pthread_mutex_lock (&lock);
  nr = begin_locked ();
  fprintf (out, "W 0x%llx %u %s ", (unsigned long long) offset, count,
           flags & NBDKIT_FLAG_FUA ? "fua" : "-");
  put_waits ();
  put_data (buf, count, offset);
  fputc ('\n', out);
  memcpy (image + offset, buf, count);
  pthread_mutex_unlock (&lock);
  end_request (nr);
  return 0;
}

static int
record_flush (void *handle, uint32_t flags)
{
  unsigned long nr;

  pthread_mutex_lock (&lock);
  nr = begin_locked ();
  fprintf (out, "F ");
  put_waits ();
  fputc ('\n', out);
  pthread_mutex_unlock (&lock);
  end_request (nr);
  return 0;
}

static struct nbdkit_plugin plugin = {
  .name = "record",
  .magic_config_key = "file",
  .config = record_config,
  .get_ready = record_get_ready,
  .unload = record_unload,
  .open = record_open,
  .get_size = record_get_size,
  .can_fua = record_can_fua,
  .can_multi_conn = record_can_multi_conn,
  .pread = record_pread,
  .pwrite = record_pwrite,
  .flush = record_flush,
};

NBDKIT_REGISTER_PLUGIN (plugin)
