/* SPDX-License-Identifier: BSD-3-Clause */
/* Agents of a job: rounds, ranks, failures, losses, late ones. */
#include "tests/unit/launch/agents.h"

#include <signal.h>
#include <stdlib.h>

#include "launch/agents/server.h"

#define MANY 100

static struct disti_agents_event events[MANY];

/* Ranks of a round follow from the counts, each node rank is there once, all know the same. */
static void expect_round(struct disti_agents **agents, int n, int nodes, int round)
{
    bool seen[MANY] = {false};
    int count = 0;

    for (int i = 0; i < n; i++) {
        const struct disti_agents_round *r = &events[i].round;
        int first = 0, sum = 0;

        if (!agents[i])
            continue;
        assert_int_equal(r->nodes, nodes);
        assert_int_equal(r->round, round);
        assert_false(seen[r->node_rank]);
        seen[r->node_rank] = true;
        count++;
        for (int k = 0; k < nodes; k++) {
            first += k < r->node_rank ? r->workers[k] : 0;
            sum += r->workers[k];
        }
        assert_int_equal(r->first_rank, first);
        assert_int_equal(r->world_size, sum);
        assert_string_equal(r->master_address, "127.0.0.1");
        assert_string_equal(r->job, "a job");
        assert_true(r->master_port > 0);
    }
    assert_int_equal(count, nodes);
}

static void expect_finished(struct disti_agents **agents, int n)
{
    for (int i = 0; i < n; i++) {
        if (agents[i])
            disti_agents_succeeded(agents[i]);
    }
    agents_expect(agents, n, DISTI_AGENTS_FINISHED, events);
}

static void open_many(struct disti_agents **agents, int n, struct disti_agents_config *config)
{
    agents[0] = agents_first(config);
    for (int i = 1; i < n; i++)
        agents[i] = agents_open(config);
}

static void test_one(void **state)
{
    struct disti_agents_config config = agents_config(0, 1, 1);
    struct disti_agents *agents = agents_first(&config);

    (void)state;
    agents_expect(&agents, 1, DISTI_AGENTS_ROUND, events);
    expect_round(&agents, 1, 1, 0);
    assert_int_equal(events[0].round.node_rank, 0);
    expect_finished(&agents, 1);
    disti_agents_close(agents, NULL, 1000);
}

static void test_many(void **state)
{
    struct disti_agents_config config = agents_config(0, MANY, MANY);
    struct disti_agents *agents[MANY];

    (void)state;
    config.workers = 3;
    agents[0] = agents_first(&config);
    for (int i = 1; i < MANY; i++) {
        config.workers = 1 + i % 5;
        agents[i] = agents_open(&config);
    }
    agents_expect(agents, MANY, DISTI_AGENTS_ROUND, events);
    expect_round(agents, MANY, MANY, 0);
    assert_int_equal(events[0].round.node_rank, 0);
    expect_finished(agents, MANY);
    agents_close_all(agents, MANY);
}

static void test_node_ranks(void **state)
{
    struct disti_agents_config config = agents_config(0, 4, 4);
    const int wishes[4] = {2, -1, 0, 3}, expected[4] = {2, 1, 0, 3};
    struct disti_agents *agents[4];

    (void)state;
    for (int i = 0; i < 4; i++) {
        config.node_rank = wishes[i];
        config.master_port = 2000 + i;
        agents[i] = i ? agents_open(&config) : agents_first(&config);
    }
    agents_expect(agents, 4, DISTI_AGENTS_ROUND, events);
    expect_round(agents, 4, 4, 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(events[i].round.node_rank, expected[i]);
        assert_int_equal(events[i].round.master_port, 2002);
    }
    agents_close_all(agents, 4);
}

static void expect_places(int n, const int *wishes, const int *expected)
{
    int places[8];

    disti_agents_places(wishes, n, places);
    for (int i = 0; i < n; i++)
        assert_int_equal(places[i], expected[i]);
}

static void test_places(void **state)
{
    (void)state;
    expect_places(3, (int[]){-1, -1, -1}, (int[]){0, 1, 2});
    expect_places(3, (int[]){2, 1, 0}, (int[]){2, 1, 0});
    expect_places(3, (int[]){-1, 0, -1}, (int[]){1, 0, 2});
    expect_places(3, (int[]){5, -1, 1}, (int[]){0, 2, 1}); /* a wish beyond the nodes that came */
    expect_places(4, (int[]){1, 1, -1, 1}, (int[]){1, 0, 2, 3});
}

