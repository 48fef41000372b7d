/* SPDX-License-Identifier: BSD-3-Clause */
/* The backends there are: built in, and modules found on disk. */
#ifndef DISTI_BACKENDS_REGISTRY_H
#define DISTI_BACKENDS_REGISTRY_H

#include <dist/backend.h>

extern const struct dist_backend disti_backend_self;
extern const struct dist_backend disti_backend_gloo;

/* The library's services, as modules and built-in backends see them. */
extern const struct dist_host disti_host;

/*
 * The backend of that name: built in, else dist_NAME.so (for mpi: the one of the MPI that
 * runs here) from DIST_PLUGIN_PATH, the folder of the library, or the installation. It has
 * been probed and its slots checked. A module stays loaded for the life of the process.
 * ERR_NO_BACKEND: the error lists the backends there are, and why the others are not.
 */
dist_status disti_backend_find(const char *name, const struct dist_backend **backend_p);

/* Checks the ABI number and the mandatory slots; `from` names the module in the error. */
dist_status disti_backend_check(const struct dist_backend *backend, const char *from);
dist_status disti_transport_check(const struct dist_transport *transport, const char *from);

/* A transport built into the library ("shm", "tcp"), or NULL. */
const struct dist_transport *disti_transport_find(const char *name);

/* module.c: loads the module of that name. On failure the reason is written. */
dist_status disti_module_load(const char *name, const struct dist_module **module_p, char *reason,
                              size_t reason_size);

/*
 * mpi_flavour.c: the module names to try for backend mpi, best first: the MPI that is
 * loaded in this process, else the one whose launcher started it, else all.
 */
#define DISTI_MPI_FLAVOURS 2
int disti_mpi_flavours(const char *names[DISTI_MPI_FLAVOURS]);

#endif
