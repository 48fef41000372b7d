/* SPDX-License-Identifier: BSD-3-Clause */
/* Draws, posts and checks the random collectives of any_order. */
#include "any_order.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The number and the value of the bytes around the data. */
#define ORDER_MARGIN 64
#define ORDER_UNTOUCHED 0xee

enum {
    ALL_REDUCE,
    REDUCE,
    BROADCAST,
    ALL_GATHER,
    REDUCE_SCATTER,
    GATHER,
    SCATTER,
    ALL_TO_ALL,
    BARRIER,
    KINDS
};

static const char *const names[KINDS] = {"all_reduce", "reduce",         "broadcast",
                                         "all_gather", "reduce_scatter", "gather",
                                         "scatter",    "all_to_all",     "barrier"};

/* Return the number of blocks of in and of out: one, or one per rank. */
static size_t blocks_in(const struct order_call *call)
{
    bool many = call->kind == REDUCE_SCATTER || call->kind == SCATTER || call->kind == ALL_TO_ALL;

    return many ? (size_t)call->group->size : 1;
}

static size_t blocks_out(const struct order_call *call)
{
    bool many = call->kind == ALL_GATHER || call->kind == GATHER || call->kind == ALL_TO_ALL;

    return many ? (size_t)call->group->size : 1;
}

/* ---- blocks ---- */

/* Returns the number of elements from rank `from` for rank `to`, or for all ranks. If the counts
 * are uneven it is 0 to count. */
static size_t given(const struct order_call *call, int from, int to)
{
    static const size_t quarters[] = {0, 4, 1, 3};

    if (!call->uneven)
        return call->count;
    return call->count * quarters[(from * 3 + to * 5 + call->number) % 4] / 4;
}

static size_t in_count(const struct order_call *call, int block)
{
    if (call->kind == ALL_TO_ALL)
        return given(call, call->group->rank, block);
    return given(call, call->kind == REDUCE_SCATTER ? block : call->group->rank, 0);
}

static size_t out_count(const struct order_call *call, int block)
{
    if (call->kind == ALL_TO_ALL)
        return given(call, block, call->group->rank);
    return given(call, call->kind == REDUCE_SCATTER ? call->group->rank : block, 0);
}

/*
 * Offsets of blocks in elements. In an uneven all-to-all the blocks of in and out alternate in one
 * buffer; in an uneven reduce-scatter the blocks follow each other.
 */
static size_t in_offset(const struct order_call *call, int block)
{
    size_t offset = (size_t)block * call->count;

    if (call->uneven && call->kind == ALL_TO_ALL)
        return 2 * offset;
    if (!call->uneven || call->kind != REDUCE_SCATTER)
        return offset;
    offset = 0;
    for (int b = 0; b < block; b++)
        offset += in_count(call, b);
    return offset;
}

static size_t out_offset(const struct order_call *call, int block)
{
    if (call->uneven && call->kind == ALL_TO_ALL)
        return (2 * (size_t)block + 1) * call->count;
    return (size_t)block * call->count;
}

/* ---- elements ---- */

/* Returns a small integer that every type can represent, and so can sums of such integers. */
static int value(const struct order_call *call, int rank, size_t i)
{
    return (int)((i * 7 + (size_t)call->number * 13 + (size_t)rank * 5) % 11);
}

static void put(const struct order_call *call, void *memory, size_t i, int x)
{
    switch (call->dtype) {
    case DIST_FLOAT32:
        ((float *)memory)[i] = (float)x;
        break;
    case DIST_FLOAT64:
        ((double *)memory)[i] = x;
        break;
    case DIST_INT64:
        ((int64_t *)memory)[i] = x;
        break;
    case DIST_INT32:
        ((int32_t *)memory)[i] = x;
        break;
    default:
        ((uint8_t *)memory)[i] = (uint8_t)x;
    }
}

static int get(const struct order_call *call, const void *memory, size_t i)
{
    switch (call->dtype) {
    case DIST_FLOAT32:
        return (int)((const float *)memory)[i];
    case DIST_FLOAT64:
        return (int)((const double *)memory)[i];
    case DIST_INT64:
        return (int)((const int64_t *)memory)[i];
    case DIST_INT32:
        return ((const int32_t *)memory)[i];
    default:
        return ((const uint8_t *)memory)[i];
    }
}

/* Sets in and out to `first` and `second`; if they share memory, one of them to a part of the
 * other. `second` is NULL if the kind does not use it. */
