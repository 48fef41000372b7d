/* SPDX-License-Identifier: BSD-3-Clause */
/* Yielding the CPU after a barrier (waking.c): a rank yields if the call that followed an earlier
 * barrier had to wait for its root. This process is rank 0 of two ranks; the root is rank 1. */
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
#define SCATTER_V 44
#define ALL_GATHER 55
#define GATHER_LONG 66
#define SCATTER_V_LONG 77

struct ranks {
    struct disti_node node;
    struct node_peer peers[2];
    struct node_mailbox *mailboxes;
};

static int ranks_open(void **state)
{
    struct ranks *ranks = calloc(1, sizeof(*ranks));

    assert_non_null(ranks);
    ranks->mailboxes = aligned_alloc(NODE_APART, 2 * sizeof(*ranks->mailboxes));
    assert_non_null(ranks->mailboxes);
    memset(ranks->mailboxes, 0, 2 * sizeof(*ranks->mailboxes));
    for (int r = 0; r < 2; r++)
        ranks->peers[r].mailbox = &ranks->mailboxes[r];
    ranks->node.peers = ranks->peers;
    ranks->node.mailbox = ranks->mailboxes;
    ranks->node.ranks = 2;
    ranks->node.last_slot = NODE_SLOTS - 1;
    *state = ranks;
    return 0;
}

static int ranks_close(void **state)
{
    struct ranks *ranks = *state;

    free(ranks->mailboxes);
    free(ranks);
    return 0;
}

/* The calls of rank 0, by fingerprint. */
static const struct disti_node_op ops[] = {
    [BARRIER] = {.call = {.collective = DIST_COLL_BARRIER}, .end = 2},
    [BROADCAST] = {.call = {.collective = DIST_COLL_BROADCAST, .root = 1}, .first = 1, .end = 2},
    [GATHER] = {.call = {.collective = DIST_COLL_GATHER, .root = 0}, .end = 2},
    [SCATTER_V] = {.call = {.collective = DIST_COLL_SCATTER_V, .root = 1},
                   .irregular = true,
                   .method = NODE_METHOD_BOUNCES,
                   .first = 1,
                   .end = 2},
    [ALL_GATHER] = {.call = {.collective = DIST_COLL_ALL_GATHER}, .end = 2},
    [SCATTER_V_LONG] = {.call = {.collective = DIST_COLL_SCATTER_V, .root = 1},
                        .irregular = true,
                        .place = NODE_IN_MEMORY,
                        .method = NODE_METHOD_BOUNCES,
                        .first = 1,
                        .end = 2},
    [GATHER_LONG] = {.call = {.collective = DIST_COLL_GATHER},
                     .method = NODE_METHOD_BOUNCES,
                     .end = 2},
};

/* Begins this rank's next call. */
static struct disti_node_op begin(struct ranks *ranks, uint64_t fingerprint)
{
    struct disti_node_op op = ops[fingerprint];

    op.number = ++ranks->node.calls;
    op.slot = node_slot_number(&ranks->node, op.number);
    op.fingerprint = fingerprint;
    atomic_store(&node_slot(ranks->node.mailbox, &op)->fingerprint, fingerprint);
    return op;
}

/* Simulates a barrier; when it ends, the root has begun `ahead` further calls. */
static void barrier(struct ranks *ranks, uint64_t ahead)
{
    struct disti_node_op op = begin(ranks, BARRIER);

    atomic_store(&ranks->mailboxes[1].begun, op.number + ahead);
    disti_node_yield_after_barrier(&ranks->node, &op);
}

/* Simulates a call. waits: this rank has to wait for data. */
static void call(struct ranks *ranks, uint64_t fingerprint, bool waits)
{
    struct disti_node_op op = begin(ranks, fingerprint);

    if (waits)
        disti_node_yield_learn(&ranks->node, &op);
}

/* True if this rank yields to rank 1 after a barrier. */
static bool yields(const struct ranks *ranks)
{
    return ranks->node.yield.first < ranks->node.yield.end && ranks->node.yield.end == 2;
}

static void test_only_the_call_after_a_barrier_is_learned(void **state)
{
    struct ranks *ranks = *state;

    barrier(ranks, 0);
    call(ranks, ALL_GATHER, true);
    assert_false(yields(ranks));
    call(ranks, BROADCAST, true); /* the second call after the barrier */
    assert_false(yields(ranks));
    barrier(ranks, 0);
    call(ranks, BROADCAST, true);
    assert_true(yields(ranks));
}

/* A rank learns only calls in which the receivers wait for senders and the senders wait for no
 * rank: calls through mailboxes or overflow slots, also irregular ones. */
static void test_only_one_way_calls_are_learned(void **state)
{
    static const struct {
        uint64_t fingerprint;
        bool learned;
    } calls[] = {{GATHER, true},
                 {SCATTER_V, true},
                 {ALL_GATHER, false},
                 {GATHER_LONG, false},
                 {SCATTER_V_LONG, false}};
    struct ranks *ranks = *state;

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        barrier(ranks, 0);
        call(ranks, calls[i].fingerprint, true);
        assert_int_equal(yields(ranks), calls[i].learned);
    }
}

static void test_kept_while_the_call_follows_each_barrier(void **state)
{
    struct ranks *ranks = *state;

    barrier(ranks, 0);
    call(ranks, BROADCAST, true);
    for (int i = 0; i < 3 * NODE_SLOTS; i++) {
        barrier(ranks, 1);
        assert_true(yields(ranks));
        call(ranks, BROADCAST, false); /* finds the data without waiting */
    }
}

static void test_forgotten_if_another_call_follows(void **state)
{
    static const uint64_t other_calls[] = {BARRIER, GATHER};
    struct ranks *ranks = *state;

    for (size_t i = 0; i < sizeof(other_calls) / sizeof(other_calls[0]); i++) {
        barrier(ranks, 0);
        call(ranks, BROADCAST, true);
        barrier(ranks, 1);
        call(ranks, other_calls[i], false);
        barrier(ranks, 1);
        assert_false(yields(ranks));
    }
}

/* The slot of the call after the barrier has been reused, so the call cannot be compared. */
static void test_forgotten_if_the_slot_was_reused(void **state)
{
    struct ranks *ranks = *state;

    barrier(ranks, 0);
    for (int i = 0; i <= NODE_SLOTS; i++)
        call(ranks, BROADCAST, true);
    assert_true(yields(ranks));
    barrier(ranks, 1);
    assert_false(yields(ranks));
}

/* If the root begins no call within a limited time, the rank stops yielding. */
static void test_forgotten_if_the_root_begins_nothing(void **state)
{
    struct ranks *ranks = *state;

    barrier(ranks, 0);
    call(ranks, BROADCAST, true);
    barrier(ranks, 0);
    assert_false(yields(ranks));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, ranks_open, ranks_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_only_the_call_after_a_barrier_is_learned),
        TEST(test_only_one_way_calls_are_learned),
        TEST(test_kept_while_the_call_follows_each_barrier),
        TEST(test_forgotten_if_another_call_follows),
        TEST(test_forgotten_if_the_slot_was_reused),
        TEST(test_forgotten_if_the_root_begins_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
