/* SPDX-License-Identifier: BSD-3-Clause */
/* Values, gradients and state: on one machine the values are there once. */
#include "zero.h"

#include <stdlib.h>

#include "base/log.h"

/* Levels of a sum over ranks, and the block itself: no machine has 2^24 ranks. */
#define ZERO_TILES 25

/* Elements from the values to the gradients, where both are in one allocation: whole lines. */
static size_t memory_apart(const struct dist_zero *zero)
{
    return (zero->elements + 15) / 16 * 16;
}

/*
 *     part of rank 0   | values | gradients |
 *     part of rank 1            | gradients |
 *     part of rank 2            | gradients |
 */
static dist_status memory_share(struct dist_zero *zero)
{
    const size_t bytes = memory_apart(zero) * sizeof(float);
    const bool tried = disti_log_trying(true);
    dist_status status =
        dist_shared_alloc(zero->group, zero->rank == 0 ? 2 * bytes : bytes, zero->parts);

    disti_log_trying(tried);
    if (status != DIST_OK)
        return status;
    zero->form = &disti_zero_machine;
    zero->values = zero->parts[0];
    for (int r = 0; r < zero->world; r++)
        zero->peers[r] = (float *)zero->parts[r] + (r == 0 ? memory_apart(zero) : 0);
    zero->gradients = zero->peers[zero->rank];
    return DIST_OK;
}

static dist_status memory_own(struct dist_zero *zero)
{
    dist_status status = dist_alloc(NULL, 2 * memory_apart(zero) * sizeof(float), &zero->memory);

    if (status != DIST_OK)
        return status;
    zero->form = &disti_zero_network;
    zero->values = zero->memory;
    zero->gradients = zero->values + memory_apart(zero);
    return DIST_OK;
}

static dist_status memory_state(struct dist_zero *zero)
{
    const size_t bytes = zero->owned * (size_t)zero->options.state_floats * sizeof(float);
    void *state;
    dist_status status = dist_alloc(NULL, bytes, &state);

    if (status == DIST_OK)
        zero->state = state;
    return status;
}

dist_status disti_zero_lists(struct dist_zero *zero)
{
    zero->parts = calloc((size_t)zero->world, sizeof(*zero->parts));
    zero->peers = (float **)calloc((size_t)zero->world, sizeof(*zero->peers));
    zero->tiles = malloc(sizeof(float) * ZERO_TILES * ZERO_BLOCK);
    if (!zero->parts || !zero->peers || !zero->tiles)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for addresses of %d ranks", zero->world);
    return DIST_OK;
}

dist_status disti_zero_memory(struct dist_zero *zero)
{
    dist_status status = memory_share(zero);

    if (status == DIST_ERR_UNSUPPORTED)
        status = memory_own(zero);
    return status == DIST_OK ? memory_state(zero) : status;
}

void disti_zero_memory_free(struct dist_zero *zero)
{
    if (zero->form == &disti_zero_machine)
        dist_shared_free(zero->parts[zero->rank]);
    dist_free(NULL, zero->memory);
    dist_free(NULL, zero->state);
    free(zero->parts);
    free((void *)zero->peers);
    free(zero->tiles);
}
