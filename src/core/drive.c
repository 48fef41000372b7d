/* SPDX-License-Identifier: BSD-3-Clause */
/* Who moves a group's works along: one thread at a time, which lets others in. */
#include "base/settings/config.h"

#include "base/clock.h"
#include "base/collective.h"
#include "base/thread.h"
#include "core/call.h"
#include "core/group.h"
#include "core/work.h"
#include "endpoint/endpoint.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>

/* Polls between two looks at the clock and at the news. */
#define DRIVE_WATCH_POLLS 1024

/* Polls between two looks at other groups while this one moves; they are looked at whenever it
 * rests.
 */
#define DRIVE_OTHERS_POLLS 64

/* Between two looks by dist_test, which may be called in a tight loop. */
#define DRIVE_WATCH_NS (1000 * 1000)

/* Between two calls of the group's function `meanwhile`; the polls between two looks at the clock
 * for it are more than a short call takes. */
#define DRIVE_MEANWHILE_NS (1000 * 1000)
#define DRIVE_MEANWHILE_POLLS 64

/* Works that are looked at as one more is posted, the oldest: backends move these. */
#define DRIVE_CHECKED 64

/* Yields of a driver to threads that want the lock: about a wake-up. */
#define DRIVE_YIELDS 64

/* A thread that waits for its work looks up so often, even if nobody tells it anything. */
#define DRIVE_TURN_NS (1000LL * 1000 * 1000)

/* A gap between two drivers from which on it does not count against the works' deadlines. */
#define DRIVE_GAP_NS (100LL * 1000 * 1000)

/* The arrows of the drawing in group.h, by where they begin. */
static const uint8_t drive_arrows[] = {
    [DISTI_DRIVE_IDLE] = 1 << DISTI_DRIVE_CALLER | 1 << DISTI_DRIVE_THREAD,
    [DISTI_DRIVE_CALLER] = 1 << DISTI_DRIVE_IDLE | 1 << DISTI_DRIVE_CALLER_SLEEPS |
                           1 << DISTI_DRIVE_CALLER_CALLS | 1 << DISTI_DRIVE_CLOSED,
    [DISTI_DRIVE_CALLER_SLEEPS] = 1 << DISTI_DRIVE_CALLER,
    [DISTI_DRIVE_CALLER_CALLS] = 1 << DISTI_DRIVE_CALLER,
    [DISTI_DRIVE_THREAD] = 1 << DISTI_DRIVE_IDLE | 1 << DISTI_DRIVE_CALLER |
                           1 << DISTI_DRIVE_THREAD_SLEEPS | 1 << DISTI_DRIVE_THREAD_CALLS,
    [DISTI_DRIVE_THREAD_SLEEPS] = 1 << DISTI_DRIVE_THREAD,
    [DISTI_DRIVE_THREAD_CALLS] = 1 << DISTI_DRIVE_THREAD,
    [DISTI_DRIVE_CLOSED] = 0,
};

dist_status disti_drive_go(struct disti_drive *drive, enum disti_drive_state to)
{
    enum disti_drive_state from = disti_drive_state(drive);

    if (!(drive_arrows[from] & 1 << to))
        return disti_fail(DIST_ERR_INTERNAL, "the drive of a group cannot go from state %d to %d",
                          (int)from, (int)to);
    atomic_store_explicit(&drive->state, to, memory_order_release);
    return DIST_OK;
}

dist_status disti_drive_go_either(struct disti_drive *drive, enum disti_drive_state caller,
                                  enum disti_drive_state thread)
{
    return disti_drive_go(drive, disti_drive_by_thread(disti_drive_state(drive)) ? thread : caller);
}

void disti_group_lock(struct dist_group *group)
{
    if (disti_lock_try(&group->lock))
        return;
    atomic_fetch_add(&group->drive.wanted, 1);
    disti_lock_take(&group->lock);
    atomic_fetch_sub(&group->drive.wanted, 1);
}

void disti_group_unlock(struct dist_group *group)
{
    disti_lock_release(&group->lock);
}

