/* SPDX-License-Identifier: BSD-3-Clause */
/* An agent: opening, moving its two sides along, telling, closing. */
#include "launch/agents/agents.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/net.h"
#include "launch/agents/client.h"
#include "launch/agents/server.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define TURNS_MAX 16 /* of a server that is kept busy, before its own agent is asked again */
#define NS_PER_S 1000000000

dist_status disti_agents_serve(struct disti_agents *agents)
{
    const struct disti_agents_config *config = &agents->config;
    const int64_t by_ns = agents->client.join_by_ns;
    bool tried, must = config->serve == DISTI_AGENTS_SERVE;
    char why[DISTI_AGENTS_TEXT];
    dist_status status;

    if (agents->server || config->serve == DISTI_AGENTS_SERVE_NEVER)
        return DIST_OK;
    agents->everywhere =
        config->max_nodes > 1 && disti_host_is_hidden(config->endpoint_host, by_ns);
    tried = disti_log_trying(true);
    status = disti_agents_server_open(config, agents->epoll_fd, agents->everywhere, by_ns,
                                      &agents->server);
    disti_log_trying(tried);
    if (status == DIST_OK || !must)
        return DIST_OK;
    snprintf(why, sizeof(why), "%s", dist_last_error());
    return disti_fail(status,
                      "this agent has to serve at %s port %d (--node-rank 0, or is_host), and "
                      "cannot: %s",
                      config->endpoint_host, config->endpoint_port, why);
}

