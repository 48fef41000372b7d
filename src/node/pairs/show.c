/* SPDX-License-Identifier: BSD-3-Clause */
/* What a rank shows of its blocks, and where it puts them. */
#include "node/area.h"
#include "node/pairs/pairs.h"

/* Bytes of all blocks for others. */
static size_t pairs_bytes(const struct disti_node *node, const struct disti_node_op *op)
{
    size_t elements = 0;

    for (int r = 0; r < node->ranks; r++) {
        if (r != node->rank && pairs_takes(op, r))
            elements += pairs_in(op, r).count;
    }
    return elements * op->element_bytes;
}

/* Of a giver, whose blocks have so many bytes. */
static enum disti_node_place pairs_place(struct disti_node *node, const struct disti_node_op *op,
                                         size_t bytes, int listed)
{
    size_t room = disti_node_slot_bytes(disti_node_pattern(op->call.collective));

    if (bytes + pairs_list_bytes(listed, NODE_IN_SLOT) <= room)
        return NODE_IN_SLOT;
    if (bytes + pairs_list_bytes(listed, NODE_IN_AREA) > NODE_AREA_BYTES)
        return NODE_IN_MEMORY;
    return bytes <= NODE_SHORT_MAX || disti_node_mover_takes_area(node, op) ? NODE_IN_AREA
                                                                            : NODE_IN_MEMORY;
}

/* Who only takes shows where to, if that may matter: a giver may not find room on its board. */
static enum disti_node_place pairs_taker_place(const struct disti_node_op *op)
{
    return op->largest * op->element_bytes > NODE_SHORT_MAX ? NODE_IN_MEMORY : NODE_NOWHERE;
}

/* Of a root and another only one gives: that awaits the other if both copy. */
static void pairs_wait_for(const struct disti_node *node, struct disti_node_op *op, bool gives)
{
    bool rooted = disti_node_pattern(op->call.collective)->rooted;
    bool waits = !gives || !rooted || op->place == NODE_IN_MEMORY;
    bool all = !rooted || node->rank == op->call.root;

    op->first = all ? 0 : op->call.root;
    op->end = !waits ? op->first : all ? node->ranks : op->first + 1;
    op->met = op->end - op->first == node->ranks;
    op->awaited = node->others + op->first - (op->first > node->rank);
    op->awaited_end = node->others + op->end - (op->end > node->rank);
    op->seen = op->first;
}

void disti_node_pairs_choose(struct disti_node *node, struct disti_node_op *op)
{
    bool gives = pairs_gives_others(node, op);
    size_t bytes = gives ? pairs_bytes(node, op) : 0;
    int listed = pairs_listed(node, op);

    op->chosen = true;
    op->place = gives ? pairs_place(node, op, bytes, listed) : pairs_taker_place(op);
    op->in_area = op->place == NODE_IN_AREA;
    op->given = 0;
    if (op->place == NODE_IN_SLOT || op->in_area)
        op->given = bytes + pairs_list_bytes(listed, op->place);
    op->depth = op->place == NODE_IN_SLOT || op->place == NODE_NOWHERE ? node->last_slot + 1
                : op->given > NODE_SHORT_MAX                           ? node->area_depth
                                                                       : NODE_AREAS_FIXED;
    op->cma = node->rank == pairs_leader(op) && disti_node_mover_leads(node, op);
    op->together = false;
    op->base = 1;
    op->rounds = 0;
    pairs_wait_for(node, op, gives);
}

void disti_node_pairs_list(const struct disti_node *node, const struct disti_node_op *op,
                           struct node_block *list)
{
    bool gives = pairs_gives_others(node, op);
    int listed = pairs_listed(node, op);
    uint64_t next = 0;

    for (int r = 0; r < listed; r++) {
        int other = listed == 1 ? op->call.root : r;
        struct node_block block = gives ? pairs_in(op, other) : pairs_out(op, other);

        if (op->place != NODE_IN_MEMORY) {
            block.first = next;
            next += listed > 1 && r == node->rank ? 0 : block.count;
        }
        list[r] = block;
    }
}

/* The blocks, one behind the other. */
static void pairs_show_blocks(const struct disti_node *node, const struct disti_node_op *op,
                              char *to, uint8_t gait)
{
    for (int r = 0; r < node->ranks; r++) {
        struct node_block block = pairs_in(op, r);
        size_t bytes = block.count * op->element_bytes;

        if (r == node->rank || !pairs_takes(op, r) || !bytes)
            continue;
        disti_node_move(to, (const char *)op->call.in + block.first * op->element_bytes, bytes,
                        gait);
        to += bytes;
    }
}

/* A segment is shown unless a peer is known not to have mapped it. */
static bool pairs_find(struct disti_node *node, const void *memory, size_t bytes,
                       struct disti_segment_location *location_p)
{
    bool offered = false;

    if (bytes && (disti_node_find(node, memory, bytes, location_p, &offered) || offered))
        return true;
    location_p->name.key = 0;
    return false;
}

/* Has this rank a block for itself that it has to copy? */
static bool pairs_has_own(const struct disti_node *node, const struct disti_node_op *op)
{
    struct node_block in, out;

    if (!pairs_gives(op, node->rank) || !pairs_takes(op, node->rank))
        return false;
    in = pairs_in(op, node->rank);
    out = pairs_out(op, node->rank);
    return in.count && (const char *)op->call.in + in.first * op->element_bytes !=
                           (char *)op->call.out + out.first * op->element_bytes;
}

static dist_status pairs_show_memory(struct disti_node *node, const struct disti_node_op *op,
                                     bool gives)
{
    struct node_locations *at = &node_slot(node->board, op)->locations;
    size_t in_bytes = pairs_extent(op->call.in_counts, op->call.in_offsets, node, op);
    size_t out_bytes = pairs_extent(op->call.out_counts, op->call.out_offsets, node, op);

    at->in.name.key = at->out.name.key = 0;
    at->has_own = pairs_has_own(node, op);
    at->in_address = (uintptr_t)op->call.in;
    at->out_address = (uintptr_t)op->call.out;
    if (gives && pairs_find(node, op->call.in, in_bytes, &at->in))
        disti_segment_load((void *)(uintptr_t)op->call.in, in_bytes);
    /* Between the blocks lies what the program may write: nothing is copied from a twin's ends. */
    if (!gives && pairs_find(node, op->call.out, out_bytes, &at->out) &&
        disti_segment_twin(op->call.out, out_bytes) != op->call.out)
        at->out.name.key = 0;
    return gives ? disti_node_show_window(node, at) : DIST_OK;
}

dist_status disti_node_pairs_show(struct disti_node *node, struct disti_node_op *op)
{
    struct node_slot *slot = node_slot(node->board, op);
    bool gives = pairs_gives_others(node, op);
    struct node_block *list;

    slot->place = (uint8_t)op->place;
    slot->cma = op->cma;
    slot->failed = 0;
    if (op->place == NODE_NOWHERE)
        return DIST_OK;
    if (op->place != NODE_IN_SLOT)
        slot->area = 0;
    if (__builtin_expect(op->given > NODE_SHORT_MAX, 0))
        node_take_area(node, slot, op->given);
    list = node_list(node->self, op);
    disti_node_pairs_list(node, op, list);
    if (op->place == NODE_IN_MEMORY)
        return pairs_show_memory(node, op, gives);
    pairs_show_blocks(node, op, (char *)list + pairs_list_bytes(pairs_listed(node, op), op->place),
                      __builtin_expect(op->gait, 0) ? node_window_gait(op) : 0);
    return DIST_OK;
}
