/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Send and receive: a plan of one step each, with the peer as its root.
 *
 *   SEND's rank --IN--> OUT of RECV's rank
 */
#include "collectives/algorithms.h"

void disti_send_direct(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, 1);
    disti_build_send(b, disti_build_lane(b, 0), DISTI_NOW, shape->root, disti_in(0), 0, 1);
}

void disti_recv_direct(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, 1);
    disti_build_recv(b, disti_build_lane(b, 0), DISTI_NOW, shape->root, disti_out(0), 0, 1);
}
