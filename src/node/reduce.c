/* SPDX-License-Identifier: BSD-3-Clause */
/* Reductions: all ranks' data at once, tile by tile, in the order of reproducible results. */
#include "base/collective.h"
#include "base/dtype.h"
#include "base/kernels/environment.h"
#include "base/kernels/sink.h"
#include "node/state.h"

#include <sched.h>
#include <string.h>

/* What is shorter comes as fast as it can be asked for. */
#define REDUCE_PREFETCH_FROM (8 * NODE_TILE)
/* What is asked for at once, before the first tile. */
#define REDUCE_FIRST (4 * NODE_TILE)

/* One reduction of the same tile of all ranks. */
struct node_sum {
    struct disti_node *node;
    struct dist_sink sink; /* dtype, op, bytes */
    size_t at;             /* where in the sources the tile begins */
    int surplus;           /* operands below this are pairs of ranks */
};

static void sum_two(struct node_sum *sum, char *dst, const char *a, const char *b)
{
    sum->sink.dst = dst;
    sum->sink.src = a;
    disti_sink_apply(&sum->sink, 0, b, sum->sink.bytes);
}

/*
 * The sum of `operands` operands from `first` on: in dst, or where the only source lies. `tiles`
 * are free to work in, one a level.
 *
 *   dst = (left, in dst) + (right, in tiles[0])
 */
static const char *sum_operands(struct node_sum *sum, int first, int operands, char *dst,
                                char *tiles)
{
    const char **sources = sum->node->sources;
    const char *left, *right;

    if (operands == 1 && first >= sum->surplus)
        return sources[first + sum->surplus] + sum->at;
    if (operands == 1) {
        left = sources[2 * first] + sum->at;
        right = sources[2 * first + 1] + sum->at;
    } else {
        left = sum_operands(sum, first, operands / 2, dst, tiles);
        right = sum_operands(sum, first + operands / 2, operands / 2, tiles, tiles + NODE_TILE);
    }
    sum_two(sum, dst, left, right);
    return dst;
}

/* All ranks' tile into dst, which may be one of the sources. */
static void sum_tile(struct node_sum *sum, char *dst, int finish_ranks)
{
    int operands = sum->node->operands;
    char *tiles = sum->node->tiles;
    const char *left, *right;

    sum->surplus = sum->node->ranks - operands;
    left = sum_operands(sum, 0, operands / 2, tiles, tiles + NODE_TILE);
    right = sum_operands(sum, operands / 2, operands / 2, tiles + NODE_TILE, tiles + 2 * NODE_TILE);
    sum->sink.finish_ranks = finish_ranks;
    sum_two(sum, dst, left, right); /* the first write to dst, and no source is read after it */
    sum->sink.finish_ranks = 0;
}

/* In place a line is fetched once, for being written. */
static void prefetch_all(struct disti_node *node, size_t bytes, size_t at, int targets)
{
    for (int i = 0; i < targets; i++)
        disti_node_prefetch_write(node->targets[i], bytes, at);
    for (int r = 0; r < node->ranks; r++)
        disti_node_prefetch(node->sources[r], bytes, at);
}

/*
 * The beginning of each, which nothing has asked for yet: line by line of all of them, so that the
 * pages of many ranks are looked up side by side.
 */
static void prefetch_first(struct disti_node *node, size_t bytes, int targets)
{
    size_t end = bytes < REDUCE_FIRST ? bytes : REDUCE_FIRST;

    for (size_t at = 0; at < end; at += NODE_LINE) {
        for (int i = 0; i < targets; i++)
            node_prefetch_write(node->targets[i] + at, NODE_LINE);
        for (int r = 0; r < node->ranks; r++)
            __builtin_prefetch(node->sources[r] + at);
    }
}

/* Two ranks need no tree. The kernel is at hand: a short call has no time to look it up. */
static inline void reduce_two(const struct disti_node_op *op, void *dst, const void *a,
                              const void *b, size_t count)
{
    if (__builtin_expect(disti_environment_differs(), 0))
        disti_reduce(op->call.dtype, op->call.op, dst, a, b, count);
    else
        op->pair(dst, a, b, count);
}

static inline void sum_pair(const struct disti_node_op *op, void *dst, const void *a, const void *b,
                            size_t count)
{
    reduce_two(op, dst, a, b, count);
    if (op->call.op == DIST_AVG)
        disti_finish(dst, count, op->call.dtype, op->call.op, 2);
}

/* One tile of all sources, at sum->at, into dst. */
static void sum_sources(struct node_sum *sum, const struct disti_node_op *op, char *dst)
{
    const char **sources = sum->node->sources;

    if (op->pair)
        sum_pair(op, dst, sources[0] + sum->at, sources[1] + sum->at,
                 sum->sink.bytes / op->element_bytes);
    else
        sum_tile(sum, dst, sum->node->ranks);
}

