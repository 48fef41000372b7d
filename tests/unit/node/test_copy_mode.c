/* SPDX-License-Identifier: BSD-3-Clause */
/* The choice of the copy mode, with given times for each mode. */
#include "base/clock.h"
#include "node/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define BYTES ((size_t)256 << 10)
#define SECOND ((int64_t)1000 * 1000 * 1000)
#define OVERFLOW ((size_t)32 << 20) /* bytes; large, as the given times are seconds */
#define ENOUGH 40                   /* calls, after which the first trial is over */

static struct disti_node *node;

static int node_make(void **state)
{
    (void)state;
    node = calloc(1, sizeof(*node)); /* overflow_bytes is 0, so there is no ring */
    return node ? 0 : -1;
}

static int node_free(void **state)
{
    (void)state;
    free(node);
    return 0;
}

/* Makes a call in which copy mode i takes ns[i]. Returns the chosen mode. */
static int call_of(dist_collective collective, enum disti_node_method method, bool past,
                   const int64_t *ns)
{
    struct disti_node_op op = {
        .call.collective = collective, .element_bytes = 1, .largest = BYTES, .method = method};

    disti_node_copy_mode_choose(node, &op, past);
    op.worked_ns = ns[op.copy_mode];
    disti_node_copy_mode_learn(node, &op);
    return op.copy_mode;
}

static int call_once(enum disti_node_method method, bool past, const int64_t *ns)
{
    return call_of(DIST_COLL_ALL_GATHER, method, past, ns);
}

static int call_often(enum disti_node_method method, bool past, const int64_t *ns)
{
    int copy_mode = 0;

    for (int i = 0; i < ENOUGH; i++)
        copy_mode = call_once(method, past, ns);
    return copy_mode;
}

static void the_fastest_mode_is_kept(void **state)
{
    int64_t ns[NODE_COPY_MODES];

    (void)state;
    for (int copy_mode = 0; copy_mode < NODE_COPY_MODES; copy_mode++)
        ns[copy_mode] = 40000;
    for (int fastest = 0; fastest < NODE_COPY_MODES; fastest++) {
        node->copy_modes[DIST_COLL_ALL_GATHER][disti_node_size_class(&(struct disti_node_op){
            .element_bytes = 1, .largest = BYTES})] = (struct node_copy_modes){0};
        ns[fastest] = 10000;
        assert_int_equal(call_often(NODE_METHOD_BOUNCES, true, ns), fastest);
        ns[fastest] = 40000;
    }
}

static void data_that_are_read_soon_stay_in_caches(void **state)
{
    const int64_t ns[NODE_COPY_MODES] = {40000, 30000, 10000, 10000, 50000, 50000, 50000, 50000};

    (void)state;
    for (int i = 0; i < 3 * ENOUGH; i++)
        assert_false(call_once(NODE_METHOD_BOUNCES, false, ns) & NODE_BYPASSES);
    assert_int_equal(call_once(NODE_METHOD_BOUNCES, false, ns), NODE_PREFETCHES);
}

static void bounces_are_streamed_if_that_is_fastest(void **state)
{
    const int64_t ns[NODE_COPY_MODES] = {40000, 40000, 40000, 40000, 30000, 10000, 5000, 5000};
    const int64_t direct[NODE_COPY_MODES] = {40000, 10000, 40000, 40000};
    int streamed = 0;

    (void)state;
    for (int i = 0; i < 8; i++) /* twice as many as the selector measures */
        streamed += (call_once(NODE_METHOD_BOUNCES, false, ns) & NODE_STREAMS) != 0;
    assert_int_equal(streamed, 4);
    assert_int_equal(call_often(NODE_METHOD_BOUNCES, false, ns), NODE_STREAMS | NODE_PREFETCHES);
    call_once(NODE_METHOD_DIRECT, false, direct);
    assert_int_equal(call_often(NODE_METHOD_DIRECT, false, direct), NODE_PREFETCHES);
}

/* The selector compares the kernel's copies with four calls through bounce buffers, so those calls
 * must include several modes. */
static void a_copy_tries_several_modes_in_four_calls(void **state)
{
    const int64_t ns[NODE_COPY_MODES] = {40000, 40000, 40000, 40000, 40000, 40000, 40000, 40000};
    unsigned tried = 0;

    (void)state;
    for (int i = 0; i < 4; i++)
        tried |= 1U << call_once(NODE_METHOD_BOUNCES, true, ns);
    assert_int_equal(tried, 1U << 0 | 1U << NODE_STREAMS | 1U << NODE_PREFETCHES |
                                1U << (NODE_STREAMS | NODE_PREFETCHES));
}

static void two_ranks_that_swap_do_not_stream(void **state)
{
    const int64_t ns[NODE_COPY_MODES] = {40000, 40000, 40000, 40000, 5000, 5000, 5000, 5000};

    (void)state;
    node->ranks = 2;
    for (int i = 0; i < ENOUGH; i++)
        assert_true(call_of(DIST_COLL_ALL_REDUCE, NODE_METHOD_SWAPPED, true, ns) < NODE_STREAMS);
}

