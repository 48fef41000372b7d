/* SPDX-License-Identifier: BSD-3-Clause */
/* A round on this node: starts the store and the workers, and watches over them. */
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/net.h"
#include "base/process.h"
#include "base/settings/env.h"
#include "launch/agent.h"
#include "launch/failure.h"
#include "store/server.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Starts a round: the store, the workers with their files and pipes, and who reads those. */

/* Where the streams of all workers come from: stdout's, then stderr's. */
struct start_sources {
    struct disti_run_source *of[2];
    int count[2];
};

static const char *const start_files[] = {"stdout.log", "stderr.log"};

/* The path by which another process of this user opens our memfd: nothing lies about if we die. */
static void start_path(int fd, char *path, size_t size)
{
    snprintf(path, size, "/proc/%d/fd/%d", (int)getpid(), fd);
}

/* ---- the store ---- */

/* Holds the store of all at the round's port, until the round ends. The others may know this
 * machine by an address that a router translates, or by a name, which may stand for something else
 * here: then the store listens at all addresses. */
static dist_status start_serve(struct disti_run_agent *agent)
{
    struct disti_run_round *round = &agent->round;
    const char *host = disti_run_store_host(round);
    const dist_status status =
        disti_store_server_listen(disti_hosts_is_own_address(host) ? host : NULL, round->store_port,
                                  round->world_size, 0, &agent->store);

    if (status != DIST_OK)
        return status;
    round->store_port = disti_store_server_port(agent->store);
    disti_store_server_set_word(agent->store, round->store_word);
    return disti_store_server_run(agent->store);
}

/*
 * The first node's agent has the store of all, or the scheduler that it starts: it outlives rank 0,
 * so that all ranks hear of its end too. The workers of the other nodes wait until it is there. The
 * store's secret is in a file for the workers; with DIST_AUTH=none there is none.
 */
static dist_status start_store(struct disti_run_agent *agent)
{
    struct disti_run_round *round = &agent->round;
    const char *auth = disti_env("DIST_AUTH");
    dist_status status = DIST_OK;

    round->store_secret[0] = '\0';
    if (auth && strcmp(auth, "none") == 0) {
        round->store_word[0] = '\0';
    } else {
        agent->secret_fd = disti_handed_secret(round->store_word);
        if (agent->secret_fd < 0)
            return disti_file_memory_fail("keep the store's secret");
        start_path(agent->secret_fd, round->store_secret, sizeof(round->store_secret));
    }
    if (round->node_rank == 0 && !agent->options->scheduler)
        status = start_serve(agent);
    snprintf(round->store, sizeof(round->store), "%s:%d", disti_run_store_host(round),
             round->store_port);
    return status;
}

/* ---- a worker's streams ---- */

/* What the worker writes to, *to_p: a file, nothing, or a pipe, whose other end is a source. */
static dist_status start_stream(struct disti_run_agent *agent,
                                const struct disti_run_worker *worker, int stream,
                                struct start_sources *sources, int *to_p)
{
    const struct disti_run_options *options = agent->options;
    const int bit = stream == 0 ? DISTI_RUN_STDOUT : DISTI_RUN_STDERR;
    const bool tee = disti_run_streams(options->tee, worker->local_rank) & bit;
    const bool redirect = disti_run_streams(options->redirects, worker->local_rank) & bit;
    struct disti_run_source *source = &sources->of[stream][sources->count[stream]];
    dist_status status = DIST_OK;
    char host[DISTI_HOST_SIZE];
    int log_fd = -1, ends[2];

    *source = (struct disti_run_source){
        .shown = disti_run_is_listed(options->shown, worker->local_rank) != 0};
    if (tee || redirect)
        status = disti_run_logs_file(&agent->logs, agent->round.attempt, worker->local_rank,
                                     start_files[stream], &log_fd);
    if (status != DIST_OK)
        return status;
    if (log_fd >= 0 && (!tee || !source->shown)) {
        *to_p = log_fd;
        return DIST_OK;
    }
    if (!source->shown) {
        *to_p = open("/dev/null", O_WRONLY | O_CLOEXEC);
        return DIST_OK;
    }
    disti_host_name(host);
    disti_run_prefix(
        options->prefix,
        &(struct disti_run_names){.role = options->role,
                                  .host = host,
                                  .rank = disti_run_rank(&agent->round, worker->local_rank),
                                  .local_rank = worker->local_rank},
        source->prefix, sizeof(source->prefix));
    source->log_fd = log_fd;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        status = disti_fail_call("pipe2", "cannot read what the workers print");
        if (log_fd >= 0)
            close(log_fd);
        return status;
    }
    source->fd = ends[0];
    *to_p = ends[1];
    sources->count[stream]++;
    return DIST_OK;
}

