/* SPDX-License-Identifier: BSD-3-Clause */
/* Preload: nonblocking and persistent collectives for Open MPI's Fortran binding. */
#ifndef DISTI_PRELOAD_NAMES_FORTRAN_H
#define DISTI_PRELOAD_NAMES_FORTRAN_H

/*
 * The function that serves call MPI_X for a Fortran binding, in place of our MPI_X. NULL: our MPI_X
 * serves it. The binding's PMPI_Request_c2f must be disti_fortran_c2f.
 */
void *disti_fortran_find(const char *call);

/* PMPI_Request_c2f for the binding. NULL: the MPI needs no other. */
void *disti_fortran_c2f(void);

#endif
