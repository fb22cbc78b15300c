/* SPDX-License-Identifier: BSD-3-Clause */

#define _GNU_SOURCE

#include <config.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "server.h"
#include "testlib.h"

#define START_SECONDS 60
#define ARGS_MAX 32

struct server {
  pid_t pid;
  char *socket, *pidfile, *log;
};

static struct server *running;  /* one at a time is enough for us */
static unsigned count;

static void
server_free (struct server *server)
{
  unlink (server->log);
  unlink (server->pidfile);
  free (server->socket);
  free (server->pidfile);
  free (server->log);
  free (server);
  running = NULL;
}

/* The end of what the server said, for a failed test. */
static void
print_log (const struct server *server)
{
  char buf[2048];
  ssize_t n;
  int fd = open (server->log, O_RDONLY | O_CLOEXEC);

  if (fd == -1)
    return;
  n = lseek (fd, 0, SEEK_END);
  lseek (fd, n > (ssize_t) sizeof buf ? n - (ssize_t) sizeof buf : 0,
         SEEK_SET);
  n = read (fd, buf, sizeof buf);
  if (n > 0)
    fprintf (stderr, "--- the server's log ends with\n%.*s\n", (int) n, buf);
  close (fd);
}

static void
end_of_test (bool failed)
{
  if (!running)
    return;
  kill (running->pid, SIGKILL);
  waitpid (running->pid, NULL, 0);
  if (failed)
    print_log (running);
}

static const char *
find_plugin (void)
{
  static char *found;
  const char *env = getenv ("FATBATCH_SO");
  const char *top = getenv ("abs_top_builddir");

  if (env && *env)
    return env;
  if (!found)
    found = test_printf ("%s/fatbatch.so", top ? top : "..");
  if (access (found, R_OK) == -1)
    test_fail ("%s: %m; set FATBATCH_SO", found);
  return found;
}

/* Does not return. */
static void
exec_server (const struct server *server, const char *plugin,
             const char *const *args)
{
  const char *nbdkit = getenv ("NBDKIT");
  const char *argv[ARGS_MAX] = {
    nbdkit && *nbdkit ? nbdkit : "nbdkit", "-f", "--exit-with-parent",
    "-P", server->pidfile, "-U", server->socket, plugin,
  };
  int log = open (server->log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  int null = open ("/dev/null", O_RDONLY);
  size_t n = 8;

  while (*args && n < ARGS_MAX - 1)
    argv[n++] = *args++;
  signal (SIGPIPE, SIG_DFL);
  dup2 (null, STDIN_FILENO);
  dup2 (log, STDOUT_FILENO);
  dup2 (log, STDERR_FILENO);
  execvp (argv[0], (char **) argv);
  fprintf (stderr, "%s: %s\n", argv[0], strerror (errno));
  _exit (127);
}

static void
nap (void)
{
  nanosleep (&(struct timespec) { .tv_nsec = 2000000 }, NULL);
}

/* nbdkit writes its pid once it serves. */
static void
wait_until_serving (struct server *server)
{
  time_t end = time (NULL) + START_SECONDS;
  pid_t pid = server->pid;
  int status;

  while (access (server->pidfile, F_OK) == -1) {
    if (waitpid (pid, &status, WNOHANG) == pid) {
      print_log (server);
      running = NULL;
      test_fail ("the server did not start: wait status 0x%x", status);
    }
    if (time (NULL) > end)
      test_fail ("the server does not serve after %d s", START_SECONDS);
    nap ();
  }
}

struct server *
server_start (const char *const *args)
{
  struct server *server = test_alloc (sizeof *server);
  const char *plugin = find_plugin ();

  server_none_left ();
  count++;
  server->socket = test_printf ("%s/socket", test_dir ());
  server->pidfile = test_printf ("%s/server.%u.pid", test_dir (), count);
  server->log = test_printf ("%s/server.%u.log", test_dir (), count);
  if (access (server->socket, F_OK) == 0)
    test_fail ("%s is there already: an earlier server left it",
               server->socket);
  fflush (NULL);
  server->pid = fork ();
  if (server->pid == -1)
    test_fail ("fork: %m");
  if (server->pid == 0)
    exec_server (server, plugin, args);
  running = server;
  test_at_end (end_of_test);
  wait_until_serving (server);
  return server;
}

const char *
server_socket (const struct server *server)
{
  return server->socket;
}

struct nbd_handle *
server_try_connect (const char *socket)
{
  struct nbd_handle *nbd = nbd_create ();

  if (!nbd ||
      nbd_add_meta_context (nbd, LIBNBD_CONTEXT_BASE_ALLOCATION) == -1 ||
      nbd_set_strict_mode (nbd, 0) == -1)
    test_fail ("libnbd: %s", nbd_get_error ());
  if (nbd_connect_unix (nbd, socket) == -1) {
    nbd_close (nbd);
    return NULL;
  }
  return nbd;
}

struct nbd_handle *
server_connect (const struct server *server)
{
  struct nbd_handle *nbd = server_try_connect (server->socket);

  if (!nbd)
    test_fail ("the server refuses a connection");
  return nbd;
}

static int
end_server (struct server *server, int signal)
{
  int status;

  if (kill (server->pid, signal) == -1)
    test_fail ("kill: %m");
  while (waitpid (server->pid, &status, 0) == -1)
    if (errno != EINTR)
      test_fail ("waitpid: %m");
  return status;
}

/* test_init()'s alarm is the bound on the wait. */
void
server_stop (struct server *server)
{
  int status = end_server (server, SIGTERM);

  if (status != 0) {
    print_log (server);
    running = NULL;
    test_fail ("the server ended with wait status 0x%x, not 0", status);
  }
  unlink (server->socket);      /* nbdkit 1.32 leaves it */
  server_free (server);
}

void
server_kill (struct server *server)
{
  int status = end_server (server, SIGKILL);

  if (!WIFSIGNALED (status) || WTERMSIG (status) != SIGKILL) {
    print_log (server);
    running = NULL;
    test_fail ("the server had ended before it was killed: wait status 0x%x",
               status);
  }
  /* nbdkit cannot remove it, and the next one would not start. */
  if (unlink (server->socket) == -1)
    test_fail ("%s: %m: expected the killed server's socket",
               server->socket);
  server_free (server);
}

void
server_none_left (void)
{
  if (running)
    test_fail ("server %d was left running", (int) running->pid);
}
