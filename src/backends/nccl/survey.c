/* SPDX-License-Identifier: BSD-3-Clause */
/* Backend nccl: which parts of host memory a call reads and writes. */
#include "backends/nccl/stage.h"

#include <stdlib.h>

/* How a side of a call is made up. */
enum survey_kind {
    SURVEY_NONE,
    SURVEY_ONE,    /* count elements */
    SURVEY_ALL,    /* a block of count elements for each rank */
    SURVEY_BLOCKS, /* blocks by counts and offsets */
    SURVEY_OWN     /* as many elements as this rank's block has on the other side */
};

/* What ranks read and write; root: at root only, others: everywhere but there. */
struct survey_row {
    enum survey_kind in, in_root, out, out_root;
};

static const struct survey_row survey_rows[DIST_COLL_COUNT] = {
    /*                           in: others, root          out: others, root */
    [DIST_COLL_ALL_REDUCE] = {SURVEY_ONE, SURVEY_ONE, SURVEY_ONE, SURVEY_ONE},
    [DIST_COLL_BROADCAST] = {SURVEY_NONE, SURVEY_ONE, SURVEY_ONE, SURVEY_NONE},
    [DIST_COLL_ALL_GATHER] = {SURVEY_ONE, SURVEY_ONE, SURVEY_ALL, SURVEY_ALL},
    [DIST_COLL_REDUCE] = {SURVEY_ONE, SURVEY_ONE, SURVEY_NONE, SURVEY_ONE},
    [DIST_COLL_REDUCE_SCATTER] = {SURVEY_ALL, SURVEY_ALL, SURVEY_ONE, SURVEY_ONE},
    [DIST_COLL_GATHER] = {SURVEY_ONE, SURVEY_ONE, SURVEY_NONE, SURVEY_ALL},
    [DIST_COLL_SCATTER] = {SURVEY_NONE, SURVEY_ALL, SURVEY_ONE, SURVEY_ONE},
    [DIST_COLL_ALL_TO_ALL] = {SURVEY_ALL, SURVEY_ALL, SURVEY_ALL, SURVEY_ALL},
    [DIST_COLL_ALL_GATHER_V] = {SURVEY_OWN, SURVEY_OWN, SURVEY_BLOCKS, SURVEY_BLOCKS},
    [DIST_COLL_REDUCE_SCATTER_V] = {SURVEY_BLOCKS, SURVEY_BLOCKS, SURVEY_OWN, SURVEY_OWN},
    [DIST_COLL_GATHER_V] = {SURVEY_ONE, SURVEY_ONE, SURVEY_NONE, SURVEY_BLOCKS},
    [DIST_COLL_SCATTER_V] = {SURVEY_NONE, SURVEY_BLOCKS, SURVEY_ONE, SURVEY_ONE},
    [DIST_COLL_ALL_TO_ALL_V] = {SURVEY_BLOCKS, SURVEY_BLOCKS, SURVEY_BLOCKS, SURVEY_BLOCKS},
    [DIST_COLL_SEND] = {SURVEY_ONE, SURVEY_ONE, SURVEY_NONE, SURVEY_NONE},
    [DIST_COLL_RECV] = {SURVEY_NONE, SURVEY_NONE, SURVEY_ONE, SURVEY_ONE},
};

/* A side of the call, as the program gave it. */
struct survey {
    const struct disti_nccl_state *nccl;
    char *base;
    const size_t *counts, *offsets; /* of this side */
    const size_t *others;           /* counts of the other side */
    size_t count;
    size_t size; /* bytes an element */
};

/* The blocks of a v-form, packed. */
static dist_status survey_blocks(const struct survey *a, struct disti_nccl_side *side)
{
    size_t offset = 0;

    side->offsets = calloc((size_t)a->nccl->ranks, sizeof(*side->offsets));
    if (!side->offsets)
        return disti_nccl_no_memory(a->nccl);
    for (int r = 0, used = 0; r < a->nccl->ranks; r++) {
        side->offsets[r] = offset;
        offset += a->counts[r];
        if (a->counts[r])
            side->pieces[used++] = (struct disti_nccl_piece){a->base + a->offsets[r] * a->size,
                                                             a->counts[r] * a->size};
    }
    side->bytes = offset * a->size;
    return DIST_OK;
}

static dist_status survey_side(const struct survey *a, enum survey_kind kind,
                               struct disti_nccl_side *side)
{
    size_t count = a->count;

    if (kind == SURVEY_NONE || !a->base || disti_driver_owns(a->nccl->driver, a->base))
        return DIST_OK;
    side->pieces =
        calloc(kind == SURVEY_BLOCKS ? (size_t)a->nccl->ranks : 1, sizeof(*side->pieces));
    if (!side->pieces)
        return disti_nccl_no_memory(a->nccl);
    if (kind == SURVEY_BLOCKS)
        return survey_blocks(a, side);
    if (kind == SURVEY_ALL)
        count *= (size_t)a->nccl->ranks;
    else if (kind == SURVEY_OWN)
        count = a->others[a->nccl->rank];
    side->bytes = count * a->size;
    side->pieces[0] = (struct disti_nccl_piece){a->base, side->bytes};
    return DIST_OK;
}

dist_status disti_nccl_stage_survey(const struct disti_nccl_state *nccl,
                                    const struct dist_call *call, struct disti_nccl_stage *stage)
{
    const struct survey_row *row = &survey_rows[call->collective];
    const bool root = call->root == nccl->rank;
    const size_t size = nccl->host->dtype_size(call->dtype);
    const struct survey in = {.nccl = nccl,
                              .base = (char *)call->in,
                              .counts = call->in_counts,
                              .offsets = call->in_offsets,
                              .others = call->out_counts,
                              .count = call->count,
                              .size = size};
    const struct survey out = {.nccl = nccl,
                               .base = call->out,
                               .counts = call->out_counts,
                               .offsets = call->out_offsets,
                               .others = call->in_counts,
                               .count = call->count,
                               .size = size};
    dist_status status = survey_side(&in, root ? row->in_root : row->in, &stage->in);

    return status == DIST_OK ? survey_side(&out, root ? row->out_root : row->out, &stage->out)
                             : status;
}

void disti_nccl_stage_redirect(const struct disti_nccl_stage *stage, struct dist_call *call)
{
    if (stage->in.region)
        call->in = disti_nccl_pointer(stage->in.region->memory);
    if (stage->out.region)
        call->out = disti_nccl_pointer(stage->out.region->memory);
    if (stage->in.offsets)
        call->in_offsets = stage->in.offsets;
    if (stage->out.offsets)
        call->out_offsets = stage->out.offsets;
    if (call->collective == DIST_COLL_BROADCAST) { /* one side of it is all there is */
        if (stage->in.region)
            call->out = (void *)call->in;
        else if (stage->out.region)
            call->in = call->out;
    }
}
