/* SPDX-License-Identifier: BSD-3-Clause */
/* Who moves a group's works along: one thread at a time, which lets others in. */
#include "base/clock.h"
#include "base/thread.h"
#include "core/work/others.h"
#include "endpoint/endpoint.h"

#include <limits.h>
#include <sched.h>

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

/* The arrows of the drawing in drive.h, by where they begin. */
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

bool disti_drive_take(struct dist_group *group)
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

int disti_drive_poll(struct dist_group *group)
{
    int moved = group->failed ? 0 : group->backend->progress(group->state);

    if (moved < 0) {
        disti_group_fail(group, drive_failed(group, INT_MAX), (dist_status)moved);
        moved = 0;
    }
    if (moved || group->drive.completion_due ||
        (group->works && group->works->ticket.status != DIST_IN_PROGRESS))
        disti_complete(group);
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

/* A look at the groups that nobody drives. With the lock, which is let go meanwhile. */
static int drive_others(struct dist_group *group)
{
    int moved;

    disti_group_unlock(group);
    moved = disti_others_move();
    disti_group_lock(group);
    return moved;
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
        disti_complete(group);
    while (!drive_is_done(group, work)) {
        moved = disti_drive_poll(group);
        if (drive_is_done(group, work) || drive_is_late(until))
            break;
        if (rounds == 0)
            held = disti_cancel_hold();
        if (++rounds % DRIVE_WATCH_POLLS == 0)
            disti_drive_watch(group);
        if (disti_others_wait(group) && (moved <= 0 || rounds % DRIVE_OTHERS_POLLS == 0))
            moved += drive_others(group);
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

/* Another thread drives: waits until it has ended something, or leaves. */
static void drive_wait_turn(struct dist_group *group, int64_t until)
{
    int64_t soon = disti_now_ns() + DRIVE_TURN_NS;

    group->drive.waiters++;
    disti_change_wait(&group->drive.changed, &group->lock, until < soon ? until : soon);
    group->drive.waiters--;
    /* The progress thread left the rest to the waiters; this one may be done. */
    if (group->works && !group->drive.waiters &&
        disti_drive_state(&group->drive) == DISTI_DRIVE_IDLE)
        disti_progress_notice(group);
}

void disti_drive_until(struct dist_group *group, const struct disti_work *work, int64_t until)
{
    if (until != INT64_MAX)
        group->drive.test_ns = disti_now_ns();
    while (!drive_is_done(group, work)) {
        if (disti_drive_take(group)) {
            if (group->works != work || work->next) /* else it has just been started, or ended */
                drive_extend_deadlines(group, until == INT64_MAX);
            drive_along(group, work, until);
            disti_drive_release(group);
        } else {
            drive_wait_turn(group, until);
        }
        if (drive_is_late(until))
            break;
    }
}

int disti_drive_once(struct dist_group *group)
{
    int64_t now;
    int moved;

    if (!disti_drive_take(group))
        return 0;
    drive_extend_deadlines(group, false);
    moved = disti_drive_poll(group);
    now = disti_now_ns();
    group->drive.test_ns = now;
    if (now - group->drive.watch_ns > DRIVE_WATCH_NS) {
        group->drive.watch_ns = now;
        disti_drive_watch(group);
        disti_complete(group);
    }
    disti_drive_release(group);
    return moved;
}

void disti_drive_kick(struct dist_group *group)
{
    if (group->drive.completion_due && disti_drive_state(&group->drive) == DISTI_DRIVE_IDLE &&
        disti_drive_take(group)) {
        disti_complete(group);
        drive_go_idle(group); /* it has not driven */
    } else if (group->works && disti_drive_state(&group->drive) == DISTI_DRIVE_IDLE) {
        disti_progress_notice(group);
    } else if (group->drive.completion_due) {
        disti_drive_wake(group);
    }
}
