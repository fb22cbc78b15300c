/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include "histogram.h"

#define LINEAR 256              /* values below have a bucket each */
#define PER_OCTAVE 128

/* 256 .. 511 is octave 0, with buckets of 2; 512 .. 1023 octave 1, of 4. */
static size_t
bucket_of (uint64_t ns)
{
  unsigned octave;

  if (ns < LINEAR)
    return ns;
  octave = 63 - 8 - (unsigned) __builtin_clzll (ns);
  return LINEAR + (size_t) octave * PER_OCTAVE
    + ((ns >> (octave + 1)) - PER_OCTAVE);
}

uint64_t
histogram_bucket_end (size_t i)
{
  size_t octave, rest;

  if (i < LINEAR)
    return i;
  octave = (i - LINEAR) / PER_OCTAVE;
  rest = (i - LINEAR) % PER_OCTAVE + PER_OCTAVE;
  /* The very last one ends at 2^64 - 1 by wrapping around. */
  return ((uint64_t) (rest + 1) << (octave + 1)) - 1;
}

void
histogram_add (struct histogram *h, uint64_t ns)
{
  if (h->count == 0 || ns < h->min)
    h->min = ns;
  if (ns > h->max)
    h->max = ns;
  h->count++;
  h->sum += (double) ns;
  h->buckets[bucket_of (ns)]++;
}

void
histogram_merge (struct histogram *h, const struct histogram *from)
{
  size_t i;

  if (from->count == 0)
    return;
  if (h->count == 0 || from->min < h->min)
    h->min = from->min;
  if (from->max > h->max)
    h->max = from->max;
  h->count += from->count;
  h->sum += from->sum;
  for (i = 0; i < HISTOGRAM_BUCKETS; i++)
    h->buckets[i] += from->buckets[i];
}

uint64_t
histogram_percentile (const struct histogram *h, double percent)
{
  double wanted = (double) h->count * percent / 100;
  uint64_t seen = 0;
  size_t i;

  for (i = 0; i < HISTOGRAM_BUCKETS; i++) {
    seen += h->buckets[i];
    if (seen > 0 && (double) seen >= wanted)
      return histogram_bucket_end (i) < h->max
        ? histogram_bucket_end (i) : h->max;
  }
  return h->max;
}

double
histogram_mean (const struct histogram *h)
{
  return h->count == 0 ? 0 : h->sum / (double) h->count;
}
