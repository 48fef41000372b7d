/* SPDX-License-Identifier: BSD-3-Clause */
/* agent HOST PORT MIN MAX RESTARTS CONF WORK_MS: an agent whose workers only sleep for WORK_MS. */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "launch/agents/agents.h"

/* Exit codes of the events that end the job; 0 is success. */
enum { EXIT_USAGE = 2, EXIT_GIVEN_UP, EXIT_BROKEN };

static void say_round(const struct disti_agents_round *round)
{
    printf("round %d restarts %d node %d of %d world %d at %s\n", round->round, round->restarts,
           round->node_rank, round->nodes, round->world_size, round->master_address);
}

/* Handles one event. Returns the exit code, or -1 to continue. *until_p: when the workers will be
 * finished; 0 if none are running. */
static int handle(struct disti_agents *agents, const struct disti_agents_event *event, int work_ms,
                  int64_t *until_p)
{
    static const char *const names[] = {"round",    "restart", "finished",
                                        "given up", "broken",  "note"};

    if (event->type == DISTI_AGENTS_ROUND)
        say_round(&event->round);
    else
        printf("%s: %s\n", names[event->type], event->text);
    switch (event->type) {
    case DISTI_AGENTS_ROUND:
        *until_p = disti_deadline_ms(work_ms);
        return -1;
    case DISTI_AGENTS_RESTART:
        *until_p = 0;
        disti_agents_ready(agents);
        return -1;
    case DISTI_AGENTS_FINISHED:
        return 0;
    case DISTI_AGENTS_GIVEN_UP:
        return EXIT_GIVEN_UP;
    case DISTI_AGENTS_BROKEN:
        return EXIT_BROKEN;
    default:
        return -1;
    }
}

static int run(struct disti_agents *agents, int work_ms)
{
    struct pollfd ready = {.fd = disti_agents_fd(agents), .events = POLLIN};
    struct disti_agents_event event;
    int64_t until = 0;
    int code = -1;

    while (code < 0) {
        poll(&ready, 1, until ? disti_left_ms(until) : -1);
        while (code < 0 && disti_agents_next_event(agents, &event))
            code = handle(agents, &event, work_ms, &until);
        if (until && disti_expired(until)) {
            disti_agents_ended(agents, 1);
            until = 0;
        }
    }
    return code;
}

int main(int argc, char **argv)
{
    struct disti_agents_config config;
    struct disti_agents *agents;
    int code;

    if (argc != 8)
        return EXIT_USAGE;
    setvbuf(stdout, NULL, _IOLBF, 0);
    disti_agents_defaults(&config);
    config.endpoint_host = argv[1];
    config.endpoint_port = atoi(argv[2]);
    config.min_nodes = atoi(argv[3]);
    config.max_nodes = atoi(argv[4]);
    config.max_restarts = atoi(argv[5]);
    config.job = "agent.c";
    config.workers = 2;
    if (disti_agents_configure(&config, argv[6]) != DIST_OK ||
        disti_agents_open(&config, &agents) != DIST_OK) {
        printf("error: %s\n", dist_last_error());
        return EXIT_USAGE;
    }
    code = run(agents, atoi(argv[7]));
    disti_agents_close(agents, NULL, 1000);
    return code;
}
