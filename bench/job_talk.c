/* SPDX-License-Identifier: BSD-3-Clause */
/* Contestants as processes: what is said. What they say is checked, not believed. */
#include "job.h"

#include "worker.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TALK_HELLO_NS 5e9 /* from connecting to the hello */
#define TALK_PIECE ((size_t)65536)
#define TALK_LINE_MAX ((size_t)1 << 30)
#define TALK_LEAST_NS 0.1 /* no call is faster; a clock that stands still is a lie */

/* ---- lines ---- */

static int talk_room(struct job_rank *rank)
{
    char *more;

    if (rank->room - rank->length > TALK_PIECE)
        return 0;
    if (rank->room > TALK_LINE_MAX)
        return -1;
    more = realloc(rank->line, 2 * rank->room + 2 * TALK_PIECE);
    if (!more)
        return -1;
    rank->line = more;
    rank->room = 2 * rank->room + 2 * TALK_PIECE;
    return 0;
}

int job_read(struct job_rank *rank)
{
    char *end;
    ssize_t got;

    if (talk_room(rank) != 0)
        return -1;
    got = recv(rank->fd, rank->line + rank->length, TALK_PIECE, MSG_DONTWAIT);
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

void job_line_done(struct job_rank *rank)
{
    rank->length = 0;
}

/* ---- hello ---- */

static int talk_hello_line(struct job_rank *rank, double deadline)
{
    double until = measure_now() + TALK_HELLO_NS;
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
static int talk_hello(struct job *job, const char *line, int *rank_p)
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

void job_accept(struct job *job, double deadline)
{
    struct job_rank rank = {.fd = accept4(job->listener, NULL, NULL, SOCK_CLOEXEC)};
    struct ucred who = {0};
    socklen_t length = sizeof(who);
    int number;

    if (rank.fd < 0)
        return;
    if (getsockopt(rank.fd, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0)
        rank.pid = who.pid;
    if (talk_hello_line(&rank, deadline) == 0 && talk_hello(job, rank.line, &number) == 0) {
        job_line_done(&rank);
        job->members[number] = rank;
        job->come++;
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
static int talk_times(const char *text, long samples, bool counts, double *times)
{
    char *end;

    for (long s = 0; s < samples; s++) {
        times[s] = strtod(text, &end);
        if (end == text || !isfinite(times[s]) || times[s] < (counts ? TALK_LEAST_NS : 0))
            return -1;
        text = end;
    }
    return text[strspn(text, " \r")] ? -1 : 0;
}

/* What one rank answered. A lie is a failure. */
static enum outcome talk_answer(struct job *job, int rank, const struct order *order, double *times,
                                char *reason)
{
    const char *line = job->members[rank].line, *rest = "";
    int outcome = outcome_read(line, &rest);
    bool counts = order->kind->layout != KIND_MESSAGES || rank < 2;

    if (outcome < 0 || (outcome == OUTCOME_TOOK &&
                        talk_times(rest, order->samples, counts,
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

static int talk_order(struct job *job, const struct order *order)
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
struct talk_round {
    struct pollfd *waiting; /* by rank; fd -1: it has answered */
    int missing;
    enum outcome worst;
};

static void talk_look(struct job *job, struct talk_round *round, const struct order *order,
                      double *times, char *reason)
{
    for (int r = 0; r < job->runner.ranks && !job->runner.gone; r++) {
        char text[MEASURE_REASON];
        enum outcome outcome;
        int come = round->waiting[r].revents ? job_read(&job->members[r]) : 0;

        if (come < 0)
            job_fail(job, "rank %d has ended, or sent more than it was asked for", r);
        if (come <= 0)
            continue;
        outcome = talk_answer(job, r, order, times, text);
        job_line_done(&job->members[r]);
        if (outcome > round->worst)
            snprintf(reason, MEASURE_REASON, "%s", text);
        if (outcome > round->worst)
            round->worst = outcome;
        round->waiting[r].fd = -1;
        round->missing--;
    }
}

static void talk_wait(struct job *job, struct talk_round *round, const struct order *order,
                      double *times, char *reason)
{
    double until = measure_now() + job->timeout;

    while (round->missing && !job->runner.gone) {
        int come = poll(round->waiting, (nfds_t)job->runner.ranks, 100);

        if (come > 0)
            talk_look(job, round, order, times, reason);
        else if (come == 0 && measure_now() > until)
            job_fail(job, "%d of its ranks have not answered within %.0f s", round->missing,
                     job->timeout / 1e9);
        else if (come < 0) /* a signal */
            job_fail(job, "the run was stopped");
    }
}

enum outcome job_turn(struct runner *runner, const struct order *order, double *times, char *reason)
{
    struct job *job = (struct job *)runner;
    struct talk_round round = {.missing = runner->ranks, .worst = OUTCOME_TOOK};

    round.waiting = calloc((size_t)runner->ranks, sizeof(*round.waiting));
    if (!round.waiting)
        job_fail(job, "dist_bench has no memory");
    else if (talk_order(job, order) == 0) {
        for (int r = 0; r < runner->ranks; r++)
            round.waiting[r] = (struct pollfd){.fd = job->members[r].fd, .events = POLLIN};
        talk_wait(job, &round, order, times, reason);
    }
    free(round.waiting);
    if (!runner->gone)
        return round.worst;
    snprintf(reason, MEASURE_REASON, "%s", job->reason);
    return OUTCOME_FAILED;
}
