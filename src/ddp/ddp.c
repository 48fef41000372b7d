/* SPDX-License-Identifier: BSD-3-Clause */
/* Data-parallel training: buckets of gradients, steps, creation and destruction. */
#include "ddp/ddp.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/hash.h"
#include "base/kernels/environment.h"
#include "base/log.h"
#include "device/driver.h"

#include <dist/backend.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- failures ---- */

static dist_status ddp_tally_end(struct dist_ddp *ddp)
{
    dist_work *work = ddp->tally_work;

    ddp->tally_work = NULL;
    return work ? dist_wait(work) : DIST_OK;
}

/* Fails the dist_ddp on all ranks, by aborting its groups. Returns the first error. */
static dist_status ddp_fail(struct dist_ddp *ddp, dist_status status)
{
    char text[1024];

    if (ddp->failed == DIST_OK) {
        disti_text(text, sizeof(text), "%s", dist_last_error());
        ddp->failed = status;
        for (int i = 0; i < ddp->stage_count; i++)
            dist_abort(ddp->stages[i]);
        ddp_tally_end(ddp);
        for (int i = 0; i < ddp->bucket_count; i++) {
            dist_work *work = ddp->buckets[i].work;

            ddp->buckets[i].work = NULL;
            if (work)
                dist_wait(work);
        }
        disti_fail_unlogged(text);
    }
    return ddp->failed;
}

/* Rejects a handle that is NULL, destroyed or failed. `call` is for the message. */
static dist_status ddp_check(const struct dist_ddp *ddp, const char *call)
{
    if (!ddp)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: ddp is NULL", call);
    if (ddp->destroyed)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: the dist_ddp was destroyed", call);
    if (ddp->failed != DIST_OK)
        return disti_fail(DIST_ERR_ABORTED,
                          "rank %d: %s: the dist_ddp ended with an earlier error (%s): destroy it",
                          ddp->rank, call, dist_status_string(ddp->failed));
    return DIST_OK;
}

static bool ddp_has_ready(const struct dist_ddp *ddp)
{
    for (int i = 0; i < ddp->count; i++)
        if (ddp->parameters[i].ready)
            return true;
    return false;
}

/* True if a gradient of a step to be reduced is ready. */
static bool ddp_is_in_step(const struct dist_ddp *ddp)
{
    return !ddp->local && ddp_has_ready(ddp);
}

/* As ddp_check; also rejects calls during a step. */
static dist_status ddp_check_between(const struct dist_ddp *ddp, const char *call)
{
    dist_status status = ddp_check(ddp, call);

    if (status == DIST_OK && ddp_is_in_step(ddp))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s: a step is under way: call dist_ddp_finish first", call);
    return status;
}

void *dist_ddp_gradient(const dist_ddp *ddp, int index)
{
    return ddp && index >= 0 && index < ddp->count ? ddp->parameters[index].gradient : NULL;
}

/* ---- assignment of gradients to buckets ---- */

/* Each gradient that we allocate begins on a cache line; the padding is zero. */
#define DDP_ALIGN ((size_t)64)

static bool place_padded(size_t count, size_t element, size_t *bytes_p)
{
    if (!disti_mul(count, element, bytes_p) || !disti_add(*bytes_p, DDP_ALIGN - 1, bytes_p))
        return false;
    *bytes_p &= ~(DDP_ALIGN - 1);
    return true;
}

/*
 * Returns the number of elements up to the next gradient that we allocated; for a gradient in the
 * program's memory, its own elements.
 */
static size_t ddp_span(const struct dist_ddp *ddp, const struct ddp_parameter *parameter)
{
    const size_t element = dist_dtype_size(ddp->options.dtype);
    size_t bytes;

    if (!parameter->own)
        return parameter->count;
    place_padded(parameter->count, element, &bytes);
    return bytes / element;
}

static void ddp_buckets_free(struct dist_ddp *ddp)
{
    for (int i = 0; i < ddp->bucket_count; i++) {
        struct ddp_bucket *bucket = &ddp->buckets[i];

        if (ddp->compression->close)
            ddp->compression->close(ddp, bucket);
        free((void *)bucket->shape.pieces);
        free((void *)bucket->shape.counts);
    }
    ddp->bucket_count = 0;
}

