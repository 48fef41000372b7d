/* SPDX-License-Identifier: BSD-3-Clause */
/* The verifier can fail: one fault planted into right plans, and it is named. */
#include "planted.h"

#include "../base/unit.h"

/* ---- messages ---- */

static void test_send_dropped(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "ring", 4, 0, 2);

    (void)state;
    planted_drop(&p, 2, planted_find(&p, 2, DISTI_SEND, 11)); /* the last on its channel */
    planted_drop(&p, 2, planted_find(&p, 2, DISTI_SEND, 5));
    planted_wrong(&p, false, "no rank sends to it");
    planted_free(&p);
}

static void test_receive_dropped(void **state)
{
    struct planted p = planted_write(DIST_COLL_BROADCAST, "chain", 4, 1, 3);

    (void)state;
    planted_drop(&p, 3, planted_find(&p, 3, DISTI_RECV, 2));
    planted_wrong(&p, true, "no rank receives it");
    planted_free(&p);
}

static void test_peer_swapped(void **state)
{
    struct planted p = planted_write(DIST_COLL_BROADCAST, "binomial", 5, 0, 1);

    (void)state;
    planted_find(&p, 0, DISTI_SEND, 0)->peer = 3; /* 4 or 2, by right */
    planted_wrong(&p, true, "no rank sends to it");
    planted_find(&p, 0, DISTI_SEND, 0)->peer = 5;
    planted_wrong(&p, true, "its peer is rank 5 of 5");
    planted_find(&p, 0, DISTI_SEND, 0)->peer = 0;
    planted_wrong(&p, true, "its peer is rank 0 of 5");
    planted_free(&p);
}

static void test_sizes_differ(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "halving_doubling", 4, 0, 1);

    (void)state;
    planted_find(&p, 1, DISTI_SEND, 0)->chunks--;
    planted_wrong(&p, false, "expects 2 chunks, but matches 1");
    planted_free(&p);
}

static void test_order_of_messages(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "direct", 3, 0, 2);
    struct disti_step *one = planted_find(&p, 0, DISTI_SEND, 0), *two = one + 1, held = *one;

    (void)state;
    *one = *two;
    *two = held;
    planted_wrong(&p, false, "expects");
    planted_free(&p);
}

/* Of two ranks the other is parent or child in both trees. */
static void test_two_lanes_one_peer(void **state)
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

/* Face to face: each sends before it receives, in one lane. */
static void face_to_face(const struct disti_shape *shape, struct disti_builder *b)
{
    int peer = 1 - shape->rank;

    disti_build_chunks(b, 1);
    disti_build_scratch(b, 1);
    uint16_t lane = disti_build_lane(b, 0);
    disti_build_send(b, .lane = lane, .peer = peer, .src = disti_in(0));
    disti_build_recv_reduce(b, .lane = lane, .peer = peer, .dst = disti_out(0), .src = disti_in(0),
                            .finish = true);
}

static void test_deadlock_face_to_face(void **state)
{
    struct planted p = planted_own(DIST_COLL_ALL_REDUCE, face_to_face, 2);

    (void)state;
    planted_wrong(&p, true, "rank 0, lane 0, step 0 (SEND to rank 1, chunk 0): deadlock");
    planted_free(&p);
}

static void test_deadlock_wait(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "ring", 3, 0, 1);
    struct disti_step *send = planted_step(&p, 1, 0, 0);

    (void)state;
    send->wait_lane = 0; /* for a later step of its own lane */
    send->wait_step = 2;
    planted_wrong(&p, false, "deadlock");
    send->wait_lane = 1; /* for what needs it, around the ring */
    send->wait_step = 3;
    planted_wrong(&p, false, "deadlock");
    send->wait_step = 4;
    planted_wrong(&p, false, "which does not exist");
    planted_free(&p);
}

static void test_deadlock_lane_order(void **state)
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
    struct disti_step *steps = (struct disti_step *)p.plans[0]->steps, held = steps[0];
    steps[0] = steps[p.plans[0]->step_count - 1];
    steps[p.plans[0]->step_count - 1] = held;
    planted_wrong(&p, false, "deadlock");
    planted_free(&p);
}

/* ---- sums ---- */

