/* SPDX-License-Identifier: BSD-3-Clause */
/* The agent's life: rounds until the workers succeed, or no restart is left. */
#include "launch/run/agent.h"

#include "base/log.h"
#include "base/settings/env.h"
#include "launch/options/words.h"
#include "launch/run/failure.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { AGENT_FILES = 65536, AGENT_FAILED = 1 };

/* Each worker takes up to five descriptors here; it gets the limit that the agent found. */
static void agent_raise_limit(struct disti_run_agent *agent)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &agent->files) != 0)
        return;
    files = agent->files;
    if (files.rlim_cur < AGENT_FILES)
        files.rlim_cur = files.rlim_max < AGENT_FILES ? files.rlim_max : AGENT_FILES;
    setrlimit(RLIMIT_NOFILE, &files);
}

static bool agent_open(struct disti_run_agent *agent)
{
    sigset_t child;

    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    agent_raise_limit(agent);
    agent->child_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    agent->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (agent->child_fd >= 0 && agent->done_fd >= 0)
        return true;
    fprintf(stderr,
            "distrun: cannot watch over workers: %s: see the limit of open files (ulimit -n)\n",
            strerror(errno));
    return false;
}

static int agent_refuse(void)
{
    fprintf(stderr, "distrun: %s\n", dist_last_error());
    return AGENT_FAILED;
}

/* One line that says who may run where. */
static void agent_tell_binding(const struct disti_run_agent *agent)
{
    const struct disti_run_binding *binding = &agent->binding;
    const char *set = disti_env("OMP_NUM_THREADS");
    char threads[32];

    if (binding->workers == 1 && !binding->cpus)
        return;
    snprintf(threads, sizeof(threads), "%d", binding->threads);
    fprintf(stderr, "distrun: %d worker%s on %d CPU%s, bound to: %s; OMP_NUM_THREADS=%s%s\n",
            binding->workers, binding->workers == 1 ? "" : "s", binding->usable,
            binding->usable == 1 ? "" : "s", binding->mode, set ? set : threads,
            set ? " (as it was set)" : "");
}

/* ---- rounds ---- */

/* The round's things; its processes are gone, unless nobody waits for their output. */
static void agent_end_round(struct disti_run_agent *agent)
{
    for (int s = 0; s < 2 && !agent->hurry; s++) {
        disti_run_output_end(agent->outputs[s]);
        agent->outputs[s] = NULL;
    }
    disti_store_server_stop(agent->store, 0);
    agent->store = NULL;
    for (int w = 0; agent->workers && w < agent->round.workers; w++) {
        if (agent->workers[w].error_fd >= 0)
            close(agent->workers[w].error_fd);
    }
    free(agent->workers);
    agent->workers = NULL;
}

/* What is to be said of the round, and distrun's exit code if it was the last one. */
static int agent_conclude(const struct disti_run_agent *agent)
{
    char name[16];

    if (agent->stop_signal) {
        disti_run_signal_name(agent->stop_signal, name);
        fprintf(stderr, "distrun: stopped by %s\n", name);
        return 128 + agent->stop_signal;
    }
    if (!agent->first)
        return 0;
    disti_run_failure_print(agent->options->program, &agent->round, agent->workers, agent->first,
                            stderr);
    return disti_run_exit_code(agent->first);
}

static bool agent_may_restart(const struct disti_run_agent *agent)
{
    return agent->first && !agent->stop_signal &&
           agent->round.restarts < agent->options->max_restarts;
}

static void agent_tell_restart(const struct disti_run_agent *agent)
{
    const struct disti_run_worker *first = agent->first;
    const bool signalled = WIFSIGNALED(first->how);

    fprintf(stderr, "distrun: rank %d (pid %d) ended with %s %d: restart %d of %d\n",
            agent->round.first_rank + first->local_rank, (int)first->pid,
            signalled ? "signal" : "exit code",
            signalled ? WTERMSIG(first->how) : WEXITSTATUS(first->how), agent->round.restarts + 1,
            (int)agent->options->max_restarts);
}

/* One round. *again_p: another one follows. */
static int agent_round(struct disti_run_agent *agent, bool *again_p)
{
    dist_status status;
    int code;

    agent->state = DISTI_RUN_WORKING;
    agent->alive = agent->outputs_left = 0;
    agent->kill_at = INT64_MAX;
    agent->first = NULL;
    status = disti_run_agent_start(agent);
    if (status != DIST_OK) {
        agent_refuse();
        disti_run_agent_stop(agent, SIGTERM, agent->options->shutdown_timeout);
    }
    disti_run_agent_watch(agent);
    *again_p = status == DIST_OK && agent_may_restart(agent);
    if (*again_p)
        agent_tell_restart(agent);
    code = *again_p || status != DIST_OK ? AGENT_FAILED : agent_conclude(agent);
    agent_end_round(agent);
    return code;
}

int disti_run_agent(int signals_fd, const sigset_t *mask, void *arg)
{
    struct disti_run_agent agent = {
        .options = arg, .mask = *mask, .signals_fd = signals_fd, .secret_fd = -1};
    bool again = true;
    int code = AGENT_FAILED;

    if (!agent_open(&agent))
        return AGENT_FAILED;
    if (disti_run_round_local(agent.options, 0, &agent.round) != DIST_OK ||
        disti_run_logs_open(agent.options, agent.round.job, &agent.logs) != DIST_OK ||
        disti_run_binding_make(agent.options->numa, agent.options->workers, &agent.binding) !=
            DIST_OK)
        return agent_refuse();
    agent_tell_binding(&agent);
    for (int restarts = 0; again; restarts++) {
        if (disti_run_round_local(agent.options, restarts, &agent.round) != DIST_OK) {
            code = agent_refuse();
            break;
        }
        code = agent_round(&agent, &again);
    }
    disti_run_binding_release(&agent.binding);
    return code;
}
