/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

static const char *const guest_names[] = { "6.1", "serial", "batched", NULL };
static const char *const durable_names[] = { "fua", "flush", "none", NULL };
static const char *const concurrency_names[] = { "recorded", "serial", NULL };

const char *
bench_guest_name (enum bench_guest guest)
{
  return guest_names[guest];
}

const char *
bench_durable_name (enum bench_durable durable)
{
  return durable_names[durable];
}

const char *
bench_concurrency_name (enum bench_concurrency c)
{
  return concurrency_names[c];
}

/* getopt_long's values of options that every workload has; the others are
 * OPTION_BASE + the number of their bit.
 */
enum {
  COMMON_JSON = 256, COMMON_CSV, COMMON_TABLE, COMMON_OUTPUT, COMMON_QUIET,
  COMMON_SEED, COMMON_NO_VERIFY, COMMON_HELP, OPTION_BASE
};

#define BIT(option) (OPTION_BASE + __builtin_ctz (option))

static const struct option long_options[] = {
  { "json", no_argument, NULL, COMMON_JSON },
  { "csv", no_argument, NULL, COMMON_CSV },
  { "table", no_argument, NULL, COMMON_TABLE },
  { "output", required_argument, NULL, COMMON_OUTPUT },
  { "quiet", no_argument, NULL, COMMON_QUIET },
  { "seed", required_argument, NULL, COMMON_SEED },
  { "no-verify", no_argument, NULL, COMMON_NO_VERIFY },
  { "help", no_argument, NULL, COMMON_HELP },
  { "files", required_argument, NULL, BIT (OPTION_FILES) },
  { "size", required_argument, NULL, BIT (OPTION_SIZE) },
  { "cluster", required_argument, NULL, BIT (OPTION_CLUSTER) },
  { "guest", required_argument, NULL, BIT (OPTION_GUEST) },
  { "durable", required_argument, NULL, BIT (OPTION_DURABLE) },
  { "preset", required_argument, NULL, BIT (OPTION_PRESET) },
  { "limit", required_argument, NULL, BIT (OPTION_LIMIT) },
  { "jobs", required_argument, NULL, BIT (OPTION_JOBS) },
  { "iodepth", required_argument, NULL, BIT (OPTION_IODEPTH) },
  { "bs", required_argument, NULL, BIT (OPTION_BS) },
  { "runtime", required_argument, NULL, BIT (OPTION_RUNTIME) },
  { "metadata", no_argument, NULL, BIT (OPTION_METADATA) },
  { "clients", required_argument, NULL, BIT (OPTION_CLIENTS) },
  { "count", required_argument, NULL, BIT (OPTION_COUNT) },
  { "trace", required_argument, NULL, BIT (OPTION_TRACE) },
  { "dirty", required_argument, NULL, BIT (OPTION_DIRTY) },
  { "concurrency", required_argument, NULL, BIT (OPTION_CONCURRENCY) },
  { NULL, 0, NULL, 0 }
};

