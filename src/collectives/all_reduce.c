/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-reduce over a ring: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
 * workstations", 2009; segmented.
 *
 *   the vector is cut into n slices; slice i starts at position i:
 *
 *     i --> i + 1 --> i + 2 --> ... --> i - 1     n - 1 hops; each rank adds its own values
 *     i - 1 --> i --> i + 1 --> ... --> i - 2     n - 1 hops; each rank gets the complete sum
 *
 * Each slice is cut into segments, which are pipelined over up to 4 channels. The first hop sends
 * from IN and each reduction reads IN, so an out-of-place call needs no copy. Steps: 2 (n - 1) hops
 * in sequence. Bytes sent by a rank: 2 (n - 1) / n of the vector.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

#define RING_CHANNELS 4

/* The ring on one of its channels, which carries every `channels`-th segment of each slice. */
struct channel {
    struct disti_builder *b;
    const struct disti_ring *ring;
    uint16_t send, recv; /* lanes */
};

/* Returns the chunk of a segment of a slice. Slices wrap around the ring, negative ones too. */
static uint32_t ring_chunk(const struct disti_ring *ring, int slice, uint32_t segment)
{
    int turned = (slice % ring->size + ring->size) % ring->size;
    return ring->first + (uint32_t)turned * ring->segments + segment;
}

static void ring_all_reduce(struct disti_builder *b, const struct disti_ring *ring)
{
    for (uint16_t k = 0; ring->size > 1 && k < ring->channels && k < ring->segments; k++) {
        uint16_t send = disti_build_lane(b, ring->channel + k);
        uint16_t recv = disti_build_lane(b, ring->channel + k);
        const struct channel c = {b, ring, send, recv};
        for (int hop = 0; hop < 2 * (ring->size - 1); hop++) /* twice around the ring */
            for (uint32_t s = k; s < ring->segments; s += ring->channels) {
                /*
                 * One segment in one hop. Sends the current value of slice index - hop to the next
                 * rank. Receives slice index - hop - 1 from the previous rank: in the first half of
                 * the hops a partial sum, to which this rank's values are added, in the second half
                 * the result.
                 */
                int hops = c.ring->size - 1;
                uint32_t out = ring_chunk(c.ring, c.ring->index - hop, s);
                uint32_t in = ring_chunk(c.ring, c.ring->index - hop - 1, s);
                disti_build_send(c.b, .lane = c.send, .after = disti_build_written(c.b, out),
                                 .peer = c.ring->next, .src = disti_build_value(c.b, out),
                                 .data = out);
                if (hop < hops)
                    disti_build_recv_reduce(
                        c.b, .lane = c.recv, .after = disti_build_written(c.b, in),
                        .peer = c.ring->previous, .dst = disti_out(in),
                        .src = disti_build_value(c.b, in), .data = in, .finish = hop == hops - 1);
                else
                    disti_build_recv(c.b, .lane = c.recv, .peer = c.ring->previous,
                                     .dst = disti_out(in), .data = in);
            }
    }
}

void disti_all_reduce_ring(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, (uint32_t)shape->ranks * shape->segments);
    struct disti_ring ring = {.size = shape->ranks,
                              .index = shape->topology->position[shape->rank],
                              .next = disti_ring_next(shape->topology, shape->rank),
                              .previous = disti_ring_previous(shape->topology, shape->rank),
                              .segments = shape->segments,
                              .channels = RING_CHANNELS};
    ring_all_reduce(b, &ring);
}

