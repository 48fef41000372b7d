/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the data of a long call are: in segments of the ranks, or in their windows. */
#include "base/log.h"
#include "node/state.h"

#include <string.h>

size_t disti_node_round(const struct disti_node_op *op, size_t count, uint64_t round,
                        size_t *first_p)
{
    size_t first = (size_t)round * op->piece;

    *first_p = first;
    if (first >= count)
        return 0;
    return count - first < op->piece ? count - first : op->piece;
}

/* Elements whose bytes are a whole number of lines. */
static size_t slice_grain(const struct disti_node_op *op)
{
    return NODE_APART / op->element_bytes;
}

static size_t slice_start(const struct disti_node *node, const struct disti_node_op *op,
                          size_t elements, int s)
{
    size_t grain = slice_grain(op), ranks = (size_t)node->ranks;
    size_t share = (elements / ranks + grain) / grain * grain;
    size_t start = share * (size_t)s;

    return start < elements ? start : elements;
}

void disti_node_slice(const struct disti_node *node, const struct disti_node_op *op,
                      size_t elements, int s, size_t *from_p, size_t *to_p)
{
    *from_p = slice_start(node, op, elements, s);
    *to_p = slice_start(node, op, elements, s + 1);
}

char *disti_node_window(const struct disti_node *node, int rank, uint64_t round)
{
    char *window = rank == node->rank ? node->window : node->peers[rank].window;

    return window + (node->peers[rank].rounds + round) % NODE_ROUNDS * node->round_bytes;
}

const char *disti_node_in(const struct disti_node *node, const struct disti_node_op *op, int rank,
                          int block, size_t at)
{
    const char *in = rank == node->rank ? op->call.in : node->peers[rank].in;
    size_t first = (size_t)op->round * op->piece;

    if (in)
        return in + (node_in_first(op, block) + first + at) * op->element_bytes;
    return disti_node_window(node, rank, op->round) +
           ((size_t)block * op->piece + at) * op->element_bytes;
}

/* ---- this rank's ---- */

static dist_status window_make(struct disti_node *node)
{
    void *memory;
    dist_status status = DIST_OK;

    if (node->window)
        return DIST_OK;
    status = disti_segment_alloc_shared(NODE_ROUNDS * node->round_bytes, &memory,
                                        &node->window_location);
    if (status == DIST_OK)
        node->window = memory;
    return status;
}

void disti_node_window_offer(struct disti_node *node, struct disti_node_hello *hello)
{
    bool tried = disti_log_trying(true);

    if (window_make(node) == DIST_OK)
        hello->window = node->window_location;
    disti_log_trying(tried);
}

dist_status disti_node_show_window(struct disti_node *node, struct node_locations *locations)
{
    dist_status status = window_make(node);

    node->peers[node->rank].rounds = node->rounds;
    locations->rounds = node->rounds % NODE_ROUNDS;
    if (status == DIST_OK)
        locations->window = node->window_location;
    return status;
}

/* Elements to the end of the last block. */
static size_t window_extent(const size_t *counts, const size_t *offsets, int blocks)
{
    size_t extent = 0;

    for (int b = 0; b < blocks; b++) {
        if (counts[b] && offsets[b] + counts[b] > extent)
            extent = offsets[b] + counts[b];
    }
    return extent;
}

/* Bytes of a rank's IN, and of OUT. */
static size_t window_in_bytes(const struct disti_node *node, const struct disti_node_op *op,
                              int rank)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    size_t elements = op->call.count;

    if (op->call.in_counts)
        elements = window_extent(op->call.in_counts, op->call.in_offsets, node->ranks);
    else if (pattern->in_blocks)
        elements *= (size_t)node->ranks;
    else if (op->call.out_counts)
        elements = op->call.out_counts[rank];
    return elements * op->element_bytes;
}

static size_t window_out_bytes(const struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    bool gathers = !pattern->reduces && pattern->givers == NODE_ALL;

    if (op->call.out_counts)
        return window_extent(op->call.out_counts, op->call.out_offsets, node->ranks) *
               op->element_bytes;
    return op->call.count * op->element_bytes * (gathers ? (size_t)node->ranks : 1);
}

