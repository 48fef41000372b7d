/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies and reduces the data of calls in node memory. */
#include "base/collective.h"
#include "base/dtype.h"
#include "base/kernels/environment.h"
#include "base/kernels/sink.h"
#include "node/state.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

const struct node_pattern disti_node_patterns[DIST_COLL_COUNT] = {
#define COLLECTIVE(which, in, in_at, out, out_at, kind, count)                                     \
    [DIST_COLL_##which] = {                                                                        \
        .is_supported = DISTI_AT_##in_at != DISTI_AT_PEER,                                         \
        .reduces = DISTI_KIND_##kind == DISTI_KIND_REDUCES,                                        \
        .in_blocks = DISTI_BLOCKS_##in == DISTI_BLOCKS_EACH,                                       \
        .slices =                                                                                  \
            DISTI_KIND_##kind == DISTI_KIND_REDUCES && DISTI_BLOCKS_##out == DISTI_BLOCKS_VECTOR,  \
        .rooted = DISTI_KIND_##kind == DISTI_KIND_MOVES &&                                         \
                  (DISTI_AT_##in_at == DISTI_AT_ROOT || DISTI_AT_##out_at == DISTI_AT_ROOT),       \
        .irregular = DISTI_COUNTS_##count == DISTI_COUNTS_OWN_LISTED,                              \
        .senders = DISTI_AT_##in_at == DISTI_AT_ROOT ? NODE_ROOT : NODE_ALL,                       \
        .receivers = DISTI_AT_##out_at == DISTI_AT_ROOT ? NODE_ROOT : NODE_ALL,                    \
    },
#include "base/collectives.def"
#undef COLLECTIVE
};

/*
 * Copies of long data. Depending on the copy mode, they prefetch lines explicitly, and use
 * non-temporal stores for data that are larger than the caches.
 *
 * The hardware prefetches only a few lines ahead of a loop, and none beyond the page. So data that
 * are in another CPU's cache, or in no cache, arrive sooner if the loop prefetches them itself and
 * copies lines of several pages in turn. The order of the lines:
 *
 *   page 0    1 5 9 ..      page 1    2 6 10 ..      page 2    3 7 11 ..      page 3    4 8 12 ..
 *
 * A non-temporal store writes a whole line without reading it first. But if the line is in this
 * CPU's cache, the store also evicts it, which is slower than the copy itself. So non-temporal
 * stores are used for long data only.
 */

#ifdef __x86_64__
#include <immintrin.h>
#endif

/* Bytes of a page; number of pages from which lines are copied in turn. */
#define MOVE_PAGE ((size_t)4 << 10)
#define MOVE_PAGES 4
/*
 * Prefetch distances in bytes: within each page of a copy, and within each operand of a reduction.
 */
#define MOVE_AHEAD_EACH 512
#define MOVE_AHEAD ((size_t)4 << 10)
/* Assumed size of the second-level cache if the system does not report it. */
#define MOVE_CACHE ((size_t)2 << 20)

size_t disti_node_cache(void)
{
#ifdef _SC_LEVEL2_CACHE_SIZE
    long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);

    if (bytes > 0)
        return (size_t)bytes;
#endif
    return MOVE_CACHE;
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- copies of whole lines, one from each of `pages` ranges of `bytes` bytes in turn ---- */

typedef void (*move_lines)(char *to, const char *from, size_t bytes, size_t pages);

#define MOVE_LINES(name, target, move_line)                                                        \
    target static void name(char *to, const char *from, size_t bytes, size_t pages)                \
    {                                                                                              \
        for (size_t at = 0; at < bytes; at += NODE_LINE) {                                         \
            for (size_t page = 0; page < pages * bytes; page += bytes)                             \
                move_line(to + page + at, from + page + at);                                       \
        }                                                                                          \
    }

static inline void move_prefetch(char *to, const char *from)
{
    __builtin_prefetch(from + MOVE_AHEAD_EACH);
    node_prefetch_write(to + MOVE_AHEAD_EACH, NODE_LINE);
}

static inline void move_line_cached(char *to, const char *from)
{
    move_prefetch(to, from);
    memcpy(to, from, NODE_LINE);
}

MOVE_LINES(move_cached, , move_line_cached)

#ifdef __x86_64__
/* Functions that write a whole line with one instruction, which is fastest. */
#define MOVE_WIDE __attribute__((target("avx512f")))

static inline void move_line_bypass(char *to, const char *from)
{
    for (size_t at = 0; at < NODE_LINE; at += sizeof(__m128i))
        _mm_stream_si128((__m128i *)(void *)(to + at),
                         _mm_loadu_si128((const __m128i *)(const void *)(from + at)));
}

MOVE_WIDE static inline void move_line_bypass_wide(char *to, const char *from)
{
    _mm512_stream_si512((void *)to, _mm512_loadu_si512(from));
}

MOVE_WIDE static inline void move_line_cached_wide(char *to, const char *from)
{
    move_prefetch(to, from);
    _mm512_storeu_si512(to, _mm512_loadu_si512(from));
}

MOVE_LINES(move_bypass, , move_line_bypass)
MOVE_LINES(move_bypass_wide, MOVE_WIDE, move_line_bypass_wide)
MOVE_LINES(move_cached_wide, MOVE_WIDE, move_line_cached_wide)

static move_lines move_choose(uint8_t copy_mode)
{
    bool bypasses = copy_mode & NODE_BYPASSES;

    if (__builtin_cpu_supports("avx512f"))
        return bypasses ? move_bypass_wide : move_cached_wide;
    return bypasses ? move_bypass : move_cached;
}

void disti_node_store_fence(void)
{
    _mm_sfence();
}
#else
static move_lines move_choose(uint8_t copy_mode)
{
    (void)copy_mode;
    return move_cached;
}

void disti_node_store_fence(void)
{
}
#endif

void disti_node_move(char *to, const char *from, size_t bytes, uint8_t copy_mode)
{
    const size_t turn = MOVE_PAGES * MOVE_PAGE;
    move_lines move = move_choose(copy_mode);
    size_t at = min_size(bytes, -(uintptr_t)to % NODE_LINE), lines;

    if (bytes == 0)
        return;
    copy_mode &= NODE_PREFETCHES | NODE_BYPASSES;
    if (copy_mode == 0 || (bytes <= MOVE_PAGE && !(copy_mode & NODE_BYPASSES))) {
        memcpy(to, from, bytes);
        return;
    }
    memcpy(to, from, at);
    for (; copy_mode & NODE_PREFETCHES && at + turn <= bytes; at += turn)
        move(to + at, from + at, MOVE_PAGE, MOVE_PAGES);
    lines = (bytes - at) / NODE_LINE * NODE_LINE;
    move(to + at, from + at, lines, 1);
    memcpy(to + at + lines, from + at + lines, bytes - at - lines);
}

/* Copies: each receiver reads its blocks from the senders' memory. */

/* Returns the index of the block of OUT that receives the data of `rank`. */
static int copy_out_block(const struct disti_node_op *op, int rank)
{
    return disti_node_pattern(op->call.collective)->senders == NODE_ALL ? rank : 0;
}

static void copy(char *to, const char *from, size_t bytes)
{
    if (to != from && bytes)
        node_copy(to, from, bytes);
}

void disti_node_copy_short(struct disti_node *node, const struct disti_node_op *op)
{
    /* The senders are the ranks in [first, end), this rank included if it sends. */
    for (int r = op->first; r < op->end; r++) {
        int block = copy_out_block(op, r);
        size_t bytes = node_out_count(op, block) * op->element_bytes;
        char *out = (char *)op->call.out + node_out_first(op, block) * op->element_bytes;

        if (r == node->rank)
            copy(out, (const char *)op->call.in + op->block_offset, bytes);
        else
            node_copy(out, node_mailbox_data(&node->peers[r], op) + op->block_offset, bytes);
    }
}

static void move(char *to, const char *from, size_t bytes, uint8_t copy_mode)
{
    if (to != from)
        disti_node_move(to, from, bytes, copy_mode);
}

/*
 * Copies `elements` elements of a sender's block to this rank's memory, starting with element `at`
 * of the round.
 */
static void copy_get(struct disti_node *node, struct disti_node_op *op, int sender, char *to,
                     int block, size_t at, size_t elements)
{
    const struct node_peer *peer = &node->peers[sender];
    size_t bytes = elements * op->element_bytes;

    if (op->method == NODE_METHOD_CMA && sender != node->rank && !peer->in)
        disti_node_cma_get(node, op, sender, to,
                           peer->in_address + (node_in_first(op, block) + at) * op->element_bytes,
                           bytes);
    else
        move(to, disti_node_in(node, op, sender, block, at), bytes, op->copy_mode);
}

/*
 * Returns true if this rank is the root of a gather and its IN is in no segment. No other rank
 * reads the bounce buffer of such a root, so the root copies its own block to OUT while the other
 * ranks fill their bounce buffers.
 */
static bool copy_fills_out(const struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    return !pattern->reduces && pattern->receivers == NODE_ROOT && node->rank == op->call.root &&
           !node->peers[node->rank].in;
}

/*
 * Copies a part of the round's elements of all senders in turn, starting with the rank after this
 * one. Returns true if all elements of the round have been copied.
 */
static bool copy_from_senders(struct disti_node *node, struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    size_t moved = 0;

    if (!node_has_role(pattern->receivers, op, node->rank))
        return true;
    while (op->peers_done < node->ranks && moved * op->element_bytes < NODE_ADVANCE_BYTES) {
        int sender = (node->rank + 1 + op->peers_done) % node->ranks;
        size_t count = node_out_count(op, copy_out_block(op, sender)), elements = 0, first, part;

        if (node_has_role(pattern->senders, op, sender) &&
            !(sender == node->rank && copy_fills_out(node, op)))
            elements = disti_node_round(op, count, op->round, &first);
        if (op->done < elements) {
            /* Copies all of one sender's elements, or about NODE_ADVANCE_BYTES bytes of them. */
            size_t budget = node_line_elements(op, NODE_ADVANCE_BYTES);
            size_t block = node_out_first(op, copy_out_block(op, sender));
            part = elements - op->done < budget ? elements - op->done : budget;
            copy_get(node, op, sender,
                     (char *)op->call.out + (block + first + op->done) * op->element_bytes,
                     disti_node_pattern(op->call.collective)->in_blocks ? node->rank : 0, op->done,
                     part);
            op->done += part;
            moved += part;
        }
        if (op->done == elements) {
            op->done = 0;
            op->peers_done++;
        }
    }
    return op->peers_done == node->ranks;
}

/* ---- between the root and the other ranks ---- */

/*
 * Returns true if the root has to copy its own block, because the block is at different addresses
 * in IN and OUT.
 */
static bool copy_root_has_own(const struct disti_node *node, const struct disti_node_op *op,
                              bool gathers)
{
    const struct node_locations *root =
        &node_slot(node->peers[op->call.root].mailbox, op)->locations;
    uint64_t from = root->in_address, to = root->out_address;
    uint64_t block = (uint64_t)op->call.root * op->call.count * op->element_bytes;

    if (gathers)
        return to + block != from;
    return disti_node_pattern(op->call.collective)->in_blocks && from + block != to;
}

/*
 * Copies elements of the block between the root and `other`, starting with element `at`. This rank
 * is one of the two.
 */
static void copy_between(struct disti_node *node, struct disti_node_op *op, int other, size_t at,
                         size_t elements)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    bool gathers = pattern->receivers == NODE_ROOT;
    int sender = gathers ? other : op->call.root, receiver = gathers ? op->call.root : other;
    int block = pattern->in_blocks ? receiver : 0;
    size_t offset = (node_out_first(op, copy_out_block(op, sender)) + at) * op->element_bytes;
    size_t bytes = elements * op->element_bytes;
    const struct node_peer *peer = &node->peers[receiver];

    if (receiver == node->rank)
        copy_get(node, op, sender, (char *)op->call.out + offset, block, at, elements);
    else if (peer->out)
        move(peer->out + offset, disti_node_in(node, op, node->rank, block, at), bytes,
             op->copy_mode);
    else
        disti_node_cma_put(node, op, receiver, peer->out_address + offset,
                           disti_node_in(node, op, node->rank, block, at), bytes);
}