/*
 * All-reduce over two binary trees: Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth
 * broadcast, reduction and scan", 2009; pipelined.
 *
 *   tree 0: even chunks          tree 1: odd chunks
 *
 *            3                          2
 *         /     \                    /     \           up: reduce the children's data
 *        1       5                  0       4          down: forward the parent's data
 *       / \     /                    \     / \
 *      0   2   4                      1   3   5        (positions, 6 ranks)
 *
 * The trees are built over the nodes and then inside each node (topology/trees.c), so with N nodes,
 * each tree has N - 1 edges between nodes. A rank that is an inner vertex of one tree is a leaf of
 * the other, so the two trees together use each rank's link fully in both directions. Each tree
 * carries `segments` pipelined chunks. Steps: 2 log2 n + 2 segments in sequence. Bytes sent by a
 * rank: at most 2 vectors.
 */

/* A tree and its chunks: first, first + 2, ... below `end`. */
struct tree {
    struct disti_builder *b;
    struct disti_tree_neighbours tree;
    uint32_t first, end;
    uint16_t channel;
};

void disti_all_reduce_tree(const struct disti_shape *shape, struct disti_builder *b)
{
    uint32_t chunks = 2 * shape->segments;
    disti_build_chunks(b, chunks);
    for (int which = 0; which < 2; which++) {
        struct tree t = {
            .b = b, .first = (uint32_t)which, .end = chunks, .channel = (uint16_t)which};
        disti_tree_double(shape->topology, which, shape->rank, &t.tree);
        /* One lane for all children, since their data are added to the same sum. */
        if (t.tree.children > 0) {
            uint16_t lane = disti_build_lane(t.b, t.channel);
            for (uint32_t c = t.first; c < t.end; c += 2)
                for (int i = 0; i < t.tree.children; i++)
                    disti_build_recv_reduce(
                        t.b, .lane = lane, .peer = t.tree.child[i], .dst = disti_out(c),
                        .src = disti_build_value(t.b, c), .data = c,
                        .finish = t.tree.parent < 0 && i == t.tree.children - 1);
        }
        if (t.tree.parent >= 0) {
            uint16_t up = disti_build_lane(t.b, t.channel);
            uint16_t down = disti_build_lane(t.b, t.channel);
            for (uint32_t c = t.first; c < t.end; c += 2) {
                disti_build_send(t.b, .lane = up, .after = disti_build_written(t.b, c),
                                 .peer = t.tree.parent, .src = disti_build_value(t.b, c),
                                 .data = c);
                disti_build_recv(t.b, .lane = down, .peer = t.tree.parent, .dst = disti_out(c),
                                 .data = c);
            }
        }
        for (int i = 0; i < t.tree.children; i++)
            disti_stream_send(b, which, t.tree.child[i], t.first, 2, t.end);
    }
}

/*
 * All-reduce by recursive doubling: Thakur, Rabenseifner, Gropp, "Optimization of collective
 * communication operations in MPICH", 2005.
 *
 *   positions   0   1   2   3   4   5   6   7
 *   round 0     <--->   <--->   <--->   <--->     exchange whole vectors, both reduce
 *   round 1     <------->       <------->
 *                   <------->       <------->
 *   round 2     <--------------->  ...
 *
 * With 2^k + r ranks, each odd position below 2 r first sends its vector to the position before it,
 * and receives the result from there at the end. Neighbouring positions exchange first, then more
 * distant ones. Both ranks of a pair compute the same sum (addition commutes), so all ranks get the
 * same bits. Steps: log2 n (+ 2). Bytes sent by a rank: log2 n vectors.
 */

/*
 * A rank may not reduce into memory that is being sent. So each step that receives and reduces
 * writes the sum to memory that is no longer being sent. It alternates between slot 0 and OUT, so
 * that the last sum is in OUT:
 *
 *   IN -> slot 0 -> OUT -> slot 0 -> OUT
 */
struct doubling {
    struct disti_builder *b;
    uint16_t send, recv;
    struct disti_chunk_ref value; /* location of the current sum */
    struct disti_step_ref has;    /* the step that completes `value` */
    struct disti_step_ref sent;   /* the step that sends the previous value */
    int receptions, done;
};

/* Returns where the next sum goes. In an in-place call IN is OUT, so the first sum must not go to
 * OUT while IN is being sent; it goes to slot 1 instead. */
