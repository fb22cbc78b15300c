/* SPDX-License-Identifier: BSD-3-Clause */

/* Other people's programs. */

#ifndef FATBATCH_BENCH_RUN_H
#define FATBATCH_BENCH_RUN_H

/* Run it, from PATH or where administrators' programs are, and wait.  Its
 * output is shown if it fails.  Returns its exit status, or -1 if it did
 * not run or was killed (then it has been said).
 */
extern int run_program (const char *name, const char *const argv[]);

#endif /* FATBATCH_BENCH_RUN_H */
