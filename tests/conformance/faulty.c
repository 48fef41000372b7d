/* SPDX-License-Identifier: BSD-3-Clause */
/* A backend that is wrong on purpose (DIST_FAULTY says how): the battery must notice. */
#include <dist/backend.h>
#include <stdlib.h>
#include <string.h>

struct faulty_state {
    const struct dist_host *host;
    struct dist_engine *engine;
    int rank;
    const char *fault;
};

static dist_status faulty_probe(char *reason, size_t reason_size)
{
    (void)reason;
    (void)reason_size;
    return DIST_OK;
}

static dist_status faulty_query(const void *state, dist_collective collective, dist_dtype dtype,
                                dist_op op)
{
    (void)state;
    (void)collective;
    (void)dtype;
    (void)op;
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
    faulty->fault = getenv("DIST_FAULTY") ? getenv("DIST_FAULTY") : "";
    return config->host->engine_open(config, &engine, &faulty->engine);
}

static void faulty_close(void *state)
{
    struct faulty_state *faulty = state;

    if (faulty->engine)
        faulty->host->engine_close(faulty->engine);
    faulty->engine = NULL;
}

static bool faulty_is(const struct faulty_state *faulty, const char *fault)
{
    return strcmp(faulty->fault, fault) == 0;
}

static dist_status faulty_post(void *state, const struct dist_call *call,
                               struct dist_ticket *ticket)
{
    struct faulty_state *faulty = state;
    struct dist_call wrong = *call;
    size_t bytes = call->count * faulty->host->dtype_size(call->dtype);

    if (faulty_is(faulty, "last") && call->collective == DIST_COLL_ALL_REDUCE && call->count > 2000)
        wrong.count--; /* forgets the last element */
    if (faulty_is(faulty, "op") && call->op == DIST_MAX)
        wrong.op = DIST_SUM;
    if (faulty_is(faulty, "root") && call->collective == DIST_COLL_BROADCAST)
        wrong.root = 0;
    if (faulty_is(faulty, "input") && call->in != call->out && bytes)
        ((unsigned char *)(uintptr_t)call->in)[bytes / 2] ^= 1;
    if (faulty_is(faulty, "outside") && bytes)
        ((unsigned char *)call->out)[bytes] ^= 1;
    if (faulty_is(faulty, "barrier") && call->collective == DIST_COLL_BARRIER) {
        ticket->status = DIST_OK; /* waits for nobody */
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
    .name = "faulty",
    .summary = "wrong on purpose, for tests",
    .state_size = sizeof(struct faulty_state),
    .probe = faulty_probe,
    .query = faulty_query,
    .open = faulty_open,
    .close = faulty_close,
    .post = faulty_post,
    .progress = faulty_progress,
    .abort = faulty_close,
};

__attribute__((visibility("default"))) extern const struct dist_module dist_module_entry;
const struct dist_module dist_module_entry = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_module),
    .backend = &faulty_backend,
};