/*
 * Copies a part of the blocks between the root and the other ranks. Returns true if all of this
 * rank's part has been copied. The sender and the receiver of a block each copy a part of it, if
 * both can access all of it, so that no rank is idle. With p ranks the root has p - 1 such blocks,
 * so it copies 1 / p of each:
 *
 *      block   | root: 1 / p | other rank: 1 - 1 / p |
 *
 * If the root also has to copy its own block, every rank has one block to copy: the other ranks
 * then copy their blocks completely. But with CMA such a copy is half as fast on the other ranks,
 * so the root still copies half of its part.
 *
 * The root processes the blocks of all ranks in turn, and its own block last. Another rank has one
 * block.
 */
static bool copy_rooted(struct disti_node *node, struct disti_node_op *op)
{
    bool gathers = disti_node_pattern(op->call.collective)->receivers == NODE_ROOT;
    bool is_root = node->rank == op->call.root;
    size_t budget = node_line_elements(op, NODE_ADVANCE_BYTES), from, to, split, start;
    int others = is_root ? node->ranks : 1;

    while (op->peers_done < others && budget > 0) {
        int other = is_root ? (node->rank + 1 + op->peers_done) % node->ranks : node->rank;
        size_t part;

        disti_node_slice(node, op, op->call.count, 0, &start, &split);
        if (other == op->call.root)
            split = op->call.count;
        else if (op->method == NODE_METHOD_DIRECT &&
                 !node->peers[gathers ? op->call.root : other].out)
            split = gathers ? op->call.count : 0;
        else if (copy_root_has_own(node, op, gathers))
            split = op->method == NODE_METHOD_DIRECT ? 0 : split / 2;
        from = is_root ? 0 : split;
        to = is_root ? split : op->call.count;
        part = to - from - op->done < budget ? to - from - op->done : budget;
        if (part > 0)
            copy_between(node, op, other, from + op->done, part);
        budget -= part;
        op->done += part;
        if (from + op->done == to) {
            op->done = 0;
            op->peers_done++;
        }
    }
    return op->peers_done == others;
}

