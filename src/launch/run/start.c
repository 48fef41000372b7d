/* SPDX-License-Identifier: BSD-3-Clause */
/* Starts a round: the store, the workers with their files and pipes, and who reads those. */
#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/net.h"
#include "base/settings/env.h"
#include "launch/options/words.h"
#include "launch/run/agent.h"
#include "launch/workers/environment.h"
#include "store/server.h"
#include "store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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

/* Writes the store's secret to a file for the workers. With DIST_AUTH=none the store has no secret.
 */
static dist_status start_secret(struct disti_run_agent *agent)
{
    const char *auth = disti_env("DIST_AUTH");

    agent->round.store_secret[0] = '\0';
    if (auth && strcmp(auth, "none") == 0) {
        agent->round.store_word[0] = '\0';
        return DIST_OK;
    }
    agent->secret_fd = disti_handed_secret(agent->round.store_word);
    if (agent->secret_fd < 0)
        return disti_file_memory_fail("keep the store's secret");
    start_path(agent->secret_fd, agent->round.store_secret, sizeof(agent->round.store_secret));
    return DIST_OK;
}

/*
 * Is that an address of this machine's? The others may know it by one that a router translates, or
 * by a name, which may stand for something else here.
 */
static bool start_is_here(const char *host)
{
    const struct addrinfo numeric = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_DGRAM};
    struct addrinfo *addresses;
    bool here = false;

    if (getaddrinfo(host, NULL, &numeric, &addresses) != 0)
        return false;
    for (const struct addrinfo *a = addresses; a && !here; a = a->ai_next) {
        const int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        here = fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) == 0;
        if (fd >= 0)
            close(fd);
    }
    freeaddrinfo(addresses);
    return here;
}

dist_status disti_run_agent_serve(struct disti_run_agent *agent)
{
    struct disti_run_round *round = &agent->round;
    const char *host = disti_run_store_host(round);
    const dist_status status = disti_store_server_listen(
        start_is_here(host) ? host : NULL, round->store_port, round->world_size, 0, &agent->store);

    if (status != DIST_OK)
        return status;
    round->store_port = disti_store_server_port(agent->store);
    disti_store_server_set_word(agent->store, round->store_word);
    return disti_store_server_run(agent->store);
}

/*
 * The first node's agent has the store of all, or the scheduler that it starts: it outlives rank 0,
 * so that all ranks hear of its end too. The workers of the other nodes wait until it is there.
 */
static dist_status start_store(struct disti_run_agent *agent)
{
    struct disti_run_round *round = &agent->round;
    dist_status status = start_secret(agent);

    if (status == DIST_OK && round->node_rank == 0 && !agent->options->scheduler)
        status = disti_run_agent_serve(agent);
    snprintf(round->store, sizeof(round->store), "%s:%d", disti_run_store_host(round),
             round->store_port);
    return status;
}

/* ---- a worker's streams ---- */

static dist_status start_pipe(struct disti_run_source *source, int *to_p)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        return disti_fail_call("pipe2", "cannot read what the workers print");
    source->fd = ends[0];
    *to_p = ends[1];
    return DIST_OK;
}

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
    int log_fd = -1, rank;

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
    rank = worker->local_rank < 0 ? -1 : agent->round.first_rank + worker->local_rank;
    disti_run_prefix(
        options->prefix,
        &(struct disti_run_names){
            .role = options->role, .host = host, .rank = rank, .local_rank = worker->local_rank},
        source->prefix, sizeof(source->prefix));
    source->log_fd = log_fd;
    status = start_pipe(source, to_p);
    if (status == DIST_OK)
        sources->count[stream]++;
    else if (log_fd >= 0)
        close(log_fd);
    return status;
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

/* NULL: no memory. */
static char **start_environment(const struct disti_run_agent *agent,
                                const struct disti_run_worker *worker)
{
    const bool several = agent->round.workers > 1;
    char last_calls[64], secret[DISTI_HANDED_TEXT], calls[DISTI_HANDED_TEXT];
    char files[2 * DISTI_HANDED_TEXT];
    const struct disti_run_place place = {.local_rank = worker->local_rank,
                                          .error_file = worker->error_file,
                                          .last_calls = last_calls,
                                          .files = files,
                                          .threads = several ? agent->binding.threads : 0};

    start_path(agent->last_calls_fd, last_calls, sizeof(last_calls));
    disti_handed_name(agent->secret_fd, secret);
    disti_handed_name(agent->last_calls_fd, calls);
    snprintf(files, sizeof(files), "%s,%s", secret, calls);
    return disti_run_environment(agent->options, &agent->round, &place);
}

/* Rank 0 reads the standard input of distrun, all other processes read nothing. */
static int start_input(const struct disti_run_agent *agent, const struct disti_run_worker *worker)
{
    if (worker->local_rank >= 0 && agent->round.first_rank + worker->local_rank == 0)
        return -1;
    return disti_descriptor_raise(open("/dev/null", O_RDONLY | O_CLOEXEC));
}

static dist_status start_process(struct disti_run_agent *agent, struct disti_run_worker *worker,
                                 const int fds[3])
{
    const bool bound = agent->binding.cpus && worker->local_rank >= 0;
    char **environment = start_environment(agent, worker), name[32];
    const struct disti_run_start start = {.name = name,
                                          .path = agent->options->path,
                                          .command = agent->options->command,
                                          .environment = environment,
                                          .fds = {fds[0], fds[1], fds[2]},
                                          .cpus = bound ? &agent->binding.cpus[worker->local_rank]
                                                        : NULL,
                                          .mask = agent->mask,
                                          .files = agent->files,
                                          .group = agent->group,
                                          .inherited = {agent->secret_fd, agent->last_calls_fd}};
    dist_status status;

    if (worker->local_rank < 0)
        snprintf(name, sizeof(name), "the scheduler");
    else
        snprintf(name, sizeof(name), "rank %d", agent->round.first_rank + worker->local_rank);
    if (!environment)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for the workers' environment");
    status = disti_run_worker_start(&start, &worker->pid);
    disti_run_environment_free(environment);
    return status;
}

static dist_status start_worker(struct disti_run_agent *agent, struct disti_run_worker *worker,
                                struct start_sources *sources)
{
    int fds[3] = {start_input(agent, worker), -1, -1};
    dist_status status = start_error_file(agent, worker);

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

/* Whoever was started needs readers even if others could not be. */
static dist_status start_outputs(struct disti_run_agent *agent, const struct start_sources *sources)
{
    dist_status status = DIST_OK;

    for (int s = 0; s < 2; s++) {
        const dist_status one =
            disti_run_output_start(s == 0 ? STDOUT_FILENO : STDERR_FILENO, sources->of[s],
                                   sources->count[s], agent->done_fd, &agent->outputs[s]);

        if (one == DIST_OK)
            agent->outputs_left++;
        else
            status = one;
    }
    return status;
}

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
    outputs = start_outputs(agent, sources);
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
