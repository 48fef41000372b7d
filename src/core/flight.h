/* SPDX-License-Identifier: BSD-3-Clause */
/* The flight recorder: the last calls of each group; private to the core. */
#ifndef DISTI_CORE_FLIGHT_H
#define DISTI_CORE_FLIGHT_H

#include "base/net.h"

#include <dist/backend.h>
#include <stdatomic.h>

/*
 * Where a call stands:
 *
 *            not all are there            all of it is done
 *   BEGUN ---------------------> WAITING -------------------> DONE
 *     |                             '---------> FAILED
 *     |---> ENDED, as it was made: no clock was read
 *     |---> REFUSED: the backend failed, and with it the group
 *     '---> NONE: it was no call after all, as the backend cannot do it
 */
enum disti_flight_state {
    DISTI_FLIGHT_NONE, /* no call at all */
    DISTI_FLIGHT_BEGUN,
    DISTI_FLIGHT_WAITING,
    DISTI_FLIGHT_DONE,
    DISTI_FLIGHT_ENDED,
    DISTI_FLIGHT_FAILED,
    DISTI_FLIGHT_REFUSED
};

/*
 * A call. Whoever has the group's lock writes, in any order, while another thread may read: so each
 * member is atomic, but all of them together are not, and a reader may see half of a new call.
 *
 *    63    56 55  48 47    40 39        32 31    0
 *   | state  | op   | dtype  | collective | root  |    what
 */
struct disti_flight_entry {
    atomic_ullong what;
    atomic_ullong count, sequence;
    atomic_llong begun_ns, ended_ns; /* 0: not known, as in all that ENDED */
    const char *_Atomic name;        /* NULL: as the collective, as in all that ENDED */
    atomic_llong tag, status;        /* of a message; of what FAILED */
};

#define DISTI_FLIGHT_OP_CREATED 255

static inline uint64_t disti_flight_what(const struct dist_call *call,
                                         enum disti_flight_state state)
{
    const uint64_t op = call->op >= DIST_OP_COUNT ? DISTI_FLIGHT_OP_CREATED : call->op;

    return (uint64_t)state << 56 | op << 48 | (uint64_t)(call->dtype & 0xff) << 40 |
           (uint64_t)(call->collective & 0xff) << 32 | (uint32_t)call->root;
}

/* Entries that are used again and again: a call's is found by its sequence. */
struct disti_flight_ring {
    struct disti_flight_entry *_Atomic entries; /* never NULL */
    uint64_t mask;                              /* so many of them, less one: a power of two */
};

#define DISTI_FLIGHT_WAITS 1024 /* bytes of waits_for */

/* A group's part of the recorder. A ring is made by the first call that belongs there. */
struct disti_flight {
    struct disti_flight_ring calls, messages;
    bool off;                        /* nothing is recorded */
    struct disti_flight_entry none;  /* a ring of one that nobody reads, in place of those */
    struct dist_group *next, **self; /* in the list of all groups; self NULL: in none */
    char *_Atomic waits_for;         /* whom the oldest call waited for; NULL: nobody looked */
    atomic_bool failed;              /* the group's cause stands */
};

static inline struct disti_flight_entry *disti_flight_entry(struct disti_flight_ring *ring,
                                                            uint64_t sequence)
{
    return &atomic_load_explicit(&ring->entries, memory_order_relaxed)[sequence & ring->mask];
}

/*
 * A call that ends as it is made; `what` was made before. If it does not end after all, it begins
 * anew. A dozen instructions and no clock, since every short call comes here.
 */
static inline void disti_flight_ended(struct disti_flight *flight, uint64_t what, uint64_t count,
                                      uint64_t sequence)
{
    struct disti_flight_entry *entry = disti_flight_entry(&flight->calls, sequence);

    atomic_store_explicit(&entry->what, what, memory_order_relaxed);
    atomic_store_explicit(&entry->count, count, memory_order_relaxed);
    atomic_store_explicit(&entry->sequence, sequence, memory_order_relaxed);
}

/* flight.c; with the group's lock. */

/* Readies a zeroed recorder. ERR_INVALID_ARGUMENT: DIST_FLIGHT is nonsense. */
dist_status disti_flight_open(struct disti_flight *flight);
/* A call begins; makes the ring if there is none. Without memory nothing is recorded. */
void disti_flight_begin(struct disti_flight *flight, const struct dist_call *call,
                        const char *name);
/* It goes on to another state, at now_ns; 0: the time is not known. */
void disti_flight_go(struct disti_flight *flight, const struct dist_call *call,
                     enum disti_flight_state state, int64_t now_ns);
/* It has ended so. */
void disti_flight_end(struct disti_flight *flight, const struct dist_call *call,
                      dist_status status);
void disti_flight_free(struct disti_flight *flight);

/* flight.c */

struct dist_group;

/* From now on SIGUSR1 makes a dump, or nothing where there is no group; it ends no process. */
void disti_flight_watch(void);
/* From now on, until the other, dumps show the group. */
void disti_flight_show(struct dist_group *group);
void disti_flight_hide(struct dist_group *group);
/* The group has failed, and its cause stands: makes a dump. False: there is none; else its name. */
#define DISTI_FLIGHT_PATH 520
bool disti_flight_failed(struct dist_group *group, const char *reason,
                         char path[DISTI_FLIGHT_PATH]);
/* In a forked child. */
void disti_flight_forked(void);

/* What a dump begins with. */
struct disti_flight_head {
    const char *reason; /* "timeout", ... */
    char host[DISTI_HOST_SIZE];
};

/* A dump in memory that is mapped for it. Zeroed is empty. */
struct disti_flight_text {
    char *bytes;
    size_t used, room;
    bool cut; /* there was no memory for the rest */
};

#endif
