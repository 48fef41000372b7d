/* SPDX-License-Identifier: BSD-3-Clause */
/* Files in memory that a launcher passes to its ranks, which may be in other namespaces. */
#include "store/handed.h"

#include "base/file.h"
#include "base/settings/env.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int disti_handed_secret(const char *word)
{
    const int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    const size_t length = strlen(word);
    const int fd = disti_file_private();
    int error;

    /* EPERM: the file is no memfd, since memfd_create is denied. */
    if (fd >= 0 && fchmod(fd, 0600) == 0 && disti_file_write(fd, word, length) == (ssize_t)length &&
        (fcntl(fd, F_ADD_SEALS, seals) == 0 || errno == EPERM))
        return fd;
    error = errno;
    if (fd >= 0)
        close(fd);
    errno = error;
    return -1;
}

void disti_handed_name(int fd, char text[DISTI_HANDED_TEXT])
{
    struct stat file = {0};

    (void)fstat(fd, &file);
    snprintf(text, DISTI_HANDED_TEXT, "%d:%" PRIu64, fd, (uint64_t)file.st_ino);
}

/* False: the launcher has told of no such file. */
static bool handed_find(enum disti_handed which, int *fd_p, uint64_t *inode_p)
{
    const char *text = disti_env("DIST_AGENT_FILES");

    for (int i = 0; text && i < (int)which; i++) {
        text = strchr(text, ',');
        text = text ? text + 1 : NULL;
    }
    return text && sscanf(text, "%d:%" SCNu64, fd_p, inode_p) == 2;
}

/* Only files in memory have seals. */
static bool handed_is(int fd, uint64_t inode)
{
    struct stat file;

    return fcntl(fd, F_GET_SEALS) >= 0 && fstat(fd, &file) == 0 && (uint64_t)file.st_ino == inode;
}

/* To open a device or a FIFO may have effects, so the inode is compared first. */
static int handed_open_path(const char *path, int flags, uint64_t inode)
{
    struct stat file;
    int fd;

    if (stat(path, &file) != 0)
        return -1;
    errno = ESTALE;
    if (!S_ISREG(file.st_mode) || (uint64_t)file.st_ino != inode)
        return -1;
    fd = open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || handed_is(fd, inode))
        return fd;
    close(fd);
    errno = ESTALE;
    return -1;
}

int disti_handed_open(enum disti_handed which, const char *path, int flags, int *inherited_p)
{
    uint64_t inode;
    int inherited = -1;

    if (!handed_find(which, &inherited, &inode)) {
        *inherited_p = -1;
        return open(path, flags | O_CLOEXEC);
    }
    *inherited_p = inherited;
    if (handed_is(inherited, inode))
        return fcntl(inherited, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    return handed_open_path(path, flags, inode);
}
