/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Part of the MPI test program: calls that MPI refuses, on all ranks or on one rank. Later calls
 * must not be affected.
 */
#include "preload_program.h"

/* ---- on all ranks ---- */

/* The error classes with which the MPIs refuse a bad in-place buffer and a NULL request. */
#ifdef OPEN_MPI
#define REFUSED_IN_PLACE MPI_ERR_ARG
#define REFUSED_REQUEST MPI_ERR_REQUEST
#else
#define REFUSED_IN_PLACE MPI_ERR_BUFFER
#define REFUSED_REQUEST MPI_ERR_ARG
#endif

struct refused {
    const char *what;
    int code, wanted;
};

static void refused_check(const struct place *place, const struct refused *calls, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int class = MPI_SUCCESS;

        MPI_Error_class(calls[i].code, &class);
        if (class != calls[i].wanted)
            program_wrong(place, "%s: class %d, not %d", calls[i].what, class, calls[i].wanted);
    }
}
#define REFUSED_CHECK(place, calls) refused_check(place, calls, sizeof(calls) / sizeof((calls)[0]))

/* Arguments that are refused at once, by MPI and by libdist. */
static void refused_arguments(const struct place *place)
{
    int in[2] = {0}, out[2] = {0}, counts[1] = {-1}, displs[1] = {0};
    const struct refused calls[] = {
        {"a count", MPI_Bcast(in, -1, MPI_INT, 0, MPI_COMM_SELF), MPI_ERR_COUNT},
        {"counts", MPI_Gatherv(in, 1, MPI_INT, out, counts, displs, MPI_INT, 0, MPI_COMM_SELF),
         MPI_ERR_COUNT},
        {"a root", MPI_Reduce(in, out, 1, MPI_INT, MPI_SUM, 1, MPI_COMM_SELF), MPI_ERR_ROOT},
        {"a type", MPI_Allgather(in, 1, MPI_DATATYPE_NULL, out, 1, MPI_INT, MPI_COMM_SELF),
         MPI_ERR_TYPE},
        {"an operation", MPI_Allreduce(in, out, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_SELF),
         MPI_ERR_OP},
    };

    REFUSED_CHECK(place, calls);
}

static void refused_in_place(const struct place *place)
{
    int in[2] = {0}, counts[1] = {1}, displs[1] = {0};
    void *const none = MPI_IN_PLACE;
    MPI_Comm comm = MPI_COMM_SELF;
    MPI_Request request;
    const struct refused calls[] = {
        {"Allreduce into nothing", MPI_Allreduce(in, none, 1, MPI_INT, MPI_SUM, comm),
         REFUSED_IN_PLACE},
        {"Allreduce of nothing", MPI_Allreduce(none, none, 1, MPI_INT, MPI_SUM, comm),
         REFUSED_IN_PLACE},
        {"Reduce into nothing", MPI_Reduce(in, none, 1, MPI_INT, MPI_SUM, 0, comm),
         REFUSED_IN_PLACE},
        {"Reduce_scatter_block", MPI_Reduce_scatter_block(in, none, 1, MPI_INT, MPI_SUM, comm),
         REFUSED_IN_PLACE},
        {"Iallreduce", MPI_Iallreduce(in, none, 1, MPI_INT, MPI_SUM, comm, &request),
         REFUSED_IN_PLACE},
        {"Bcast of nothing", MPI_Bcast(none, 1, MPI_INT, 0, comm), REFUSED_IN_PLACE},
        {"Allgather", MPI_Allgather(in, 1, MPI_INT, none, 1, MPI_INT, comm), REFUSED_IN_PLACE},
        {"Allgatherv", MPI_Allgatherv(in, 1, MPI_INT, none, counts, displs, MPI_INT, comm),
         REFUSED_IN_PLACE},
        {"Alltoall", MPI_Alltoall(in, 1, MPI_INT, none, 1, MPI_INT, comm), REFUSED_IN_PLACE},
        {"Gather", MPI_Gather(in, 1, MPI_INT, none, 1, MPI_INT, 0, comm), REFUSED_IN_PLACE},
        {"Scatter", MPI_Scatter(none, 1, MPI_INT, in, 1, MPI_INT, 0, comm), REFUSED_IN_PLACE},
    };

    REFUSED_CHECK(place, calls);
}

