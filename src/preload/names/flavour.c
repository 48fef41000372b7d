/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: is the program's MPI the one that this library was built for? */
#include "preload/names/objects.h"
#include "preload/preload.h"

#include <stdio.h>
#include <string.h>

#ifdef OPEN_MPI
#define FLAVOUR "Open MPI"
#else
#define FLAVOUR "MPICH"
#endif

/* More than the longest of any MPI. */
#define FLAVOUR_TEXT 8192

typedef int flavour_version(char *text, int *length);

/*
 * Those of all MPIs that were there when the program began: this library brings one itself. By the
 * name we may get that one, where the program's own is only what its Fortran binding needs.
 */
static flavour_version *flavour_versions[8];
static size_t flavour_count;

static int flavour_find(struct dl_phdr_info *info, size_t size, void *arg)
{
    struct disti_object object;
    void *version = NULL;

    (void)size;
    (void)arg;
    if (disti_object_open(&object, info))
        version = disti_object_find(&object, "PMPI_Get_library_version");
    if (version)
        *(void **)&flavour_versions[flavour_count++] = version;
    return flavour_count == sizeof(flavour_versions) / sizeof(flavour_versions[0]);
}

__attribute__((constructor)) static void flavour_begin(void)
{
    dl_iterate_phdr(flavour_find, NULL);
}

static bool flavour_is_own(flavour_version *version, char *text)
{
    int length = 0;

    version(text, &length);
    return (strstr(text, "Open MPI") != NULL) == (strcmp(FLAVOUR, "Open MPI") == 0);
}

bool disti_mpi_is_own(void)
{
    char text[FLAVOUR_TEXT] = "";
    bool own = flavour_is_own(PMPI_Get_library_version, text);

    for (size_t i = 0; i < flavour_count && own; i++)
        own = flavour_is_own(flavour_versions[i], text);
    if (!own)
        fprintf(stderr,
                "libdist: this libdist_mpi.so is for " FLAVOUR ", but the program runs %.*s: "
                "preload that MPI's libdist_mpi.so, from the folder beside this one\n",
                (int)strcspn(text, ",\n"), text);
    return own;
}
