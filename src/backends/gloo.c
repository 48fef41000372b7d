/* SPDX-License-Identifier: BSD-3-Clause */
/* Backends gloo and self: our algorithms, over shared memory and TCP, or for one rank alone. */
#include "backends/registry.h"
#include "base/dtype.h"

#include "transports/shm/shm.h"
#include "transports/tcp/tcp.h"

struct gloo_state {
    const struct dist_host *host;
    struct dist_engine *engine;
};

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
    struct gloo_state *gloo = state;

    gloo->host = config->host;
    return config->host->engine_open(config, &engine, &gloo->engine);
}

static dist_status self_open(void *state, const struct dist_backend_config *config)
{
    static const struct dist_transport *const none[] = {NULL};
    const struct dist_engine_config engine = {.size = sizeof(engine), .transports = none};
    struct gloo_state *self = state;

    if (config->world_size > 1)
        return config->host->fail(
            DIST_ERR_UNSUPPORTED,
            "backend self is for a world of one rank, this one has %d: choose "
            "gloo or mpi",
            config->world_size);
    self->host = config->host;
    return config->host->engine_open(config, &engine, &self->engine);
}

static void gloo_close(void *state)
{
    struct gloo_state *gloo = state;

    if (gloo->engine)
        gloo->host->engine_close(gloo->engine);
    gloo->engine = NULL;
}

static dist_status gloo_post(void *state, const struct dist_call *call, struct dist_ticket *ticket)
{
    struct gloo_state *gloo = state;

    return gloo->host->engine_post(gloo->engine, call, ticket);
}

static dist_status gloo_prepare(void *state, const struct dist_call *call, void **prepared_p)
{
    struct gloo_state *gloo = state;

    return gloo->host->engine_prepare(gloo->engine, call, prepared_p);
}

static void gloo_release(void *state, void *prepared)
{
    struct gloo_state *gloo = state;

    if (gloo->engine)
        gloo->host->engine_release(gloo->engine, prepared);
}

static int gloo_progress(void *state)
{
    struct gloo_state *gloo = state;

    return gloo->host->engine_progress(gloo->engine);
}

static int gloo_arm(void *state, int *fds, int room)
{
    struct gloo_state *gloo = state;

    return gloo->host->engine_arm(gloo->engine, fds, room);
}

static void gloo_disarm(void *state)
{
    struct gloo_state *gloo = state;

    if (gloo->engine)
        gloo->host->engine_disarm(gloo->engine);
}

static void gloo_describe(const void *state, char *text, size_t size)
{
    const struct gloo_state *gloo = state;

    gloo->host->engine_describe(gloo->engine, text, size);
}

/* What both have: the plan engine does it all. */
#define GLOO_SLOTS                                                                                 \
    .abi = DIST_ABI, .size = sizeof(struct dist_backend), .state_size = sizeof(struct gloo_state), \
    .probe = gloo_probe, .query = gloo_query, .close = gloo_close, .post = gloo_post,              \
    .progress = gloo_progress, .abort = gloo_close, .arm = gloo_arm, .disarm = gloo_disarm,        \
    .describe = gloo_describe, .prepare = gloo_prepare, .release = gloo_release, .meets = true

const struct dist_backend disti_backend_gloo = {
    GLOO_SLOTS,
    .name = "gloo",
    .summary = "libdist's algorithms over shared memory and TCP; needs nothing installed",
    .open = gloo_open,
};

const struct dist_backend disti_backend_self = {
    GLOO_SLOTS,
    .name = "self",
    .summary = "a world of one rank",
    .open = self_open,
};