/* torch's main writes its exception there: into a file of the job's folder, or into memory. */
static dist_status start_error_file(struct disti_run_agent *agent, struct disti_run_worker *worker)
{
    worker->error_fd = -1;
    if (agent->logs.folder[0]) {
        disti_run_logs_path(&agent->logs, agent->round.attempt, worker->local_rank, "error.json",
                            worker->error_file);
        return disti_run_logs_add(&agent->logs, agent->round.attempt, worker->local_rank);
    }
    worker->error_fd = disti_file_private();
    if (worker->error_fd < 0)
        return disti_file_memory_fail("make the workers' error files");
    start_path(worker->error_fd, worker->error_file, sizeof(worker->error_file));
    return DIST_OK;
}

/* ---- workers ---- */

static dist_status start_process(struct disti_run_agent *agent, struct disti_run_worker *worker,
                                 const int fds[3])
{
    const bool bound = agent->binding.cpus && worker->local_rank >= 0;
    struct disti_run_list environment = {0};
    char last_calls[64], secret[DISTI_HANDED_TEXT], calls[DISTI_HANDED_TEXT];
    char files[2 * DISTI_HANDED_TEXT], name[32];
    const struct disti_run_place place = {
        .local_rank = worker->local_rank,
        .error_file = worker->error_file,
        .last_calls = last_calls,
        .files = files,
        .threads = agent->round.workers > 1 ? agent->binding.threads : 0};
    struct disti_run_start start = {.name = name,
                                    .path = agent->options->path,
                                    .command = agent->options->command,
                                    .fds = {fds[0], fds[1], fds[2]},
                                    .cpus = bound ? &agent->binding.cpus[worker->local_rank] : NULL,
                                    .mask = agent->mask,
                                    .files = agent->files,
                                    .group = agent->group,
                                    .inherited = {agent->secret_fd, agent->last_calls_fd}};
    dist_status status;

    disti_run_worker_name(disti_run_rank(&agent->round, worker->local_rank), name);
    start_path(agent->last_calls_fd, last_calls, sizeof(last_calls));
    disti_handed_name(agent->secret_fd, secret);
    disti_handed_name(agent->last_calls_fd, calls);
    snprintf(files, sizeof(files), "%s,%s", secret, calls);
    disti_run_environment(agent->options, &agent->round, &place, &environment);
    start.environment = environment.words;
    status = environment.failed
                 ? disti_fail(DIST_ERR_NO_MEMORY, "no memory for the workers' environment")
                 : disti_run_worker_start(&start, &worker->pid);
    disti_run_list_free(&environment);
    return status;
}

static dist_status start_worker(struct disti_run_agent *agent, struct disti_run_worker *worker,
                                struct start_sources *sources)
{
    int fds[3] = {-1, -1, -1};
    dist_status status = start_error_file(agent, worker);

    /* Rank 0 reads the standard input of distrun, all other processes read nothing. */
    if (disti_run_rank(&agent->round, worker->local_rank) != 0)
        fds[0] = disti_descriptor_raise(open("/dev/null", O_RDONLY | O_CLOEXEC));
    for (int s = 0; s < 2 && status == DIST_OK; s++)
        status = start_stream(agent, worker, s, sources, &fds[1 + s]);
    if (status == DIST_OK)
        status = start_process(agent, worker, fds);
    for (int s = 0; s < 3; s++) {
        if (fds[s] >= 0)
            close(fds[s]);
    }
    if (status == DIST_OK)
        agent->alive++;
    return status;
}

