/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * All-reduce around a ring: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for
 * clusters of workstations", 2009; segmented.
 *
 *   the vector is cut into n slices; slice i starts at position i and collects on its way:
 *
 *     position 0 --i--> 1 --i--> 2 --i--> ... --> i - 1     n - 1 hops, now slice i is complete
 *     position i - 1 --> i --> i + 1 --> ... --> i - 2      n - 1 hops, now all have it
 *
 * Each slice is cut into segments that follow each other, over up to 4 channels. The first hop
 * sends IN and each reduction reads IN, so that nothing is copied out of place.
 * Steps: 2 (n - 1) hops in sequence. Bytes sent by a rank: 2 (n - 1) / n of the vector.
 */
#include "collectives/algorithms.h"
#include "collectives/common/phases.h"
#include "topology/topology.h"

#define RING_CHANNELS 4

void disti_all_reduce_ring(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, (uint32_t)shape->ranks * shape->segments);
    struct disti_ring ring = {.size = shape->ranks,
                              .index = shape->topology->position[shape->rank],
                              .next = disti_ring_next(shape->topology, shape->rank),
                              .previous = disti_ring_previous(shape->topology, shape->rank),
                              .segments = shape->segments,
                              .channels = RING_CHANNELS};
    disti_ring_all_reduce(b, &ring);
}
