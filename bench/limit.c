/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bound of this machine: a bare loop over memory that all ranks have mapped.
 *
 *   map:  mailbox of rank 0 | mailbox of rank 1 | ...      flag and slots
 *         arena of rank 0 | arena of rank 1 | ...          buffers, at equal offsets in all arenas
 *
 * The flag of a rank counts the events that it has reached: barriers and short calls. Only its own
 * rank writes it. A rank that has reached an event has completed all earlier ones. The data of a
 * short call go through a slot, which is reused LIMIT_SLOTS short calls later. Before that, all
 * ranks must have passed the event that used the slot.
 */
#include <config.h>

#include "bench/measure.h"
#include "bench/protocol.h"

#include <dist/dist.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LIMIT_SLOTS 8
#define LIMIT_SLOT_BYTES ((size_t)4096)

/* The data that a rank publishes to the other ranks. */
struct limit_mailbox {
    _Alignas(64) atomic_ullong flag;
    _Alignas(64)
        atomic_ullong pair; /* only in rank 0's mailbox: steps of messages between ranks 0 and 1 */
    _Alignas(4096) char slots[LIMIT_SLOTS][LIMIT_SLOT_BYTES];
};

struct limit_map {
    struct limit_mailbox *mailboxes; /* by rank */
    char *arenas;
    size_t bytes, arena;
    int ranks;
    bool is_oversubscribed;
};

struct limit {
    struct driver driver; /* must be the first member */
    struct limit_map *map;
    const char *error;
    const char **ins; /* by rank */
    char **outs;
    unsigned long long events, steps, shorts;
    unsigned long long used[LIMIT_SLOTS]; /* the event that used each slot last */
};

/* ---- memory ---- */

#define LIMIT_SPINS 1024    /* between two readings of the clock */
#define LIMIT_PATIENCE 4096 /* spins before yielding the CPU */
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
    size_t mailboxes = limit_round((size_t)ranks * sizeof(struct limit_mailbox));
    cpu_set_t set;

    if (!map)
        return NULL;
    map->ranks = ranks;
    map->is_oversubscribed =
        sched_getaffinity(0, sizeof(set), &set) != 0 || CPU_COUNT(&set) < ranks;
    map->arena = limit_round(sets > BENCH_SETS_BYTES ? sets : BENCH_SETS_BYTES);
    map->bytes = mailboxes + (size_t)ranks * map->arena;
    map->mailboxes = mmap(NULL, map->bytes, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map->mailboxes == MAP_FAILED) {
        free(map);
        return NULL;
    }
    map->arenas = (char *)map->mailboxes + mailboxes;
    return map;
}

void limit_map_free(struct limit_map *map)
{
    if (map)
        munmap(map->mailboxes, map->bytes);
    free(map);
}

/* ---- arenas ---- */

static char *limit_arena(const struct limit *limit, int rank)
{
    return limit->map->arenas + (size_t)rank * limit->map->arena;
}

/* Returns the address, in another rank's arena, that corresponds to `mine` in this rank's. */
static char *limit_peer_memory(const struct limit *limit, const void *mine, int rank)
{
    return limit_arena(limit, rank) + ((const char *)mine - limit_arena(limit, limit->driver.rank));
}

/* Returns this rank's arena; the driver's alloc. */
static dist_status limit_alloc(struct driver *driver, size_t bytes, void **memory_p)
{
    struct limit *limit = (struct limit *)driver;

    if (bytes > limit->map->arena) {
        limit->error = "the size exceeds the largest size of the run";
        return DIST_ERR_INVALID_ARGUMENT;
    }
    *memory_p = limit_arena(limit, driver->rank);
    return DIST_OK;
}

/*
 * Returns the pages to the system, after a barrier that ensures that no rank still reads the memory
 * in its last call.
 */
static void limit_release(struct driver *driver, void *memory, size_t bytes)
{
    if (driver->barrier(driver) == DIST_OK)
        madvise(memory, (bytes + 4095) / 4096 * 4096, MADV_REMOVE);
}

/* ---- synchronisation ---- */

