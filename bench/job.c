/* SPDX-License-Identifier: BSD-3-Clause */
/* Jobs of processes that measure, and which libraries take part with which command. */
#include "bench/jobs.h"
#include "bench/measure.h"
#include "bench/protocol.h"

#include <ctype.h>
#include <dirent.h>
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
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define JOB_LOOK_MS 50         /* between two looks whether it has ended */
#define JOB_GO_NS 5e9          /* from "quit" to SIGTERM */
#define JOB_TERM_NS 3e9        /* and on to SIGKILL */
#define JOB_TAIL ((off_t)4096) /* of what it printed, for the reason */

/* ---- what it printed ---- */

/* The last line with a letter in it: rules and blank lines say nothing. "" if there is none. */
static void job_last_line(const struct job *job, char *text, size_t size)
{
    char tail[JOB_TAIL + 1];
    off_t end = lseek(job->output, 0, SEEK_END);
    ssize_t length = pread(job->output, tail, JOB_TAIL, end > JOB_TAIL ? end - JOB_TAIL : 0);

    *text = '\0';
    tail[length > 0 ? length : 0] = '\0';
    for (char *line = strtok(tail, "\n"); line; line = strtok(NULL, "\n")) {
        bool says = false;

        for (const char *at = line; *at; at++)
            says = says || isalpha((unsigned char)*at);
        if (says)
            snprintf(text, size, "%s", line);
    }
}

/* ---- ending ---- */

