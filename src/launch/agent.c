/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The agent: runs rounds until the workers succeed or no restart is left. Each round starts the
 * store and the workers, and watches them.
 */
#include "launch/agent.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/process.h"
#include "base/settings/env.h"
#include "launch/failure.h"
#include "store/server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/*
 * A round:
 *
 *     WORKING -- a worker fails, a signal arrives --> STOPPING    other workers were sent SIGTERM
 *        |                                               |
 *        '-- all workers have ended --> SWEEPING <-------'        descendants were sent SIGTERM
 *                                          |
 *                                       DRAINING                  waits until output is copied
 *                                          |
 *                                        OVER
 *
 * With --on-failure continue a worker's failure is reported and the round stays WORKING.
 */
enum agent_state { AGENT_WORKING, AGENT_STOPPING, AGENT_SWEEPING, AGENT_DRAINING, AGENT_OVER };

struct agent {
    const struct disti_run_options *options;
    char logs[DISTI_RUN_PATH]; /* the directory of the job's log files; "": none */
    struct disti_run_binding binding;
    sigset_t mask;       /* the inherited signal mask, for the workers */
    struct rlimit files; /* the inherited limit on open files, for the workers */
    pid_t group;         /* the process group of the monitor and the workers */
    int signals_fd;      /* receives signals from the monitor */
    int child_fd;        /* a signalfd for SIGCHLD */
    int done_fd;         /* an eventfd that counts ended outputs */
    int commands_fd;     /* commands of the starter on another host; -1: none */

    /* State of this round. */
    struct disti_run_round round;
    struct disti_run_worker *workers; /* round.processes entries; the scheduler is the last */
    int token_fd;                     /* a memfd with the store's token; -1: no authentication */
    int last_calls_fd; /* a memfd: the workers' last calls (store/store.h); -1: unavailable */
    struct disti_store_server *store;
    struct disti_run_output *outputs[2];
    enum agent_state state;
    int alive; /* running workers, including the scheduler */
    int outputs_left;
    bool childless;    /* this process has no descendants */
    int64_t oom_kills; /* out-of-memory kills that the kernel counted before the round, plus workers
                        * killed in it */
    bool killed;       /* the warning that workers are killed was printed */
    int64_t kill_at;   /* deadline for SIGKILL; INT64_MAX: none */
    int succeeded;     /* number of successful workers, once all have ended */
    const struct disti_run_worker *first; /* the first worker that failed; NULL: none */
    int64_t cause_by; /* until this time, a failure that caused `first` may replace it */

    /* State of the rendezvous with other nodes. */
    struct disti_agents *agents;         /* NULL: the job has one node */
    bool has_next_round;                 /* a new round is to be started */
    bool had_round;                      /* at least one round has begun */
    enum disti_agents_event_type order;  /* how this round ends; DISTI_AGENTS_NOTE: not decided */
    struct disti_agents_failure failure; /* the cause, if it is a failure */
    char why[DISTI_AGENTS_TEXT];         /* the cause as text */

    /* State of the job. */
    int stop_signal;    /* the signal that ended the job; 0: none */
    int64_t stopped_at; /* when that signal arrived */
    int64_t clocks;     /* clock state of this round's processes: see disti_last_call_tell_clocks */
    int64_t suspended_at; /* when SIGTSTP stopped the processes; 0: they run */
    bool output_lost;     /* some output of workers could not be written */
    bool hurry;           /* do not wait until the output is read */
};

/* Log files of a job, in torchrun's directories: DIR/JOB_RANDOM/attempt_0/0/stdout.log. */

static dist_status logs_fail(const char *path)
{
    return disti_fail_errno(
        DIST_ERR_SYSTEM, "cannot create %.400s: specify a writable directory with --log-dir", path);
}

/* Makes a directory and its parents. */
static dist_status logs_make(const char *path)
{
    char part[DISTI_RUN_PATH + 64];

    snprintf(part, sizeof(part), "%s", path);
    for (char *at = part + 1; *at; at++) {
        if (*at != '/')
            continue;
        *at = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            return logs_fail(part);
        *at = '/';
    }
    return mkdir(part, 0777) != 0 && errno != EEXIST ? logs_fail(part) : DIST_OK;
}

/*
 * Makes the job's log directory if --log-dir is given or a stream is redirected to a file. Without
 * --log-dir it is below TMPDIR, and a message says where. ERR_SYSTEM: the message names the
 * directory that cannot be made.
 */
static dist_status logs_open(const struct disti_run_options *options, const char *job,
                             char directory[DISTI_RUN_PATH])
{
    const char *temporary = disti_env("TMPDIR");
    char base[DISTI_RUN_PATH / 2] = "", name[160];
    dist_status status = DIST_OK;

    directory[0] = '\0';
    if (!options->log_dir && !options->redirects && !options->tee)
        return DIST_OK;
    if (options->log_dir && strlen(options->log_dir) >= sizeof(base))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "--log-dir: the path is too long");
    if (options->log_dir) {
        snprintf(base, sizeof(base), "%s", options->log_dir);
        status = logs_make(base);
    } else {
        snprintf(base, sizeof(base), "%s/distrun_XXXXXX", temporary ? temporary : "/tmp");
        if (!mkdtemp(base))
            return logs_fail(base);
        fprintf(stderr, "distrun: writing log files to %s\n", base);
    }
    if (status != DIST_OK)
        return status;
    snprintf(name, sizeof(name), "%s_XXXXXX", job);
    for (char *slash = name; (slash = strchr(slash, '/'));) /* the job's name may be a path */
        *slash = '_';
    snprintf(directory, DISTI_RUN_PATH, "%s/%s", base, name);
    if (!mkdtemp(directory))
        return logs_fail(directory);
    /* mkdtemp makes it private; the log files are as readable as any files of the user. */
    return chmod(directory, 0755) == 0 ? DIST_OK : logs_fail(directory);
}

