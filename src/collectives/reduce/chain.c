/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reduce up a pipelined chain, as the fragmenting algorithms of Pjesivac-Grbovic et al.,
 * "Performance analysis of MPI collective operations", 2007.
 *
 *   root <--0 1 2-- rank <--0 1 2-- rank <--0 1 2-- ...      each adds its own as they pass
 *
 * The chain is the broadcast's (chain.h), from its end: each node is left once. What passes is in a
 * few slots of scratch, so the memory does not grow with the vector.
 * Steps: n - 2 + segments in sequence. Bytes sent by a rank: one vector.
 */
#include "collectives/common/chain.h"
#include "collectives/algorithms.h"
#include "collectives/common/window.h"

/* The root's end: the last addition goes to OUT. */
static void chain_end(const struct disti_shape *shape, struct disti_builder *b)
{
    uint16_t lane = disti_build_lane(b, 0);
    int next = disti_chain_rank(shape->topology, shape->root, 1);
    for (uint32_t c = 0; c < shape->segments; c++)
        disti_build_recv_reduce(b, .lane = lane, .peer = next, .dst = disti_out(c),
                                .src = disti_in(c), .data = c, .finish = true);
}

void disti_reduce_chain(const struct disti_shape *shape, struct disti_builder *b)
{
    int position = disti_chain_position(shape->topology, shape->root, shape->rank);
    disti_build_chunks(b, shape->segments);
    if (position == 0) {
        chain_end(shape, b);
        return;
    }
    uint16_t send = disti_build_lane(b, 0), recv = disti_build_lane(b, 0);
    int previous = disti_chain_rank(shape->topology, shape->root, position - 1);
    struct disti_window window = disti_window(b, 0);
    for (uint32_t c = 0; c < shape->segments; c++) {
        struct disti_chunk_ref value = disti_in(c);
        struct disti_step_ref has = DISTI_NOW, *sent = &window.sent[c % DISTI_WINDOW];
        if (position < shape->ranks - 1) {
            int next = disti_chain_rank(shape->topology, shape->root, position + 1);
            value = disti_window_slot(&window, c);
            has = disti_build_recv_reduce(b, .lane = recv, .after = *sent, .peer = next,
                                          .dst = value, .src = disti_in(c), .data = c);
        }
        *sent = disti_build_send(b, .lane = send, .after = has, .peer = previous, .src = value,
                                 .data = c);
    }
}
