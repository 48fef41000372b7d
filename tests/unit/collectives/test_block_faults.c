/* SPDX-License-Identifier: BSD-3-Clause */
/* The verifier detects faults in blocks, lists of chunks, and roots; each test plants one fault. */
#include "planted.h"

#include "../base/unit.h"

static void test_a_wrong_block_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_TO_ALL, "direct", 4, 0, 1);
    struct disti_step *recv = planted_find(&p, 1, DISTI_RECV, 0); /* from rank 0, so to block 0 */

    (void)state;
    recv->dst.chunk = 2;
    planted_wrong(&p, false, "its destination holds chunk 9, the step's data is chunk 1");
    recv->first = 9; /* also if the step declares that chunk */
    planted_wrong(&p, false, "expects 1 chunks, but matches 1 of rank 0");
    planted_free(&p);
}

/* Both ranks exchange their own blocks instead of the peer's, so that every step is consistent but
 * the result is wrong. */
static void exchange_own_blocks(const struct disti_shape *shape, struct disti_builder *b)
{
    uint32_t own = (uint32_t)shape->rank, other = 1 - own;

    disti_build_chunks(b, 1);
    uint16_t send = disti_build_lane(b, 0), recv = disti_build_lane(b, 0);
    disti_build_scratch(b, 1);
    disti_build_send(b, .lane = send, .peer = (int)other, .src = disti_in(own), .data = own);
    disti_build_recv(b, .lane = recv, .peer = (int)other, .dst = disti_scratch(0), .data = other);
    disti_build_copy(b, .lane = recv, .dst = disti_out(0), .src = disti_in(own), .data = own);
}

static void test_a_missing_sum_is_detected(void **state)
{
    struct planted p = planted_own(DIST_COLL_REDUCE_SCATTER, exchange_own_blocks, 2);

    (void)state;
    planted_wrong(&p, false, "output chunk 0 holds the contributions of ranks 0x1, not 0x3");
    planted_free(&p);
}

static void test_a_missing_own_block_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_TO_ALL, "pairwise", 3, 0, 1);

    (void)state;
    planted_drop(&p, 2, planted_find(&p, 2, DISTI_COPY, 0));
    planted_wrong(&p, false, "rank 2: output chunk 2 is never written");
    planted_free(&p);
}

static void test_buffers_that_exist_only_on_the_root_are_checked(void **state)
{
    struct planted p = planted_write(DIST_COLL_REDUCE, "binomial", 4, 2, 1);
    int rank = 0;

    (void)state;
    while (rank == 2 || p.plans[rank]->step_count == 1) /* one that reduces and is not the root */
        rank++;
    planted_find(&p, rank, DISTI_RECV_REDUCE, 0)->dst = disti_out(0);
    planted_wrong(&p, false, "its destination ends at chunk 1, but its space has 0 chunks");
    planted_free(&p);
    p = planted_write(DIST_COLL_SCATTER, "direct", 3, 0, 1);
    struct disti_step *recv = planted_find(&p, 1, DISTI_RECV, 0);
    recv->kind = DISTI_COPY;
    recv->src = disti_in(1);
    planted_wrong(&p, false, "its source ends at chunk 2, but its space has 0 chunks");
    planted_free(&p);
}

/* Only the root may finish the result. */
static void test_finishing_below_the_root_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_REDUCE, "chain", 3, 0, 2);

    (void)state;
    planted_find(&p, 1, DISTI_RECV_REDUCE, 0)->finish = true;
    planted_wrong(&p, false, "finishes a sum that has only the contributions of ranks 0x6");
    planted_free(&p);
}

