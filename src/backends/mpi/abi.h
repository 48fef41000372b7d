/* SPDX-License-Identifier: BSD-3-Clause */
/* The ABI of an MPI library, that is the type of its handles. Each ABI needs code of its own. */
#ifndef DISTI_BACKENDS_MPI_ABI_H
#define DISTI_BACKENDS_MPI_ABI_H

#include <stdbool.h>
#include <string.h>

/* Buffer size that exceeds the version text of any MPI. */
#define DISTI_MPI_VERSION_TEXT 8192

enum disti_mpi_abi {
    DISTI_MPI_ABI_OPENMPI,
    DISTI_MPI_ABI_MPICH,    /* also Intel MPI, MVAPICH, Cray MPICH, ParaStation */
    DISTI_MPI_ABI_STANDARD, /* the ABI of MPI 5, common to all MPIs */
    DISTI_MPI_ABI_UNKNOWN,
};

static inline const char *disti_mpi_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* True if the file is a library for MPI's standard ABI. The standard prescribes its name. */
static inline bool disti_mpi_is_standard_file(const char *path)
{
    static const char prescribed[] = "libmpi_abi.so";

    return strncmp(disti_mpi_file_name(path), prescribed, sizeof(prescribed) - 1) == 0;
}

/*
 * Returns the ABI of an MPI other than the standard one, from its file name, the text of
 * MPI_Get_library_version ("" if there is no such function), and whether it has Open MPI's handles.
 * The text alone is not sufficient, since some MPIs derived from Open MPI do not mention it.
 */
static inline enum disti_mpi_abi disti_mpi_abi_of(const char *path, const char *version,
                                                  bool has_openmpi_handles)
{
    static const char *const mpichs[] = {"MPICH", "MVAPICH", "Intel(R) MPI", "ParaStation"};

    if (has_openmpi_handles || strstr(version, "Open MPI"))
        return DISTI_MPI_ABI_OPENMPI;
    for (size_t i = 0; i < sizeof(mpichs) / sizeof(mpichs[0]); i++) {
        if (strstr(version, mpichs[i]))
            return DISTI_MPI_ABI_MPICH;
    }
    /* The library version that all MPIs with MPICH's ABI have agreed on. */
    return strstr(disti_mpi_file_name(path), ".so.12") ? DISTI_MPI_ABI_MPICH
                                                       : DISTI_MPI_ABI_UNKNOWN;
}

/* An object of Open MPI to which its handles point. */
#define DISTI_MPI_OPENMPI_HANDLE "ompi_mpi_comm_world"

#endif
