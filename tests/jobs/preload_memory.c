/* SPDX-License-Identifier: BSD-3-Clause */
/* Part of the MPI test program: memory of MPI_Alloc_mem in every kind of call. */
#include "preload_program.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define MEMORY_INTS 100000

/* True if libdist allocated it, that is, it is mapped from an unlinked memory file. */
static bool memory_is_shared(const void *memory)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    bool shared = false;

    while (maps && fgets(line, sizeof(line), maps)) {
        uintptr_t begin, end;

        if (sscanf(line, "%lx-%lx", &begin, &end) == 2 && begin <= (uintptr_t)memory &&
            (uintptr_t)memory < end)
            shared = strstr(line, "memfd:") != NULL;
    }
    if (maps)
        fclose(maps);
    return shared;
}

static int *memory_allocate(const struct place *place, MPI_Info info)
{
    int *memory = NULL;

    if (MPI_Alloc_mem(MEMORY_INTS * sizeof(int), info, &memory) != MPI_SUCCESS || !memory)
        program_wrong(place, "MPI_Alloc_mem has failed");
    return memory;
}

static void memory_in_collectives(const struct place *place, int *in, int *out)
{
    for (int i = 0; i < MEMORY_INTS; i++)
        in[i] = i + place->rank;
    MPI_Allreduce(in, out, MEMORY_INTS, MPI_INT, MPI_MAX, place->comm);
    program_hash(out, MEMORY_INTS * sizeof(int));
    MPI_Bcast(out, MEMORY_INTS / 2, MPI_INT, place->ranks - 1, place->comm);
    if (out[7] != 7 + place->ranks - 1)
        program_wrong(place, "memory of MPI in collectives: %d", out[7]);
}

static void memory_in_messages(const struct place *place, int *in, int *out)
{
    int to = (place->rank + 1) % place->ranks;
    int from = (place->rank + place->ranks - 1) % place->ranks;

    MPI_Sendrecv(in, MEMORY_INTS, MPI_INT, to, 3, out, MEMORY_INTS, MPI_INT, from, 3, place->comm,
                 MPI_STATUS_IGNORE);
    if (out[9] != 9 + from)
        program_wrong(place, "memory of MPI in messages: %d", out[9]);
}

static void memory_in_windows(const struct place *place, int *in, int *out)
{
    int to = (place->rank + 1) % place->ranks;
    int from = (place->rank + place->ranks - 1) % place->ranks;
    MPI_Win win;

    MPI_Win_create(out, MEMORY_INTS * sizeof(int), sizeof(int), MPI_INFO_NULL, place->comm, &win);
    MPI_Win_fence(0, win);
    MPI_Put(in, 100, MPI_INT, to, 50, 100, MPI_INT, win);
    MPI_Win_fence(0, win);
    if (out[50] != from)
        program_wrong(place, "memory of MPI in windows: %d", out[50]);
    MPI_Win_free(&win);
}

static int memory_free(MPI_Comm comm, int key, void *memory, void *extra)
{
    (void)comm, (void)key, (void)extra;
    return MPI_Free_mem(memory);
}

/* Memory that the program has attached to MPI_COMM_SELF is freed by MPI_Finalize. */
static void memory_until_finalize(const struct place *place)
{
    int *memory = memory_allocate(place, MPI_INFO_NULL), key;

    memory[0] = place->rank;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, memory_free, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, memory);
}

void program_memory(bool served)
{
    struct place place = {.name = "memory", .comm = MPI_COMM_WORLD};
    int *in, *out, *hinted;
    MPI_Info info;

    MPI_Comm_rank(place.comm, &place.rank);
    MPI_Comm_size(place.comm, &place.ranks);
    MPI_Info_create(&info);
    MPI_Info_set(info, "hint", "of no meaning");
    for (int round = 0; round < 5; round++) {
        in = memory_allocate(&place, MPI_INFO_NULL);
        out = memory_allocate(&place, MPI_INFO_NULL);
        hinted = memory_allocate(&place, info);
        if (memory_is_shared(in) != served || memory_is_shared(hinted))
            program_wrong(&place, "memory without a hint is %s shared, with one %s",
                          memory_is_shared(in) ? "" : "not",
                          memory_is_shared(hinted) ? "too" : "not");
        memory_in_collectives(&place, in, out);
        memory_in_messages(&place, in, out);
        memory_in_windows(&place, in, out);
        memory_in_collectives(&place, hinted, out);
        MPI_Free_mem(out);
        MPI_Free_mem(hinted);
        MPI_Free_mem(in);
    }
    MPI_Alloc_mem(0, MPI_INFO_NULL, &in);
    MPI_Free_mem(in);
    MPI_Info_free(&info);
    memory_until_finalize(&place);
}
