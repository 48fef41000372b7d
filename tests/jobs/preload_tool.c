/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * -DTOOL: a profiling tool that counts all-reduces. -DPROGRAM: an MPI program that makes
 * all-reduces, itself or through a Fortran library that it opens:
 *
 *    preload_tool                   makes all-reduces
 *    preload_tool LIBRARY           the library initializes and finalizes MPI
 *    preload_tool LIBRARY opened    MPI is initialized before the library is opened
 */
#include <mpi.h>

#include <dlfcn.h>
#include <stdio.h>

#ifdef TOOL

static int tool_begun, tool_blocking, tool_nonblocking;

__attribute__((destructor)) static void tool_report(void)
{
    if (tool_begun || tool_blocking)
        fprintf(stderr, "tool: begun %d, blocking %d, nonblocking %d\n", tool_begun, tool_blocking,
                tool_nonblocking);
}

int MPI_Init(int *argc, char ***argv)
{
    tool_begun++;
    return PMPI_Init(argc, argv);
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    tool_begun++;
    return PMPI_Init_thread(argc, argv, required, provided);
}

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    tool_blocking++;
    return PMPI_Allreduce(in, out, count, type, op, comm);
}

int MPI_Iallreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request *request)
{
    tool_nonblocking++;
    return PMPI_Iallreduce(in, out, count, type, op, comm, request);
}

#ifdef OPEN_MPI

/* The functions that Fortran programs call, implemented by the C functions. */
void pmpi_allreduce_(void *in, void *out, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op,
                     MPI_Fint *comm, MPI_Fint *code) __attribute__((weak));
void mpi_allreduce_(void *in, void *out, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op,
                    MPI_Fint *comm, MPI_Fint *code);
void mpi_allreduce_(void *in, void *out, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op,
                    MPI_Fint *comm, MPI_Fint *code)
{
    tool_blocking++;
    pmpi_allreduce_(in, out, count, type, op, comm, code);
}

#endif
#endif

#ifdef PROGRAM

static int program_library(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void (*run)(void);

    if (library)
        *(void **)&run = dlsym(library, "preload_fortran");
    if (!library || !run) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    run();
    return 0;
}

static int program_all_reduces(void)
{
    int in = 1, out = 0, ranks, wrong = 0;
    MPI_Request request;

    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < 10; i++) {
        MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        wrong |= out != ranks;
        out = 0;
        MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        wrong |= out != ranks;
    }
    return wrong;
}

int main(int argc, char *argv[])
{
    int wrong;

    if (argc == 2)
        return program_library(argv[1]);
    MPI_Init(&argc, &argv);
    wrong = argc > 2 ? program_library(argv[1]) : program_all_reduces();
    MPI_Finalize();
    return wrong;
}

#endif
