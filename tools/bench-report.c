/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <inttypes.h>
#include <string.h>

#include "bench.h"

static const struct {
  const char *name;
  double percent;
} percentiles[] = {
  { "p50", 50 }, { "p90", 90 }, { "p99", 99 }, { "p99.9", 99.9 },
  { "p99.99", 99.99 },
};

#define NR_PERCENTILES (sizeof percentiles / sizeof percentiles[0])

static double
us_per_fat_sector (const struct bench_result *r)
{
  return r->seconds * 1e6 / (double) r->fat_sectors;
}

static double
per_second (const struct bench_result *r, uint64_t n)
{
  return r->seconds > 0 ? (double) n / r->seconds : 0;
}

/* The options that a workload knows, with the values they had. */
struct option_text {
  const char *name;
  char value[32];
  const char *string;           /* instead of value; or NULL */
};

#define MAX_OPTIONS 24

static size_t
list_options (const struct bench_options *o, struct option_text list[])
{
  const struct {
    unsigned bit;
    const char *name;
    uint64_t value;
  } numbers[] = {
    { OPTION_FILES, "files", o->files }, { OPTION_SIZE, "size", o->size },
    { OPTION_CLUSTER, "cluster", o->cluster }, { OPTION_BS, "bs", o->bs },
    { OPTION_LIMIT, "limit", o->limit }, { OPTION_JOBS, "jobs", o->jobs },
    { OPTION_IODEPTH, "iodepth", o->iodepth },
    { OPTION_CLIENTS, "clients", o->clients },
    { OPTION_COUNT, "count", o->count },
    { OPTION_DIRTY, "dirty", o->dirty },
    { OPTION_METADATA, "metadata", o->metadata }, { ~0U, "seed", o->seed },
  };
  const struct {
    unsigned bit;
    const char *name, *value;
  } strings[] = {
    { OPTION_GUEST, "guest", bench_guest_name (o->guest) },
    { OPTION_DURABLE, "durable", bench_durable_name (o->durable) },
    { OPTION_PRESET, "preset", o->preset },
    { OPTION_TRACE, "trace", o->trace },
    { OPTION_CONCURRENCY, "concurrency",
      bench_concurrency_name (o->concurrency) },
  };
  unsigned known = o->workload->options;
  size_t i, n = 0;

  for (i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
    if (known & numbers[i].bit) {
      list[n].name = numbers[i].name;
      list[n].string = NULL;
      snprintf (list[n++].value, sizeof list[0].value, "%" PRIu64,
                numbers[i].value);
    }
  }
  if ((known & OPTION_RUNTIME) && o->count == 0) {
    list[n].name = "runtime";
    list[n].string = NULL;
    snprintf (list[n++].value, sizeof list[0].value, "%g", o->runtime);
  }
  for (i = 0; i < sizeof strings / sizeof strings[0]; i++) {
    if ((known & strings[i].bit) && strings[i].value) {
      list[n].name = strings[i].name;
      list[n++].string = strings[i].value;
    }
  }
  return n;
}

/* ------------------------------------------------------------- JSON */

static void
json_string (FILE *fp, const char *s)
{
  fputc ('"', fp);
  for (; *s; s++) {
    if (*s == '"' || *s == '\\')
      fprintf (fp, "\\%c", *s);
    else if ((unsigned char) *s < 0x20)
      fprintf (fp, "\\u%04x", (unsigned char) *s);
    else
      fputc (*s, fp);
  }
  fputc ('"', fp);
}

static void
json_latency (FILE *fp, const char *name, const struct histogram *h)
{
  size_t i;

  fprintf (fp, "    \"%s\": {\"count\": %" PRIu64
           ", \"mean\": %.3f, \"min\": %.3f", name, h->count,
           histogram_mean (h) / 1e3, (double) h->min / 1e3);
  for (i = 0; i < NR_PERCENTILES; i++)
    fprintf (fp, ", \"%s\": %.3f", percentiles[i].name,
             (double) histogram_percentile (h, percentiles[i].percent) / 1e3);
  fprintf (fp, ", \"max\": %.3f},\n", (double) h->max / 1e3);
}

