/* SPDX-License-Identifier: BSD-3-Clause */
/* Stand-in for Ascend: HCCL's operations, as messages between all ranks. */
#include "standin/ascend_comm.h"

#include <stdlib.h>
#include <string.h>

static uint64_t operation_what(const struct ascend_operation *o)
{
    return (uint64_t)o->kind | (uint64_t)o->dtype << 8 | (uint64_t)o->op << 16 |
           (uint64_t)o->root << 24;
}

/* Returns the beginning of slice r if `total` elements are divided by the ranks. */
static uint64_t operation_slice(const struct ascend_comm *comm, uint64_t total, int r)
{
    return total * (uint64_t)r / (uint64_t)comm->ranks;
}

/*
 * Reduces elements [at[r], at[r + 1]) of all ranks' in on rank r, in the order of the ranks, into
 * `out`, which must not overlap `in`.
 */
static int operation_reduce(const struct ascend_operation *o, const uint64_t *at, char *out)
{
    struct ascend_comm *comm = o->comm;
    size_t element = ascend_size(o->dtype), own = (at[comm->rank + 1] - at[comm->rank]) * element;
    struct ascend_part parts[2 * comm->ranks];
    char *taken = malloc(own * (size_t)comm->ranks + 1);
    int count = 0, error;

    for (int r = 0; r < comm->ranks; r++) {
        if (r == comm->rank) {
            memcpy(taken + own * (size_t)r, o->in + at[r] * element, own);
            continue;
        }
        parts[count++] = (struct ascend_part){.sends = true,
                                              .peer = r,
                                              .data = o->in + at[r] * element,
                                              .bytes = (at[r + 1] - at[r]) * element};
        parts[count++] =
            (struct ascend_part){.peer = r, .data = taken + own * (size_t)r, .bytes = own};
    }
    error = ascend_exchange(comm, parts, count, operation_what(o));
    for (int r = 1; r < comm->ranks && !error; r++) {
        if (!ascend_reduce(o->dtype, o->op, taken, taken + own * (size_t)r, own / element))
            error = ASCEND_E_NOT_SUPPORT;
    }
    if (!error)
        memcpy(out, taken, own);
    free(taken);
    return error;
}

/* Gathers the blocks `from` of all ranks: rank r's is stored at element at[r] of the output. */
static int operation_gather(const struct ascend_operation *o, const char *from, const uint64_t *at)
{
    struct ascend_comm *comm = o->comm;
    size_t element = o->kind == ALL_REDUCE ? ascend_size(o->dtype) : 1;
    struct ascend_part parts[2 * comm->ranks];
    int count = 0;

    for (int r = 0; r < comm->ranks; r++) {
        char *to = o->out + at[r] * element;
        size_t bytes = (at[r + 1] - at[r]) * element;

        if (r == comm->rank) {
            memmove(to, from, bytes);
            continue;
        }
        parts[count++] =
            (struct ascend_part){.sends = true,
                                 .peer = r,
                                 .data = (char *)(uintptr_t)from,
                                 .bytes = (at[comm->rank + 1] - at[comm->rank]) * element};
        parts[count++] = (struct ascend_part){.peer = r, .data = to, .bytes = bytes};
    }
    return ascend_exchange(comm, parts, count, operation_what(o));
}

static int operation_all_reduce(const struct ascend_operation *o, uint64_t *at)
{
    size_t element = ascend_size(o->dtype);
    char *own;
    int error;

    for (int r = 0; r <= o->comm->ranks; r++)
        at[r] = operation_slice(o->comm, o->count, r);
    own = malloc((at[o->comm->rank + 1] - at[o->comm->rank]) * element + 1);
    error = operation_reduce(o, at, own);
    if (!error)
        error = operation_gather(o, own, at);
    free(own);
    return error;
}

/* Sends from root `each` bytes to every rank, `step` bytes apart in `in`. */
static int operation_from_root(const struct ascend_operation *o, uint64_t each, uint64_t step)
{
    struct ascend_comm *comm = o->comm;
    struct ascend_part parts[comm->ranks];
    int count = 0;

    if (comm->rank != o->root) {
        parts[count++] = (struct ascend_part){.peer = o->root, .data = o->out, .bytes = each};
        return ascend_exchange(comm, parts, count, operation_what(o));
    }
    for (int r = 0; r < comm->ranks; r++) {
        char *from = o->in + (uint64_t)r * step;

        if (r == o->root)
            memmove(o->out, from, each);
        else
            parts[count++] =
                (struct ascend_part){.sends = true, .peer = r, .data = from, .bytes = each};
    }
    return ascend_exchange(comm, parts, count, operation_what(o));
}

/*
 * Executes the sends and receives of all-to-all and of batches. A rank's send to itself is followed
 * by the matching receive.
 */
static int operation_pairs(const struct ascend_operation *o)
{
    struct ascend_part parts[o->items + 1];
    int count = 0;

    for (int i = 0; i < o->items; i++) {
        const struct ascend_item *item = &o->item[i];

        if ((int)item->peer == o->comm->rank) {
            if (item->count > 0)
                memcpy(o->item[i + 1].data, item->data, item->count);
            i++;
        } else {
            parts[count++] = (struct ascend_part){.sends = item->type == 0,
                                                  .peer = (int)item->peer,
                                                  .data = item->data,
                                                  .bytes = item->count};
        }
    }
    return ascend_exchange(o->comm, parts, count, operation_what(o));
}

static int operation_barrier(const struct ascend_operation *o, uint64_t *at)
{
    struct ascend_operation gather = *o;
    char bytes[o->comm->ranks], own = 1;

    gather.out = bytes;
    for (int r = 0; r <= o->comm->ranks; r++)
        at[r] = (uint64_t)r;
    return operation_gather(&gather, &own, at);
}

static int operation_do(const struct ascend_operation *o)
{
    uint64_t at[o->comm->ranks + 1];

    for (int r = 0; r <= o->comm->ranks; r++) {
        at[r] = (uint64_t)r * o->count;
        if (o->kind == REDUCE)
            at[r] = r > o->root ? o->count : 0;
    }
    switch (o->kind) {
    case ALL_REDUCE:
        return operation_all_reduce(o, at);
    case REDUCE:
    case REDUCE_SCATTER:
        return operation_reduce(o, at, o->out);
    case ALL_GATHER:
        return operation_gather(o, o->in, at);
    case BROADCAST:
        return operation_from_root(o, o->count, 0);
    case SCATTER:
        return operation_from_root(o, o->count, o->count);
    case BARRIER:
        return operation_barrier(o, at);
    default:
        return operation_pairs(o);
    }
}

int ascend_operation_run(void *arg)
{
    const struct ascend_operation *o = arg;
    struct ascend_comm *comm = o->comm;
    int error = 0;

    /* Checks a rule of HCCL: operations run one at a time, in the order of the calls. */
    if (atomic_fetch_add(&comm->turn, 1) != o->turn)
        error = ASCEND_E_INTERNAL;
    while (o->hangs && !atomic_load(&comm->gone))
        ascend_sleep();
    if (o->fails)
        error = ASCEND_E_REMOTE;
    if (!error && !o->hangs)
        error = operation_do(o);
    if (error)
        atomic_store(&comm->error, error);
    atomic_fetch_sub(&comm->busy, 1);
    return error;
}
