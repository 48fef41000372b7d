/* SPDX-License-Identifier: BSD-3-Clause */
/* Progress: which thread moves a group, the progress thread, and groups that nobody waits for. */
#include "base/clock.h"
#include "base/collective.h"
#include "base/descriptor.h"
#include "base/lock.h"
#include "base/settings/config.h"
#include "base/thread.h"
#include "core/call.h"
#include "core/group.h"
#include "core/work.h"
#include "endpoint/endpoint.h"

#include <limits.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Who moves a group's works along: one thread at a time, which lets others in. */

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
        return disti_fail_transition("the drive of a group", (int)from, (int)to);
    atomic_store_explicit(&drive->state, to, memory_order_release);
    return DIST_OK;
}

/* The same from a state of a driver: to the first if that is a caller, else to the second. */
static dist_status drive_go_either(struct disti_drive *drive, enum disti_drive_state caller,
                                   enum disti_drive_state thread)
{
    return disti_drive_go(drive, disti_drive_by_thread(disti_drive_state(drive)) ? thread : caller);
}

void disti_group_lock(struct dist_group *group)
{
    if (disti_lock_try(&group->lock))
        return;
    atomic_fetch_add(&group->drive.wanted, 1);
    disti_lock_acquire(&group->lock);
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

/* Unlocks for a moment if other threads want the lock. Between two looks, not while armed. */
/* The lock is not fair: whoever unlocks and locks again at once would get it nearly always. */
static void drive_let_in(struct dist_group *group)
{
    if (!atomic_load_explicit(&group->drive.wanted, memory_order_relaxed))
        return;
    disti_group_unlock(group);
    for (int i = 0; i < DRIVE_YIELDS && atomic_load(&group->drive.wanted); i++)
        sched_yield();
    disti_group_lock(group);
}

static void drive_disarm(struct dist_group *group);

/* This thread becomes the driver. False: another caller is, or the group is closed. */
static bool drive_take(struct dist_group *group)
{
    enum disti_drive_state state = disti_drive_state(&group->drive);

    if (state == DISTI_DRIVE_THREAD_SLEEPS)
        drive_disarm(group); /* it will see that another drives */
    else if (state != DISTI_DRIVE_THREAD && state != DISTI_DRIVE_IDLE)
        return false;
    return disti_drive_go(&group->drive, DISTI_DRIVE_CALLER) == DIST_OK;
}

static void progress_notice(struct dist_group *group);

/* Nobody drives any more. */
static void drive_go_idle(struct dist_group *group)
{
    disti_drive_go(&group->drive, DISTI_DRIVE_IDLE);
    if (group->drive.waiters)
        disti_change_signal(&group->drive.changed);
    if (group->works)
        progress_notice(group);
    disti_endpoints_release();
}

/* Nobody drives any more: tells those who wait for that, and the progress thread. */
static void drive_release(struct dist_group *group)
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

/* One look at the backend; ends works. Returns how much happened. */
static int drive_poll(struct dist_group *group)
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

/* A look at the oldest work's deadline, and at news of ranks that are gone. */
static void drive_watch(struct dist_group *group)
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

static void drive_rest(struct dist_group *group, struct disti_wait *wait, int64_t until);

static int others_move(void);

static void drive_along(struct dist_group *group, const struct disti_work *work, int64_t until)
{
    struct disti_wait wait = {0};
    uint32_t rounds = 0;
    int64_t due_ns = 0;
    int held = 0, moved;

    if (group->drive.completion_due)
        drive_complete(group);
    while (!drive_is_done(group, work)) {
        moved = drive_poll(group);
        if (drive_is_done(group, work) || drive_is_late(until))
            break;
        if (rounds == 0)
            held = disti_cancel_hold();
        if (++rounds % DRIVE_WATCH_POLLS == 0)
            drive_watch(group);
        if (disti_others_wait(group) && (moved <= 0 || rounds % DRIVE_OTHERS_POLLS == 0)) {
            disti_group_unlock(group);
            moved += others_move();
            disti_group_lock(group);
        }
        due_ns = drive_meanwhile(group, rounds, wait.nap_ns != 0, due_ns);
        if (moved > 0)
            wait = (struct disti_wait){0};
        else
            drive_rest(group, &wait, due_ns && due_ns < until ? due_ns : until);
        drive_let_in(group);
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
            drive_release(group);
        } else {
            int64_t soon = disti_now_ns() + DRIVE_TURN_NS;

            group->drive.waiters++;
            disti_change_wait(&group->drive.changed, &group->lock, until < soon ? until : soon);
            group->drive.waiters--;
            /* The progress thread left the rest to the waiters; this one may be done. */
            if (group->works && !group->drive.waiters &&
                disti_drive_state(&group->drive) == DISTI_DRIVE_IDLE)
                progress_notice(group);
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
    moved = drive_poll(group);
    now = disti_now_ns();
    group->drive.test_ns = now;
    if (now - group->drive.watch_ns > DRIVE_WATCH_NS) {
        group->drive.watch_ns = now;
        drive_watch(group);
        drive_complete(group);
    }
    drive_release(group);
    return moved;
}

void disti_drive_kick(struct dist_group *group)
{
    if (group->drive.completion_due && disti_drive_state(&group->drive) == DISTI_DRIVE_IDLE &&
        drive_take(group)) {
        drive_complete(group);
        drive_go_idle(group); /* it has not driven */
    } else if (group->works && disti_drive_state(&group->drive) == DISTI_DRIVE_IDLE) {
        progress_notice(group);
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
                      "%s: a callback set with dist_on_complete may start operations, but not wait "
                      "for them: use the _async calls, and wait outside the callback",
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
    drive_go_either(&group->drive, DISTI_DRIVE_CALLER_CALLS, DISTI_DRIVE_THREAD_CALLS);
    disti_group_unlock(group);
}

static void completion_return(struct dist_group *group)
{
    disti_group_lock(group);
    drive_go_either(&group->drive, DISTI_DRIVE_CALLER, DISTI_DRIVE_THREAD);
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
        disti_change_signal(&group->drive.changed);
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
                          "dist_wait_for: timeout_ms is %d: pass 0 or more milliseconds",
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
        others_move();
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
        status = disti_fail(DIST_ERR_INVALID_ARGUMENT,
                            "dist_on_complete: the work already has a callback");
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
    disti_group_retire(group);
}

static void progress_forget(struct dist_group *group);

static void others_forget(struct dist_group *group);

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
    progress_forget(group);
    others_forget(group);
    return status;
}

/* Groups with works that nobody drives: moved along by whoever waits. */

/* Groups that a thread looks at in one turn; the next turn begins behind them. */
#define OTHERS_AT_ONCE 32

/* Between two looks at groups that nothing is known to be pending in. */
#define OTHERS_POKE_NS (20LL * 1000 * 1000)

/* Descriptors to sleep on, of all groups together. */
#define OTHERS_DESCRIPTORS 128

atomic_int disti_others_count;

/*
 * A thread takes groups out of the list to look at them, and releasing one puts it back: so no two
 * threads are at the same. The list has a reference to each. Order of locks: a group's, this one.
 */
static STAILQ_HEAD(, dist_group) others_list = STAILQ_HEAD_INITIALIZER(others_list);
/* Threads that sleep and move any group. The last to come is first, and is woken for a new one. */
struct others_sleeper {
    int doorbell; /* -1: it has none, and naps */
    LIST_ENTRY(others_sleeper) next;
};
static LIST_HEAD(, others_sleeper) others_sleepers = LIST_HEAD_INITIALIZER(others_sleepers);
DISTI_PROCESS_LOCK(others_lock);

/* With the list's lock. */
static void others_enlist(struct dist_group *group)
{
    if (atomic_load(&group->drive.listed))
        return;
    disti_group_retain(group);
    STAILQ_INSERT_TAIL(&others_list, group, drive.next_listed);
    atomic_store(&group->drive.listed, true);
    atomic_fetch_add(&disti_others_count, 1);
}

/* With the list's lock. Its reference is the caller's. */
static void others_unlist(struct dist_group *group)
{
    STAILQ_REMOVE(&others_list, group, dist_group, drive.next_listed);
    atomic_store(&group->drive.listed, false);
    atomic_fetch_sub(&disti_others_count, 1);
}

/* Works are pending, and nobody drives: this thread posted them, or has just driven them. Call with
 * the group's lock held. */
static void others_add(struct dist_group *group)
{
    const struct others_sleeper *sleeper;

    group->drive.left_by = pthread_self();
    if (atomic_load_explicit(&group->drive.listed, memory_order_relaxed))
        return;
    pthread_mutex_lock(&others_lock);
    others_enlist(group);
    sleeper = LIST_FIRST(&others_sleepers);
    if (sleeper)
        disti_doorbell_ring(sleeper->doorbell);
    pthread_mutex_unlock(&others_lock);
}

/* The group is closed. */
static void others_forget(struct dist_group *group)
{
    bool listed;

    pthread_mutex_lock(&others_lock);
    listed = atomic_load(&group->drive.listed);
    if (listed)
        others_unlist(group);
    pthread_mutex_unlock(&others_lock);
    if (listed)
        disti_group_release(group);
}

void disti_others_forked(void)
{
    STAILQ_INIT(&others_list);
    LIST_INIT(&others_sleepers);
    atomic_store(&disti_others_count, 0);
}

/* The next few, with their references. Returns how many. */
static int others_take(struct dist_group **groups)
{
    int count = 0;

    pthread_mutex_lock(&others_lock);
    while (count < OTHERS_AT_ONCE && !STAILQ_EMPTY(&others_list)) {
        groups[count] = STAILQ_FIRST(&others_list);
        others_unlist(groups[count++]);
    }
    pthread_mutex_unlock(&others_lock);
    return count;
}

/* Another thread is at it, or has to be. */
static void others_give_back(struct dist_group *group)
{
    pthread_mutex_lock(&others_lock);
    others_enlist(group);
    pthread_mutex_unlock(&others_lock);
}

static bool others_may(const struct dist_group *group)
{
    return !group->drive.one_thread || pthread_equal(group->drive.left_by, pthread_self());
}

/*
 * Locks a group that needs this thread. False: another thread has the lock (*held_p: it may leave
 * works behind and tell nobody, as the group is in the list), or the group is for another thread,
 * and it is back in the list; or it needs nobody.
 */
static bool others_enter(struct dist_group *group, bool *held_p)
{
    bool needs;

    if (!disti_lock_try(&group->lock)) {
        others_give_back(group);
        *held_p = true;
        return false;
    }
    needs = group->works && disti_drive_state(&group->drive) == DISTI_DRIVE_IDLE;
    if (needs && others_may(group)) {
        disti_log_use(group->log);
        return true;
    }
    if (needs)
        others_give_back(group);
    disti_group_unlock(group);
    return false;
}

/*
 * One look at each of some groups, in turn; ends works. Returns how much happened. Does not block.
 * Call without any lock, and not in a function of the program.
 */
static int others_move(void)
{
    const struct disti_log *log = disti_log_current();
    struct dist_group *groups[OTHERS_AT_ONCE];
    int count = others_take(groups), moved = 0;
    bool held = false;

    for (int i = 0; i < count; i++) {
        if (others_enter(groups[i], &held)) {
            moved += disti_drive_once(groups[i]);
            disti_group_unlock(groups[i]);
        }
        disti_group_release(groups[i]);
    }
    disti_log_use(log);
    return moved;
}

static bool drive_arm(struct dist_group *group, int wake_fd, struct pollfd *polls, int room,
                      int64_t nap_ns, int *count_p, int64_t *ns_p);

/* It is driven in its sleep as by the progress thread: a caller takes over. False: it has news. */
static bool others_arm(struct dist_group *group, struct pollfd *polls, int room, int64_t nap_ns,
                       int *count, int64_t *ns)
{
    disti_drive_go(&group->drive, DISTI_DRIVE_THREAD);
    drive_watch(group);
    if (drive_arm(group, polls[0].fd, polls, room, nap_ns, count, ns))
        return true;
    drive_release(group);
    return false;
}

/* After the sleep: it may have another driver by now. */
static void others_disarm(struct dist_group *group, int doorbell)
{
    disti_group_enter(group);
    if (disti_drive_by_thread(disti_drive_state(&group->drive)) &&
        group->drive.wake_fd == doorbell) {
        drive_disarm(group);
        drive_release(group);
    }
    disti_group_unlock(group);
    disti_group_release(group);
}

/* Arms the next few; keeps those that are armed, and returns how many. *quiet: none has news. */
static int others_arm_all(struct dist_group **groups, struct pollfd *polls, int room,
                          int64_t nap_ns, int *count, int64_t *ns, bool *quiet)
{
    int taken = others_take(groups), armed = 0;
    bool held = false;

    for (int i = 0; i < taken; i++) {
        bool entered = others_enter(groups[i], &held);
        bool sleeps = entered && others_arm(groups[i], polls, room, nap_ns, count, ns);

        if (entered)
            disti_group_unlock(groups[i]);
        *quiet = *quiet && (sleeps || !entered);
        if (sleeps)
            groups[armed++] = groups[i];
        else
            disti_group_release(groups[i]);
    }
    if ((held || taken == OTHERS_AT_ONCE) && *ns > nap_ns) /* or there may be more */
        *ns = nap_ns;
    return armed;
}

/* Sleeps until a descriptor is readable, at most ns. */
static void drive_poll_fds(struct pollfd *polls, int count, int64_t ns)
{
    const struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

    ppoll(polls, (nfds_t)count, ns == INT64_MAX ? NULL : &time, NULL);
}

/*
 * Sleeps at most ns until one of polls[0 .. count) is readable, or one of these groups has news;
 * nap_ns where it could not hear of them. There is room for `room` descriptors, and polls[0] is the
 * calling thread's doorbell. Call without any lock.
 */
static void others_sleep(struct pollfd *polls, int count, int room, int64_t nap_ns, int64_t ns)
{
    const struct disti_log *log = disti_log_current();
    struct dist_group *groups[OTHERS_AT_ONCE];
    struct others_sleeper self = {.doorbell = polls[0].fd};
    int armed = 0;
    bool quiet = true;

    if (self.doorbell >= 0) {
        pthread_mutex_lock(&others_lock);
        LIST_INSERT_HEAD(&others_sleepers, &self, next);
        pthread_mutex_unlock(&others_lock);
    }
    if (self.doorbell >= 0)
        armed = others_arm_all(groups, polls, room, nap_ns, &count, &ns, &quiet);
    else if (ns > nap_ns)
        ns = nap_ns;
    disti_endpoints_release();
    if (quiet)
        drive_poll_fds(polls, count, ns);
    if (self.doorbell >= 0) {
        pthread_mutex_lock(&others_lock);
        LIST_REMOVE(&self, next);
        pthread_mutex_unlock(&others_lock);
    }
    for (int i = 0; i < armed; i++)
        others_disarm(groups[i], self.doorbell);
    disti_log_use(log);
}

/*
 * Groups without works are looked at as well: MPI may have said that a message is sent, and pass it
 * on only as it is called again. A group that another thread has needs nobody.
 */
static void others_poke(void)
{
    const struct disti_log *log = disti_log_current();
    struct dist_group *group;

    for (int i = 0; i < OTHERS_AT_ONCE && disti_group_try_lock(i, &group); i++) {
        if (!group)
            continue;
        if (!group->works && others_may(group) &&
            disti_drive_state(&group->drive) != DISTI_DRIVE_CLOSED) {
            disti_log_use(group->log);
            disti_drive_once(group);
        }
        disti_group_unlock(group);
    }
    disti_log_use(log);
}

void disti_others_poll(int fd, int64_t until_ns)
{
    struct pollfd poll = {.fd = fd, .events = POLLIN};
    int64_t ns = until_ns - disti_now_ns();

    if (disti_others_wait(NULL)) {
        struct pollfd polls[OTHERS_DESCRIPTORS] = {{.fd = disti_doorbell(), .events = POLLIN},
                                                   {.fd = fd, .events = POLLIN}};
        struct disti_wait wait = {0};

        while (!polls[1].revents && !disti_expired(until_ns) && disti_others_wait(NULL)) {
            ns = others_move() > 0 ? 0 : until_ns - disti_now_ns();
            others_sleep(polls, 2, OTHERS_DESCRIPTORS, disti_wait_nap(&wait), ns < 0 ? 0 : ns);
            disti_doorbell_reset();
        }
        return;
    }
    /* A thread that only waits needs no doorbell. */
    drive_poll_fds(&poll, 1, ns < 0 ? 0 : ns < OTHERS_POKE_NS ? ns : OTHERS_POKE_NS);
    if (!poll.revents)
        others_poke();
}

/* Sleeping until there is news for a group, without its lock. */

/* A sleep that nothing could end early, since there is no eventfd left for it. */
#define SLEEP_DEAF_NS (1000 * 1000)

/* Descriptors of one backend to sleep on, at most; and of all that a caller moves. */
#define SLEEP_DESCRIPTORS 16
#define SLEEP_CALLER_DESCRIPTORS 128

/* After the sleep. */
static void drive_disarm(struct dist_group *group)
{
    if (!disti_drive_sleeps(disti_drive_state(&group->drive)))
        return;
    drive_go_either(&group->drive, DISTI_DRIVE_CALLER, DISTI_DRIVE_THREAD);
    if (group->backend->disarm)
        group->backend->disarm(group->state);
}

void disti_drive_wake(struct dist_group *group)
{
    if (!disti_drive_sleeps(disti_drive_state(&group->drive)))
        return;
    drive_disarm(group);
    disti_endpoints_release(); /* the driver may have watched for others */
    disti_doorbell_ring(group->drive.wake_fd);
}

/* Groups share descriptors: each is slept on once. */
static void sleep_add(struct pollfd *polls, int *count_p, int fd)
{
    for (int i = 0; i < *count_p; i++) {
        if (polls[i].fd == fd)
            return;
    }
    polls[(*count_p)++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

/* The descriptors of the backend; false: do not sleep. */
static bool sleep_arm_backend(struct dist_group *group, struct pollfd *polls, int *count_p,
                              int64_t nap_ns, int64_t *ns_p)
{
    int fds[SLEEP_DESCRIPTORS];
    int count = group->backend->arm ? group->backend->arm(group->state, fds, SLEEP_DESCRIPTORS)
                                    : DIST_ARM_BLIND;

    for (int i = 0; i < count; i++)
        sleep_add(polls, count_p, fds[i]);
    if (group->backend->arm && count < 0)
        group->backend->disarm(group->state);
    if (count == DIST_ARM_BLIND && *ns_p > nap_ns)
        *ns_p = nap_ns;
    return count != DIST_ARM_READY;
}

static int64_t sleep_ns(const struct dist_group *group)
{
    int64_t most = group->policy.sleep_ms * INT64_C(1000000);
    int64_t left = group->works ? group->works->deadline_ns - disti_now_ns() : most;

    if (group->lost_rank >= 0)
        return SLEEP_DEAF_NS;
    return left < 0 ? 0 : left < most ? left : most;
}

/* Readies the group for a sleep without the lock: adds what to sleep on to polls[0 .. *count_p),
 * lowers *ns_p to what the group allows, to nap_ns if nothing would end the sleep. False: do not
 * sleep. `wake_fd` is what wakes the driver.
 */
static bool drive_arm(struct dist_group *group, int wake_fd, struct pollfd *polls, int room,
                      int64_t nap_ns, int *count_p, int64_t *ns_p)
{
    int64_t ns = sleep_ns(group);

    if (wake_fd < 0 && ns > SLEEP_DEAF_NS)
        ns = SLEEP_DEAF_NS;
    if (ns < *ns_p)
        *ns_p = ns;
    if (group->failed || group->drive.completion_due)
        return false;
    if (room - *count_p < SLEEP_DESCRIPTORS + 1)
        *ns_p = *ns_p < nap_ns ? *ns_p : nap_ns;
    else if (!sleep_arm_backend(group, polls, count_p, nap_ns, ns_p))
        return false;
    else {
        /* News are read once: after that their end of file would keep this thread awake. */
        int fd = group->lost_rank < 0 ? disti_group_news_fd(group) : -1;

        if (fd >= 0)
            sleep_add(polls, count_p, fd);
    }
    group->drive.wake_fd = wake_fd;
    return drive_go_either(&group->drive, DISTI_DRIVE_CALLER_SLEEPS, DISTI_DRIVE_THREAD_SLEEPS) ==
           DIST_OK;
}

/* Sleeps, without the lock, until something may have happened, here or to a group that nobody
 * drives.
 */
static void sleep_caller(struct dist_group *group, int64_t nap_ns, int64_t until)
{
    struct pollfd polls[SLEEP_CALLER_DESCRIPTORS];
    int64_t ns = until == INT64_MAX ? INT64_MAX : until - disti_now_ns();
    int count = 1; /* the first is what wakes us */

    polls[0] = (struct pollfd){.fd = disti_doorbell(), .events = POLLIN};
    if (ns <= 0 ||
        !drive_arm(group, polls[0].fd, polls, SLEEP_CALLER_DESCRIPTORS, nap_ns, &count, &ns))
        return;
    disti_group_unlock(group);
    others_sleep(polls, count, SLEEP_CALLER_DESCRIPTORS, nap_ns, ns);
    disti_doorbell_reset();
    disti_group_lock(group);
    drive_disarm(group);
}

/* Nothing has moved: spins, yields or sleeps, as the group's policy says; not beyond `until`. */
/* Nothing has moved: spins, yields or sleeps, as the policy says. */
static void drive_rest(struct dist_group *group, struct disti_wait *wait, int64_t until)
{
    bool yields = wait->polls >= group->policy.spins;
    bool tired;

    if (yields)
        disti_group_unlock(group);
    tired = disti_wait_step(&group->policy, wait);
    if (yields) {
        disti_group_lock(group);
        disti_wait_learn(&group->policy, wait, tired);
    }
    if (!tired)
        return;
    drive_watch(group);
    sleep_caller(group, disti_wait_nap(wait), until);
}

/* The progress thread, which moves works along while the program computes: its life. */

struct disti_progress disti_progress = {
    .life = PTHREAD_MUTEX_INITIALIZER, .list = PTHREAD_MUTEX_INITIALIZER, .wake_fd = -1};

/* The arrows of the drawing in work.h, by where they begin. */
static const uint8_t progress_arrows[] = {
    [DISTI_PROGRESS_NONE] = 1 << DISTI_PROGRESS_RUNS,
    [DISTI_PROGRESS_RUNS] =
        1 << DISTI_PROGRESS_DOZES | 1 << DISTI_PROGRESS_SLEEPS | 1 << DISTI_PROGRESS_QUITS,
    [DISTI_PROGRESS_DOZES] = 1 << DISTI_PROGRESS_RUNS | 1 << DISTI_PROGRESS_QUITS,
    [DISTI_PROGRESS_SLEEPS] = 1 << DISTI_PROGRESS_RUNS | 1 << DISTI_PROGRESS_QUITS,
    [DISTI_PROGRESS_QUITS] = 1 << DISTI_PROGRESS_NONE,
};

bool disti_progress_go(enum disti_progress_state from, enum disti_progress_state to)
{
    if (!(progress_arrows[from] & 1 << to)) {
        disti_fail_transition("the progress thread", (int)from, (int)to);
        return false;
    }
    return atomic_compare_exchange_strong(&disti_progress.state, &from, to);
}

static void progress_ring(void)
{
    int held = disti_cancel_hold();
    uint64_t one = 1;

    (void)!write(disti_progress.wake_fd, &one, sizeof(one));
    disti_cancel_let(held);
}

/*
 * Wakes it where it rests so. The fence: either this thread sees that it rests, or the progress
 * thread, which looks at the groups once it rests, sees what this thread did before.
 */
static void progress_wake(enum disti_progress_state rests)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&disti_progress.state, memory_order_relaxed) == rests &&
        disti_progress_go(rests, DISTI_PROGRESS_RUNS))
        progress_ring();
}

void disti_progress_hurry(void)
{
    progress_wake(DISTI_PROGRESS_DOZES);
}

dist_status disti_progress_check(void)
{
    int on;

    return disti_variable_int("DIST_PROGRESS_THREAD", 1, &on);
}

/* The thread is not in the child. The parent's groups are of no use there. */
static void progress_forked(void)
{
    pthread_mutex_init(&disti_progress.life, NULL);
    pthread_mutex_init(&disti_progress.list, NULL);
    if (disti_progress.wake_fd >= 0)
        close(disti_progress.wake_fd);
    disti_progress.wake_fd = -1;
    disti_progress.groups = NULL;
    atomic_store(&disti_progress.state, DISTI_PROGRESS_NONE);
}

/* There is no thread any more, or none yet. */
static void progress_end(void)
{
    close(disti_progress.wake_fd);
    disti_progress.wake_fd = -1;
    disti_progress_go(DISTI_PROGRESS_QUITS, DISTI_PROGRESS_NONE);
}

static void *progress_main(void *arg);

/* With `life`. Without the thread works go on, but only while the program calls the library. */
static bool progress_start(void)
{
    if (atomic_load(&disti_progress.state) != DISTI_PROGRESS_NONE)
        return true;
    if (!disti_progress.handles_fork && pthread_atfork(NULL, NULL, progress_forked) != 0)
        return false;
    disti_progress.handles_fork = true;
    disti_progress.wake_fd = disti_descriptor_raise(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (disti_progress.wake_fd < 0)
        return false;
    disti_progress_go(DISTI_PROGRESS_NONE, DISTI_PROGRESS_RUNS);
    if (disti_thread_create(&disti_progress.thread, progress_main, NULL) != 0) {
        disti_progress_go(DISTI_PROGRESS_RUNS, DISTI_PROGRESS_QUITS);
        progress_end();
        return false;
    }
    pthread_setname_np(disti_progress.thread, "dist-progress");
    return true;
}

static void progress_serve(struct dist_group *group)
{
    const struct dist_backend *backend = group->backend;
    bool started;
    int on = 0;

    group->drive.service = DISTI_SERVICE_NO;
    group->drive.one_thread = backend->threads && !backend->threads(group->state);
    if (group->world_size == 1 || group->drive.one_thread ||
        disti_variable_int("DIST_PROGRESS_THREAD", 1, &on) != DIST_OK || !on)
        return;
    pthread_mutex_lock(&disti_progress.life);
    started = progress_start();
    if (started) {
        pthread_mutex_lock(&disti_progress.list);
        group->drive.next_served = disti_progress.groups;
        disti_progress.groups = group;
        pthread_mutex_unlock(&disti_progress.list);
        group->drive.service = DISTI_SERVICE_YES;
    }
    pthread_mutex_unlock(&disti_progress.life);
    if (!started)
        disti_warn("cannot start the progress thread: operations progress only while the program "
                   "calls the library");
}

/* Works are pending and nobody drives: the thread shall. Call with the lock held. */
static void progress_notice(struct dist_group *group)
{
    if (group->drive.service == DISTI_SERVICE_UNKNOWN)
        progress_serve(group);
    if (group->drive.service == DISTI_SERVICE_YES)
        progress_wake(DISTI_PROGRESS_SLEEPS);
    else
        others_add(group);
}

static void progress_unlink(struct dist_group *group)
{
    struct dist_group **entry = &disti_progress.groups;

    pthread_mutex_lock(&disti_progress.list);
    while (*entry && *entry != group)
        entry = &(*entry)->drive.next_served;
    if (*entry)
        *entry = group->drive.next_served;
    pthread_mutex_unlock(&disti_progress.list);
}

/* The group is closed. Ends the thread if it was the last. Call without the lock. */
static void progress_forget(struct dist_group *group)
{
    if (group->drive.service != DISTI_SERVICE_YES)
        return;
    pthread_mutex_lock(&disti_progress.life);
    progress_unlink(group);
    if (!disti_progress.groups && atomic_load(&disti_progress.state) != DISTI_PROGRESS_NONE) {
        while (!disti_progress_go(atomic_load(&disti_progress.state), DISTI_PROGRESS_QUITS))
            ;
        progress_ring();
        pthread_join(disti_progress.thread, NULL);
        progress_end();
    }
    pthread_mutex_unlock(&disti_progress.life);
}

/* What the progress thread does: drives what nobody drives, sleeps on all of it at once. */

/*
 * The thread wants a CPU that the program computes on: it polls for some 30 microseconds only, and
 * not at all where there are more ranks than CPUs, or the process is bound to one CPU. Where a poll
 * is a call of the kernel, so many polls would be half a millisecond: hence the time.
 */
#define LOOP_SPINS 1024
#define LOOP_SPIN_NS (30 * 1000)
#define LOOP_YIELD_NS (100 * 1000)
#define LOOP_YIELD_ONCE_NS 1

/* Rounds between two looks at deadlines and news. */
#define LOOP_WATCH_ROUNDS 1024

/*
 * With nothing to do it looks again every tick, so that whoever starts a short work and waits for
 * it at once need not call it (for a long one it is called); after so many ticks it sleeps until it
 * is called.
 */
#define LOOP_TICK_NS (1000 * 1000)
#define LOOP_TICKS 100

/* A caller that tests works in a loop moves them itself: for so long after a test it is left to. */
#define LOOP_TEST_NS (1000 * 1000)

/* Descriptors to sleep on. Groups that find no room are looked at every tick. */
#define LOOP_DESCRIPTORS 256

/* Does a group need this thread? */
enum loop_need { LOOP_NO, LOOP_SOON, LOOP_NOW };

/* The thread's own: the groups that it drives, and how long nothing has moved. */
struct loop {
    struct dist_group *driven; /* by next_driven */
    struct disti_wait wait;
    uint32_t rounds;
    bool bound; /* there is one CPU for this thread and those of the program */
    int ticks;
    enum loop_need need; /* of the groups that it does not drive */
};

/* Never older than the thread's own state, which it may have changed before: see progress_wake. */
static enum disti_drive_state loop_state(const struct dist_group *group)
{
    return atomic_load(&group->drive.state);
}

static bool loop_drives(const struct dist_group *group)
{
    return disti_drive_by_thread(loop_state(group));
}

/* With the lock held. */
static enum loop_need loop_need(const struct dist_group *group)
{
    if (!group->works || group->drive.waiters || loop_state(group) != DISTI_DRIVE_IDLE)
        return LOOP_NO;
    return disti_now_ns() - group->drive.test_ns < LOOP_TEST_NS ? LOOP_SOON : LOOP_NOW;
}

/* Becomes the driver. A group that a caller took and left meanwhile may still be in the list. */
static void loop_take(struct loop *self, struct dist_group *group)
{
    disti_drive_go(&group->drive, DISTI_DRIVE_THREAD);
    if (group->drive.driven)
        return;
    group->drive.driven = true;
    disti_group_retain(group);
    group->drive.next_driven = self->driven;
    self->driven = group;
}

/* Takes the group, if `take`, when it needs a driver. */
static enum loop_need loop_consider(struct loop *self, struct dist_group *group, bool take)
{
    enum loop_need need;

    if (loop_state(group) != DISTI_DRIVE_IDLE)
        return LOOP_NO;
    if (!disti_lock_try(&group->lock))
        return LOOP_SOON;
    need = loop_need(group);
    if (need == LOOP_NOW && take)
        loop_take(self, group);
    disti_group_unlock(group);
    return need;
}

/* All groups. Returns the most urgent need. */
static enum loop_need loop_gather(struct loop *self, bool take)
{
    enum loop_need most = LOOP_NO;

    pthread_mutex_lock(&disti_progress.list);
    for (struct dist_group *group = disti_progress.groups; group;
         group = group->drive.next_served) {
        enum loop_need need = loop_consider(self, group, take);

        most = need > most ? need : most;
    }
    pthread_mutex_unlock(&disti_progress.list);
    return most;
}

/* Locks a group that it drives; false: a caller has become the driver, or closed the group. */
static bool loop_enter(struct dist_group *group)
{
    if (!loop_drives(group))
        return false;
    disti_group_enter(group);
    if (loop_drives(group))
        return true;
    disti_group_exit(group);
    return false;
}

/* One look at one group. False: it does not drive it any more. */
static bool loop_look(struct dist_group *group, bool watch, int *moved)
{
    bool keep;

    if (!loop_enter(group))
        return false;
    *moved += drive_poll(group);
    if (watch)
        drive_watch(group);
    drive_let_in(group);
    keep = group->works && loop_drives(group);
    if (!keep && loop_drives(group))
        drive_release(group);
    disti_group_exit(group);
    return keep;
}

/* One look at every group. Returns how much happened. */
static int loop_round(struct loop *self)
{
    struct dist_group **entry = &self->driven;
    bool watch = ++self->rounds % LOOP_WATCH_ROUNDS == 0;
    int moved = 0;

    while (*entry) {
        struct dist_group *group = *entry;

        if (loop_look(group, watch, &moved)) {
            entry = &group->drive.next_driven;
            continue;
        }
        *entry = group->drive.next_driven;
        group->drive.driven = false;
        disti_group_release(group);
    }
    return moved;
}

static bool loop_is_bound(void)
{
    cpu_set_t cpus;

    return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 && CPU_COUNT(&cpus) == 1;
}

static bool loop_is_crowded(const struct loop *self)
{
    if (self->bound)
        return true;
    for (const struct dist_group *group = self->driven; group; group = group->drive.next_driven) {
        if (group->policy.crowded)
            return true;
    }
    return false;
}

static void loop_hear(struct pollfd *wake)
{
    uint64_t times;

    if (wake->revents)
        (void)!read(wake->fd, &times, sizeof(times));
}

/* Arms every group. False: something has happened already. */
static bool loop_arm(struct loop *self, struct pollfd *polls, int *count, int64_t *ns)
{
    int64_t nap = disti_wait_nap(&self->wait);
    bool quiet = true;

    for (struct dist_group *group = self->driven; group && quiet;
         group = group->drive.next_driven) {
        if (!loop_enter(group))
            continue;
        drive_watch(group);
        quiet = drive_arm(group, disti_progress.wake_fd, polls, LOOP_DESCRIPTORS, nap, count, ns);
        disti_group_exit(group);
    }
    return quiet;
}

/*
 * Rests in `state` until a descriptor is readable, or somebody wakes it: the first descriptor is
 * for that. Where it SLEEPS it looks at the groups once more: who comes later wakes it.
 */
static void loop_rest(struct loop *self, enum disti_progress_state state, struct pollfd *polls,
                      int count, int64_t ns)
{
    if (!disti_progress_go(DISTI_PROGRESS_RUNS, state))
        return; /* it is to end */
    if (state == DISTI_PROGRESS_SLEEPS)
        self->need = loop_gather(self, false);
    if ((state == DISTI_PROGRESS_DOZES || self->need == LOOP_SOON) && ns > LOOP_TICK_NS)
        ns = LOOP_TICK_NS;
    if (self->need != LOOP_NOW)
        drive_poll_fds(polls, count, ns);
    disti_progress_go(state, DISTI_PROGRESS_RUNS);
}

/* Sleeps on the descriptors of all groups at once. */
static void loop_sleep(struct loop *self)
{
    struct pollfd polls[LOOP_DESCRIPTORS] = {{.fd = disti_progress.wake_fd, .events = POLLIN},
                                             {.fd = disti_doorbell(), .events = POLLIN}};
    int64_t ns = INT64_MAX;
    int count = 2;

    if (loop_arm(self, polls, &count, &ns)) {
        disti_endpoints_release();
        loop_rest(self, self->need == LOOP_SOON ? DISTI_PROGRESS_DOZES : DISTI_PROGRESS_SLEEPS,
                  polls, count, ns);
    }
    loop_hear(&polls[0]);
    disti_doorbell_reset();
    for (struct dist_group *group = self->driven; group; group = group->drive.next_driven) {
        if (!loop_enter(group))
            continue;
        drive_disarm(group);
        disti_group_exit(group);
    }
}

/* What the thread does. */
static void *progress_main(void *arg)
{
    struct loop self = {.bound = loop_is_bound()};

    (void)arg;
    while (atomic_load(&disti_progress.state) != DISTI_PROGRESS_QUITS) {
        self.need = loop_gather(&self, true);
        if (self.driven) {
            bool crowded = loop_is_crowded(&self);
            const struct disti_wait_policy policy = {.spins = crowded ? 0 : LOOP_SPINS,
                                                     .spin_ns = LOOP_SPIN_NS,
                                                     .yield_ns = crowded ? LOOP_YIELD_ONCE_NS
                                                                         : LOOP_YIELD_NS};

            self.ticks = 0;
            if (loop_round(&self) > 0)
                self.wait = (struct disti_wait){0};
            else if (self.driven && disti_wait_step(&policy, &self.wait))
                loop_sleep(&self);
        } else {
            struct pollfd wake = {.fd = disti_progress.wake_fd, .events = POLLIN};
            bool dozes = self.ticks < LOOP_TICKS || self.need == LOOP_SOON;

            disti_endpoints_release();
            loop_rest(&self, dozes ? DISTI_PROGRESS_DOZES : DISTI_PROGRESS_SLEEPS, &wake, 1,
                      INT64_MAX);
            self.ticks = wake.revents ? 0 : self.ticks + (self.ticks < LOOP_TICKS);
            loop_hear(&wake);
        }
    }
    loop_round(&self); /* lets go of what is closed */
    return NULL;
}
