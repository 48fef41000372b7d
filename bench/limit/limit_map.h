/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The memory of the bare loop, and how its ranks meet.
 *
 *   map:  flag, slots of rank 0 | ... of rank 1 | ...     a page or more each
 *         arena of rank 0 | arena of rank 1 | ...         buffers lie alike in all arenas
 *
 * A rank's flag counts the events that it has come to: barriers and short calls. Only its own rank
 * writes it, so the flags of all travel side by side. Who has come to an event has finished those
 * before. A short call's data go through a slot, whose turn comes again LIMIT_SLOTS short calls
 * later: then all must have come past the event that used it.
 */
#ifndef BENCH_LIMIT_MAP_H
#define BENCH_LIMIT_MAP_H

#include "bench/measure/driver.h"

#include <stdatomic.h>

#define LIMIT_SLOTS 8
#define LIMIT_SLOT_BYTES ((size_t)4096)

/* A rank's board: what the others read of it. */
struct limit_board {
    _Alignas(64) atomic_ullong flag;
    _Alignas(64) atomic_ullong pair; /* steps of messages between ranks 0 and 1, in rank 0's */
    _Alignas(4096) char slots[LIMIT_SLOTS][LIMIT_SLOT_BYTES];
};

struct limit_map {
    struct limit_board *boards; /* by rank */
    char *arenas;
    size_t bytes, arena;
    int ranks;
    bool crowded;
};

struct limit {
    struct driver driver; /* first */
    struct limit_map *map;
    const char *error;
    const char **ins; /* by rank */
    char **outs;
    unsigned long long events, steps, shorts;
    unsigned long long used[LIMIT_SLOTS]; /* the event that used it last */
};

/* Where another rank has what is here in this one's arena. */
char *limit_peer_memory(const struct limit *limit, const void *mine, int rank);

/* Waits until the counter has come so far; ERR_TIMEOUT after a minute. */
dist_status limit_wait(struct limit *limit, atomic_ullong *counter, unsigned long long wanted);

/* This rank has come to the next event. */
void limit_arrive(struct limit *limit);

/* Waits until that rank, or all, have come as far as this one. */
dist_status limit_wait_rank(struct limit *limit, int rank);
dist_status limit_wait_all(struct limit *limit);

/* Memory for a driver's alloc and free. */
dist_status limit_alloc(struct driver *driver, size_t bytes, void **memory_p);
void limit_release(struct driver *driver, void *memory, size_t bytes);

/* Is a call so short that it goes through slots? And that call. */
bool limit_is_short(const struct limit *limit, const struct order *order);
dist_status limit_short(struct limit *limit, const struct order *order, const void *in, void *out);

#endif
