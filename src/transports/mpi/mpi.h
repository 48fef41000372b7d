/* SPDX-License-Identifier: BSD-3-Clause */
/* The MPI runtime of this process, and the transport over it. Built once an MPI, in a module. */
#ifndef DISTI_TRANSPORTS_MPI_MPI_H
#define DISTI_TRANSPORTS_MPI_MPI_H

#include <dist/backend.h>
#include <mpi.h>

/*
 * runtime.c. MPI is one a process, so this state is too: it is begun by the first group that
 * needs it (unless the program has called MPI_Init itself) and, if it was begun here, ended when
 * the process exits.
 */
dist_status disti_mpi_begin(const struct dist_host *host, MPI_Comm *world_p);

/* A communicator of all ranks for one group. Collective, waits at most timeout_ms. */
dist_status disti_mpi_dup(const struct dist_host *host, int timeout_ms, MPI_Comm *comm_p);

/* Waits for a request, at most timeout_ms. False: it failed or did not end. */
bool disti_mpi_wait(MPI_Request *request, int timeout_ms);

/* MPI is asked for calls from one thread at a time: every use of it goes under this lock. */
void disti_mpi_lock(void);
void disti_mpi_unlock(void);

/* A group ended in an error: MPI_Finalize could wait for ever, so leave it to the launcher. */
void disti_mpi_broken(void);

/* "MPI_X: text" for a return value that is not MPI_SUCCESS. */
dist_status disti_mpi_fail(const struct dist_host *host, const char *call, int code);

/* mpi.c: messages as MPI point-to-point; config.context is an MPI_Comm *. */
extern const struct dist_transport disti_transport_mpi;

#endif
