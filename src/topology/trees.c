/* SPDX-License-Identifier: BSD-3-Clause */
/* Trees over the ranks: binomial trees and the double binary tree. */
#include "topology/topology.h"

/*
 * A binomial tree over 0 .. count - 1 with root 0. The parent of a number is the number without its
 * lowest bit. Its children are number + bit (if less than count) for each power of two `bit` below
 * the limit that this function returns. The subtree of that child v is [v, v + bit).
 *
 *          0
 *       /  |  \
 *      4   2   1
 *     /|   |
 *    6 5   3
 */
static int64_t binomial_limit(int number, int count)
{
    int64_t limit = 1;
    if (number != 0)
        return number & -number;
    while (limit < count)
        limit *= 2;
    return limit;
}

/* Inserts a child in descending order of subtree size, after children of equal size. */
static void tree_add_child(struct disti_tree_neighbours *tree, int *sizes, int child, int size)
{
    int i = tree->children++;
    for (; i > 0 && sizes[i - 1] < size; i--) {
        sizes[i] = sizes[i - 1];
        tree->child[i] = tree->child[i - 1];
    }
    sizes[i] = size;
    tree->child[i] = child;
}

/* Returns the rank that represents its node in the tree across the nodes. */
static int tree_delegate(const struct disti_topology *topology, int node, int root)
{
    return node == disti_node_of(topology, root) ? root : disti_node_member(topology, node, 0);
}

void disti_tree_binomial(const struct disti_topology *topology, int root, int rank,
                         struct disti_tree_neighbours *tree_p)
{
    int node = disti_node_of(topology, rank), nodes = topology->nodes;
    int size = disti_node_size(topology, node), first = topology->node_first[node];
    int sizes[DISTI_TREE_CHILDREN];
    *tree_p = (struct disti_tree_neighbours){.parent = -1};
    if (tree_delegate(topology, node, root) == rank) {
        /* Across the nodes, numbered from the root's node. */
        int home = disti_node_of(topology, root), number = (node - home + nodes) % nodes;
        if (number > 0)
            tree_p->parent =
                tree_delegate(topology, ((number & (number - 1)) + home) % nodes, root);
        for (int64_t bit = binomial_limit(number, nodes) / 2; bit > 0; bit /= 2) {
            if (number + bit >= nodes)
                continue;
            int child = (int)((number + bit + home) % nodes);
            int below = 0; /* number of ranks in the subtree */
            for (int64_t i = 0; i < bit && number + bit + i < nodes; i++)
                below += disti_node_size(topology, (int)((child + i) % nodes));
            tree_add_child(tree_p, sizes, tree_delegate(topology, child, root), below);
        }
    }
    /* Inside the rank's node, numbered from its delegate. */
    int home = topology->position[tree_delegate(topology, node, root)] - first;
    int number = (topology->position[rank] - first - home + size) % size;
    if (number > 0)
        tree_p->parent = disti_node_member(topology, node, ((number & (number - 1)) + home) % size);
    for (int64_t bit = binomial_limit(number, size) / 2; bit > 0; bit /= 2)
        if (number + bit < size)
            tree_add_child(tree_p, sizes,
                           disti_node_member(topology, node, (int)((number + bit + home) % size)),
                           (int)(bit < size - number - bit ? bit : size - number - bit));
}

/*
 * Tree 0 is a binary search tree over the numbers 1 .. count. The height of a number is the
 * position of its lowest bit, so odd numbers are leaves and even numbers are inner vertices.
 * Returns the root.
 *
 *                 8
 *          4             (12)         a right child greater than count is replaced by the first
 *       2     6       10              of its left descendants that exists
 *      1 3   5 7     9
 */
static int64_t inorder_root(int64_t count)
{
    int64_t root = 1;
    while (root * 2 <= count)
        root *= 2;
    return root;
}

/*
 * Returns the label, from 0 to count - 1, of a number in a tree. Tree 1 is tree 0 with odd and even
 * numbers exchanged: mirrored if the count is even, shifted by one if it is odd.
 */
static int double_label(int count, int which, int64_t number)
{
    if (which == 0)
        return (int)number - 1;
    return count % 2 == 0 ? count - (int)number : ((int)number - 2 + count) % count;
}

static void double_tree(int count, int which, int label, struct disti_tree_neighbours *tree_p)
{
    int64_t number = which == 0       ? label + 1
                     : count % 2 == 0 ? count - label
                                      : (label + 1) % count + 1;
    int64_t half = (number & -number) / 2, right = half;
    /*
     * The right child is number + half. If it exceeds the count, take the first of its left
     * descendants that does not.
     */
    while (right > 0 && number + right > count)
        right /= 2;
    *tree_p = (struct disti_tree_neighbours){.parent = -1};
    if (number != inorder_root(count)) {
        int64_t bit = number & -number, up = number;
        do {
            up = (up & ~bit) | bit << 1;
            bit <<= 1;
        } while (up > count);
        tree_p->parent = double_label(count, which, up);
    }
    if (half > 0)
        tree_p->child[tree_p->children++] = double_label(count, which, number - half);
    if (right > 0)
        tree_p->child[tree_p->children++] = double_label(count, which, number + right);
}

