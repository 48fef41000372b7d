/* SPDX-License-Identifier: BSD-3-Clause */
/* Replaces whole files atomically. */
#include "file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "failure.h"
#include "tools/common/output.h"

/* Reports that the draft cannot be opened. Returns -1. */
static int file_refuse(const char *path)
{
    return failure(errno == EISDIR ? "%s: cannot write: %s"
                                   : "%s: cannot create a file in its directory: %s",
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
