/* SPDX-License-Identifier: BSD-3-Clause */
/* The progress thread, which moves works along while the program computes: its life. */
#include "core/work/progress.h"

#include "base/descriptor.h"
#include "base/settings/config.h"
#include "base/thread.h"
#include "core/work/others.h"

#include <sys/eventfd.h>
#include <unistd.h>

struct disti_progress disti_progress = {
    .life = PTHREAD_MUTEX_INITIALIZER, .list = PTHREAD_MUTEX_INITIALIZER, .wake_fd = -1};

/* The arrows of the drawing in progress.h, by where they begin. */
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

    return disti_env_int("DIST_PROGRESS_THREAD", 0, 1, 1, &on);
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
    if (disti_thread_create(&disti_progress.thread, disti_progress_main, NULL) != 0) {
        disti_progress_go(DISTI_PROGRESS_RUNS, DISTI_PROGRESS_QUITS);
        progress_end();
        return false;
    }
    pthread_setname_np(disti_progress.thread, "dist-progress");
    return true;
}

static void progress_stop(void)
{
    while (!disti_progress_go(atomic_load(&disti_progress.state), DISTI_PROGRESS_QUITS))
        ;
    progress_ring();
    pthread_join(disti_progress.thread, NULL);
    progress_end();
}

static bool progress_may_serve(const struct dist_group *group)
{
    int on = 0;

    return group->world_size > 1 && !group->drive.one_thread &&
           disti_env_int("DIST_PROGRESS_THREAD", 0, 1, 1, &on) == DIST_OK && on;
}

static void progress_serve(struct dist_group *group)
{
    const struct dist_backend *backend = group->backend;
    bool started;

    group->drive.service = DISTI_SERVICE_NO;
    group->drive.one_thread = backend->threads && !backend->threads(group->state);
    if (!progress_may_serve(group))
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
        disti_others_add(group);
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
    if (!disti_progress.groups && atomic_load(&disti_progress.state) != DISTI_PROGRESS_NONE)
        progress_stop();
    pthread_mutex_unlock(&disti_progress.life);
}
