/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans: which data lies where, in chunks and in elements. */
#include "plan/plan.h"

#include <stdlib.h>

void disti_plan_free(struct disti_plan *plan)
{
    free(plan);
}

/* Which blocks of the data a space holds. */
enum plan_blocks {
    PLAN_NONE,
    PLAN_ONE,   /* the only one */
    PLAN_OWN,   /* block `rank` of `ranks` */
    PLAN_EACH,  /* all of them, in order */
    PLAN_ROW,   /* of ranks * ranks: those from this rank, [rank * ranks, (rank + 1) * ranks) */
    PLAN_COLUMN /* of ranks * ranks: those to this rank, rank, rank + ranks, ... */
};

struct plan_geometry {
    uint8_t blocks[2]; /* IN's, OUT's: enum plan_blocks */
    int8_t root_only;  /* the space that is there at root only; -1: none */
};

#define PLAN_EVERYWHERE (-1)

/* Sends and receives have no plans. */
static const struct plan_geometry plan_geometries[DIST_COLL_COUNT] = {
    [DIST_COLL_ALL_REDUCE] = {{PLAN_ONE, PLAN_ONE}, PLAN_EVERYWHERE},
    [DIST_COLL_BROADCAST] = {{PLAN_ONE, PLAN_ONE}, PLAN_EVERYWHERE},
    [DIST_COLL_BARRIER] = {{PLAN_ONE, PLAN_ONE}, PLAN_EVERYWHERE},
    [DIST_COLL_ALL_GATHER] = {{PLAN_OWN, PLAN_EACH}, PLAN_EVERYWHERE},
    [DIST_COLL_REDUCE] = {{PLAN_ONE, PLAN_ONE}, DISTI_OUT},
    [DIST_COLL_REDUCE_SCATTER] = {{PLAN_EACH, PLAN_OWN}, PLAN_EVERYWHERE},
    [DIST_COLL_GATHER] = {{PLAN_OWN, PLAN_EACH}, DISTI_OUT},
    [DIST_COLL_SCATTER] = {{PLAN_EACH, PLAN_OWN}, DISTI_IN},
    [DIST_COLL_ALL_TO_ALL] = {{PLAN_ROW, PLAN_COLUMN}, PLAN_EVERYWHERE},
    [DIST_COLL_ALL_GATHER_V] = {{PLAN_OWN, PLAN_EACH}, PLAN_EVERYWHERE},
    [DIST_COLL_REDUCE_SCATTER_V] = {{PLAN_EACH, PLAN_OWN}, PLAN_EVERYWHERE},
    [DIST_COLL_GATHER_V] = {{PLAN_OWN, PLAN_EACH}, DISTI_OUT},
    [DIST_COLL_SCATTER_V] = {{PLAN_EACH, PLAN_OWN}, DISTI_IN},
    [DIST_COLL_ALL_TO_ALL_V] = {{PLAN_ROW, PLAN_COLUMN}, PLAN_EVERYWHERE},
};

/* ---- blocks ---- */

static enum plan_blocks plan_blocks(const struct disti_plan *plan, uint8_t space)
{
    const struct plan_geometry *geometry = &plan_geometries[plan->collective];
    if (space == geometry->root_only && plan->rank != plan->root)
        return PLAN_NONE;
    return geometry->blocks[space];
}

uint32_t disti_plan_blocks(const struct disti_plan *plan, uint8_t space)
{
    switch (plan_blocks(plan, space)) {
    case PLAN_NONE:
        return 0;
    case PLAN_ONE:
    case PLAN_OWN:
        return 1;
    default:
        return (uint32_t)plan->ranks;
    }
}

uint64_t disti_plan_data_blocks(const struct disti_plan *plan)
{
    const uint8_t *blocks = plan_geometries[plan->collective].blocks;
    uint64_t ranks = (uint64_t)plan->ranks;
    if (blocks[DISTI_OUT] == PLAN_COLUMN)
        return ranks * ranks;
    return blocks[DISTI_IN] == PLAN_EACH || blocks[DISTI_OUT] == PLAN_EACH ? ranks : 1;
}

/* The block of the data that is the space's `block`-th. */
static uint32_t plan_block_data(const struct disti_plan *plan, uint8_t space, uint32_t block)
{
    uint32_t ranks = (uint32_t)plan->ranks, rank = (uint32_t)plan->rank;
    switch (plan_blocks(plan, space)) {
    case PLAN_OWN:
        return rank;
    case PLAN_ROW:
        return rank * ranks + block;
    case PLAN_COLUMN:
        return block * ranks + rank;
    default:
        return block;
    }
}

