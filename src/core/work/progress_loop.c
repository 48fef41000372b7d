/* SPDX-License-Identifier: BSD-3-Clause */
/* What the progress thread does: drives what nobody drives, sleeps on all of it at once. */
#include "core/work/progress.h"

#include "base/clock.h"
#include "base/doorbell.h"
#include "endpoint/endpoint.h"

#include <sched.h>
#include <unistd.h>

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
    *moved += disti_drive_poll(group);
    if (watch)
        disti_drive_watch(group);
    disti_drive_let_in(group);
    keep = group->works && loop_drives(group);
    if (!keep && loop_drives(group))
        disti_drive_release(group);
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

static void loop_disarm(struct loop *self)
{
    for (struct dist_group *group = self->driven; group; group = group->drive.next_driven) {
        if (!loop_enter(group))
            continue;
        disti_drive_disarm(group);
        disti_group_exit(group);
    }
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
        disti_drive_watch(group);
        quiet =
            disti_drive_arm(group, disti_progress.wake_fd, polls, LOOP_DESCRIPTORS, nap, count, ns);
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
        disti_drive_poll_fds(polls, count, ns);
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
    disti_doorbell_hear();
    loop_disarm(self);
}

/* It drives nothing: ticks, and in the end sleeps. */
static void loop_idle(struct loop *self)
{
    struct pollfd wake = {.fd = disti_progress.wake_fd, .events = POLLIN};
    bool dozes = self->ticks < LOOP_TICKS || self->need == LOOP_SOON;

    disti_endpoints_release();
    loop_rest(self, dozes ? DISTI_PROGRESS_DOZES : DISTI_PROGRESS_SLEEPS, &wake, 1, INT64_MAX);
    self->ticks = wake.revents ? 0 : self->ticks + (self->ticks < LOOP_TICKS);
    loop_hear(&wake);
}

static void loop_work(struct loop *self)
{
    bool crowded = loop_is_crowded(self);
    const struct disti_wait_policy policy = {.spins = crowded ? 0 : LOOP_SPINS,
                                             .spin_ns = LOOP_SPIN_NS,
                                             .yield_ns =
                                                 crowded ? LOOP_YIELD_ONCE_NS : LOOP_YIELD_NS};

    self->ticks = 0;
    if (loop_round(self) > 0)
        self->wait = (struct disti_wait){0};
    else if (self->driven && disti_wait_step(&policy, &self->wait))
        loop_sleep(self);
}

void *disti_progress_main(void *arg)
{
    struct loop self = {.bound = loop_is_bound()};

    (void)arg;
    while (atomic_load(&disti_progress.state) != DISTI_PROGRESS_QUITS) {
        self.need = loop_gather(&self, true);
        if (self.driven)
            loop_work(&self);
        else
            loop_idle(&self);
    }
    loop_round(&self); /* lets go of what is closed */
    return NULL;
}
