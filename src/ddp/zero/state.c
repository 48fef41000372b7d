/* SPDX-License-Identifier: BSD-3-Clause */
/* The state of a whole parameter, gathered from its owners and scattered to them. */
#include "zero.h"

#include <stdlib.h>

#include "base/log.h"

/* What each rank has of a parameter, for the root. */
struct state_parts {
    size_t *counts, *offsets;
};

static dist_status state_check(const struct dist_zero *zero, const char *call, int index, int which,
                               const float *values, int root)
{
    dist_status status = disti_zero_check_between(zero, call);

    if (status != DIST_OK)
        return status;
    if (index < 0 || index >= zero->count)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: there is no parameter %d, of %d", call,
                          index, zero->count);
    if (which < 0 || which >= zero->options.state_floats)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s: there is no number %d of an element's state, which has %d", call,
                          which, zero->options.state_floats);
    if (root < 0 || root >= zero->world)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: there is no rank %d, of %d", call, root,
                          zero->world);
    if (zero->rank == root && !values)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: values is NULL at root", call);
    return DIST_OK;
}

/* The caller frees what it has, whatever the status. */
static dist_status state_divide(const struct dist_zero *zero, int index, struct state_parts *parts)
{
    parts->counts = calloc((size_t)zero->world, sizeof(*parts->counts));
    parts->offsets = calloc((size_t)zero->world, sizeof(*parts->offsets));
    if (!parts->counts || !parts->offsets)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for the parts of %d ranks", zero->world);
    for (int r = 0; r < zero->world; r++)
        parts->counts[r] = disti_zero_part(zero, index, r, &parts->offsets[r]);
    return DIST_OK;
}

static void state_free(struct state_parts *parts)
{
    free(parts->counts);
    free(parts->offsets);
}

/* This rank's elements of it. */
static float *state_own(const struct dist_zero *zero, int index, int which)
{
    const struct zero_parameter *parameter = &zero->parameters[index];
    const struct zero_bucket *bucket = &zero->buckets[parameter->bucket];
    float *array = zero->state + (size_t)which * zero->owned + bucket->owned_at;
    size_t first;

    if (disti_zero_part(zero, index, zero->rank, &first) == 0)
        return array;
    return array + (parameter->at + first - disti_zero_own(zero, bucket));
}

dist_status dist_zero_gather_state(dist_zero *zero, int index, int which, float *values, int root)
{
    dist_status status = state_check(zero, "dist_zero_gather_state", index, which, values, root);
    struct state_parts parts;

    if (status != DIST_OK)
        return status;
    status = state_divide(zero, index, &parts);
    if (status == DIST_OK)
        status = dist_gather_v(zero->group, state_own(zero, index, which), parts.counts[zero->rank],
                               values, parts.counts, parts.offsets, DIST_FLOAT32, root);
    state_free(&parts);
    return status == DIST_OK ? DIST_OK : disti_zero_fail(zero, status);
}

dist_status dist_zero_scatter_state(dist_zero *zero, int index, int which, const float *values,
                                    int root)
{
    dist_status status = state_check(zero, "dist_zero_scatter_state", index, which, values, root);
    struct state_parts parts;

    if (status != DIST_OK)
        return status;
    status = state_divide(zero, index, &parts);
    if (status == DIST_OK)
        status = dist_scatter_v(zero->group, values, parts.counts, parts.offsets,
                                state_own(zero, index, which), parts.counts[zero->rank],
                                DIST_FLOAT32, root);
    state_free(&parts);
    return status == DIST_OK ? DIST_OK : disti_zero_fail(zero, status);
}