/* Starts the workers, and readers for all that were started, even if others could not be. */
static dist_status start_workers(struct disti_run_agent *agent, struct start_sources *sources)
{
    const size_t count = (size_t)agent->round.processes;
    dist_status status = DIST_OK, outputs;
    char why[DISTI_AGENTS_TEXT];

    agent->workers = calloc(count, sizeof(*agent->workers));
    for (int s = 0; s < 2; s++)
        sources->of[s] = calloc(count + 1, sizeof(*sources->of[s]));
    if (!agent->workers || !sources->of[0] || !sources->of[1])
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for %zu workers: start fewer", count);
    agent->last_calls_fd = disti_last_call_file(agent->round.processes);
    /* Under a tight limit on file sizes, or if memfd_create is denied, the job runs without. */
    if (agent->last_calls_fd < 0 && errno != EFBIG && !disti_call_denied(errno))
        return disti_file_memory_fail("make the file of the workers' last calls");
    for (size_t w = 0; w < count; w++) {
        agent->workers[w].local_rank = (int)w < agent->round.workers ? (int)w : -1;
        agent->workers[w].error_fd = -1;
    }
    for (size_t w = 0; w < count && status == DIST_OK; w++)
        status = start_worker(agent, &agent->workers[w], sources);
    if (status != DIST_OK)
        snprintf(why, sizeof(why), "%s", dist_last_error());
    outputs = disti_run_outputs_start(sources->of, sources->count, agent->done_fd, agent->outputs,
                                      &agent->outputs_left);
    return status == DIST_OK ? outputs : disti_fail(status, "%s", why);
}

dist_status disti_run_agent_start(struct disti_run_agent *agent)
{
    struct start_sources sources = {{NULL, NULL}, {0, 0}};
    dist_status status = start_store(agent);

    if (status == DIST_OK)
        status = start_workers(agent, &sources);
    free(sources.of[0]);
    free(sources.of[1]);
    return status;
}

/* What happens in a round: workers end, signals come, times run out. */

enum {
    WATCH_CHILDREN_MS = 1000, /* from SIGTERM to SIGKILL for those whose worker has ended */
    WATCH_KILL_MS = 100,      /* between two rounds of SIGKILL: new processes may have come */
    WATCH_CAUSE_MS = 300,     /* from the end of one that has lost another to that one's end */
    WATCH_TWICE_MS = 200      /* a second signal counts after this: the same may come by two ways */
};

/* The scheduler is one. Between rounds, and if the store cannot be started, there are none. */
static int watch_workers(const struct disti_run_agent *agent)
{
    return agent->workers ? agent->round.processes : 0;
}

static void watch_tell(struct disti_run_agent *agent, int signal_number, bool to_end)
{
    for (int w = 0; w < watch_workers(agent); w++) {
        struct disti_run_worker *worker = &agent->workers[w];

        if (!worker->pid || worker->ended)
            continue;
        worker->was_told |= to_end;
        kill(worker->pid, signal_number);
    }
}

static void watch_kill_in(struct disti_run_agent *agent, double seconds)
{
    agent->kill_at = disti_deadline_ms((int64_t)(seconds * 1000));
}

/* To the workers' children too, some of which may have process groups of their own. */
static void watch_tell_all(struct disti_run_agent *agent, int signal_number)
{
    watch_tell(agent, signal_number, false);
    disti_run_family_signal(signal_number);
}

void disti_run_agent_suspend(struct disti_run_agent *agent)
{
    if (!agent->suspended_at)
        agent->suspended_at = disti_now_ns();
    disti_last_call_suspend(agent->last_calls_fd, agent->round.processes, &agent->clocks);
    watch_tell_all(agent, SIGSTOP);
}

/* No time passes for the job while it is suspended. */
static void watch_resume(struct disti_run_agent *agent)
{
    int64_t *const times[] = {&agent->kill_at, &agent->cause_by, &agent->stopped_at};
    const int64_t passed = disti_now_ns() - agent->suspended_at;

    if (!agent->suspended_at)
        return;
    agent->suspended_at = 0;
    for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
        if (*times[i] < INT64_MAX - passed)
            *times[i] += passed;
    }
    disti_last_call_resume(agent->last_calls_fd, agent->round.processes, &agent->clocks);
    watch_tell_all(agent, SIGCONT);
}

