/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups with works that nobody drives: moved along by whoever waits. */
#include "base/settings/config.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/lock.h"
#include "base/thread.h"
#include "core/work.h"
#include "endpoint/endpoint.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

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

static bool drive_arm(struct dist_group *group, int wake_fd, struct pollfd *polls, int room,
                      int64_t nap_ns, int *count_p, int64_t *ns_p);

/* It is driven in its sleep as by the progress thread: a caller takes over. False: it has news. */
static bool others_arm(struct dist_group *group, struct pollfd *polls, int room, int64_t nap_ns,
                       int *count, int64_t *ns)
{
    disti_drive_go(&group->drive, DISTI_DRIVE_THREAD);
    disti_drive_watch(group);
    if (drive_arm(group, polls[0].fd, polls, room, nap_ns, count, ns))
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
        struct pollfd polls[OTHERS_DESCRIPTORS] = {{.fd = disti_doorbell(), .events = POLLIN},
                                                   {.fd = fd, .events = POLLIN}};
        struct disti_wait wait = {0};

        while (!polls[1].revents && !disti_expired(until_ns) && disti_others_wait(NULL)) {
            ns = disti_others_move() > 0 ? 0 : until_ns - disti_now_ns();
            others_sleep(polls, 2, OTHERS_DESCRIPTORS, disti_wait_nap(&wait), ns < 0 ? 0 : ns);
            disti_doorbell_hear();
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

void disti_drive_disarm(struct dist_group *group)
{
    if (!disti_drive_sleeps(disti_drive_state(&group->drive)))
        return;
    disti_drive_go_either(&group->drive, DISTI_DRIVE_CALLER, DISTI_DRIVE_THREAD);
    if (group->backend->disarm)
        group->backend->disarm(group->state);
}

void disti_drive_wake(struct dist_group *group)
{
    if (!disti_drive_sleeps(disti_drive_state(&group->drive)))
        return;
    disti_drive_disarm(group);
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
    return disti_drive_go_either(&group->drive, DISTI_DRIVE_CALLER_SLEEPS,
                                 DISTI_DRIVE_THREAD_SLEEPS) == DIST_OK;
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
    disti_doorbell_hear();
    disti_group_lock(group);
    disti_drive_disarm(group);
}

/* Nothing has moved: spins, yields or sleeps, as the policy says. */
void disti_drive_rest(struct dist_group *group, struct disti_wait *wait, int64_t until)
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
    disti_drive_watch(group);
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
        disti_fail(DIST_ERR_INTERNAL, "the progress thread cannot go from state %d to %d",
                   (int)from, (int)to);
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
        disti_warn("cannot start the progress thread: works advance only while the program calls "
                   "the library");
}

void disti_progress_notice(struct dist_group *group)
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

void disti_progress_forget(struct dist_group *group)
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
    disti_doorbell_hear();
    for (struct dist_group *group = self->driven; group; group = group->drive.next_driven) {
        if (!loop_enter(group))
            continue;
        disti_drive_disarm(group);
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
