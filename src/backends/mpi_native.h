/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI's own nonblocking collectives, for DIST_MPI_COLL=native. */
#ifndef DISTI_BACKENDS_MPI_NATIVE_H
#define DISTI_BACKENDS_MPI_NATIVE_H

#include "transports/mpi/mpi.h"

/* One a group; zeroed but for the first four. */
struct disti_native {
    const struct dist_host *host;
    MPI_Comm comm;
    int ranks, rank;
    struct disti_native_call *calls; /* posted and not ended */
};

/* Can MPI do this call (type, operation, a count that fits an int)? */
bool disti_native_takes(const struct disti_native *native, const struct dist_call *call);
dist_status disti_native_post(struct disti_native *native, const struct dist_call *call,
                              struct dist_ticket *ticket);
int disti_native_progress(struct disti_native *native);
/* Forgets what has not ended. */
void disti_native_drop(struct disti_native *native);

#endif
