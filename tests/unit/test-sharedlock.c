/* SPDX-License-Identifier: BSD-3-Clause */

/* Shared locks: a writer is alone, and nobody is forgotten. */

#include <config.h>

#include "check.h"
#include "sharedlock.h"

static struct sharedlock sl;
static int a, b;                /* plain ints, always equal under the lock */
static atomic_uint reads, writes;

#define READERS 4
#define WRITERS 2
#define ROUNDS 2000

static void *
read_often (void *opaque)
{
  int i;

  /* Until all writers are through, so that they never have it to
   * themselves.
   */
  for (i = 0; i < ROUNDS || atomic_load (&writes) < WRITERS * ROUNDS; ++i) {
    unsigned slot = sharedlock_lock_shared (&sl);

    CHECK_EQ (a, b);
    sharedlock_unlock_shared (&sl, slot);
    atomic_fetch_add (&reads, 1);
  }
  return opaque;
}

static void *
write_often (void *opaque)
{
  int i;

  for (i = 0; i < ROUNDS; ++i) {
    sharedlock_lock (&sl);
    a++;
    sched_yield ();
    b++;
    sharedlock_unlock (&sl);
    atomic_fetch_add (&writes, 1);
  }
  return opaque;
}

static void
a_writer_is_alone (void)
{
  pthread_t threads[READERS + WRITERS];
  int i;

  for (i = 0; i < READERS + WRITERS; ++i)
    CHECK_EQ (pthread_create (&threads[i], NULL,
                              i < READERS ? read_often : write_often,
                              NULL), 0);
  for (i = 0; i < READERS + WRITERS; ++i)
    CHECK_EQ (pthread_join (threads[i], NULL), 0);
  CHECK_EQ (a, WRITERS * ROUNDS);
  CHECK_EQ (b, WRITERS * ROUNDS);
  CHECK (atomic_load (&reads) >= READERS * ROUNDS);
}

static void
readers_share (void)
{
  unsigned first = sharedlock_lock_shared (&sl);
  unsigned second = sharedlock_lock_shared (&sl);

  sharedlock_unlock_shared (&sl, first);
  sharedlock_unlock_shared (&sl, second);
  sharedlock_lock (&sl);
  sharedlock_unlock (&sl);
}

static atomic_bool written;

static void *
write_once (void *opaque)
{
  sharedlock_lock (&sl);
  atomic_store (&written, true);
  sharedlock_unlock (&sl);
  return opaque;
}

static void *
read_once (void *opaque)
{
  unsigned slot = sharedlock_lock_shared (&sl);

  CHECK (atomic_load (&written));
  sharedlock_unlock_shared (&sl, slot);
  return opaque;
}

/* Rule 2. */
static void
a_waiting_writer_keeps_new_readers_out (void)
{
  unsigned slot = sharedlock_lock_shared (&sl);
  pthread_t writer, reader;

  CHECK_EQ (pthread_create (&writer, NULL, write_once, NULL), 0);
  while (!atomic_load (&sl.writing))
    sched_yield ();
  CHECK_EQ (pthread_create (&reader, NULL, read_once, NULL), 0);
  CHECK (!atomic_load (&written));
  sharedlock_unlock_shared (&sl, slot);
  CHECK_EQ (pthread_join (writer, NULL), 0);
  CHECK_EQ (pthread_join (reader, NULL), 0);
}

int
main (void)
{
  sharedlock_init (&sl);
  RUN (readers_share);
  RUN (a_waiting_writer_keeps_new_readers_out);
  RUN (a_writer_is_alone);
  sharedlock_release (&sl);
  return EXIT_SUCCESS;
}
