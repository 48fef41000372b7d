/* SPDX-License-Identifier: BSD-3-Clause */
/* The order of additions of reproducible results, and that the verifier distinguishes it from other
 * orders. */
#include "planted.h"

#include "../base/unit.h"

#include <string.h>

/* The additions in order: "10" adds rank 1's sum to rank 0's. At the end, rank 0 has the total. */
static const char *additions;

static void add_in_order(const struct disti_shape *shape, struct disti_builder *b)
{
    struct disti_chunk_ref value = disti_in(0);
    struct disti_chunk_ref sum = shape->rank == shape->root ? disti_out(0) : disti_scratch(0);

    disti_build_chunks(b, 1);
    disti_build_scratch(b, 1);
    uint16_t lane = disti_build_lane(b, 0);
    for (const char *a = additions; *a; a += 2) {
        int from = a[0] - '0', to = a[1] - '0';

        if (shape->rank == from)
            disti_build_send(b, .lane = lane, .peer = to, .src = value);
        if (shape->rank != to)
            continue;
        disti_build_recv_reduce(b, .lane = lane, .peer = from, .dst = sum, .src = value,
                                .finish = a[2] == '\0');
        value = sum;
    }
}

static bool is_ordered(const char *in_order, int ranks)
{
    struct disti_verdict verdict;

    additions = in_order;
    struct planted p = planted_own(DIST_COLL_REDUCE, add_in_order, ranks);
    assert_int_equal(disti_verify(p.plans, false, &verdict), DIST_OK);
    if (!verdict.ok)
        fail_msg("%s", verdict.text);
    planted_free(&p);
    return verdict.ordered;
}

/* Examples derived by hand from the definition in plan.h. */
static void test_only_the_defined_order_is_ordered(void **state)
{
    (void)state;
    assert_true(is_ordered("10", 2));
    assert_true(is_ordered("1020", 3)); /* (0 + 1) + 2 */
    assert_false(is_ordered("2010", 3));
    assert_false(is_ordered("2110", 3));
    assert_true(is_ordered("103220", 4)); /* (0 + 1) + (2 + 3) */
    assert_true(is_ordered("321020", 4));
    assert_false(is_ordered("203110", 4));
    assert_false(is_ordered("102030", 4));
    assert_true(is_ordered("10204330", 5)); /* ((0 + 1) + 2) + (3 + 4) */
    assert_false(is_ordered("10322040", 5));
    assert_true(is_ordered("1032205440", 6));   /* ((0 + 1) + (2 + 3)) + (4 + 5) */
    assert_true(is_ordered("103220546440", 7)); /* ((0 + 1) + (2 + 3)) + ((4 + 5) + 6) */
    assert_false(is_ordered("103220655440", 7));
    assert_true(is_ordered("10322054766440", 8));
    assert_false(is_ordered("10325476604020", 8));
}

static bool algorithm_is_ordered(dist_collective collective, const char *name, int ranks)
{
    struct planted p = planted_write(collective, name, ranks, 0, 2);
    struct disti_verdict verdict;

    assert_int_equal(disti_verify(p.plans, false, &verdict), DIST_OK);
    planted_free(&p);
    return verdict.ordered;
}

/* Algorithms of the table that are not declared as ordered, and are not. test_verify.c checks the
 * ordered ones. */
static void test_unordered_algorithms_are_detected(void **state)
{
    (void)state;
    assert_true(
        algorithm_is_ordered(DIST_COLL_ALL_REDUCE, "ring", 2)); /* there is only one order */
    assert_false(algorithm_is_ordered(DIST_COLL_ALL_REDUCE, "ring", 4));
    assert_false(algorithm_is_ordered(DIST_COLL_ALL_REDUCE, "tree", 4));
    assert_false(algorithm_is_ordered(DIST_COLL_ALL_REDUCE, "direct", 4));
    assert_false(algorithm_is_ordered(DIST_COLL_REDUCE, "chain", 4));
    assert_false(algorithm_is_ordered(DIST_COLL_REDUCE, "direct", 4));
    assert_false(algorithm_is_ordered(DIST_COLL_REDUCE_SCATTER, "recursive_halving", 8));
    assert_false(algorithm_is_ordered(DIST_COLL_ALL_GATHER, "ring", 4)); /* it does not add */
}

/* Two peers are exchanged in an ordered plan: the sum is still right, but its order is not. */
static void test_a_changed_order_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_REDUCE, "direct_ordered", 8, 3, 1);
    struct disti_step *one = planted_find(&p, 3, DISTI_RECV, 0);
    struct disti_step *other = planted_find(&p, 3, DISTI_RECV, 1);
    struct disti_verdict verdict;
    int peer = one->peer;

    (void)state;
    one->peer = other->peer;
    other->peer = peer;
    assert_int_equal(disti_verify(p.plans, false, &verdict), DIST_OK);
    assert_true(verdict.ok);
    assert_false(verdict.ordered);
    planted_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_the_defined_order_is_ordered),
        cmocka_unit_test(test_unordered_algorithms_are_detected),
        cmocka_unit_test(test_a_changed_order_is_detected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
