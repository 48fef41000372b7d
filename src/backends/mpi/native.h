/* SPDX-License-Identifier: BSD-3-Clause */
/* Native mode of backend mpi; private to the module. */
#ifndef DISTI_BACKENDS_MPI_NATIVE_H
#define DISTI_BACKENDS_MPI_NATIVE_H

#include "transports/mpi/mpi.h"

#include <dist/backend.h>

/* An entry of the list of open groups, which are notified when MPI ends. */
struct mpi_end {
    struct mpi_end *next;
    const struct dist_backend_config *config;
};

/* ---- MPI's own nonblocking collectives, for DIST_MPI_COLL=native ---- */

/* Native mode of one group. The creator sets the first five members and zeroes the last. */
struct disti_native {
    const struct dist_host *host;
    MPI_Comm comm;
    int ranks, rank;
    bool reproducible;
    struct disti_native_call *calls; /* calls in progress */
};

/* Blocks by rank, in MPI's form. */
struct disti_native_blocks {
    int *counts, *offsets;
    MPI_Datatype *types; /* ALL_TO_ALL_V only */
};

/* A call that MPI executes. */
struct disti_native_call {
    struct disti_native_call *next;
    struct dist_call call;
    struct dist_ticket *ticket;
    MPI_Request request;
    void *arrays; /* memory of the blocks' arrays; MPI reads it until the call ends */
    /* MPI's output, copied to call.out at the end; NULL: MPI writes to call.out */
    unsigned char *stage;
    struct disti_native_blocks in, out;
};

/*
 * True if MPI executes this call: MPI must have the type and operation, and the counts and offsets
 * must fit into int. All ranks must get the same result, so it depends only on what all ranks know:
 * not on in-place buffers, and not on the counts of GATHER_V, SCATTER_V and ALL_TO_ALL_V. GATHER_V
 * and SCATTER_V always use plans.
 */
bool disti_native_supports(const struct disti_native *native, const struct dist_call *call);

dist_status disti_native_post(struct disti_native *native, const struct dist_call *call,
                              struct dist_ticket *ticket);
int disti_native_progress(struct disti_native *native);
/* Drops the calls in progress. */
void disti_native_drop(struct disti_native *native);

static inline size_t disti_native_bytes(const struct disti_native *native,
                                        const struct dist_call *call, size_t count)
{
    return count * native->host->dtype_size(call->dtype);
}

/* Returns the address of element n of a buffer; NULL for NULL, which is allowed for empty
 * buffers. */
static inline unsigned char *disti_native_element(const struct disti_native *native,
                                                  const struct dist_call *call, const void *base,
                                                  size_t n)
{
    return base ? (unsigned char *)(uintptr_t)base + disti_native_bytes(native, call, n) : NULL;
}

/* True if MPI must write the result to a stage first; stores its number of elements in *count_p. */
bool disti_native_stages(const struct disti_native *native, const struct dist_call *call,
                         size_t *count_p);

/* True if this rank's part of the input must be copied to its place in OUT. */
bool disti_native_copies_own(const struct disti_native *native, const struct dist_call *call);

#endif
