/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Part of the MPI test program: rank 0 blocks in an MPI call of any kind. The other ranks reach
 * that call only after a collective that rank 0 has started as a nonblocking one, so rank 0's MPI
 * call must also make progress on the collective.
 */
#include "preload_program.h"

#include <dlfcn.h>
#include <stdlib.h>

#define BLOCKED_BIG (1 << 18)

static int *blocked_in, *blocked_out;
static MPI_Win blocked_win;

/* ---- calls in which rank 0 blocks; the other ranks make them too ---- */

static void blocked_scan(const struct place *place)
{
    int in = 1, out = 0;

    MPI_Scan(&in, &out, 1, MPI_INT, MPI_SUM, place->comm);
    MPI_Exscan(&in, &out, 1, MPI_INT, MPI_SUM, place->comm);
    MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, place->comm);
}

/* Replaces data around a ring. */
static void blocked_replace(const struct place *place)
{
    int to = (place->rank + 1) % place->ranks, token = place->rank;
    int from = (place->rank + place->ranks - 1) % place->ranks;

    MPI_Sendrecv_replace(&token, 1, MPI_INT, to, 1, from, 1, place->comm, MPI_STATUS_IGNORE);
    if (token != from)
        program_wrong(place, "MPI_Sendrecv_replace: %d, not %d", token, from);
}

static void blocked_probe(const struct place *place)
{
    int last = place->ranks - 1, token = 5;

    if (place->rank == 0) {
        MPI_Probe(last, 2, place->comm, MPI_STATUS_IGNORE);
        MPI_Recv(&token, 1, MPI_INT, last, 2, place->comm, MPI_STATUS_IGNORE);
        MPI_Ssend(&token, 1, MPI_INT, last, 3, place->comm);
    } else if (place->rank == last) {
        MPI_Send(&token, 1, MPI_INT, 0, 2, place->comm);
        MPI_Recv(&token, 1, MPI_INT, 0, 3, place->comm, MPI_STATUS_IGNORE);
    }
}

static void blocked_alltoallw(const struct place *place)
{
    int in[64] = {0}, out[64], counts[64], displs[64];
    MPI_Datatype types[64];

    for (int r = 0; r < place->ranks; r++) {
        counts[r] = 1;
        displs[r] = r * (int)sizeof(int);
        types[r] = MPI_INT;
    }
    MPI_Alltoallw(in, counts, displs, types, out, counts, displs, types, place->comm);
}

static void blocked_fence(const struct place *place)
{
    (void)place;
    MPI_Win_fence(0, blocked_win);
}

static void blocked_duplicate(const struct place *place)
{
    MPI_Comm comm;

    MPI_Comm_dup(place->comm, &comm);
    MPI_Comm_free(&comm);
}

static void blocked_wait(const struct place *place)
{
    MPI_Request request;

    MPI_Ibarrier(place->comm, &request);
    MPI_Waitall(1, &request, MPI_STATUSES_IGNORE);
}

/* Rank 0 starts the collective and enters `wait`; the other ranks enter it after the collective. */
static void blocked_in_call(struct place *place, void (*wait)(const struct place *))
{
    MPI_Request request;

    MPI_Iallreduce(blocked_in, blocked_out, BLOCKED_BIG, MPI_INT, MPI_SUM, place->comm, &request);
    if (place->rank == 0)
        wait(place);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (place->rank != 0)
        wait(place);
    if (blocked_out[BLOCKED_BIG - 1] != place->ranks)
        program_wrong(place, "a sum while rank 0 waited: %d", blocked_out[BLOCKED_BIG - 1]);
}

static void blocked_persistent(struct place *place)
{
#ifdef PROGRAM_INIT
    MPI_Request request;

    place->form = PERSISTENT;
    PROGRAM_INIT(Bcast)
    (blocked_out, 100, MPI_INT, place->ranks - 1, place->comm, MPI_INFO_NULL, &request);
    MPI_Start(&request);
    if (place->rank == 0)
        blocked_replace(place);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (place->rank != 0)
        blocked_replace(place);
    MPI_Request_free(&request);
#else
    (void)place;
#endif
}

/* ---- Fortran's waits complete requests that C started ---- */

/* Returns a function of the MPI's Fortran library, or NULL if it has none. */
static void *blocked_fortran(const char *name)
{
#ifdef OPEN_MPI
    void *library = dlopen("libmpi_mpifh.so.40", RTLD_NOW | RTLD_GLOBAL);
#else
    void *library = dlopen("libmpichfort.so.12", RTLD_NOW | RTLD_GLOBAL);
#endif
    return library ? dlsym(RTLD_DEFAULT, name) : NULL;
}

static void blocked_for_fortran(const struct place *place)
{
    void (*wait)(MPI_Fint *, MPI_Fint *, MPI_Fint *);
    void (*wait_all)(MPI_Fint *, MPI_Fint *, MPI_Fint *, MPI_Fint *);
    MPI_Fint requests[2], statuses[2 * 16], two = 2, code = MPI_SUCCESS;
    MPI_Request request;
    int out[3] = {0};

    *(void **)&wait = blocked_fortran("mpi_wait_");
    *(void **)&wait_all = blocked_fortran("mpi_waitall_");
    for (int i = 0; i < 3; i++) {
        MPI_Iallreduce(blocked_in, &out[i], 1, MPI_INT, MPI_SUM, place->comm, &request);
        requests[i % 2] = MPI_Request_c2f(request);
        if (!wait || !wait_all)
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        else if (i == 0)
            wait(&requests[0], statuses, &code);
    }
    if (wait && wait_all) {
        MPI_Fint other = requests[0];

        requests[0] = requests[1];
        requests[1] = other;
        wait_all(&two, requests, statuses, &code);
        if (MPI_Request_f2c(requests[0]) != MPI_REQUEST_NULL)
            program_wrong(place, "the request remains after mpi_waitall");
    }
    if (code != MPI_SUCCESS || out[0] + out[1] + out[2] != 3 * place->ranks)
        program_wrong(place, "Fortran's waits: code %d, %d, %d, %d", (int)code, out[0], out[1],
                      out[2]);
}

void program_blocked(void)
{
    static void (*const calls[])(const struct place *) = {
        blocked_scan,  blocked_replace,   blocked_probe, blocked_alltoallw,
        blocked_fence, blocked_duplicate, blocked_wait};
    struct place place = {.name = "blocked", .comm = MPI_COMM_WORLD, .form = NONBLOCKING};
    int shared = 0;

    MPI_Comm_rank(place.comm, &place.rank);
    MPI_Comm_size(place.comm, &place.ranks);
    blocked_in = malloc(BLOCKED_BIG * sizeof(int));
    blocked_out = malloc(BLOCKED_BIG * sizeof(int));
    for (int i = 0; i < BLOCKED_BIG; i++)
        blocked_in[i] = 1;
    MPI_Win_create(&shared, sizeof(shared), 1, MPI_INFO_NULL, place.comm, &blocked_win);
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
        blocked_in_call(&place, calls[i]);
    MPI_Win_free(&blocked_win);
    blocked_persistent(&place);
    blocked_for_fortran(&place);
    free(blocked_in);
    free(blocked_out);
}
