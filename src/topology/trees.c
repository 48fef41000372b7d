/* SPDX-License-Identifier: BSD-3-Clause */
/* Trees over the ranks: binomial by nodes, and the double binary tree. */
#include "topology/topology.h"

/*
 * Binomial, over 0 .. count - 1, root 0: the parent is the number without its lowest bit, the
 * children add a bit below that one. The subtree of v under a bit is [v, v + bit).
 *
 *          0
 *       /  |  \
 *      4   2   1
 *     /|   |
 *    6 5   3
 */
static int binomial_parent(int number)
{
    return number == 0 ? -1 : number & (number - 1);
}

/* The bits of the children are those below this one. */
static int64_t binomial_limit(int number, int count)
{
    int64_t limit = 1;
    if (number != 0)
        return number & -number;
    while (limit < count)
        limit *= 2;
    return limit;
}

/* Ranks on `count` nodes from `node` on, round the end. */
static int tree_node_ranks(const struct disti_topology *topology, int node, int64_t count)
{
    int ranks = 0;
    for (int64_t i = 0; i < count; i++)
        ranks += disti_node_size(topology, (int)((node + i) % topology->nodes));
    return ranks;
}

/* Inserts a child by the size of its subtree, behind those as large. */
static void tree_add_child(struct disti_tree_place *place, int *sizes, int child, int size)
{
    int i = place->children++;
    for (; i > 0 && sizes[i - 1] < size; i--) {
        sizes[i] = sizes[i - 1];
        place->child[i] = place->child[i - 1];
    }
    sizes[i] = size;
    place->child[i] = child;
}

static int64_t tree_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The rank of a node that stands for it between the nodes. */
static int tree_delegate(const struct disti_topology *topology, int node, int root)
{
    return node == disti_node_of(topology, root) ? root : disti_node_leader(topology, node);
}

/* Between the nodes, counted from the root's node. */
static void tree_across(const struct disti_topology *topology, int root, int rank,
                        struct disti_tree_place *place, int *sizes)
{
    int nodes = topology->nodes, home = disti_node_of(topology, root);
    int number = (disti_node_of(topology, rank) - home + nodes) % nodes;
    int parent = binomial_parent(number);
    if (parent >= 0)
        place->parent = tree_delegate(topology, (parent + home) % nodes, root);
    for (int64_t bit = binomial_limit(number, nodes) / 2; bit > 0; bit /= 2) {
        if (number + bit >= nodes)
            continue;
        int node = (int)((number + bit + home) % nodes);
        int below = tree_node_ranks(topology, node, tree_least(bit, nodes - number - bit));
        tree_add_child(place, sizes, tree_delegate(topology, node, root), below);
    }
}

/* Inside the rank's node, counted from its delegate. */
static void tree_inside(const struct disti_topology *topology, int root, int rank,
                        struct disti_tree_place *place, int *sizes)
{
    int node = disti_node_of(topology, rank), size = disti_node_size(topology, node);
    int first = topology->node_first[node];
    int home = topology->position[tree_delegate(topology, node, root)] - first;
    int number = (topology->position[rank] - first - home + size) % size;
    int parent = binomial_parent(number);
    if (parent >= 0)
        place->parent = disti_node_member(topology, node, (parent + home) % size);
    for (int64_t bit = binomial_limit(number, size) / 2; bit > 0; bit /= 2)
        if (number + bit < size)
            tree_add_child(place, sizes,
                           disti_node_member(topology, node, (int)((number + bit + home) % size)),
                           (int)tree_least(bit, size - number - bit));
}

void disti_tree_binomial(const struct disti_topology *topology, int root, int rank,
                         struct disti_tree_place *place_p)
{
    int sizes[DISTI_TREE_CHILDREN];
    *place_p = (struct disti_tree_place){.parent = -1};
    if (tree_delegate(topology, disti_node_of(topology, rank), root) == rank)
        tree_across(topology, root, rank, place_p, sizes);
    tree_inside(topology, root, rank, place_p, sizes);
}

/*
 * Tree 0, over numbers 1 .. count in order: a number's height is that of its lowest bit, so that
 * odd numbers are leaves and even ones inner.
 *
 *                 8
 *          4             (12)         a right child beyond the end is replaced by
 *       2     6       10              the first of its left descendants that exists
 *      1 3   5 7     9
 */
static int64_t inorder_up(int64_t number, int64_t count)
{
    int64_t bit = number & -number, up = number;
    do {
        up = (up & ~bit) | bit << 1;
        bit <<= 1;
    } while (up > count);
    return up;
}

static int64_t inorder_root(int64_t count)
{
    int64_t root = 1;
    while (root * 2 <= count)
        root *= 2;
    return root;
}

/* The right child is half the height above, or less where the tree has its edge. */
static int64_t inorder_right(int64_t number, int64_t count)
{
    int64_t half = (number & -number) / 2;
    while (half > 0 && number + half > count)
        half /= 2;
    return half > 0 ? number + half : 0;
}

/*
 * Tree 1 is tree 0 with the numbers turned so that odd and even change sides: mirrored when the
 * count is even, shifted by one when it is odd.
 */
static int double_number(int count, int which, int label)
{
    if (which == 0)
        return label + 1;
    return count % 2 == 0 ? count - label : (label + 1) % count + 1;
}

static int double_label(int count, int which, int64_t number)
{
    if (which == 0)
        return (int)number - 1;
    return count % 2 == 0 ? count - (int)number : ((int)number - 2 + count) % count;
}

int disti_tree_double_label_root(int count, int which)
{
    return double_label(count, which, inorder_root(count));
}

void disti_tree_double_label(int count, int which, int label, struct disti_tree_place *place_p)
{
    int64_t number = double_number(count, which, label), half = (number & -number) / 2;
    int64_t right = inorder_right(number, count);
    *place_p = (struct disti_tree_place){.parent = -1};
    if (number != inorder_root(count))
        place_p->parent = double_label(count, which, inorder_up(number, count));
    if (half > 0)
        place_p->child[place_p->children++] = double_label(count, which, number - half);
    if (right > 0)
        place_p->child[place_p->children++] = double_label(count, which, right);
}

void disti_tree_double(const struct disti_topology *topology, int which, int rank,
                       struct disti_tree_place *place_p)
{
    disti_tree_double_label(topology->ranks, which, topology->position[rank], place_p);
    if (place_p->parent >= 0)
        place_p->parent = topology->order[place_p->parent];
    for (int i = 0; i < place_p->children; i++)
        place_p->child[i] = topology->order[place_p->child[i]];
}

int disti_tree_double_root(const struct disti_topology *topology, int which)
{
    return topology->order[disti_tree_double_label_root(topology->ranks, which)];
}
