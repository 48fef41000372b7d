/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI program that does not use libdist: collectives of every kind, whose results it checks.
 * Rank 0 prints a hash of the results.
 *
 *    preload_program tame|bold|handed-on|errors|refused|giant|overlaps
 *    preload_program again|blocked|progress|threads|persistent
 *    preload_program comms|many NUMBER [bold]
 *    preload_program level NUMBER
 */
#include "preload_program.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t program_sum = 14695981039346656037u; /* FNV-1a */
static int program_faults;
bool program_bold;
static pthread_mutex_t program_lock = PTHREAD_MUTEX_INITIALIZER;

void program_wrong(const struct place *place, const char *format, ...)
{
    static const char *const forms[] = {"blocking", "nonblocking", "persistent"};
    va_list args;

    pthread_mutex_lock(&program_lock);
    program_faults++;
    printf("WRONG: rank %d of %d on %s, %s: ", place->rank, place->ranks, place->name,
           forms[place->form]);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf("\n");
    pthread_mutex_unlock(&program_lock);
}

void program_hash(const void *data, size_t bytes)
{
    const unsigned char *at = data;

    for (size_t i = 0; i < bytes; i++)
        program_sum = (program_sum ^ at[i]) * 1099511628211u;
}

/* ---- kinds of wait ---- */

/* The collective's request between two messages to this rank itself, and MPI_REQUEST_NULL. */
#define MIXED 4
struct mixed {
    MPI_Request requests[MIXED];
    int sent, received;
};

static void program_mix(const struct place *place, struct mixed *mixed, MPI_Request request)
{
    mixed->sent = place->rank + 77;
    mixed->received = -1;
    MPI_Irecv(&mixed->received, 1, MPI_INT, place->rank, 9, place->comm, &mixed->requests[0]);
    mixed->requests[1] = request;
    mixed->requests[2] = MPI_REQUEST_NULL;
    MPI_Isend(&mixed->sent, 1, MPI_INT, place->rank, 9, place->comm, &mixed->requests[3]);
}

static void program_wait_all(struct mixed *mixed, bool by_tests)
{
    MPI_Status statuses[MIXED];
    int done = 0;

    if (!by_tests)
        MPI_Waitall(MIXED, mixed->requests, statuses);
    while (by_tests && !done)
        MPI_Testall(MIXED, mixed->requests, &done, MPI_STATUSES_IGNORE);
}

static void program_wait_any(struct mixed *mixed, bool by_tests)
{
    int index = 0, done = 0;
    MPI_Status status;

    while (!by_tests && index != MPI_UNDEFINED)
        MPI_Waitany(MIXED, mixed->requests, &index, &status);
    while (by_tests && !(done && index == MPI_UNDEFINED))
        MPI_Testany(MIXED, mixed->requests, &index, &done, MPI_STATUS_IGNORE);
}

static void program_wait_some(struct mixed *mixed, bool by_tests)
{
    int indices[MIXED], count = 0;
    MPI_Status statuses[MIXED];

    while (!by_tests && count != MPI_UNDEFINED)
        MPI_Waitsome(MIXED, mixed->requests, &count, indices, statuses);
    while (by_tests && count != MPI_UNDEFINED)
        MPI_Testsome(MIXED, mixed->requests, &count, indices, MPI_STATUSES_IGNORE);
}

static void program_wait_mixed(const struct place *place, MPI_Request *request, int way)
{
    struct mixed mixed;

    program_mix(place, &mixed, *request);
    if (way < 2)
        program_wait_all(&mixed, way % 2);
    else if (way < 4)
        program_wait_any(&mixed, way % 2);
    else
        program_wait_some(&mixed, way % 2);
    *request = mixed.requests[1];
    if (mixed.received != mixed.sent)
        program_wrong(place, "a message to itself, waited for in way %d: %d", way, mixed.received);
}

void program_wait(const struct place *place, MPI_Request *request)
{
    static int (*volatile const by_pointer)(MPI_Request *, MPI_Status *) = MPI_Wait;
    static int ways;
    int way = ways++ % 12, done = 0;
    MPI_Status status;

    if (way < 6)
        program_wait_mixed(place, request, way);
    else if (way == 6)
        MPI_Wait(request, &status);
    else if (way == 7)
        by_pointer(request, &status);
    else if (way == 8)
        while (!done)
            MPI_Test(request, &done, &status);
    else if (way == 9)
        PMPI_Wait(request, &status);
    else if (way == 10)
        while (!done)
            PMPI_Testall(1, request, &done, &status);
    else {
        while (!done)
            MPI_Request_get_status(*request, &done, &status);
        MPI_Wait(request, MPI_STATUS_IGNORE);
    }
    if (place->form == NONBLOCKING && *request != MPI_REQUEST_NULL)
        program_wrong(place, "the request is not MPI_REQUEST_NULL after way %d", way);
}

void program_start(const struct place *place, MPI_Request *request)
{
    static int turns;

    if (turns % 3 == 0)
        MPI_Start(request);
    else if (turns % 3 == 1)
        MPI_Startall(1, request);
    else
        PMPI_Start(request);
    turns++;
    program_wait(place, request);
    if (*request == MPI_REQUEST_NULL)
        program_wrong(place, "a persistent request does not exist after its wait");
    MPI_Wait(request, MPI_STATUS_IGNORE); /* inactive, so it returns at once */
}

