/* SPDX-License-Identifier: BSD-3-Clause */
/* The model of where the ranks are, and the rings and trees that follow from it. No I/O. */
#ifndef DISTI_TOPOLOGY_TOPOLOGY_H
#define DISTI_TOPOLOGY_TOPOLOGY_H

#include <dist/backend.h>

/*
 * The ranks by locality. `order` is the ring: it groups the ranks by node, and inside a node by
 * package, NUMA node and core. Node i has order[node_first[i] .. node_first[i + 1]); its first rank
 * is its leader.
 */
struct disti_topology {
    int ranks;
    int nodes;
    struct dist_place *localities; /* by rank */
    int *order;                    /* by position */
    int *position;                 /* by rank: order[position[r]] == r */
    int *node_first;               /* nodes + 1 entries */
    bool uniform;                  /* all nodes have the same number of ranks */
    int rack_nodes; /* nodes 0 .. rack_nodes - 1 are in rack 0, and so on; 0: unknown */
};

/*
 * Creates a topology from localities[ranks], which are copied. Nodes may have any numbers; they are
 * renumbered from 0 in the order of ranks. The caller frees it. ERR_NO_MEMORY,
 * ERR_INVALID_ARGUMENT.
 */
dist_status disti_topology_create(const struct dist_place *localities, int ranks,
                                  struct disti_topology **topology_p);

/*
 * Create a topology with all ranks on one node, or from a description for tests and simulations:
 * "node:4 package:2 core:8" has 4 nodes of 2 packages of 8 cores, with one rank per core. The
 * levels are rack, node, package, numa, core, in this order; any may be omitted.
 * ERR_INVALID_ARGUMENT if the description is malformed.
 */
dist_status disti_topology_flat(int ranks, struct disti_topology **topology_p);
dist_status disti_topology_synthetic(const char *description, struct disti_topology **topology_p);

void disti_topology_free(struct disti_topology *topology);

/* Return the rank after or before `rank` on the ring. */
int disti_ring_next(const struct disti_topology *topology, int rank);
int disti_ring_previous(const struct disti_topology *topology, int rank);

/* Return the node of a rank, the number of ranks on a node, and the i-th rank of a node (0: its
 * leader). */
int disti_node_of(const struct disti_topology *topology, int rank);
int disti_node_size(const struct disti_topology *topology, int node);
int disti_node_member(const struct disti_topology *topology, int node, int i);
/* A rank's neighbours in a rooted tree. */
#define DISTI_TREE_CHILDREN 64
struct disti_tree_neighbours {
    int parent; /* -1: the rank is the root */
    int children;
    int child[DISTI_TREE_CHILDREN]; /* in descending order of subtree size */
};

/* A binomial tree over the ranks from `root`, built inside the nodes first: one rank per node (the
 * root on its own node, otherwise the leader) is in the tree across the nodes. */
void disti_tree_binomial(const struct disti_topology *topology, int root, int rank,
                         struct disti_tree_neighbours *tree_p);

/*
 * The two trees of Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast,
 * reduction and scan", 2009. They are binary, and an inner vertex of one tree is a leaf of the
 * other. They are built over the nodes and then inside each node, so a rank has up to two children
 * in other nodes and two in its own, and a tree has nodes - 1 edges between nodes. `which` is 0 or
 * 1. In disti_tree_double() each tree has its own root, the rank without a parent. In
 * disti_tree_double_rooted() both trees are below `root`.
 */
void disti_tree_double(const struct disti_topology *topology, int which, int rank,
                       struct disti_tree_neighbours *tree_p);
void disti_tree_double_rooted(const struct disti_topology *topology, int which, int root, int rank,
                              struct disti_tree_neighbours *tree_p);

#endif
