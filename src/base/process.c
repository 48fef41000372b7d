/* SPDX-License-Identifier: BSD-3-Clause */
/* Processes: their end, limits, memory, names and namespaces. */
#include "base/process.h"
#include "base/log.h"
#include "base/net.h"
#include "base/thread.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* process_vm_readv or process_vm_writev. */
typedef ssize_t (*vm_call)(pid_t pid, const struct iovec *here, unsigned long here_count,
                           const struct iovec *there, unsigned long there_count,
                           unsigned long flags);

/* ---- how another process ended ---- */

const char *disti_process_end(const char *host, uint32_t space, int pid, char *text, size_t size)
{
    const char *name;
    char own[DISTI_HOST_SIZE];
    int status;

    disti_host_name(own);
    /*
     * If other threads still run, the process has closed the connection without ending, even if its
     * first thread has ended.
     */
    if (strcmp(host, own) != 0 || space != disti_process_space() ||
        !disti_process_first_ends(pid, &status) || disti_process_thread(pid))
        return "closed its connection without leaving the job";
    if (WIFSIGNALED(status)) {
        name = disti_signal_name(WTERMSIG(status));
        snprintf(text, size, "was killed by signal %d (SIG%s)", WTERMSIG(status),
                 name ? name : "?");
    } else {
        snprintf(text, size, "exited with code %d without leaving the job", WEXITSTATUS(status));
    }
    return text;
}

/* ---- limits on processes and threads ---- */

dist_status disti_process_limit_fail(const char *format, ...)
{
    const int error = errno;
    struct rlimit limit;
    va_list arguments;
    char what[160];

    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    errno = error;
    if (error != EAGAIN)
        return disti_fail_errno(DIST_ERR_SYSTEM, "cannot %s", what);
    if (getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return disti_fail(
            DIST_ERR_SYSTEM,
            "cannot %s: the system's or a cgroup's limit on processes and threads is reached: "
            "raise its pids.max, or kernel.pid_max",
            what);
    return disti_fail(DIST_ERR_SYSTEM,
                      "cannot %s: this user's limit on processes and threads, %llu, is reached: "
                      "raise it (ulimit -u), or that of the cgroup (pids.max)",
                      what, (unsigned long long)limit.rlim_cur);
}

/* ---- the out-of-memory killer ---- */

/*
 * Size of stdio's buffer, which is on the stack: avoids an allocation for each process that was
 * killed.
 */
#define OOM_BUFFER 1024

/* Returns the number in the line "oom_kill N" of a file; -1: no such line. */
static int64_t oom_read(const char *path)
{
    char buffer[OOM_BUFFER], line[128];
    FILE *file = fopen(path, "re");
    int64_t kills = -1;

    if (file)
        setvbuf(file, buffer, _IOFBF, sizeof(buffer));
    while (file && kills < 0 && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "oom_kill %" SCNd64, &kills) != 1)
            kills = -1;
    }
    if (file)
        fclose(file);
    return kills;
}

/*
 * Returns the number of kills of a cgroup; -1: unknown. In a container the cgroup's path may not
 * exist; then reads the root of the mount.
 */
static int64_t oom_of_group(const char *mounts, const char *hierarchy, const char *group,
                            const char *name)
{
    char path[PATH_MAX];
    int64_t kills = -1;

    if (snprintf(path, sizeof(path), "%s%s%s/%s", mounts, hierarchy, group, name) <
        (int)sizeof(path))
        kills = oom_read(path);
    if (kills < 0 &&
        snprintf(path, sizeof(path), "%s%s/%s", mounts, hierarchy, name) < (int)sizeof(path))
        kills = oom_read(path);
    return kills;
}

bool disti_cgroup_split(char *line, char **controllers_p, char **path_p)
{
    char *controllers = strchr(line, ':'),
         *path = controllers ? strchr(controllers + 1, ':') : NULL;

    if (!path)
        return false;
    line[strcspn(line, "\n")] = '\0';
    *controllers++ = '\0';
    *path++ = '\0';
    *controllers_p = controllers;
    *path_p = path;
    return true;
}

bool disti_cgroup_controls(const char *controllers, const char *name)
{
    const size_t length = strlen(name);

    for (const char *c = controllers; *c; c += strcspn(c, ","), c += *c == ',') {
        if (strncmp(c, name, length) == 0 && (c[length] == ',' || c[length] == '\0'))
            return true;
    }
    return false;
}

