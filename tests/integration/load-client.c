/* SPDX-License-Identifier: BSD-3-Clause */

#include <config.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <libnbd.h>

#include "load-client.h"

#define CLIENTS 3
#define DEPTH 8                 /* jobs of a client; each is a write or two */
#define RUN 4                   /* sectors of a write, at most */
#define HOT 100                 /* sectors that many writes go to; and so many
                                   around the border of two windows */
#define WINDOW (512 * 1024)     /* bytes */
#define ANSWER_SECONDS 60
#define PIECE (16 * 1024 * 1024)

static const struct load *load;
static struct state *state;
static uint8_t *now[PARTS];     /* as sent last; MIRROR is not used */
static atomic_uint_fast64_t acknowledged;
static atomic_bool stop;

struct client;

struct write {
  struct job *job;
  enum part part;
  bool durable;                 /* when it has been acknowledged */
};

/* Writes of one run of sectors to one part or to both FATs, with the same
 * bytes: first to FAT 1 and then to the mirror, or at once.
 */
struct job {
  struct client *client;
  bool allocates, then_mirror, mirror_due;
  uint64_t first, nr;
  unsigned in_flight;
  struct write writes[PARTS];
  uint8_t buf[RUN * STATE_SECTOR_MAX];
};

struct client {
  unsigned number;
  struct nbd_handle *nbd;
  struct prng prng;
  pthread_t thread;
  struct job jobs[DEPTH];
  bool flushing, failed;
  uint32_t *positions;          /* of all sectors, when the flush was sent */
};

/* -- Connections -------------------------------------------------------- */

struct nbd_handle *
load_connect (const char *uri)
{
  struct nbd_handle *nbd = nbd_create ();

  if (!nbd || nbd_connect_uri (nbd, uri) == -1)
    test_fail ("%s: %s", uri, nbd_get_error ());
  return nbd;
}

static bool
try_read (struct nbd_handle *nbd, void *buf, uint64_t size, uint64_t offset)
{
  uint64_t at, n;

  for (at = 0; at < size; at += n) {
    n = size - at < PIECE ? size - at : PIECE;
    if (nbd_pread (nbd, (uint8_t *) buf + at, n, offset + at, 0) == -1)
      return false;
  }
  return true;
}

void
load_read (struct nbd_handle *nbd, void *buf, uint64_t size, uint64_t offset)
{
  if (!try_read (nbd, buf, size, offset))
    test_fail ("read: %s", nbd_get_error ());
}

/* -- Answers ------------------------------------------------------------ */

/* The server is killed by whoever gets the answer that was waited for. */
static void
count_answer (void)
{
  if (atomic_fetch_add (&acknowledged, 1) + 1 != load->stop_after)
    return;
  if (load->victim > 0)
    kill (load->victim, SIGKILL);
  else
    atomic_store (&stop, true);
}

/* Not answered, or by an error. */
static void
give_up (struct client *c, int error)
{
  if (error != ENOTCONN && !load->may_fail)
    test_fail ("a request fails: %s", strerror (error));
  c->failed = true;
}

/* Callbacks must not use the connection: what follows is sent later.  An
 * unanswered write leaves its sectors busy: it may be there.
 */
static int
on_write (void *opaque, int *error)
{
  struct write *w = opaque;
  struct job *job = w->job;
  uint64_t i;

  job->in_flight--;
  if (*error != 0) {
    give_up (job->client, *error);
    return 1;
  }
  for (i = job->first; i < job->first + job->nr; ++i) {
    struct sector *s = state_sector (state, w->part, i);

    sector_acknowledged (s, w->durable);
    s->busy = false;
  }
  count_answer ();
  job->mirror_due = w->part == FAT1 && job->then_mirror;
  return 1;
}

