/* SPDX-License-Identifier: BSD-3-Clause */

/* The record's blocks.  All numbers are little-endian.
 *
 *   header                           entry
 *    0  "FATBATCH"                    0  "FATBENTR"
 *    8  version, 4 bytes: 1           8  length of the window, 4
 *   12  block size, 4: 512           12  slot size, 4
 *   16  image size, 8                16  image size, 8
 *   24  run, 8                       24  run, 8
 *   32  blocks, 4                    32  FAT 1's offset, 8
 *                                    40  mirror's offset, 8
 *                                    48  volume's offset, 8
 *                                    56  volume's serial number, 4
 *                                    64  slots, 128
 *   508 CRC-32 of bytes 0 to 507     508 CRC-32
 *
 * What is not listed is 0.
 */

#include <config.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "byteorder.h"
#include "crc32.h"
#include "error.h"
#include "fatbatch.h"
#include "intent.h"
#include "util.h"

#define RECORD_VERSION 1
#define CHECKSUM_AT (INTENT_BLOCK - 4)
#define SLOTS_AT 64

static const char header_magic[8] = "FATBATCH";
static const char entry_magic[8] = "FATBENTR";

/* -- Blocks -------------------------------------------------------------- */

static void
seal (uint8_t block[INTENT_BLOCK])
{
  store_le32 (block + CHECKSUM_AT, crc32_ieee (0, block, CHECKSUM_AT));
}

static bool
is_sealed (const uint8_t block[INTENT_BLOCK])
{
  return load_le32 (block + CHECKSUM_AT) == crc32_ieee (0, block, CHECKSUM_AT);
}

void
intent_encode (const struct intent_entry *entry, uint64_t image_size,
               uint64_t run, uint8_t block[INTENT_BLOCK])
{
  memset (block, 0, INTENT_BLOCK);
  memcpy (block, entry_magic, sizeof entry_magic);
  store_le32 (block + 8, entry->length);
  store_le32 (block + 12, entry->slot_size);
  store_le64 (block + 16, image_size);
  store_le64 (block + 24, run);
  store_le64 (block + 32, entry->fat1);
  store_le64 (block + 40, entry->mirror);
  store_le64 (block + 48, entry->volume_start);
  store_le32 (block + 56, entry->volume_id);
  memcpy (block + SLOTS_AT, entry->slots, sizeof entry->slots);
  seal (block);
}

/* Is it what could be copied: whole slots, inside of the image, from one place
 * to another?
 */
static bool
is_consistent (const struct intent_entry *e, uint64_t image_size)
{
  uint32_t slots;

  if (e->slot_size < 512 || e->slot_size > 4096 ||
      (e->slot_size & (e->slot_size - 1)) != 0)
    return false;
  slots = e->length / e->slot_size;
  if (slots == 0 || slots > INTENT_SLOTS || e->length % e->slot_size != 0)
    return false;
  if (e->length > image_size || e->fat1 > image_size - e->length ||
      e->mirror > image_size - e->length || e->volume_start >= image_size)
    return false;
  if (e->fat1 < e->mirror + e->length && e->mirror < e->fat1 + e->length)
    return false;
  for (; slots < INTENT_SLOTS; ++slots)
    if (e->slots[slots / 8] >> slots % 8 & 1)
      return false;
  return true;
}

int
intent_decode (const uint8_t block[INTENT_BLOCK], uint64_t image_size,
               uint64_t run, struct intent_entry *ret)
{
  struct intent_entry entry;

  if (all_zero (block, INTENT_BLOCK))
    return 1;
  if (memcmp (block, entry_magic, sizeof entry_magic) != 0 ||
      !is_sealed (block) || load_le64 (block + 16) != image_size ||
      load_le64 (block + 24) != run || load_le32 (block + 60) != 0 ||
      !all_zero (block + SLOTS_AT + sizeof entry.slots,
                CHECKSUM_AT - SLOTS_AT - sizeof entry.slots))
    return -EBADMSG;
  entry.length = load_le32 (block + 8);
  entry.slot_size = load_le32 (block + 12);
  entry.fat1 = load_le64 (block + 32);
  entry.mirror = load_le64 (block + 40);
  entry.volume_start = load_le64 (block + 48);
  entry.volume_id = load_le32 (block + 56);
  memcpy (entry.slots, block + SLOTS_AT, sizeof entry.slots);
  if (!is_consistent (&entry, image_size))
    return -EBADMSG;
  *ret = entry;
  return 0;
}

static void
encode_header (const struct intent *in, uint8_t block[INTENT_BLOCK])
{
  memset (block, 0, INTENT_BLOCK);
  memcpy (block, header_magic, sizeof header_magic);
  store_le32 (block + 8, RECORD_VERSION);
  store_le32 (block + 12, INTENT_BLOCK);
  store_le64 (block + 16, in->image_size);
  store_le64 (block + 24, in->run);
  store_le32 (block + 32, INTENT_BLOCKS);
  seal (block);
}

/* -- The record ---------------------------------------------------------- */

void
intent_init (struct intent *in, struct intent_store *store,
             uint64_t image_size)
{
  memset (in, 0, sizeof *in);
  in->store = store;
  in->image_size = image_size;
}

/* Has nothing been armed in it?  So is a record whose making was cut off: the
 * header may not be there, or torn.
 */
