/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * idle BACKEND: all ranks but the last wait for it for some seconds, by each kind of wait, and may
 * use 2 % of a CPU meanwhile (more under sanitizers). Exit 0 if they do not use more.
 *
 * Other processes of the machine empty the caches, which makes the same wait take more CPU time. A
 * kind of wait therefore fails only if it takes too much several times in a row.
 */
#include <dist/dist.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define SECONDS 2
#define TRIES 3
/* Under sanitizers the same work takes several times as much CPU time. */
#ifdef __SANITIZE_ADDRESS__
#define MOST_PERCENT 10.0
#else
#define MOST_PERCENT 2.0
#endif

static dist_group *group;
static int rank, last;

static double cpu_seconds(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1e-6;
}

static double now_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static dist_status in_a_barrier(void)
{
    return dist_barrier(group);
}

/* An all-reduce of several chunks, but little work. */
static dist_status in_an_all_reduce(void)
{
    static float in[1 << 16], out[1 << 16];

    return dist_all_reduce(group, in, out, 1 << 16, DIST_FLOAT32, DIST_SUM);
}

static dist_status in_a_receive(void)
{
    int32_t data = rank;

    if (rank != last)
        return dist_recv(group, &data, 1, DIST_INT32, last, 7, NULL);
    for (int peer = 0; peer < last; peer++) {
        dist_status status = dist_send(group, &data, 1, DIST_INT32, peer, 7);

        if (status != DIST_OK)
            return status;
    }
    return DIST_OK;
}

/* The progress thread waits while the program does other work; here the program sleeps. */
static dist_status in_the_progress_thread(void)
{
    dist_work *work;
    dist_status status = dist_barrier_async(group, &work);

    if (status != DIST_OK)
        return status;
    if (rank != last)
        sleep(SECONDS);
    return dist_wait(work);
}

static const struct {
    const char *name;
    dist_status (*wait)(void);
} ways[] = {{"a barrier", in_a_barrier},
            {"an all-reduce of 256 KiB", in_an_all_reduce},
            {"a receive", in_a_receive},
            {"the progress thread", in_the_progress_thread}};

/* Waits once. Returns true if the CPU time is within the limit. */
static int try(int way)
{
    dist_status status = dist_barrier(group);
    double start = now_seconds(), cpu = cpu_seconds(), percent;

    if (rank == last)
        sleep(SECONDS);
    if (status == DIST_OK)
        status = ways[way].wait();
    if (status != DIST_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, dist_last_error());
        return 0;
    }
    percent = 100 * (cpu_seconds() - cpu) / (now_seconds() - start);
    if (rank == last)
        return 1;
    printf("rank %d: %s took %.2f %% of a CPU\n", rank, ways[way].name, percent);
    return percent < MOST_PERCENT;
}

/* Repeats until no rank takes too much. Returns 1 if all tries failed, otherwise 0. */
static int try_again(int way)
{
    for (int i = 0; i < TRIES; i++) {
        int32_t failed = !try(way), any;

        if (dist_all_reduce(group, &failed, &any, 1, DIST_INT32, DIST_MAX) != DIST_OK)
            return 1;
        if (!any)
            return 0;
    }
    return 1;
}

int main(int argc, char **argv)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    int failures = 0;

    if (argc != 2)
        return 99;
    options.backend = argv[1];
    if (dist_init_process_group(&options, &group) != DIST_OK) {
        fprintf(stderr, "%s\n", dist_last_error());
        return 1;
    }
    rank = dist_get_rank(group);
    last = dist_get_world_size(group) - 1;
    for (int way = 0; way < (int)(sizeof(ways) / sizeof(ways[0])); way++)
        failures += try_again(way);
    if (dist_destroy_process_group(group) != DIST_OK)
        failures++;
    return failures > 0;
}
