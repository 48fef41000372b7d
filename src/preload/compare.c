/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: calls that MPI does faster are handed on to it. */
#include "preload/preload.h"

#include <limits.h>

/*
 * What is faster is measured where it counts: in the program, on its ranks, by collective and size.
 * After some calls that are served both sides take turns, a few calls each, and the times of all
 * ranks together decide for good:
 *
 *    calls   0 ... 15   16..23   24..31   32..39   40..47   48..55   56..63   64 ...
 *            served   libdist    MPI   libdist    MPI   libdist    MPI   the faster one
 *
 * The first call of a turn is not timed, since ranks are still busy with the other side's last. A
 * side is faster if the longest of its turns is shorter than the shortest of the other's. Where
 * ranks come late or CPUs are taken away neither is: the call is served, and they are compared
 * again later. All ranks count alike and learn the same sums, so they decide alike. Only calls are
 * compared whose size all ranks know, and whose result does not depend on who computes it: not sums
 * of floating-point numbers, lest two runs of a program differ.
 */
#define COMPARE_SERVED 16
#define COMPARE_TURN 8

/* So often they are compared, each time after eight times as many calls: a shift of 3. */
#define COMPARE_TRIES 5
#define COMPARE_LATER 3

/* One must be faster by so much, in percent. */
#define COMPARE_AHEAD 10

enum compare_side { COMPARE_LIBDIST, COMPARE_MPI };

/* ---- which calls ---- */

static bool compare_is_possible(const struct disti_args *args)
{
    return !disti_collective_uneven(args->kind) &&
           (!disti_algorithm_reduces(args->kind) ||
            disti_reduction_is_exact(args->recvtype, args->op));
}

/* A block, in powers of 4: the arguments that mean something on this rank tell. */
static int compare_class(const struct disti_args *args, int rank)
{
    bool sends =
        rank == args->root ? args->kind == DIST_COLL_SCATTER : args->kind == DIST_COLL_GATHER;
    long long count = sends ? args->sendcount : args->recvcount;
    MPI_Datatype type = sends ? args->sendtype : args->recvtype;
    unsigned long long bytes;
    int class;

    if (args->kind == DIST_COLL_BARRIER || count <= 0 || type == MPI_DATATYPE_NULL)
        return 0;
    bytes = (unsigned long long)count * disti_type_size(type);
    class = bytes ? (65 - __builtin_clzll(bytes)) / 2 : 0;
    return class < DISTI_CLASSES ? class : DISTI_CLASSES - 1;
}

/* ---- the turns ---- */

/* Calls that are served before the turns. */
static int compare_served(const struct disti_comparison *comparison)
{
    return COMPARE_SERVED << (comparison->tries * COMPARE_LATER);
}

struct disti_comparison *disti_comparison_find(const struct disti_args *args,
                                               const struct disti_comm *comm)
{
    if (!disti_preload.compares || comm->ranks == 1 || !compare_is_possible(args))
        return NULL;
    return &args->channel->comparisons[args->kind][compare_class(args, comm->rank)];
}

enum disti_why disti_compare(struct disti_args *args, struct disti_comparison *comparison)
{
    int served, turn;

    if (comparison->served)
        return DISTI_WHY_SERVED;
    if (comparison->handed_on)
        return DISTI_WHY_SLOWER;
    served = compare_served(comparison);
    if (comparison->calls < served) {
        comparison->calls++;
        return DISTI_WHY_SERVED;
    }
    turn = (comparison->calls - served) / COMPARE_TURN;
    args->comparison = comparison;
    comparison->begun_s = PMPI_Wtime();
    return turn % 2 == COMPARE_LIBDIST ? DISTI_WHY_SERVED : DISTI_WHY_COMPARED;
}

/* Were all turns of this side shorter than all of the other's? Of all ranks together. */
static bool compare_is_faster(const long long turns_ns[DISTI_TURNS], enum compare_side side)
{
    long long longest = 0, least = LLONG_MAX;

    for (int turn = 0; turn < DISTI_TURNS; turn++) {
        if (turn % 2 == (int)side)
            longest = turns_ns[turn] > longest ? turns_ns[turn] : longest;
        else
            least = turns_ns[turn] < least ? turns_ns[turn] : least;
    }
    return longest * 100 < least * (100 - COMPARE_AHEAD);
}

/* The figures do not tell: later they may. */
static void compare_again(struct disti_comparison *comparison)
{
    if (++comparison->tries == COMPARE_TRIES) {
        comparison->served = true;
        return;
    }
    comparison->calls = 0;
    for (int turn = 0; turn < DISTI_TURNS; turn++)
        comparison->turns_s[turn] = 0;
}

/* Sums of integers are the same on every rank. If MPI does not sum, it is in no state to decide. */
static void compare_decide(struct disti_comparison *comparison, MPI_Comm comm)
{
    long long mine[DISTI_TURNS], all[DISTI_TURNS] = {0};

    for (int turn = 0; turn < DISTI_TURNS; turn++)
        mine[turn] = (long long)(comparison->turns_s[turn] * 1e9f);
    (void)disti_comm_agree(comm, mine, all, DISTI_TURNS, MPI_LONG_LONG, MPI_SUM);
    comparison->handed_on = compare_is_faster(all, COMPARE_MPI);
    comparison->served = compare_is_faster(all, COMPARE_LIBDIST);
    if (!comparison->handed_on && !comparison->served)
        compare_again(comparison);
}

void disti_compare_end(const struct disti_args *args)
{
    struct disti_comparison *comparison = args->comparison;
    double took_s = PMPI_Wtime() - comparison->begun_s;
    int call = comparison->calls++ - compare_served(comparison), turn = call / COMPARE_TURN;

    if (call % COMPARE_TURN != 0)
        comparison->turns_s[turn] += (float)took_s;
    if (call == DISTI_TURNS * COMPARE_TURN - 1)
        compare_decide(comparison, args->comm);
}