static struct disti_chunk_ref doubling_target(const struct doubling *d, bool sending)
{
    bool out = (d->receptions - 1 - d->done) % 2 == 0;
    if (out && sending && d->done == 0)
        return disti_scratch(1);
    return out ? disti_out(0) : disti_scratch(0);
}

static void doubling_receive(struct doubling *d, int peer, bool sending)
{
    struct disti_chunk_ref target = doubling_target(d, sending);
    bool last = d->done == d->receptions - 1;
    d->has = disti_build_recv_reduce(d->b, .lane = d->recv, .after = d->sent, .peer = peer,
                                     .dst = target, .src = d->value, .finish = last);
    d->value = target;
    d->done++;
}

/* A surplus rank only sends its vector and receives the result. */
static void fold_surplus(struct disti_builder *b, int peer, uint32_t chunks)
{
    uint16_t lane = disti_build_lane(b, 0);
    disti_build_send(b, .lane = lane, .peer = peer, .src = disti_in(0), .chunks = chunks);
    disti_build_recv(b, .lane = lane, .peer = peer, .dst = disti_out(0), .chunks = chunks);
}

void disti_all_reduce_recursive_doubling(const struct disti_shape *shape, struct disti_builder *b)
{
    struct disti_fold fold = disti_fold(shape->ranks, shape->topology->position[shape->rank]);
    const int *order = shape->topology->order;
    disti_build_chunks(b, 1);
    disti_build_scratch(b, 2);
    if (fold.virtual_rank < 0) {
        fold_surplus(b, order[fold.partner], 1);
        return;
    }
    bool folds = fold.partner >= 0;
    struct doubling d = {.b = b,
                         .send = disti_build_lane(b, 0),
                         .recv = disti_build_lane(b, 0),
                         .value = disti_in(0),
                         .has = DISTI_NOW,
                         .sent = DISTI_NOW,
                         .receptions = fold.rounds + folds};
    if (folds)
        doubling_receive(&d, order[fold.partner], false);
    for (int round = 0; round < fold.rounds; round++) {
        int peer = order[disti_fold_position(&fold, fold.virtual_rank ^ (1 << round))];
        struct disti_step_ref sent =
            disti_build_send(d.b, .lane = d.send, .after = d.has, .peer = peer, .src = d.value);
        doubling_receive(&d, peer, true);
        d.sent = sent;
    }
    /* Copies the sum to OUT if it is in scratch. This happens with two ranks, whose only reception
     * overlapped their only send; that send has now ended, so OUT is free. */
    if (d.value.space != DISTI_OUT) {
        d.has = disti_build_copy(d.b, .lane = d.recv, .after = d.sent, .dst = disti_out(0),
                                 .src = d.value);
        d.value = disti_out(0);
    }
    if (folds)
        disti_build_send(b, .lane = d.send, .after = d.has, .peer = order[fold.partner],
                         .src = disti_out(0));
}

/*
 * All-reduce by recursive halving and doubling: Rabenseifner's algorithm; Thakur, Rabenseifner,
 * Gropp, "Optimization of collective communication operations in MPICH", 2005.
 *
 *   rank 0    |########|  --upper half-->  |####....|  --> |##......|    halving: send one half,
 *   rank 1    |########|  <--lower half--  |....####|  --> |....##..|    reduce the other
 *
 *   doubling: each pair exchanges its complete parts, in the reverse order of rounds
 *
 * Round j pairs virtual ranks (disti_fold) that differ in bit j, so the longest messages are
 * between neighbours. The half that is sent and the half that is reduced do not overlap, so no
 * scratch is needed. Surplus ranks are folded in first and receive the result at the end. Steps: 2
 * log2 n (+ 2). Bytes sent by a rank: 2 (n - 1) / n of the vector (+ 1).
 */

