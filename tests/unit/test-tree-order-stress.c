/* SPDX-License-Identifier: BSD-3-Clause */

/* The directory tree (tree.h) and all requests at once, while layouts change:
 * for ThreadSanitizer and AddressSanitizer.  Each client has sectors of its
 * own, in FATs, directories and files, and reads must return what it has
 * written there (D3); at the end the image must be that (D8).
 *
 *   test-tree-order-stress [SEED [RUNS [REQUESTS]]]
 */

#include <config.h>

#include <sched.h>
#include <unistd.h>

#include "engine.h"
#include "memory-store.h"
#include "tree-images.h"
#include "util.h"

#define CLIENTS 4
#define SECTOR 512
#define RUN_SECTORS 8           /* that a client has in one piece */
#define WIDE_SECTORS 256        /* the same in the second half of a FAT */
#define DIRECTORIES 40          /* clusters of the root, and subdirectories */

static const struct fat_spec spec = {
  512, 1, 32, 2, 512, 32 + 1024 + 20000, 2, 0, 1, 6
};
#define START (64 * SECTOR)

struct client {
  unsigned id, seed;
  pthread_t thread;
};

static struct fatbatch *fb;
static struct memory_record record;
static struct image first, second;      /* volumes of the same bytes */
static uint8_t *model, *disk_bytes;
static uint64_t size;
static uint32_t align;          /* of the disk's */
static unsigned requests;
static unsigned shift;          /* bytes: clients share entries and slots */
static bool reads_fail, calm;
static atomic_uint clients_left;
static _Thread_local bool is_client;

/* -- The disk ---------------------------------------------------------- */

/* A device does not care who else looks at its bytes. */
__attribute__ ((no_sanitize ("thread")))
static void
copy (volatile uint8_t *to, const volatile uint8_t *from, size_t count)
{
  size_t i;

  for (i = 0; i < count; ++i)
    to[i] = from[i];
}

static int
do_op (const struct disk_op *op)
{
  static const uint8_t zeros[SECTOR];
  uint8_t *p = disk_bytes + op->offset;
  uint64_t pos;
  int i;

  for (i = 0; i < op->iovcnt; ++i)
    CHECK ((uintptr_t) op->iov[i].iov_base % align == 0);
  if (op->kind == DISK_SYNC) {
    usleep (20);
    return 0;
  }
  CHECK (op->length > 0 && op->length <= size &&
         op->offset <= size - op->length);
  CHECK (op->offset % align == 0 && op->length % align == 0);
  if (op->kind == DISK_READ && reads_fail && !is_client &&
      op->offset / SECTOR % 7 == 3)
    return -EIO;
  if (op->kind == DISK_ZERO || op->kind == DISK_DISCARD)
    for (pos = 0; pos < op->length; pos += SECTOR)
      copy (p + pos, zeros, min_u64 (SECTOR, op->length - pos));
  for (i = 0; i < op->iovcnt; ++i) {
    if (op->kind == DISK_READ)
      copy (op->iov[i].iov_base, p, op->iov[i].iov_len);
    else
      copy (p, op->iov[i].iov_base, op->iov[i].iov_len);
    p += op->iov[i].iov_len;
  }
  return 0;
}

static int
stress_submit (struct disk *disk, struct disk_op *ops, size_t nr)
{
  size_t i;
  int r = 0;

  (void) disk;
  sched_yield ();               /* others come meanwhile */
  for (i = 0; i < nr; ++i) {
    ops[i].result = do_op (&ops[i]);
    if (r == 0)
      r = ops[i].result;
  }
  return r;
}

static void
stress_free (struct disk *disk)
{
  free (disk);
}

static const struct disk_ops stress_ops = {
  .name = "stress", .submit = stress_submit, .free = stress_free,
};

/* -- The image --------------------------------------------------------- */

/* Two volumes, one behind the other, in an MBR. */
static void
put_partition (uint8_t *mbr, unsigned i, uint64_t start)
{
  uint8_t *p = mbr + 446 + 16 * i;

  p[4] = 0x0c;
  put_le32 (p + 8, (uint32_t) (start / SECTOR));
  put_le32 (p + 12, spec.total_sectors);
  put_le16 (mbr + 510, 0xaa55);
}

