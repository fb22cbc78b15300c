/* SPDX-License-Identifier: BSD-3-Clause */

/* Small helpers that every module may use. */

#ifndef FATBATCH_UTIL_H
#define FATBATCH_UTIL_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Free a local at the end of its scope, on every way out. */
#define CLEANUP_FREE __attribute__ ((cleanup (cleanup_free)))

/* Hold a mutex to the end of the scope. */
#define SCOPED_LOCK(mutex) SCOPED_LOCK_AT (mutex, __LINE__)
#define SCOPED_LOCK_AT(mutex, line) SCOPED_LOCK_NAMED (mutex, line)
#define SCOPED_LOCK_NAMED(mutex, line)                                  \
  __attribute__ ((cleanup (cleanup_mutex_unlock), unused))              \
  pthread_mutex_t *scoped_lock_##line = lock_mutex (mutex)

static inline void
cleanup_free (void *ptr)
{
  free (*(void **) ptr);
}

static inline pthread_mutex_t *
lock_mutex (pthread_mutex_t *mutex)
{
  pthread_mutex_lock (mutex);
  return mutex;
}

static inline void
cleanup_mutex_unlock (pthread_mutex_t **mutex)
{
  pthread_mutex_unlock (*mutex);
}

static inline uint64_t
min_u64 (uint64_t a, uint64_t b)
{
  return a < b ? a : b;
}

static inline uint64_t
max_u64 (uint64_t a, uint64_t b)
{
  return a > b ? a : b;
}

/* align is a power of two.  align_up() wants x <= UINT64_MAX - align. */
static inline uint64_t
align_down (uint64_t x, uint64_t align)
{
  return x & ~(align - 1);
}

static inline uint64_t
align_up (uint64_t x, uint64_t align)
{
  return align_down (x + align - 1, align);
}

static inline bool
all_zero (const uint8_t *p, size_t n)
{
  return n == 0 || (p[0] == 0 && memcmp (p, p + 1, n - 1) == 0);
}

/* Memory that is filled at once: have its pages now, with one call.  Under a
 * hypervisor a page fault may take 10 us, more than to copy the page's bytes.
 */
static inline void
populate (void *p, size_t count)
{
#ifdef MADV_POPULATE_WRITE
  uintptr_t start = align_up ((uintptr_t) p, 4096);
  uintptr_t end = align_down ((uintptr_t) p + count, 4096);

  if (start < end)
    madvise ((void *) start, end - start, MADV_POPULATE_WRITE);
#endif
}

#endif /* FATBATCH_UTIL_H */
