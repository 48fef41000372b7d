/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory of the bare loop, and how its ranks meet. */
#include "limit_map.h"

#include "measure.h"
#include "worker.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LIMIT_SPINS 1024    /* between two looks at the clock */
#define LIMIT_PATIENCE 4096 /* spins before it yields */
#define LIMIT_DEADLINE 60e9
#define LIMIT_HUGE ((size_t)2 << 20) /* arenas begin on huge pages */

static size_t limit_round(size_t bytes)
{
    return (bytes + LIMIT_HUGE - 1) / LIMIT_HUGE * LIMIT_HUGE;
}

struct limit_map *limit_map_new(int ranks, size_t largest)
{
    struct limit_map *map = calloc(1, sizeof(*map));
    size_t sets = BENCH_SETS_MIN * (2 * largest + 65536);
    size_t shown = limit_round((size_t)ranks * sizeof(struct limit_shown));
    cpu_set_t set;

    if (!map)
        return NULL;
    map->ranks = ranks;
    map->crowded = sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_COUNT(&set) < ranks;
    map->arena = limit_round(sets > BENCH_SETS_BYTES ? sets : BENCH_SETS_BYTES);
    map->bytes = shown + (size_t)ranks * map->arena;
    map->shown = mmap(NULL, map->bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map->shown == MAP_FAILED) {
        free(map);
        return NULL;
    }
    map->arenas = (char *)map->shown + shown;
    return map;
}

void limit_map_free(struct limit_map *map)
{
    if (map)
        munmap(map->shown, map->bytes);
    free(map);
}

/* ---- arenas ---- */

static char *limit_arena(const struct limit *limit, int rank)
{
    return limit->map->arenas + (size_t)rank * limit->map->arena;
}

char *limit_theirs(const struct limit *limit, const void *mine, int rank)
{
    return limit_arena(limit, rank) +
           ((const char *)mine - limit_arena(limit, limit->subject.rank));
}

dist_status limit_take(struct subject *subject, size_t bytes, void **memory_p)
{
    struct limit *limit = (struct limit *)subject;

    if (bytes > limit->map->arena) {
        limit->error = "the size exceeds the one that the run began with";
        return DIST_ERR_INVALID_ARGUMENT;
    }
    *memory_p = limit_arena(limit, subject->rank);
    return DIST_OK;
}

/* The others may still be in the last call that read here. */
void limit_give(struct subject *subject, void *memory, size_t bytes)
{
    if (subject->barrier(subject) == DIST_OK)
        madvise(memory, (bytes + 4095) / 4096 * 4096, MADV_REMOVE);
}

/* ---- meeting ---- */

/* Other programs may want the CPU too, and keep the very rank from it that is waited for. */
static void limit_pause(bool crowded, unsigned spins)
{
    if (crowded || spins > LIMIT_PATIENCE)
        sched_yield();
#if defined(__x86_64__)
    else
        __builtin_ia32_pause();
#endif
}

dist_status limit_wait(struct limit *limit, atomic_ullong *counter, unsigned long long wanted)
{
    double since = 0;

    for (unsigned spins = 1; atomic_load_explicit(counter, memory_order_acquire) < wanted;
         spins++) {
        limit_pause(limit->map->crowded, spins);
        if (spins % LIMIT_SPINS)
            continue;
        since = since > 0 ? since : measure_now();
        if (measure_now() - since > LIMIT_DEADLINE) {
            limit->error = "another rank did not come within 60 s";
            return DIST_ERR_TIMEOUT;
        }
    }
    return DIST_OK;
}

void limit_come(struct limit *limit)
{
    atomic_store_explicit(&limit->map->shown[limit->subject.rank].flag, ++limit->events,
                          memory_order_release);
}

dist_status limit_await(struct limit *limit, int rank)
{
    return limit_wait(limit, &limit->map->shown[rank].flag, limit->events);
}

dist_status limit_await_all(struct limit *limit)
{
    int rank = limit->subject.rank, ranks = limit->subject.ranks;
    dist_status status = DIST_OK;

    for (int i = 1; i < ranks && status == DIST_OK; i++)
        status = limit_await(limit, (rank + i) % ranks);
    return status;
}