/* The space's block that holds this block of the data, if it is there. */
static uint32_t plan_block_locate(const struct disti_plan *plan, uint8_t space, uint32_t data)
{
    uint32_t ranks = (uint32_t)plan->ranks;
    switch (plan_blocks(plan, space)) {
    case PLAN_OWN:
        return 0;
    case PLAN_ROW:
        return data % ranks;
    case PLAN_COLUMN:
        return data / ranks;
    default:
        return data;
    }
}

uint32_t disti_plan_data(const struct disti_plan *plan, struct disti_chunk_ref ref)
{
    uint32_t block = plan_block_data(plan, ref.space, ref.chunk / plan->chunks);
    return block * plan->chunks + ref.chunk % plan->chunks;
}

bool disti_plan_locate(const struct disti_plan *plan, uint8_t space, uint32_t data,
                       struct disti_chunk_ref *ref_p)
{
    uint32_t block = plan_block_locate(plan, space, data / plan->chunks);
    if (block >= disti_plan_blocks(plan, space) ||
        plan_block_data(plan, space, block) != data / plan->chunks)
        return false;
    *ref_p = (struct disti_chunk_ref){block * plan->chunks + data % plan->chunks, space};
    return true;
}

/* ---- elements ---- */

/* Where a block's part begins: the first count % chunks parts are one element longer. */
static size_t plan_part(const struct disti_plan *plan, size_t count, uint32_t part)
{
    size_t longer = count % plan->chunks;
    return part * (count / plan->chunks) + (part < longer ? part : longer);
}

/* Where chunk `at` begins. */
static size_t plan_offset(const struct disti_plan *plan, const struct disti_layout *layout,
                          uint32_t at)
{
    uint32_t block = at / plan->chunks, part = at % plan->chunks;
    if (layout->counts)
        return layout->offsets[block] + plan_part(plan, layout->counts[block], part);
    return block * layout->count + plan_part(plan, layout->count, part);
}

size_t disti_chunks_extent(const struct disti_plan *plan, const struct disti_layout *layout,
                           uint32_t at, uint32_t chunks, size_t *offset_p)
{
    size_t begin = plan_offset(plan, layout, at), end;
    if (layout->counts) { /* one block's */
        uint32_t block = at / plan->chunks, part = at % plan->chunks + chunks;
        end = layout->offsets[block] + plan_part(plan, layout->counts[block], part);
    } else {
        end = plan_offset(plan, layout, at + chunks);
    }
    if (offset_p)
        *offset_p = begin;
    return end - begin;
}

size_t disti_step_elements(const struct disti_plan *plan, const struct disti_layout layouts[2],
                           const struct disti_step *step)
{
    struct disti_chunk_ref ref = {step->first,
                                  DISTI_IN}; /* of blocks that are all alike, one as good */
    if (!disti_collective_uneven(plan->collective))
        return disti_chunks_extent(plan, &layouts[ref.space], ref.chunk, step->chunks, NULL);
    if (step->kind != DISTI_SEND && step->dst.space != DISTI_SCRATCH)
        ref = step->dst;
    else if (step->kind != DISTI_RECV && step->src.space != DISTI_SCRATCH)
        ref = step->src;
    else if (!disti_plan_locate(plan, DISTI_IN, step->first, &ref))
        disti_plan_locate(plan, DISTI_OUT, step->first, &ref);
    return disti_chunks_extent(plan, &layouts[ref.space], ref.chunk, step->chunks, NULL);
}

size_t disti_slot_elements(const struct disti_plan *plan, const struct disti_layout layouts[2])
{
    size_t most = 0;
    for (uint8_t space = DISTI_IN; space <= DISTI_OUT; space++) {
        uint32_t blocks = disti_plan_blocks(plan, space);
        for (uint32_t b = 0; b < blocks; b++) {
            const struct disti_layout *layout = &layouts[space];
            size_t count = layout->counts ? layout->counts[b] : layout->count;
            most = count > most ? count : most;
            if (!layout->counts)
                break; /* they are all alike */
        }
    }
    return most / plan->chunks + (most % plan->chunks != 0);
}
