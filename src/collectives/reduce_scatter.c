/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce-scatter over a ring: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for
 * clusters of workstations", 2009, the first half; segmented.
 *
 *   block of position i:   i + 1 --> i + 2 --> ... --> i - 1 --> i     n - 1 hops
 *                          each adds its own values
 *
 * Partial sums are in scratch of two blocks: one hop is received while the previous one is sent.
 * The last hop writes to OUT. Blocks may differ in size. Steps: n - 1 hops in sequence. Bytes sent
 * by a rank: n - 1 blocks.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

struct ring {
    const struct disti_shape *shape;
    struct disti_builder *b;
    uint16_t send, recv;
};

/* Returns chunk s of the block that this rank sends in hop `hop`, and that it received in the hop
 * before. */
static uint32_t ring_chunk(const struct ring *r, int hop, uint32_t s)
{
    const struct disti_topology *topology = r->shape->topology;
    int ranks = r->shape->ranks, position = topology->position[r->shape->rank];
    int owner = topology->order[(position + 2 * ranks - 1 - hop) % ranks];
    return (uint32_t)owner * r->shape->segments + s;
}

static struct disti_chunk_ref ring_slot(const struct ring *r, int hop, uint32_t s)
{
    return disti_scratch((uint32_t)(hop % 2) * r->shape->segments + s);
}

/* Returns a reference to the lane's step for segment s of a hop. Each hop has one step per
 * segment. */
static struct disti_step_ref ring_step_ref(const struct ring *r, uint16_t lane, int hop, uint32_t s)
{
    return (struct disti_step_ref){lane, (uint32_t)hop * r->shape->segments + s + 1};
}

static void ring_hop(const struct ring *r, int hop, uint32_t s)
{
    const struct disti_shape *shape = r->shape;
    int next = disti_ring_next(shape->topology, shape->rank);
    int previous = disti_ring_previous(shape->topology, shape->rank);
    uint32_t out = ring_chunk(r, hop, s), in = ring_chunk(r, hop + 1, s);
    bool last = hop == shape->ranks - 2;
    struct disti_chunk_ref from = hop == 0 ? disti_in(out) : ring_slot(r, hop - 1, s);
    struct disti_chunk_ref to = last ? disti_build_out(r->b, in) : ring_slot(r, hop, s);
    struct disti_step_ref has = hop == 0 ? DISTI_NOW : ring_step_ref(r, r->recv, hop - 1, s);
    /* The partial sum in this slot, from two hops ago, must have been sent in the previous hop. */
    struct disti_step_ref slot_sent =
        hop < 2 || last ? DISTI_NOW : ring_step_ref(r, r->send, hop - 1, s);
    disti_build_send(r->b, .lane = r->send, .after = has, .peer = next, .src = from, .data = out);
    disti_build_recv_reduce(r->b, .lane = r->recv, .after = slot_sent, .peer = previous, .dst = to,
                            .src = disti_in(in), .data = in, .finish = last);
}

void disti_reduce_scatter_ring(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, shape->segments);
    disti_build_scratch(b, 2 * shape->segments);
    struct ring r = {shape, b, disti_build_lane(b, 0), disti_build_lane(b, 0)};
    for (int hop = 0; hop < shape->ranks - 1; hop++)
        for (uint32_t s = 0; s < shape->segments; s++)
            ring_hop(&r, hop, s);
}

/*
 * Reduce-scatter by recursive halving: Thakur, Rabenseifner, Gropp, "Optimization of collective
 * communication operations in MPICH", 2005.
 *
 *   virtual  0 1 2 3 4 5 6 7        (blocks have the same numbers)
 *   round 0  0 <-----> 4            rank 0 sends blocks 4 to 7, reduces 0 to 3
 *   round 1  0 <-> 2                sends 2 and 3, reduces 0 and 1
 *   round 2  0 - 1                  sends 1, reduces 0
 *
 * Ranks are in order, since the blocks of a message must be consecutive in IN. Sums are in scratch
 * until the last round. A surplus rank first sends its whole vector to its partner (disti_fold),
 * which has two blocks at the end and sends one back. Steps: log2 n (+ 2). Bytes sent by a rank: n
 * - 1 blocks (a surplus rank: n).
 */

