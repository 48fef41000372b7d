/* SPDX-License-Identifier: BSD-3-Clause */
/* Where parameters lie, and which rank owns what of them. */
#include "base/checked.h"
#include "base/hash.h"
#include "base/log.h"
#include "ddp/ddp.h"
#include "device/driver.h"

#include <dist/backend.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

/* layout.c: where everything lies. */
static dist_status zero_layout(struct dist_zero *zero)
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

/* What rank `rank` owns of a parameter: *first_p and, of that, how many elements. */
static size_t zero_zero_part(const struct dist_zero *zero, int index, int rank, size_t *first_p)
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
        size_t first, left = zero_zero_part(zero, i, zero->rank, &first);

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

/* Values, gradients and state: on one machine the values are there once. */

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

/* The memory of all, which decides the form. Collective; may fail on some ranks only. */
static dist_status zero_memory(struct dist_zero *zero)
{
    const size_t state_bytes = zero->owned * (size_t)zero->options.state_floats * sizeof(float);
    dist_status status = memory_share(zero);
    void *state;

    if (status == DIST_ERR_UNSUPPORTED) {
        status = dist_alloc(NULL, 2 * memory_apart(zero) * sizeof(float), &zero->memory);
        if (status != DIST_OK)
            return status;
        zero->form = &disti_zero_network;
        zero->values = zero->memory;
        zero->gradients = zero->values + memory_apart(zero);
    }
    if (status == DIST_OK)
        status = dist_alloc(NULL, state_bytes, &state);
    if (status == DIST_OK)
        zero->state = state;
    return status;
}

/* The start and the end. */

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
    if (options->dtype == DIST_FLOAT32) {
        const bool sgd = options->step == dist_zero_sgd_step;

        if (!sgd && options->step != dist_zero_adam_step)
            return DIST_OK;
        if (!options->step_arg)
            return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                              "dist_zero_create: options.step_arg is NULL: set it to a struct %s",
                              sgd ? "dist_zero_sgd" : "dist_zero_adam");
        return sgd ? zero_check_sgd(options) : zero_check_adam(options);
    }
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
    if (status != DIST_OK)
        return status;
    zero->parts = calloc((size_t)zero->world, sizeof(*zero->parts));
    zero->peers = (float **)calloc((size_t)zero->world, sizeof(*zero->peers));
    zero->tiles = malloc(sizeof(float) * ZERO_TILES * ZERO_BLOCK);
    if (!zero->parts || !zero->peers || !zero->tiles)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for addresses of %d ranks", zero->world);
    return zero_layout(zero);
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
        status = zero_agree(zero, group, zero_memory(zero));
    for (int i = 0; i < zero->count && status == DIST_OK && zero->rank == 0; i++)
        if (parameters[i].values)
            memcpy(dist_zero_values(zero, i), parameters[i].values,
                   parameters[i].count * sizeof(float));
    /* Who leaves at once must not end the group under those that are still here. */
    if (status == DIST_OK)
        status = zero_agree(zero, group, zero->form->sync(zero));
    return status;
}

/* The memory before the group: see dist_shared_free. Frees all but the structure. */
static dist_status zero_release(struct dist_zero *zero)
{
    dist_status status;

    if (zero->form == &disti_zero_machine)
        dist_shared_free(zero->parts[zero->rank]);
    dist_free(NULL, zero->memory);
    dist_free(NULL, zero->state);
    free(zero->parts);
    free((void *)zero->peers);
    free(zero->tiles);
    status = dist_destroy_process_group(zero->group);
    for (int i = 0; i < zero->count; i++)
        free(zero->parameters[i].name);
    free(zero->parameters);
    free(zero->buckets);
    free(zero->shares);
    return status;
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
        char text[1024];

        disti_text(text, sizeof(text), "%s", dist_last_error());
        if (zero->group)
            disti_zero_fail(zero, status);
        zero_release(zero);
        free(zero);
        disti_fail_unlogged(text);
        return status;
    }
    zero->stats.state_bytes =
        zero->owned * (size_t)zero->options.state_floats * sizeof(*zero->state);
    zero->stats.gradient_bytes = zero->elements * sizeof(*zero->gradients);
    zero->stats.value_bytes = zero->elements * sizeof(*zero->values);
    zero->stats.sharers = zero->form == &disti_zero_machine ? zero->world : 1;
    zero->stats.buckets = zero->bucket_count;
    *zero_p = zero;
    return DIST_OK;
}

static bool zero_is_in_step(const struct dist_zero *zero)
{
    for (int i = 0; i < zero->count; i++)
        if (zero->parameters[i].ready)
            return true;
    return false;
}

