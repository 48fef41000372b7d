/* SPDX-License-Identifier: BSD-3-Clause */
/* Stand-in for Ascend: HCCL's functions. */
#include "standin/ascend_comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool hccl_is_fault(const struct ascend_comm *comm, const char *kind)
{
    const char *text = getenv("STANDIN_ASCEND_FAULT");
    char name[16];
    int rank;
    long call;

    return text && sscanf(text, "%15[a-z]:%d:%ld", name, &rank, &call) == 3 &&
           strcmp(name, kind) == 0 && rank == comm->rank && call == comm->calls;
}

/* Checks an operation in the caller's thread, connects the ranks in the first call, and enqueues
 * it. Frees o if it is refused. */
static int hccl_call(struct ascend_operation *o, void *stream)
{
    struct ascend_comm *comm = o->comm;
    int error;

    comm->calls++;
    atomic_fetch_add(&comm->busy, 1);
    error = ascend_link(comm);
    if (hccl_is_fault(comm, "call")) {
        ascend_set_message("EI9999: a planted fault");
        error = ASCEND_E_INTERNAL;
    }
    o->hangs = hccl_is_fault(comm, "hang");
    o->fails = hccl_is_fault(comm, "remote");
    if (error) {
        atomic_fetch_sub(&comm->busy, 1);
        free(o);
        return error;
    }
    o->turn = (uint64_t)comm->calls - 1;
    return ascend_put(stream, ascend_operation_run, o);
}

static struct ascend_operation *hccl_new(enum ascend_kind kind, void *comm, int items)
{
    struct ascend_operation *o = calloc(1, sizeof(*o) + (size_t)items * sizeof(struct ascend_item));

    o->comm = comm;
    o->kind = kind;
    return o;
}

/* A call with two buffers of these lengths; a buffer may be NULL if its length is 0. */
static int hccl_plain(struct ascend_operation *o, const void *in, uint64_t in_bytes,
                      const void *out, uint64_t out_bytes, void *stream)
{
    o->in = ascend_alias(in, in_bytes);
    o->out = ascend_alias(out, out_bytes);
    if ((!o->in && in_bytes) || (!o->out && out_bytes)) {
        ascend_set_message("EI0003: a buffer is not memory of the device");
        free(o);
        return ASCEND_E_PARA;
    }
    return hccl_call(o, stream);
}

/* A reduction; checks type and operation immediately. */
static int hccl_reduction(enum ascend_kind kind, void *in, uint64_t in_blocks, void *out,
                          uint64_t count, int dtype, int op, int root, void *comm, void *stream)
{
    struct ascend_operation *o = hccl_new(kind, comm, 0);
    uint64_t bytes = count * ascend_size(dtype);

    o->count = count;
    o->dtype = dtype;
    o->op = op;
    o->root = root;
    if (!ascend_reduce(dtype, op, NULL, NULL, 0)) {
        free(o);
        return ASCEND_E_NOT_SUPPORT;
    }
    return hccl_plain(o, in, in_blocks * bytes, out, bytes, stream);
}

static uint64_t hccl_ranks(void *comm)
{
    return (uint64_t)((struct ascend_comm *)comm)->ranks;
}

CALL(HcclAllReduce, void *in, void *out, uint64_t count, int dtype, int op, void *comm,
     void *stream)
{
    return hccl_reduction(ALL_REDUCE, in, 1, out, count, dtype, op, 0, comm, stream);
}

CALL(HcclReduce, void *in, void *out, uint64_t count, int dtype, int op, uint32_t root, void *comm,
     void *stream)
{
    return hccl_reduction(REDUCE, in, 1, out, count, dtype, op, (int)root, comm, stream);
}

CALL(HcclReduceScatter, void *in, void *out, uint64_t count, int dtype, int op, void *comm,
     void *stream)
{
    return hccl_reduction(REDUCE_SCATTER, in, hccl_ranks(comm), out, count, dtype, op, 0, comm,
                          stream);
}

static int hccl_mover(enum ascend_kind kind, void *in, uint64_t in_blocks, void *out,
                      uint64_t out_blocks, uint64_t count, int dtype, uint32_t root, void *comm,
                      void *stream)
{
    struct ascend_operation *o = hccl_new(kind, comm, 0);

    o->count = count * ascend_size(dtype);
    o->root = (int)root;
    return hccl_plain(o, in, in_blocks * o->count, out, out_blocks * o->count, stream);
}

CALL(HcclBroadcast, void *data, uint64_t count, int dtype, uint32_t root, void *comm, void *stream)
{
    return hccl_mover(BROADCAST, data, 1, data, 1, count, dtype, root, comm, stream);
}

CALL(HcclAllGather, void *in, void *out, uint64_t count, int dtype, void *comm, void *stream)
{
    return hccl_mover(ALL_GATHER, in, 1, out, hccl_ranks(comm), count, dtype, 0, comm, stream);
}

CALL(HcclScatter, void *in, void *out, uint64_t count, int dtype, uint32_t root, void *comm,
     void *stream)
{
    bool gives = ((struct ascend_comm *)comm)->rank == (int)root;

    return hccl_mover(SCATTER, in, gives ? hccl_ranks(comm) : 0, out, 1, count, dtype, root, comm,
                      stream);
}

CALL(HcclBarrier, void *comm, void *stream)
{
    return hccl_call(hccl_new(BARRIER, comm, 0), stream);
}

/* Fills in an item with an address that the stand-in can access. Returns false if it is not device
 * memory. */
static bool hccl_item(struct ascend_item *item, int type, const void *data, uint64_t bytes,
                      int peer)
{
    *item = (struct ascend_item){.type = type, .count = bytes, .peer = (uint32_t)peer};
    item->data = ascend_alias(data, bytes);
    return item->data || !bytes;
}

CALL(HcclBatchSendRecv, struct ascend_item *items, uint32_t count, void *comm, void *stream)
{
    struct ascend_operation *o = hccl_new(PAIRS, comm, (int)count);

    o->items = (int)count;
    for (uint32_t i = 0; i < count; i++) {
        bool again = false;

        for (uint32_t j = 0; j < i; j++)
            again = again || (items[j].peer == items[i].peer && items[j].type == items[i].type);
        if (again || items[i].peer == (uint32_t)((struct ascend_comm *)comm)->rank ||
            !hccl_item(&o->item[i], items[i].type, items[i].data,
                       items[i].count * ascend_size(items[i].dtype), (int)items[i].peer)) {
            free(o);
            return ASCEND_E_PARA;
        }
    }
    return hccl_call(o, stream);
}

CALL(HcclAlltoAllV, const char *in, const uint64_t *in_counts, const uint64_t *in_offsets,
     int in_dtype, const char *out, const uint64_t *out_counts, const uint64_t *out_offsets,
     int out_dtype, void *comm, void *stream)
{
    int ranks = (int)hccl_ranks(comm);
    struct ascend_operation *o = hccl_new(ALL_TO_ALL, comm, 2 * ranks);
    size_t give = ascend_size(in_dtype), take = ascend_size(out_dtype);
    bool good = in && out;

    o->items = 2 * ranks;
    for (int r = 0; r < ranks && good; r++)
        good =
            hccl_item(&o->item[2 * r], 0, in + in_offsets[r] * give, in_counts[r] * give, r) &&
            hccl_item(&o->item[2 * r + 1], 1, out + out_offsets[r] * take, out_counts[r] * take, r);
    if (good)
        return hccl_call(o, stream);
    free(o);
    return ASCEND_E_PARA;
}
