/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap [RANKS [BYTES...]]: compares the progress thread with blocking calls.
 *
 *   bench/overlap 2 1M 16M
 *
 * Each round times a number of blocking all-reduces of float32 in sequence, and the same number of
 * asynchronous ones on which only the progress thread makes progress: the caller sleeps on a
 * semaphore until dist_on_complete calls its function for the last one. Prints the medians, in
 * microseconds, of the slowest rank's times and their ratio: at 100 % the thread is as fast as
 * blocking calls. The number of calls is 64 MiB / BYTES, but at least 8 and at most 64, because the
 * first call includes the time to wake two threads.
 */
#include <dist/dist.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SETS_LEAST 8
#define SETS_MOST 64
#define SETS_BYTES ((size_t)64 << 20)
#define ROUNDS 21

struct overlap {
    dist_group *group;
    sem_t ended;
    dist_status status;
    float *sets[SETS_MOST];
    int count_sets;
    size_t count;
};

static void stop(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, dist_last_error());
    exit(1);
}

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void ended(void *arg, dist_status status)
{
    struct overlap *o = arg;

    o->status = status;
    sem_post(&o->ended);
}

static dist_status blocking(struct overlap *o)
{
    dist_status status = DIST_OK;

    for (int s = 0; s < o->count_sets && status == DIST_OK; s++)
        status =
            dist_all_reduce(o->group, o->sets[s], o->sets[s], o->count, DIST_FLOAT32, DIST_SUM);
    return status;
}

static dist_status posted(struct overlap *o)
{
    dist_work *works[SETS_MOST];
    dist_status status = DIST_OK;

    for (int s = 0; s < o->count_sets && status == DIST_OK; s++) {
        status = dist_all_reduce_async(o->group, o->sets[s], o->sets[s], o->count, DIST_FLOAT32,
                                       DIST_SUM, &works[s]);
    }
    if (status == DIST_OK)
        status = dist_on_complete(works[o->count_sets - 1], ended, o);
    if (status == DIST_OK)
        sem_wait(&o->ended);
    for (int s = 0; s < o->count_sets && status == DIST_OK; s++)
        status = dist_wait(works[s]);
    return status;
}

/* Runs the calls on fresh data and checks the sums. Returns the time of the slowest rank. */
static double once(struct overlap *o, int round, bool blocks)
{
    float ranks = (float)dist_get_world_size(o->group), value = (float)(round % 7 + 1);
    double start, took, slowest;
    dist_status status;

    for (int s = 0; s < o->count_sets; s++) {
        for (size_t i = 0; i < o->count; i++)
            o->sets[s][i] = value + (float)s;
    }
    if (dist_barrier(o->group) != DIST_OK)
        stop("barrier");
    start = now_us();
    status = blocks ? blocking(o) : posted(o);
    took = now_us() - start;
    for (int s = 0; s < o->count_sets && status == DIST_OK; s++) {
        if (o->sets[s][o->count - 1] != ranks * (value + (float)s))
            status = DIST_ERR_INTERNAL;
    }
    if (status != DIST_OK)
        stop("all_reduce");
    if (dist_all_reduce(o->group, &took, &slowest, 1, DIST_FLOAT64, DIST_MAX) != DIST_OK)
        stop("all_reduce of the times");
    return slowest;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int run(int rank, void *arg)
{
    static const char *const usual[] = {"1M", "4M", "16M", "64M", NULL};
    struct dist_options options = DIST_OPTIONS_INIT;
    const char *const *sizes = arg;
    struct overlap o = {0};

    (void)rank;
    options.backend = "gloo";
    if (sem_init(&o.ended, 0, 0) < 0 || dist_init_process_group(&options, &o.group) != DIST_OK)
        stop("init");
    if (dist_get_rank(o.group) == 0)
        printf("# %10s %6s %12s %12s %12s\n", "bytes", "calls", "blocking us", "thread us",
               "speed");
    for (sizes = *sizes ? sizes : usual; *sizes; sizes++) {
        char *end;
        size_t value = strtoull(*sizes, &end, 10);

        size_t bytes = *end == 'K' ? value << 10 : *end == 'M' ? value << 20 : value;
        double times[2][ROUNDS];
        size_t sets = bytes ? SETS_BYTES / bytes : SETS_MOST;

        o.count = bytes / sizeof(float);
        o.count_sets = (int)(sets < SETS_LEAST ? SETS_LEAST : sets > SETS_MOST ? SETS_MOST : sets);
        for (int s = 0; s < o.count_sets; s++) {
            void *memory;

            if (dist_alloc(o.group, bytes, &memory) != DIST_OK)
                stop("alloc");
            o.sets[s] = memory;
        }
        for (int round = -2; round < ROUNDS; round++) {
            for (int k = 0; k < 2; k++) {
                int blocks = (k + round) & 1; /* alternate the order */
                double took = once(&o, round + 2, blocks);

                if (round >= 0)
                    times[blocks][round] = took;
            }
        }
        for (int k = 0; k < 2; k++)
            qsort(times[k], ROUNDS, sizeof(double), compare);
        if (dist_get_rank(o.group) == 0)
            printf("%12zu %6d %12.1f %12.1f %10.0f %%\n", bytes, o.count_sets, times[1][ROUNDS / 2],
                   times[0][ROUNDS / 2], 100 * times[1][ROUNDS / 2] / times[0][ROUNDS / 2]);
        fflush(stdout);
        for (int s = 0; s < o.count_sets; s++)
            dist_free(o.group, o.sets[s]);
    }
    return dist_destroy_process_group(o.group) == DIST_OK ? 0 : 1;
}

int main(int argc, char **argv)
{
    int code = 1;

    if (dist_spawn(argc > 1 ? atoi(argv[1]) : 2, run, argc > 2 ? argv + 2 : argv + argc, &code) !=
        DIST_OK)
        stop("spawn");
    return code;
}
