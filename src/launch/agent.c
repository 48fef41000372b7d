/* SPDX-License-Identifier: BSD-3-Clause */
/* The agent: rounds until the workers succeed, or no restart is left. */
#include "launch/agent.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/net.h"
#include "base/process.h"
#include "base/settings/env.h"
#include "launch/failure.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* The round of a single node. */

/* Below those that Linux takes by itself for connections that go out. */
enum { ROUND_PORT_FIRST = 10000, ROUND_PORTS = 10000, ROUND_TRIES = 20 };

/* Port 0: any. At all addresses. */
static bool round_is_free(int port, int *port_p)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t size = sizeof(address);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is_free = fd >= 0 && bind(fd, (struct sockaddr *)&address, size) == 0 &&
                         getsockname(fd, (struct sockaddr *)&address, &size) == 0;
    const int error = errno;

    if (fd >= 0)
        close(fd);
    errno = error;
    if (is_free)
        *port_p = ntohs(address.sin_port);
    return is_free;
}

/*
 * Rank 0 may listen at any address. The port is not kept: a program need not say that it shares
 * addresses. So that nobody gets it before, which on a busy machine is seconds, it is none of those
 * that a connection of another program may get, and at random, so that two jobs which start
 * together hardly have the same.
 */
dist_status disti_run_free_port(int *port_p)
{
    unsigned number;

    for (int tries = 0; tries < ROUND_TRIES; tries++) {
        if (getrandom(&number, sizeof(number), GRND_NONBLOCK) == (ssize_t)sizeof(number) &&
            round_is_free(ROUND_PORT_FIRST + (int)(number % ROUND_PORTS), port_p))
            return DIST_OK;
    }
    if (round_is_free(0, port_p))
        return DIST_OK;
    return disti_fail_errno(DIST_ERR_SYSTEM, "there is no free port: give one by --master-port");
}

const char *disti_run_store_host(const struct disti_run_round *round)
{
    return round->nodes == 1 ? disti_loopback() : round->master_address;
}

/* The node's processes: the first node has the scheduler, if the job has one. */
static int run_processes(const struct disti_run_options *options,
                         const struct disti_run_round *round)
{
    return round->workers + (options->scheduler && round->node_rank == 0);
}

/*
 * The round of a node that is the only one. ERR_ADDRESS_IN_USE, ERR_SYSTEM: there is no port for
 * rank 0. Does not block.
 */
static dist_status run_round_local(const struct disti_run_options *options, int restarts,
                                   struct disti_run_round *round_p)
{
    const char *host = options->master_addr ? options->master_addr : disti_loopback();
    char id[33];
    dist_status status = DIST_OK;

    round_p->restarts = round_p->attempt = restarts;
    round_p->node_rank = round_p->first_rank = 0;
    round_p->nodes = 1;
    round_p->workers = round_p->world_size = options->workers;
    round_p->processes = run_processes(options, round_p);
    snprintf(round_p->master_address, sizeof(round_p->master_address), "%s", host);
    disti_host_normalize(round_p->master_address);
    round_p->master_port = (int)options->master_port;
    round_p->store_port = 0;
    if (options->master_port < 0)
        status = disti_run_free_port(&round_p->master_port);
    if (status == DIST_OK && options->scheduler)
        status = disti_run_free_port(&round_p->store_port);
    if (options->rdzv_id) {
        snprintf(round_p->job, sizeof(round_p->job), "%s", options->rdzv_id);
    } else if (status == DIST_OK && !round_p->job[0]) {
        /* As torch names a job that has no name: 8-4-4-4-12 hexadecimal digits. */
        status = disti_random_id(id);
        if (status == DIST_OK)
            snprintf(round_p->job, sizeof(round_p->job), "%.8s-%.4s-%.4s-%.4s-%.12s", id, id + 8,
                     id + 12, id + 16, id + 20);
    }
    if (status == DIST_OK)
        status = disti_random_id(round_p->store_word);
    return status;
}

/* What the agents of other nodes say, as orders for this one. */

enum { MEETING_LINGER_MS = 2000 }; /* until the others have heard the last word */

/* Is this agent to tell what all of them know? Of those that a starter started the first one is. */
static bool agent_speaks(const struct disti_run_agent *agent)
{
    return !agent->options->leashed || agent->options->node_rank <= 0;
}