void disti_group_enter(struct dist_group *group)
{
    disti_group_lock(group);
    /* The program's function for the log of a closed group may be gone. */
    disti_log_use(disti_drive_state(&group->drive) == DISTI_DRIVE_CLOSED ? NULL : group->log);
}

void disti_group_exit(struct dist_group *group)
{
    disti_log_use(NULL);
    disti_group_unlock(group);
}

/* The lock is not fair: whoever unlocks and locks again at once would get it nearly always. */
void disti_drive_let_in(struct dist_group *group)
{
    if (!atomic_load_explicit(&group->drive.wanted, memory_order_relaxed))
        return;
    disti_group_unlock(group);
    for (int i = 0; i < DRIVE_YIELDS && atomic_load(&group->drive.wanted); i++)
        sched_yield();
    disti_group_lock(group);
}

/* This thread becomes the driver. False: another caller is, or the group is closed. */
static bool drive_take(struct dist_group *group)
{
    enum disti_drive_state state = disti_drive_state(&group->drive);

    if (state == DISTI_DRIVE_THREAD_SLEEPS)
        disti_drive_disarm(group); /* it will see that another drives */
    else if (state != DISTI_DRIVE_THREAD && state != DISTI_DRIVE_IDLE)
        return false;
    return disti_drive_go(&group->drive, DISTI_DRIVE_CALLER) == DIST_OK;
}

/* Nobody drives any more. */
static void drive_go_idle(struct dist_group *group)
{
    disti_drive_go(&group->drive, DISTI_DRIVE_IDLE);
    if (group->drive.waiters)
        disti_change_tell(&group->drive.changed);
    if (group->works)
        disti_progress_notice(group);
    disti_endpoints_release();
}

void disti_drive_release(struct dist_group *group)
{
    if (group->works)
        group->drive.released_ns = disti_now_ns();
    drive_go_idle(group);
}

/*
 * While nobody drove, nothing could end: that does not count as the other ranks' delay. `repeat`:
 * however often it happens; else once a work, lest it goes on for ever.
 */
static void drive_extend_deadlines(struct dist_group *group, bool repeat)
{
    int64_t now;

    if (group->drive.service == DISTI_SERVICE_YES)
        return;
    now = disti_now_ns();
    if (now - group->drive.released_ns < DRIVE_GAP_NS)
        return;
    for (struct disti_work *work = group->works; work; work = work->next) {
        if (repeat || !work->extended)
            work->deadline_ns = now + group->timeout_ms * INT64_C(1000000);
        work->extended = true;
    }
}

/* The first of so many. */
static const struct disti_work *drive_failed(const struct dist_group *group, int most)
{
    const struct disti_work *work = group->works;

    for (; work && work->ticket.status >= 0 && most > 0; most--)
        work = work->next;
    return work && work->ticket.status < 0 ? work : NULL;
}

void disti_drive_check(struct dist_group *group, const struct disti_work *newest)
{
    const struct disti_work *work =
        newest->ticket.status < 0 ? newest : drive_failed(group, DRIVE_CHECKED);

    if (work && !group->failed)
        disti_group_fail(group, work, work->ticket.status);
}

static void drive_complete(struct dist_group *group);

int disti_drive_poll(struct dist_group *group)
{
    int moved = group->failed ? 0 : group->backend->progress(group->state);

    if (moved < 0) {
        disti_group_fail(group, drive_failed(group, INT_MAX), (dist_status)moved);
        moved = 0;
    }
    if (moved || group->drive.completion_due ||
        (group->works && group->works->ticket.status != DIST_IN_PROGRESS))
        drive_complete(group);
    return moved;
}

void disti_drive_watch(struct dist_group *group)
{
    if (group->works) /* the first has the earliest deadline */
        disti_group_watch(group, group->works);
}

static bool drive_is_done(const struct dist_group *group, const struct disti_work *work)
{
    return work ? atomic_load_explicit(&work->ended, memory_order_relaxed) : !group->works;
}

static bool drive_is_late(int64_t until)
{
    return until != INT64_MAX && disti_expired(until);
}

