/* SPDX-License-Identifier: BSD-3-Clause */
/* Part of the MPI test program: repeats each collective until MPI and libdist are compared. */
#include "preload_program.h"

#include <stdlib.h>

#define COMPARE_CALLS 150
#define COMPARE_INTS 40
#define COMPARE_MOST (64 * COMPARE_INTS)

static MPI_Datatype compare_pair; /* two integers: rank 0's type in a broadcast */

/* Returns element i that rank `from` sends to rank `to` in round n. */
static int compare_value(int from, int to, int i, int n)
{
    return 10000 * from + 100 * to + i + n;
}

static void compare_fill(const struct place *place, int *in, int n)
{
    for (int i = 0; i < place->ranks * COMPARE_INTS; i++)
        in[i] = compare_value(place->rank, i / COMPARE_INTS, i % COMPARE_INTS, n);
}

static void compare_check(const struct place *place, const char *what, int got, int wanted)
{
    if (got != wanted)
        program_wrong(place, "%s: %d, not %d", what, got, wanted);
}

static void compare_copies(const struct place *place, const int *in, int *out, int n)
{
    int last = place->ranks - 1, i = n % COMPARE_INTS;

    MPI_Alltoall(in, COMPARE_INTS, MPI_INT, out, COMPARE_INTS, MPI_INT, place->comm);
    compare_check(place, "MPI_Alltoall", out[last * COMPARE_INTS + i],
                  compare_value(last, place->rank, i, n));
    MPI_Allgather(in, COMPARE_INTS, MPI_INT, out, COMPARE_INTS, MPI_INT, place->comm);
    compare_check(place, "MPI_Allgather", out[last * COMPARE_INTS + i],
                  compare_value(last, 0, i, n));
    MPI_Scatter(in, COMPARE_INTS, MPI_INT, out, COMPARE_INTS, MPI_INT, last, place->comm);
    compare_check(place, "MPI_Scatter", out[i], compare_value(last, place->rank, i, n));
    MPI_Gather(in, COMPARE_INTS, MPI_INT, out, COMPARE_INTS, MPI_INT, last, place->comm);
    if (place->rank == last)
        compare_check(place, "MPI_Gather", out[i], compare_value(0, 0, i, n));
    if (place->rank == 0)
        MPI_Bcast(out, COMPARE_INTS / 2, compare_pair, last, place->comm);
    else
        MPI_Bcast(out, COMPARE_INTS, MPI_INT, last, place->comm);
    compare_check(place, "MPI_Bcast", out[i], compare_value(0, 0, i, n));
}

static void compare_reductions(const struct place *place, const int *in, int *out, int n)
{
    int sum = place->ranks * n + 10000 * place->ranks * (place->ranks - 1) / 2;
    double half = 0.5, halves = 0;

    MPI_Allreduce(in, out, COMPARE_INTS, MPI_INT, MPI_SUM, place->comm);
    compare_check(place, "MPI_Allreduce", out[0], sum);
    MPI_Reduce_scatter_block(in, out, COMPARE_INTS, MPI_INT, MPI_SUM, place->comm);
    compare_check(place, "MPI_Reduce_scatter_block", out[0],
                  sum + 100 * place->ranks * place->rank);
    MPI_Reduce(&half, &halves, 1, MPI_DOUBLE, MPI_SUM, 0, place->comm);
    if (place->rank == 0)
        compare_check(place, "MPI_Reduce", (int)(2 * halves), place->ranks);
}

void program_compare(void)
{
    struct place place = {.name = "compare", .comm = MPI_COMM_WORLD};
    int *in = calloc(COMPARE_MOST, sizeof(*in)), *out = calloc(COMPARE_MOST, sizeof(*out));

    MPI_Comm_rank(place.comm, &place.rank);
    MPI_Comm_size(place.comm, &place.ranks);
    MPI_Type_contiguous(2, MPI_INT, &compare_pair);
    MPI_Type_commit(&compare_pair);
    for (int n = 0; n < COMPARE_CALLS; n++) {
        compare_fill(&place, in, n);
        compare_copies(&place, in, out, n);
        compare_reductions(&place, in, out, n);
        MPI_Barrier(place.comm);
    }
    MPI_Type_free(&compare_pair);
    free(in);
    free(out);
}
