/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * File operations that respect RLIMIT_FSIZE without SIGXFSZ, safe opening of files, memory files,
 * and names of per-process files.
 */
#include "base/file.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/net.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

/*
 * SIGXFSZ is sent to the thread that made the call, so block it during the call and remove it
 * afterwards.
 */
struct file_guard {
    sigset_t mask;
    bool pending; /* a SIGXFSZ was already pending; leave it */
};

static void file_guard_begin(struct file_guard *guard)
{
    sigset_t set;

    sigpending(&set);
    guard->pending = sigismember(&set, SIGXFSZ) == 1;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &set, &guard->mask);
    errno = 0;
}

static void file_guard_end(const struct file_guard *guard)
{
    const struct timespec now = {0};
    int error = errno;
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    if (error == EFBIG && !guard->pending)
        sigtimedwait(&set, NULL, &now);
    pthread_sigmask(SIG_SETMASK, &guard->mask, NULL);
    errno = error;
}

ssize_t disti_file_write(int fd, const void *data, size_t bytes)
{
    struct file_guard guard;
    ssize_t written;

    file_guard_begin(&guard);
    written = write(fd, data, bytes);
    file_guard_end(&guard);
    return written;
}

int disti_file_truncate(int fd, uint64_t bytes)
{
    struct file_guard guard;
    int result;

    file_guard_begin(&guard);
    result = ftruncate(fd, (off_t)bytes);
    file_guard_end(&guard);
    return result;
}

int disti_file_reserve(int fd, uint64_t offset, uint64_t bytes)
{
    struct file_guard guard;
    int result;

    file_guard_begin(&guard);
    result = fallocate(fd, 0, (off_t)offset, (off_t)bytes);
    file_guard_end(&guard);
    return result;
}

bool disti_file_may_have(uint64_t bytes, uint64_t *most_p)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY ||
        bytes <= limit.rlim_cur)
        return true;
    if (most_p)
        *most_p = (uint64_t)limit.rlim_cur;
    return false;
}

dist_status disti_file_locked_too_much(size_t bytes)
{
    struct rlimit limit = {.rlim_cur = 0};

    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    return disti_fail(
        DIST_ERR_NO_MEMORY,
        "cannot map %zu KiB of shared memory: this process has called "
        "mlockall(MCL_FUTURE), and may lock only %llu KiB. Raise that limit (ulimit -l; "
        "in a container --ulimit memlock=-1), or call mlockall later",
        bytes >> 10, (unsigned long long)limit.rlim_cur >> 10);
}

/* Kernels before 6.3 do not have the flag that makes the memory non-executable. */
int disti_file_memory(void)
{
    int fd = memfd_create("libdist", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL)
        fd = memfd_create("libdist", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return disti_descriptor_raise(fd);
}

dist_status disti_file_memory_fail(const char *what)
{
    uint64_t most = 0;

    if (errno == EFBIG && !disti_file_may_have(UINT64_MAX, &most))
        return disti_fail(DIST_ERR_SYSTEM,
                          "cannot %s: files, including memory files, may have %llu bytes at most: "
                          "raise the limit on file sizes (ulimit -f)",
                          what, (unsigned long long)most);
    return disti_fail_call("memfd_create", "cannot %s", what);
}

int disti_file_private(void)
{
    int fd = disti_file_memory();
    const int error = errno;

    if (fd >= 0 || !disti_call_denied(error))
        return fd;
    fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        errno = error;
    return disti_descriptor_raise(fd);
}

/* ---- reading ---- */

/* The uid that the kernel shows for users who are unknown in this container (overflowuid). */
#define FILE_UNKNOWN 65534

bool disti_file_owner_is_safe(uid_t owner)
{
    unsigned first, outside, count;
    bool known = false; /* the container has a user of that number */
    FILE *map;

    if (owner == geteuid() || owner == 0)
        return true;
    if (owner != FILE_UNKNOWN)
        return false;
    map = fopen("/proc/thread-self/uid_map", "re");
    if (!map)
        return false;
    while (!known && fscanf(map, "%u %u %u", &first, &outside, &count) == 3)
        known = FILE_UNKNOWN >= first && FILE_UNKNOWN - first < count;
    fclose(map);
    return !known;
}

#define FILE_LINKS 16
#define FILE_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

/*
 * Replaces the link's path by its target, which may be relative to the link's directory. Returns
 * false with errno set if the result is too long.
 */
static bool file_next(char path[PATH_MAX], const char *target)
{
    char *slash = target[0] == '/' ? NULL : strrchr(path, '/');
    const size_t directory = slash ? (size_t)(slash + 1 - path) : 0;

    errno = ENAMETOOLONG;
    return (size_t)snprintf(path + directory, PATH_MAX - directory, "%s", target) <
           PATH_MAX - directory;
}

/*
 * Follows the link that is open as `link`, so that it cannot change meanwhile. Returns true with
 * the target in `path`. For a link in /proc, such as /proc/PID/fd/3, whose text is not a usable
 * path, opens the file itself as *fd_p and returns false. Returns false with errno set on failure.
 */
static bool file_follow(char path[PATH_MAX], int link, int *fd_p)
{
    char target[PATH_MAX];
    struct stat status;
    struct statfs system;
    ssize_t length;

    if (fstat(link, &status) < 0 || fstatfs(link, &system) < 0)
        return false;
    if (system.f_type == PROC_SUPER_MAGIC) {
        *fd_p = open(path, FILE_FLAGS);
        return false;
    }
    if (!disti_file_owner_is_safe(status.st_uid)) {
        errno = EPERM;
        return false;
    }
    length = readlinkat(link, "", target, sizeof(target) - 1);
    if (length < 0)
        return false;
    target[length] = '\0';
    return file_next(path, target);
}

int disti_file_open(const char *name)
{
    char path[PATH_MAX] = "";
    bool follow = file_next(path, name);

    for (int i = 0; follow && i < FILE_LINKS; i++) {
        int fd = open(path, FILE_FLAGS | O_NOFOLLOW), link;

        if (fd >= 0 || errno != ELOOP)
            return fd;
        link = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (link < 0)
            return -1;
        follow = file_follow(path, link, &fd);
        close(link);
        if (fd >= 0)
            return fd;
    }
    if (follow)
        errno = ELOOP;
    return -1;
}

/* ---- names of files of one process ---- */

void disti_file_name(const char *pattern, int rank, char *name, size_t size)
{
    size_t used = 0;

    for (const char *from = pattern; *from && used + 1 < size; from++) {
        char item[DISTI_HOST_SIZE] = {*from, '\0'};

        if (*from == '%' && from[1] && strchr("hpr%", from[1])) {
            from++;
            if (*from == 'h')
                disti_host_short(item);
            else if (*from == 'p')
                snprintf(item, sizeof(item), "%ld", (long)getpid());
            else if (*from == 'r' && rank >= 0)
                snprintf(item, sizeof(item), "%d", rank);
            else
                snprintf(item, sizeof(item), "%s", *from == 'r' ? "-" : "%");
        }
        used += (size_t)snprintf(name + used, size - used, "%s", item);
    }
    name[used < size ? used : size - 1] = '\0';
}
