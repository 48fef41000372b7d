/* SPDX-License-Identifier: BSD-3-Clause */
/* Elastic jobs (MIN:MAX nodes): nodes that leave, join, fall silent, or replace a lost node. */
#include "tests/unit/launch/agents.h"

#include <signal.h>

static struct disti_agents_event events[3];

static void open_three(struct disti_agents **agents, struct disti_agents_config *config)
{
    agents[0] = agents_first(config);
    agents[1] = agents_open(config);
    agents[2] = agents_open(config);
}

/* With 2:3 nodes, one leaves and two continue. A new node waits and joins at the next restart. */
static void test_nodes_leave_and_join_between_rounds(void **state)
{
    struct disti_agents_config config = agents_config(0, 2, 3);
    struct disti_agents_failure failure = {.rank = 4, .signal = SIGKILL};
    struct disti_agents *agents[3];

    (void)state;
    config.max_restarts = 2;
    open_three(agents, &config);
    agents_expect(agents, 3, DISTI_AGENTS_ROUND, events);
    disti_agents_close(agents[1], "its user wants it back", 0);
    agents[1] = NULL;
    agents_expect(agents, 3, DISTI_AGENTS_RESTART, events);
    assert_int_equal(events[2].failure.cause, DISTI_AGENTS_NODE_LOST);
    assert_string_equal(events[2].failure.text, "its user wants it back");
    disti_agents_ready(agents[0]);
    disti_agents_ready(agents[2]);
    agents_expect(agents, 3, DISTI_AGENTS_ROUND, events);
    agents_expect_round(agents, 3, events, 2, 1);
    agents[1] = agents_open(&config);
    agents_expect_quiet(agents, 3, 300);
    disti_agents_failed(agents[2], &failure);
    agents_events(agents, 3, (bool[]){true, false, true}, events);
    disti_agents_ready(agents[0]);
    disti_agents_ready(agents[2]);
    agents_expect(agents, 3, DISTI_AGENTS_ROUND, events);
    agents_expect_round(agents, 3, events, 3, 2);
    assert_int_equal(events[0].round.node_rank, 0);
    assert_int_equal(events[1].round.node_rank, 2);
    agents_close_all(agents, 3);
}

static void test_join_now_restarts_for_a_new_node(void **state)
{
    struct disti_agents_config config = agents_config(0, 1, 2);
    struct disti_agents *agents[2] = {NULL};

    (void)state;
    config.join_now = true;
    agents[0] = agents_first(&config);
    agents_expect(agents, 2, DISTI_AGENTS_ROUND, events);
    agents[1] = agents_open(&config);
    agents_events(agents, 2, (bool[]){true, false}, events);
    assert_int_equal(events[0].type, DISTI_AGENTS_RESTART);
    assert_int_equal(events[0].failure.cause, DISTI_AGENTS_NODE_JOINS);
    disti_agents_ready(agents[0]);
    agents_expect(agents, 2, DISTI_AGENTS_ROUND, events);
    agents_expect_round(agents, 2, events, 2, 1);
    assert_int_equal(events[0].round.restarts, 0);
    agents_close_all(agents, 2);
}

/* An agent that is not polled, like a stopped process, is dropped, and the other agents
 * continue. */
static void test_a_silent_agent_is_dropped(void **state)
{
    struct disti_agents_config config = agents_config(0, 2, 3);
    struct disti_agents *agents[3], *silent;

    (void)state;
    config.max_restarts = 1;
    config.keep_alive_interval_ms = 250;
    config.keep_alive_max_attempt = 6;
    open_three(agents, &config);
    agents_expect(agents, 3, DISTI_AGENTS_ROUND, events);
    silent = agents[2];
    agents[2] = NULL;
    agents_expect(agents, 3, DISTI_AGENTS_RESTART, events);
    assert_non_null(strstr(events[1].failure.text, "sent nothing for 1.5 s"));
    disti_agents_ready(agents[0]);
    disti_agents_ready(agents[1]);
    agents_expect(agents, 3, DISTI_AGENTS_ROUND, events);
    agents_expect_round(agents, 3, events, 2, 1);
    agents[2] = silent; /* poll the agent again: it is notified that it was dropped */
    agents_events(agents, 3, (bool[]){false, false, true}, events);
    assert_int_equal(events[2].type, DISTI_AGENTS_BROKEN);
    assert_non_null(strstr(events[2].text, "sent nothing for"));
    agents_close_all(agents, 3);
}

/* The node of a silent agent starts a new agent with the same node rank, before the silence is
 * detected. */
static void test_a_new_agent_replaces_one_of_the_same_node_rank(void **state)
{
    struct disti_agents_config config = agents_config(0, 2, 2);
    struct disti_agents *agents[2], *silent;

    (void)state;
    config.max_restarts = 1;
    config.node_rank = 0;
    agents[0] = agents_first(&config);
    config.node_rank = 1;
    agents[1] = agents_open(&config);
    agents_expect(agents, 2, DISTI_AGENTS_ROUND, events);
    silent = agents[1];
    agents[1] = agents_open(&config);
    agents_events(agents, 2, (bool[]){true, false}, events);
    assert_int_equal(events[0].type, DISTI_AGENTS_RESTART);
    assert_int_equal(events[0].failure.node_rank, 1);
    disti_agents_ready(agents[0]);
    agents_expect(agents, 2, DISTI_AGENTS_ROUND, events);
    agents_expect_round(agents, 2, events, 2, 1);
    assert_int_equal(events[1].round.node_rank, 1);
    disti_agents_close(silent, NULL, 0);
    agents_close_all(agents, 2);
}

/* Fewer than MIN nodes are left, so the remaining agents wait for another node until the timeout.
 */
static void test_too_few_nodes_wait_until_the_timeout(void **state)
{
    struct disti_agents_config config = agents_config(0, 3, 3);
    struct disti_agents *agents[3];

    (void)state;
    config.max_restarts = 1;
    config.join_timeout_ms = 1000;
    open_three(agents, &config);
    agents_expect(agents, 3, DISTI_AGENTS_ROUND, events);
    disti_agents_close(agents[2], "interrupted by SIGINT", 0);
    agents[2] = NULL;
    agents_expect(agents, 3, DISTI_AGENTS_RESTART, events);
    disti_agents_ready(agents[0]);
    disti_agents_ready(agents[1]);
    for (int i = 0; i < WAIT_MS && events[0].type != DISTI_AGENTS_NOTE; i++) {
        disti_agents_next_event(agents[1], &events[1]);
        if (!disti_agents_next_event(agents[0], &events[0]))
            disti_sleep_ns(1000000);
    }
    assert_non_null(strstr(events[0].text, "only 2 of at least 3 nodes are left: waiting"));
    agents_expect(agents, 3, DISTI_AGENTS_BROKEN, events);
    assert_non_null(strstr(events[1].text, "only 2 of at least 3 nodes joined"));
    agents_close_all(agents, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_leave_and_join_between_rounds),
        cmocka_unit_test(test_join_now_restarts_for_a_new_node),
        cmocka_unit_test(test_a_silent_agent_is_dropped),
        cmocka_unit_test(test_a_new_agent_replaces_one_of_the_same_node_rank),
        cmocka_unit_test(test_too_few_nodes_wait_until_the_timeout),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
