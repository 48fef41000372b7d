/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend mpi: the end of MPI while groups are open; private to the module. */
#ifndef DISTI_BACKENDS_MPI_END_H
#define DISTI_BACKENDS_MPI_END_H

#include <dist/backend.h>

/* An open group's, in its state. */
struct mpi_end {
    struct mpi_end *next;
    const struct dist_backend_config *config;
};

/* From now on, the group's other ranks are told when MPI ends here. */
void disti_mpi_end_watch(struct mpi_end *end, const struct dist_backend_config *config);

/* The group ends properly, or is broken already. Accepts one that is not watched. */
void disti_mpi_end_forget(struct mpi_end *end);

#endif