static bool
is_blank (const uint8_t *record, size_t size)
{
  if (all_zero (record, size))
    return true;
  return size == INTENT_BLOCKS * INTENT_BLOCK &&
    all_zero (record + INTENT_BLOCK, size - INTENT_BLOCK) &&
    (all_zero (record, sizeof header_magic) ||
     memcmp (record, header_magic, sizeof header_magic) == 0);
}

/* Why a record can't be used, or NULL. */
static const char *
judge_header (const struct intent *in, const uint8_t *record, size_t size)
{
  if (!is_sealed (record))
    return "its header is damaged";
  if (load_le32 (record + 8) != RECORD_VERSION ||
      load_le32 (record + 12) != INTENT_BLOCK ||
      load_le32 (record + 32) != INTENT_BLOCKS)
    return "it is of another version of this program";
  if (load_le64 (record + 16) != in->image_size)
    return "it belongs to an image of another size";
  if (size != INTENT_BLOCKS * INTENT_BLOCK)
    return "it is cut short";
  return NULL;
}

int
intent_load (struct intent *in, struct intent_entry **entries, size_t *nr,
             char *reason, size_t reason_size)
{
  uint8_t record[INTENT_BLOCKS * INTENT_BLOCK];
  struct intent_entry *found;
  unsigned i, damaged = 0;
  const char *why;
  bool blank;
  int size, r;

  reason[0] = '\0';
  size = in->store->ops->read (in->store, record, sizeof record);
  if (size < 0)
    return size;
  blank = is_blank (record, size);
  if (!blank && (size < INTENT_BLOCK ||
                 memcmp (record, header_magic, sizeof header_magic) != 0))
    return -EEXIST;
  why = blank ? NULL : judge_header (in, record, size);
  if (why) {
    snprintf (reason, reason_size, "%s", why);
    return -EBADMSG;
  }

  found = calloc (INTENT_BLOCKS, sizeof *found);
  if (!found)
    return -ENOMEM;
  *nr = 0;
  for (i = 1; i < INTENT_BLOCKS && !blank; ++i) {
    r = intent_decode (record + i * INTENT_BLOCK, in->image_size,
                       load_le64 (record + 24), &found[*nr]);
    if (r == 0)
      ++*nr;
    else if (r < 0)
      damaged++;
  }
  if (damaged > 0)
    snprintf (reason, reason_size, "%u of its entries %s damaged", damaged,
              damaged == 1 ? "is" : "are");
  *entries = found;
  return 0;
}

int
intent_create (struct intent *in)
{
  uint8_t block[INTENT_BLOCK];
  int r;

  if (getrandom (&in->run, sizeof in->run, 0) != sizeof in->run)
    in->run = time (NULL);
  memset (in->used, 0, sizeof in->used);
  r = in->store->ops->create (in->store, INTENT_BLOCKS * INTENT_BLOCK);
  if (r < 0)
    return r;
  encode_header (in, block);
  r = in->store->ops->write (in->store, block, sizeof block, 0);
  if (r == 0)
    r = in->store->ops->sync (in->store);
  if (r < 0) {
    in->store->ops->remove (in->store);
    return r;
  }
  in->created = true;
  return 0;
}

static int
write_block (struct intent *in, unsigned n, const struct intent_entry *entry)
{
  uint8_t block[INTENT_BLOCK] = { 0 };

  if (entry)
    intent_encode (entry, in->image_size, in->run, block);
  return in->store->ops->write (in->store, block, sizeof block,
                                (uint64_t) n * INTENT_BLOCK);
}

int
intent_arm (struct intent *in, const struct intent_entry *entry,
            unsigned *block)
{
  unsigned n;
  int r;

  for (n = 1; n < INTENT_BLOCKS && in->used[n]; ++n)
    ;
  if (n == INTENT_BLOCKS)
    return -ENOSPC;
  r = write_block (in, n, entry);
  if (r == 0)
    r = in->store->ops->sync (in->store);
  if (r == 0) {
    in->used[n] = true;
    if (*block != 0)            /* rule 2 */
      r = intent_disarm (in, block, 1);
  }
  if (r < 0)                    /* -ENOSPC is not the store's to say (rule 6) */
    return r == -ENOSPC ? -EIO : r;
  *block = n;
  return 0;
}

int
intent_disarm (struct intent *in, const unsigned *blocks, size_t nr)
{
  size_t i;
  int r = 0;

  for (i = 0; i < nr && r == 0; ++i)
    r = write_block (in, blocks[i], NULL);
  if (r == 0)
    r = in->store->ops->sync (in->store);
  if (r < 0)
    return r;
  for (i = 0; i < nr; ++i)
    in->used[blocks[i]] = false;
  return 0;
}

bool
intent_is_armed (const struct intent *in)
{
  unsigned i;

  for (i = 0; i < INTENT_BLOCKS; ++i)
    if (in->used[i])
      return true;
  return false;
}

int
intent_remove (struct intent *in)
{
  int r = in->store->ops->remove (in->store);

  if (r == 0) {
    in->created = false;
    memset (in->used, 0, sizeof in->used);
  }
  return r;
}

int
intent_set_aside (struct intent *in)
{
  return in->store->ops->set_aside (in->store);
}
