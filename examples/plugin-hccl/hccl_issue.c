/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Backend hccl: the HCCL functions for each collective; missing collectives are composed of others.
 */
#include "hccl.h"

#include <stdlib.h>

int hccl_dtype(dist_dtype dtype)
{
    static const int8_t types[DIST_DTYPE_COUNT] = {
        [DIST_FLOAT32] = HCCL_FP32,   [DIST_FLOAT64] = HCCL_TYPE_NONE,
        [DIST_FLOAT16] = HCCL_FP16,   [DIST_BFLOAT16] = HCCL_BFP16,
        [DIST_INT8] = HCCL_INT8,      [DIST_UINT8] = HCCL_TYPE_NONE,
        [DIST_INT32] = HCCL_INT32,    [DIST_UINT32] = HCCL_TYPE_NONE,
        [DIST_INT64] = HCCL_INT64,    [DIST_UINT64] = HCCL_TYPE_NONE,
        [DIST_BOOL] = HCCL_TYPE_NONE,
    };

    return (unsigned)dtype < DIST_DTYPE_COUNT ? types[dtype] : HCCL_TYPE_NONE;
}

int hccl_op(dist_op op, dist_dtype dtype)
{
    switch (op) {
    case DIST_SUM:
        return HCCL_SUM;
    case DIST_PROD:
        return dtype == DIST_BFLOAT16 ? HCCL_OP_NONE : HCCL_PROD;
    case DIST_MIN:
        return HCCL_MIN;
    case DIST_MAX:
        return HCCL_MAX;
    default:
        return HCCL_OP_NONE;
    }
}

/* ---- collectives that HCCL lacks: all ranks start sends and receives together ---- */

struct issue_block {
    char *at;
    size_t bytes;
};

static struct issue_block issue_at(const struct hccl_group *g, const struct hccl_call *c,
                                   const struct hccl_side *side, size_t offset, size_t count)
{
    size_t element = g->host->dtype_size(c->call.dtype);

    return (struct issue_block){side->device + offset * element, count * element};
}

/* Returns the block for `peer` if the buffer has one block per rank, otherwise the whole buffer. */
static struct issue_block issue_block(const struct hccl_group *g, const struct hccl_call *c,
                                      const struct hccl_side *side, int peer)
{
    const struct hccl_blocks *blocks = &side->blocks;

    if (blocks->blocks == 0)
        return (struct issue_block){0};
    if (blocks->counts)
        return issue_at(g, c, side, blocks->offsets[peer], blocks->counts[peer]);
    if (blocks->count > c->call.count && c->call.collective == DIST_COLL_GATHER)
        return issue_at(g, c, side, (size_t)peer * c->call.count, c->call.count);
    return issue_at(g, c, side, 0, blocks->count);
}

/* True if rank `from` sends data to rank `to`. */
static bool issue_flows(const struct dist_call *call, int from, int to)
{
    switch (call->collective) {
    case DIST_COLL_GATHER:
    case DIST_COLL_GATHER_V:
        return to == call->root;
    case DIST_COLL_SCATTER_V:
        return from == call->root;
    default:
        return true;
    }
}

static void issue_item(struct hccl_item *items, uint32_t *count, int type, struct issue_block block,
                       int peer)
{
    if (block.bytes)
        items[(*count)++] = (struct hccl_item){.type = type,
                                               .data = block.at,
                                               .count = block.bytes,
                                               .dtype = HCCL_INT8,
                                               .peer = (uint32_t)peer};
}

/*
 * Copies this rank's own block; sends and receives at most one message to and from every other
 * rank.
 */
static int issue_pairs(struct hccl_group *g, struct hccl_call *c)
{
    struct hccl_item *items = calloc(2 * (size_t)g->ranks, sizeof(*items));
    struct issue_block from, to;
    uint32_t count = 0;
    int result = 0;

    c->arrays = items;
    if (!items)
        return HCCL_E_MEMORY;
    for (int peer = 0; peer < g->ranks; peer++) {
        bool sends = issue_flows(&c->call, g->rank, peer);
        bool receives = issue_flows(&c->call, peer, g->rank);

        from = issue_block(g, c, &c->in, peer);
        to = issue_block(g, c, &c->out, peer);
        if (peer == g->rank && sends && from.bytes && from.at != to.at)
            result = g->api->acl.memcpy_async(to.at, to.bytes, from.at, from.bytes, HCCL_ACL_WITHIN,
                                              c->stream);
        if (peer != g->rank && sends)
            issue_item(items, &count, HCCL_ITEM_SEND, from, peer);
        if (peer != g->rank && receives)
            issue_item(items, &count, HCCL_ITEM_RECV, to, peer);
    }
    if (result || count == 0)
        return result;
    return g->api->send_recv(items, count, g->comm, c->stream);
}

