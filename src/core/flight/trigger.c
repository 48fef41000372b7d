/* SPDX-License-Identifier: BSD-3-Clause */
/* When the flight recorder writes a dump: at a failure, at SIGUSR1, and when the program asks. */
#include "base/file.h"
#include "base/settings/config.h"
#include "core/group/group.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

#define TRIGGER_FILE "dist-flight.%h.%p.json"

/*
 * All groups that the program has, for who writes a dump. A signal handler cannot wait for a mutex
 * that its own thread holds: so `taken` is held with signals blocked.
 */
static struct {
    atomic_flag taken;
    struct dist_group *groups; /* by flight.next */
    char path[512];            /* as DIST_FLIGHT_FILE says; "": no group was shown yet */
    char host[64];
} trigger = {.taken = ATOMIC_FLAG_INIT};

static void trigger_take(sigset_t *mask)
{
    sigset_t all;

    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, mask);
    while (atomic_flag_test_and_set(&trigger.taken))
        sched_yield();
}

static void trigger_give(const sigset_t *mask)
{
    atomic_flag_clear(&trigger.taken);
    pthread_sigmask(SIG_SETMASK, mask, NULL);
}

/* path NULL: the usual one. 0, or an errno; EAGAIN: there is nothing to tell. */
static int trigger_write(const char *path, const char *reason)
{
    struct disti_flight_head head = {.reason = reason};
    sigset_t mask;
    int error = EAGAIN;

    trigger_take(&mask);
    memcpy(head.host, trigger.host, sizeof(head.host));
    if (trigger.groups)
        error = disti_flight_write(path ? path : trigger.path, &head, trigger.groups);
    trigger_give(&mask);
    return error;
}

/* ---- the signal ---- */

static void trigger_signal(int number)
{
    int saved = errno;

    (void)number;
    trigger_write(NULL, "signal");
    errno = saved;
}

static bool trigger_is(void (*handler)(int))
{
    struct sigaction now;

    return sigaction(SIGUSR1, NULL, &now) == 0 && !(now.sa_flags & SA_SIGINFO) &&
           now.sa_handler == handler;
}

static void trigger_set(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};

    sigemptyset(&action.sa_mask);
    sigaction(SIGUSR1, &action, NULL);
}

/* A program that handles the signal itself, before or after, keeps it. */
static void trigger_watch(bool on)
{
    if (on && trigger_is(SIG_DFL))
        trigger_set(trigger_signal);
    else if (!on && trigger_is(trigger_signal))
        trigger_set(SIG_DFL);
}

/* ---- groups ---- */

void disti_flight_show(struct dist_group *group)
{
    const char *pattern = disti_env("DIST_FLIGHT_FILE");
    char path[sizeof(trigger.path)];
    sigset_t mask;

    disti_file_name(pattern && *pattern ? pattern : TRIGGER_FILE, group->world->rank, path,
                    sizeof(path));
    trigger_take(&mask);
    memcpy(trigger.path, path, sizeof(path));
    disti_file_host(trigger.host, sizeof(trigger.host));
    group->flight.next = trigger.groups;
    if (trigger.groups)
        trigger.groups->flight.self = &group->flight.next;
    group->flight.self = &trigger.groups;
    trigger.groups = group;
    trigger_watch(true);
    trigger_give(&mask);
}

void disti_flight_hide(struct dist_group *group)
{
    sigset_t mask;

    if (!group->flight.self)
        return;
    trigger_take(&mask);
    *group->flight.self = group->flight.next;
    if (group->flight.next)
        group->flight.next->flight.self = group->flight.self;
    group->flight.self = NULL;
    if (!trigger.groups)
        trigger_watch(false);
    trigger_give(&mask);
}

/* A group of one waits for nobody. */
const char *disti_flight_failed(struct dist_group *group, const char *reason)
{
    int error;

    atomic_store(&group->flight.failed, true);
    if (group->world_size == 1 || group->flight.off)
        return NULL;
    error = trigger_write(NULL, reason);
    if (error && error != EAGAIN)
        disti_warn("the flight recorder cannot write %s: %s", trigger.path, strerror(error));
    return error ? NULL : trigger.path;
}

/* The parent's groups are the parent's. No thread is left that could hold them. */
void disti_flight_forked(void)
{
    atomic_flag_clear(&trigger.taken);
    trigger.groups = NULL;
    trigger_watch(false);
}

dist_status dist_flight_dump(const char *path)
{
    int error = trigger_write(path, "asked");

    if (error == EAGAIN)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_flight_dump: this process has no group: join a job first "
                          "(dist_init_process_group)");
    errno = error;
    return error ? disti_fail_errno(DIST_ERR_SYSTEM,
                                    "dist_flight_dump: cannot write %s: give another path, or set "
                                    "DIST_FLIGHT_FILE",
                                    path ? path : trigger.path)
                 : DIST_OK;
}
