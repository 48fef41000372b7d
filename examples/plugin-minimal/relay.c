/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_relay.so: a backend that uses the plan engine over transport minimal and TCP. */
#include <dist/backend.h>

struct relay {
    const struct dist_host *host;
    struct dist_engine *engine;
};

/* The engine is a part of the library, so it is always available. */
static dist_status relay_probe(char *reason, size_t reason_size)
{
    (void)reason;
    (void)reason_size;
    return DIST_OK;
}

/*
 * The engine supports everything in dist.h; the core rejects combinations that no backend supports.
 */
static dist_status relay_query(const void *state, dist_collective collective, dist_dtype dtype,
                               dist_op op)
{
    (void)state;
    (void)dtype;
    (void)op;
    return (unsigned)collective < DIST_COLL_COUNT ? DIST_OK : DIST_ERR_UNSUPPORTED;
}

static dist_status relay_open(void *state, const struct dist_backend_config *config)
{
    struct relay *relay = state;
    const struct dist_transport *transports[] = {config->host->transport_find("minimal"),
                                                 config->host->transport_find("tcp"), NULL};
    const struct dist_engine_config engine = {.size = sizeof(engine), .transports = transports};
    char why[512];

    relay->host = config->host;
    if (!transports[0]) {
        config->host->transport_missing("minimal", why, sizeof(why));
        return config->host->fail(DIST_ERR_UNSUPPORTED,
                                  "backend relay requires transport minimal: %s", why);
    }
    return config->host->engine_open(config, &engine, &relay->engine);
}

/* Also used as abort: close may follow an abort or a failed open. */
static void relay_close(void *state)
{
    struct relay *relay = state;

    if (relay->engine)
        relay->host->engine_close(relay->engine);
    relay->engine = NULL;
}

static dist_status relay_post(void *state, const struct dist_call *call, struct dist_ticket *ticket)
{
    struct relay *relay = state;

    return relay->host->engine_post(relay->engine, call, ticket);
}

static int relay_progress(void *state)
{
    struct relay *relay = state;

    return relay->host->engine_progress(relay->engine);
}

static int relay_arm(void *state, int *fds, int room)
{
    struct relay *relay = state;

    return relay->host->engine_arm(relay->engine, fds, room);
}

static void relay_disarm(void *state)
{
    struct relay *relay = state;

    if (relay->engine)
        relay->host->engine_disarm(relay->engine);
}

static void relay_describe(const void *state, char *text, size_t size)
{
    const struct relay *relay = state;

    relay->host->engine_describe(relay->engine, text, size);
}

static const struct dist_backend relay_backend = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_backend),
    .name = "relay",
    .summary = "libdist's algorithms over transport minimal and TCP",
    .state_size = sizeof(struct relay),
    .probe = relay_probe,
    .query = relay_query,
    .open = relay_open,
    .close = relay_close,
    .post = relay_post,
    .progress = relay_progress,
    .abort = relay_close,
    .arm = relay_arm,
    .disarm = relay_disarm,
    .describe = relay_describe,
};

DIST_API const struct dist_module dist_module_entry = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_module),
    .backend = &relay_backend,
};
