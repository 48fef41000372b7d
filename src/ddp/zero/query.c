/* SPDX-License-Identifier: BSD-3-Clause */
/* What a program asks and sets between steps, and how it all fails. */
#include "zero.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"

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

bool disti_zero_is_in_step(const struct dist_zero *zero)
{
    for (int i = 0; i < zero->count; i++)
        if (zero->parameters[i].ready)
            return true;
    return false;
}

dist_status disti_zero_check_between(const struct dist_zero *zero, const char *call)
{
    dist_status status = disti_zero_check(zero, call);

    if (status == DIST_OK && disti_zero_is_in_step(zero))
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
    dist_status status = disti_zero_check_between(zero, "dist_zero_clear_gradients");

    if (status == DIST_OK)
        memset(zero->gradients, 0, zero->elements * sizeof(*zero->gradients));
    return status;
}

dist_status dist_zero_sync_values(dist_zero *zero)
{
    dist_status status = disti_zero_check_between(zero, "dist_zero_sync_values");

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
    dist_status status = disti_zero_check_between(zero, "dist_zero_set_steps");

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
