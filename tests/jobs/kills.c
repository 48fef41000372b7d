/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kills BACKEND PHASE VICTIM [COUNT]: one rank is killed (SIGKILL) in that phase of a job; exit 0
 * if no other rank takes a wrong result for a right one, and each gets an error that names the
 * victim, or, where it never came, that it is missing. Prints how long after the death each knew.
 *
 *   start     before the library is called
 *   connect   at a random moment of joining: on the way to the store, waiting, connecting in pairs
 *   join      as it has come to the store, which does not know of it
 *   open      as the others know it, and connect with it
 *   idle      between two calls
 *   barrier   as it enters a barrier
 *   first     as it sends the first message of an all-reduce
 *   middle    as it sends the second
 *   reduce    at a random moment of a row of all-reduces, which may be in memory that all share
 *   destroy   as it leaves
 *
 *   stop      not killed, but stopped: the others know at their deadline, and the rank, as it
 *             continues, too
 *   slow      not killed, but slow within the deadline: nobody gets an error
 *   network   nothing is done to it here: all say that they have met, call for a while, and are to
 *             end with right results, or with an error
 *   cut       the same, until an error comes
 *   silence   the same as network, and the error is to come; all three: at DIST_TIMEOUT, if it is
 * set
 *
 * The deaths come from DIST_FAULT, except where the victim ends itself.
 */
#include <dist/dist.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kills.h"

#define COUNT (1 << 19)
#define ROUNDS 4         /* good ones; the next is operation 4 */
#define TIMEOUT_MS 60000 /* nobody needs it who is told of the death */
#define MISSING_MS 2000  /* what those have who wait for a rank that never comes */
#define SILENT_MS 3000   /* and for one that is stopped */
#define CONNECT_US 20000 /* within so long the victim dies while it joins */
#define REDUCE_US 8000   /* and while it reduces */

static float data[COUNT];
static int count = COUNT;
static const char *phase;
static int victim;

static bool is(const char *name)
{
    return strcmp(phase, name) == 0;
}

static void nap_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

    nanosleep(&time, NULL);
}

/* This process is killed at a random moment, within so many microseconds. */
static void die_within(long us)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec when = {0};
    timer_t timer;

    srand((unsigned)(now() * 1e6) ^ (unsigned)getpid());
    when.it_value.tv_nsec = 1000 * (1 + rand() % us);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 ||
        timer_settime(timer, 0, &when, NULL) != 0)
        _exit(9);
}

/* What the victim suffers in this phase, where DIST_FAULT can do it. */
static void plan_fault(void)
{
    static const struct {
        const char *phase, *kind, *where;
    } plans[] = {
        {"join", "kill", "join"}, {"open", "kill", "open"},      {"barrier", "kill", "4"},
        {"first", "kill", "4/0"}, {"middle", "kill", "4/1"},     {"destroy", "kill", "close"},
        {"stop", "stop", "4"},    {"slow", "slow", "4:time=1s"},
    };
    char fault[64];

    for (size_t i = 0; i < sizeof(plans) / sizeof(plans[0]); i++) {
        if (!is(plans[i].phase))
            continue;
        snprintf(fault, sizeof(fault), "%s:%d@%s", plans[i].kind, victim, plans[i].where);
        setenv("DIST_FAULT", fault, 1);
    }
}

/* One all-reduce; a wrong result that is called right ends the test. */
static dist_status reduce(dist_group *group)
{
    int ranks = dist_get_world_size(group);
    dist_status status;

    for (int i = 0; i < count; i++)
        data[i] = (float)(i % 1000);
    status = dist_all_reduce(group, data, data, (size_t)count, DIST_FLOAT32, DIST_SUM);
    for (int i = 0; i < count && status == DIST_OK; i++) {
        if (data[i] != (float)(i % 1000 * ranks)) {
            printf("rank %d: element %d is %g and the status OK\n", dist_get_rank(group), i,
                   (double)data[i]);
            exit(8);
        }
    }
    return status;
}

