/* SPDX-License-Identifier: BSD-3-Clause */
/* The order of gradients, once it is known in which one they really come. */
#include "ddp/ddp.h"

#include "base/checked.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/log.h"
#include "device/driver.h"

#include <dist/backend.h>
#include <stdlib.h>
#include <string.h>

static dist_status ddp_buckets_make(struct dist_ddp *ddp);

static void ddp_buckets_free(struct dist_ddp *ddp)
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

dist_status disti_ddp_decide_order(struct dist_ddp *ddp)
{
    dist_status status;
    int at = ddp->came_count;

    for (int i = 0; i < ddp->came_count; i++)
        ddp->parameters[ddp->came[i]].ready = true;
    for (int i = 0; i < ddp->gradients; i++)
        if (!ddp->parameters[ddp->order[i]].ready)
            ddp->came[at++] = ddp->order[i];
    for (int i = 0; i < ddp->count; i++)
        ddp->parameters[i].ready = false;
    ddp->came_count = -1;
    status = dist_broadcast(ddp->stages[0], ddp->came, (size_t)ddp->gradients, DIST_INT32, 0);
    if (status != DIST_OK ||
        memcmp(ddp->came, ddp->order, (size_t)ddp->gradients * sizeof(*ddp->order)) == 0)
        return status;
    ddp_buckets_free(ddp);
    memcpy(ddp->order, ddp->came, (size_t)ddp->gradients * sizeof(*ddp->order));
    return ddp_buckets_make(ddp);
}

/* Which gradients travel together. */

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

static size_t ddp_span(const struct dist_ddp *ddp, const struct ddp_parameter *parameter);

static void ddp_bucket_append(const struct dist_ddp *ddp, struct dist_ddp_bucket *shape,
                              void **pieces, size_t *counts, const struct ddp_parameter *parameter)
{
    const size_t span = ddp_span(ddp, parameter);
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

/* Buckets follow the order: made anew by the first, freed by the second. */
static dist_status ddp_buckets_make(struct dist_ddp *ddp)
{
    dist_status status = DIST_OK;

    ddp_divide(ddp);
    for (int i = 0; i < ddp->bucket_count && status == DIST_OK; i++)
        status = ddp_bucket_shape(ddp, &ddp->buckets[i]);
    ddp->stats.buckets = ddp->bucket_count;
    return status;
}

/* Where each gradient is. */

/* Each gradient of ours begins on a cache line, with no gap before it: what is between is zero. */
#define DDP_ALIGN ((size_t)64)

static bool place_padded(size_t count, size_t element, size_t *bytes_p)
{
    if (!disti_mul(count, element, bytes_p) || !disti_add(*bytes_p, DDP_ALIGN - 1, bytes_p))
        return false;
    *bytes_p &= ~(DDP_ALIGN - 1);
    return true;
}

/* Elements up to where the next gradient of ours begins; of the program's memory just its own. */
static size_t ddp_span(const struct dist_ddp *ddp, const struct ddp_parameter *parameter)
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
    return place_begin(parameter) + ddp_span(ddp, parameter) * dist_dtype_size(ddp->options.dtype);
}