/* Do others write into the takers' OUT, if they see it? */
static bool window_is_written(const struct node_pattern *pattern)
{
    return pattern->slices || pattern->rooted;
}

/*
 * Where peers write, this rank writes in the twin as well, and reads there: so what lies where
 * stays as the program has it. All of OUT is written, but for what is IN too.
 */
static void window_show_ends(const struct disti_node *node, struct disti_node_op *op,
                             struct node_peer *self)
{
    void *in = self->in
                   ? disti_segment_load((void *)op->call.in, window_in_bytes(node, op, node->rank))
                   : NULL;
    void *out = self->out ? disti_segment_twin(self->out, window_out_bytes(node, op)) : NULL;

    if (!out || out == op->call.out)
        return;
    op->program_out = op->call.out;
    self->out = op->call.out = out;
    if (in)
        self->in = op->call.in = in;
}

dist_status disti_node_publish(struct disti_node *node, struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);
    struct node_locations *locations = &node_slot(node->board, op)->locations;
    struct node_peer *self = &node->peers[node->rank];
    bool gives = node_is(pattern->givers, op, node->rank);
    bool takes = window_is_written(pattern) && node_is(pattern->takers, op, node->rank);
    size_t in_bytes = window_in_bytes(node, op, node->rank), out_bytes = window_out_bytes(node, op);

    self->in = self->out = NULL;
    locations->in.name.key = locations->out.name.key = 0;
    locations->in_offered = locations->out_offered = locations->refuses = false;
    node_slot(node->board, op)->failed = 0;
    if (gives &&
        disti_node_find(node, op->call.in, in_bytes, &locations->in, &locations->in_offered))
        self->in = op->call.in;
    locations->in_place = takes && self->in && self->in == op->call.out && in_bytes >= out_bytes;
    if (locations->in_place || (takes && disti_node_find(node, op->call.out, out_bytes,
                                                         &locations->out, &locations->out_offered)))
        self->out = op->call.out;
    locations->out_named = locations->out.name.key;
    window_show_ends(node, op, self);
    locations->in_address = (uintptr_t)op->call.in;
    locations->out_address = (uintptr_t)op->call.out;
    /* Even if all should be visible: a peer attaches it now or, once this rank is gone, never. */
    return disti_node_show_window(node, locations);
}

void disti_node_take_back(const struct disti_node *node, const struct disti_node_op *op)
{
    if (op->program_out)
        disti_segment_store(op->program_out, window_out_bytes(node, op));
}

/* ---- the others' ---- */

static dist_status window_see_peer(struct disti_node *node, const struct disti_node_op *op,
                                   int rank)
{
    struct node_peer *peer = &node->peers[rank];
    const struct node_locations *locations = &node_slot(peer->board, op)->locations;
    char *in = NULL, *out = NULL;
    dist_status status = DIST_OK;

    if (locations->in_offered)
        disti_node_try(node, op, peer, &locations->in);
    else
        status = disti_node_see(peer, &locations->in, window_in_bytes(node, op, rank), &in);
    if (locations->out_offered)
        disti_node_try(node, op, peer, &locations->out);
    else if (status == DIST_OK && locations->out_named && !locations->in_place)
        status = disti_node_see(peer, &locations->out, window_out_bytes(node, op), &out);
    peer->in = in;
    peer->out = locations->in_place ? in : out;
    peer->rounds = locations->rounds;
    if (op->cma) {
        peer->in_address = locations->in_address;
        peer->out_address = locations->out_address;
    }
    return status;
}

/* Are all data visible that anybody reads or writes but their owner? */
static bool window_all_seen(const struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    for (int r = 0; r < node->ranks; r++) {
        const struct node_peer *peer = &node->peers[r];
        bool empty = op->call.out_counts && !op->call.out_counts[r];

        if ((node_is(pattern->givers, op, r) && !peer->in && !empty) ||
            (pattern->slices && node_is(pattern->takers, op, r) && !peer->out))
            return false;
    }
    return true;
}

