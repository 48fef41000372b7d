/* SPDX-License-Identifier: BSD-3-Clause */
/* Where gradients are, and which of them travel together. */
#include "ddp.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/log.h"

/* Each gradient begins on a cache line, and a bucket has no gaps: what is between is zero. */
#define DDP_ALIGN ((size_t)64)

static bool ddp_padded(size_t count, size_t element, size_t *bytes_p)
{
    if (!disti_mul(count, element, bytes_p) || !disti_add(*bytes_p, DDP_ALIGN - 1, bytes_p))
        return false;
    *bytes_p &= ~(DDP_ALIGN - 1);
    return true;
}

/* Bytes of all gradients that have no memory yet. False: no machine has so many. */
static bool ddp_place_bytes(const struct dist_ddp *ddp, size_t *bytes_p)
{
    size_t bytes;

    *bytes_p = 0;
    for (int i = 0; i < ddp->count; i++)
        if (ddp->parameters[i].own &&
            (!ddp_padded(ddp->parameters[i].count, dist_dtype_size(ddp->options.dtype), &bytes) ||
             !disti_add(*bytes_p, bytes, bytes_p)))
            return false;
    return true;
}

dist_status disti_ddp_place(struct dist_ddp *ddp, dist_group *group)
{
    size_t bytes, at = 0;
    dist_status status;

    if (!ddp_place_bytes(ddp, &bytes))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_create: the gradients of %d "
                          "parameters are larger than any memory",
                          ddp->count);
    status = dist_alloc(group, bytes, &ddp->memory);
    if (status != DIST_OK)
        return status;
    ddp->gradients = 0;
    for (int i = ddp->count - 1; i >= 0; i--) {
        struct ddp_parameter *parameter = &ddp->parameters[i];

        if (parameter->own) {
            parameter->gradient = (char *)ddp->memory + at;
            ddp_padded(parameter->count, dist_dtype_size(ddp->options.dtype), &bytes);
            at += bytes;
        }
        if (parameter->gradient)
            ddp->order[ddp->gradients++] = i;
    }
    return DIST_OK;
}

/* Elements up to where the next gradient of ours begins; of the program's memory just its own. */
static size_t ddp_span(const struct dist_ddp *ddp, const struct ddp_parameter *parameter)
{
    const size_t element = dist_dtype_size(ddp->options.dtype);
    size_t bytes;

    if (!parameter->own)
        return parameter->count;
    ddp_padded(parameter->count, element, &bytes);
    return bytes / element;
}

/* Appends a gradient to the bucket's last piece if it begins where that ends, else as a new one. */
static void ddp_bucket_append(const struct dist_ddp *ddp, struct dist_ddp_bucket *shape,
                              void **pieces, size_t *counts, const struct ddp_parameter *parameter)
{
    const size_t element = dist_dtype_size(ddp->options.dtype), span = ddp_span(ddp, parameter);
    const int last = shape->piece_count - 1;

    if (last >= 0 && (char *)pieces[last] + counts[last] * element == parameter->gradient) {
        counts[last] += span;
    } else {
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
        bytes += ddp_span(ddp, &ddp->parameters[ddp->order[i]]) * element;
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
