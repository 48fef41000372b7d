/* SPDX-License-Identifier: BSD-3-Clause */
/* The verifier rejects plans in which one fault has been planted, and names the fault. */
#include "planted.h"

#include "../base/unit.h"

/* ---- messages ---- */

static void test_a_missing_send_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "ring", 4, 0, 2);

    (void)state;
    planted_drop(&p, 2, planted_find(&p, 2, DISTI_SEND, 11)); /* the last one on its channel */
    planted_drop(&p, 2, planted_find(&p, 2, DISTI_SEND, 5));
    planted_wrong(&p, false, "no rank sends to it");
    planted_free(&p);
}

static void test_a_missing_receive_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_BROADCAST, "chain", 4, 1, 3);

    (void)state;
    planted_drop(&p, 3, planted_find(&p, 3, DISTI_RECV, 2));
    planted_wrong(&p, true, "no rank receives it");
    planted_free(&p);
}

static void test_a_wrong_peer_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_BROADCAST, "binomial", 5, 0, 1);

    (void)state;
    planted_find(&p, 0, DISTI_SEND, 0)->peer = 3; /* the right peer is 4 or 2 */
    planted_wrong(&p, true, "no rank sends to it");
    planted_find(&p, 0, DISTI_SEND, 0)->peer = 5;
    planted_wrong(&p, true, "its peer is rank 5 of 5");
    planted_find(&p, 0, DISTI_SEND, 0)->peer = 0;
    planted_wrong(&p, true, "its peer is rank 0 of 5");
    planted_free(&p);
}

static void test_different_sizes_are_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "halving_doubling", 4, 0, 1);

    (void)state;
    planted_find(&p, 1, DISTI_SEND, 0)->chunks--;
    planted_wrong(&p, false, "expects 2 chunks, but matches 1");
    planted_free(&p);
}

static void test_a_wrong_order_of_messages_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "direct", 3, 0, 2);
    struct disti_step *one = planted_find(&p, 0, DISTI_SEND, 0), *two = one + 1, saved = *one;

    (void)state;
    *one = *two;
    *two = saved;
    planted_wrong(&p, false, "expects");
    planted_free(&p);
}

/* With two ranks, the peer is parent or child in both trees. */
static void test_two_lanes_with_one_channel_are_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "tree", 2, 0, 2);

    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        struct disti_lane *lanes = (struct disti_lane *)p.plans[rank]->lanes;

        for (uint32_t l = 0; l < p.plans[rank]->lane_count; l++)
            lanes[l].channel = 0;
    }
    planted_wrong(&p, false, "also has messages");
    planted_free(&p);
}

/* ---- deadlock ---- */

/* Both ranks send before they receive, in the same lane. */
static void send_before_receive(const struct disti_shape *shape, struct disti_builder *b)
{
    int peer = 1 - shape->rank;

    disti_build_chunks(b, 1);
    disti_build_scratch(b, 1);
    uint16_t lane = disti_build_lane(b, 0);
    disti_build_send(b, .lane = lane, .peer = peer, .src = disti_in(0));
    disti_build_recv_reduce(b, .lane = lane, .peer = peer, .dst = disti_out(0), .src = disti_in(0),
                            .finish = true);
}

static void test_a_deadlock_of_two_ranks_is_detected(void **state)
{
    struct planted p = planted_own(DIST_COLL_ALL_REDUCE, send_before_receive, 2);

    (void)state;
    planted_wrong(&p, true, "rank 0, lane 0, step 0 (SEND to rank 1, chunk 0): deadlock");
    planted_free(&p);
}

static void test_a_deadlock_by_a_wait_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "ring", 3, 0, 1);
    struct disti_step *send = planted_step(&p, 1, 0, 0);

    (void)state;
    send->wait_lane = 0; /* for a later step of its own lane */
    send->wait_step = 2;
    planted_wrong(&p, false, "deadlock");
    send->wait_lane = 1; /* for a step that depends on it, around the ring */
    send->wait_step = 3;
    planted_wrong(&p, false, "deadlock");
    send->wait_step = 4;
    planted_wrong(&p, false, "which does not exist");
    planted_free(&p);
}