/* The calls of the phase, until one fails. *began_p: when that was called. */
static dist_status suffer(dist_group *group, double *began_p)
{
    bool dies = dist_get_rank(group) == victim, last = is("slow") || is("network") || is("silence");
    dist_status status = DIST_OK;

    if (is("destroy"))
        return DIST_OK;
    if (is("idle") && dies)
        kill(getpid(), SIGKILL);
    if (is("idle"))
        nap_ms(300);
    if (is("reduce") && dies)
        die_within(REDUCE_US);
    for (int i = 0; status == DIST_OK && (!last || i < 20); i++) {
        *began_p = now();
        status = is("barrier") ? dist_barrier(group) : reduce(group);
    }
    return status;
}

/* A survivor has its error: does it say who is dead? */
static int judge(int rank, double began, dist_status status)
{
    const char *text = dist_last_error();
    char name[32];

    snprintf(name, sizeof(name), "rank %d", victim);
    printf("knew %d %.6f %.6f %s: %s\n", rank, began, now(), dist_status_string(status), text);
    if (is("slow"))
        return status == DIST_OK ? 0 : 1;
    if (is("network"))
        return 0;
    if (is("silence") || is("cut"))
        return status == DIST_OK;
    if (status == DIST_OK || !strstr(text, name))
        return 1;
    return 0;
}

static bool of_network(void)
{
    return is("network") || is("silence") || is("cut");
}

/* Nobody may know of the victim; and of rank 0, who has not come to its store yet. */
static bool rank_is_missing(void)
{
    return is("start") || is("connect") || (is("join") && victim == 0);
}

static int be_a_rank(const char *backend)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    int rank = launched_as(), code;
    dist_group *group = NULL;
    double began = now();
    dist_status status, left;

    options.backend = backend;
    options.timeout_ms = rank_is_missing() ? MISSING_MS
                         : of_network()    ? 0
                         : is("stop")      ? SILENT_MS
                                           : TIMEOUT_MS;
    if (is("start") && rank == victim)
        kill(getpid(), SIGKILL);
    if (is("connect") && rank == victim)
        die_within(CONNECT_US);
    plan_fault();
    status = dist_init_process_group(&options, &group);
    rank = group ? dist_get_rank(group) : rank;
    if (group && of_network())
        printf("met %d\n", rank);
    for (int i = 0; i < ROUNDS && status == DIST_OK; i++)
        status = reduce(group);
    if (status == DIST_OK)
        status = suffer(group, &began);
    if (is("destroy") && status == DIST_OK) {
        began = now();
        status = dist_destroy_process_group(group);
        return judge(rank, began, status);
    }
    code = judge(rank, began, status);
    left = dist_destroy_process_group(group);
    return code ? code : is("slow") && left != DIST_OK;
}

/* The launcher shall not see that a rank was killed, and somebody has to see when. */
int main(int argc, char **argv)
{
    int status;
    pid_t child;

    if (argc < 4 || argc > 5)
        return 2;
    if (argc == 5)
        count = atoi(argv[4]) > 0 && atoi(argv[4]) < COUNT ? atoi(argv[4]) : COUNT;
    phase = argv[2];
    victim = atoi(argv[3]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    child = fork();
    if (child == 0)
        exit(be_a_rank(argv[1]));
    if (child < 0 || waitpid(child, &status, WUNTRACED) < 0)
        return 1;
    if (!WIFEXITED(status))
        printf("dead %.6f\n", now());
    if (WIFSTOPPED(status)) {
        nap_ms(2 * SILENT_MS);
        kill(child, SIGCONT);
        if (waitpid(child, &status, 0) < 0)
            return 1;
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strcmp(argv[1], "ucx") == 0) {
        printf("UCX has ended a process that was connecting with the dead one\n");
        return 77; /* UCX 1.13 does: an assertion in tcp_ep.c */
    }
    if (WIFSIGNALED(status))
        return WTERMSIG(status) == SIGKILL ? 0 : 1;
    return WEXITSTATUS(status);
}