static bool agents_open_descriptors(struct disti_agents *agents)
{
    struct epoll_event event = {.events = EPOLLIN};

    agents->epoll_fd = disti_descriptor_own(epoll_create1(EPOLL_CLOEXEC));
    agents->timer_fd =
        disti_descriptor_own(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    return agents->epoll_fd >= 0 && agents->timer_fd >= 0 &&
           epoll_ctl(agents->epoll_fd, EPOLL_CTL_ADD, agents->timer_fd, &event) == 0;
}

static void agents_free(struct disti_agents *agents)
{
    disti_agents_client_end(agents);
    disti_agents_server_close(agents->server);
    if (agents->timer_fd >= 0)
        disti_descriptor_close(agents->timer_fd);
    if (agents->epoll_fd >= 0)
        disti_descriptor_close(agents->epoll_fd);
    disti_agents_config_free(&agents->config);
    free(agents);
}

/* Wakes whoever polls at that point in time; now, if it is past. */
static void agents_arm(struct disti_agents *agents, int64_t when_ns)
{
    struct itimerspec when = {
        .it_value = {.tv_sec = when_ns / NS_PER_S, .tv_nsec = when_ns % NS_PER_S}};

    if (when_ns <= 0)
        when.it_value.tv_nsec = 1;
    if (when_ns == INT64_MAX)
        when.it_value = (struct timespec){0};
    timerfd_settime(agents->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

dist_status disti_agents_open(const struct disti_agents_config *config,
                              struct disti_agents **agents_p)
{
    struct disti_agents *agents;
    struct disti_tls_context *tls = NULL;
    dist_status status = disti_agents_config_check(config);

    if (status == DIST_OK)
        status = disti_tls_open(&tls); /* what is wrong with it is said before any wait */
    disti_tls_context_free(tls);
    if (status != DIST_OK)
        return status;
    agents = calloc(1, sizeof(*agents));
    if (!agents)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for an agent: free some");
    agents->epoll_fd = agents->timer_fd = -1;
    disti_agents_client_begin(agents);
    if (!disti_agents_config_copy(&agents->config, config))
        status = disti_fail(DIST_ERR_NO_MEMORY, "no memory for an agent: free some");
    else if (!agents_open_descriptors(agents))
        status = disti_fail_errno(DIST_ERR_SYSTEM, "cannot open an agent's descriptors");
    disti_agents_client_begin(agents);
    if (status == DIST_OK)
        status = disti_agents_serve(agents);
    if (status != DIST_OK) {
        agents_free(agents);
        return status;
    }
    agents_arm(agents, 0);
    *agents_p = agents;
    return DIST_OK;
}

int disti_agents_fd(const struct disti_agents *agents)
{
    return agents->epoll_fd;
}

int disti_agents_port(const struct disti_agents *agents)
{
    return agents->server ? agents->server->port : agents->config.endpoint_port;
}

bool disti_agents_is_server(const struct disti_agents *agents)
{
    return agents->server != NULL;
}

/* True: *event_p is set. *when_p is lowered to when it must be called again. */
static bool agents_client_move(struct disti_agents *agents, struct disti_agents_event *event_p,
                               int64_t *when_p)
{
    enum agents_client_state state = agents->client.state;

    if (state < AGENTS_CLIENT_READY && disti_agents_client_reach(agents, event_p, when_p))
        return true;
    state = agents->client.state;
    if (state == AGENTS_CLIENT_OVER)
        disti_agents_client_rest(&agents->client);
    return state >= AGENTS_CLIENT_READY && state < AGENTS_CLIENT_OVER &&
           disti_agents_client_hear(agents, event_p, when_p);
}

bool disti_agents_next_event(struct disti_agents *agents, struct disti_agents_event *event_p)
{
    bool is_event, again;
    int64_t when;

    for (int turn = 0; turn < TURNS_MAX; turn++) {
        when = INT64_MAX;
        again = agents->server && disti_agents_server_move(agents->server, &when);
        is_event = agents_client_move(agents, event_p, &when);
        if (is_event || !again)
            break;
    }
    agents_arm(agents, is_event ? 0 : when);
    return is_event;
}

void disti_agents_ready(struct disti_agents *agents)
{
    unsigned char value[AGENTS_READY_BYTES];

    if (agents->client.state != AGENTS_CLIENT_STOPPING)
        return;
    disti_agents_client_keep_ports(agents);
    disti_wire_put32(value, (uint32_t)agents->client.master_port.number);
    disti_wire_put32(value + 4, (uint32_t)agents->client.store_port.number);
    agents->client.state = AGENTS_CLIENT_READY;
    disti_agents_link_send(&agents->client.link, AGENTS_READY, value, sizeof(value));
}

void disti_agents_ended(struct disti_agents *agents, int succeeded)
{
    unsigned char value[4];

    disti_wire_put32(value, (uint32_t)succeeded);
    if (agents->client.state == AGENTS_CLIENT_RUNNING)
        disti_agents_link_send(&agents->client.link, AGENTS_ENDED, value, sizeof(value));
}

void disti_agents_failed(struct disti_agents *agents, const struct disti_agents_failure *failure)
{
    unsigned char value[AGENTS_FAILURE_BYTES];
    struct disti_agents_failure told = *failure;

    if (agents->client.state != AGENTS_CLIENT_RUNNING)
        return;
    told.cause = DISTI_AGENTS_WORKER_FAILED;
    told.node_rank = -1;
    told.host[0] = 0;
    disti_agents_put_failure(value, &told);
    disti_agents_link_send(&agents->client.link, AGENTS_FAILED, value, sizeof(value));
}

/* Until all that was to be told is sent, and those who are served have gone. */
static void agents_linger(struct disti_agents *agents, int64_t deadline)
{
    struct pollfd ready = {.fd = agents->epoll_fd, .events = POLLIN};

    while (!disti_expired(deadline)) {
        int64_t when = deadline;

        if (agents->server && disti_agents_server_move(agents->server, &when))
            continue;
        disti_agents_link_flush(&agents->client.link);
        if (agents->client.link.fd >= 0 && !agents->client.link.out_bytes)
            disti_agents_link_close(&agents->client.link);
        if (agents->client.link.fd < 0 &&
            (!agents->server || disti_agents_server_count(agents->server) == 0))
            return;
        agents_arm(agents, when);
        poll(&ready, 1, disti_left_ms(deadline));
    }
}

void disti_agents_close(struct disti_agents *agents, const char *why, int linger_ms)
{
    if (!agents)
        return;
    if (agents->client.state < AGENTS_CLIENT_READY)
        disti_agents_client_end(agents);
    if (agents->client.link.fd >= 0)
        disti_agents_link_send_text(&agents->client.link, AGENTS_LEAVE, why ? why : "it has left");
    if (agents->server && agents->server->phase != AGENTS_OVER)
        disti_agents_break(agents->server, "the agent on %s, where all others meet, has left: %s",
                           agents->config.host, why ? why : "no reason given");
    agents_linger(agents, disti_deadline_ms(linger_ms));
    agents_free(agents);
}
