/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups with works that nobody drives: moved along by whoever waits. */
#include "core/work/others.h"

#include "base/clock.h"
#include "base/doorbell.h"
#include "base/process_lock.h"
#include "endpoint/endpoint.h"

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

/* With the list's lock. */
static void others_wake(void)
{
    const struct others_sleeper *sleeper = LIST_FIRST(&others_sleepers);

    if (sleeper)
        disti_doorbell_ring(sleeper->doorbell);
}

void disti_others_add(struct dist_group *group)
{
    group->drive.left_by = pthread_self();
    if (atomic_load_explicit(&group->drive.listed, memory_order_relaxed))
        return;
    pthread_mutex_lock(&others_lock);
    others_enlist(group);
    others_wake();
    pthread_mutex_unlock(&others_lock);
}

void disti_others_forget(struct dist_group *group)
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

int disti_others_move(void)
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

/* It is driven in its sleep as by the progress thread: a caller takes over. False: it has news. */
static bool others_arm(struct dist_group *group, struct pollfd *polls, int room, int64_t nap_ns,
                       int *count, int64_t *ns)
{
    disti_drive_go(&group->drive, DISTI_DRIVE_THREAD);
    disti_drive_watch(group);
    if (disti_drive_arm(group, polls[0].fd, polls, room, nap_ns, count, ns))
        return true;
    disti_drive_release(group);
    return false;
}

/* After the sleep: it may have another driver by now. */
static void others_disarm(struct dist_group *group, int doorbell)
{
    disti_group_enter(group);
    if (disti_drive_by_thread(disti_drive_state(&group->drive)) &&
        group->drive.wake_fd == doorbell) {
        disti_drive_disarm(group);
        disti_drive_release(group);
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

static void others_lie_down(struct others_sleeper *sleeper)
{
    if (sleeper->doorbell < 0)
        return;
    pthread_mutex_lock(&others_lock);
    LIST_INSERT_HEAD(&others_sleepers, sleeper, next);
    pthread_mutex_unlock(&others_lock);
}

static void others_get_up(struct others_sleeper *sleeper)
{
    if (sleeper->doorbell < 0)
        return;
    pthread_mutex_lock(&others_lock);
    LIST_REMOVE(sleeper, next);
    pthread_mutex_unlock(&others_lock);
}

void disti_others_sleep(struct pollfd *polls, int count, int room, int64_t nap_ns, int64_t ns)
{
    const struct disti_log *log = disti_log_current();
    struct dist_group *groups[OTHERS_AT_ONCE];
    struct others_sleeper self = {.doorbell = polls[0].fd};
    int armed = 0;
    bool quiet = true;

    others_lie_down(&self);
    if (self.doorbell >= 0)
        armed = others_arm_all(groups, polls, room, nap_ns, &count, &ns, &quiet);
    else if (ns > nap_ns)
        ns = nap_ns;
    disti_endpoints_release();
    if (quiet)
        disti_drive_poll_fds(polls, count, ns);
    others_get_up(&self);
    for (int i = 0; i < armed; i++)
        others_disarm(groups[i], self.doorbell);
    disti_log_use(log);
}

/* With such groups; they are looked at, and slept on. */
static void others_poll_all(int fd, int64_t until_ns)
{
    struct pollfd polls[OTHERS_DESCRIPTORS] = {{.fd = disti_doorbell(), .events = POLLIN},
                                               {.fd = fd, .events = POLLIN}};
    struct disti_wait wait = {0};

    while (!polls[1].revents && !disti_expired(until_ns) && disti_others_wait(NULL)) {
        int64_t ns = disti_others_move() > 0 ? 0 : until_ns - disti_now_ns();

        disti_others_sleep(polls, 2, OTHERS_DESCRIPTORS, disti_wait_nap(&wait), ns < 0 ? 0 : ns);
        disti_doorbell_hear();
    }
}

/*
 * Groups without works are looked at as well: MPI may have said that a message is sent, and pass it
 * on only as it is called again. A group that another thread has needs nobody.
 */
static void others_poke(void)
{
    const struct disti_log *log = disti_log_current();
    struct dist_group *group;

    for (int i = 0; i < OTHERS_AT_ONCE && disti_group_try(i, &group); i++) {
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
        others_poll_all(fd, until_ns);
        return;
    }
    /* A thread that only waits needs no doorbell. */
    disti_drive_poll_fds(&poll, 1, ns < 0 ? 0 : ns < OTHERS_POKE_NS ? ns : OTHERS_POKE_NS);
    if (!poll.revents)
        others_poke();
}
