/* SPDX-License-Identifier: BSD-3-Clause */
/* A step: buckets start when they are full, and all of them end in dist_ddp_finish. */
#include "ddp.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "ddp/common.h"

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
    if (ddp->clips)
        disti_ddp_square(ddp, bucket);
    return DIST_OK;
}

static dist_status ddp_bucket_wait(struct dist_ddp *ddp, struct ddp_bucket *bucket)
{
    dist_status status = dist_wait(bucket->work);

    bucket->work = NULL;
    return status == DIST_OK ? ddp_bucket_next(ddp, bucket) : status;
}

/* For the next step. */
static void ddp_bucket_refill(struct ddp_bucket *bucket)
{
    bucket->state = DDP_FILLING;
    bucket->missing = bucket->count;
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

dist_status disti_ddp_advance(struct dist_ddp *ddp)
{
    dist_status status = ddp_stages_move(ddp);

    while (status == DIST_OK && ddp->next < ddp->bucket_count &&
           ddp->buckets[ddp->next].missing == 0)
        status = ddp_bucket_next(ddp, &ddp->buckets[ddp->next++]);
    return status;
}

static void ddp_mark_ready(struct dist_ddp *ddp, int index)
{
    struct ddp_parameter *parameter = &ddp->parameters[index];

    parameter->ready = true;
    ddp->buckets[parameter->bucket].missing--;
    if (ddp->came_count >= 0)
        ddp->came[ddp->came_count++] = index;
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

dist_status dist_ddp_ready(dist_ddp *ddp, int index)
{
    dist_status status = ddp_check_step(ddp, "dist_ddp_ready");

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
                          disti_ddp_name(ddp, index));
    ddp->parameters[index].touched = true;
    ddp->squared = false;
    if (ddp->local) {
        ddp->parameters[index].ready = true;
        return DIST_OK;
    }
    ddp_mark_ready(ddp, index);
    status = disti_ddp_advance(ddp);
    return status == DIST_OK ? DIST_OK : disti_ddp_fail(ddp, status);
}

/* The gradients of which none has been given. */
static void ddp_list_missing(const struct dist_ddp *ddp, struct ddp_list *list)
{
    for (int i = 0; i < ddp->count; i++)
        if (ddp->parameters[i].gradient && !ddp->parameters[i].touched)
            disti_ddp_list_add(list, disti_ddp_name(ddp, i));
}

/* Gradients left out are zero; those of earlier, local steps are there already. */
static dist_status ddp_fill(struct dist_ddp *ddp)
{
    struct ddp_list missing = {.count = 0};

    if (!ddp->options.find_unused && !ddp->joined)
        ddp_list_missing(ddp, &missing);
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
            disti_ddp_clear(parameter, ddp->options.dtype);
        parameter->ready = true;
        ddp->buckets[parameter->bucket].missing--;
    }
    return disti_ddp_advance(ddp);
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
    for (int i = 0; i < ddp->bucket_count; i++)
        ddp_bucket_refill(&ddp->buckets[i]);
    ddp->next = 0;
}

/* The step in which all ranks find that all have joined is none. */
static void ddp_count_step(struct dist_ddp *ddp)
{
    if (ddp->options.uneven && ddp->tally[0] == 0)
        return;
    ddp->stats.steps++;
    for (int i = 0; i < ddp->count; i++)
        if (ddp->parameters[i].gradient)
            ddp->stats.bytes += ddp->parameters[i].count * dist_dtype_size(ddp->options.dtype);
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
        disti_ddp_clear(&ddp->parameters[i], ddp->options.dtype);
        any = true;
    }
    return any;
}

/* The step has ended well. */
static dist_status ddp_end(struct dist_ddp *ddp)
{
    ddp_count_step(ddp);
    for (int i = 0; i < ddp->count; i++)
        ddp->parameters[i].touched = false;
    ddp_begin(ddp);
    ddp->squared = !ddp_clear_unused(ddp) && ddp->clips;
    return ddp->came_count >= 0 ? disti_ddp_decide_order(ddp) : DIST_OK;
}

dist_status disti_ddp_reduce(struct dist_ddp *ddp)
{
    const int64_t began = disti_now_ns();
    dist_status status = ddp_fill(ddp);

    if (status == DIST_OK)
        status = disti_ddp_tally_start(ddp);
    if (status == DIST_OK)
        status = ddp_drain(ddp);
    if (status == DIST_OK)
        status = disti_ddp_tally_end(ddp);
    if (status == DIST_OK)
        status = ddp_end(ddp);
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
