/* SPDX-License-Identifier: BSD-3-Clause */
/* The verifier detects accesses that are not ordered (races), and accepts those that messages
 * order. */
#include "planted.h"

#include "../base/unit.h"

/* Recursive doubling: round 1 writes OUT, which in place is the memory that round 0 is sending. */
static void test_writing_memory_being_sent_is_a_race(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "recursive_doubling", 4, 0, 1);
    struct disti_step *second = planted_find(&p, 1, DISTI_RECV_REDUCE, 1);

    (void)state;
    assert_int_equal(second->dst.space, DISTI_OUT);
    assert_int_not_equal(second->wait_lane, DISTI_NO_LANE);
    second->wait_lane = DISTI_NO_LANE;
    planted_wrong(&p, true, "race: it writes a chunk that may still be read");
    planted_right(&p, false); /* not in place: IN and OUT are different memory */
    planted_free(&p);
}

/* The same for a slot of scratch that is reused two rounds later. On rank 15, because on lower
 * ranks the verifier finds wrong sums before it checks for races. */
static void test_early_reuse_of_scratch_is_a_race(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "recursive_doubling", 16, 0, 1);
    struct disti_step *third = planted_find(&p, 15, DISTI_RECV_REDUCE, 2);

    (void)state;
    assert_int_equal(third->dst.space, DISTI_SCRATCH);
    third->wait_lane = DISTI_NO_LANE;
    planted_wrong(&p, false, "race: it writes scratch that may still be read");
    planted_free(&p);
}

/* Checks that the removal of any wait of the plans is detected as some fault. */
static void check_that_waits_matter(dist_collective collective, const char *name, int ranks,
                                    uint32_t segments)
{
    struct planted p = planted_write(collective, name, ranks, 0, segments);
    int waits = 0;

    for (int rank = 0; rank < ranks; rank++) {
        struct disti_step *steps = (struct disti_step *)p.plans[rank]->steps;

        for (uint32_t i = 0; i < p.plans[rank]->step_count; i++) {
            uint16_t lane = steps[i].wait_lane;

            if (lane == DISTI_NO_LANE)
                continue;
            steps[i].wait_lane = DISTI_NO_LANE;
            planted_wrong(&p, true, "");
            steps[i].wait_lane = lane;
            waits++;
        }
    }
    assert_true(waits > 0);
    planted_right(&p, true);
    planted_free(&p);
}

static void test_no_wait_of_all_reduce_is_redundant(void **state)
{
    (void)state;
    check_that_waits_matter(DIST_COLL_ALL_REDUCE, "ring", 5, 2);
    check_that_waits_matter(DIST_COLL_ALL_REDUCE, "tree", 7, 2);
    check_that_waits_matter(DIST_COLL_ALL_REDUCE, "direct", 4, 2);
    check_that_waits_matter(DIST_COLL_ALL_REDUCE, "halving_doubling", 6, 1);
    check_that_waits_matter(DIST_COLL_ALL_REDUCE, "recursive_doubling", 6, 1);
    check_that_waits_matter(DIST_COLL_ALL_REDUCE, "direct_ordered", 5, 2);
}

static void test_no_wait_of_other_collectives_is_redundant(void **state)
{
    (void)state;
    check_that_waits_matter(DIST_COLL_REDUCE, "chain", 3, 6);
    check_that_waits_matter(DIST_COLL_REDUCE, "scatter_gather", 4, 2);
    check_that_waits_matter(DIST_COLL_REDUCE, "binomial_ordered", 6, 6);
    check_that_waits_matter(DIST_COLL_REDUCE_SCATTER, "ring", 5, 2);
    check_that_waits_matter(DIST_COLL_REDUCE_SCATTER, "recursive_halving", 7, 1);
    check_that_waits_matter(DIST_COLL_SCATTER, "binomial", 7, 1);
    check_that_waits_matter(DIST_COLL_ALL_TO_ALL, "bruck", 7, 1);
}

/* Copies the result to OUT while IN, which is the same memory, may still be being sent. */
static void copy_early(const struct disti_shape *shape, struct disti_builder *b)
{
    int peer = 1 - shape->rank;

    disti_build_chunks(b, 1);
    disti_build_scratch(b, 1);
    uint16_t send = disti_build_lane(b, 0), recv = disti_build_lane(b, 0);
    disti_build_send(b, .lane = send, .peer = peer, .src = disti_in(0));
    disti_build_recv_reduce(b, .lane = recv, .peer = peer, .dst = disti_scratch(0),
                            .src = disti_in(0), .finish = true);
    disti_build_copy(b, .lane = recv, .dst = disti_out(0), .src = disti_scratch(0));
}

static void test_copying_over_memory_being_sent_is_a_race(void **state)
{
    struct planted p = planted_own(DIST_COLL_ALL_REDUCE, copy_early, 2);

    (void)state;
    planted_right(&p, false);
    planted_wrong(&p, true, "(COPY, chunk 0): race: it writes a chunk that may still be read");
    planted_free(&p);
}

/* Two receives write the same place without an order. It is a race although both write the same
 * data. */
