/* SPDX-License-Identifier: BSD-3-Clause */

/* nbdop URI OP... : sends single NBD requests and tells what the server
 * answered, for the integration tests.
 *
 *   write:OFF:LEN:BYTE[:fua]            LEN times BYTE
 *   read:OFF:LEN:BYTE                   and check that each is BYTE
 *   zero:OFF:LEN[:fua][:may_trim][:fast]
 *   trim:OFF:LEN[:fua]
 *   cache:OFF:LEN
 *   flush
 *   wait                                for a line (or the end) of stdin
 *
 * The operations run in order over one connection, each waited for.  Each
 * prints one line, flushed at once, so that a script can follow:
 *
 *   ok                                  the server says success
 *   error EIO                           the server's (or libnbd's) error
 *   mismatch OFF                        read: first byte that differs
 *
 * OFF and LEN take k, M, G (powers of 1024) and hex, and need no alignment.
 * libnbd's own checks are off: whatever is asked for reaches the server.
 *
 * Exit status: 0 if each printed ok; 1 if one did not; 2 for wrong usage or
 * if there is no connection.
 */

#include <config.h>

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <libnbd.h>

#define LENGTH_MAX (64 * 1024 * 1024)

enum verb { VERB_WRITE, VERB_READ, VERB_ZERO, VERB_TRIM, VERB_CACHE,
            VERB_FLUSH, VERB_WAIT };

/* Numbers and flags that each verb takes. */
static const struct {
  const char *name;
  enum verb verb;
  unsigned numbers;
  uint32_t flags;
} verbs[] = {
  { "write", VERB_WRITE, 3, LIBNBD_CMD_FLAG_FUA },
  { "read", VERB_READ, 3, 0 },
  { "zero", VERB_ZERO, 2, LIBNBD_CMD_FLAG_FUA | LIBNBD_CMD_FLAG_NO_HOLE |
                          LIBNBD_CMD_FLAG_FAST_ZERO },
  { "trim", VERB_TRIM, 2, LIBNBD_CMD_FLAG_FUA },
  { "cache", VERB_CACHE, 2, 0 },
  { "flush", VERB_FLUSH, 0, 0 },
  { "wait", VERB_WAIT, 0, 0 },
};

struct op {
  enum verb verb;
  uint64_t numbers[3];          /* offset, length, byte */
  uint32_t flags;               /* LIBNBD_CMD_FLAG_* */
};

static bool
parse_number (const char *text, uint64_t *number)
{
  char *end;
  unsigned shift = 0;

  if (*text < '0' || *text > '9')
    return false;
  errno = 0;
  uint64_t n = strtoull (text, &end, 0);
  switch (*end) {
  case 'k': shift = 10; end++; break;
  case 'M': shift = 20; end++; break;
  case 'G': shift = 30; end++; break;
  default: break;
  }
  if (errno != 0 || *end != '\0' || n > UINT64_MAX >> shift)
    return false;
  *number = n << shift;
  return true;
}

/* Sets or, for may_trim, clears a flag; false if the word is unknown or the
 * verb does not take it.
 */
static bool
parse_flag (const char *text, uint32_t allowed, uint32_t *flags)
{
  if (strcmp (text, "may_trim") == 0 &&
      (allowed & LIBNBD_CMD_FLAG_NO_HOLE)) {
    *flags &= ~(uint32_t) LIBNBD_CMD_FLAG_NO_HOLE;
    return true;
  }

  uint32_t flag = strcmp (text, "fua") == 0 ? LIBNBD_CMD_FLAG_FUA :
    strcmp (text, "fast") == 0 ? LIBNBD_CMD_FLAG_FAST_ZERO : 0;
  *flags |= flag;
  return (flag & allowed) != 0;
}

