/* SPDX-License-Identifier: BSD-3-Clause */

/* The nbdkit side: parameters, callbacks, and the engine's -errno to NBD
 * errors.  Everything that talks to nbdkit is in this folder.
 *
 * When things happen: the image is opened for reading in .get_ready, so that
 * whatever is wrong with it is said at the start, and is read-locked from
 * then on; it becomes writable at the first connection that may write, since
 * only .open is told of nbdkit's -r.  One engine serves all connections.
 */

#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "fatbatch.h"
#include "params.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

/* -D fatbatch.requests=1: each request in the debug log.
 * -D fatbatch.stats=1: the counters, when the server stops.
 * -D fatbatch.crash=N: die at point N (enum fatbatch_point), for tests.
 */
NBDKIT_DLL_PUBLIC int fatbatch_debug_requests = 0;
NBDKIT_DLL_PUBLIC int fatbatch_debug_stats = 0;
NBDKIT_DLL_PUBLIC int fatbatch_debug_crash = 0;

static struct params params = PARAMS_DEFAULT;
static struct fatbatch *fb;
static atomic_uint nr_connections;

/* A connection. */
struct connection {
  bool writable;
};

/* -- Life of the server ------------------------------------------------ */

static int
plugin_config (const char *key, const char *value)
{
  return params_set (&params, key, value);
}

static int
plugin_config_complete (void)
{
  return params_check (&params);
}

/* nbdkit has no other way than an error to say something to everybody. */
static void
notice (void *opaque, bool problem, const char *message)
{
  (void) opaque;
  if (problem)
    nbdkit_error ("%s", message);
  else
    nbdkit_debug ("%s", message);
}

static void
reached (void *opaque, enum fatbatch_point point)
{
  (void) opaque;
  if (fatbatch_debug_crash == (int) point)
    kill (getpid (), SIGKILL);
}

/* The last moment at which the user sees an error on the terminal. */
static int
plugin_get_ready (void)
{
  struct fatbatch_error err;
  struct fatbatch_info info;
  char text[256];
  int r;

  params.options.intent = params.intent;
  params.options.notice = notice;
  params.options.reached = reached;
  r = fatbatch_open (params.path, &params.options, &fb, &err);
  if (r < 0) {
    nbdkit_error ("%s", err.message);
    return -1;
  }

  fatbatch_get_info (fb, &info);
  if (info.uring_error < 0)
    nbdkit_debug ("io_uring cannot be used here: %s: io=auto falls back to "
                  "posix", fatbatch_strerror (-info.uring_error));
  fatbatch_describe (fb, text, sizeof text);
  nbdkit_debug ("%s: %" PRIu64 " bytes: %s; cache=%s io=%s", params.path,
                info.size, text, params_cache_name (&params), info.io);
  return 0;
}

static void
log_histogram (const char *name, const char *help, const uint64_t *buckets)
{
  unsigned i;

  for (i = 0; i < FATBATCH_BUCKETS; ++i)
    if (buckets[i] > 0)
      nbdkit_debug ("stats: %s: %" PRIu64 " from %" PRIu64 " on (%s)", name,
                    buckets[i], i == 0 ? 0 : UINT64_C (1) << i, help);
}