/* Yields the CPU, because another process may keep the awaited rank from running. */
static void limit_back_off(bool is_oversubscribed, unsigned spins)
{
    if (is_oversubscribed || spins > LIMIT_PATIENCE)
        sched_yield();
#if defined(__x86_64__)
    else
        __builtin_ia32_pause();
#endif
}

/* Waits until the counter has reached `wanted`. DIST_ERR_TIMEOUT after 60 s. */
static dist_status limit_wait(struct limit *limit, atomic_ullong *counter,
                              unsigned long long wanted)
{
    double since = 0;

    for (unsigned spins = 1; atomic_load_explicit(counter, memory_order_acquire) < wanted;
         spins++) {
        limit_back_off(limit->map->is_oversubscribed, spins);
        if (spins % LIMIT_SPINS)
            continue;
        since = since > 0 ? since : measure_now();
        if (measure_now() - since > LIMIT_DEADLINE) {
            limit->error = "another rank did not arrive within 60 s";
            return DIST_ERR_TIMEOUT;
        }
    }
    return DIST_OK;
}

/* Announces that this rank has reached the next event. */
static void limit_arrive(struct limit *limit)
{
    atomic_store_explicit(&limit->map->mailboxes[limit->driver.rank].flag, ++limit->events,
                          memory_order_release);
}

/* Wait until the given rank, or every rank, has announced as many events as this rank. */
static dist_status limit_wait_rank(struct limit *limit, int rank)
{
    return limit_wait(limit, &limit->map->mailboxes[rank].flag, limit->events);
}

static dist_status limit_wait_all(struct limit *limit)
{
    int rank = limit->driver.rank, ranks = limit->driver.ranks;
    dist_status status = DIST_OK;

    for (int i = 1; i < ranks && status == DIST_OK; i++)
        status = limit_wait_rank(limit, (rank + i) % ranks);
    return status;
}

/* Sums of several vectors in memory, piece by piece through the L1 cache. */

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* A piece stays in the L1 cache. SUM_AHEAD is the distance of prefetching. */
#define SUM_PIECE ((size_t)1024)
#define SUM_AHEAD ((size_t)4096)
#define SUM_LINE 64

#if HAVE_TARGET_CLONES
#define SUM_CLONES __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define SUM_CLONES
#endif

/*
 * Functions that compute to = a + b, to += a + b, and to += a. Integers wrap, so they are added as
 * unsigned.
 */
#define SUM_FUNCTIONS(name, type)                                                                  \
    SUM_CLONES static void sum_first_##name(void *to, const void *a, const void *b, size_t bytes)  \
    {                                                                                              \
        type *restrict t = to;                                                                     \
        const type *x = a, *y = b;                                                                 \
                                                                                                   \
        for (size_t i = 0; i < bytes / sizeof(type); i++)                                          \
            t[i] = (type)(x[i] + y[i]);                                                            \
    }                                                                                              \
    SUM_CLONES static void sum_pair_##name(void *to, const void *a, const void *b, size_t bytes)   \
    {                                                                                              \
        type *restrict t = to;                                                                     \
        const type *x = a, *y = b;                                                                 \
                                                                                                   \
        for (size_t i = 0; i < bytes / sizeof(type); i++)                                          \
            t[i] = (type)(t[i] + x[i] + y[i]);                                                     \
    }                                                                                              \
    SUM_CLONES static void sum_one_##name(void *to, const void *a, const void *b, size_t bytes)    \
    {                                                                                              \
        type *restrict t = to;                                                                     \
        const type *x = a;                                                                         \
                                                                                                   \
        (void)b;                                                                                   \
        for (size_t i = 0; i < bytes / sizeof(type); i++)                                          \
            t[i] = (type)(t[i] + x[i]);                                                            \
    }

SUM_FUNCTIONS(f32, float)
SUM_FUNCTIONS(f64, double)
SUM_FUNCTIONS(u8, uint8_t)
SUM_FUNCTIONS(u32, uint32_t)
SUM_FUNCTIONS(u64, uint64_t)

typedef void (*sum_fn)(void *to, const void *a, const void *b, size_t bytes);

struct sum_functions {
    sum_fn first, pair, one;
};

#define SUM_ROW(name)                                                                              \
    {                                                                                              \
        sum_first_##name, sum_pair_##name, sum_one_##name                                          \
    }

