/* SPDX-License-Identifier: BSD-3-Clause */
/* Which MPI runs here: each has an ABI of its own, so each has a module of its own. */
#include "backends/registry.h"
#include "base/settings/config.h"

#include <dlfcn.h>
#include <string.h>

static const char flavour_openmpi[] = "mpi_openmpi", flavour_mpich[] = "mpi_mpich";

/* The MPI that the program itself is linked with says what it is. */
static const char *flavour_loaded(void)
{
    int (*version)(char *, int *);
    void *symbol = dlsym(RTLD_DEFAULT, "MPI_Get_library_version");
    char text[8192] = ""; /* MPI_MAX_LIBRARY_VERSION_STRING of MPICH, the larger one */
    int length = 0;

    if (!symbol)
        return NULL;
    memcpy(&version, &symbol, sizeof(version));
    if (version(text, &length) != 0)
        return NULL;
    return strstr(text, "Open MPI") ? flavour_openmpi : flavour_mpich;
}

static const char *flavour_launched(void)
{
    if (disti_env("OMPI_COMM_WORLD_SIZE"))
        return flavour_openmpi;
    if (disti_env("PMI_RANK") || disti_env("PMI_FD"))
        return flavour_mpich;
    return disti_env("PMIX_RANK") ? flavour_openmpi : NULL;
}

int disti_mpi_flavours(const char *names[DISTI_MPI_FLAVOURS])
{
    const char *only = flavour_loaded();

    if (!only)
        only = flavour_launched();
    names[0] = only ? only : flavour_openmpi;
    names[1] = flavour_mpich;
    return only ? 1 : 2;
}
