/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * threads [RANKS [BYTES...]]: speed of several threads of a rank that call the library
 * concurrently.
 *
 *   bench/threads 2 8 64K
 *
 * Each of 1 to 4 threads calls blocking all-reduces of float32 on 1 to 4 groups of all ranks. With
 * fewer groups than threads, threads share a group; with more, each thread uses its groups in turn.
 * All calls on a group are equal, so their order among the threads does not matter. Prints the
 * median rate over the rounds, in calls per second of all threads of a rank, for each combination.
 * Results are checked.
 */
#include <dist/dist.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST 4
#define ROUNDS 15

struct caller {
    pthread_t id;
    dist_group *const *groups;
    int threads, group_count, index, calls;
    size_t count;
    float *data;
};

static void stop(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, dist_last_error());
    exit(1);
}

static double now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Runs the calls of one thread. Every element is 1 before a call and the world size after it. */
static void *caller_run(void *arg)
{
    struct caller *caller = arg;
    int group = caller->index % caller->group_count;
    float ranks = (float)dist_get_world_size(caller->groups[0]);

    for (int call = 0; call < caller->calls; call++) {
        caller->data[0] = caller->data[caller->count - 1] = 1;
        if (dist_all_reduce(caller->groups[group], caller->data, caller->data, caller->count,
                            DIST_FLOAT32, DIST_SUM) != DIST_OK)
            stop("all_reduce");
        if (caller->data[0] != ranks || caller->data[caller->count - 1] != ranks) {
            fprintf(stderr, "all_reduce: wrong result\n");
            exit(1);
        }
        group += caller->threads;
        if (group >= caller->group_count)
            group = caller->index % caller->group_count;
    }
    return NULL;
}

/* Returns the rate of one round in calls per second, of the slowest rank. */
static double round_rate(struct caller *callers, int threads, dist_group *world)
{
    double start, rate, slowest;

    if (dist_barrier(world) != DIST_OK)
        stop("barrier");
    start = now_s();
    for (int t = 1; t < threads; t++) {
        if (pthread_create(&callers[t].id, NULL, caller_run, &callers[t]) != 0)
            stop("pthread_create");
    }
    caller_run(&callers[0]);
    for (int t = 1; t < threads; t++)
        pthread_join(callers[t].id, NULL);
    rate = threads * callers[0].calls / (now_s() - start);
    if (dist_all_reduce(world, &rate, &slowest, 1, DIST_FLOAT64, DIST_MIN) != DIST_OK)
        stop("all_reduce of the rates");
    return slowest;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Returns the median rate of one combination. */
static double cell(dist_group *world, dist_group *const *groups, int threads, int group_count,
                   size_t bytes)
{
    struct caller callers[MOST];
    double rates[ROUNDS];

    for (int t = 0; t < threads; t++) {
        callers[t] = (struct caller){.groups = groups,
                                     .threads = threads,
                                     .group_count = group_count,
                                     .index = t,
                                     .calls = (bytes > 4096 ? 400 : 4000) / threads,
                                     .count = bytes / sizeof(float),
                                     .data = calloc(1, bytes)};
        if (!callers[t].data)
            stop("calloc");
    }
    round_rate(callers, threads, world);
    for (int r = 0; r < ROUNDS; r++)
        rates[r] = round_rate(callers, threads, world);
    for (int t = 0; t < threads; t++)
        free(callers[t].data);
    qsort(rates, ROUNDS, sizeof(double), compare);
    return rates[ROUNDS / 2];
}

static int run(int rank, void *arg)
{
    static const char *const usual[] = {"8", "64K", NULL};
    const char *const *sizes = arg;
    dist_group *world, *groups[MOST];

    if (dist_init_process_group(NULL, &world) != DIST_OK)
        stop("init");
    for (int g = 0; g < MOST; g++) {
        if (dist_dup_group(world, NULL, &groups[g]) != DIST_OK)
            stop("dup_group");
    }
    for (sizes = *sizes ? sizes : usual; *sizes; sizes++) {
        char *end;
        size_t bytes = strtoull(*sizes, &end, 10) << (*end == 'K' ? 10 : *end == 'M' ? 20 : 0);

        if (bytes < sizeof(float))
            stop("BYTES: at least 4");
        if (rank == 0)
            printf("# %zu bytes, calls per second\n# threads  1 group   2 groups  3 groups  "
                   "4 groups\n",
                   bytes);
        for (int threads = 1; threads <= MOST; threads++) {
            if (rank == 0)
                printf("%9d", threads);
            for (int g = 1; g <= MOST; g++) {
                double rate = cell(world, groups, threads, g, bytes);

                if (rank == 0)
                    printf(" %9.0f", rate);
                fflush(stdout);
            }
            if (rank == 0)
                printf("\n");
        }
    }
    for (int g = 0; g < MOST; g++)
        dist_destroy_process_group(groups[g]);
    return dist_destroy_process_group(world) == DIST_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    int code = 1;

    if (dist_spawn(argc > 1 ? atoi(argv[1]) : 2, run, argc > 2 ? argv + 2 : argv + argc, &code) !=
        DIST_OK)
        stop("spawn");
    return code;
}
