/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * versus_mpi [BACKEND [BYTES...]]: all-reduce of float32 on ordinary memory, ours and the MPI's
 * own, in turn.
 *
 *   mpirun -np 2 bench/versus_mpi gloo 16M
 *
 * Each round times one call of each on the same buffers, after a barrier; buffer sets rotate
 * so that no cache flatters. A time is the slowest rank's. Prints medians in microseconds
 * and their ratio (above 1: ours is faster). Results are checked every round.
 */
#include <dist/dist.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETS 3

struct bench {
    dist_group *group;
    int rank, ranks;
    float *sets[SETS];
};

static int compare_times(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void fill(const struct bench *b, float *data, size_t count, int round)
{
    for (size_t i = 0; i < count; i++)
        data[i] = (float)((i + (size_t)round + (size_t)b->rank) % 16);
}

static void check(const struct bench *b, const float *data, size_t count, int round,
                  const char *whose)
{
    for (size_t i = 0; i < count; i += count / 1000 + 1) {
        float expected = 0;

        for (int r = 0; r < b->ranks; r++)
            expected += (float)((i + (size_t)round + (size_t)r) % 16);
        if (data[i] != expected) {
            fprintf(stderr, "rank %d: %s: element %zu is %g, should be %g\n", b->rank, whose, i,
                    (double)data[i], (double)expected);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

static void ours(const struct bench *b, float *data, size_t count)
{
    if (dist_all_reduce(b->group, data, data, count, DIST_FLOAT32, DIST_SUM) == DIST_OK)
        return;
    fprintf(stderr, "rank %d: %s\n", b->rank, dist_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* One timed call in microseconds, the slowest rank's. */
static double once(const struct bench *b, float *data, size_t count, int round, int mpi)
{
    double start, took, slowest;

    fill(b, data, count, round);
    MPI_Barrier(MPI_COMM_WORLD);
    start = MPI_Wtime();
    if (mpi)
        MPI_Allreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    else
        ours(b, data, count);
    took = MPI_Wtime() - start;
    MPI_Allreduce(&took, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    check(b, data, count, round, mpi ? "MPI" : "libdist");
    return slowest * 1e6;
}

static void size(const struct bench *b, size_t bytes, int rounds)
{
    double *times[2] = {calloc((size_t)rounds, sizeof(double)),
                        calloc((size_t)rounds, sizeof(double))};
    size_t count = bytes / sizeof(float);

    for (int round = -2; round < rounds; round++) {
        for (int k = 0; k < 2; k++) {
            int mpi = (k + round) & 1; /* who goes first changes */
            double took = once(b, b->sets[(round + 2) % SETS], count, round + 2, mpi);

            if (round >= 0)
                times[mpi][round] = took;
        }
    }
    for (int mpi = 0; mpi < 2; mpi++)
        qsort(times[mpi], (size_t)rounds, sizeof(double), compare_times);
    if (b->rank == 0)
        printf("%12zu %12.1f %12.1f %8.2f\n", bytes, times[0][rounds / 2], times[1][rounds / 2],
               times[1][rounds / 2] / times[0][rounds / 2]);
    fflush(stdout);
    free(times[0]);
    free(times[1]);
}

static size_t parse_bytes(const char *text)
{
    char *end;
    size_t value = strtoull(text, &end, 10);

    return *end == 'K' ? value << 10 : *end == 'M' ? value << 20 : value;
}

int main(int argc, char **argv)
{
    static const char *const usual[] = {"8", "1K", "8K", "64K", "256K", "1M", "4M", "16M", "64M"};
    struct dist_options options = DIST_OPTIONS_INIT;
    struct bench b = {0};
    size_t largest = 64u << 20;

    MPI_Init(&argc, &argv);
    options.backend = argc > 1 ? argv[1] : "gloo";
    if (dist_init_process_group(&options, &b.group) != DIST_OK) {
        fprintf(stderr, "%s\n", dist_last_error());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    b.rank = dist_get_rank(b.group);
    b.ranks = dist_get_world_size(b.group);
    for (int a = 2; a < argc; a++)
        largest = parse_bytes(argv[a]) > largest ? parse_bytes(argv[a]) : largest;
    for (int s = 0; s < SETS; s++)
        b.sets[s] = malloc(largest);
    if (b.rank == 0)
        printf("# all_reduce float32 sum in place, %d ranks, backend %s, medians in us\n"
               "# %10s %12s %12s %8s\n",
               b.ranks, dist_get_backend(b.group), "bytes", "libdist", "MPI", "ratio");
    for (int i = 0; argc > 2 ? i + 2 < argc : i < 9; i++) {
        size_t bytes = parse_bytes(argc > 2 ? argv[i + 2] : usual[i]);

        size(&b, bytes, bytes <= 65536 ? 401 : bytes <= 4u << 20 ? 101 : 31);
    }
    dist_destroy_process_group(b.group);
    for (int s = 0; s < SETS; s++)
        free(b.sets[s]);
    MPI_Finalize();
    return 0;
}
