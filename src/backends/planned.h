/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The slots that all backends share whose calls are all plans. Each backend defines the other
 * slots, which choose the transports. This is a header because modules do not link with the
 * library.
 */
#ifndef DISTI_BACKENDS_PLANNED_H
#define DISTI_BACKENDS_PLANNED_H

#include <dist/backend.h>

/* The state of such a backend. open sets both members. */
struct disti_planned {
    const struct dist_host *host;
    struct dist_engine *engine; /* NULL: not open, or closed */
};

static inline void disti_planned_close(void *state)
{
    struct disti_planned *planned = state;

    if (planned->engine)
        planned->host->engine_close(planned->engine);
    planned->engine = NULL;
}

static inline dist_status disti_planned_post(void *state, const struct dist_call *call,
                                             struct dist_ticket *ticket)
{
    struct disti_planned *planned = state;

    return planned->host->engine_post(planned->engine, call, ticket);
}

static inline dist_status disti_planned_at_once(void *state, const struct dist_call *call)
{
    struct disti_planned *planned = state;

    return planned->host->engine_at_once(planned->engine, call);
}

static inline dist_status disti_planned_prepare(void *state, const struct dist_call *call,
                                                void **prepared_p)
{
    struct disti_planned *planned = state;

    return planned->host->engine_prepare(planned->engine, call, prepared_p);
}

static inline void disti_planned_release(void *state, void *prepared)
{
    struct disti_planned *planned = state;

    if (planned->engine)
        planned->host->engine_release(planned->engine, prepared);
}

static inline int disti_planned_progress(void *state)
{
    struct disti_planned *planned = state;

    return planned->host->engine_progress(planned->engine);
}

static inline int disti_planned_arm(void *state, int *fds, int room)
{
    struct disti_planned *planned = state;

    return planned->host->engine_arm(planned->engine, fds, room);
}

static inline void disti_planned_disarm(void *state)
{
    struct disti_planned *planned = state;

    if (planned->engine)
        planned->host->engine_disarm(planned->engine);
}

static inline void disti_planned_describe(const void *state, char *text, size_t size)
{
    const struct disti_planned *planned = state;

    planned->host->engine_describe(planned->engine, text, size);
}

#define DISTI_PLANNED_SLOTS                                                                        \
    .abi = DIST_ABI, .size = sizeof(struct dist_backend),                                          \
    .state_size = sizeof(struct disti_planned), .close = disti_planned_close,                      \
    .abort = disti_planned_close, .post = disti_planned_post, .progress = disti_planned_progress,  \
    .arm = disti_planned_arm, .disarm = disti_planned_disarm, .describe = disti_planned_describe,  \
    .prepare = disti_planned_prepare, .release = disti_planned_release,                            \
    .at_once = disti_planned_at_once, .meets = true

#endif