dist_status dist_zero_destroy(dist_zero *zero)
{
    dist_status status;

    if (!zero)
        return DIST_OK;
    if (zero->destroyed)
        return disti_zero_check(zero, "dist_zero_destroy");
    status = DIST_ERR_ABORTED;
    if (zero->failed == DIST_OK && !zero_is_in_step(zero))
        status = disti_ddp_leave(zero->group);
    if (status != DIST_OK)
        disti_zero_fail(zero, status);
    status = zero_release(zero);
    *zero = (struct dist_zero){.destroyed = true};
    disti_ddp_keep_destroyed(zero);
    return status == DIST_ERR_ABORTED ? DIST_OK : status;
}

/* What a program asks and sets between steps, and how it all fails. */

dist_status disti_zero_fail(struct dist_zero *zero, dist_status status)
{
    char text[1024];

    if (zero->failed == DIST_OK) {
        disti_text(text, sizeof(text), "%s", dist_last_error());
        zero->failed = status;
        dist_abort(zero->group);
        for (int i = 0; i < zero->bucket_count; i++)
            disti_zero_wait(zero, &zero->buckets[i]);
        disti_fail_unlogged(text);
    }
    return zero->failed;
}

dist_status disti_zero_check(const struct dist_zero *zero, const char *call)
{
    if (!zero)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: zero is NULL", call);
    if (zero->destroyed)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: the dist_zero was destroyed", call);
    if (zero->failed != DIST_OK)
        return disti_fail(DIST_ERR_ABORTED,
                          "rank %d: %s: the dist_zero ended with an earlier error (%s): destroy it",
                          zero->rank, call, dist_status_string(zero->failed));
    return DIST_OK;
}

/* The same, and that no step is under way. */
static dist_status zero_check_between(const struct dist_zero *zero, const char *call)
{
    dist_status status = disti_zero_check(zero, call);

    if (status == DIST_OK && zero_is_in_step(zero))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s: a step is under way: call dist_zero_finish before", call);
    return status;
}

static bool query_has(const struct dist_zero *zero, int index)
{
    return zero && index >= 0 && index < zero->count;
}

float *dist_zero_values(const dist_zero *zero, int index)
{
    return query_has(zero, index) ? zero->values + zero->parameters[index].at : NULL;
}

float *dist_zero_gradient(const dist_zero *zero, int index)
{
    return query_has(zero, index) ? zero->gradients + zero->parameters[index].at : NULL;
}

dist_status dist_zero_clear_gradients(dist_zero *zero)
{
    dist_status status = zero_check_between(zero, "dist_zero_clear_gradients");

    if (status == DIST_OK)
        memset(zero->gradients, 0, zero->elements * sizeof(*zero->gradients));
    return status;
}

dist_status dist_zero_sync_values(dist_zero *zero)
{
    dist_status status = zero_check_between(zero, "dist_zero_sync_values");

    if (status == DIST_OK) {
        status = zero->form->sync(zero);
        status = status == DIST_OK ? DIST_OK : disti_zero_fail(zero, status);
    }
    return status;
}

uint64_t dist_zero_get_steps(const dist_zero *zero)
{
    return zero ? zero->made : 0;
}

dist_status dist_zero_set_steps(dist_zero *zero, uint64_t steps)
{
    dist_status status = zero_check_between(zero, "dist_zero_set_steps");

    if (status == DIST_OK && steps > INT64_MAX)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_set_steps: %" PRIu64 " steps are more than a training can "
                          "make: give the number that dist_zero_get_steps had",
                          steps);
    if (status == DIST_OK)
        zero->made = steps;
    return status;
}

dist_status dist_zero_get_stats(const dist_zero *zero, struct dist_zero_stats *stats_p)
{
    if (!zero || zero->destroyed)
        return disti_zero_check(zero, "dist_zero_get_stats");
    if (!stats_p)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_zero_get_stats: stats_p is NULL");
    if (stats_p->size < sizeof(stats_p->size) || stats_p->size > sizeof(*stats_p))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_zero_get_stats: size is %zu: set it to the sizeof of the struct "
                          "(at most %zu)",
                          stats_p->size, sizeof(*stats_p));
    memcpy((char *)stats_p + sizeof(stats_p->size),
           (const char *)&zero->stats + sizeof(zero->stats.size),
           stats_p->size - sizeof(stats_p->size));
    return DIST_OK;
}

/* The state of a whole parameter, gathered from its owners and scattered to them. */

/* What each rank has of a parameter, for the root. */
struct state_parts {
    size_t *counts, *offsets;
};

static dist_status state_check(const struct dist_zero *zero, const char *call, int index, int which,
                               const float *values, int root)
{
    dist_status status = zero_check_between(zero, call);

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
        parts->counts[r] = zero_zero_part(zero, index, r, &parts->offsets[r]);
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

    if (zero_zero_part(zero, index, zero->rank, &first) == 0)
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
