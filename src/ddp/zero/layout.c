/* SPDX-License-Identifier: BSD-3-Clause */
/* Where parameters lie, and which rank owns what of them. */
#include "zero.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/log.h"

enum { ZERO_FIRST_BUCKET = 1 << 20, ZERO_BUCKET = 25 << 20 };

/* Shares begin on cache lines, which so have one owner. In elements. */
#define ZERO_LINE ((size_t)64 / sizeof(float))

/* One after the other. False: they are larger than any memory. */
static bool layout_place(struct dist_zero *zero)
{
    const size_t most = PTRDIFF_MAX / sizeof(float) / (DIST_ZERO_STATE_MAX + 2);

    for (int i = 0; i < zero->count; i++) {
        zero->parameters[i].at = zero->elements;
        if (!disti_add(zero->elements, zero->parameters[i].count, &zero->elements) ||
            zero->elements > most)
            return false;
    }
    return true;
}

/* From the last parameter on: a bucket ends with the gradient that reaches its bytes. */
static void layout_divide(struct dist_zero *zero)
{
    const size_t first = zero->options.first_bucket_bytes, others = zero->options.bucket_bytes;
    size_t limit = first ? first : ZERO_FIRST_BUCKET, end = zero->elements;
    int last = zero->count - 1;

    for (int i = last; i >= 0; i--) {
        const size_t at = zero->parameters[i].at;

        zero->parameters[i].bucket = zero->bucket_count;
        if ((end - at) * sizeof(float) < limit && i > 0)
            continue;
        zero->buckets[zero->bucket_count++] = (struct zero_bucket){
            .at = at, .count = end - at, .first = i, .last = last, .missing = last - i + 1};
        limit = others ? others : ZERO_BUCKET;
        end = at;
        last = i - 1;
    }
}

/* Shares of whole lines of the arrays, as equal as these can be. */
static void layout_share(struct dist_zero *zero, struct zero_bucket *bucket)
{
    const size_t end = bucket->at + bucket->count, world = (size_t)zero->world;
    const size_t line = bucket->at / ZERO_LINE, lines = (end + ZERO_LINE - 1) / ZERO_LINE - line;
    size_t begin = bucket->at;

    for (size_t r = 0; r < world; r++) {
        /* lines * (r + 1) / world, without its product */
        const size_t upto = lines / world * (r + 1) + lines % world * (r + 1) / world;
        const size_t limit = (line + upto) * ZERO_LINE;
        const size_t past = r + 1 < world && limit < end ? limit : end;

        bucket->offsets[r] = begin - bucket->at;
        bucket->counts[r] = past > begin ? past - begin : 0;
        begin += bucket->counts[r];
    }
    bucket->owned_at = zero->owned;
    zero->owned += bucket->counts[zero->rank];
}

dist_status disti_zero_layout(struct dist_zero *zero)
{
    const size_t world = (size_t)zero->world;

    if (!layout_place(zero))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_create: the parameters are together larger than any memory");
    layout_divide(zero);
    zero->shares = calloc((size_t)zero->bucket_count * world, 2 * sizeof(*zero->shares));
    if (!zero->shares)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d buckets", zero->bucket_count);
    for (int i = 0; i < zero->bucket_count; i++) {
        zero->buckets[i].counts = zero->shares + 2 * world * (size_t)i;
        zero->buckets[i].offsets = zero->buckets[i].counts + world;
        layout_share(zero, &zero->buckets[i]);
    }
    return DIST_OK;
}

size_t disti_zero_own(const struct dist_zero *zero, const struct zero_bucket *bucket)
{
    return bucket->at + bucket->offsets[zero->rank];
}

size_t disti_zero_part(const struct dist_zero *zero, int index, int rank, size_t *first_p)
{
    const struct zero_parameter *parameter = &zero->parameters[index];
    const struct zero_bucket *bucket = &zero->buckets[parameter->bucket];
    const size_t begin = bucket->at + bucket->offsets[rank], end = begin + bucket->counts[rank];
    const size_t first = begin > parameter->at ? begin - parameter->at : 0;
    const size_t past = end > parameter->at ? end - parameter->at : 0;
    const size_t limit = past < parameter->count ? past : parameter->count;

    *first_p = first < limit ? first : 0;
    return first < limit ? limit - first : 0;
}

dist_status disti_zero_each(struct dist_zero *zero, const struct zero_bucket *bucket,
                            zero_visit_fn visit)
{
    const size_t begin = disti_zero_own(zero, bucket);
    dist_status status = DIST_OK;

    for (int i = bucket->first; i <= bucket->last; i++) {
        size_t first, left = disti_zero_part(zero, i, zero->rank, &first);

        while (left > 0 && status == DIST_OK) {
            const size_t at = zero->parameters[i].at + first;
            const struct zero_block block = {.parameter = i,
                                             .first = first,
                                             .count = left < ZERO_BLOCK ? left : ZERO_BLOCK,
                                             .at = at,
                                             .owned_at = bucket->owned_at + (at - begin)};

            status = visit(zero, &block);
            first += block.count;
            left -= block.count;
        }
    }
    return status;
}
