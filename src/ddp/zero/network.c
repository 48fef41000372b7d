/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks of several machines: buckets are reduced to their owners, and gathered when updated. */
#include "zero.h"

#include "base/clock.h"

static dist_status network_reduce(struct dist_zero *zero, struct zero_bucket *bucket)
{
    return dist_reduce_scatter_v_async(
        zero->group, zero->gradients + bucket->at, zero->gradients + disti_zero_own(zero, bucket),
        bucket->counts, DIST_FLOAT32, zero->options.sum ? DIST_SUM : DIST_AVG, &bucket->work);
}

static dist_status network_gather(struct dist_zero *zero, struct zero_bucket *bucket)
{
    return dist_all_gather_v_async(zero->group, zero->values + disti_zero_own(zero, bucket),
                                   zero->values + bucket->at, bucket->counts, bucket->offsets,
                                   DIST_FLOAT32, &bucket->work);
}

/* Buckets start in their order on every rank. The first that moves is looked at for programs
 * without a progress thread. */
static dist_status network_start(struct dist_zero *zero)
{
    dist_status status = DIST_OK;
    bool done;

    while (zero->next < zero->bucket_count && zero->buckets[zero->next].missing == 0 &&
           status == DIST_OK)
        status = network_reduce(zero, &zero->buckets[zero->next++]);
    if (status == DIST_OK && zero->next > 0)
        status = dist_test(zero->buckets[0].work, &done);
    return status;
}

static dist_status network_square(struct dist_zero *zero, const struct zero_block *block)
{
    disti_zero_square(zero, zero->gradients + block->at, block->count);
    return DIST_OK;
}

static dist_status network_update(struct dist_zero *zero, const struct zero_block *block)
{
    return disti_zero_update(zero, block, zero->gradients + block->at);
}

static dist_status network_work(struct dist_zero *zero, const struct zero_bucket *bucket,
                                zero_visit_fn visit)
{
    const int64_t began = disti_now_ns();
    dist_status status = disti_zero_each(zero, bucket, visit);

    zero->stats.worked += (double)(disti_now_ns() - began) * 1e-9;
    return status;
}

/* Every gradient has to be there before the first may be scaled. */
static dist_status network_clip(struct dist_zero *zero)
{
    dist_status status = DIST_OK;

    for (int i = 0; i < zero->bucket_count && status == DIST_OK; i++) {
        status = disti_zero_wait(zero, &zero->buckets[i]);
        if (status == DIST_OK)
            status = network_work(zero, &zero->buckets[i], network_square);
    }
    return status == DIST_OK ? disti_zero_clip(zero) : status;
}

/* A bucket's parameters travel while the next is updated. */
static dist_status network_finish(struct dist_zero *zero)
{
    dist_status status = zero->options.max_norm > 0.0 ? network_clip(zero) : DIST_OK;

    for (int i = 0; i < zero->bucket_count && status == DIST_OK; i++) {
        status = disti_zero_wait(zero, &zero->buckets[i]);
        if (status == DIST_OK)
            status = network_work(zero, &zero->buckets[i], network_update);
        if (status == DIST_OK)
            status = network_gather(zero, &zero->buckets[i]);
    }
    for (int i = 0; i < zero->bucket_count && status == DIST_OK; i++)
        status = disti_zero_wait(zero, &zero->buckets[i]);
    return status;
}

static dist_status network_sync(struct dist_zero *zero)
{
    return dist_broadcast(zero->group, zero->values, zero->elements, DIST_FLOAT32, 0);
}

const struct zero_form disti_zero_network = {
    .start = network_start, .finish = network_finish, .sync = network_sync};
