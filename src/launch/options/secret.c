/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads the job's secret from a file that nobody but its owner can read. */
#include "base/settings/env.h"
#include "launch/options/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SECRET_LEAST = 16 /* bytes: a shorter one can be guessed */, SECRET_MOST = 256 };

static bool secret_wrong(const char *path, const char *what, const char *remedy)
{
    fprintf(stderr, "distrun: the secret file %s %s: %s\n", path, what, remedy);
    return false;
}

/* The owner's alone; a pipe, such as a shell's <(...), is so too. */
static bool secret_is_own(const char *path, int fd)
{
    struct stat file;

    if (fstat(fd, &file) != 0)
        return secret_wrong(path, "cannot be looked at", strerror(errno));
    if (!S_ISREG(file.st_mode) && !S_ISFIFO(file.st_mode))
        return secret_wrong(path, "is no file", "name one that holds the job's secret");
    if (file.st_uid != geteuid() && file.st_uid != 0)
        return secret_wrong(path, "belongs to another user", "make one of your own");
    if (file.st_mode & (S_IRWXG | S_IRWXO))
        return secret_wrong(path, "can be opened by others", "chmod 600 it, and change the secret");
    return true;
}

/* All of it, but for the end of the last line. */
static bool secret_take(const char *path, int fd, struct disti_run_options *options)
{
    const size_t room = sizeof(options->secret);
    size_t bytes = 0;
    ssize_t got;

    while (bytes < room && (got = read(fd, options->secret + bytes, room - bytes)) != 0) {
        if (got < 0 && errno != EINTR)
            return secret_wrong(path, "cannot be read", strerror(errno));
        bytes += got > 0 ? (size_t)got : 0;
    }
    if (bytes > 0 && options->secret[bytes - 1] == '\n')
        bytes--;
    if (bytes > SECRET_MOST)
        return secret_wrong(path, "is too long", "a secret has at most 256 bytes");
    if (bytes < SECRET_LEAST)
        return secret_wrong(path, "is too short",
                            "a secret has at least 16 bytes (openssl rand -hex 32)");
    options->secret_bytes = bytes;
    return true;
}

bool disti_run_secret(struct disti_run_options *options)
{
    const char *path = options->secret_file ? options->secret_file : disti_env("DIST_SECRET_FILE");
    bool taken;
    int fd;

    if (!path || !*path)
        return true;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return secret_wrong(path, "cannot be read", strerror(errno));
    taken = secret_is_own(path, fd) && secret_take(path, fd, options);
    close(fd);
    if (options->leashed)
        close(DISTI_HOSTS_SECRET); /* the workers need not have it */
    return taken;
}
