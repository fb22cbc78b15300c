/* SPDX-License-Identifier: BSD-3-Clause */

#define _GNU_SOURCE

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "testlib.h"

static const char *test_name = "test";
static char *dir;
static pid_t keeper_pid;
static int keeper_fd = -1;      /* closed when we end, by whatever way */
static void (*at_end) (bool failed);

/* -- Random numbers (splitmix64) --------------------------------------- */

static uint64_t
mix (uint64_t z)
{
  z = (z ^ (z >> 30)) * UINT64_C (0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C (0x94d049bb133111eb);
  return z ^ (z >> 31);
}

void
prng_init (struct prng *prng, uint64_t seed, uint64_t stream)
{
  prng->state = mix (seed) ^ mix (stream * UINT64_C (0x9e3779b97f4a7c15) + 1);
}

uint64_t
prng_next (struct prng *prng)
{
  prng->state += UINT64_C (0x9e3779b97f4a7c15);
  return mix (prng->state);
}

uint64_t
prng_below (struct prng *prng, uint64_t n)
{
  return prng_next (prng) % n;
}

bool
prng_chance (struct prng *prng, unsigned percent)
{
  return prng_below (prng, 100) < percent;
}

void
prng_fill (struct prng *prng, void *buf, size_t count)
{
  char *p = buf;
  uint64_t word;

  for (; count >= sizeof word; p += sizeof word, count -= sizeof word) {
    word = prng_next (prng);
    memcpy (p, &word, sizeof word);
  }
  word = prng_next (prng);
  memcpy (p, &word, count);
}

/* -- The scratch folder and its keeper --------------------------------- */

static int
remove_entry (const char *path, const struct stat *st, int type,
              struct FTW *ftw)
{
  (void) st;
  (void) type;
  (void) ftw;
  remove (path);
  return 0;
}

static void
remove_dir (void)
{
  nftw (dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* Waits for the test's end: the last copy of the pipe's other end is gone.
 * Ctrl-C goes to the whole process group, and must not end the keeper.  It
 * holds no other file, lest whoever reads our output waits for it.
 */
static void
keep (int fd)
{
  int null = open ("/dev/null", O_RDWR);
  char c;

  signal (SIGINT, SIG_IGN);
  signal (SIGTERM, SIG_IGN);
  signal (SIGHUP, SIG_IGN);
  dup2 (null, STDOUT_FILENO);
  dup2 (null, STDERR_FILENO);
  while (read (fd, &c, 1) == -1 && errno == EINTR)
    ;
  remove_dir ();
  _exit (0);
}

static void
start_keeper (void)
{
  int fds[2];

  if (pipe2 (fds, O_CLOEXEC) == -1)
    test_fail ("pipe: %m");
  keeper_pid = fork ();
  if (keeper_pid == -1)
    test_fail ("fork: %m");
  if (keeper_pid == 0) {
    close (fds[1]);
    keep (fds[0]);
  }
  close (fds[0]);
  keeper_fd = fds[1];
}

static unsigned
slowness (void)
{
  const char *slow = getenv ("FATBATCH_SLOW");

  return slow && atoi (slow) > 0 ? atoi (slow) : 1;
}

void
test_init (const char *name, unsigned seconds)
{
  const char *tmp = getenv ("TMPDIR");

  test_name = name;
  setvbuf (stdout, NULL, _IOLBF, 0);
  signal (SIGPIPE, SIG_IGN);
  dir = test_printf ("%s/fatbatch-test.XXXXXX", tmp ? tmp : "/var/tmp");
  if (!mkdtemp (dir)) {
    fprintf (stderr, "%s: %s: %s\n", name, dir, strerror (errno));
    exit (1);
  }
  start_keeper ();
  /* A hang is a failure: SIGALRM ends the test, the keeper cleans up. */
  alarm (seconds * slowness ());
}

const char *
test_dir (void)
{
  return dir;
}

void
test_at_end (void (*fn) (bool failed))
{
  at_end = fn;
}

static void
clean_up (bool failed)
{
  if (at_end)
    at_end (failed);
  if (keeper_fd >= 0) {
    close (keeper_fd);
    keeper_fd = -1;
    waitpid (keeper_pid, NULL, 0);
  }
}

int
test_end (void)
{
  clean_up (false);
  free (dir);
  dir = NULL;
  return 0;
}

static void __attribute__ ((noreturn))
give_up (const char *what, int status, const char *fmt, va_list args)
{
  static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER;

  pthread_mutex_lock (&first);  /* never unlocked: others wait for the end */
  fflush (stdout);
  fprintf (stderr, "%s: %s: ", test_name, what);
  vfprintf (stderr, fmt, args);
  fprintf (stderr, "\n");
  clean_up (status == 1);
  _exit (status);
}

void
test_fail (const char *fmt, ...)
{
  va_list args;

  va_start (args, fmt);
  give_up ("FAILED", 1, fmt, args);
}

void
test_skip (const char *fmt, ...)
{
  va_list args;

  va_start (args, fmt);
  give_up ("skipped", 77, fmt, args);
}

/* -- Environment ------------------------------------------------------- */

uint64_t
test_seed (void)
{
  const char *text = getenv ("FATBATCH_SEED");
  uint64_t seed;
  char *end;

  if (text && *text) {
    seed = strtoull (text, &end, 0);
    if (*end)
      test_fail ("FATBATCH_SEED=%s is not a number", text);
  }
  else if (getrandom (&seed, sizeof seed, 0) != sizeof seed)
    test_fail ("getrandom: %m");
  else
    seed &= UINT32_MAX;         /* short enough to be typed */
  printf ("%s: seed=%" PRIu64 "; replay with FATBATCH_SEED=%" PRIu64 "\n",
          test_name, seed, seed);
  return seed;
}

unsigned
test_rounds (unsigned rounds)
{
  const char *text = getenv ("FATBATCH_ROUNDS");

  return text && atoi (text) > 0 ? (unsigned) atoi (text) : rounds;
}

/* -- Small things ------------------------------------------------------ */

void *
test_alloc (size_t size)
{
  void *p = calloc (1, size ? size : 1);

  if (!p)
    test_fail ("out of memory");
  return p;
}

char *
test_printf (const char *fmt, ...)
{
  va_list args;
  char *text;
  int n;

  va_start (args, fmt);
  n = vasprintf (&text, fmt, args);
  va_end (args);
  if (n == -1)
    abort ();
  return text;
}

void
test_read_file (const char *path, void *buf, size_t size)
{
  int fd = open (path, O_RDONLY | O_CLOEXEC);
  size_t done = 0;
  struct stat st;
  ssize_t r;

  if (fd == -1 || fstat (fd, &st) == -1)
    test_fail ("%s: %m", path);
  if ((size_t) st.st_size != size)
    test_fail ("%s: %jd bytes, expected %zu: the size changed", path,
               (intmax_t) st.st_size, size);
  while (done < size) {
    r = read (fd, (char *) buf + done, size - done);
    if (r <= 0)
      test_fail ("%s: read: %m", path);
    done += r;
  }
  close (fd);
}
