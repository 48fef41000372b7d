/* SPDX-License-Identifier: BSD-3-Clause */
/* Part of the MPI test program: sent and received data in one array. */
#include "preload_program.h"

#include <stdlib.h>

/* ---- sent data in the gaps of the received data, or in the same memory ---- */

/* Returns what rank `from` sends to rank `to`. */
static int gaps_value(int from, int to)
{
    return 1000 * from + to + 5;
}

/* Fills an array of integers: element 2r is for rank r, and the odd elements are the gaps. */
static void gaps_fill(const struct place *place, int *at)
{
    for (int r = 0; r < place->ranks; r++) {
        at[2 * r] = gaps_value(place->rank, r);
        at[2 * r + 1] = -1;
    }
}

void program_gaps(const struct place *place, int root)
{
    int ones[64], evens[64], at[128] = {0};
    bool gets = place->rank == root;

    for (int r = 0; r < 64; r++) {
        ones[r] = 1;
        evens[r] = 2 * r;
    }
    PROGRAM_CALL(place, gaps_fill(place, at), Alltoallv, Ialltoallv, at, ones, evens, MPI_INT,
                 at + 1, ones, evens, MPI_INT, place->comm);
    for (int r = 0; r < place->ranks; r++) {
        if (at[2 * r] != gaps_value(place->rank, r) || at[2 * r + 1] != gaps_value(r, place->rank))
            program_wrong(place, "alltoallv in gaps: %d, %d", at[2 * r], at[2 * r + 1]);
    }
    PROGRAM_CALL(place, gaps_fill(place, at), Gatherv, Igatherv, at, 1, MPI_INT, at + 1, ones,
                 evens, MPI_INT, root, place->comm);
    for (int r = 0; gets && r < place->ranks; r++) {
        if (at[2 * r + 1] != gaps_value(r, 0))
            program_wrong(place, "gatherv in gaps: %d", at[2 * r + 1]);
    }
    PROGRAM_CALL(place, gaps_fill(place, at), Scatterv, Iscatterv, at, ones, evens, MPI_INT, at + 1,
                 1, MPI_INT, root, place->comm);
    if (at[1] != gaps_value(root, place->rank))
        program_wrong(place, "scatterv in gaps: %d", at[1]);
}

/* ---- overlaps that MPI forbids, on some ranks only ---- */

static void overlaps_expect(const struct place *place, const char *what, int value, int wanted)
{
    if (value != wanted)
        program_wrong(place, "%s, where in and out overlap: %d, not %d", what, value, wanted);
}

/* Calls that differ only in the place of their memory. */
static void overlaps_again(struct place place, MPI_Comm comm)
{
    int at[2] = {1 + place.rank, 0}, other = 1 + place.rank, ranks = place.ranks;
    int sum = ranks * (ranks + 1) / 2;

    place.comm = comm;
    for (int n = 0; n < 3; n++) {
        int got[2] = {0, 0};

        MPI_Allreduce(&other, got, 1, MPI_INT, MPI_SUM, comm);
        overlaps_expect(&place, "allreduce again", got[0], sum);
        got[0] = other;
        MPI_Allreduce(MPI_IN_PLACE, got, 1, MPI_INT, MPI_SUM, comm);
        overlaps_expect(&place, "allreduce again, in place", got[0], sum);
        got[0] = other;
        MPI_Reduce(place.rank ? got : MPI_IN_PLACE, got, 1, MPI_INT, MPI_SUM, 0, comm);
        overlaps_expect(&place, "reduce again", got[0], place.rank ? other : sum);
        at[0] = at[1] = other;
        MPI_Allreduce(at, n % 2 ? at + 1 : got, 2 - n % 2, MPI_INT, MPI_SUM, comm);
        overlaps_expect(&place, "allreduce again, of one or two", n % 2 ? at[1] : got[1], sum);
        at[0] = got[0] = other;
        MPI_Bcast(n % 2 ? at : got, 1, MPI_INT, n % ranks, comm);
        overlaps_expect(&place, "bcast again", n % 2 ? at[0] : got[0], 1 + n % ranks);
    }
}