static void two_writers(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, 1);
    if (shape->rank == 0) {
        disti_build_send(b, .lane = disti_build_lane(b, 0), .peer = 1, .src = disti_out(0));
        disti_build_send(b, .lane = disti_build_lane(b, 1), .peer = 1, .src = disti_out(0));
    } else {
        disti_build_recv(b, .lane = disti_build_lane(b, 0), .peer = 0, .dst = disti_out(0));
        disti_build_recv(b, .lane = disti_build_lane(b, 1), .peer = 0, .dst = disti_out(0));
    }
}

static void test_two_unordered_writes_are_a_race(void **state)
{
    struct planted p = planted_own(DIST_COLL_BROADCAST, two_writers, 2);

    (void)state;
    planted_wrong(&p, true, "race: it writes a chunk that was written");
    struct disti_step *second = planted_step(&p, 1, 1, 0);
    second->wait_lane = 0;
    planted_right(&p, true);
    planted_free(&p);
}

/* Sends data that another lane may still be receiving. */
static void read_early(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, 1);
    if (shape->rank == 0) {
        disti_build_send(b, .lane = disti_build_lane(b, 0), .peer = 1, .src = disti_out(0));
    } else if (shape->rank == 1) {
        disti_build_recv(b, .lane = disti_build_lane(b, 0), .peer = 0, .dst = disti_out(0));
        disti_build_send(b, .lane = disti_build_lane(b, 0), .peer = 2, .src = disti_out(0));
    } else {
        uint16_t lane = disti_build_lane(b, 0);

        disti_build_recv(b, .lane = lane, .peer = 1, .dst = disti_out(0));
    }
}

static void test_sending_memory_being_received_is_a_race(void **state)
{
    struct planted p = planted_own(DIST_COLL_BROADCAST, read_early, 3);

    (void)state;
    planted_wrong(&p, true, "");
    planted_step(&p, 1, 1, 0)->wait_lane = 0;
    planted_right(&p, true);
    planted_free(&p);
}

/*
 * Two ranks, two chunks. Rank 0 sends its part of chunk `first` and later writes the sum there. It
 * learns that rank 1 has received its part only from a message about the other chunk:
 *
 *   rank 0   SEND first --+      +--> RECV_REDUCE other --> RECV_REDUCE first --> SEND both back
 *                         v      |                             ^
 *   rank 1           RECV first, SEND other      SEND first ---+ (in another lane)
 *
 * If `other` is chunk 1, it may be empty although chunk 0 is not. Then there is no such message,
 * and the accesses are not ordered.
 */
static void order_by_other_chunk(const struct disti_shape *shape, struct disti_builder *b,
                                 uint32_t first)
{
    uint32_t other = 1 - first;

    disti_build_chunks(b, 2);
    disti_build_scratch(b, 1);
    uint16_t a = disti_build_lane(b, 0), c = disti_build_lane(b, 1), d = disti_build_lane(b, 2);
    if (shape->rank == 0) {
        disti_build_send(b, .lane = a, .peer = 1, .src = disti_in(first), .data = first);
        struct disti_step_ref received_other =
            disti_build_recv_reduce(b, .lane = c, .peer = 1, .dst = disti_out(other),
                                    .src = disti_in(other), .data = other, .finish = true);
        disti_build_recv_reduce(b, .lane = d, .after = received_other, .peer = 1,
                                .dst = disti_out(first), .src = disti_in(first), .data = first,
                                .finish = true);
        disti_build_send(b, .lane = d, .peer = 1, .src = disti_out(0), .chunks = 2);
    } else {
        struct disti_step_ref received_first =
            disti_build_recv(b, .lane = a, .peer = 0, .dst = disti_scratch(0), .data = first);
        disti_build_send(b, .lane = c, .after = received_first, .peer = 0, .src = disti_in(other),
                         .data = other);
        disti_build_send(b, .lane = d, .peer = 0, .src = disti_in(first), .data = first);
        disti_build_recv(b, .lane = disti_build_lane(b, 2), .peer = 0, .dst = disti_out(0),
                         .chunks = 2);
    }
}

static void order_by_chunk_1(const struct disti_shape *shape, struct disti_builder *b)
{
    order_by_other_chunk(shape, b, 0);
}

static void order_by_chunk_0(const struct disti_shape *shape, struct disti_builder *b)
{
    order_by_other_chunk(shape, b, 1);
}

static void test_messages_of_chunks_that_may_be_empty_order_nothing(void **state)
{
    struct planted p = planted_own(DIST_COLL_ALL_REDUCE, order_by_chunk_0, 2);

    (void)state;
    planted_right(&p, true);
    planted_free(&p);
    p = planted_own(DIST_COLL_ALL_REDUCE, order_by_chunk_1, 2);
    planted_wrong(&p, true, "race: it writes a chunk that may still be read");
    planted_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writing_memory_being_sent_is_a_race),
        cmocka_unit_test(test_early_reuse_of_scratch_is_a_race),
        cmocka_unit_test(test_no_wait_of_all_reduce_is_redundant),
        cmocka_unit_test(test_no_wait_of_other_collectives_is_redundant),
        cmocka_unit_test(test_copying_over_memory_being_sent_is_a_race),
        cmocka_unit_test(test_two_unordered_writes_are_a_race),
        cmocka_unit_test(test_sending_memory_being_received_is_a_race),
        cmocka_unit_test(test_messages_of_chunks_that_may_be_empty_order_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