static void
fill_volume (struct image *img, uint64_t start)
{
  uint32_t i;

  *img = (struct image) { .bytes = model, .size = size };
  image_volume (img, start, &spec);
  image_run (img, 2, 1 + DIRECTORIES / 2);
  for (i = 2; i < 2 + DIRECTORIES; ++i) {
    image_put (img, 1000 + 4 * i, END_MARK);
    image_entry (img, i, 0, IS_FILE, 1000 + 4 * i, 512);
    if (i < 2 + DIRECTORIES / 2)
      image_entry (img, i, 1, IS_DIRECTORY, i + DIRECTORIES / 2, 0);
    else
      image_put (img, i, END_MARK);
  }
  image_run (img, 3000, 8000);
  image_entry (img, 2, 5, IS_FILE, 3000, 5001 * SECTOR);
}

static void
make_image (void)
{
  size = START + 2 * fat_spec_size (&spec);
  model = calloc (1, size);
  disk_bytes = malloc (size);
  CHECK (model && disk_bytes);
  fill_volume (&first, START);
  fill_volume (&second, START + fat_spec_size (&spec));
  put_partition (model, 0, first.start);
  put_partition (model, 1, second.start);
  memcpy (disk_bytes, model, size);
}

/* -- Requests ---------------------------------------------------------- */

static unsigned
draw (struct client *c, unsigned below)
{
  return rand_r (&c->seed) % below;
}

/* Sectors of the client's own, of a volume from its FAT 1 on. */
static uint64_t
draw_place (struct client *c, const struct image *img, unsigned *nr)
{
  uint64_t area, count = RUN_SECTORS;

  switch (draw (c, 8)) {
  case 0 ... 2:                 /* FAT 1's beginning, or the mirror's */
    area = img->fat1 + draw (c, 2) * img->fat_size +
      (draw (c, 8) * CLIENTS + c->id) * RUN_SECTORS * SECTOR;
    break;
  case 3 ... 4:                 /* directories */
    area = img->data + (draw (c, 2) * CLIENTS + c->id) * RUN_SECTORS * SECTOR;
    break;
  case 5:                       /* much of FAT 1 */
    if (c->id == 0 && !calm && draw (c, 8) == 0) {
      *nr = 129 + draw (c, WIDE_SECTORS - 129);
      return img->fat1 + WIDE_SECTORS * SECTOR;
    }
    /* fall through */
  default:
    area = img->data + (1000 / RUN_SECTORS + draw (c, 200) * CLIENTS + c->id) *
      RUN_SECTORS * SECTOR;
  }
  *nr = 1 + draw (c, draw (c, 4) ? 1 : count);
  return area + draw (c, count - *nr + 1) * SECTOR + shift;
}

/* calm: nothing that can't be followed, and what is in place stays there. */
static uint32_t
draw_entry (struct client *c, uint32_t n, uint32_t old)
{
  if (calm)
    return old == 0 ? END_MARK : old == END_MARK && n > 1100 ? 0 : old;
  switch (draw (c, 8)) {
  case 0 ... 2:
    return 0;
  case 3 ... 4:
    return END_MARK;
  case 5 ... 6:
    return n + 1;
  default:
    return draw (c, 20000);
  }
}

static bool
is_in (const struct image *img, uint64_t at, uint64_t start, uint64_t length)
{
  (void) img;
  return at >= start && at < start + length;
}

/* What might be there. */
static void
fill (struct client *c, const struct image *img, uint64_t offset, unsigned nr)
{
  uint64_t at, end = offset + nr * SECTOR;

  for (at = offset; at < end; at += SLOT_SIZE) {
    uint8_t *p = model + at;
    unsigned i;

    if (draw (c, 4) && is_in (img, at, img->fat1, 2 * img->fat_size))
      put_le32 (p, draw_entry (c, (at - img->fat1) / 4, load_le32 (p)));
    else if (calm && is_in (img, at, img->data, 64 * SECTOR) &&
             at % SECTOR < 6 * SLOT_SIZE)
      continue;                 /* these files stay */
    else if (draw (c, 4) && is_in (img, at, img->data, 64 * SECTOR))
      slot_set (p, "F", draw (c, 4) ? IS_FILE : IS_DIRECTORY,
                calm ? 9000 + (at - img->data) / SLOT_SIZE : draw (c, 20000),
                draw (c, 2) ? draw (c, calm ? 2000 : 1 << 23) : 0);
    else if (is_in (img, at, img->data, 64 * SECTOR) && !calm)
      p[0] = draw (c, 2) ? DELETED_SLOT : 'A';
    else if (!is_in (img, at, img->fat1, 2 * img->fat_size))
      for (i = 0; i < SLOT_SIZE; i += 4)
        put_le32 (p + i, rand_r (&c->seed));
  }
}