static int place_compare(const void *a, const void *b)
{
    const uintptr_t left = place_begin(*(struct ddp_parameter *const *)a);
    const uintptr_t right = place_begin(*(struct ddp_parameter *const *)b);

    return (left > right) - (left < right);
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
    for (int i = 0; i < ddp->gradients; i++) {
        const bool joined =
            i + 1 < ddp->gradients && place_end(ddp, sorted[i]) == place_begin(sorted[i + 1]);

        sorted[i]->next = joined ? (int)(sorted[i + 1] - ddp->parameters) : -1;
    }
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

/*
 * Places the gradients that have no memory, checks those that have, and sets the order: the last
 * parameter first. Local.
 */
static dist_status ddp_place(struct dist_ddp *ddp, dist_group *group)
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

/* A hash of which gradients lie next to each other: buckets have the same pieces on all ranks. */
static uint64_t ddp_place_hash(const struct dist_ddp *ddp)
{
    uint64_t hash = DISTI_HASH_START;

    for (int i = 0; i < ddp->count; i++)
        if (ddp->parameters[i].gradient)
            hash =
                disti_hash_bytes(hash, &ddp->parameters[i].next, sizeof(ddp->parameters[i].next));
    return hash;
}

/* A rank that has no more batches, while others have. */

/*
 *      rank 0   step  step  step  join              the last to come shows all: nobody
 *      rank 1   step  join..................        took part, so all have joined
 *      rank 2   step  step  join............
 *      active     3     2     1     0
 */
static dist_status ddp_shadow(struct dist_ddp *ddp, int (*step)(void *arg), void *arg)
{
    dist_status status;
    int result;

    for (;;) {
        status = disti_ddp_reduce(ddp);
        if (status != DIST_OK || ddp->tally[0] == 0)
            return status;
        result = step ? step(arg) : 0;
        if (result != 0)
            return disti_ddp_fail(ddp, disti_fail(DIST_ERR_ABORTED,
                                                  "rank %d: dist_ddp_join: the "
                                                  "program's step returned %d",
                                                  ddp->rank, result));
    }
}

dist_status dist_ddp_join(dist_ddp *ddp, int (*step)(void *arg), void *arg)
{
    dist_status status = disti_ddp_check(ddp, "dist_ddp_join");

    if (status != DIST_OK)
        return status;
    if (ddp->joined)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_join: this rank is in it: its function only updates the "
                          "parameters");
    if (!ddp->options.uneven)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_join: set uneven in the options of dist_ddp_create");
    if (ddp->local)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_join: steps stay on this rank: call "
                          "dist_ddp_set_sync with true, and end the step, before");
    status = disti_ddp_check_between(ddp, "dist_ddp_join");
    if (status != DIST_OK)
        return status;
    ddp->joined = true;
    status = ddp_shadow(ddp, step, arg);
    ddp->joined = false;
    return status;
}

/* The start and the end. */

/*
 * What is still to be sent when the backward pass ends is about one bucket, if sending takes as
 * long as computing: so a model has a share of them at least. Short ones are not worth a message.
 */
enum { DDP_FIRST_BUCKET = 1 << 20, DDP_BUCKET = 25 << 20, DDP_BUCKET_SHARE = 16 };

static dist_status ddp_bad(const char *what)
{
    return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_ddp_create: %s", what);
}

/* The options that the program gave, with what they leave to us. */
static dist_status ddp_options(const struct dist_ddp_options *given,
                               struct dist_ddp_options *options)
{
    *options = (struct dist_ddp_options)DIST_DDP_OPTIONS_INIT;
    if (given && (given->size < sizeof(given->size) || given->size > sizeof(*options)))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_create: options.size is %zu (at most %zu): initialise the "
                          "options with DIST_DDP_OPTIONS_INIT",
                          given->size, sizeof(*options));
    if (given)
        memcpy(options, given, given->size);
    if (options->first_bucket_bytes == 0)
        options->first_bucket_bytes = DDP_FIRST_BUCKET;
    if (options->hook_stages == 0)
        options->hook_stages = 1;
    if (options->hook_stages < 0 || options->hook_stages > DIST_DDP_STAGES_MAX)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_create: options.hook_stages is %d: set it to 1 to %d, or 0 for "
                          "1",
                          options->hook_stages, DIST_DDP_STAGES_MAX);
    if ((unsigned)options->wire > DIST_DDP_WIRE_INT8)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_create: options.wire is %d: set it to a dist_ddp_wire, %d to "
                          "%d",
                          (int)options->wire, DIST_DDP_WIRE_SAME, DIST_DDP_WIRE_INT8);
    if (options->hook && options->wire != DIST_DDP_WIRE_SAME)
        return ddp_bad("options have both a hook and a wire: take one of them");
    if ((unsigned)options->dtype >= DIST_DTYPE_COUNT || !disti_dtype_is_float(options->dtype))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_create: options.dtype is %d (%s): set it to a floating-point "
                          "type: float32, float64, float16 or bfloat16",
                          (int)options->dtype, dist_dtype_string(options->dtype));
    if (options->wire != DIST_DDP_WIRE_SAME && options->dtype != DIST_FLOAT32)
        return ddp_bad("options.wire is for float32 only");
    return DIST_OK;
}

static dist_status ddp_parameter_copy(struct ddp_parameter *to,
                                      const struct dist_ddp_parameter *from, int index,
                                      dist_dtype dtype)
{
    size_t bytes;

    if (!disti_mul(from->count, dist_dtype_size(dtype), &bytes) ||
        !disti_addressable(from->values, bytes) || !disti_addressable(from->gradient, bytes))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_create: parameter %d: count is %zu elements of %s, which pass "
                          "the end of the address space: set count to the size of the parameter",
                          index, from->count, dist_dtype_string(dtype));
    if (from->count == 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_create: parameter %d has no elements", index);
    if (from->buffer && !from->values)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_ddp_create: buffer %d has no values",
                          index);
    *to = (struct ddp_parameter){.name = disti_ddp_quote(from->name, index),
                                 .values = from->values,
                                 .count = from->count,
                                 .gradient = from->buffer ? NULL : from->gradient,
                                 .own = !from->buffer && !from->gradient};
    return to->name ? DIST_OK : disti_fail(DIST_ERR_NO_MEMORY, "no memory for a parameter's name");
}