/*
 * Sets the pieces of a bucket from its gradients. A gradient adjacent to the previous piece extends
 * that piece.
 */
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
        const size_t span = ddp_span(ddp, parameter), element = dist_dtype_size(ddp->options.dtype);
        const int last = bucket->shape.piece_count - 1;
        char *begin = last < 0 || ddp->scattered ? NULL : pieces[last];

        parameter->bucket = bucket->shape.index;
        bucket->shape.count += span;
        if (begin && parameter->gradient + span * element == begin) {
            pieces[last] = parameter->gradient;
            counts[last] += span;
        } else if (begin && begin + counts[last] * element == parameter->gradient)
            counts[last] += span;
        else {
            pieces[bucket->shape.piece_count] = parameter->gradient;
            counts[bucket->shape.piece_count++] = span;
        }
    }
    bucket->missing = bucket->count;
    return ddp->compression->open ? ddp->compression->open(ddp, bucket) : DIST_OK;
}

/* Divides the order into buckets: a bucket ends with the gradient that reaches its size limit. */
static dist_status ddp_buckets_make(struct dist_ddp *ddp)
{
    const size_t element = dist_dtype_size(ddp->options.dtype);
    size_t limit = ddp->options.first_bucket_bytes, bytes = 0;
    dist_status status = DIST_OK;

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
    for (int i = 0; i < ddp->bucket_count && status == DIST_OK; i++)
        status = ddp_bucket_shape(ddp, &ddp->buckets[i]);
    ddp->stats.buckets = ddp->bucket_count;
    return status;
}

/* Adopts rank 0's order of arrival after the first step. Collective. */
static dist_status ddp_decide_order(struct dist_ddp *ddp)
{
    dist_status status;
    int at = ddp->arrived;

    for (int i = 0; i < ddp->arrived; i++)
        ddp->parameters[ddp->arrival[i]].ready = true;
    for (int i = 0; i < ddp->gradients; i++)
        if (!ddp->parameters[ddp->order[i]].ready)
            ddp->arrival[at++] = ddp->order[i];
    for (int i = 0; i < ddp->count; i++)
        ddp->parameters[i].ready = false;
    ddp->arrived = -1;
    status = dist_broadcast(ddp->stages[0], ddp->arrival, (size_t)ddp->gradients, DIST_INT32, 0);
    if (status != DIST_OK ||
        memcmp(ddp->arrival, ddp->order, (size_t)ddp->gradients * sizeof(*ddp->order)) == 0)
        return status;
    ddp_buckets_free(ddp);
    memcpy(ddp->order, ddp->arrival, (size_t)ddp->gradients * sizeof(*ddp->order));
    return ddp_buckets_make(ddp);
}

bool dist_ddp_is_used(const dist_ddp *ddp, int index)
{
    if (!dist_ddp_gradient(ddp, index))
        return false;
    return !ddp->options.find_unused || ddp->stats.steps == 0 || ddp->tally[1 + index] > 0;
}

int dist_ddp_active(const dist_ddp *ddp)
{
    if (!ddp)
        return 0;
    return ddp->options.uneven && ddp->stats.steps > 0 ? ddp->tally[0] : ddp->world;
}

/* ---- the norm of all gradients, and clipping by it ---- */

/* Called in the library's floating-point environment, so it must not be inlined. */
#define NORM_APART __attribute__((noinline))

static void norm_square(const struct dist_ddp *ddp, struct ddp_parameter *parameter)
{
    parameter->squares = disti_squares(parameter->gradient, parameter->count, ddp->options.dtype);
}

/*
 * Sums the squares in the order of the parameters, independent of the buckets. Returns the norm
 * before clipping.
 */
NORM_APART static double norm_clip(struct dist_ddp *ddp, double max_norm)
{
    double norm = 0.0;

    for (int i = 0; i < ddp->count; i++) {
        if (!ddp->parameters[i].gradient)
            continue;
        if (!ddp->squared)
            norm_square(ddp, &ddp->parameters[i]);
        norm += ddp->parameters[i].squares;
    }
    norm = sqrt(norm);
    ddp->clips = true;
    if (isfinite(norm) && norm > max_norm) {
        const double factor = max_norm / (norm + 1e-6);

        for (int i = 0; i < ddp->count; i++) {
            void *gradient = ddp->parameters[i].gradient;
            const size_t count = gradient ? ddp->parameters[i].count : 0;

            if (ddp->options.dtype == DIST_FLOAT32)
                for (size_t j = 0; j < count; j++)
                    ((float *)gradient)[j] *= (float)factor;
            else
                for (size_t j = 0; j < count; j++)
                    ((double *)gradient)[j] *= factor;
        }
        ddp->squared = false;
    }
    return norm;
}