/* Arrays and requests that are NULL. */
static void refused_nowhere(const struct place *place)
{
    int in[2] = {0}, out[2] = {0}, counts[1] = {1}, displs[1] = {0};
    MPI_Comm comm = MPI_COMM_SELF;
    MPI_Request request;
    const struct refused calls[] = {
        {"Allgatherv's counts", MPI_Allgatherv(in, 1, MPI_INT, out, NULL, displs, MPI_INT, comm),
         MPI_ERR_ARG},
        {"Allgatherv's places", MPI_Allgatherv(in, 1, MPI_INT, out, counts, NULL, MPI_INT, comm),
         MPI_ERR_ARG},
        {"Alltoallv's counts",
         MPI_Alltoallv(in, NULL, displs, MPI_INT, out, counts, displs, MPI_INT, comm), MPI_ERR_ARG},
        {"Alltoallv's places",
         MPI_Alltoallv(in, counts, displs, MPI_INT, out, counts, NULL, MPI_INT, comm), MPI_ERR_ARG},
        {"Ialltoallv's places",
         MPI_Ialltoallv(in, counts, NULL, MPI_INT, out, counts, displs, MPI_INT, comm, &request),
         MPI_ERR_ARG},
        {"Scatterv's counts", MPI_Scatterv(in, NULL, displs, MPI_INT, out, 1, MPI_INT, 0, comm),
         MPI_ERR_ARG},
        {"Reduce_scatter's counts", MPI_Reduce_scatter(in, out, NULL, MPI_INT, MPI_SUM, comm),
         MPI_ERR_ARG},
        {"Ibcast's request", MPI_Ibcast(in, 1, MPI_INT, 0, comm, NULL), REFUSED_REQUEST},
        {"Ibarrier's request", MPI_Ibarrier(comm, NULL), REFUSED_REQUEST},
        {"Request_free", MPI_Request_free(NULL), REFUSED_REQUEST},
        {"Start", MPI_Start(NULL), REFUSED_REQUEST},
        {"Startall", MPI_Startall(2, NULL), REFUSED_REQUEST},
        {"Cancel", MPI_Cancel(NULL), REFUSED_REQUEST},
#ifndef OPEN_MPI /* Open MPI crashes */
        {"Comm_free", MPI_Comm_free(NULL), MPI_ERR_ARG},
        {"Comm_disconnect", MPI_Comm_disconnect(NULL), MPI_ERR_ARG},
        {"Waitsome", MPI_Waitsome(0, NULL, NULL, NULL, MPI_STATUSES_IGNORE), MPI_ERR_ARG},
#endif
    };

    REFUSED_CHECK(place, calls);
}

/* An uncommitted type, which the root would pack: all ranks get the error, and only the error
 * handler of this communicator is called. */
static void refused_uncommitted(const struct place *place)
{
    int in[4] = {0}, out[64 * 4] = {0};
    MPI_Comm comm = place->comm;
    MPI_Datatype gapped, row;
    MPI_Request request;

    MPI_Type_vector(2, 1, 2, MPI_INT, &gapped);
    MPI_Type_contiguous(2, MPI_INT, &row);
    {
        const struct refused calls[] = {
            {"Bcast of gaps", MPI_Bcast(in, 1, gapped, 0, comm), MPI_ERR_TYPE},
            {"Bcast of a row", MPI_Bcast(in, 1, row, 0, comm), MPI_ERR_TYPE},
            {"Ibcast of gaps", MPI_Ibcast(in, 1, gapped, 0, comm, &request), MPI_ERR_TYPE},
            {"Allgather of gaps", MPI_Allgather(in, 1, gapped, out, 2, MPI_INT, comm),
             MPI_ERR_TYPE},
        };

        REFUSED_CHECK(place, calls);
    }
    MPI_Type_free(&gapped);
    MPI_Type_free(&row);
}