int64_t disti_process_oom_kills_in(const char *membership, const char *mounts, const char *vmstat)
{
    char buffer[OOM_BUFFER], line[PATH_MAX + 256];
    FILE *file = fopen(membership, "re");
    char *controllers, *group;
    int64_t kills = -1;

    if (file)
        setvbuf(file, buffer, _IOFBF, sizeof(buffer));
    while (file && kills < 0 && fgets(line, sizeof(line), file)) {
        if (!disti_cgroup_split(line, &controllers, &group))
            continue;
        /*
         * A line of version 2 has no controllers. Version 2 is mounted at `mounts` itself, or in
         * its subdirectory "unified" beside the controllers of version 1.
         */
        if (disti_cgroup_controls(controllers, "memory"))
            kills = oom_of_group(mounts, "/memory", group, "memory.oom_control");
        else if (!*controllers) {
            kills = oom_of_group(mounts, "", group, "memory.events");
            if (kills < 0)
                kills = oom_of_group(mounts, "/unified", group, "memory.events");
        }
    }
    if (file)
        fclose(file);
    if (kills < 0)
        kills = oom_read(vmstat);
    return kills < 0 ? 0 : kills;
}

int64_t disti_process_oom_kills(void)
{
    return disti_process_oom_kills_in(DISTI_PROCESS_OWN "/cgroup", "/sys/fs/cgroup",
                                      "/proc/vmstat");
}

const char *disti_process_oom_text(bool killed)
{
    return killed ? ": the kernel's out-of-memory killer ended it: raise the memory limit of the "
                    "job (cgroup, container), or start fewer processes"
                  : "";
}

/* ---- mappings of this process, changed by system calls that no library has replaced ---- */

#define PAGES_OFFSET_UNIT 4096 /* unit of the offset of SYS_mmap2, whatever the page size is */

void *disti_pages_map(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
#if defined(SYS_mmap2)
    return (void *)syscall(SYS_mmap2, at, bytes, protection, flags, fd,
                           (long)(offset / PAGES_OFFSET_UNIT));
#elif defined(SYS_mmap) && !defined(__s390__) /* takes a structure on s390 */
    return (void *)syscall(SYS_mmap, at, bytes, (long)protection, (long)flags, (long)fd, offset);
#else
    return mmap(at, bytes, protection, flags, fd, offset);
#endif
}

void disti_pages_unmap(void *memory, size_t bytes)
{
    (void)syscall(SYS_munmap, memory, bytes);
}

void *disti_pages_grow(void *memory, size_t bytes, size_t new_bytes)
{
    return (void *)syscall(SYS_mremap, memory, bytes, new_bytes, (long)MREMAP_MAYMOVE, NULL);
}

void *disti_pages_move(void *from, size_t bytes, void *to)
{
    return (void *)syscall(SYS_mremap, from, bytes, bytes, (long)(MREMAP_MAYMOVE | MREMAP_FIXED),
                           to);
}

/* ---- memory and descriptors of another process, even if its first thread has ended ---- */

/* Number of tries. A thread may end after it was found and before it is used. */
#define REACH_TRIES 8

/*
 * The last process whose first thread had ended, and the thread used instead. Cached, because the
 * search takes longer than copying a chunk.
 */
static _Thread_local struct {
    int pid, thread;
} reach_last;

static ssize_t reach_copy(vm_call call, int pid, const struct iovec *here,
                          const struct iovec *there)
{
    ssize_t copied = call(pid, here, 1, there, 1, 0);

    for (int tries = 0; copied < 0 && errno == ESRCH && tries < REACH_TRIES; tries++) {
        /* The id of a thread that has ended may have been reused by another process. */
        if (tries > 0 || reach_last.pid != pid || !reach_last.thread ||
            syscall(SYS_tgkill, pid, reach_last.thread, 0) != 0) {
            reach_last.pid = pid;
            reach_last.thread = disti_process_thread(pid);
        }
        errno = ESRCH;
        if (!reach_last.thread)
            break;
        copied = call(reach_last.thread, here, 1, there, 1, 0);
    }
    return copied;
}

ssize_t disti_process_read(int pid, const struct iovec *here, const struct iovec *there)
{
    return reach_copy(process_vm_readv, pid, here, there);
}

ssize_t disti_process_write(int pid, const struct iovec *here, const struct iovec *there)
{
    return reach_copy(process_vm_writev, pid, here, there);
}

void disti_process_path(int pid, int fd, char path[DISTI_PROCESS_PATH])
{
    struct stat info;
    int thread;

    snprintf(path, DISTI_PROCESS_PATH, "/proc/%d/fd/%d", pid, fd);
    if (lstat(path, &info) == 0) /* lstat: the link's target need not exist */
        return;
    thread = disti_process_thread(pid);
    if (thread)
        snprintf(path, DISTI_PROCESS_PATH, "/proc/%d/task/%d/fd/%d", pid, thread, fd);
}