/* Numbers: where they go, and what they may be. */
static const struct number {
  const char *name;
  size_t offset;
  uint64_t min, max;
} numbers[] = {
#define NUMBER(name, min, max)                          \
  { #name, offsetof (struct bench_options, name), min, max }
  NUMBER (files, 1, 9999),
  NUMBER (size, 512, UINT64_C (1) << 40),
  NUMBER (cluster, 512, 65536),
  NUMBER (limit, 1, UINT64_MAX),
  NUMBER (jobs, 1, 256),
  NUMBER (iodepth, 1, 1024),
  NUMBER (bs, 512, 1 << 20),
  NUMBER (clients, 1, 256),
  NUMBER (count, 1, UINT64_MAX),
  NUMBER (dirty, 0, UINT64_C (1) << 40),
  NUMBER (seed, 0, UINT64_MAX),
#undef NUMBER
};

static void
usage (FILE *fp)
{
  fprintf (fp,
"Usage: fatbatch bench WORKLOAD URI [OPTION...]\n"
"\n"
"Sends what a guest would to an NBD server, times it, and checks the result.\n"
"It OVERWRITES the export.\n"
"\n"
"Workloads and their options (default):\n"
"  fallocate  files preallocated on a mount with -o sync\n"
"    --files=N (16) --size=SIZE (1M) --cluster=SIZE (4K)\n"
"    --guest=6.1|serial|batched --durable=fua|flush|none\n"
"    --preset=256M-512|256M-4K|1M-512|1M-4K\n"
"    --limit=N             stop after N writes of FAT sectors\n"
"  randwrite  random writes inside a file\n"
"    --jobs=N (1) --iodepth=N (1) --bs=SIZE (4K) --runtime=SECONDS (10)\n"
"    --size=SIZE (128M) --cluster=SIZE (4K)\n"
"    --metadata            another file grows meanwhile, with FUA\n"
"    --preset=published    8 jobs, 32 deep, 4 KiB\n"
"  append     a file that grows on a mount with -o sync\n"
"    --size=SIZE (1M) --bs=SIZE (4K) --cluster=SIZE (4K)\n"
"    --durable=fua|flush|none\n"
"  fua        overwrites with FUA, each client one at a time\n"
"    --clients=N (1) --bs=SIZE (512) --cluster=SIZE (512)\n"
"    --runtime=SECONDS (5) | --count=N of each client\n"
"    --dirty=SIZE (0)      written before, elsewhere, and not flushed\n"
"  replay     a recorded trace, or a log of nbdkit's log filter\n"
"    --trace=FILE --concurrency=recorded|serial\n"
"\n"
"For all:\n"
"  --table | --json | --csv     --output=FILE\n"
"  --quiet    no progress bar   --no-verify    --seed=N\n"
"\n"
"Exit status: 0 fine, 1 the export does not hold what was written,\n"
"2 wrong usage, 3 the server or the connection fails.\n");
}

/* "4K", "1M", "256M", "1G": powers of 1024. */
static bool
parse_number (const char *text, uint64_t *ret)
{
  static const char units[] = "KMGT";
  const char *unit;
  unsigned shift = 0;
  char *end;

  errno = 0;
  *ret = strtoull (text, &end, 0);
  if (errno != 0 || end == text || text[0] == '-')
    return false;
  if (*end != '\0') {
    unit = strchr (units, *end & ~0x20);
    if (unit == NULL || *unit == '\0' || end[1] != '\0')
      return false;
    shift = 10 * (unsigned) (unit - units + 1);
  }
  if (*ret > UINT64_MAX >> shift)
    return false;
  *ret <<= shift;
  return true;
}

static int
set_number (struct bench_options *o, const char *name, const char *text)
{
  const struct number *n = numbers;
  uint64_t value;

  while (strcmp (n->name, name) != 0)
    n++;
  if (!parse_number (text, &value) || value < n->min || value > n->max) {
    if (n->max == UINT64_MAX)
      bench_error ("--%s=%s: a number from %" PRIu64 " is needed", name,
                   text, n->min);
    else
      bench_error ("--%s=%s: a number from %" PRIu64 " to %" PRIu64
                   " is needed", name, text, n->min, n->max);
    return BENCH_USAGE;
  }
  if (n->offset == offsetof (struct bench_options, cluster) &&
      (value & (value - 1)) != 0) {
    bench_error ("--cluster=%s: a power of two from 512 to 65536 is needed",
                 text);
    return BENCH_USAGE;
  }
  memcpy ((char *) o + n->offset, &value, sizeof value);
  return 0;
}

static int
set_choice (const char *name, const char *text, const char *const values[],
            int *ret)
{
  int i;

  for (i = 0; values[i]; i++) {
    if (strcmp (text, values[i]) == 0) {
      *ret = i;
      return 0;
    }
  }
  bench_error ("--%s=%s: expected one of %s, %s%s%s", name, text, values[0],
               values[1], values[2] ? ", " : "", values[2] ? values[2] : "");
  return BENCH_USAGE;
}

static int
set_runtime (struct bench_options *o, const char *text)
{
  char *end;

  o->runtime = strtod (text, &end);
  if (end == text || *end != '\0' || !(o->runtime > 0 && o->runtime <= 1e6)) {
    bench_error ("--runtime=%s: seconds are needed, more than 0, "
                 "at most 1000000", text);
    return BENCH_USAGE;
  }
  return 0;
}

static int
set_preset (struct bench_options *o, const char *name)
{
  if (!o->workload->apply_preset (o, name)) {
    bench_error ("--preset=%s: %s has %s", name, o->workload->name,
                 o->workload->presets);
    return BENCH_USAGE;
  }
  o->preset = name;
  return 0;
}

static int
set_common (struct bench_options *o, int option, const char *text)
{
  switch (option) {
  case COMMON_JSON: o->format = FORMAT_JSON; return 0;
  case COMMON_CSV: o->format = FORMAT_CSV; return 0;
  case COMMON_TABLE: o->format = FORMAT_TABLE; return 0;
  case COMMON_OUTPUT: o->output = text; return 0;
  case COMMON_QUIET: o->quiet = true; return 0;
  case COMMON_SEED: return set_number (o, "seed", text);
  case COMMON_NO_VERIFY: o->verify = false; return 0;
  }
  /* getopt has said what is wrong. */
  fprintf (stderr, "`fatbatch bench --help' lists the options.\n");
  return BENCH_USAGE;
}

static int
set_option (struct bench_options *o, int option, const char *name,
            const char *text)
{
  unsigned bit;
  int value = 0, status;

  if (option < OPTION_BASE)
    return set_common (o, option, text);
  bit = 1U << (option - OPTION_BASE);
  if (!(o->workload->options & bit)) {
    bench_error ("%s has no option --%s", o->workload->name, name);
    return BENCH_USAGE;
  }
  switch (bit) {
  case OPTION_METADATA: o->metadata = true; return 0;
  case OPTION_PRESET: return set_preset (o, text);
  case OPTION_RUNTIME: return set_runtime (o, text);
  case OPTION_TRACE: o->trace = text; return 0;
  case OPTION_GUEST:
    status = set_choice (name, text, guest_names, &value);
    o->guest = (enum bench_guest) value;
    return status;
  case OPTION_DURABLE:
    status = set_choice (name, text, durable_names, &value);
    o->durable = (enum bench_durable) value;
    return status;
  case OPTION_CONCURRENCY:
    status = set_choice (name, text, concurrency_names, &value);
    o->concurrency = (enum bench_concurrency) value;
    return status;
  }
  return set_number (o, name, text);
}

static int
find_workload (const char *name, struct bench_options *o)
{
  size_t i;

  for (i = 0; bench_workloads[i]; i++) {
    if (strcmp (name, bench_workloads[i]->name) == 0) {
      o->workload = bench_workloads[i];
      return 0;
    }
  }
  bench_error ("there is no workload '%s': expected one of fallocate, "
               "randwrite, append, fua, replay", name);
  return BENCH_USAGE;
}

int
bench_parse_options (int argc, char *argv[], struct bench_options *ret)
{
  int option, i, index = 0, status = 0;

  memset (ret, 0, sizeof *ret);
  ret->verify = true;
  ret->seed = 1;
  for (i = 1; i < argc; i++) {
    if (strcmp (argv[i], "--help") == 0) {
      usage (stdout);
      return 0;
    }
  }
  if (argc < 2) {
    usage (stderr);
    return BENCH_USAGE;
  }
  status = find_workload (argv[1], ret);
  if (status != 0)
    return status;
  if (ret->workload->set_defaults)
    ret->workload->set_defaults (ret);

  argv[1] = (char *) "fatbatch bench";      /* for getopt's messages */
  argc--;
  argv++;
  optind = 1;
  while (status == 0 &&
         (option = getopt_long (argc, argv, "", long_options, &index)) != -1)
    status = set_option (ret, option, long_options[index].name, optarg);
  if (status != 0)
    return status;
  if (argc - optind != 1) {
    bench_error ("%s: one URI is expected, such as "
                 "nbd+unix:///?socket=/tmp/nbd.sock or nbd://localhost",
                 argc == optind ? "no URI" : argv[optind + 1]);
    return BENCH_USAGE;
  }
  ret->uri = argv[optind];
  return ret->workload->check ? ret->workload->check (ret) : 0;
}
