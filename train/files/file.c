/* SPDX-License-Identifier: BSD-3-Clause */
/* Whole files. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "draft.h"
#include "train/failure.h"

static int file_read_all(const char *path, int fd, uint8_t *bytes, size_t size)
{
    size_t done = 0;

    while (done < size) {
        const ssize_t got = read(fd, bytes + done, size - done);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return failure("%s: byte %zu: %s", path, done, strerror(errno));
        if (got == 0)
            return failure("%s: byte %zu: the file became shorter while it was read", path, done);
        done += (size_t)got;
    }
    return 0;
}

static int file_is_others(const struct stat *status)
{
    return status->st_uid != geteuid() && status->st_uid != 0;
}

int file_read(const char *path, uint8_t **bytes_p, size_t *size_p)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const int refused = errno;
    uint8_t *bytes = NULL;
    struct stat status, link;
    int result = -1;

    if (lstat(path, &link) == 0 && S_ISLNK(link.st_mode) && file_is_others(&link)) {
        failure("%s: it is a link of user %u's: name the file itself", path, (unsigned)link.st_uid);
    } else if (fd < 0 || fstat(fd, &status) < 0) {
        failure("%s: %s", path, strerror(fd < 0 ? refused : errno));
    } else if (!S_ISREG(status.st_mode)) {
        failure("%s: not a regular file", path);
    } else if (file_is_others(&status)) {
        failure("%s: it belongs to user %u: copy it, if you trust it", path,
                (unsigned)status.st_uid);
    } else if (!(bytes = malloc((size_t)status.st_size + 1))) {
        failure("%s: out of memory for %lld bytes", path, (long long)status.st_size);
    } else {
        result = file_read_all(path, fd, bytes, (size_t)status.st_size);
    }
    if (fd >= 0)
        close(fd);
    if (result < 0) {
        free(bytes);
        return -1;
    }
    *bytes_p = bytes;
    *size_p = (size_t)status.st_size;
    return 0;
}

static int file_write_all(const char *path, int fd, const void *bytes, size_t size)
{
    const char *at = bytes;

    while (size > 0) {
        const ssize_t put = write(fd, at, size);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return failure("%s: cannot write: %s", path, strerror(errno));
        at += put;
        size -= (size_t)put;
    }
    return 0;
}

/* Makes the rename itself durable. Not every file system can; then nothing is lost by trying. */
static void file_sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");
    const int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

    free(folder);
    if (fd < 0)
        return;
    (void)!fsync(fd);
    close(fd);
}

int file_can_replace(const char *path)
{
    char *draft;
    const int fd = draft_open(path, &draft);

    if (fd >= 0) {
        unlink(draft);
        close(fd);
    } else {
        failure("%s: cannot create a file beside it: %s", path, strerror(errno));
    }
    free(draft);
    return fd < 0 ? -1 : 0;
}

int file_finish(const char *path, const char *draft, int fd)
{
    if (fsync(fd) < 0 || rename(draft, path) < 0)
        return -1;
    file_sync_folder(path);
    return 0;
}

int file_replace(const char *path, const void *head, size_t head_size, const void *body,
                 size_t body_size)
{
    char *draft;
    const int fd = draft_open(path, &draft);
    int result = -1;

    if (fd < 0)
        failure("%s: cannot create a file beside it: %s", path, strerror(errno));
    else if (file_write_all(path, fd, head, head_size) == 0 &&
             file_write_all(path, fd, body, body_size) == 0 &&
             (result = file_finish(path, draft, fd)) < 0)
        failure("%s: cannot write: %s", path, strerror(errno));
    if (fd >= 0) {
        if (result < 0)
            unlink(draft);
        close(fd);
    }
    free(draft);
    return result;
}
