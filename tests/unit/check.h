/* SPDX-License-Identifier: BSD-3-Clause */

/* For tests that are plain programs, because they start threads: Criterion
 * does not start under ThreadSanitizer, and forks for each test.
 */

#ifndef FATBATCH_TESTS_CHECK_H
#define FATBATCH_TESTS_CHECK_H

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                \
  do {                                                                  \
    if (!(condition)) {                                                 \
      fprintf (stderr, "%s:%d: %s: failed: %s\n",                       \
               __FILE__, __LINE__, __func__, #condition);               \
      exit (EXIT_FAILURE);                                              \
    }                                                                   \
  } while (0)

#define CHECK_EQ(a, b)                                                  \
  do {                                                                  \
    int64_t a_ = (a), b_ = (b);                                         \
    if (a_ != b_) {                                                     \
      fprintf (stderr, "%s:%d: %s: %s is %" PRId64 ", not %" PRId64 "\n", \
               __FILE__, __LINE__, __func__, #a, a_, b_);               \
      exit (EXIT_FAILURE);                                              \
    }                                                                   \
  } while (0)

/* Run one test and name it. */
#define RUN(test)                                                       \
  do {                                                                  \
    printf ("%s\n", #test);                                             \
    fflush (stdout);                                                    \
    test ();                                                            \
  } while (0)

#endif /* FATBATCH_TESTS_CHECK_H */
