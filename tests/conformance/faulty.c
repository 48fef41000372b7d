/* SPDX-License-Identifier: BSD-3-Clause */
/* A defective backend (DIST_FAULTY selects the defect), which the conformance tests must detect. */
#include <dist/backend.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAULTY_RANKS 64

/* This file is built a second time, as a backend that lacks some features. */
#ifndef FAULTY_NAME
#define FAULTY_NAME "faulty"
#define FAULTY_LACKS 0u
#endif

struct faulty_state {
    const struct dist_host *host;
    struct dist_engine *engine;
    int rank, ranks;
    size_t counts[2 * FAULTY_RANKS],
        offsets[2 * FAULTY_RANKS]; /* of in, followed by those of out */
    int source;
    unsigned char scratch[1 << 20];
};

static bool faulty_is(const char *fault)
{
    const char *wanted = getenv("DIST_FAULTY");

    return wanted && strcmp(wanted, fault) == 0;
}

static dist_status faulty_probe(char *reason, size_t reason_size)
{
    (void)reason;
    (void)reason_size;
    return DIST_OK;
}

/* Without a state the query is about the backend, with one about a group. The faults make one of
 * the two answers false, so that they contradict each other. */
static dist_status faulty_query(const void *state, dist_collective collective, dist_dtype dtype,
                                dist_op op)
{
    bool is_concerned = collective == DIST_COLL_GATHER && dtype == DIST_UINT8;

    (void)op;
    if (is_concerned && faulty_is("says-yes") && state)
        return DIST_ERR_UNSUPPORTED;
    if (is_concerned && faulty_is("says-no") && !state)
        return DIST_ERR_UNSUPPORTED;
    if (is_concerned && faulty_is("lacks"))
        return DIST_ERR_UNSUPPORTED;
    return DIST_OK;
}

static dist_status faulty_open(void *state, const struct dist_backend_config *config)
{
    struct faulty_state *faulty = state;
    const struct dist_transport *const transports[] = {config->host->transport_find("shm"),
                                                       config->host->transport_find("tcp"), NULL};
    const struct dist_engine_config engine = {.size = sizeof(engine), .transports = transports};

    faulty->host = config->host;
    faulty->rank = config->rank;
    faulty->ranks = config->world_size;
    return config->host->engine_open(config, &engine, &faulty->engine);
}

static void faulty_close(void *state)
{
    struct faulty_state *faulty = state;

    if (faulty->engine)
        faulty->host->engine_close(faulty->engine);
    faulty->engine = NULL;
}

/* ---- faults of single calls, and of calls with blocks ---- */

static void faulty_call(struct dist_call *wrong, size_t bytes)
{
    if (faulty_is("last") && wrong->collective == DIST_COLL_ALL_REDUCE && wrong->count > 1000)
        wrong->count--; /* omits the last element */
    if (faulty_is("op") && wrong->op == DIST_MAX)
        wrong->op = DIST_SUM;
    if (faulty_is("premul") && wrong->op == DIST_PREMUL_SUM)
        wrong->op = DIST_SUM;
    if (faulty_is("root") && wrong->collective == DIST_COLL_BROADCAST)
        wrong->root = 0;
    if (faulty_is("input") && wrong->in && wrong->in != wrong->out && bytes)
        ((unsigned char *)(uintptr_t)wrong->in)[bytes / 2] ^= 1;
    if (faulty_is("outside") && bytes && wrong->collective == DIST_COLL_ALL_REDUCE &&
        wrong->in != wrong->out)
        ((unsigned char *)wrong->out)[bytes] ^= 1;
    if (faulty_is("tag") && wrong->collective >= DIST_COLL_SEND)
        wrong->tag = 0;
}

/* Stores the result on rank 0 instead of the root. */
static void faulty_reduce_root(struct faulty_state *faulty, struct dist_call *wrong, size_t bytes)
{
    if (wrong->collective != DIST_COLL_REDUCE || bytes > sizeof(faulty->scratch))
        return;
    if (faulty->rank == 0 && wrong->root != 0)
        wrong->out = faulty->scratch;
    wrong->root = 0;
}