static dist_status ddp_parameters_copy(struct dist_ddp *ddp,
                                       const struct dist_ddp_parameter *parameters, int count)
{
    dist_status status = DIST_OK;

    ddp->parameters = calloc((size_t)count, sizeof(*ddp->parameters));
    ddp->order = calloc((size_t)count, sizeof(*ddp->order));
    ddp->came = calloc((size_t)count, sizeof(*ddp->came));
    ddp->buckets = calloc((size_t)count, sizeof(*ddp->buckets));
    if (ddp->options.find_unused || ddp->options.uneven)
        ddp->tally = calloc((size_t)count + 1, sizeof(*ddp->tally));
    if (!ddp->parameters || !ddp->order || !ddp->came || !ddp->buckets ||
        (!ddp->tally && (ddp->options.find_unused || ddp->options.uneven)))
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d parameters", count);
    ddp->count = count;
    for (int i = 0; i < count && status == DIST_OK; i++)
        status = ddp_parameter_copy(&ddp->parameters[i], &parameters[i], i, ddp->options.dtype);
    return status;
}

/* What all ranks have to say alike. */
static uint64_t ddp_hash(const struct dist_ddp *ddp)
{
    const struct dist_ddp_options *options = &ddp->options;
    const uint64_t settings[] = {(uint64_t)options->dtype,       options->first_bucket_bytes,
                                 options->bucket_bytes,          options->sum,
                                 options->find_unused,           options->uneven,
                                 (uint64_t)options->wire,        options->hook != NULL,
                                 (uint64_t)options->hook_stages, (uint64_t)ddp->count};
    uint64_t hash = disti_hash_bytes(DISTI_HASH_START, settings, sizeof(settings));

    for (int i = 0; i < ddp->count; i++) {
        const struct ddp_parameter *parameter = &ddp->parameters[i];
        const uint64_t facts[] = {parameter->count, parameter->gradient != NULL, parameter->own,
                                  parameter->values != NULL};

        hash = disti_hash_bytes(hash, facts, sizeof(facts));
    }
    return hash;
}

static bool ddp_is_device(const struct dist_ddp *ddp)
{
    const struct disti_driver *driver = disti_driver_loaded();

    for (int i = 0; driver && i < ddp->gradients; i++)
        if (disti_driver_owns(driver, ddp->parameters[ddp->order[i]].gradient))
            return true;
    return false;
}

/* What a rank does alone. */
static dist_status ddp_prepare(struct dist_ddp *ddp, dist_group *group,
                               const struct dist_ddp_parameter *parameters, int count,
                               const struct dist_ddp_options *options)
{
    dist_status status = ddp_options(options, &ddp->options);

    if (status == DIST_OK && count < 1)
        status = disti_fail(DIST_ERR_INVALID_ARGUMENT,
                            "dist_ddp_create: count is %d: list at least one parameter", count);
    if (status == DIST_OK && !parameters)
        status = ddp_bad("parameters is NULL");
    if (status == DIST_OK)
        status = ddp_parameters_copy(ddp, parameters, count);
    if (status == DIST_OK)
        status = ddp_place(ddp, group);
    if (status != DIST_OK)
        return status;
    if (ddp->options.bucket_bytes == 0) {
        size_t bytes = 0;

        for (int i = 0; i < ddp->count; i++)
            if (ddp->parameters[i].own || ddp->parameters[i].gradient)
                bytes += ddp->parameters[i].count * dist_dtype_size(ddp->options.dtype);
        bytes /= DDP_BUCKET_SHARE;
        ddp->options.bucket_bytes = bytes < DDP_FIRST_BUCKET ? DDP_FIRST_BUCKET
                                    : bytes > DDP_BUCKET     ? DDP_BUCKET
                                                             : bytes;
    }
    ddp->device = ddp_is_device(ddp);
    if (ddp->device && ddp->options.wire != DIST_DDP_WIRE_SAME)
        return disti_fail(DIST_ERR_UNSUPPORTED, "dist_ddp_create: options.wire is for host memory");
    if (ddp->device && (ddp->options.uneven || ddp->options.find_unused))
        return disti_fail(DIST_ERR_UNSUPPORTED, "dist_ddp_create: uneven and find_unused are for "
                                                "gradients in host memory");
    ddp->wire = disti_ddp_wire(&ddp->options);
    ddp->stage_count = ddp->wire->stages ? ddp->wire->stages : ddp->options.hook_stages;
    return DIST_OK;
}

