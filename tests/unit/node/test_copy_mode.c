/* SPDX-License-Identifier: BSD-3-Clause */
/* Which copy mode a rank's copies take, on a CPU for which it is told how long each takes. */
#include "base/clock.h"
#include "node/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define BYTES ((size_t)256 << 10)
#define SECOND ((int64_t)1000 * 1000 * 1000)
#define OVERFLOW ((size_t)32 << 20) /* so that seconds fit in 32 bits */
#define ENOUGH 40                   /* calls: the first trials are over */

static struct disti_node *node;

static int node_make(void **state)
{
    (void)state;
    node = calloc(1, sizeof(*node)); /* its ring of overflow slots has no room to grow */
    return node ? 0 : -1;
}

static int node_free(void **state)
{
    (void)state;
    free(node);
    return 0;
}

/* A call in which each copy mode takes so long. Returns the one that it took. */
static int call_of(dist_collective collective, enum disti_node_way way, bool past,
                   const int64_t *ns)
{
    struct disti_node_op op = {
        .call.collective = collective, .element_bytes = 1, .largest = BYTES, .way = way};

    disti_node_copy_mode_choose(node, &op, past);
    op.worked_ns = ns[op.copy_mode];
    disti_node_copy_mode_learn(node, &op);
    return op.copy_mode;
}

static int call_once(enum disti_node_way way, bool past, const int64_t *ns)
{
    return call_of(DIST_COLL_ALL_GATHER, way, past, ns);
}

static int call_often(enum disti_node_way way, bool past, const int64_t *ns)
{
    int copy_mode = 0;

    for (int i = 0; i < ENOUGH; i++)
        copy_mode = call_once(way, past, ns);
    return copy_mode;
}

static void the_soonest_stays(void **state)
{
    int64_t ns[NODE_COPY_MODES];

    (void)state;
    for (int copy_mode = 0; copy_mode < NODE_COPY_MODES; copy_mode++)
        ns[copy_mode] = 40000;
    for (int soonest = 0; soonest < NODE_COPY_MODES; soonest++) {
        node->copy_modes[DIST_COLL_ALL_GATHER][disti_node_size_class(&(struct disti_node_op){
            .element_bytes = 1, .largest = BYTES})] = (struct node_copy_modes){0};
        ns[soonest] = 10000;
        assert_int_equal(call_often(NODE_WAY_BOUNCES, true, ns), soonest);
        ns[soonest] = 40000;
    }
}

static void what_is_read_soon_stays_in_caches(void **state)
{
    const int64_t ns[NODE_COPY_MODES] = {40000, 30000, 10000, 10000, 50000, 50000, 50000, 50000};

    (void)state;
    for (int i = 0; i < 3 * ENOUGH; i++)
        assert_false(call_once(NODE_WAY_BOUNCES, false, ns) & NODE_PAST);
    assert_int_equal(call_once(NODE_WAY_BOUNCES, false, ns), NODE_ASKS);
}

static void bounces_are_streamed_where_that_is_soonest(void **state)
{
    const int64_t ns[NODE_COPY_MODES] = {40000, 40000, 40000, 40000, 30000, 10000, 5000, 5000};
    const int64_t direct[NODE_COPY_MODES] = {40000, 10000, 40000, 40000};
    int streamed = 0;

    (void)state;
    for (int i = 0; i < 8; i++) /* as many as the selector tries twice */
        streamed += (call_once(NODE_WAY_BOUNCES, false, ns) & NODE_STREAMS) != 0;
    assert_int_equal(streamed, 4);
    assert_int_equal(call_often(NODE_WAY_BOUNCES, false, ns), NODE_STREAMS | NODE_ASKS);
    call_once(NODE_WAY_DIRECT, false, direct);
    assert_int_equal(call_often(NODE_WAY_DIRECT, false, direct), NODE_ASKS);
}

/* The selector compares the kernel's copies with four calls through bounce buffers. */
static void a_copy_tries_several_soon(void **state)
{
    const int64_t ns[NODE_COPY_MODES] = {40000, 40000, 40000, 40000, 40000, 40000, 40000, 40000};
    unsigned tried = 0;

    (void)state;
    for (int i = 0; i < 4; i++)
        tried |= 1U << call_once(NODE_WAY_BOUNCES, true, ns);
    assert_int_equal(tried, 1U << 0 | 1U << NODE_STREAMS | 1U << NODE_ASKS |
                                1U << (NODE_STREAMS | NODE_ASKS));
}

static void two_ranks_that_swap_do_not_stream(void **state)
{
    const int64_t ns[NODE_COPY_MODES] = {40000, 40000, 40000, 40000, 5000, 5000, 5000, 5000};

    (void)state;
    node->ranks = 2;
    for (int i = 0; i < ENOUGH; i++)
        assert_true(call_of(DIST_COLL_ALL_REDUCE, NODE_WAY_SWAPPED, true, ns) < NODE_STREAMS);
}

static void segments_and_other_memory_are_told_apart(void **state)
{
    const int64_t bounces[NODE_COPY_MODES] = {10000, 30000, 40000, 40000,
                                              50000, 50000, 50000, 50000};
    const int64_t direct[NODE_COPY_MODES] = {30000, 10000, 40000, 40000,
                                             50000, 50000, 50000, 50000};

    (void)state;
    assert_int_equal(call_often(NODE_WAY_BOUNCES, true, bounces), 0);
    assert_int_equal(call_often(NODE_WAY_DIRECT, true, direct), NODE_ASKS);
    call_once(NODE_WAY_BOUNCES, true, bounces); /* which it cannot know before */
    assert_int_equal(call_once(NODE_WAY_BOUNCES, true, bounces), 0);
}