/* ---- names of signals ---- */

/* A table, as sigabbrev_np exists in glibc 2.32 and later only. */
static const char *const signal_names[] = {
    [SIGABRT] = "ABRT",     [SIGALRM] = "ALRM",     [SIGBUS] = "BUS",     [SIGCHLD] = "CHLD",
    [SIGCONT] = "CONT",     [SIGFPE] = "FPE",       [SIGHUP] = "HUP",     [SIGILL] = "ILL",
    [SIGINT] = "INT",       [SIGKILL] = "KILL",     [SIGPIPE] = "PIPE",   [SIGPOLL] = "POLL",
    [SIGPROF] = "PROF",     [SIGQUIT] = "QUIT",     [SIGSEGV] = "SEGV",   [SIGSTOP] = "STOP",
    [SIGSYS] = "SYS",       [SIGTERM] = "TERM",     [SIGTRAP] = "TRAP",   [SIGTSTP] = "TSTP",
    [SIGTTIN] = "TTIN",     [SIGTTOU] = "TTOU",     [SIGURG] = "URG",     [SIGUSR1] = "USR1",
    [SIGUSR2] = "USR2",     [SIGVTALRM] = "VTALRM", [SIGWINCH] = "WINCH", [SIGXCPU] = "XCPU",
    [SIGXFSZ] = "XFSZ",
#ifdef SIGPWR
    [SIGPWR] = "PWR",
#endif
#ifdef SIGSTKFLT
    [SIGSTKFLT] = "STKFLT",
#endif
};

const char *disti_signal_name(int signal_number)
{
    if (signal_number < 0 ||
        (size_t)signal_number >= sizeof(signal_names) / sizeof(signal_names[0]))
        return NULL;
    return signal_names[signal_number];
}

/* ---- the PID namespace of this process ---- */

uint32_t disti_process_space(void)
{
    struct stat space;

    return stat(DISTI_PROCESS_OWN "/ns/pid", &space) == 0 ? (uint32_t)space.st_ino : 0;
}

/* The link /proc/self contains this process's pid in the namespace of /proc. */
bool disti_process_proc_is_own(void)
{
    char pid[16];
    const ssize_t length = readlink("/proc/self", pid, sizeof(pid) - 1);

    if (length <= 0)
        return false;
    pid[length] = '\0';
    return atoi(pid) == getpid();
}

const char *disti_process_elsewhere(uint32_t space)
{
    return space && space != disti_process_space() ? " in another PID namespace" : "";
}

/* ---- threads of another process (/proc/PID/stat) ---- */

/* Indexes of fields in /proc/PID/stat, counted from 0 after the command's ")". */
#define STAT_FLAGS 6
#define STAT_EXIT_CODE 49
/* The kernel's flag for a thread that is exiting. */
#define STAT_EXITING 0x4u

/*
 * Reads a thread's stat file: whether the thread has ended or is ending, and its exit status, which
 * is valid as soon as it begins to end. Returns false if unknown.
 */
static bool stat_ends(const char *path, bool *ends_p, int *status_p)
{
    char text[1024], *field;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
    unsigned flags = 0;
    char state;

    if (fd >= 0)
        close(fd);
    if (length <= 0)
        return false;
    text[length] = '\0';
    field = strrchr(text, ')'); /* the command may contain any character */
    if (!field || field[1] != ' ')
        return false;
    field += 2;
    state = *field;
    for (int number = 0; number < STAT_EXIT_CODE; number++) {
        if (number == STAT_FLAGS && sscanf(field, "%u", &flags) != 1)
            return false;
        field = strchr(field, ' ');
        if (!field)
            return false;
        field++;
    }
    if (sscanf(field, "%d", status_p) != 1)
        return false;
    *ends_p = state == 'Z' || (flags & STAT_EXITING);
    return true;
}

bool disti_process_first_ends(int pid, int *status_p)
{
    char path[40];
    bool ends;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    return disti_process_proc_is_own() && stat_ends(path, &ends, status_p) && ends;
}

int disti_process_thread(int pid)
{
    const int held = disti_cancel_hold(); /* the caller may hold a lock */
    const struct dirent *entry;
    char path[64];
    DIR *directory;
    int found = 0;

    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    directory = disti_process_proc_is_own() ? opendir(path) : NULL;
    while (directory && !found && (entry = readdir(directory))) {
        const int thread = atoi(entry->d_name);
        bool ends;
        int status;

        if (thread <= 0 || thread == pid)
            continue;
        snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, thread);
        if (stat_ends(path, &ends, &status) && !ends)
            found = thread;
    }
    if (directory)
        closedir(directory);
    disti_cancel_let(held);
    return found;
}