static void place(struct order_call *call, char *first, char *second, bool in_place)
{
    bool root = call->group->rank == call->root, reduces = call->kind == REDUCE_SCATTER;
    int rank = call->group->rank;
    size_t own =
        (reduces ? in_offset(call, rank) : out_offset(call, rank)) * dist_dtype_size(call->dtype);

    call->in = first;
    call->out = second;
    if (call->uneven && (call->kind == ALL_TO_ALL || (reduces && !out_count(call, rank))))
        call->out = first;
    if (call->kind == BROADCAST || (in_place && call->kind <= REDUCE))
        call->out = first;
    else if (in_place && (call->kind == ALL_GATHER || (call->kind == GATHER && root)))
        call->in = second + own;
    else if (in_place && (reduces || (call->kind == SCATTER && root)))
        call->out = first + own;
}

/* Returns a random number of bytes before the data; it keeps the data aligned to elements. */
static size_t draw_margin(uint64_t *own, const struct order_call *call)
{
    return ORDER_MARGIN + (size_t)order_below(own, 600) * dist_dtype_size(call->dtype);
}

/* Registered memory begins and ends with the data; its pages contain the margins too. */
static dist_status allocate(uint64_t *own, struct order_call *call)
{
    size_t margin = draw_margin(own, call), all = margin + call->bytes + ORDER_MARGIN;
    dist_group *group = call->group->group;
    void *memory = NULL;

    call->kind_of_memory = (enum order_memory)order_below(own, ORDER_MEMORIES);
    if (call->kind_of_memory != ORDER_ALLOCATED)
        memory = malloc(all);
    else if (dist_alloc(group, all, &memory) != DIST_OK)
        return DIST_ERR_NO_MEMORY;
    if (!memory)
        return DIST_ERR_NO_MEMORY;
    call->memory = memory;
    call->data = call->memory + margin;
    memset(call->memory, ORDER_UNTOUCHED, all);
    return call->kind_of_memory == ORDER_REGISTERED ? dist_register(group, call->data, call->bytes)
                                                    : DIST_OK;
}

static void release(const struct order_call *call)
{
    if (call->kind_of_memory == ORDER_REGISTERED)
        dist_unregister(call->group->group, call->data);
    if (call->kind_of_memory == ORDER_ALLOCATED)
        dist_free(call->group->group, call->memory);
    else
        free(call->memory);
}

/* Returns the index of the first element of block b in a rank's row of values. */
static size_t row(const struct order_call *call, int b)
{
    return call->kind == REDUCE_SCATTER ? in_offset(call, b) : (size_t)b * call->count;
}

static dist_status prepare(uint64_t *own, bool in_place, struct order_call *call)
{
    size_t block = call->count * dist_dtype_size(call->dtype);
    size_t in = blocks_in(call) * block;
    dist_status status;

    call->bytes = in + blocks_out(call) * block;
    status = allocate(own, call);
    if (status != DIST_OK)
        return status;
    place(call, call->data, call->data + in, in_place);
    for (int b = 0; b < (int)blocks_in(call); b++) {
        for (size_t i = 0; i < in_count(call, b); i++)
            put(call, call->in, in_offset(call, b) + i,
                value(call, call->group->rank, row(call, b) + i));
    }
    return DIST_OK;
}

dist_status order_draw(uint64_t *shared, uint64_t *own, struct order_group *group, int number,
                       struct order_call *call)
{
    static const dist_dtype dtypes[] = {DIST_FLOAT32, DIST_FLOAT64, DIST_INT32, DIST_INT64,
                                        DIST_UINT8};
    size_t bytes = (size_t)8 << order_below(shared, 18);
    bool in_place = order_below(own, 2), uneven = order_below(shared, 2);

    *call = (struct order_call){.group = group, .number = number};
    bytes -= (size_t)order_below(shared, (int)bytes / 2) & ~(size_t)7;
    call->kind = order_below(shared, KINDS);
    call->root = order_below(shared, group->size);
    call->dtype = dtypes[order_below(shared, 5)];
    call->op = order_below(shared, 2) ? DIST_SUM : DIST_MAX;
    call->count = bytes / dist_dtype_size(call->dtype);
    if (call->kind > BROADCAST)
        call->count = (call->count + (size_t)group->size - 1) / (size_t)group->size;
    call->uneven =
        uneven && !getenv("ORDER_EVEN") &&
        (call->kind == ALL_GATHER || call->kind == REDUCE_SCATTER || call->kind == ALL_TO_ALL);
    return group->rank < 0 ? DIST_OK : prepare(own, in_place, call);
}