/* Writes the path of a process's log file. */
static void logs_path(const char *logs, int restarts, int local_rank, const char *name,
                      char path[DISTI_RUN_PATH + 64])
{
    char worker[16];

    disti_run_rank_name(local_rank, worker);
    snprintf(path, DISTI_RUN_PATH + 64, "%s/attempt_%d/%s%s%s", logs, restarts, worker,
             *name ? "/" : "", name);
}

/*
 * Opens the job's directory. -1: errno. EPERM: somebody with access to its parent has replaced it.
 */
static int logs_directory(const char *logs)
{
    const int fd = open(logs, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;

    if (fd < 0 || (fstat(fd, &status) == 0 && status.st_uid == geteuid()))
        return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

/* Opens a log file such as "stdout.log" for writing. The caller closes *fd_p. */
static dist_status logs_file(const char *logs, int restarts, int local_rank, const char *name,
                             int *fd_p)
{
    char path[DISTI_RUN_PATH + 64];
    int directory;

    *fd_p = -1;
    logs_path(logs, restarts, local_rank, name, path);
    directory = logs_directory(logs);
    if (directory >= 0) {
        *fd_p = openat(directory, path + strlen(logs) + 1,
                       O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
        close(directory);
    }
    return *fd_p < 0 ? logs_fail(path) : DIST_OK;
}

const char *disti_run_store_host(const struct disti_run_round *round)
{
    return round->nodes == 1 ? disti_loopback() : round->master_address;
}

/*
 * Returns the number of processes of this node. The first node runs the scheduler, if the job has
 * one.
 */
static int run_processes(const struct disti_run_options *options,
                         const struct disti_run_round *round)
{
    return round->workers + (options->scheduler && round->node_rank == 0);
}

/*
 * Rendezvous: the agents of all nodes decide together; this agent receives the decisions as
 * orders.
 */

/* Time for which the connections stay open, so that the other agents receive the last message. */
enum { RENDEZVOUS_LINGER_MS = 2000 };

/* True if this agent prints messages about the whole job. Of remote agents only the first does. */
static bool agent_prints(const struct agent *agent)
{
    return !agent->options->remote || agent->options->node_rank <= 0;
}

/* Opens the rendezvous with other nodes. ERR_INVALID_ARGUMENT, ERR_RENDEZVOUS and other errors. */
static dist_status rendezvous_open(struct agent *agent)
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
    config.min_nodes = options->min_nodes;
    config.max_nodes = options->max_nodes;
    config.workers = options->workers;
    config.max_restarts = (int)options->max_restarts;
    config.goes_on = options->goes_on;
    /*
     * Without an endpoint the agents use the master's port for rendezvous, so rank 0 needs another
     * port.
     */
    if (options->rdzv_endpoint && options->master_port > 0)
        config.master_port = (int)options->master_port;
    if (options->rdzv_conf)
        status = disti_agents_configure(&config, options->rdzv_conf);
    return status == DIST_OK ? disti_agents_open(&config, &agent->agents) : status;
}

static void rendezvous_report_failure(struct agent *agent,
                                      const struct disti_agents_failure *failure)
{
    if (agent->order == DISTI_AGENTS_NOTE)
        disti_agents_failed(agent->agents, failure);
}

/*
 * Starts a round: the store, the workers with their files and pipes, and the threads that read the
 * pipes.
 */

/* The pipes of all workers: index 0 is stdout, 1 is stderr. */
struct start_sources {
    struct disti_run_source *of[2];
    int count[2];
};

static const char *const start_files[] = {"stdout.log", "stderr.log"};

/*
 * Writes the path by which another process of this user can open our memfd. If we are killed, no
 * file is left behind.
 */
static void start_path(int fd, char *path, size_t size)
{
    snprintf(path, size, "/proc/%d/fd/%d", (int)getpid(), fd);
}

/* ---- the store ---- */

/*
 * Runs the job's store on the round's port until the round ends. Other nodes may reach this machine
 * through a translated address or a name that resolves differently here: then the store listens on
 * all addresses.
 */
static dist_status start_serve(struct agent *agent)
{
    struct disti_run_round *round = &agent->round;
    const char *host = disti_run_store_host(round);
    const dist_status status =
        disti_store_server_listen(disti_hosts_is_own_address(host) ? host : NULL, round->store_port,
                                  round->world_size, 0, &agent->store);

    if (status != DIST_OK)
        return status;
    round->store_port = disti_store_server_port(agent->store);
    disti_store_server_set_word(agent->store, round->store_token);
    return disti_store_server_run(agent->store);
}

/* ---- a worker's streams ---- */

/*
 * Opens the write end of a worker's stream: a file, /dev/null, or a pipe, whose read end becomes a
 * source.
 */
static dist_status start_stream(struct agent *agent, const struct disti_run_worker *worker,
                                int stream, struct start_sources *sources, int *to_p)
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
        status = logs_file(agent->logs, agent->round.attempt, worker->local_rank,
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
        status = disti_fail_call("pipe2", "cannot read the workers' output");
        if (log_fd >= 0)
            close(log_fd);
        return status;
    }
    source->fd = ends[0];
    *to_p = ends[1];
    sources->count[stream]++;
    return DIST_OK;
}

/*
 * Makes the worker's error file, to which torch's main writes its exception: in the job's
 * directory, or a memfd.
 */
static dist_status start_error_file(struct agent *agent, struct disti_run_worker *worker)
{
    worker->error_fd = -1;
    if (agent->logs[0]) {
        char path[DISTI_RUN_PATH + 64], attempt[32];
        int directory;
        bool made;

        logs_path(agent->logs, agent->round.attempt, worker->local_rank, "error.json",
                  worker->error_file);
        logs_path(agent->logs, agent->round.attempt, worker->local_rank, "", path);
        snprintf(attempt, sizeof(attempt), "attempt_%d", agent->round.attempt);
        directory = logs_directory(agent->logs);
        made = directory >= 0 && (mkdirat(directory, attempt, 0777) == 0 || errno == EEXIST) &&
               (mkdirat(directory, path + strlen(agent->logs) + 1, 0777) == 0 || errno == EEXIST);
        if (directory >= 0)
            close(directory);
        return made ? DIST_OK : logs_fail(path);
    }
    worker->error_fd = disti_file_private();
    if (worker->error_fd < 0)
        return disti_file_memory_fail("make the workers' error files");
    start_path(worker->error_fd, worker->error_file, sizeof(worker->error_file));
    return DIST_OK;
}

/* ---- workers ---- */

static dist_status start_worker(struct agent *agent, struct disti_run_worker *worker,
                                struct start_sources *sources)
{
    int fds[3] = {-1, -1, -1};
    dist_status status = start_error_file(agent, worker);

    /* Rank 0 inherits distrun's standard input; the other processes read /dev/null. */
    if (disti_run_rank(&agent->round, worker->local_rank) != 0)
        fds[0] = disti_descriptor_raise(open("/dev/null", O_RDONLY | O_CLOEXEC));
    for (int s = 0; s < 2 && status == DIST_OK; s++)
        status = start_stream(agent, worker, s, sources, &fds[1 + s]);
    if (status == DIST_OK) {
        const bool bound = agent->binding.cpus && worker->local_rank >= 0;
        struct disti_run_list environment = {0};
        char last_calls[64], token[DISTI_HANDED_TEXT], calls[DISTI_HANDED_TEXT];
        char files[2 * DISTI_HANDED_TEXT], name[32];
        struct disti_run_start start = {.name = name,
                                        .path = agent->options->path,
                                        .command = agent->options->command,
                                        .fds = {fds[0], fds[1], fds[2]},
                                        .cpus =
                                            bound ? &agent->binding.cpus[worker->local_rank] : NULL,
                                        .mask = agent->mask,
                                        .files = agent->files,
                                        .group = agent->group,
                                        .inherited = {agent->token_fd, agent->last_calls_fd}};

        disti_run_worker_name(disti_run_rank(&agent->round, worker->local_rank), name);
        start_path(agent->last_calls_fd, last_calls, sizeof(last_calls));
        disti_handed_name(agent->token_fd, token);
        disti_handed_name(agent->last_calls_fd, calls);
        snprintf(files, sizeof(files), "%s,%s", token, calls);
        disti_run_environment(agent->options, &agent->round, worker, last_calls, files,
                              agent->round.workers > 1 ? agent->binding.threads : 0, &environment);
        start.environment = environment.words;
        status = environment.failed
                     ? disti_fail(DIST_ERR_NO_MEMORY, "no memory for the workers' environment")
                     : disti_run_worker_start(&start, &worker->pid);
        disti_run_list_free(&environment);
    }
    for (int s = 0; s < 3; s++) {
        if (fds[s] >= 0)
            close(fds[s]);
    }
    if (status == DIST_OK)
        agent->alive++;
    return status;
}

/*
 * Starts the workers, and the threads that read their pipes: one for stdout, one for stderr. The
 * threads are started even if some workers could not be.
 */
static dist_status start_workers(struct agent *agent, struct start_sources *sources)
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
    /*
     * Without memfd_create, or under a low limit on file sizes, the job runs without recording last
     * calls.
     */
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

/*
 * Starts workers, outputs and store of agent->round. On failure some of them may run.
 *
 * The first node's agent, or the scheduler that it starts, runs the job's store: it outlives rank
 * 0, so that all ranks learn of rank 0's end too. The workers of the other nodes wait until it is
 * available. The store's token is in a file for the workers; with DIST_AUTH=none there is none.
 */
static dist_status start_round(struct agent *agent)
{
    struct start_sources sources = {{NULL, NULL}, {0, 0}};
    struct disti_run_round *round = &agent->round;
    const char *auth = disti_env("DIST_AUTH");
    dist_status status = DIST_OK;

    round->store_token_file[0] = '\0';
    if (auth && strcmp(auth, "none") == 0) {
        round->store_token[0] = '\0';
    } else {
        agent->token_fd = disti_handed_secret(round->store_token);
        if (agent->token_fd < 0)
            return disti_file_memory_fail("store the token of the job's store");
        start_path(agent->token_fd, round->store_token_file, sizeof(round->store_token_file));
    }
    if (round->node_rank == 0 && !agent->options->scheduler)
        status = start_serve(agent);
    snprintf(round->store, sizeof(round->store), "%s:%d", disti_run_store_host(round),
             round->store_port);
    if (status == DIST_OK)
        status = start_workers(agent, &sources);
    free(sources.of[0]);
    free(sources.of[1]);
    return status;
}

/* Watches a round: ended workers, signals, timeouts. */

enum {
    WATCH_CHILDREN_MS = 1000, /* time from SIGTERM to SIGKILL for descendants of ended workers */
    WATCH_KILL_MS = 100,      /* SIGKILL is repeated after this time: descendants may have forked */
    WATCH_CAUSE_MS = 300,     /* how long to wait for the end of the peer that a worker has lost */
    WATCH_TWICE_MS = 200      /* a second signal counts after this time: the same signal may arrive
                               * on two paths */
};

/*
 * Returns the number of processes, including the scheduler. 0 between rounds, and if the store
 * cannot be started.
 */
static int watch_workers(const struct agent *agent)
{
    return agent->workers ? agent->round.processes : 0;
}

static void watch_signal(struct agent *agent, int signal_number, bool to_end)
{
    for (int w = 0; w < watch_workers(agent); w++) {
        struct disti_run_worker *worker = &agent->workers[w];

        if (!worker->pid || worker->ended)
            continue;
        worker->was_signaled |= to_end;
        kill(worker->pid, signal_number);
    }
}

/* Signals the workers and their descendants, some of which may have their own process groups. */
static void watch_signal_all(struct agent *agent, int signal_number)
{
    watch_signal(agent, signal_number, false);
    disti_run_signal_descendants(signal_number);
}

static void watch_suspend(struct agent *agent)
{
    if (!agent->suspended_at)
        agent->suspended_at = disti_now_ns();
    agent->clocks = disti_clock_suspend(agent->clocks);
    disti_last_call_tell_clocks(agent->last_calls_fd, agent->round.processes, agent->clocks);
    watch_signal_all(agent, SIGSTOP);
}

/* Moves all deadlines by the time for which the job was suspended. */
static void watch_resume(struct agent *agent)
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
    agent->clocks = disti_clock_resume(agent->clocks);
    disti_last_call_tell_clocks(agent->last_calls_fd, agent->round.processes, agent->clocks);
    watch_signal_all(agent, SIGCONT);
}

