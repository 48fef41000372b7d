/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend ucx: libdist's algorithms over shared memory and UCX. A module. */
#include "transports/ucx/ucx.h"
#include "backends/planned.h"

static dist_status ucx_probe(char *reason, size_t reason_size)
{
    return disti_transport_ucx.probe(reason, reason_size) == DIST_OK ? DIST_OK
                                                                     : DIST_ERR_NO_BACKEND;
}

/*
 * A query without a state has no host; its caller has already checked that the op fits the dtype.
 */
static dist_status ucx_query(const void *state, dist_collective collective, dist_dtype dtype,
                             dist_op op)
{
    const struct disti_planned *ucx = state;
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
    struct disti_planned *ucx = state;

    ucx->host = config->host;
    transports[0] = config->host->transport_find("shm");
    transports[transports[0] ? 1 : 0] = &disti_transport_ucx;
    return config->host->engine_open(config, &engine, &ucx->engine);
}

static const struct dist_backend ucx_backend = {
    DISTI_PLANNED_SLOTS,
    .name = "ucx",
    .summary = "libdist's algorithms over shared memory and UCX (InfiniBand, RoCE, TCP)",
    .probe = ucx_probe,
    .query = ucx_query,
    .open = ucx_open,
};

static const struct dist_transport *const ucx_transports[] = {&disti_transport_ucx, NULL};

__attribute__((visibility("default"))) extern const struct dist_module dist_module_entry;
const struct dist_module dist_module_entry = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_module),
    .backend = &ucx_backend,
    .transports = ucx_transports,
};
