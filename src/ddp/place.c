/* SPDX-License-Identifier: BSD-3-Clause */
/* Where each gradient is. */
#include "ddp.h"

#include <stdlib.h>

#include "base/checked.h"
#include "base/hash.h"
#include "base/log.h"

/* Each gradient of ours begins on a cache line, with no gap before it: what is between is zero. */
#define DDP_ALIGN ((size_t)64)

static bool place_padded(size_t count, size_t element, size_t *bytes_p)
{
    if (!disti_mul(count, element, bytes_p) || !disti_add(*bytes_p, DDP_ALIGN - 1, bytes_p))
        return false;
    *bytes_p &= ~(DDP_ALIGN - 1);
    return true;
}

size_t disti_ddp_span(const struct dist_ddp *ddp, const struct ddp_parameter *parameter)
{
    const size_t element = dist_dtype_size(ddp->options.dtype);
    size_t bytes;

    if (!parameter->own)
        return parameter->count;
    place_padded(parameter->count, element, &bytes);
    return bytes / element;
}

/* Bytes of all gradients that have no memory yet. False: no machine has room for all. */
static bool place_bytes(const struct dist_ddp *ddp, size_t *bytes_p)
{
    size_t bytes, all = 0;

    *bytes_p = 0;
    for (int i = 0; i < ddp->count; i++) {
        const struct ddp_parameter *parameter = &ddp->parameters[i];

        if (!place_padded(parameter->count, dist_dtype_size(ddp->options.dtype), &bytes) ||
            !disti_add(all, bytes, &all) || all > PTRDIFF_MAX)
            return false;
        *bytes_p += parameter->own ? bytes : 0;
    }
    return true;
}

static uintptr_t place_begin(const struct ddp_parameter *parameter)
{
    return (uintptr_t)parameter->gradient;
}

static uintptr_t place_end(const struct dist_ddp *ddp, const struct ddp_parameter *parameter)
{
    return place_begin(parameter) +
           disti_ddp_span(ddp, parameter) * dist_dtype_size(ddp->options.dtype);
}

static int place_compare(const void *a, const void *b)
{
    const uintptr_t left = place_begin(*(struct ddp_parameter *const *)a);
    const uintptr_t right = place_begin(*(struct ddp_parameter *const *)b);

    return (left > right) - (left < right);
}

/* Any two may come one after the other, and in either order, once the order is that of a step. */
static void place_join(const struct dist_ddp *ddp, struct ddp_parameter *const *sorted)
{
    for (int i = 0; i < ddp->gradients; i++) {
        const bool joined =
            i + 1 < ddp->gradients && place_end(ddp, sorted[i]) == place_begin(sorted[i + 1]);

        sorted[i]->next = joined ? (int)(sorted[i + 1] - ddp->parameters) : -1;
    }
}

/* All gradients, by address. */
static dist_status place_check(struct dist_ddp *ddp, struct ddp_parameter **sorted)
{
    for (int i = 0; i < ddp->gradients; i++) {
        sorted[i] = &ddp->parameters[ddp->order[i]];
        if (place_begin(sorted[i]) % dist_dtype_size(ddp->options.dtype) != 0)
            return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                              "dist_ddp_create: the gradient of %s is not aligned to its elements",
                              sorted[i]->name);
    }
    qsort((void *)sorted, (size_t)ddp->gradients, sizeof(*sorted), place_compare);
    for (int i = 1; i < ddp->gradients; i++)
        if (place_begin(sorted[i]) < place_end(ddp, sorted[i - 1]))
            return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                              "dist_ddp_create: the gradients of %s and %s share memory: list what "
                              "they share once",
                              sorted[i - 1]->name, sorted[i]->name);
    place_join(ddp, sorted);
    return DIST_OK;
}

static void place_all(struct dist_ddp *ddp)
{
    size_t bytes, at = 0;

    ddp->gradients = 0;
    for (int i = ddp->count - 1; i >= 0; i--) {
        struct ddp_parameter *parameter = &ddp->parameters[i];

        if (parameter->own) {
            parameter->gradient = (char *)ddp->memory + at;
            place_padded(parameter->count, dist_dtype_size(ddp->options.dtype), &bytes);
            at += bytes;
        }
        if (parameter->gradient)
            ddp->order[ddp->gradients++] = i;
    }
}

dist_status disti_ddp_place(struct dist_ddp *ddp, dist_group *group)
{
    struct ddp_parameter **sorted;
    dist_status status;
    size_t bytes;

    if (!place_bytes(ddp, &bytes))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_create: %d parameters are together larger than any memory",
                          ddp->count);
    status = dist_alloc(group, bytes, &ddp->memory);
    if (status != DIST_OK)
        return status;
    place_all(ddp);
    sorted = (struct ddp_parameter **)calloc((size_t)ddp->count, sizeof(*sorted));
    status = sorted ? place_check(ddp, sorted)
                    : disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d parameters", ddp->count);
    free((void *)sorted);
    return status;
}

uint64_t disti_ddp_place_hash(const struct dist_ddp *ddp)
{
    uint64_t hash = DISTI_HASH_START;

    for (int i = 0; i < ddp->count; i++)
        if (ddp->parameters[i].gradient)
            hash =
                disti_hash_bytes(hash, &ddp->parameters[i].next, sizeof(ddp->parameters[i].next));
    return hash;
}
