/* SPDX-License-Identifier: BSD-3-Clause */
/* A call of pairs that gives on its board, and comes again with other buffers: what it copies was
 * worked out the first time. */
#include "node/pairs/pairs.h"
#include "node/short.h"

#include <stdlib.h>

/* Bytes of IN that stand behind those of the stretch before. */
struct again_stretch {
    size_t from, bytes;
};

/* A block of another rank's. */
struct again_take {
    const struct node_peer *peer;
    uint64_t count;   /* elements that this rank expects, */
    size_t to, bytes; /* and where in OUT they go */
};

struct node_again {
    bool ready;              /* it is about the last such call of its collective */
    bool leads;              /* this rank says whether the kernel may copy */
    int mine;                /* of a giver's list: this rank's block */
    size_t behind_mine[2];   /* bytes before the blocks: in a slot, in an area; of mine */
    size_t behind_theirs[2]; /* and of a giver's */
    size_t element_bytes;
    size_t own_from, own_to, own_bytes; /* from IN to OUT */
    int listed, stretches, takes;
    struct node_block *list;
    struct again_stretch *stretch;
    struct again_take *take;
};

/* ---- the first time ---- */

static struct node_again *again_new(const struct disti_node *node)
{
    struct node_again *again;
    size_t ranks = (size_t)node->ranks;
    size_t bytes = sizeof(*again->list) + sizeof(*again->stretch) + sizeof(*again->take);

    again = calloc(1, sizeof(*again) + ranks * bytes);
    if (!again)
        return NULL;
    again->take = (void *)(again + 1);
    again->list = (void *)(again->take + ranks);
    again->stretch = (void *)(again->list + ranks);
    return again;
}

/* Blocks that lie one behind the other are one stretch. */
static void again_give(const struct disti_node *node, const struct disti_node_op *op,
                       struct node_again *again)
{
    struct again_stretch *last = NULL;

    again->stretches = 0;
    for (int r = 0; r < node->ranks; r++) {
        struct node_block block = pairs_in(op, r);
        size_t from = block.first * op->element_bytes, bytes = block.count * op->element_bytes;

        if (r == node->rank || !pairs_takes(op, r) || !bytes)
            continue;
        if (last && last->from + last->bytes == from) {
            last->bytes += bytes;
            continue;
        }
        last = &again->stretch[again->stretches++];
        *last = (struct again_stretch){from, bytes};
    }
}

static void again_take_from(const struct disti_node *node, const struct disti_node_op *op,
                            struct node_again *again)
{
    again->takes = 0;
    for (int r = op->first; r < op->end; r++) {
        struct node_block block = pairs_out(op, r);

        if (r != node->rank)
            again->take[again->takes++] =
                (struct again_take){.peer = &node->peers[r],
                                    .count = block.count,
                                    .to = block.first * op->element_bytes,
                                    .bytes = block.count * op->element_bytes};
    }
}

static void again_own(const struct disti_node *node, const struct disti_node_op *op,
                      struct node_again *again)
{
    bool own = pairs_gives(op, node->rank) && pairs_takes(op, node->rank);

    again->own_bytes = own ? pairs_in(op, node->rank).count * op->element_bytes : 0;
    again->own_from = own ? pairs_in(op, node->rank).first * op->element_bytes : 0;
    again->own_to = own ? pairs_out(op, node->rank).first * op->element_bytes : 0;
}

static void again_behind(int listed, size_t behind[2])
{
    behind[0] = pairs_list_bytes(listed, NODE_IN_SLOT);
    behind[1] = pairs_list_bytes(listed, NODE_IN_AREA);
}

/* NULL: no memory. Apart: a program whose counts are always others never gets here. */
__attribute__((cold, noinline)) static struct node_again *
again_learn(struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    struct node_again **again_p = &node->agains[op->call.collective], *again;
    bool gives = pairs_gives_others(node, op);

    if (!*again_p)
        *again_p = again_new(node);
    again = *again_p;
    if (!again)
        return NULL;
    again->ready = true;
    again->leads = node->rank == 0 && !pattern->rooted;
    again->mine = pattern->in_blocks ? node->rank : 0;
    again->element_bytes = op->element_bytes;
    again->listed = pairs_listed(node, op);
    again_behind(again->listed, again->behind_mine);
    again_behind(pattern->in_blocks ? node->ranks : 1, again->behind_theirs);
    again->stretches = 0;
    if (op->place != NODE_NOWHERE)
        disti_node_pairs_list(node, op, again->list);
    if (gives)
        again_give(node, op, again);
    again_take_from(node, op, again);
    again_own(node, op, again);
    return again;
}