struct halving {
    struct disti_builder *b;
    const int *order;
    struct disti_fold fold;
    uint16_t send, recv;
    uint32_t first, chunks;    /* this rank's current part of the vector */
    struct disti_step_ref has; /* the step after which that part is up to date */
};

static int halving_peer(const struct halving *h, int round)
{
    return h->order[disti_fold_position(&h->fold, h->fold.virtual_rank ^ (1 << round))];
}

void disti_all_reduce_halving_doubling(const struct disti_shape *shape, struct disti_builder *b)
{
    struct disti_fold fold = disti_fold(shape->ranks, shape->topology->position[shape->rank]);
    const int *order = shape->topology->order;
    uint32_t chunks = UINT32_C(1) << fold.rounds;
    disti_build_chunks(b, chunks);
    if (fold.virtual_rank < 0) {
        fold_surplus(b, order[fold.partner], chunks);
        return;
    }
    struct halving h = {.b = b,
                        .order = order,
                        .fold = fold,
                        .send = disti_build_lane(b, 0),
                        .recv = disti_build_lane(b, 0),
                        .chunks = chunks,
                        .has = DISTI_NOW};
    if (fold.partner >= 0)
        h.has = disti_build_recv_reduce(b, .lane = h.recv, .peer = order[fold.partner],
                                        .dst = disti_out(0), .src = disti_in(0), .chunks = chunks);
    for (int round = 0; round < fold.rounds; round++) {
        /* Sends one half of the current part and reduces the other. */
        uint32_t half = h.chunks / 2;
        bool upper = h.fold.virtual_rank >> round & 1;
        uint32_t keep = h.first + (upper ? half : 0), send_first = h.first + (upper ? 0 : half);
        int peer = halving_peer(&h, round);
        struct disti_chunk_ref from = disti_build_value(h.b, send_first),
                               mine = disti_build_value(h.b, keep);
        disti_build_send(h.b, .lane = h.send, .after = h.has, .peer = peer, .src = from,
                         .data = send_first, .chunks = half);
        h.has = disti_build_recv_reduce(h.b, .lane = h.recv, .peer = peer, .dst = disti_out(keep),
                                        .src = mine, .data = keep, .chunks = half,
                                        .finish = round == h.fold.rounds - 1);
        h.first = keep;
        h.chunks = half;
    }
    for (int round = fold.rounds - 1; round >= 0; round--) {
        /* Sends the current part and receives the other half of the part that it was cut from. */
        bool upper = h.fold.virtual_rank >> round & 1;
        uint32_t other = upper ? h.first - h.chunks : h.first + h.chunks;
        int peer = halving_peer(&h, round);
        disti_build_send(h.b, .lane = h.send, .after = h.has, .peer = peer,
                         .src = disti_out(h.first), .data = h.first, .chunks = h.chunks);
        h.has = disti_build_recv(h.b, .lane = h.recv, .peer = peer, .dst = disti_out(other),
                                 .data = other, .chunks = h.chunks);
        h.first = upper ? other : h.first;
        h.chunks *= 2;
    }
    if (fold.partner >= 0)
        disti_build_send(b, .lane = h.send, .after = h.has, .peer = order[fold.partner],
                         .src = disti_out(0), .chunks = chunks);
}

/*
 * All-reduce by direct exchange, for ranks that can read each other's memory.
 *
 *   the vector is cut into n slices, rank i owns slice i:
 *
 *     all ranks --slice i of IN--> rank i     reduced on arrival, one segment at a time
 *     rank i --slice i of OUT--> all ranks    each segment as soon as it is complete
 *
 * A segment is reduced from all ranks before the next segment begins, so that its sum stays in the
 * cache. Rank i starts with rank i + 1, so that the ranks do not all start with the same peer. The
 * order of the additions depends only on the ranks. Steps: 2 in sequence. Messages of a rank: 2 (n
 * - 1) per segment. Bytes: as many as the ring.
 */

