/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Makes MPI calls with an MPI that libdist does not recognize. -DLIBRARY alone: a library for a
 * program that is not linked with an MPI; -DPROGRAM alone: such a program; both: a program linked
 * with the MPI. -DTOOL: a profiling tool.
 *
 *    preload_foreign                  the program's own calls
 *    preload_foreign opened LIBRARY   the calls of a library that the program opens
 *    preload_foreign later LIBRARY    the program's own calls, then the library's, without MPI_Init
 *    preload_foreign session          the program's own calls, without MPI_Init
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int foreign_calls(int begins);

#ifdef LIBRARY
#include "preload_foreign.h"

/* A function pointer that is relocated when the program is loaded. */
int (*foreign_pointer)(void *, int, MPI_Datatype, int, MPI_Comm) = MPI_Bcast;

int foreign_calls(int begins)
{
    int rank = -1, in = 42, out = 0, provided = -1;
    MPI_Request request = NULL;
    MPI_Comm copy = NULL;

    if (begins)
        MPI_Init_thread(NULL, NULL, 1, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, copy);
    MPI_Bcast(&out, 1, MPI_INT, 0, copy);
    foreign_pointer(&out, 1, MPI_INT, 0, copy);
    MPI_Iallreduce(&out, &in, 1, MPI_INT, MPI_SUM, copy, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    PMPI_Bcast(&in, 1, MPI_INT, 0, copy);
    MPI_Comm_free(&copy);
    if (begins)
        MPI_Finalize();
    return rank == 0 && out == 42 && in == 42 && (!begins || provided == 1) ? 0 : 1;
}
#endif

#ifdef TOOL
#include "preload_foreign.h"

static int tool_begun, tool_reduced;

__attribute__((destructor)) static void tool_report(void)
{
    fprintf(stderr, "tool: begun %d, reduced %d\n", tool_begun, tool_reduced);
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    tool_begun++;
    return PMPI_Init_thread(argc, argv, required, provided);
}

int MPI_Allreduce(const void *in, void *out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    tool_reduced++;
    return PMPI_Allreduce(in, out, count, type, op, comm);
}
#endif

#ifdef PROGRAM
static int program_open(const char *path, int begins)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    int (*calls)(int);

    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    *(void **)&calls = dlsym(library, "foreign_calls");
    return calls(begins);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    int bad = 0;

#ifdef LINKED
    bad = foreign_calls(strcmp(how, "session") != 0);
#endif
    if (!bad && argc > 2)
        bad = program_open(argv[2], strcmp(how, "opened") == 0);
    return bad;
}
#endif