/* round.c: the meeting with other nodes. ERR_INVALID_ARGUMENT, ERR_RENDEZVOUS and others. */
static dist_status meeting_open(struct disti_run_agent *agent)
{
    const struct disti_run_options *options = agent->options;
    struct disti_agents_config config;
    dist_status status = DIST_OK;

    disti_agents_defaults(&config);
    config.endpoint_host = options->endpoint;
    config.endpoint_port = options->endpoint_port;
    config.serve = options->rdzv_endpoint    ? DISTI_AGENTS_SERVE_IF_OWN
                   : options->node_rank == 0 ? DISTI_AGENTS_SERVE
                                             : DISTI_AGENTS_SERVE_NEVER;
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
    round->processes = run_processes(agent->options, round);
    snprintf(round->master_address, sizeof(round->master_address), "%s", from->master_address);
    round->master_port = from->master_port;
    round->store_port = from->store_port;
    memcpy(round->store_word, from->store_secret, sizeof(round->store_word));
    snprintf(round->job, sizeof(round->job), "%s", from->job);
    agent->met = agent->has_met = true;
}

/* What follows a round is about that round: it waits until the round has begun. */
void disti_run_meeting_move(struct disti_run_agent *agent)
{
    struct disti_agents_event event;

    while (!agent->met && disti_agents_next_event(agent->agents, &event)) {
        if (event.type == DISTI_AGENTS_ROUND) {
            meeting_take_round(agent, &event.round);
        } else if (event.type == DISTI_AGENTS_NOTE) {
            if (agent_speaks(agent) || !agent->has_met)
                fprintf(stderr, "distrun: %s\n", event.text);
        } else {
            agent->order = event.type;
            agent->failure = event.failure;
            snprintf(agent->why, sizeof(agent->why), "%s", event.text);
            /* What the workers are to do is the same for all orders: end, if they run. */
            if (agent->state == DISTI_RUN_WORKING)
                disti_run_agent_stop(agent, SIGTERM, agent->options->shutdown_timeout);
        }
    }
}

void disti_run_meeting_fail(struct disti_run_agent *agent,
                            const struct disti_agents_failure *failure)
{
    if (agent->order == DISTI_AGENTS_NOTE)
        disti_agents_failed(agent->agents, failure);
}

/* Leaves; the others hear why, if the job has not ended. */
static void meeting_close(struct disti_run_agent *agent)
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

/* The agent's life: rounds until the workers succeed, or no restart is left. */

enum { AGENT_FILES = 65536, AGENT_FAILED = 1, AGENT_WRONG = 2 /* what was asked for */ };

