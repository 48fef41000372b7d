/* SPDX-License-Identifier: BSD-3-Clause */
/* Works: started operations, from the call to the end. */
#include "base/clock.h"
#include "base/collective.h"
#include "core/group/group.h"
#include "core/work/handle.h"
#include "endpoint/endpoint.h"
#include "store/last_call.h"

#include <stdlib.h>

/* Field by field: clearing the whole first would take longer than all else here. */
void disti_work_fill_call(struct dist_group *group, const struct dist_call *call,
                          enum disti_work_kind kind, struct disti_work *work)
{
    work->group = group;
    work->ticket = (struct dist_ticket){.status = DIST_IN_PROGRESS};
    work->call = *call;
    work->name = NULL;
    work->kind = kind;
    work->extended = work->warned = false;
    work->owned = NULL;
    work->release = NULL;
    work->finish = NULL;
    work->next = NULL;
    work->status = DIST_IN_PROGRESS;
    work->deadline_ns = 0;
    atomic_init(&work->ended, false);
}

void disti_work_fill(struct dist_group *group, const struct disti_start *start,
                     enum disti_work_kind kind, struct disti_work *work)
{
    disti_work_fill_call(group, &start->call, kind, work);
    work->name = start->name;
    work->owned = start->owned;
    work->release = start->release;
    work->finish = start->finish;
}

static void work_release(void *owned, void (*release)(void *owned))
{
    if (release)
        release(owned);
    else
        free(owned);
}

void disti_start_release(struct disti_start *start)
{
    work_release(start->owned, start->release);
    start->owned = NULL;
}

static void work_free(struct disti_work *work)
{
    if (work->kind != DISTI_WORK_DETACHED)
        disti_group_release(work->group);
    work_release(work->owned, work->release);
    disti_handle_give(work);
}

void disti_work_unpin(struct disti_work *work)
{
    if (disti_handle_unpin(work))
        work_free(work);
}

void disti_work_retire(struct disti_work *work, int pins)
{
    if (disti_handle_retire(work, pins))
        work_free(work);
}

/* With the lock held. */
static dist_status work_admit(struct dist_group *group, const struct disti_work *work)
{
    const char *what = disti_work_name(work);

    if (disti_drive_state(&group->drive) == DISTI_DRIVE_CLOSED)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "rank %d cannot start %s: the group was destroyed", group->rank, what);
    if (atomic_load_explicit(&group->abort_asked, memory_order_relaxed))
        disti_group_abort(group);
    return group->failed ? disti_group_refuse(group, what) : DIST_OK;
}

static void work_append(struct dist_group *group, struct disti_work *work)
{
    if (group->works)
        group->last_work->next = work;
    else
        group->works = work;
    group->last_work = work;
    group->drive.messages += disti_collective_pair(work->call.collective);
    group->drive.completion_due = true; /* it may have ended already, and others with it */
}

/*
 * The backend does not take the call. Where it refuses what it cannot do, it is as if the call had
 * not been made; otherwise the other ranks have gone on, and this one cannot. Returns why.
 */
static dist_status work_refused(struct dist_group *group, struct disti_work *work,
                                dist_status status)
{
    const bool harmless = status == DIST_ERR_UNSUPPORTED || status == DIST_ERR_INVALID_ARGUMENT;

    disti_flight_go(&group->flight, &work->call,
                    harmless ? DISTI_FLIGHT_NONE : DISTI_FLIGHT_REFUSED, 0);
    group->drive.completion_due = true;
    if (!harmless) {
        work->deadline_ns = disti_now_ns() + group->timeout_ms * INT64_C(1000000);
        disti_group_fail(group, work, status);
        return group->failed;
    }
    if (disti_collective_pair(work->call.collective))
        group->message_sequence--;
    else
        group->sequence--;
    return status;
}

/*
 * Short calls mostly end as they are posted. If nobody's turn is before it and nothing is to be
 * told to anybody, it is over without having been in the queue.
 */
static bool work_ends_at_once(struct disti_work *work)
{
    if (work->kind != DISTI_WORK_BLOCKING || work->ticket.status != DIST_OK || work->group->works ||
        disti_drive_calls(disti_drive_state(&work->group->drive)) || work->finish ||
        work->group->numerics)
        return false;
    work->status = DIST_OK;
    atomic_store_explicit(&work->ended, true, memory_order_relaxed);
    return true;
}

/* Not all ranks are there yet. */
static void work_wait(struct disti_work *work)
{
    int64_t now = disti_now_ns();

    work->deadline_ns = now + work->group->timeout_ms * INT64_C(1000000);
    work->extended = work->warned = false;
    if (!work->group->works)
        work->group->drive.released_ns = now;
    disti_flight_go(&work->group->flight, &work->call, DISTI_FLIGHT_WAITING, now);
    work_append(work->group, work);
    disti_drive_check(work->group, work);
}

