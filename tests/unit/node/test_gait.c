/* SPDX-License-Identifier: BSD-3-Clause */
/* Which gait a rank's copies take, on a CPU for which it is told how long each takes. */
#include "base/clock.h"
#include "node/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define BYTES ((size_t)256 << 10)
#define SECOND ((int64_t)1000 * 1000 * 1000)
#define AREA ((size_t)32 << 20) /* so that seconds fit in 32 bits */
#define ENOUGH 40               /* calls: the first trials are over */

static struct disti_node *node;

static int node_make(void **state)
{
    (void)state;
    node = calloc(1, sizeof(*node)); /* its ring of areas has no room to grow */
    return node ? 0 : -1;
}

static int node_free(void **state)
{
    (void)state;
    free(node);
    return 0;
}

/* A call in which each gait takes so long. Returns the one that it took. */
static int call_of(dist_collective collective, enum disti_node_way way, bool past,
                   const int64_t *ns)
{
    struct disti_node_op op = {
        .call.collective = collective, .element_bytes = 1, .largest = BYTES, .way = way};

    disti_node_gait_choose(node, &op, past);
    op.worked_ns = ns[op.gait];
    disti_node_gait_learn(node, &op);
    return op.gait;
}

static int call_once(enum disti_node_way way, bool past, const int64_t *ns)
{
    return call_of(DIST_COLL_ALL_GATHER, way, past, ns);
}

static int call_often(enum disti_node_way way, bool past, const int64_t *ns)
{
    int gait = 0;

    for (int i = 0; i < ENOUGH; i++)
        gait = call_once(way, past, ns);
    return gait;
}

static void the_soonest_stays(void **state)
{
    int64_t ns[NODE_GAITS];

    (void)state;
    for (int gait = 0; gait < NODE_GAITS; gait++)
        ns[gait] = 40000;
    for (int soonest = 0; soonest < NODE_GAITS; soonest++) {
        node->gaits[DIST_COLL_ALL_GATHER][disti_node_size_class(&(struct disti_node_op){
            .element_bytes = 1, .largest = BYTES})] = (struct node_gaits){0};
        ns[soonest] = 10000;
        assert_int_equal(call_often(NODE_WAY_WINDOWS, true, ns), soonest);
        ns[soonest] = 40000;
    }
}

static void what_is_read_soon_stays_in_caches(void **state)
{
    const int64_t ns[NODE_GAITS] = {40000, 30000, 10000, 10000, 50000, 50000, 50000, 50000};

    (void)state;
    for (int i = 0; i < 3 * ENOUGH; i++)
        assert_false(call_once(NODE_WAY_WINDOWS, false, ns) & NODE_PAST);
    assert_int_equal(call_once(NODE_WAY_WINDOWS, false, ns), NODE_ASKS);
}

static void windows_are_streamed_where_that_is_soonest(void **state)
{
    const int64_t ns[NODE_GAITS] = {40000, 40000, 40000, 40000, 30000, 10000, 5000, 5000};
    const int64_t direct[NODE_GAITS] = {40000, 10000, 40000, 40000};
    int streamed = 0;

    (void)state;
    for (int i = 0; i < 8; i++) /* as many as the mover tries twice */
        streamed += (call_once(NODE_WAY_WINDOWS, false, ns) & NODE_STREAMS) != 0;
    assert_int_equal(streamed, 4);
    assert_int_equal(call_often(NODE_WAY_WINDOWS, false, ns), NODE_STREAMS | NODE_ASKS);
    call_once(NODE_WAY_DIRECT, false, direct);
    assert_int_equal(call_often(NODE_WAY_DIRECT, false, direct), NODE_ASKS);
}

/* The mover compares the kernel's copies with four calls through windows. */
static void a_copy_tries_several_soon(void **state)
{
    const int64_t ns[NODE_GAITS] = {40000, 40000, 40000, 40000, 40000, 40000, 40000, 40000};
    unsigned tried = 0;

    (void)state;
    for (int i = 0; i < 4; i++)
        tried |= 1U << call_once(NODE_WAY_WINDOWS, true, ns);
    assert_int_equal(tried, 1U << 0 | 1U << NODE_STREAMS | 1U << NODE_ASKS |
                                1U << (NODE_STREAMS | NODE_ASKS));
}

static void two_ranks_that_swap_do_not_stream(void **state)
{
    const int64_t ns[NODE_GAITS] = {40000, 40000, 40000, 40000, 5000, 5000, 5000, 5000};

    (void)state;
    node->ranks = 2;
    for (int i = 0; i < ENOUGH; i++)
        assert_true(call_of(DIST_COLL_ALL_REDUCE, NODE_WAY_SWAPPED, true, ns) < NODE_STREAMS);
}

static void segments_and_other_memory_are_told_apart(void **state)
{
    const int64_t windows[NODE_GAITS] = {10000, 30000, 40000, 40000, 50000, 50000, 50000, 50000};
    const int64_t direct[NODE_GAITS] = {30000, 10000, 40000, 40000, 50000, 50000, 50000, 50000};

    (void)state;
    assert_int_equal(call_often(NODE_WAY_WINDOWS, true, windows), 0);
    assert_int_equal(call_often(NODE_WAY_DIRECT, true, direct), NODE_ASKS);
    call_once(NODE_WAY_WINDOWS, true, windows); /* which it cannot know before */
    assert_int_equal(call_once(NODE_WAY_WINDOWS, true, windows), 0);
}