/* Copies the round's pieces of IN to this rank's bounce buffer, where the other ranks read them. */
static void copy_fill(struct disti_node *node, struct disti_node_op *op, uint64_t round)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    char *bounce = disti_node_bounce(node, node->rank, round);
    const char *in = op->call.in;
    size_t first, elements = disti_node_round(op, op->call.count, round, &first);

    if (node->peers[node->rank].in || !node_has_role(pattern->senders, op, node->rank))
        return;
    if (copy_fills_out(node, op)) {
        move((char *)op->call.out + (node_out_first(op, node->rank) + first) * op->element_bytes,
             in + first * op->element_bytes, elements * op->element_bytes, op->copy_mode);
        return;
    }
    if (pattern->slices) {
        /* The other ranks do not need this rank's own slice. */
        size_t from, to;

        in += first * op->element_bytes;
        disti_node_slice(node, op, elements, node->rank, &from, &to);
        disti_node_move(bounce, in, from * op->element_bytes, node_bounce_copy_mode(op));
        disti_node_move(bounce + to * op->element_bytes, in + to * op->element_bytes,
                        (elements - to) * op->element_bytes, node_bounce_copy_mode(op));
        return;
    }
    for (int b = 0; b < (pattern->in_blocks ? node->ranks : 1); b++) {
        elements = disti_node_round(op, node_in_count(op, b), round, &first);
        if (!pattern->in_blocks || b != node->rank)
            disti_node_move(bounce + (size_t)b * op->piece * op->element_bytes,
                            in + (node_in_first(op, b) + first) * op->element_bytes,
                            elements * op->element_bytes, node_bounce_copy_mode(op));
    }
}

