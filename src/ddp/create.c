/* SPDX-License-Identifier: BSD-3-Clause */
/* The start and the end. */
#include "ddp.h"

#include <stdlib.h>
#include <string.h>

#include <dist/backend.h>

#include "base/checked.h"
#include "base/hash.h"
#include "base/log.h"
#include "ddp/common.h"
#include "device/driver.h"

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
    switch (options->dtype) {
    case DIST_FLOAT32:
        return DIST_OK;
    case DIST_FLOAT64:
    case DIST_FLOAT16:
    case DIST_BFLOAT16:
        return options->wire == DIST_DDP_WIRE_SAME ? DIST_OK
                                                   : ddp_bad("options.wire is for float32 only");
    default:
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_create: options.dtype is %d (%s): set it to a floating-point "
                          "type: float32, float64, float16 or bfloat16",
                          (int)options->dtype, dist_dtype_string(options->dtype));
    }
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

/* Of which the options say nothing. */
static size_t ddp_bucket_bytes(const struct dist_ddp *ddp)
{
    size_t bytes = 0;

    for (int i = 0; i < ddp->count; i++)
        if (ddp->parameters[i].own || ddp->parameters[i].gradient)
            bytes += ddp->parameters[i].count * dist_dtype_size(ddp->options.dtype);
    bytes /= DDP_BUCKET_SHARE;
    return bytes < DDP_FIRST_BUCKET ? DDP_FIRST_BUCKET : bytes > DDP_BUCKET ? DDP_BUCKET : bytes;
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

static dist_status ddp_agree(struct dist_ddp *ddp, dist_group *group, dist_status status)
{
    const struct ddp_word mine = {.alike = ddp_hash(ddp), .apart = disti_ddp_place_hash(ddp)};
    bool apart = false;

    status = disti_ddp_agree(group, "dist_ddp_create", status, mine, &apart);
    if (status == DIST_OK)
        ddp->scattered = apart;
    return status;
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
        status = disti_ddp_place(ddp, group);
    if (status != DIST_OK)
        return status;
    if (ddp->options.bucket_bytes == 0)
        ddp->options.bucket_bytes = ddp_bucket_bytes(ddp);
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

/* What all ranks do together. */
static dist_status ddp_connect(struct dist_ddp *ddp, dist_group *group)
{
    dist_status status = DIST_OK;

    for (int i = 1; i < ddp->stage_count && status == DIST_OK; i++)
        status = dist_dup_group(group, NULL, &ddp->stages[i]);
    for (int i = 0; i < ddp->count && status == DIST_OK; i++)
        if (ddp->parameters[i].values)
            status = dist_broadcast(ddp->stages[0], ddp->parameters[i].values,
                                    ddp->parameters[i].count, ddp->options.dtype, 0);
    return status == DIST_OK ? disti_ddp_buckets_make(ddp) : status;
}

/* All have it now, or none: who leaves at once ends no group under those that are still here. */
static dist_status ddp_complete(dist_group *group, dist_status status)
{
    bool apart;

    return disti_ddp_agree(group, "dist_ddp_create", status, (struct ddp_word){0}, &apart);
}

/* Leaves its groups; then nothing uses its memory any more. Frees all but the structure. */
static dist_status ddp_release(struct dist_ddp *ddp)
{
    dist_status status = DIST_OK, left;

    disti_ddp_buckets_free(ddp);
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

/* The last error stays what it was. */
static void ddp_give_up(struct dist_ddp *ddp, dist_status status)
{
    char text[1024];

    disti_text(text, sizeof(text), "%s", dist_last_error());
    if (ddp->stage_count > 0)
        disti_ddp_fail(ddp, status);
    ddp_release(ddp);
    free(ddp);
    disti_fail_unlogged(text);
}

/*
 * The first group is made before the ranks compare their lists: a rank whose arguments are wrong
 * need not wait to say so.
 */
static dist_status ddp_create(struct dist_ddp *ddp, dist_group *group)
{
    dist_status status = dist_dup_group(group, NULL, &ddp->stages[0]);

    if (disti_ddp_is_declined(status))
        return status;
    status = ddp_agree(ddp, group, status);
    return status == DIST_OK ? ddp_complete(group, ddp_connect(ddp, group)) : status;
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
    else
        ddp_give_up(ddp, status);
    return status;
}

static void ddp_part(struct dist_ddp *ddp)
{
    dist_status status = DIST_ERR_ABORTED;

    if (ddp->failed == DIST_OK && !disti_ddp_is_in_step(ddp))
        status = disti_ddp_leave(ddp->stages[0]);
    if (status != DIST_OK)
        disti_ddp_fail(ddp, status);
}

dist_status dist_ddp_destroy(dist_ddp *ddp)
{
    dist_status status;

    if (!ddp)
        return DIST_OK;
    if (ddp->destroyed)
        return disti_ddp_check(ddp, "dist_ddp_destroy");
    ddp_part(ddp);
    status = ddp_release(ddp);
    *ddp = (struct dist_ddp){.destroyed = true};
    disti_ddp_keep_destroyed(ddp);
    return status == DIST_ERR_ABORTED ? DIST_OK : status;
}
