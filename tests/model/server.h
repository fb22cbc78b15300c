/* SPDX-License-Identifier: BSD-3-Clause */

/* The real nbdkit with the plugin, on a unix socket in the scratch folder.
 *
 *   NBDKIT       the nbdkit to run; default "nbdkit"
 *   FATBATCH_SO  the plugin; default $abs_top_builddir/fatbatch.so, or
 *                ../fatbatch.so
 *
 * Rules:
 *
 * 1. All calls, but for server_try_connect(), come from the thread that
 *    called test_init(): a server ends with the thread that started it
 *    (--exit-with-parent).
 * 2. No server outlives its test.  One that a test forgot to stop fails it.
 * 3. A stopped server must have ended with status 0, a killed one by
 *    SIGKILL: one that crashed by itself fails the test.
 */

#ifndef TEST_SERVER_H
#define TEST_SERVER_H

#include <libnbd.h>

struct server;

/* Start and wait until it serves.  args: the plugin's parameters, ended by
 * NULL.  A server that does not start is a failed test.
 */
extern struct server *server_start (const char *const *args);

/* A new connection with base:allocation.  libnbd's own checks are off:
 * whatever is asked for reaches the server.  The caller closes it.
 */
extern struct nbd_handle *server_connect (const struct server *server);

/* The server's socket, valid as long as the server. */
extern const char *server_socket (const struct server *server);

/* The same from any thread, by a socket's path.  NULL if nobody serves it
 * (any more).
 */
extern struct nbd_handle *server_try_connect (const char *socket);

/* SIGTERM (rule 3).  Frees server. */
extern void server_stop (struct server *server);

/* SIGKILL, and wait until the process is gone (rule 3).  Its socket file
 * must still be there, and is removed, since the next server would not start
 * with it.  Frees server.
 */
extern void server_kill (struct server *server);

/* For the end of main(): fails if a server still runs. */
extern void server_none_left (void);

#endif /* TEST_SERVER_H */
