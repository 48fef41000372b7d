/* SPDX-License-Identifier: BSD-3-Clause */
/* Agents that are refused, with the message for each reason, and invalid settings. */
#include "tests/unit/launch/agents.h"

static struct disti_agents_event events[2];

/* Expects that the agent `last` ends with the message `to_last`; and that `first` ends with
 * `to_first`, unless that is NULL. */
static void expect_broken(struct disti_agents_config *first, struct disti_agents_config *last,
                          const char *to_last, const char *to_first)
{
    struct disti_agents *agents[2];

    agents[0] = agents_first(first);
    last->endpoint_port = disti_agents_port(agents[0]);
    last->serve = DISTI_AGENTS_SERVE_NEVER;
    agents[1] = agents_open(last);
    agents_events(agents, 2, (bool[]){to_first != NULL, true}, events);
    assert_int_equal(events[1].type, DISTI_AGENTS_BROKEN);
    if (!strstr(events[1].text, to_last))
        fail_msg("\"%s\" does not contain \"%s\"", events[1].text, to_last);
    if (to_first) {
        assert_int_equal(events[0].type, DISTI_AGENTS_BROKEN);
        if (!strstr(events[0].text, to_first))
            fail_msg("\"%s\" does not contain \"%s\"", events[0].text, to_first);
    }
    agents_close_all(agents, 2);
}

static void test_agents_that_differ_are_refused(void **state)
{
    struct disti_agents_config first = agents_config(0, 3, 3), last;

    (void)state;
    last = first;
    last.job = "another job";
    expect_broken(&first, &last, "serves the job \"a job\", not \"another job\"", NULL);
    last = first;
    last.secret = "a secreT";
    expect_broken(&first, &last, "with another secret", NULL);
    last.secret_bytes = 0;
    expect_broken(&first, &last, "with another secret", NULL);
    last = first;
    last.min_nodes = 2;
    last.host = "odd-one";
    expect_broken(&first, &last, "on odd-one (127.0.0.1) has --nnodes 2:3",
                  "on odd-one (127.0.0.1) has --nnodes 2:3");
    last = first;
    last.goes_on = true;
    last.host = "odd-one";
    expect_broken(&first, &last, "on odd-one (127.0.0.1) has --on-failure continue",
                  "on odd-one (127.0.0.1) has --on-failure continue");
    last = first;
    first.node_rank = last.node_rank = 1;
    expect_broken(&first, &last, "two agents have --node-rank 1", "two agents have --node-rank 1");
    first.node_rank = 0;
    first.same_workers = true;
    last = first;
    last.node_rank = 1;
    last.workers = 2;
    expect_broken(&first, &last, "starts 2 processes", "starts 2 processes");
}

/* The job has MAX nodes already. */
static void test_an_agent_beyond_MAX_is_refused(void **state)
{
    struct disti_agents_config config = agents_config(0, 1, 1);
    struct disti_agents *agents[2] = {NULL};

    (void)state;
    agents[0] = agents_first(&config);
    agents_expect(agents, 1, DISTI_AGENTS_ROUND, events);
    agents[1] = agents_open(&config);
    agents_events(agents, 2, (bool[]){false, true}, events);
    assert_int_equal(events[1].type, DISTI_AGENTS_BROKEN);
    assert_non_null(strstr(events[1].text, "runs on 1 of at most 1 nodes"));
    agents_close_all(agents, 2);
}

static void test_too_few_agents_time_out(void **state)
{
    struct disti_agents_config config = agents_config(0, 3, 3);
    struct disti_agents *agents[2];

    (void)state;
    config.join_timeout_ms = 300;
    agents[0] = agents_first(&config);
    config.host = "node-c";
    config.join_timeout_ms = WAIT_MS;
    agents[1] = agents_open(&config);
    agents_expect(agents, 2, DISTI_AGENTS_BROKEN, events);
    for (int i = 0; i < 2; i++) {
        assert_non_null(strstr(events[i].text, "only 2 of at least 3 nodes joined at 127.0.0.1"));
        assert_non_null(strstr(events[i].text, "node-c (127.0.0.1)"));
    }
    agents_close_all(agents, 2);
}

static void test_a_link_local_address_needs_a_zone(void **state)
{
    struct disti_agents_config config = agents_config(29400, 2, 2);
    struct disti_agents *agents;

    (void)state;
    config.endpoint_host = "fe80::1";
    config.serve = DISTI_AGENTS_SERVE_NEVER;
    agents = agents_open(&config);
    agents_expect(&agents, 1, DISTI_AGENTS_BROKEN, events);
    assert_non_null(strstr(events[0].text, "fe80::1%eth0"));
    agents_close_all(&agents, 1);
}

