/* SPDX-License-Identifier: BSD-3-Clause */

/* An intent store in memory: a record that outlives the store and the engine,
 * as a file does, with a log, failures on demand, and power cuts.
 *
 * The log has a line for each operation: "record create", "record write 0"
 * (the block's number; "clear" if its bytes are all 0), "record sync", "record
 * aside", "record remove"; "record read" if there is a record.  A failed one
 * has "!" at its end.
 */

#ifndef FATBATCH_TESTS_MEMORY_STORE_H
#define FATBATCH_TESTS_MEMORY_STORE_H

#include <errno.h>

#include "intent.h"
#include "oplog.h"

#define MEMORY_RECORD_SIZE (INTENT_BLOCKS * INTENT_BLOCK)

enum memory_store_op {
  STORE_READ, STORE_CREATE, STORE_WRITE, STORE_SYNC, STORE_ASIDE,
  STORE_REMOVE, STORE_OPS
};

/* What a file is: bytes, as the page cache has them and as the disk does. */
struct memory_record {
  bool exists, aside;           /* aside: something has been put there */
  size_t size;
  uint8_t bytes[MEMORY_RECORD_SIZE];
  uint8_t durable[MEMORY_RECORD_SIZE];
};

struct memory_store {
  struct intent_store store;
  struct memory_record *record; /* borrowed */
  struct oplog *log;            /* borrowed; NULL: none */
  int fail[STORE_OPS];          /* results of coming operations */
  bool dead;                    /* the server is: nothing happens any more */
};

static inline int
memory_store_begin (struct memory_store *ms, enum memory_store_op op,
                    const char *line)
{
  int r = ms->dead ? -EIO : ms->fail[op];

  if (ms->log && !ms->dead)
    oplog_add (oplog_of_thread (ms->log), "  record %s%s", line, r < 0 ? " !" : "");
  return r;
}

static inline int
memory_store_read (struct intent_store *store, void *buf, size_t size)
{
  struct memory_store *ms = (struct memory_store *) store;
  int r;

  if (!ms->record->exists && ms->fail[STORE_READ] == 0)
    return -ENOENT;
  r = memory_store_begin (ms, STORE_READ, "read");
  if (r < 0)
    return r;
  if (size > ms->record->size)
    size = ms->record->size;
  memcpy (buf, ms->record->bytes, size);
  return (int) size;
}

static inline int
memory_store_create (struct intent_store *store, size_t size)
{
  struct memory_store *ms = (struct memory_store *) store;
  int r = memory_store_begin (ms, STORE_CREATE, "create");

  if (r < 0)
    return r;
  CHECK (size <= sizeof ms->record->bytes);
  if (ms->record->exists)
    return -EEXIST;
  memset (ms->record->bytes, 0, sizeof ms->record->bytes);
  memset (ms->record->durable, 0, sizeof ms->record->durable);
  ms->record->size = size;
  ms->record->exists = true;
  return 0;
}

static inline int
memory_store_write (struct intent_store *store, const void *buf,
                    size_t count, uint64_t offset)
{
  struct memory_store *ms = (struct memory_store *) store;
  const uint8_t *bytes = buf;
  char line[30];
  size_t i;
  int r;

  /* Whole blocks, one at a time: that is what makes them sound or not. */
  CHECK_EQ (count, INTENT_BLOCK);
  CHECK_EQ (offset % INTENT_BLOCK, 0);
  for (i = 0; i < count && bytes[i] == 0; ++i)
    ;
  snprintf (line, sizeof line, "%s %u", i < count ? "write" : "clear",
            (unsigned) (offset / INTENT_BLOCK));
  r = memory_store_begin (ms, STORE_WRITE, line);
  if (r < 0)
    return r;
  CHECK (ms->record->exists);
  CHECK (offset + count <= ms->record->size);
  memcpy (ms->record->bytes + offset, buf, count);
  return 0;
}

static inline int
memory_store_sync (struct intent_store *store)
{
  struct memory_store *ms = (struct memory_store *) store;
  int r = memory_store_begin (ms, STORE_SYNC, "sync");

  if (r < 0)
    return r;
  CHECK (ms->record->exists);
  memcpy (ms->record->durable, ms->record->bytes, MEMORY_RECORD_SIZE);
  return 0;
}

static inline int
memory_store_set_aside (struct intent_store *store)
{
  struct memory_store *ms = (struct memory_store *) store;
  int r = memory_store_begin (ms, STORE_ASIDE, "aside");

  if (r < 0)
    return r;
  CHECK (ms->record->exists);
  ms->record->exists = false;
  ms->record->aside = true;
  return 0;
}

static inline int
memory_store_remove (struct intent_store *store)
{
  struct memory_store *ms = (struct memory_store *) store;
  int r = memory_store_begin (ms, STORE_REMOVE, "remove");

  if (r < 0)
    return r;
  ms->record->exists = false;
  return 0;
}

static inline void
memory_store_free (struct intent_store *store)
{
  free (store);
}

static const struct intent_store_ops memory_store_ops = {
  .read = memory_store_read,
  .create = memory_store_create,
  .write = memory_store_write,
  .sync = memory_store_sync,
  .set_aside = memory_store_set_aside,
  .remove = memory_store_remove,
  .free = memory_store_free,
};

static inline struct memory_store *
memory_store_new (struct memory_record *record, struct oplog *log)
{
  struct memory_store *ms = calloc (1, sizeof *ms);

  CHECK (ms != NULL);
  ms->store.ops = &memory_store_ops;
  ms->store.name = "the record";
  ms->record = record;
  ms->log = log;
  return ms;
}

#endif /* FATBATCH_TESTS_MEMORY_STORE_H */
