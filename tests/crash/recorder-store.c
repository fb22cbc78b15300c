/* SPDX-License-Identifier: BSD-3-Clause */

/* The machine's intent record. */

#include <config.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "recorder.h"
#include "util.h"

struct machine_store {
  struct intent_store store;
  struct machine *m;
};

static struct machine *
store_machine (struct intent_store *store)
{
  return ((struct machine_store *) store)->m;
}

static int
store_read (struct intent_store *store, void *buf, size_t size)
{
  struct machine *m = store_machine (store);

  if (!m->has_record)
    return -ENOENT;
  size = min_u64 (size, m->record_size);
  memcpy (buf, m->record, size);
  return (int) size;
}

static int
store_create (struct intent_store *store, size_t size)
{
  struct machine *m = store_machine (store);
  int r;

  if (m->has_record || size > sizeof m->record || size % UNIT)
    test_fail ("a record of %zu bytes is made%s", size,
               m->has_record ? " where one is" : "");
  r = machine_begin_op (m, LOG_RECORD_CREATE);
  if (r < 0)
    return r;
  m->has_record = true;
  m->record_size = size;
  memset (m->record, 0, sizeof m->record);
  machine_log_add (m, LOG_RECORD_CREATE)->length = size;
  return 0;
}

static int
store_write (struct intent_store *store, const void *buf, size_t count,
             uint64_t offset)
{
  struct machine *m = store_machine (store);
  int r;

  if (!m->dead && (!m->has_record || offset + count > m->record_size))
    test_fail ("[%ju, +%zu) of a record of %zu bytes is written",
               (uintmax_t) offset, count, m->has_record ? m->record_size : 0);
  r = machine_begin_op (m, LOG_RECORD_WRITE);
  if (r < 0)
    return r;
  memcpy (m->record + offset, buf, count);
  machine_log_write (m, LOG_RECORD_WRITE, DISK_WRITE, m->record, offset, count);
  return 0;
}

static int
store_sync (struct intent_store *store)
{
  struct machine *m = store_machine (store);
  size_t from = m->nr_log;      /* rule 2 */
  int r = machine_begin_op (m, LOG_RECORD_SYNC);
  struct log_entry *e;

  if (r < 0)
    return r;
  e = machine_log_add (m, LOG_RECORD_SYNC);
  e->from = from;
  e->length = m->record_size;
  return 0;
}

static int
store_end (struct intent_store *store, enum log_kind kind)
{
  struct machine *m = store_machine (store);
  int r;

  r = machine_begin_op (m, kind);
  if (r < 0)
    return r;
  if (m->has_record)
    machine_log_add (m, kind);
  m->has_record = false;
  return 0;
}

static int
store_set_aside (struct intent_store *store)
{
  return store_end (store, LOG_RECORD_SET_ASIDE);
}

static int
store_remove (struct intent_store *store)
{
  return store_end (store, LOG_RECORD_REMOVE);
}

static void
store_free (struct intent_store *store)
{
  free (store);
}

static const struct intent_store_ops machine_store_ops = {
  .read = store_read, .create = store_create, .write = store_write,
  .sync = store_sync, .set_aside = store_set_aside, .remove = store_remove,
  .free = store_free,
};

struct intent_store *
machine_store (struct machine *m)
{
  struct machine_store *ms = test_alloc (sizeof *ms);

  ms->store.ops = &machine_store_ops;
  ms->store.name = "the record";
  ms->m = m;
  return &ms->store;
}