/*
 * Lets the program move what else has to move, without the lock, if it is time for that. Returns
 * when the next time is; 0: the clock was not looked at yet. After a nap it is looked at at once.
 */
static int64_t drive_meanwhile(struct dist_group *group, uint32_t rounds, bool napped,
                               int64_t due_ns)
{
    int64_t now;

    if (!group->meanwhile)
        return INT64_MAX;
    if (!napped && rounds % DRIVE_MEANWHILE_POLLS != 0)
        return due_ns;
    now = disti_now_ns();
    if (due_ns && now < due_ns)
        return due_ns;
    if (due_ns) {
        disti_group_unlock(group);
        group->meanwhile(group->meanwhile_arg);
        disti_group_lock(group);
    }
    return now + DRIVE_MEANWHILE_NS;
}

static void drive_along(struct dist_group *group, const struct disti_work *work, int64_t until)
{
    struct disti_wait wait = {0};
    uint32_t rounds = 0;
    int64_t due_ns = 0;
    int held = 0, moved;

    if (group->drive.completion_due)
        drive_complete(group);
    while (!drive_is_done(group, work)) {
        moved = disti_drive_poll(group);
        if (drive_is_done(group, work) || drive_is_late(until))
            break;
        if (rounds == 0)
            held = disti_cancel_hold();
        if (++rounds % DRIVE_WATCH_POLLS == 0)
            disti_drive_watch(group);
        if (disti_others_wait(group) && (moved <= 0 || rounds % DRIVE_OTHERS_POLLS == 0)) {
            disti_group_unlock(group);
            moved += disti_others_move();
            disti_group_lock(group);
        }
        due_ns = drive_meanwhile(group, rounds, wait.nap_ns != 0, due_ns);
        if (moved > 0)
            wait = (struct disti_wait){0};
        else
            disti_drive_rest(group, &wait, due_ns && due_ns < until ? due_ns : until);
        disti_drive_let_in(group);
    }
    if (rounds)
        disti_cancel_let(held);
}

void disti_drive_until(struct dist_group *group, const struct disti_work *work, int64_t until)
{
    if (until != INT64_MAX)
        group->drive.test_ns = disti_now_ns();
    while (!drive_is_done(group, work)) {
        if (drive_take(group)) {
            if (group->works != work || work->next) /* else it has just been started, or ended */
                drive_extend_deadlines(group, until == INT64_MAX);
            drive_along(group, work, until);
            disti_drive_release(group);
        } else {
            int64_t soon = disti_now_ns() + DRIVE_TURN_NS;

            group->drive.waiters++;
            disti_change_wait(&group->drive.changed, &group->lock, until < soon ? until : soon);
            group->drive.waiters--;
            /* The progress thread left the rest to the waiters; this one may be done. */
            if (group->works && !group->drive.waiters &&
                disti_drive_state(&group->drive) == DISTI_DRIVE_IDLE)
                disti_progress_notice(group);
        }
        if (drive_is_late(until))
            break;
    }
}

int disti_drive_once(struct dist_group *group)
{
    int64_t now;
    int moved;

    if (!drive_take(group))
        return 0;
    drive_extend_deadlines(group, false);
    moved = disti_drive_poll(group);
    now = disti_now_ns();
    group->drive.test_ns = now;
    if (now - group->drive.watch_ns > DRIVE_WATCH_NS) {
        group->drive.watch_ns = now;
        disti_drive_watch(group);
        drive_complete(group);
    }
    disti_drive_release(group);
    return moved;
}

void disti_drive_kick(struct dist_group *group)
{
    if (group->drive.completion_due && disti_drive_state(&group->drive) == DISTI_DRIVE_IDLE &&
        drive_take(group)) {
        drive_complete(group);
        drive_go_idle(group); /* it has not driven */
    } else if (group->works && disti_drive_state(&group->drive) == DISTI_DRIVE_IDLE) {
        disti_progress_notice(group);
    } else if (group->drive.completion_due) {
        disti_drive_wake(group);
    }
}

