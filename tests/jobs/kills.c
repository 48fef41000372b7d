/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kills BACKEND PHASE VICTIM [COUNT]: one rank is killed (SIGKILL) in that phase of a job. Exit 0
 * if no other rank reports success for a wrong result, and each gets an error that names the
 * victim, or that says that it is missing if it never joined. Prints how long after the death each
 * rank got it.
 *
 *   start     before the library is called
 *   connect   at a random moment of joining: before it reaches the store, waiting, connecting
 *   join      when it has connected to the store, before it has registered there
 *   open      when the other ranks know its addresses and connect to it
 *   idle      between two calls
 *   barrier   as it enters a barrier
 *   first     as it sends the first message of an all-reduce
 *   middle    as it sends the second message
 *   reduce    at a random moment in a series of all-reduces, which may use shared memory
 *   destroy   as it leaves
 *
 *   stop      the victim is stopped, not killed: the other ranks time out, and so does the victim
 *             after it is continued
 *   slow      the victim is slow, but within the timeout: no rank gets an error
 *   network   the script cuts the network: all ranks print that they have joined, call for a while,
 *             and must end with right results or with an error
 *   cut       as network, until an error occurs
 *   silence   as network, but the error is required
 *
 * With network, cut and silence the timeout is DIST_TIMEOUT, if it is set.
 * DIST_FAULT causes the deaths, except where the victim kills itself.
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
#define ROUNDS 4         /* successful calls before the fault, which is in call 4 */
#define TIMEOUT_MS 60000 /* not reached by ranks that are notified of the death */
#define MISSING_MS 2000  /* timeout of ranks that wait for a rank that never joins */
#define SILENT_MS 3000   /* timeout of ranks that wait for a stopped rank */
#define CONNECT_US 20000 /* the victim dies within this time while it joins */
#define REDUCE_US 8000   /* the victim dies within this time while it reduces */

static float data[COUNT];
static int count = COUNT;
static const char *phase;
static int victim;

static bool is(const char *name)
{
    return strcmp(phase, name) == 0;
}

static void sleep_ms(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};

    nanosleep(&time, NULL);
}

/* Arms a timer that kills this process at a random moment within `us` microseconds. */
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

/* Sets DIST_FAULT for the victim, in the phases for which it has a fault. */
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

/* Calls an all-reduce. Exits the process if the result is wrong although the status is OK. */
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

/* Makes the calls of the phase until one fails. *began_p: when the failing call began. */
static dist_status run_phase(dist_group *group, double *began_p)
{
    bool dies = dist_get_rank(group) == victim, last = is("slow") || is("network") || is("silence");
    dist_status status = DIST_OK;

    if (is("destroy"))
        return DIST_OK;
    if (is("idle") && dies)
        kill(getpid(), SIGKILL);
    if (is("idle"))
        sleep_ms(300);
    if (is("reduce") && dies)
        die_within(REDUCE_US);
    for (int i = 0; status == DIST_OK && (!last || i < 20); i++) {
        *began_p = now();
        status = is("barrier") ? dist_barrier(group) : reduce(group);
    }
    return status;
}

/* Returns 0 if a survivor's error names the victim. */
static int check_error(int rank, double began, dist_status status)
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

/* True if the victim never joins; also if rank 0, the store's host, dies before it serves the
 * store. */
static bool rank_is_missing(void)
{
    return is("start") || is("connect") || (is("join") && victim == 0);
}

static int run_rank(const char *backend)
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
        status = run_phase(group, &began);
    if (is("destroy") && status == DIST_OK) {
        began = now();
        status = dist_destroy_process_group(group);
        return check_error(rank, began, status);
    }
    code = check_error(rank, began, status);
    left = dist_destroy_process_group(group);
    return code ? code : is("slow") && left != DIST_OK;
}

/* Hides the signal that killed a rank from the launcher, and prints when it died. */
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
        exit(run_rank(argv[1]));
    if (child < 0 || waitpid(child, &status, WUNTRACED) < 0)
        return 1;
    if (!WIFEXITED(status))
        printf("dead %.6f\n", now());
    if (WIFSTOPPED(status)) {
        sleep_ms(2 * SILENT_MS);
        kill(child, SIGCONT);
        if (waitpid(child, &status, 0) < 0)
            return 1;
    }
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strcmp(argv[1], "ucx") == 0) {
        printf("UCX has aborted a process that was connecting to the killed rank\n");
        return 77; /* UCX 1.13 fails an assertion in tcp_ep.c */
    }
    if (WIFSIGNALED(status))
        return WTERMSIG(status) == SIGKILL ? 0 : 1;
    return WEXITSTATUS(status);
}
