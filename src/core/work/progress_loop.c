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
 * not at all where there are more ranks than CPUs, or the process is bound to one CPU.
 */
#define LOOP_SPINS 1024
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
    struct dist_group *held; /* by next_held */
    struct disti_wait wait;
    uint32_t rounds;
    bool bound; /* there is one CPU for this thread and those of the program */
    int ticks;
    enum loop_need need; /* of the groups that are not held */
};

static bool loop_is(const struct dist_group *group, enum disti_role role)
{
    return atomic_load(&group->drive.role) == role;
}

/* With the lock held. */
static enum loop_need loop_need(const struct dist_group *group)
{
    if (!group->works || group->drive.waiters || !loop_is(group, DISTI_ROLE_NOBODY))
        return LOOP_NO;
    return disti_now_ns() - group->drive.test_ns < LOOP_TEST_NS ? LOOP_SOON : LOOP_NOW;
}

/* Becomes the driver. A group that a caller took and left meanwhile may still be among the held. */
static void loop_take(struct loop *self, struct dist_group *group)
{
    atomic_store(&group->drive.role, DISTI_ROLE_THREAD);
    if (group->drive.held)
        return;
    group->drive.held = true;
    disti_group_hold(group);
    group->drive.next_held = self->held;
    self->held = group;
}

/* Takes the group, if `take`, when it needs a driver. */
static enum loop_need loop_consider(struct loop *self, struct dist_group *group, bool take)
{
    enum loop_need need;

    if (!loop_is(group, DISTI_ROLE_NOBODY))
        return LOOP_NO;
    if (pthread_mutex_trylock(&group->lock) != 0)
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

/* Locks a group that is held; false: a caller has taken the role, or closed the group. */
static bool loop_enter(struct dist_group *group)
{
    if (!loop_is(group, DISTI_ROLE_THREAD))
        return false;
    disti_group_enter(group);
    if (loop_is(group, DISTI_ROLE_THREAD))
        return true;
    disti_group_exit(group);
    return false;
}

/* One look at one group. False: it is not held any more. */
static bool loop_look(struct dist_group *group, bool watch, int *moved)
{
    bool keep;

    if (!loop_enter(group))
        return false;
    *moved += disti_drive_poll(group);
    if (watch)
        disti_drive_watch(group);
    disti_drive_let_in(group);
    keep = group->works && loop_is(group, DISTI_ROLE_THREAD);
    if (!keep && loop_is(group, DISTI_ROLE_THREAD))
        disti_drive_leave(group);
    disti_group_exit(group);
    return keep;
}

/* One look at every group. Returns how much happened. */
static int loop_round(struct loop *self)
{
    struct dist_group **at = &self->held;
    bool watch = ++self->rounds % LOOP_WATCH_ROUNDS == 0;
    int moved = 0;

    while (*at) {
        struct dist_group *group = *at;

        if (loop_look(group, watch, &moved)) {
            at = &group->drive.next_held;
            continue;
        }
        *at = group->drive.next_held;
        group->drive.held = false;
        disti_group_let_go(group);
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
    for (const struct dist_group *group = self->held; group; group = group->drive.next_held) {
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
    for (struct dist_group *group = self->held; group; group = group->drive.next_held) {
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

    for (struct dist_group *group = self->held; group && quiet; group = group->drive.next_held) {
        if (!loop_enter(group))
            continue;
        disti_drive_watch(group);
        quiet =
            disti_drive_arm(group, disti_progress.wake_fd, polls, LOOP_DESCRIPTORS, nap, count, ns);
        disti_group_exit(group);
    }
    return quiet;
}

/* Sleeps until a descriptor is readable or somebody calls; the first descriptor is for that. */
static void loop_rest(struct loop *self, struct pollfd *polls, int count, int64_t ns)
{
    if (self->need != LOOP_SOON) { /* else it looks again soon: nobody need call */
        atomic_exchange(&disti_progress.asleep, true);
        self->need = loop_gather(self, false); /* who comes from now on calls */
    }
    atomic_store(&disti_progress.dozing, self->need == LOOP_SOON);
    if (self->need == LOOP_SOON && ns > LOOP_TICK_NS)
        ns = LOOP_TICK_NS;
    if (self->need != LOOP_NOW && !atomic_load(&disti_progress.quit))
        disti_drive_poll_fds(polls, count, ns);
    atomic_store(&disti_progress.dozing, false);
    atomic_store(&disti_progress.asleep, false);
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
        loop_rest(self, polls, count, ns);
    }
    loop_hear(&polls[0]);
    disti_doorbell_hear();
    loop_disarm(self);
}

/* Nothing is held: ticks, and in the end sleeps. */
static void loop_idle(struct loop *self)
{
    struct pollfd wake = {.fd = disti_progress.wake_fd, .events = POLLIN};

    disti_endpoints_release();
    if (self->ticks < LOOP_TICKS) {
        atomic_store(&disti_progress.dozing, true);
        disti_drive_poll_fds(&wake, 1, LOOP_TICK_NS);
        atomic_store(&disti_progress.dozing, false);
    } else {
        loop_rest(self, &wake, 1, INT64_MAX);
    }
    self->ticks = wake.revents ? 0 : self->ticks + (self->ticks < LOOP_TICKS);
    loop_hear(&wake);
}

static void loop_work(struct loop *self)
{
    bool crowded = loop_is_crowded(self);
    const struct disti_wait_policy policy = {.spins = crowded ? 0 : LOOP_SPINS,
                                             .yield_ns =
                                                 crowded ? LOOP_YIELD_ONCE_NS : LOOP_YIELD_NS};

    self->ticks = 0;
    if (loop_round(self) > 0)
        self->wait = (struct disti_wait){0};
    else if (self->held && disti_wait_step(&policy, &self->wait))
        loop_sleep(self);
}

void *disti_progress_main(void *arg)
{
    struct loop self = {.bound = loop_is_bound()};

    (void)arg;
    while (!atomic_load(&disti_progress.quit)) {
        self.need = loop_gather(&self, true);
        if (self.held)
            loop_work(&self);
        else
            loop_idle(&self);
    }
    loop_round(&self); /* lets go of what is closed */
    return NULL;
}