dist_status dist_ddp_clip(dist_ddp *ddp, double max_norm, double *norm_p)
{
    dist_status status = ddp_check_between(ddp, "dist_ddp_clip");
    disti_environment saved;
    double norm;

    if (status != DIST_OK)
        return status;
    if (!(max_norm >= 0.0))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_clip: max_norm is %g: set it to 0 or more", max_norm);
    if (ddp->device || (ddp->options.dtype != DIST_FLOAT32 && ddp->options.dtype != DIST_FLOAT64))
        return disti_fail(DIST_ERR_UNSUPPORTED,
                          "dist_ddp_clip supports only float32 and float64 in host memory");
    saved = disti_environment_enter();
    norm = norm_clip(ddp, max_norm);
    disti_environment_leave(saved);
    if (norm_p)
        *norm_p = norm;
    return DIST_OK;
}

/* ---- a step: buckets start when they are full, and complete in dist_ddp_finish ---- */

/* Starts the next stage of a bucket, whose previous request, if any, has completed. */
static dist_status ddp_bucket_next(struct dist_ddp *ddp, struct ddp_bucket *bucket)
{
    dist_status status;

    bucket->stage = bucket->state == DDP_FILLING ? 0 : bucket->stage + 1;
    if (bucket->stage == 0)
        bucket->began = disti_now_ns();
    bucket->work = NULL;
    status = ddp->compression->next(ddp, bucket, bucket->stage, &bucket->work);
    if (status != DIST_OK)
        return status;
    bucket->state = bucket->work ? DDP_MOVING : DDP_REDUCED;
    if (bucket->state == DDP_MOVING)
        return DIST_OK;
    bucket->ended = disti_now_ns();
    if (ddp->clips) {
        const disti_environment saved = disti_environment_enter();

        for (int i = bucket->first; i < bucket->first + bucket->count; i++)
            norm_square(ddp, &ddp->parameters[ddp->order[i]]);
        disti_environment_leave(saved);
    }
    return DIST_OK;
}

static dist_status ddp_bucket_wait(struct dist_ddp *ddp, struct ddp_bucket *bucket)
{
    dist_status status = dist_wait(bucket->work);

    bucket->work = NULL;
    return status == DIST_OK ? ddp_bucket_next(ddp, bucket) : status;
}

/*
 * Advances started buckets whose requests have completed, and starts full buckets. Does not block.
 * The operations of a stage start in the order of the buckets on every rank, so no bucket overtakes
 * an earlier one; each stage has its own group, since operations of different stages have no fixed
 * order.
 */
static dist_status ddp_advance(struct dist_ddp *ddp)
{
    const struct ddp_bucket *before = NULL;
    dist_status status = DIST_OK;
    bool done;

    for (int i = 0; i < ddp->next && status == DIST_OK; i++) {
        struct ddp_bucket *bucket = &ddp->buckets[i];

        if (bucket->state != DDP_MOVING)
            continue;
        if (before && before->state == DDP_MOVING && before->stage <= bucket->stage)
            break;
        before = bucket;
        status = dist_test(bucket->work, &done);
        if (status == DIST_OK && done)
            status = ddp_bucket_wait(ddp, bucket);
    }
    while (status == DIST_OK && ddp->next < ddp->bucket_count &&
           ddp->buckets[ddp->next].missing == 0)
        status = ddp_bucket_next(ddp, &ddp->buckets[ddp->next++]);
    return status;
}

/* As ddp_check; also rejects calls from the step function of dist_ddp_join. */
static dist_status ddp_check_step(const struct dist_ddp *ddp, const char *call)
{
    dist_status status = ddp_check(ddp, call);

    if (status == DIST_OK && ddp->joined)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s must not be called in dist_ddp_join: its step function should only "
                          "update the parameters",
                          call);
    return status;
}