void disti_run_agent_stop(struct disti_run_agent *agent, int signal_number, double seconds)
{
    watch_tell(agent, signal_number, true);
    /* A stopped process sees the signal only once it goes on. */
    watch_tell(agent, SIGCONT, true);
    watch_resume(agent);
    agent->state = DISTI_RUN_STOPPING;
    watch_kill_in(agent, seconds);
}

/* Says once a round that workers had too little time to end, and names the option. */
static void watch_tell_killed(struct disti_run_agent *agent)
{
    const struct disti_run_worker *first = NULL;
    char name[32];

    for (int w = 0; w < watch_workers(agent) && !first; w++) {
        if (agent->workers[w].pid && !agent->workers[w].ended)
            first = &agent->workers[w];
    }
    if (agent->killed || agent->hurry || agent->state != DISTI_RUN_STOPPING || !first)
        return;
    agent->killed = true;
    disti_run_worker_name(disti_run_rank(&agent->round, first->local_rank), name);
    fprintf(stderr,
            "distrun: %d worker%s not ended %g s after the signal to end, as %s (pid %d): "
            "killing (--shutdown-timeout)\n",
            agent->alive, agent->alive == 1 ? " has" : "s have", agent->options->shutdown_timeout,
            name, (int)first->pid);
}

static void watch_kill(struct disti_run_agent *agent)
{
    watch_tell_killed(agent);
    watch_tell(agent, SIGKILL, true);
    watch_kill_in(agent, WATCH_KILL_MS / 1e3);
    if (disti_run_family_signal(SIGKILL) || agent->state != DISTI_RUN_SWEEPING)
        return;
    /* Children of ended workers can be found in /proc only. */
    fprintf(stderr, "distrun: a process that a worker started goes on: it cannot be found and "
                    "ended, since /proc is not mounted for this PID namespace "
                    "(unshare --mount-proc)\n");
    agent->state = DISTI_RUN_DRAINING;
    agent->kill_at = INT64_MAX;
    agent->hurry = true;
}

/* ---- workers ---- */

static void watch_reap(struct disti_run_agent *agent)
{
    const struct disti_run_worker *first = agent->state == DISTI_RUN_WORKING ? agent->first : NULL;
    /* Workers that went on fail later, for reasons of their own. */
    const bool decided = first && agent->options->goes_on && disti_expired(agent->cause_by);
    struct timespec now;
    pid_t pid;
    int how;

    clock_gettime(CLOCK_REALTIME, &now);
    while ((pid = waitpid(-1, &how, WNOHANG)) > 0) {
        struct disti_run_worker *worker = agent->workers;
        int left = watch_workers(agent);

        for (; left > 0 && (worker->pid != pid || worker->ended); left--)
            worker++;
        if (left == 0) /* an adopted process */
            continue;
        worker->ended = true;
        worker->how = how;
        worker->ended_at = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
        worker->is_out_of_memory = !worker->was_told && WIFSIGNALED(how) &&
                                   WTERMSIG(how) == SIGKILL &&
                                   disti_process_oom_kills() > agent->oom_kills;
        agent->oom_kills += worker->is_out_of_memory;
        agent->alive--;
        /* A program that knows of no schedulers may take its part in a job that ended well for an
         * error. And once the node's workers have ended well a scheduler only tells who left
         * without a goodbye: who fails on another node is known from there. */
        if (worker->local_rank < 0 && WIFEXITED(how) &&
            (agent->alive == 0 ||
             disti_last_call_served(agent->last_calls_fd, agent->round.workers)))
            worker->how = 0;
        /* A scheduler that has ended well ends no workers, which may not have met yet, or may meet
         * again: they need a store. */
        if (worker->local_rank < 0 && worker->how == 0 && agent->alive > 0 && !agent->store &&
            start_serve(agent) != DIST_OK)
            fprintf(stderr, "distrun: cannot hold the store now that the scheduler has ended: %s\n",
                    dist_last_error());
        worker->has_lost =
            disti_last_call_has_lost(agent->last_calls_fd, (int)(worker - agent->workers));
        if (!decided)
            first = disti_run_first_failure(first, worker);
    }
    agent->childless = pid < 0 && errno == ECHILD;
    if (agent->state != DISTI_RUN_WORKING)
        return;
    if (first && !agent->first)
        agent->cause_by = disti_deadline_ms(WATCH_CAUSE_MS);
    agent->first = first;
}

