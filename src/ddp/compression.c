/* SPDX-License-Identifier: BSD-3-Clause */
/* Compressions: the formats in which gradients are sent. */
#include "base/kernels/environment.h"
#include "base/kernels/half.h"
#include "base/log.h"
#include "ddp/ddp.h"

#include <dist/ddp.h>
#include <float.h>
#include <math.h>
#include <string.h>

/* Gradients rounded to float16 or bfloat16: half the bytes. */

/* Allocates host memory, whatever the backend would allocate: the CPU reads and writes it. */
static dist_status half_open(struct dist_ddp *ddp, struct ddp_bucket *bucket)
{
    (void)ddp;
    return dist_alloc(NULL, bucket->shape.count * sizeof(uint16_t), &bucket->compressed);
}

static void compressed_free(struct dist_ddp *ddp, struct ddp_bucket *bucket)
{
    (void)ddp;
    dist_free(NULL, bucket->compressed);
}

static dist_status half_next(struct dist_ddp *ddp, struct ddp_bucket *bucket, int stage,
                             dist_work **work_p)
{
    const dist_dtype dtype =
        ddp->options.wire == DIST_DDP_WIRE_FLOAT16 ? DIST_FLOAT16 : DIST_BFLOAT16;
    const struct dist_ddp_bucket *shape = &bucket->shape;
    const disti_environment saved = disti_environment_enter();
    /* Divide before the sum, so that a sum does not overflow if the mean is finite. */
    const float factor = ddp->options.sum ? 1.0f : 1.0f / (float)ddp->world;
    uint16_t *half = bucket->compressed;

    for (int p = 0; p < shape->piece_count; half += shape->counts[p++]) {
        float *full = shape->pieces[p];
        const size_t count = shape->counts[p];

        if (stage == 0 && dtype == DIST_FLOAT16)
            for (size_t i = 0; i < count; i++)
                half[i] = disti_float16_from_float(full[i] * factor);
        else if (stage == 0)
            for (size_t i = 0; i < count; i++)
                half[i] = disti_bfloat16_from_float(full[i] * factor);
        else if (dtype == DIST_FLOAT16)
            for (size_t i = 0; i < count; i++)
                full[i] = disti_float16_to_float(half[i]);
        else
            for (size_t i = 0; i < count; i++)
                full[i] = disti_bfloat16_to_float(half[i]);
    }
    disti_environment_leave(saved);
    if (stage > 0)
        return DIST_OK;
    return dist_all_reduce_async(ddp->stages[0], bucket->compressed, bucket->compressed,
                                 bucket->shape.count, dtype, DIST_SUM, work_p);
}

/* No compression: the gradients themselves, reduced in place. */

static dist_op same_op(const struct dist_ddp *ddp)
{
    return ddp->options.sum ? DIST_SUM : DIST_AVG;
}

/* Prepares a persistent request for a bucket of one piece, which is the usual case. */
static dist_status same_open(struct dist_ddp *ddp, struct ddp_bucket *bucket)
{
    const struct dist_ddp_bucket *shape = &bucket->shape;

    if (shape->piece_count != 1)
        return DIST_OK;
    return dist_all_reduce_init(ddp->stages[0], shape->pieces[0], shape->pieces[0], shape->count,
                                shape->dtype, same_op(ddp), (dist_work **)&bucket->compressed);
}

static void same_close(struct dist_ddp *ddp, struct ddp_bucket *bucket)
{
    (void)ddp;
    dist_work_free(bucket->compressed);
}

static dist_status same_next(struct dist_ddp *ddp, struct ddp_bucket *bucket, int stage,
                             dist_work **work_p)
{
    const struct dist_ddp_bucket *shape = &bucket->shape;
    dist_status status;

    if (stage > 0)
        return DIST_OK;
    if (!bucket->compressed)
        return dist_all_reduce_coalesced_async(ddp->stages[0], shape->pieces, shape->counts,
                                               shape->piece_count, shape->dtype, same_op(ddp),
                                               work_p);
    status = dist_start(bucket->compressed);
    if (status == DIST_OK)
        *work_p = bucket->compressed;
    return status;
}

