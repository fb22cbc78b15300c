/* SPDX-License-Identifier: BSD-3-Clause */

/* Latencies in nanoseconds, counted in buckets that are exact up to 256 ns
 * and no wider than 1/128 of their value from there on, after
 * HdrHistogram (Debian 12 has no package of it for C).
 *
 * No lock: one thread adds; others look and merge once it has ended.
 *
 * 1. A bucket's width is at most its lowest value divided by 128.
 * 2. min, max, sum and count are exact.
 */

#ifndef FATBATCH_HISTOGRAM_H
#define FATBATCH_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

#define HISTOGRAM_BUCKETS (256 + 56 * 128)

struct histogram {
  uint64_t count, min, max;     /* min and max: 0 if count is */
  double sum;
  uint64_t buckets[HISTOGRAM_BUCKETS];
};

extern void histogram_add (struct histogram *h, uint64_t ns);
extern void histogram_merge (struct histogram *h, const struct histogram *from);

/* The lowest value that at least 'percent' of all values do not exceed, up
 * to a bucket's width too high, never above max.  0 if there is none.
 */
extern uint64_t histogram_percentile (const struct histogram *h,
                                      double percent);
extern double histogram_mean (const struct histogram *h);

/* The highest value that is counted in bucket 'i'. */
extern uint64_t histogram_bucket_end (size_t i);

#endif /* FATBATCH_HISTOGRAM_H */
