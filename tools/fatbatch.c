/* SPDX-License-Identifier: BSD-3-Clause */

/* fatbatch COMMAND: the tools beside the server. */

#include <config.h>

#include <stdio.h>
#include <string.h>

#include "bench.h"

static const struct command {
  const char *name;
  const char *what;
  int (*run) (int argc, char *argv[]);  /* argv[0] is the command's name */
} commands[] = {
  { "bench", "send the write streams of real guests to an NBD server",
    bench_main },
};

#define NR_COMMANDS (sizeof commands / sizeof commands[0])

static void
usage (FILE *fp)
{
  size_t i;

  fprintf (fp, "Usage: fatbatch COMMAND [ARGUMENT...]\n\nCommands:\n");
  for (i = 0; i < NR_COMMANDS; i++)
    fprintf (fp, "  %-8s %s\n", commands[i].name, commands[i].what);
  fprintf (fp, "\n`fatbatch COMMAND --help' tells more, "
           "fatbatch(1) everything.\n");
}

int
main (int argc, char *argv[])
{
  const char *name = argc > 1 ? argv[1] : "";
  size_t i;

  if (strcmp (name, "--help") == 0 || strcmp (name, "-h") == 0 ||
      strcmp (name, "help") == 0) {
    usage (stdout);
    return 0;
  }
  if (strcmp (name, "--version") == 0 || strcmp (name, "-V") == 0) {
    printf ("fatbatch %s\n", PACKAGE_VERSION);
    return 0;
  }
  for (i = 0; i < NR_COMMANDS; i++)
    if (strcmp (name, commands[i].name) == 0)
      return commands[i].run (argc - 1, argv + 1);

  if (argc > 1)
    fprintf (stderr, "fatbatch: there is no command '%s'\n\n", name);
  usage (stderr);
  return BENCH_USAGE;
}