static const struct sum_functions sum_table[DIST_DTYPE_COUNT] = {
    [DIST_FLOAT32] = SUM_ROW(f32), [DIST_FLOAT64] = SUM_ROW(f64), [DIST_INT8] = SUM_ROW(u8),
    [DIST_UINT8] = SUM_ROW(u8),    [DIST_INT32] = SUM_ROW(u32),   [DIST_UINT32] = SUM_ROW(u32),
    [DIST_INT64] = SUM_ROW(u64),   [DIST_UINT64] = SUM_ROW(u64),
};

/* Copies with non-temporal stores, if `stream` is true, the CPU has them and `to` is aligned. */
static void sum_store(char *to, const char *from, size_t bytes, bool stream)
{
    size_t done = 0;

#ifdef __SSE2__
    if (stream && (uintptr_t)to % 16 == 0) {
        for (; done + 16 <= bytes; done += 16)
            _mm_stream_si128((__m128i *)(void *)(to + done),
                             _mm_load_si128((const __m128i *)(const void *)(from + done)));
    }
#else
    (void)stream;
#endif
    memcpy(to + done, from + done, bytes - done);
}

static void sum_prefetch(const char *memory, size_t offset, size_t end)
{
    for (size_t next = offset + SUM_AHEAD; next < offset + SUM_AHEAD + SUM_PIECE && next < end;
         next += SUM_LINE)
        __builtin_prefetch(memory + next, 1);
}

/* Copies with prefetching. stream: `to` is long and not read, so bypass the cache. */
static void limit_copy(char *to, const char *from, size_t bytes, bool stream)
{
    for (size_t done = 0; done < bytes; done += SUM_PIECE) {
        sum_prefetch(from, done, bytes);
        if (!stream)
            sum_prefetch(to, done, bytes);
        sum_store(to + done, from + done, bytes - done < SUM_PIECE ? bytes - done : SUM_PIECE,
                  stream);
    }
#ifdef __SSE2__
    if (stream)
        _mm_sfence();
#endif
}

/*
 * Computes the sum of in[0..ins) for `bytes` bytes from `offset`, and stores it to each of
 * out[0..outs), in one pass. An out may equal one of the ins. stream: the outs are long and none of
 * them is an in, so bypass the cache. bytes must be a multiple of the element size.
 */
static void limit_sum(dist_dtype dtype, const char *const *in, int ins, char *const *out, int outs,
                      size_t offset, size_t bytes, bool stream)
{
    const struct sum_functions *sum = &sum_table[dtype];
    _Alignas(64) char piece[SUM_PIECE];

    for (size_t done = 0; done < bytes; done += SUM_PIECE) {
        size_t more = bytes - done < SUM_PIECE ? bytes - done : SUM_PIECE;

        for (int i = 0; i < ins; i++)
            sum_prefetch(in[i], offset + done, offset + bytes);
        /* Sum all ins, two at a time. */
        const size_t at = offset + done;
        int i = 2;

        if (ins == 1)
            memcpy(piece, in[0] + at, more);
        else
            sum->first(piece, in[0] + at, in[1] + at, more);
        for (; i + 1 < ins; i += 2)
            sum->pair(piece, in[i] + at, in[i + 1] + at, more);
        if (i < ins)
            sum->one(piece, in[i] + at, NULL, more);
        for (int o = 0; o < outs; o++)
            sum_store(out[o] + offset + done, piece, more, stream);
    }
#ifdef __SSE2__
    if (stream)
        _mm_sfence();
#endif
}

/*
 * Short calls: a rank copies its data to its own slot, and the other ranks read them from there. So
 * one synchronisation suffices instead of two, and a root that only sends does not wait.
 */

/* Limit on the total size up to which every rank sums all vectors itself. */
#define SHORT_SUM_MAX ((size_t)16384)

/* Returns the size of this rank's input, which is at in, or at out if there is no in. */
static size_t short_input_size(const struct limit *limit, const struct order *order)
{
    return order->operation->in == PART_BLOCK ? order_block(order, limit->driver.ranks)
                                              : order->bytes;
}

/*
 * Returns the slot of this call. If this rank writes it, first waits until all ranks have passed
 * its last use.
 */
