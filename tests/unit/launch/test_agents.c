/* SPDX-License-Identifier: BSD-3-Clause */
/* Agents of a job: rounds, ranks, failures, and the exit of the server. */
#include "tests/unit/launch/agents.h"

#include <signal.h>
#include <stdlib.h>

#include "launch/agents/server.h"

#define MANY 100

static struct disti_agents_event events[MANY];

static void expect_finished(struct disti_agents **agents, int n)
{
    for (int i = 0; i < n; i++) {
        if (agents[i])
            disti_agents_ended(agents[i], 1);
    }
    agents_expect(agents, n, DISTI_AGENTS_FINISHED, events);
}

static void open_many(struct disti_agents **agents, int n, struct disti_agents_config *config)
{
    agents[0] = agents_first(config);
    for (int i = 1; i < n; i++)
        agents[i] = agents_open(config);
}

static void test_a_single_agent_forms_a_round(void **state)
{
    struct disti_agents_config config = agents_config(0, 1, 1);
    struct disti_agents *agents = agents_first(&config);

    (void)state;
    agents_expect(&agents, 1, DISTI_AGENTS_ROUND, events);
    agents_expect_round(&agents, 1, events, 1, 0);
    assert_int_equal(events[0].round.node_rank, 0);
    expect_finished(&agents, 1);
    disti_agents_close(agents, NULL, 1000);
}

/* Only keep-alive messages wake idle agents, both while workers run and after the job has ended. */
static void test_idle_agents_are_rarely_woken(void **state)
{
    struct disti_agents_config config = agents_config(0, 3, 3);
    struct disti_agents_failure failure = {.exit_code = 1};
    struct disti_agents *agents[3];

    (void)state;
    open_many(agents, 3, &config);
    agents_expect(agents, 3, DISTI_AGENTS_ROUND, events);
    assert_in_range(agents_count_wakes(agents, 3, 600), 1, 60);
    disti_agents_failed(agents[1], &failure);
    agents_expect(agents, 3, DISTI_AGENTS_GIVEN_UP, events);
    assert_in_range(agents_count_wakes(agents, 3, 600), 0, 60);
    disti_agents_close(agents[0], NULL, 0);
    assert_in_range(agents_count_wakes(agents + 1, 2, 200), 0, 20);
    agents[0] = NULL;
    agents_close_all(agents, 3);
}

static void test_100_agents_form_a_round(void **state)
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
    agents_expect_round(agents, MANY, events, MANY, 0);
    assert_int_equal(events[0].round.node_rank, 0);
    expect_finished(agents, MANY);
    agents_close_all(agents, MANY);
}

static void test_requested_node_ranks_are_honoured(void **state)
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
    agents_expect_round(agents, 4, events, 4, 0);
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

static void test_free_node_ranks_are_assigned(void **state)
{
    (void)state;
    expect_places(3, (int[]){-1, -1, -1}, (int[]){0, 1, 2});
    expect_places(3, (int[]){2, 1, 0}, (int[]){2, 1, 0});
    expect_places(3, (int[]){-1, 0, -1}, (int[]){1, 0, 2});
    expect_places(3, (int[]){5, -1, 1},
                  (int[]){0, 2, 1}); /* a node rank beyond the number of nodes is ignored */
    expect_places(4, (int[]){1, 1, -1, 1}, (int[]){1, 0, 2, 3});
}