/*
 * Gradients in 8 bits; INT8_BLOCK of them share a scale: about a quarter of the bytes. The rounding
 * error of a step is added to the next step, in both directions (error feedback: Seide et al.,
 * "1-bit stochastic gradient descent and its application to data-parallel distributed training of
 * speech DNNs", Interspeech 2014).
 *
 *     stage 0   every rank encodes its gradients, one chunk per rank                    all_to_all
 *     stage 1   every rank sums its chunk over all ranks and encodes the sum            all_gather
 *     stage 2   every rank decodes all chunks
 */

enum {
    INT8_BLOCK = 256,
    INT8_LIMIT = 127,
    INT8_NOT_FINITE = -128 /* encodes infinities and NaN */
};

struct int8_block {
    float scale;
    int8_t values[INT8_BLOCK];
};

/*
 * Memory of a bucket. A chunk consists of whole blocks; elements after the last gradient are zero.
 */
struct int8_memory {
    size_t blocks;               /* number of blocks of a chunk */
    float *error;                /* all chunks: the values to send, then their rounding errors */
    float *sum_error;            /* this rank's chunk: the sum, then its rounding errors */
    struct int8_block *sent;     /* one chunk for each rank */
    struct int8_block *received; /* one chunk from each rank */
};

/*
 * Allocates host memory once, whatever the backend would allocate. The collectives access only the
 * blocks, but the layout is equal on all ranks.
 */
static dist_status int8_open(struct dist_ddp *ddp, struct ddp_bucket *bucket)
{
    const size_t world = (size_t)ddp->world, chunk = (bucket->shape.count + world - 1) / world;
    const size_t blocks = (chunk + INT8_BLOCK - 1) / INT8_BLOCK, all = blocks * world;
    const size_t floats = (all + blocks) * INT8_BLOCK;
    struct int8_memory *memory;
    dist_status status = dist_alloc(
        NULL, sizeof(*memory) + 2 * all * sizeof(struct int8_block) + floats * sizeof(float),
        &bucket->compressed);

    if (status != DIST_OK)
        return status;
    memory = bucket->compressed;
    memory->blocks = blocks;
    memory->sent = (struct int8_block *)(memory + 1);
    memory->received = memory->sent + all;
    memory->error = (float *)(memory->received + all);
    memory->sum_error = memory->error + all * INT8_BLOCK;
    return DIST_OK;
}

/* Encodes values, and replaces them by their rounding errors; 0 for infinities and NaN. */
static void int8_encode(float *values, struct int8_block *block)
{
    float most = 0.0f, scale, inverse;

    for (int i = 0; i < INT8_BLOCK; i++) {
        float size = fabsf(values[i]);

        most = size > most && isfinite(size) ? size : most;
    }
    /* 0 if the inverse would be infinite: then the whole block is kept for the next step. */
    scale = most / INT8_LIMIT >= FLT_MIN ? most / INT8_LIMIT : 0.0f;
    inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    block->scale = scale;
    for (int i = 0; i < INT8_BLOCK; i++) {
        if (isfinite(values[i])) {
            float rounded = rintf(values[i] * inverse);

            rounded = rounded > INT8_LIMIT    ? INT8_LIMIT
                      : rounded < -INT8_LIMIT ? -INT8_LIMIT
                                              : rounded;
            block->values[i] = (int8_t)rounded;
            values[i] -= rounded * scale;
        } else {
            block->values[i] = INT8_NOT_FINITE;
            values[i] = 0.0f;
        }
    }
}

static float int8_value(const struct int8_block *block, int i)
{
    return block->values[i] == INT8_NOT_FINITE ? NAN : (float)block->values[i] * block->scale;
}

/* Adds this rank's gradients to the rounding errors of the previous step, and encodes the sums. */
static void int8_send(const struct dist_ddp *ddp, const struct ddp_bucket *bucket)
{
    const struct int8_memory *memory = bucket->compressed;
    const float factor = ddp->options.sum ? 1.0f : 1.0f / (float)ddp->world;
    const struct dist_ddp_bucket *shape = &bucket->shape;
    float *error = memory->error;

    for (int p = 0; p < shape->piece_count; error += shape->counts[p++]) {
        const float *from = shape->pieces[p];

        for (size_t i = 0; i < shape->counts[p]; i++)
            error[i] += from[i] * factor;
    }
    for (size_t b = 0; b < memory->blocks * (size_t)ddp->world; b++)
        int8_encode(memory->error + b * INT8_BLOCK, &memory->sent[b]);
}

