/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend ucx: our algorithms, over shared memory and what UCX finds. A module. */
#include "transports/ucx/ucx.h"

struct ucx_state {
    const struct dist_host *host;
    struct dist_engine *engine;
};

static dist_status ucx_probe(char *reason, size_t reason_size)
{
    return disti_transport_ucx.probe(reason, reason_size) == DIST_OK ? DIST_OK
                                                                     : DIST_ERR_NO_BACKEND;
}

/* Without a state there is no host: who asks in general has looked at op and dtype. */
static dist_status ucx_query(const void *state, dist_collective collective, dist_dtype dtype,
                             dist_op op)
{
    const struct ucx_state *ucx = state;
    bool fits = (unsigned)collective < DIST_COLL_COUNT && (unsigned)dtype < DIST_DTYPE_COUNT &&
                (unsigned)op < DIST_OP_COUNT;

    if (fits && ucx && ucx->host)
        fits = ucx->host->op_fits(op, dtype);
    return fits ? DIST_OK : DIST_ERR_UNSUPPORTED;
}

static dist_status ucx_open(void *state, const struct dist_backend_config *config)
{
    const struct dist_transport *transports[3] = {0};
    const struct dist_engine_config engine = {.size = sizeof(engine), .transports = transports};
    struct ucx_state *ucx = state;

    ucx->host = config->host;
    transports[0] = config->host->transport_find("shm");
    transports[transports[0] ? 1 : 0] = &disti_transport_ucx;
    return config->host->engine_open(config, &engine, &ucx->engine);
}

static void ucx_close(void *state)
{
    struct ucx_state *ucx = state;

    if (ucx->engine)
        ucx->host->engine_close(ucx->engine);
    ucx->engine = NULL;
}

static dist_status ucx_post(void *state, const struct dist_call *call, struct dist_ticket *ticket)
{
    struct ucx_state *ucx = state;

    return ucx->host->engine_post(ucx->engine, call, ticket);
}

static int ucx_progress(void *state)
{
    struct ucx_state *ucx = state;

    return ucx->host->engine_progress(ucx->engine);
}

static int ucx_arm(void *state, int *fds, int room)
{
    struct ucx_state *ucx = state;

    return ucx->host->engine_arm(ucx->engine, fds, room);
}

static void ucx_disarm(void *state)
{
    struct ucx_state *ucx = state;

    if (ucx->engine)
        ucx->host->engine_disarm(ucx->engine);
}

static void ucx_describe(const void *state, char *text, size_t size)
{
    const struct ucx_state *ucx = state;

    ucx->host->engine_describe(ucx->engine, text, size);
}

static dist_status ucx_prepare(void *state, const struct dist_call *call, void **prepared_p)
{
    struct ucx_state *ucx = state;

    return ucx->host->engine_prepare(ucx->engine, call, prepared_p);
}

static void ucx_release(void *state, void *prepared)
{
    struct ucx_state *ucx = state;

    if (ucx->engine)
        ucx->host->engine_release(ucx->engine, prepared);
}

static const struct dist_backend ucx_backend = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_backend),
    .name = "ucx",
    .summary = "libdist's algorithms over shared memory and UCX (InfiniBand, RoCE, TCP)",
    .state_size = sizeof(struct ucx_state),
    .probe = ucx_probe,
    .query = ucx_query,
    .open = ucx_open,
    .close = ucx_close,
    .post = ucx_post,
    .progress = ucx_progress,
    .abort = ucx_close,
    .arm = ucx_arm,
    .disarm = ucx_disarm,
    .describe = ucx_describe,
    .prepare = ucx_prepare,
    .release = ucx_release,
    .meets = true,
};

static const struct dist_transport *const ucx_transports[] = {&disti_transport_ucx, NULL};

__attribute__((visibility("default"))) extern const struct dist_module dist_module_entry;
const struct dist_module dist_module_entry = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_module),
    .backend = &ucx_backend,
    .transports = ucx_transports,
};
