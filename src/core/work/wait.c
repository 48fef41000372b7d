/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for works, and asking after them. */
#include "base/clock.h"
#include "core/work/handle.h"
#include "core/work/others.h"

static bool wait_has_ended(const struct disti_work *work)
{
    return atomic_load_explicit(&work->ended, memory_order_acquire);
}

/* Blocks until it has ended or the time has come. */
static void wait_end(struct disti_work *work, int64_t until)
{
    struct dist_group *group = work->group;

    disti_group_enter(group);
    disti_drive_until(group, work, until);
    disti_group_exit(group);
}

/*
 * How dist_wait goes, by the kind of the work, which was claimed. *pins_p, which is 0 before: how
 * many pins the work has that are the caller's to give back; 0: the handle stays good.
 */

static dist_status wait_async(struct disti_work *work, int64_t until, int *pins_p)
{
    if (!wait_has_ended(work)) {
        dist_status status = disti_work_may_wait("dist_wait");

        if (status != DIST_OK)
            return status;
        wait_end(work, until);
        if (!wait_has_ended(work))
            return DIST_IN_PROGRESS;
    }
    *pins_p = 2;
    return disti_work_result(work);
}

static dist_status wait_stream(struct disti_work *work, int64_t until, int *pins_p)
{
    if (wait_has_ended(work) || !disti_stream_join(work))
        return wait_async(work, until, pins_p);
    *pins_p = 1;
    return DIST_OK;
}

static dist_status wait_persistent(struct disti_work *work, int64_t until, int *pins_p)
{
    dist_status status;
    int pins = 0;

    (void)pins_p;
    if (!work->persistent.started)
        return DIST_OK;
    status = wait_async(work, until, &pins);
    work->persistent.started = !pins;
    return status;
}

static dist_status wait_handle(dist_work *handle, int64_t until, bool *over_p);

static dist_status wait_posted(struct disti_work *work, int64_t until, int *pins_p)
{
    bool over;
    dist_status status;

    (void)pins_p;
    if (!work->posted)
        return DIST_OK;
    status = wait_handle(work->posted, until, &over);
    if (over)
        work->posted = NULL;
    return status;
}

/* Nobody has a handle of the other kinds. */
static dist_status (*const wait_ways[])(struct disti_work *work, int64_t until, int *pins_p) = {
    [DISTI_WORK_ASYNC] = wait_async,
    [DISTI_WORK_STREAM] = wait_stream,
    [DISTI_WORK_PERSISTENT] = wait_persistent,
    [DISTI_WORK_PERSISTENT_STREAM] = wait_posted,
};

/* *over_p: the handle is good for nothing any more. */
static dist_status wait_handle(dist_work *handle, int64_t until, bool *over_p)
{
    struct disti_work *work;
    dist_status status = disti_handle_claim(handle, "dist_wait", &work);
    int pins = 0;

    *over_p = status != DIST_OK;
    if (status != DIST_OK)
        return status;
    status = wait_ways[work->kind](work, until, &pins);
    if (pins)
        disti_work_retire(work, pins);
    else
        disti_handle_unclaim(work);
    *over_p = pins > 0;
    return status;
}

dist_status dist_wait(dist_work *work)
{
    bool over;

    return wait_handle(work, INT64_MAX, &over);
}

dist_status dist_wait_for(dist_work *work, int timeout_ms)
{
    bool over;

    if (work && timeout_ms < 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_wait_for: timeout_ms is %d: give 0 or more milliseconds",
                          timeout_ms);
    return wait_handle(work, disti_deadline_ms(timeout_ms), &over);
}

static bool wait_test(struct disti_work *work)
{
    struct dist_group *group = work->group;

    /* Whoever has the lock moves things along as well as this thread would. */
    if (!wait_has_ended(work) && disti_lock_try(&group->lock)) {
        disti_log_use(group->log);
        disti_drive_once(group);
        disti_group_exit(group);
    }
    if (disti_others_wait(group) && !disti_work_is_calling())
        disti_others_move();
    return wait_has_ended(work);
}

dist_status dist_test(dist_work *handle, bool *done_p)
{
    struct disti_work *work;
    dist_work *posted;
    dist_status status;

    if (!done_p)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_test: done_p is NULL");
    status = disti_handle_pin(handle, "dist_test", &work);
    if (status != DIST_OK)
        return status;
    posted = work->kind == DISTI_WORK_PERSISTENT_STREAM ? work->posted : NULL;
    if (posted) {
        disti_work_unpin(work);
        return dist_test(posted, done_p);
    }
    *done_p = wait_test(work);
    disti_work_unpin(work);
    return DIST_OK;
}

/* True: the work has ended, and the caller is to call the function. */
static dist_status wait_note(struct disti_work *work, dist_work_fn fn, void *arg, bool *ended_p)
{
    struct dist_group *group = work->group;
    dist_status status = DIST_OK;

    disti_group_enter(group);
    if (work->on_complete.fn) {
        status = disti_fail(DIST_ERR_INVALID_ARGUMENT, "the work already has a function");
    } else {
        work->on_complete.fn = fn;
        work->on_complete.arg = arg;
        *ended_p = wait_has_ended(work);
        disti_drive_kick(group);
    }
    disti_group_exit(group);
    return status;
}

dist_status dist_on_complete(dist_work *handle, dist_work_fn fn, void *arg)
{
    struct disti_work *work;
    bool ended = false;
    dist_status status;

    if (handle && !fn)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_on_complete: fn is NULL");
    status = disti_handle_pin(handle, "dist_on_complete", &work);
    if (status != DIST_OK)
        return status;
    if (disti_work_is_persistent(work))
        status = disti_fail(DIST_ERR_INVALID_ARGUMENT,
                            "dist_on_complete does not accept persistent works: use "
                            "dist_wait or dist_test");
    else
        status = wait_note(work, fn, arg, &ended);
    if (ended)
        disti_complete_call(work, fn, arg);
    disti_work_unpin(work);
    return status;
}
