/* SPDX-License-Identifier: BSD-3-Clause */

/* A disk in memory with a gate: operations of one kind wait in it until the
 * test lets them go.  What enters and leaves is recorded, with who did it.
 *
 * Rules:
 *
 * 1. Who acts is a small number that each thread sets, gate_actor.
 * 2. Waits here are handshakes, and bounded: after GATE_SECONDS the test
 *    fails with what it waited for.
 */

#ifndef TEST_GATE_DISK_H
#define TEST_GATE_DISK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "disk.h"

#define GATE_DISK_SIZE (1024 * 1024)
#define GATE_LOG 256
#define GATE_ACTORS 8
#define GATE_SECONDS 60

extern _Thread_local unsigned gate_actor;

/* What is being tested, for messages.  Set while no thread runs. */
extern const char *gate_row;

struct gate_event {
  unsigned actor;
  enum disk_op_kind kind;
  bool leaves;                  /* else enters */
};

struct gate_disk {
  struct disk disk;             /* freed by its owner, the engine */
  uint8_t bytes[GATE_DISK_SIZE];

  pthread_mutex_t lock;         /* protects all that follows, and bytes */
  pthread_cond_t changed;
  bool closed;                  /* the gate, to the next two */
  unsigned closed_actor;
  enum disk_op_kind closed_kind;
  bool waiting;                 /* it stands at the closed gate */
  unsigned nr_events;
  struct gate_event events[GATE_LOG];
  bool done[GATE_ACTORS];       /* set by gate_set_done() */
};

extern struct gate_disk *gate_disk_new (uint32_t align);

/* The actor's operations of this kind are not let through. */
extern void gate_close (struct gate_disk *gd, unsigned actor,
                        enum disk_op_kind kind);
extern void gate_open (struct gate_disk *gd);
/* Wait until the actor stands at the gate. */
extern void gate_wait_closed (struct gate_disk *gd, const char *what);

/* The actor's request has returned; and wait for that. */
extern void gate_set_done (struct gate_disk *gd, unsigned actor);
extern void gate_wait_done (struct gate_disk *gd, unsigned actor,
                            const char *what);

/* Has the actor entered the disk? */
extern bool gate_has_entered (struct gate_disk *gd, unsigned actor);
/* Did all operations of that kind by `first` end before `second` began?  Both
 * acted.  Of that kind: after a write to the boot sector its thread reads, to
 * look for volumes, and that is no part of the order.
 */
extern bool gate_in_order (struct gate_disk *gd, unsigned first,
                           enum disk_op_kind kind, unsigned second);

#endif /* TEST_GATE_DISK_H */
