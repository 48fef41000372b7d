/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI with one rank that libdist does not recognize. Exits the process if a handle is not its
 * own. With -DABI_VERSION it reports the standard ABI.
 */
#include "preload_foreign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct foreign_comm {
    struct foreign_comm *self;
};

struct foreign_request {
    struct foreign_request *self;
};

/* Returns handles that do not fit into 32 bits, if pointers are wider. */
static void *foreign_new(size_t bytes)
{
    void *memory = malloc(bytes);

    if (!memory)
        abort();
    return memory;
}

static void foreign_check(int good, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "foreign MPI: not one of its handles: %s\n", what);
    _Exit(3);
}

static void foreign_check_comm(MPI_Comm comm, const char *call)
{
    foreign_check(comm == MPI_COMM_WORLD || ((size_t)comm > 0xffff && comm->self == comm), call);
}

static int foreign_move(const void *in, void *out, int count, MPI_Datatype type, MPI_Comm comm)
{
    foreign_check_comm(comm, "a collective");
    foreign_check(type == MPI_INT, "a type");
    memmove(out, in, (size_t)count * sizeof(int));
    return MPI_SUCCESS;
}

int PMPI_Init(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return MPI_SUCCESS;
}

int PMPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    (void)argc;
    (void)argv;
    *provided = required;
    return MPI_SUCCESS;
}

int PMPI_Finalize(void)
{
    return MPI_SUCCESS;
}

int PMPI_Comm_rank(MPI_Comm comm, int *rank)
{
    foreign_check_comm(comm, "MPI_Comm_rank");
    *rank = 0;
    return MPI_SUCCESS;
}

int PMPI_Comm_dup(MPI_Comm comm, MPI_Comm *copy)
{
    foreign_check_comm(comm, "MPI_Comm_dup");
    *copy = foreign_new(sizeof(**copy));
    (*copy)->self = *copy;
    return MPI_SUCCESS;
}

int PMPI_Comm_free(MPI_Comm *comm)
{
    foreign_check_comm(*comm, "MPI_Comm_free");
    free(*comm);
    *comm = NULL;
    return MPI_SUCCESS;
}

int PMPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm)
{
    foreign_check(op == MPI_SUM, "an operation");
    return foreign_move(in, out, count, type, comm);
}

int PMPI_Bcast(void *data, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    foreign_check(root == 0, "a root");
    return foreign_move(data, data, count, type, comm);
}

int PMPI_Iallreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op,
                    MPI_Comm comm, MPI_Request *request)
{
    *request = foreign_new(sizeof(**request));
    (*request)->self = *request;
    return PMPI_Allreduce(in, out, count, type, op, comm);
}

int PMPI_Wait(MPI_Request *request, void *status)
{
    (void)status;
    foreign_check(*request && (*request)->self == *request, "MPI_Wait");
    free(*request);
    *request = NULL;
    return MPI_SUCCESS;
}

#define FOREIGN_PUBLIC(name, parameters, names)                                                    \
    int MPI_##name parameters                                                                      \
    {                                                                                              \
        return PMPI_##name names;                                                                  \
    }
FOREIGN_CALLS(FOREIGN_PUBLIC)

int PMPI_Get_library_version(char *text, int *length)
{
    *length = sprintf(text, "Foreign MPI 1.0");
    return MPI_SUCCESS;
}

int MPI_Get_library_version(char *text, int *length)
{
    return PMPI_Get_library_version(text, length);
}

#ifdef ABI_VERSION
int PMPI_Abi_get_version(int *major, int *minor)
{
    *major = ABI_VERSION;
    *minor = 0;
    return MPI_SUCCESS;
}
#endif
