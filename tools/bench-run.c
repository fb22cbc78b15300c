/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench-fat.h"
#include "bench-run.h"

extern char **environ;

int
open_temporary (char path[64])
{
  const char *dir = getenv ("TMPDIR");
  int fd;

  if (dir == NULL || dir[0] == '\0')
    dir = "/var/tmp";
  fd = open (dir, O_TMPFILE | O_RDWR, 0600);
  if (fd == -1) {
    /* Not every file system can do without a name. */
    char name[4096];
    if (snprintf (name, sizeof name, "%s/fatbatch.XXXXXX", dir) <
        (int) sizeof name) {
      fd = mkstemp (name);
      if (fd >= 0)
        unlink (name);
    }
  }
  if (fd == -1) {
    bench_error ("temporary file in %s: %s", dir, strerror (errno));
    return -1;
  }
  snprintf (path, 64, "/proc/%ld/fd/%d", (long) getpid (), fd);
  return fd;
}

static void
show_output (int fd)
{
  char buf[4096];
  ssize_t n;
  off_t at = 0;

  while ((n = pread (fd, buf, sizeof buf, at)) > 0) {
    fwrite (buf, 1, (size_t) n, stderr);
    at += n;
  }
}

/* posix_spawnp looks only into PATH. */
static int
spawn (const char *name, const char *const argv[], int out, pid_t *pid)
{
  static const char *const dirs[] = { "", "/usr/sbin/", "/sbin/", NULL };
  posix_spawn_file_actions_t actions;
  char path[128];
  int err = ENOENT;
  size_t i;

  posix_spawn_file_actions_init (&actions);
  posix_spawn_file_actions_addopen (&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2 (&actions, out, 1);
  posix_spawn_file_actions_adddup2 (&actions, out, 2);
  for (i = 0; dirs[i] && err == ENOENT; i++) {
    snprintf (path, sizeof path, "%s%s", dirs[i], name);
    err = posix_spawnp (pid, path, &actions, NULL, (char **) argv, environ);
  }
  posix_spawn_file_actions_destroy (&actions);
  return err;
}

int
run_program (const char *name, const char *const argv[])
{
  char path[64];
  int out, err, status;
  pid_t pid;

  out = open_temporary (path);
  if (out == -1)
    return -1;
  err = spawn (name, argv, out, &pid);
  if (err != 0) {
    bench_error ("%s cannot be run: %s", name, strerror (err));
    close (out);
    return -1;
  }
  while (waitpid (pid, &status, 0) == -1 && errno == EINTR)
    ;
  if (!WIFEXITED (status) || WEXITSTATUS (status) != 0)
    show_output (out);
  close (out);
  if (!WIFEXITED (status)) {
    bench_error ("%s was killed", name);
    return -1;
  }
  return WEXITSTATUS (status);
}
