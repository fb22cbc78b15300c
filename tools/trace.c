/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "trace.h"
#include "util.h"

#define MAX_LENGTH (UINT32_C (32) << 20)

/* An nbdkit log's way to name requests. */
struct log_id {
  uint64_t connection, id;
  size_t op;
};

struct reader {
  struct trace *trace;
  const char *path;
  unsigned line;
  /* Logs only. */
  struct log_id *open;          /* not answered yet */
  size_t nr_open;
  size_t first_wait;            /* of what was answered since the last one */
};

static int
bad (const struct reader *r, const char *what)
{
  bench_error ("%s:%u: %s", r->path, r->line, what);
  return BENCH_USAGE;
}

/* A vector's next element; grows by doubling.  NULL: out of memory. */
static void *
push (void *vector, size_t *nr, size_t size)
{
  void **base = vector;
  void *grown;

  if ((*nr & (*nr - 1)) == 0) {
    grown = realloc (*base, (*nr ? 2 * *nr : 1) * size);
    if (grown == NULL) {
      bench_error ("out of memory");
      return NULL;
    }
    *base = grown;
  }
  return (char *) *base + (*nr)++ * size;
}

static int
add_wait (struct trace *t, size_t op)
{
  size_t *wait = push (&t->waits, &t->nr_waits, sizeof *wait);

  if (wait == NULL)
    return BENCH_SERVER;
  *wait = op;
  return 0;
}

static int
hex_digit (char c)
{
  if (c >= '0' && c <= '9')
    return c - '0';
  if (c >= 'a' && c <= 'f')
    return c - 'a' + 10;
  return -1;
}

bool
trace_apply (const char *data, uint8_t *buf, uint32_t length)
{
  unsigned long at;
  char *end;

  if (strncmp (data, "same", 4) == 0)
    data += 4;
  else if (strncmp (data, "zero", 4) == 0) {
    memset (buf, 0, length);
    data += 4;
  }
  else
    goto change;
  while (*data == ',') {
    data++;
  change:
    at = strtoul (data, &end, 10);
    if (end == data || *end != ':')
      return false;
    for (data = end + 1; hex_digit (data[0]) >= 0 && hex_digit (data[1]) >= 0;
         data += 2, at++) {
      if (at >= length)
        return false;
      buf[at] = (uint8_t) (hex_digit (data[0]) << 4 | hex_digit (data[1]));
    }
  }
  return *data == '\0';
}

/* The device's size comes first, so that all can be checked at once. */
static int
check_range (const struct reader *r, const struct trace_op *op)
{
  if (r->trace->size == 0)
    return bad (r, "\"size\" must come first");
  if (op->type == REQUEST_WRITE && op->length > MAX_LENGTH)
    return bad (r, "longer than 32 MiB");
  if (op->length > r->trace->size ||
      op->offset > r->trace->size - op->length)
    return bad (r, "beyond the size");
  return 0;
}

static int
check_data (const struct reader *r, const struct trace_op *op)
{
  CLEANUP_FREE uint8_t *buf = NULL;

  if (op->data == NULL)
    return 0;
  buf = calloc (1, op->length + 1);
  if (buf == NULL || !trace_apply (op->data, buf, op->length))
    return bad (r, "bad data");
  return 0;
}

static bool
parse_number (const char *text, uint64_t max, uint64_t *ret)
{
  char *end;

  errno = 0;
  *ret = strtoull (text, &end, 0);
  return errno == 0 && end != text && *end == '\0' && text[0] != '-' &&
    *ret <= max;
}

static int
read_waits (const struct reader *r, struct trace_op *op, const char *text)
{
  struct trace *t = r->trace;
  char *end;
  unsigned long n;

  op->first_wait = t->nr_waits;
  if (strcmp (text, "*") == 0) {
    op->wait_all = true;
    return 0;
  }
  if (strcmp (text, "-") == 0)
    return 0;
  for (;; text = end + 1) {
    n = strtoul (text, &end, 10);
    if (end == text || n < 1 || n >= t->nr_ops ||
        (*end != ',' && *end != '\0'))
      return bad (r, "bad list of requests to wait for");
    if (add_wait (t, n - 1) != 0)
      return BENCH_SERVER;
    op->nr_waits++;
    if (*end == '\0')
      return 0;
  }
}

/* "I OFFSET DATA": up to 4096 bytes from there. */
static int
read_initial (struct reader *r, char *words[], int nr)
{
  struct trace *t = r->trace;
  struct trace_op *op = push (&t->initial, &t->nr_initial, sizeof *op);

  if (op == NULL)
    return BENCH_SERVER;
  memset (op, 0, sizeof *op);
  if (nr != 3 || !parse_number (words[1], INT64_MAX, &op->offset))
    return bad (r, "expected: I OFFSET DATA");
  op->length = (uint32_t) min_u64 (4096, t->size > op->offset
                                   ? t->size - op->offset : 0);
  op->data = strdup (words[2]);
  return check_data (r, op);
}

static int
read_op (struct reader *r, enum request_type type, char *words[], int nr)
{
  struct trace *t = r->trace;
  struct trace_op *op = push (&t->ops, &t->nr_ops, sizeof *op);
  uint64_t length;
  int status;

  if (op == NULL)
    return BENCH_SERVER;
  memset (op, 0, sizeof *op);
  op->type = type;
  if (type == REQUEST_FLUSH) {
    if (nr != 2)
      return bad (r, "expected: F WAIT");
    return read_waits (r, op, words[1]);
  }
  if (nr < 5 || nr > (type == REQUEST_WRITE ? 6 : 5) ||
      (strcmp (words[3], "fua") != 0 && strcmp (words[3], "-") != 0) ||
      !parse_number (words[1], INT64_MAX, &op->offset) ||
      !parse_number (words[2], UINT32_MAX, &length))
    return bad (r, "expected: TYPE OFFSET LENGTH fua|- WAIT [DATA]");
  op->length = (uint32_t) length;
  op->fua = words[3][0] == 'f';
  if (nr == 6)
    op->data = strdup (words[5]);
  status = check_range (r, op);
  if (status == 0)
    status = check_data (r, op);
  return status != 0 ? status : read_waits (r, op, words[4]);
}

