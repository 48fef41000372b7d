/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend nccl: calls handed to NCCL, several as one group. */
#include "backends/nccl/nccl.h"
#include "base/backoff.h"
#include "base/clock.h"
#include "base/kernels/half.h"

#include <stdio.h>
#include <string.h>

static const int issue_dtypes[DIST_DTYPE_COUNT] = {
    [DIST_FLOAT32] = DISTI_NCCL_FLOAT32, [DIST_FLOAT64] = DISTI_NCCL_FLOAT64,
    [DIST_FLOAT16] = DISTI_NCCL_FLOAT16, [DIST_BFLOAT16] = DISTI_NCCL_BFLOAT16,
    [DIST_INT8] = DISTI_NCCL_INT8,       [DIST_UINT8] = DISTI_NCCL_UINT8,
    [DIST_INT32] = DISTI_NCCL_INT32,     [DIST_UINT32] = DISTI_NCCL_UINT32,
    [DIST_INT64] = DISTI_NCCL_INT64,     [DIST_UINT64] = DISTI_NCCL_UINT64,
    [DIST_BOOL] = DISTI_NCCL_UINT8,
};

static const int issue_ops[DIST_OP_COUNT] = {
    [DIST_SUM] = DISTI_NCCL_SUM, [DIST_AVG] = DISTI_NCCL_AVG, [DIST_PROD] = DISTI_NCCL_PROD,
    [DIST_MIN] = DISTI_NCCL_MIN, [DIST_MAX] = DISTI_NCCL_MAX,
};

int disti_nccl_dtype(dist_dtype dtype)
{
    return issue_dtypes[dtype];
}

const char *disti_nccl_describe_call(const struct disti_nccl_state *nccl,
                                     const struct dist_call *call, char *text, size_t size)
{
    static const char *const dtypes[] = {
#define ISSUE_DTYPE(name, words, bytes) words,
        DIST_DTYPE_MAP(ISSUE_DTYPE)
#undef ISSUE_DTYPE
    };

    snprintf(text, size, "%s number %llu of %zu x %s on device %d",
             nccl->host->collective_string(call->collective), (unsigned long long)call->sequence,
             call->count, dtypes[call->dtype], nccl->device);
    return text;
}

dist_status disti_nccl_fail(const struct disti_nccl_state *nccl, int result, const char *what)
{
    const char *more = nccl->comm ? nccl->api->last_error(nccl->comm) : NULL;
    int length = more ? (int)strcspn(more, "\n") : 0;

    return nccl->host->fail(
        result == DISTI_NCCL_REMOTE_ERROR ? DIST_ERR_PEER_LOST : DIST_ERR_SYSTEM,
        "rank %d: %s: NCCL reports: %s%s%.*s. Run with NCCL_DEBUG=INFO to see more", nccl->rank,
        what, nccl->api->error_text(result), length ? ": " : "", length, length ? more : "");
}

/* NCCL waits for a rank that does not come, and may be told so late. */
static dist_status issue_lost(const struct disti_nccl_state *nccl)
{
    const struct dist_backend_config *opening = nccl->opening;

    return opening && opening->lost ? opening->lost(opening->all_gather_arg) : DIST_OK;
}

dist_status disti_nccl_wait(struct disti_nccl_state *nccl, const char *what)
{
    int64_t deadline = disti_deadline_ms(nccl->timeout_ms);
    struct disti_backoff backoff = {0};
    int error = DISTI_NCCL_IN_PROGRESS, result;
    dist_status status;

    for (;;) {
        result = nccl->api->comm_error(nccl->comm, &error);
        if (result != DISTI_NCCL_SUCCESS || error != DISTI_NCCL_IN_PROGRESS)
            break;
        status = issue_lost(nccl);
        if (status != DIST_OK)
            return status;
        if (disti_expired(deadline))
            return nccl->host->fail(
                DIST_ERR_TIMEOUT,
                "rank %d: %s: NCCL did not reach the other ranks within %d ms: check where they "
                "are, run with NCCL_DEBUG=INFO, or raise the timeout given to init_process_group "
                "or new_group, else DIST_TIMEOUT (seconds)",
                nccl->rank, what, nccl->timeout_ms);
        disti_backoff(&backoff);
    }
    if (result == DISTI_NCCL_SUCCESS)
        result = error;
    return result == DISTI_NCCL_SUCCESS ? DIST_OK : disti_nccl_fail(nccl, result, what);
}

