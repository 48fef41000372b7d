/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Several processes may write to one path, such as a job that was queued again while its first
 * start still runs. So each has a draft of its own, and its lock tells the others that it lives:
 *
 *     open PATH.tmp-1a2b3c4d   lock   write   sync   rename to PATH   close
 *             \__ a draft that can be locked is a dead writer's: it is removed
 */
#include "draft.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define DRAFT_MARK ".tmp-"
enum { DRAFT_DIGITS = 8, DRAFT_TRIES = 100 };

size_t draft_base(const char *name)
{
    const size_t length = strlen(name), ending = strlen(DRAFT_MARK) + DRAFT_DIGITS;
    const char *mark = name + length - ending;

    if (length <= ending || strncmp(mark, DRAFT_MARK, strlen(DRAFT_MARK)) != 0 ||
        strspn(mark + strlen(DRAFT_MARK), "0123456789abcdef") != DRAFT_DIGITS)
        return 0;
    return length - ending;
}

/* What cannot be locked here, by whatever reason, stays: a half too many does no harm. */
void draft_remove_dead(DIR *folder, const char *name)
{
    const int fd =
        openat(dirfd(folder), name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd < 0)
        return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(dirfd(folder), name, 0);
    close(fd);
}

static void draft_sweep(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    char *where = slash ? strndup(path, (size_t)(base - path)) : strdup(".");
    DIR *folder = where ? opendir(where) : NULL;
    const struct dirent *entry;

    while (folder && (entry = readdir(folder))) {
        const size_t length = draft_base(entry->d_name);

        if (length > 0 && length == strlen(base) && memcmp(entry->d_name, base, length) == 0)
            draft_remove_dead(folder, entry->d_name);
    }
    if (folder)
        closedir(folder);
    free(where);
}

/* Before it was locked, another process may have taken it for a dead one's. */
static int draft_is_ours(int fd)
{
    struct stat status;

    if (flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK)
        return 0;
    return fstat(fd, &status) == 0 && status.st_nlink > 0;
}

int draft_open(const char *path, char **name_p)
{
    *name_p = NULL;
    draft_sweep(path);
    for (int i = 0; i < DRAFT_TRIES; i++) {
        unsigned number;
        int fd;

        free(*name_p);
        *name_p = NULL;
        if (getrandom(&number, sizeof(number), 0) != sizeof(number) ||
            asprintf(name_p, "%s" DRAFT_MARK "%08x", path, number) < 0) {
            *name_p = NULL;
            errno = ENOMEM;
            return -1;
        }
        fd = open(*name_p, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            return -1;
        if (fd >= 0 && draft_is_ours(fd))
            return fd;
        if (fd >= 0) {
            unlink(*name_p);
            close(fd);
        }
    }
    errno = EEXIST;
    return -1;
}
