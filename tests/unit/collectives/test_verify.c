/* SPDX-License-Identifier: BSD-3-Clause */
/* Verifies every algorithm for up to 64 ranks and several roots and topologies, in place or not. */
#include "topology/topology.h"
#include "verify/verify.h"

#include "../base/unit.h"

#include <stdlib.h>
#include <string.h>

#define RANKS_MAX 64

enum layout { FLAT, NESTED, UNEVEN, LAYOUTS };

/* NESTED: nodes of equal size with two packages, to which ranks are assigned in turn. UNEVEN: nodes
 * of different sizes. In both, the order of ranks differs from that of places. */
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
    if (algorithm->ordered && layout == FLAT && !verdict.ordered)
        fail_msg("%s, %d ranks, root %d, %u segments: not in the order of reproducible results",
                 algorithm->name, shape->ranks, shape->root, shape->segments);
}

/* True if this root is tested: all roots of few ranks; the ends and some between for many. */
static bool is_root_tested(const struct disti_algorithm *algorithm, int ranks, int root)
{
    if (!disti_collective_rooted(algorithm->collective))
        return root == 0;
    return ranks <= 16 || root <= 1 || root == ranks - 1 || root == ranks / 2 - 1 ||
           root == ranks * 2 / 3;
}

static bool has_in_place(dist_collective c)
{
    return c != DIST_COLL_BROADCAST && c != DIST_COLL_BARRIER && c != DIST_COLL_ALL_TO_ALL &&
           c != DIST_COLL_ALL_TO_ALL_V;
}

static void verify_shapes(const struct disti_algorithm *algorithm, int ranks, enum layout layout)
{
    static const uint32_t few[] = {1, 2, 5, 8}, many[] = {1, 3}; /* a ring has up to 4 channels */
    const uint32_t *segments = ranks <= 24 ? few : many;
    int depths = !algorithm->pieces ? 1 : ranks <= 24 ? 4 : 2;
    dist_collective c = algorithm->collective;
    struct disti_topology *topology = layout_topology(layout, ranks);

    for (int root = 0; root < ranks; root++) {
        for (int s = 0; s < depths && is_root_tested(algorithm, ranks, root); s++) {
            const struct disti_shape shape = {c, ranks, 0, root, segments[s], topology};

            verify_one(algorithm, &shape, false, layout);
            if (has_in_place(c))
                verify_one(algorithm, &shape, true, layout);
        }
    }
    disti_topology_free(topology);
}

/* True if this number of ranks is tested: all up to 17, and some powers of 2, their neighbours and
 * products; all if CHECK_LONG is set. */
static bool is_number_tested(int ranks)
{
    static const int some[] = {20, 23, 24, 27, 31, 32, 33, 36, 40, 47, 48, 63, RANKS_MAX};

    for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++) {
        if (ranks == some[i])
            return true;
    }
    return ranks <= 17 || getenv("CHECK_LONG");
}

/* Verifies all algorithms of a collective, and of its irregular form, whose plans are checked more
 * strictly. */
static void verify_collective(dist_collective collective, dist_collective also)
{
    int rows = 0;

    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++) {
        if (a->collective != collective && a->collective != also)
            continue;
        rows++;
        for (int ranks = 1; ranks <= RANKS_MAX; ranks++)
            for (enum layout layout = FLAT; layout < LAYOUTS && is_number_tested(ranks); layout++)
                verify_shapes(a, ranks, layout);
    }
    assert_true(rows > 1);
}

static void test_all_reduce_is_correct(void **state)
{
    (void)state;
    verify_collective(DIST_COLL_ALL_REDUCE, DIST_COLL_ALL_REDUCE);
}

static void test_broadcast_is_correct(void **state)
{
    (void)state;
    verify_collective(DIST_COLL_BROADCAST, DIST_COLL_BROADCAST);
}

static void test_barrier_is_correct(void **state)
{
    (void)state;
    verify_collective(DIST_COLL_BARRIER, DIST_COLL_BARRIER);
}

static void test_reduce_is_correct(void **state)
{
    (void)state;
    verify_collective(DIST_COLL_REDUCE, DIST_COLL_REDUCE);
}

static void test_all_gather_is_correct(void **state)
{
    (void)state;
    verify_collective(DIST_COLL_ALL_GATHER, DIST_COLL_ALL_GATHER_V);
}

static void test_reduce_scatter_is_correct(void **state)
{
    (void)state;
    verify_collective(DIST_COLL_REDUCE_SCATTER, DIST_COLL_REDUCE_SCATTER_V);
}

static void test_gather_is_correct(void **state)
{
    (void)state;
    verify_collective(DIST_COLL_GATHER, DIST_COLL_GATHER_V);
}

static void test_scatter_is_correct(void **state)
{
    (void)state;
    verify_collective(DIST_COLL_SCATTER, DIST_COLL_SCATTER_V);
}

static void test_all_to_all_is_correct(void **state)
{
    (void)state;
    verify_collective(DIST_COLL_ALL_TO_ALL, DIST_COLL_ALL_TO_ALL_V);
}

static uint32_t chunks_of(const struct disti_algorithm *a, const struct disti_shape *shape)
{
    struct disti_plan *plan = NULL;

    assert_int_equal(disti_plan_write(a, shape, &plan), DIST_OK);
    uint32_t chunks = plan->chunks;
    disti_plan_free(plan);
    return chunks;
}

/* Checks that the number of messages and the data sent are those in the algorithm's table row. */
static void cost_check(const struct disti_algorithm *a, int log)
{
    const struct disti_promise *promise = &a->promise;
    struct disti_topology *topology = layout_topology(FLAT, 1 << log);
    const struct disti_shape shape = {a->collective, 1 << log, 0, 0, 3, topology};
    int n = 1 << log, halves = n * log / 2;
    int messages = promise->each * (n - 1) + promise->pairs * n * (n - 1) +
                   promise->rounds * halves + promise->halves * n * n / 2;
    int blocks = promise->blocks_each * (n - 1) + promise->blocks_pairs * n * (n - 1) +
                 promise->blocks_rounds * halves;
    struct disti_verdict verdict;

    assert_true(messages > 0); /* the row must have a promise */
    messages *= promise->segmented ? 3 : 1;
    messages += promise->besides_each * (n - 1) + promise->besides_rounds * log;
    assert_int_equal(disti_verify_algorithm(a, &shape, false, &verdict), DIST_OK);
    assert_int_equal(verdict.messages, messages);
    if (blocks)
        assert_int_equal(verdict.chunks_sent, (uint32_t)blocks * chunks_of(a, &shape));
    disti_topology_free(topology);
}

static void test_algorithms_send_what_their_rows_promise(void **state)
{
    (void)state;
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++)
        for (int log = 1; log <= 4; log++)
            cost_check(a, log);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_reduce_is_correct),
        cmocka_unit_test(test_broadcast_is_correct),
        cmocka_unit_test(test_barrier_is_correct),
        cmocka_unit_test(test_reduce_is_correct),
        cmocka_unit_test(test_all_gather_is_correct),
        cmocka_unit_test(test_reduce_scatter_is_correct),
        cmocka_unit_test(test_gather_is_correct),
        cmocka_unit_test(test_scatter_is_correct),
        cmocka_unit_test(test_all_to_all_is_correct),
        cmocka_unit_test(test_algorithms_send_what_their_rows_promise),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
