/* SPDX-License-Identifier: BSD-3-Clause */
/* The start and the end. */
#include "zero.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <dist/backend.h>

#include "base/checked.h"
#include "base/hash.h"
#include "base/log.h"
#include "ddp/common.h"
#include "device/driver.h"

static dist_status zero_bad(const char *what)
{
    return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_zero_create: %s", what);
}

/* Refuses a number of an optimizer below 0, from `below` on, or that is none. */
static dist_status zero_check_number(const char *name, double value, double below)
{
    if (value >= 0.0 && value < below)
        return DIST_OK;
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "dist_zero_create: options.step_arg: %s is %g: set it to a number from 0 to "
                      "less than %g",
                      name, value, below);
}

static dist_status zero_check_state(const struct dist_zero_options *options, int needed,
                                    const char *why)
{
    if (options->state_floats >= needed)
        return DIST_OK;
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "dist_zero_create: options.state_floats is %d, but %s needs %d: set it to "
                      "that",
                      options->state_floats, why, needed);
}

static dist_status zero_check_sgd(const struct dist_zero_options *options)
{
    const struct dist_zero_sgd *sgd = options->step_arg;
    dist_status status = zero_check_number("rate", sgd->rate, INFINITY);

    if (status == DIST_OK)
        status = zero_check_number("momentum", sgd->momentum, INFINITY);
    if (status == DIST_OK)
        status = zero_check_number("weight_decay", sgd->weight_decay, INFINITY);
    if (status == DIST_OK && sgd->momentum != 0.0)
        status = zero_check_state(options, DIST_ZERO_SGD_STATE, "dist_zero_sgd_step with momentum");
    return status;
}

static dist_status zero_check_adam(const struct dist_zero_options *options)
{
    const struct dist_zero_adam *adam = options->step_arg;
    dist_status status = zero_check_number("rate", adam->rate, INFINITY);

    if (status == DIST_OK)
        status = zero_check_number("beta1", adam->beta1, 1.0);
    if (status == DIST_OK)
        status = zero_check_number("beta2", adam->beta2, 1.0);
    if (status == DIST_OK)
        status = zero_check_number("epsilon", adam->epsilon, INFINITY);
    if (status == DIST_OK)
        status = zero_check_number("weight_decay", adam->weight_decay, INFINITY);
    if (status == DIST_OK)
        status = zero_check_state(options, DIST_ZERO_ADAM_STATE, "dist_zero_adam_step");
    return status;
}

/* The numbers of the library's own optimizers. */
static dist_status zero_check_optimizer(const struct dist_zero_options *options)
{
    const bool sgd = options->step == dist_zero_sgd_step;

    if (!sgd && options->step != dist_zero_adam_step)
        return DIST_OK;
    if (!options->step_arg)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_create: options.step_arg is NULL: set it to a struct %s",
                          sgd ? "dist_zero_sgd" : "dist_zero_adam");
    return sgd ? zero_check_sgd(options) : zero_check_adam(options);
}

/* The options that the program gave, with what they leave to us. */
static dist_status zero_options(const struct dist_zero_options *given,
                                struct dist_zero_options *options)
{
    *options = (struct dist_zero_options)DIST_ZERO_OPTIONS_INIT;
    if (!given)
        return zero_bad("options is NULL: initialise options with DIST_ZERO_OPTIONS_INIT, and set "
                        "the step");
    if (given->size < sizeof(given->size) || given->size > sizeof(*options))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_create: options.size is %zu (at most %zu): initialise the "
                          "options with DIST_ZERO_OPTIONS_INIT",
                          given->size, sizeof(*options));
    memcpy(options, given, given->size);
    if (!options->step)
        return zero_bad("options.step is NULL: give dist_zero_sgd_step, dist_zero_adam_step or a "
                        "function of your own");
    if (options->state_floats < 0 || options->state_floats > DIST_ZERO_STATE_MAX)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_create: options.state_floats is %d: set it to 0 to %d",
                          options->state_floats, DIST_ZERO_STATE_MAX);
    if (!(options->max_norm >= 0.0))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_create: options.max_norm is %g: set it to 0 or more",
                          options->max_norm);
    if (options->dtype == DIST_FLOAT32)
        return zero_check_optimizer(options);
    return disti_fail(DIST_ERR_UNSUPPORTED,
                      "dist_zero_create: options.dtype is %s: it is for "
                      "float32 only",
                      dist_dtype_string(options->dtype));
}