static void watch_stop(struct agent *agent, int signal_number, double seconds)
{
    watch_signal(agent, signal_number, true);
    /* A stopped process handles the signal only after SIGCONT. */
    watch_signal(agent, SIGCONT, true);
    watch_resume(agent);
    agent->state = AGENT_STOPPING;
    agent->kill_at = disti_deadline_ms((int64_t)(seconds * 1000));
}

static void watch_kill(struct agent *agent)
{
    const struct disti_run_worker *first = NULL;
    char name[32];

    /* Once a round, warns that workers did not end in time, and names the option. */
    for (int w = 0; w < watch_workers(agent) && !first; w++) {
        if (agent->workers[w].pid && !agent->workers[w].ended)
            first = &agent->workers[w];
    }
    if (!agent->killed && !agent->hurry && agent->state == AGENT_STOPPING && first) {
        agent->killed = true;
        disti_run_worker_name(disti_run_rank(&agent->round, first->local_rank), name);
        fprintf(stderr,
                "distrun: %d worker%s not ended %g s after the signal to end, for example %s (pid "
                "%d): killing (raise --shutdown-timeout to wait longer)\n",
                agent->alive, agent->alive == 1 ? " has" : "s have",
                agent->options->shutdown_timeout, name, (int)first->pid);
    }
    watch_signal(agent, SIGKILL, true);
    agent->kill_at = disti_deadline_ms(WATCH_KILL_MS);
    if (disti_run_signal_descendants(SIGKILL) || agent->state != AGENT_SWEEPING)
        return;
    /* Descendants of ended workers can be found in /proc only. */
    fprintf(stderr, "distrun: cannot find and end a process that a worker started: /proc is not "
                    "mounted for this PID namespace (unshare --mount-proc)\n");
    agent->state = AGENT_DRAINING;
    agent->kill_at = INT64_MAX;
    agent->hurry = true;
}

