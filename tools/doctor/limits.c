/* SPDX-License-Identifier: BSD-3-Clause */
/* Limits of a process: open files, locked memory, processes; and where costs are kept. */
#include "doctor.h"

#include <dirent.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Of a rank: for itself, and for each other one that it talks to. The library raises soft limits.
 */
enum { LIMITS_FILES = 128, LIMITS_FILES_EACH = 4, LIMITS_FILES_LEAST = 1024 };
enum { LIMITS_PROCESSES = 64, LIMITS_PROCESSES_EACH = 4 };
#define LIMITS_LOCKED ((rlim_t)64 << 20)

/* May this process raise its hard limits, so that a shell may that is started likewise? */
static bool limits_may_raise(void)
{
    enum { LIMITS_CAP_SYS_RESOURCE = 24 };
    FILE *status = fopen("/proc/self/status", "re");
    unsigned long long mask = 0;
    char line[256];

    while (status && fgets(line, sizeof(line), status)) {
        if (sscanf(line, "CapEff: %llx", &mask) == 1)
            break;
    }
    if (status)
        fclose(status);
    return mask >> LIMITS_CAP_SYS_RESOURCE & 1;
}

static void limits_files(struct doctor_report *report)
{
    const rlim_t each = (rlim_t)report->ranks * LIMITS_FILES_EACH + LIMITS_FILES;
    const rlim_t needed = each > LIMITS_FILES_LEAST ? each : LIMITS_FILES_LEAST;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    if (limit.rlim_max >= needed) {
        doctor_ok(report, "open-files", "%llu at most", (unsigned long long)limit.rlim_max);
        return;
    }
    doctor_fault(report, "open-files", "a process may open %llu files, and a rank may need %llu",
                 (unsigned long long)limit.rlim_max, (unsigned long long)needed);
    if (limits_may_raise())
        doctor_mend(report, "ulimit -n 65536");
    doctor_other(report, "as root, for all sessions: echo '* - nofile 65536' "
                         ">/etc/security/limits.d/libdist.conf; docker run --ulimit nofile=65536");
}

/* Only what pins memory needs it: InfiniBand, and sends without a copy. */
static void limits_locked(struct doctor_report *report)
{
    const char *setting = getenv("DIST_TCP_ZEROCOPY");
    const bool zerocopy = setting && *setting && strcmp(setting, "off") != 0;
    const bool pins = zerocopy || doctor_exists("/sys/class/infiniband/*", NULL, 0);
    struct rlimit limit;

    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return;
    if (limit.rlim_cur == RLIM_INFINITY) {
        doctor_ok(report, "locked-memory", "no limit");
        return;
    }
    if (limit.rlim_cur >= LIMITS_LOCKED || !pins) {
        doctor_ok(report, "locked-memory", "%llu KiB%s", (unsigned long long)limit.rlim_cur >> 10,
                  pins ? "" : ", and nothing here pins memory");
        return;
    }
    doctor_fault(report, "locked-memory", "a process may lock %llu KiB, too little for %s",
                 (unsigned long long)limit.rlim_cur >> 10,
                 zerocopy ? "DIST_TCP_ZEROCOPY" : "InfiniBand");
    if (limits_may_raise())
        doctor_mend(report, "ulimit -l unlimited");
    else if (zerocopy)
        doctor_mend(report, "unset DIST_TCP_ZEROCOPY");
    doctor_other(report, "as root, for all sessions: echo '* - memlock unlimited' "
                         ">/etc/security/limits.d/libdist.conf; docker run --ulimit memlock=-1");
}

/* Threads of this user: what RLIMIT_NPROC counts. */
static long limits_tasks(void)
{
    DIR *folder = opendir("/proc");
    struct dirent *item;
    long tasks = 0;

    while (folder && (item = readdir(folder))) {
        char path[PATH_MAX];
        struct stat owner, threads;

        snprintf(path, sizeof(path), "/proc/%s", item->d_name);
        if (item->d_name[0] < '1' || item->d_name[0] > '9' || stat(path, &owner) != 0 ||
            owner.st_uid != getuid())
            continue;
        snprintf(path, sizeof(path), "/proc/%s/task", item->d_name);
        /* Each thread is a folder, and each folder a link of its parent. */
        tasks += stat(path, &threads) == 0 && threads.st_nlink > 2 ? (long)threads.st_nlink - 2 : 1;
    }
    if (folder)
        closedir(folder);
    return tasks;
}

/* How many more processes there may be; -1: any number. *cgroup_p: it is the cgroup that limits. */
static long limits_room(bool *cgroup_p)
{
    char most[32], now[32];
    struct rlimit limit;
    long room = -1;

    *cgroup_p = false;
    if (getuid() != 0 && getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        room = (long)limit.rlim_cur - limits_tasks();
        room = room < 0 ? 0 : room;
    }
    if (doctor_cgroup("pids.max", "pids", "pids.max", most, sizeof(most)) && atol(most) > 0 &&
        doctor_cgroup("pids.current", "pids", "pids.current", now, sizeof(now)) &&
        (room < 0 || atol(most) - atol(now) < room)) {
        room = atol(most) > atol(now) ? atol(most) - atol(now) : 0;
        *cgroup_p = true;
    }
    return room;
}

static void limits_processes(struct doctor_report *report)
{
    const long needed = LIMITS_PROCESSES + (long)report->ranks * LIMITS_PROCESSES_EACH;
    bool cgroup;
    const long room = limits_room(&cgroup);

    if (room < 0) {
        doctor_ok(report, "processes", "no limit");
    } else if (room >= needed) {
        doctor_ok(report, "processes", "room for %s", room > 1000 ? "a thousand" : "some");
    } else {
        doctor_fault(report, "processes", "there may be %ld more processes and threads%s", room,
                     cgroup ? " in this cgroup" : " of this user");
        if (!cgroup)
            doctor_mend(report, "ulimit -u $(ulimit -H -u)");
        doctor_other(report, cgroup ? "docker run --pids-limit -1; systemctl set-property "
                                      "user-$(id -u).slice TasksMax=infinity"
                                    : "end processes of this user, or have root raise the limit");
    }
}

/* Can a folder of that name be made, or written to if it is there? */
static bool limits_writable(const char *path)
{
    char folder[PATH_MAX], *slash;
    struct stat status;

    snprintf(folder, sizeof(folder), "%s", path);
    while (stat(folder, &status) != 0) {
        slash = strrchr(folder, '/');
        if (!slash)
            return false;
        slash[slash == folder] = '\0';
    }
    return S_ISDIR(status.st_mode) && access(folder, W_OK | X_OK) == 0;
}

static void limits_cache(struct doctor_report *report)
{
    const char *caches = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char path[PATH_MAX] = "";

    if (caches && *caches)
        snprintf(path, sizeof(path), "%s/libdist", caches);
    else if (home && *home)
        snprintf(path, sizeof(path), "%s/.cache/libdist", home);
    if (*path && limits_writable(path)) {
        doctor_ok(report, "cache", "%.200s", path);
        return;
    }
    doctor_fault(report, "cache", "%.160s cannot be written: each job measures costs anew",
                 *path ? path : "HOME is not set, and a cache");
    doctor_mend(report, "export XDG_CACHE_HOME=\"${TMPDIR:-/tmp}/cache-$(id -u)\"; "
                        "mkdir -p -m 700 \"$XDG_CACHE_HOME\"");
}

void doctor_limits(struct doctor_report *report)
{
    limits_files(report);
    limits_locked(report);
    limits_processes(report);
    limits_cache(report);
}