/* Reductions of all ranks' data, tile by tile, in the order of reproducible results. */

/* Bytes from which operands are prefetched. Shorter data arrive as fast without prefetching. */
#define REDUCE_PREFETCH_FROM (8 * NODE_TILE)
/* Bytes of each operand that are prefetched before the first tile. */
#define REDUCE_FIRST (4 * NODE_TILE)

/* The reduction of one tile of the data of all ranks. */
struct node_sum {
    struct disti_node *node;
    struct dist_sink sink; /* dtype, op and number of bytes of the reduction */
    size_t at;             /* offset of the tile in the sources */
    int surplus;           /* the first `surplus` operands are each the sum of two ranks */
};

static void sum_two(struct node_sum *sum, char *dst, const char *a, const char *b)
{
    sum->sink.dst = dst;
    sum->sink.src = a;
    disti_sink_apply(&sum->sink, 0, b, sum->sink.bytes);
}

/*
 * Reduces `operands` operands, starting with operand `first`. Returns the address of the result:
 * dst, or the source itself if there is only one. `tiles` is scratch memory, one tile for each
 * level of the tree.
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

/*
 * Reduces two vectors without a tree. Uses the kernel in op->pair: looking it up again
 * would slow down short calls.
 */
static inline void reduce_two(const struct disti_node_op *op, void *dst, const void *a,
                              const void *b, size_t count)
{
    if (__builtin_expect(disti_environment_differs(), 0))
        disti_reduce(op->call.dtype, op->call.op, dst, a, b, count);
    else
        op->pair(dst, a, b, count);
}