dist_status dist_ddp_ready(dist_ddp *ddp, int index)
{
    dist_status status = ddp_check_step(ddp, "dist_ddp_ready");
    struct ddp_parameter *parameter;

    if (status != DIST_OK)
        return status;
    if (!dist_ddp_gradient(ddp, index))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_ready: no gradient %d: dist_ddp_create got %d parameters, and "
                          "buffers have no gradient",
                          index, ddp->count);
    parameter = &ddp->parameters[index];
    if (parameter->ready)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_ready: called a second time for gradient %s in this step: call "
                          "it once, when the gradient is complete",
                          parameter->name);
    parameter->touched = true;
    parameter->ready = true;
    ddp->squared = false;
    if (ddp->local)
        return DIST_OK;
    ddp->buckets[parameter->bucket].missing--;
    if (ddp->arrived >= 0)
        ddp->arrival[ddp->arrived++] = index;
    status = ddp_advance(ddp);
    return status == DIST_OK ? DIST_OK : ddp_fail(ddp, status);
}

/* Zeroes a gradient. Host memory. */
static void ddp_clear(struct ddp_parameter *parameter, dist_dtype dtype)
{
    memset(parameter->gradient, 0, parameter->count * dist_dtype_size(dtype));
}

/*
 * Marks all gradients ready: those that were left out are zeroed, unless earlier local steps added
 * to them.
 */
static dist_status ddp_fill(struct dist_ddp *ddp)
{
    struct ddp_list missing = {.count = 0};

    for (int i = 0; i < ddp->count && !ddp->options.find_unused && !ddp->joined; i++)
        if (ddp->parameters[i].gradient && !ddp->parameters[i].touched)
            disti_ddp_list_add(&missing, ddp->parameters[i].name);
    if (missing.count > 0)
        return disti_fail(
            DIST_ERR_INVALID_ARGUMENT,
            "rank %d: dist_ddp_finish: no gradient for %s: call dist_ddp_ready for each of them, "
            "or set find_unused in the options if a step may leave some out",
            ddp->rank, disti_ddp_list_end(&missing));
    for (int i = 0; i < ddp->count; i++) {
        struct ddp_parameter *parameter = &ddp->parameters[i];

        if (!parameter->gradient || parameter->ready)
            continue;
        if (ddp->joined || !parameter->touched)
            ddp_clear(parameter, ddp->options.dtype);
        parameter->ready = true;
        ddp->buckets[parameter->bucket].missing--;
    }
    return ddp_advance(ddp);
}

/* Begins a step: the program owns all gradients again. */
static void ddp_begin(struct dist_ddp *ddp)
{
    for (int i = 0; i < ddp->count; i++)
        ddp->parameters[i].ready = false;
    for (int i = 0; i < ddp->bucket_count; i++) {
        ddp->buckets[i].state = DDP_FILLING;
        ddp->buckets[i].missing = ddp->buckets[i].count;
    }
    ddp->next = 0;
}

/* Reduces a step with the gradients that are ready. Blocks. */
static dist_status ddp_reduce(struct dist_ddp *ddp)
{
    const int64_t began = disti_now_ns();
    dist_status status = ddp_fill(ddp);
    bool moving = true;

    if (status == DIST_OK && ddp->tally) {
        ddp->tally[0] = !ddp->joined;
        for (int i = 0; i < ddp->count; i++)
            ddp->tally[1 + i] = !ddp->joined && ddp->parameters[i].touched;
        status =
            dist_all_reduce_async(ddp->stages[0], ddp->tally, ddp->tally, (size_t)ddp->count + 1,
                                  DIST_INT32, DIST_SUM, &ddp->tally_work);
    }
    /* Each iteration advances every bucket by one stage, in order. */
    while (moving && status == DIST_OK) {
        moving = false;
        for (int i = 0; i < ddp->bucket_count && status == DIST_OK; i++) {
            if (ddp->buckets[i].state != DDP_MOVING)
                continue;
            status = ddp_bucket_wait(ddp, &ddp->buckets[i]);
            moving = true;
        }
    }
    if (status == DIST_OK)
        status = ddp_tally_end(ddp);
    if (status == DIST_OK) {
        /* The step in which the ranks find that all have joined does not count. */
        if (!ddp->options.uneven || ddp->tally[0] != 0) {
            ddp->stats.steps++;
            for (int i = 0; i < ddp->count; i++)
                if (ddp->parameters[i].gradient)
                    ddp->stats.bytes +=
                        ddp->parameters[i].count * dist_dtype_size(ddp->options.dtype);
        }
        for (int i = 0; i < ddp->count; i++)
            ddp->parameters[i].touched = false;
        ddp_begin(ddp);
        ddp->squared = ddp->clips;
        /*
         * The int8 compression adds rounding errors of earlier steps to gradients that no rank had:
         * zero them.
         */
        for (int i = 0;
             i < ddp->count && ddp->options.find_unused && ddp->options.wire == DIST_DDP_WIRE_INT8;
             i++)
            if (ddp->parameters[i].gradient && ddp->tally[1 + i] == 0) {
                ddp_clear(&ddp->parameters[i], ddp->options.dtype);
                ddp->squared = false;
            }
        status = ddp->arrived >= 0 ? ddp_decide_order(ddp) : DIST_OK;
    }
    ddp->stats.waited += (double)(disti_now_ns() - began) * 1e-9;
    return status == DIST_OK ? DIST_OK : ddp_fail(ddp, status);
}

