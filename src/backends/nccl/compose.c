/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend nccl: collectives that NCCL has not, of those that it has, in one of its groups. */
#include "backends/nccl/nccl.h"

/* A block of a call, of `count` elements. */
struct compose_block {
    char *data;
    size_t count;
};

struct compose {
    const struct disti_nccl_state *nccl;
    const struct dist_call *call;
    void *stream;
    size_t size; /* bytes an element */
    int dtype;
    int op;
};

static struct compose_block compose_block(const struct compose *a, const void *base,
                                          const size_t *counts, const size_t *offsets, int rank)
{
    size_t count = counts ? counts[rank] : a->call->count;
    size_t offset = counts ? offsets[rank] : (size_t)rank * count;

    return (struct compose_block){(char *)base + offset * a->size, count};
}

static struct compose_block compose_in(const struct compose *a, int rank)
{
    return compose_block(a, a->call->in, a->call->in_counts, a->call->in_offsets, rank);
}

static struct compose_block compose_out(const struct compose *a, int rank)
{
    return compose_block(a, a->call->out, a->call->out_counts, a->call->out_offsets, rank);
}

/* What this rank sends to that one, of gather, scatter and all_to_all. */
static struct compose_block compose_gives(const struct compose *a, int to)
{
    const struct dist_call *call = a->call;

    switch (call->collective) {
    case DIST_COLL_GATHER:
    case DIST_COLL_GATHER_V:
        return (struct compose_block){(char *)call->in, to == call->root ? call->count : 0};
    case DIST_COLL_SCATTER:
    case DIST_COLL_SCATTER_V:
        return a->nccl->rank == call->root ? compose_in(a, to) : (struct compose_block){NULL, 0};
    default:
        return compose_in(a, to);
    }
}

static struct compose_block compose_takes(const struct compose *a, int from)
{
    const struct dist_call *call = a->call;

    switch (call->collective) {
    case DIST_COLL_GATHER:
    case DIST_COLL_GATHER_V:
        return a->nccl->rank == call->root ? compose_out(a, from) : (struct compose_block){NULL, 0};
    case DIST_COLL_SCATTER:
    case DIST_COLL_SCATTER_V:
        return (struct compose_block){call->out, from == call->root ? call->count : 0};
    default:
        return compose_out(a, from);
    }
}

/* A send to and a receive from every rank, where there is something to send. */
static int compose_exchange(const struct compose *a)
{
    const struct disti_nccl_api *api = a->nccl->api;
    int result = DISTI_NCCL_SUCCESS;

    for (int r = 0; r < a->nccl->ranks && disti_nccl_accepted(result); r++) {
        struct compose_block give = compose_gives(a, r), take = compose_takes(a, r);

        if (r == a->nccl->rank && give.data == take.data)
            continue; /* in place */
        if (give.count)
            result = api->send(give.data, give.count, a->dtype, r, a->nccl->comm, a->stream);
        if (take.count && disti_nccl_accepted(result))
            result = api->recv(take.data, take.count, a->dtype, r, a->nccl->comm, a->stream);
    }
    return result;
}

/* Every rank broadcasts its block. */
static int compose_all_gather_v(const struct compose *a)
{
    int result = DISTI_NCCL_SUCCESS;

    for (int r = 0; r < a->nccl->ranks && disti_nccl_accepted(result); r++) {
        struct compose_block block = compose_out(a, r);

        if (block.count)
            result =
                a->nccl->api->broadcast(r == a->nccl->rank ? a->call->in : block.data, block.data,
                                        block.count, a->dtype, r, a->nccl->comm, a->stream);
    }
    return result;
}

/* Every rank is the root of a reduction of its block. */
static int compose_reduce_scatter_v(const struct compose *a)
{
    int result = DISTI_NCCL_SUCCESS;

    for (int r = 0; r < a->nccl->ranks && disti_nccl_accepted(result); r++) {
        struct compose_block block = compose_in(a, r);

        if (block.count)
            result =
                a->nccl->api->reduce(block.data, r == a->nccl->rank ? a->call->out : NULL,
                                     block.count, a->dtype, a->op, r, a->nccl->comm, a->stream);
    }
    return result;
}

int disti_nccl_compose(const struct disti_nccl_state *nccl, const struct dist_call *call, int op,
                       void *stream)
{
    const struct compose a = {.nccl = nccl,
                              .call = call,
                              .stream = stream,
                              .size = nccl->host->dtype_size(call->dtype),
                              .dtype = disti_nccl_dtype(call->dtype),
                              .op = op};

    if (call->collective == DIST_COLL_ALL_GATHER_V)
        return compose_all_gather_v(&a);
    if (call->collective == DIST_COLL_REDUCE_SCATTER_V)
        return compose_reduce_scatter_v(&a);
    if (call->collective == DIST_COLL_ALL_TO_ALL && nccl->api->all_to_all)
        return nccl->api->all_to_all(call->in, call->out, call->count, a.dtype, nccl->comm, stream);
    return compose_exchange(&a);
}