/* Returns the chunk that is processed as the `number`-th of an owner's slice. */
static uint32_t team_chunk(const struct disti_team *team, int owner, uint32_t start,
                           uint32_t number)
{
    uint32_t turn = (start + team->turns - number / team->segments) % team->turns;
    return ((uint32_t)owner * team->turns + turn) * team->segments + number % team->segments;
}

int disti_team_rank(const struct disti_team *team, int index)
{
    return team->ranks ? team->ranks[index] : index;
}

/* Distances are relative to this member, so that members do not all start with the same peer. */
int disti_team_after(const struct disti_team *team, int distance)
{
    return disti_team_rank(team, (team->index + distance) % team->size);
}

static int team_before(const struct disti_team *team, int distance)
{
    return (team->index + team->size - distance) % team->size;
}

/* ---- all ranks --slice i of IN--> rank i ---- */

/* One lane per peer, since owners receive their slices at different times. */
void disti_team_send(struct disti_builder *b, const struct disti_team *team, uint32_t start,
                     uint16_t channel)
{
    for (int i = 1; i < team->size; i++) {
        int owner = team_before(team, i);
        if (owner >= team->owners)
            continue;
        uint16_t lane = disti_build_lane(b, channel);
        for (uint32_t n = 0; n < team->turns * team->segments; n++) {
            uint32_t chunk = team_chunk(team, owner, start, n);
            disti_build_send(b, .lane = lane, .peer = disti_team_rank(team, owner),
                             .src = disti_build_in(b, chunk), .data = chunk);
        }
    }
}

void disti_team_reduce(struct disti_builder *b, const struct disti_team *team, uint32_t start,
                       uint16_t channel, bool finish)
{
    if (team->size < 2)
        return;
    disti_team_send(b, team, start, channel);
    if (team->index >= team->owners)
        return;
    uint16_t lane = disti_build_lane(b, channel);
    for (uint32_t n = 0; n < team->turns * team->segments; n++) {
        uint32_t chunk = team_chunk(team, team->index, start, n);
        for (int i = 1; i < team->size; i++)
            disti_build_recv_reduce(b, .lane = lane, .peer = disti_team_after(team, i),
                                    .dst = disti_build_out(b, chunk),
                                    .src = disti_build_value(b, chunk), .data = chunk,
                                    .finish = finish && i == team->size - 1);
    }
}

/* ---- rank i --slice i of OUT--> all ranks ---- */

/* Each owner sends each chunk of its slice to all members as soon as it has been written. */
static void team_gather(struct disti_builder *b, const struct disti_team *team, uint32_t start,
                        uint16_t channel)
{
    uint32_t chunks = team->turns * team->segments;
    for (int i = 1; i < team->size && team->index < team->owners; i++) {
        uint16_t lane = disti_build_lane(b, channel);
        for (uint32_t n = 0; n < chunks; n++) {
            uint32_t chunk = team_chunk(team, team->index, start, n);
            disti_build_send(b, .lane = lane, .after = disti_build_written(b, chunk),
                             .peer = disti_team_after(team, i), .src = disti_out(chunk),
                             .data = chunk);
        }
    }
    for (int i = 1; i < team->size; i++) {
        int owner = team_before(team, i);
        if (owner >= team->owners)
            continue;
        uint16_t lane = disti_build_lane(b, channel);
        for (uint32_t n = 0; n < chunks; n++) {
            uint32_t chunk = team_chunk(team, owner, start, n);
            disti_build_recv(b, .lane = lane, .peer = disti_team_rank(team, owner),
                             .dst = disti_out(chunk), .data = chunk);
        }
    }
}

/* ---- the algorithm ---- */

void disti_all_reduce_direct(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, (uint32_t)shape->ranks * shape->segments);
    struct disti_team team = disti_team(shape, shape->topology->order);
    disti_team_reduce(b, &team, 0, 0, true);
    team_gather(b, &team, 0, 1);
}