/* ---- workers ---- */

static void watch_reap(struct agent *agent)
{
    const struct disti_run_worker *first = agent->state == AGENT_WORKING ? agent->first : NULL;
    /*
     * With --on-failure continue, workers that fail after this deadline have causes of their own.
     */
    const bool decided = first && agent->options->goes_on && disti_expired(agent->cause_by);
    struct timespec now;
    pid_t pid;
    int wait_status;

    clock_gettime(CLOCK_REALTIME, &now);
    while ((pid = waitpid(-1, &wait_status, WNOHANG)) > 0) {
        struct disti_run_worker *worker = agent->workers;
        int left = watch_workers(agent);

        for (; left > 0 && (worker->pid != pid || worker->ended); left--)
            worker++;
        if (left == 0) /* an adopted process */
            continue;
        worker->ended = true;
        worker->wait_status = wait_status;
        worker->ended_at = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
        worker->is_out_of_memory = !worker->was_signaled && WIFSIGNALED(wait_status) &&
                                   WTERMSIG(wait_status) == SIGKILL &&
                                   disti_process_oom_kills() > agent->oom_kills;
        agent->oom_kills += worker->is_out_of_memory;
        agent->alive--;
        /*
         * A program that does not handle schedulers may exit with an error in the scheduler process
         * although the job ended well. After this node's workers have ended well, the scheduler's
         * error can only be about ranks of other nodes that left without notice; their own nodes
         * report them.
         */
        if (worker->local_rank < 0 && WIFEXITED(wait_status) &&
            (agent->alive == 0 ||
             disti_last_call_served(agent->last_calls_fd, agent->round.workers)))
            worker->wait_status = 0;
        /*
         * A scheduler that ended well does not end the workers, which may not have initialised yet,
         * or may do so again: they need a store.
         */
        if (worker->local_rank < 0 && worker->wait_status == 0 && agent->alive > 0 &&
            !agent->store && start_serve(agent) != DIST_OK)
            fprintf(stderr, "distrun: cannot run the store after the end of the scheduler: %s\n",
                    dist_last_error());
        worker->has_lost =
            disti_last_call_has_lost(agent->last_calls_fd, (int)(worker - agent->workers));
        if (!decided)
            first = disti_run_first_failure(first, worker);
    }
    agent->childless = pid < 0 && errno == ECHILD;
    if (agent->state != AGENT_WORKING)
        return;
    if (first && !agent->first)
        agent->cause_by = disti_deadline_ms(WATCH_CAUSE_MS);
    agent->first = first;
}

