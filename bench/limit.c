/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bound of this machine: what a collective costs if all memory is everybody's. Between two
 * barriers nothing is done but the copies and sums that cannot be avoided, each rank its share.
 */
#include "buffers.h"
#include "limit_map.h"
#include "limit_sum.h"

#include <stdlib.h>
#include <string.h>

/* What is read and written together is longer than this: it is written past the caches. */
#define LIMIT_STREAM ((size_t)2 << 20)

static dist_status limit_barrier(struct subject *subject)
{
    limit_come((struct limit *)subject);
    return limit_await_all((struct limit *)subject);
}

static void limit_step(struct limit *limit)
{
    atomic_fetch_add_explicit(&limit->map->shown[0].pair, 1, memory_order_acq_rel);
}

/* Waits until ranks 0 and 1 have taken so many steps since this call began. */
static dist_status limit_steps(struct limit *limit, unsigned steps)
{
    return limit_wait(limit, &limit->map->shown[0].pair, limit->steps + steps);
}

/* ---- what cannot be avoided, between two barriers ---- */

/* This rank's part of a vector, in whole cache lines. */
static void limit_slice(const struct limit *limit, size_t bytes, size_t *from_p, size_t *length_p)
{
    size_t lines = (bytes + 63) / 64, ranks = (size_t)limit->subject.ranks;
    size_t rank = (size_t)limit->subject.rank;
    size_t from = lines * rank / ranks * 64, to = lines * (rank + 1) / ranks * 64;

    *from_p = from < bytes ? from : bytes;
    *length_p = (to < bytes ? to : bytes) - *from_p;
}

/* All ranks' vectors are added slice by slice, into all outs or the root's. */
static void limit_reduce(const struct limit *limit, const struct order *order, const void *in,
                         void *out)
{
    int ranks = limit->subject.ranks;
    bool all = order->kind->id != KIND_reduce, place = buffers_in_place(order);
    size_t from, length, outs = all ? (size_t)ranks : 1;

    for (int r = 0; r < ranks; r++) {
        limit->ins[r] = limit_theirs(limit, order->kind->in == KIND_NONE ? out : in, r);
        limit->outs[r] = limit_theirs(limit, out, all ? r : order->root);
    }
    limit_slice(limit, order->bytes, &from, &length);
    limit_sum(order->dtype, limit->ins, ranks, limit->outs, (int)outs, from, length,
              !place && order->bytes * outs > LIMIT_STREAM);
}

/* This rank's block of all vectors, into its out. */
static void limit_reduce_scatter(const struct limit *limit, const struct order *order,
                                 const void *in, void *out)
{
    size_t block = order_block(order, limit->subject.ranks);
    size_t at = (size_t)limit->subject.rank * block;
    bool place = buffers_in_place(order);
    const char *whole = place ? (const char *)out - at : in;

    for (int r = 0; r < limit->subject.ranks; r++)
        limit->ins[r] = limit_theirs(limit, whole, r) + at;
    limit->outs[0] = out;
    limit_sum(order->dtype, limit->ins, limit->subject.ranks, limit->outs, 1, 0, block,
              !place && order->bytes > LIMIT_STREAM);
}

/* Block s of the out is rank s's in, or of it the block for this rank. */
static void limit_gather(const struct limit *limit, const struct order *order, const void *in,
                         void *out)
{
    int ranks = limit->subject.ranks, rank = limit->subject.rank;
    size_t block = order_block(order, ranks);
    bool place = buffers_in_place(order);
    const char *mine = place ? (const char *)in - (size_t)rank * block : in;

    for (int i = 0; i < ranks; i++) {
        size_t s = (size_t)((rank + i) % ranks);
        size_t at = order->kind->in == KIND_WHOLE ? (size_t)rank * block : place ? s * block : 0;

        if (!place || s != (size_t)rank)
            limit_copy((char *)out + s * block, limit_theirs(limit, mine, (int)s) + at, block,
                       2 * order->bytes > LIMIT_STREAM);
    }
}

/* What goes between the root and another: from, to and how much of it this rank moves. */
static void limit_between(const struct limit *limit, const struct order *order, const void *in,
                          void *out, int other)
{
    size_t block = order_block(order, limit->subject.ranks), at = (size_t)other * block;
    bool is_root = limit->subject.rank == order->root,
         broadcasts = order->kind->id == KIND_broadcast;
    size_t bytes = broadcasts ? order->bytes : block;
    size_t split = bytes / (size_t)limit->subject.ranks / 64 * 64;
    size_t first = is_root ? 0 : split, last = is_root ? split : bytes;
    bool place = buffers_in_place(order);
    char *to;
    const char *from;

    if (broadcasts) {
        to = limit_theirs(limit, out, other);
        from = limit_theirs(limit, out, order->root);
    } else if (order->kind->out == KIND_WHOLE) {
        to = limit_theirs(limit, out, order->root) + at;
        from = place ? limit_theirs(limit, out, other) + at : limit_theirs(limit, in, other);
    } else {
        to = place ? limit_theirs(limit, in, other) + at : limit_theirs(limit, out, other);
        from = limit_theirs(limit, in, order->root) + at;
    }
    limit_copy(to + first, from + first, last - first, 2 * bytes > LIMIT_STREAM);
}

