/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for works, and asking after them. */
#include "base/clock.h"
#include "core/group.h"

static bool await_has_ended(const struct dist_work *work)
{
    return atomic_load_explicit(&work->ended, memory_order_acquire);
}

/* Blocks until it has ended or the time has come. */
static void await_end(struct dist_work *work, int64_t until)
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
static bool await_join(struct dist_work *work)
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

static dist_status await_wait(dist_work *work, int64_t until)
{
    dist_status status;

    if (!work)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "work is NULL");
    if (!await_has_ended(work)) {
        if (await_join(work))
            return DIST_OK;
        if (disti_work_is_calling())
            return disti_work_no_waiting("dist_wait");
        await_end(work, until);
        if (!await_has_ended(work))
            return DIST_IN_PROGRESS;
    }
    if (work->kind == DISTI_WORK_PERSISTENT) {
        status = work->running ? disti_work_result(work) : DIST_OK;
        work->running = false;
    } else {
        status = disti_work_result(work);
        disti_work_drop(work);
    }
    return status;
}

/* The same, of what runs for a persistent work on a stream. */
static dist_status await_wait_any(dist_work *work, int64_t until)
{
    dist_status status;

    if (!work || !work->posted)
        return await_wait(work, until);
    if (disti_work_is_calling() && !await_has_ended(work->posted))
        return disti_work_no_waiting("dist_wait"); /* it is there for a later wait */
    status = await_wait(work->posted, until);
    if (status != DIST_IN_PROGRESS) {
        work->posted = NULL;
        work->running = false;
    }
    return status;
}

dist_status dist_wait(dist_work *work)
{
    return await_wait_any(work, INT64_MAX);
}

dist_status dist_wait_for(dist_work *work, int timeout_ms)
{
    return await_wait_any(work, disti_deadline_ms(timeout_ms));
}

dist_status dist_test(dist_work *work, bool *done_p)
{
    struct dist_group *group;

    if (!work || !done_p)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s is NULL", work ? "done_p" : "work");
    if (work->posted)
        work = work->posted;
    group = work->group;
    /* Whoever has the lock moves things along as well as this thread would. */
    if (!await_has_ended(work) && pthread_mutex_trylock(&group->lock) == 0) {
        disti_log_use(group->log);
        disti_drive_once(group);
        disti_group_exit(group);
    }
    *done_p = await_has_ended(work);
    return DIST_OK;
}

/* True: the work has ended, and the caller is to call the function. */
static dist_status await_note(dist_work *work, dist_work_fn fn, void *arg, bool *ended_p)
{
    struct dist_group *group = work->group;
    dist_status status = DIST_OK;

    disti_group_enter(group);
    if (work->fn) {
        status = disti_fail(DIST_ERR_INVALID_ARGUMENT, "the work has a function already");
    } else {
        work->fn = fn;
        work->fn_arg = arg;
        *ended_p = await_has_ended(work);
        disti_drive_kick(group);
    }
    disti_group_exit(group);
    return status;
}

dist_status dist_on_complete(dist_work *work, dist_work_fn fn, void *arg)
{
    bool ended = false;
    dist_status status;

    if (!work || !fn)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s is NULL", work ? "fn" : "work");
    if (work->kind == DISTI_WORK_PERSISTENT)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_on_complete is not for persistent works");
    status = await_note(work, fn, arg, &ended);
    if (ended)
        disti_settle_call(work, fn, arg);
    return status;
}
