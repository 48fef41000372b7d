/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A library that is loaded before libdist_mpi.so and counts, by their profiling names, its calls of
 * MPI functions that wait for all ranks. Each such call costs ranks that share CPUs some time
 * slices.
 */
#include <mpi.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int calls_all, calls_machine;

__attribute__((destructor)) static void calls_say(void)
{
    if (calls_all)
        fprintf(stderr, "calls of all ranks: %d, and by machine: %d\n", calls_all, calls_machine);
}

#define CALLS_COUNT(counter, name, parameters, arguments)                                          \
    int name parameters                                                                            \
    {                                                                                              \
        int(*next) parameters;                                                                     \
        void *symbol = dlsym(RTLD_NEXT, #name);                                                    \
                                                                                                   \
        memcpy(&next, &symbol, sizeof(next));                                                      \
        counter++;                                                                                 \
        return next arguments;                                                                     \
    }

#pragma GCC visibility push(default)
CALLS_COUNT(calls_all, PMPI_Allreduce,
            (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm),
            (in, out, count, type, op, comm))
CALLS_COUNT(calls_all, PMPI_Allgather,
            (const void *in, int count, MPI_Datatype type, void *out, int out_count,
             MPI_Datatype out_type, MPI_Comm comm),
            (in, count, type, out, out_count, out_type, comm))
CALLS_COUNT(calls_all, PMPI_Reduce,
            (const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, int root,
             MPI_Comm comm),
            (in, out, count, type, op, root, comm))
CALLS_COUNT(calls_all, PMPI_Bcast,
            (void *data, int count, MPI_Datatype type, int root, MPI_Comm comm),
            (data, count, type, root, comm))
CALLS_COUNT(calls_all, PMPI_Barrier, (MPI_Comm comm), (comm))
CALLS_COUNT(calls_machine, PMPI_Comm_split_type,
            (MPI_Comm comm, int kind, int key, MPI_Info info, MPI_Comm *new_comm),
            (comm, kind, key, info, new_comm))
#pragma GCC visibility pop