static void
check_place (uint64_t offset, unsigned nr)
{
  uint8_t buf[WIDE_SECTORS * SECTOR];

  CHECK_EQ (fatbatch_read (fb, buf, nr * SECTOR, offset), 0);
  if (memcmp (buf, model + offset, nr * SECTOR) == 0)
    return;
  fprintf (stderr, "%u sectors at %" PRIu64 " are not what was written\n", nr,
           offset / SECTOR);
  exit (EXIT_FAILURE);
}

static void
request (struct client *c)
{
  const struct image *img = draw (c, 2) ? &first : &second;
  unsigned nr, flags = draw (c, 4) ? 0 : FATBATCH_FUA, kind = draw (c, 16);
  uint64_t offset = draw_place (c, img, &nr);

  if (kind == 0)
    CHECK_EQ (fatbatch_flush (fb), 0);
  else if (kind < 4)
    check_place (offset, nr);
  else if (kind < 14 || (calm && offset < img->data + 64 * SECTOR)) {
    fill (c, img, offset, nr);
    CHECK_EQ (fatbatch_write (fb, model + offset, nr * SECTOR, offset, flags),
              0);
  }
  else if (kind == 14) {
    memset (model + offset, 0, nr * SECTOR);
    CHECK_EQ (fatbatch_zero (fb, nr * SECTOR, offset, flags), 0);
  }
  else {                        /* it may be there still, or not */
    CHECK_EQ (fatbatch_trim (fb, nr * SECTOR, offset, flags), 0);
    CHECK_EQ (fatbatch_read (fb, model + offset, nr * SECTOR, offset), 0);
  }
}

static void *
run_client (void *opaque)
{
  struct client *c = opaque;
  unsigned i;

  is_client = true;
  for (i = 0; i < requests; ++i)
    request (c);
  atomic_fetch_sub (&clients_left, 1);
  return NULL;
}

/* -- Entries that two clients have in common --------------------------- */

#define SHARED_WRITES 1500

static void *
write_in_halves (void *opaque)
{
  static const uint8_t zeros[1024];
  struct client *c = opaque;
  uint64_t start = first.fat1 + 10 * SECTOR + (c->id == 0 ? 0 : 510);
  unsigned i;

  is_client = true;
  for (i = 0; i < SHARED_WRITES; ++i)
    CHECK_EQ (fatbatch_write (fb, zeros, c->id == 0 ? 510 : 514, start, 0), 0);
  return NULL;
}

/* -- Layouts ----------------------------------------------------------- */

static void
send_sector (uint64_t offset, unsigned flags)
{
  CHECK_EQ (fatbatch_write (fb, model + offset, SECTOR, offset, flags), 0);
}

/* A dirty bit, a label, another geometry, no volume, no partition. */
static void
change_layout (struct client *c)
{
  const struct image *img = draw (c, 2) ? &first : &second;
  unsigned flags = draw (c, 4) ? 0 : FATBATCH_FUA;
  uint8_t *boot = model + img->start;

  switch (calm && draw (c, 8) ? 0 : draw (c, 8)) {
  case 0 ... 2:
    boot[65] ^= 1;
    break;
  case 3 ... 4:
    boot[71] = (uint8_t) ('A' + draw (c, 26));
    break;
  case 5:
    boot[13] ^= 3;
    break;
  case 6:
    boot[510] ^= 0x55;
    break;
  default:
    model[446 + 16 + 4] ^= 0x0c;
    send_sector (0, flags);
    return;
  }
  send_sector (img->start, flags);
}

static void *
change_layouts (void *opaque)
{
  struct client *c = opaque;

  is_client = true;
  while (atomic_load (&clients_left) > 0) {
    change_layout (c);
    if (draw (c, 16) == 0)
      CHECK_EQ (fatbatch_settle (fb), 0);
    usleep (!calm && draw (c, 8) ? draw (c, 3000) : draw (c, 60000));
  }
  return NULL;
}

/* -- Runs -------------------------------------------------------------- */