static dist_status short_slot(struct limit *limit, bool writes, int *slot_p)
{
    int slot = (int)(limit->shorts++ % LIMIT_SLOTS);
    unsigned long long last = limit->used[slot];
    dist_status status = DIST_OK;

    limit->used[slot] = limit->events + 1;
    for (int r = 0; writes && last && r < limit->driver.ranks && status == DIST_OK; r++) {
        if (r != limit->driver.rank)
            status = limit_wait(limit, &limit->map->mailboxes[r].flag, last + 1);
    }
    *slot_p = slot;
    return status;
}

static void short_get(const struct limit *limit, const struct order *order, int slot, void *out)
{
    const struct operation *operation = order->operation;
    int ranks = limit->driver.ranks;
    size_t block = order_block(order, ranks), mine = (size_t)limit->driver.rank * block;
    const struct limit_mailbox *mailboxes = limit->map->mailboxes;

    for (int r = 0; r < ranks; r++)
        limit->ins[r] = mailboxes[r].slots[slot];
    limit->outs[0] = out;
    if (operation->reduces)
        limit_sum(order->dtype, limit->ins, ranks, limit->outs, 1, 0, order->bytes, false);
    else if (operation->id == OPERATION_broadcast)
        memcpy(out, limit->ins[order->root], order->bytes);
    else if (operation->out == PART_BLOCK)
        memcpy(out, limit->ins[order->root] + mine, block);
    for (int r = 0; r < ranks && operation->layout == LAYOUT_BLOCKS && operation->out == PART_WHOLE;
         r++)
        memcpy((char *)out + (size_t)r * block,
               limit->ins[r] + (operation->in == PART_WHOLE ? mine : 0), block);
}

static dist_status limit_short(struct limit *limit, const struct order *order, const void *in,
                               void *out)
{
    const struct operation *operation = order->operation;
    int rank = limit->driver.rank, slot;
    bool root = rank == order->root;
    bool from_root = operation->rooted && !operation->reduces &&
                     (operation->id == OPERATION_broadcast || operation->in == PART_WHOLE);
    bool sends = root || !from_root, receives = root || !operation->rooted || from_root;
    dist_status status = short_slot(limit, sends, &slot);

    if (status != DIST_OK)
        return status;
    if (sends)
        memcpy(limit->map->mailboxes[rank].slots[slot], operation->in == PART_NONE ? out : in,
               short_input_size(limit, order));
    limit_arrive(limit);
    if (!receives || (root && operation->id == OPERATION_broadcast))
        return DIST_OK;
    status = from_root ? limit_wait_rank(limit, order->root) : limit_wait_all(limit);
    if (status != DIST_OK)
        return status;
    if (operation->reduces && operation->out == PART_BLOCK) {
        /* In reduce_scatter, a rank sums only its own block. */
        size_t block = order_block(order, limit->driver.ranks);

        for (int r = 0; r < limit->driver.ranks; r++)
            limit->ins[r] =
                limit->map->mailboxes[r].slots[slot] + (size_t)limit->driver.rank * block;
        limit->outs[0] = out;
        limit_sum(order->dtype, limit->ins, limit->driver.ranks, limit->outs, 1, 0, block, false);
    } else {
        short_get(limit, order, slot, out);
    }
    return DIST_OK;
}

/*
 * The driver. Between two barriers it performs only the copies and sums that are unavoidable,
 * divided among the ranks.
 */

/* Sizes, read plus written, above which stores bypass the cache. */
#define LIMIT_STREAM ((size_t)2 << 20)

static dist_status limit_barrier(struct driver *driver)
{
    limit_arrive((struct limit *)driver);
    return limit_wait_all((struct limit *)driver);
}

static void limit_step(struct limit *limit)
{
    atomic_fetch_add_explicit(&limit->map->mailboxes[0].pair, 1, memory_order_acq_rel);
}

/* Waits until ranks 0 and 1 have completed `steps` steps since the beginning of this call. */
static dist_status limit_steps(struct limit *limit, unsigned steps)
{
    return limit_wait(limit, &limit->map->mailboxes[0].pair, limit->steps + steps);
}

/* ---- unavoidable copies, between two barriers ---- */

/*
 * Copies a block from each rank s to block s of out: rank s's whole in, or this rank's block of it.
 */
