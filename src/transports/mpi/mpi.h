/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The runtime and the transport of the MPI module, which is built once for each MPI. The module
 * calls MPI by its profiling names (PMPI_), so that profiling tools and libdist_mpi.so see only the
 * program's own calls. The macros below cover all MPI functions that the module calls.
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

/*
 * The MPI runtime of the process. The first group that needs MPI initializes it, unless the program
 * has called MPI_Init itself. If this module initialized MPI, it also finalizes it when the process
 * exits.
 *
 * Only one thread at a time may call MPI, so the module calls MPI only while it holds this lock. If
 * MPI has been finalized, disti_mpi_lock returns false without taking the lock, and MPI must not be
 * called any more. A caller that waits for an MPI request releases the lock between its tests.
 */
bool disti_mpi_lock(void);
void disti_mpi_unlock(void);

/*
 * Registers `call` to be called when MPI is finalized in this process, before MPI_Finalize waits
 * for other ranks. `call` may be called twice. It returns how many ms to wait until the other ranks
 * exit too, or 0 if MPI_Finalize needs no such wait. Registrations after the first are ignored.
 */
void disti_mpi_on_end(int (*call)(void));

/* Returns true if threads that the library created may call MPI. */
bool disti_mpi_threads(void);

/*
 * Initializes MPI if needed and stores the module's own communicator of all ranks in *world_p. The
 * first call is collective over these ranks and waits for at most timeout_ms, or until `config`
 * (may be NULL) reports a lost rank.
 */
dist_status disti_mpi_begin(const struct dist_host *host, const struct dist_backend_config *config,
                            int timeout_ms, MPI_Comm *world_p);

/*
 * Waits for an MPI request for at most timeout_ms. The caller must not hold the lock. Returns false
 * if the request failed or timed out, or if MPI has been finalized.
 */
bool disti_mpi_wait(MPI_Request *request, int timeout_ms);

/*
 * Records that a group has failed. MPI_Finalize is then skipped at exit, since it could block
 * forever.
 */
void disti_mpi_broken(void);

/*
 * Reports the error `code` of the MPI function `call`, with MPI's text. Returns ERR_SYSTEM. The
 * caller holds the lock.
 */
dist_status disti_mpi_fail(const struct dist_host *host, const char *call, int code);

/* Reports that MPI has been finalized. Returns ERR_UNSUPPORTED. */
dist_status disti_mpi_ended(const struct dist_host *host);

/*
 * Creates a communicator for one group. Collective over the group. For the world, waits for at most
 * config->timeout_ms. For another group, the ranks first agree through the store to create it, for
 * at most that time; then MPI creates it without a time limit.
 */
dist_status disti_mpi_communicator(const struct dist_backend_config *config, MPI_Comm *comm_p);

/* Frees a group's communicator. Collective over the group. Does nothing if MPI was finalized. */
void disti_mpi_communicator_free(MPI_Comm *comm);

/* mpi.c: messages over MPI point-to-point. config.context is an MPI_Comm *. */
extern const struct dist_transport disti_transport_mpi;

#endif