/* node->sources of all ranks, summed into node->targets, of which there are `targets`; a window
 * among them is the last. */
static void reduce_all(struct disti_node *node, const struct disti_node_op *op, size_t bytes,
                       int targets, bool window)
{
    struct node_sum sum = {
        .node = node,
        .sink = {.dtype = op->call.dtype, .op = op->call.op, .reduction = op->call.reduction}};
    bool direct = op->way == NODE_WAY_DIRECT, is_long = bytes >= REDUCE_PREFETCH_FROM;
    bool asks = is_long && op->gait & NODE_ASKS;
    /* Lines of windows are in the caches, and stay. */
    bool past = is_long && op->gait & NODE_PAST && direct;
    bool streams = is_long && window && op->gait & NODE_STREAMS;
    int near = past ? 0 : targets - streams; /* the first of them, which stay in the caches */
    char *first = node->tiles + (NODE_TILES - 1) * NODE_TILE; /* the tree is not so deep */

    if (direct && node->ranks > 2)
        prefetch_first(node, bytes, near);
    for (sum.at = 0; sum.at < bytes; sum.at += NODE_TILE) {
        if (asks)
            prefetch_all(node, bytes, sum.at, near);
        if (near)
            first = node->targets[0] + sum.at;
        sum.sink.bytes = bytes - sum.at < NODE_TILE ? bytes - sum.at : NODE_TILE;
        sum_sources(&sum, op, first);
        for (int i = near ? 1 : 0; i < targets; i++)
            disti_node_move(node->targets[i] + sum.at, first, sum.sink.bytes,
                            i < near ? 0 : NODE_PAST);
    }
}

void disti_node_reduce_pair(struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_peer *peers = node->peers;
    const unsigned char *a, *b;

    if (__builtin_expect(op->in_area, 0)) {
        a = node_given(&peers[0], op);
        b = node_given(&peers[1], op);
    } else {
        a = node_slot(peers[0].board, op)->data;
        b = node_slot(peers[1].board, op)->data;
    }
    reduce_two(op, op->call.out, a + op->offset, b + op->offset, op->call.count);
}

void disti_node_reduce_short(struct disti_node *node, const struct disti_node_op *op)
{
    for (int r = 0; r < node->ranks; r++)
        node->sources[r] = (const char *)node_given(&node->peers[r], op) + op->offset;
    node->targets[0] = op->call.out;
    reduce_all(node, op, op->call.count * op->element_bytes, 1, false);
}

/* Where the elements of this rank's slice go, from `at` on. Returns to how many places. */
static int reduce_targets(struct disti_node *node, const struct disti_node_op *op, size_t first,
                          size_t at, bool *window_p)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    size_t in_out = (first + at) * op->element_bytes, in_round = at * op->element_bytes;
    int targets = 0;
    bool hidden = false, swapped = op->way == NODE_WAY_SWAPPED;

    *window_p = false;
    if (!pattern->slices) {
        node->targets[0] = (char *)op->call.out + in_out;
        return 1;
    }
    if (node_is(pattern->takers, op, node->rank)) /* first, as the others are copied from it */
        node->targets[targets++] = (char *)op->call.out + in_out;
    for (int r = 0; r < node->ranks; r++) {
        if (r == node->rank || !node_is(pattern->takers, op, r))
            continue;
        if (node->peers[r].out)
            node->targets[targets++] = node->peers[r].out + in_out;
        else
            hidden = true;
    }
    if (hidden)
        node->targets[targets++] =
            disti_node_window(node, swapped ? 1 - node->rank : node->rank, op->round) + in_round;
    *window_p = hidden && !swapped; /* a swapped one is written where it has just been read */
    return targets;
}

bool disti_node_reduce_some(struct disti_node *node, struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    size_t first, from, to, at, take;
    size_t elements = disti_node_round(op, op->call.count, op->round, &first);
    size_t bite = node_bite(op, NODE_BITE / (size_t)node->ranks);
    bool window;
    int targets;

    disti_node_slice(node, op, elements, node->rank, &from, &to);
    if (!pattern->slices)
        from = 0, to = elements;
    if (from == to)
        return true;
    at = from + op->done;
    take = to - at < bite ? to - at : bite;
    for (int r = 0; r < node->ranks; r++)
        node->sources[r] = disti_node_in(node, op, r, pattern->in_blocks ? node->rank : 0, at);
    targets = reduce_targets(node, op, first, at, &window);
    reduce_all(node, op, take * op->element_bytes, targets, window);
    op->done += take;
    return at + take == to;
}

