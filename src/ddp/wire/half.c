/* SPDX-License-Identifier: BSD-3-Clause */
/* Gradients rounded to float16 or bfloat16: half the bytes. */
#include "base/kernels/half.h"
#include "base/checked.h"
#include "base/kernels/environment.h"
#include "base/log.h"
#include "ddp/ddp.h"
#include "pieces.h"

/* Host memory, whatever the backend would allocate: the host reads and writes it. */
static dist_status half_open(struct dist_ddp *ddp, struct ddp_bucket *bucket)
{
    (void)ddp;
    return dist_alloc(NULL, bucket->shape.count * sizeof(uint16_t), &bucket->wire);
}

static void half_close(struct dist_ddp *ddp, struct ddp_bucket *bucket)
{
    (void)ddp;
    dist_free(NULL, bucket->wire);
}

/* Divided before they are added up, so that a sum stays finite where the mean does. */
static float half_factor(const struct dist_ddp *ddp)
{
    return ddp->options.sum ? 1.0f : 1.0f / (float)ddp->world;
}

static void half_to_float16(uint16_t *to, const float *from, size_t count, float factor)
{
    for (size_t i = 0; i < count; i++)
        to[i] = disti_float16_from_float(from[i] * factor);
}

static void half_to_bfloat16(uint16_t *to, const float *from, size_t count, float factor)
{
    for (size_t i = 0; i < count; i++)
        to[i] = disti_bfloat16_from_float(from[i] * factor);
}

static void half_from_float16(float *to, const uint16_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = disti_float16_to_float(from[i]);
}

static void half_from_bfloat16(float *to, const uint16_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = disti_bfloat16_to_float(from[i]);
}

static void half_encode(const struct dist_ddp *ddp, const struct ddp_bucket *bucket,
                        dist_dtype dtype)
{
    struct pieces pieces = {.bucket = &bucket->shape};
    uint16_t *to = bucket->wire;
    float *run;
    const disti_environment saved = disti_environment_enter();

    for (size_t count; (count = pieces_next(&pieces, SIZE_MAX, &run)) > 0; to += count)
        (dtype == DIST_FLOAT16 ? half_to_float16 : half_to_bfloat16)(to, run, count,
                                                                     half_factor(ddp));
    disti_environment_leave(saved);
}

static void half_decode(const struct ddp_bucket *bucket, dist_dtype dtype)
{
    struct pieces pieces = {.bucket = &bucket->shape};
    const uint16_t *from = bucket->wire;
    float *run;
    const disti_environment saved = disti_environment_enter();

    for (size_t count; (count = pieces_next(&pieces, SIZE_MAX, &run)) > 0; from += count)
        (dtype == DIST_FLOAT16 ? half_from_float16 : half_from_bfloat16)(run, from, count);
    disti_environment_leave(saved);
}

static dist_status half_next(struct dist_ddp *ddp, struct ddp_bucket *bucket, int stage,
                             dist_work **work_p, dist_dtype dtype)
{
    if (stage > 0) {
        half_decode(bucket, dtype);
        return DIST_OK;
    }
    half_encode(ddp, bucket, dtype);
    return dist_all_reduce_async(ddp->stages[0], bucket->wire, bucket->wire, bucket->shape.count,
                                 dtype, DIST_SUM, work_p);
}

static dist_status float16_next(struct dist_ddp *ddp, struct ddp_bucket *bucket, int stage,
                                dist_work **work_p)
{
    return half_next(ddp, bucket, stage, work_p, DIST_FLOAT16);
}

static dist_status bfloat16_next(struct dist_ddp *ddp, struct ddp_bucket *bucket, int stage,
                                 dist_work **work_p)
{
    return half_next(ddp, bucket, stage, work_p, DIST_BFLOAT16);
}

const struct ddp_wire disti_wire_float16 = {
    .name = "float16", .stages = 1, .open = half_open, .close = half_close, .next = float16_next};
const struct ddp_wire disti_wire_bfloat16 = {
    .name = "bfloat16", .stages = 1, .open = half_open, .close = half_close, .next = bfloat16_next};