/*
 * True while the round waits for the cause of a failure: a worker that has lost a peer may end
 * before that peer does.
 */
static bool watch_expects_cause(const struct agent *agent)
{
    return agent->state == AGENT_WORKING && agent->first && agent->first->has_lost &&
           agent->alive > 0 && !disti_expired(agent->cause_by);
}

/* ---- signals ---- */

static void watch_request_kill(struct agent *agent)
{
    if (!agent->stop_signal)
        agent->stop_signal = SIGKILL;
    agent->hurry = true;
    watch_resume(agent);
    watch_kill(agent);
}

static void watch_pass_on(struct agent *agent, const struct disti_run_signal *forwarded)
{
    if (sigismember(&agent->options->signals, forwarded->number) != 1) {
        if (forwarded->number == SIGTSTP)
            watch_suspend(agent);
        else if (forwarded->number == SIGCONT)
            watch_resume(agent);
        else if (!forwarded->from_terminal)
            watch_signal(agent, forwarded->number, false);
    } else if (!agent->stop_signal) {
        agent->stop_signal = forwarded->number;
        if (agent->state == AGENT_WORKING)
            watch_stop(agent, forwarded->from_terminal ? 0 : forwarded->number,
                       agent->options->shutdown_timeout);
        else
            watch_resume(agent);
        agent->stopped_at = disti_now_ns();
    } else if (disti_now_ns() - agent->stopped_at > WATCH_TWICE_MS * INT64_C(1000000)) {
        watch_request_kill(agent);
    }
}

/* The monitor or the starter has exited: ends the job. */
static void watch_abandoned(struct agent *agent)
{
    agent->stop_signal = SIGKILL;
    agent->hurry = true;
    if (agent->state <= AGENT_STOPPING)
        watch_stop(agent, SIGTERM, WATCH_CHILDREN_MS / 1e3);
    else
        watch_resume(agent);
}

/*
 * Executes the starter's commands, which it repeats. A signal is handled as if this process's
 * monitor had forwarded it; one from a terminal is also sent to all descendants. The end of the
 * input means that the starter has exited, and ends the job.
 */
static void watch_commands(struct agent *agent)
{
    unsigned char commands[64];
    const ssize_t got = read(agent->commands_fd, commands, sizeof(commands));

    for (ssize_t c = 0; c < got; c++) {
        const struct disti_run_signal forwarded = {commands[c] % DISTI_RUN_TERMINAL,
                                                   commands[c] >= DISTI_RUN_TERMINAL};

        if (commands[c] == DISTI_RUN_HURRY) {
            watch_request_kill(agent);
        } else if (forwarded.number != agent->stop_signal) {
            if (forwarded.from_terminal)
                disti_run_signal_descendants(forwarded.number);
            watch_pass_on(agent, &forwarded);
        }
    }
    if (got > 0 || (got < 0 && errno == EINTR))
        return;
    close(agent->commands_fd);
    agent->commands_fd = -1;
    watch_abandoned(agent);
}

/* ---- the round ---- */

static void watch_report(struct agent *agent, const struct disti_run_worker *worker)
{
    struct disti_agents_failure failure;
    char text[DISTI_AGENTS_TEXT];

    disti_run_failure_of(&agent->round, worker, agent->last_calls_fd, &failure);
    if (agent->agents) {
        rendezvous_report_failure(agent, &failure);
    } else if (agent->options->goes_on && failure.rank >= 0) {
        disti_agents_describe(&failure, text, sizeof(text));
        fprintf(stderr, "distrun: %s%s\n", text,
                agent->alive > 0 ? "; the other workers go on" : "");
    }
}

/*
 * Handles rendezvous events. After the event of a new round, the remaining events are about that
 * round, so they wait until it has begun.
 */
static void rendezvous_handle_events(struct agent *agent)
{
    struct disti_agents_event event;

    while (!agent->has_next_round && disti_agents_next_event(agent->agents, &event)) {
        if (event.type == DISTI_AGENTS_ROUND) {
            struct disti_run_round *round = &agent->round;

            round->restarts = event.round.restarts;
            round->attempt = event.round.round;
            round->node_rank = event.round.node_rank;
            round->nodes = event.round.nodes;
            round->first_rank = event.round.first_rank;
            round->workers = agent->options->workers;
            round->world_size = event.round.world_size;
            round->processes = run_processes(agent->options, round);
            snprintf(round->master_address, sizeof(round->master_address), "%s",
                     event.round.master_address);
            round->master_port = event.round.master_port;
            round->store_port = event.round.store_port;
            memcpy(round->store_token, event.round.store_secret, sizeof(round->store_token));
            snprintf(round->job, sizeof(round->job), "%s", event.round.job);
            agent->has_next_round = agent->had_round = true;
        } else if (event.type == DISTI_AGENTS_NOTE) {
            if (agent_prints(agent) || !agent->had_round)
                fprintf(stderr, "distrun: %s\n", event.text);
        } else {
            agent->order = event.type;
            agent->failure = event.failure;
            snprintf(agent->why, sizeof(agent->why), "%s", event.text);
            /* Every order ends the workers if they run. */
            if (agent->state == AGENT_WORKING)
                watch_stop(agent, SIGTERM, agent->options->shutdown_timeout);
        }
    }
}