/* Between a root and each of the others both move a part; its own block only the root. */
static void limit_with_root(const struct limit *limit, const struct order *order, const void *in,
                            void *out)
{
    int root = order->root, rank = limit->subject.rank;
    size_t block = order_block(order, limit->subject.ranks), at = (size_t)root * block;
    bool gathers = order->kind->out == KIND_WHOLE;

    for (int r = 0; r < limit->subject.ranks; r++) {
        if (r != root && (rank == root || rank == r))
            limit_between(limit, order, in, out, r);
    }
    if (rank == root && order->kind->id != KIND_broadcast && !buffers_in_place(order))
        memcpy((char *)out + (gathers ? at : 0), (const char *)in + (gathers ? 0 : at), block);
}

static void limit_move(const struct limit *limit, const struct order *order, const void *in,
                       void *out)
{
    if (order->kind->id == KIND_reduce_scatter || order->kind->id == KIND_reduce_scatter_v)
        limit_reduce_scatter(limit, order, in, out);
    else if (order->kind->reduces)
        limit_reduce(limit, order, in, out);
    else if (order->kind->rooted)
        limit_with_root(limit, order, in, out);
    else
        limit_gather(limit, order, in, out);
}

/* ---- messages: a counter that both look at ---- */

/* Into the other's out, so that it is there when the other looks. */
static void limit_push(struct limit *limit, const struct order *order, const void *in, void *out)
{
    int messages = order->kind->id == KIND_latency ? 1 : order->window;

    for (int i = 0; i < messages; i++)
        memcpy(limit_theirs(limit, out, 1 - limit->subject.rank), in, order->bytes);
    limit_step(limit);
}

/* Rank 0 pushes, then 1 does or only says that it has seen; in bibw both at once. */
static dist_status limit_messages(struct limit *limit, const struct order *order, const void *in,
                                  void *out)
{
    int rank = limit->subject.rank, both = order->kind->id == KIND_bibw;
    dist_status status = DIST_OK;

    if (rank > 1)
        return DIST_OK;
    if (rank == 1 && !both)
        status = limit_steps(limit, 1);
    if (rank == 1 && order->kind->id == KIND_bw)
        limit_step(limit);
    else if (status == DIST_OK)
        limit_push(limit, order, in, out);
    if (rank == 0 || both)
        status = limit_steps(limit, 2);
    limit->steps += 2;
    return status;
}

/* ---- as a subject ---- */

static bool limit_can(struct limit *limit, const struct order *order)
{
    if (!order->kind->reduces || (order->op == DIST_SUM && limit_can_sum(order->dtype)))
        return true;
    limit->error =
        "the bare loop only sums integers, float32 and float64: choose --op sum and one of these";
    return false;
}

static dist_status limit_call(struct subject *subject, const struct order *order, const void *in,
                              void *out)
{
    struct limit *limit = (struct limit *)subject;
    dist_status status;

    if (!limit_can(limit, order))
        return DIST_ERR_UNSUPPORTED;
    if (order->kind->layout == KIND_MESSAGES)
        return limit_messages(limit, order, in, out);
    if (limit_is_short(limit, order))
        return limit_short(limit, order, in, out);
    status = limit_barrier(subject);
    if (status != DIST_OK || order->kind->layout == KIND_NOTHING)
        return status;
    limit_move(limit, order, in, out);
    return limit_barrier(subject);
}

static const char *limit_error(struct subject *subject)
{
    return ((struct limit *)subject)->error;
}

dist_status limit_new(struct limit_map *map, int rank, struct subject **subject_p)
{
    struct limit *limit = calloc(1, sizeof(*limit));

    if (!limit)
        return DIST_ERR_NO_MEMORY;
    limit->map = map;
    limit->error = "";
    limit->ins = calloc((size_t)map->ranks, sizeof(*limit->ins));
    limit->outs = calloc((size_t)map->ranks, sizeof(*limit->outs));
    limit->subject = (struct subject){.rank = rank,
                                      .ranks = map->ranks,
                                      .one_piece = true,
                                      .barrier = limit_barrier,
                                      .call = limit_call,
                                      .take = limit_take,
                                      .give = limit_give,
                                      .error = limit_error};
    if (limit->ins && limit->outs) {
        *subject_p = &limit->subject;
        return DIST_OK;
    }
    limit_free(&limit->subject);
    return DIST_ERR_NO_MEMORY;
}

void limit_free(struct subject *subject)
{
    struct limit *limit = (struct limit *)subject;

    if (!limit)
        return;
    free(limit->ins);
    free(limit->outs);
    free(limit);
}