static void
log_stats (void)
{
  struct fatbatch_histograms histograms;
  struct fatbatch_stats stats;

  fatbatch_get_stats (fb, &stats);
#define LOG_COUNTER(name, help)                                         \
  nbdkit_debug ("stats: " #name "=%" PRIu64 " (" help ")", stats.name);
  FATBATCH_COUNTERS (LOG_COUNTER)
#undef LOG_COUNTER
  fatbatch_get_histograms (fb, &histograms);
#define LOG_HISTOGRAM(name, help) log_histogram (#name, help, histograms.name);
  FATBATCH_HISTOGRAMS (LOG_HISTOGRAM)
#undef LOG_HISTOGRAM
}

static void
plugin_unload (void)
{
  if (fb && fatbatch_debug_stats)
    log_stats ();
  fatbatch_close (fb);
  params_release (&params);
}

static void
plugin_dump_plugin (void)
{
  printf ("fatbatch_version=%s\n", PACKAGE_VERSION);
  printf ("fatbatch_cache_modes=%s\n", params_cache_names ());
  printf ("fatbatch_durability=%s\n", params_durability_names ());
  printf ("fatbatch_parallel=on off\n");
  printf ("fatbatch_io=%s\n", params_io_names ());
  printf ("fatbatch_io_uring=%s\n",
          fatbatch_probe_uring () == 0 ? "yes" : "no");
  printf ("fatbatch_image_lock=yes\n");
  printf ("fatbatch_fua=native\n");
  printf ("fatbatch_multi_conn=yes\n");
}

/* -- Connections ------------------------------------------------------- */

/* A file that can't be opened for writing is served read-only, as nbdkit's
 * own file plugin does.  Anything else, a lock held by others above all,
 * refuses the connection.
 */
static int
make_writable (struct connection *conn)
{
  struct fatbatch_error err;
  int r = fatbatch_set_writable (fb, &err);

  if (r == -EACCES || r == -EROFS || r == -EPERM) {
    nbdkit_error ("%s; serving it read-only", err.message);
    return 0;
  }
  if (r < 0) {
    nbdkit_error ("%s", err.message);
    return -1;
  }
  conn->writable = true;
  return 0;
}

static void *
plugin_open (int readonly)
{
  struct connection *conn = calloc (1, sizeof *conn);

  if (!conn) {
    nbdkit_error ("calloc: %m");
    return NULL;
  }
  if (!readonly && make_writable (conn) == -1) {
    free (conn);
    return NULL;
  }
  atomic_fetch_add (&nr_connections, 1);
  return conn;
}

/* When nobody is left, the image alone should be complete: it may be copied
 * now.  Failures have been latched, and the record stays.
 */
static void
plugin_close (void *handle)
{
  int r;

  free (handle);
  if (atomic_fetch_sub (&nr_connections, 1) > 1)
    return;
  r = fatbatch_settle (fb);
  if (r < 0)
    nbdkit_error ("%s: deferred FAT mirrors could not be written: %s; they "
                  "will be when the image is served the next time",
                  params.path, fatbatch_strerror (-r));
}

static const char *
plugin_export_description (void *handle)
{
  char text[512];

  (void) handle;
  fatbatch_describe (fb, text, sizeof text);
  return nbdkit_printf_intern ("%s", text);
}

static int64_t
plugin_get_size (void *handle)
{
  struct fatbatch_info info;

  (void) handle;
  fatbatch_get_info (fb, &info);
  return info.size;
}

static int
plugin_block_size (void *handle, uint32_t *minimum, uint32_t *preferred,
                   uint32_t *maximum)
{
  struct fatbatch_info info;

  (void) handle;
  fatbatch_get_info (fb, &info);
  *minimum = 1;
  *preferred = info.preferred_io;
  *maximum = 64 * 1024 * 1024;  /* nbdkit's own limit, MAX_REQUEST_SIZE */
  return 0;
}

static int
plugin_can_write (void *handle)
{
  return ((struct connection *) handle)->writable;
}

static int
plugin_is_rotational (void *handle)
{
  struct fatbatch_info info;

  (void) handle;
  fatbatch_get_info (fb, &info);
  return info.rotational;
}

static int
plugin_can_extents (void *handle)
{
  struct fatbatch_info info;

  (void) handle;
  fatbatch_get_info (fb, &info);
  return info.has_extents;
}

static int
plugin_can_cache (void *handle)
{
  struct fatbatch_info info;

  (void) handle;
  fatbatch_get_info (fb, &info);
  return info.page_cache ? NBDKIT_CACHE_NATIVE : NBDKIT_CACHE_NONE;
}

static int
plugin_can_fua (void *handle)
{
  (void) handle;
  return NBDKIT_FUA_NATIVE;
}

/* Flush, trim, zero, fast zero: for any image.  Multi-conn: one engine serves
 * all connections, so a flush on one covers writes on another.
 */
static int
plugin_always (void *handle)
{
  (void) handle;
  return 1;
}

/* -- Requests ---------------------------------------------------------- */

static unsigned
engine_flags (uint32_t flags)
{
  return (flags & NBDKIT_FLAG_FUA ? FATBATCH_FUA : 0) |
    (flags & NBDKIT_FLAG_MAY_TRIM ? FATBATCH_MAY_UNMAP : 0) |
    (flags & NBDKIT_FLAG_FAST_ZERO ? FATBATCH_FAST : 0) |
    (flags & NBDKIT_FLAG_REQ_ONE ? FATBATCH_ONE : 0);
}

static void
log_request (const char *what, uint32_t count, uint64_t offset,
             uint32_t flags)
{
  if (fatbatch_debug_requests)
    nbdkit_debug ("%s count=%" PRIu32 " offset=0x%" PRIx64 "%s", what, count,
                  offset, flags & NBDKIT_FLAG_FUA ? " fua" : "");
}

/* What a client gets to see: errors that nbdkit can pass on (nbdkit-plugin(3),
 * nbdkit_set_error).  It would make EINVAL of any other, as if the request had
 * been wrong, which nbdkit has checked before.
 */
static int
wire_error (int err)
{
  switch (err) {
  case EROFS:
  case EPERM:
  case ENOMEM:
  case ENOSPC:
  case EDQUOT:
  case EFBIG:
  case EOPNOTSUPP:
    return err;
  }
  return EIO;
}

/* The engine's result as nbdkit wants it. */
static int
reply (const char *what, uint32_t count, uint64_t offset, int r)
{
  if (r == 0)
    return 0;
  nbdkit_set_error (wire_error (-r));
  if (r == -EOPNOTSUPP)         /* a fast zero that would not be fast */
    return -1;
  nbdkit_error ("%s: %s of %" PRIu32 " bytes at offset %" PRIu64 ": %s",
                params.path, what, count, offset, fatbatch_strerror (-r));
  return -1;
}

/* After a request that should have become durable and did not. */
static void
explain_failure (void)
{
  if (fatbatch_has_failed (fb))
    nbdkit_error ("%s: a write or sync has failed (the first error above "
                  "says why), so nothing can be made durable any more: "
                  "restart the server", params.path);
}

/* The same for what changes the image. */
static int
reply_change (const char *what, uint32_t count, uint64_t offset, int r)
{
  if (reply (what, count, offset, r) == -1 && r != -EOPNOTSUPP)
    explain_failure ();
  return r < 0 ? -1 : 0;
}

static int
plugin_pread (void *handle, void *buf, uint32_t count, uint64_t offset,
              uint32_t flags)
{
  (void) handle;
  log_request ("read", count, offset, flags);
  return reply ("read", count, offset,
                fatbatch_read (fb, buf, count, offset));
}

static int
plugin_pwrite (void *handle, const void *buf, uint32_t count, uint64_t offset,
               uint32_t flags)
{
  (void) handle;
  log_request ("write", count, offset, flags);
  return reply_change ("write", count, offset,
                       fatbatch_write (fb, buf, count, offset,
                                       engine_flags (flags)));
}

static int
plugin_zero (void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
  (void) handle;
  log_request ("zero", count, offset, flags);
  return reply_change ("zero", count, offset,
                       fatbatch_zero (fb, count, offset,
                                      engine_flags (flags)));
}

static int
plugin_trim (void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
  (void) handle;
  log_request ("trim", count, offset, flags);
  return reply_change ("trim", count, offset,
                       fatbatch_trim (fb, count, offset,
                                      engine_flags (flags)));
}

static int
plugin_flush (void *handle, uint32_t flags)
{
  int r;

  (void) handle;
  log_request ("flush", 0, 0, flags);
  r = fatbatch_flush (fb);
  if (r == 0)
    return 0;
  nbdkit_set_error (wire_error (-r));
  nbdkit_error ("%s: flush: %s", params.path, fatbatch_strerror (-r));
  explain_failure ();
  return -1;
}

static int
plugin_cache (void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
  (void) handle;
  log_request ("cache", count, offset, flags);
  return reply ("cache", count, offset,
                fatbatch_cache_range (fb, count, offset));
}

static int
add_extent (void *opaque, uint64_t offset, uint64_t length, bool hole)
{
  return nbdkit_add_extent (opaque, offset, length,
                            hole ? NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO
                                 : 0) == -1 ? -errno : 0;
}

static int
plugin_extents (void *handle, uint32_t count, uint64_t offset, uint32_t flags,
                struct nbdkit_extents *extents)
{
  (void) handle;
  log_request ("extents", count, offset, flags);
  return reply ("extents", count, offset,
                fatbatch_extents (fb, count, offset, engine_flags (flags),
                                  add_extent, extents));
}

static struct nbdkit_plugin plugin = {
  .name               = "fatbatch",
  .longname           = "fatbatch plugin for FAT32 images",
  .version            = PACKAGE_VERSION,
  .description        = "Serves disk images with FAT32 volumes.",
  .unload             = plugin_unload,
  .config             = plugin_config,
  .config_complete    = plugin_config_complete,
  .config_help        = PARAMS_HELP,
  .magic_config_key   = "file",
  .dump_plugin        = plugin_dump_plugin,
  .get_ready          = plugin_get_ready,
  .open               = plugin_open,
  .close              = plugin_close,
  .export_description = plugin_export_description,
  .get_size           = plugin_get_size,
  .block_size         = plugin_block_size,
  .can_write          = plugin_can_write,
  .can_flush          = plugin_always,
  .can_trim           = plugin_always,
  .can_zero           = plugin_always,
  .can_fast_zero      = plugin_always,
  .can_fua            = plugin_can_fua,
  .can_extents        = plugin_can_extents,
  .can_cache          = plugin_can_cache,
  .can_multi_conn     = plugin_always,
  .is_rotational      = plugin_is_rotational,
  .pread              = plugin_pread,
  .pwrite             = plugin_pwrite,
  .zero               = plugin_zero,
  .trim               = plugin_trim,
  .flush              = plugin_flush,
  .cache              = plugin_cache,
  .extents            = plugin_extents,
  .errno_is_preserved = 0,
};

NBDKIT_REGISTER_PLUGIN (plugin)