dist_status dist_ddp_finish(dist_ddp *ddp)
{
    dist_status status = ddp_check_step(ddp, "dist_ddp_finish");

    if (status != DIST_OK)
        return status;
    if (!ddp->local)
        return ddp_reduce(ddp);
    ddp_begin(ddp);
    return DIST_OK;
}

/* ---- calls between steps ---- */

dist_status dist_ddp_set_sync(dist_ddp *ddp, bool sync)
{
    dist_status status = ddp_check(ddp, "dist_ddp_set_sync");

    if (status != DIST_OK)
        return status;
    if (ddp->local == sync && ddp_has_ready(ddp))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_set_sync: a step is under way: call dist_ddp_finish first");
    ddp->local = !sync;
    return DIST_OK;
}

dist_status dist_ddp_zero_gradients(dist_ddp *ddp)
{
    dist_status status = ddp_check_between(ddp, "dist_ddp_zero_gradients");

    if (status != DIST_OK)
        return status;
    if (ddp->device)
        return disti_fail(
            DIST_ERR_UNSUPPORTED,
            "dist_ddp_zero_gradients: the gradients are in GPU memory: clear them on the GPU");
    for (int i = 0; i < ddp->count; i++)
        if (ddp->parameters[i].gradient)
            ddp_clear(&ddp->parameters[i], ddp->options.dtype);
    ddp->squared = false;
    return DIST_OK;
}

dist_status dist_ddp_sync_buffers(dist_ddp *ddp)
{
    dist_status status = ddp_check_between(ddp, "dist_ddp_sync_buffers");

    if (status != DIST_OK)
        return status;
    for (int i = 0; i < ddp->count && status == DIST_OK; i++)
        if (!ddp->parameters[i].gradient)
            status = dist_broadcast(ddp->stages[0], ddp->parameters[i].values,
                                    ddp->parameters[i].count, ddp->options.dtype, 0);
    return status == DIST_OK ? DIST_OK : ddp_fail(ddp, status);
}

dist_status dist_ddp_set_stream(dist_ddp *ddp, void *stream)
{
    dist_status status = ddp_check(ddp, "dist_ddp_set_stream");

    for (int i = 0; status == DIST_OK && i < ddp->stage_count; i++)
        status = dist_set_stream(ddp->stages[i], stream);
    return status;
}

/* Checks the size of the caller's result struct; `most` is its largest size. */
static dist_status ddp_check_result(const struct dist_ddp *ddp, const char *call,
                                    const size_t *size, size_t most)
{
    if (!ddp || ddp->destroyed)
        return ddp_check(ddp, call);
    if (!size)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: the result struct is NULL", call);
    if (*size >= sizeof(*size) && *size <= most)
        return DIST_OK;
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "%s: size is %zu: set it to the sizeof of the struct (at most %zu)", call,
                      *size, most);
}

dist_status dist_ddp_get_stats(const dist_ddp *ddp, struct dist_ddp_stats *stats_p)
{
    dist_status status = ddp_check_result(ddp, "dist_ddp_get_stats",
                                          stats_p ? &stats_p->size : NULL, sizeof(*stats_p));

    if (status != DIST_OK)
        return status;
    memcpy((char *)stats_p + sizeof(stats_p->size),
           (const char *)&ddp->stats + sizeof(ddp->stats.size),
           stats_p->size - sizeof(stats_p->size));
    return DIST_OK;
}

