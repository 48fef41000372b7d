/* SPDX-License-Identifier: BSD-3-Clause */
/* The flight recorder: the last calls of each group; private to the core. */
#ifndef DISTI_CORE_FLIGHT_H
#define DISTI_CORE_FLIGHT_H

#include "base/net.h"

#include <dist/backend.h>
#include <stdatomic.h>

/*
 * The states of a recorded call:
 *
 *            not all ranks arrived        completed
 *   BEGUN ---------------------> WAITING -----------> DONE
 *     |                             '---------------> FAILED
 *     |---> ENDED: completed by the fast path, which reads no clock
 *     |---> REFUSED: the backend failed to start it, so the group failed
 *     '---> NONE: not a call, since the backend does not support it
 */
enum disti_flight_state {
    DISTI_FLIGHT_NONE, /* no call */
    DISTI_FLIGHT_BEGUN,
    DISTI_FLIGHT_WAITING,
    DISTI_FLIGHT_DONE,
    DISTI_FLIGHT_ENDED,
    DISTI_FLIGHT_FAILED,
    DISTI_FLIGHT_REFUSED
};

/*
 * A recorded call. Written with the group's lock held, while another thread may read it. Each
 * member is atomic, but the entry as a whole is not: a reader may see a mixture of two calls.
 *
 *     63    56 55  48 47    40 39        32 31    0
 *    | state  | op   | dtype  | collective | root  |    what
 */
struct disti_flight_entry {
    atomic_ullong what;
    atomic_ullong count, sequence;
    atomic_llong begun_ns, ended_ns; /* 0: unknown; not set in state ENDED */
    const char *_Atomic name;        /* NULL: the collective's name; not set in state ENDED */
    atomic_llong tag, status;        /* tag: messages only; status: state FAILED only */
};

#define DISTI_FLIGHT_OP_CREATED 255

static inline uint64_t disti_flight_what(const struct dist_call *call,
                                         enum disti_flight_state state)
{
    const uint64_t op = call->op >= DIST_OP_COUNT ? DISTI_FLIGHT_OP_CREATED : call->op;

    return (uint64_t)state << 56 | op << 48 | (uint64_t)(call->dtype & 0xff) << 40 |
           (uint64_t)(call->collective & 0xff) << 32 | (uint32_t)call->root;
}

/* A ring of entries, indexed by a call's sequence number. */
struct disti_flight_ring {
    struct disti_flight_entry *_Atomic entries; /* never NULL */
    uint64_t mask; /* number of entries - 1; the number is a power of two */
};

#define DISTI_FLIGHT_WAITS 1024 /* size of waits_for in bytes */

/* A group's part of the flight recorder. Each ring is allocated by the first call recorded in
 * it. */
struct disti_flight {
    struct disti_flight_ring calls, messages;
    bool off;                        /* recording is disabled */
    struct disti_flight_entry none;  /* placeholder while a ring is not allocated; never read */
    struct dist_group *next, **self; /* in the list of all groups; self == NULL: not in the list */
    char *_Atomic waits_for; /* ranks that the oldest call waited for; NULL: not determined */
    atomic_bool failed;      /* the group's `cause` is set */
};

static inline struct disti_flight_entry *disti_flight_entry(struct disti_flight_ring *ring,
                                                            uint64_t sequence)
{
    return &atomic_load_explicit(&ring->entries, memory_order_relaxed)[sequence & ring->mask];
}

/*
 * Records a call that the fast path completed; `what` was computed before. If the call does not
 * complete there, disti_flight_begin records it again. A few instructions and no clock, since every
 * short call runs this.
 */
static inline void disti_flight_ended(struct disti_flight *flight, uint64_t what, uint64_t count,
                                      uint64_t sequence)
{
    struct disti_flight_entry *entry = disti_flight_entry(&flight->calls, sequence);

    atomic_store_explicit(&entry->what, what, memory_order_relaxed);
    atomic_store_explicit(&entry->count, count, memory_order_relaxed);
    atomic_store_explicit(&entry->sequence, sequence, memory_order_relaxed);
}

/* flight.c; call with the group's lock held. */

/* Initializes a zeroed recorder. ERR_INVALID_ARGUMENT: DIST_FLIGHT is invalid. */
dist_status disti_flight_open(struct disti_flight *flight);
/* Records the start of a call, and allocates the ring on the first call. Records nothing without
 * memory. */
void disti_flight_begin(struct disti_flight *flight, const struct dist_call *call,
                        const char *name);
/* Sets the state of a call at the time now_ns; 0: unknown. */
void disti_flight_set_state(struct disti_flight *flight, const struct dist_call *call,
                            enum disti_flight_state state, int64_t now_ns);
/* Records the status of a completed call. */
void disti_flight_end(struct disti_flight *flight, const struct dist_call *call,
                      dist_status status);
void disti_flight_free(struct disti_flight *flight);

/* flight.c */

struct dist_group;

/* Installs a SIGUSR1 handler that writes a dump if there is a group, unless the program handles
 * the signal. */
void disti_flight_install_handler(void);
/* Add the group to the groups that dumps contain, and remove it. */
void disti_flight_add_group(struct dist_group *group);
void disti_flight_remove_group(struct dist_group *group);
/* Writes a dump after the group has failed and its `cause` is set. Returns true and the file's
 * name, or false if no file was written. */
#define DISTI_FLIGHT_PATH 520
bool disti_flight_failed(struct dist_group *group, const char *reason,
                         char path[DISTI_FLIGHT_PATH]);
/* In a forked child: forgets the parent's groups. */
void disti_flight_forked(void);

/* The header of a dump. */
struct disti_flight_head {
    const char *reason; /* "timeout", ... */
    char host[DISTI_HOST_SIZE];
};

/* The text of a dump, in memory mapped for it. All zeros: empty. */
struct disti_flight_text {
    char *bytes;
    size_t used, capacity;
    bool cut; /* truncated for lack of memory */
};

#endif
