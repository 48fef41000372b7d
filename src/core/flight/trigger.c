/* SPDX-License-Identifier: BSD-3-Clause */
/* When the flight recorder writes a dump: at a failure, at SIGUSR1, and when the program asks. */
#include "base/file.h"
#include "base/settings/config.h"
#include "core/group/group.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define TRIGGER_FILE "dist-flight.%r.json"
/* So many files of a process at most: from then on the last is written again. */
#define TRIGGER_FILES 9

/*
 * All groups that the program has, for who writes a dump. A signal handler cannot wait for a mutex
 * that its own thread holds: so `taken` is held with signals blocked.
 */
static struct {
    atomic_flag taken;
    struct dist_group *groups; /* by flight.next */
    char path[512];            /* as DIST_FLIGHT_FILE says; "": no group was shown yet */
    char host[DISTI_HOST_SIZE];
    bool same;   /* that is no file, but such as a terminal: written to again and again */
    int written; /* files of that path */
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

/*
 * The first file has the path's name; later ones, in the order of what went wrong, ".2" and so on
 * behind it. Without stdio, and without a look at a disk, which may not answer.
 */
static void trigger_name(char path[DISTI_FLIGHT_PATH])
{
    const size_t length = strnlen(trigger.path, sizeof(trigger.path) - 1);

    memcpy(path, trigger.path, length);
    path[length] = '\0';
    if (trigger.same)
        return;
    trigger.written += trigger.written < TRIGGER_FILES;
    if (trigger.written > 1) {
        path[length] = '.';
        path[length + 1] = (char)('0' + trigger.written);
        path[length + 2] = '\0';
    }
}

/* What there is to tell; `path`, unless it is NULL: the file for it. False: nothing. */
static bool trigger_compose(const char *reason, struct disti_flight_text *text, char *path)
{
    struct disti_flight_head head = {.reason = reason};
    sigset_t mask;
    bool any;

    trigger_take(&mask);
    memcpy(head.host, trigger.host, sizeof(head.host));
    any = trigger.groups;
    if (any)
        disti_flight_compose(text, &head, trigger.groups);
    if (any && path)
        trigger_name(path);
    trigger_give(&mask);
    return any;
}

/* ---- the signal ---- */

static void trigger_signal(int number)
{
    struct disti_flight_text text = {0};
    char path[DISTI_FLIGHT_PATH];
    int saved = errno;

    (void)number;
    if (trigger_compose("signal", &text, path))
        disti_flight_save(path, &text);
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
void disti_flight_watch(void)
{
    if (trigger_is(SIG_DFL))
        trigger_set(trigger_signal);
}

/* The process is in exit(), or a program that has libdist.a in a shared object of its own unloads
 * that, and the handler with it. */
__attribute__((destructor)) static void trigger_unload(void)
{
    if (trigger_is(trigger_signal))
        trigger_set(SIG_IGN);
}

/* ---- groups ---- */

void disti_flight_show(struct dist_group *group)
{
    const char *pattern = disti_env("DIST_FLIGHT_FILE");
    char path[sizeof(trigger.path)];
    struct stat status;
    sigset_t mask;
    bool same;

    disti_file_name(pattern && *pattern ? pattern : TRIGGER_FILE, group->world->rank, path,
                    sizeof(path));
    same = lstat(path, &status) == 0 && !S_ISREG(status.st_mode);
    trigger_take(&mask);
    memcpy(trigger.path, path, sizeof(path));
    trigger.same = same;
    disti_host_short(trigger.host);
    group->flight.next = trigger.groups;
    if (trigger.groups)
        trigger.groups->flight.self = &group->flight.next;
    group->flight.self = &trigger.groups;
    trigger.groups = group;
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
    trigger_give(&mask);
}

/* A group of one waits for nobody. Who has waited until its deadline does not wait for a disk. */
bool disti_flight_failed(struct dist_group *group, const char *reason, char path[DISTI_FLIGHT_PATH])
{
    struct disti_flight_text text = {0};
    int error;

    atomic_store(&group->flight.failed, true);
    if (group->world_size == 1 || group->flight.off || !trigger_compose(reason, &text, path))
        return false;
    error = disti_flight_save_soon(path, &text);
    if (error == ETIMEDOUT)
        disti_warn("the flight recorder still writes %s: its file system does not answer", path);
    else if (error)
        disti_warn("the flight recorder cannot write %s: %s", path, strerror(error));
    return !error;
}

/* The parent's groups are the parent's. No thread is left that could hold them. */
void disti_flight_forked(void)
{
    atomic_flag_clear(&trigger.taken);
    trigger.groups = NULL;
    trigger.written = 0;
}

dist_status dist_flight_dump(const char *path)
{
    struct disti_flight_text text = {0};
    char usual[DISTI_FLIGHT_PATH];

    if (!trigger_compose("asked", &text, path ? NULL : usual))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_flight_dump: this process has no group: join a job first "
                          "(dist_init_process_group)");
    path = path ? path : usual;
    errno = disti_flight_save(path, &text);
    return errno ? disti_fail_errno(DIST_ERR_SYSTEM,
                                    "dist_flight_dump: cannot write %s: give another path, or set "
                                    "DIST_FLIGHT_FILE",
                                    path)
                 : DIST_OK;
}