static dist_status zero_parameter_copy(struct zero_parameter *to,
                                       const struct dist_zero_parameter *from, int index)
{
    const struct disti_driver *driver = disti_driver_loaded();
    size_t bytes;

    if (!disti_mul(from->count, sizeof(float), &bytes) || !disti_addressable(from->values, bytes) ||
        !disti_addressable(from->gradient, bytes))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_create: parameter %d: count is %zu elements of float32, which "
                          "pass the end of the address space: set count to the size of the "
                          "parameter",
                          index, from->count);
    if (from->count == 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_create: parameter %d has no elements", index);
    if (driver && ((from->values && disti_driver_owns(driver, from->values)) ||
                   (from->gradient && disti_driver_owns(driver, from->gradient))))
        return disti_fail(DIST_ERR_UNSUPPORTED,
                          "dist_zero_create: parameter %d is in memory of a GPU: it is for host "
                          "memory only",
                          index);
    *to = (struct zero_parameter){
        .name = disti_ddp_quote(from->name, index), .count = from->count, .source = from->gradient};
    return to->name ? DIST_OK : disti_fail(DIST_ERR_NO_MEMORY, "no memory for a parameter's name");
}

static dist_status zero_parameters_copy(struct dist_zero *zero,
                                        const struct dist_zero_parameter *parameters, int count)
{
    dist_status status = DIST_OK;

    zero->parameters = calloc((size_t)count, sizeof(*zero->parameters));
    zero->buckets = calloc((size_t)count, sizeof(*zero->buckets));
    if (!zero->parameters || !zero->buckets)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d parameters", count);
    zero->count = count;
    for (int i = 0; i < count && status == DIST_OK; i++)
        status = zero_parameter_copy(&zero->parameters[i], &parameters[i], i);
    return status;
}

/* What a rank does alone. */
static dist_status zero_prepare(struct dist_zero *zero,
                                const struct dist_zero_parameter *parameters, int count,
                                const struct dist_zero_options *options)
{
    dist_status status = zero_options(options, &zero->options);

    if (status == DIST_OK && count < 1)
        status = disti_fail(DIST_ERR_INVALID_ARGUMENT,
                            "dist_zero_create: count is %d: list at least one parameter", count);
    if (status == DIST_OK && !parameters)
        status = zero_bad("parameters is NULL");
    if (status == DIST_OK)
        status = zero_parameters_copy(zero, parameters, count);
    if (status == DIST_OK)
        status = disti_zero_lists(zero);
    return status == DIST_OK ? disti_zero_layout(zero) : status;
}

/* What all ranks have to say alike. */
static uint64_t zero_hash(const struct dist_zero *zero)
{
    const struct dist_zero_options *options = &zero->options;
    const uint64_t settings[] = {options->first_bucket_bytes, options->bucket_bytes, options->sum,
                                 (uint64_t)options->state_floats, (uint64_t)zero->count};
    uint64_t hash = disti_hash_bytes(DISTI_HASH_START, settings, sizeof(settings));

    hash = disti_hash_bytes(hash, &options->max_norm, sizeof(options->max_norm));
    for (int i = 0; i < zero->count; i++)
        hash = disti_hash_bytes(hash, &zero->parameters[i].count, sizeof(size_t));
    return hash;
}

static dist_status zero_agree(const struct dist_zero *zero, dist_group *group, dist_status status)
{
    const struct ddp_word mine = {.alike = zero_hash(zero)};
    bool apart = false;

    return disti_ddp_agree(group, "dist_zero_create", status, mine, &apart);
}

/*
 * What all ranks do together. The group is made before the ranks compare their lists: a rank whose
 * arguments are wrong need not wait to say so.
 */