/* A window stays mapped as long as the group is: it is the same for all calls. */
static dist_status window_attach(struct disti_node *node, int rank,
                                 const struct disti_segment_location *at)
{
    struct node_peer *peer = &node->peers[rank];
    size_t bytes = NODE_ROUNDS * node->round_bytes;
    void *memory;
    dist_status status;

    if (at->offset > at->name.bytes || bytes > at->name.bytes - at->offset)
        return disti_fail(DIST_ERR_INTERNAL,
                          "rank %d's window lies beyond its segment's end: give all ranks the same "
                          "version of libdist",
                          rank);
    status = disti_segment_map(&at->name, &memory);
    if (status == DIST_OK) {
        peer->window = (char *)memory + at->offset;
        peer->window_key = at->name.key;
    }
    return status;
}

dist_status disti_node_attach(struct disti_node *node, const struct disti_node_op *op, int rank)
{
    struct node_peer *peer = &node->peers[rank];

    return peer->window ? DIST_OK
                        : window_attach(node, rank, &node_slot(peer->board, op)->locations.window);
}

int disti_node_windows_meet(struct disti_node *node, bool map)
{
    bool tried = disti_log_trying(true);
    int failed = -1;

    for (int r = 0; r < node->ranks && failed < 0; r++) {
        const struct disti_segment_location *at = &node->hellos[r].window;
        dist_status status = DIST_OK;

        if (r == node->rank || !at->name.key)
            continue;
        if (map)
            status = window_attach(node, r, at);
        else if (r == (node->rank + 1) % node->ranks)
            status = disti_segment_can_map(&at->name);
        if (status != DIST_OK)
            failed = r;
    }
    disti_log_trying(tried);
    return failed;
}

static dist_status window_attach_all(struct disti_node *node, const struct disti_node_op *op)
{
    dist_status status = DIST_OK;

    for (int r = 0; r < node->ranks && status == DIST_OK; r++) {
        if (r != node->rank)
            status = disti_node_attach(node, op, r);
    }
    return status;
}

/*
 * Of two ranks that both go through windows each writes its sums over what it read, in the other's
 * window. So a line of a window goes to and fro between the CPUs once, and not twice:
 *
 *   window of    rank 0                  rank 1
 *   fill         0: slice 1 of its IN    1: slice 0 of its IN
 *   work         1: adds its own         0: adds its own
 *   drain        0: into OUT             1: into OUT
 */
static bool window_swaps(const struct disti_node *node, const struct disti_node_op *op)
{
    const struct node_pattern *pattern = disti_node_pattern(op->call.collective);

    if (node->ranks != 2 || !pattern->slices || pattern->takers != NODE_ALL)
        return false;
    for (int r = 0; r < 2; r++) {
        if (node->peers[r].in || node->peers[r].out)
            return false;
    }
    return true;
}

dist_status disti_node_resolve(struct disti_node *node, struct disti_node_op *op)
{
    dist_status status = DIST_OK;

    for (int r = 0; r < node->ranks && status == DIST_OK; r++) {
        if (r != node->rank)
            status = window_see_peer(node, op, r);
    }
    if (status != DIST_OK)
        return status;
    if (!op->cma && !window_all_seen(node, op)) {
        op->way = window_swaps(node, op) ? NODE_WAY_SWAPPED : NODE_WAY_WINDOWS;
        return window_attach_all(node, op);
    }
    op->way = window_all_seen(node, op) ? NODE_WAY_DIRECT : NODE_WAY_CMA;
    op->piece = op->largest;
    op->rounds = 1;
    return DIST_OK;
}

dist_status disti_node_resolve_to_windows(struct disti_node *node, struct disti_node_op *op)
{
    op->way = NODE_WAY_WINDOWS;
    disti_node_cut(node, op);
    return window_attach_all(node, op);
}