/* How works end: collectives in order, functions of the program first. */

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

        if (work->ticket.status != DIST_IN_PROGRESS && (message || !held)) {
            struct disti_work *unlinked = before ? before->next : group->works;

            if (before)
                before->next = unlinked->next;
            else
                group->works = unlinked->next;
            if (group->last_work == unlinked)
                group->last_work = before;
            unlinked->next = NULL;
            group->drive.messages -= disti_collective_pair(unlinked->call.collective);
            return unlinked;
        }
        held = held || !message;
        if (held && !group->drive.messages)
            return NULL;
    }
    return NULL;
}

/* Calls the program's function, without locks; dist_last_error has the cause of a failure. */
static void complete_call(const struct disti_work *work, dist_work_fn fn, void *arg)
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
    if (work->kind != DISTI_WORK_BLOCKING && !disti_work_is_persistent(work) &&
        work->on_complete.fn) {
        completion_enter(group);
        complete_call(work, work->on_complete.fn, work->on_complete.arg);
        completion_return(group);
    }
    atomic_store_explicit(&work->ended, true, memory_order_release);
    if (detached) /* else it is its waiter's from here on */
        disti_work_unpin(work);
    if (group->drive.waiters)
        disti_change_tell(&group->drive.changed);
}

/* Ends every work whose turn has come. The driver calls it, with the lock held; it
 * lets go of the lock while it calls functions of the program. */
static void drive_complete(struct dist_group *group)
{
    struct disti_work *work;

    while ((work = completion_next(group)))
        completion_end(group, work);
    group->drive.completion_due = false;
}

/* Waiting for works, and asking after them. */

static bool wait_has_ended(const struct disti_work *work)
{
    return atomic_load_explicit(&work->ended, memory_order_acquire);
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
        disti_group_enter(work->group);
        disti_drive_until(work->group, work, until);
        disti_group_exit(work->group);
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
        complete_call(work, fn, arg);
    disti_work_unpin(work);
    return status;
}

/* The works of a group that ends: they end too, and outlive it until they are waited for. */

/* Beyond the timeout, so that a work that does not end meets its own deadline, which says more. */
#define CLOSE_SLACK_MS 500

/* Between two looks whether the last threads have left. */
#define CLOSE_LOOK_NS (10 * 1000 * 1000)

dist_status disti_group_open_works(struct dist_group *group)
{
    int numerics = 0;
    dist_status status;

    group->drive.wake_fd = -1;
    atomic_store(&group->drive.references, 1);
    status = disti_flight_open(&group->flight);
    if (status == DIST_OK)
        status = disti_variable_int("DIST_CHECK_NUMERICS", 0, &numerics);
    group->numerics = numerics;
    return status == DIST_OK ? disti_progress_check() : status;
}

void disti_group_retain(struct dist_group *group)
{
    atomic_fetch_add_explicit(&group->drive.references, 1, memory_order_relaxed);
}

void disti_group_release(struct dist_group *group)
{
    if (atomic_fetch_sub_explicit(&group->drive.references, 1, memory_order_acq_rel) > 1)
        return;
    disti_flight_free(&group->flight);
    free(group->repeats);
    free(group->cause);
    free(group->lost_text);
    disti_group_gone(group);
}

dist_status disti_group_drain(struct dist_group *group)
{
    dist_status status = DIST_OK;
    bool pending;

    disti_group_lock(group);
    pending = group->works;
    disti_group_check_abort(group);
    disti_drive_until(group, NULL, disti_deadline_ms((int64_t)group->timeout_ms + CLOSE_SLACK_MS));
    if (group->works) /* functions of the program went on starting new ones */
        disti_group_break(group, DIST_ERR_ABORTED,
                          "the group was destroyed while operations were pending");
    disti_drive_until(group, NULL, INT64_MAX);
    if (pending && group->failed)
        status = disti_fail(group->failed, "%s", group->cause);
    while (group->drive.waiters || !drive_take(group))
        disti_change_wait(&group->drive.changed, &group->lock, disti_now_ns() + CLOSE_LOOK_NS);
    disti_drive_go(&group->drive, DISTI_DRIVE_CLOSED);
    disti_group_unlock(group);
    disti_progress_forget(group);
    disti_others_forget(group);
    return status;
}
