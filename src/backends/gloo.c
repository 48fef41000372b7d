/* SPDX-License-Identifier: BSD-3-Clause */
/* Backends gloo (libdist's algorithms over shared memory and TCP) and self (a single rank). */
#include "backends/planned.h"
#include "backends/registry.h"
#include "base/dtype.h"

#include "transports/shm/shm.h"
#include "transports/tcp/tcp.h"

static dist_status gloo_probe(char *reason, size_t reason_size)
{
    (void)reason;
    (void)reason_size;
    return DIST_OK;
}

static dist_status gloo_query(const void *state, dist_collective collective, dist_dtype dtype,
                              dist_op op)
{
    (void)state;
    return (unsigned)collective < DIST_COLL_COUNT && disti_op_fits(op, dtype)
               ? DIST_OK
               : DIST_ERR_UNSUPPORTED;
}

static dist_status gloo_open(void *state, const struct dist_backend_config *config)
{
    static const struct dist_transport *const transports[] = {&disti_transport_shm,
                                                              &disti_transport_tcp, NULL};
    const struct dist_engine_config engine = {.size = sizeof(engine), .transports = transports};
    struct disti_planned *gloo = state;

    gloo->host = config->host;
    return config->host->engine_open(config, &engine, &gloo->engine);
}

static dist_status self_open(void *state, const struct dist_backend_config *config)
{
    static const struct dist_transport *const none[] = {NULL};
    const struct dist_engine_config engine = {.size = sizeof(engine), .transports = none};
    struct disti_planned *self = state;

    if (config->world_size > 1)
        return config->host->fail(
            DIST_ERR_UNSUPPORTED,
            "backend self supports only one rank, but the world has %d: choose "
            "gloo or mpi",
            config->world_size);
    self->host = config->host;
    return config->host->engine_open(config, &engine, &self->engine);
}

const struct dist_backend disti_backend_gloo = {
    DISTI_PLANNED_SLOTS,
    .name = "gloo",
    .summary = "libdist's algorithms over shared memory and TCP; needs nothing installed",
    .probe = gloo_probe,
    .query = gloo_query,
    .open = gloo_open,
};

const struct dist_backend disti_backend_self = {
    DISTI_PLANNED_SLOTS, .name = "self",      .summary = "a world of one rank",
    .probe = gloo_probe, .query = gloo_query, .open = self_open,
};
