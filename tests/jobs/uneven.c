/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * uneven CALLS SEED [ERROR WHO]: the v-forms with counts of all kinds (none, equal, one rank with
 * everything, any), blocks in any order with gaps between them, in place and not, in a kind of
 * memory that every rank chooses itself, blocking and asynchronous, once and repeatedly with other
 * data. After a third of the calls the kernel refuses rank WHO (-1: all) to copy between processes,
 * with errno ERROR; or, if that is EMFILE, refuses from the first call on to open descriptors. Exit
 * 0 if all is right and nothing is written between the blocks.
 */
#include "refuse.h"

#include <dist/dist.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define RANKS_MAX 16
#define GAP_MAX 70
#define GAP 0xee

enum kind { ALL_GATHER, GATHER, SCATTER, ALL_TO_ALL, REDUCE_SCATTER, KINDS };
static const char *const names[KINDS] = {"all_gather_v", "gather_v", "scatter_v", "all_to_all_v",
                                         "reduce_scatter_v"};

/* A call: the number of elements from each rank to each rank. */
struct plan {
    enum kind kind;
    int root, number, rounds;
    bool async, in_place;
    size_t counts[RANKS_MAX][RANKS_MAX];
};

/* Blocks of one buffer of this rank. */
struct side {
    unsigned char *memory;
    size_t counts[RANKS_MAX], offsets[RANKS_MAX], extent;
};

static int rank, ranks;
static bool closed; /* no descriptor is left */
static dist_group *group;
static uint64_t shared, own; /* random states: the same on all ranks, and this rank's own */

