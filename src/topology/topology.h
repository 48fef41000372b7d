/* SPDX-License-Identifier: BSD-3-Clause */
/* Where the ranks are, and the rings and trees that follow from it. Pure. */
#ifndef DISTI_TOPOLOGY_TOPOLOGY_H
#define DISTI_TOPOLOGY_TOPOLOGY_H

#include <dist/backend.h>

/*
 * The ranks by locality. `order` lists them so that each node is entered and left once,
 * and inside it package, NUMA node and core follow each other: the ring. Ranks on one
 * node stand together: node i has order[node_first[i] .. node_first[i + 1]); the
 * first of them is its leader.
 */
struct disti_topology {
    int ranks;
    int nodes;
    struct dist_place *localities; /* by rank */
    int *order;                    /* by position */
    int *position;                 /* by rank: order[position[r]] == r */
    int *node_first;               /* nodes + 1 entries */
    bool uniform;                  /* every node has the same number of ranks */
    int rack_nodes;                /* nodes 0 .. rack_nodes - 1 are in rack 0, ...; 0: not known */
};

/*
 * From localities[ranks] (copied). Nodes may carry any numbers; they are renumbered from 0 in rank
 * order. ERR_NO_MEMORY, ERR_INVALID_ARGUMENT. The caller frees it.
 */
dist_status disti_topology_create(const struct dist_place *localities, int ranks,
                                  struct disti_topology **topology_p);

/*
 * All ranks on one node, or as a description says, for tests and simulations: "node:4 package:2
 * core:8" is 4 nodes of 2 packages of 8 cores with a rank each. Levels are rack, node, package,
 * numa, core, in this order; any may be missing. ERR_INVALID_ARGUMENT says what is wrong with it.
 */
dist_status disti_topology_flat(int ranks, struct disti_topology **topology_p);
dist_status disti_topology_synthetic(const char *description, struct disti_topology **topology_p);

void disti_topology_free(struct disti_topology *topology);

/* The ring: who follows and who precedes rank. */
int disti_ring_next(const struct disti_topology *topology, int rank);
int disti_ring_previous(const struct disti_topology *topology, int rank);

/* The node (0 ..) of a rank, the ranks on a node, its i-th rank, and its leader. */
int disti_node_of(const struct disti_topology *topology, int rank);
int disti_node_size(const struct disti_topology *topology, int node);
int disti_node_member(const struct disti_topology *topology, int node, int i);
/* A rank's neighbours in a rooted tree. */
#define DISTI_TREE_CHILDREN 64
struct disti_tree_neighbours {
    int parent; /* -1: the root */
    int children;
    int child[DISTI_TREE_CHILDREN]; /* the one with the largest subtree first */
};

/*
 * A binomial tree over the ranks, rooted at root, built inside the nodes first: one rank a
 * node (the root on its own node, else the leader) is in the tree across the nodes.
 */
void disti_tree_binomial(const struct disti_topology *topology, int root, int rank,
                         struct disti_tree_neighbours *tree_p);

/*
 * The two trees of Sanders, Speck, Traeff, "Two-tree algorithms for full bandwidth broadcast,
 * reduction and scan", 2009: binary; a rank that is inner in one is a leaf in the other. They are
 * built over the nodes, and inside each node again, so that a rank has up to two children in other
 * nodes and two in its own, and nodes - 1 edges of a tree lie between nodes. which is 0 or 1. Each
 * is rooted at its own root, the rank without a parent; or, rooted, both hang below `root`.
 */
void disti_tree_double(const struct disti_topology *topology, int which, int rank,
                       struct disti_tree_neighbours *tree_p);
void disti_tree_double_rooted(const struct disti_topology *topology, int which, int root, int rank,
                              struct disti_tree_neighbours *tree_p);

#endif