/* With fewer than MAX the last call is waited for, below MIN all are. */
static void test_last_call(void **state)
{
    struct disti_agents_config config = agents_config(0, 2, 3);
    struct disti_agents *agents[2];
    int64_t begin = disti_now_ns();

    (void)state;
    open_many(agents, 2, &config);
    agents_expect(agents, 2, DISTI_AGENTS_ROUND, events);
    assert_true(disti_now_ns() - begin >= 200 * INT64_C(1000000));
    expect_round(agents, 2, 2, 0);
    agents_close_all(agents, 2);
}

static struct disti_agents_failure killed(int rank)
{
    struct disti_agents_failure failure = {.rank = rank,
                                           .local_rank = 0,
                                           .pid = 4242,
                                           .signal = SIGKILL,
                                           .time_ms = 1234567890123,
                                           .text = "all_reduce, call 7"};

    return failure;
}

static void expect_killed(const struct disti_agents_failure *f, int node_rank, int rank)
{
    assert_int_equal(f->cause, DISTI_AGENTS_WORKER_FAILED);
    assert_string_equal(f->host, "node-c");
    assert_int_equal(f->node_rank, node_rank);
    assert_int_equal(f->rank, rank);
    assert_int_equal(f->local_rank, 0);
    assert_int_equal(f->pid, 4242);
    assert_int_equal(f->signal, SIGKILL);
    assert_true(f->time_ms == 1234567890123);
    assert_string_equal(f->text, "all_reduce, call 7");
}

/* All learn of the first failure, meet again once all are ready, and give up at the second. */
static void test_restart(void **state)
{
    struct disti_agents_config config = agents_config(0, 3, 3);
    struct disti_agents_failure failure = killed(2), other = killed(0);
    struct disti_agents *agents[3];

    (void)state;
    config.max_restarts = 1;
    open_many(agents, 2, &config);
    config.host = "node-c";
    agents[2] = agents_open(&config);
    for (int round = 0; round < 2; round++) {
        agents_expect(agents, 3, DISTI_AGENTS_ROUND, events);
        expect_round(agents, 3, 3, round);
        assert_int_equal(events[0].round.restarts, round);
        disti_agents_succeeded(agents[1]);
        other.is_consequence = true;
        disti_agents_failed(agents[0], &other); /* heard first, but caused by the other */
        agents_move(agents, 3, 50);
        disti_agents_failed(agents[2], &failure);
        agents_expect(agents, 3, round ? DISTI_AGENTS_GIVEN_UP : DISTI_AGENTS_RESTART, events);
        for (int i = 0; i < 3; i++) {
            expect_killed(&events[i].failure, 2, 2);
            assert_non_null(strstr(events[i].text, "rank 2 (host node-c, pid 4242)"));
            disti_agents_ready(agents[i]);
        }
    }
    agents_close_all(agents, 3);
}

/* A consequence without a cause counts after a while; what is final is not tried again. */
static void test_final(void **state)
{
    struct disti_agents_config config = agents_config(0, 2, 2);
    struct disti_agents_failure failure = killed(1);
    struct disti_agents *agents[2];

    (void)state;
    config.max_restarts = 5;
    open_many(agents, 1, &config);
    config.host = "node-c";
    agents[1] = agents_open(&config);
    agents_expect(agents, 2, DISTI_AGENTS_ROUND, events);
    failure.is_consequence = failure.is_final = true;
    disti_agents_failed(agents[1], &failure);
    agents_expect(agents, 2, DISTI_AGENTS_GIVEN_UP, events);
    expect_killed(&events[0].failure, 1, 1);
    agents_close_all(agents, 2);
}

/* 2:3: one leaves, two go on; a new one waits, and comes in at the next restart. */
static void test_elastic(void **state)
{
    struct disti_agents_config config = agents_config(0, 2, 3);
    struct disti_agents_failure failure = killed(0);
    struct disti_agents *agents[3];

    (void)state;
    config.max_restarts = 2;
    open_many(agents, 3, &config);
    agents_expect(agents, 3, DISTI_AGENTS_ROUND, events);
    disti_agents_close(agents[1], "its user wants it back", 0);
    agents[1] = NULL;
    agents_expect(agents, 3, DISTI_AGENTS_RESTART, events);
    assert_int_equal(events[2].failure.cause, DISTI_AGENTS_NODE_LOST);
    assert_string_equal(events[2].failure.text, "its user wants it back");
    disti_agents_ready(agents[0]);
    disti_agents_ready(agents[2]);
    agents_expect(agents, 3, DISTI_AGENTS_ROUND, events);
    expect_round(agents, 3, 2, 1);
    agents[1] = agents_open(&config);
    agents_move(agents, 3, 300);
    disti_agents_failed(agents[2], &failure);
    agents_events(agents, 3, (bool[]){true, false, true}, events);
    disti_agents_ready(agents[0]);
    disti_agents_ready(agents[2]);
    agents_expect(agents, 3, DISTI_AGENTS_ROUND, events);
    expect_round(agents, 3, 3, 2);
    assert_int_equal(events[0].round.node_rank, 0);
    assert_int_equal(events[1].round.node_rank, 2);
    expect_finished(agents, 3);
    agents_close_all(agents, 3);
}