static void
json_histogram (FILE *fp, const char *name, const struct histogram *h)
{
  const char *comma = "";
  size_t i;

  fprintf (fp, "    \"%s\": [", name);
  for (i = 0; i < HISTOGRAM_BUCKETS; i++) {
    if (h->buckets[i]) {
      fprintf (fp, "%s[%.3f,%" PRIu64 "]", comma,
               (double) histogram_bucket_end (i) / 1e3, h->buckets[i]);
      comma = ",";
    }
  }
  fprintf (fp, "]");
}

static void
json_result (FILE *fp, const struct bench_result *r)
{
  fprintf (fp, "  \"result\": {\n    \"seconds\": %.6f, \"ops\": %" PRIu64
           ", \"writes\": %" PRIu64 ", \"fua\": %" PRIu64
           ", \"flushes\": %" PRIu64 ",\n    \"fat_sectors\": %" PRIu64
           ", \"us_per_fat_sector\": ", r->seconds, r->ops, r->writes, r->fua,
           r->flushes, r->fat_sectors);
  if (r->fat_sectors)
    fprintf (fp, "%.3f", us_per_fat_sector (r));
  else
    fprintf (fp, "null");
  fprintf (fp, ",\n    \"iops\": %.3f, \"bytes\": %" PRIu64 ",\n",
           per_second (r, r->ops), r->bytes);
  if (r->has_tenths)
    fprintf (fp, "    \"first_tenth_us\": %.3f, \"last_tenth_us\": %.3f,\n",
             r->first_tenth_us, r->last_tenth_us);
  json_latency (fp, "latency_us", &r->latency);
  if (r->has_metadata) {
    json_latency (fp, "metadata_latency_us", &r->metadata_latency);
    fprintf (fp, "    \"metadata_fua\": %" PRIu64 ",\n", r->metadata_fua);
    json_histogram (fp, "metadata_histogram", &r->metadata_latency);
    fprintf (fp, ",\n");
  }
  json_histogram (fp, "histogram", &r->latency);
  fprintf (fp, "\n  },\n");
}

static void
report_json (FILE *fp, const struct bench_options *o,
             const struct bench_server *server, const struct bench_result *r)
{
  struct option_text list[MAX_OPTIONS];
  size_t i, n = list_options (o, list);

  fprintf (fp, "{\n  \"workload\": \"%s\",\n  \"options\": {",
           o->workload->name);
  for (i = 0; i < n; i++) {
    fprintf (fp, "%s\"%s\": ", i ? ", " : "", list[i].name);
    if (list[i].string)
      json_string (fp, list[i].string);
    else
      fprintf (fp, "%s", list[i].value);
  }
  fprintf (fp, "},\n  \"uri\": ");
  json_string (fp, o->uri);
  fprintf (fp, ",\n  \"server\": {\"description\": ");
  json_string (fp, server->description ? server->description : "");
  fprintf (fp, ", \"size\": %" PRIu64 ", \"can_fua\": %s, "
           "\"can_flush\": %s, \"can_multi_conn\": %s},\n", server->size,
           server->can_fua ? "true" : "false",
           server->can_flush ? "true" : "false",
           server->can_multi_conn ? "true" : "false");
  json_result (fp, r);
  fprintf (fp, "  \"verify\": {\"data\": \"%s\", \"fsck\": \"%s\"},\n"
           "  \"version\": \"%s\"\n}\n", r->data, r->fsck, PACKAGE_VERSION);
}

/* -------------------------------------------------------------- CSV */

static void
csv_string (FILE *fp, const char *s)
{
  fputc ('"', fp);
  for (; *s; s++) {
    if (*s == '"')
      fputc ('"', fp);
    fputc (*s, fp);
  }
  fputc ('"', fp);
}

