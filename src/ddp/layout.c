/* SPDX-License-Identifier: BSD-3-Clause */
/* Which gradients travel together. */
#include "ddp.h"

#include <stdlib.h>

#include "base/log.h"

/* Makes the bucket's last piece longer, if the gradient lies at either end of it. */
static bool ddp_bucket_extend(const struct dist_ddp *ddp, void **piece, size_t *count,
                              char *gradient, size_t span)
{
    const size_t element = dist_dtype_size(ddp->options.dtype);

    if (ddp->scattered)
        return false;
    if (gradient + span * element == *piece)
        *piece = gradient;
    else if ((char *)*piece + *count * element != gradient)
        return false;
    *count += span;
    return true;
}

static void ddp_bucket_append(const struct dist_ddp *ddp, struct dist_ddp_bucket *shape,
                              void **pieces, size_t *counts, const struct ddp_parameter *parameter)
{
    const size_t span = disti_ddp_span(ddp, parameter);
    const int last = shape->piece_count - 1;

    if (last < 0 ||
        !ddp_bucket_extend(ddp, &pieces[last], &counts[last], parameter->gradient, span)) {
        pieces[shape->piece_count] = parameter->gradient;
        counts[shape->piece_count++] = span;
    }
    shape->count += span;
}

/* The pieces of a bucket, whose gradients are known. */
static dist_status ddp_bucket_shape(struct dist_ddp *ddp, struct ddp_bucket *bucket)
{
    const size_t n = (size_t)bucket->count;
    void **pieces = calloc(n, sizeof(*pieces));
    size_t *counts = calloc(n, sizeof(*counts));

    bucket->shape = (struct dist_ddp_bucket){.index = (int)(bucket - ddp->buckets),
                                             .dtype = ddp->options.dtype,
                                             .pieces = pieces,
                                             .counts = counts};
    if (!pieces || !counts)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a bucket of %zu gradients", n);
    for (int i = bucket->first; i < bucket->first + bucket->count; i++) {
        struct ddp_parameter *parameter = &ddp->parameters[ddp->order[i]];

        parameter->bucket = bucket->shape.index;
        ddp_bucket_append(ddp, &bucket->shape, pieces, counts, parameter);
    }
    bucket->missing = bucket->count;
    return ddp->wire->open ? ddp->wire->open(ddp, bucket) : DIST_OK;
}

/* Divides the order: a bucket ends with the gradient that reaches its bytes. */
static void ddp_divide(struct dist_ddp *ddp)
{
    const size_t element = dist_dtype_size(ddp->options.dtype);
    size_t limit = ddp->options.first_bucket_bytes, bytes = 0;

    ddp->bucket_count = 0;
    for (int i = 0, first = 0; i < ddp->gradients; i++) {
        bytes += disti_ddp_span(ddp, &ddp->parameters[ddp->order[i]]) * element;
        if (bytes < limit && i + 1 < ddp->gradients)
            continue;
        ddp->buckets[ddp->bucket_count++] =
            (struct ddp_bucket){.state = DDP_FILLING, .first = first, .count = i + 1 - first};
        first = i + 1;
        bytes = 0;
        limit = ddp->options.bucket_bytes;
    }
    ddp->next = 0;
}

dist_status disti_ddp_buckets_make(struct dist_ddp *ddp)
{
    dist_status status = DIST_OK;

    ddp_divide(ddp);
    for (int i = 0; i < ddp->bucket_count && status == DIST_OK; i++)
        status = ddp_bucket_shape(ddp, &ddp->buckets[i]);
    ddp->stats.buckets = ddp->bucket_count;
    return status;
}

void disti_ddp_buckets_free(struct dist_ddp *ddp)
{
    for (int i = 0; i < ddp->bucket_count; i++) {
        struct ddp_bucket *bucket = &ddp->buckets[i];

        if (ddp->wire->close)
            ddp->wire->close(ddp, bucket);
        free((void *)bucket->shape.pieces);
        free((void *)bucket->shape.counts);
    }
    ddp->bucket_count = 0;
}
