/* SPDX-License-Identifier: BSD-3-Clause */
/* Trees: parents and children are consistent, all ranks are reached, and the depth is limited. */
#include "topology/topology.h"

#include "../base/unit.h"

#define RANKS_MAX 96

static int log2_up(int count)
{
    int log = 0;

    while (1 << log < count)
        log++;
    return log;
}

/* Checks that parents and children match and that the path up from each rank leads to the root, the
 * only rank without a parent. Returns the depth. */
static int tree_check(const struct disti_tree_neighbours *trees, int ranks, int root)
{
    int depth = 0, children = 0;

    for (int rank = 0; rank < ranks; rank++) {
        int up = rank, steps = 0;

        for (; trees[up].parent >= 0 && steps <= ranks; steps++)
            up = trees[up].parent;
        assert_int_equal(up, root);
        depth = steps > depth ? steps : depth;
        children += trees[rank].children;
        for (int i = 0; i < trees[rank].children; i++)
            assert_int_equal(trees[trees[rank].child[i]].parent, rank);
    }
    assert_int_equal(children, ranks - 1);
    return depth;
}

static void places_spread(struct dist_place *spread, int ranks, int kind)
{
    for (int rank = 0; rank < ranks; rank++) {
        int node = kind == 0 ? 0 : kind == 1 ? rank % 5 : rank * rank % 11;

        spread[rank] = (struct dist_place){node, -1, -1, ranks - rank, -1};
    }
}

/* Checks that the number of edges between nodes is the number of nodes minus 1. */
static void assert_crossings(const struct disti_topology *topology,
                             const struct disti_tree_neighbours *trees)
{
    int crossings = 0;

    for (int rank = 0; rank < topology->ranks; rank++)
        if (trees[rank].parent >= 0)
            crossings +=
                disti_node_of(topology, rank) != disti_node_of(topology, trees[rank].parent);
    assert_int_equal(crossings, topology->nodes - 1);
}

static int largest_node(const struct disti_topology *topology)
{
    int largest = 0;

    for (int node = 0; node < topology->nodes; node++)
        if (disti_node_size(topology, node) > largest)
            largest = disti_node_size(topology, node);
    return largest;
}

/* root -1: each tree has its own root. */
static void double_check(const struct disti_topology *topology, int root)
{
    static struct disti_tree_neighbours trees[2][RANKS_MAX];
    int limit = log2_up(topology->nodes + 1) + log2_up(largest_node(topology) + 1);

    for (int which = 0; which < 2; which++) {
        for (int rank = 0; rank < topology->ranks; rank++) {
            struct disti_tree_neighbours *tree = &trees[which][rank];

            if (root < 0)
                disti_tree_double(topology, which, rank, tree);
            else
                disti_tree_double_rooted(topology, which, root, rank, tree);
            assert_true(tree->children <= 4);
        }
        int top = root;
        for (int rank = 0; rank < topology->ranks && top < 0; rank++)
            top = trees[which][rank].parent < 0 ? rank : -1;
        int depth = tree_check(trees[which], topology->ranks, top);
        assert_true(depth <= limit + (root >= 0));
        assert_crossings(topology, trees[which]);
    }
    for (int rank = 0; rank < topology->ranks; rank++)
        assert_true(rank == root || trees[0][rank].children == 0 || trees[1][rank].children == 0);
}

static void test_double_trees_are_complementary(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS_MAX; ranks += ranks < 40 ? 1 : 7) {
        for (int kind = 0; kind < 3; kind++) {
            struct dist_place spread[RANKS_MAX];
            struct disti_topology *topology = NULL;

            places_spread(spread, ranks, kind);
            assert_int_equal(disti_topology_create(spread, ranks, &topology), DIST_OK);
            for (int root = -1; root < ranks; root += root < 5 ? 1 : 11)
                double_check(topology, root);
            disti_topology_free(topology);
        }
    }
}

static void binomial_check(const struct disti_topology *topology, int root)
{
    static struct disti_tree_neighbours trees[RANKS_MAX];

    for (int rank = 0; rank < topology->ranks; rank++)
        disti_tree_binomial(topology, root, rank, &trees[rank]);
    assert_true(tree_check(trees, topology->ranks, root) <=
                log2_up(topology->nodes) + log2_up(largest_node(topology)));
    assert_crossings(topology, trees);
}

/* Returns the number of ranks in the subtree of this rank, including itself. */
static int subtree_size(const struct disti_tree_neighbours *trees, int rank)
{
    int size = 1;

    for (int i = 0; i < trees[rank].children; i++)
        size += subtree_size(trees, trees[rank].child[i]);
    return size;
}

static void test_binomial_trees_are_shallow(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS_MAX; ranks += ranks < 20 ? 1 : 7) {
        for (int kind = 0; kind < 3; kind++) {
            struct dist_place spread[RANKS_MAX];
            struct disti_topology *topology = NULL;

            places_spread(spread, ranks, kind);
            assert_int_equal(disti_topology_create(spread, ranks, &topology), DIST_OK);
            for (int root = 0; root < ranks; root++)
                binomial_check(topology, root);
            disti_topology_free(topology);
        }
    }
}

static void test_larger_subtrees_are_first(void **state)
{
    static struct disti_tree_neighbours trees[RANKS_MAX];
    struct dist_place spread[RANKS_MAX];
    struct disti_topology *topology = NULL;

    (void)state;
    places_spread(spread, 77, 2);
    assert_int_equal(disti_topology_create(spread, 77, &topology), DIST_OK);
    for (int rank = 0; rank < 77; rank++)
        disti_tree_binomial(topology, 40, rank, &trees[rank]);
    for (int rank = 0; rank < 77; rank++)
        for (int i = 1; i < trees[rank].children; i++)
            assert_true(subtree_size(trees, trees[rank].child[i - 1]) >=
                        subtree_size(trees, trees[rank].child[i]));
    disti_topology_free(topology);
}

/* The drawing in the source: 8 ranks on one node. */
static void test_a_binomial_tree_has_the_documented_shape(void **state)
{
    static const int parents[] = {-1, 0, 0, 2, 0, 4, 4, 6};
    struct disti_topology *topology = NULL;
    struct disti_tree_neighbours tree;

    (void)state;
    assert_int_equal(disti_topology_flat(8, &topology), DIST_OK);
    for (int rank = 0; rank < 8; rank++) {
        disti_tree_binomial(topology, 0, rank, &tree);
        assert_int_equal(tree.parent, parents[rank]);
    }
    disti_topology_free(topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_double_trees_are_complementary),
        cmocka_unit_test(test_binomial_trees_are_shallow),
        cmocka_unit_test(test_larger_subtrees_are_first),
        cmocka_unit_test(test_a_binomial_tree_has_the_documented_shape),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
