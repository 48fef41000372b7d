/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * libdist inside an MPI program: a group of the ranks of a communicator.
 *
 * Header-only, so that libdist itself is not linked with MPI. Include it where <mpi.h> is found;
 * MPI must be initialised.
 */
#ifndef DIST_MPI_H
#define DIST_MPI_H

#include <dist/backend.h>
#include <limits.h>
#include <mpi.h>

/* All-gather of the communicator *arg, through which the ranks find each other. */
static inline int dist_mpi_all_gather(void *arg, const void *in, void *out, size_t bytes)
{
    if (bytes > INT_MAX)
        return -1;
    return MPI_Allgather(in, (int)bytes, MPI_BYTE, out, (int)bytes, MPI_BYTE, *(MPI_Comm *)arg) ==
                   MPI_SUCCESS
               ? 0
               : -1;
}

/*
 * Joins the ranks of `comm`, an intracommunicator, in a world of their own. Collective over comm;
 * blocks.
 *
 * Rank and world size are those of the communicator; the options' rank and world_size are ignored.
 * options may be NULL. The caller keeps the communicator, which is used in this call only.
 * Otherwise as dist_init_process_group.
 *
 * Errors: ERR_INVALID_ARGUMENT (comm is MPI_COMM_NULL or invalid), else those of
 * dist_init_process_group.
 */
static inline dist_status dist_init_process_group_comm(MPI_Comm comm,
                                                       const struct dist_options *options,
                                                       dist_group **group_p)
{
    struct dist_options own = DIST_OPTIONS_INIT;

    if (comm == MPI_COMM_NULL)
        return dist_set_last_error(DIST_ERR_INVALID_ARGUMENT,
                                   "dist_init_process_group_comm: comm is MPI_COMM_NULL: pass an "
                                   "intracommunicator that includes this process");
    if (options)
        own = *options;
    if (MPI_Comm_rank(comm, &own.rank) != MPI_SUCCESS ||
        MPI_Comm_size(comm, &own.world_size) != MPI_SUCCESS)
        return dist_set_last_error(DIST_ERR_INVALID_ARGUMENT,
                                   "dist_init_process_group_comm: MPI rejected the "
                                   "communicator: pass an intracommunicator that was not freed");
    own.init_method = NULL;
    own.oob_all_gather = dist_mpi_all_gather;
    own.oob_arg = &comm;
    return dist_init_process_group(&own, group_p);
}

#endif