/*
 * Reduces `bytes` bytes of all node->sources, one source for each rank, and writes the result to
 * the first `targets` entries of node->targets. bounce: the last target is a bounce buffer.
 */
static void reduce_all(struct disti_node *node, const struct disti_node_op *op, size_t bytes,
                       int targets, bool bounce)
{
    struct node_sum sum = {
        .node = node,
        .sink = {.dtype = op->call.dtype, .op = op->call.op, .reduction = op->call.reduction}};
    bool direct = op->method == NODE_METHOD_DIRECT, is_long = bytes >= REDUCE_PREFETCH_FROM;
    bool prefetches = is_long && op->copy_mode & NODE_PREFETCHES;
    /*
     * bypasses: the stores to all targets bypass the caches, except in calls with bounce buffers,
     * whose lines are in the caches and should stay there. streams: only the stores to the last
     * target bypass the caches.
     */
    bool bypasses = is_long && op->copy_mode & NODE_BYPASSES && direct;
    bool streams = is_long && bounce && op->copy_mode & NODE_STREAMS;
    /* Number of targets that are written with ordinary stores; they come first. */
    int cached_targets = bypasses ? 0 : targets - streams;
    /* Address of the result: the first cached target, else a tile that the tree does not use. */
    char *first = node->tiles + (NODE_TILES - 1) * NODE_TILE;

    if (direct && node->ranks > 2) {
        /*
         * Prefetches the beginning of all targets and sources, one line of each in turn, so that
         * the TLB misses for the pages of many ranks overlap.
         */
        size_t end = bytes < REDUCE_FIRST ? bytes : REDUCE_FIRST;
        for (size_t at = 0; at < end; at += NODE_LINE) {
            for (int i = 0; i < cached_targets; i++)
                node_prefetch_write(node->targets[i] + at, NODE_LINE);
            for (int r = 0; r < node->ranks; r++)
                __builtin_prefetch(node->sources[r] + at);
        }
    }
    for (sum.at = 0; sum.at < bytes; sum.at += NODE_TILE) {
        if (prefetches) {
            /*
             * Targets come first: a line that is also a source is then fetched only once, for
             * writing.
             */
            for (int i = 0; i < cached_targets; i++) {
                size_t from = sum.at + MOVE_AHEAD;
                if (from < bytes)
                    node_prefetch_write(node->targets[i] + from, min_size(bytes - from, NODE_TILE));
            }
            for (int r = 0; r < node->ranks; r++) {
                size_t from = sum.at + MOVE_AHEAD, end = min_size(bytes, from + NODE_TILE);
                for (; from < end; from += NODE_LINE)
                    __builtin_prefetch(node->sources[r] + from);
            }
        }
        if (cached_targets)
            first = node->targets[0] + sum.at;
        sum.sink.bytes = bytes - sum.at < NODE_TILE ? bytes - sum.at : NODE_TILE;
        /* Reduces the tile of all sources to `first`. */
        const char **sources = sum.node->sources;
        if (op->pair) {
            size_t count = sum.sink.bytes / op->element_bytes;
            reduce_two(op, first, sources[0] + sum.at, sources[1] + sum.at, count);
            if (op->call.op == DIST_AVG)
                disti_finish(first, count, op->call.dtype, op->call.op, 2);
        } else {
            int operands = sum.node->operands;
            char *tiles = sum.node->tiles;
            const char *left, *right;
            sum.surplus = sum.node->ranks - operands;
            left = sum_operands(&sum, 0, operands / 2, tiles, tiles + NODE_TILE);
            right = sum_operands(&sum, operands / 2, operands / 2, tiles + NODE_TILE,
                                 tiles + 2 * NODE_TILE);
            sum.sink.finish_ranks = sum.node->ranks;
            /* `first` may be one of the sources: only this last step writes to it. */
            sum_two(&sum, first, left, right);
            sum.sink.finish_ranks = 0;
        }
        for (int i = cached_targets ? 1 : 0; i < targets; i++)
            disti_node_move(node->targets[i] + sum.at, first, sum.sink.bytes,
                            i < cached_targets ? 0 : NODE_BYPASSES);
    }
}