static dist_status post_uneven(struct order_call *c)
{
    size_t in_counts[ORDER_RANKS], in_offsets[ORDER_RANKS];
    size_t out_counts[ORDER_RANKS], out_offsets[ORDER_RANKS];
    dist_group *group = c->group->group;

    for (int b = 0; b < c->group->size; b++) {
        in_counts[b] = in_count(c, b);
        in_offsets[b] = in_offset(c, b);
        out_counts[b] = out_count(c, b);
        out_offsets[b] = out_offset(c, b);
    }
    if (c->kind == ALL_GATHER)
        return dist_all_gather_v_async(group, c->in, c->out, out_counts, out_offsets, c->dtype,
                                       &c->work);
    if (c->kind == REDUCE_SCATTER)
        return dist_reduce_scatter_v_async(group, c->in, c->out, in_counts, c->dtype, c->op,
                                           &c->work);
    return dist_all_to_all_v_async(group, c->in, in_counts, in_offsets, c->out, out_counts,
                                   out_offsets, c->dtype, &c->work);
}

dist_status order_post(struct order_call *c)
{
    dist_group *group = c->group->group;

    if (c->group->rank < 0)
        return DIST_OK;
    if (c->uneven)
        return post_uneven(c);
    switch (c->kind) {
    case ALL_REDUCE:
        return dist_all_reduce_async(group, c->in, c->out, c->count, c->dtype, c->op, &c->work);
    case REDUCE:
        return dist_reduce_async(group, c->in, c->out, c->count, c->dtype, c->op, c->root,
                                 &c->work);
    case BROADCAST:
        return dist_broadcast_async(group, c->out, c->count, c->dtype, c->root, &c->work);
    case ALL_GATHER:
        return dist_all_gather_async(group, c->in, c->out, c->count, c->dtype, &c->work);
    case REDUCE_SCATTER:
        return dist_reduce_scatter_async(group, c->in, c->out, c->count, c->dtype, c->op, &c->work);
    case GATHER:
        return dist_gather_async(group, c->in, c->out, c->count, c->dtype, c->root, &c->work);
    case SCATTER:
        return dist_scatter_async(group, c->in, c->out, c->count, c->dtype, c->root, &c->work);
    case ALL_TO_ALL:
        return dist_all_to_all_async(group, c->in, c->out, c->count, c->dtype, &c->work);
    default:
        return dist_barrier_async(group, &c->work);
    }
}

static int reduced(const struct order_call *call, size_t i)
{
    int sum = 0, most = 0;

    for (int r = 0; r < call->group->size; r++) {
        int x = value(call, r, i);

        sum += x;
        most = x > most ? x : most;
    }
    return call->op == DIST_SUM ? sum : most;
}

/* Returns the expected element i of block b of out. */
static int expected(const struct order_call *call, int b, size_t i)
{
    size_t own = row(call, call->group->rank);

    switch (call->kind) {
    case ALL_REDUCE:
    case REDUCE:
        return reduced(call, i);
    case REDUCE_SCATTER:
        return reduced(call, own + i);
    case BROADCAST:
        return value(call, call->root, i);
    case SCATTER:
        return value(call, call->root, own + i);
    case ALL_TO_ALL:
        return value(call, b, own + i);
    default:
        return value(call, b, i);
    }
}

static bool gets_nothing(const struct order_call *call)
{
    return call->kind == BARRIER ||
           ((call->kind == REDUCE || call->kind == GATHER) && call->group->rank != call->root);
}

static int compare(const struct order_call *call)
{
    for (int b = 0; b < (int)blocks_out(call); b++) {
        for (size_t i = 0; i < out_count(call, b); i++) {
            int is = get(call, call->out, out_offset(call, b) + i);

            if (is == expected(call, b, i))
                continue;
            printf("call %d, %s%s of %zu %s, %d ranks, rank %d, block %d: element %zu is %d, not "
                   "%d\n",
                   call->number, names[call->kind], call->uneven ? "_v" : "", call->count,
                   dist_dtype_string(call->dtype), call->group->size, call->group->rank, b, i, is,
                   expected(call, b, i));
            return 1;
        }
    }
    return 0;
}

/* Checks that the bytes on both sides of the data are unchanged. */
static int compare_margins(const struct order_call *call)
{
    const unsigned char *before = (const unsigned char *)call->data - ORDER_MARGIN;
    const unsigned char *behind = (const unsigned char *)call->data + call->bytes;

    for (int i = 0; i < ORDER_MARGIN; i++) {
        if (before[i] == ORDER_UNTOUCHED && behind[i] == ORDER_UNTOUCHED)
            continue;
        printf("call %d, %s of %zu %s, rank %d: a byte around the data has changed\n", call->number,
               names[call->kind], call->count, dist_dtype_string(call->dtype), call->group->rank);
        return 1;
    }
    return 0;
}

int order_check(struct order_call *call)
{
    int wrong;

    if (call->group->rank < 0)
        return 0;
    wrong = compare_margins(call);
    if (!gets_nothing(call))
        wrong |= compare(call);
    release(call);
    return wrong;
}
