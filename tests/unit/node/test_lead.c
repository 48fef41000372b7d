/* SPDX-License-Identifier: BSD-3-Clause */
/* Who lets a root go first behind a barrier, and until when: rank 0 of two, the root is rank 1. */
#include "node/state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BARRIER 11 /* fingerprints */
#define BROADCAST 22
#define GATHER 33

struct ranks {
    struct disti_node node;
    struct node_peer peers[2];
    struct node_board *boards;
};

static int ranks_open(void **state)
{
    struct ranks *ranks = calloc(1, sizeof(*ranks));

    assert_non_null(ranks);
    ranks->boards = aligned_alloc(NODE_APART, 2 * sizeof(*ranks->boards));
    assert_non_null(ranks->boards);
    memset(ranks->boards, 0, 2 * sizeof(*ranks->boards));
    for (int r = 0; r < 2; r++)
        ranks->peers[r].board = &ranks->boards[r];
    ranks->node.peers = ranks->peers;
    ranks->node.board = ranks->boards;
    ranks->node.ranks = 2;
    ranks->node.lead.root = -1;
    *state = ranks;
    return 0;
}

static int ranks_close(void **state)
{
    struct ranks *ranks = *state;

    free(ranks->boards);
    free(ranks);
    return 0;
}

/* This rank's next call. */
static struct disti_node_op begin(struct ranks *ranks, uint64_t fingerprint)
{
    struct disti_node_op op = {.number = ++ranks->node.calls,
                               .fingerprint = fingerprint,
                               .met = fingerprint == BARRIER,
                               .takes = fingerprint == BROADCAST,
                               .call = {.root = 1}};

    atomic_store(&node_slot(ranks->node.board, &op)->fingerprint, fingerprint);
    return op;
}

/* The root is so many calls ahead when it ends. */
static void barrier(struct ranks *ranks, uint64_t ahead)
{
    struct disti_node_op op = begin(ranks, BARRIER);

    atomic_store(&ranks->boards[1].begun, op.number + ahead);
    disti_node_lead_follow(&ranks->node, &op);
}

static void call(struct ranks *ranks, uint64_t fingerprint, bool waits)
{
    struct disti_node_op op = begin(ranks, fingerprint);

    if (waits)
        disti_node_lead_learn(&ranks->node, &op);
}

static void test_learned_behind_a_barrier(void **state)
{
    struct ranks *ranks = *state;

    barrier(ranks, 0);
    call(ranks, GATHER, true);
    assert_int_equal(ranks->node.lead.root, -1);
    call(ranks, BROADCAST, true); /* the second call */
    assert_int_equal(ranks->node.lead.root, -1);
    barrier(ranks, 0);
    call(ranks, BROADCAST, true);
    assert_int_equal(ranks->node.lead.root, 1);
}

static void test_kept(void **state)
{
    struct ranks *ranks = *state;

    barrier(ranks, 0);
    call(ranks, BROADCAST, true);
    for (int i = 0; i < 3 * NODE_SLOTS; i++) {
        barrier(ranks, 1);
        assert_int_equal(ranks->node.lead.root, 1);
        call(ranks, BROADCAST, false); /* the data are there */
    }
}

static void test_forgotten(void **state)
{
    static const uint64_t others[] = {BARRIER, GATHER};
    struct ranks *ranks = *state;

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        barrier(ranks, 0);
        call(ranks, BROADCAST, true);
        barrier(ranks, 1);
        call(ranks, others[i], false);
        barrier(ranks, 1);
        assert_int_equal(ranks->node.lead.root, -1);
    }
}

/* What stood behind the barrier stands there no more. */
static void test_long_ago(void **state)
{
    struct ranks *ranks = *state;

    barrier(ranks, 0);
    for (int i = 0; i <= NODE_SLOTS; i++)
        call(ranks, BROADCAST, true);
    assert_int_equal(ranks->node.lead.root, 1);
    barrier(ranks, 1);
    assert_int_equal(ranks->node.lead.root, -1);
}

/* Ends, though the root does not come. */
static void test_in_vain(void **state)
{
    struct ranks *ranks = *state;

    barrier(ranks, 0);
    call(ranks, BROADCAST, true);
    barrier(ranks, 0);
    assert_int_equal(ranks->node.lead.root, -1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, ranks_open, ranks_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_learned_behind_a_barrier),
        TEST(test_kept),
        TEST(test_forgotten),
        TEST(test_long_ago),
        TEST(test_in_vain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