static bool job_is_open(const struct job_rank *rank)
{
    char byte;

    return rank->fd >= 0 && recv(rank->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
}

/* Those whose line is still open live, so their ids are theirs. */
static void job_kill_ranks(struct job *job)
{
    for (int r = 0; r < job->runner.ranks; r++) {
        if (job_is_open(&job->members[r]) && job->members[r].pid > 1)
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

/* The job is gone, for that reason; its processes are killed. */
__attribute__((format(printf, 2, 3))) static void job_fail(struct job *job, const char *format, ...)
{
    char last[256];
    va_list arguments;
    int length;

    if (job->runner.gone)
        return;
    job->runner.gone = true;
    va_start(arguments, format);
    length = vsnprintf(job->reason, sizeof(job->reason), format, arguments);
    va_end(arguments);
    job_last_line(job, last, sizeof(last));
    if (*last && length >= 0 && (size_t)length < sizeof(job->reason))
        snprintf(job->reason + length, sizeof(job->reason) - (size_t)length, "; it said: %s", last);
    job_kill_ranks(job);
    job_close_ranks(job);
    if (job->pid > 0)
        kill(-job->pid, SIGTERM);
}

/* Has what was started ended? Its exit is then in *text, 64 bytes. */
static bool job_has_ended(struct job *job, char *text)
{
    int how;

    if (job->pid > 0 && waitpid(job->pid, &how, WNOHANG) == job->pid) {
        job->pid = 0;
        if (WIFSIGNALED(how))
            snprintf(text, 64, "was ended by signal %d", WTERMSIG(how));
        else
            snprintf(text, 64, "ended with exit code %d", WEXITSTATUS(how));
    }
    return job->pid == 0;
}

/* Waits so long for what was started to end. */
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

void job_quit(struct job *job)
{
    for (int r = 0; r < job->runner.ranks; r++) {
        if (job->members[r].fd >= 0)
            send(job->members[r].fd, "quit\n", 5, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

void job_end(struct job *job)
{
    if (!job)
        return;
    if (job->members) {
        job_quit(job);
        if (!job->runner.gone && job->pid > 0 && !job_wait(job, JOB_GO_NS))
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

/* ---- starting ---- */

static int job_listen(struct job *job, const char *folder)
{
    static int number;
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    if (asprintf(&job->path, "%s/%d", folder, number++) < 0)
        return job->path = NULL, -1;
    if (strlen(job->path) >= sizeof(address.sun_path))
        return errno = ENAMETOOLONG, -1;
    strcpy(address.sun_path, job->path);
    job->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return job->listener >= 0 &&
                   bind(job->listener, (struct sockaddr *)&address, sizeof(address)) == 0 &&
                   listen(job->listener, 4096) == 0
               ? 0
               : -1;
}

static int job_output(struct job *job)
{
    char *path;

    if (asprintf(&path, "%s.out", job->path) < 0)
        return -1;
    job->output = open(path, O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    unlink(path);
    free(path);
    return job->output >= 0 ? 0 : -1;
}

/* Lets an mpirun that this process executes start more ranks than cores, unless the user's settings
 * say otherwise. */
static void job_oversubscribe(void)
{
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);                  /* Open MPI 4 */
    setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 0); /* Open MPI 5 */
}

/* In a process group of its own, that ends with this process; prints into the file. */

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
    setpgid(job->pid, job->pid); /* whoever of the two comes first */
    return 0;
}

static enum outcome job_turn(struct runner *runner, const struct order *order, double *times,
                             char *reason);

struct job *job_start(const char *folder, const char *name, int ranks, char *const argv[],
                      double timeout)
{
    struct job *job = calloc(1, sizeof(*job));

    if (!job)
        return NULL;
    job->listener = job->output = -1;
    job->timeout = timeout;
    job->runner = (struct runner){.ranks = ranks, .turn = job_turn};
    job->name = strdup(name);
    job->members = calloc((size_t)ranks, sizeof(*job->members));
    for (int r = 0; job->members && r < ranks; r++)
        job->members[r].fd = -1;
    if (job->name && job->members && job_listen(job, folder) == 0 && job_output(job) == 0 &&
        job_fork(job, argv) == 0)
        return job;
    fprintf(stderr, "dist_bench: cannot start %s: %s\n", name, strerror(errno));
    job_end(job);
    return NULL;
}

static void job_accept(struct job *job, double deadline);

void job_wait_for_ranks(struct job *job, bool (*stopped)(void))
{
    double until = measure_now() + job->timeout;
    struct pollfd waiting = {.fd = job->listener, .events = POLLIN};
    char text[64];

    while (!job->runner.gone && job->joined < job->runner.ranks && !stopped()) {
        /* Ended is looked for first: what it has sent before is seen then. */
        bool ended = job_has_ended(job, text);

        if (poll(&waiting, 1, JOB_LOOK_MS) > 0)
            job_accept(job, until);
        else if (ended)
            job_fail(job, "it %s before its ranks had come", text);
        else if (measure_now() > until)
            job_fail(job, "only %d of its %d ranks have come within %.0f s", job->joined,
                     job->runner.ranks, job->timeout / 1e9);
    }
}

/* Libraries as processes: what is said. What they say is checked, not believed. */

#define PROTOCOL_HELLO_NS 5e9 /* from connecting to the hello */
#define PROTOCOL_PIECE ((size_t)65536)
#define PROTOCOL_LINE_MAX ((size_t)1 << 30)
#define PROTOCOL_LEAST_NS 0.1 /* no call is faster; a clock that stands still is a lie */

/* ---- lines ---- */

static int protocol_reserve(struct job_rank *rank)
{
    char *more;

    if (rank->room - rank->length > PROTOCOL_PIECE)
        return 0;
    if (rank->room > PROTOCOL_LINE_MAX)
        return -1;
    more = realloc(rank->line, 2 * rank->room + 2 * PROTOCOL_PIECE);
    if (!more)
        return -1;
    rank->line = more;
    rank->room = 2 * rank->room + 2 * PROTOCOL_PIECE;
    return 0;
}

/*
 * Reads what has come of a rank. 1: a whole line is in rank->line, its end cut off; take it away
 * with job_line_done. 0: not yet. -1: the end of the stream, or nonsense.
 */
static int job_read(struct job_rank *rank)
{
    char *end;
    ssize_t got;

    if (protocol_reserve(rank) != 0)
        return -1;
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

static void job_line_done(struct job_rank *rank)
{
    rank->length = 0;
}

/* ---- hello ---- */

static int protocol_read_hello(struct job_rank *rank, double deadline)
{
    double until = measure_now() + PROTOCOL_HELLO_NS;
    struct pollfd waiting = {.fd = rank->fd, .events = POLLIN};
    int come = 0;

    until = deadline < until ? deadline : until;
    while (come == 0 && measure_now() < until) {
        if (poll(&waiting, 1, 50) > 0)
            come = job_read(rank);
    }
    return come == 1 ? 0 : -1;
}

/* -1: this is no hello of this job. */
static int protocol_hello(struct job *job, const char *line, int *rank_p)
{
    int rank, ranks, text = 0;

    if (sscanf(line, "hello %*s %d %d %n", &rank, &ranks, &text) != 2 || text == 0)
        return -1;
    if (ranks != job->runner.ranks || rank < 0 || rank >= ranks || job->members[rank].fd >= 0)
        return -1;
    if (!job->release)
        job->release = strdup(line + text);
    *rank_p = rank;
    return 0;
}

/* Takes a process that has connected, once its hello is there. */
static void job_accept(struct job *job, double deadline)
{
    struct job_rank rank = {.fd = accept4(job->listener, NULL, NULL, SOCK_CLOEXEC)};
    struct ucred who = {0};
    socklen_t length = sizeof(who);
    int number;

    if (rank.fd < 0)
        return;
    if (getsockopt(rank.fd, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0)
        rank.pid = who.pid;
    if (protocol_read_hello(&rank, deadline) == 0 && protocol_hello(job, rank.line, &number) == 0) {
        job_line_done(&rank);
        job->members[number] = rank;
        job->joined++;
        return;
    }
    job_fail(job, "one of its processes said '%.80s' instead of a hello of one of %d ranks",
             rank.length ? rank.line : "", job->runner.ranks);
    if (rank.pid > 1)
        kill(rank.pid, SIGKILL);
    close(rank.fd);
    free(rank.line);
}

/* ---- a turn ---- */

/* -1: these are not so many times. */
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

/* What one rank answered. A lie is a failure. */
static enum outcome protocol_answer(struct job *job, int rank, const struct order *order,
                                    double *times, char *reason)
{
    const char *line = job->members[rank].line, *rest = "";
    int outcome = outcome_read(line, &rest);
    bool counts = order->operation->layout != LAYOUT_MESSAGES || rank < 2;

    if (outcome < 0 || (outcome == OUTCOME_TOOK &&
                        protocol_times(rest, order->samples, counts,
                                       times + (size_t)rank * (size_t)order->samples) != 0)) {
        job_fail(job, "rank %d answered '%.60s', which is not %ld times", rank, line,
                 order->samples);
        snprintf(reason, MEASURE_REASON, "%s", job->reason);
        return OUTCOME_FAILED;
    }
    if (outcome != OUTCOME_TOOK)
        snprintf(reason, MEASURE_REASON, "%s", rest);
    if (outcome == OUTCOME_FAILED)
        job_fail(job, "%s", rest);
    return (enum outcome)outcome;
}

static int protocol_order(struct job *job, const struct order *order)
{
    char line[ORDER_LINE];

    order_write(order, line);
    for (int r = 0; r < job->runner.ranks; r++) {
        size_t length = strlen(line);

        if (send(job->members[r].fd, line, length, MSG_NOSIGNAL | MSG_DONTWAIT) !=
            (ssize_t)length) {
            job_fail(job, "rank %d has ended", r);
            return -1;
        }
    }
    return 0;
}

/* Answers that are still missing. Those that have come are looked into. */
struct protocol_round {
    struct pollfd *waiting; /* by rank; fd -1: it has answered */
    int missing;
    enum outcome worst;
};

static void protocol_read_answers(struct job *job, struct protocol_round *round,
                                  const struct order *order, double *times, char *reason)
{
    for (int r = 0; r < job->runner.ranks && !job->runner.gone; r++) {
        char text[MEASURE_REASON];
        enum outcome outcome;
        int come = round->waiting[r].revents ? job_read(&job->members[r]) : 0;

        if (come < 0)
            job_fail(job, "rank %d has ended, or sent more than it was asked for", r);
        if (come <= 0)
            continue;
        outcome = protocol_answer(job, r, order, times, text);
        job_line_done(&job->members[r]);
        if (outcome > round->worst)
            snprintf(reason, MEASURE_REASON, "%s", text);
        if (outcome > round->worst)
            round->worst = outcome;
        round->waiting[r].fd = -1;
        round->missing--;
    }
}

static enum outcome job_turn(struct runner *runner, const struct order *order, double *times,
                             char *reason)
{
    struct job *job = (struct job *)runner;
    struct protocol_round round = {.missing = runner->ranks, .worst = OUTCOME_TOOK};

    round.waiting = calloc((size_t)runner->ranks, sizeof(*round.waiting));
    if (!round.waiting) {
        job_fail(job, "dist_bench has no memory");
    } else if (protocol_order(job, order) == 0) {
        for (int r = 0; r < runner->ranks; r++)
            round.waiting[r] = (struct pollfd){.fd = job->members[r].fd, .events = POLLIN};
        double until = measure_now() + job->timeout;

        while (round.missing && !job->runner.gone) {
            int come = poll(round.waiting, (nfds_t)job->runner.ranks, 100);

            if (come > 0)
                protocol_read_answers(job, &round, order, times, reason);
            else if (come == 0 && measure_now() > until)
                job_fail(job, "%d of its ranks have not answered within %.0f s", round.missing,
                         job->timeout / 1e9);
            else if (come < 0) /* a signal */
                job_fail(job, "the run was stopped");
        }
    }
    free(round.waiting);
    if (!runner->gone)
        return round.worst;
    snprintf(reason, MEASURE_REASON, "%s", job->reason);
    return OUTCOME_FAILED;
}

/* The ranks of this very job as a runner. */

struct group_runner {
    struct runner runner; /* first */
    dist_group *group;
    struct driver *driver;
    struct buffers buffers;
    double *times; /* of this rank */
};

static void group_runner_close(struct group_runner *self)
{
    if (self->driver)
        buffers_free(&self->buffers, self->driver);
    libdist_free(self->driver);
    free(self->times);
    free(self);
}

static dist_status group_runner_open(dist_group *group, const char *memory,
                                     struct group_runner **self_p)
{
    struct group_runner *self = calloc(1, sizeof(*self));
    dist_status status;

    if (!self)
        return DIST_ERR_NO_MEMORY;
    self->group = group;
    self->runner.ranks = dist_get_world_size(group);
    status = libdist_new(group, memory, &self->driver);
    if (status != DIST_OK)
        group_runner_close(self);
    else
        *self_p = self;
    return status;
}

/* The worst outcome of all ranks, and the words of the lowest that has it. Ranks get it alike. */
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

/* Runs the order; at rank 0 all_times gets everybody's. */
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
            return outcome; /* the group has ended */
        status = group_runner_combine(self, &outcome, reason);
    }
    if (status == DIST_OK)
        status = dist_gather(self->group, more, all_times, (size_t)order->samples, DIST_FLOAT64, 0);
    if (status == DIST_OK)
        return outcome;
    snprintf(reason, MEASURE_REASON, "%s", dist_last_error());
    return OUTCOME_FAILED;
}

static enum outcome group_runner_turn(struct runner *runner, const struct order *order,
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
    runner->gone = outcome == OUTCOME_FAILED;
    return outcome;
}

dist_status group_runner_new(dist_group *group, const char *memory, struct runner **runner_p)
{
    struct group_runner *self = NULL;
    dist_status status = group_runner_open(group, memory, &self);

    if (status != DIST_OK)
        return status;
    self->runner.turn = group_runner_turn;
    *runner_p = &self->runner;
    return DIST_OK;
}

void group_runner_free(struct runner *runner)
{
    char line[ORDER_LINE] = "quit\n";

    if (!runner)
        return;
    if (!runner->gone)
        dist_broadcast(((struct group_runner *)runner)->group, line, ORDER_LINE, DIST_UINT8, 0);
    group_runner_close((struct group_runner *)runner);
}

dist_status group_runner_serve(dist_group *group, const char *memory)
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

/* A library of ours, as the command line has it. */

static char spec_failure[256];

static int spec_variables(struct spec *spec, char *text)
{
    for (char *one = strtok(text, "+"); one; one = strtok(NULL, "+")) {
        if (!strchr(one, '=') || *one == '=' || spec->variable_count == SPEC_VARIABLES_MAX - 1) {
            snprintf(spec_failure, sizeof(spec_failure),
                     "'%s': after a + comes VARIABLE=VALUE, at most %d times", one,
                     SPEC_VARIABLES_MAX - 1);
            return -1;
        }
        spec->variables[spec->variable_count++] = one;
    }
    return 0;
}

static int spec_cut(struct spec *spec, char *text)
{
    char *plus = strchr(text, '+'), *slash;

    if (plus) {
        *plus = '\0';
        if (spec_variables(spec, plus + 1) != 0)
            return -1;
    }
    slash = strchr(text, '/');
    spec->memory = slash ? slash + 1 : "malloc";
    if (slash)
        *slash = '\0';
    spec->backend = text;
    if (strcmp(text, "mpi-native") == 0) {
        spec->backend = "mpi";
        spec->variables[spec->variable_count++] = "DIST_MPI_COLL=native";
    }
    spec->launched = strcmp(spec->backend, "mpi") == 0;
    spec->limit = strcmp(text, "limit") == 0;
    if (*text && libdist_has_memory(spec->memory))
        return 0;
    snprintf(spec_failure, sizeof(spec_failure),
             "write BACKEND[/malloc|/registered|/dist][+VARIABLE=VALUE], not '%s/%s'", text,
             spec->memory);
    return -1;
}

int spec_read(const char *text, struct spec *spec_p, const char **failure_p)
{
    struct spec spec = {.text = strdup(text)};

    *failure_p = spec_failure;
    if (!spec.text || spec_cut(&spec, spec.text) != 0) {
        free(spec.text);
        return -1;
    }
    *spec_p = spec;
    return 0;
}

void spec_free(struct spec *spec)
{
    free(spec->text);
    *spec = (struct spec){0};
}

int spec_apply(const struct spec *spec)
{
    for (int i = 0; i < spec->variable_count; i++) {
        char *variable = strdup(spec->variables[i]), *value;

        if (!variable)
            return -1;
        value = strchr(variable, '=');
        *value++ = '\0';
        setenv(variable, value, 1);
        free(variable);
    }
    return 0;
}

/* Drivers of other libraries: where they are, and whether they can be used here. */

#define PEER_FOLDERS 3
#define PEER_PROBE_NS 30e9 /* an MPI starts for it */

/* ---- folders ---- */

/* The i-th folder; -1: that one does not exist. */
static int peer_folder(int i, char *folder, size_t size)
{
    const char *own = secure_getenv("DIST_BENCH_PEERS");

    if (i == 0)
        return own && *own && snprintf(folder, size, "%s", own) < (int)size ? 0 : -1;
    if (i == 1) {
        /* bench/peers beside this program; libtool puts it into .libs. */
        char self[4096];
        ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
        char *slash;

        if (length <= 0)
            return -1;
        self[length] = '\0';
        slash = strrchr(self, '/');
        *slash = '\0';
        slash = strrchr(self, '/');
        if (slash && strcmp(slash, "/.libs") == 0)
            *slash = '\0';
        return snprintf(folder, size, "%s/bench/peers", self) < (int)size ? 0 : -1;
    }
    return snprintf(folder, size, "%s/dist/peers", BENCH_LIBEXECDIR) < (int)size ? 0 : -1;
}

static bool peer_is(const char *path)
{
    struct stat what;

    return stat(path, &what) == 0 && S_ISREG(what.st_mode) && access(path, X_OK) == 0;
}

/* The path of the driver of that name, to be freed; NULL: there is none. */
static char *peer_find(const char *name)
{
    char folder[4096], *path = NULL;

    for (int i = 0; !strchr(name, '/') && i < PEER_FOLDERS; i++) {
        if (peer_folder(i, folder, sizeof(folder)) != 0 ||
            asprintf(&path, "%s/%s", folder, name) < 0)
            continue;
        if (peer_is(path))
            return path;
        free(path);
    }
    return NULL;
}

/* Names with a dot are what the build and people leave there; two programs make drivers. */
static int peer_chosen(const struct dirent *entry)
{
    return !strchr(entry->d_name, '.') && strcmp(entry->d_name, "setup") != 0 &&
           strcmp(entry->d_name, "write-peer") != 0;
}

/* Calls each(arg, name) for every driver, by name. Stops at the first that returns other than 0. */
/* Those of an earlier folder come first, and hide others of the same name. */
static int peer_each(int (*each)(void *arg, const char *name), void *arg)
{
    char folder[4096], path[8192];
    int ended = 0;

    for (int i = 0; i < PEER_FOLDERS; i++) {
        struct dirent **names = NULL;
        int count = -1;

        if (peer_folder(i, folder, sizeof(folder)) == 0)
            count = scandir(folder, &names, peer_chosen, alphasort);
        for (int n = 0; n < count; n++) {
            char *found = peer_find(names[n]->d_name);

            snprintf(path, sizeof(path), "%s/%s", folder, names[n]->d_name);
            if (!ended && found && strcmp(found, path) == 0)
                ended = each(arg, names[n]->d_name);
            free(found);
            free(names[n]);
        }
        free(names);
    }
    return ended;
}

/* ---- probing ---- */

static pid_t peer_start(const char *path, int out)
{
    pid_t pid = fork();

    if (pid != 0)
        return pid;
    setpgid(0, 0);
    dup2(open("/dev/null", O_RDONLY), 0);
    dup2(out, 1);
    dup2(out, 2);
    job_oversubscribe();
    execl(path, path, "--probe", (char *)NULL);
    _exit(127);
}

/* Its exit code; -1: a signal, or it did not end. */
static int peer_wait(pid_t pid)
{
    double until = measure_now() + PEER_PROBE_NS;
    int how = -1;

    while (waitpid(pid, &how, WNOHANG) == 0) {
        if (measure_now() > until) {
            kill(-pid, SIGKILL);
            waitpid(pid, &how, 0);
            return -1;
        }
        poll(NULL, 0, 10);
    }
    return WIFEXITED(how) ? WEXITSTATUS(how) : -1;
}

/*
 * Runs PATH --probe. Can it be used here? text, size bytes: library and version, or why not.
 * Blocks for some seconds at most.
 */
static bool peer_probe(const char *path, char *text, int size)
{
    FILE *out = tmpfile();
    pid_t pid;
    int code = -1;

    snprintf(text, (size_t)size, "it could not be probed");
    if (!out)
        return false;
    fflush(NULL);
    pid = peer_start(path, fileno(out));
    if (pid > 0) {
        setpgid(pid, pid);
        code = peer_wait(pid);
    }
    rewind(out);
    if (fgets(text, size, out))
        text[strcspn(text, "\n")] = '\0';
    else if (code != 0)
        snprintf(text, (size_t)size, "its probe ended with code %d and said nothing", code);
    fclose(out);
    return code == 0;
}

/* Who takes part in a comparison. */

#define LIBRARIES_PEER "peer:"

static char libraries_failure[512];

struct libraries_maker {
    const struct options *options;
    size_t largest;
    struct libraries libraries;
    bool asked;
};

static int libraries_wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int libraries_wrong(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(libraries_failure, sizeof(libraries_failure), format, arguments);
    va_end(arguments);
    return -1;
}

/* ---- commands ---- */

static void library_word(struct library *one, const char *word)
{
    if (one->word_count < LIBRARY_WORDS_MAX)
        one->words[one->word_count++] = strdup(word);
}

static void library_number(struct library *one, const char *option, unsigned long long number)
{
    char text[32];

    snprintf(text, sizeof(text), "%llu", number);
    library_word(one, option);
    library_word(one, text);
}

/* ---- the list ---- */

static struct library *libraries_add(struct libraries_maker *making, const char *name)
{
    struct libraries *libraries = &making->libraries;
    struct library *more =
        realloc(libraries->entries, ((size_t)libraries->count + 1) * sizeof(*more));

    if (!more)
        return NULL;
    libraries->entries = more;
    more += libraries->count;
    *more = (struct library){.name = strdup(name), .asked = making->asked};
    libraries->count += more->name != NULL;
    return more->name ? more : NULL;
}

static bool libraries_is_libdist(const char *name)
{
    static const char *const backends[] = {"gloo", "mpi", "mpi-native", "self", "auto", "limit"};

    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
        if (strcmp(backends[i], name) == 0)
            return true;
    }
    return false;
}

/* A peer that has the name of a backend of ours is told from it. */
static int libraries_add_peer(void *arg, const char *name)
{
    struct libraries_maker *making = arg;
    char shown[256], text[256];
    char *path = peer_find(name);
    bool usable = path && peer_probe(path, text, sizeof(text));
    struct library *one;

    if (!path && making->asked)
        return libraries_wrong("there is no driver of a library '%s': DIST_BENCH_PEERS names the "
                               "folder with yours",
                               name);
    snprintf(shown, sizeof(shown), "%s%s", libraries_is_libdist(name) ? LIBRARIES_PEER : "", name);
    one = path && (usable || making->asked) ? libraries_add(making, shown) : NULL;
    if (!one && path)
        fprintf(stderr, "dist_bench: %s is left out: %s\n", name, text);
    if (one && !usable)
        one->reason = strdup(text);
    if (one && usable) {
        char ranks[16];

        snprintf(ranks, sizeof(ranks), "%d", (int)making->options->ranks);
        library_word(one, path);
        library_word(one, ranks);
    }
    free(path);
    return 0;
}

static int libraries_add_libdist(struct libraries_maker *making, const char *text)
{
    const char *failure;
    struct library *one;
    struct spec spec;

    if (spec_read(text, &spec, &failure) != 0)
        return libraries_wrong("--compare: %s", failure);
    one = libraries_add(making, text);
    if (one) {
        /* dist_bench itself, as a worker. */
        char self[4096];
        ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);

        self[length > 0 ? length : 0] = '\0';
        if (spec.launched) {
            /* The command that starts an MPI's ranks, at its blanks. */
            const char *command = making->options->mpirun;
            char *copy;

            if (!command)
                command = *BENCH_OPENMPI_RUN ? BENCH_OPENMPI_RUN : BENCH_MPICH_RUN;
            copy = strdup(*command ? command : "mpirun");
            for (char *word = copy ? strtok(copy, " ") : NULL; word; word = strtok(NULL, " "))
                library_word(one, word);
            free(copy);
            library_number(one, "-np", (unsigned long long)making->options->ranks);
        }
        library_word(one, self);
        library_word(one, "--worker");
        library_word(one, one->name);
        if (!spec.launched)
            library_number(one, "-n", (unsigned long long)making->options->ranks);
        library_number(one, "-e", making->largest);
        one->limit = spec.limit;
    }
    spec_free(&spec);
    return one ? 0 : libraries_wrong("no memory");
}

static bool libraries_has(const struct libraries *libraries, const char *name)
{
    for (int i = 0; i < libraries->count; i++) {
        if (strcmp(libraries->entries[i].name, name) == 0)
            return true;
    }
    return false;
}

/* A word of --compare or --peer. */
static int libraries_add_named(struct libraries_maker *making, const char *name, bool peer)
{
    char *path = NULL;
    int failed = 0;

    if (strncmp(name, LIBRARIES_PEER, strlen(LIBRARIES_PEER)) == 0) {
        name += strlen(LIBRARIES_PEER);
        peer = true;
    }
    if (!peer && !libraries_is_libdist(name))
        path = peer_find(name);
    if (!libraries_has(&making->libraries, name) || peer)
        failed =
            peer || path ? libraries_add_peer(making, name) : libraries_add_libdist(making, name);
    free(path);
    return failed;
}

static int libraries_add_list(struct libraries_maker *making, const char *list, bool peers)
{
    char *copy = strdup(list ? list : ""), *rest = copy, *name;
    int failed = copy ? 0 : -1;

    making->asked = true;
    while (!failed && (name = strsep(&rest, ","))) {
        if (*name)
            failed = libraries_add_named(making, name, peers);
    }
    making->asked = false;
    free(copy);
    return failed;
}

static int libraries_add_unasked(void *arg, const char *name)
{
    struct libraries_maker *making = arg;
    char shown[256];

    snprintf(shown, sizeof(shown), LIBRARIES_PEER "%s", name);
    if (libraries_has(&making->libraries, libraries_is_libdist(name) ? shown : name))
        return 0;
    return libraries_add_peer(making, name);
}

int libraries_make(const struct options *options, size_t largest, struct libraries *libraries_p,
                   const char **failure_p)
{
    struct libraries_maker making = {.options = options, .largest = largest};
    int failed;

    *failure_p = libraries_failure;
    failed = libraries_add_list(&making, options->compare ? options->compare : "gloo", false);
    if (!failed)
        failed = libraries_add_list(&making, options->peer, true);
    if (!failed && options->peers)
        failed = peer_each(libraries_add_unasked, &making);
    if (!failed && options->limit)
        failed = libraries_add_list(&making, "limit", false);
    if (!failed && making.libraries.count > 0) {
        *libraries_p = making.libraries;
        return 0;
    }
    if (!failed)
        libraries_wrong("--compare names nobody: give a list such as gloo,gloo/dist,mpi");
    libraries_free(&making.libraries);
    return -1;
}

void libraries_free(struct libraries *libraries)
{
    for (int i = 0; i < libraries->count; i++) {
        for (int w = 0; w < libraries->entries[i].word_count; w++)
            free(libraries->entries[i].words[w]);
        free(libraries->entries[i].name);
        free(libraries->entries[i].reason);
    }
    free(libraries->entries);
    *libraries = (struct libraries){0};
}
