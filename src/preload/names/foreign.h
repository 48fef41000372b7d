/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: programs whose MPI has an ABI that is not served. */
#ifndef DISTI_PRELOAD_NAMES_FOREIGN_H
#define DISTI_PRELOAD_NAMES_FOREIGN_H

#include "preload/names/objects.h"

/*
 * The program's MPI is this one: from now on its calls go there and not to this library, other than
 * MPI_Init and MPI_Init_thread. False: they cannot be passed, for the reason in errno.
 */
bool disti_foreign_pass(const struct disti_object *mpi);

/* That MPI's own MPI_Init and MPI_Init_thread, or those of a tool that was preloaded after us. */
int disti_foreign_init(int *argc, char ***argv);
int disti_foreign_init_thread(int *argc, char ***argv, int required, int *provided);

#endif
