/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * short_calls BACKEND CALLS: each thread makes CALLS short blocking calls in a row and checks every
 * result. Two threads share a group; their calls are all alike, since their order is undefined. Two
 * have a group each, and one of these also waits for requests. The last thread's group is aborted
 * halfway by the main thread, and the other threads continue. Exit 0 if all is right.
 */
#include <dist/dist.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define CALLERS 5
#define SHARED 0 /* threads 0 and 1 share a group */
#define WORKS 3
#define ABORTED 4
#define RANKS_MAX 8

static int rank, ranks;

struct caller {
    pthread_t thread;
    dist_group *group;
    int which, calls;
    atomic_int made;
    int failures;
};

static void fail(struct caller *caller, const char *what)
{
    if (caller->failures++ == 0)
        printf("rank %d, thread %d, call %d: %s: %s\n", rank, caller->which, caller->made, what,
               dist_last_error());
}

static dist_status add(dist_group *group, int32_t mine, int32_t expected)
{
    int32_t out = -1;
    dist_status status = dist_all_reduce(group, &mine, &out, 1, DIST_INT32, DIST_SUM);

    return status != DIST_OK || out == expected ? status : DIST_ERR_INTERNAL;
}

static dist_status add_by_work(dist_group *group, int32_t mine, int32_t expected)
{
    int32_t out = -1;
    dist_work *work;
    dist_status status = dist_all_reduce_async(group, &mine, &out, 1, DIST_INT32, DIST_SUM, &work);

    if (status == DIST_OK)
        status = dist_wait(work);
    return status != DIST_OK || out == expected ? status : DIST_ERR_INTERNAL;
}

/* Calls of each kind in turn, with two lengths. */
static dist_status call_some(dist_group *group, int number)
{
    int32_t in[2 * RANKS_MAX], out[2 * RANKS_MAX] = {0};
    int root = number / 6 % ranks;
    size_t count = 1 + (size_t)number % 2;
    dist_status status = DIST_OK;
    bool right = true;

    for (int i = 0; i < 2 * RANKS_MAX; i++)
        in[i] = number + rank + i;
    switch (number % 6) {
    case 0:
        return add(group, number + rank, ranks * number + ranks * (ranks - 1) / 2);
    case 1:
        return dist_barrier(group);
    case 2:
        out[0] = rank == root ? number : -1;
        status = dist_broadcast(group, out, count, DIST_INT32, root);
        right = out[0] == number;
        break;
    case 3:
        status = dist_reduce(group, in, out, count, DIST_INT32, DIST_MAX, root);
        right = rank != root || out[0] == number + ranks - 1;
        break;
    case 4:
        status = dist_gather(group, in, out, count, DIST_INT32, root);
        right = rank != root || out[count * (size_t)(ranks - 1)] == number + ranks - 1;
        break;
    default:
        status = dist_scatter(group, in, out, count, DIST_INT32, root);
        right = out[0] == number + root + (int32_t)count * rank;
    }
    return status != DIST_OK || right ? status : DIST_ERR_INTERNAL;
}

static dist_status call_next(struct caller *caller)
{
    if (caller->which <= SHARED + 1)
        return add(caller->group, 1 + rank, ranks * (ranks + 1) / 2);
    if (caller->which == WORKS && caller->made % 8 == 0)
        return add_by_work(caller->group, caller->made, ranks * caller->made);
    return call_some(caller->group, caller->made);
}

static void *run_caller(void *arg)
{
    struct caller *caller = arg;

    for (; caller->which == ABORTED || caller->made < caller->calls; caller->made++) {
        dist_status status = call_next(caller);

        if (status == DIST_OK)
            continue;
        if (caller->which != ABORTED || status != DIST_ERR_ABORTED)
            fail(caller, dist_status_string(status));
        break;
    }
    return NULL;
}

static void run(struct caller *callers, int calls)
{
    const struct timespec look = {.tv_nsec = 100 * 1000};

    for (int i = 0; i < CALLERS; i++) {
        callers[i].which = i;
        callers[i].calls = calls;
        if (pthread_create(&callers[i].thread, NULL, run_caller, &callers[i]) != 0)
            exit(2);
    }
    while (rank == 0 && callers[ABORTED].made < calls / 2 && !callers[ABORTED].failures)
        nanosleep(&look, NULL);
    if (rank == 0 && dist_abort(callers[ABORTED].group) != DIST_OK)
        fail(&callers[ABORTED], "dist_abort");
    for (int i = 0; i < CALLERS; i++)
        pthread_join(callers[i].thread, NULL);
}

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    struct caller callers[CALLERS] = {0};
    dist_group *world;
    int failures = 0;

    if (argc < 3)
        return 2;
    options.backend = argv[1];
    if (dist_init_process_group(&options, &world) != DIST_OK)
        return 2;
    rank = dist_get_rank(world);
    ranks = dist_get_world_size(world);
    for (int i = 0; i < CALLERS; i++) {
        if (i == SHARED + 1)
            callers[i].group = callers[SHARED].group;
        else if (dist_dup_group(world, NULL, &callers[i].group) != DIST_OK)
            return 2;
    }
    run(callers, atoi(argv[2]));
    for (int i = 0; i < CALLERS; i++) {
        failures += callers[i].failures;
        if (i == SHARED + 1 || dist_destroy_process_group(callers[i].group) == DIST_OK)
            continue;
        printf("rank %d, group of thread %d: %s\n", rank, i, dist_last_error());
        failures++;
    }
    return failures > 0 || dist_destroy_process_group(world) != DIST_OK;
}