/* Calls fn for each sector that is the client's; n counts all sectors. */
#define FOR_EACH_OWN(c, part, i, n)                                     \
  for ((n) = 0, (part) = FAT1; (part) < PARTS; ++(part))                \
    for ((i) = 0; (i) < state->nr[part]; ++(i), ++(n))                  \
      if ((i) / RUN % CLIENTS == (c)->number)

static int
on_flush (void *opaque, int *error)
{
  struct client *c = opaque;
  enum part part;
  uint64_t i, n;

  c->flushing = false;
  if (*error != 0) {
    give_up (c, *error);
    return 1;
  }
  FOR_EACH_OWN (c, part, i, n)
    sector_durable (state_sector (state, part, i), c->positions[n]);
  count_answer ();
  return 1;
}

/* -- Requests ----------------------------------------------------------- */

static void
send_write (struct job *job, enum part part, bool equal)
{
  uint64_t sector = state->volume.sector, i;
  bool fua = prng_chance (&job->client->prng, 80);
  struct write *w = &job->writes[part];

  /* An allocation's commit may be deferred (D9). */
  *w = (struct write) {
    .job = job, .part = part,
    .durable = (fua || load->all_durable) && !job->allocates,
  };
  for (i = 0; i < job->nr; ++i) {
    struct sector *s = state_sector (state, part, job->first + i);

    sector_sent (s, job->buf + i * sector, sector, equal
                 ? state_sector (state, FAT1, job->first + i) : NULL);
    s->busy = true;
  }
  if (part != MIRROR)
    memcpy (now[part] + job->first * sector, job->buf, job->nr * sector);
  job->in_flight++;
  if (nbd_aio_pwrite (job->client->nbd, job->buf, job->nr * sector,
                      state_offset (state, part, job->first),
                      (nbd_completion_callback) { .callback = on_write,
                                                  .user_data = w },
                      fua ? LIBNBD_CMD_FLAG_FUA : 0) == -1) {
    job->in_flight--;
    give_up (job->client, ENOTCONN);
  }
}

static void
send_flush (struct client *c)
{
  enum part part;
  uint64_t i, n;

  FOR_EACH_OWN (c, part, i, n)
    c->positions[n] = sector_position (state_sector (state, part, i));
  c->flushing = true;
  if (nbd_aio_flush (c->nbd,
                     (nbd_completion_callback) { .callback = on_flush,
                                                 .user_data = c }, 0) == -1) {
    c->flushing = false;
    give_up (c, ENOTCONN);
  }
}

/* Not under way, and with room for another version. */
static bool
are_usable (enum part part, uint64_t first, uint64_t nr)
{
  uint64_t i;

  for (i = first; i < first + nr; ++i) {
    const struct sector *s = state_sector (state, part, i);

    if (s->busy || s->nr == STATE_VERSIONS)
      return false;
  }
  return true;
}

/* For FATs: usable in both copies. */
static bool
choose_sectors (struct job *job, enum part part)
{
  struct prng *prng = &job->client->prng;
  uint64_t limit = state->nr[part], from = 0;
  uint64_t border = WINDOW / state->volume.sector;
  unsigned attempt;

  if (limit > border + HOT && prng_chance (prng, 80)) {
    from = prng_chance (prng, 50) ? 0 : border - HOT / 2;
    limit = HOT;
  }
  for (attempt = 0; attempt < 16; ++attempt) {
    job->first = from + prng_below (prng, limit);
    job->nr = 1 + prng_below (prng, RUN - job->first % RUN);
    if (job->first / RUN % CLIENTS == job->client->number &&
        job->first + job->nr <= state->nr[part] &&
        are_usable (part, job->first, job->nr) &&
        (part > MIRROR ||
         (are_usable (FAT1, job->first, job->nr) &&
          are_usable (MIRROR, job->first, job->nr))))
      return true;
  }
  return false;
}

/* -- Jobs ---------------------------------------------------------------- */