bool disti_node_pairs_recur(const struct disti_node *node, const struct disti_node_op *op)
{
    struct node_again *again = node->agains[op->call.collective];
    bool own = pairs_gives(op, node->rank) && pairs_takes(op, node->rank);

    if (again)
        again->ready = false;
    return op->state != NODE_OP_POSTED && op->way == NODE_WAY_WINDOWS && op->stage == 0 &&
           op->place != NODE_IN_MEMORY && op->given <= NODE_SHORT_MAX &&
           (!own || pairs_in(op, node->rank).count * op->element_bytes <= NODE_SHORT_MAX);
}

/* ---- once more ---- */

/* Where in its slot or area the list of a rank's call stands, and behind it the blocks. */
static inline char *again_data(const struct node_peer *peer, struct node_slot *slot,
                               uint64_t number)
{
    return (char *)(slot->place == NODE_IN_SLOT ? slot->data
                                                : node_area(peer->areas, slot, number));
}

static inline void again_show(struct disti_node *node, struct node_slot *slot,
                              const struct disti_node_op *op, const struct node_again *again)
{
    const struct again_stretch *stretch = again->stretch, *end = stretch + again->stretches;
    struct node_block *list;
    char *to;

    slot->place = (uint8_t)op->place;
    slot->cma = op->cma;
    slot->failed = 0;
    if (op->place == NODE_NOWHERE)
        return;
    slot->area = 0;
    to = again_data(node->self, slot, op->number);
    list = (void *)to;
    for (int r = 0; r < again->listed; r++)
        list[r] = again->list[r];
    to += again->behind_mine[op->place - NODE_IN_SLOT];
    for (; stretch < end; stretch++) {
        node_copy(to, (const char *)op->call.in + stretch->from, stretch->bytes);
        to += stretch->bytes;
    }
}

/* One block, if it is there, on a board, and as this rank expects it. */
static inline bool again_take_one(const struct disti_node_op *op, const struct node_again *again,
                                  const struct again_take *take, uint64_t history)
{
    struct node_slot *slot = node_slot(take->peer->board, op);
    const struct node_block *block;
    const char *data;

    if (atomic_load_explicit(&slot->stage, memory_order_acquire) < node_stage(op->number, 0) ||
        atomic_load_explicit(&slot->history, memory_order_relaxed) != history ||
        slot->place == NODE_IN_MEMORY)
        return false;
    data = again_data(take->peer, slot, op->number);
    block = (const void *)data;
    block += again->mine;
    if (block->count != take->count)
        return false;
    data += again->behind_theirs[slot->place - NODE_IN_SLOT] + block->first * again->element_bytes;
    if (take->bytes)
        node_copy((char *)op->call.out + take->to, data, take->bytes);
    return true;
}

static inline bool again_take_all(const struct disti_node_op *op, const struct node_again *again,
                                  uint64_t history)
{
    const struct again_take *take = again->take, *end = take + again->takes;

    for (; take < end; take++) {
        if (!again_take_one(op, again, take, history))
            return false;
    }
    return true;
}

static inline void again_take_own(const struct disti_node_op *op, const struct node_again *again)
{
    const char *from = (const char *)op->call.in + again->own_from;
    char *to = (char *)op->call.out + again->own_to;

    if (again->own_bytes && from != to)
        node_copy(to, from, again->own_bytes);
}

/* NULL: no memory, or it may not begin yet. */
static inline const struct node_again *again_find(struct disti_node *node,
                                                  const struct disti_node_op *op)
{
    const struct node_again *again = node->agains[op->call.collective];

    if (node->calls + 1 - node->confirmed >= op->depth || node->gone >= 0)
        return NULL;
    return again && again->ready ? again : again_learn(node, op);
}

dist_status disti_node_pairs_again(struct disti_node *node, const struct dist_call *call,
                                   uint64_t history, struct disti_node_op *op)
{
    const struct node_again *again = again_find(node, op);
    uint64_t number = node->calls + 1;
    size_t at = node_slot_number(node, number);
    struct node_slot *slot = &node->board->slots[at];

    if (!again)
        return DIST_ERR_UNSUPPORTED;
    node->calls = op->number = number;
    op->slot = at;
    op->call.in = call->in;
    op->call.out = call->out;
    if (again->leads) /* others may have more for each other */
        op->cma = disti_node_mover_leads(node, op);
    short_begin(node, at, number, call->sequence, op->fingerprint, history);
    again_show(node, slot, op, again);
    if (number % SHORT_CPU_CALLS == 0)
        disti_node_publish_cpu(node);
    short_publish(node, slot, node_stage(number, 0));
    if (!again_take_all(op, again, history))
        return disti_node_op_left(op, call, history);
    again_take_own(op, again);
    short_take(node, op, number);
    return DIST_OK;
}
