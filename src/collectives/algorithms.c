/* SPDX-License-Identifier: BSD-3-Clause */
/* The table of algorithms. */
#include "collectives/algorithms.h"

#include <string.h>

const struct disti_algorithm disti_algorithms[] = {
    {DIST_COLL_ALL_REDUCE, "ring", disti_all_reduce_ring, DISTI_RANKS, false,
     "least bytes a rank, segmented; long messages over a network"},
    {DIST_COLL_ALL_REDUCE, "tree", disti_all_reduce_tree, 2, false,
     "double binary tree, pipelined; few steps and full bandwidth"},
    {DIST_COLL_ALL_REDUCE, "recursive_doubling", disti_all_reduce_recursive_doubling, 0, true,
     "fewest steps; short messages"},
    {DIST_COLL_ALL_REDUCE, "halving_doubling", disti_all_reduce_halving_doubling, 0, true,
     "least bytes in few steps; middling messages"},
    {DIST_COLL_ALL_REDUCE, "direct", disti_all_reduce_direct, DISTI_RANKS, false,
     "each rank reduces its slice from all peers; memory that they share"},
    {DIST_COLL_ALL_REDUCE, "hierarchical", disti_all_reduce_hierarchical, DISTI_RANKS, false,
     "inside the nodes, across them, inside again"},
    {DIST_COLL_BROADCAST, "binomial", disti_broadcast_binomial, 0, false,
     "fewest steps; short messages"},
    {DIST_COLL_BROADCAST, "chain", disti_broadcast_chain, 1, false,
     "pipelined along the ring; long messages"},
    {DIST_COLL_BROADCAST, "tree", disti_broadcast_tree, 2, false,
     "two binary trees, pipelined; long messages, many ranks"},
    {DIST_COLL_BROADCAST, "scatter_all_gather", disti_broadcast_scatter_all_gather, DISTI_RANKS,
     false, "a slice to each, then round the ring; long messages"},
    {DIST_COLL_BARRIER, "dissemination", disti_barrier_dissemination, 0, false, "fewest steps"},
    {DIST_COLL_BARRIER, "tree", disti_barrier_tree, 0, false, "fewest messages"},
    {DIST_COLL_ALL_GATHER, "ring", disti_all_gather_ring, 1, false, "neighbours only; long blocks"},
    {DIST_COLL_ALL_GATHER, "direct", disti_all_gather_direct, 0, false,
     "everybody to everybody, one step; short blocks or one node"},
    {DIST_COLL_ALL_GATHER, "bruck", disti_all_gather_bruck, 0, false,
     "fewest steps; short blocks, many ranks"},
    {DIST_COLL_REDUCE, "binomial", disti_reduce_binomial, 0, false, "fewest steps; short messages"},
    {DIST_COLL_REDUCE, "chain", disti_reduce_chain, 1, false,
     "pipelined along the ring; long messages"},
    {DIST_COLL_REDUCE, "tree", disti_reduce_tree, 2, false,
     "two binary trees, pipelined; long messages, many ranks"},
    {DIST_COLL_REDUCE, "direct", disti_reduce_direct, 1, false, "the root takes all; few ranks"},
    {DIST_COLL_REDUCE, "scatter_gather", disti_reduce_scatter_gather, DISTI_RANKS, false,
     "each rank reduces a slice for the root; memory that they share"},
    {DIST_COLL_REDUCE_SCATTER, "ring", disti_reduce_scatter_ring, 1, false,
     "neighbours only; long blocks over a network"},
    {DIST_COLL_REDUCE_SCATTER, "recursive_halving", disti_reduce_scatter_recursive_halving, 0,
     false, "fewest steps; short blocks"},
    {DIST_COLL_REDUCE_SCATTER, "direct", disti_reduce_scatter_direct, 1, false,
     "each rank reduces its block from all peers; memory that they share"},
    {DIST_COLL_GATHER, "direct", disti_gather_direct, 0, false,
     "each sends to the root; long blocks"},
    {DIST_COLL_GATHER, "binomial", disti_gather_binomial, 0, false, "fewest steps; short blocks"},
    {DIST_COLL_SCATTER, "direct", disti_scatter_direct, 0, false,
     "the root sends to each; long blocks"},
    {DIST_COLL_SCATTER, "binomial", disti_scatter_binomial, 0, false, "fewest steps; short blocks"},
    {DIST_COLL_ALL_TO_ALL, "direct", disti_all_to_all_direct, 0, false,
     "everybody to everybody, one step; few ranks"},
    {DIST_COLL_ALL_TO_ALL, "pairwise", disti_all_to_all_pairwise, 0, false,
     "one peer at a time; long blocks, many ranks"},
    {DIST_COLL_ALL_TO_ALL, "bruck", disti_all_to_all_bruck, 0, false,
     "fewest steps; short blocks, many ranks"},
    {DIST_COLL_ALL_GATHER_V, "ring", disti_all_gather_ring, 1, false, "as of all_gather"},
    {DIST_COLL_ALL_GATHER_V, "direct", disti_all_gather_direct, 0, false, "as of all_gather"},
    {DIST_COLL_ALL_GATHER_V, "bruck", disti_all_gather_bruck, 0, false,
     "as of all_gather, a message a block"},
    {DIST_COLL_REDUCE_SCATTER_V, "ring", disti_reduce_scatter_ring, 1, false,
     "as of reduce_scatter"},
    {DIST_COLL_REDUCE_SCATTER_V, "direct", disti_reduce_scatter_direct, 1, false,
     "as of reduce_scatter"},
    {DIST_COLL_GATHER_V, "direct", disti_gather_direct, 0, false, "each sends to the root"},
    {DIST_COLL_SCATTER_V, "direct", disti_scatter_direct, 0, false, "the root sends to each"},
    {DIST_COLL_ALL_TO_ALL_V, "direct", disti_all_to_all_direct, 0, false, "as of all_to_all"},
    {DIST_COLL_ALL_TO_ALL_V, "pairwise", disti_all_to_all_pairwise, 0, false, "as of all_to_all"},
    {DIST_COLL_SEND, "direct", disti_send_direct, 0, false, "one message"},
    {DIST_COLL_RECV, "direct", disti_recv_direct, 0, false, "one message"},
    {0, NULL, NULL, 0, false, NULL},
};

const struct disti_algorithm *disti_algorithm_find(dist_collective collective, const char *name)
{
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++)
        if (a->collective == collective && strcmp(a->name, name) == 0)
            return a;
    return NULL;
}
