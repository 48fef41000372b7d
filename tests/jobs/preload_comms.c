/* SPDX-License-Identifier: BSD-3-Clause */
/* Part of the MPI test program: many communicators, one after another and at the same time. */
#include "preload_program.h"

#include <stdlib.h>
#include <sys/resource.h>

/* ---- one after another ---- */

/* Makes a communicator from that of `place`. */
typedef void comms_maker(const struct place *place, int round, MPI_Comm *comm_p);

static void comms_dup(const struct place *place, int round, MPI_Comm *comm_p)
{
    (void)round;
    MPI_Comm_dup(place->comm, comm_p);
}

static void comms_idup(const struct place *place, int round, MPI_Comm *comm_p)
{
    MPI_Request request;

    (void)round;
    MPI_Comm_idup(place->comm, comm_p, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void comms_split(const struct place *place, int round, MPI_Comm *comm_p)
{
    MPI_Comm_split(place->comm, place->rank % (1 + round % 3), round % 2 ? -place->rank : 0,
                   comm_p);
}

static void comms_create(const struct place *place, int round, MPI_Comm *comm_p)
{
    MPI_Group group;

    MPI_Comm_group(place->comm, &group);
    if (round % 2)
        MPI_Comm_create(place->comm, group, comm_p);
    else
        MPI_Comm_create_group(place->comm, group, round, comm_p);
    MPI_Group_free(&group);
}

/* A graph in which each rank is connected to the next. */
static void comms_graph(const struct place *place, int round, MPI_Comm *comm_p)
{
    int from = (place->rank + place->ranks - 1) % place->ranks, weight = 1;
    int to = (place->rank + 1) % place->ranks;

    MPI_Dist_graph_create_adjacent(place->comm, 1, &from, &weight, 1, &to, &weight, MPI_INFO_NULL,
                                   round % 2, comm_p);
}

static void comms_use(const struct place *place, MPI_Comm comm, int round)
{
    int ranks, sum = 0;

    MPI_Comm_size(comm, &ranks);
    MPI_Allreduce(&round, &sum, 1, MPI_INT, MPI_SUM, comm);
    if (sum != ranks * round)
        program_wrong(place, "the sum in round %d of %d ranks: %d", round, ranks, sum);
}

/* Makes communicators that are never used, used for a barrier, for a few calls, for many calls. */
static void comms_one_after_another(const struct place *place, comms_maker *make, int rounds)
{
    static const int calls[] = {0, 1, 3, 40};

    for (int way = 0; way < 4; way++) {
        for (int round = 0; round < (way == 3 ? rounds / 10 : rounds); round++) {
            MPI_Comm comm;

            make(place, round, &comm);
            if (way == 1)
                MPI_Barrier(comm);
            for (int call = 0; way > 1 && call < calls[way]; call++)
                comms_use(place, comm, round + call);
            MPI_Comm_free(&comm);
        }
    }
}

/* ---- freed by one rank early ---- */

/* Rank 0 frees and then sends to the last rank, which receives and then frees. */
static void comms_free_then_send(const struct place *place)
{
    int last = place->ranks - 1, token = 5;
    MPI_Comm comm;

    MPI_Comm_dup(place->comm, &comm);
    comms_use(place, comm, 1);
    if (place->rank == last && last > 0)
        MPI_Recv(&token, 1, MPI_INT, 0, 6, place->comm, MPI_STATUS_IGNORE);
    MPI_Comm_free(&comm);
    if (place->rank == 0 && last > 0)
        MPI_Send(&token, 1, MPI_INT, last, 6, place->comm);
}

static void comms_free_crossed(const struct place *place)
{
    int first = place->rank % 2;
    MPI_Comm comms[2];

    for (int c = 0; c < 2; c++)
        MPI_Comm_dup(place->comm, &comms[c]);
    for (int c = 0; c < 2; c++)
        comms_use(place, comms[c], c + 1);
    MPI_Comm_free(&comms[first]);
    MPI_Comm_free(&comms[!first]);
}

/*
 * An operation must complete although its communicator is freed and other communicators are made
 * meanwhile. Open MPI 4.1 crashes in this case.
 */
static void comms_free_under_way(const struct place *place)
{
    int in = place->rank, out = -1;
    MPI_Request request;
    MPI_Comm comm;

    MPI_Comm_dup(place->comm, &comm);
    comms_use(place, comm, 1);
    MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm, &request);
    MPI_Comm_free(&comm);
    comms_free_crossed(place);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (out != place->ranks * (place->ranks - 1) / 2)
        program_wrong(place, "a sum on a communicator that was freed before it completed: %d", out);
}

/* ---- started in a different order on each rank, and late ---- */

static void comms_begin_crossed(const struct place *place)
{
    int in[2] = {1, 10}, out[2] = {0}, first = place->rank % 2;
    MPI_Request requests[2];
    MPI_Comm comms[2];

    for (int c = 0; c < 2; c++)
        MPI_Comm_dup(place->comm, &comms[c]);
    for (int c = first, i = 0; i < 2; i++, c = !c)
        MPI_Iallreduce(&in[c], &out[c], 1, MPI_INT, MPI_SUM, comms[c], &requests[c]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    if (out[0] != place->ranks || out[1] != 10 * place->ranks)
        program_wrong(place, "started in a different order: %d, %d", out[0], out[1]);
    for (int c = 0; c < 2; c++)
        MPI_Comm_free(&comms[c]);
}

/* Rank 0 starts the operation before it sends a message that lets the other ranks start it. */
static void comms_begin_late(const struct place *place)
{
    MPI_Request request;
    MPI_Comm comm;
    int token = 0;

    MPI_Comm_dup(place->comm, &comm);
    if (place->rank > 0)
        MPI_Recv(&token, 1, MPI_INT, 0, 7, place->comm, MPI_STATUS_IGNORE);
    MPI_Ibarrier(comm, &request);
    for (int r = 1; place->rank == 0 && r < place->ranks; r++)
        MPI_Send(&token, 1, MPI_INT, r, 7, place->comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_free(&comm);
}

void program_comms(int rounds)
{
    static comms_maker *const makers[] = {comms_dup, comms_idup, comms_split, comms_create,
                                          comms_graph};
    struct place place = {.name = "communicators", .comm = MPI_COMM_WORLD};

    MPI_Comm_rank(place.comm, &place.rank);
    MPI_Comm_size(place.comm, &place.ranks);
    for (int i = 0; i < 3; i++) {
        comms_free_then_send(&place);
        comms_free_crossed(&place);
        if (program_bold && i == 0)
            comms_free_under_way(&place);
        comms_begin_crossed(&place);
        comms_begin_late(&place);
    }
    for (size_t m = 0; m < sizeof(makers) / sizeof(makers[0]); m++)
        comms_one_after_another(&place, makers[m], rounds);
}

/* ---- at the same time ---- */

/* Communicators get a group at their 33rd call; this uses some with and some without one. */
#define COMMS_CALLS 40

/* Checks that the soft limit of descriptors has been raised to the hard limit. */
static void many_limit(const struct place *place)
{
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur != limit.rlim_max && limit.rlim_cur < 65536)
        program_wrong(place, "the limit of open files is %lld of %lld", (long long)limit.rlim_cur,
                      (long long)limit.rlim_max);
}

void program_many(int many)
{
    struct place place = {.name = "many communicators", .comm = MPI_COMM_WORLD};
    MPI_Comm *comms = calloc((size_t)many, sizeof(MPI_Comm));

    MPI_Comm_rank(place.comm, &place.rank);
    MPI_Comm_size(place.comm, &place.ranks);
    if (program_bold)
        many_limit(&place);
    for (int c = 0; c < many; c++)
        MPI_Comm_dup(place.comm, &comms[c]);
    for (int call = 0; call < COMMS_CALLS; call++) {
        for (int c = 0; c < many; c++)
            comms_use(&place, comms[c], c + call);
    }
    for (int c = 0; c < many; c++)
        MPI_Comm_free(&comms[(c + 7 * place.rank) % many]);
    free(comms);
}

/* ---- persistent: made in one order, started in another ---- */

#ifdef PROGRAM_INIT
#define COMMS_OPERATIONS 6

struct operation {
    MPI_Comm comm;
    MPI_Request request;
    int in, out;
};

static void comms_operations_start(const struct place *place, struct operation *operations,
                                   int round)
{
    for (int i = 0; i < COMMS_OPERATIONS; i++) {
        struct operation *operation =
            &operations[(place->rank % 2 ? COMMS_OPERATIONS - 1 - i : i + round) %
                        COMMS_OPERATIONS];

        operation->in = 100 * round + (int)(operation - operations);
        operation->out = -1;
        MPI_Start(&operation->request);
    }
}

static void comms_operations_end(const struct place *place, struct operation *operations, int round)
{
    for (int i = 0; i < COMMS_OPERATIONS; i++) {
        struct operation *operation = &operations[(i + place->rank) % COMMS_OPERATIONS];
        int wanted = place->ranks * (100 * round + (int)(operation - operations));

        MPI_Wait(&operation->request, MPI_STATUS_IGNORE);
        if (operation->out != wanted)
            program_wrong(place, "persistent operation %d in round %d: %d, not %d",
                          (int)(operation - operations), round, operation->out, wanted);
    }
}

/*
 * Starts two operations on each of three communicators in each round, and makes a blocking call
 * between two rounds.
 */
void program_persistent(void)
{
    struct place place = {.name = "persistent", .comm = MPI_COMM_WORLD, .form = PERSISTENT};
    struct operation operations[COMMS_OPERATIONS];
    MPI_Comm comms[3];

    MPI_Comm_rank(place.comm, &place.rank);
    MPI_Comm_size(place.comm, &place.ranks);
    for (int c = 0; c < 3; c++)
        MPI_Comm_dup(place.comm, &comms[c]);
    for (int i = 0; i < COMMS_OPERATIONS; i++) {
        struct operation *operation = &operations[i];

        operation->comm = comms[i % 3];
        PROGRAM_INIT(Allreduce)
        (&operation->in, &operation->out, 1, MPI_INT, MPI_SUM, operation->comm, MPI_INFO_NULL,
         &operation->request);
    }
    for (int round = 0; round < 20; round++) {
        comms_operations_start(&place, operations, round);
        if (round % 3 == 0)
            comms_use(&place, comms[round % 2], round);
        comms_operations_end(&place, operations, round);
    }
    for (int i = 0; i < COMMS_OPERATIONS; i++)
        MPI_Request_free(&operations[i].request);
    for (int c = 0; c < 3; c++)
        MPI_Comm_free(&comms[c]);
}
#else
void program_persistent(void)
{
}
#endif