static void
open_engine (unsigned seed)
{
  struct disk *disk = calloc (1, sizeof *disk);
  struct memory_store *store = memory_store_new (&record, NULL);
  struct fatbatch_options options = {
    .cache = seed % 8 == 6 ? FATBATCH_WRITETHROUGH : FATBATCH_WRITEBACK,
    .durability = seed % 8 == 7 ? FATBATCH_DURABILITY_BLOCK
      : FATBATCH_DURABILITY_FAT,
    .commit_delay_ms = seed % 3 ? 2 : 0, .mirror_delay_ms = 1,
    .mirror_batch = 1 << 16, .serial = seed % 4 == 1,
  };

  CHECK (disk != NULL);
  align = seed % 6 == 5 ? 4096 : 1;
  reads_fail = seed % 5 == 4 && align == 1;
  calm = seed % 2;
  shift = seed % 8 == 2 ? 2 : 0;
  disk_init (disk, &stress_ops, size, align, align);
  CHECK_EQ (engine_new (disk, NULL, &store->store, &options, &fb), 0);
  is_client = true;
  engine_start_tree (fb);
  if (seed % 2)
    tree_wait_idle (&fb->tree, 0);
}

static void
print_stats (void)
{
  struct fatbatch_stats s;

  fatbatch_get_stats (fb, &s);
  printf ("  %" PRIu64 " in place, %" PRIu64 " ordered, %" PRIu64
          " structural; %" PRIu64 " ordered syncs, %" PRIu64 " truncations, %"
          PRIu64 " scans, %" PRIu64 " doubts\n", s.inplace_writes,
          s.ordered_writes, s.structural_writes, s.ordered_syncs,
          s.truncate_waits, s.tree_scans, s.tree_doubts);
}

static void
run_all_at_once (unsigned seed)
{
  struct client client[CLIENTS + 1];
  unsigned i;

  atomic_store (&clients_left, CLIENTS);
  for (i = 0; i <= CLIENTS; ++i) {
    client[i].id = i;
    client[i].seed = seed * 100 + i;
    CHECK_EQ (pthread_create (&client[i].thread, NULL, i < CLIENTS ? run_client
                              : change_layouts, &client[i]), 0);
  }
  for (i = 0; i <= CLIENTS; ++i)
    CHECK_EQ (pthread_join (client[i].thread, NULL), 0);
}

static void
run (unsigned seed)
{
  printf ("seed %u\n", seed);
  fflush (stdout);
  make_image ();
  memset (&record, 0, sizeof record);
  open_engine (seed);
  run_all_at_once (seed);
  print_stats ();
  tree_wait_idle (&fb->tree, 2);
  CHECK_EQ (fatbatch_settle (fb), 0);
  fatbatch_close (fb);
  CHECK (!record.exists);
  CHECK (memcmp (model, disk_bytes, size) == 0);
  free (model);
  free (disk_bytes);
}

/* Neither holds the other one's half. */
static void
share_an_entry (void)
{
  struct client client[2];
  unsigned i;

  make_image ();
  memset (&record, 0, sizeof record);
  open_engine (3);
  CHECK_EQ (fatbatch_write (fb, model, SECTOR, first.fat1 + 10 * SECTOR, 0),
            0);                 /* from now on its bytes are in memory */
  for (i = 0; i < 2; ++i) {
    client[i].id = i;
    CHECK_EQ (pthread_create (&client[i].thread, NULL, write_in_halves,
                              &client[i]), 0);
  }
  for (i = 0; i < 2; ++i)
    CHECK_EQ (pthread_join (client[i].thread, NULL), 0);
  fatbatch_close (fb);
  free (model);
  free (disk_bytes);
}

static void
clients_share_an_entry (void)
{
  unsigned i;

  for (i = 0; i < 4; ++i)       /* TSAN may need more than one */
    share_an_entry ();
}

int
main (int argc, char **argv)
{
  unsigned seed = argc > 1 ? strtoul (argv[1], NULL, 10) : 1;
  unsigned end = seed + (argc > 2 ? strtoul (argv[2], NULL, 10) : 9);

  requests = argc > 3 ? strtoul (argv[3], NULL, 10) : 1500;
  alarm (300);
  RUN (clients_share_an_entry);
  for (; seed < end; ++seed)
    run (seed);
  return EXIT_SUCCESS;
}