static void copies_of_the_kernel_tell_nothing(void **state)
{
    const int64_t kernel[NODE_COPY_MODES] = {10000, 40000, 40000, 40000,
                                             50000, 50000, 50000, 50000};
    const int64_t bounces[NODE_COPY_MODES] = {30000, 20000, 40000, 40000,
                                              50000, 50000, 50000, 50000};

    (void)state;
    for (int i = 0; i < ENOUGH; i++) {
        call_once(NODE_WAY_CMA, true, kernel);
        call_once(NODE_WAY_BOUNCES, true, bounces);
    }
    assert_int_equal(call_once(NODE_WAY_BOUNCES, true, bounces), NODE_ASKS);
}

static void another_answer_is_found_later(void **state)
{
    const int64_t cold[NODE_COPY_MODES] = {40000, 10000, 40000, 40000, 50000, 50000, 50000, 50000};
    const int64_t warm[NODE_COPY_MODES] = {5000, 10000, 40000, 40000, 50000, 50000, 50000, 50000};

    (void)state;
    assert_int_equal(call_often(NODE_WAY_BOUNCES, true, cold), NODE_ASKS);
    call_often(NODE_WAY_BOUNCES, true, warm);
    assert_int_equal(call_often(NODE_WAY_BOUNCES, true, warm), 0);
}

/* A call through overflow slots in which each copy mode takes so long. Returns the one that it
 * took. */
static int overflow_of(dist_collective collective, const int64_t *ns)
{
    struct disti_node_op op = {
        .call.collective = collective, .element_bytes = 1, .largest = OVERFLOW};

    disti_node_overflow_begin(node, &op);
    op.worked_ns = ns[op.copy_mode] - (op.tries_copy_mode ? disti_now_ns() : 0);
    disti_node_overflow_end(node, &op);
    return op.copy_mode;
}

static int overflow_often(dist_collective collective, const int64_t *ns)
{
    int copy_mode = 0;

    for (int i = 0; i < ENOUGH; i++)
        copy_mode = overflow_of(collective, ns);
    return copy_mode;
}

/* Much longer than the clock's looks, on a machine that others use too. */
static void overflows_are_streamed_where_that_is_sooner(void **state)
{
    const int64_t streams[NODE_COPY_MODES] = {[0] = 8 * SECOND, [NODE_STREAMS] = 5 * SECOND};
    const int64_t stores[NODE_COPY_MODES] = {[0] = 8 * SECOND, [NODE_STREAMS] = 7 * SECOND};

    (void)state;
    for (int i = 0; i < 8; i++)
        assert_int_equal(overflow_of(DIST_COLL_ALL_GATHER, streams), 0);
    assert_int_equal(overflow_of(DIST_COLL_ALL_GATHER, streams), 0);
    assert_int_equal(overflow_of(DIST_COLL_ALL_GATHER, streams), NODE_STREAMS);
    assert_int_equal(overflow_often(DIST_COLL_ALL_GATHER, streams), NODE_STREAMS);
    assert_int_equal(overflow_often(DIST_COLL_ALL_TO_ALL, stores), 0);
}

static void who_only_gives_streams_for_half(void **state)
{
    const int64_t some[NODE_COPY_MODES] = {[0] = 8 * SECOND, [NODE_STREAMS] = 5 * SECOND};
    const int64_t much[NODE_COPY_MODES] = {[0] = 8 * SECOND, [NODE_STREAMS] = 3 * SECOND};

    (void)state;
    assert_int_equal(overflow_often(DIST_COLL_BROADCAST, some), 0);
    assert_int_equal(overflow_often(DIST_COLL_GATHER, much), NODE_STREAMS);
}

static void sums_in_segments_ask(void **state)
{
    const int64_t ns[NODE_COPY_MODES] = {10000, 40000, 40000, 40000, 50000, 50000, 50000, 50000};

    (void)state;
    call_of(DIST_COLL_ALL_REDUCE, NODE_WAY_DIRECT, true, ns);
    for (int i = 0; i < ENOUGH; i++) {
        int copy_mode = call_of(DIST_COLL_ALL_REDUCE, NODE_WAY_DIRECT, i % 2, ns);

        assert_int_equal(copy_mode, i % 2 ? NODE_ASKS | NODE_PAST : NODE_ASKS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_soonest_stays, node_make, node_free),
        cmocka_unit_test_setup_teardown(what_is_read_soon_stays_in_caches, node_make, node_free),
        cmocka_unit_test_setup_teardown(bounces_are_streamed_where_that_is_soonest, node_make,
                                        node_free),
        cmocka_unit_test_setup_teardown(a_copy_tries_several_soon, node_make, node_free),
        cmocka_unit_test_setup_teardown(two_ranks_that_swap_do_not_stream, node_make, node_free),
        cmocka_unit_test_setup_teardown(segments_and_other_memory_are_told_apart, node_make,
                                        node_free),
        cmocka_unit_test_setup_teardown(copies_of_the_kernel_tell_nothing, node_make, node_free),
        cmocka_unit_test_setup_teardown(another_answer_is_found_later, node_make, node_free),
        cmocka_unit_test_setup_teardown(overflows_are_streamed_where_that_is_sooner, node_make,
                                        node_free),
        cmocka_unit_test_setup_teardown(who_only_gives_streams_for_half, node_make, node_free),
        cmocka_unit_test_setup_teardown(sums_in_segments_ask, node_make, node_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
