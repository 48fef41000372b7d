/* SPDX-License-Identifier: BSD-3-Clause */
/* What a program asks and sets between steps, and how it all fails. */
#include "ddp.h"

#include <string.h>

#include "base/log.h"

const char *disti_ddp_name(const struct dist_ddp *ddp, int i)
{
    return ddp->parameters[i].name;
}

/* Works that are under way end soon, for their group has ended. */
static void ddp_end_works(struct dist_ddp *ddp)
{
    disti_ddp_tally_end(ddp);
    for (int i = 0; i < ddp->bucket_count; i++) {
        dist_work *work = ddp->buckets[i].work;

        ddp->buckets[i].work = NULL;
        if (work)
            dist_wait(work);
    }
}

dist_status disti_ddp_fail(struct dist_ddp *ddp, dist_status status)
{
    char text[1024];

    if (ddp->failed == DIST_OK) {
        disti_text(text, sizeof(text), "%s", dist_last_error());
        ddp->failed = status;
        for (int i = 0; i < ddp->stage_count; i++)
            dist_abort(ddp->stages[i]);
        ddp_end_works(ddp);
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

void disti_ddp_clear(struct ddp_parameter *parameter, dist_dtype dtype)
{
    memset(parameter->gradient, 0, parameter->count * dist_dtype_size(dtype));
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
            disti_ddp_clear(&ddp->parameters[i], ddp->options.dtype);
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
