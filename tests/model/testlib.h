/* SPDX-License-Identifier: BSD-3-Clause */

/* What every test program here needs: a seed that replays, a scratch folder
 * that goes away on every way out, and one way to fail.
 *
 * Rules:
 *
 * 1. test_init() comes first, while there is one thread: it forks a keeper
 *    that outlives the test, however that ends (SIGKILL too), and removes
 *    the scratch folder.
 * 2. test_fail() may be called by any thread; the first one wins.
 * 3. Random numbers come from struct prng only.  A stream is one thread's,
 *    and what it draws never depends on other threads, so that the same seed
 *    makes the same requests (not the same interleaving).
 */

#ifndef TEST_TESTLIB_H
#define TEST_TESTLIB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* -- Random numbers ---------------------------------------------------- */

struct prng {
  uint64_t state;
};

/* Streams of one seed are independent of each other. */
extern void prng_init (struct prng *prng, uint64_t seed, uint64_t stream);
extern uint64_t prng_next (struct prng *prng);
/* 0 <= result < n; n > 0. */
extern uint64_t prng_below (struct prng *prng, uint64_t n);
/* True `percent` times of 100. */
extern bool prng_chance (struct prng *prng, unsigned percent);
extern void prng_fill (struct prng *prng, void *buf, size_t count);

/* -- Life of a test ---------------------------------------------------- */

/* Makes the scratch folder below $TMPDIR (default /var/tmp, where O_DIRECT
 * works), and makes the test end after `seconds` at the latest (times
 * $FATBATCH_SLOW, for valgrind and sanitizers).
 */
extern void test_init (const char *name, unsigned seconds);

/* $FATBATCH_SEED, or a random seed; printed, with how to replay it. */
extern uint64_t test_seed (void);

/* $FATBATCH_ROUNDS, or `rounds`: how long the test is. */
extern unsigned test_rounds (unsigned rounds);

/* The scratch folder. */
extern const char *test_dir (void);

/* Runs fn when the test ends, before the scratch folder goes, on test_fail()
 * with failed = true.
 */
extern void test_at_end (void (*fn) (bool failed));

/* Prints "name: FAILED: ..." and ends the test with status 1. */
extern void test_fail (const char *fmt, ...)
  __attribute__ ((format (printf, 1, 2), noreturn));

/* Ends the test with status 77. */
extern void test_skip (const char *fmt, ...)
  __attribute__ ((format (printf, 1, 2), noreturn));

/* Removes the scratch folder; for the end of main(). */
extern int test_end (void);

/* -- Small things ------------------------------------------------------ */

/* malloc(3) and friends that don't fail.  The caller frees. */
extern void *test_alloc (size_t size);
extern char *test_printf (const char *fmt, ...)
  __attribute__ ((format (printf, 1, 2)));

/* A whole file, which must have exactly `size` bytes, into buf. */
extern void test_read_file (const char *path, void *buf, size_t size);

#endif /* TEST_TESTLIB_H */