/* ---- all-to-all: byte counts in arrays of 64 bits ---- */

static void issue_layout(const struct hccl_group *g, const struct hccl_call *c,
                         const struct hccl_side *side, uint64_t *counts, uint64_t *offsets)
{
    size_t element = g->host->dtype_size(c->call.dtype);

    for (int r = 0; r < g->ranks; r++) {
        counts[r] = (side->blocks.counts ? side->blocks.counts[r] : c->call.count) * element;
        offsets[r] =
            (side->blocks.counts ? side->blocks.offsets[r] : (size_t)r * c->call.count) * element;
    }
}

static int issue_all_to_all(struct hccl_group *g, struct hccl_call *c)
{
    size_t ranks = (size_t)g->ranks;
    uint64_t *arrays = calloc(4 * ranks, sizeof(*arrays));

    c->arrays = arrays;
    if (!arrays)
        return HCCL_E_MEMORY;
    issue_layout(g, c, &c->in, arrays, arrays + ranks);
    issue_layout(g, c, &c->out, arrays + 2 * ranks, arrays + 3 * ranks);
    return g->api->all_to_all_v(c->in.device, arrays, arrays + ranks, HCCL_INT8, c->out.device,
                                arrays + 2 * ranks, arrays + 3 * ranks, HCCL_INT8, g->comm,
                                c->stream);
}

/* Issues one reduction per block, with the block's rank as root. */
static int issue_reduce_scatter_v(struct hccl_group *g, struct hccl_call *c, int dtype, int op)
{
    const struct hccl_blocks *blocks = &c->in.blocks;
    int result = 0;

    for (int r = 0; r < g->ranks && result == 0; r++) {
        struct issue_block from = issue_at(g, c, &c->in, blocks->offsets[r], blocks->counts[r]);
        void *to = r == g->rank ? c->out.device : c->spare->memory;

        if (from.bytes)
            result = g->api->reduce(from.at, to, blocks->counts[r], dtype, op, (uint32_t)r, g->comm,
                                    c->stream);
    }
    return result;
}

/* ---- entry point ---- */

/* Issues a call of a group of one rank, in which the output equals the input. */
static int issue_alone(struct hccl_group *g, struct hccl_call *c)
{
    struct issue_block from = issue_block(g, c, &c->in, 0), to = issue_block(g, c, &c->out, 0);

    if (!from.bytes || from.at == to.at)
        return 0;
    return g->api->acl.memcpy_async(to.at, to.bytes, from.at, from.bytes, HCCL_ACL_WITHIN,
                                    c->stream);
}

int hccl_issue(struct hccl_group *g, struct hccl_call *c, const char **what_p)
{
    const struct hccl_api *api = g->api;
    const struct dist_call *call = &c->call;
    int dtype = hccl_dtype(call->dtype), op = hccl_op(call->op, call->dtype);
    uint64_t count = call->count, bytes = count * g->host->dtype_size(call->dtype);
    void *in = c->in.device, *out = c->out.device, *comm = g->comm, *stream = c->stream;
    uint32_t root = (uint32_t)call->root;

    *what_p = "a copy";
    if (g->ranks == 1)
        return issue_alone(g, c);
    switch (call->collective) {
    case DIST_COLL_ALL_REDUCE:
        *what_p = "HcclAllReduce";
        return api->all_reduce(in, out, count, dtype, op, comm, stream);
    case DIST_COLL_REDUCE:
        *what_p = "HcclReduce";
        return api->reduce(in, out, count, dtype, op, root, comm, stream);
    case DIST_COLL_REDUCE_SCATTER:
        *what_p = "HcclReduceScatter";
        return api->reduce_scatter(in, out, count, dtype, op, comm, stream);
    case DIST_COLL_REDUCE_SCATTER_V:
        *what_p = "HcclReduce";
        return issue_reduce_scatter_v(g, c, dtype, op);
    case DIST_COLL_BROADCAST:
        *what_p = "HcclBroadcast";
        return api->broadcast(out, bytes, HCCL_INT8, root, comm, stream);
    case DIST_COLL_ALL_GATHER:
        *what_p = "HcclAllGather";
        return api->all_gather(in, out, bytes, HCCL_INT8, comm, stream);
    case DIST_COLL_SCATTER:
        *what_p = "HcclScatter";
        return api->scatter(in, out, bytes, HCCL_INT8, root, comm, stream);
    case DIST_COLL_ALL_TO_ALL:
    case DIST_COLL_ALL_TO_ALL_V:
        *what_p = "HcclAlltoAllV";
        return issue_all_to_all(g, c);
    case DIST_COLL_BARRIER:
        *what_p = "HcclBarrier";
        return api->barrier(comm, stream);
    default:
        *what_p = "HcclBatchSendRecv";
        return issue_pairs(g, c);
    }
}