/* ---- communicators ---- */

static void program_on(const char *name, MPI_Comm comm)
{
    static const int pairs[] = {0, 1, 3, 700};
    struct place place = {.name = name, .comm = comm};

    if (comm == MPI_COMM_NULL)
        return;
    MPI_Comm_rank(comm, &place.rank);
    MPI_Comm_size(comm, &place.ranks);
    if (program_bold && place.ranks <= 64)
        program_large(&place);
    for (int form = BLOCKING; form < FORMS; form++) {
        place.form = (enum form)form;
        for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
            bool world = comm == MPI_COMM_WORLD;

            if (world || i == 2)
                program_movers(&place, pairs[i]);
            if (i > 0 && (world ? i > 1 : i == 2))
                program_reductions(&place, world && i == 3 ? 1500 : pairs[i]);
        }
    }
}

static void program_served(void)
{
    int ranks, rank, color, dimensions[1], periodic[1] = {1};
    MPI_Comm dup, half, cart, some;
    MPI_Group all, members;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    program_on("MPI_COMM_WORLD", MPI_COMM_WORLD);
    program_on("MPI_COMM_SELF", MPI_COMM_SELF);
    MPI_Comm_dup(MPI_COMM_WORLD, &dup);
    program_on("a duplicate", dup);
    color = rank % 2 ? MPI_UNDEFINED : 1;
    MPI_Comm_split(dup, ranks > 2 ? rank % 2 : color, -rank, &half);
    program_on("a part", half);
    dimensions[0] = ranks;
    MPI_Cart_create(dup, 1, dimensions, periodic, 1, &cart);
    program_on("a ring", cart);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    dimensions[0] = 0;
    MPI_Group_excl(all, ranks > 1, dimensions, &members);
    MPI_Comm_create(MPI_COMM_WORLD, members, &some);
    program_on("all but one", some);
    if (half != MPI_COMM_NULL)
        MPI_Comm_free(&half);
    if (some != MPI_COMM_NULL)
        MPI_Comm_free(&some);
    MPI_Comm_free(&dup);
    MPI_Comm_free(&cart);
    MPI_Group_free(&members);
    MPI_Group_free(&all);
}

/* ---- the thread level of MPI_Init ---- */

static void program_level(int wanted)
{
    struct place place = {.name = "level", .comm = MPI_COMM_WORLD, .form = BLOCKING};
    int level = -1;

    MPI_Comm_rank(place.comm, &place.rank);
    MPI_Comm_size(place.comm, &place.ranks);
    MPI_Query_thread(&level);
    if (level != wanted)
        program_wrong(&place, "the level is %d, not %d", level, wanted);
}

/* ---- result ---- */

static int program_result(void)
{
    int rank, ranks, faults = 0;
    uint64_t theirs;

    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank > 0) {
        MPI_Send(&program_sum, 1, MPI_UINT64_T, 0, 1, MPI_COMM_WORLD);
        MPI_Send(&program_faults, 1, MPI_INT, 0, 2, MPI_COMM_WORLD);
        return program_faults;
    }
    for (int r = 1; r < ranks; r++) {
        MPI_Recv(&theirs, 1, MPI_UINT64_T, r, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(&faults, 1, MPI_INT, r, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        program_hash(&theirs, sizeof(theirs));
        program_faults += faults;
    }
    printf("hash %016llx, %d faults\n", (unsigned long long)program_sum, program_faults);
    return program_faults;
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "tame";
    int number = argc > 2 ? atoi(argv[2]) : 0;
    bool threads = strcmp(part, "threads") == 0;
    int level = MPI_THREAD_SINGLE, faults;

    if (threads)
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    else
        MPI_Init(&argc, &argv);
    program_bold = strcmp(part, "bold") == 0 || (number && argc > 3);
    if (strcmp(part, "bold") == 0 || strcmp(part, "tame") == 0)
        program_served();
    else if (strcmp(part, "handed-on") == 0)
        program_handed_on();
    else if (strcmp(part, "errors") == 0)
        program_errors();
    else if (strcmp(part, "refused") == 0)
        program_refused();
    else if (strcmp(part, "giant") == 0)
        program_giant();
    else if (strcmp(part, "overlaps") == 0)
        program_overlaps();
    else if (strcmp(part, "again") == 0)
        program_again();
    else if (strcmp(part, "blocked") == 0)
        program_blocked();
    else if (strcmp(part, "progress") == 0)
        program_progress();
    else if (strcmp(part, "comms") == 0)
        program_comms(number);
    else if (strcmp(part, "compare") == 0)
        program_compare();
    else if (strcmp(part, "cost") == 0)
        program_cost(number, argc > 3 ? argv[3] : "Allreduce");
    else if (strcmp(part, "polls") == 0)
        program_polls(number);
    else if (strcmp(part, "memory") == 0)
        program_memory(number);
    else if (strcmp(part, "level") == 0)
        program_level(number);
    else if (strcmp(part, "many") == 0)
        program_many(number);
    else if (strcmp(part, "persistent") == 0)
        program_persistent();
    else if (threads && level == MPI_THREAD_MULTIPLE)
        program_threads();
    faults = program_result();
    MPI_Finalize();
    return faults ? 1 : 0;
}