/*
 * All-reduce by direct exchange (disti_all_reduce_direct), in the order of reproducible results
 * (plan.h).
 *
 *   the vector is cut into n slices, rank i owns slice i:
 *
 *     all ranks --slice i of IN--> rank i     which adds in the fixed order
 *     rank i --slice i of OUT--> all ranks    each segment as soon as it is complete
 *
 * Half of the received segments must wait in scratch for their other operand: at most log2 n
 * segments at a time. Steps: 2 in sequence. Messages of a rank: 2 (n - 1) per segment. Bytes: as
 * many as the ring.
 */

enum { CHANNEL_REDUCE, CHANNEL_GATHER };

void disti_all_reduce_direct_ordered(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, (uint32_t)shape->ranks * shape->segments);
    struct disti_team team = disti_team(shape, NULL);
    disti_team_send(b, &team, 0, CHANNEL_REDUCE);
    uint16_t lane = disti_build_lane(b, CHANNEL_REDUCE);
    for (uint32_t s = 0; s < shape->segments; s++)
        disti_ordered_sum(b, lane, shape->ranks, shape->rank,
                          (uint32_t)shape->rank * shape->segments + s);
    team_gather(b, &team, 0, CHANNEL_GATHER);
}

/*
 * All-reduce inside the nodes, then across them, then inside them again.
 *
 *   node 0: ranks 0 1 2        node 1: ranks 3 4 5
 *
 *     1. in each node, slice i is reduced at the i-th rank               (direct)
 *     2. the i-th ranks of all nodes all-reduce slice i                  (a ring per slice)
 *     3. in each node, the i-th rank sends slice i to the other ranks    (direct)
 *
 * The rings of different slices run concurrently. A chunk enters the next phase as soon as it has
 * left the previous one. Phase 1 processes chunks in the order in which the ring needs them, phase
 * 3 in the order in which the ring completes them. If nodes have different numbers of ranks, slices
 * cannot be matched, and the leaders own the whole vector.
 *
 * With m ranks on each of N nodes: steps: 2 + 2 (N - 1) in sequence. Bytes sent over the network by
 * a rank: 2 (N - 1) / (N m) of the vector; inside the node: 2 (m - 1) / m.
 */

enum { HIERARCHICAL_REDUCE, HIERARCHICAL_RING, HIERARCHICAL_GATHER };

void disti_all_reduce_hierarchical(const struct disti_shape *shape, struct disti_builder *b)
{
    const struct disti_topology *topology = shape->topology;
    int node = disti_node_of(topology, shape->rank), nodes = topology->nodes;
    int size = disti_node_size(topology, node);
    struct disti_team team = {.ranks = &topology->order[topology->node_first[node]],
                              .size = size,
                              .index = topology->position[shape->rank] - topology->node_first[node],
                              .owners = topology->uniform ? size : 1,
                              .turns = (uint32_t)nodes,
                              .segments = shape->segments};
    uint32_t slice = team.turns * team.segments;
    disti_build_chunks(b, (uint32_t)team.owners * slice);
    disti_team_reduce(b, &team, (uint32_t)node, HIERARCHICAL_REDUCE, nodes == 1);
    if (team.index < team.owners) {
        int next = (node + 1) % nodes, previous = (node + nodes - 1) % nodes;
        struct disti_ring ring = {.size = nodes,
                                  .index = node,
                                  .next = disti_node_member(topology, next, team.index),
                                  .previous = disti_node_member(topology, previous, team.index),
                                  .first = (uint32_t)team.index * slice,
                                  .segments = shape->segments,
                                  .channel = HIERARCHICAL_RING,
                                  .channels = 1};
        ring_all_reduce(b, &ring);
    }
    team_gather(b, &team, (uint32_t)(node + 1) % team.turns, HIERARCHICAL_GATHER);
}