static void limit_gather(const struct limit *limit, const struct order *order, const void *in,
                         void *out)
{
    int ranks = limit->driver.ranks, rank = limit->driver.rank;
    size_t block = order_block(order, ranks);
    bool in_place = buffers_in_place(order);
    const char *mine = in_place ? (const char *)in - (size_t)rank * block : in;

    for (int i = 0; i < ranks; i++) {
        size_t s = (size_t)((rank + i) % ranks);
        size_t offset = order->operation->in == PART_WHOLE ? (size_t)rank * block
                        : in_place                         ? s * block
                                                           : 0;

        if (!in_place || s != (size_t)rank)
            limit_copy((char *)out + s * block, limit_peer_memory(limit, mine, (int)s) + offset,
                       block, 2 * order->bytes > LIMIT_STREAM);
    }
}

/* Copies this rank's part of the data between the root and another rank. */
static void limit_between(const struct limit *limit, const struct order *order, const void *in,
                          void *out, int other)
{
    size_t block = order_block(order, limit->driver.ranks), offset = (size_t)other * block;
    bool is_root = limit->driver.rank == order->root,
         broadcasts = order->operation->id == OPERATION_broadcast;
    size_t bytes = broadcasts ? order->bytes : block;
    size_t split = bytes / (size_t)limit->driver.ranks / 64 * 64;
    size_t first = is_root ? 0 : split, last = is_root ? split : bytes;
    bool in_place = buffers_in_place(order);
    char *to;
    const char *from;

    if (broadcasts) {
        to = limit_peer_memory(limit, out, other);
        from = limit_peer_memory(limit, out, order->root);
    } else if (order->operation->out == PART_WHOLE) {
        to = limit_peer_memory(limit, out, order->root) + offset;
        from = in_place ? limit_peer_memory(limit, out, other) + offset
                        : limit_peer_memory(limit, in, other);
    } else {
        to = in_place ? limit_peer_memory(limit, in, other) + offset
                      : limit_peer_memory(limit, out, other);
        from = limit_peer_memory(limit, in, order->root) + offset;
    }
    limit_copy(to + first, from + first, last - first, 2 * bytes > LIMIT_STREAM);
}

/* ---- messages: a counter shared by ranks 0 and 1 ---- */

/*
 * Runs a call of messages. Rank 0 writes first; then rank 1 writes (latency) or only acknowledges
 * (bw). In bibw both write at the same time.
 */
static dist_status limit_messages(struct limit *limit, const struct order *order, const void *in,
                                  void *out)
{
    int rank = limit->driver.rank, both = order->operation->id == OPERATION_bibw;
    dist_status status = DIST_OK;

    if (rank > 1)
        return DIST_OK;
    if (rank == 1 && !both)
        status = limit_steps(limit, 1);
    if (rank == 1 && order->operation->id == OPERATION_bw) {
        limit_step(limit);
    } else if (status == DIST_OK) {
        /* Write directly to the peer's out. */
        int messages = order->operation->id == OPERATION_latency ? 1 : order->window;

        for (int i = 0; i < messages; i++)
            memcpy(limit_peer_memory(limit, out, 1 - limit->driver.rank), in, order->bytes);
        limit_step(limit);
    }
    if (rank == 0 || both)
        status = limit_steps(limit, 2);
    limit->steps += 2;
    return status;
}

/* ---- driver functions ---- */