static uint64_t next(uint64_t *state, uint64_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

static void fail(const struct plan *plan, const char *what)
{
    fprintf(stderr, "rank %d: call %d, %s: %s: %s\n", rank, plan->number, names[plan->kind], what,
            dist_last_error());
    exit(1);
}

static int32_t element(const struct plan *plan, int from, int to, size_t i)
{
    return (int32_t)((size_t)(plan->number * 31 + from * 7 + to * 13) + i % 1009);
}

/* ---- counts ---- */

static size_t any_count(size_t most)
{
    return next(&shared, 4) == 0 ? 0 : 1 + next(&shared, most);
}

static void choose_counts(struct plan *plan)
{
    static const size_t sizes[] = {3, 20, 300, 3000, 9000, 30000, 120000};
    size_t most = sizes[next(&shared, sizeof(sizes) / sizeof(sizes[0]))];
    uint64_t shape = next(&shared, 4), chosen = next(&shared, (uint64_t)ranks);
    size_t counts[RANKS_MAX];

    for (int from = 0; from < ranks; from++) {
        for (int to = 0; to < ranks; to++) {
            bool everything = (uint64_t)(plan->kind == SCATTER ? to : from) == chosen;

            plan->counts[from][to] = shape == 0   ? most
                                     : shape == 1 ? (everything ? most : 0)
                                     : shape == 2 ? (everything ? most : any_count(4))
                                                  : any_count(most);
        }
    }
    for (int r = 0; r < ranks; r++)
        counts[r] = plan->counts[r][0];
    for (int r = 0; r < ranks; r++) {
        for (int to = 0; to < ranks; to++) {
            if (plan->kind == ALL_GATHER)
                plan->counts[r][to] = counts[r];
            if (plan->kind == REDUCE_SCATTER)
                plan->counts[r][to] = counts[to];
        }
    }
}

/* ---- buffers ---- */

struct memory {
    void *block;
    int kind;
};

static unsigned char *allocate(const struct plan *plan, size_t bytes, struct memory *memory)
{
    void *block = NULL;

    memory->kind = closed ? 0 : (int)next(&own, 4);
    if (memory->kind == 1) {
        if (dist_alloc(group, bytes, &block) != DIST_OK)
            fail(plan, "dist_alloc");
    } else {
        block = malloc(bytes);
    }
    if (!block || (memory->kind == 2 && dist_register(group, block, bytes) != DIST_OK))
        fail(plan, "no memory");
    memory->block = block;
    memset(block, GAP, bytes);
    return block;
}

static void release(struct memory *memory)
{
    if (memory->kind == 2)
        dist_unregister(group, memory->block);
    if (memory->kind == 1)
        dist_free(group, memory->block);
    else
        free(memory->block);
}

/* Blocks in reverse or in ascending order, with gaps; packed: as if no offsets were given. */
static void lay_out(struct side *side, bool packed)
{
    bool back = !packed && next(&own, 2);
    size_t at = packed ? 0 : next(&own, GAP_MAX);

    for (int i = 0; i < ranks; i++) {
        int r = back ? ranks - 1 - i : i;

        side->offsets[r] = at;
        at += side->counts[r] + (packed ? 0 : next(&own, GAP_MAX));
    }
    side->extent = at;
}

static int32_t *block(const struct side *side, int r)
{
    return (int32_t *)(void *)side->memory + side->offsets[r];
}

static void fill(const struct plan *plan, const struct side *side, int r, int from, int to)
{
    for (size_t i = 0; i < side->counts[r]; i++)
        block(side, r)[i] = element(plan, from, to, i);
}

static void check(const struct plan *plan, const struct side *side, int r, int from, int to)
{
    for (size_t i = 0; i < side->counts[r]; i++) {
        if (block(side, r)[i] != element(plan, from, to, i))
            fail(plan, "a wrong element");
    }
}

static void check_sum(const struct plan *plan, const int32_t *out)
{
    for (size_t i = 0; i < plan->counts[0][rank]; i++) {
        uint32_t sum = 0;

        for (int from = 0; from < ranks; from++)
            sum += (uint32_t)element(plan, from, rank, i);
        if (out[i] != (int32_t)sum)
            fail(plan, "a wrong sum");
    }
}

/* Checks that the memory between the blocks is unchanged. */
static void check_gaps(const struct plan *plan, const struct side *side, size_t bytes)
{
    unsigned char *memory = side->memory;

    for (int r = 0; r < ranks; r++)
        memset(block(side, r), GAP, side->counts[r] * sizeof(int32_t));
    for (size_t i = 0; i < bytes; i++) {
        if (memory[i] != GAP)
            fail(plan, "something is written between the blocks");
    }
}

/* ---- calls ---- */

static dist_status begin(const struct plan *plan, const struct side *in, const struct side *out,
                         dist_work **work)
{
    dist_group *g = group;
    const void *from = in->memory;
    void *to = out->memory;
    const size_t *gave = in->counts, *at = in->offsets, *got = out->counts, *put = out->offsets;
    dist_dtype type = DIST_INT32;
    int root = plan->root;

    switch (plan->kind) {
    case ALL_GATHER:
        return plan->async ? dist_all_gather_v_async(g, from, to, got, put, type, work)
                           : dist_all_gather_v(g, from, to, got, put, type);
    case GATHER:
        return plan->async
                   ? dist_gather_v_async(g, from, gave[root], to, got, put, type, root, work)
                   : dist_gather_v(g, from, gave[root], to, got, put, type, root);
    case SCATTER:
        return plan->async
                   ? dist_scatter_v_async(g, from, gave, at, to, got[root], type, root, work)
                   : dist_scatter_v(g, from, gave, at, to, got[root], type, root);
    case ALL_TO_ALL:
        return plan->async ? dist_all_to_all_v_async(g, from, gave, at, to, got, put, type, work)
                           : dist_all_to_all_v(g, from, gave, at, to, got, put, type);
    default:
        return plan->async ? dist_reduce_scatter_v_async(g, from, to, gave, type, DIST_SUM, work)
                           : dist_reduce_scatter_v(g, from, to, gave, type, DIST_SUM);
    }
}

/* If a side has a single block, it is stored at the entry of the only rank it goes to or comes
 * from. */
static void prepare(const struct plan *plan, struct side *in, struct side *out)
{
    bool one_in = plan->kind == ALL_GATHER || plan->kind == GATHER;
    bool one_out = plan->kind == SCATTER || plan->kind == REDUCE_SCATTER;

    memset(in, 0, sizeof(*in));
    memset(out, 0, sizeof(*out));
    for (int r = 0; r < ranks; r++) {
        bool gives = plan->kind != SCATTER || rank == plan->root;
        bool takes = plan->kind != GATHER || rank == plan->root;

        in->counts[r] = gives && (!one_in || r == plan->root) ? plan->counts[rank][r] : 0;
        out->counts[r] = takes && (!one_out || r == plan->root) ? plan->counts[r][rank] : 0;
    }
    if (plan->kind == REDUCE_SCATTER)
        out->counts[plan->root] = plan->counts[0][rank];
    lay_out(in, one_in || plan->kind == REDUCE_SCATTER);
    lay_out(out, one_out);
}

/* A sender's block has the receiver's number, or 0 if all receive the same block. */
static void make(const struct plan *plan, const struct side *in, const struct side *out)
{
    bool one_in = plan->kind == ALL_GATHER || plan->kind == GATHER;
    dist_work *work = NULL;
    dist_status status;

    for (int r = 0; r < ranks; r++)
        fill(plan, in, r, rank, one_in ? 0 : r);
    status = begin(plan, in, out, &work);
    if (status == DIST_OK && plan->async)
        status = dist_wait(work);
    if (status != DIST_OK)
        fail(plan, "failed");
    if (plan->kind == REDUCE_SCATTER)
        check_sum(plan, block(out, plan->root));
    for (int r = 0; plan->kind != REDUCE_SCATTER && r < ranks; r++)
        check(plan, out, r, plan->kind == SCATTER ? plan->root : r, one_in ? 0 : rank);
}

static void run(struct plan *plan)
{
    struct side in, out;
    struct memory memory[2];
    bool one_in = plan->kind == ALL_GATHER || plan->kind == GATHER;

    prepare(plan, &in, &out);
    size_t in_bytes = (in.extent + GAP_MAX) * sizeof(int32_t);
    size_t out_bytes = (out.extent + GAP_MAX) * sizeof(int32_t);

    in.memory = allocate(plan, in_bytes, &memory[0]);
    out.memory = allocate(plan, out_bytes, &memory[1]);
    if (one_in && plan->in_place && (plan->kind == ALL_GATHER || rank == plan->root))
        in.memory = (unsigned char *)block(&out, rank);
    for (int round = 0; round < plan->rounds; round++) {
        make(plan, &in, &out);
        check_gaps(plan, &out, out_bytes);
        plan->number++;
    }
    release(&memory[0]);
    release(&memory[1]);
}

int main(int argc, char **argv)
{
    int calls = argc > 1 ? atoi(argv[1]) : 0, who = argc > 4 ? atoi(argv[4]) : -2;
    struct rlimit limit;

    if (argc < 3 || dist_init_process_group(NULL, &group) != DIST_OK) {
        fprintf(stderr, "uneven: %s\n", dist_last_error());
        return 2;
    }
    rank = dist_get_rank(group);
    ranks = dist_get_world_size(group);
    shared = strtoull(argv[2], NULL, 10);
    own = shared * 1000 + (uint64_t)rank;
    closed = who == rank && atoi(argv[3]) == EMFILE;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (closed)
        setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_max = limit.rlim_max});
    for (int call = 0, number = 0; call < calls; call++) {
        struct plan plan = {.kind = (enum kind)next(&shared, KINDS), .number = number};

        plan.root = (int)next(&shared, (uint64_t)ranks);
        plan.async = next(&shared, 3) == 0;
        plan.in_place = next(&shared, 3) == 0;
        plan.rounds = next(&shared, 4) == 0 ? 2 + (int)next(&shared, 30) : 1;
        choose_counts(&plan);
        if (call == calls / 3 && (who == -1 || who == rank) && !closed &&
            !refuse_copies(atoi(argv[3])))
            fail(&plan, "no filter: the kernel has no seccomp");
        run(&plan);
        number = plan.number;
    }
    setrlimit(RLIMIT_NOFILE, &limit);
    return dist_destroy_process_group(group) == DIST_OK ? 0 : 1;
}