dist_status disti_work_launch(struct disti_work *work)
{
    struct dist_group *group = work->group;
    dist_status status = work_admit(group, work);

    if (status != DIST_OK)
        return status;
    work->call.sequence = disti_collective_pair(work->call.collective) ? group->message_sequence++
                                                                       : group->sequence++;
    disti_last_call_note(group->number, &work->call);
    disti_flight_begin(&group->flight, &work->call, work->name);
    work->ticket = (struct dist_ticket){.status = DIST_IN_PROGRESS}; /* it may have run before */
    disti_drive_wake(group);
    if (group->numerics)
        disti_numerics_given(work);
    status = group->backend->post(group->state, &work->call, &work->ticket);
    if (status != DIST_OK)
        return work_refused(group, work, status);
    if (work_ends_at_once(work))
        disti_flight_go(&group->flight, &work->call, DISTI_FLIGHT_DONE, 0);
    else
        work_wait(work);
    return DIST_OK;
}

dist_status disti_work_result(const struct disti_work *work)
{
    if (work->status < 0)
        disti_fail(work->status, "%s", work->group->cause);
    return work->status;
}

dist_status disti_work_wait_here(struct disti_work *work)
{
    struct dist_group *group = work->group;
    dist_status status = disti_work_launch(work);

    if (status == DIST_OK)
        disti_drive_until(group, work, INT64_MAX);
    else
        disti_drive_kick(group);
    disti_log_use(NULL); /* a failure has been logged where it was found */
    if (status == DIST_OK)
        status = disti_work_result(work);
    disti_group_unlock(group);
    disti_endpoints_release(); /* it may have ended as it was posted */
    return status;
}

/* Starts a filled work and waits until it has ended. */
static dist_status work_run(struct disti_work *work)
{
    dist_status status = disti_work_may_wait(dist_collective_string(work->call.collective));

    if (status != DIST_OK)
        return status;
    work->call.waits = true;
    disti_group_enter(work->group);
    return disti_work_wait_here(work);
}

dist_status disti_work_run(struct dist_group *group, struct disti_start *start)
{
    struct disti_work work;
    dist_status status;

    disti_work_fill(group, start, DISTI_WORK_BLOCKING, &work);
    status = work_run(&work);
    if (status == DIST_OK)
        disti_start_release(start);
    return status;
}

/* The other ranks have gone on, and this one cannot: they are told. */
static dist_status work_no_memory(struct dist_group *group, const struct disti_start *start)
{
    dist_status status;

    disti_group_enter(group);
    status = disti_fail(DIST_ERR_NO_MEMORY, "rank %d: no memory to start %s", group->rank,
                        dist_collective_string(start->call.collective));
    if (!group->failed) {
        disti_group_break(group, status, dist_last_error());
        status = group->failed;
    }
    disti_drive_kick(group);
    disti_group_exit(group);
    return status;
}

/* So long that to wake a thread costs little beside it. */
#define WORK_LONG ((size_t)256 << 10)

static bool work_is_long(const struct disti_start *start)
{
    return start->call.collective != DIST_COLL_BARRIER &&
           start->call.count >= WORK_LONG / dist_dtype_size(start->call.dtype);
}

void disti_work_undo(struct disti_work *work)
{
    if (disti_handle_unpin(work))
        disti_handle_give(work);
}

/* Of a work that is posted. */
static enum disti_work_kind work_kind(const struct dist_group *group,
                                      const struct disti_start *start)
{
    if (start->detached)
        return DISTI_WORK_DETACHED;
    return start->manner == DIST_MANNER_STREAM && (group->backend->join || start->call.waits)
               ? DISTI_WORK_STREAM
               : DISTI_WORK_ASYNC;
}

dist_status disti_work_post(struct dist_group *group, const struct disti_start *start,
                            dist_work **work_p)
{
    struct disti_work *work = disti_handle_take();
    bool hurry;
    dist_status status;

    if (!work)
        return work_no_memory(group, start);
    disti_work_fill(group, start, work_kind(group, start), work);
    work->on_complete.fn = NULL;
    disti_group_enter(group);
    status = disti_work_launch(work);
    if (status == DIST_OK && !start->detached) {
        disti_group_retain(group);
        *work_p = disti_handle_of(work);
    }
    hurry = status == DIST_OK && work->ticket.status == DIST_IN_PROGRESS && work_is_long(start) &&
            group->drive.service == DISTI_SERVICE_YES;
    if (status == DIST_OK && start->detached && group->drive.service != DISTI_SERVICE_YES)
        disti_drive_once(group); /* lest works pile up that nobody waits for */
    disti_drive_kick(group);     /* frees a detached work that has ended */
    disti_group_exit(group);
    disti_endpoints_release();
    if (hurry)
        disti_progress_hurry();
    if (status != DIST_OK)
        disti_work_undo(work);
    return status;
}
