/* SPDX-License-Identifier: BSD-3-Clause */
/* Part of the MPI test program: rank 0 runs under callgrind. */
#include "preload_program.h"

#include <string.h>
#include <time.h>

#define COST_LATE_NS (50 * 1000)

/* Number of integers that each of the two ranks sends to each rank. */
#define COST_COUNT 2
static const int cost_counts[2] = {COST_COUNT, COST_COUNT}, cost_places[2] = {0, COST_COUNT};
static int cost_in[2 * COST_COUNT], cost_out[2 * COST_COUNT];

static void cost_allreduce(void)
{
    MPI_Allreduce(cost_in, cost_out, COST_COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static void cost_reduce_scatter(void)
{
    MPI_Reduce_scatter(cost_in, cost_out, cost_counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static void cost_allgather(void)
{
    MPI_Allgather(cost_in, COST_COUNT, MPI_INT, cost_out, COST_COUNT, MPI_INT, MPI_COMM_WORLD);
}

static void cost_allgatherv(void)
{
    MPI_Allgatherv(cost_in, COST_COUNT, MPI_INT, cost_out, cost_counts, cost_places, MPI_INT,
                   MPI_COMM_WORLD);
}

static void cost_gather(void)
{
    MPI_Gather(cost_in, COST_COUNT, MPI_INT, cost_out, COST_COUNT, MPI_INT, 0, MPI_COMM_WORLD);
}

static void cost_gatherv(void)
{
    MPI_Gatherv(cost_in, COST_COUNT, MPI_INT, cost_out, cost_counts, cost_places, MPI_INT, 0,
                MPI_COMM_WORLD);
}

/* The root is rank 1, so rank 0, whose instructions are counted, receives. */
static void cost_scatterv(void)
{
    MPI_Scatterv(cost_in, cost_counts, cost_places, MPI_INT, cost_out, COST_COUNT, MPI_INT, 1,
                 MPI_COMM_WORLD);
}

static void cost_alltoall(void)
{
    MPI_Alltoall(cost_in, COST_COUNT, MPI_INT, cost_out, COST_COUNT, MPI_INT, MPI_COMM_WORLD);
}

static void cost_alltoallv(void)
{
    MPI_Alltoallv(cost_in, cost_counts, cost_places, MPI_INT, cost_out, cost_counts, cost_places,
                  MPI_INT, MPI_COMM_WORLD);
}

static const struct cost_kind {
    const char *name;
    void (*call)(void);
    int first, second; /* first and second element of rank 0's result, as multiples of in[0] */
} cost_kinds[] = {
    {"Allreduce", cost_allreduce, 2, 0}, {"Reduce_scatter", cost_reduce_scatter, 2, 0},
    {"Allgather", cost_allgather, 1, 1}, {"Allgatherv", cost_allgatherv, 1, 1},
    {"Gather", cost_gather, 1, 1},       {"Gatherv", cost_gatherv, 1, 1},
    {"Scatterv", cost_scatterv, 1, 0},   {"Alltoall", cost_alltoall, 1, 1},
    {"Alltoallv", cost_alltoallv, 1, 1},
};

static const struct cost_kind *cost_kind_of(const char *name)
{
    for (size_t i = 0; i < sizeof(cost_kinds) / sizeof(cost_kinds[0]); i++) {
        if (strcmp(cost_kinds[i].name, name) == 0)
            return &cost_kinds[i];
    }
    return NULL;
}

static void cost_check(const struct cost_kind *kind, struct place *place, int n)
{
    int first = cost_out[0], second = cost_out[COST_COUNT];

    if (place->rank == 0 && (first != kind->first * n || second != kind->second * n))
        program_wrong(place, "%s %d: %d, %d", kind->name, n, first, second);
}

/* Rank 0 sleeps COST_LATE_NS before each short call, so that rank 1 has made the call already. */
void program_cost(int calls, const char *name)
{
    const struct timespec late = {.tv_nsec = COST_LATE_NS};
    const struct cost_kind *kind = cost_kind_of(name);
    struct place place = {.name = "cost", .comm = MPI_COMM_WORLD};

    MPI_Comm_rank(MPI_COMM_WORLD, &place.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &place.ranks);
    if (!kind || place.ranks != 2) {
        program_wrong(&place, "two ranks, and not %s", name);
        return;
    }
    for (int n = 0; n < calls; n++) {
        for (int i = 0; i < 2 * COST_COUNT; i++)
            cost_in[i] = n;
        if (place.rank == 0)
            nanosleep(&late, NULL);
        kind->call();
        cost_check(kind, &place, n);
    }
}

/* After this number of messages MPI has allocated all that it needs for a peer. */
#define COST_MESSAGES 64

static void cost_exchange(int rank)
{
    MPI_Request requests[2];
    int in, out = rank;

    MPI_Irecv(&in, 1, MPI_INT, 1 - rank, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(&out, 1, MPI_INT, 1 - rank, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

/* A function of its own, so that callgrind can count the program's MPI_Test calls only. */
void program_tests(MPI_Request *request, int calls);
__attribute__((noinline)) void program_tests(MPI_Request *request, int calls)
{
    int done;

    for (int n = 0; n < calls; n++)
        MPI_Test(request, &done, MPI_STATUS_IGNORE);
}

/* Rank 0 polls for a message that rank 1 sends after the polling. */
void program_polls(int calls)
{
    MPI_Request request;
    int rank, number = 0;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int n = 0; n < COST_MESSAGES; n++)
        cost_exchange(rank);
    if (rank == 0) {
        MPI_Irecv(&number, 1, MPI_INT, 1, 2, MPI_COMM_WORLD, &request);
        program_tests(&request, calls);
        MPI_Send(&number, 1, MPI_INT, 1, 3, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(&number, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(&number, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
    }
}
