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
 * faulty.c: the same with the faults of DIST_FAULT, where it is set: a host whose engines have
 * faulty transports, for every group, and a backend that counts the operations, for the world's.
 */
const struct dist_host *disti_host_faulty(void);
const struct dist_backend *disti_backend_faulty(const struct dist_backend *backend);

/*
 * The backend of that name: built in, else dist_NAME.so (for mpi: the one of the MPI that
 * runs here) from DIST_PLUGIN_PATH, the folder of the library, or the installation. It has
 * been probed and its slots checked. A module stays loaded for the life of the process.
 * ERR_NO_BACKEND, ERR_ABI: the error says why, where modules are looked for, which backends of
 * this project there are, and the names of other modules, which are not loaded for that.
 *
 * Modules run in this process, whose memory they can spoil and which they can keep for ever: a job
 * asks for one, and has it. A fork that tries it first would be a millisecond in each start, and
 * undefined where threads or a driver of a GPU are there already. Lists try each module in a child
 * (list_probe_apart), and so does the error of this function.
 */
dist_status disti_backend_find(const char *name, const struct dist_backend **backend_p);

/*
 * A transport: built into the library ("shm", "tcp"), or of that name in dist_NAME.so. Not probed.
 * NULL: there is none, for the reason that disti_transport_missing writes: an always terminated
 * text, which lists what there is and where modules are looked for.
 */
const struct dist_transport *disti_transport_find(const char *name);
void disti_transport_missing(const char *name, char *text, size_t size);

/*
 * A backend's or a transport's probe, called. Whatever it answers, where it is not DIST_OK there is
 * a reason: a module's answer is not believed. `from` names it.
 */
dist_status disti_probe(dist_status (*probe)(char *reason, size_t reason_size), const char *from,
                        char *reason, size_t reason_size);

/* The rows of the tables, NULL behind the last: what is built in, what are this project's modules.
 */
const struct dist_transport *disti_built_in_transport(const char *name);
/* True if the name is that of a module of this project: its variables are known one by one. */
bool disti_module_is_own(const char *name);

/* The ABI number and the mandatory slots; `from` names the module in the error. ERR_ABI.
 */
dist_status disti_backend_check(const struct dist_backend *backend, const char *from);
dist_status disti_transport_check(const struct dist_transport *transport, const char *from);

/*
 * settings.c: checks the values of all of the library's variables that are set, or of one of them.
 * ERR_INVALID_ARGUMENT, ERR_UNSUPPORTED; dist_last_error names variable, value and what is allowed.
 */
dist_status disti_settings_check(void);
dist_status disti_setting_check(const char *name);

/*
 * Is it the variable of a module of somebody else's that is there: DIST_NAME or DIST_NAME_... of
 * dist_name.so? Reads the folders.
 */
bool disti_module_has_variable(const char *variable);

/*
 * mpi/flavour.c: the module names to try for backend mpi, best first: the MPI that is
 * loaded in this process, else the one whose launcher started it, else all. 0: that MPI has none,
 * for the reason that is written; otherwise the reason is empty.
 */
#define DISTI_MPI_FLAVOURS 2
int disti_mpi_flavours(const char *names[DISTI_MPI_FLAVOURS], char *reason, size_t size);

#endif