static void test_wrong_lists_are_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_GATHER, "binomial", 8, 1, 1);
    struct disti_step *send = NULL;
    int rank = 0;

    (void)state;
    for (; !send || send->chunks < 4; rank++) /* the rank that sends four blocks */
        send = rank != 1 ? planted_find(&p, rank, DISTI_SEND, 0) : NULL;
    struct disti_plan *plan = p.plans[rank - 1];
    uint32_t *list = (uint32_t *)plan->data + send->list, saved = list[2];

    assert_int_not_equal(send->list, DISTI_NO_LIST);
    list[2] = list[1];
    planted_wrong(&p, false, "twice");
    list[2] = 8;
    planted_wrong(&p, false, "chunk 8 of its data does not exist");
    list[2] = list[1] == 1 ? 7 : 1; /* a chunk that another rank has */
    planted_wrong(&p, false, "");
    list[2] = saved;
    planted_right(&p, false);
    send->chunks--; /* the last entry is missing */
    planted_wrong(&p, false, "expects 4 chunks, but matches 3");
    send->chunks++;
    send->list = plan->data_count - 3;
    planted_wrong(&p, false, "its data is a list of chunks that does not exist");
    planted_free(&p);
}

/* The chunks in a list must be the chunks at that place. */
static void test_a_wrong_order_in_a_list_is_detected(void **state)
{
    struct planted p = planted_write(DIST_COLL_ALL_TO_ALL, "bruck", 5, 0, 1);

    (void)state;
    for (int rank = 0; rank < 2; rank++) { /* both ends of a message have the same wrong list */
        struct disti_step *step = planted_find(&p, rank, rank ? DISTI_RECV : DISTI_SEND, 0);
        uint32_t *list = (uint32_t *)p.plans[rank]->data + step->list, saved = list[0];

        list[0] = list[1];
        list[1] = saved;
    }
    planted_wrong(&p, false, "as chunk");
    planted_free(&p);
}

/* The blocks of an irregular call differ in size, so a step must not have several slots of scratch,
 * lists, or ranges across the end of a block. */
static void test_steps_of_irregular_calls_are_limited(void **state)
{
    struct planted p = planted_write(DIST_COLL_REDUCE_SCATTER_V, "ring", 4, 0, 1);
    struct disti_step *recv = planted_find(&p, 2, DISTI_RECV_REDUCE, 0), saved = *recv;
    uint32_t list[2] = {0, 1};

    (void)state;
    recv->first = 0;
    recv->src = disti_in(0);
    recv->chunks = 2;
    planted_wrong(&p, false, "its source crosses the end of a block");
    recv->kind = DISTI_RECV;
    planted_wrong(&p, false, "several slots of scratch, whose chunks may differ in size");
    *recv = saved;
    p.plans[2]->data = list;
    p.plans[2]->data_count = 2;
    recv->list = 0;
    planted_wrong(&p, false, "its data is a list of chunks that may differ in size");
    recv->list = DISTI_NO_LIST;
    planted_right(&p, true);
    planted_free(&p);
}

/* A block of another rank is received by a rank that cannot know its size. */
static void pass_through(const struct disti_shape *shape, struct disti_builder *b)
{
    disti_build_chunks(b, 1);
    uint16_t lane = disti_build_lane(b, 0);
    disti_build_scratch(b, 1);
    if (shape->rank == 1)
        disti_build_recv(b, .lane = lane, .peer = 0, .dst = disti_scratch(0), .data = 2);
}

static void test_a_block_of_unknown_size_is_detected(void **state)
{
    struct planted p = planted_own(DIST_COLL_GATHER, pass_through, 3);

    (void)state;
    for (int rank = 0; rank < 3; rank++)
        p.plans[rank]->collective = DIST_COLL_GATHER_V;
    planted_wrong(&p, false, "this rank does not know the size of chunk 2");
    planted_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_wrong_block_is_detected),
        cmocka_unit_test(test_a_missing_sum_is_detected),
        cmocka_unit_test(test_a_missing_own_block_is_detected),
        cmocka_unit_test(test_buffers_that_exist_only_on_the_root_are_checked),
        cmocka_unit_test(test_finishing_below_the_root_is_detected),
        cmocka_unit_test(test_wrong_lists_are_detected),
        cmocka_unit_test(test_a_wrong_order_in_a_list_is_detected),
        cmocka_unit_test(test_steps_of_irregular_calls_are_limited),
        cmocka_unit_test(test_a_block_of_unknown_size_is_detected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
