/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: MPI_Alloc_mem gives memory that collectives use in place. */
#include "preload/serve.h"

/* Hints are for MPI alone to understand: who gives some gets MPI's memory. */
static bool memory_is_served(MPI_Aint size, MPI_Info info, const void *base_p)
{
    return disti_preload.active && size > 0 && info == MPI_INFO_NULL && base_p;
}

int MPI_Alloc_mem(MPI_Aint size, MPI_Info info, void *base_p)
{
    if (memory_is_served(size, info, base_p) &&
        dist_alloc(NULL, (size_t)size, (void **)base_p) == DIST_OK)
        return MPI_SUCCESS;
    return PMPI_Alloc_mem(size, info, base_p);
}

/*
 * libdist knows what it gave, and refuses the rest: also when it serves no more. MPI_Finalize calls
 * what the program has attached to MPI_COMM_SELF, which may free memory.
 */
int MPI_Free_mem(void *base)
{
    if (base && dist_free(NULL, base) == DIST_OK)
        return MPI_SUCCESS;
    return PMPI_Free_mem(base);
}