static void
start_job (struct job *job)
{
  struct client *c = job->client;
  const struct load_kind *kind = load_choose_kind (&c->prng);
  uint64_t sector = state->volume.sector, i;

  if (!choose_sectors (job, kind->part))
    return;
  if (kind->allocates)
    job->nr = 1;
  memcpy (job->buf, now[kind->part == MIRROR ? FAT1 : kind->part] +
          job->first * sector, job->nr * sector);
  load_change (&c->prng, kind, job->first * sector, job->nr * sector,
               job->buf);
  job->allocates = kind->allocates;
  job->then_mirror = kind->then_mirror;
  for (i = 0; job->then_mirror && i < job->nr; ++i)
    state_sector (state, MIRROR, job->first + i)->busy = true;
  send_write (job, kind->part, false);
  if (kind->at_once && !c->failed)
    send_write (job, MIRROR, true);
}

/* -- Clients ------------------------------------------------------------ */

static bool
is_dead (struct client *c)
{
  return nbd_aio_is_dead (c->nbd) || nbd_aio_is_closed (c->nbd);
}

static void
fill_pipeline (struct client *c)
{
  unsigned i;

  if (!c->flushing && prng_chance (&c->prng, 1))
    send_flush (c);
  for (i = 0; i < DEPTH && !c->failed; ++i) {
    struct job *job = &c->jobs[i];

    if (job->mirror_due) {
      job->mirror_due = false;
      send_write (job, MIRROR, true);
    }
    else if (job->in_flight == 0)
      start_job (job);
  }
}

static void *
run_client (void *opaque)
{
  struct client *c = opaque;
  int r;

  while (!is_dead (c)) {
    if (!c->failed && !atomic_load (&stop))
      fill_pipeline (c);
    else if (nbd_aio_in_flight (c->nbd) == 0)
      break;
    r = nbd_poll (c->nbd, ANSWER_SECONDS * 1000);
    if (r == 0)
      test_fail ("no answer within %d s", ANSWER_SECONDS);
  }
  return NULL;
}

static void
start_client (struct client *c, unsigned number, uint64_t sectors)
{
  unsigned i;

  c->number = number;
  c->nbd = load_connect (load->uri);
  c->positions = test_alloc (sectors * sizeof c->positions[0]);
  prng_init (&c->prng, load->seed, number);
  for (i = 0; i < DEPTH; ++i)
    c->jobs[i].client = c;
}

/* False if that failed, and may. */
static bool
read_now (struct nbd_handle *nbd)
{
  enum part part;

  for (part = FAT1; part < PARTS; ++part) {
    uint64_t size = state->nr[part] * state->volume.sector;

    if (part == MIRROR)
      continue;
    now[part] = test_alloc (size);
    if (!try_read (nbd, now[part], size, state_offset (state, part, 0))) {
      if (!load->may_fail)
        test_fail ("read: %s", nbd_get_error ());
      return false;
    }
  }
  return true;
}

uint64_t
load_run (const struct load *l)
{
  struct client *clients = test_alloc (CLIENTS * sizeof *clients);
  uint64_t sectors;
  unsigned i;

  load = l;
  state = l->state;
  sectors = state->nr[FAT1] + state->nr[MIRROR] + state->nr[DIRECTORY] +
    state->nr[DATA];
  for (i = 0; i < CLIENTS; ++i)
    start_client (&clients[i], i, sectors);
  if (!read_now (clients[0].nbd))
    atomic_store (&stop, true);
  for (i = 0; i < CLIENTS; ++i)
    if (pthread_create (&clients[i].thread, NULL, run_client, &clients[i]))
      test_fail ("pthread_create");
  for (i = 0; i < CLIENTS; ++i)
    pthread_join (clients[i].thread, NULL);
  for (i = 0; i < CLIENTS; ++i) {
    nbd_close (clients[i].nbd);         /* ends what is unanswered */
    free (clients[i].positions);
  }
  for (i = FAT1; i < PARTS; ++i)
    free (now[i]);
  free (clients);
  return acknowledged;
}
