/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

const struct bench_workload *const bench_workloads[] = {
  &workload_fallocate, &workload_randwrite, &workload_append, &workload_fua,
  &workload_replay, NULL
};

void
bench_error (const char *fmt, ...)
{
  va_list args;

  progress_end ();
  flockfile (stderr);
  fprintf (stderr, "fatbatch bench: ");
  va_start (args, fmt);
  vfprintf (stderr, fmt, args);
  va_end (args);
  fputc ('\n', stderr);
  funlockfile (stderr);
}

uint64_t
bench_now_ns (void)
{
  struct timespec now;

  clock_gettime (CLOCK_MONOTONIC, &now);
  return (uint64_t) now.tv_sec * 1000000000 + (uint64_t) now.tv_nsec;
}

uint64_t
bench_random (uint64_t *state)
{
  uint64_t z = *state += UINT64_C (0x9e3779b97f4a7c15);

  z = (z ^ z >> 30) * UINT64_C (0xbf58476d1ce4e5b9);
  z = (z ^ z >> 27) * UINT64_C (0x94d049bb133111eb);
  return z ^ z >> 31;
}

void
bench_fill (uint8_t *buf, size_t length, uint64_t seed)
{
  uint64_t word;
  size_t i;

  for (i = 0; i < length; i += sizeof word) {
    word = bench_random (&seed);
    memcpy (buf + i, &word, sizeof word);
  }
}

int
bench_main (int argc, char *argv[])
{
  struct bench_options options;
  struct bench_server server = { .description = NULL };
  struct bench_result *result;
  FILE *fp = stdout;
  int status;

  status = bench_parse_options (argc, argv, &options);
  if (status != 0 || options.workload == NULL)
    return status;
  result = calloc (1, sizeof *result);
  if (result == NULL) {
    bench_error ("out of memory");
    return BENCH_SERVER;
  }
  result->data = result->fsck = "skipped";
  /* A mistake in the name should not cost a long run. */
  if (options.output)
    fp = fopen (options.output, "w");
  if (fp == NULL) {
    bench_error ("--output=%s: %s", options.output, strerror (errno));
    free (result);
    return BENCH_USAGE;
  }

  progress_init (&options);
  status = options.workload->run (&options, &server, result);
  progress_end ();
  if (status == BENCH_OK || status == BENCH_CHECK_FAILED)
    bench_report (fp, &options, &server, result);
  if ((fp == stdout ? fflush (fp) : fclose (fp)) != 0) {
    bench_error ("output: %s", strerror (errno));
    status = status ? status : BENCH_SERVER;
  }
  free (server.description);
  free (result);
  return status;
}