static void watch_wait(struct agent *agent)
{
    struct pollfd fds[] = {
        {.fd = agent->child_fd, .events = POLLIN},
        {.fd = agent->signals_fd, .events = POLLIN},
        {.fd = agent->done_fd, .events = POLLIN},
        {.fd = agent->agents ? disti_agents_fd(agent->agents) : -1, .events = POLLIN},
        {.fd = agent->commands_fd, .events = POLLIN}};
    const bool expects = !agent->options->goes_on && watch_expects_cause(agent);
    const int64_t until = expects ? agent->cause_by : agent->kill_at;
    const bool waits_forever = until == INT64_MAX || agent->suspended_at;
    const int wait_ms = waits_forever ? -1 : disti_left_ms(until);
    struct signalfd_siginfo child;
    uint64_t done;

    if (poll(fds, 5, wait_ms) <= 0)
        return;
    if (fds[0].revents)
        (void)!read(agent->child_fd, &child, sizeof(child));
    if (fds[1].revents) {
        struct disti_run_signal forwarded;
        ssize_t got;

        while ((got = recv(agent->signals_fd, &forwarded, sizeof(forwarded), MSG_DONTWAIT)) ==
               sizeof(forwarded))
            watch_pass_on(agent, &forwarded);
        if (got == 0) {
            close(agent->signals_fd);
            agent->signals_fd = -1;
            watch_abandoned(agent);
        }
    }
    if (fds[2].revents && read(agent->done_fd, &done, sizeof(done)) == sizeof(done))
        agent->outputs_left -= (int)done;
    if (fds[4].revents)
        watch_commands(agent);
}

static void watch_round(struct agent *agent)
{
    for (;;) {
        watch_reap(agent);
        if (agent->agents)
            rendezvous_handle_events(agent);
        if (agent->state == AGENT_WORKING && agent->options->goes_on) {
            /*
             * With --on-failure continue each failure is reported when it is seen, and the other
             * workers continue, unless the scheduler failed, which runs the store.
             */
            for (int w = 0; w < watch_workers(agent); w++) {
                struct disti_run_worker *worker = &agent->workers[w];

                if (!worker->ended || worker->was_reported || !disti_run_worker_has_failed(worker))
                    continue;
                /* A scheduler that has lost a rank fails only after all ranks have left. */
                if (worker->local_rank < 0 && worker->has_lost)
                    continue;
                worker->was_reported = true;
                if (worker->local_rank < 0)
                    watch_stop(agent, SIGTERM, agent->options->shutdown_timeout);
                watch_report(agent, worker);
            }
        } else if (agent->state == AGENT_WORKING && agent->first && !watch_expects_cause(agent)) {
            watch_stop(agent, SIGTERM, agent->options->shutdown_timeout);
            watch_report(agent, agent->first);
        }
        if (agent->state <= AGENT_STOPPING && agent->alive == 0) {
            agent->state = AGENT_SWEEPING;
            if (!agent->childless) {
                disti_run_signal_descendants(SIGTERM);
                disti_run_signal_descendants(SIGCONT);
                watch_resume(agent);
                agent->kill_at = disti_deadline_ms(WATCH_CHILDREN_MS);
            }
        }
        if (agent->state == AGENT_SWEEPING && agent->childless) {
            agent->state = AGENT_DRAINING;
            agent->kill_at = INT64_MAX;
        }
        if (agent->state == AGENT_DRAINING && (agent->outputs_left == 0 || agent->hurry)) {
            agent->state = AGENT_OVER;
            agent->succeeded = 0;
            for (int w = 0; w < watch_workers(agent); w++)
                agent->succeeded += agent->workers[w].local_rank >= 0 &&
                                    !disti_run_worker_has_failed(&agent->workers[w]);
            if (agent->agents && (!agent->first || agent->options->goes_on) &&
                !agent->stop_signal && agent->order == DISTI_AGENTS_NOTE)
                disti_agents_ended(agent->agents, agent->succeeded);
        }
        /* The round is over when the next order is known. */
        if (agent->state == AGENT_OVER && (!agent->agents || agent->has_next_round ||
                                           agent->stop_signal || agent->order != DISTI_AGENTS_NOTE))
            return;
        if (!agent->suspended_at && disti_expired(agent->kill_at))
            watch_kill(agent);
        else
            watch_wait(agent);
    }
}

/* Runs all rounds of a job. */

enum { AGENT_FAILED = 1, AGENT_WRONG = 2 /* wrong arguments */ };

/* Moves the starter's connection from standard input to commands_fd; the workers get /dev/null. */
static bool agent_move_commands(struct agent *agent)
{
    int nothing;

    agent->commands_fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (agent->commands_fd < 0 || nothing < 0 || dup2(nothing, STDIN_FILENO) < 0)
        return false;
    close(nothing);
    return true;
}