static dist_status zero_connect(struct dist_zero *zero, dist_group *group,
                                const struct dist_zero_parameter *parameters)
{
    dist_status status = dist_dup_group(group, NULL, &zero->group);

    if (disti_ddp_is_declined(status))
        return status;
    status = zero_agree(zero, group, status);
    if (status == DIST_OK) /* the parent's collective: nobody's failure ends it before it is done */
        status = zero_agree(zero, group, disti_zero_memory(zero));
    for (int i = 0; i < zero->count && status == DIST_OK && zero->rank == 0; i++)
        if (parameters[i].values)
            memcpy(dist_zero_values(zero, i), parameters[i].values,
                   parameters[i].count * sizeof(float));
    /* Who leaves at once must not end the group under those that are still here. */
    if (status == DIST_OK)
        status = zero_agree(zero, group, zero->form->sync(zero));
    return status;
}

static void zero_describe(struct dist_zero *zero)
{
    zero->stats.state_bytes =
        zero->owned * (size_t)zero->options.state_floats * sizeof(*zero->state);
    zero->stats.gradient_bytes = zero->elements * sizeof(*zero->gradients);
    zero->stats.value_bytes = zero->elements * sizeof(*zero->values);
    zero->stats.sharers = zero->form == &disti_zero_machine ? zero->world : 1;
    zero->stats.buckets = zero->bucket_count;
}

/* The memory before the group: see dist_shared_free. Frees all but the structure. */
static dist_status zero_release(struct dist_zero *zero)
{
    dist_status status;

    disti_zero_memory_free(zero);
    status = dist_destroy_process_group(zero->group);
    for (int i = 0; i < zero->count; i++)
        free(zero->parameters[i].name);
    free(zero->parameters);
    free(zero->buckets);
    free(zero->shares);
    return status;
}

/* The last error stays what it was. */
static void zero_give_up(struct dist_zero *zero, dist_status status)
{
    char text[1024];

    disti_text(text, sizeof(text), "%s", dist_last_error());
    if (zero->group)
        disti_zero_fail(zero, status);
    zero_release(zero);
    free(zero);
    disti_fail_unlogged(text);
}

dist_status dist_zero_create(dist_group *group, const struct dist_zero_parameter *parameters,
                             int count, const struct dist_zero_options *options, dist_zero **zero_p)
{
    struct dist_zero *zero;
    dist_status status;

    if (dist_get_world_size(group) < 1)
        return zero_bad(group ? "the group was destroyed" : "group is NULL");
    zero = calloc(1, sizeof(*zero));
    if (!zero)
        return dist_decline_dup_group(group,
                                      disti_fail(DIST_ERR_NO_MEMORY, "no memory for a dist_zero"));
    zero->rank = dist_get_rank(group);
    zero->world = dist_get_world_size(group);
    status = zero_p ? zero_prepare(zero, parameters, count, options) : zero_bad("zero_p is NULL");
    status = status == DIST_OK ? zero_connect(zero, group, parameters)
                               : dist_decline_dup_group(group, status);
    if (status != DIST_OK) {
        zero_give_up(zero, status);
        return status;
    }
    zero_describe(zero);
    *zero_p = zero;
    return DIST_OK;
}

static void zero_part(struct dist_zero *zero)
{
    dist_status status = DIST_ERR_ABORTED;

    if (zero->failed == DIST_OK && !disti_zero_is_in_step(zero))
        status = disti_ddp_leave(zero->group);
    if (status != DIST_OK)
        disti_zero_fail(zero, status);
}

dist_status dist_zero_destroy(dist_zero *zero)
{
    dist_status status;

    if (!zero)
        return DIST_OK;
    if (zero->destroyed)
        return disti_zero_check(zero, "dist_zero_destroy");
    zero_part(zero);
    status = zero_release(zero);
    *zero = (struct dist_zero){.destroyed = true};
    disti_ddp_keep_destroyed(zero);
    return status == DIST_ERR_ABORTED ? DIST_OK : status;
}