void disti_node_drain(struct disti_node *node, struct disti_node_op *op, uint64_t round)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    size_t first, from, to;
    size_t elements = disti_node_round(op, op->call.count, round, &first);
    bool swapped = op->way == NODE_WAY_SWAPPED;

    if (!pattern->slices || node->peers[node->rank].out ||
        !node_is(pattern->takers, op, node->rank))
        return;
    for (int i = 1; i < node->ranks; i++) {
        int s = (node->rank + i) % node->ranks;

        disti_node_slice(node, op, elements, s, &from, &to);
        disti_node_move((char *)op->call.out + (first + from) * op->element_bytes,
                        disti_node_window(node, swapped ? node->rank : s, round) +
                            from * op->element_bytes,
                        (to - from) * op->element_bytes, op->gait);
    }
}

/*
 * Ranks that share CPUs leave a barrier one after another, who came last first. If those that a
 * rooted call's takers wait for are not among the first, the takers only give up their CPUs again
 * there. So who has waited in the call behind a barrier lets those go first at the next barrier's
 * end, as long as that same call comes behind each:
 *
 *    barrier                  | broadcast: yields until the root has begun it      learned
 *    barrier: the same yields | broadcast: the data are there                      kept
 *    barrier: the same yields | something else                                     forgotten
 *
 * In a broadcast or scatter that is the root, in a gather or reduce all others. Where all wait for
 * each other nobody gains by being late.
 */

/* So often it gives its CPU up: some microseconds, if nobody wants it. */
#define LEAD_TURNS 16

/* Does who takes in this call wait for others that do not wait for it, as what they give stands on
 * a board? */
static bool lead_is_one_way(const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    if (pattern->givers == pattern->takers)
        return false;
    return op->paired ? op->place != NODE_IN_MEMORY : op->way == NODE_WAY_BOARD;
}

void disti_node_lead_learn(struct disti_node *node, const struct disti_node_op *op)
{
    if (op->number != node->lead.barrier + 1 || op->first == op->end || !lead_is_one_way(op))
        return;
    node->lead.first = op->first;
    node->lead.end = op->end;
    node->lead.fingerprint = op->fingerprint;
}

/* Did that call come behind the barrier before this one? Its slot stands until the next is in it.
 */
static bool lead_was_right(const struct disti_node *node, uint64_t number)
{
    uint64_t behind = node->lead.barrier + 1;
    const struct node_slot *slot = &node->board->slots[node_slot_number(node, behind)];

    return number - behind <= node->last_slot &&
           atomic_load_explicit(&slot->fingerprint, memory_order_relaxed) == node->lead.fingerprint;
}

/* True: those it waits for have begun the call behind the barrier. */
static bool lead_yield(const struct disti_node *node)
{
    int turns = 0;

    for (int r = node->lead.first; r < node->lead.end; r++) {
        while (r != node->rank && !disti_node_has_begun(node, r, node->lead.barrier + 1)) {
            if (turns++ == LEAD_TURNS)
                return false;
            sched_yield();
        }
    }
    return true;
}

void disti_node_lead_follow(struct disti_node *node, const struct disti_node_op *op)
{
    bool right = node->lead.end > node->lead.first && lead_was_right(node, op->number);

    node->lead.barrier = op->number;
    if (!right || !lead_yield(node))
        node->lead.end = node->lead.first;
}

const struct node_pattern disti_node_patterns[DIST_COLL_COUNT] = {
#define COLLECTIVE(which, in, in_at, out, out_at, kind, count)                                     \
    [DIST_COLL_##which] = {                                                                        \
        .taken = DISTI_AT_##in_at != DISTI_AT_PEER,                                                \
        .reduces = DISTI_KIND_##kind == DISTI_KIND_REDUCES,                                        \
        .in_blocks = DISTI_BLOCKS_##in == DISTI_BLOCKS_EACH,                                       \
        .slices =                                                                                  \
            DISTI_KIND_##kind == DISTI_KIND_REDUCES && DISTI_BLOCKS_##out == DISTI_BLOCKS_VECTOR,  \
        .rooted = DISTI_KIND_##kind == DISTI_KIND_MOVES &&                                         \
                  (DISTI_AT_##in_at == DISTI_AT_ROOT || DISTI_AT_##out_at == DISTI_AT_ROOT),       \
        .paired = DISTI_COUNTS_##count == DISTI_COUNTS_OWN_LISTED,                                 \
        .givers = DISTI_AT_##in_at == DISTI_AT_ROOT ? NODE_ROOT : NODE_ALL,                        \
        .takers = DISTI_AT_##out_at == DISTI_AT_ROOT ? NODE_ROOT : NODE_ALL,                       \
    },
#include "base/collectives.def"
#undef COLLECTIVE
};
