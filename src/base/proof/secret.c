/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads a secret from a file that nobody but its owner can open. */
#include "base/proof/secret.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SECRET_GROUPS 1024
#define SECRET_PIPE_MS 10000 /* a pipe's writer may take so long */

static bool secret_wrong(char *why, const char *path, const char *what, const char *remedy)
{
    snprintf(why, DISTI_SECRET_WHY, "the secret file %s %s: %s", path, what, remedy);
    return false;
}

/* root has given it to a group of this process's, as Kubernetes mounts secrets with an fsGroup. */
static bool secret_is_groups(const struct stat *file)
{
    gid_t groups[SECRET_GROUPS];
    const int count = getgroups(SECRET_GROUPS, groups);
    bool held = file->st_gid == getegid();

    if (file->st_uid != 0 || file->st_gid == 0 || (file->st_mode & (S_IWGRP | S_IXGRP | S_IRWXO)))
        return false;
    for (int i = 0; i < count; i++)
        held = held || groups[i] == file->st_gid;
    return held;
}

/* The owner's alone; a pipe, such as a shell's <(...), is so too. */
static bool secret_is_own(const char *path, int fd, char *why)
{
    struct stat file;

    if (fstat(fd, &file) != 0)
        return secret_wrong(why, path, "cannot be looked at", strerror(errno));
    if (!S_ISREG(file.st_mode) && !S_ISFIFO(file.st_mode))
        return secret_wrong(why, path, "is no file", "name one that holds the job's secret");
    if (file.st_uid != geteuid() && file.st_uid != 0)
        return secret_wrong(why, path, "belongs to another user", "make one of your own");
    if ((file.st_mode & (S_IRWXG | S_IRWXO)) && !secret_is_groups(&file))
        return secret_wrong(why, path, "can be opened by others",
                            "chmod 600 it, and change the secret");
    return true;
}

/* Is there more to read, within a while? Files are always ready. */
static bool secret_wait(int fd)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};

    return poll(&ready, 1, SECRET_PIPE_MS) > 0;
}

/* All of it, but for the end of the last line. */
static bool secret_take(const char *path, int fd, struct disti_secret *secret, char *why)
{
    const size_t room = sizeof(secret->bytes);
    ssize_t got;

    while (secret->length < room &&
           (got = read(fd, secret->bytes + secret->length, room - secret->length)) != 0) {
        if (got < 0 && errno == EAGAIN && !secret_wait(fd))
            return secret_wrong(why, path, "is a pipe into which nobody writes", "name a file");
        if (got < 0 && errno != EINTR && errno != EAGAIN)
            return secret_wrong(why, path, "cannot be read", strerror(errno));
        secret->length += got > 0 ? (size_t)got : 0;
    }
    if (secret->length > 0 && secret->bytes[secret->length - 1] == '\n')
        secret->length--;
    if (secret->length > DISTI_SECRET_MOST)
        return secret_wrong(why, path, "is too long", "a secret has at most 256 bytes");
    if (secret->length < DISTI_SECRET_LEAST)
        return secret_wrong(why, path, "is too short",
                            "a secret has at least 16 bytes (openssl rand -hex 32)");
    return true;
}

bool disti_secret_read(const char *path, struct disti_secret *secret_p, char why[DISTI_SECRET_WHY])
{
    bool taken;
    int fd;

    disti_secret_wipe(secret_p);
    if (strlen(path) >= sizeof(secret_p->path))
        return secret_wrong(why, "named", "has too long a path", "move it");
    fd = disti_file_open(path);
    if (fd < 0 && errno == EPERM)
        return secret_wrong(why, path, "is a link of another user's", "name the file itself");
    if (fd < 0)
        return secret_wrong(why, path, "cannot be read", strerror(errno));
    taken = secret_is_own(path, fd, why) && secret_take(path, fd, secret_p, why);
    close(fd);
    if (taken)
        snprintf(secret_p->path, sizeof(secret_p->path), "%s", path);
    else
        disti_secret_wipe(secret_p);
    return taken;
}

void disti_secret_set_bytes(struct disti_secret *secret, const void *bytes, size_t length)
{
    disti_secret_wipe(secret);
    if (!bytes)
        return;
    secret->length = length < DISTI_SECRET_MOST ? length : DISTI_SECRET_MOST;
    memcpy(secret->bytes, bytes, secret->length);
}

void disti_secret_set_word(struct disti_secret *secret, const char *word)
{
    disti_secret_set_bytes(secret, word, strlen(word));
}

void disti_secret_wipe(struct disti_secret *secret)
{
    explicit_bzero(secret, sizeof(*secret));
}