static void test_finish_missing(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "direct", 4, 0, 1);

    (void)state;
    planted_find(&p, 2, DISTI_RECV_REDUCE, 2)->finish = false;
    planted_wrong(&p, false, "output chunk 2 was finished 0 times");
    planted_free(&p);
}

static void test_finish_early(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "ring", 4, 0, 1);

    (void)state;
    planted_find(&p, 2, DISTI_RECV_REDUCE, 1)->finish = true;
    planted_wrong(&p, false, "finishes a sum that has only the contributions of ranks");
    planted_free(&p);
}

static void test_finish_of_copy(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_GATHER, "ring", 4, 0, 1);

    (void)state;
    planted_find(&p, 2, DISTI_COPY, 0)->finish = true;
    planted_wrong(&p, false, "finishes, but reduces nothing");
    planted_free(&p);
}

static void test_contribution_lost(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "ring", 4, 0, 1);
    struct disti_step *send = planted_find(&p, 1, DISTI_SEND, 1);

    (void)state;
    assert_int_equal(send->src.space, DISTI_OUT);
    send->src.space = DISTI_IN; /* its own alone, not the sum so far */
    planted_wrong(&p, false, "has only the contributions of ranks");
    planted_free(&p);
}

/* The peer's data is added from scratch, and once more. */
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

static void test_contribution_twice(void **state)
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

/* Rank 2 adds to what ranks 0 and 1 believe to be complete. */
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

static void test_finish_twice(void **state)
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

static void test_scratch_unwritten(void **state)
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

static void test_output_unwritten(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_GATHER, "direct", 3, 0, 1);

    (void)state;
    planted_drop(&p, 1, planted_find(&p, 1, DISTI_COPY, 0));
    planted_wrong(&p, false, "rank 1: output chunk 1 is never written");
    planted_right(&p, true); /* in place it is there already */
    planted_find(&p, 1, DISTI_SEND, 0)->src = disti_out(1);
    planted_wrong(&p, false, "its memory, which is not written yet");
    planted_free(&p);
}

static void test_input_written(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "ring", 3, 0, 1);

    (void)state;
    planted_find(&p, 1, DISTI_RECV, 0)->dst.space = DISTI_IN;
    planted_wrong(&p, false, "writes the input");
    planted_free(&p);
}

static void test_wrong_chunk(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_REDUCE, "ring", 3, 0, 1);

    (void)state;
    planted_find(&p, 1, DISTI_RECV, 0)->dst.chunk ^= 1;
    planted_wrong(&p, false, "its destination holds chunk");
    planted_free(&p);
}

static void test_wrong_root(void **state)
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

static void test_barrier_short(void **state)
{
    struct planted p = planted_write(DIST_COLL_BARRIER, "dissemination", 8, 0, 1);

    (void)state;
    for (int rank = 0; rank < 8; rank++) { /* the last round */
        planted_drop(&p, rank, planted_find(&p, rank, DISTI_SEND, 2));
        planted_drop(&p, rank, planted_find(&p, rank, DISTI_RECV, 2));
    }
    planted_wrong(&p, false, "rank 0 leaves the barrier after hearing from ranks 0xe1 only");
    planted_free(&p);
}

/* Without its wait a message may leave before the news that it should carry has come. */
static void test_barrier_no_wait(void **state)
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
        cmocka_unit_test(test_send_dropped),          cmocka_unit_test(test_receive_dropped),
        cmocka_unit_test(test_peer_swapped),          cmocka_unit_test(test_sizes_differ),
        cmocka_unit_test(test_order_of_messages),     cmocka_unit_test(test_two_lanes_one_peer),
        cmocka_unit_test(test_deadlock_face_to_face), cmocka_unit_test(test_deadlock_wait),
        cmocka_unit_test(test_deadlock_lane_order),   cmocka_unit_test(test_finish_missing),
        cmocka_unit_test(test_finish_early),          cmocka_unit_test(test_finish_of_copy),
        cmocka_unit_test(test_contribution_lost),     cmocka_unit_test(test_contribution_twice),
        cmocka_unit_test(test_finish_twice),          cmocka_unit_test(test_scratch_unwritten),
        cmocka_unit_test(test_output_unwritten),      cmocka_unit_test(test_input_written),
        cmocka_unit_test(test_wrong_chunk),           cmocka_unit_test(test_wrong_root),
        cmocka_unit_test(test_barrier_short),         cmocka_unit_test(test_barrier_no_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
