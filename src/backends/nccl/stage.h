/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend nccl: what a call reads and writes in host memory. */
#ifndef DISTI_BACKENDS_NCCL_STAGE_H
#define DISTI_BACKENDS_NCCL_STAGE_H

#include "backends/nccl/nccl.h"

/* Memory of the device, used by one call at a time. */
struct disti_nccl_region {
    struct disti_nccl_region *next;
    uintptr_t memory;
    size_t bytes;
    bool used;
};

/* A part of host memory. */
struct disti_nccl_piece {
    char *data;
    size_t bytes;
};

/* What a call reads, or what it writes: its pieces, one behind the other in a region. */
struct disti_nccl_side {
    struct disti_nccl_piece *pieces;
    size_t *offsets; /* by rank, in elements: of the blocks in the region; NULL: there are none */
    size_t bytes;    /* of all pieces; 0: nothing is in host memory */
    size_t done;     /* bytes copied */
    int piece;       /* where the copy is */
    size_t within;
    struct disti_nccl_region *region;
};

struct disti_nccl_stage {
    struct disti_nccl_side in, out;
};

/* Memory of the device as a pointer, as NCCL takes it. */
static inline void *disti_nccl_pointer(uintptr_t memory)
{
    return (void *)memory; /* NOLINT */
}

/* Finds the pieces of a call, which is the program's. */
dist_status disti_nccl_stage_survey(const struct disti_nccl_state *nccl,
                                    const struct dist_call *call, struct disti_nccl_stage *stage);

/* Makes the call one on the regions. */
void disti_nccl_stage_redirect(const struct disti_nccl_stage *stage, struct dist_call *call);

#endif
