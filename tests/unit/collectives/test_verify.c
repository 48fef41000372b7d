/* SPDX-License-Identifier: BSD-3-Clause */
/* Every algorithm is right: for every number of ranks, root, topology, in place or not. */
#include "collectives/verify.h"
#include "topology/topology.h"

#include "../base/unit.h"

#include <string.h>

#define RANKS_MAX 64

enum layout { FLAT, NESTED, UNEVEN, LAYOUTS };

/*
 * NESTED: nodes of equal size, of two packages, their ranks dealt round; UNEVEN: nodes of several
 * sizes. In both the order of ranks and that of places differ.
 */
static struct disti_topology *layout_topology(enum layout layout, int ranks)
{
    struct disti_topology *topology = NULL;
    struct dist_place places[RANKS_MAX];
    int nodes = ranks % 4 == 0 ? 4 : ranks % 3 == 0 ? 3 : ranks % 2 == 0 ? 2 : ranks;

    for (int rank = 0; rank < ranks; rank++) {
        places[rank] = (struct dist_place){0, -1, -1, rank, -1};
        if (layout == NESTED)
            places[rank] =
                (struct dist_place){rank % nodes, rank / nodes % 2, -1, ranks - rank, -1};
        if (layout == UNEVEN)
            places[rank] = (struct dist_place){rank * rank % 11 % 5, -1, rank % 2, rank, -1};
    }
    assert_int_equal(disti_topology_create(places, ranks, &topology), DIST_OK);
    return topology;
}

static void verify_one(const struct disti_algorithm *algorithm, const struct disti_shape *shape,
                       bool in_place, enum layout layout)
{
    struct disti_verdict verdict;

    assert_int_equal(disti_verify_algorithm(algorithm, shape, in_place, &verdict), DIST_OK);
    if (!verdict.ok)
        fail_msg("%s, %d ranks, root %d, %u segments, layout %d%s: %s", algorithm->name,
                 shape->ranks, shape->root, shape->segments, layout, in_place ? ", in place" : "",
                 verdict.text);
}

static void verify_shapes(const struct disti_algorithm *algorithm, int ranks, enum layout layout)
{
    static const uint32_t few[] = {1, 2, 5, 8}, many[] = {1, 3}; /* a ring has up to 4 channels */
    const uint32_t *segments = ranks <= 24 ? few : many;
    int depths = !algorithm->pieces ? 1 : ranks <= 24 ? 4 : 2;
    dist_collective c = algorithm->collective;
    struct disti_topology *topology = layout_topology(layout, ranks);
    int roots = c == DIST_COLL_BROADCAST ? ranks : 1;
    bool apart = c == DIST_COLL_ALL_REDUCE || c == DIST_COLL_ALL_GATHER;

    for (int root = 0; root < roots; root++) {
        for (int s = 0; s < depths; s++) {
            const struct disti_shape shape = {c, ranks, 0, root, segments[s], topology};

            verify_one(algorithm, &shape, false, layout);
            if (apart)
                verify_one(algorithm, &shape, true, layout);
        }
    }
    disti_topology_free(topology);
}

static void verify_collective(dist_collective collective)
{
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++)
        for (int ranks = 1; ranks <= RANKS_MAX && a->collective == collective; ranks++)
            for (enum layout layout = FLAT; layout < LAYOUTS; layout++)
                verify_shapes(a, ranks, layout);
}

static void test_all_reduce(void **state)
{
    (void)state;
    verify_collective(DIST_COLL_ALL_REDUCE);
}

static void test_broadcast(void **state)
{
    (void)state;
    verify_collective(DIST_COLL_BROADCAST);
}

static void test_barrier(void **state)
{
    (void)state;
    verify_collective(DIST_COLL_BARRIER);
}

static void test_all_gather(void **state)
{
    (void)state;
    verify_collective(DIST_COLL_ALL_GATHER);
}

static int log2_up(int count)
{
    int log = 0;

    while (1 << log < count)
        log++;
    return log;
}

/* Messages that the algorithm's description promises, over all ranks; segments is S. */
static uint64_t cost_of(const struct disti_algorithm *a, uint64_t n, uint64_t segments)
{
    uint64_t steps = (uint64_t)log2_up((int)n);

    if (a->collective == DIST_COLL_ALL_GATHER)
        return n * (n - 1) * (strcmp(a->name, "ring") == 0 ? segments : 1);
    if (strcmp(a->name, "ring") == 0 || strcmp(a->name, "direct") == 0 ||
        strcmp(a->name, "hierarchical") == 0)
        return n * 2 * (n - 1) * segments;
    if (strcmp(a->name, "chain") == 0)
        return (n - 1) * segments;
    if (strcmp(a->name, "binomial") == 0)
        return n - 1;
    if (strcmp(a->name, "halving_doubling") == 0)
        return n * 2 * steps;
    if (strcmp(a->name, "tree") == 0)
        return (n - 1) * (a->collective == DIST_COLL_ALL_REDUCE  ? 4 * segments
                          : a->collective == DIST_COLL_BROADCAST ? 2 * segments
                                                                 : 2);
    return n * steps; /* recursive doubling, dissemination */
}

static void test_costs(void **state)
{
    (void)state;
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++) {
        if (disti_collective_pair(a->collective))
            continue;
        for (int ranks = 2; ranks <= 16; ranks *= 2) {
            struct disti_topology *topology = layout_topology(FLAT, ranks);
            const struct disti_shape shape = {a->collective, ranks, 0, 0, 3, topology};
            struct disti_verdict verdict;

            assert_int_equal(disti_verify_algorithm(a, &shape, false, &verdict), DIST_OK);
            assert_int_equal(verdict.messages, cost_of(a, (uint64_t)ranks, 3));
            if (strcmp(a->name, "halving_doubling") == 0) /* each rank 2 (n - 1) / n vectors */
                assert_int_equal(verdict.chunks_sent, ranks * 2 * (ranks - 1));
            disti_topology_free(topology);
        }
    }
}

static void test_too_many_ranks(void **state)
{
    const struct disti_algorithm *ring = disti_algorithm_find(DIST_COLL_ALL_REDUCE, "ring");
    struct disti_topology *topology = NULL;
    struct disti_verdict verdict;

    (void)state;
    assert_int_equal(disti_topology_flat(65, &topology), DIST_OK);
    const struct disti_shape shape = {DIST_COLL_ALL_REDUCE, 65, 0, 0, 1, topology};
    assert_int_equal(disti_verify_algorithm(ring, &shape, false, &verdict),
                     DIST_ERR_INVALID_ARGUMENT);
    disti_topology_free(topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce), cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_barrier),    cmocka_unit_test(test_all_gather),
        cmocka_unit_test(test_costs),      cmocka_unit_test(test_too_many_ranks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