static int
read_size (struct reader *r, char *words[], int nr)
{
  if (nr != 2 || r->trace->size != 0 ||
      !parse_number (words[1], UINT64_C (1) << 40, &r->trace->size) ||
      r->trace->size == 0)
    return bad (r, "expected, once: size BYTES");
  return 0;
}

static int
read_trace_line (struct reader *r, char *line)
{
  char *words[8], *save = NULL;
  int nr = 0;

  for (words[0] = strtok_r (line, " \t\n", &save); words[nr] && nr < 7;
       words[nr] = strtok_r (NULL, " \t\n", &save))
    nr++;
  if (nr == 0 || words[0][0] == '#')
    return 0;
  if (strcmp (words[0], "size") == 0)
    return read_size (r, words, nr);
  if (strcmp (words[0], "fsck") == 0 && nr == 1) {
    r->trace->fsck = true;
    return 0;
  }
  switch (words[0][1] == '\0' ? words[0][0] : '\0') {
  case 'I': return read_initial (r, words, nr);
  case 'W': return read_op (r, REQUEST_WRITE, words, nr);
  case 'F': return read_op (r, REQUEST_FLUSH, words, nr);
  case 'T': return read_op (r, REQUEST_TRIM, words, nr);
  case 'Z': return read_op (r, REQUEST_ZERO, words, nr);
  }
  return bad (r, "expected one of size, fsck, I, W, F, T, Z");
}

static uint64_t
log_number (const char *line, const char *key)
{
  const char *p = strstr (line, key);

  return p ? strtoull (p + strlen (key), NULL, 0) : 0;
}

static int
read_log_end (struct reader *r, const char *line)
{
  uint64_t connection = log_number (line, " connection=");
  uint64_t id = log_number (line, " id=");
  size_t i;

  for (i = 0; i < r->nr_open; i++) {
    if (r->open[i].connection == connection && r->open[i].id == id) {
      if (add_wait (r->trace, r->open[i].op) != 0)
        return BENCH_SERVER;
      memmove (&r->open[i], &r->open[i + 1],
               (--r->nr_open - i) * sizeof r->open[0]);
      return 0;
    }
  }
  return 0;                     /* a read, or another that we don't send */
}

static int
read_log_line (struct reader *r, const char *line)
{
  static const char *const names[] = {
    [REQUEST_WRITE] = " Write id=", [REQUEST_FLUSH] = " Flush id=",
    [REQUEST_TRIM] = " Trim id=", [REQUEST_ZERO] = " Zero id="
  };
  struct trace *t = r->trace;
  struct trace_op *op;
  struct log_id *id;
  size_t type;

  if (strstr (line, " ...") && strstr (line, " return="))
    return read_log_end (r, line);
  for (type = 0; type < 4 && !strstr (line, names[type]); type++)
    ;
  if (type == 4)
    return 0;
  op = push (&t->ops, &t->nr_ops, sizeof *op);
  /* By powers of two as all vectors; entries are removed from it, too. */
  id = realloc (r->open, (r->nr_open + 1) * sizeof *id);
  if (op == NULL || id == NULL)
    return BENCH_SERVER;
  r->open = id;
  r->open[r->nr_open++] = (struct log_id) {
    .connection = log_number (line, " connection="),
    .id = log_number (line, " id="), .op = t->nr_ops - 1
  };
  *op = (struct trace_op) {
    .type = (enum request_type) type,
    .fua = log_number (line, " fua=") != 0,
    .offset = log_number (line, " offset="),
    .length = (uint32_t) log_number (line, " count="),
    .first_wait = r->first_wait, .nr_waits = t->nr_waits - r->first_wait
  };
  r->first_wait = t->nr_waits;
  if (op->length == UINT32_MAX || op->offset >> 62 != 0)
    return bad (r, "beyond any device");
  t->size = max_u64 (t->size, op->offset + op->length);
  return 0;
}

int
trace_read (struct trace *trace, const char *path)
{
  struct reader r = { .trace = trace, .path = path };
  CLEANUP_FREE char *line = NULL;
  size_t room = 0;
  bool is_trace = false;
  int status = 0;
  FILE *fp;

  memset (trace, 0, sizeof *trace);
  fp = fopen (path, "r");
  if (fp == NULL) {
    bench_error ("--trace=%s: %s", path, strerror (errno));
    return BENCH_USAGE;
  }
  while (status == 0 && getline (&line, &room, fp) != -1) {
    if (r.line++ == 0 &&
        strncmp (line, TRACE_MAGIC, strlen (TRACE_MAGIC)) == 0)
      is_trace = true;
    else
      status = is_trace ? read_trace_line (&r, line)
        : read_log_line (&r, line);
  }
  fclose (fp);
  free (r.open);
  if (status == 0 && trace->nr_ops == 0) {
    bench_error ("%s: no requests in it: neither a trace (\"%s\") nor a log "
                 "of nbdkit's log filter", path, TRACE_MAGIC);
    status = BENCH_USAGE;
  }
  return status;
}

void
trace_release (struct trace *trace)
{
  size_t i;

  for (i = 0; i < trace->nr_ops; i++)
    free (trace->ops[i].data);
  for (i = 0; i < trace->nr_initial; i++)
    free (trace->initial[i].data);
  free (trace->ops);
  free (trace->initial);
  free (trace->waits);
}
