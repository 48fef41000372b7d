/* SPDX-License-Identifier: BSD-3-Clause */
/* The places of the blocks of each collective, in chunks and in elements. */
#include "plan/plan.h"
#include "topology/topology.h"
#include "verify/verify.h"

#include "../base/unit.h"

#include <string.h>

#define RANKS 5
#define CHUNKS 3

/* The blocks of the data that rank 2 has in IN and OUT, as documented in dist.h. "": none. */
struct promise {
    dist_collective collective;
    uint64_t blocks;
    const char *in, *out;                       /* if the root is 2 */
    const char *in_other_root, *out_other_root; /* if the root is 4 */
};

static const struct promise promises[] = {
    {DIST_COLL_ALL_REDUCE, 1, "0", "0", "0", "0"},
    {DIST_COLL_BROADCAST, 1, "0", "0", "0", "0"},
    {DIST_COLL_BARRIER, 1, "0", "0", "0", "0"},
    {DIST_COLL_REDUCE, 1, "0", "0", "0", ""},
    {DIST_COLL_ALL_GATHER, 5, "2", "01234", "2", "01234"},
    {DIST_COLL_GATHER, 5, "2", "01234", "2", ""},
    {DIST_COLL_REDUCE_SCATTER, 5, "01234", "2", "01234", "2"},
    {DIST_COLL_SCATTER, 5, "01234", "2", "", "2"},
    {DIST_COLL_ALL_TO_ALL, 25, ":;<=>", "27<AF", ":;<=>", "27<AF"}, /* '0' + 10 is ':' */
    {DIST_COLL_ALL_GATHER_V, 5, "2", "01234", "2", "01234"},
    {DIST_COLL_GATHER_V, 5, "2", "01234", "2", ""},
    {DIST_COLL_REDUCE_SCATTER_V, 5, "01234", "2", "01234", "2"},
    {DIST_COLL_SCATTER_V, 5, "01234", "2", "", "2"},
    {DIST_COLL_ALL_TO_ALL_V, 25, ":;<=>", "27<AF", ":;<=>", "27<AF"},
};

/* Checks that the space contains exactly these blocks, in this order. */
static void space_holds(const struct disti_plan *plan, uint8_t space, const char *blocks)
{
    uint32_t count = (uint32_t)strlen(blocks);
    uint32_t all = (uint32_t)disti_plan_data_blocks(plan) * CHUNKS;
    bool held[RANKS * RANKS * CHUNKS] = {false};

    assert_int_equal(disti_plan_blocks(plan, space), count);
    for (uint32_t c = 0; c < count * CHUNKS; c++) {
        uint32_t data = (uint32_t)(blocks[c / CHUNKS] - '0') * CHUNKS + c % CHUNKS;
        struct disti_chunk_ref place = {c, space}, back = {99, DISTI_SCRATCH};

        assert_int_equal(disti_plan_data(plan, place), data);
        assert_true(disti_plan_locate(plan, space, data, &back));
        assert_int_equal(back.chunk, c);
        assert_int_equal(back.space, space);
        held[data] = true;
    }
    for (uint32_t data = 0; data < all; data++) {
        struct disti_chunk_ref back;

        assert_int_equal(disti_plan_locate(plan, space, data, &back), held[data]);
    }
}

/* All collectives; sends and receives have no plans. */
static void test_spaces_contain_the_documented_blocks(void **state)
{
    (void)state;
    assert_int_equal(sizeof(promises) / sizeof(promises[0]), DIST_COLL_SEND);
    for (int i = 0; i < DIST_COLL_SEND; i++) {
        const struct promise *p = &promises[i];
        struct disti_plan plan = {
            .collective = p->collective, .ranks = RANKS, .rank = 2, .root = 2, .chunks = CHUNKS};

        assert_int_equal(disti_plan_data_blocks(&plan), p->blocks);
        space_holds(&plan, DISTI_IN, p->in);
        space_holds(&plan, DISTI_OUT, p->out);
        plan.root = 4;
        space_holds(&plan, DISTI_IN, p->in_other_root);
        space_holds(&plan, DISTI_OUT, p->out_other_root);
    }
}

/* Blocks of 7, 0, 5, 1 and 3 elements, in another order and with gaps. */
static const size_t counts[RANKS] = {7, 0, 5, 1, 3}, offsets[RANKS] = {10, 3, 0, 40, 20};

static void test_chunks_of_irregular_blocks_have_their_places(void **state)
{
    struct disti_plan plan = {
        .collective = DIST_COLL_ALL_GATHER_V, .ranks = RANKS, .rank = 2, .chunks = CHUNKS};
    const struct disti_layout layouts[2] = {{5, NULL, NULL}, {0, counts, offsets}};
    static const size_t begins[] = {10, 13, 15, 3, 3, 3, 0, 2, 4, 40, 41, 41, 20, 21, 22};
    static const size_t sizes[] = {3, 2, 2, 0, 0, 0, 2, 2, 1, 1, 0, 0, 1, 1, 1};

    (void)state;
    for (uint32_t c = 0; c < RANKS * CHUNKS; c++) {
        size_t offset = 99;

        assert_int_equal(disti_chunks_extent(&plan, &layouts[DISTI_OUT], c, 1, &offset), sizes[c]);
        assert_int_equal(offset, begins[c]);
        if (c % CHUNKS == 0)
            assert_int_equal(disti_chunks_extent(&plan, &layouts[DISTI_OUT], c, CHUNKS, NULL),
                             counts[c / CHUNKS]);
    }
    assert_int_equal(disti_slot_elements(&plan, layouts), 3); /* 7 elements in 3 chunks */
}

/* The number of elements of a step, from whichever of its ends determines it. */
static void test_the_elements_of_a_step_are_known(void **state)
{
    struct disti_plan plan = {
        .collective = DIST_COLL_REDUCE_SCATTER_V, .ranks = RANKS, .rank = 2, .chunks = 1};
    const struct disti_layout layouts[2] = {{0, counts, offsets}, {5, NULL, NULL}};
    struct disti_step step = {
        .kind = DISTI_SEND, .first = 4, .chunks = 1, .list = DISTI_NO_LIST, .src = disti_in(4)};

    (void)state;
    assert_int_equal(disti_step_elements(&plan, layouts, &step), 3);
    step.src = disti_scratch(0);
    assert_int_equal(disti_step_elements(&plan, layouts, &step), 3);
    step = (struct disti_step){.kind = DISTI_RECV_REDUCE,
                               .first = 2,
                               .chunks = 1,
                               .list = DISTI_NO_LIST,
                               .dst = disti_out(0),
                               .src = disti_scratch(1)};
    assert_int_equal(disti_step_elements(&plan, layouts, &step), 5);
    assert_int_equal(disti_slot_elements(&plan, layouts), 7);
    plan.rank = 0; /* its OUT is block 0 */
    const struct disti_layout own[2] = {{0, counts, offsets}, {7, NULL, NULL}};
    step = (struct disti_step){
        .kind = DISTI_RECV, .chunks = 1, .list = DISTI_NO_LIST, .dst = disti_scratch(1)};
    assert_int_equal(disti_step_elements(&plan, own, &step), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spaces_contain_the_documented_blocks),
        cmocka_unit_test(test_chunks_of_irregular_blocks_have_their_places),
        cmocka_unit_test(test_the_elements_of_a_step_are_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