/* Returns distrun's exit code for an error of the agent itself. */
static int agent_code(dist_status status)
{
    return status == DIST_ERR_INVALID_ARGUMENT ? AGENT_WRONG : AGENT_FAILED;
}

/* ---- rounds ---- */

/* Frees the round. Its processes and output threads have ended, unless agent->hurry is set. */
static void agent_end_round(struct agent *agent)
{
    for (int s = 0; s < 2 && !agent->hurry; s++) {
        agent->output_lost |= !disti_run_output_end(agent->outputs[s]);
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
    if (agent->token_fd >= 0)
        close(agent->token_fd);
    agent->last_calls_fd = agent->token_fd = -1;
    free(agent->workers);
    agent->workers = NULL;
}

/*
 * Reports how the last round ended. Returns distrun's exit code. For remote agents the starter
 * reports a signal, which may arrive after the round has been decided and while its workers exit.
 */
static int agent_conclude(const struct agent *agent)
{
    const bool failed = agent->order == DISTI_AGENTS_GIVEN_UP &&
                        agent->failure.cause == DISTI_AGENTS_WORKER_FAILED &&
                        agent->failure.pid > 0;
    char name[16];

    if (agent->stop_signal && agent->options->remote && !failed)
        return 128 + agent->stop_signal;
    if (agent->stop_signal && !agent->options->remote) {
        disti_run_signal_name(agent->stop_signal, name);
        fprintf(stderr, "distrun: stopped by %s\n", name);
        return 128 + agent->stop_signal;
    }
    if (agent->order == DISTI_AGENTS_FINISHED)
        return 0;
    if (failed) {
        /*
         * Among remote agents only the one whose worker failed prints the block; otherwise all do,
         * as torchrun's do.
         */
        if (!agent->options->remote || agent->failure.node_rank == agent->round.node_rank)
            disti_run_failure_print(agent->options, &agent->round, agent->workers,
                                    agent->last_calls_fd, &agent->failure);
        return disti_run_exit_code(&agent->failure);
    }
    if (agent_prints(agent) || !agent->had_round)
        fprintf(stderr, "distrun: %s\n", agent->why);
    /* The workers could not be started. */
    if (agent->failure.cause == DISTI_AGENTS_WORKER_FAILED && agent->failure.pid < 0)
        return agent->failure.exit_code;
    return AGENT_FAILED;
}

/* Runs a round until its workers have ended and the next order is known. */
static void agent_round(struct agent *agent)
{
    dist_status status;

    agent->state = AGENT_WORKING;
    agent->alive = agent->outputs_left = 0;
    agent->kill_at = INT64_MAX;
    agent->clocks = 0;
    agent->first = NULL;
    agent->has_next_round = agent->killed = false;
    agent->order = DISTI_AGENTS_NOTE;
    agent->oom_kills = disti_process_oom_kills();
    status = start_round(agent);
    if (status != DIST_OK) {
        /* The workers cannot be started on this node, so the other nodes need not try. */
        struct disti_agents_failure failure = {.cause = DISTI_AGENTS_WORKER_FAILED,
                                               .node_rank = agent->round.node_rank,
                                               .rank = -1,
                                               .local_rank = -1,
                                               .pid = -1,
                                               .exit_code = agent_code(status),
                                               .is_final = true};

        snprintf(failure.text, sizeof(failure.text), "%s", dist_last_error());
        watch_stop(agent, SIGTERM, agent->options->shutdown_timeout);
        if (agent->agents) {
            rendezvous_report_failure(agent, &failure);
        } else {
            agent->order = DISTI_AGENTS_BROKEN;
            agent->failure = failure;
            snprintf(agent->why, sizeof(agent->why), "%s", failure.text);
        }
    } else if (agent->suspended_at) {
        watch_suspend(agent);
    }
    watch_round(agent);
    if (!agent->agents && agent->order == DISTI_AGENTS_NOTE) {
        bool may_restart = agent->round.restarts < agent->options->max_restarts && !agent->hurry;
        char name[32];

        /* The only node of a job decides by itself. */
        if (!agent->first) {
            agent->order = DISTI_AGENTS_FINISHED;
            return;
        }
        if (agent->options->goes_on && agent->first->local_rank >= 0)
            may_restart = may_restart && agent->succeeded == 0;
        disti_run_failure_of(&agent->round, agent->first, agent->last_calls_fd, &agent->failure);
        agent->order = may_restart ? DISTI_AGENTS_RESTART : DISTI_AGENTS_GIVEN_UP;
        disti_run_worker_name(agent->failure.rank, name);
        snprintf(agent->why, sizeof(agent->why), "%s (pid %d) ended with %s %d%s", name,
                 agent->failure.pid, agent->failure.signal ? "signal" : "exit code",
                 agent->failure.signal ? agent->failure.signal : agent->failure.exit_code,
                 disti_process_oom_text(agent->failure.is_out_of_memory));
    }
}

/* Sets up the next round. False: there is none, and agent->order says why. */
static bool agent_next_round(struct agent *agent, int restarts)
{
    struct disti_run_round *round_p;
    const char *host;
    char id[33];
    dist_status status = DIST_OK;

    agent->order = DISTI_AGENTS_NOTE;
    if (agent->agents) {
        if (restarts > 0)
            disti_agents_ready(agent->agents);
        watch_round(agent);
        return agent->has_next_round && !agent->stop_signal;
    }
    /* The only node of a job sets up the round by itself. */
    round_p = &agent->round;
    host = agent->options->master_addr ? agent->options->master_addr : disti_loopback();
    round_p->restarts = round_p->attempt = restarts;
    round_p->node_rank = round_p->first_rank = 0;
    round_p->nodes = 1;
    round_p->workers = round_p->world_size = agent->options->workers;
    round_p->processes = run_processes(agent->options, round_p);
    snprintf(round_p->master_address, sizeof(round_p->master_address), "%s", host);
    disti_host_normalize(round_p->master_address);
    round_p->master_port = (int)agent->options->master_port;
    round_p->store_port = 0;
    if (agent->options->master_port < 0)
        status = disti_run_free_port(&round_p->master_port);
    if (status == DIST_OK && agent->options->scheduler)
        status = disti_run_free_port(&round_p->store_port);
    if (agent->options->rdzv_id) {
        snprintf(round_p->job, sizeof(round_p->job), "%s", agent->options->rdzv_id);
    } else if (status == DIST_OK && !round_p->job[0]) {
        /* The format of torch's random job names: 8-4-4-4-12 hexadecimal digits. */
        status = disti_random_id(id);
        if (status == DIST_OK)
            snprintf(round_p->job, sizeof(round_p->job), "%.8s-%.4s-%.4s-%.4s-%.12s", id, id + 8,
                     id + 12, id + 16, id + 20);
    }
    if (status == DIST_OK)
        status = disti_random_id(round_p->store_token);
    if (status == DIST_OK)
        return true;
    agent->order = DISTI_AGENTS_BROKEN;
    snprintf(agent->why, sizeof(agent->why), "%s", dist_last_error());
    return false;
}

/*
 * Runs rounds. The log directory is made after the first round is set up: its name contains the
 * job's.
 */
static void agent_rounds(struct agent *agent)
{
    for (int restarts = 0; agent_next_round(agent, restarts); restarts++) {
        if (restarts == 0 && logs_open(agent->options, agent->round.job, agent->logs) != DIST_OK) {
            agent->order = DISTI_AGENTS_BROKEN;
            snprintf(agent->why, sizeof(agent->why), "%s", dist_last_error());
            return;
        }
        agent_round(agent);
        if (agent->order != DISTI_AGENTS_RESTART || agent->stop_signal)
            return;
        if (agent_prints(agent))
            fprintf(stderr, "distrun: %s: restarting all workers\n", agent->why);
        agent_end_round(agent);
    }
}

/*
 * Runs the agent in its own process group: if the monitor's group is killed, as timeout -k does,
 * the agent remains and ends all descendants. It can write to the terminal even if background
 * processes are stopped when they do (SIGTTOU is blocked).
 */
int disti_run_agent(int signals_fd, const sigset_t *mask, const struct disti_run_options *options)
{
    struct agent agent = {.options = options,
                          .mask = *mask,
                          .group = getpgrp(),
                          .signals_fd = signals_fd,
                          .token_fd = -1,
                          .commands_fd = -1,
                          .last_calls_fd = -1,
                          .state = AGENT_OVER,
                          .kill_at = INT64_MAX};
    char why[64] = "could not start the workers", name[16];
    int code = AGENT_FAILED;
    dist_status status;
    sigset_t stops;

    sigemptyset(&stops);
    sigaddset(&stops, SIGTTOU);
    sigprocmask(SIG_BLOCK, &stops, NULL);
    setpgid(0, 0);
    if (!disti_run_open(&agent.files, &agent.child_fd, &agent.done_fd) ||
        (options->remote && !agent_move_commands(&agent))) {
        disti_fail_call("signalfd, eventfd or pipe", "cannot monitor workers");
        fprintf(stderr, "distrun: %s\n", dist_last_error());
        return code;
    }
    status = disti_run_binding_create(options->numa, options->workers, &agent.binding);
    if (status == DIST_OK) {
        const struct disti_run_binding *binding = &agent.binding;
        const char *set = disti_env("OMP_NUM_THREADS");
        char threads[32];

        /* One line that reports the CPU binding. */
        if ((binding->workers != 1 || binding->cpus) && agent_prints(&agent)) {
            snprintf(threads, sizeof(threads), "%d", binding->threads);
            fprintf(stderr,
                    "distrun: %d worker%s on %d CPU%s, bound to: %s; OMP_NUM_THREADS=%s%s\n",
                    binding->workers, binding->workers == 1 ? "" : "s", binding->usable,
                    binding->usable == 1 ? "" : "s", binding->mode, set ? set : threads,
                    set ? " (from the environment)" : "");
        }
    }
    if (status == DIST_OK && options->max_nodes > 1)
        status = rendezvous_open(&agent);
    if (status == DIST_OK) {
        agent_rounds(&agent);
        code = agent_conclude(&agent);
    } else {
        fprintf(stderr, "distrun: %s\n", dist_last_error());
        code = agent_code(status);
    }
    agent_end_round(&agent);
    if (agent.output_lost && code == 0)
        code = AGENT_FAILED;
    if (agent.stop_signal) {
        disti_run_signal_name(agent.stop_signal, name);
        snprintf(why, sizeof(why), "stopped by %s", name);
    }
    /* Notifies the other agents why this agent leaves, unless the job has ended. */
    disti_agents_close(
        agent.agents,
        agent.order == DISTI_AGENTS_FINISHED || agent.order == DISTI_AGENTS_GIVEN_UP ? NULL : why,
        RENDEZVOUS_LINGER_MS);
    free(agent.binding.cpus);
    /* Threads that are blocked on a reader end with the process, which also frees their memory. */
    if (agent.hurry)
        _exit(code);
    return code;
}
