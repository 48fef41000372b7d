/* SPDX-License-Identifier: BSD-3-Clause */
/* The available backends and transports: built in, or modules found on disk. */
#ifndef DISTI_BACKENDS_REGISTRY_H
#define DISTI_BACKENDS_REGISTRY_H

#include <dist/backend.h>

extern const struct dist_backend disti_backend_self;
extern const struct dist_backend disti_backend_gloo;

/* The library's services for backends, both modules and built-in ones. */
extern const struct dist_host disti_host;

/* faulty.c: variants that inject the faults of DIST_FAULT, if it is set: a host whose engines have
 * faulty transports, for all groups, and a backend that counts operations, for the world group. */
const struct dist_host *disti_host_faulty(void);
const struct dist_backend *disti_backend_faulty(const struct dist_backend *backend);

/*
 * Finds a backend by name: a built-in one, or dist_NAME.so (for mpi: the module for the MPI in use)
 * from DIST_PLUGIN_PATH, the library's directory, or the installation. The backend has been probed
 * and its slots have been checked. A module stays loaded for the life of the process.
 * ERR_NO_BACKEND, ERR_ABI; the error has the reason, the module directories, the state of this
 * project's backends, and the names of other modules, which it lists without loading them.
 *
 * Modules run in this process, and can corrupt or block it. Trying the module in a child process
 * first would add a millisecond to each start, and forking is undefined if threads or a GPU driver
 * are already in use. Only lists, including the one in the error of this function, try modules in a
 * child process.
 */
dist_status disti_backend_find(const char *name, const struct dist_backend **backend_p);

/*
 * disti_transport_find() returns a transport that is built in ("shm", "tcp") or that module
 * dist_NAME.so provides, without probing it, or NULL. disti_transport_missing() writes the reason
 * for NULL, the built-in transports and the module directories; the text is always terminated.
 */
const struct dist_transport *disti_transport_find(const char *name);
void disti_transport_missing(const char *name, char *text, size_t size);

/*
 * Calls the probe of a backend or transport. If it does not return DIST_OK, `reason` is not empty.
 * Invalid results of a module are replaced by an error. `from` names the module.
 */
dist_status disti_probe(dist_status (*probe)(char *reason, size_t reason_size), const char *from,
                        char *reason, size_t reason_size);

/* Returns the built-in transport with that name, or NULL. */
const struct dist_transport *disti_built_in_transport(const char *name);
/*
 * True if `name` is one of this project's own modules. Their variables are listed in variables.def.
 */
bool disti_module_is_own(const char *name);

/* Check the ABI number and the mandatory slots. `from` names the module in the error. ERR_ABI. */
dist_status disti_backend_check(const struct dist_backend *backend, const char *from);
dist_status disti_transport_check(const struct dist_transport *transport, const char *from);

/*
 * settings.c: check the values of all of the library's variables that are set, or of one variable.
 * ERR_INVALID_ARGUMENT, ERR_UNSUPPORTED; dist_last_error() names the variable, its value and the
 * allowed values.
 */
dist_status disti_settings_check(void);
dist_status disti_setting_check(const char *name);

/* True if the variable belongs to an installed third-party module: DIST_NAME or DIST_NAME_... for
 * dist_name.so. Reads the module directories. */
bool disti_module_has_variable(const char *variable);

/*
 * mpi/flavour.c: stores the names of the modules to try for backend mpi, best first, and returns
 * their number: the module for the MPI loaded in this process, or for the MPI whose launcher
 * started it, or else all modules. Returns 0 and writes the reason if the program's MPI is not
 * supported; otherwise the reason is empty.
 */
#define DISTI_MPI_FLAVOURS 2
int disti_mpi_flavours(const char *names[DISTI_MPI_FLAVOURS], char *reason, size_t size);

#endif
