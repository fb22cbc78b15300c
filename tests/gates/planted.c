/* SPDX-License-Identifier: BSD-3-Clause */

/* A program with one fault of each kind that the sanitizers and valgrind are
 * there for: test-gates.sh proves with it that a build's gates go red.
 *
 *   planted use-after-free | undefined | leak | race | none
 */

#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Volatile, so that no compiler sees through it. */
static void *volatile pointer;
static volatile int number;
static int raced;

static int
use_after_free (void)
{
  pointer = malloc (16);
  memset (pointer, 1, 16);
  free (pointer);
  return *(char *) pointer;
}

static int
undefined (void)
{
  number = INT_MAX;
  number = number + 1;
  return number;
}

static int
leak (void)
{
  pointer = malloc (1234);
  pointer = NULL;
  return 0;
}

static void *
add_one (void *opaque)
{
  int i;

  for (i = 0; i < 1000; ++i)
    raced++;
  return opaque;
}

static int
race (void)
{
  pthread_t a, b;

  pthread_create (&a, NULL, add_one, NULL);
  pthread_create (&b, NULL, add_one, NULL);
  pthread_join (a, NULL);
  pthread_join (b, NULL);
  return raced == 0;
}

int
main (int argc, char *argv[])
{
  const char *fault = argc == 2 ? argv[1] : "";
  int r = 0;

  if (strcmp (fault, "use-after-free") == 0)
    r = use_after_free ();
  else if (strcmp (fault, "undefined") == 0)
    r = undefined ();
  else if (strcmp (fault, "leak") == 0)
    r = leak ();
  else if (strcmp (fault, "race") == 0)
    r = race ();
  else if (strcmp (fault, "none") != 0) {
    fprintf (stderr, "usage: planted FAULT\n");
    return 2;
  }
  printf ("result: %d\n", r);
  return 0;                     /* only a gate makes this red */
}