static void test_join_now(void **state)
{
    struct disti_agents_config config = agents_config(0, 1, 2);
    struct disti_agents *agents[2] = {NULL};

    (void)state;
    config.join_now = true;
    open_many(agents, 1, &config);
    agents_expect(agents, 2, DISTI_AGENTS_ROUND, events);
    agents[1] = agents_open(&config);
    agents_events(agents, 2, (bool[]){true, false}, events);
    assert_int_equal(events[0].type, DISTI_AGENTS_RESTART);
    assert_int_equal(events[0].failure.cause, DISTI_AGENTS_NODE_JOINS);
    disti_agents_ready(agents[0]);
    agents_expect(agents, 2, DISTI_AGENTS_ROUND, events);
    expect_round(agents, 2, 2, 1);
    assert_int_equal(events[0].round.restarts, 0);
    expect_finished(agents, 2);
    agents_close_all(agents, 2);
}

/* The endpoint's owner comes last, and the port's owner is found by who is first. */
static void test_any_order(void **state)
{
    struct disti_agents_config config = agents_config(0, 4, 4);
    struct disti_agents *agents[4] = {agents_first(&config)};

    (void)state;
    disti_agents_close(agents[0], NULL, 0);
    for (int i = 1; i < 4; i++)
        agents[i] = agents_open(&config);
    agents[0] = NULL;
    agents_move(agents, 4, 200);
    config.serve = DISTI_AGENTS_SERVE_IF_OWN;
    agents[0] = agents_open(&config);
    assert_true(disti_agents_is_server(agents[0]));
    agents_expect(agents, 4, DISTI_AGENTS_ROUND, events);
    expect_round(agents, 4, 4, 0);
    assert_int_equal(events[0].round.node_rank, 0);
    agents_close_all(agents, 4);
    for (int i = 0; i < 4; i++)
        agents[i] = agents_open(&config);
    agents_expect(agents, 4, DISTI_AGENTS_ROUND, events);
    expect_round(agents, 4, 4, 0);
    agents_close_all(agents, 4);
}

/* Without the serving agent the others end, and say whom they miss. */
static void test_server_leaves(void **state)
{
    struct disti_agents_config config = agents_config(0, 2, 2);
    struct disti_agents *agents[2];

    (void)state;
    config.host = "node-a";
    open_many(agents, 2, &config);
    agents_expect(agents, 2, DISTI_AGENTS_ROUND, events);
    disti_agents_close(agents[0], "interrupted by SIGINT", 0);
    agents[0] = NULL;
    agents_expect(agents, 2, DISTI_AGENTS_BROKEN, events);
    assert_non_null(strstr(events[1].text, "node-a"));
    assert_non_null(strstr(events[1].text, "interrupted by SIGINT"));
    agents_close_all(agents, 2);
}

/* An agent that is not moved along, as one that is stopped: the others go on without it. */
static void test_silent(void **state)
{
    struct disti_agents_config config = agents_config(0, 2, 3);
    struct disti_agents *agents[3], *silent;

    (void)state;
    config.max_restarts = 1;
    config.keep_alive_interval_ms = 250;
    config.keep_alive_max_attempt = 6;
    open_many(agents, 3, &config);
    agents_expect(agents, 3, DISTI_AGENTS_ROUND, events);
    silent = agents[2];
    agents[2] = NULL;
    agents_expect(agents, 3, DISTI_AGENTS_RESTART, events);
    assert_non_null(strstr(events[1].failure.text, "no sign of life for 1.5 s"));
    disti_agents_ready(agents[0]);
    disti_agents_ready(agents[1]);
    agents_expect(agents, 3, DISTI_AGENTS_ROUND, events);
    expect_round(agents, 3, 2, 1);
    agents[2] = silent; /* it wakes up, and learns that it was given up */
    agents_events(agents, 3, (bool[]){false, false, true}, events);
    assert_int_equal(events[2].type, DISTI_AGENTS_BROKEN);
    assert_non_null(strstr(events[2].text, "no sign of life"));
    agents_close_all(agents, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one),           cmocka_unit_test(test_many),
        cmocka_unit_test(test_node_ranks),    cmocka_unit_test(test_places),
        cmocka_unit_test(test_last_call),     cmocka_unit_test(test_restart),
        cmocka_unit_test(test_final),         cmocka_unit_test(test_elastic),
        cmocka_unit_test(test_join_now),      cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_server_leaves), cmocka_unit_test(test_silent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