/* The odd ranks' buffers overlap without MPI_IN_PLACE: no rank may be refused alone. */
void program_overlaps(void)
{
    struct place place = {.name = "overlaps", .comm = MPI_COMM_WORLD};
    int ranks, sum, at[200] = {0}, *in = at, *out;
    MPI_Comm dup;

    MPI_Comm_rank(place.comm, &place.rank);
    MPI_Comm_size(place.comm, &place.ranks);
    ranks = place.ranks;
    sum = ranks * (ranks - 1) / 2;
    for (int n = 0; n < 4; n++) {
        MPI_Comm_dup(place.comm, &dup); /* often with the handle of the previous one */
        overlaps_again(place, n % 2 ? dup : place.comm);
        MPI_Comm_free(&dup);
    }
    out = at + (place.rank % 2 ? 1 : 130);
    for (int form = BLOCKING; form < FORMS; form++) {
        place.form = (enum form)form;
#define FILL                                                                                       \
    for (int i = 0; i < 130; i++)                                                                  \
    at[i] = place.rank + i
        PROGRAM_CALL(&place, FILL, Allreduce, Iallreduce, in, out, 3, MPI_INT, MPI_SUM, place.comm);
        overlaps_expect(&place, "allreduce", out[2], sum + 2 * ranks);
        PROGRAM_CALL(&place, FILL, Reduce_scatter_block, Ireduce_scatter_block, in, out, 2, MPI_INT,
                     MPI_SUM, place.comm);
        overlaps_expect(&place, "reduce_scatter_block", out[1], sum + (2 * place.rank + 1) * ranks);
        PROGRAM_CALL(&place, FILL, Alltoall, Ialltoall, in, 1, MPI_INT, out, 1, MPI_INT,
                     place.comm);
        overlaps_expect(&place, "alltoall", out[ranks - 1], ranks - 1 + place.rank);
        PROGRAM_CALL(&place, FILL, Allgather, Iallgather, in, 2, MPI_INT, out, 2, MPI_INT,
                     place.comm);
        overlaps_expect(&place, "allgather", out[2 * ranks - 1], ranks);
#undef FILL
    }
}

/* ---- an element of more than 2 GiB ---- */

#define BUFFERS_GIANT ((1 << 28) + 8)

/* Rank 0's type picks every second number; the numbers of the other ranks are contiguous. */
static void buffers_giant(const struct place *place, double *numbers, MPI_Datatype gapped, int root)
{
    size_t step = place->rank == 0 ? 2 : 1, last = step * (BUFFERS_GIANT - 1);
    double gap = place->rank == 0 ? 3 : 0;

    numbers[0] = place->rank == root ? 1 : -1;
    numbers[last] = place->rank == root ? 2 : -1;
    numbers[last - 1] = gap;
    if (place->rank == 0)
        MPI_Bcast(numbers, 1, gapped, root, place->comm);
    else
        MPI_Bcast(numbers, BUFFERS_GIANT, MPI_DOUBLE, root, place->comm);
    if (numbers[0] != 1 || numbers[last] != 2 || numbers[last - 1] != gap)
        program_wrong(place, "a giant element from %d: %g, %g, %g", root, numbers[0],
                      numbers[last - 1], numbers[last]);
}

void program_giant(void)
{
    struct place place = {.name = "giant", .comm = MPI_COMM_WORLD, .form = BLOCKING};
    MPI_Datatype gapped;
    double *numbers;

    MPI_Comm_rank(place.comm, &place.rank);
    MPI_Comm_size(place.comm, &place.ranks);
    numbers = calloc(BUFFERS_GIANT, place.rank == 0 ? 2 * sizeof(double) : sizeof(double));
    MPI_Type_vector(BUFFERS_GIANT, 1, 2, MPI_DOUBLE, &gapped);
    MPI_Type_commit(&gapped);
    if (numbers)
        buffers_giant(&place, numbers, gapped, 0);
    if (numbers)
        buffers_giant(&place, numbers, gapped, place.ranks - 1);
    MPI_Type_free(&gapped);
    free(numbers);
}