static void copies_of_the_kernel_tell_nothing(void **state)
{
    const int64_t kernel[NODE_GAITS] = {10000, 40000, 40000, 40000, 50000, 50000, 50000, 50000};
    const int64_t windows[NODE_GAITS] = {30000, 20000, 40000, 40000, 50000, 50000, 50000, 50000};

    (void)state;
    for (int i = 0; i < ENOUGH; i++) {
        call_once(NODE_WAY_CMA, true, kernel);
        call_once(NODE_WAY_WINDOWS, true, windows);
    }
    assert_int_equal(call_once(NODE_WAY_WINDOWS, true, windows), NODE_ASKS);
}

static void another_answer_is_found_later(void **state)
{
    const int64_t cold[NODE_GAITS] = {40000, 10000, 40000, 40000, 50000, 50000, 50000, 50000};
    const int64_t warm[NODE_GAITS] = {5000, 10000, 40000, 40000, 50000, 50000, 50000, 50000};

    (void)state;
    assert_int_equal(call_often(NODE_WAY_WINDOWS, true, cold), NODE_ASKS);
    call_often(NODE_WAY_WINDOWS, true, warm);
    assert_int_equal(call_often(NODE_WAY_WINDOWS, true, warm), 0);
}

/* A call through areas in which each gait takes so long. Returns the one that it took. */
static int area_of(dist_collective collective, const int64_t *ns)
{
    struct disti_node_op op = {.call.collective = collective, .element_bytes = 1, .largest = AREA};

    disti_node_area_begin(node, &op);
    op.worked_ns = ns[op.gait] - (op.tries_gait ? disti_now_ns() : 0);
    disti_node_area_end(node, &op);
    return op.gait;
}

static int area_often(dist_collective collective, const int64_t *ns)
{
    int gait = 0;

    for (int i = 0; i < ENOUGH; i++)
        gait = area_of(collective, ns);
    return gait;
}

/* Much longer than the clock's looks, on a machine that others use too. */
static void areas_are_streamed_where_that_is_sooner(void **state)
{
    const int64_t streams[NODE_GAITS] = {[0] = 8 * SECOND, [NODE_STREAMS] = 5 * SECOND};
    const int64_t stores[NODE_GAITS] = {[0] = 8 * SECOND, [NODE_STREAMS] = 7 * SECOND};

    (void)state;
    for (int i = 0; i < 8; i++)
        assert_int_equal(area_of(DIST_COLL_ALL_GATHER, streams), 0);
    assert_int_equal(area_of(DIST_COLL_ALL_GATHER, streams), 0);
    assert_int_equal(area_of(DIST_COLL_ALL_GATHER, streams), NODE_STREAMS);
    assert_int_equal(area_often(DIST_COLL_ALL_GATHER, streams), NODE_STREAMS);
    assert_int_equal(area_often(DIST_COLL_ALL_TO_ALL, stores), 0);
}

static void who_only_gives_streams_for_half(void **state)
{
    const int64_t some[NODE_GAITS] = {[0] = 8 * SECOND, [NODE_STREAMS] = 5 * SECOND};
    const int64_t much[NODE_GAITS] = {[0] = 8 * SECOND, [NODE_STREAMS] = 3 * SECOND};

    (void)state;
    assert_int_equal(area_often(DIST_COLL_BROADCAST, some), 0);
    assert_int_equal(area_often(DIST_COLL_GATHER, much), NODE_STREAMS);
}

static void sums_in_segments_ask(void **state)
{
    const int64_t ns[NODE_GAITS] = {10000, 40000, 40000, 40000, 50000, 50000, 50000, 50000};

    (void)state;
    call_of(DIST_COLL_ALL_REDUCE, NODE_WAY_DIRECT, true, ns);
    for (int i = 0; i < ENOUGH; i++) {
        int gait = call_of(DIST_COLL_ALL_REDUCE, NODE_WAY_DIRECT, i % 2, ns);

        assert_int_equal(gait, i % 2 ? NODE_ASKS | NODE_PAST : NODE_ASKS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_soonest_stays, node_make, node_free),
        cmocka_unit_test_setup_teardown(what_is_read_soon_stays_in_caches, node_make, node_free),
        cmocka_unit_test_setup_teardown(windows_are_streamed_where_that_is_soonest, node_make,
                                        node_free),
        cmocka_unit_test_setup_teardown(a_copy_tries_several_soon, node_make, node_free),
        cmocka_unit_test_setup_teardown(two_ranks_that_swap_do_not_stream, node_make, node_free),
        cmocka_unit_test_setup_teardown(segments_and_other_memory_are_told_apart, node_make,
                                        node_free),
        cmocka_unit_test_setup_teardown(copies_of_the_kernel_tell_nothing, node_make, node_free),
        cmocka_unit_test_setup_teardown(another_answer_is_found_later, node_make, node_free),
        cmocka_unit_test_setup_teardown(areas_are_streamed_where_that_is_sooner, node_make,
                                        node_free),
        cmocka_unit_test_setup_teardown(who_only_gives_streams_for_half, node_make, node_free),
        cmocka_unit_test_setup_teardown(sums_in_segments_ask, node_make, node_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
