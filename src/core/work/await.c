/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for works, and asking after them. */
#include "base/clock.h"
#include "core/group/group.h"
#include "core/work/handle.h"

static bool await_has_ended(const struct disti_work *work)
{
    return atomic_load_explicit(&work->ended, memory_order_acquire);
}

/* Blocks until it has ended or the time has come. */
static void await_end(struct disti_work *work, int64_t until)
{
    struct dist_group *group = work->group;

    disti_group_enter(group);
    disti_drive_until(group, work, until);
    disti_group_exit(group);
}

/*
 * A work on a stream: what the program puts on its stream from now on comes after it, and the
 * library sees to its end. False: it has ended, or is about to.
 */
static bool await_join(struct disti_work *work)
{
    struct dist_group *group = work->group;
    dist_status status;
    bool joined = false;

    if (work->manner != DIST_MANNER_STREAM || work->kind != DISTI_WORK_ASYNC ||
        !(group->backend->join || work->waits))
        return false;
    disti_group_enter(group);
    if (work->ticket.status == DIST_IN_PROGRESS && !group->failed) {
        disti_drive_rouse(group);
        status = work->waits ? DIST_OK /* it is on the program's stream */
                             : group->backend->join(group->state, &work->ticket, group->stream);
        if (status == DIST_OK)
            work->kind = DISTI_WORK_DETACHED;
        else
            disti_group_break(group, status, dist_last_error());
        joined = status == DIST_OK;
        disti_drive_kick(group);
    }
    disti_group_exit(group);
    if (joined)
        disti_group_let_go(group);
    return joined;
}

/*
 * A work that was claimed, *pins_p: how many pins it has that are the caller's to give back, 0: the
 * work is as it was.
 */
static dist_status await_result(struct disti_work *work, int64_t until, int *pins_p)
{
    if (!await_has_ended(work)) {
        *pins_p = 1;
        if (await_join(work))
            return DIST_OK;
        *pins_p = 0;
        if (disti_work_is_calling())
            return disti_work_no_waiting("dist_wait");
        await_end(work, until);
        if (!await_has_ended(work))
            return DIST_IN_PROGRESS;
    }
    *pins_p = 2;
    return disti_work_result(work);
}

static dist_status await_persistent(struct disti_work *work, int64_t until)
{
    dist_status status;
    int pins;

    if (!work->running)
        return DIST_OK;
    status = await_result(work, until, &pins);
    work->running = !pins;
    return status;
}

static dist_status await_wait(dist_work *handle, int64_t until, bool *over_p);

/* What runs for a persistent work on a stream. */
static dist_status await_posted(struct disti_work *work, int64_t until)
{
    bool over;
    dist_status status = await_wait(work->posted, until, &over);

    if (over) {
        work->posted = NULL;
        work->running = false;
    }
    return status;
}

/* *over_p: the handle is good for nothing any more. */
static dist_status await_wait(dist_work *handle, int64_t until, bool *over_p)
{
    struct disti_work *work;
    dist_status status = disti_handle_claim(handle, "dist_wait", &work);
    int pins = 0;

    *over_p = status != DIST_OK;
    if (status != DIST_OK)
        return status;
    if (work->posted)
        status = await_posted(work, until);
    else if (work->kind == DISTI_WORK_PERSISTENT)
        status = await_persistent(work, until);
    else
        status = await_result(work, until, &pins);
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

    return await_wait(work, INT64_MAX, &over);
}

dist_status dist_wait_for(dist_work *work, int timeout_ms)
{
    bool over;

    return await_wait(work, disti_deadline_ms(timeout_ms), &over);
}

static bool await_test(struct disti_work *work)
{
    struct dist_group *group = work->group;

    /* Whoever has the lock moves things along as well as this thread would. */
    if (!await_has_ended(work) && pthread_mutex_trylock(&group->lock) == 0) {
        disti_log_use(group->log);
        disti_drive_once(group);
        disti_group_exit(group);
    }
    return await_has_ended(work);
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
    posted = work->posted;
    if (posted) {
        disti_work_unpin(work);
        return dist_test(posted, done_p);
    }
    *done_p = await_test(work);
    disti_work_unpin(work);
    return DIST_OK;
}

/* True: the work has ended, and the caller is to call the function. */
static dist_status await_note(struct disti_work *work, dist_work_fn fn, void *arg, bool *ended_p)
{
    struct dist_group *group = work->group;
    dist_status status = DIST_OK;

    disti_group_enter(group);
    if (work->fn) {
        status = disti_fail(DIST_ERR_INVALID_ARGUMENT, "the work already has a function");
    } else {
        work->fn = fn;
        work->fn_arg = arg;
        *ended_p = await_has_ended(work);
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
    if (work->kind == DISTI_WORK_PERSISTENT)
        status = disti_fail(
            DIST_ERR_INVALID_ARGUMENT,
            "dist_on_complete does not accept persistent works: use dist_wait or dist_test");
    else
        status = await_note(work, fn, arg, &ended);
    if (ended)
        disti_complete_call(work, fn, arg);
    disti_work_unpin(work);
    return status;
}
