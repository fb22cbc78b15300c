/* SPDX-License-Identifier: BSD-3-Clause */

/* The histogram behind `fatbatch bench`, against the sorted values. */

#include <config.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "histogram.h"

#define NR 20000

static unsigned failures;

#define CHECK(cond, ...)                        \
  do {                                          \
    if (!(cond)) {                              \
      failures++;                               \
      printf ("%s:%d: ", __FILE__, __LINE__);   \
      printf (__VA_ARGS__);                     \
      putchar ('\n');                           \
    }                                           \
  } while (0)

static int
compare_u64 (const void *a, const void *b)
{
  const uint64_t *x = a, *y = b;

  return (*x > *y) - (*x < *y);
}

static void
test_buckets_are_narrow (void)
{
  uint64_t low = 0, end = 0;
  size_t i;

  for (i = 0; i < HISTOGRAM_BUCKETS; i++) {
    end = histogram_bucket_end (i);
    CHECK (end >= low, "bucket %zu ends before it begins", i);
    CHECK (end - low <= low / 128, "bucket %zu is too wide: %" PRIu64
           " to %" PRIu64, i, low, end);
    if (i < HISTOGRAM_BUCKETS - 1)
      low = end + 1;
  }
  CHECK (end == UINT64_MAX, "the last bucket ends at %" PRIu64, end);
}

static void
test_each_value_is_in_its_bucket (void)
{
  struct histogram *h = calloc (1, sizeof *h);
  unsigned bit, i;
  uint64_t value, end;
  size_t bucket;

  if (!h)
    abort ();
  for (bit = 0; bit < 64; bit++) {
    for (i = 0; i < 3; i++) {
      value = (UINT64_C (1) << bit) - 1 + i;
      memset (h, 0, sizeof *h);
      histogram_add (h, value);
      for (bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++)
        if (h->buckets[bucket])
          break;
      end = histogram_bucket_end (bucket);
      CHECK (value <= end &&
             (bucket == 0 || value > histogram_bucket_end (bucket - 1)),
             "%" PRIu64 " is counted in the bucket up to %" PRIu64, value,
             end);
    }
  }
  free (h);
}

static void
test_percentiles_are_those_of_the_values (void)
{
  static const double percents[] = { 0, 10, 50, 90, 99, 99.9, 99.99, 100 };
  struct histogram *h = calloc (2, sizeof *h);
  uint64_t *values = calloc (NR, sizeof *values);
  uint64_t x = 1, want, got;
  size_t i, rank;

  if (!h || !values)
    abort ();
  /* Two histograms, merged.  From 1 ns to hours. */
  for (i = 0; i < NR; i++) {
    x = x * UINT64_C (6364136223846793005) + 1442695040888963407;
    values[i] = x >> (20 + (x >> 20) % 40);
    histogram_add (&h[i % 2], values[i]);
  }
  histogram_merge (&h[0], &h[1]);
  qsort (values, NR, sizeof *values, compare_u64);
  CHECK (h->count == NR && h->min == values[0] && h->max == values[NR - 1],
         "count, min or max is wrong");
  for (i = 0; i < sizeof percents / sizeof percents[0]; i++) {
    rank = (size_t) (percents[i] / 100 * NR);
    want = values[rank ? rank - 1 : 0];
    got = histogram_percentile (h, percents[i]);
    CHECK (got >= want && got <= want + want / 128 + 1,
           "percentile %g is %" PRIu64 " instead of %" PRIu64, percents[i],
           got, want);
  }
  free (h);
  free (values);
}

static void
test_nothing_has_no_percentile (void)
{
  struct histogram *h = calloc (1, sizeof *h);

  if (!h)
    abort ();
  CHECK (histogram_percentile (h, 50) == 0 && histogram_mean (h) == 0,
         "an empty histogram has values");
  free (h);
}

int
main (void)
{
  test_buckets_are_narrow ();
  test_each_value_is_in_its_bucket ();
  test_percentiles_are_those_of_the_values ();
  test_nothing_has_no_percentile ();
  return failures != 0;
}
