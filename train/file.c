/* SPDX-License-Identifier: BSD-3-Clause */
/* Whole files. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "failure.h"
#include "tools/common/output.h"

static int file_is_others(const struct stat *status)
{
    return status->st_uid != geteuid() && status->st_uid != 0;
}

int file_read(const char *path, uint8_t **bytes_p, size_t *size_p)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const int refused = errno;
    uint8_t *bytes = NULL;
    size_t done = 0;
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
        result = 0;
    }
    while (result == 0 && done < (size_t)status.st_size) {
        const ssize_t got = read(fd, bytes + done, (size_t)status.st_size - done);

        if (got == 0)
            result = failure("%s: byte %zu: the file became shorter while it was read", path, done);
        else if (got < 0 && errno != EINTR)
            result = failure("%s: byte %zu: %s", path, done, strerror(errno));
        done += got > 0 ? (size_t)got : 0;
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

/* Says why no draft can be opened. */
static int file_refuse(const char *path)
{
    return failure(errno == EISDIR ? "%s: cannot write: %s"
                                   : "%s: cannot create a file beside it: %s",
                   path, strerror(errno));
}

int file_can_replace(const char *path)
{
    return draft_is_possible(path) == 0 ? 0 : file_refuse(path);
}

int file_replace(const char *path, const void *head, size_t head_size, const void *body,
                 size_t body_size)
{
    char *draft;
    const int fd = draft_open(path, &draft);
    int result = -1;

    if (fd < 0) {
        file_refuse(path);
    } else if (draft_write(fd, head, head_size) == 0 && draft_write(fd, body, body_size) == 0 &&
               draft_finish(draft, fd) == 0) {
        close(fd);
        result = 0;
    } else {
        draft_discard(draft, fd);
        failure("%s: cannot write: %s", path, strerror(errno));
    }
    free(draft);
    return result;
}