/* ---- operations ---- */

union issue_scalar {
    double f64;
    float f32;
    uint16_t f16;
};

static union issue_scalar issue_scalar(double factor, dist_dtype dtype)
{
    union issue_scalar scalar = {.f64 = factor};

    if (dtype == DIST_FLOAT32)
        scalar.f32 = (float)factor;
    else if (dtype == DIST_FLOAT16)
        scalar.f16 = disti_float16_from_float((float)factor);
    else if (dtype == DIST_BFLOAT16)
        scalar.f16 = disti_bfloat16_from_float((float)factor);
    return scalar;
}

/* NCCL's operation. One that was made must be destroyed when the call has been handed over. */
static int issue_op(const struct disti_nccl_state *nccl, const struct dist_call *call, int *op_p)
{
    union issue_scalar scalar;

    if (!call->reduction) {
        *op_p = (unsigned)call->op < DIST_OP_COUNT ? issue_ops[call->op] : DISTI_NCCL_SUM;
        return DISTI_NCCL_SUCCESS;
    }
    scalar = issue_scalar(call->reduction->factor, call->dtype);
    return nccl->api->premul_create(op_p, &scalar, disti_nccl_dtype(call->dtype),
                                    DISTI_NCCL_HOST_IMMEDIATE, nccl->comm);
}

/* ---- calls ---- */

static int issue_native(const struct disti_nccl_state *nccl, const struct dist_call *call, int op,
                        void *stream)
{
    const struct disti_nccl_api *api = nccl->api;
    const int dtype = disti_nccl_dtype(call->dtype);

    switch (call->collective) {
    case DIST_COLL_ALL_REDUCE:
        return api->all_reduce(call->in, call->out, call->count, dtype, op, nccl->comm, stream);
    case DIST_COLL_BROADCAST:
        return api->broadcast(call->in, call->out, call->count, dtype, call->root, nccl->comm,
                              stream);
    case DIST_COLL_BARRIER:
        return api->all_reduce(nccl->gpu->one, nccl->gpu->one, 1, DISTI_NCCL_UINT8, DISTI_NCCL_SUM,
                               nccl->comm, stream);
    case DIST_COLL_ALL_GATHER:
        return api->all_gather(call->in, call->out, call->count, dtype, nccl->comm, stream);
    case DIST_COLL_REDUCE:
        return api->reduce(call->in, call->out, call->count, dtype, op, call->root, nccl->comm,
                           stream);
    case DIST_COLL_REDUCE_SCATTER:
        return api->reduce_scatter(call->in, call->out, call->count, dtype, op, nccl->comm, stream);
    case DIST_COLL_SEND:
        return api->send(call->in, call->count, dtype, call->root, nccl->comm, stream);
    case DIST_COLL_RECV:
        return api->recv(call->out, call->count, dtype, call->root, nccl->comm, stream);
    default:
        return disti_nccl_compose(nccl, call, op, stream);
    }
}

static int issue_call(const struct disti_nccl_state *nccl, const struct disti_nccl_call *c)
{
    int op = DISTI_NCCL_SUM;
    int result = issue_op(nccl, &c->call, &op);

    if (!disti_nccl_accepted(result))
        return result;
    result = issue_native(nccl, &c->call, op, c->stream);
    if (c->call.reduction)
        nccl->api->op_destroy(op, nccl->comm);
    return result;
}

dist_status disti_nccl_issue(struct disti_nccl_state *nccl, const struct disti_nccl_call *calls)
{
    const struct disti_nccl_call *guilty = calls;
    int result = nccl->api->group_start(), end;
    char what[128];

    for (const struct disti_nccl_call *c = calls; c && disti_nccl_accepted(result); c = c->next) {
        guilty = c;
        result = issue_call(nccl, c);
    }
    end = nccl->api->group_end();
    if (disti_nccl_accepted(result))
        result = end;
    disti_nccl_describe_call(nccl, &guilty->call, what, sizeof(what));
    if (!disti_nccl_accepted(result))
        return disti_nccl_fail(nccl, result, what);
    return disti_nccl_wait(nccl, what);
}
