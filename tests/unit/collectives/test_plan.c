/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans: chunks cover memory without gaps; the builder lays out steps and rejects malformed
 * plans. */
#include "plan/plan.h"
#include "topology/topology.h"

#include "../base/unit.h"

#include <string.h>

/* Checks that the chunks cover each block, longer ones first, and that a slot can hold the longest
 * chunk. */
static void extent_check(const struct disti_plan *plan, size_t count, uint32_t blocks)
{
    const struct disti_layout layout = {.count = count}, both[2] = {layout, layout};
    size_t at = 0, longest = 0, before = SIZE_MAX;

    for (uint32_t c = 0; c < plan->chunks * blocks; c++) {
        size_t offset = 0, length = disti_chunks_extent(plan, &layout, c, 1, &offset);

        assert_int_equal(offset, at);
        assert_true(c % plan->chunks == 0 || length == before || length == before - 1);
        assert_int_equal(disti_chunks_extent(plan, &layout, 0, c + 1, NULL), at + length);
        before = length;
        longest = length > longest ? length : longest;
        at += length;
        if (c % plan->chunks == plan->chunks - 1)
            assert_int_equal(at, count * (c / plan->chunks + 1));
    }
    assert_int_equal(disti_slot_elements(plan, both), longest);
}

static void test_chunks_cover_each_block(void **state)
{
    static const size_t counts[] = {0, 1, 2, 6, 7, 8, 99, 100, 12345};

    (void)state;
    for (uint32_t chunks = 1; chunks < 40; chunks++) {
        struct disti_plan plan = {.collective = DIST_COLL_ALL_GATHER, .ranks = 3, .chunks = chunks};

        for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
            extent_check(&plan, counts[i], 3);
        extent_check(&plan, SIZE_MAX, 1); /* nothing overflows */
    }
}

static dist_status plan_write(disti_algorithm_fn write, int ranks, struct disti_plan **plan_p)
{
    const struct disti_algorithm algorithm = {
        .collective = DIST_COLL_ALL_REDUCE, .name = "test", .write = write};
    struct disti_topology *topology = NULL;
    dist_status status;

    assert_int_equal(disti_topology_flat(ranks, &topology), DIST_OK);
    const struct disti_shape shape = {DIST_COLL_ALL_REDUCE, ranks, 0, 0, 1, topology};
    status = disti_plan_write(&algorithm, &shape, plan_p);
    disti_topology_free(topology);
    return status;
}

static void good_write(const struct disti_shape *shape, struct disti_builder *b)
{
    (void)shape;
    disti_build_chunks(b, 3);
    assert_int_equal(disti_build_value(b, 1).space, DISTI_IN);
    uint16_t a = disti_build_lane(b, 0), c = disti_build_lane(b, 7);
    struct disti_step_ref first = disti_build_copy(b, .lane = c, .dst = disti_out(1),
                                                   .src = disti_in(1), .data = 1, .chunks = 2);
    assert_int_equal(disti_build_value(b, 0).space, DISTI_IN);
    assert_int_equal(disti_build_value(b, 2).space, DISTI_OUT);
    assert_int_equal(disti_build_written(b, 2).lane, c);
    disti_build_scratch(b, 4);
    disti_build_scratch(b, 2);
    disti_build_send(b, .lane = a, .after = first, .peer = 1, .src = disti_out(2), .data = 2);
    disti_build_send(b, .lane = c, .after = first, .peer = 1, .src = disti_out(1),
                     .data = 1); /* same lane: the wait is not written */
}

static void test_steps_are_laid_out_by_lane(void **state)
{
    struct disti_plan *plan = NULL;

    (void)state;
    assert_int_equal(plan_write(good_write, 2, &plan), DIST_OK);
    assert_int_equal(plan->lane_count, 2);
    assert_int_equal(plan->step_count, 3);
    assert_int_equal(plan->chunks, 3);
    assert_int_equal(plan->scratch_chunks, 4);
    assert_int_equal(plan->lanes[0].count, 1);
    assert_int_equal(plan->lanes[1].first, 1);
    assert_int_equal(plan->lanes[1].channel, 7);
    assert_int_equal(plan->steps[0].wait_lane, 1);
    assert_int_equal(plan->steps[0].wait_step, 0);
    assert_int_equal(plan->steps[1].kind, DISTI_COPY);
    assert_int_equal(plan->steps[1].wait_lane, DISTI_NO_LANE); /* the builder was given no wait */
    assert_int_equal(plan->steps[1].chunks, 2);
    assert_int_equal(plan->steps[2].wait_lane, DISTI_NO_LANE);
    assert_int_equal(plan->steps[2].chunks, 1); /* the default */
    assert_int_equal(plan->steps[2].list, DISTI_NO_LIST);
    assert_string_equal(plan->algorithm, "test");
    disti_plan_free(plan);
}

