/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-reduce around a ring: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for
 * clusters of workstations", 2009; segmented.
 *
 *   the vector is cut into n slices; slice i starts at position i and collects on its way:
 *
 *     i --> i + 1 --> i + 2 --> ... --> i - 1     n - 1 hops: each adds its own; now complete
 *     i - 1 --> i --> i + 1 --> ... --> i - 2     n - 1 hops: now all have it
 *
 * Each slice is cut into segments that follow each other, over up to 4 channels. The first hop
 * sends IN and each reduction reads IN, so that nothing is copied out of place.
 * Steps: 2 (n - 1) hops in sequence. Bytes sent by a rank: 2 (n - 1) / n of the vector.
 */
#include "collectives/algorithms.h"
#include "topology/topology.h"

#define RING_CHANNELS 4

/* The ring on one of its channels, which has each so many-th segment of every slice. */
struct channel {
    struct disti_builder *b;
    const struct disti_ring *ring;
    uint16_t send, recv; /* lanes */
};

/* Chunk of a segment of a slice; slices count round the ring, backwards too. */
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
        for (int hop = 0; hop < 2 * (ring->size - 1); hop++) /* twice round the ring */
            for (uint32_t s = k; s < ring->segments; s += ring->channels) {
                /*
                 * A segment of one hop: the next rank gets my value of the slice, as far as it has
                 * come. From the rank before comes its value of the slice before that: its sum, to
                 * which mine is added, on the first way round, and on the second the result.
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
 * All-reduce over two binary trees: Sanders, Speck, Traeff, "Two-tree algorithms for full
 * bandwidth broadcast, reduction and scan", 2009; pipelined.
 *
 *   tree 0: even chunks          tree 1: odd chunks
 *
 *            3                          2
 *         /     \                    /     \           up: reduce what the children send
 *        1       5                  0       4          down: forward what the parent sends
 *       / \     /                    \     / \
 *      0   2   4                      1   3   5        (positions, 6 ranks)
 *
 * The trees are built over the machines and inside each again (topology/topology.c), so n - 1 edges
 * of each lie between n machines. A rank that is inner in one tree is a leaf in the other, so both
 * together use each rank's link fully in both directions. Each tree carries `segments` chunks that
 * follow each other. Steps: 2 log2 n + 2 segments in sequence. Bytes sent by a rank: 2 vectors at
 * most.
 */

/* Chunks of tree t: t, t + 2, ... */
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
        /* One lane for all the children: their data goes into the same sum. */
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
 *   round 0     <--->   <--->   <--->   <--->     exchange all of it, both reduce
 *   round 1     <------->       <------->
 *                   <------->       <------->
 *   round 2     <--------------->  ...
 *
 * With 2^k + r ranks the odd ones of the first 2 r positions give their vector to the one before
 * first, and get the result from it at the end. Near positions meet first. Both of a pair compute
 * the same sum (addition commutes), so all ranks have the same bits.
 * Steps: log2 n (+ 2). Bytes sent by a rank: log2 n vectors.
 */

/*
 * A rank may not reduce into what it is just sending. So the value moves: each reception reduces
 * it into memory whose sending has ended, and the last one into OUT:
 *
 *   IN -> slot 0 -> OUT -> slot 0 -> OUT
 */
struct doubling {
    struct disti_builder *b;
    uint16_t send, recv;
    struct disti_chunk_ref value;    /* where the sum so far is */
    struct disti_step_ref has, sent; /* value is there; the value before has been sent */
    int receptions, done;
};

/* In place, IN is OUT: the first sum must lie elsewhere while IN is being sent. */
static struct disti_chunk_ref doubling_target(const struct doubling *d, bool sending)
{
    bool out = (d->receptions - 1 - d->done) % 2 == 0;
    if (out && sending && d->done == 0)
        return disti_scratch(1);
    return out ? disti_out(0) : disti_scratch(0);
}

static void doubling_take(struct doubling *d, int peer, bool sending)
{
    struct disti_chunk_ref target = doubling_target(d, sending);
    bool last = d->done == d->receptions - 1;
    d->has = disti_build_recv_reduce(d->b, .lane = d->recv, .after = d->sent, .peer = peer,
                                     .dst = target, .src = d->value, .finish = last);
    d->value = target;
    d->done++;
}

/* A surplus rank only sends its vector, and receives the result. */
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
        doubling_take(&d, order[fold.partner], false);
    for (int round = 0; round < fold.rounds; round++) {
        int peer = order[disti_fold_position(&fold, fold.virtual_rank ^ (1 << round))];
        struct disti_step_ref sent =
            disti_build_send(d.b, .lane = d.send, .after = d.has, .peer = peer, .src = d.value);
        doubling_take(&d, peer, true);
        d.sent = sent;
    }
    /* Moves the sum to OUT if it is elsewhere. Two ranks: the only reception was beside the only
     * sending; now that it has ended, OUT is free. */
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
 * All-reduce by recursive halving, then doubling: Rabenseifner's algorithm; Thakur, Rabenseifner,
 * Gropp, "Optimization of collective communication operations in MPICH", 2005.
 *
 *   rank 0    |########|  --upper half-->  |####....|  --> |##......|    halving: give one half,
 *   rank 1    |########|  <--lower half--  |....####|  --> |....##..|    reduce the other
 *
 *   and back: each gives all that it has complete and gets as much                     doubling
 *
 * Ranks are virtual ones (disti_fold). Round j pairs those that differ in bit j, so that the
 * longest messages are those between neighbours. The half that is given and the half that is
 * reduced are apart, so nothing needs scratch. Surplus ranks are folded in first and get the result
 * at the end (disti_fold). Steps: 2 log2 n (+ 2). Bytes sent by a rank: 2 (n - 1) / n of the vector
 * (+ 1).
 */

struct halving {
    struct disti_builder *b;
    const int *order;
    struct disti_fold fold;
    uint16_t send, recv;
    uint32_t first, chunks;    /* the part of the vector that is still mine */
    struct disti_step_ref has; /* it is up to date */
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
        /* Gives one half of what is mine, reduces the other. */
        uint32_t half = h.chunks / 2;
        bool upper = h.fold.virtual_rank >> round & 1;
        uint32_t keep = h.first + (upper ? half : 0), give = h.first + (upper ? 0 : half);
        int peer = halving_peer(&h, round);
        struct disti_chunk_ref from = disti_build_value(h.b, give),
                               mine = disti_build_value(h.b, keep);
        disti_build_send(h.b, .lane = h.send, .after = h.has, .peer = peer, .src = from,
                         .data = give, .chunks = half);
        h.has = disti_build_recv_reduce(h.b, .lane = h.recv, .peer = peer, .dst = disti_out(keep),
                                        .src = mine, .data = keep, .chunks = half,
                                        .finish = round == h.fold.rounds - 1);
        h.first = keep;
        h.chunks = half;
    }
    for (int round = fold.rounds - 1; round >= 0; round--) {
        /* Gives what is mine, gets the other half of what it was cut from. */
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
 * All-reduce of everybody with everybody, for memory that the ranks can read of each other.
 *
 *   the vector is cut into n slices, slice i is rank i's own:
 *
 *     all ranks --slice i of IN--> rank i     reduces as they come, a segment at a time
 *     rank i --slice i of OUT--> all ranks    a segment as soon as it is complete
 *
 * A segment is reduced from all ranks before the next begins, so that its sum stays in the cache.
 * Rank i starts with rank i + 1, so that no rank is everybody's first. The order of the additions
 * depends only on the ranks.
 * Steps: 2 in sequence. Messages of a rank: 2 (n - 1) a segment. Bytes: as the ring.
 */

/* The chunk that is the `number`-th to be dealt with in the owner's slice. */
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

/* The member `distance` members after, or before, this one: not all start with the same. */
int disti_team_after(const struct disti_team *team, int distance)
{
    return disti_team_rank(team, (team->index + distance) % team->size);
}

static int team_before(const struct disti_team *team, int distance)
{
    return (team->index + team->size - distance) % team->size;
}

/* ---- all ranks --slice i of IN--> rank i ---- */

/* A lane a peer, since each owner takes its slice when it is ready to. */
void disti_team_give(struct disti_builder *b, const struct disti_team *team, uint32_t start,
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
    disti_team_give(b, team, start, channel);
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

/* Each owner sends its slice, each chunk once it is written, to all the team. */
/* ---- rank i --slice i of OUT--> all ranks ---- */

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
 * All-reduce of everybody with everybody (disti_all_reduce_direct), which adds in the order of
 * reproducible results (plan.h).
 *
 *   the vector is cut into n slices, slice i is rank i's own:
 *
 *     all ranks --slice i of IN--> rank i     which goes through the tree of additions by itself
 *     rank i --slice i of OUT--> all ranks    a segment as soon as it is complete
 *
 * Half of what comes must wait in scratch for what it is to be added to: log2 n segments at most.
 * Steps: 2 in sequence. Messages of a rank: 2 (n - 1) a segment. Bytes: as the ring.
 */

enum { CHANNEL_REDUCE, CHANNEL_GATHER };

void disti_all_reduce_direct_ordered(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, (uint32_t)shape->ranks * shape->segments);
    struct disti_team team = disti_team(shape, NULL);
    disti_team_give(b, &team, 0, CHANNEL_REDUCE);
    uint16_t lane = disti_build_lane(b, CHANNEL_REDUCE);
    for (uint32_t s = 0; s < shape->segments; s++)
        disti_ordered_sum(b, lane, shape->ranks, shape->rank,
                          (uint32_t)shape->rank * shape->segments + s);
    team_gather(b, &team, 0, CHANNEL_GATHER);
}

/*
 * All-reduce inside the nodes, across them, inside again.
 *
 *   node 0: ranks 0 1 2        node 1: ranks 3 4 5
 *
 *     1. in each node slice i is reduced at its i-th rank          (direct)
 *     2. the i-th ranks of all nodes all-reduce slice i            (a ring a slice, side by side)
 *     3. in each node the i-th rank hands slice i to the others    (direct)
 *
 * A chunk goes on to the next phase as soon as it has left the last; phase 1 takes them in the
 * order in which the ring wants them, phase 3 in that in which it completes them. Where nodes
 * differ in their number of ranks, slices cannot be matched: the whole vector is the leaders'.
 *
 * With m ranks on each of N nodes: steps: 2 + 2 (N - 1) in sequence. Bytes over the network by a
 * rank: 2 (N - 1) / (N m) of the vector; inside the node 2 (m - 1) / m.
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