/* Cuts the text up. */
static bool
parse_op (char *text, struct op *op)
{
  char *save;
  const char *name = strtok_r (text, ":", &save);
  size_t v;

  for (v = 0; v < sizeof verbs / sizeof verbs[0]; v++)
    if (name != NULL && strcmp (name, verbs[v].name) == 0)
      break;
  if (v == sizeof verbs / sizeof verbs[0])
    return false;

  *op = (struct op) { .verb = verbs[v].verb };
  if (op->verb == VERB_ZERO)
    op->flags = LIBNBD_CMD_FLAG_NO_HOLE;
  for (unsigned i = 0; i < verbs[v].numbers; i++) {
    const char *word = strtok_r (NULL, ":", &save);
    if (word == NULL || !parse_number (word, &op->numbers[i]))
      return false;
  }
  for (const char *word = strtok_r (NULL, ":", &save); word != NULL;
       word = strtok_r (NULL, ":", &save))
    if (!parse_flag (word, verbs[v].flags, &op->flags))
      return false;

  /* Only reads and writes need a buffer. */
  return verbs[v].numbers < 3 ||
    (op->numbers[1] <= LENGTH_MAX && op->numbers[2] <= UINT8_MAX);
}

/* 0, -1 for libnbd's error, or 1 with *differs set to an offset. */
static int
run_read (struct nbd_handle *nbd, const struct op *op, uint64_t *differs)
{
  uint64_t offset = op->numbers[0], length = op->numbers[1];
  uint8_t *buffer = malloc (length + 1);
  int r;

  if (buffer == NULL)
    abort ();
  memset (buffer, (uint8_t) ~op->numbers[2], length);
  r = nbd_pread (nbd, buffer, length, offset, 0);
  for (uint64_t i = 0; r == 0 && i < length; i++)
    if (buffer[i] != op->numbers[2]) {
      *differs = offset + i;
      r = 1;
    }
  free (buffer);
  return r;
}

static int
run_write (struct nbd_handle *nbd, const struct op *op)
{
  uint64_t length = op->numbers[1];
  uint8_t *buffer = malloc (length + 1);
  int r;

  if (buffer == NULL)
    abort ();
  memset (buffer, (int) op->numbers[2], length);
  r = nbd_pwrite (nbd, buffer, length, op->numbers[0], op->flags);
  free (buffer);
  return r;
}

static void
wait_line (void)
{
  int c;

  do
    c = getchar ();
  while (c != EOF && c != '\n');
}

/* Prints the result; true if it is "ok". */
static bool
run_op (struct nbd_handle *nbd, const struct op *op)
{
  uint64_t offset = op->numbers[0], length = op->numbers[1], differs = 0;
  int r = -1;

  switch (op->verb) {
  case VERB_WRITE: r = run_write (nbd, op); break;
  case VERB_READ: r = run_read (nbd, op, &differs); break;
  case VERB_ZERO: r = nbd_zero (nbd, length, offset, op->flags); break;
  case VERB_TRIM: r = nbd_trim (nbd, length, offset, op->flags); break;
  case VERB_CACHE: r = nbd_cache (nbd, length, offset, 0); break;
  case VERB_FLUSH: r = nbd_flush (nbd, 0); break;
  case VERB_WAIT: wait_line (); r = 0; break;
  }

  if (r == 0)
    puts ("ok");
  else if (r == 1)
    printf ("mismatch %" PRIu64 "\n", differs);
  else {
    const char *name = strerrorname_np (nbd_get_errno ());
    printf ("error %s\n", name != NULL ? name : "unknown");
    fprintf (stderr, "nbdop: %s\n", nbd_get_error ());
  }
  fflush (stdout);
  return r == 0;
}

int
main (int argc, char *argv[])
{
  struct op *ops = calloc ((size_t) argc, sizeof *ops);
  struct nbd_handle *nbd = nbd_create ();
  bool all_ok = true;

  if (argc < 3 || ops == NULL || nbd == NULL) {
    fprintf (stderr, "usage: nbdop URI OP...\n");
    return 2;
  }
  for (int i = 2; i < argc; i++) {
    char *copy = strdup (argv[i]);
    if (copy == NULL || !parse_op (copy, &ops[i])) {
      fprintf (stderr, "nbdop: bad operation: %s\n", argv[i]);
      return 2;
    }
    free (copy);
  }

  if (nbd_set_strict_mode (nbd, 0) == -1 ||
      nbd_connect_uri (nbd, argv[1]) == -1) {
    fprintf (stderr, "nbdop: %s: %s\n", argv[1], nbd_get_error ());
    return 2;
  }
  for (int i = 2; i < argc; i++)
    all_ok = run_op (nbd, &ops[i]) && all_ok;

  nbd_shutdown (nbd, 0);
  nbd_close (nbd);
  free (ops);
  return all_ok ? 0 : 1;
}