static void segments_and_other_memory_have_their_own_mode(void **state)
{
    const int64_t bounces[NODE_COPY_MODES] = {10000, 30000, 40000, 40000,
                                              50000, 50000, 50000, 50000};
    const int64_t direct[NODE_COPY_MODES] = {30000, 10000, 40000, 40000,
                                             50000, 50000, 50000, 50000};

    (void)state;
    assert_int_equal(call_often(NODE_METHOD_BOUNCES, true, bounces), 0);
    assert_int_equal(call_often(NODE_METHOD_DIRECT, true, direct), NODE_PREFETCHES);
    call_once(NODE_METHOD_BOUNCES, true, bounces); /* still uses the mode of segments */
    assert_int_equal(call_once(NODE_METHOD_BOUNCES, true, bounces), 0);
}

static void copies_by_the_kernel_do_not_count(void **state)
{
    const int64_t kernel[NODE_COPY_MODES] = {10000, 40000, 40000, 40000,
                                             50000, 50000, 50000, 50000};
    const int64_t bounces[NODE_COPY_MODES] = {30000, 20000, 40000, 40000,
                                              50000, 50000, 50000, 50000};

    (void)state;
    for (int i = 0; i < ENOUGH; i++) {
        call_once(NODE_METHOD_CMA, true, kernel);
        call_once(NODE_METHOD_BOUNCES, true, bounces);
    }
    assert_int_equal(call_once(NODE_METHOD_BOUNCES, true, bounces), NODE_PREFETCHES);
}

static void a_later_trial_can_change_the_mode(void **state)
{
    const int64_t cold[NODE_COPY_MODES] = {40000, 10000, 40000, 40000, 50000, 50000, 50000, 50000};
    const int64_t warm[NODE_COPY_MODES] = {5000, 10000, 40000, 40000, 50000, 50000, 50000, 50000};

    (void)state;
    assert_int_equal(call_often(NODE_METHOD_BOUNCES, true, cold), NODE_PREFETCHES);
    call_often(NODE_METHOD_BOUNCES, true, warm);
    assert_int_equal(call_often(NODE_METHOD_BOUNCES, true, warm), 0);
}

/* Makes a call through overflow slots in which copy mode i takes ns[i]. Returns the chosen mode. */
static int overflow_of(dist_collective collective, const int64_t *ns)
{
    struct disti_node_op op = {
        .call.collective = collective, .element_bytes = 1, .largest = OVERFLOW};

    disti_node_overflow_begin(node, &op);
    op.worked_ns = ns[op.copy_mode] - (op.in_copy_mode_trial ? disti_now_ns() : 0);
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

/* The times are seconds, so that delays between two readings of the clock do not matter. */
static void overflow_slots_are_streamed_if_that_is_faster(void **state)
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

static void senders_stream_only_if_that_halves_the_time(void **state)
{
    const int64_t some[NODE_COPY_MODES] = {[0] = 8 * SECOND, [NODE_STREAMS] = 5 * SECOND};
    const int64_t much[NODE_COPY_MODES] = {[0] = 8 * SECOND, [NODE_STREAMS] = 3 * SECOND};

    (void)state;
    assert_int_equal(overflow_often(DIST_COLL_BROADCAST, some), 0);
    assert_int_equal(overflow_often(DIST_COLL_GATHER, much), NODE_STREAMS);
}

static void reductions_in_segments_prefetch(void **state)
{
    const int64_t ns[NODE_COPY_MODES] = {10000, 40000, 40000, 40000, 50000, 50000, 50000, 50000};

    (void)state;
    call_of(DIST_COLL_ALL_REDUCE, NODE_METHOD_DIRECT, true, ns);
    for (int i = 0; i < ENOUGH; i++) {
        int copy_mode = call_of(DIST_COLL_ALL_REDUCE, NODE_METHOD_DIRECT, i % 2, ns);

        assert_int_equal(copy_mode, i % 2 ? NODE_PREFETCHES | NODE_BYPASSES : NODE_PREFETCHES);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_fastest_mode_is_kept, node_make, node_free),
        cmocka_unit_test_setup_teardown(data_that_are_read_soon_stay_in_caches, node_make,
                                        node_free),
        cmocka_unit_test_setup_teardown(bounces_are_streamed_if_that_is_fastest, node_make,
                                        node_free),
        cmocka_unit_test_setup_teardown(a_copy_tries_several_modes_in_four_calls, node_make,
                                        node_free),
        cmocka_unit_test_setup_teardown(two_ranks_that_swap_do_not_stream, node_make, node_free),
        cmocka_unit_test_setup_teardown(segments_and_other_memory_have_their_own_mode, node_make,
                                        node_free),
        cmocka_unit_test_setup_teardown(copies_by_the_kernel_do_not_count, node_make, node_free),
        cmocka_unit_test_setup_teardown(a_later_trial_can_change_the_mode, node_make, node_free),
        cmocka_unit_test_setup_teardown(overflow_slots_are_streamed_if_that_is_faster, node_make,
                                        node_free),
        cmocka_unit_test_setup_teardown(senders_stream_only_if_that_halves_the_time, node_make,
                                        node_free),
        cmocka_unit_test_setup_teardown(reductions_in_segments_prefetch, node_make, node_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