static void test_agents_end_without_a_server(void **state)
{
    struct disti_agents_config config = agents_config(0, 2, 2);
    struct disti_agents *agents = agents_first(&config);

    (void)state;
    disti_agents_close(agents, NULL, 0);
    config.join_timeout_ms = 300;
    agents = agents_open(&config);
    agents_expect(&agents, 1, DISTI_AGENTS_BROKEN, events);
    assert_non_null(
        strstr(events[0].text, "found no agent that serves the rendezvous at 127.0.0.1 port"));
    assert_non_null(strstr(events[0].text, "Connection refused"));
    disti_agents_close(agents, NULL, 0);
}

/* The port is in use by another agent; the address does not belong to this machine. */
static void test_serving_needs_an_own_address_and_a_free_port(void **state)
{
    struct disti_agents_config config = agents_config(0, 2, 2);
    struct disti_agents *first = agents_first(&config), *agents = NULL;

    (void)state;
    config.serve = DISTI_AGENTS_SERVE;
    assert_int_equal(disti_agents_open(&config, &agents), DIST_ERR_ADDRESS_IN_USE);
    assert_non_null(strstr(dist_last_error(), "must serve the rendezvous at 127.0.0.1 port"));
    config.endpoint_host = "192.0.2.1";
    assert_int_equal(disti_agents_open(&config, &agents), DIST_ERR_RENDEZVOUS);
    assert_non_null(strstr(dist_last_error(), "must serve the rendezvous at 192.0.2.1 port"));
    assert_non_null(strstr(dist_last_error(), "not an address of this machine"));
    assert_null(agents);
    disti_agents_close(first, NULL, 0);
}

static void expect_bad(struct disti_agents_config config, const char *what)
{
    struct disti_agents *agents = NULL;

    assert_int_equal(disti_agents_open(&config, &agents), DIST_ERR_INVALID_ARGUMENT);
    assert_null(agents);
    assert_non_null(strstr(dist_last_error(), what));
}

static void test_bad_settings_are_rejected(void **state)
{
    struct disti_agents_config good = agents_config(1, 1, 2), bad;

    (void)state;
    bad = good, bad.min_nodes = 3, expect_bad(bad, "--nnodes 3:2");
    bad = good, bad.min_nodes = 0, expect_bad(bad, "--nnodes 0:2");
    bad = good, bad.node_rank = 2, expect_bad(bad, "--node-rank 2");
    bad = good, bad.workers = 0, expect_bad(bad, "--nproc-per-node 0");
    bad = good, bad.job = "", expect_bad(bad, "--rdzv-id");
    bad = good, bad.job = "a\nb", expect_bad(bad, "--rdzv-id");
    bad = good, bad.endpoint_port = 65536, expect_bad(bad, "--rdzv-endpoint");
    bad = good, bad.max_restarts = -1, expect_bad(bad, "--max-restarts -1");
    bad = good, bad.keep_alive_interval_ms = 0, expect_bad(bad, "keep_alive_interval");
}

static void test_rdzv_conf_is_parsed(void **state)
{
    struct disti_agents_config config = agents_config(1, 1, 2);

    (void)state;
    assert_int_equal(disti_agents_configure(
                         &config, "join_timeout=60,last_call_timeout=0.5,keep_alive_interval=2,"
                                  "keep_alive_max_attempt=7,join=now,is_host=true,rank=1,"
                                  "read_timeout=60"),
                     DIST_OK);
    assert_int_equal(config.join_timeout_ms, 60000);
    assert_int_equal(config.last_call_timeout_ms, 500);
    assert_int_equal(config.keep_alive_interval_ms, 2000);
    assert_int_equal(config.keep_alive_max_attempt, 7);
    assert_true(config.join_now);
    assert_int_equal(config.serve, DISTI_AGENTS_SERVE);
    assert_int_equal(config.node_rank, 1);
    assert_int_equal(disti_agents_configure(&config, ""), DIST_OK);
    assert_int_equal(disti_agents_configure(&config, "join"), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "\"join\" is not of the form"));
    assert_int_equal(disti_agents_configure(&config, "join=later"), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "\"later\" is not a valid value of join"));
    assert_int_equal(disti_agents_configure(&config, "jion=now"), DIST_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(dist_last_error(), "unknown --rdzv-conf key \"jion\""));
    assert_int_equal(disti_agents_configure(&config, "timeout=-1"), DIST_ERR_INVALID_ARGUMENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agents_that_differ_are_refused),
        cmocka_unit_test(test_an_agent_beyond_MAX_is_refused),
        cmocka_unit_test(test_too_few_agents_time_out),
        cmocka_unit_test(test_a_link_local_address_needs_a_zone),
        cmocka_unit_test(test_agents_end_without_a_server),
        cmocka_unit_test(test_serving_needs_an_own_address_and_a_free_port),
        cmocka_unit_test(test_bad_settings_are_rejected),
        cmocka_unit_test(test_rdzv_conf_is_parsed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