static void test_a_deadlock_by_the_order_in_a_lane_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "tree", 4, 0, 1);

    (void)state;
    for (int rank = 0; rank < 4; rank++) { /* all messages of a rank in one lane */
        struct disti_plan *plan = p.plans[rank];
        struct disti_lane *lanes = (struct disti_lane *)plan->lanes;
        struct disti_step *steps = (struct disti_step *)plan->steps;

        lanes[0].count = plan->step_count;
        plan->lane_count = 1;
        for (uint32_t i = 0; i < plan->step_count; i++)
            steps[i].wait_lane = DISTI_NO_LANE;
    }
    struct disti_step *steps = (struct disti_step *)p.plans[0]->steps, saved = steps[0];
    steps[0] = steps[p.plans[0]->step_count - 1];
    steps[p.plans[0]->step_count - 1] = saved;
    planted_wrong(&p, false, "deadlock");
    planted_free(&p);
}

/* ---- sums ---- */

static void test_a_missing_finish_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "direct", 4, 0, 1);

    (void)state;
    planted_find(&p, 2, DISTI_RECV_REDUCE, 2)->finish = false;
    planted_wrong(&p, false, "output chunk 2 was finished 0 times");
    planted_free(&p);
}

static void test_an_early_finish_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "ring", 4, 0, 1);

    (void)state;
    planted_find(&p, 2, DISTI_RECV_REDUCE, 1)->finish = true;
    planted_wrong(&p, false, "finishes a sum that has only the contributions of ranks");
    planted_free(&p);
}

static void test_a_finishing_copy_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_GATHER, "ring", 4, 0, 1);

    (void)state;
    planted_find(&p, 2, DISTI_COPY, 0)->finish = true;
    planted_wrong(&p, false, "finishes, but reduces nothing");
    planted_free(&p);
}

static void test_a_missing_contribution_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "ring", 4, 0, 1);
    struct disti_step *send = planted_find(&p, 1, DISTI_SEND, 1);

    (void)state;
    assert_int_equal(send->src.space, DISTI_OUT);
    send->src.space = DISTI_IN; /* its own contribution instead of the partial sum */
    planted_wrong(&p, false, "has only the contributions of ranks");
    planted_free(&p);
}

/* Adds the peer's data from scratch twice. */
static void add_twice(const struct disti_shape *shape, struct disti_builder *b)
{
    int peer = 1 - shape->rank;

    disti_build_chunks(b, 1);
    disti_build_scratch(b, 1);
    uint16_t send = disti_build_lane(b, 0), recv = disti_build_lane(b, 0);
    disti_build_send(b, .lane = send, .peer = peer, .src = disti_in(0));
    disti_build_recv(b, .lane = recv, .peer = peer, .dst = disti_scratch(0));
    disti_build_copy(b, .lane = recv, .after = (struct disti_step_ref){send, 1},
                     .dst = disti_out(0), .src = disti_in(0));
    disti_build_reduce(b, .lane = recv, .dst = disti_out(0), .src = disti_scratch(0),
                       .finish = true);
    disti_build_reduce(b, .lane = recv, .dst = disti_out(0), .src = disti_scratch(0));
}

static void test_a_repeated_contribution_is_detected(void **state)
{
    struct planted p = planted_own(DIST_COLL_ALL_REDUCE, add_twice, 2);

    (void)state;
    planted_wrong(&p, false,
                  "(REDUCE, chunk 0): adds the contributions of ranks 0x2 a second time");
    for (int rank = 0; rank < 2; rank++)
        planted_drop(&p, rank, planted_find(&p, rank, DISTI_REDUCE, 1));
    planted_right(&p, false);
    planted_right(&p, true);
    planted_free(&p);
}

/* Adds rank 2's data after the sum of ranks 0 and 1 has been finished. */
static void add_late(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, 1);
    uint16_t lane = disti_build_lane(b, 0);
    if (shape->rank == 0) {
        disti_build_recv_reduce(b, .lane = lane, .peer = 1, .dst = disti_out(0), .src = disti_in(0),
                                .finish = true);
        disti_build_recv_reduce(b, .lane = lane, .peer = 2, .dst = disti_out(0),
                                .src = disti_out(0), .finish = true);
    } else {
        disti_build_send(b, .lane = lane, .peer = 0, .src = disti_in(0));
    }
}

static void test_a_repeated_finish_is_detected(void **state)
{
    struct planted p = planted_own(DIST_COLL_ALL_REDUCE, add_late, 3);

    (void)state;
    planted_wrong(&p, false, "finishes a sum that has only the contributions of ranks 0x3");
    planted_find(&p, 0, DISTI_RECV_REDUCE, 0)->finish = false;
    planted_wrong(&p, false, "rank 1: output chunk 0 is never written");
    planted_wrong(&p, true, "rank 1: output chunk 0 holds the contributions of ranks 0x2, not 0x7");
    planted_free(&p);
}

