/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: calls that MPI does faster are handed on to it. */
#include "preload/serve.h"

/*
 * What is faster is measured where it counts: in the program, on its ranks, by collective and size.
 * After some calls that are served both sides take turns, a few calls each, and the sums of all
 * ranks' times decide for good:
 *
 *    calls   0 ... 15   16..23   24..31   32..39   40..47   48..55   56..63   64 ...
 *            served     ours     MPI's    ours     MPI's    ours     MPI's    who is faster
 *
 * The first call of a turn is not timed, since ranks are still busy with the other side's last, and
 * of a side's turns the shortest counts. All ranks count alike and learn the same sums, so they
 * decide alike. Only calls are compared whose size all ranks know, and whose result does not depend
 * on who computes it: not sums of floating-point numbers, lest two runs of a program differ.
 */
#define COMPARE_SERVED 16
#define COMPARE_TURN 8
#define COMPARE_TURNS 6

/* MPI must be faster by so much, in percent: figures scatter. */
#define COMPARE_AHEAD 10

enum compare_side { COMPARE_LIBDIST, COMPARE_MPI };

/* ---- which calls ---- */

static bool compare_is_possible(const struct disti_args *args)
{
    switch (args->kind) {
    case DISTI_BARRIER:
    case DISTI_BCAST:
    case DISTI_ALLGATHER:
    case DISTI_ALLTOALL:
    case DISTI_GATHER:
    case DISTI_SCATTER:
        return true;
    case DISTI_ALLREDUCE:
    case DISTI_REDUCE:
    case DISTI_REDUCE_SCATTER_BLOCK:
        return disti_reduction_is_exact(args->recvtype, args->op);
    default:
        return false;
    }
}

/* A block, in powers of 4: the arguments that mean something on this rank tell. */
static int compare_class(const struct disti_args *args, int rank)
{
    bool sends = rank == args->root ? args->kind == DISTI_SCATTER : args->kind == DISTI_GATHER;
    long long count = sends ? args->sendcount : args->recvcount;
    MPI_Datatype type = sends ? args->sendtype : args->recvtype;
    unsigned long long bytes;
    int class;

    if (args->kind == DISTI_BARRIER || count <= 0 || type == MPI_DATATYPE_NULL)
        return 0;
    bytes = (unsigned long long)count * disti_type_size(type);
    class = bytes ? (65 - __builtin_clzll(bytes)) / 2 : 0;
    return class < DISTI_CLASSES ? class : DISTI_CLASSES - 1;
}

/* ---- the turns ---- */

enum disti_why disti_compare(struct disti_args *args, const struct disti_comm *comm)
{
    struct disti_comparison *comparison;
    int turn;

    if (comm->ranks == 1 || !compare_is_possible(args))
        return DISTI_WHY_SERVED;
    comparison = &args->channel->comparisons[args->kind][compare_class(args, comm->rank)];
    if (comparison->served)
        return DISTI_WHY_SERVED;
    if (comparison->handed_on)
        return DISTI_WHY_SLOWER;
    if (comparison->calls < COMPARE_SERVED) {
        comparison->calls++;
        return DISTI_WHY_SERVED;
    }
    turn = (comparison->calls - COMPARE_SERVED) / COMPARE_TURN;
    args->comparison = comparison;
    comparison->begun_s = PMPI_Wtime();
    return turn % 2 == COMPARE_LIBDIST ? DISTI_WHY_SERVED : DISTI_WHY_COMPARED;
}

/* Nanoseconds: sums of integers are the same on every rank. */
static void compare_decide(struct disti_comparison *comparison, MPI_Comm comm)
{
    long long mine[2] = {(long long)(comparison->best_s[COMPARE_LIBDIST] * 1e9),
                         (long long)(comparison->best_s[COMPARE_MPI] * 1e9)};
    long long all[2] = {0, 0};
    MPI_Request request;

    if (PMPI_Iallreduce(mine, all, 2, MPI_LONG_LONG, MPI_SUM, comm, &request) == MPI_SUCCESS)
        disti_comm_wait(&request);
    comparison->handed_on = all[COMPARE_MPI] * 100 < all[COMPARE_LIBDIST] * (100 - COMPARE_AHEAD);
    comparison->served = !comparison->handed_on;
}

void disti_compare_end(const struct disti_args *args)
{
    struct disti_comparison *comparison = args->comparison;
    double took_s = PMPI_Wtime() - comparison->begun_s;
    int call = comparison->calls++ - COMPARE_SERVED, turn = call / COMPARE_TURN;
    double *best_s = &comparison->best_s[turn % 2];

    if (call % COMPARE_TURN == 0)
        comparison->turn_s = 0;
    else
        comparison->turn_s += took_s;
    if (call % COMPARE_TURN != COMPARE_TURN - 1)
        return;
    if (turn < 2 || comparison->turn_s < *best_s)
        *best_s = comparison->turn_s;
    if (turn == COMPARE_TURNS - 1)
        compare_decide(comparison, args->comm);
}
