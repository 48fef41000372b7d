/* SPDX-License-Identifier: BSD-3-Clause */
/* Part of the MPI test program: calls that libdist does not serve, simultaneous progress, threads.
 */
#include "preload_program.h"

#include <pthread.h>
#include <stdlib.h>

static struct place others_world(const char *name)
{
    struct place place = {.name = name, .comm = MPI_COMM_WORLD, .form = BLOCKING};

    MPI_Comm_rank(place.comm, &place.rank);
    MPI_Comm_size(place.comm, &place.ranks);
    return place;
}

/* ---- right, whether libdist or MPI executes them ---- */

static void others_add(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++)
        ((int *)inout)[i] += ((int *)in)[i];
}

static void others_user_op(const struct place *place)
{
    int in[4] = {place->rank, 1, 2, 3}, out[4] = {0};
    MPI_Op op;

    MPI_Op_create(others_add, 1, &op);
    MPI_Allreduce(in, out, 4, MPI_INT, op, place->comm);
    if (out[0] != place->ranks * (place->ranks - 1) / 2 || out[3] != 3 * place->ranks)
        program_wrong(place, "an operation of our own: %d, %d", out[0], out[3]);
    MPI_Op_free(&op);
}

static void others_add_pairs(void *in, void *inout, int *count, MPI_Datatype *type)
{
    int integers = 2 * *count;

    others_add(in, inout, &integers, type);
}

static void others_derived(const struct place *place)
{
    int in[2] = {place->rank, 1}, out[2] = {0};
    MPI_Datatype pair;
    MPI_Op op;

    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    MPI_Op_create(others_add_pairs, 1, &op);
    MPI_Reduce(in, out, 1, pair, op, 0, place->comm);
    if (place->rank == 0 && out[1] != place->ranks)
        program_wrong(place, "a reduction of a derived type: %d", out[1]);
    MPI_Op_free(&op);
    MPI_Type_free(&pair);
}

static void others_long_double(const struct place *place)
{
    long double in = place->rank, out = -1;

    MPI_Allreduce(&in, &out, 1, MPI_LONG_DOUBLE, MPI_MAX, place->comm);
    if (out != place->ranks - 1)
        program_wrong(place, "the greatest long double: %g", (double)out);
}

static void others_duplicate(const struct place *place)
{
    MPI_Request request;
    MPI_Comm comm;
    int value = place->rank;

    MPI_Comm_idup(place->comm, &comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Bcast(&value, 1, MPI_INT, place->ranks - 1, comm);
    if (value != place->ranks - 1)
        program_wrong(place, "a broadcast on a communicator of MPI_Comm_idup: %d", value);
    MPI_Comm_free(&comm);
}

/* An intercommunicator between the even and the odd ranks. */
static void others_inter(const struct place *place)
{
    int odd = place->rank % 2, mine = place->rank, sum = -1, wanted = 0;
    MPI_Comm half, inter, whole;

    if (place->ranks < 2)
        return;
    MPI_Comm_split(place->comm, odd, 0, &half);
    MPI_Intercomm_create(half, 0, place->comm, !odd, 5, &inter);
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, inter);
    for (int r = !odd; r < place->ranks; r += 2)
        wanted += r;
    if (sum != wanted)
        program_wrong(place, "the sum of the other half: %d, not %d", sum, wanted);
    MPI_Intercomm_merge(inter, odd, &whole);
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, whole); /* an intracommunicator: served */
    if (sum != place->ranks * (place->ranks - 1) / 2)
        program_wrong(place, "the sum of both halves: %d", sum);
    MPI_Comm_free(&whole);
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

void program_handed_on(void)
{
    struct place place = others_world("handed on");

    others_user_op(&place);
    others_derived(&place);
    others_long_double(&place);
    others_duplicate(&place);
    others_inter(&place);
}

/* ---- MPI-4's large counts ---- */