/* One that has lost another may have ended a moment before that. */
static bool watch_expects_cause(const struct disti_run_agent *agent)
{
    return agent->state == DISTI_RUN_WORKING && agent->first && agent->first->has_lost &&
           agent->alive > 0 && !disti_expired(agent->cause_by);
}

/* ---- signals ---- */

static void watch_hurry(struct disti_run_agent *agent)
{
    if (!agent->stop_signal)
        agent->stop_signal = SIGKILL;
    agent->hurry = true;
    watch_resume(agent);
    watch_kill(agent);
}

static void watch_pass_on(struct disti_run_agent *agent, const struct disti_run_signal *news)
{
    if (sigismember(&agent->options->signals, news->number) != 1) {
        if (news->number == SIGTSTP)
            disti_run_agent_suspend(agent);
        else if (news->number == SIGCONT)
            watch_resume(agent);
        else if (!news->from_terminal)
            watch_tell(agent, news->number, false);
    } else if (!agent->stop_signal) {
        agent->stop_signal = news->number;
        if (agent->state == DISTI_RUN_WORKING)
            disti_run_agent_stop(agent, news->from_terminal ? 0 : news->number,
                                 agent->options->shutdown_timeout);
        else
            watch_resume(agent);
        agent->stopped_at = disti_now_ns();
    } else if (disti_now_ns() - agent->stopped_at > WATCH_TWICE_MS * INT64_C(1000000)) {
        watch_hurry(agent);
    }
}

/* The guard or the starter is gone: nobody waits for this job any more. */
static void watch_abandoned(struct disti_run_agent *agent)
{
    agent->stop_signal = SIGKILL;
    agent->hurry = true;
    if (agent->state <= DISTI_RUN_STOPPING)
        disti_run_agent_stop(agent, SIGTERM, WATCH_CHILDREN_MS / 1e3);
    else
        watch_resume(agent);
}

static void watch_signals(struct disti_run_agent *agent)
{
    struct disti_run_signal news;
    ssize_t got;

    while ((got = recv(agent->signals_fd, &news, sizeof(news), MSG_DONTWAIT)) == sizeof(news))
        watch_pass_on(agent, &news);
    if (got != 0)
        return;
    close(agent->signals_fd);
    agent->signals_fd = -1;
    watch_abandoned(agent);
}

/* What the starter says, again and again: a signal as the starter had it. A terminal's goes to all
 * that a terminal here would reach. The starter's end is that of the job. */
static void watch_leash(struct disti_run_agent *agent)
{
    unsigned char words[64];
    const ssize_t got = read(agent->leash_fd, words, sizeof(words));

    for (ssize_t w = 0; w < got; w++) {
        const struct disti_run_signal news = {words[w] % DISTI_RUN_TERMINAL,
                                              words[w] >= DISTI_RUN_TERMINAL};

        if (words[w] == DISTI_RUN_HURRY) {
            watch_hurry(agent);
        } else if (news.number != agent->stop_signal) {
            if (news.from_terminal)
                disti_run_family_signal(news.number);
            watch_pass_on(agent, &news);
        }
    }
    if (got > 0 || (got < 0 && errno == EINTR))
        return;
    close(agent->leash_fd);
    agent->leash_fd = -1;
    watch_abandoned(agent);
}

/* ---- the round ---- */

static void watch_report(struct disti_run_agent *agent, const struct disti_run_worker *worker)
{
    struct disti_agents_failure failure;
    char text[DISTI_AGENTS_TEXT];

    disti_run_failure_of(&agent->round, worker, agent->last_calls_fd, &failure);
    if (agent->agents) {
        disti_run_meeting_fail(agent, &failure);
    } else if (agent->options->goes_on && failure.rank >= 0) {
        disti_agents_describe(&failure, text, sizeof(text));
        fprintf(stderr, "distrun: %s%s\n", text,
                agent->alive > 0 ? "; the other workers go on" : "");
    }
}

