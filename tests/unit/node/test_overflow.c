/* SPDX-License-Identifier: BSD-3-Clause */
/* No overflow slot is written while another rank may still read it, whatever the lengths. */
#include "node/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define CALLS 5000

struct overflow {
    size_t from, to;
};

/* Returns a length, mostly a long one: the ring then wraps after fewer calls. */
static size_t bytes_of(uint32_t *random)
{
    *random = *random * 1664525 + 1013904223;
    return *random >> 30 ? NODE_OVERFLOW_BYTES - (*random >> 20) % 64 : 1 + (*random >> 8) % 4096;
}

/* The overflow slots of the last `depth` calls, which may still be read, do not overlap. */
static void check_ring(int ranks, uint64_t slots, uint64_t depth)
{
    static struct disti_node node;
    static struct node_slot slot;
    struct overflow last[NODE_SLOTS] = {{0}};
    uint32_t random = (uint32_t)ranks;

    node = (struct disti_node){.ranks = ranks, .last_slot = slots - 1};
    node_size_overflows(&node);
    assert_int_equal(node.overflow_calls, NODE_OVERFLOWS_FIXED);
    assert_true(node_use_ring(&node));
    assert_false(node_use_ring(&node));
    assert_int_equal(node.overflow_calls, depth);
    for (uint64_t call = 0; call < CALLS; call++) {
        size_t bytes = bytes_of(&random);
        struct overflow mine;

        node_choose_overflow(&node, &slot, bytes);
        mine.from = (size_t)slot.overflow * NODE_APART;
        mine.to = mine.from + bytes;
        assert_true(mine.from >= NODE_OVERFLOWS_FIXED * NODE_OVERFLOW_EACH &&
                    mine.to <= node.overflow_bytes);
        for (uint64_t before = 1; before < node.overflow_calls && before <= call; before++) {
            const struct overflow *other = &last[(call - before) % NODE_SLOTS];

            assert_true(mine.to <= other->from || other->to <= mine.from);
        }
        last[call % NODE_SLOTS] = mine;
    }
}

static void slots_that_may_be_read_are_not_overwritten(void **state)
{
    (void)state;
    check_ring(2, NODE_SLOTS_EXCLUSIVE, NODE_SLOTS_EXCLUSIVE);
    check_ring(3, NODE_SLOTS_EXCLUSIVE, NODE_SLOTS_EXCLUSIVE);
    check_ring(2, NODE_SLOTS, 52);
    check_ring(4, NODE_SLOTS, 21);
}

static void many_ranks_have_no_ring(void **state)
{
    struct disti_node node = {.ranks = NODE_RANKS_MAX};
    struct node_slot slot;

    (void)state;
    node_size_overflows(&node);
    assert_false(node_use_ring(&node));
    assert_int_equal(node.overflow_bytes, NODE_OVERFLOWS_FIXED * NODE_OVERFLOW_EACH);
    node_choose_overflow(&node, &slot, NODE_OVERFLOW_BYTES);
    assert_int_equal(slot.overflow, 0);
}

/* The stage and the first numbers share a cache line, so a rank that reads one or two numbers loads
 * only that line. */
static void data_begin_in_the_cache_line_of_the_stage(void **state)
{
    (void)state;
    assert_int_equal(offsetof(struct node_slot, data), NODE_SLOT_ALIGN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_that_may_be_read_are_not_overwritten),
        cmocka_unit_test(many_ranks_have_no_ring),
        cmocka_unit_test(data_begin_in_the_cache_line_of_the_stage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
