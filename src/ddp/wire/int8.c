/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gradients in 8 bits, INT8_BLOCK of which share a scale: about a quarter of the bytes. What
 * rounding takes from a step is added to the next one, on both ways (error feedback: Seide et al.,
 * "1-bit stochastic gradient descent and its application to data-parallel distributed training of
 * speech DNNs", Interspeech 2014).
 *
 *     stage 0   every rank encodes its gradients, a chunk for each rank      all_to_all
 *     stage 1   every rank adds its chunk of all ranks up, encodes the sum   all_gather
 *     stage 2   every rank decodes all chunks
 */
#include <float.h>
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/kernels/environment.h"
#include "base/log.h"
#include "ddp/ddp.h"
#include "pieces.h"

enum {
    INT8_BLOCK = 256,
    INT8_MOST = 127,
    INT8_NONE = -128 /* stands for what is no finite number */
};

struct int8_block {
    float scale;
    int8_t values[INT8_BLOCK];
};

/* A bucket's memory. Chunks are whole blocks; what is behind the last gradient is zero. */
struct int8_memory {
    size_t blocks;             /* of a chunk */
    float *rest;               /* of all chunks: what this rank has to send, then what it did not */
    float *sum_rest;           /* of this rank's chunk, the same of the sum */
    struct int8_block *sent;   /* a chunk for each rank */
    struct int8_block *gotten; /* a chunk of each rank */
};

static size_t int8_blocks(const struct dist_ddp *ddp, const struct ddp_bucket *bucket)
{
    const size_t world = (size_t)ddp->world, chunk = (bucket->shape.count + world - 1) / world;

    return (chunk + INT8_BLOCK - 1) / INT8_BLOCK;
}

/*
 * One allocation. The collectives see only the blocks, but all ranks' memory is alike. Host memory,
 * whatever the backend would allocate.
 */
static dist_status int8_open(struct dist_ddp *ddp, struct ddp_bucket *bucket)
{
    const size_t blocks = int8_blocks(ddp, bucket), all = blocks * (size_t)ddp->world;
    const size_t floats = (all + blocks) * INT8_BLOCK;
    struct int8_memory *memory;
    dist_status status = dist_alloc(
        NULL, sizeof(*memory) + 2 * all * sizeof(struct int8_block) + floats * sizeof(float),
        &bucket->wire);

    if (status != DIST_OK)
        return status;
    memory = bucket->wire;
    memory->blocks = blocks;
    memory->sent = (struct int8_block *)(memory + 1);
    memory->gotten = memory->sent + all;
    memory->rest = (float *)(memory->gotten + all);
    memory->sum_rest = memory->rest + all * INT8_BLOCK;
    return DIST_OK;
}

static void int8_close(struct dist_ddp *ddp, struct ddp_bucket *bucket)
{
    (void)ddp;
    dist_free(NULL, bucket->wire);
}

/* 0 where its inverse would be infinite: then all of the block is left for later. */
static float int8_scale(const float *values)
{
    float most = 0.0f;

    for (int i = 0; i < INT8_BLOCK; i++) {
        float size = fabsf(values[i]);

        most = size > most && isfinite(size) ? size : most;
    }
    return most / INT8_MOST >= FLT_MIN ? most / INT8_MOST : 0.0f;
}

/* values keeps what rounding took: nothing of what is no finite number. */
static void int8_encode(float *values, struct int8_block *block)
{
    const float scale = int8_scale(values), inverse = scale > 0.0f ? 1.0f / scale : 0.0f;

    block->scale = scale;
    for (int i = 0; i < INT8_BLOCK; i++) {
        if (isfinite(values[i])) {
            float rounded = rintf(values[i] * inverse);

            rounded = rounded > INT8_MOST ? INT8_MOST : rounded < -INT8_MOST ? -INT8_MOST : rounded;
            block->values[i] = (int8_t)rounded;
            values[i] -= rounded * scale;
        } else {
            block->values[i] = INT8_NONE;
            values[i] = 0.0f;
        }
    }
}

static float int8_value(const struct int8_block *block, int i)
{
    return block->values[i] == INT8_NONE ? NAN : (float)block->values[i] * block->scale;
}

/* Adds this rank's gradients to what is left of the step before, and encodes all of it. */
static void int8_send(const struct dist_ddp *ddp, const struct ddp_bucket *bucket)
{
    const struct int8_memory *memory = bucket->wire;
    const float factor = ddp->options.sum ? 1.0f : 1.0f / (float)ddp->world;
    struct pieces pieces = {.bucket = &bucket->shape};
    float *rest = memory->rest, *run;

    for (size_t count; (count = pieces_next(&pieces, SIZE_MAX, &run)) > 0; rest += count)
        for (size_t i = 0; i < count; i++)
            rest[i] += run[i] * factor;
    for (size_t b = 0; b < memory->blocks * (size_t)ddp->world; b++)
        int8_encode(memory->rest + b * INT8_BLOCK, &memory->sent[b]);
}

/* This rank's chunk of all ranks, in the order of the ranks. */
static void int8_add(const struct dist_ddp *ddp, const struct int8_memory *memory)
{
    for (size_t b = 0; b < memory->blocks; b++) {
        float *sum = memory->sum_rest + b * INT8_BLOCK;

        for (size_t rank = 0; rank < (size_t)ddp->world; rank++)
            for (int i = 0; i < INT8_BLOCK; i++)
                sum[i] += int8_value(&memory->gotten[rank * memory->blocks + b], i);
        int8_encode(sum, &memory->sent[b]);
    }
}

static void int8_receive(const struct ddp_bucket *bucket)
{
    const struct int8_memory *memory = bucket->wire;
    const struct int8_block *block = memory->gotten;
    struct pieces pieces = {.bucket = &bucket->shape};
    int at = 0;
    float *run;

    for (size_t count; (count = pieces_next(&pieces, SIZE_MAX, &run)) > 0;)
        for (size_t i = 0; i < count; i++) {
            run[i] = int8_value(block, at);
            at = (at + 1) % INT8_BLOCK;
            block += at == 0;
        }
}

/* The arithmetic of a stage. */
static void int8_compute(const struct dist_ddp *ddp, const struct ddp_bucket *bucket, int stage)
{
    const disti_environment saved = disti_environment_enter();

    if (stage == 0)
        int8_send(ddp, bucket);
    else if (stage == 1)
        int8_add(ddp, bucket->wire);
    else
        int8_receive(bucket);
    disti_environment_leave(saved);
}

static dist_status int8_next(struct dist_ddp *ddp, struct ddp_bucket *bucket, int stage,
                             dist_work **work_p)
{
    const struct int8_memory *memory = bucket->wire;
    const size_t bytes = memory->blocks * sizeof(struct int8_block);

    int8_compute(ddp, bucket, stage);
    switch (stage) {
    case 0:
        return dist_all_to_all_async(ddp->stages[0], memory->sent, memory->gotten, bytes,
                                     DIST_UINT8, work_p);
    case 1:
        return dist_all_gather_async(ddp->stages[1], memory->sent, memory->gotten, bytes,
                                     DIST_UINT8, work_p);
    default:
        return DIST_OK;
    }
}

const struct ddp_wire disti_wire_int8 = {
    .name = "int8", .stages = 2, .open = int8_open, .close = int8_close, .next = int8_next};
