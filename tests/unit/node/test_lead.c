/* SPDX-License-Identifier: BSD-3-Clause */
/* Who lets others go first behind a barrier, and until when: rank 0 of two, the root is rank 1. */
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

/* Of each fingerprint, as rank 0 sees it. */
static const struct disti_node_op kinds[] = {
    [BARRIER] = {.call = {.collective = DIST_COLL_BARRIER}, .end = 2},
    [BROADCAST] = {.call = {.collective = DIST_COLL_BROADCAST, .root = 1}, .first = 1, .end = 2},
    [GATHER] = {.call = {.collective = DIST_COLL_GATHER, .root = 0}, .end = 2},
    [SCATTER_V] = {.call = {.collective = DIST_COLL_SCATTER_V, .root = 1},
                   .irregular = true,
                   .way = NODE_WAY_BOUNCES,
                   .first = 1,
                   .end = 2},
    [ALL_GATHER] = {.call = {.collective = DIST_COLL_ALL_GATHER}, .end = 2},
    [SCATTER_V_LONG] = {.call = {.collective = DIST_COLL_SCATTER_V, .root = 1},
                        .irregular = true,
                        .place = NODE_IN_MEMORY,
                        .way = NODE_WAY_BOUNCES,
                        .first = 1,
                        .end = 2},
    [GATHER_LONG] = {.call = {.collective = DIST_COLL_GATHER}, .way = NODE_WAY_BOUNCES, .end = 2},
};

/* This rank's next call. */
static struct disti_node_op begin(struct ranks *ranks, uint64_t fingerprint)
{
    struct disti_node_op op = kinds[fingerprint];

    op.number = ++ranks->node.calls;
    op.slot = node_slot_number(&ranks->node, op.number);
    op.fingerprint = fingerprint;
    atomic_store(&node_slot(ranks->node.mailbox, &op)->fingerprint, fingerprint);
    return op;
}

/* The root is so many calls ahead when it ends. */
static void barrier(struct ranks *ranks, uint64_t ahead)
{
    struct disti_node_op op = begin(ranks, BARRIER);

    atomic_store(&ranks->mailboxes[1].begun, op.number + ahead);
    disti_node_lead_follow(&ranks->node, &op);
}

static void call(struct ranks *ranks, uint64_t fingerprint, bool waits)
{
    struct disti_node_op op = begin(ranks, fingerprint);

    if (waits)
        disti_node_lead_learn(&ranks->node, &op);
}

/* Does it let rank 1 go first? */
static bool lets_go(const struct ranks *ranks)
{
    return ranks->node.lead.first < ranks->node.lead.end && ranks->node.lead.end == 2;
}

static void test_learned_behind_a_barrier(void **state)
{
    struct ranks *ranks = *state;

    barrier(ranks, 0);
    call(ranks, ALL_GATHER, true);
    assert_false(lets_go(ranks));
    call(ranks, BROADCAST, true); /* the second call */
    assert_false(lets_go(ranks));
    barrier(ranks, 0);
    call(ranks, BROADCAST, true);
    assert_true(lets_go(ranks));
}

/* Of those in which a taker waits for who does not wait for it; the v-forms too. */
static void test_learned_of(void **state)
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
        assert_int_equal(lets_go(ranks), calls[i].learned);
    }
}

static void test_kept(void **state)
{
    struct ranks *ranks = *state;

    barrier(ranks, 0);
    call(ranks, BROADCAST, true);
    for (int i = 0; i < 3 * NODE_SLOTS; i++) {
        barrier(ranks, 1);
        assert_true(lets_go(ranks));
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
        assert_false(lets_go(ranks));
    }
}

/* What stood behind the barrier stands there no more. */
static void test_long_ago(void **state)
{
    struct ranks *ranks = *state;

    barrier(ranks, 0);
    for (int i = 0; i <= NODE_SLOTS; i++)
        call(ranks, BROADCAST, true);
    assert_true(lets_go(ranks));
    barrier(ranks, 1);
    assert_false(lets_go(ranks));
}

/* Ends, though the root does not come. */
static void test_in_vain(void **state)
{
    struct ranks *ranks = *state;

    barrier(ranks, 0);
    call(ranks, BROADCAST, true);
    barrier(ranks, 0);
    assert_false(lets_go(ranks));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, ranks_open, ranks_close)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_learned_behind_a_barrier),
        TEST(test_learned_of),
        TEST(test_kept),
        TEST(test_forgotten),
        TEST(test_long_ago),
        TEST(test_in_vain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