struct halving {
    const struct disti_shape *shape;
    struct disti_builder *b;
    struct disti_fold fold;
    uint16_t send, recv;
    int low, high; /* this rank's current blocks are those of the virtual ranks [low, high) */
    bool fresh;    /* the values of these blocks are still in IN */
    uint32_t base; /* the block whose sum is in slot 0 */
    struct disti_step_ref has; /* the step after which the values are up to date */
};

/* Returns the first block of a virtual rank. */
static uint32_t halving_block(const struct halving *h, int virtual_rank)
{
    int virtual_ranks = 1 << h->fold.rounds;
    return (uint32_t)(virtual_rank == virtual_ranks ? h->shape->ranks
                                                    : disti_fold_position(&h->fold, virtual_rank));
}

static struct disti_chunk_ref halving_value(const struct halving *h, uint32_t block)
{
    return h->fresh ? disti_in(block) : disti_scratch(block - h->base);
}

static void halving_surplus(const struct disti_shape *shape, struct disti_builder *b, int peer)
{
    uint32_t own = (uint32_t)shape->rank, ranks = (uint32_t)shape->ranks;
    uint16_t lane = disti_build_lane(b, 0);
    disti_build_send(b, .lane = lane, .peer = peer, .src = disti_in(0), .chunks = ranks);
    disti_build_recv(b, .lane = lane, .peer = peer, .dst = disti_out(0), .data = own);
}

void disti_reduce_scatter_recursive_halving(const struct disti_shape *shape,
                                            struct disti_builder *b)
{
    struct disti_fold fold = disti_fold(shape->ranks, shape->rank);
    uint32_t ranks = (uint32_t)shape->ranks;
    disti_build_chunks(b, 1);
    if (fold.virtual_rank < 0) {
        halving_surplus(shape, b, fold.partner);
        return;
    }
    struct halving h = {.shape = shape,
                        .b = b,
                        .fold = fold,
                        .send = disti_build_lane(b, 0),
                        .recv = disti_build_lane(b, 0),
                        .high = 1 << fold.rounds,
                        .fresh = fold.partner < 0,
                        .has = DISTI_NOW};
    if (!h.fresh) {
        disti_build_scratch(b, ranks);
        h.has =
            disti_build_recv_reduce(b, .lane = h.recv, .peer = fold.partner,
                                    .dst = disti_scratch(0), .src = disti_in(0), .chunks = ranks);
    }
    for (int round = 0; round < fold.rounds; round++) {
        /* Sends the blocks of one half of the virtual ranks and reduces those of the other half. */
        int half = (h.high - h.low) / 2, middle = h.low + half;
        bool upper = h.fold.virtual_rank >= middle;
        int peer = disti_fold_position(&h.fold, h.fold.virtual_rank ^ half);
        uint32_t send_first = halving_block(&h, upper ? h.low : middle);
        uint32_t send_end = halving_block(&h, upper ? middle : h.high);
        h.low = upper ? middle : h.low;
        h.high = upper ? h.high : middle;
        uint32_t keep = halving_block(&h, h.low), count = halving_block(&h, h.high) - keep;
        bool last = round == h.fold.rounds - 1;
        struct disti_chunk_ref mine = halving_value(&h, keep);
        disti_build_send(h.b, .lane = h.send, .after = h.has, .peer = peer,
                         .src = halving_value(&h, send_first), .data = send_first,
                         .chunks = send_end - send_first);
        if (h.fresh) {
            disti_build_scratch(h.b, count);
            h.base = keep;
            h.fresh = false;
        }
        struct disti_chunk_ref sum = last && count == 1 ? disti_out(0) : halving_value(&h, keep);
        h.has = disti_build_recv_reduce(h.b, .lane = h.recv, .peer = peer, .dst = sum, .src = mine,
                                        .data = keep, .chunks = count, .finish = last);
    }
    if (fold.partner >= 0) {
        /* The partner's block was reduced together with this rank's block. */
        uint32_t own = (uint32_t)h.shape->rank;
        disti_build_copy(h.b, .lane = h.recv, .dst = disti_out(0), .src = halving_value(&h, own),
                         .data = own);
        disti_build_send(h.b, .lane = h.send, .after = h.has, .peer = h.fold.partner,
                         .src = halving_value(&h, own + 1), .data = own + 1);
    }
}