void disti_node_reduce_pair(struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_peer *peers = node->peers;
    const unsigned char *a, *b;

    if (__builtin_expect(op->in_overflow, 0)) {
        a = node_mailbox_data(&peers[0], op);
        b = node_mailbox_data(&peers[1], op);
    } else {
        a = node_slot(peers[0].mailbox, op)->data;
        b = node_slot(peers[1].mailbox, op)->data;
    }
    reduce_two(op, op->call.out, a + op->block_offset, b + op->block_offset, op->call.count);
}

void disti_node_reduce_short(struct disti_node *node, const struct disti_node_op *op)
{
    for (int r = 0; r < node->ranks; r++)
        node->sources[r] = (const char *)node_mailbox_data(&node->peers[r], op) + op->block_offset;
    node->targets[0] = op->call.out;
    reduce_all(node, op, op->call.count * op->element_bytes, 1, false);
}

/*
 * Sets node->targets to the destinations of the result of this rank's slice, starting with element
 * `at` of the round, and returns their number. *bounce_p becomes true if the last one is this
 * rank's own bounce buffer.
 */
static int reduce_targets(struct disti_node *node, const struct disti_node_op *op, size_t first,
                          size_t at, bool *bounce_p)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    size_t in_out = (first + at) * op->element_bytes, in_round = at * op->element_bytes;
    int targets = 0;
    bool hidden = false, swapped = op->method == NODE_METHOD_SWAPPED;

    *bounce_p = false;
    if (!pattern->slices) {
        node->targets[0] = (char *)op->call.out + in_out;
        return 1;
    }
    /* This rank's OUT comes first: the other targets are copied from it. */
    if (node_has_role(pattern->receivers, op, node->rank))
        node->targets[targets++] = (char *)op->call.out + in_out;
    for (int r = 0; r < node->ranks; r++) {
        if (r == node->rank || !node_has_role(pattern->receivers, op, r))
            continue;
        if (node->peers[r].out)
            node->targets[targets++] = node->peers[r].out + in_out;
        else
            hidden = true;
    }
    if (hidden)
        node->targets[targets++] =
            disti_node_bounce(node, swapped ? 1 - node->rank : node->rank, op->round) + in_round;
    /* With SWAPPED the last target is in the peer's bounce buffer, and has just been read. */
    *bounce_p = hidden && !swapped;
    return targets;
}

