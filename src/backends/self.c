/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend self: a world of one, where every collective is a copy. */
#include "backends/registry.h"
#include "base/dtype.h"

#include <string.h>

static dist_status self_probe(char *reason, size_t reason_size)
{
    (void)reason;
    (void)reason_size;
    return DIST_OK;
}

static dist_status self_query(const void *state, dist_collective collective, dist_dtype dtype,
                              dist_op op)
{
    (void)state;
    return (unsigned)collective < DIST_COLL_COUNT && disti_op_fits(op, dtype)
               ? DIST_OK
               : DIST_ERR_UNSUPPORTED;
}

static dist_status self_open(void *state, const struct dist_backend_config *config)
{
    (void)state;
    if (config->world_size == 1)
        return DIST_OK;
    return config->host->fail(
        DIST_ERR_UNSUPPORTED,
        "backend self is for a world of one rank, this one has %d: choose gloo "
        "or mpi",
        config->world_size);
}

static void self_close(void *state)
{
    (void)state;
}

/* One rank's values are the result already, but for their scale, and bytes that must be bools. */
static void self_reduce(const struct dist_call *call)
{
    if (call->op == DIST_PREMUL_SUM)
        disti_scale(call->out, call->in, call->count, call->dtype, call->reduction->factor);
    else if (call->dtype == DIST_BOOL)
        disti_reduce_kernel(DIST_BOOL, DIST_BOR)(call->out, call->in, call->in, call->count);
    else if (call->in != call->out)
        memcpy(call->out, call->in, call->count * dist_dtype_size(call->dtype));
}

static dist_status self_post(void *state, const struct dist_call *call, struct dist_ticket *ticket)
{
    size_t bytes = call->count * dist_dtype_size(call->dtype);

    (void)state;
    if (bytes && dist_collective_reduces(call->collective))
        self_reduce(call);
    else if (bytes && call->in != call->out)
        memcpy(call->out, call->in, bytes);
    ticket->status = DIST_OK;
    return DIST_OK;
}

static int self_progress(void *state)
{
    (void)state;
    return 0;
}

const struct dist_backend disti_backend_self = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_backend),
    .name = "self",
    .summary = "a world of one rank",
    .state_size = 1,
    .probe = self_probe,
    .query = self_query,
    .open = self_open,
    .close = self_close,
    .post = self_post,
    .progress = self_progress,
    .abort = self_close,
};
