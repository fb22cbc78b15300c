/* SPDX-License-Identifier: BSD-3-Clause */

/* A crash test's log, for people. */

#ifndef CRASH_DUMP_H
#define CRASH_DUMP_H

#include "workload.h"

/* Print the log's first `end` entries. */
extern void dump_log (const struct workload *wl, size_t end);

#endif /* CRASH_DUMP_H */
