/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include "params.h"

/* Values in the order of their enum. */
#define CACHE_NAMES "writeback", "writethrough", "none", "directsync", "unsafe"
#define DURABILITY_NAMES "fat", "block"
#define IO_NAMES "auto", "uring", "posix"

static const char *const cache_names[] = { CACHE_NAMES, NULL };
static const char *const durability_names[] = { DURABILITY_NAMES, NULL };
static const char *const io_names[] = { IO_NAMES, NULL };
static const char *const switch_names[] = { "off", "on", NULL };

#define DELAY_MAX 3600          /* seconds */
#define MIRROR_BATCH_MAX (64 * 1024 * 1024)

/* All values in one line. */
static const char *
join_names (const char *const *names, const char *separator)
{
  static char text[128];

  text[0] = '\0';
  for (; *names; ++names) {
    strncat (text, *names, sizeof text - strlen (text) - 1);
    if (names[1])
      strncat (text, separator, sizeof text - strlen (text) - 1);
  }
  return text;
}

/* The index of value among names, or -1 after an error. */
static int
parse_choice (const char *key, const char *value, const char *const *names)
{
  int i;

  for (i = 0; names[i]; ++i)
    if (strcmp (value, names[i]) == 0)
      return i;
  nbdkit_error ("%s=%s: unknown value; allowed are: %s", key, value,
                join_names (names, ", "));
  return -1;
}

static int
set_path (struct params *params, const char *value)
{
  if (params->path) {
    nbdkit_error ("file=%s: given twice, before as %s; one server serves one "
                  "image", value, params->path);
    return -1;
  }
  if (value[0] == '\0') {
    nbdkit_error ("file=: is empty; give the path of a disk image");
    return -1;
  }
  params->path = nbdkit_absolute_path (value);
  return params->path ? 0 : -1;
}

static int
set_intent (struct params *params, const char *value)
{
  free (params->intent);
  params->intent = NULL;
  params->options.no_intent = strcmp (value, "none") == 0;
  if (params->options.no_intent)
    return 0;
  if (value[0] == '\0') {
    nbdkit_error ("intent=: is empty; give the path of a file that may be "
                  "made, or none");
    return -1;
  }
  params->intent = nbdkit_absolute_path (value);
  return params->intent ? 0 : -1;
}

/* Seconds with a fraction, as milliseconds; false if it is something else.
 * By hand: strtod(3) wants the locale's decimal point, and takes more.
 */
static bool
parse_seconds (const char *value, uint32_t *ret)
{
  uint64_t ms = 0;
  unsigned scale = 1000, digits = 0;

  for (; *value >= '0' && *value <= '9'; ++value, ++digits) {
    ms = ms * 10 + (*value - '0') * 1000;
    if (ms > DELAY_MAX * 1000)
      return false;
  }
  if (*value == '.')
    for (++value; *value >= '0' && *value <= '9'; ++value, ++digits)
      ms += (*value - '0') * (scale /= 10);
  *ret = ms;
  return *value == '\0' && digits > 0 && ms <= DELAY_MAX * 1000;
}

static int
set_delay (const char *key, const char *value, const char *example,
           uint32_t *ret)
{
  if (parse_seconds (value, ret))
    return 0;
  nbdkit_error ("%s=%s: must be a number of seconds, from 0 to %d, such as "
                "%s", key, value, DELAY_MAX, example);
  return -1;
}

static int
set_batch (struct params *params, const char *value)
{
  int64_t size = nbdkit_parse_size (value);

  if (size < 1 || size > MIRROR_BATCH_MAX) {
    nbdkit_error ("mirror-batch=%s: must be from 1 to %d bytes; such as 1M",
                  value, MIRROR_BATCH_MAX);
    return -1;
  }
  params->options.mirror_batch = size;
  return 0;
}

int
params_set (struct params *params, const char *key, const char *value)
{
  int i;

  if (strcmp (key, "file") == 0)
    return set_path (params, value);
  if (strcmp (key, "intent") == 0)
    return set_intent (params, value);
  if (strcmp (key, "commit-delay") == 0)
    return set_delay (key, value, "0.01", &params->options.commit_delay_ms);
  if (strcmp (key, "mirror-delay") == 0)
    return set_delay (key, value, "0.5", &params->options.mirror_delay_ms);
  if (strcmp (key, "mirror-batch") == 0)
    return set_batch (params, value);

  if (strcmp (key, "cache") == 0) {
    i = parse_choice (key, value, cache_names);
    if (i >= 0)
      params->options.cache = i;
  }
  else if (strcmp (key, "durability") == 0) {
    i = parse_choice (key, value, durability_names);
    if (i >= 0)
      params->options.durability = i;
  }
  else if (strcmp (key, "io") == 0) {
    i = parse_choice (key, value, io_names);
    if (i >= 0)
      params->options.io = i;
  }
  else if (strcmp (key, "lock") == 0) {
    i = parse_choice (key, value, switch_names);
    if (i >= 0)
      params->options.lock = i;
  }
  else if (strcmp (key, "parallel") == 0) {
    i = parse_choice (key, value, switch_names);
    if (i >= 0)
      params->options.serial = !i;
  }
  else {
    nbdkit_error ("%s=%s: unknown parameter; known are: file, cache, "
                  "durability, commit-delay, mirror-delay, mirror-batch, "
                  "intent, parallel, io, lock (see nbdkit --help with this "
                  "plugin)", key, value);
    return -1;
  }
  return i < 0 ? -1 : 0;
}

int
params_check (const struct params *params)
{
  if (params->path)
    return 0;
  nbdkit_error ("no image given: add file=PATH, or just PATH, after the "
                "plugin's name");
  return -1;
}

void
params_release (struct params *params)
{
  free (params->path);
  free (params->intent);
  params->path = params->intent = NULL;
}

const char *
params_cache_name (const struct params *params)
{
  return cache_names[params->options.cache];
}

const char *
params_cache_names (void)
{
  return join_names (cache_names, " ");
}

const char *
params_io_names (void)
{
  return join_names (io_names, " ");
}

const char *
params_durability_names (void)
{
  return join_names (durability_names, " ");
}
