/* SPDX-License-Identifier: BSD-3-Clause */
/* Who took part in a step, and who had which gradient. */
#include "base/clock.h"
#include "base/kernels/environment.h"
#include "base/log.h"
#include "ddp/ddp.h"

#include <math.h>
#include <string.h>

/* Who took part in the step, and who had which gradient: added up over the ranks beside the last
 * buckets. The second blocks. Both do nothing if no option asks for it. */
static dist_status ddp_tally_start(struct dist_ddp *ddp)
{
    if (!ddp->tally)
        return DIST_OK;
    ddp->tally[0] = !ddp->joined;
    for (int i = 0; i < ddp->count; i++)
        ddp->tally[1 + i] = !ddp->joined && ddp->parameters[i].touched;
    return dist_all_reduce_async(ddp->stages[0], ddp->tally, ddp->tally, (size_t)ddp->count + 1,
                                 DIST_INT32, DIST_SUM, &ddp->tally_work);
}

static dist_status ddp_tally_end(struct dist_ddp *ddp)
{
    dist_work *work = ddp->tally_work;

    ddp->tally_work = NULL;
    return work ? dist_wait(work) : DIST_OK;
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

/* The norm of all gradients, and clipping by it. */

/* Called in the library's floating-point environment. */
#define NORM_APART __attribute__((noinline))

/* Sums that run beside each other, so that they vectorise. The order of additions is fixed. */
enum { NORM_LANES = 8 };

static double norm_add(const double sums[NORM_LANES])
{
    double sum = 0.0;

    for (int i = 0; i < NORM_LANES; i++)
        sum += sums[i];
    return sum;
}

NORM_APART static double norm_squares_f32(const float *x, size_t count)
{
    double sums[NORM_LANES] = {0.0};
    size_t i = 0;

    for (; i + NORM_LANES <= count; i += NORM_LANES)
        for (int j = 0; j < NORM_LANES; j++)
            sums[j] += (double)x[i + (size_t)j] * (double)x[i + (size_t)j];
    for (; i < count; i++)
        sums[0] += (double)x[i] * (double)x[i];
    return norm_add(sums);
}

double disti_squares_f32(const float *x, size_t count)
{
    const disti_environment saved = disti_environment_enter();
    const double squares = norm_squares_f32(x, count);

    disti_environment_leave(saved);
    return squares;
}

NORM_APART static double norm_squares_f64(const double *x, size_t count)
{
    double sums[NORM_LANES] = {0.0};

    for (size_t i = 0; i < count; i++)
        sums[i % NORM_LANES] += x[i] * x[i];
    return norm_add(sums);
}

static void norm_square(const struct dist_ddp *ddp, struct ddp_parameter *parameter)
{
    parameter->squares =
        ddp->options.dtype == DIST_FLOAT32
            ? norm_squares_f32((const float *)(const void *)parameter->gradient, parameter->count)
            : norm_squares_f64((const double *)(const void *)parameter->gradient, parameter->count);
}

/* In the order of the parameters, whatever the buckets are. */
static double norm_of(struct dist_ddp *ddp)
{
    double sum = 0.0;

    for (int i = 0; i < ddp->count; i++) {
        if (!ddp->parameters[i].gradient)
            continue;
        if (!ddp->squared)
            norm_square(ddp, &ddp->parameters[i]);
        sum += ddp->parameters[i].squares;
    }
    return sqrt(sum);
}

/* Returns the norm before clipping. */
NORM_APART static double norm_clip(struct dist_ddp *ddp, double max_norm)
{
    const double norm = norm_of(ddp);

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
    dist_status status = disti_ddp_check_between(ddp, "dist_ddp_clip");
    disti_environment saved;
    double norm;

    if (status != DIST_OK)
        return status;
    if (!(max_norm >= 0.0))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_clip: max_norm is %g: give 0 or more", max_norm);
    if (ddp->device || (ddp->options.dtype != DIST_FLOAT32 && ddp->options.dtype != DIST_FLOAT64))
        return disti_fail(DIST_ERR_UNSUPPORTED,
                          "dist_ddp_clip: it is for float32 and float64 in host memory");
    saved = disti_environment_enter();
    norm = norm_clip(ddp, max_norm);
    disti_environment_leave(saved);
    if (norm_p)
        *norm_p = norm;
    return DIST_OK;
}

/* A step: buckets start when they are full, and all of them end in dist_ddp_finish. */

/* The work that moved the bucket, if there was one, has ended well: its next stage. */
static dist_status ddp_bucket_next(struct dist_ddp *ddp, struct ddp_bucket *bucket)
{
    dist_status status;

    bucket->stage = bucket->state == DDP_FILLING ? 0 : bucket->stage + 1;
    if (bucket->stage == 0)
        bucket->began = disti_now_ns();
    bucket->work = NULL;
    status = ddp->wire->next(ddp, bucket, bucket->stage, &bucket->work);
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
 * Moves started buckets on whose works have ended. A stage's operations start in the order of the
 * buckets on every rank, so none overtakes the one before it; stages have a group each, for between
 * them there is no such order.
 */
static dist_status ddp_stages_move(struct dist_ddp *ddp)
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
    return status;
}

/* Starts buckets that are full, and moves those that have started on. Does not block. */
static dist_status ddp_advance(struct dist_ddp *ddp)
{
    dist_status status = ddp_stages_move(ddp);

    while (status == DIST_OK && ddp->next < ddp->bucket_count &&
           ddp->buckets[ddp->next].missing == 0)
        status = ddp_bucket_next(ddp, &ddp->buckets[ddp->next++]);
    return status;
}

/* While it has joined, dist_ddp_join makes the steps. */
static dist_status ddp_check_step(const struct dist_ddp *ddp, const char *call)
{
    dist_status status = disti_ddp_check(ddp, call);

    if (status == DIST_OK && ddp->joined)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s: dist_ddp_join makes the steps: the function that it calls only "
                          "updates the parameters",
                          call);
    return status;
}

