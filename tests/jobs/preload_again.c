/* SPDX-License-Identifier: BSD-3-Clause */
/* Part of the MPI test program: calls that differ from the previous call in one respect. */
#include "preload_program.h"

#define AGAIN_RANKS 64

static void again_expect(const struct place *place, const char *what, int value, int wanted)
{
    if (value != wanted)
        program_wrong(place, "%s: %d, not %d", what, value, wanted);
}

/* ---- another communicator, with the handle of a freed one ---- */

/* Each communicator has its ranks in another order, so its calls involve other ranks. */
static void again_in_order(const struct place *place, int key)
{
    int given, got, all[AGAIN_RANKS], rank, first = key < 0 ? place->ranks - 1 : 0;
    MPI_Comm comm;

    MPI_Comm_split(place->comm, 0, key * place->rank, &comm);
    MPI_Comm_rank(comm, &rank);
    for (int n = 0; n < 2; n++) {
        given = got = place->rank;
        MPI_Bcast(&got, 1, MPI_INT, 0, comm);
        again_expect(place, "of rank 0 of a new communicator", got, first);
        MPI_Allgather(&given, 1, MPI_INT, all, 1, MPI_INT, comm);
        again_expect(place, "of this rank in a new communicator", all[rank], place->rank);
        MPI_Gather(&given, 1, MPI_INT, all, 1, MPI_INT, 0, comm);
        again_expect(place, "gathered in a new communicator", rank ? first : all[0], first);
        got = -1;
        MPI_Reduce(&given, &got, 1, MPI_INT, MPI_MAX, 0, comm);
        again_expect(place, "reduced in a new communicator", got, rank ? -1 : place->ranks - 1);
    }
    MPI_Comm_free(&comm);
}

/* ---- in place, and not ---- */

/* Fills in data for each pair of ranks; what a rank receives is stored at its sender's block. */
static void again_fill(const struct place *place, int *in, int *out)
{
    for (int r = 0; r < place->ranks; r++) {
        in[r] = 100 * place->rank + r;
        out[r] = in[r];
    }
}

static void again_reduced(const struct place *place, int root, bool in_place, int *in, int *out)
{
    int ranks = place->ranks, sum = 100 * ranks * (ranks - 1) / 2;
    bool gets = place->rank == root;

    again_fill(place, in, out);
    MPI_Allreduce(in_place ? MPI_IN_PLACE : in, out, ranks, MPI_INT, MPI_SUM, place->comm);
    again_expect(place, "allreduce again", out[ranks - 1], sum + ranks * (ranks - 1));
    again_fill(place, in, out);
    MPI_Reduce(in_place && gets ? MPI_IN_PLACE : in, out, ranks, MPI_INT, MPI_SUM, root,
               place->comm);
    again_expect(place, "reduce again", out[0], gets ? sum : 100 * place->rank);
    again_fill(place, in, out);
    MPI_Reduce_scatter_block(in_place ? MPI_IN_PLACE : in, out, 1, MPI_INT, MPI_SUM, place->comm);
    again_expect(place, "reduce_scatter_block again", out[0], sum + ranks * place->rank);
}

static void again_moved(const struct place *place, int root, bool in_place, int *in, int *out)
{
    int rank = place->rank, last = place->ranks - 1;
    bool at_root = rank == root;

    again_fill(place, in, out);
    MPI_Allgather(in_place ? MPI_IN_PLACE : in + rank, 1, MPI_INT, out, 1, MPI_INT, place->comm);
    again_expect(place, "allgather again", out[last], 101 * last);
    again_fill(place, in, out);
    MPI_Gather(in_place && at_root ? MPI_IN_PLACE : in + rank, 1, MPI_INT, out, 1, MPI_INT, root,
               place->comm);
    again_expect(place, "gather again", out[last], at_root ? 101 * last : 100 * rank + last);
    again_fill(place, in, out);
    MPI_Scatter(in, 1, MPI_INT, in_place && at_root ? MPI_IN_PLACE : out, 1, MPI_INT, root,
                place->comm);
    again_expect(place, "scatter again", out[0],
                 in_place && at_root ? 100 * rank : 100 * root + rank);
    again_fill(place, in, out);
    MPI_Alltoall(in_place ? MPI_IN_PLACE : in, 1, MPI_INT, out, 1, MPI_INT, place->comm);
    again_expect(place, "alltoall again", out[last], 100 * last + rank);
}

/* ---- other counts and displacements in the arrays of the previous call ---- */

/* Length of a block; a rank uses one or two of its numbers. */
#define AGAIN_ROOM 3
static int again_counts[AGAIN_RANKS], again_displs[AGAIN_RANKS];
static int again_out[AGAIN_ROOM * AGAIN_RANKS + 1];

static int again_many(int rank, int change)
{
    return 1 + (rank + change) % 2;
}

/* Sets counts and displacements of the blocks that rank `own` exchanges with each rank (0 for
 * gathers). Each change changes the counts, and every second one also the displacements. */
