/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The runners of dist_bench: for the ranks of its own job, and for the processes of other jobs.
 * Measurement of libdist alone, comparison of libraries, and the main function.
 */
#include "bench/jobs.h"
#include "bench/measure.h"
#include "bench/options.h"
#include "bench/protocol.h"
#include "bench/report.h"
#include "bench/rounds.h"
#include "tools/common/launched.h"
#include "tools/common/output.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* The runner for a job of other processes, which implement the protocol of protocol.h. */

/* A process that has connected. */
struct job_rank {
    int fd;     /* -1: not connected */
    pid_t pid;  /* from the socket's credentials */
    char *line; /* received part of a line */
    size_t length, capacity;
};

struct job {
    struct runner runner; /* must be the first member */
    char *name;
    char *release;               /* as reported by the library; NULL: not yet */
    char reason[MEASURE_REASON]; /* why the job failed */
    char *path;                  /* path of the socket */
    int listener;
    pid_t pid;  /* the started process, leader of its process group; 0: it has been reaped */
    int output; /* unlinked file that contains its output */
    struct job_rank *members; /* by rank */
    int joined;
    double timeout; /* ns */
};

#define JOB_CHECK_MS 50        /* interval between checks whether the job has ended */
#define JOB_QUIT_NS 5e9        /* from "quit" to SIGTERM */
#define JOB_TERM_NS 3e9        /* from SIGTERM to SIGKILL */
#define JOB_TAIL ((off_t)4096) /* bytes of output that are searched for the reason */

/* ---- end of a job ---- */

/*
 * Kills only ranks whose connection is open: these processes still exist, so their pids are valid.
 */