/*
 * Reduces about NODE_ADVANCE_BYTES bytes of this rank's part of the round. Returns true if the part
 * is complete.
 */
static bool reduce_some(struct disti_node *node, struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    size_t first, from, to, at, part;
    size_t elements = disti_node_round(op, op->call.count, op->round, &first);
    size_t budget = node_line_elements(op, NODE_ADVANCE_BYTES / (size_t)node->ranks);
    bool bounce;
    int targets;

    disti_node_slice(node, op, elements, node->rank, &from, &to);
    if (!pattern->slices)
        from = 0, to = elements;
    if (from == to)
        return true;
    at = from + op->done;
    part = to - at < budget ? to - at : budget;
    for (int r = 0; r < node->ranks; r++)
        node->sources[r] = disti_node_in(node, op, r, pattern->in_blocks ? node->rank : 0, at);
    targets = reduce_targets(node, op, first, at, &bounce);
    reduce_all(node, op, part * op->element_bytes, targets, bounce);
    op->done += part;
    return at + part == to;
}

bool disti_node_work(struct disti_node *node, struct disti_node_op *op)
{
    int64_t begun = node_copy_mode_clock(op);
    bool ended;

    if (op->irregular)
        ended = disti_node_irregular_work(node, op);
    else if (disti_node_pattern(op->call.collective)->reduces)
        ended = reduce_some(node, op);
    else {
        bool bounces = op->method == NODE_METHOD_BOUNCES || op->method == NODE_METHOD_SWAPPED;
        ended = !bounces && disti_node_pattern(op->call.collective)->rooted
                    ? copy_rooted(node, op)
                    : copy_from_senders(node, op);
    }
    op->worked_ns += node_copy_mode_clock(op) - begun;
    return ended;
}

void disti_node_work_fill(struct disti_node *node, struct disti_node_op *op, uint64_t round)
{
    int64_t begun = node_copy_mode_clock(op);

    if (op->irregular)
        disti_node_irregular_fill(node, op, round);
    else
        copy_fill(node, op, round);
    if (op->copy_mode & NODE_STREAMS)
        disti_node_store_fence();
    op->worked_ns += node_copy_mode_clock(op) - begun;
}

void disti_node_work_drain(struct disti_node *node, struct disti_node_op *op, uint64_t round)
{
    int64_t begun = node_copy_mode_clock(op);

    /* Copies the round's slices that the other ranks have reduced. */
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    size_t first, from, to;
    size_t elements = disti_node_round(op, op->call.count, round, &first);
    bool swapped = op->method == NODE_METHOD_SWAPPED;
    if (pattern->slices && !node->peers[node->rank].out &&
        node_has_role(pattern->receivers, op, node->rank)) {
        for (int i = 1; i < node->ranks; i++) {
            int s = (node->rank + i) % node->ranks;

            disti_node_slice(node, op, elements, s, &from, &to);
            disti_node_move((char *)op->call.out + (first + from) * op->element_bytes,
                            disti_node_bounce(node, swapped ? node->rank : s, round) +
                                from * op->element_bytes,
                            (to - from) * op->element_bytes, op->copy_mode);
        }
    }
    op->worked_ns += node_copy_mode_clock(op) - begun;
}