dist_status dist_ddp_get_bucket_times(const dist_ddp *ddp, int bucket,
                                      struct dist_ddp_bucket_times *times_p)
{
    struct dist_ddp_bucket_times times;
    const struct ddp_bucket *own;
    size_t count = 0; /* elements of the gradients, without padding */
    dist_status status = ddp_check_result(ddp, "dist_ddp_get_bucket_times",
                                          times_p ? &times_p->size : NULL, sizeof(*times_p));

    if (status != DIST_OK)
        return status;
    if (bucket < 0 || bucket >= ddp->bucket_count)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_get_bucket_times: bucket is %d: there are %d buckets, from 0",
                          bucket, ddp->bucket_count);
    own = &ddp->buckets[bucket];
    for (int i = 0; i < own->count; i++)
        count += ddp->parameters[ddp->order[own->first + i]].count;
    times = (struct dist_ddp_bucket_times){.size = times_p->size,
                                           .began_ns = own->began,
                                           .ended_ns = own->ended,
                                           .bytes = count * dist_dtype_size(ddp->options.dtype)};
    memcpy(times_p, &times, times_p->size);
    return DIST_OK;
}

/* ---- memory of the gradients ---- */

static uintptr_t place_begin(const struct ddp_parameter *parameter)
{
    return (uintptr_t)parameter->gradient;
}

static int place_compare(const void *a, const void *b)
{
    const uintptr_t left = place_begin(*(struct ddp_parameter *const *)a);
    const uintptr_t right = place_begin(*(struct ddp_parameter *const *)b);

    return (left > right) - (left < right);
}

/*
 * Allocates the gradients that have no memory, checks the alignment and overlap of all, and sets
 * the initial order: last parameter first. Local.
 */
static dist_status ddp_place(struct dist_ddp *ddp, dist_group *group)
{
    const size_t element = dist_dtype_size(ddp->options.dtype);
    struct ddp_parameter **sorted;
    dist_status status;
    size_t bytes, all = 0, at = 0;

    for (int i = 0; i < ddp->count; i++) {
        const struct ddp_parameter *parameter = &ddp->parameters[i];

        if (!place_padded(parameter->count, element, &bytes) || !disti_add(all, bytes, &all) ||
            all > PTRDIFF_MAX)
            return disti_fail(
                DIST_ERR_INVALID_ARGUMENT,
                "dist_ddp_create: the total size of the %d parameters exceeds the address space",
                ddp->count);
        at += parameter->own ? bytes : 0;
    }
    status = dist_alloc(group, at, &ddp->memory);
    if (status != DIST_OK)
        return status;
    at = 0;
    ddp->gradients = 0;
    for (int i = ddp->count - 1; i >= 0; i--) {
        struct ddp_parameter *parameter = &ddp->parameters[i];

        if (parameter->own) {
            parameter->gradient = (char *)ddp->memory + at;
            place_padded(parameter->count, element, &bytes);
            at += bytes;
        }
        if (parameter->gradient)
            ddp->order[ddp->gradients++] = i;
    }
    sorted = (struct ddp_parameter **)calloc((size_t)ddp->count, sizeof(*sorted));
    if (!sorted)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d parameters", ddp->count);
    for (int i = 0; i < ddp->gradients; i++) {
        sorted[i] = &ddp->parameters[ddp->order[i]];
        if (place_begin(sorted[i]) % element != 0) {
            status =
                disti_fail(DIST_ERR_INVALID_ARGUMENT,
                           "dist_ddp_create: the gradient of %s is not aligned to its elements",
                           sorted[i]->name);
            goto out;
        }
    }
    qsort((void *)sorted, (size_t)ddp->gradients, sizeof(*sorted), place_compare);
    for (int i = 0; i < ddp->gradients; i++) {
        struct ddp_parameter *next = i + 1 < ddp->gradients ? sorted[i + 1] : NULL;
        const uintptr_t end = place_begin(sorted[i]) + ddp_span(ddp, sorted[i]) * element;

        if (next && place_begin(next) < end) {
            status = disti_fail(
                DIST_ERR_INVALID_ARGUMENT,
                "dist_ddp_create: the gradients of %s and %s overlap: list shared memory once",
                sorted[i]->name, next->name);
            goto out;
        }
        sorted[i]->next = next && end == place_begin(next) ? (int)(next - ddp->parameters) : -1;
    }
out:
    free((void *)sorted);
    return status;
}

