/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * many_groups BACKEND GROUPS WHAT: makes GROUPS groups of all ranks that exist at the same time,
 * and uses each in collectives, v-forms, sends and receives. Then uses them again and destroys them
 * in another order than they were made in. Each further group may cost at most two descriptors; the
 * time to make one is printed. Exit 0 if all is right. WHAT:
 *
 *     all      as above
 *     fails    meanwhile one group fails, which must not affect the other groups
 *     threads  two threads use two groups at once
 */
#include "descriptors.h"

#include <dist/dist.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RANKS_MAX 16
#define LONG (40 * 1024) /* elements: more than one round of a bounce buffer for two ranks */
#define OPERATIONS 200

static int rank, ranks;

static void fail(const char *what, int number)
{
    fprintf(stderr, "rank %d: %s, group %d: %s\n", rank, what, number, dist_last_error());
    exit(1);
}

static void check(dist_status status, const char *what, int number)
{
    if (status != DIST_OK)
        fail(what, number);
}

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void use_reduce(dist_group *group, int number, size_t count)
{
    int32_t *data = calloc(count, sizeof(*data));

    for (size_t i = 0; i < count; i++)
        data[i] = rank + number + (int32_t)i;
    check(dist_all_reduce(group, data, data, count, DIST_INT32, DIST_SUM), "all_reduce", number);
    for (size_t i = 0; i < count; i++) {
        if (data[i] != ranks * (number + (int32_t)i) + ranks * (ranks - 1) / 2)
            fail("all_reduce is wrong", number);
    }
    free(data);
}

/* Rank r sends r + 1 elements. */
static void use_gather_v(dist_group *group, int number)
{
    int32_t in[RANKS_MAX], out[RANKS_MAX * (RANKS_MAX + 1) / 2];
    size_t counts[RANKS_MAX], offsets[RANKS_MAX], at = 0;

    for (int r = 0; r < ranks; r++) {
        counts[r] = (size_t)r + 1;
        offsets[r] = at;
        at += counts[r];
        in[r] = 1000 * rank + number;
    }
    check(dist_all_gather_v(group, in, out, counts, offsets, DIST_INT32), "all_gather_v", number);
    for (int r = 0; r < ranks; r++) {
        for (size_t i = 0; i < counts[r]; i++) {
            if (out[offsets[r] + i] != 1000 * r + number)
                fail("all_gather_v is wrong", number);
        }
    }
}

/* Sends around the ring. */
static void use_messages(dist_group *group, int number, size_t count)
{
    int32_t *out = calloc(count, sizeof(*out)), *in = calloc(count, sizeof(*in));
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    dist_work *work;

    for (size_t i = 0; i < count; i++)
        out[i] = 7 * rank + number + (int32_t)i;
    check(dist_isend(group, out, count, DIST_INT32, to, 3, &work), "isend", number);
    check(dist_recv(group, in, count, DIST_INT32, from, 3, NULL), "recv", number);
    check(dist_wait(work), "wait", number);
    for (size_t i = 0; i < count; i++) {
        if (in[i] != 7 * from + number + (int32_t)i)
            fail("the message is wrong", number);
    }
    free(out);
    free(in);
}

static void use(dist_group *group, int number)
{
    use_reduce(group, number, 1);
    use_gather_v(group, number);
    use_messages(group, number, 2);
    if (number % 16 == 1) {
        use_reduce(group, number, LONG);
        use_messages(group, number, LONG);
    }
}

/* A receive without a sender reaches its deadline while a long message to itself is in progress. */
static void break_one(dist_group *group)
{
    int32_t *data = calloc(LONG * 20, sizeof(*data));
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    dist_work *sends, *receives;

    check(dist_isend(group, data, LONG, DIST_INT32, to, 8, &sends), "isend", -1);
    check(dist_irecv(group, data, LONG * 20, DIST_INT32, from, 9, NULL, &receives), "irecv", -1);
    if (dist_wait(receives) == DIST_OK)
        fail("a receive without a sender has ended", -1);
    dist_wait(sends);
    memset(data, 0xff, LONG * 20 * sizeof(*data));
    free(data);
}

struct user {
    pthread_t thread;
    dist_group *group;
    int number;
};

static void *thread_main(void *arg)
{
    struct user *user = arg;

    for (int i = 0; i < OPERATIONS; i++) {
        use_messages(user->group, user->number, i % 50 == 0 ? LONG : 5);
        use_gather_v(user->group, user->number);
    }
    return NULL;
}

static void use_threads(dist_group **groups)
{
    struct user users[2];

    for (int i = 0; i < 2; i++) {
        users[i] = (struct user){.group = groups[i], .number = i};
        if (pthread_create(&users[i].thread, NULL, thread_main, &users[i]))
            fail("pthread_create", i);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(users[i].thread, NULL);
}

static dist_group *make(dist_group *world, int number, int timeout_ms)
{
    struct dist_group_options options = DIST_GROUP_OPTIONS_INIT;
    int members[RANKS_MAX];
    dist_group *group = NULL;

    for (int r = 0; r < ranks; r++)
        members[r] = r;
    options.timeout_ms = timeout_ms;
    check(dist_new_group(world, members, ranks, &options, &group), "dist_new_group", number);
    return group;
}

static void destroy_all(dist_group **groups, int count)
{
    for (int step = 0; step < 3; step++) {
        for (int i = step; i < count; i += 3) {
            use_reduce(groups[i], i, 1);
            check(dist_destroy_process_group(groups[i]), "destroy", i);
        }
    }
}

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    int count = argc > 2 ? atoi(argv[2]) : 0, before = 0, after;
    bool fails = argc > 3 && strcmp(argv[3], "fails") == 0;
    bool threads = argc > 3 && strcmp(argv[3], "threads") == 0;
    dist_group *world, *broken = NULL, **groups = calloc((size_t)count + 1, sizeof(dist_group *));
    double *took = calloc((size_t)count + 1, sizeof(*took));

    if (count < 2 || !groups || !took)
        return 2;
    options.backend = argv[1];
    check(dist_init_process_group(&options, &world), "init", -1);
    rank = dist_get_rank(world);
    ranks = dist_get_world_size(world);
    for (int i = 0; i < count; i++) {
        check(dist_barrier(world), "barrier", -1);
        took[i] = now_ms();
        groups[i] = make(world, i, 0);
        took[i] = now_ms() - took[i];
        use(groups[i], i);
        if (i == 1)
            before = descriptors();
    }
    after = descriptors();
    if (after - before > 2 * (count - 2))
        fail("a group costs more than two descriptors", after - before);
    qsort(took, (size_t)count, sizeof(*took), compare);
    if (rank == 0)
        printf("%d descriptors with 2 groups, %d with %d; one is made in %.3f ms (median)\n",
               before, after, count, took[count / 2]);
    free(took);
    if (fails) {
        broken = make(world, -1, 1500);
        break_one(broken);
    }
    if (threads)
        use_threads(groups);
    for (int i = 0; i < count; i++)
        use(groups[i], i);
    destroy_all(groups, count);
    if (broken)
        dist_destroy_process_group(broken);
    use_reduce(world, -1, 1);
    check(dist_destroy_process_group(world), "destroy", -1);
    free(groups);
    return 0;
}
