/* SPDX-License-Identifier: BSD-3-Clause */

/* kill -9 in the middle of a load (D2): what was acknowledged is there when
 * the server runs again, whatever the cache mode.  A request that was not
 * answered may have been done, in part too; nothing else has changed.
 *
 * Several connections with several requests in flight each.  Some drop
 * their connection with requests under way and connect anew, as a client
 * does when its network fails.
 *
 * test-kill [MODE...] [uring|posix]
 */

#include <config.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model.h"
#include "modes.h"
#include "server.h"

#define KILLS 6                 /* of each combination; or FATBATCH_ROUNDS */
#define ACKNOWLEDGED_MAX 1500   /* a server is killed after so many at most */

static struct server *server;
static char *socket_path;       /* the threads' own: they outlive a server */
static uint64_t seed;
static uint64_t unanswered;     /* requests, in all */
static unsigned combinations;

/* -- Reconnecting ------------------------------------------------------ */

/* A write that is sent, and its connection then closed without waiting: it
 * may be done now, later, or never, and so its bytes are TORN and left alone
 * until the server is dead.
 */
static void
abandon_write (struct model *m, unsigned thread, struct prng *prng)
{
  struct nbd_handle *nbd = m->conns[thread];
  uint64_t i, offset = 0, length = 0;
  uint8_t *buf;
  unsigned s, first = prng_below (prng, m->nr_stripes);

  for (s = 0; s < m->nr_stripes && length == 0; ++s) {
    const struct stripe *stripe = &m->stripes[(first + s) % m->nr_stripes];

    if (stripe->owner != thread)
      continue;
    offset = stripe->start;
    length = stripe->end - stripe->start;
    if (length > 3000)
      length = 1 + prng_below (prng, 3000);
  }
  if (length == 0 || memchr (m->states + offset, BYTE_TORN, length) ||
      memchr (m->states + offset, BYTE_ANY, length))
    return;

  buf = test_alloc (length);
  prng_fill (prng, buf, length);
  if (nbd_aio_pwrite (nbd, buf, length, offset, NBD_NULL_COMPLETION, 0) != -1)
    for (i = 0; i < length; ++i) {
      m->states[offset + i] = BYTE_TORN;
      m->alt[offset + i] = buf[i];
    }
  model_log (m, thread, &(struct request) {
      .kind = REQUEST_WRITE, .offset = offset, .length = length,
      .buf = buf });
  nbd_close (nbd);
  free (buf);
  m->conns[thread] = server_try_connect (socket_path);
}

static void
maybe_reconnect (struct model *m, unsigned thread, struct prng *prng)
{
  if (m->conns[thread] && prng_chance (prng, 4))
    abandon_write (m, thread, prng);
}

/* -- Killing ----------------------------------------------------------- */

struct load {
  struct model *m;
  bool ended;                   /* atomic */
};

static void *
run_load (void *opaque)
{
  struct load *load = opaque;

  model_run (load->m);
  __atomic_store_n (&load->ended, true, __ATOMIC_RELEASE);
  return NULL;
}

/* A plain write on each connection, acknowledged, and nothing after it that
 * could make the server do what it had put off.
 */
static void
write_last (struct model *m, struct prng *prng)
{
  uint8_t buf[2000];
  struct request r = { .kind = REQUEST_WRITE, .buf = buf };
  unsigned i;

  for (i = 0; i < MODEL_THREADS; ++i) {
    r.length = 1 + prng_below (prng, sizeof buf);
    r.offset = prng_below (prng, m->size - r.length);
    if (memchr (m->states + r.offset, BYTE_TORN, r.length))
      continue;
    prng_fill (prng, buf, r.length);
    model_do (m, i, &r);
    memcpy (m->bytes + r.offset, buf, r.length);
    memset (m->states + r.offset, BYTE_KNOWN, r.length);
  }
}

/* Kill the server after a random number of acknowledged requests: while the
 * threads go on, which end as their connections die; or, `calmly`, when all
 * that was asked for is acknowledged.
 */
static void
kill_under_load (struct model *m, bool calmly, struct prng *prng)
{
  uint64_t start = __atomic_load_n (&m->acknowledged, __ATOMIC_RELAXED);
  uint64_t wanted = start + 1 + prng_below (prng, ACKNOWLEDGED_MAX);
  struct load load = { .m = m };
  pthread_t id;

  m->stop = false;
  if (pthread_create (&id, NULL, run_load, &load) != 0)
    test_fail ("pthread_create");
  while (__atomic_load_n (&m->acknowledged, __ATOMIC_RELAXED) < wanted &&
         !__atomic_load_n (&load.ended, __ATOMIC_ACQUIRE))
    nanosleep (&(struct timespec) { .tv_nsec = 100000 }, NULL);
  if (calmly) {
    __atomic_store_n (&m->stop, true, __ATOMIC_RELAXED);
    pthread_join (id, NULL);
    write_last (m, prng);
  }
  server_kill (server);         /* fails if it has crashed by itself */
  if (!calmly)
    pthread_join (id, NULL);
}

static void
serve (struct model *m, int mode, int leaf)
{
  char *cache = test_printf ("cache=%s", mode_names[mode]);
  char *io = test_printf ("io=%s", leaves[leaf].name);
  const char *args[] = { m->image->path, cache, io, NULL };
  unsigned i;

  server = server_start (args);
  free (socket_path);
  socket_path = test_printf ("%s", server_socket (server));
  for (i = 0; i < MODEL_THREADS; ++i)
    m->conns[i] = server_connect (server);
  free (cache);
  free (io);
}

static void
disconnect_all (struct model *m)
{
  unsigned i;

  for (i = 0; i < MODEL_THREADS; ++i)
    nbd_close (m->conns[i]);
}

static void
test_combination (int mode, int leaf)
{
  struct image image;
  struct model *m = test_alloc (sizeof *m);
  char *title = test_printf ("kill -9, cache=%s io=%s", mode_names[mode],
                             leaves[leaf].name);
  struct prng prng;
  unsigned i, kills = test_rounds (KILLS);

  prng_init (&prng, seed, 700000 + mode * NR_LEAVES + leaf);
  image_make (&image, (enum image_kind) ((mode + leaf) % IMAGE_KINDS), seed);
  model_init (m, &image, &nbd_target, title, seed);
  m->rounds = 1;                /* the stripes stay until the kill */
  m->batches = 1000000;
  m->after_batch = maybe_reconnect;

  serve (m, mode, leaf);
  for (i = 0; i < kills; ++i) {
    m->may_die = true;
    kill_under_load (m, i % 2 == 1, &prng);
    m->may_die = false;
    disconnect_all (m);
    /* No server yet: the file must tell. */
    model_check_file (m);
    serve (m, mode, leaf);
    model_settle (m);
  }
  disconnect_all (m);
  server_stop (server);
  model_check_file (m);
  unanswered += m->unanswered;
  model_release (m);
  image_release (&image);
  free (title);
  free (m);
  combinations++;
}

int
main (int argc, char *argv[])
{
  test_init ("test-kill", 1200);
  seed = test_seed ();
  modes_for_each (argc, argv, test_combination);
  server_none_left ();
  free (socket_path);
  printf ("%u combinations of mode and leaf survive being killed, "
          "%ju requests were not answered\n",
          combinations, (uintmax_t) unanswered);
  return test_end ();
}
