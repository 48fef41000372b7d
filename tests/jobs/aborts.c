/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * aborts BACKEND: rank 1 of three aborts a group while the other ranks wait in it, in several ways,
 * each time in a new group. Exit 0: every wait ended with ERR_ABORTED and named rank 1, and other
 * groups continued to work. If the abort does not end a wait, the wait ends with a timeout, which
 * is an error.
 */
#include <dist/dist.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define TIMEOUT_MS 30000
#define PAUSE_MS 200
#define COUNT (1 << 18)
#define VICTIM 1 /* the rank that aborts */

static int problems;
static int tags[2] = {1, 2}; /* tags that no message has */

#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("line %d: %s does not hold: %s\n", __LINE__, #condition, dist_last_error());    \
            problems++;                                                                            \
        }                                                                                          \
    } while (0)

static dist_group *victim_group; /* the group that the signal handler aborts */

static void on_alarm(int signal_number)
{
    (void)signal_number;
    dist_abort(victim_group);
}

static void *abort_soon(void *group)
{
    const struct timespec soon = {0, PAUSE_MS * 1000000};

    nanosleep(&soon, NULL);
    EXPECT(dist_abort(group) == DIST_OK);
    return NULL;
}

static void alarm_soon(dist_group *group)
{
    const struct itimerval soon = {.it_value = {0, PAUSE_MS * 1000}};

    victim_group = group;
    signal(SIGALRM, on_alarm);
    setitimer(ITIMER_REAL, &soon, NULL);
}

static void was_aborted(dist_status status)
{
    EXPECT(status == DIST_ERR_ABORTED);
    EXPECT(strstr(dist_last_error(), "rank 1"));
    EXPECT(strstr(dist_last_error(), "aborted the group"));
}

/* Checks that every call on an aborted group fails, and that the group can be destroyed. */
static void check_aborted(dist_group *group)
{
    dist_group *other;

    EXPECT(dist_abort(group) == DIST_OK); /* a second abort */
    EXPECT(dist_barrier(group) == DIST_ERR_ABORTED);
    EXPECT(dist_monitored_barrier(group, 100) == DIST_ERR_ABORTED);
    EXPECT(dist_dup_group(group, NULL, &other) == DIST_ERR_ABORTED);
    EXPECT(dist_destroy_process_group(group) == DIST_OK);
    EXPECT(dist_abort(group) == DIST_ERR_INVALID_ARGUMENT);
}

static dist_group *second_group(dist_group *world)
{
    dist_group *group = NULL;

    EXPECT(dist_dup_group(world, NULL, &group) == DIST_OK);
    return group;
}

/* The victim aborts while it is not inside a library call. */
static void while_computing(dist_group *world)
{
    static float data[COUNT];
    dist_group *group = second_group(world);

    if (dist_get_rank(world) == VICTIM)
        abort_soon(group);
    else
        was_aborted(dist_all_reduce(group, data, data, COUNT, DIST_FLOAT32, DIST_SUM));
    check_aborted(group);
}

/* The victim blocks in a receive; its own signal handler or thread aborts. */
static void while_receiving(dist_group *world, bool by_signal)
{
    dist_group *group = second_group(world);
    int rank = dist_get_rank(world), word;
    dist_work *work;
    pthread_t thread;

    EXPECT(dist_irecv(group, &word, 1, DIST_INT32, (rank + 1) % 3, tags[0], NULL, &work) ==
           DIST_OK);
    if (rank == VICTIM && by_signal)
        alarm_soon(group);
    else if (rank == VICTIM)
        EXPECT(pthread_create(&thread, NULL, abort_soon, group) == 0);
    was_aborted(dist_recv(group, &word, 1, DIST_INT32, (rank + 1) % 3, tags[1], NULL));
    if (rank == VICTIM && !by_signal)
        pthread_join(thread, NULL);
    was_aborted(dist_wait(work));
    check_aborted(group);
}

static void in_the_store(dist_group *world)
{
    dist_group *group = second_group(world), *other;

    if (dist_get_rank(world) == VICTIM)
        abort_soon(group);
    else
        was_aborted(dist_monitored_barrier(group, 0));
    check_aborted(group);
    group = second_group(world);
    if (dist_get_rank(world) == VICTIM)
        abort_soon(group);
    else
        was_aborted(dist_dup_group(group, NULL, &other));
    check_aborted(group);
}

/* The victim waits for a missing rank of a new group; its signal handler or thread aborts. */
static void while_joining(dist_group *world, bool by_signal)
{
    dist_group *group = second_group(world), *other;
    int rank = dist_get_rank(world);
    pthread_t thread;

    if (rank == VICTIM && by_signal)
        alarm_soon(group);
    else if (rank == VICTIM)
        EXPECT(pthread_create(&thread, NULL, abort_soon, group) == 0);
    if (rank == 0)
        was_aborted(dist_monitored_barrier(group, 0));
    else if (by_signal)
        was_aborted(dist_dup_group(group, NULL, &other));
    else
        was_aborted(dist_split_group(group, 0, 0, NULL, &other));
    if (rank == VICTIM && !by_signal)
        pthread_join(thread, NULL);
    check_aborted(group);
}

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    int64_t sum = 1;
    dist_group *world;

    if (argc != 2)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    options.backend = argv[1];
    if (strcmp(argv[1], "nccl") == 0) /* NCCL has no tags */
        tags[0] = tags[1] = 0;
    options.timeout_ms = TIMEOUT_MS;
    EXPECT(dist_init_process_group(&options, &world) == DIST_OK);
    if (problems)
        return 1;
    EXPECT(dist_abort(NULL) == DIST_ERR_INVALID_ARGUMENT);
    while_computing(world);
    while_receiving(world, true);
    while_receiving(world, false);
    in_the_store(world);
    while_joining(world, true);
    while_joining(world, false);
    EXPECT(dist_all_reduce(world, &sum, &sum, 1, DIST_INT64, DIST_SUM) == DIST_OK && sum == 3);
    EXPECT(dist_destroy_process_group(world) == DIST_OK);
    return problems != 0;
}