/* Leaves its groups; then nothing uses its memory any more. Frees all but the structure. */
static dist_status ddp_release(struct dist_ddp *ddp)
{
    dist_status status = DIST_OK, left;

    ddp_buckets_free(ddp);
    for (int i = 0; i < ddp->stage_count; i++) {
        left = dist_destroy_process_group(ddp->stages[i]);
        status = status == DIST_OK ? left : status;
    }
    dist_free(NULL, ddp->memory);
    for (int i = 0; i < ddp->count; i++)
        free(ddp->parameters[i].name);
    free(ddp->parameters);
    free(ddp->order);
    free(ddp->came);
    free(ddp->buckets);
    free(ddp->tally);
    return status;
}

/*
 * The first group is made before the ranks compare their lists: a rank whose arguments are wrong
 * need not wait to say so.
 */
static dist_status ddp_create(struct dist_ddp *ddp, dist_group *group)
{
    const struct ddp_word mine = {.alike = ddp_hash(ddp), .apart = ddp_place_hash(ddp)};
    dist_status status = dist_dup_group(group, NULL, &ddp->stages[0]);
    bool apart = false;

    if (disti_ddp_is_declined(status))
        return status;
    status = disti_ddp_agree(group, "dist_ddp_create", status, mine, &apart);
    if (status != DIST_OK)
        return status;
    ddp->scattered = apart;
    for (int i = 1; i < ddp->stage_count && status == DIST_OK; i++)
        status = dist_dup_group(group, NULL, &ddp->stages[i]);
    for (int i = 0; i < ddp->count && status == DIST_OK; i++)
        if (ddp->parameters[i].values)
            status = dist_broadcast(ddp->stages[0], ddp->parameters[i].values,
                                    ddp->parameters[i].count, ddp->options.dtype, 0);
    if (status == DIST_OK)
        status = ddp_buckets_make(ddp);
    /* All ranks have it now, or none: a rank that leaves at once ends no group of the others. */
    return disti_ddp_agree(group, "dist_ddp_create", status, (struct ddp_word){0}, &apart);
}

dist_status dist_ddp_create(dist_group *group, const struct dist_ddp_parameter *parameters,
                            int count, const struct dist_ddp_options *options, dist_ddp **ddp_p)
{
    struct dist_ddp *ddp;
    dist_status status;

    if (dist_get_world_size(group) < 1)
        return ddp_bad(group ? "the group was destroyed" : "group is NULL");
    ddp = calloc(1, sizeof(*ddp));
    if (!ddp)
        return dist_decline_dup_group(group,
                                      disti_fail(DIST_ERR_NO_MEMORY, "no memory for a dist_ddp"));
    ddp->rank = dist_get_rank(group);
    ddp->world = dist_get_world_size(group);
    status = ddp_p ? ddp_prepare(ddp, group, parameters, count, options) : ddp_bad("ddp_p is NULL");
    status = status == DIST_OK ? ddp_create(ddp, group) : dist_decline_dup_group(group, status);
    if (status == DIST_OK)
        *ddp_p = ddp;
    else {
        char text[1024];

        disti_text(text, sizeof(text), "%s", dist_last_error());
        if (ddp->stage_count > 0)
            disti_ddp_fail(ddp, status);
        ddp_release(ddp);
        free(ddp);
        disti_fail_unlogged(text);
    }
    return status;
}

dist_status dist_ddp_destroy(dist_ddp *ddp)
{
    dist_status status;

    if (!ddp)
        return DIST_OK;
    if (ddp->destroyed)
        return disti_ddp_check(ddp, "dist_ddp_destroy");
    status = DIST_ERR_ABORTED;
    if (ddp->failed == DIST_OK && !disti_ddp_is_in_step(ddp))
        status = disti_ddp_leave(ddp->stages[0]);
    if (status != DIST_OK)
        disti_ddp_fail(ddp, status);
    status = ddp_release(ddp);
    *ddp = (struct dist_ddp){.destroyed = true};
    disti_ddp_keep_destroyed(ddp);
    return status == DIST_ERR_ABORTED ? DIST_OK : status;
}
