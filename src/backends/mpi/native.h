/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend mpi: the end of MPI while groups are open; private to the module. */
#ifndef DISTI_BACKENDS_MPI_NATIVE_H
#define DISTI_BACKENDS_MPI_NATIVE_H

#include "transports/mpi/mpi.h"

#include <dist/backend.h>

/* An open group's, in its state. */
struct mpi_end {
    struct mpi_end *next;
    const struct dist_backend_config *config;
};

/* MPI's own nonblocking collectives, for DIST_MPI_COLL=native. */

/* One a group; zeroed but for the first five. */
struct disti_native {
    const struct dist_host *host;
    MPI_Comm comm;
    int ranks, rank;
    bool reproducible;
    struct disti_native_call *calls; /* posted and not ended */
};

/* Blocks by rank, as MPI wants them described. */
struct disti_native_blocks {
    int *counts, *offsets;
    MPI_Datatype *types; /* ALL_TO_ALL_V only */
};

/* A call that MPI works on. */
struct disti_native_call {
    struct disti_native_call *next;
    struct dist_call call;
    struct dist_ticket *ticket;
    MPI_Request request;
    void *arrays;         /* what the blocks point into; MPI reads them to the end */
    unsigned char *stage; /* MPI writes here, and at the end it goes to call.out; NULL: to out */
    struct disti_native_blocks in, out;
};

/*
 * Shall MPI do this call? It must know type and operation, and its ints must count the bytes. Every
 * rank comes to the same answer, so only what all ranks know is looked at: not what is in place,
 * and not the counts of GATHER_V, SCATTER_V and ALL_TO_ALL_V. The first two are never taken.
 */
bool disti_native_takes(const struct disti_native *native, const struct dist_call *call);

dist_status disti_native_post(struct disti_native *native, const struct dist_call *call,
                              struct dist_ticket *ticket);
int disti_native_progress(struct disti_native *native);
/* Forgets what has not ended. */
void disti_native_drop(struct disti_native *native);

static inline size_t disti_native_bytes(const struct disti_native *native,
                                        const struct dist_call *call, size_t count)
{
    return count * native->host->dtype_size(call->dtype);
}

/* The n-th element from there; NULL stays NULL, for buffers of nothing. */
static inline unsigned char *disti_native_element(const struct disti_native *native,
                                                  const struct dist_call *call, const void *base,
                                                  size_t n)
{
    return base ? (unsigned char *)(uintptr_t)base + disti_native_bytes(native, call, n) : NULL;
}

/* Does the result come to other memory first? Then *count_p is how many elements that takes. */
bool disti_native_stages(const struct disti_native *native, const struct dist_call *call,
                         size_t *count_p);

/* Returns true if this rank's part is not there. */
bool disti_native_brings(const struct disti_native *native, const struct dist_call *call);

#endif