/*
 * The tree across the nodes connects one rank of each node, which is the root of the tree inside
 * its node. So a tree has nodes - 1 edges between nodes. In a node with several ranks, the two
 * trees have different roots, and the root of one is a leaf of the other.
 *
 *     node 0    node 1    node 2
 *    [0 1 2]   [3 4 5]   [6 7 8]          4          between the nodes
 *                                        / \
 *     tree 0: connects 1, 4 and 7       1   7
 *                                      / \ / \       and inside each node; 4 also has 3 and 5
 *                                     0  2 6  8
 */

/* Returns the rank of a node that is connected with other nodes. */
static int double_delegate(const struct disti_topology *topology, int which, int node)
{
    int size = disti_node_size(topology, node);
    return disti_node_member(topology, node, double_label(size, which, inorder_root(size)));
}

/*
 * Returns the label-th node of a tree without node `home`, counted from the node after it. home -1:
 * the tree has all nodes.
 */
static int double_node(const struct disti_topology *topology, int home, int label)
{
    return (home + 1 + label) % topology->nodes;
}

/*
 * Returns the label-th member of a node in a tree without member `skip`, counted from the member
 * after it. skip -1: the tree has all members.
 */
static int double_member(const struct disti_topology *topology, int node, int skip, int label)
{
    return disti_node_member(topology, node, (skip + 1 + label) % disti_node_size(topology, node));
}

/* Adds a rank's neighbours in its own node. */
static void double_inside(const struct disti_topology *topology, int which, int rank, int skip,
                          struct disti_tree_neighbours *tree)
{
    int node = disti_node_of(topology, rank), size = disti_node_size(topology, node);
    int at = topology->position[rank] - topology->node_first[node];
    struct disti_tree_neighbours in;
    double_tree(skip < 0 ? size : size - 1, which, (at - skip - 1 + size) % size, &in);
    if (in.parent >= 0)
        tree->parent = double_member(topology, node, skip, in.parent);
    for (int i = 0; i < in.children; i++)
        tree->child[tree->children++] = double_member(topology, node, skip, in.child[i]);
}

/*
 * Finds a rank's neighbours in a tree without node `home` (-1: with all nodes), whose root has the
 * parent `top`. Children in other nodes come first, since the data for them pass through the most
 * steps.
 */
static void double_neighbours(const struct disti_topology *topology, int which, int home, int rank,
                              int top, struct disti_tree_neighbours *tree_p)
{
    int node = disti_node_of(topology, rank), nodes = topology->nodes;
    *tree_p = (struct disti_tree_neighbours){.parent = top};
    if (double_delegate(topology, which, node) == rank) { /* its neighbours in other nodes */
        struct disti_tree_neighbours over;
        double_tree(home < 0 ? nodes : nodes - 1, which, (node - home - 1 + nodes) % nodes, &over);
        if (over.parent >= 0)
            tree_p->parent =
                double_delegate(topology, which, double_node(topology, home, over.parent));
        for (int i = 0; i < over.children; i++)
            tree_p->child[tree_p->children++] =
                double_delegate(topology, which, double_node(topology, home, over.child[i]));
    }
    double_inside(topology, which, rank, -1, tree_p);
}

void disti_tree_double(const struct disti_topology *topology, int which, int rank,
                       struct disti_tree_neighbours *tree_p)
{
    double_neighbours(topology, which, -1, rank, -1, tree_p);
}

void disti_tree_double_rooted(const struct disti_topology *topology, int which, int root, int rank,
                              struct disti_tree_neighbours *tree_p)
{
    int home = disti_node_of(topology, root), size = disti_node_size(topology, home);
    int skip = topology->position[root] - topology->node_first[home];
    if (disti_node_of(topology, rank) != home) {
        double_neighbours(topology, which, home, rank, root, tree_p);
        return;
    }
    *tree_p = (struct disti_tree_neighbours){.parent = rank == root ? -1 : root};
    if (rank != root) {
        double_inside(topology, which, rank, skip, tree_p);
        return;
    }
    if (topology->nodes > 1)
        tree_p->child[tree_p->children++] =
            double_delegate(topology, which,
                            double_node(topology, home,
                                        double_label(topology->nodes - 1, which,
                                                     inorder_root(topology->nodes - 1))));
    if (size > 1)
        tree_p->child[tree_p->children++] = double_member(
            topology, home, skip, double_label(size - 1, which, inorder_root(size - 1)));
}