/* Sums this rank's chunk over all ranks, in the order of the ranks, and encodes the sum. */
static void int8_add(const struct dist_ddp *ddp, const struct int8_memory *memory)
{
    for (size_t b = 0; b < memory->blocks; b++) {
        float *sum = memory->sum_error + b * INT8_BLOCK;

        for (size_t rank = 0; rank < (size_t)ddp->world; rank++)
            for (int i = 0; i < INT8_BLOCK; i++)
                sum[i] += int8_value(&memory->received[rank * memory->blocks + b], i);
        int8_encode(sum, &memory->sent[b]);
    }
}

static void int8_receive(const struct ddp_bucket *bucket)
{
    const struct int8_memory *memory = bucket->compressed;
    const struct int8_block *block = memory->received;
    int at = 0;

    for (int p = 0; p < bucket->shape.piece_count; p++) {
        float *to = bucket->shape.pieces[p];

        for (size_t i = 0; i < bucket->shape.counts[p]; i++) {
            to[i] = int8_value(block, at);
            at = (at + 1) % INT8_BLOCK;
            block += at == 0;
        }
    }
}

static dist_status int8_next(struct dist_ddp *ddp, struct ddp_bucket *bucket, int stage,
                             dist_work **work_p)
{
    const struct int8_memory *memory = bucket->compressed;
    const size_t bytes = memory->blocks * sizeof(struct int8_block);
    const disti_environment saved = disti_environment_enter();

    if (stage == 0)
        int8_send(ddp, bucket);
    else if (stage == 1)
        int8_add(ddp, memory);
    else
        int8_receive(bucket);
    disti_environment_leave(saved);
    switch (stage) {
    case 0:
        return dist_all_to_all_async(ddp->stages[0], memory->sent, memory->received, bytes,
                                     DIST_UINT8, work_p);
    case 1:
        return dist_all_gather_async(ddp->stages[1], memory->sent, memory->received, bytes,
                                     DIST_UINT8, work_p);
    default:
        return DIST_OK;
    }
}

/* The program's hook. */

static dist_status hook_next(struct dist_ddp *ddp, struct ddp_bucket *bucket, int stage,
                             dist_work **work_p)
{
    dist_group *group = stage < ddp->stage_count ? ddp->stages[stage] : NULL;
    const unsigned failures = disti_failures();
    dist_status status =
        ddp->options.hook(ddp->options.hook_arg, group, &bucket->shape, stage, work_p);

    if (!group && (*work_p || status != DIST_OK))
        return disti_fail(status == DIST_OK ? DIST_ERR_INVALID_ARGUMENT : status,
                          "rank %d: the hook tried to start an operation in stage %d: set "
                          "hook_stages in the options to %d",
                          ddp->rank, stage, stage + 1);
    /* If the hook has not set an error itself, sets one. */
    if (status != DIST_OK && failures == disti_failures())
        return disti_fail(status, "rank %d: the hook returned \"%s\" for bucket %d in stage %d",
                          ddp->rank, dist_status_string(status), bucket->shape.index, stage);
    return status;
}

/* The table of compressions. */

static const struct ddp_compression compressions[] = {
    [DIST_DDP_WIRE_SAME] = {1, same_open, same_close, same_next},
    [DIST_DDP_WIRE_FLOAT16] = {1, half_open, compressed_free, half_next},
    [DIST_DDP_WIRE_BFLOAT16] = {1, half_open, compressed_free, half_next},
    [DIST_DDP_WIRE_INT8] = {2, int8_open, compressed_free, int8_next},
};

const struct ddp_compression *disti_ddp_compression(const struct dist_ddp_options *options)
{
    static const struct ddp_compression hook = {.next = hook_next};

    return options->hook ? &hook : &compressions[options->wire];
}