/* Sends to each rank the block that is meant for the next rank. */
static void faulty_wrong_block(struct faulty_state *faulty, struct dist_call *wrong)
{
    size_t n = (size_t)faulty->ranks;

    if (wrong->collective != DIST_COLL_ALL_TO_ALL)
        return;
    for (size_t r = 0; r < n; r++) {
        faulty->counts[r] = wrong->count;
        faulty->offsets[r] = (r + 1) % n * wrong->count;
        faulty->offsets[FAULTY_RANKS + r] = r * wrong->count;
    }
    wrong->collective = DIST_COLL_ALL_TO_ALL_V;
    wrong->in_counts = wrong->out_counts = faulty->counts;
    wrong->in_offsets = faulty->offsets;
    wrong->out_offsets = faulty->offsets + FAULTY_RANKS;
}

/*
 * Stores blocks without gaps and ignores the offsets. Leaves calls in place unchanged, since their
 * blocks would overlap.
 */
static void faulty_no_offsets(struct faulty_state *faulty, struct dist_call *wrong)
{
    size_t end = 0, element = faulty->host->dtype_size(wrong->dtype);

    if (!wrong->out_offsets ||
        wrong->in == (char *)wrong->out + wrong->out_offsets[faulty->rank] * element)
        return;
    for (int r = 0; r < faulty->ranks; r++) {
        faulty->offsets[r] = end;
        end += wrong->out_counts[r];
    }
    wrong->out_offsets = faulty->offsets;
}

/* True if the core must refuse the call, since the backend lacks what it needs. */
static bool faulty_must_be_refused(const struct dist_call *call)
{
    bool any = call->collective == DIST_COLL_RECV && call->root == DIST_ANY_SOURCE;

    return (FAULTY_LACKS & (call->tag ? DIST_LACKS_TAGS : 0u)) ||
           (FAULTY_LACKS & (any ? DIST_LACKS_ANY_SOURCE : 0u));
}

static dist_status faulty_post(void *state, const struct dist_call *call,
                               struct dist_ticket *ticket)
{
    struct faulty_state *faulty = state;
    struct dist_call wrong = *call;
    size_t bytes = call->count * faulty->host->dtype_size(call->dtype);

    if (faulty_must_be_refused(call))
        return faulty->host->fail(DIST_ERR_INTERNAL,
                                  "the backend got a call that " FAULTY_NAME " lacks");
    if (faulty_is("crash") && call->collective == DIST_COLL_GATHER)
        raise(SIGSEGV);
    while (faulty_is("hang") && call->collective == DIST_COLL_GATHER)
        pause();
    faulty_call(&wrong, bytes);
    if (faulty_is("reduce-root"))
        faulty_reduce_root(faulty, &wrong, bytes);
    if (faulty_is("block"))
        faulty_wrong_block(faulty, &wrong);
    if (faulty_is("offsets"))
        faulty_no_offsets(faulty, &wrong);
    if (faulty_is("source") && call->collective == DIST_COLL_RECV)
        wrong.source = &faulty->source; /* not reported to the caller */
    if (faulty_is("barrier") && call->collective == DIST_COLL_BARRIER) {
        ticket->status = DIST_OK; /* completes without waiting for the other ranks */
        return DIST_OK;
    }
    return faulty->host->engine_post(faulty->engine, &wrong, ticket);
}

static int faulty_progress(void *state)
{
    struct faulty_state *faulty = state;

    return faulty->host->engine_progress(faulty->engine);
}

static const struct dist_backend faulty_backend = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_backend),
    .name = FAULTY_NAME,
    .summary = "wrong on purpose, for tests",
    .state_size = sizeof(struct faulty_state),
    .probe = faulty_probe,
    .query = faulty_query,
    .open = faulty_open,
    .close = faulty_close,
    .post = faulty_post,
    .progress = faulty_progress,
    .abort = faulty_close,
    .lacks = FAULTY_LACKS,
};

__attribute__((visibility("default"))) extern const struct dist_module dist_module_entry;
const struct dist_module dist_module_entry = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_module),
    .backend = &faulty_backend,
};