/* Each of these functions builds one thing that is not allowed in a plan. */
static void bad_nothing(const struct disti_shape *shape, struct disti_builder *b)
{
    (void)shape;
    (void)b;
}

static void bad_chunks(const struct disti_shape *shape, struct disti_builder *b)
{
    (void)shape;
    disti_build_chunks(b, 0);
}

static void bad_chunks_twice(const struct disti_shape *shape, struct disti_builder *b)
{
    (void)shape;
    disti_build_chunks(b, 1);
    disti_build_chunks(b, 1);
}

static void bad_lane(const struct disti_shape *shape, struct disti_builder *b)
{
    (void)shape;
    disti_build_chunks(b, 1);
    disti_build_send(b, .lane = 0, .peer = 1, .src = disti_in(0));
}

static void bad_peer(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, 1);
    disti_build_send(b, .lane = disti_build_lane(b, 0), .peer = shape->ranks, .src = disti_in(0));
}

static void bad_peer_self(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, 1);
    disti_build_recv(b, .lane = disti_build_lane(b, 0), .peer = shape->rank, .dst = disti_out(0));
}

static void bad_range(const struct disti_shape *shape, struct disti_builder *b)
{
    (void)shape;
    disti_build_chunks(b, 2);
    disti_build_send(b, .lane = disti_build_lane(b, 0), .peer = 1, .src = disti_in(1), .data = 1,
                     .chunks = 2);
}

static void bad_range_empty(const struct disti_shape *shape, struct disti_builder *b)
{
    (void)shape;
    disti_build_chunks(b, 2);
    const uint32_t list[1] = {1};
    disti_build_send(b, .lane = disti_build_lane(b, 0), .peer = 1, .src = disti_in(1), .list = list,
                     .chunks = 0);
}

static void bad_place(const struct disti_shape *shape, struct disti_builder *b)
{
    (void)shape;
    disti_build_chunks(b, 2);
    disti_build_send(b, .lane = disti_build_lane(b, 0), .peer = 1, .src = disti_in(0), .data = 1);
}

static void bad_scratch(const struct disti_shape *shape, struct disti_builder *b)
{
    (void)shape;
    disti_build_chunks(b, 2);
    disti_build_scratch(b, 1);
    disti_build_recv(b, .lane = disti_build_lane(b, 0), .peer = 1, .dst = disti_scratch(0),
                     .chunks = 2);
}

/* The two chunks may differ by an element, so the second may not begin at a slot. */
static void bad_scratch_range(const struct disti_shape *shape, struct disti_builder *b)
{
    (void)shape;
    disti_build_chunks(b, 2);
    disti_build_scratch(b, 2);
    disti_build_recv(b, .lane = disti_build_lane(b, 0), .peer = 1, .dst = disti_scratch(0),
                     .chunks = 2);
}

static void bad_input(const struct disti_shape *shape, struct disti_builder *b)
{
    (void)shape;
    disti_build_chunks(b, 1);
    disti_build_recv(b, .lane = disti_build_lane(b, 0), .peer = 1, .dst = disti_in(0));
}

static void bad_wait(const struct disti_shape *shape, struct disti_builder *b)
{
    (void)shape;
    disti_build_chunks(b, 1);
    disti_build_send(b, .lane = disti_build_lane(b, 0), .after = (struct disti_step_ref){1, 1},
                     .peer = 1, .src = disti_in(0));
    disti_build_lane(b, 0);
}

static void bad_two_lanes(const struct disti_shape *shape, struct disti_builder *b)
{
    (void)shape;
    disti_build_chunks(b, 1);
    disti_build_send(b, .lane = disti_build_lane(b, 3), .peer = 1, .src = disti_in(0));
    disti_build_send(b, .lane = disti_build_lane(b, 3), .peer = 1, .src = disti_in(0));
}

static void too_many_lanes(const struct disti_shape *shape, struct disti_builder *b)
{
    (void)shape;
    disti_build_chunks(b, 1);
    for (int i = 0; i <= DISTI_NO_LANE; i++)
        disti_build_lane(b, 0);
}

