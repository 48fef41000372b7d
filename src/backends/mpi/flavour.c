/* SPDX-License-Identifier: BSD-3-Clause */
/* Determines which MPI is in use. There is one module per MPI, since each has its own ABI. */
#include "backends/mpi/abi.h"
#include "backends/registry.h"
#include "base/settings/config.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>

static const char flavour_openmpi[] = "mpi_openmpi", flavour_mpich[] = "mpi_mpich";

/* ---- the MPI that the program uses ---- */

/* Finds a library of the standard ABI. dlsym would not find one that was loaded with RTLD_LOCAL,
 * such as by a Python module. */
static int flavour_visit(struct dl_phdr_info *info, size_t size, void *path)
{
    (void)size;
    if (!disti_mpi_is_standard_file(info->dlpi_name))
        return 0;
    snprintf(path, PATH_MAX, "%s", info->dlpi_name);
    return 1;
}

/*
 * Gets the version text of the MPI, and the library that contains it. Returns false if the program
 * has not loaded an MPI.
 */
static bool flavour_version(char text[DISTI_MPI_VERSION_TEXT], Dl_info *object)
{
    int (*version)(char *, int *);
    void *symbol = dlsym(RTLD_DEFAULT, "MPI_Get_library_version");
    int length = 0;

    if (!symbol || !dladdr(symbol, object))
        return false;
    memcpy(&version, &symbol, sizeof(version));
    return version(text, &length) == 0;
}

static bool flavour_has_openmpi_handles(const Dl_info *object)
{
    void *handle = dlsym(RTLD_DEFAULT, DISTI_MPI_OPENMPI_HANDLE);
    Dl_info there;

    return handle && dladdr(handle, &there) && there.dli_fbase == object->dli_fbase;
}

/*
 * Returns the module for the loaded MPI. Returns NULL without a reason if no MPI is loaded, and
 * NULL with a reason if the MPI is not supported.
 */
static const char *flavour_loaded(char *reason, size_t size)
{
    char text[DISTI_MPI_VERSION_TEXT] = "", path[PATH_MAX] = "";
    Dl_info object;

    if (dl_iterate_phdr(flavour_visit, path)) {
        snprintf(reason, size,
                 "the program is built for MPI's standard ABI (%s), which backend mpi does not "
                 "support: build the program with Open MPI's or MPICH's own mpicc, or set "
                 "DIST_BACKEND=gloo",
                 disti_mpi_file_name(path));
        return NULL;
    }
    if (!flavour_version(text, &object))
        return NULL;
    switch (disti_mpi_abi_of(object.dli_fname, text, flavour_has_openmpi_handles(&object))) {
    case DISTI_MPI_ABI_OPENMPI:
        return flavour_openmpi;
    case DISTI_MPI_ABI_MPICH:
        return flavour_mpich;
    default:
        snprintf(reason, size,
                 "the program's MPI (%s: %.*s) is neither Open MPI nor has MPICH's ABI: build the "
                 "program with Open MPI or MPICH, or set DIST_BACKEND=gloo",
                 disti_mpi_file_name(object.dli_fname), (int)strcspn(text, ",\n"), text);
        return NULL;
    }
}

static const char *flavour_launched(void)
{
    if (disti_env("OMPI_COMM_WORLD_SIZE"))
        return flavour_openmpi;
    if (disti_env("PMI_RANK") || disti_env("PMI_FD"))
        return flavour_mpich;
    return disti_env("PMIX_RANK") ? flavour_openmpi : NULL;
}

int disti_mpi_flavours(const char *names[DISTI_MPI_FLAVOURS], char *reason, size_t size)
{
    const char *only;

    reason[0] = '\0';
    only = flavour_loaded(reason, size);
    if (reason[0])
        return 0;
    if (!only)
        only = flavour_launched();
    names[0] = only ? only : flavour_openmpi;
    names[1] = flavour_mpich;
    return only ? 1 : 2;
}