static dist_status limit_call(struct driver *driver, const struct order *order, const void *in,
                              void *out)
{
    struct limit *limit = (struct limit *)driver;
    dist_status status;

    if (order->operation->reduces && (order->op != DIST_SUM || !sum_table[order->dtype].first)) {
        limit->error = "the bare loop only sums integers, float32 and float64: use --op sum and "
                       "one of these types";
        return DIST_ERR_UNSUPPORTED;
    }
    if (order->operation->layout == LAYOUT_MESSAGES)
        return limit_messages(limit, order, in, out);
    if (order->operation->layout != LAYOUT_NOTHING &&
        short_input_size(limit, order) <= LIMIT_SLOT_BYTES &&
        (!order->operation->reduces || order->bytes * (size_t)limit->driver.ranks <= SHORT_SUM_MAX))
        return limit_short(limit, order, in, out);
    status = limit_barrier(driver);
    if (status != DIST_OK || order->operation->layout == LAYOUT_NOTHING)
        return status;
    if (order->operation->id == OPERATION_reduce_scatter ||
        order->operation->id == OPERATION_reduce_scatter_v) {
        /* Sum this rank's block of all vectors into its out. */
        size_t block = order_block(order, limit->driver.ranks);
        size_t offset = (size_t)limit->driver.rank * block;
        bool in_place = buffers_in_place(order);
        const char *whole = in_place ? (const char *)out - offset : in;

        for (int r = 0; r < limit->driver.ranks; r++)
            limit->ins[r] = limit_peer_memory(limit, whole, r) + offset;
        limit->outs[0] = out;
        limit_sum(order->dtype, limit->ins, limit->driver.ranks, limit->outs, 1, 0, block,
                  !in_place && order->bytes > LIMIT_STREAM);
    } else if (order->operation->reduces) {
        /* Sum a slice of all vectors on each rank, and store it to all outs or to the root's. */
        int ranks = limit->driver.ranks;
        bool all = order->operation->id != OPERATION_reduce, in_place = buffers_in_place(order);
        size_t outs = all ? (size_t)ranks : 1, lines = (order->bytes + 63) / 64;
        size_t rank = (size_t)limit->driver.rank;
        /* Divide the vector into slices of whole cache lines; compute this rank's slice. */
        size_t from = lines * rank / (size_t)ranks * 64;
        size_t end = lines * (rank + 1) / (size_t)ranks * 64;

        from = from < order->bytes ? from : order->bytes;
        end = end < order->bytes ? end : order->bytes;

        for (int r = 0; r < ranks; r++) {
            limit->ins[r] =
                limit_peer_memory(limit, order->operation->in == PART_NONE ? out : in, r);
            limit->outs[r] = limit_peer_memory(limit, out, all ? r : order->root);
        }
        limit_sum(order->dtype, limit->ins, ranks, limit->outs, (int)outs, from, end - from,
                  !in_place && order->bytes * outs > LIMIT_STREAM);
    } else if (order->operation->rooted) {
        /*
         * The root and each other rank both copy a part of the data between them; the root copies
         * its own block alone.
         */
        int root = order->root, rank = limit->driver.rank;
        size_t block = order_block(order, limit->driver.ranks), offset = (size_t)root * block;
        bool gathers = order->operation->out == PART_WHOLE;

        for (int r = 0; r < limit->driver.ranks; r++) {
            if (r != root && (rank == root || rank == r))
                limit_between(limit, order, in, out, r);
        }
        if (rank == root && order->operation->id != OPERATION_broadcast && !buffers_in_place(order))
            memcpy((char *)out + (gathers ? offset : 0), (const char *)in + (gathers ? 0 : offset),
                   block);
    } else {
        limit_gather(limit, order, in, out);
    }
    return limit_barrier(driver);
}

static const char *limit_error(struct driver *driver)
{
    return ((struct limit *)driver)->error;
}

dist_status limit_new(struct limit_map *map, int rank, struct driver **driver_p)
{
    struct limit *limit = calloc(1, sizeof(*limit));

    if (!limit)
        return DIST_ERR_NO_MEMORY;
    limit->map = map;
    limit->error = "";
    limit->ins = calloc((size_t)map->ranks, sizeof(*limit->ins));
    limit->outs = calloc((size_t)map->ranks, sizeof(*limit->outs));
    limit->driver = (struct driver){.rank = rank,
                                    .ranks = map->ranks,
                                    .one_piece = true,
                                    .barrier = limit_barrier,
                                    .call = limit_call,
                                    .alloc = limit_alloc,
                                    .free = limit_release,
                                    .error = limit_error};
    if (limit->ins && limit->outs) {
        *driver_p = &limit->driver;
        return DIST_OK;
    }
    limit_free(&limit->driver);
    return DIST_ERR_NO_MEMORY;
}

void limit_free(struct driver *driver)
{
    struct limit *limit = (struct limit *)driver;

    if (!limit)
        return;
    free(limit->ins);
    free(limit->outs);
    free(limit);
}
