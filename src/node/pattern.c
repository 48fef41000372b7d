/* SPDX-License-Identifier: BSD-3-Clause */
/* What each collective is to the node: who gives, who takes, what is reduced. */
#include "node/state.h"

const struct node_pattern disti_node_patterns[DIST_COLL_COUNT] = {
    [DIST_COLL_BARRIER] = {.taken = true},
    [DIST_COLL_ALL_REDUCE] = {.taken = true, .reduces = true, .slices = true},
    [DIST_COLL_REDUCE] = {.taken = true, .reduces = true, .slices = true, .takers = NODE_ROOT},
    [DIST_COLL_REDUCE_SCATTER] = {.taken = true, .reduces = true, .in_blocks = true},
    [DIST_COLL_BROADCAST] = {.taken = true, .rooted = true, .givers = NODE_ROOT},
    [DIST_COLL_SCATTER] = {.taken = true, .in_blocks = true, .rooted = true, .givers = NODE_ROOT},
    [DIST_COLL_GATHER] = {.taken = true, .rooted = true, .takers = NODE_ROOT},
    [DIST_COLL_ALL_GATHER] = {.taken = true},
    [DIST_COLL_ALL_TO_ALL] = {.taken = true, .in_blocks = true},
    [DIST_COLL_SCATTER_V] =
        {.taken = true, .in_blocks = true, .rooted = true, .paired = true, .givers = NODE_ROOT},
    [DIST_COLL_GATHER_V] = {.taken = true, .rooted = true, .paired = true, .takers = NODE_ROOT},
    [DIST_COLL_ALL_TO_ALL_V] = {.taken = true, .in_blocks = true, .paired = true},
    [DIST_COLL_ALL_GATHER_V] = {.taken = true},
    [DIST_COLL_REDUCE_SCATTER_V] = {.taken = true, .reduces = true, .in_blocks = true},
};
