/* SPDX-License-Identifier: BSD-3-Clause */
/* Helpers for tests that run many agents in one process and poll them in turn. */
#ifndef DISTI_TESTS_UNIT_LAUNCH_AGENTS_H
#define DISTI_TESTS_UNIT_LAUNCH_AGENTS_H

#include "tests/unit/base/unit.h"

#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "launch/agents/agents.h"

#define WAIT_MS (20000 * unit_patience())

static inline struct disti_agents_config agents_config(int port, int min_nodes, int max_nodes)
{
    struct disti_agents_config config;

    disti_agents_defaults(&config);
    config.endpoint_host = "127.0.0.1";
    config.endpoint_port = port;
    config.job = "a job";
    config.secret = "a secret";
    config.secret_bytes = 8;
    config.min_nodes = min_nodes;
    config.max_nodes = max_nodes;
    config.join_timeout_ms = WAIT_MS;
    config.last_call_timeout_ms = 200;
    config.keep_alive_interval_ms = 500;
    return config;
}

/* Opens the first agent of a job, which serves on a free port. Sets the port in the configuration,
 * so that the agents opened next connect to it. */
static inline struct disti_agents *agents_first(struct disti_agents_config *config)
{
    struct disti_agents *agents;

    config->endpoint_port = 0;
    config->serve = DISTI_AGENTS_SERVE;
    assert_int_equal(disti_agents_open(config, &agents), DIST_OK);
    assert_true(disti_agents_is_server(agents));
    config->endpoint_port = disti_agents_port(agents);
    config->serve = DISTI_AGENTS_SERVE_NEVER;
    return agents;
}

static inline struct disti_agents *agents_open(const struct disti_agents_config *config)
{
    struct disti_agents *agents;

    assert_int_equal(disti_agents_open(config, &agents), DIST_OK);
    return agents;
}

/* Polls all agents until each agent of `wanted` (NULL: all) has had an event other than a note.
 * Stores the first such event of each agent. */
static inline void agents_events(struct disti_agents **agents, int n, const bool *wanted,
                                 struct disti_agents_event *events)
{
    int64_t deadline = disti_deadline_ms(WAIT_MS);
    bool has[256] = {false};

    for (int left = 1; left;) {
        left = 0;
        assert_false(disti_expired(deadline));
        for (int i = 0; i < n; i++) {
            struct disti_agents_event event;

            if (!agents[i])
                continue;
            while (!has[i] && disti_agents_next_event(agents[i], &event)) {
                if (event.type == DISTI_AGENTS_NOTE)
                    continue;
                has[i] = true;
                events[i] = event;
            }
            left += (!wanted || wanted[i]) && !has[i];
        }
        disti_sleep_ns(200000);
    }
}

/* Checks that the next event of every agent that is not a note has this type. */
static inline void agents_expect(struct disti_agents **agents, int n,
                                 enum disti_agents_event_type type,
                                 struct disti_agents_event *events)
{
    agents_events(agents, n, NULL, events);
    for (int i = 0; i < n; i++) {
        if (agents[i] && events[i].type != type)
            print_message("agent %d: %s\n", i, events[i].text);
        if (agents[i])
            assert_int_equal(events[i].type, type);
    }
}

static inline void agents_expect_quiet(struct disti_agents **agents, int n, int ms)
{
    int64_t until = disti_deadline_ms(ms);
    struct disti_agents_event event;

    while (!disti_expired(until)) {
        for (int i = 0; i < n; i++) {
            while (agents[i] && disti_agents_next_event(agents[i], &event))
                assert_int_equal(event.type, DISTI_AGENTS_NOTE);
        }
        disti_sleep_ns(1000000);
    }
}

/* Checks that each node rank occurs once, and that the ranks of a round follow from the numbers of
 * workers and are the same for all agents. */
static inline void agents_expect_round(struct disti_agents **agents, int n,
                                       const struct disti_agents_event *events, int nodes,
                                       int round)
{
    bool seen[256] = {false};
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

/* Returns how often a descriptor of the agents became readable within `ms`. */
static inline int agents_count_wakes(struct disti_agents **agents, int n, int ms)
{
    int64_t until = disti_deadline_ms(ms);
    struct disti_agents_event event;
    struct pollfd ready[4];
    int wakes = 0;

    for (int i = 0; i < n; i++)
        ready[i] = (struct pollfd){.fd = disti_agents_fd(agents[i]), .events = POLLIN};
    while (!disti_expired(until)) {
        wakes += poll(ready, (nfds_t)n, disti_left_ms(until));
        for (int i = 0; i < n; i++) {
            while (ready[i].revents && disti_agents_next_event(agents[i], &event))
                ;
        }
    }
    return wakes;
}

/* Closes the serving agent, number 0, last, so that no other agent waits for it. */
static inline void agents_close_all(struct disti_agents **agents, int n)
{
    for (int i = n - 1; i >= 0; i--) {
        disti_agents_close(agents[i], NULL, 0);
        agents[i] = NULL;
    }
}

#endif