/* Each worker takes up to five descriptors here; it gets the limit that the agent found. */
bool disti_run_open(struct rlimit *found_p, int *child_fd_p, int *done_fd_p)
{
    struct rlimit files;
    sigset_t child;

    if (getrlimit(RLIMIT_NOFILE, found_p) == 0) {
        files = *found_p;
        if (files.rlim_cur < AGENT_FILES)
            files.rlim_cur = files.rlim_max < AGENT_FILES ? files.rlim_max : AGENT_FILES;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    *child_fd_p = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    *done_fd_p = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return *child_fd_p >= 0 && *done_fd_p >= 0;
}

/* The starter holds the other end of standard input, of which the workers have no need. */
static bool agent_take_leash(struct disti_run_agent *agent)
{
    int nothing;

    agent->leash_fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (agent->leash_fd < 0 || nothing < 0 || dup2(nothing, STDIN_FILENO) < 0)
        return false;
    close(nothing);
    return true;
}

/* One line that says who may run where. */
static void agent_tell_binding(const struct disti_run_agent *agent)
{
    const struct disti_run_binding *binding = &agent->binding;
    const char *set = disti_env("OMP_NUM_THREADS");
    char threads[32];

    if ((binding->workers == 1 && !binding->cpus) || !agent_speaks(agent))
        return;
    snprintf(threads, sizeof(threads), "%d", binding->threads);
    fprintf(stderr, "distrun: %d worker%s on %d CPU%s, bound to: %s; OMP_NUM_THREADS=%s%s\n",
            binding->workers, binding->workers == 1 ? "" : "s", binding->usable,
            binding->usable == 1 ? "" : "s", binding->mode, set ? set : threads,
            set ? " (as it was set)" : "");
}

/* distrun's exit code for a failure of its own. */
static int agent_code(dist_status status)
{
    return status == DIST_ERR_INVALID_ARGUMENT ? AGENT_WRONG : AGENT_FAILED;
}

/* ---- rounds ---- */

/* The round's things; its processes are gone, unless nobody waits for their output. */
static void agent_end_round(struct disti_run_agent *agent)
{
    for (int s = 0; s < 2 && !agent->hurry; s++) {
        agent->unsaid |= !disti_run_output_end(agent->outputs[s]);
        agent->outputs[s] = NULL;
    }
    disti_store_server_stop(agent->store, 0);
    agent->store = NULL;
    for (int w = 0; agent->workers && w < agent->round.processes; w++) {
        if (agent->workers[w].error_fd >= 0)
            close(agent->workers[w].error_fd);
    }
    if (agent->last_calls_fd >= 0)
        close(agent->last_calls_fd);
    if (agent->secret_fd >= 0)
        close(agent->secret_fd);
    agent->last_calls_fd = agent->secret_fd = -1;
    free(agent->workers);
    agent->workers = NULL;
}

/* What is to be said of the last round, and distrun's exit code. A starter has its own word for its
 * signal, which may come when all is over but the workers' end. */
static int agent_conclude(const struct disti_run_agent *agent)
{
    const bool failed = agent->order == DISTI_AGENTS_GIVEN_UP &&
                        agent->failure.cause == DISTI_AGENTS_WORKER_FAILED &&
                        agent->failure.pid > 0;
    char name[16];

    if (agent->stop_signal && agent->options->leashed && !failed)
        return 128 + agent->stop_signal;
    if (agent->stop_signal && !agent->options->leashed) {
        disti_run_signal_name(agent->stop_signal, name);
        fprintf(stderr, "distrun: stopped by %s\n", name);
        return 128 + agent->stop_signal;
    }
    if (agent->order == DISTI_AGENTS_FINISHED)
        return 0;
    if (failed) {
        /* Of agents that a starter started, that of the worker which failed; else all, as
         * torchrun's do. */
        if (!agent->options->leashed || agent->failure.node_rank == agent->round.node_rank)
            disti_run_failure_print(agent->options, &agent->round, agent->workers,
                                    agent->last_calls_fd, &agent->failure);
        return disti_run_exit_code(&agent->failure);
    }
    if (agent_speaks(agent) || !agent->has_met)
        fprintf(stderr, "distrun: %s\n", agent->why);
    /* Of workers that could not be started. */
    if (agent->failure.cause == DISTI_AGENTS_WORKER_FAILED && agent->failure.pid < 0)
        return agent->failure.exit_code;
    return AGENT_FAILED;
}

/* Of a node that is the only one, what the others would tell it. */
static void agent_decide(struct disti_run_agent *agent)
{
    bool again = agent->round.restarts < agent->options->max_restarts && !agent->hurry;
    char name[32];

    if (!agent->first) {
        agent->order = DISTI_AGENTS_FINISHED;
        return;
    }
    if (agent->options->goes_on && agent->first->local_rank >= 0)
        again = again && agent->succeeded == 0;
    disti_run_failure_of(&agent->round, agent->first, agent->last_calls_fd, &agent->failure);
    agent->order = again ? DISTI_AGENTS_RESTART : DISTI_AGENTS_GIVEN_UP;
    disti_run_worker_name(agent->failure.rank, name);
    snprintf(agent->why, sizeof(agent->why), "%s (pid %d) ended with %s %d%s", name,
             agent->failure.pid, agent->failure.signal ? "signal" : "exit code",
             agent->failure.signal ? agent->failure.signal : agent->failure.exit_code,
             disti_process_oom_text(agent->failure.is_out_of_memory));
}

/* The workers could not be started, here or anywhere: the other nodes need not try. */
static void agent_fail_to_start(struct disti_run_agent *agent, dist_status why)
{
    struct disti_agents_failure failure = {.cause = DISTI_AGENTS_WORKER_FAILED,
                                           .node_rank = agent->round.node_rank,
                                           .rank = -1,
                                           .local_rank = -1,
                                           .pid = -1,
                                           .exit_code = agent_code(why),
                                           .is_final = true};

    snprintf(failure.text, sizeof(failure.text), "%s", dist_last_error());
    disti_run_agent_stop(agent, SIGTERM, agent->options->shutdown_timeout);
    if (agent->agents) {
        disti_run_meeting_fail(agent, &failure);
        return;
    }
    agent->order = DISTI_AGENTS_BROKEN;
    agent->failure = failure;
    snprintf(agent->why, sizeof(agent->why), "%s", failure.text);
}

/* From the start of the workers until they are gone, and it is known what comes next. */
static void agent_round(struct disti_run_agent *agent)
{
    dist_status status;

    agent->state = DISTI_RUN_WORKING;
    agent->alive = agent->outputs_left = 0;
    agent->kill_at = INT64_MAX;
    agent->clocks = 0;
    agent->first = NULL;
    agent->met = agent->killed = false;
    agent->order = DISTI_AGENTS_NOTE;
    agent->oom_kills = disti_process_oom_kills();
    status = disti_run_agent_start(agent);
    if (status != DIST_OK)
        agent_fail_to_start(agent, status);
    else if (agent->suspended_at)
        disti_run_agent_suspend(agent);
    disti_run_agent_watch(agent);
    if (!agent->agents && agent->order == DISTI_AGENTS_NOTE)
        agent_decide(agent);
}

/* False: there is none, and the order says why. */
static bool agent_next_round(struct disti_run_agent *agent, int restarts)
{
    agent->order = DISTI_AGENTS_NOTE;
    if (agent->agents) {
        if (restarts > 0)
            disti_agents_ready(agent->agents);
        disti_run_agent_watch(agent);
        return agent->met && !agent->stop_signal;
    }
    if (run_round_local(agent->options, restarts, &agent->round) == DIST_OK)
        return true;
    agent->order = DISTI_AGENTS_BROKEN;
    snprintf(agent->why, sizeof(agent->why), "%s", dist_last_error());
    return false;
}

/* The first round names the job, which the folder of its files is called by. */
static void agent_rounds(struct disti_run_agent *agent)
{
    for (int restarts = 0; agent_next_round(agent, restarts); restarts++) {
        if (restarts == 0 &&
            disti_run_logs_open(agent->options, agent->round.job, &agent->logs) != DIST_OK) {
            agent->order = DISTI_AGENTS_BROKEN;
            snprintf(agent->why, sizeof(agent->why), "%s", dist_last_error());
            return;
        }
        agent_round(agent);
        if (agent->order != DISTI_AGENTS_RESTART || agent->stop_signal)
            return;
        if (agent_speaks(agent))
            fprintf(stderr, "distrun: %s: starting all workers again\n", agent->why);
        agent_end_round(agent);
    }
}

/* Who kills the guard's process group, as timeout -k does, leaves one that ends the rest. It still
 * writes to the terminal, even if that stops others in the background. */
int disti_run_agent(int signals_fd, const sigset_t *mask, const struct disti_run_options *options)
{
    struct disti_run_agent agent = {.options = options,
                                    .mask = *mask,
                                    .group = getpgrp(),
                                    .signals_fd = signals_fd,
                                    .secret_fd = -1,
                                    .leash_fd = -1,
                                    .last_calls_fd = -1,
                                    .state = DISTI_RUN_OVER,
                                    .kill_at = INT64_MAX};
    int code = AGENT_FAILED;
    dist_status status;
    sigset_t stops;

    sigemptyset(&stops);
    sigaddset(&stops, SIGTTOU);
    sigprocmask(SIG_BLOCK, &stops, NULL);
    setpgid(0, 0);
    if (!disti_run_open(&agent.files, &agent.child_fd, &agent.done_fd) ||
        (options->leashed && !agent_take_leash(&agent))) {
        disti_fail_call("signalfd, eventfd or pipe", "cannot watch over workers");
        fprintf(stderr, "distrun: %s\n", dist_last_error());
        return code;
    }
    status = disti_run_binding_make(options->numa, options->workers, &agent.binding);
    if (status == DIST_OK)
        agent_tell_binding(&agent);
    if (status == DIST_OK && options->most_nodes > 1)
        status = meeting_open(&agent);
    if (status == DIST_OK) {
        agent_rounds(&agent);
        code = agent_conclude(&agent);
    } else {
        fprintf(stderr, "distrun: %s\n", dist_last_error());
        code = agent_code(status);
    }
    agent_end_round(&agent);
    if (agent.unsaid && code == 0)
        code = AGENT_FAILED;
    meeting_close(&agent);
    free(agent.binding.cpus);
    /* Threads that wait for a reader go with the process, and what they hold. */
    if (agent.hurry)
        _exit(code);
    return code;
}