/* Ranks without further batches, while other ranks have some. */

/*
 *      rank 0   step  step  step  join              when the last rank joins, no rank
 *      rank 1   step  join..................        takes part: all have joined
 *      rank 2   step  step  join............
 *      active     3     2     1     0
 */
dist_status dist_ddp_join(dist_ddp *ddp, int (*step)(void *arg), void *arg)
{
    dist_status status = ddp_check(ddp, "dist_ddp_join");

    if (status != DIST_OK)
        return status;
    if (ddp->joined)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_join: this rank is already in dist_ddp_join: its step function "
                          "should only update the parameters");
    if (!ddp->options.uneven)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_join: set uneven in the options of dist_ddp_create");
    if (ddp->local)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_join: steps are not reduced: end the step and call "
                          "dist_ddp_set_sync with true first");
    status = ddp_check_between(ddp, "dist_ddp_join");
    if (status != DIST_OK)
        return status;
    ddp->joined = true;
    while (status == DIST_OK) {
        int result;

        status = ddp_reduce(ddp);
        if (status != DIST_OK || ddp->tally[0] == 0)
            break;
        result = step ? step(arg) : 0;
        if (result != 0)
            status = ddp_fail(ddp, disti_fail(DIST_ERR_ABORTED,
                                              "rank %d: dist_ddp_join: the program's step returned "
                                              "%d",
                                              ddp->rank, result));
    }
    ddp->joined = false;
    return status;
}

/* Creation and destruction. */

/*
 * If sending takes as long as computing, about one bucket is still to be sent when the backward
 * pass ends. So by default a bucket has about 1 / DDP_BUCKET_SHARE of the gradients, but at least
 * DDP_FIRST_BUCKET bytes: smaller buckets are inefficient.
 */
enum { DDP_FIRST_BUCKET = 1 << 20, DDP_BUCKET = 25 << 20, DDP_BUCKET_SHARE = 16 };

static dist_status ddp_bad(const char *what)
{
    return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_ddp_create: %s", what);
}

/* Checks the program's options, and fills in defaults. */
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
        return ddp_bad("options.hook and options.wire are both set: use only one of them");
    if ((unsigned)options->dtype >= DIST_DTYPE_COUNT || !disti_dtype_is_float(options->dtype))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_create: options.dtype is %d (%s): set it to a floating-point "
                          "type: float32, float64, float16 or bfloat16",
                          (int)options->dtype, dist_dtype_string(options->dtype));
    if (options->wire != DIST_DDP_WIRE_SAME && options->dtype != DIST_FLOAT32)
        return ddp_bad("options.wire is supported for float32 only");
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

/*
 * Returns the hashes of the lists and options, which must be equal, and of the adjacency of
 * gradients, which decides the pieces.
 */
static struct ddp_hashes ddp_hash(const struct dist_ddp *ddp)
{
    const struct dist_ddp_options *options = &ddp->options;
    const uint64_t settings[] = {(uint64_t)options->dtype,       options->first_bucket_bytes,
                                 options->bucket_bytes,          options->sum,
                                 options->find_unused,           options->uneven,
                                 (uint64_t)options->wire,        options->hook != NULL,
                                 (uint64_t)options->hook_stages, (uint64_t)ddp->count};
    struct ddp_hashes hashes = {
        .must_match = disti_hash_bytes(DISTI_HASH_START, settings, sizeof(settings)),
        .may_differ = DISTI_HASH_START,
    };

    for (int i = 0; i < ddp->count; i++) {
        const struct ddp_parameter *parameter = &ddp->parameters[i];
        const uint64_t facts[] = {parameter->count, parameter->gradient != NULL, parameter->own,
                                  parameter->values != NULL};

        hashes.must_match = disti_hash_bytes(hashes.must_match, facts, sizeof(facts));
        if (parameter->gradient)
            hashes.may_differ =
                disti_hash_bytes(hashes.may_differ, &parameter->next, sizeof(parameter->next));
    }
    return hashes;
}

