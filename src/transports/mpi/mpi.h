/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The module calls MPI by its profiling names: what a tool counts, or libdist_mpi.so serves, are
 * the calls of the program, not ours. Every function of MPI that the module calls is here.
 */
#ifndef DISTI_TRANSPORTS_MPI_MPI_H
#define DISTI_TRANSPORTS_MPI_MPI_H

#include <dist/backend.h>
#include <mpi.h>

#define MPI_Cancel PMPI_Cancel
#define MPI_Comm_create_group PMPI_Comm_create_group
#define MPI_Comm_create_keyval PMPI_Comm_create_keyval
#define MPI_Comm_free PMPI_Comm_free
#define MPI_Comm_free_keyval PMPI_Comm_free_keyval
#define MPI_Comm_group PMPI_Comm_group
#define MPI_Comm_idup PMPI_Comm_idup
#define MPI_Comm_rank PMPI_Comm_rank
#define MPI_Comm_set_attr PMPI_Comm_set_attr
#define MPI_Comm_set_errhandler PMPI_Comm_set_errhandler
#define MPI_Comm_size PMPI_Comm_size
#define MPI_Error_string PMPI_Error_string
#define MPI_Finalize PMPI_Finalize
#define MPI_Finalized PMPI_Finalized
#define MPI_Get_count PMPI_Get_count
#define MPI_Group_free PMPI_Group_free
#define MPI_Group_incl PMPI_Group_incl
#define MPI_Iallgather PMPI_Iallgather
#define MPI_Iallgatherv PMPI_Iallgatherv
#define MPI_Iallreduce PMPI_Iallreduce
#define MPI_Ialltoall PMPI_Ialltoall
#define MPI_Ialltoallw PMPI_Ialltoallw
#define MPI_Ibarrier PMPI_Ibarrier
#define MPI_Ibcast PMPI_Ibcast
#define MPI_Igather PMPI_Igather
#define MPI_Init_thread PMPI_Init_thread
#define MPI_Initialized PMPI_Initialized
#define MPI_Irecv PMPI_Irecv
#define MPI_Ireduce PMPI_Ireduce
#define MPI_Ireduce_scatter PMPI_Ireduce_scatter
#define MPI_Ireduce_scatter_block PMPI_Ireduce_scatter_block
#define MPI_Iscatter PMPI_Iscatter
#define MPI_Isend PMPI_Isend
#define MPI_Query_thread PMPI_Query_thread
#define MPI_Request_free PMPI_Request_free
#define MPI_Test PMPI_Test
#define MPI_Type_commit PMPI_Type_commit
#define MPI_Type_contiguous PMPI_Type_contiguous
#define MPI_Type_create_struct PMPI_Type_create_struct
#define MPI_Type_free PMPI_Type_free

/* The MPI runtime of this process, and the transport over it. Built once an MPI, in a module. */

/*
 * MPI is one a process, so this state is too: it is begun by the first group that
 * needs it (unless the program has called MPI_Init itself) and, if it was begun here, ended when
 * the process exits.
 *
 * MPI is asked for calls from one thread at a time: every use of it goes under this lock, which is
 * taken for one look at a time where something is waited for. False: MPI has been finalized;
 * nothing of it may be called any more, and the lock is not held.
 */
bool disti_mpi_lock(void);
void disti_mpi_unlock(void);

/*
 * Has this called when MPI ends in this process, before it waits for other ranks; perhaps twice. It
 * returns for how many ms other ranks may still come to their end too; 0: there is nobody to wait
 * for but MPI itself. Once is enough.
 */
void disti_mpi_on_end(int (*call)(void));

/* May threads of the library call MPI beside those of the program? */
bool disti_mpi_threads(void);

/*
 * Starts MPI and gives a communicator of all its ranks that is ours. Collective over these the
 * first time, waits at most timeout_ms, and not for a rank that is lost as `config` (NULL: none)
 * can tell.
 */
dist_status disti_mpi_begin(const struct dist_host *host, const struct dist_backend_config *config,
                            int timeout_ms, MPI_Comm *world_p);

/* Waits for a request, at most timeout_ms. False: it failed or did not end. */
bool disti_mpi_wait(MPI_Request *request, int timeout_ms);

/* A group ended in an error: MPI_Finalize could wait for ever, so leave it to the launcher. */
void disti_mpi_broken(void);

/* Reports "MPI_X: text" for a return value that is not MPI_SUCCESS. With the lock held. */
dist_status disti_mpi_fail(const struct dist_host *host, const char *call, int code);

/* Reports that MPI has been finalized. */
dist_status disti_mpi_ended(const struct dist_host *host);

/*
 * A communicator of its own for one group, with the group's ranks. Collective over
 * the group. For the world it waits at most the timeout; for other groups all ranks have agreed on
 * making it when MPI, which knows no such limit, is asked to.
 */
dist_status disti_mpi_communicator(const struct dist_backend_config *config, MPI_Comm *comm_p);

/* Gives it back, after the group's ranks have left together. */
void disti_mpi_communicator_free(MPI_Comm *comm);

/* mpi.c: messages as MPI point-to-point; config.context is an MPI_Comm *. */
extern const struct dist_transport disti_transport_mpi;

#endif
