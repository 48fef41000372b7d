/* SPDX-License-Identifier: BSD-3-Clause */
/* An MPI program: calls that MPI refuses, on all ranks or on one alone, which must not matter
 * later. */
#include "preload_program.h"

/* ---- on all ranks ---- */

/* Arguments that are refused at once, by whoever gets the call. */
static void refused_classes(const struct place *place)
{
    int in[2] = {0}, out[2] = {0}, counts[1] = {-1}, displs[1] = {0};
    const struct {
        const char *what;
        int code, wanted;
    } calls[] = {
        {"a count", MPI_Bcast(in, -1, MPI_INT, 0, MPI_COMM_SELF), MPI_ERR_COUNT},
        {"counts", MPI_Gatherv(in, 1, MPI_INT, out, counts, displs, MPI_INT, 0, MPI_COMM_SELF),
         MPI_ERR_COUNT},
        {"a root", MPI_Reduce(in, out, 1, MPI_INT, MPI_SUM, 1, MPI_COMM_SELF), MPI_ERR_ROOT},
        {"a type", MPI_Allgather(in, 1, MPI_DATATYPE_NULL, out, 1, MPI_INT, MPI_COMM_SELF),
         MPI_ERR_TYPE},
        {"an operation", MPI_Allreduce(in, out, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_SELF),
         MPI_ERR_OP},
    };

    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        int class = MPI_SUCCESS;

        MPI_Error_class(calls[i].code, &class);
        if (class != calls[i].wanted)
            program_wrong(place, "%s that is none: class %d, not %d", calls[i].what, class,
                          calls[i].wanted);
    }
}

/* ---- on one rank, of which the others know nothing ---- */

/* More than a communicator's calls until it is served, and than calls until both sides take turns.
 */
#define REFUSED_CALLS 100

/* Four calls, as no call of MPI can be. */
static int refused_make(MPI_Comm comm)
{
    int in[64] = {0}, out[64] = {0}, refused = 0;
    MPI_Request request;

    refused += MPI_Bcast(in, 1, MPI_INT, 99, comm) != MPI_SUCCESS;
    refused += MPI_Allgather(in, -1, MPI_INT, out, 1, MPI_INT, comm) != MPI_SUCCESS;
    refused += MPI_Allreduce(in, out, 1, MPI_INT, MPI_OP_NULL, comm) != MPI_SUCCESS;
    refused += MPI_Ibcast(in, 1, MPI_INT, 99, comm, &request) != MPI_SUCCESS;
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
    if (place.rank == place.ranks - 1 && refused_make(comm) != 4)
        program_wrong(&place, "a call was not refused");
    refused_use(&place);
}

/* The last of so many communicators is served from its 33rd call on. */
#define REFUSED_COMMS 24

void program_refused(void)
{
    struct place place = {.name = "refused", .comm = MPI_COMM_WORLD, .form = BLOCKING};
    MPI_Comm comms[REFUSED_COMMS];

    MPI_Comm_rank(place.comm, &place.rank);
    MPI_Comm_size(place.comm, &place.ranks);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    refused_classes(&place);
    for (int c = 0; c < REFUSED_COMMS; c++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[c]);
    refused_alone(place, MPI_COMM_WORLD);
    refused_alone(place, comms[REFUSED_COMMS - 1]);
    for (int c = 0; c < REFUSED_COMMS; c++)
        MPI_Comm_free(&comms[c]);
}
