/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short calls of the bare loop: what a rank gives goes into a slot of its own, and who needs it
 * takes it from there. So the ranks meet once and not twice, and a root that only gives does not
 * wait at all.
 */
#include "bench/measure/buffers.h"
#include "limit_map.h"
#include "limit_sum.h"

#include <string.h>

/* All ranks add all vectors: that pays as long as they are short together. */
#define SHORT_SUM_MAX ((size_t)16384)

static bool short_only_root_gives(const struct operation *operation)
{
    return operation->rooted &&
           (operation->id == OPERATION_broadcast || operation->in == PART_WHOLE) &&
           !operation->reduces;
}

static bool short_only_root_gets(const struct operation *operation)
{
    return operation->rooted && !short_only_root_gives(operation);
}

/* What a rank gives is at in, or if there is none at out. */
static size_t short_given(const struct limit *limit, const struct order *order)
{
    return order->operation->in == PART_BLOCK ? order_block(order, limit->driver.ranks)
                                              : order->bytes;
}

bool limit_is_short(const struct limit *limit, const struct order *order)
{
    return order->operation->layout != LAYOUT_NOTHING &&
           order->operation->layout != LAYOUT_MESSAGES &&
           short_given(limit, order) <= LIMIT_SLOT_BYTES &&
           (!order->operation->reduces ||
            order->bytes * (size_t)limit->driver.ranks <= SHORT_SUM_MAX);
}

/* The slot of this call; all must have come past its last use before it is written. */
static dist_status short_slot(struct limit *limit, bool writes, int *slot_p)
{
    int slot = (int)(limit->shorts++ % LIMIT_SLOTS);
    unsigned long long last = limit->used[slot];
    dist_status status = DIST_OK;

    limit->used[slot] = limit->events + 1;
    for (int r = 0; writes && last && r < limit->driver.ranks && status == DIST_OK; r++) {
        if (r != limit->driver.rank)
            status = limit_wait(limit, &limit->map->boards[r].flag, last + 1);
    }
    *slot_p = slot;
    return status;
}

static void short_get(const struct limit *limit, const struct order *order, int slot, void *out)
{
    const struct operation *operation = order->operation;
    int ranks = limit->driver.ranks;
    size_t block = order_block(order, ranks), mine = (size_t)limit->driver.rank * block;
    const struct limit_board *boards = limit->map->boards;

    for (int r = 0; r < ranks; r++)
        limit->ins[r] = boards[r].slots[slot];
    limit->outs[0] = out;
    if (operation->reduces)
        limit_sum(order->dtype, limit->ins, ranks, limit->outs, 1, 0, order->bytes, false);
    else if (operation->id == OPERATION_broadcast)
        memcpy(out, limit->ins[order->root], order->bytes);
    else if (operation->out == PART_BLOCK)
        memcpy(out, limit->ins[order->root] + mine, block);
    for (int r = 0; r < ranks && operation->layout == LAYOUT_BLOCKS && operation->out == PART_WHOLE;
         r++)
        memcpy((char *)out + (size_t)r * block,
               limit->ins[r] + (operation->in == PART_WHOLE ? mine : 0), block);
}

/* Of reduce_scatter a rank adds its block alone. */
static void short_get_block(const struct limit *limit, const struct order *order, int slot,
                            void *out)
{
    size_t block = order_block(order, limit->driver.ranks);

    for (int r = 0; r < limit->driver.ranks; r++)
        limit->ins[r] = limit->map->boards[r].slots[slot] + (size_t)limit->driver.rank * block;
    limit->outs[0] = out;
    limit_sum(order->dtype, limit->ins, limit->driver.ranks, limit->outs, 1, 0, block, false);
}

dist_status limit_short(struct limit *limit, const struct order *order, const void *in, void *out)
{
    const struct operation *operation = order->operation;
    int rank = limit->driver.rank, slot;
    bool root = rank == order->root;
    bool gives = root || !short_only_root_gives(operation),
         gets = root || !short_only_root_gets(operation);
    dist_status status = short_slot(limit, gives, &slot);

    if (status != DIST_OK)
        return status;
    if (gives)
        memcpy(limit->map->boards[rank].slots[slot], operation->in == PART_NONE ? out : in,
               short_given(limit, order));
    limit_arrive(limit);
    if (!gets || (root && operation->id == OPERATION_broadcast))
        return DIST_OK;
    status = short_only_root_gives(operation) ? limit_wait_rank(limit, order->root)
                                              : limit_wait_all(limit);
    if (status != DIST_OK)
        return status;
    if (operation->reduces && operation->out == PART_BLOCK)
        short_get_block(limit, order, slot, out);
    else
        short_get(limit, order, slot, out);
    return DIST_OK;
}