static void job_kill_ranks(struct job *job)
{
    for (int r = 0; r < job->runner.ranks; r++) {
        char byte;

        if (job->members[r].fd >= 0 &&
            recv(job->members[r].fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0 &&
            job->members[r].pid > 1)
            kill(job->members[r].pid, SIGKILL);
    }
}

static void job_close_ranks(struct job *job)
{
    for (int r = 0; r < job->runner.ranks; r++) {
        if (job->members[r].fd >= 0)
            close(job->members[r].fd);
        job->members[r].fd = -1;
    }
}

/* Marks the job as failed for this reason, and kills its processes. */
__attribute__((format(printf, 2, 3))) static void job_fail(struct job *job, const char *format, ...)
{
    char last[256];
    va_list arguments;
    int length;

    if (job->runner.has_failed)
        return;
    job->runner.has_failed = true;
    va_start(arguments, format);
    length = vsnprintf(job->reason, sizeof(job->reason), format, arguments);
    va_end(arguments);
    /*
     * Find the last line of output that contains a letter, to skip rules and blank lines; "" if
     * there is none.
     */
    char tail[JOB_TAIL + 1];
    off_t end = lseek(job->output, 0, SEEK_END);
    ssize_t got = pread(job->output, tail, JOB_TAIL, end > JOB_TAIL ? end - JOB_TAIL : 0);

    *last = '\0';
    tail[got > 0 ? got : 0] = '\0';
    for (char *line = strtok(tail, "\n"); line; line = strtok(NULL, "\n")) {
        bool has_letter = false;

        for (const char *at = line; *at; at++)
            has_letter = has_letter || isalpha((unsigned char)*at);
        if (has_letter)
            snprintf(last, sizeof(last), "%s", line);
    }
    if (*last && length >= 0 && (size_t)length < sizeof(job->reason))
        snprintf(job->reason + length, sizeof(job->reason) - (size_t)length, "; its output: %s",
                 last);
    job_kill_ranks(job);
    job_close_ranks(job);
    if (job->pid > 0)
        kill(-job->pid, SIGTERM);
}

/*
 * Returns true if the started process has ended; *text (64 bytes) then describes how, if this call
 * has reaped it.
 */
static bool job_has_ended(struct job *job, char *text)
{
    int how;

    if (job->pid > 0 && waitpid(job->pid, &how, WNOHANG) == job->pid) {
        job->pid = 0;
        if (WIFSIGNALED(how))
            snprintf(text, 64, "was killed by signal %d", WTERMSIG(how));
        else
            snprintf(text, 64, "ended with exit code %d", WEXITSTATUS(how));
    }
    return job->pid == 0;
}

/* Waits at most `limit` ns for the started process to end. Returns true if it has ended. */
static bool job_wait(struct job *job, double limit)
{
    double until = measure_now() + limit;
    char text[64];

    while (!job_has_ended(job, text)) {
        if (measure_now() > until)
            return false;
        poll(NULL, 0, 10);
    }
    return true;
}

/*
 * Asks the processes of a job to quit; does not wait. Call this for all jobs before job_end, so
 * that they quit concurrently.
 */
static void job_quit(struct job *job)
{
    for (int r = 0; r < job->runner.ranks; r++) {
        if (job->members[r].fd >= 0)
            send(job->members[r].fd, "quit\n", 5, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

static void job_end(struct job *job)
{
    if (!job)
        return;
    if (job->members) {
        job_quit(job);
        if (!job->runner.has_failed && job->pid > 0 && !job_wait(job, JOB_QUIT_NS))
            kill(-job->pid, SIGTERM);
        job_kill_ranks(job);
        if (job->pid > 0 && !job_wait(job, JOB_TERM_NS)) {
            kill(-job->pid, SIGKILL);
            job_wait(job, JOB_TERM_NS);
        }
        job_close_ranks(job);
        for (int r = 0; r < job->runner.ranks; r++)
            free(job->members[r].line);
    }
    if (job->listener >= 0)
        close(job->listener);
    if (job->output >= 0)
        close(job->output);
    if (job->path)
        unlink(job->path);
    free(job->members);
    free(job->path);
    free(job->release);
    free(job->name);
    free(job);
}

/* ---- start of a job ---- */

/* Creates the socket and the file for the job's output. */
static int job_listen(struct job *job, const char *folder)
{
    static int number;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char *path;

    if (asprintf(&job->path, "%s/%d", folder, number++) < 0)
        return job->path = NULL, -1;
    if (strlen(job->path) >= sizeof(address.sun_path))
        return errno = ENAMETOOLONG, -1;
    strcpy(address.sun_path, job->path);
    job->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (job->listener < 0 ||
        bind(job->listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(job->listener, 4096) != 0 || asprintf(&path, "%s.out", job->path) < 0)
        return -1;
    job->output = open(path, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    unlink(path);
    free(path);
    return job->output >= 0 ? 0 : -1;
}

void job_oversubscribe(void)
{
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);                  /* Open MPI 4 */
    setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 0); /* Open MPI 5 */
}

/*
 * Starts the command in its own process group, with its output in the job's file. The command is
 * killed if this process ends.
 */
static int job_fork(struct job *job, char *const argv[])
{
    pid_t parent = getpid();

    fflush(NULL);
    job->pid = fork();
    if (job->pid == 0) {
        int none = open("/dev/null", O_RDONLY);
        sigset_t all;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(128 + SIGKILL);
        setpgid(0, 0);
        sigemptyset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        dup2(none, 0);
        dup2(job->output, 1);
        dup2(job->output, 2);
        setenv(BENCH_SOCKET, job->path, 1);
        job_oversubscribe();
        execvp(argv[0], argv);
        dprintf(2, "cannot start %s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    if (job->pid < 0)
        return job->pid = 0, -1;
    setpgid(job->pid, job->pid); /* both processes set it, to avoid a race */
    return 0;
}

/* Messages to and from the processes of a library. Every answer is validated. */

#define PROTOCOL_HELLO_NS 5e9 /* from connecting to the hello */
#define PROTOCOL_PIECE ((size_t)65536)
#define PROTOCOL_LINE_MAX ((size_t)1 << 30)
#define PROTOCOL_LEAST_NS 0.1 /* no call is faster: a shorter time is an error of the clock */

/*
 * Reads available data of a rank. Returns 1 if rank->line is a complete line, without its newline;
 * the caller consumes it by setting rank->length to 0. Returns 0 if it is incomplete, -1 at the end
 * of the stream or if there is more than one line.
 */
static int job_read(struct job_rank *rank)
{
    char *end;
    ssize_t got;

    if (rank->capacity - rank->length <= PROTOCOL_PIECE) {
        size_t capacity = 2 * rank->capacity + 2 * PROTOCOL_PIECE;
        char *more = rank->capacity > PROTOCOL_LINE_MAX ? NULL : realloc(rank->line, capacity);

        if (!more)
            return -1;
        rank->line = more;
        rank->capacity = capacity;
    }
    got = recv(rank->fd, rank->line + rank->length, PROTOCOL_PIECE, MSG_DONTWAIT);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -1;
    if (got == 0)
        return -1;
    end = memchr(rank->line + rank->length, '\n', (size_t)got);
    rank->length += (size_t)got;
    if (!end)
        return 0;
    if (end + 1 != rank->line + rank->length) /* more than one answer */
        return -1;
    *end = '\0';
    return 1;
}

/* Reads `samples` times. -1: the text does not contain exactly that many, or a time is invalid. */
static int protocol_times(const char *text, long samples, bool counts, double *times)
{
    char *end;

    for (long s = 0; s < samples; s++) {
        times[s] = strtod(text, &end);
        if (end == text || !isfinite(times[s]) || times[s] < (counts ? PROTOCOL_LEAST_NS : 0))
            return -1;
        text = end;
    }
    return text[strspn(text, " \r")] ? -1 : 0;
}

/* Reads the answer of one rank. A malformed answer is a failure. */
static enum outcome protocol_answer(struct job *job, int rank, const struct order *order,
                                    double *times, char *reason)
{
    const char *line = job->members[rank].line;
    const size_t length = strcspn(line, " ");
    const char *rest = line + length + (line[length] == ' ');
    int outcome = OUTCOME_COUNT - 1;
    bool counts = order->operation->layout != LAYOUT_MESSAGES || rank < 2;

    /* Find the outcome that the first word names; negative: none. */
    while (outcome >= 0 && (strlen(outcome_words[outcome]) != length ||
                            strncmp(line, outcome_words[outcome], length) != 0))
        outcome--;
    if (outcome < 0 || (outcome == OUTCOME_TOOK &&
                        protocol_times(rest, order->samples, counts,
                                       times + (size_t)rank * (size_t)order->samples) != 0)) {
        job_fail(job, "rank %d answered '%.60s', expected %ld times", rank, line, order->samples);
        snprintf(reason, MEASURE_REASON, "%s", job->reason);
        return OUTCOME_FAILED;
    }
    if (outcome != OUTCOME_TOOK)
        snprintf(reason, MEASURE_REASON, "%s", rest);
    if (outcome == OUTCOME_FAILED)
        job_fail(job, "%s", rest);
    return (enum outcome)outcome;
}

static enum outcome job_run_order(struct runner *runner, const struct order *order, double *times,
                                  char *reason)
{
    struct job *job = (struct job *)runner;
    enum outcome worst = OUTCOME_TOOK;
    int missing = runner->ranks; /* number of answers still expected */
    /* By rank; fd -1: it has answered. */
    struct pollfd *waiting = calloc((size_t)runner->ranks, sizeof(*waiting));

    if (!waiting) {
        job_fail(job, "dist_bench is out of memory");
    } else {
        double until = measure_now() + job->timeout;
        char line[ORDER_LINE];

        order_write(order, line);
        for (int r = 0; r < runner->ranks && !runner->has_failed; r++) {
            ssize_t length = (ssize_t)strlen(line);

            waiting[r] = (struct pollfd){.fd = job->members[r].fd, .events = POLLIN};
            if (send(job->members[r].fd, line, (size_t)length, MSG_NOSIGNAL | MSG_DONTWAIT) !=
                length)
                job_fail(job, "rank %d has exited", r);
        }
        while (missing && !runner->has_failed) {
            int ready = poll(waiting, (nfds_t)job->runner.ranks, 100);

            if (ready > 0) {
                for (int r = 0; r < job->runner.ranks && !job->runner.has_failed; r++) {
                    char text[MEASURE_REASON];
                    enum outcome outcome;
                    int got = waiting[r].revents ? job_read(&job->members[r]) : 0;

                    if (got < 0)
                        job_fail(job, "rank %d has exited, or sent more than one answer", r);
                    if (got <= 0)
                        continue;
                    outcome = protocol_answer(job, r, order, times, text);
                    job->members[r].length = 0;
                    if (outcome > worst)
                        snprintf(reason, MEASURE_REASON, "%s", text);
                    if (outcome > worst)
                        worst = outcome;
                    waiting[r].fd = -1;
                    missing--;
                }
            } else if (ready == 0 && measure_now() > until)
                job_fail(job, "%d of its ranks did not answer within %.0f s", missing,
                         job->timeout / 1e9);
            else if (ready < 0) /* interrupted by a signal */
                job_fail(job, "the run was stopped");
        }
    }
    free(waiting);
    if (!runner->has_failed)
        return worst;
    snprintf(reason, MEASURE_REASON, "%s", job->reason);
    return OUTCOME_FAILED;
}

/*
 * Starts argv (with execvp) with DIST_BENCH_SOCKET set to a socket in folder. Does not wait for its
 * processes; see job_wait_for_ranks. Returns a job that the caller releases with job_end. NULL: out
 * of memory or a system error, which has been printed.
 */
static struct job *job_start(const char *folder, const char *name, int ranks, char *const argv[],
                             double timeout)
{
    struct job *job = calloc(1, sizeof(*job));

    if (!job)
        return NULL;
    job->listener = job->output = -1;
    job->timeout = timeout;
    job->runner = (struct runner){.ranks = ranks, .run_order = job_run_order};
    job->name = strdup(name);
    job->members = calloc((size_t)ranks, sizeof(*job->members));
    for (int r = 0; job->members && r < ranks; r++)
        job->members[r].fd = -1;
    if (job->name && job->members && job_listen(job, folder) == 0 && job_fork(job, argv) == 0)
        return job;
    fprintf(stderr, "dist_bench: cannot start %s: %s\n", name, strerror(errno));
    job_end(job);
    return NULL;
}

/* Accepts a connection and waits for the hello of its process. */
static void job_accept(struct job *job, double deadline)
{
    struct job_rank rank = {.fd = accept4(job->listener, NULL, NULL, SOCK_CLOEXEC)};
    struct ucred who = {0};
    socklen_t length = sizeof(who);
    int number, ranks, text = 0;

    if (rank.fd < 0)
        return;
    if (getsockopt(rank.fd, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0)
        rank.pid = who.pid;
    double until = measure_now() + PROTOCOL_HELLO_NS;
    struct pollfd waiting = {.fd = rank.fd, .events = POLLIN};
    int ready = 0;

    until = deadline < until ? deadline : until;
    while (ready == 0 && measure_now() < until) {
        if (poll(&waiting, 1, 50) > 0)
            ready = job_read(&rank);
    }
    if (ready == 1 && sscanf(rank.line, "hello %*s %d %d %n", &number, &ranks, &text) == 2 &&
        text > 0 && ranks == job->runner.ranks && number >= 0 && number < ranks &&
        job->members[number].fd < 0) {
        if (!job->release)
            job->release = strdup(rank.line + text);
        rank.length = 0;
        job->members[number] = rank;
        job->joined++;
        return;
    }
    job_fail(job, "one of its processes sent '%.80s', expected hello from one of %d ranks",
             rank.length ? rank.line : "", job->runner.ranks);
    if (rank.pid > 1)
        kill(rank.pid, SIGKILL);
    close(rank.fd);
    free(rank.line);
}

/*
 * Waits until all processes of the job have connected. Fails the job if they do not connect in time
 * or if it ends. Returns early if stopped() returns true.
 */
static void job_wait_for_ranks(struct job *job, bool (*stopped)(void))
{
    double until = measure_now() + job->timeout;
    struct pollfd waiting = {.fd = job->listener, .events = POLLIN};
    char text[64];

    while (!job->runner.has_failed && job->joined < job->runner.ranks && !stopped()) {
        /* Check this before poll, so that connections made before the end are still accepted. */
        bool ended = job_has_ended(job, text);

        if (poll(&waiting, 1, JOB_CHECK_MS) > 0)
            job_accept(job, until);
        else if (ended)
            job_fail(job, "it %s before its ranks had connected", text);
        else if (measure_now() > until)
            job_fail(job, "only %d of its %d ranks connected within %.0f s", job->joined,
                     job->runner.ranks, job->timeout / 1e9);
    }
}

/*
 * The runner for the ranks of this job: rank 0 sends the orders and receives the times through the
 * group that is measured.
 */

struct group_runner {
    struct runner runner; /* must be the first member */
    dist_group *group;
    struct driver *driver;
    struct buffers buffers;
    double *times; /* times of this rank */
};

static void group_runner_close(struct group_runner *self)
{
    if (self->driver)
        buffers_free(&self->buffers, self->driver);
    libdist_free(self->driver);
    free(self->times);
    free(self);
}

/*
 * Computes the worst outcome of all ranks, and the reason of the lowest rank that has it; equal on
 * all ranks.
 */
static dist_status group_runner_combine(struct group_runner *self, enum outcome *outcome_p,
                                        char *reason)
{
    int32_t mine = (int32_t)*outcome_p, worst = 0;
    int32_t lowest = self->runner.ranks, rank = self->driver->rank;
    dist_status status;

    status = dist_all_reduce(self->group, &mine, &worst, 1, DIST_INT32, DIST_MAX);
    *outcome_p = (enum outcome)worst;
    if (status != DIST_OK || worst == OUTCOME_TOOK)
        return status;
    if (mine != worst)
        rank = self->runner.ranks;
    status = dist_all_reduce(self->group, &rank, &lowest, 1, DIST_INT32, DIST_MIN);
    if (status != DIST_OK)
        return status;
    return dist_broadcast(self->group, reason, MEASURE_REASON, DIST_UINT8, (int)lowest);
}

/* Runs the order. On rank 0, all_times receives the times of all ranks. */
static enum outcome group_runner_run(struct group_runner *self, const struct order *order,
                                     double *all_times, char *reason)
{
    double *more = realloc(self->times, (size_t)order->samples * sizeof(double));
    dist_status status = DIST_ERR_NO_MEMORY;
    enum outcome outcome;

    if (more) {
        self->times = more;
        outcome = measure_run(self->driver, &self->buffers, order, more, reason);
        if (outcome == OUTCOME_FAILED)
            return outcome; /* the group has failed */
        status = group_runner_combine(self, &outcome, reason);
    }
    if (status == DIST_OK)
        status = dist_gather(self->group, more, all_times, (size_t)order->samples, DIST_FLOAT64, 0);
    if (status == DIST_OK)
        return outcome;
    snprintf(reason, MEASURE_REASON, "%s", dist_last_error());
    return OUTCOME_FAILED;
}

static enum outcome group_runner_run_order(struct runner *runner, const struct order *order,
                                           double *times, char *reason)
{
    struct group_runner *self = (struct group_runner *)runner;
    char line[ORDER_LINE] = "";
    enum outcome outcome = OUTCOME_FAILED;

    order_write(order, line);
    if (dist_broadcast(self->group, line, ORDER_LINE, DIST_UINT8, 0) == DIST_OK)
        outcome = group_runner_run(self, order, times, reason);
    else
        snprintf(reason, MEASURE_REASON, "%s", dist_last_error());
    runner->has_failed = outcome == OUTCOME_FAILED;
    return outcome;
}

static dist_status group_runner_open(dist_group *group, const char *memory,
                                     struct group_runner **self_p)
{
    struct group_runner *self = calloc(1, sizeof(*self));
    dist_status status;

    if (!self)
        return DIST_ERR_NO_MEMORY;
    self->group = group;
    self->runner =
        (struct runner){.ranks = dist_get_world_size(group), .run_order = group_runner_run_order};
    status = libdist_new(group, memory, &self->driver);
    if (status != DIST_OK)
        group_runner_close(self);
    else
        *self_p = self;
    return status;
}

/* Makes the other ranks return from group_runner_serve, and frees the runner. NULL is accepted. */
static void group_runner_free(struct group_runner *self)
{
    char line[ORDER_LINE] = "quit\n";

    if (!self)
        return;
    if (!self->runner.has_failed)
        dist_broadcast(self->group, line, ORDER_LINE, DIST_UINT8, 0);
    group_runner_close(self);
}

/*
 * Called on all ranks except rank 0: executes the orders of rank 0 until it sends quit. Rank 0
 * reports failures.
 */
static dist_status group_runner_serve(dist_group *group, const char *memory)
{
    struct group_runner *self = NULL;
    char line[ORDER_LINE], reason[MEASURE_REASON] = "";
    struct order order;
    dist_status status = group_runner_open(group, memory, &self);

    while (status == DIST_OK) {
        status = dist_broadcast(group, line, ORDER_LINE, DIST_UINT8, 0);
        if (status != DIST_OK || order_read(line, self->runner.ranks, &order) != 0)
            break;
        if (group_runner_run(self, &order, NULL, reason) == OUTCOME_FAILED)
            status = DIST_ERR_ABORTED;
    }
    if (self)
        group_runner_close(self);
    return status;
}

/* The worker, dist_bench --worker SPEC: a job of libdist that implements the protocol. */

struct worker {
    const struct options *options;
    struct spec spec;
    struct limit_map *map; /* memory of the bare loop; NULL: the worker runs libdist */
};

/* Prints an error. Returns code. */
static int bench_fail(const char *text, int code)
{
    fprintf(stderr, "dist_bench: %s\n", text);
    return code;
}

/* ---- one rank ---- */

static int worker_dist(const struct worker *worker)
{
    struct dist_options init = DIST_OPTIONS_INIT;
    struct driver *driver = NULL;
    dist_group *group;
    char release[64];
    int status = -1;

    init.backend = worker->spec.backend;
    if (dist_init_process_group(&init, &group) != DIST_OK)
        return bench_fail(dist_last_error(), -1);
    snprintf(release, sizeof(release), "libdist %s", dist_version());
    if (libdist_new(group, worker->spec.memory, &driver) != DIST_OK)
        bench_fail(dist_last_error(), -1);
    else
        status = serve(driver, worker->options->worker, release);
    libdist_free(driver);
    /* Ignore errors: the other ranks may have exited already. */
    dist_destroy_process_group(group);
    return status;
}

static int worker_rank(int rank, void *arg)
{
    const struct worker *worker = arg;
    struct driver *driver;
    int status;

    if (!worker->map)
        return worker_dist(worker) == 0 ? 0 : 1;
    if (limit_new(worker->map, rank, &driver) != DIST_OK)
        return bench_fail("out of memory for the bare loop", 1);
    status = serve(driver, worker->options->worker, "a bare loop over shared memory");
    limit_free(driver);
    return status == 0 ? 0 : 1;
}

/*
 * Runs the worker that options->worker specifies. With a number of ranks, starts them; otherwise
 * this process is a rank that a launcher has started. options->most: the largest size, for limit.
 * Returns the exit code.
 */
static int worker_main(const struct options *options)
{
    struct worker worker = {.options = options};
    const char *failure;
    int code = 1;

    if (spec_read(options->worker, &worker.spec, &failure) != 0)
        return bench_fail(failure, 2);
    if (spec_apply(&worker.spec) != 0)
        return bench_fail("out of memory for the variables of --worker", 1);
    if (worker.spec.limit)
        worker.map = limit_map_new((int)options->ranks, (size_t)options->most);
    if (worker.spec.limit && !worker.map)
        bench_fail(strerror(errno), -1);
    else if (options->ranks < 0)
        code = worker_rank(-1, &worker);
    else if (dist_spawn((int)options->ranks, worker_rank, &worker, &code) != DIST_OK)
        bench_fail(dist_last_error(), -1);
    else if (code != 0)
        launched_report_end("dist_bench", code);
    limit_map_free(worker.map);
    spec_free(&worker.spec);
    return code;
}

/* Measurement of libdist alone. */

struct single {
    const struct options *options;
    int argc;
    char **argv;
};

/* Returns the name of a variable that shows that a launcher has started this process, or NULL. */
static const char *single_launcher(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_ID",
                                            "TORCHELASTIC_RUN_ID", "WORLD_SIZE"};

    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        if (getenv(variables[i]))
            return variables[i];
    }
    return NULL;
}

/* Adds the library to the result, with its name in --compare, such as "gloo" or "gloo/dist". */
static int single_name(struct result *result, dist_group *group, const char *memory)
{
    char name[64], *library = NULL;
    int length = snprintf(name, sizeof(name), "%s", dist_get_backend(group));

    if (strcmp(memory, "malloc") != 0)
        snprintf(name + length, sizeof(name) - (size_t)length, "/%s", memory);
    if (result_add_library(result, name, false) != 0 ||
        asprintf(&library, "libdist %s", dist_version()) < 0)
        return -1;
    free(result->libraries[0].release);
    result->libraries[0].release = library;
    return 0;
}

/* Runs the measurement on rank 0. */
static int single_lead(const struct single *single, dist_group *group)
{
    const struct options *options = single->options;
    struct result *result = result_new(dist_get_world_size(group), single->argc, single->argv);
    struct group_runner *self = NULL;
    struct runner *runner;
    struct run run = {.options = options, .runners = &runner};
    int code = RUN_FAILED;

    run.result = result;
    if (result && options->root < result->ranks &&
        single_name(result, group, options->memory) == 0 &&
        group_runner_open(group, options->memory, &self) == DIST_OK) {
        runner = &self->runner;
        code = run_all(&run);
    } else if (result && options->root >= result->ranks)
        fprintf(stderr, "dist_bench: --root %d: out of range, the ranks are 0 to %d\n",
                (int)options->root, result->ranks - 1);
    else
        bench_fail(dist_last_error(), RUN_FAILED);
    group_runner_free(self);
    result_free(result);
    return code;
}

static int single_rank(int rank, void *arg)
{
    const struct single *single = arg;
    struct dist_options init = DIST_OPTIONS_INIT;
    dist_group *group;
    int code = RUN_OK;

    (void)rank;
    init.backend = single->options->backend;
    if (dist_init_process_group(&init, &group) != DIST_OK)
        return bench_fail(dist_last_error(), RUN_FAILED);
    if (single->options->root >= dist_get_world_size(group) && dist_get_rank(group) != 0)
        code = RUN_FAILED; /* rank 0 prints the error */
    else if (dist_get_rank(group) == 0)
        code = single_lead(single, group);
    else if (group_runner_serve(group, single->options->memory) != DIST_OK)
        code = RUN_FAILED;
    if (dist_destroy_process_group(group) != DIST_OK && code == RUN_OK)
        code = bench_fail(dist_last_error(), RUN_FAILED);
    return code;
}

/*
 * Measures libdist alone. With -i, every call is a sample, in one round, as in OSU's programs.
 * Returns the exit code.
 */
static int single_main(const struct options *options, int argc, char **argv)
{
    struct options own = *options;
    struct single single = {.options = &own, .argc = argc, .argv = argv};
    int code = RUN_FAILED;

    if (own.iterations > 0)
        own.rounds = 1;
    if (own.ranks < 0)
        return single_rank(-1, &single);
    if (single_launcher()) {
        fprintf(stderr, "dist_bench: %s is set, so a launcher has started this process: omit -n\n",
                single_launcher());
        return RUN_USAGE;
    }
    if (dist_spawn((int)own.ranks, single_rank, &single, &code) != DIST_OK)
        return bench_fail(dist_last_error(), RUN_FAILED);
    /* RUN_USAGE and RUN_SLOWER are results, which rank 0 has explained. */
    if (code != RUN_OK && code != RUN_USAGE && code != RUN_SLOWER)
        launched_report_end("dist_bench", code);
    return code;
}

/* Comparison of several libraries. */

struct compare {
    const struct options *options;
    struct libraries libraries;
    struct job **jobs; /* by library; NULL: not started */
    struct runner **runners;
    struct runner absent; /* runner of the libraries that were not started */
    struct result *result;
    char folder[256];
};

static volatile sig_atomic_t compare_signal;

static void compare_note_signal(int number)
{
    compare_signal = number;
}

static bool compare_stopped(void)
{
    return compare_signal != 0;
}

static int compare_largest(void *arg, struct order *order, bool first)
{
    size_t *largest = arg;

    (void)first;
    *largest = order->bytes > *largest ? order->bytes : *largest;
    return 0;
}

/* ---- state of the libraries ---- */

/* Copies the release and the failure of library c into the result, and prints a new failure. */
static void compare_note_library(struct compare *compare, int c)
{
    struct result_library *known = &compare->result->libraries[c];
    const struct job *job = compare->jobs[c];
    const char *reason =
        job ? (job->runner.has_failed ? job->reason : NULL) : compare->libraries.entries[c].reason;

    if (job && job->release && !*known->release) {
        free(known->release);
        known->release = strdup(job->release);
    }
    if (!reason && !job)
        reason = "it could not be started";
    if (reason && !known->reason) {
        known->reason = strdup(reason);
        fprintf(stderr, "dist_bench: %s is excluded: %s\n", known->name, reason);
    }
}

static void compare_note_all(void *arg)
{
    struct compare *compare = arg;

    for (int c = 0; c < compare->libraries.count; c++)
        compare_note_library(compare, c);
}

/* ---- the run ---- */

static int compare_prepare(struct compare *compare, int argc, char **argv)
{
    size_t count = (size_t)compare->libraries.count;
    const char *temporary = getenv("TMPDIR");

    compare->jobs = calloc(count, sizeof(*compare->jobs));
    compare->runners = calloc(count, sizeof(*compare->runners));
    compare->result = result_new((int)compare->options->ranks, argc, argv);
    if (!compare->jobs || !compare->runners || !compare->result)
        return -1;
    for (size_t c = 0; c < count; c++) {
        if (result_add_library(compare->result, compare->libraries.entries[c].name,
                               compare->libraries.entries[c].limit) != 0)
            return -1;
    }
    snprintf(compare->folder, sizeof(compare->folder), "%s/dist-bench.XXXXXX",
             temporary && *temporary && strlen(temporary) < 60 ? temporary : "/tmp");
    if (mkdtemp(compare->folder))
        return 0;
    *compare->folder = '\0';
    return -1;
}

static int compare_run(struct compare *compare, int argc, char **argv)
{
    struct run run = {.options = compare->options,
                      .stopped = compare_stopped,
                      .measured = compare_note_all,
                      .arg = compare};
    int code = RUN_FAILED;

    /* No SA_RESTART, so that a signal interrupts poll. */
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction note = {.sa_handler = compare_note_signal};

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        sigaction(numbers[i], &note, NULL);
    if (compare_prepare(compare, argc, argv) != 0) {
        fprintf(stderr, "dist_bench: cannot start: %s\n", strerror(errno));
    } else {
        /* Start all libraries, then wait for all of them. */
        const struct libraries *libraries = &compare->libraries;

        compare->absent.has_failed = true;
        for (int c = 0; c < libraries->count; c++) {
            struct library *one = &libraries->entries[c];

            if (one->word_count > 0)
                compare->jobs[c] =
                    job_start(compare->folder, one->name, (int)compare->options->ranks, one->words,
                              (double)compare->options->timeout * 1e9);
            compare->runners[c] = compare->jobs[c] ? &compare->jobs[c]->runner : &compare->absent;
        }
        for (int c = 0; c < libraries->count; c++) {
            if (compare->jobs[c])
                job_wait_for_ranks(compare->jobs[c], compare_stopped);
            compare_note_library(compare, c);
        }
        run.result = compare->result;
        run.runners = compare->runners;
        if (!compare_stopped())
            code = run_all(&run);
        /* The run fails if a library that was requested by name was excluded. */
        for (int c = 0; c < libraries->count; c++) {
            if (code == RUN_OK && libraries->entries[c].is_named &&
                compare->result->libraries[c].reason)
                code = RUN_FAILED;
        }
        if (compare_stopped())
            code = 128 + (int)compare_signal;
    }
    for (int c = 0; compare->jobs && c < compare->libraries.count; c++) {
        if (compare->jobs[c])
            job_quit(compare->jobs[c]);
    }
    for (int c = 0; compare->jobs && c < compare->libraries.count; c++)
        job_end(compare->jobs[c]);
    if (*compare->folder)
        rmdir(compare->folder);
    libraries_free(&compare->libraries);
    result_free(compare->result);
    free(compare->jobs);
    free(compare->runners);
    return code;
}

/* Returns the exit code. */
static int compare_main(const struct options *options, int argc, char **argv)
{
    struct options own = *options;
    struct compare compare = {.options = &own};
    const char *failure = "";
    size_t largest = 0;

    own.check = !own.no_check;
    if (single_launcher()) {
        fprintf(stderr,
                "dist_bench: %s is set, so a launcher has started this process: run it once, "
                "without the launcher, with -n RANKS\n",
                single_launcher());
        return RUN_USAGE;
    }
    measurement_each(&own, (int)own.ranks, compare_largest, &largest);
    if (libraries_make(&own, largest, &compare.libraries, &failure) != 0)
        return bench_fail(failure, RUN_USAGE);
    return compare_run(&compare, argc, argv);
}

int bench_main(int argc, char **argv)
{
    struct options options;
    const char *failure;

    signal(
        SIGXFSZ,
        SIG_IGN); /* writing beyond the file size limit fails with an error instead of a signal */
    if (options_parse(argc, argv, &options, &failure) != 0)
        return args_wrong(&options_args, "%s", failure);
    if (options.action == OPTIONS_HELP)
        args_help(&options_args, stdout);
    else if (options.action == OPTIONS_VERSION)
        args_version(&options_args);
    else if (options.worker)
        return worker_main(&options);
    else if (options_compares(&options))
        return compare_main(&options, argc, argv);
    else
        return single_main(&options, argc, argv);
    return output_exit("dist_bench", RUN_OK);
}
