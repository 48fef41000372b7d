/* SPDX-License-Identifier: BSD-3-Clause */
/* The gradients themselves, reduced in place. */
#include "ddp/ddp.h"

static dist_op same_op(const struct dist_ddp *ddp)
{
    return ddp->options.sum ? DIST_SUM : DIST_AVG;
}

/* A bucket of one piece, which is the usual one, is prepared once. */
static dist_status same_open(struct dist_ddp *ddp, struct ddp_bucket *bucket)
{
    const struct dist_ddp_bucket *shape = &bucket->shape;

    if (shape->piece_count != 1)
        return DIST_OK;
    return dist_all_reduce_init(ddp->stages[0], shape->pieces[0], shape->pieces[0], shape->count,
                                shape->dtype, same_op(ddp), (dist_work **)&bucket->wire);
}

static void same_close(struct dist_ddp *ddp, struct ddp_bucket *bucket)
{
    (void)ddp;
    dist_work_free(bucket->wire);
}

static dist_status same_next(struct dist_ddp *ddp, struct ddp_bucket *bucket, int stage,
                             dist_work **work_p)
{
    const struct dist_ddp_bucket *shape = &bucket->shape;
    dist_status status;

    if (stage > 0)
        return DIST_OK;
    if (!bucket->wire)
        return dist_all_reduce_coalesced_async(ddp->stages[0], shape->pieces, shape->counts,
                                               shape->piece_count, shape->dtype, same_op(ddp),
                                               work_p);
    status = dist_start(bucket->wire);
    if (status == DIST_OK)
        *work_p = bucket->wire;
    return status;
}

const struct ddp_wire disti_wire_same = {
    .name = "same", .stages = 1, .open = same_open, .close = same_close, .next = same_next};