/*
 * Reduce-scatter by direct exchange, for ranks that can read each other's memory.
 *
 *   all ranks --block i of IN--> rank i     reduced on arrival, one segment at a time
 *
 * This is the first half of the direct all-reduce (disti_all_reduce_direct). Blocks may differ in
 * size. Steps: 1. Messages of a rank: n - 1 per segment. Bytes sent by a rank: n - 1 blocks.
 */

void disti_reduce_scatter_direct(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, shape->segments);
    struct disti_team team = disti_team(shape, NULL);
    disti_team_reduce(b, &team, 0, 0, true);
}

/*
 * Reduce-scatter by direct exchange (disti_reduce_scatter_direct), in the order of reproducible
 * results (plan.h).
 *
 *   all ranks --block i of IN--> rank i     which adds in the fixed order
 *
 * Half of the received segments must wait in scratch for their other operand: at most log2 n
 * segments at a time. Blocks may differ in size. Steps: 1. Messages of a rank: n - 1 per segment.
 * Bytes sent by a rank: n - 1 blocks.
 */

void disti_reduce_scatter_direct_ordered(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, shape->segments);
    struct disti_team team = disti_team(shape, NULL);
    disti_team_send(b, &team, 0, 0);
    uint16_t lane = disti_build_lane(b, 0);
    for (uint32_t s = 0; s < shape->segments; s++)
        disti_ordered_sum(b, lane, shape->ranks, shape->rank,
                          (uint32_t)shape->rank * shape->segments + s);
}

/*
 * Reduce-scatter inside the nodes first, then across them.
 *
 *   node 0: ranks 0 1 2        node 1: ranks 3 4 5        node 2: ranks 6 7 8
 *
 *     1. in each node the i-th rank reduces the blocks of the i-th ranks of all nodes   (direct)
 *     2. the i-th ranks of all nodes reduce-scatter these sums: 0 3 6, 1 4 7, 2 5 8     (rings)
 *
 * Blocks are processed in the order in which the ring needs them, this rank's own block last. A
 * segment enters its ring as soon as its node's sum is complete. A block leaves each node once, and
 * the ring has one hop per node. If nodes have different numbers of ranks, there are no matching
 * i-th ranks, and one ring over all ranks is used (disti_reduce_scatter_ring). Blocks may differ in
 * size.
 *
 * With m ranks on each of N nodes: steps: N in sequence. Bytes sent over the network by a rank: N -
 * 1 blocks; inside the node: (m - 1) N blocks.
 */

enum { CHANNEL_NODE, CHANNEL_RING };

struct scatter {
    const struct disti_shape *shape;
    struct disti_builder *b;
    int node, nodes, size, index; /* index: of this rank in its node */
    uint16_t reduce, send, recv;
};

/* Returns chunk s of the block that the node's `index`-th rank processes in a turn. Its own block
 * is the last. */
static uint32_t scatter_chunk(const struct scatter *c, int index, int turn, uint32_t s)
{
    int node = (c->node + 2 * c->nodes - 1 - turn) % c->nodes;
    uint32_t owner = (uint32_t)disti_node_member(c->shape->topology, node, index);
    return owner * c->shape->segments + s;
}

/* Returns the location of a turn's sum: OUT for the own block, scratch for other blocks. */
static struct disti_chunk_ref scatter_sum(const struct scatter *c, int turn, uint32_t s)
{
    if (turn == c->nodes - 1)
        return disti_out(s);
    return disti_scratch((uint32_t)turn * c->shape->segments + s);
}

/* Returns the location of the node's sum: IN if the rank is alone on its node. */
static struct disti_chunk_ref scatter_value(const struct scatter *c, int turn, uint32_t s)
{
    return c->size > 1 ? scatter_sum(c, turn, s) : disti_in(scatter_chunk(c, c->index, turn, s));
}

