/* SPDX-License-Identifier: BSD-3-Clause */
/* What the agents of other nodes say, as orders for this one. */
#include "launch/options/words.h"
#include "launch/run/agent.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { MEETING_LINGER_MS = 2000 }; /* until the others have heard the last word */

static enum disti_agents_serve meeting_serve(const struct disti_run_options *options)
{
    if (options->rdzv_endpoint)
        return DISTI_AGENTS_SERVE_IF_OWN;
    return options->node_rank == 0 ? DISTI_AGENTS_SERVE : DISTI_AGENTS_SERVE_NEVER;
}

dist_status disti_run_meeting_open(struct disti_run_agent *agent)
{
    const struct disti_run_options *options = agent->options;
    struct disti_agents_config config;
    dist_status status = DIST_OK;

    disti_agents_defaults(&config);
    config.endpoint_host = options->endpoint;
    config.endpoint_port = options->endpoint_port;
    config.serve = meeting_serve(options);
    config.job = options->rdzv_id ? options->rdzv_id : "none";
    config.secret = options->secret.bytes;
    config.secret_bytes = options->secret.length;
    config.address = options->local_addr;
    config.node_rank = (int)options->node_rank;
    config.min_nodes = options->least_nodes;
    config.max_nodes = options->most_nodes;
    config.workers = options->workers;
    config.max_restarts = (int)options->max_restarts;
    config.goes_on = options->goes_on;
    /* Without an endpoint the agents meet at the master's port, so rank 0 needs another. */
    if (options->rdzv_endpoint && options->master_port > 0)
        config.master_port = (int)options->master_port;
    if (options->rdzv_conf)
        status = disti_agents_configure(&config, options->rdzv_conf);
    return status == DIST_OK ? disti_agents_open(&config, &agent->agents) : status;
}

static void meeting_take_round(struct disti_run_agent *agent, const struct disti_agents_round *from)
{
    struct disti_run_round *round = &agent->round;

    round->restarts = from->restarts;
    round->attempt = from->round;
    round->node_rank = from->node_rank;
    round->nodes = from->nodes;
    round->first_rank = from->first_rank;
    round->workers = agent->options->workers;
    round->world_size = from->world_size;
    round->processes = disti_run_processes(agent->options, round);
    snprintf(round->master_address, sizeof(round->master_address), "%s", from->master_address);
    round->master_port = from->master_port;
    round->store_port = from->store_port;
    memcpy(round->store_word, from->store_secret, sizeof(round->store_word));
    snprintf(round->job, sizeof(round->job), "%s", from->job);
    agent->met = agent->has_met = true;
}

/* What the workers are to do is the same for all of them: end, if they run. */
static void meeting_take_order(struct disti_run_agent *agent,
                               const struct disti_agents_event *event)
{
    agent->order = event->type;
    agent->failure = event->failure;
    snprintf(agent->why, sizeof(agent->why), "%s", event->text);
    if (agent->state == DISTI_RUN_WORKING)
        disti_run_agent_stop(agent, SIGTERM, agent->options->shutdown_timeout);
}

/* What follows a round is about that round: it waits until the round has begun. */
void disti_run_meeting_move(struct disti_run_agent *agent)
{
    struct disti_agents_event event;

    while (!agent->met && disti_agents_next_event(agent->agents, &event)) {
        if (event.type == DISTI_AGENTS_ROUND)
            meeting_take_round(agent, &event.round);
        else if (event.type == DISTI_AGENTS_NOTE) {
            if (disti_run_agent_speaks(agent) || !agent->has_met)
                fprintf(stderr, "distrun: %s\n", event.text);
        } else
            meeting_take_order(agent, &event);
    }
}

void disti_run_meeting_fail(struct disti_run_agent *agent,
                            const struct disti_agents_failure *failure)
{
    if (agent->order == DISTI_AGENTS_NOTE)
        disti_agents_failed(agent->agents, failure);
}

void disti_run_meeting_close(struct disti_run_agent *agent)
{
    const bool over =
        agent->order == DISTI_AGENTS_FINISHED || agent->order == DISTI_AGENTS_GIVEN_UP;
    char why[64] = "could not start the workers", name[16];

    if (agent->stop_signal) {
        disti_run_signal_name(agent->stop_signal, name);
        snprintf(why, sizeof(why), "stopped by %s", name);
    }
    disti_agents_close(agent->agents, over ? NULL : why, MEETING_LINGER_MS);
    agent->agents = NULL;
}