static const char *ddp_name(const struct dist_ddp *ddp, int i)
{
    return ddp->parameters[i].name;
}

dist_status dist_ddp_ready(dist_ddp *ddp, int index)
{
    dist_status status = ddp_check_step(ddp, "dist_ddp_ready");
    struct ddp_parameter *parameter;

    if (status != DIST_OK)
        return status;
    if (!dist_ddp_gradient(ddp, index))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_ready: there is no gradient %d; dist_ddp_create was given %d "
                          "parameters, and buffers have none",
                          index, ddp->count);
    if (ddp->parameters[index].ready)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_ready: gradient %s is ready for the second time in this step; "
                          "call it once, when all of the gradient is there",
                          ddp_name(ddp, index));
    ddp->parameters[index].touched = true;
    ddp->squared = false;
    if (ddp->local) {
        ddp->parameters[index].ready = true;
        return DIST_OK;
    }
    parameter = &ddp->parameters[index];
    parameter->ready = true;
    ddp->buckets[parameter->bucket].missing--;
    if (ddp->came_count >= 0)
        ddp->came[ddp->came_count++] = index;
    status = ddp_advance(ddp);
    return status == DIST_OK ? DIST_OK : disti_ddp_fail(ddp, status);
}

/* Zeroes what bucket has of this rank's gradients that were left out. Host memory. */
static void ddp_clear(struct ddp_parameter *parameter, dist_dtype dtype)
{
    memset(parameter->gradient, 0, parameter->count * dist_dtype_size(dtype));
}