static void test_malformed_plans_are_rejected(void **state)
{
    static const disti_algorithm_fn bad[] = {
        bad_nothing,       bad_chunks,      bad_chunks_twice, bad_lane,      bad_peer,
        bad_range,         bad_range_empty, bad_place,        bad_scratch,   bad_input,
        bad_scratch_range, bad_wait,        bad_peer_self,    bad_two_lanes,
    };
    struct disti_plan *plan = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(plan_write(bad[i], 2, &plan), DIST_ERR_INTERNAL);
        assert_null(plan);
    }
}

static void too_many_chunks(const struct disti_shape *shape, struct disti_builder *b)
{
    (void)shape;
    disti_build_chunks(b, UINT32_C(1) << 30); /* 4 times this: 4 blocks */
}

static void test_too_many_lanes_or_chunks_are_rejected(void **state)
{
    struct disti_plan *plan = NULL;

    (void)state;
    assert_int_equal(plan_write(too_many_lanes, 2, &plan), DIST_ERR_UNSUPPORTED);
    assert_non_null(strstr(dist_last_error(), "2 ranks are too many for algorithm test"));
    const struct disti_algorithm algorithm = {
        .collective = DIST_COLL_ALL_TO_ALL, .name = "test", .write = too_many_chunks};
    const struct disti_shape shape = {DIST_COLL_ALL_TO_ALL, 2, 0, 0, 1, NULL};
    assert_int_equal(disti_plan_write(&algorithm, &shape, &plan), DIST_ERR_UNSUPPORTED);
    assert_null(plan);
}

static void test_bad_shapes_are_rejected(void **state)
{
    const struct disti_algorithm *ring = disti_algorithm_find(DIST_COLL_ALL_REDUCE, "ring");
    struct disti_topology *topology = NULL;
    struct disti_plan *plan = NULL;

    (void)state;
    assert_int_equal(disti_topology_flat(4, &topology), DIST_OK);
    const struct disti_shape good = {DIST_COLL_ALL_REDUCE, 4, 0, 0, 1, topology};
    struct disti_shape bad[] = {good, good, good, good, good};
    bad[0].rank = 4;
    bad[1].root = -1;
    bad[2].segments = 0;
    bad[3].collective = DIST_COLL_BARRIER;
    bad[4].ranks = 0;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(disti_plan_write(ring, &bad[i], &plan), DIST_ERR_INVALID_ARGUMENT);
    assert_null(plan);
    disti_topology_free(topology);
}

/* A plan depends only on its shape: writing it twice results in equal steps. */
static void test_plans_depend_only_on_their_shape(void **state)
{
    struct disti_topology *topology = NULL;

    (void)state;
    assert_int_equal(disti_topology_synthetic("node:3 core:4", &topology), DIST_OK);
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++) {
        const struct disti_shape shape = {a->collective, 12, 5, 7, 3, topology};
        struct disti_plan *one = NULL, *two = NULL;

        assert_int_equal(disti_plan_write(a, &shape, &one), DIST_OK);
        assert_int_equal(disti_plan_write(a, &shape, &two), DIST_OK);
        assert_int_equal(one->step_count, two->step_count);
        for (uint32_t i = 0; i < one->step_count; i++) {
            const struct disti_step *s = &one->steps[i], *t = &two->steps[i];

            assert_int_equal(s->kind, t->kind);
            assert_int_equal(s->peer, t->peer);
            assert_int_equal(s->first, t->first);
            assert_int_equal(s->wait_lane, t->wait_lane);
            assert_int_equal(s->wait_step, t->wait_step);
            assert_int_equal(s->src.chunk, t->src.chunk);
            assert_int_equal(s->dst.chunk, t->dst.chunk);
        }
        disti_plan_free(one);
        disti_plan_free(two);
    }
    disti_topology_free(topology);
}

static void test_algorithms_are_found_by_name(void **state)
{
    (void)state;
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++) {
        assert_ptr_equal(disti_algorithm_find(a->collective, a->name), a);
        assert_true(strlen(a->summary) > 0);
    }
    assert_null(disti_algorithm_find(DIST_COLL_BARRIER, "ring"));
    assert_null(disti_algorithm_find(DIST_COLL_ALL_REDUCE, "rings"));
    disti_plan_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks_cover_each_block),
        cmocka_unit_test(test_steps_are_laid_out_by_lane),
        cmocka_unit_test(test_malformed_plans_are_rejected),
        cmocka_unit_test(test_bad_shapes_are_rejected),
        cmocka_unit_test(test_too_many_lanes_or_chunks_are_rejected),
        cmocka_unit_test(test_plans_depend_only_on_their_shape),
        cmocka_unit_test(test_algorithms_are_found_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