/* ---- memory ---- */

static void test_reading_unwritten_scratch_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "recursive_doubling", 8, 0, 1);
    struct disti_step *send = planted_find(&p, 3, DISTI_SEND, 0);

    (void)state;
    send->src = disti_scratch(0);
    planted_wrong(&p, false, "reads chunk 0 of scratch, which is not written yet");
    send->src = disti_scratch(2);
    planted_wrong(&p, false, "its source ends at chunk 3, but its space has 2 chunks");
    planted_free(&p);
}

static void test_unwritten_output_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_GATHER, "direct", 3, 0, 1);

    (void)state;
    planted_drop(&p, 1, planted_find(&p, 1, DISTI_COPY, 0));
    planted_wrong(&p, false, "rank 1: output chunk 1 is never written");
    planted_right(&p, true); /* in place, the data is already there */
    planted_find(&p, 1, DISTI_SEND, 0)->src = disti_out(1);
    planted_wrong(&p, false, "its memory, which is not written yet");
    planted_free(&p);
}

static void test_writing_the_input_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "ring", 3, 0, 1);

    (void)state;
    planted_find(&p, 1, DISTI_RECV, 0)->dst.space = DISTI_IN;
    planted_wrong(&p, false, "writes the input");
    planted_free(&p);
}

static void test_a_wrong_chunk_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "ring", 3, 0, 1);

    (void)state;
    planted_find(&p, 1, DISTI_RECV, 0)->dst.chunk ^= 1;
    planted_wrong(&p, false, "its destination holds chunk");
    planted_free(&p);
}

static void test_a_wrong_root_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_BROADCAST, "tree", 6, 2, 2);

    (void)state;
    for (int rank = 0; rank < 6; rank++)
        p.plans[rank]->root = 3;
    planted_wrong(&p, true, "which is not written yet");
    p.plans[0]->root = 2;
    planted_wrong(&p, true, "does not match those of 6 ranks");
    planted_free(&p);
}

/* ---- barriers ---- */

static void test_a_barrier_without_its_last_round_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_BARRIER, "dissemination", 8, 0, 1);

    (void)state;
    for (int rank = 0; rank < 8; rank++) { /* the last round */
        planted_drop(&p, rank, planted_find(&p, rank, DISTI_SEND, 2));
        planted_drop(&p, rank, planted_find(&p, rank, DISTI_RECV, 2));
    }
    planted_wrong(&p, false, "rank 0 leaves the barrier after hearing only from ranks 0xe1 ");
    planted_free(&p);
}

/* Without its wait, a message may be sent before the messages that it depends on have arrived. */
static void test_a_barrier_without_a_wait_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_BARRIER, "tree", 4, 0, 1);

    (void)state;
    for (uint32_t i = 0; i < p.plans[0]->step_count; i++)
        planted_step(&p, 0, 0, 0)[i].wait_lane = DISTI_NO_LANE;
    planted_wrong(&p, false, "leaves the barrier");
    planted_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_missing_send_is_detected),
        cmocka_unit_test(test_a_missing_receive_is_detected),
        cmocka_unit_test(test_a_wrong_peer_is_detected),
        cmocka_unit_test(test_different_sizes_are_detected),
        cmocka_unit_test(test_a_wrong_order_of_messages_is_detected),
        cmocka_unit_test(test_two_lanes_with_one_channel_are_detected),
        cmocka_unit_test(test_a_deadlock_of_two_ranks_is_detected),
        cmocka_unit_test(test_a_deadlock_by_a_wait_is_detected),
        cmocka_unit_test(test_a_deadlock_by_the_order_in_a_lane_is_detected),
        cmocka_unit_test(test_a_missing_finish_is_detected),
        cmocka_unit_test(test_an_early_finish_is_detected),
        cmocka_unit_test(test_a_finishing_copy_is_detected),
        cmocka_unit_test(test_a_missing_contribution_is_detected),
        cmocka_unit_test(test_a_repeated_contribution_is_detected),
        cmocka_unit_test(test_a_repeated_finish_is_detected),
        cmocka_unit_test(test_reading_unwritten_scratch_is_detected),
        cmocka_unit_test(test_unwritten_output_is_detected),
        cmocka_unit_test(test_writing_the_input_is_detected),
        cmocka_unit_test(test_a_wrong_chunk_is_detected),
        cmocka_unit_test(test_a_wrong_root_is_detected),
        cmocka_unit_test(test_a_barrier_without_its_last_round_is_detected),
        cmocka_unit_test(test_a_barrier_without_a_wait_is_detected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
