/* SPDX-License-Identifier: BSD-3-Clause */

/* `fatbatch bench`: the write streams of real guests, sent to an NBD server
 * and timed.
 *
 * Functions that can fail return 0, or what the program shall exit with
 * (an enum bench_exit); then they have said on stderr what is wrong.
 *
 * 1. What a workload's streams wrote is known byte for byte, so that the
 *    export can be compared afterwards: no two requests in flight overlap.
 * 2. Only the stream is timed: neither making the volume nor checking it.
 * 3. Each request sent while timed is counted in the result, no other.
 */

#ifndef FATBATCH_BENCH_H
#define FATBATCH_BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "histogram.h"

enum bench_exit {
  BENCH_OK = 0,
  BENCH_CHECK_FAILED = 1,       /* the export does not hold what it must */
  BENCH_USAGE = 2,
  BENCH_SERVER = 3              /* the server, or this machine, fails us */
};

enum bench_guest { GUEST_6_1, GUEST_SERIAL, GUEST_BATCHED };
enum bench_durable { DURABLE_FUA, DURABLE_FLUSH, DURABLE_NONE };
enum bench_format { FORMAT_TABLE, FORMAT_JSON, FORMAT_CSV };
enum bench_concurrency { CONCURRENCY_RECORDED, CONCURRENCY_SERIAL };

struct bench_workload;

struct bench_options {
  const struct bench_workload *workload;
  const char *uri;

  enum bench_format format;
  const char *output;           /* NULL: stdout */
  bool quiet;
  bool verify;
  uint64_t seed;

  const char *preset;           /* NULL: none */
  uint64_t files;
  uint64_t size;                /* bytes; 0: the workload's default */
  uint64_t cluster;             /* bytes */
  uint64_t bs;                  /* bytes */
  uint64_t limit;               /* FAT sector writes, 0: all */
  uint64_t jobs, iodepth;
  uint64_t clients, count;
  uint64_t dirty;               /* bytes */
  double runtime;               /* seconds */
  bool metadata;
  enum bench_guest guest;
  enum bench_durable durable;
  enum bench_concurrency concurrency;
  const char *trace;
};

/* Bits: which options a workload knows. */
enum bench_option {
  OPTION_FILES = 1, OPTION_SIZE = 2, OPTION_CLUSTER = 4, OPTION_GUEST = 8,
  OPTION_DURABLE = 16, OPTION_PRESET = 32, OPTION_LIMIT = 64,
  OPTION_JOBS = 128, OPTION_IODEPTH = 256, OPTION_BS = 512,
  OPTION_RUNTIME = 1024, OPTION_METADATA = 2048, OPTION_CLIENTS = 4096,
  OPTION_COUNT = 8192, OPTION_TRACE = 16384, OPTION_CONCURRENCY = 32768,
  OPTION_DIRTY = 65536
};

struct bench_server {
  char *description;            /* what connection and server tell */
  uint64_t size;                /* bytes */
  bool can_fua, can_flush, can_multi_conn;
};

struct bench_result {
  double seconds;
  uint64_t ops;                 /* all requests */
  uint64_t writes, fua, flushes; /* fua: writes with the flag */
  uint64_t bytes;
  uint64_t fat_sectors;         /* FAT sector writes, all copies */
  struct histogram latency;
  bool has_metadata;            /* the two below are set */
  struct histogram metadata_latency;
  uint64_t metadata_fua;        /* of the stream beside */
  bool has_tenths;              /* the two below are set */
  /* Of a write(2) with all its requests: the mean of the first tenth of
   * them, and of the last.
   */
  double first_tenth_us, last_tenth_us;
  const char *data;             /* "ok", "failed", "skipped" */
  const char *fsck;             /* "clean", "failed", "skipped" */
};

struct bench_workload {
  const char *name;
  unsigned options;             /* of enum bench_option */
  const char *presets;          /* their names, for messages */
  void (*set_defaults) (struct bench_options *options);
  /* Returns false if there is no such preset. */
  bool (*apply_preset) (struct bench_options *options, const char *name);
  /* Says what is wrong with the options as a whole.  May be NULL. */
  int (*check) (const struct bench_options *options);
  int (*run) (const struct bench_options *options,
              struct bench_server *server, struct bench_result *result);
};

extern const struct bench_workload workload_fallocate, workload_randwrite,
  workload_append, workload_fua, workload_replay;

/* All of them, ended by NULL. */
extern const struct bench_workload *const bench_workloads[];

extern int bench_main (int argc, char *argv[]);

/* "fatbatch bench: MESSAGE", with a newline, on stderr. */
extern void bench_error (const char *fmt, ...)
  __attribute__ ((format (printf, 1, 2)));

/* argv[1] is the workload.  'ret->workload' is NULL if all that is wanted
 * is help, which has been printed.
 */
extern int bench_parse_options (int argc, char *argv[],
                                struct bench_options *ret);
extern const char *bench_guest_name (enum bench_guest guest);
extern const char *bench_durable_name (enum bench_durable durable);
extern const char *bench_concurrency_name (enum bench_concurrency c);

extern void bench_report (FILE *fp, const struct bench_options *options,
                          const struct bench_server *server,
                          const struct bench_result *result);

/* A bar on stderr, if that is a terminal and --quiet was not given.  From
 * one thread at a time.  'total' may be anything but 0.
 */
extern void progress_init (const struct bench_options *options);
extern void progress_show (const char *what, double done, double total);
extern void progress_end (void);

extern uint64_t bench_now_ns (void);    /* monotonic */

/* Bytes that depend on nothing but 'seed'.  'length' is a multiple of 8. */
extern void bench_fill (uint8_t *buf, size_t length, uint64_t seed);
/* The next number of a sequence, after Vigna's splitmix64. */
extern uint64_t bench_random (uint64_t *state);

#endif /* FATBATCH_BENCH_H */
