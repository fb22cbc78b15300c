/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "bench.h"

#define BAR_WIDTH 40
#define INTERVAL_NS 100000000   /* ten times a second is enough for anyone */

static bool enabled;
static atomic_bool shown;       /* an error may come from any thread */
static uint64_t began, next;

void
progress_init (const struct bench_options *options)
{
  enabled = !options->quiet && isatty (STDERR_FILENO);
  began = bench_now_ns ();
}

void
progress_show (const char *what, double done, double total)
{
  uint64_t now;
  double part;
  int filled, i;

  if (!enabled)
    return;
  now = bench_now_ns ();
  if (now < next)
    return;
  next = now + INTERVAL_NS;
  part = total > 0 && done < total ? done / total : 1;
  filled = (int) (part * BAR_WIDTH);
  fprintf (stderr, "\r%s [", what);
  for (i = 0; i < BAR_WIDTH; i++)
    fputc (i < filled ? '#' : '-', stderr);
  fprintf (stderr, "] %3.0f%% %.0f s ", part * 100,
           (double) (now - began) / 1e9);
  fflush (stderr);
  atomic_store (&shown, true);
}

void
progress_end (void)
{
  if (atomic_exchange (&shown, false))
    fprintf (stderr, "\r\033[K");
}
