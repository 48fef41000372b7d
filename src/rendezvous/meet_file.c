/* SPDX-License-Identifier: BSD-3-Clause */
/* Meeting by a file: rank 0 publishes the address of its store, the others watch for it. */
#include "rendezvous/meet.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "store/server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file's text: a first line to know it by, then host, port and job, a line each. */
#define FILE_TEXT_MAX 512

/* Our file, to be taken away by the server's thread. */
struct file_published {
    dev_t device;
    ino_t inode;
    char path[];
};

static void file_remove(void *arg)
{
    struct file_published *file = arg;
    struct stat now;

    /* Only ours: a later job may have put its own there. */
    if (lstat(file->path, &now) == 0 && now.st_dev == file->device && now.st_ino == file->inode)
        unlink(file->path);
    free(file);
}

/* Writes a new file that nobody else can read, and says which it is. */
static dist_status file_write(const char *path, const char *text, struct file_published *file)
{
    size_t length = strlen(text);
    struct stat now;
    int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
    bool written;

    if (fd < 0)
        return disti_fail_errno(
            DIST_ERR_RENDEZVOUS,
            "rank 0 cannot create %s: name a file in a folder that all ranks may write", path);
    written = disti_file_write(fd, text, length) == (ssize_t)length && fsync(fd) == 0 &&
              fstat(fd, &now) == 0;
    if (written) {
        file->device = now.st_dev;
        file->inode = now.st_ino;
        close(fd);
        return DIST_OK;
    }
    disti_fail_errno(DIST_ERR_RENDEZVOUS,
                     "rank 0 cannot write %s: see the space there, or name a file elsewhere", path);
    close(fd);
    unlink(path);
    return DIST_ERR_RENDEZVOUS;
}

/* Lets the server run first: whoever sees the file finds it at work. */
static dist_status file_publish(const struct disti_meeting *meeting, const char *draft,
                                const char *path, const char *host,
                                struct disti_store_server *server,
                                struct disti_bootstrap *bootstrap)
{
    dist_status status = disti_meet_serve(meeting, host, server, bootstrap);

    if (status == DIST_OK && rename(draft, path) == 0)
        return DIST_OK;
    if (status == DIST_OK)
        status = disti_fail_errno(
            DIST_ERR_RENDEZVOUS,
            "rank 0 cannot rename %s to %s: name a file that does not exist yet", draft, path);
    unlink(draft);
    return status;
}

static dist_status file_serve(const struct disti_meeting *meeting, const char *path,
                              struct disti_bootstrap *bootstrap)
{
    size_t path_bytes = strlen(path) + 1;
    struct file_published *file = malloc(sizeof(*file) + path_bytes);
    struct disti_store_server *server = NULL;
    char draft[1200], text[FILE_TEXT_MAX], host[DISTI_HOST_SIZE], unique[33];
    dist_status status = disti_primary_address(host);

    if (!file)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a path: free some");
    memcpy(file->path, path, path_bytes);
    if (status == DIST_OK)
        status = disti_random_id(unique);
    if (status == DIST_OK)
        status = disti_meet_listen(meeting, host, &server);
    if (status != DIST_OK)
        goto out;
    snprintf(draft, sizeof(draft), "%s.%s", path, unique);
    snprintf(text, sizeof(text), "libdist 1\n%s\n%d\n%s\n", host, disti_store_server_port(server),
             disti_store_server_word(server));
    status = file_write(draft, text, file);
    if (status != DIST_OK)
        goto out;
    disti_store_server_on_formed(server, file_remove, file);
    return file_publish(meeting, draft, path, host, server, bootstrap);
out:
    disti_store_server_stop(server, 0);
    free(file);
    return status;
}

/* What the file says now. IN_PROGRESS: it is not there, or not (yet) one of ours. */
static dist_status file_read(const char *path, struct disti_meet_address *address_p)
{
    char text[FILE_TEXT_MAX + 1];
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    dist_status status = DIST_IN_PROGRESS;
    ssize_t bytes;

    if (fd < 0) {
        if (errno == ENOENT || errno == ESTALE || errno == EINTR)
            return DIST_IN_PROGRESS;
        return disti_fail_errno(DIST_ERR_RENDEZVOUS,
                                "cannot open %s: let this user read it, or name another file",
                                path);
    }
    bytes = read(fd, text, FILE_TEXT_MAX);
    if (fstat(fd, &info) == 0 && (!S_ISREG(info.st_mode) || info.st_uid != geteuid()))
        status = disti_fail(
            DIST_ERR_RENDEZVOUS,
            "%s is not a regular file of this user: choose a path that nobody else uses", path);
    else if (bytes > 0) {
        text[bytes] = 0;
        if (sscanf(text, "libdist 1\n%67s\n%d\n%127s\n", address_p->host, &address_p->port,
                   address_p->word) == 3 &&
            address_p->port > 0 && address_p->port < 65536)
            status = DIST_OK;
    }
    close(fd);
    return status;
}

dist_status disti_meet_file(const struct disti_meeting *meeting, const char *path,
                            struct disti_bootstrap *bootstrap)
{
    struct disti_store_tries tries = {.text = "no such file"};
    dist_status status;

    if (meeting->rank == 0)
        return file_serve(meeting, path, bootstrap);
    /* Read anew each time: a file that an earlier job left leads nowhere. */
    status = disti_meet_seek(meeting, file_read, path, 200, &tries, bootstrap);
    if (status != DIST_IN_PROGRESS)
        return status;
    return disti_fail(DIST_ERR_RENDEZVOUS,
                      "rank %d waited %d ms for rank 0 to announce itself in %s (%s): check "
                      "that rank 0 runs and sees the same file",
                      meeting->rank, meeting->timeout_ms, path, tries.text);
}
