/* SPDX-License-Identifier: BSD-3-Clause */
/* The progress thread, which moves works along while the program computes: its life. */
#include "core/work/progress.h"

#include "base/settings/config.h"
#include "base/thread.h"

#include <sys/eventfd.h>
#include <unistd.h>

struct disti_progress disti_progress = {
    .life = PTHREAD_MUTEX_INITIALIZER, .list = PTHREAD_MUTEX_INITIALIZER, .wake_fd = -1};

/* Both sides exchange: so whoever comes second sees what the first did before. */
static void progress_wake(void)
{
    uint64_t one = 1;

    if (atomic_exchange(&disti_progress.asleep, false))
        (void)!write(disti_progress.wake_fd, &one, sizeof(one));
}

void disti_progress_hurry(void)
{
    uint64_t one = 1;

    if (atomic_exchange(&disti_progress.dozing, false))
        (void)!write(disti_progress.wake_fd, &one, sizeof(one));
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
    disti_progress.running = false;
}

/* With `life`. Without the thread works go on, but only while the program calls the library. */
static bool progress_start(void)
{
    if (disti_progress.running)
        return true;
    if (!disti_progress.handles_fork && pthread_atfork(NULL, NULL, progress_forked) != 0)
        return false;
    disti_progress.handles_fork = true;
    atomic_store(&disti_progress.quit, false);
    atomic_store(&disti_progress.asleep, false);
    atomic_store(&disti_progress.dozing, false);
    disti_progress.wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (disti_progress.wake_fd >= 0 &&
        disti_thread_create(&disti_progress.thread, disti_progress_main, NULL) == 0) {
        disti_progress.running = true;
        pthread_setname_np(disti_progress.thread, "dist-progress");
        return true;
    }
    if (disti_progress.wake_fd >= 0)
        close(disti_progress.wake_fd);
    disti_progress.wake_fd = -1;
    return false;
}

static void progress_stop(void)
{
    atomic_store(&disti_progress.quit, true);
    progress_wake();
    pthread_join(disti_progress.thread, NULL);
    close(disti_progress.wake_fd);
    disti_progress.wake_fd = -1;
    disti_progress.running = false;
}

static bool progress_may_serve(const struct dist_group *group)
{
    const struct dist_backend *backend = group->backend;
    int on = 0;

    return group->world_size > 1 && (!backend->threads || backend->threads(group->state)) &&
           disti_env_int("DIST_PROGRESS_THREAD", 0, 1, 1, &on) == DIST_OK && on;
}

static void progress_serve(struct dist_group *group)
{
    bool started;

    group->drive.service = DISTI_SERVICE_NO;
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
        progress_wake();
}

static void progress_unlink(struct dist_group *group)
{
    struct dist_group **at = &disti_progress.groups;

    pthread_mutex_lock(&disti_progress.list);
    while (*at && *at != group)
        at = &(*at)->drive.next_served;
    if (*at)
        *at = group->drive.next_served;
    pthread_mutex_unlock(&disti_progress.list);
}

void disti_progress_forget(struct dist_group *group)
{
    if (group->drive.service != DISTI_SERVICE_YES)
        return;
    pthread_mutex_lock(&disti_progress.life);
    progress_unlink(group);
    if (!disti_progress.groups && disti_progress.running)
        progress_stop();
    pthread_mutex_unlock(&disti_progress.life);
}