void program_large(const struct place *place)
{
#if MPI_VERSION >= 4
    MPI_Count counts[64], mine = place->rank + 1;
    MPI_Aint displs[64], all = 0;
    int in[64], out[64 * 64] = {0}, root = place->ranks - 1;
    MPI_Request request;

    for (int i = 0; i < 64; i++)
        in[i] = 100 * place->rank + i;
    for (int r = 0; r < place->ranks; r++) {
        counts[r] = r + 1;
        displs[r] = all;
        all += r + 1;
    }
    MPI_Allgatherv_c(in, mine, MPI_INT, out, counts, displs, MPI_INT, place->comm);
    if (out[all - 1] != 100 * root + root)
        program_wrong(place, "MPI_Allgatherv_c: %d", out[all - 1]);
    /* MPI permits that one rank uses the large form of a call and another rank the small one. */
    if (place->rank == 0)
        MPI_Ibcast_c(in, 3, MPI_INT, 0, place->comm, &request);
    else
        MPI_Ibcast(in, 3, MPI_INT, 0, place->comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (in[2] != 2)
        program_wrong(place, "MPI_Ibcast_c: %d", in[2]);
#else
    (void)place;
#endif
}

/* ---- errors: the ranks' calls differ, which MPI itself may not detect ---- */

static void others_expect(const struct place *place, const char *what, int code)
{
    if (code == MPI_SUCCESS)
        program_wrong(place, "%s has succeeded though the ranks disagree", what);
}

/* A collective in which rank 0 passes another count than the other ranks, on a communicator of its
 * own. */
static int others_disagree(const struct place *place, MPI_Comm comm)
{
    int in[2] = {0}, out[64] = {0}, count = 1 + (place->rank == 0), code;
    MPI_Request request;

    if (place->form == BLOCKING)
        return MPI_Allreduce(in, out, count, MPI_INT, MPI_SUM, comm);
    if (place->form == NONBLOCKING) {
        code = MPI_Iallreduce(in, out, count, MPI_INT, MPI_SUM, comm, &request);
        return code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
    }
    code = MPI_ERR_OTHER;
#ifdef PROGRAM_INIT
    PROGRAM_INIT(Allgather)(in, count, MPI_INT, out, count, MPI_INT, comm, MPI_INFO_NULL, &request);
    code = MPI_Start(&request);
    code = code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
    MPI_Request_free(&request);
#endif
    return code;
}

void program_errors(void)
{
    struct place place = others_world("errors");
    MPI_Comm comm;

    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (int form = 0; form < FORMS && place.ranks > 1; form++) {
        place.form = (enum form)form;
        MPI_Comm_dup(place.comm, &comm);
        MPI_Barrier(comm); /* nonblocking calls are served after this */
        others_expect(&place, "a collective", others_disagree(&place, comm));
        if (form != PERSISTENT) /* which has a group of its own */
            others_expect(&place, "the next one", MPI_Barrier(comm));
        MPI_Comm_free(&comm);
        if (MPI_Barrier(place.comm) != MPI_SUCCESS)
            program_wrong(&place, "another communicator has failed too");
    }
}

/* ---- libdist and MPI must make progress while the program waits for the other one ---- */

#define OTHERS_BIG (1 << 20)

/* Rank 0 waits for a message that is sent only after the collective, so all ranks must take part in
 * it. */
static void others_message_after(const struct place *place, int *big, int *sum)
{
    MPI_Request request;
    int last = place->ranks - 1, token = 0;

    MPI_Iallreduce(big, sum, OTHERS_BIG, MPI_INT, MPI_SUM, place->comm, &request);
    if (place->rank == 0 && last > 0)
        MPI_Recv(&token, 1, MPI_INT, last, 3, place->comm, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (place->rank == last && last > 0)
        MPI_Send(&last, 1, MPI_INT, 0, 3, place->comm);
    if (sum[OTHERS_BIG - 1] != place->ranks || (place->rank == 0 && token != last))
        program_wrong(place, "collective then message: %d, %d", sum[OTHERS_BIG - 1], token);
}

/* Rank 0 is in the collective while its long message is still to be sent; the receiver enters the
 * collective only after the message. */
static void others_message_before(const struct place *place, int *big, int *sum)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int last = place->ranks - 1, one = 1, all = 0;

    if (place->rank == 0 && last > 0)
        MPI_Isend(big, OTHERS_BIG, MPI_INT, last, 4, place->comm, &request);
    if (place->rank == last && last > 0)
        MPI_Recv(sum, OTHERS_BIG, MPI_INT, 0, 4, place->comm, MPI_STATUS_IGNORE);
    MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, place->comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (all != place->ranks)
        program_wrong(place, "message then collective: %d", all);
}

/* The ranks wait for the operations of two communicators in different orders. */
static void others_crossed(const struct place *place)
{
    MPI_Comm comms[2];
    MPI_Request requests[2];
    int in[2] = {1, 10}, out[2] = {0}, first = place->rank % 2;

    for (int c = 0; c < 2; c++)
        MPI_Comm_dup(place->comm, &comms[c]);
    for (int c = 0; c < 2; c++)
        MPI_Iallreduce(&in[c], &out[c], 1, MPI_INT, MPI_SUM, comms[c], &requests[c]);
    MPI_Wait(&requests[first], MPI_STATUS_IGNORE);
    MPI_Wait(&requests[!first], MPI_STATUS_IGNORE);
    if (out[0] != place->ranks || out[1] != 10 * place->ranks)
        program_wrong(place, "crossed operations: %d, %d", out[0], out[1]);
    for (int c = 0; c < 2; c++)
        MPI_Comm_free(&comms[c]);
}

void program_progress(void)
{
    struct place place = others_world("progress");
    int *big = malloc(OTHERS_BIG * sizeof(int)), *sum = malloc(OTHERS_BIG * sizeof(int));

    for (int i = 0; i < OTHERS_BIG; i++)
        big[i] = 1;
    others_message_after(&place, big, sum);
    others_message_before(&place, big, sum);
    others_crossed(&place);
    free(big);
    free(sum);
}

/* ---- threads, each with a communicator of its own ---- */

#define OTHERS_THREADS 3
#define OTHERS_ROUNDS 20

struct worker {
    pthread_t thread;
    int number;
    MPI_Comm comm;
};

/* The packed copy is freed when the call has completed, in any thread. */
static void others_gapped(const struct place *place, MPI_Comm comm)
{
    int values[64];
    MPI_Request request;
    MPI_Datatype gapped;

    for (int i = 0; i < 64; i++)
        values[i] = place->rank == 0 ? i : -1;
    MPI_Type_vector(8, 1, 2, MPI_INT, &gapped);
    MPI_Type_commit(&gapped);
    MPI_Ibcast(values, 3, gapped, 0, comm, &request);
    MPI_Type_free(&gapped);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (values[4] != 4 || (place->rank > 0 && values[5] != -1))
        program_wrong(place, "a type with gaps: %d, %d", values[4], values[5]);
}

/* Threads make communicators of the same ranks at the same time, in any order. */
static void *others_work(void *arg)
{
    const struct worker *worker = arg;
    struct place place = others_world("threads");

    for (int round = 0; round < OTHERS_ROUNDS; round++) {
        int in = worker->number + round, out = 0;
        MPI_Request request;
        MPI_Comm own;

        MPI_Comm_dup(worker->comm, &own);
        MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, own, &request);
        MPI_Barrier(worker->comm);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (out != place.ranks * in)
            program_wrong(&place, "thread %d, round %d: %d", worker->number, round, out);
        others_gapped(&place, worker->comm);
        MPI_Comm_free(&own);
    }
    return NULL;
}

void program_threads(void)
{
    struct worker workers[OTHERS_THREADS];

    for (int w = 0; w < OTHERS_THREADS; w++) {
        workers[w].number = 100 * w;
        MPI_Comm_dup(MPI_COMM_WORLD, &workers[w].comm);
    }
    for (int w = 0; w < OTHERS_THREADS; w++)
        pthread_create(&workers[w].thread, NULL, others_work, &workers[w]);
    for (int w = 0; w < OTHERS_THREADS; w++) {
        pthread_join(workers[w].thread, NULL);
        MPI_Comm_free(&workers[w].comm);
    }
}