/* Returns the node's last addition to a segment of a turn. Each segment has size - 1 additions. */
static struct disti_step_ref scatter_added(const struct scatter *c, int turn, uint32_t s)
{
    uint32_t before = (uint32_t)turn * c->shape->segments + s;
    if (c->size == 1)
        return DISTI_NOW;
    return (struct disti_step_ref){c->reduce, (before + 1) * (uint32_t)(c->size - 1)};
}

/* Sends the turn's segment on; receives the next turn's segment and adds the node's sum to it. */
static void scatter_hop(const struct scatter *c, int turn, uint32_t s)
{
    const struct disti_topology *topology = c->shape->topology;
    int next = disti_node_member(topology, (c->node + 1) % c->nodes, c->index);
    int previous = disti_node_member(topology, (c->node + c->nodes - 1) % c->nodes, c->index);
    uint32_t out = scatter_chunk(c, c->index, turn, s);
    uint32_t in = scatter_chunk(c, c->index, turn + 1, s);
    struct disti_step_ref received = {c->recv, (uint32_t)(turn - 1) * c->shape->segments + s + 1};
    struct disti_chunk_ref from = turn ? scatter_sum(c, turn, s) : scatter_value(c, turn, s);
    disti_build_send(c->b, .lane = c->send, .after = turn ? received : scatter_added(c, turn, s),
                     .peer = next, .src = from, .data = out);
    disti_build_recv_reduce(c->b, .lane = c->recv, .after = scatter_added(c, turn + 1, s),
                            .peer = previous, .dst = scatter_sum(c, turn + 1, s),
                            .src = scatter_value(c, turn + 1, s), .data = in,
                            .finish = turn == c->nodes - 2);
}

void disti_reduce_scatter_hierarchical(const struct disti_shape *shape, struct disti_builder *b)
{
    const struct disti_topology *topology = shape->topology;
    if (!topology->uniform) {
        disti_reduce_scatter_ring(shape, b);
        return;
    }
    int node = disti_node_of(topology, shape->rank);
    struct scatter c = {.shape = shape,
                        .b = b,
                        .node = node,
                        .nodes = topology->nodes,
                        .size = disti_node_size(topology, node),
                        .index = topology->position[shape->rank] - topology->node_first[node],
                        .reduce = disti_build_lane(b, CHANNEL_NODE),
                        .send = disti_build_lane(b, CHANNEL_RING),
                        .recv = disti_build_lane(b, CHANNEL_RING)};
    disti_build_chunks(b, shape->segments);
    disti_build_scratch(b, (uint32_t)(c.nodes - 1) * shape->segments);
    for (int i = 1; i < c.size; i++) {
        /* Sends blocks to the i-th rank after this one in the node. */
        int to = (c.index + i) % c.size;
        uint16_t lane = disti_build_lane(c.b, CHANNEL_NODE);
        for (int turn = 0; turn < c.nodes; turn++) {
            for (uint32_t s = 0; s < c.shape->segments; s++) {
                uint32_t chunk = scatter_chunk(&c, to, turn, s);
                disti_build_send(c.b, .lane = lane,
                                 .peer = disti_node_member(c.shape->topology, c.node, to),
                                 .src = disti_in(chunk), .data = chunk);
            }
        }
    }
    for (int turn = 0; turn < c.nodes; turn++)
        for (uint32_t s = 0; s < shape->segments; s++) {
            uint32_t chunk = scatter_chunk(&c, c.index, turn, s);
            struct disti_chunk_ref value = disti_in(chunk), sum = scatter_sum(&c, turn, s);
            for (int i = 1; i < c.size; i++) {
                int from = disti_node_member(c.shape->topology, c.node, (c.index + i) % c.size);
                disti_build_recv_reduce(c.b, .lane = c.reduce, .peer = from, .dst = sum,
                                        .src = value, .data = chunk,
                                        .finish = c.nodes == 1 && i == c.size - 1);
                value = sum;
            }
        }
    for (int turn = 0; turn < c.nodes - 1; turn++)
        for (uint32_t s = 0; s < shape->segments; s++)
            scatter_hop(&c, turn, s);
}