/* Gradients left out are zero; those of earlier, local steps are there already. */
static dist_status ddp_fill(struct dist_ddp *ddp)
{
    struct ddp_list missing = {.count = 0};

    if (!ddp->options.find_unused && !ddp->joined) {
        for (int i = 0; i < ddp->count; i++)
            if (ddp->parameters[i].gradient && !ddp->parameters[i].touched)
                disti_ddp_list_add(&missing, ddp_name(ddp, i));
    }
    if (missing.count > 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "rank %d: dist_ddp_finish: there is no gradient for %s; call "
                          "dist_ddp_ready for each of them, or set find_unused in the options if "
                          "steps may leave some out",
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

/* A sweep over the buckets moves each of them by one stage, in order. */
static dist_status ddp_drain(struct dist_ddp *ddp)
{
    dist_status status = DIST_OK;
    bool moving = true;

    while (moving && status == DIST_OK) {
        moving = false;
        for (int i = 0; i < ddp->bucket_count && status == DIST_OK; i++) {
            if (ddp->buckets[i].state != DDP_MOVING)
                continue;
            status = ddp_bucket_wait(ddp, &ddp->buckets[i]);
            moving = true;
        }
    }
    return status;
}

/* All of them are in the library's hands no more. */
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

/*
 * Int8 sends what its rounding left of earlier steps, with gradients too that no rank had: those
 * are zero all the same. Returns whether there were any.
 */
static bool ddp_clear_unused(struct dist_ddp *ddp)
{
    bool any = false;

    if (!ddp->options.find_unused || ddp->options.wire != DIST_DDP_WIRE_INT8)
        return false;
    for (int i = 0; i < ddp->count; i++) {
        if (!ddp->parameters[i].gradient || ddp->tally[1 + i] > 0)
            continue;
        ddp_clear(&ddp->parameters[i], ddp->options.dtype);
        any = true;
    }
    return any;
}

dist_status disti_ddp_reduce(struct dist_ddp *ddp)
{
    const int64_t began = disti_now_ns();
    dist_status status = ddp_fill(ddp);

    if (status == DIST_OK)
        status = ddp_tally_start(ddp);
    if (status == DIST_OK)
        status = ddp_drain(ddp);
    if (status == DIST_OK)
        status = ddp_tally_end(ddp);
    if (status == DIST_OK) {
        /* The step in which all ranks find that all have joined does not count. */
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
        ddp->squared = !ddp_clear_unused(ddp) && ddp->clips;
        status = ddp->came_count >= 0 ? disti_ddp_decide_order(ddp) : DIST_OK;
    }
    ddp->stats.waited += (double)(disti_now_ns() - began) * 1e-9;
    return status == DIST_OK ? DIST_OK : disti_ddp_fail(ddp, status);
}

dist_status dist_ddp_finish(dist_ddp *ddp)
{
    dist_status status = ddp_check_step(ddp, "dist_ddp_finish");

    if (status != DIST_OK)
        return status;
    if (!ddp->local)
        return disti_ddp_reduce(ddp);
    ddp_begin(ddp);
    return DIST_OK;
}

/* "'conv1.bias'" of parameter i, for messages. */
/* What a program asks and sets between steps, and how it all fails. */

dist_status disti_ddp_fail(struct dist_ddp *ddp, dist_status status)
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

dist_status disti_ddp_check(const struct dist_ddp *ddp, const char *call)
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

void *dist_ddp_gradient(const dist_ddp *ddp, int index)
{
    return ddp && index >= 0 && index < ddp->count ? ddp->parameters[index].gradient : NULL;
}

static bool ddp_has_ready(const struct dist_ddp *ddp)
{
    for (int i = 0; i < ddp->count; i++)
        if (ddp->parameters[i].ready)
            return true;
    return false;
}

bool disti_ddp_is_in_step(const struct dist_ddp *ddp)
{
    return !ddp->local && ddp_has_ready(ddp);
}

dist_status disti_ddp_check_between(const struct dist_ddp *ddp, const char *call)
{
    dist_status status = disti_ddp_check(ddp, call);

    if (status == DIST_OK && disti_ddp_is_in_step(ddp))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "%s: a step is under way: call dist_ddp_finish before", call);
    return status;
}

dist_status dist_ddp_set_sync(dist_ddp *ddp, bool sync)
{
    dist_status status = disti_ddp_check(ddp, "dist_ddp_set_sync");

    if (status != DIST_OK)
        return status;
    if (ddp->local == sync && ddp_has_ready(ddp))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_set_sync: a step is under way: call dist_ddp_finish before");
    ddp->local = !sync;
    return DIST_OK;
}

dist_status dist_ddp_zero_gradients(dist_ddp *ddp)
{
    dist_status status = disti_ddp_check_between(ddp, "dist_ddp_zero_gradients");

    if (status != DIST_OK)
        return status;
    if (ddp->device)
        return disti_fail(DIST_ERR_UNSUPPORTED,
                          "dist_ddp_zero_gradients: they are memory of a GPU: "
                          "fill them there");
    for (int i = 0; i < ddp->count; i++)
        if (ddp->parameters[i].gradient)
            ddp_clear(&ddp->parameters[i], ddp->options.dtype);
    ddp->squared = false;
    return DIST_OK;
}

dist_status dist_ddp_sync_buffers(dist_ddp *ddp)
{
    dist_status status = disti_ddp_check_between(ddp, "dist_ddp_sync_buffers");

    if (status != DIST_OK)
        return status;
    for (int i = 0; i < ddp->count && status == DIST_OK; i++)
        if (!ddp->parameters[i].gradient)
            status = dist_broadcast(ddp->stages[0], ddp->parameters[i].values,
                                    ddp->parameters[i].count, ddp->options.dtype, 0);
    return status == DIST_OK ? DIST_OK : disti_ddp_fail(ddp, status);
}

dist_status dist_ddp_set_stream(dist_ddp *ddp, void *stream)
{
    dist_status status = disti_ddp_check(ddp, "dist_ddp_set_stream");

    for (int i = 0; status == DIST_OK && i < ddp->stage_count; i++)
        status = dist_set_stream(ddp->stages[i], stream);
    return status;
}

/* The caller's struct of results: its size, of which `most` is the largest. */
static dist_status ddp_check_result(const struct dist_ddp *ddp, const char *call,
                                    const size_t *size, size_t most)
{
    if (!ddp || ddp->destroyed)
        return disti_ddp_check(ddp, call);
    if (!size)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: the struct for the result is NULL", call);
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

/* The gradients alone: between them are elements that only travel along. */
static uint64_t ddp_bucket_bytes(const struct dist_ddp *ddp, const struct ddp_bucket *bucket)
{
    size_t count = 0;

    for (int i = 0; i < bucket->count; i++)
        count += ddp->parameters[ddp->order[bucket->first + i]].count;
    return count * dist_dtype_size(ddp->options.dtype);
}

dist_status dist_ddp_get_bucket_times(const dist_ddp *ddp, int bucket,
                                      struct dist_ddp_bucket_times *times_p)
{
    struct dist_ddp_bucket_times times;
    dist_status status = ddp_check_result(ddp, "dist_ddp_get_bucket_times",
                                          times_p ? &times_p->size : NULL, sizeof(*times_p));

    if (status != DIST_OK)
        return status;
    if (bucket < 0 || bucket >= ddp->bucket_count)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_get_bucket_times: bucket is %d: there are %d, from 0", bucket,
                          ddp->bucket_count);
    times = (struct dist_ddp_bucket_times){
        .size = times_p->size,
        .began_ns = ddp->buckets[bucket].began,
        .ended_ns = ddp->buckets[bucket].ended,
        .bytes = ddp_bucket_bytes(ddp, &ddp->buckets[bucket]),
    };
    memcpy(times_p, &times, times_p->size);
    return DIST_OK;
}
