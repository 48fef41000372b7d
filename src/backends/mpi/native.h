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

/* From now on, the group's other ranks are told when MPI ends here. */
void disti_mpi_end_watch(struct mpi_end *end, const struct dist_backend_config *config);

/* The group ends properly, or is broken already. Accepts one that is not watched. */
void disti_mpi_end_forget(struct mpi_end *end);

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

/* ---- native_takes.c ---- */

/* MPI's name; MPI_DATATYPE_NULL, MPI_OP_NULL: it has none, or one with other rules. */
MPI_Datatype disti_native_type(dist_dtype dtype);
MPI_Op disti_native_op(dist_op op, dist_dtype dtype);

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

/* ---- native_start.c ---- */

/*
 * Return the address to pass to MPI for a buffer of which MPI uses `bytes` bytes: the program's, or
 * if bytes is 0 one of our own. For an empty buffer the program may pass any address: that of the
 * other buffer, which means in place to Open MPI and is an error to MPICH, or MPI_IN_PLACE itself.
 */
const void *disti_native_in(const void *in, size_t bytes);
void *disti_native_out(void *out, size_t bytes);

/* Does the result come to other memory first? Then *count_p is how many elements that takes. */
bool disti_native_stages(const struct disti_native *native, const struct dist_call *call,
                         size_t *count_p);

/* Memory that the call needs beside the program's. ERR_NO_MEMORY. */
dist_status disti_native_make_room(const struct disti_native *native, struct disti_native_call *c);

/*
 * Copies this rank's part to where it belongs in OUT, if it is not there. MPI wants MPI_IN_PLACE on
 * all ranks or on none, and a rank knows of itself only: so all give it.
 */
void disti_native_bring(void *to, const void *from, size_t bytes);
/* Returns true if this rank's part is not there. */
bool disti_native_brings(const struct disti_native *native, const struct dist_call *call);

/* Starts it. With the lock held. Returns MPI's code. */
int disti_native_start(const struct disti_native *native, struct disti_native_call *c);

/* Brings what MPI has left in the stage to where the program wants it. */
void disti_native_unstage(const struct disti_native *native, const struct disti_native_call *c);

/* ---- device.c ---- */

/* Does the MPI say that it takes memory of a GPU? DIST_MPI_CUDA=0|1 says it instead. */
bool disti_mpi_takes_devices(void);

/* Returns true if MPI can do this call in memory of a GPU: if the host need not access it. */
bool disti_native_takes_devices(const struct disti_native *native, const struct dist_call *call);

/* Waits until what is on the call's stream is done: MPI knows of no streams. */
dist_status disti_native_wait_stream(const struct disti_native *native,
                                     const struct dist_call *call);

/* ---- native_v.c ---- */

/* Starts a v-form. With the lock held. Returns MPI's code. */
int disti_native_start_v(const struct disti_native *native, struct disti_native_call *c);

/* Frees the types that were made for it. With the lock held. */
void disti_native_free_types(const struct disti_native *native, struct disti_native_call *c);

#endif