static void again_count(const struct place *place, int own, int change)
{
    for (int r = 0; r < place->ranks; r++) {
        again_counts[r] = again_many(own + r, change);
        again_displs[r] = AGAIN_ROOM * r + change / 2 % 2;
    }
    for (int i = 0; i <= AGAIN_ROOM * place->ranks; i++)
        again_out[i] = -1;
}

/* Checks that rank r sent 100 * r, 100 * r + 1, ... and that nothing was written between the
 * blocks. */
static void again_counted_right(const struct place *place, const char *what)
{
    for (int i = 0; i <= AGAIN_ROOM * place->ranks; i++) {
        int wanted = -1;

        for (int r = 0; r < place->ranks; r++) {
            if (i >= again_displs[r] && i < again_displs[r] + again_counts[r])
                wanted = 100 * r + i - again_displs[r];
        }
        again_expect(place, what, again_out[i], wanted);
    }
}

static void again_gathered(const struct place *place, int change)
{
    const int own[2] = {100 * place->rank, 100 * place->rank + 1};
    int many = again_many(place->rank, change);

    again_count(place, 0, change);
    MPI_Allgatherv(own, many, MPI_INT, again_out, again_counts, again_displs, MPI_INT, place->comm);
    again_counted_right(place, "allgatherv again");
    again_count(place, 0, change);
    MPI_Gatherv(own, many, MPI_INT, again_out, again_counts, again_displs, MPI_INT, 0, place->comm);
    if (place->rank == 0)
        again_counted_right(place, "gatherv again");
}

static void again_scattered(const struct place *place, int change)
{
    int in[AGAIN_ROOM * AGAIN_RANKS + 1], got[2] = {-1, -1};
    int many = again_many(place->rank, change);

    again_count(place, 0, change);
    for (int i = 0; i <= AGAIN_ROOM * place->ranks; i++)
        in[i] = i;
    MPI_Scatterv(in, again_counts, again_displs, MPI_INT, got, many, MPI_INT, 0, place->comm);
    again_expect(place, "scatterv again", got[0], again_displs[place->rank]);
    again_expect(place, "scatterv again, second", got[1], many < 2 ? -1 : got[0] + 1);
    again_count(place, place->rank, change);
    for (int i = 0; i <= AGAIN_ROOM * place->ranks; i++)
        in[i] = 100 * place->rank + (i - again_displs[0]) % AGAIN_ROOM;
    MPI_Alltoallv(in, again_counts, again_displs, MPI_INT, again_out, again_counts, again_displs,
                  MPI_INT, place->comm);
    again_counted_right(place, "alltoallv again");
}

static void again_reduced_counts(const struct place *place, int change)
{
    int in[2 * AGAIN_RANKS], first = 0, ranks = place->ranks;

    again_count(place, 0, change);
    for (int i = 0; i < 2 * ranks; i++)
        in[i] = place->rank + i;
    for (int r = 0; r < place->rank; r++)
        first += again_counts[r];
    MPI_Reduce_scatter(in, again_out, again_counts, MPI_INT, MPI_SUM, place->comm);
    for (int i = 0; i < 2; i++)
        again_expect(place, "reduce_scatter again", again_out[i],
                     i < again_counts[place->rank] ? ranks * (ranks - 1) / 2 + ranks * (first + i)
                                                   : -1);
}

/* ---- another type, with the handle of a freed one ---- */

static void again_of_type(const struct place *place, int elements)
{
    MPI_Datatype type;

    MPI_Type_contiguous(elements, MPI_INT, &type);
    MPI_Type_commit(&type);
    for (int n = 0; n < 2; n++) {
        int data[4] = {place->rank, place->rank, place->rank, place->rank};

        MPI_Bcast(data, 1, type, 0, place->comm);
        for (int i = 0; i < 4; i++)
            again_expect(place, "of another type", data[i], i < elements ? 0 : place->rank);
    }
    MPI_Type_free(&type);
}

/* Repeats calls in the same and in other memory. At most 64 ranks. */
void program_again(void)
{
    struct place place = {.name = "again", .comm = MPI_COMM_WORLD};
    int in[AGAIN_RANKS], out[2 * AGAIN_RANKS];

    MPI_Comm_rank(place.comm, &place.rank);
    MPI_Comm_size(place.comm, &place.ranks);
    for (int n = 0; n < 6; n++)
        again_in_order(&place, n % 2 ? -1 : 1);
    for (int n = 0; n < 16; n++) {
        again_reduced(&place, n / 8, n / 2 % 2, in, out + n);
        again_moved(&place, n / 8, n / 2 % 2, in, out + n);
    }
    for (int n = 0; n < 24; n++) {
        again_gathered(&place, n / 3);
        again_scattered(&place, n / 3);
        again_reduced_counts(&place, n / 3);
    }
    for (int n = 0; n < 6; n++)
        again_of_type(&place, 1 + n % 3);
}