/* The local part of dist_ddp_create. */
static dist_status ddp_prepare(struct dist_ddp *ddp, dist_group *group,
                               const struct dist_ddp_parameter *parameters, int count,
                               const struct dist_ddp_options *options)
{
    dist_status status = ddp_options(options, &ddp->options);
    const struct disti_driver *driver;
    bool tallies;

    if (status == DIST_OK && count < 1)
        status = disti_fail(DIST_ERR_INVALID_ARGUMENT,
                            "dist_ddp_create: count is %d: list at least one parameter", count);
    if (status == DIST_OK && !parameters)
        status = ddp_bad("parameters is NULL");
    if (status != DIST_OK)
        return status;
    tallies = ddp->options.find_unused || ddp->options.uneven;
    ddp->parameters = calloc((size_t)count, sizeof(*ddp->parameters));
    ddp->order = calloc((size_t)count, sizeof(*ddp->order));
    ddp->arrival = calloc((size_t)count, sizeof(*ddp->arrival));
    ddp->buckets = calloc((size_t)count, sizeof(*ddp->buckets));
    if (tallies)
        ddp->tally = calloc((size_t)count + 1, sizeof(*ddp->tally));
    if (!ddp->parameters || !ddp->order || !ddp->arrival || !ddp->buckets ||
        (!ddp->tally && tallies))
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d parameters", count);
    ddp->count = count;
    for (int i = 0; i < count && status == DIST_OK; i++)
        status = ddp_parameter_copy(&ddp->parameters[i], &parameters[i], i, ddp->options.dtype);
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
    driver = disti_driver_loaded();
    for (int i = 0; driver && i < ddp->gradients && !ddp->device; i++)
        ddp->device = disti_driver_owns(driver, ddp->parameters[ddp->order[i]].gradient);
    if (ddp->device && ddp->options.wire != DIST_DDP_WIRE_SAME)
        return disti_fail(
            DIST_ERR_UNSUPPORTED,
            "dist_ddp_create: options.wire is supported for gradients in host memory only");
    if (ddp->device && tallies)
        return disti_fail(DIST_ERR_UNSUPPORTED, "dist_ddp_create: uneven and find_unused are "
                                                "supported for gradients in host memory only");
    ddp->compression = disti_ddp_compression(&ddp->options);
    ddp->stage_count =
        ddp->compression->stages ? ddp->compression->stages : ddp->options.hook_stages;
    return DIST_OK;
}

/*
 * Destroys the groups; afterwards no rank accesses the memory. Frees everything except the
 * structure.
 */
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
    free(ddp->arrival);
    free(ddp->buckets);
    free(ddp->tally);
    return status;
}

/*
 * The collective part of dist_ddp_create. The first group is made before the ranks compare their
 * lists, so that a rank with wrong arguments can decline without waiting.
 */
static dist_status ddp_create(struct dist_ddp *ddp, dist_group *group)
{
    const struct ddp_hashes mine = ddp_hash(ddp);
    dist_status status = dist_dup_group(group, NULL, &ddp->stages[0]);
    bool differs = false;

    if (disti_ddp_is_declined(status))
        return status;
    status = disti_ddp_agree(group, "dist_ddp_create", status, mine, &differs);
    if (status != DIST_OK)
        return status;
    ddp->scattered = differs;
    for (int i = 1; i < ddp->stage_count && status == DIST_OK; i++)
        status = dist_dup_group(group, NULL, &ddp->stages[i]);
    for (int i = 0; i < ddp->count && status == DIST_OK; i++)
        if (ddp->parameters[i].values)
            status = dist_broadcast(ddp->stages[0], ddp->parameters[i].values,
                                    ddp->parameters[i].count, ddp->options.dtype, 0);
    if (status == DIST_OK)
        status = ddp_buckets_make(ddp);
    /*
     * Ensures that all ranks have finished: otherwise a rank that destroys its handle at once could
     * end groups that other ranks are still making.
     */
    return disti_ddp_agree(group, "dist_ddp_create", status, (struct ddp_hashes){0}, &differs);
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
            ddp_fail(ddp, status);
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
        return ddp_check(ddp, "dist_ddp_destroy");
    status = DIST_ERR_ABORTED;
    if (ddp->failed == DIST_OK && !ddp_is_in_step(ddp))
        status = disti_ddp_leave(ddp->stages[0]);
    if (status != DIST_OK)
        ddp_fail(ddp, status);
    status = ddp_release(ddp);
    *ddp = (struct dist_ddp){.destroyed = true};
    disti_ddp_keep_destroyed(ddp);
    return status == DIST_ERR_ABORTED ? DIST_OK : status;
}
