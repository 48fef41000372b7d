/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * two_groups BACKEND OPERATIONS: ranks 0 1 2 and ranks 3 2 1 of four form two groups. A thread per
 * group starts OPERATIONS operations, up to AT_ONCE at a time, and checks every result. Then one
 * thread does so on both groups alternately. Exit 0 if all is right.
 */
#include <dist/dist.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RANKS 4
#define MEMBERS 3
#define GROUPS 2
#define AT_ONCE 8
#define COUNT_MAX 3000

static const int members[GROUPS][MEMBERS] = {{0, 1, 2}, {3, 2, 1}};

/* An operation in progress. */
struct slot {
    dist_work *work;
    int number;
    size_t count;
    int32_t in[MEMBERS * COUNT_MAX], out[MEMBERS * COUNT_MAX];
};

/* One group and its operations. */
struct queue {
    pthread_t thread;
    dist_group *group; /* NULL if this rank is not a member */
    int which, rank, operations;
    int failures;
    atomic_int ended; /* counted by completion functions */
    struct slot slots[AT_ONCE];
};

static size_t count_of(int which, int number)
{
    static const size_t counts[] = {1, 17, 0, 256, COUNT_MAX, 3};

    return counts[(size_t)(number + which) % (sizeof(counts) / sizeof(counts[0]))];
}

/* Returns element i of a rank's input to an operation. */
static int32_t value(int which, int number, int rank, size_t i)
{
    return (int32_t)((i * 7 + (size_t)number * 13 + (size_t)which * 5) % 1000) * (rank + 1);
}

static void count_end(void *arg, dist_status status)
{
    if (status == DIST_OK)
        atomic_fetch_add((atomic_int *)arg, 1);
}

static dist_status start(struct queue *queue, struct slot *s)
{
    switch (s->number % 4) {
    case 0:
        return dist_all_reduce_async(queue->group, s->in, s->out, s->count, DIST_INT32, DIST_SUM,
                                     &s->work);
    case 1:
        if (queue->rank == s->number % MEMBERS)
            memcpy(s->out, s->in, s->count * sizeof(*s->in));
        return dist_broadcast_async(queue->group, s->out, s->count, DIST_INT32, s->number % MEMBERS,
                                    &s->work);
    case 2:
        return dist_all_gather_async(queue->group, s->in, s->out, s->count, DIST_INT32, &s->work);
    default:
        return dist_all_to_all_async(queue->group, s->in, s->out, s->count, DIST_INT32, &s->work);
    }
}

/* Returns the expected element i of block b of out. */
static int32_t expected(const struct queue *queue, const struct slot *s, size_t b, size_t i)
{
    int32_t sum = 0;

    switch (s->number % 4) {
    case 0:
        for (int r = 0; r < MEMBERS; r++)
            sum += value(queue->which, s->number, r, i);
        return sum;
    case 1:
        return value(queue->which, s->number, s->number % MEMBERS, i);
    case 2:
        return value(queue->which, s->number, (int)b, i);
    default:
        return value(queue->which, s->number, (int)b, (size_t)queue->rank * s->count + i);
    }
}

static bool is_right(const struct queue *queue, const struct slot *s)
{
    size_t blocks = s->number % 4 < 2 ? 1 : MEMBERS;

    for (size_t b = 0; b < blocks; b++) {
        for (size_t i = 0; i < s->count; i++) {
            if (s->out[b * s->count + i] != expected(queue, s, b, i))
                return false;
        }
    }
    return true;
}

static void finish(struct queue *queue, struct slot *s)
{
    dist_status status;

    if (!s->work)
        return;
    status = dist_wait(s->work);
    s->work = NULL;
    if (status == DIST_OK && is_right(queue, s))
        return;
    if (queue->failures++ == 0)
        printf("group %d, rank %d, operation %d: %s\n", queue->which, queue->rank, s->number,
               status == DIST_OK ? "wrong result" : dist_last_error());
}

/* Completes the operation in this slot, and starts the next one there. */
static void step(struct queue *queue, int number)
{
    struct slot *s = &queue->slots[number % AT_ONCE];

    finish(queue, s);
    s->number = number;
    s->count = count_of(queue->which, number);
    for (size_t i = 0; i < MEMBERS * s->count; i++)
        s->in[i] = value(queue->which, number, queue->rank, i);
    memset(s->out, 0xff, MEMBERS * s->count * sizeof(*s->out));
    if (start(queue, s) != DIST_OK ||
        dist_on_complete(s->work, count_end, &queue->ended) != DIST_OK) {
        printf("group %d, operation %d: %s\n", queue->which, number, dist_last_error());
        queue->failures++;
    }
}

static void drain(struct queue *queue)
{
    for (int i = 0; i < AT_ONCE; i++)
        finish(queue, &queue->slots[i]);
}

static void *run_queue(void *arg)
{
    struct queue *queue = arg;

    for (int n = 0; n < queue->operations; n++)
        step(queue, n);
    drain(queue);
    return NULL;
}

static void run_threads(struct queue *queues)
{
    for (int g = 0; g < GROUPS; g++) {
        if (queues[g].group)
            pthread_create(&queues[g].thread, NULL, run_queue, &queues[g]);
    }
    for (int g = 0; g < GROUPS; g++) {
        if (queues[g].group)
            pthread_join(queues[g].thread, NULL);
    }
}

static void run_by_turns(struct queue *queues)
{
    for (int n = 0; n < queues[0].operations; n++) {
        for (int g = 0; g < GROUPS; g++) {
            if (queues[g].group)
                step(&queues[g], n);
        }
    }
    for (int g = 0; g < GROUPS; g++)
        drain(&queues[g]);
}

static int check(const struct queue *queues)
{
    int failures = 0;

    for (int g = 0; g < GROUPS; g++) {
        failures += queues[g].failures;
        if (queues[g].group && queues[g].ended != 2 * queues[g].operations) {
            printf("group %d: %d functions called, not %d\n", g, queues[g].ended,
                   2 * queues[g].operations);
            failures++;
        }
    }
    return failures;
}

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    struct queue *queues = calloc(GROUPS, sizeof(*queues));
    dist_group *world;
    int failures;

    if (argc != 3 || !queues)
        return 2;
    options.backend = argv[1];
    if (dist_init_process_group(&options, &world) != DIST_OK ||
        dist_get_world_size(world) != RANKS) {
        printf("init: %s\n", dist_last_error());
        return 1;
    }
    for (int g = 0; g < GROUPS; g++) {
        struct queue *queue = &queues[g];

        queue->which = g;
        queue->operations = atoi(argv[2]);
        if (dist_new_group(world, members[g], MEMBERS, NULL, &queue->group) != DIST_OK) {
            printf("new_group: %s\n", dist_last_error());
            return 1;
        }
        queue->rank = dist_get_rank(queue->group);
    }
    run_threads(queues);
    run_by_turns(queues);
    failures = check(queues);
    if (dist_destroy_process_group(world) != DIST_OK) {
        printf("destroy: %s\n", dist_last_error());
        failures++;
    }
    free(queues);
    return failures ? 1 : 0;
}