/* Passes MPI_IN_PLACE on ranks other than the root, where it is invalid. */
static void refused_away_from_root(const struct place *place)
{
    int in[64] = {0}, root = (place->rank + 1) % place->ranks;
    MPI_Comm comm = place->comm;
    const struct refused calls[] = {
        {"Reduce from nowhere", MPI_Reduce(MPI_IN_PLACE, in, 1, MPI_INT, MPI_SUM, root, comm),
         REFUSED_IN_PLACE},
        {"Gather from nowhere", MPI_Gather(MPI_IN_PLACE, 1, MPI_INT, in, 1, MPI_INT, root, comm),
         REFUSED_IN_PLACE},
        {"Scatter to nowhere", MPI_Scatter(in, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, root, comm),
         REFUSED_IN_PLACE},
    };

    REFUSED_CHECK(place, calls);
}

/* ---- refused on one rank only, without the other ranks' knowledge ---- */

/* More calls than a communicator makes before it is served, and before libdist and MPI alternate.
 */
#define REFUSED_CALLS 100

/*
 * Makes five invalid calls, the last of which is passed on to MPI, which refuses it. Returns how
 * many were refused.
 */
static int refused_make(MPI_Comm comm)
{
    float numbers[2] = {0};
    int in[64] = {0}, out[64] = {0}, refused = 0;
    MPI_Request request;

    refused += MPI_Bcast(in, 1, MPI_INT, 99, comm) != MPI_SUCCESS;
    refused += MPI_Allgather(in, -1, MPI_INT, out, 1, MPI_INT, comm) != MPI_SUCCESS;
    refused += MPI_Allreduce(in, out, 1, MPI_INT, MPI_OP_NULL, comm) != MPI_SUCCESS;
    refused += MPI_Ibcast(in, 1, MPI_INT, 99, comm, &request) != MPI_SUCCESS;
    refused += MPI_Allreduce(&numbers[0], &numbers[1], 1, MPI_FLOAT, MPI_BAND, comm) != MPI_SUCCESS;
    return refused;
}

static void refused_use(const struct place *place)
{
    for (int i = 0; i < REFUSED_CALLS; i++) {
        int value = place->rank == 0 ? i : -1, mine = place->rank + i, all[64] = {0};
        double one = 1, sum = 0;

        MPI_Bcast(&value, 1, MPI_INT, 0, place->comm);
        MPI_Allgather(&mine, 1, MPI_INT, all, 1, MPI_INT, place->comm);
        MPI_Allreduce(&one, &sum, 1, MPI_DOUBLE, MPI_SUM, place->comm);
        if (value != i || all[place->ranks - 1] != place->ranks - 1 + i || sum != place->ranks) {
            program_wrong(place, "round %d: %d, %d, %g", i, value, all[place->ranks - 1], sum);
            return;
        }
    }
}

static void refused_alone(struct place place, MPI_Comm comm)
{
    place.comm = comm;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (place.rank == place.ranks - 1 && refused_make(comm) != 5)
        program_wrong(&place, "a call was not refused");
    refused_use(&place);
}

/* The last of these communicators is served from its 33rd call on. */
#define REFUSED_COMMS 24

void program_refused(void)
{
    struct place place = {.name = "refused", .comm = MPI_COMM_WORLD, .form = BLOCKING};
    MPI_Comm comms[REFUSED_COMMS];

    MPI_Comm_rank(place.comm, &place.rank);
    MPI_Comm_size(place.comm, &place.ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    refused_uncommitted(&place);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    refused_arguments(&place);
    refused_in_place(&place);
    refused_nowhere(&place);
    if (place.ranks > 1)
        refused_away_from_root(&place);
    for (int c = 0; c < REFUSED_COMMS; c++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[c]);
    refused_alone(place, MPI_COMM_WORLD);
    refused_alone(place, comms[REFUSED_COMMS - 1]);
    for (int c = 0; c < REFUSED_COMMS; c++)
        MPI_Comm_free(&comms[c]);
}