static void
report_csv (FILE *fp, const struct bench_options *o,
            const struct bench_result *r)
{
  struct option_text list[MAX_OPTIONS];
  size_t i, n = list_options (o, list);

  fprintf (fp, "workload,options,uri,seconds,ops,fua,flushes,fat_sectors,"
           "us_per_fat_sector,iops,bytes,mean_us,min_us");
  for (i = 0; i < NR_PERCENTILES; i++)
    fprintf (fp, ",%s_us", percentiles[i].name);
  fprintf (fp, ",max_us,metadata_mean_us,metadata_p99_us,first_tenth_us,"
           "last_tenth_us,data,fsck,version\n%s,\"", o->workload->name);
  for (i = 0; i < n; i++)
    fprintf (fp, "%s%s=%s", i ? " " : "", list[i].name,
             list[i].string ? list[i].string : list[i].value);
  fprintf (fp, "\",");
  csv_string (fp, o->uri);
  fprintf (fp, ",%.6f,%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",",
           r->seconds, r->ops, r->fua, r->flushes, r->fat_sectors);
  if (r->fat_sectors)
    fprintf (fp, "%.3f", us_per_fat_sector (r));
  fprintf (fp, ",%.3f,%" PRIu64 ",%.3f,%.3f", per_second (r, r->ops),
           r->bytes, histogram_mean (&r->latency) / 1e3,
           (double) r->latency.min / 1e3);
  for (i = 0; i < NR_PERCENTILES; i++)
    fprintf (fp, ",%.3f", (double) histogram_percentile
             (&r->latency, percentiles[i].percent) / 1e3);
  fprintf (fp, ",%.3f,", (double) r->latency.max / 1e3);
  if (r->has_metadata)
    fprintf (fp, "%.3f,%.3f", histogram_mean (&r->metadata_latency) / 1e3,
             (double) histogram_percentile (&r->metadata_latency, 99) / 1e3);
  else
    fprintf (fp, ",");
  if (r->has_tenths)
    fprintf (fp, ",%.3f,%.3f", r->first_tenth_us, r->last_tenth_us);
  else
    fprintf (fp, ",,");
  fprintf (fp, ",%s,%s,%s\n", r->data, r->fsck, PACKAGE_VERSION);
}

/* ------------------------------------------------------------ table */

static void
table_latency (FILE *fp, const char *name, const struct histogram *h)
{
  size_t i;

  fprintf (fp, "%-18s mean %.1f  min %.1f", name, histogram_mean (h) / 1e3,
           (double) h->min / 1e3);
  for (i = 0; i < NR_PERCENTILES; i++)
    fprintf (fp, "  %s %.1f", percentiles[i].name,
             (double) histogram_percentile (h, percentiles[i].percent) / 1e3);
  fprintf (fp, "  max %.1f\n", (double) h->max / 1e3);
}

static void
report_table (FILE *fp, const struct bench_options *o,
              const struct bench_server *server,
              const struct bench_result *r)
{
  struct option_text list[MAX_OPTIONS];
  size_t i, n = list_options (o, list);

  fprintf (fp, "%-18s %s", "workload", o->workload->name);
  for (i = 0; i < n; i++)
    fprintf (fp, " %s=%s", list[i].name,
             list[i].string ? list[i].string : list[i].value);
  fprintf (fp, "\n%-18s %s\n", "server", o->uri);
  fprintf (fp, "%-18s %s, %" PRIu64 " bytes, %s, %s, %s\n", "",
           server->description ? server->description : "", server->size,
           server->can_fua ? "FUA" : "no FUA",
           server->can_flush ? "FLUSH" : "no FLUSH",
           server->can_multi_conn ? "multi-conn" : "no multi-conn");
  fprintf (fp, "%-18s %.3f\n", "seconds", r->seconds);
  fprintf (fp, "%-18s %" PRIu64 ": %" PRIu64 " writes (%" PRIu64
           " with FUA), %" PRIu64 " flushes\n", "requests", r->ops, r->writes,
           r->fua, r->flushes);
  fprintf (fp, "%-18s %.0f (%.1f MB/s)\n", "requests/s",
           per_second (r, r->ops), per_second (r, r->bytes) / 1e6);
  if (r->fat_sectors)
    fprintf (fp, "%-18s %" PRIu64 ", %.2f us each\n", "FAT sectors",
             r->fat_sectors, us_per_fat_sector (r));
  table_latency (fp, "latency, us", &r->latency);
  if (r->has_metadata)
    table_latency (fp, "FAT stream, us", &r->metadata_latency);
  if (r->has_tenths)
    fprintf (fp, "%-18s first tenth %.1f  last tenth %.1f\n",
             "write(2), us", r->first_tenth_us, r->last_tenth_us);
  fprintf (fp, "%-18s data %s, fsck.fat %s\n", "check", r->data, r->fsck);
}

void
bench_report (FILE *fp, const struct bench_options *o,
              const struct bench_server *server,
              const struct bench_result *r)
{
  switch (o->format) {
  case FORMAT_JSON: report_json (fp, o, server, r); break;
  case FORMAT_CSV: report_csv (fp, o, r); break;
  case FORMAT_TABLE: report_table (fp, o, server, r); break;
  }
}
