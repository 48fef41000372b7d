/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens a file for reading, by links that nobody else has laid. */
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define FILE_LINKS 16
#define FILE_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

/* Puts what the link says behind the folder of its path. False: errno. */
static bool file_next(char path[PATH_MAX], const char *says)
{
    char *slash = says[0] == '/' ? NULL : strrchr(path, '/');
    const size_t folder = slash ? (size_t)(slash + 1 - path) : 0;

    errno = ENAMETOOLONG;
    return (size_t)snprintf(path + folder, PATH_MAX - folder, "%s", says) < PATH_MAX - folder;
}

/*
 * A link, which is open, and so stays what it is while it is looked at. True: the path is now what
 * it says. A link of the kernel's says nothing, but is the file itself: *fd_p is it.
 */
static bool file_follow(char path[PATH_MAX], int link, int *fd_p)
{
    char says[PATH_MAX];
    struct stat status;
    struct statfs system;
    ssize_t length;

    if (fstat(link, &status) < 0 || fstatfs(link, &system) < 0)
        return false;
    if (system.f_type == PROC_SUPER_MAGIC) {
        *fd_p = open(path, FILE_FLAGS);
        return false;
    }
    if (status.st_uid != geteuid() && status.st_uid != 0) {
        errno = EPERM;
        return false;
    }
    length = readlinkat(link, "", says, sizeof(says) - 1);
    if (length < 0)
        return false;
    says[length] = '\0';
    return file_next(path, says);
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