/* With at least MIN but fewer than MAX nodes, the round begins only after the last-call timeout. */
static void test_a_round_below_MAX_begins_after_the_last_call(void **state)
{
    struct disti_agents_config config = agents_config(0, 2, 3);
    struct disti_agents *agents[2];
    int64_t begin = disti_now_ns();

    (void)state;
    open_many(agents, 2, &config);
    agents_expect(agents, 2, DISTI_AGENTS_ROUND, events);
    assert_true(disti_now_ns() - begin >= 200 * INT64_C(1000000));
    agents_expect_round(agents, 2, events, 2, 0);
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

/* All agents are notified of the first failure, meet again when all are ready, and give up at the
 * second failure. */
static void test_a_failure_restarts_until_restarts_are_used_up(void **state)
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
        agents_expect_round(agents, 3, events, 3, round);
        assert_int_equal(events[0].round.restarts, round);
        disti_agents_ended(agents[1], 1);
        other.is_consequence = true;
        disti_agents_failed(agents[0],
                            &other); /* reported first, but a consequence of rank 2's failure */
        agents_expect_quiet(agents, 3, 50);
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

/* A consequence whose cause is never reported becomes the failure after a delay. After a final
 * failure there is no restart. */
static void test_a_final_failure_is_not_restarted(void **state)
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

/* Checks that each agent gets one note that contains `text`. */
static void expect_noted(struct disti_agents **agents, int n, const char *text)
{
    const int64_t deadline = disti_deadline_ms(WAIT_MS);
    bool noted[MANY] = {false};

    for (int left = n; left > 0;) {
        assert_false(disti_expired(deadline));
        for (int i = 0; i < n; i++) {
            struct disti_agents_event event;

            if (!disti_agents_next_event(agents[i], &event))
                continue;
            assert_int_equal(event.type, DISTI_AGENTS_NOTE);
            assert_non_null(strstr(event.text, text));
            assert_false(noted[i]);
            noted[i] = true;
            left--;
        }
    }
}

/* With goes_on a failure only causes a note. The outcome is decided when all workers have ended: a
 * restart if no worker has succeeded and restarts are left. */
static void test_goes_on_decides_after_all_workers_have_ended(void **state)
{
    struct disti_agents_config config = agents_config(0, 2, 2);
    struct disti_agents_failure failure = killed(1), other = killed(0);
    struct disti_agents *agents[2];

    (void)state;
    config.max_restarts = 2;
    config.goes_on = true;
    open_many(agents, 1, &config);
    config.host = "node-c";
    agents[1] = agents_open(&config);
    for (int round = 0; round < 2; round++) {
        agents_expect(agents, 2, DISTI_AGENTS_ROUND, events);
        agents_expect_round(agents, 2, events, 2, round);
        disti_agents_failed(agents[1], &failure);
        expect_noted(agents, 2, "rank 1 (host node-c, pid 4242) was ended by signal 9");
        disti_agents_ended(agents[1], 0);
        other.is_consequence = true;
        disti_agents_failed(agents[0], &other);
        expect_noted(agents, 2, "rank 0 (host ");
        agents_expect_quiet(agents, 2, 20); /* no decision yet: other workers of node 0 still run */
        disti_agents_ended(agents[0], round);
        agents_expect(agents, 2, round ? DISTI_AGENTS_GIVEN_UP : DISTI_AGENTS_RESTART, events);
        for (int i = 0; i < 2; i++) {
            expect_killed(&events[i].failure, 1, 1);
            disti_agents_ready(agents[i]);
        }
    }
    agents_close_all(agents, 2);
}

/* With goes_on a lost node is a failure too. A final failure ends the round immediately. */
static void test_goes_on_after_a_lost_node_but_not_a_final_failure(void **state)
{
    struct disti_agents_config config = agents_config(0, 3, 3);
    struct disti_agents_failure failure = killed(1);
    struct disti_agents *agents[3];

    (void)state;
    config.goes_on = true;
    open_many(agents, 3, &config);
    agents_expect(agents, 3, DISTI_AGENTS_ROUND, events);
    disti_agents_close(agents[2], "it was stopped", 0);
    agents[2] = NULL;
    expect_noted(agents, 2, "is lost: it was stopped; the other workers go on");
    disti_agents_ended(agents[0], 1);
    agents_expect_quiet(agents, 2, 20);
    disti_agents_ended(agents[1], 1);
    agents_expect(agents, 2, DISTI_AGENTS_GIVEN_UP, events);
    assert_int_equal(events[1].failure.cause, DISTI_AGENTS_NODE_LOST);
    agents_close_all(agents, 2);

    open_many(agents, 3, &config);
    agents_expect(agents, 3, DISTI_AGENTS_ROUND, events);
    disti_agents_failed(agents[1], &failure);
    expect_noted(agents, 3, "was ended by signal 9");
    failure.is_final = true;
    disti_agents_failed(agents[2], &failure);
    agents_expect(agents, 3, DISTI_AGENTS_GIVEN_UP, events);
    agents_close_all(agents, 3);
}

/* Agents start in any order: the owner of the endpoint's address may start last, and agents that
 * may not serve wait for it. If any agent may serve, the first one does. */
static void test_agents_start_in_any_order(void **state)
{
    struct disti_agents_config config = agents_config(0, 4, 4);
    struct disti_agents *agents[4] = {agents_first(&config)};

    (void)state;
    disti_agents_close(agents[0], NULL, 0);
    for (int i = 1; i < 4; i++)
        agents[i] = agents_open(&config);
    agents[0] = NULL;
    agents_expect_quiet(agents, 4, 200);
    config.serve = DISTI_AGENTS_SERVE_IF_OWN;
    agents[0] = agents_open(&config);
    assert_true(disti_agents_is_server(agents[0]));
    agents_expect(agents, 4, DISTI_AGENTS_ROUND, events);
    agents_expect_round(agents, 4, events, 4, 0);
    assert_int_equal(events[0].round.node_rank, 0);
    agents_close_all(agents, 4);
    for (int i = 0; i < 4; i++)
        agents[i] = agents_open(&config);
    agents_expect(agents, 4, DISTI_AGENTS_ROUND, events);
    agents_expect_round(agents, 4, events, 4, 0);
    agents_close_all(agents, 4);
}

/* If the serving agent leaves, the other agents end with its host and its reason. */
static void test_agents_end_if_the_server_leaves(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_single_agent_forms_a_round),
        cmocka_unit_test(test_idle_agents_are_rarely_woken),
        cmocka_unit_test(test_100_agents_form_a_round),
        cmocka_unit_test(test_requested_node_ranks_are_honoured),
        cmocka_unit_test(test_free_node_ranks_are_assigned),
        cmocka_unit_test(test_a_round_below_MAX_begins_after_the_last_call),
        cmocka_unit_test(test_a_failure_restarts_until_restarts_are_used_up),
        cmocka_unit_test(test_a_final_failure_is_not_restarted),
        cmocka_unit_test(test_goes_on_decides_after_all_workers_have_ended),
        cmocka_unit_test(test_goes_on_after_a_lost_node_but_not_a_final_failure),
        cmocka_unit_test(test_agents_start_in_any_order),
        cmocka_unit_test(test_agents_end_if_the_server_leaves),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
