/* SPDX-License-Identifier: BSD-3-Clause */
/* How works end: collectives in order, functions of the program first. */
#include "base/collective.h"
#include "core/call/calls.h"
#include "core/group/group.h"

static _Thread_local int completion_depth;

bool disti_work_is_calling(void)
{
    return completion_depth > 0;
}

dist_status disti_work_may_wait(const char *what)
{
    if (!disti_work_is_calling())
        return DIST_OK;
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "%s: a function given to dist_on_complete may start operations, but not wait "
                      "for them: use the _async forms, and wait elsewhere",
                      what);
}

void disti_complete_forked(void)
{
    disti_call_hold(-completion_depth);
    completion_depth = 0;
}

/* Takes the work behind `before` (NULL: the first) out of the queue. */
static struct disti_work *completion_unlink(struct dist_group *group, struct disti_work *before)
{
    struct disti_work *work = before ? before->next : group->works;

    if (before)
        before->next = work->next;
    else
        group->works = work->next;
    if (group->last_work == work)
        group->last_work = before;
    work->next = NULL;
    group->drive.messages -= disti_collective_pair(work->call.collective);
    return work;
}

/*
 * The next work whose turn it is to end, out of the queue; NULL: none. A collective waits for those
 * before it; sends and receives wait for nobody.
 */
static struct disti_work *completion_next(struct dist_group *group)
{
    struct disti_work *before = NULL;
    bool held = false;

    for (struct disti_work *work = group->works; work; before = work, work = work->next) {
        bool message = disti_collective_pair(work->call.collective);

        if (work->ticket.status != DIST_IN_PROGRESS && (message || !held))
            return completion_unlink(group, before);
        held = held || !message;
        if (held && !group->drive.messages)
            return NULL;
    }
    return NULL;
}

void disti_complete_call(const struct disti_work *work, dist_work_fn fn, void *arg)
{
    const struct disti_log *log = disti_log_current();

    disti_log_use(NULL); /* the failure has been logged where it was found */
    if (work->status < 0)
        disti_fail(work->status, "%s", work->group->cause);
    completion_depth++;
    disti_call_hold(1);
    fn(arg, work->status);
    disti_call_hold(-1);
    completion_depth--;
    disti_log_use(log);
}

/* The driver goes into a function of the program, without the lock. */
static void completion_enter(struct dist_group *group)
{
    disti_drive_go_either(&group->drive, DISTI_DRIVE_CALLER_CALLS, DISTI_DRIVE_THREAD_CALLS);
    disti_group_unlock(group);
}

static void completion_return(struct dist_group *group)
{
    disti_group_lock(group);
    disti_drive_go_either(&group->drive, DISTI_DRIVE_CALLER, DISTI_DRIVE_THREAD);
}

static void completion_finish(struct dist_group *group, struct disti_work *work)
{
    dist_status status;

    completion_enter(group);
    status = work->finish(work->owned);
    completion_return(group);
    if (status == DIST_OK)
        return;
    disti_group_fail(group, work, status);
    work->status = group->failed;
}

/* Who waits in the call itself, or starts it many times, gives no function. */
static bool completion_has_fn(const struct disti_work *work)
{
    return work->kind != DISTI_WORK_BLOCKING && !disti_work_is_persistent(work) &&
           work->on_complete.fn;
}

static void completion_notify(struct dist_group *group, struct disti_work *work)
{
    completion_enter(group);
    disti_complete_call(work, work->on_complete.fn, work->on_complete.arg);
    completion_return(group);
}

static void completion_end(struct dist_group *group, struct disti_work *work)
{
    bool detached = work->kind == DISTI_WORK_DETACHED;

    work->status = work->ticket.status;
    if (work->status < 0) {
        disti_group_fail(group, work, work->status); /* if nobody has noticed yet */
        work->status = group->failed;
    } else if (work->finish)
        completion_finish(group, work);
    if (group->numerics && work->status == DIST_OK)
        disti_numerics_got(work);
    disti_flight_end(&group->flight, &work->call, work->status);
    if (completion_has_fn(work))
        completion_notify(group, work);
    atomic_store_explicit(&work->ended, true, memory_order_release);
    if (detached) /* else it is its waiter's from here on */
        disti_work_unpin(work);
    if (group->drive.waiters)
        disti_change_tell(&group->drive.changed);
}

void disti_complete(struct dist_group *group)
{
    struct disti_work *work;

    while ((work = completion_next(group)))
        completion_end(group, work);
    group->drive.completion_due = false;
}