/* With --on-failure continue each failure is reported as it is seen, and the other workers go on,
 * unless it is the scheduler's, which holds the store. */
static void watch_go_on(struct disti_run_agent *agent)
{
    for (int w = 0; w < watch_workers(agent); w++) {
        struct disti_run_worker *worker = &agent->workers[w];

        if (!worker->ended || worker->was_reported || !disti_run_worker_has_failed(worker))
            continue;
        /* A scheduler that has lost a rank fails when all ranks have left. */
        if (worker->local_rank < 0 && worker->has_lost)
            continue;
        worker->was_reported = true;
        if (worker->local_rank < 0)
            disti_run_agent_stop(agent, SIGTERM, agent->options->shutdown_timeout);
        watch_report(agent, worker);
    }
}

static void watch_advance(struct disti_run_agent *agent)
{
    if (agent->state == DISTI_RUN_WORKING && agent->options->goes_on) {
        watch_go_on(agent);
    } else if (agent->state == DISTI_RUN_WORKING && agent->first && !watch_expects_cause(agent)) {
        disti_run_agent_stop(agent, SIGTERM, agent->options->shutdown_timeout);
        watch_report(agent, agent->first);
    }
    if (agent->state <= DISTI_RUN_STOPPING && agent->alive == 0) {
        agent->state = DISTI_RUN_SWEEPING;
        if (!agent->childless) {
            disti_run_family_signal(SIGTERM);
            disti_run_family_signal(SIGCONT);
            watch_resume(agent);
            watch_kill_in(agent, WATCH_CHILDREN_MS / 1e3);
        }
    }
    if (agent->state == DISTI_RUN_SWEEPING && agent->childless) {
        agent->state = DISTI_RUN_DRAINING;
        agent->kill_at = INT64_MAX;
    }
    if (agent->state == DISTI_RUN_DRAINING && (agent->outputs_left == 0 || agent->hurry)) {
        agent->state = DISTI_RUN_OVER;
        agent->succeeded = 0;
        for (int w = 0; w < watch_workers(agent); w++)
            agent->succeeded += agent->workers[w].local_rank >= 0 &&
                                !disti_run_worker_has_failed(&agent->workers[w]);
        if (agent->agents && (!agent->first || agent->options->goes_on) && !agent->stop_signal &&
            agent->order == DISTI_AGENTS_NOTE)
            disti_agents_ended(agent->agents, agent->succeeded);
    }
}

static void watch_wait(struct disti_run_agent *agent)
{
    struct pollfd fds[] = {
        {.fd = agent->child_fd, .events = POLLIN},
        {.fd = agent->signals_fd, .events = POLLIN},
        {.fd = agent->done_fd, .events = POLLIN},
        {.fd = agent->agents ? disti_agents_fd(agent->agents) : -1, .events = POLLIN},
        {.fd = agent->leash_fd, .events = POLLIN}};
    const bool expects = !agent->options->goes_on && watch_expects_cause(agent);
    const int64_t until = expects ? agent->cause_by : agent->kill_at;
    const bool timeless = until == INT64_MAX || agent->suspended_at;
    const int wait_ms = timeless ? -1 : disti_left_ms(until);
    struct signalfd_siginfo child;
    uint64_t done;

    if (poll(fds, 5, wait_ms) <= 0)
        return;
    if (fds[0].revents)
        (void)!read(agent->child_fd, &child, sizeof(child));
    if (fds[1].revents)
        watch_signals(agent);
    if (fds[2].revents && read(agent->done_fd, &done, sizeof(done)) == sizeof(done))
        agent->outputs_left -= (int)done;
    if (fds[4].revents)
        watch_leash(agent);
}

void disti_run_agent_watch(struct disti_run_agent *agent)
{
    for (;;) {
        watch_reap(agent);
        if (agent->agents)
            disti_run_meeting_move(agent);
        watch_advance(agent);
        /* Over, once it is known what comes next. */
        if (agent->state == DISTI_RUN_OVER && (!agent->agents || agent->met || agent->stop_signal ||
                                               agent->order != DISTI_AGENTS_NOTE))
            return;
        if (!agent->suspended_at && disti_expired(agent->kill_at))
            watch_kill(agent);
        else
            watch_wait(agent);
    }
}
