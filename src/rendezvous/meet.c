/* SPDX-License-Identifier: BSD-3-Clause */
/* The ways to meet: all end with a store, and rank 0 with its server. */
#include "rendezvous/meet.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/settings/env.h"
#include "store/server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* The answer: u32 magic, u32 port, the word filled up with zero bytes. */
#define DISCOVERY_ANSWER (8 + 128)
#define DISCOVERY_ACCEPTS 32 /* in a row, before others are heard */

static socklen_t discovery_address(const char *job, struct sockaddr_un *address)
{
    int length;

    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    /* The first byte stays 0: abstract, so nothing is left behind in a file system. */
    length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "dist/%u/%s",
                      (unsigned)geteuid(), job);
    if (length > (int)sizeof(address->sun_path) - 2)
        length = (int)sizeof(address->sun_path) - 2;
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static bool discovery_same_user(int fd)
{
    struct ucred other;
    socklen_t size = sizeof(other);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 && other.uid == geteuid();
}

dist_status disti_discovery_open(const char *job, int *fd_p)
{
    struct sockaddr_un address;
    socklen_t length = discovery_address(job, &address);
    int fd = disti_descriptor_own(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    dist_status status = DIST_IN_PROGRESS;

    if (fd < 0)
        return disti_fail_call("socket", "cannot create a Unix socket");
    if (bind(fd, (struct sockaddr *)&address, length) == 0 && listen(fd, SOMAXCONN) == 0) {
        *fd_p = fd;
        return DIST_OK;
    }
    if (errno != EADDRINUSE)
        status =
            disti_fail_errno(DIST_ERR_SYSTEM,
                             "rank 0 cannot listen on the Unix socket \"@%s\", where the ranks of "
                             "this machine meet: set MASTER_ADDR and MASTER_PORT instead",
                             address.sun_path + 1);
    disti_descriptor_close(fd);
    return status;
}

void disti_store_discovery_answer(struct disti_store_server *server)
{
    unsigned char answer[DISCOVERY_ANSWER] = {0};
    int fd = -1;

    disti_wire_put32(answer, DISTI_WIRE_MAGIC);
    disti_wire_put32(answer + 4, (uint32_t)server->port);
    memcpy(answer + 8, server->secret.bytes,
           server->secret.length < 127 ? server->secret.length : 127);
    for (int i = 0; i < DISCOVERY_ACCEPTS; i++) {
        fd = accept4(server->discovery_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            break;
        /* A fresh socket has room for so little. */
        if (discovery_same_user(fd))
            (void)!send(fd, answer, sizeof(answer), MSG_NOSIGNAL | MSG_DONTWAIT);
        close(fd);
    }
    if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
        disti_store_server_back_off(server);
}

/* Reads the whole answer, for a second at most. */
static bool discovery_read(int fd, unsigned char *answer)
{
    int64_t deadline = disti_deadline_ms(1000);
    struct pollfd readable = {.fd = fd, .events = POLLIN};
    size_t got = 0;

    while (got < DISCOVERY_ANSWER) {
        ssize_t n = recv(fd, answer + got, DISCOVERY_ANSWER - got, MSG_DONTWAIT);

        if (n > 0)
            got += (size_t)n;
        else if (n == 0 || (errno != EAGAIN && errno != EINTR))
            return false;
        else if (disti_expired(deadline) || poll(&readable, 1, disti_left_ms(deadline)) < 0)
            return false;
    }
    return true;
}

dist_status disti_discovery_ask(const char *job, int *port_p, char word[128])
{
    unsigned char answer[DISCOVERY_ANSWER];
    struct sockaddr_un address;
    socklen_t length = discovery_address(job, &address);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    dist_status status = DIST_IN_PROGRESS;

    if (fd < 0)
        return disti_fail_call("socket", "cannot create a Unix socket");
    if (connect(fd, (struct sockaddr *)&address, length) == 0) {
        if (!discovery_same_user(fd))
            status = disti_fail(DIST_ERR_RENDEZVOUS,
                                "the Unix socket \"@%s\" belongs to another user: set MASTER_ADDR "
                                "and MASTER_PORT instead",
                                address.sun_path + 1);
        else if (discovery_read(fd, answer) && disti_wire_get32(answer) == DISTI_WIRE_MAGIC &&
                 answer[DISCOVERY_ANSWER - 1] == 0) {
            *port_p = (int)(disti_wire_get32(answer + 4) & 0xffff);
            memcpy(word, answer + 8, 128);
            status = DIST_OK;
        }
    }
    close(fd);
    return status;
}

/* ---- the secret of a job whose launcher passes none: a file, the user's cookie, or none ---- */

static dist_status secret_refuse(const struct disti_meeting *meeting, const char *why)
{
    return disti_fail(DIST_ERR_RENDEZVOUS, "rank %d: %s", meeting->rank, why);
}

/*
 * The secret of a job whose ranks nobody hands one, as they meet at that host: the file that
 * DIST_SECRET_FILE names; else, where all ranks are on this machine, the user's cookie; else none.
 * DIST_AUTH asks for the cookie in any case, or for none. A failure is reported.
 */
static dist_status meet_secret(const struct disti_meeting *meeting, const char *host,
                               struct disti_secret *secret_p)
{
    const char *wish = disti_env("DIST_AUTH"), *path;
    const bool cookie = wish && strcmp(wish, "cookie") == 0;
    char why[DISTI_SECRET_WHY];

    disti_secret_wipe(secret_p);
    if (wish && strcmp(wish, "none") == 0)
        return DIST_OK;
    if (wish && !cookie && strcmp(wish, "auto") != 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "DIST_AUTH is \"%.40s\": set it to auto, cookie or none, with the same "
                          "value on all ranks",
                          wish);
    path = disti_env("DIST_SECRET_FILE");
    if ((path || cookie) && !disti_hmac_exists())
        return secret_refuse(meeting,
                             "this libdist was built without OpenSSL, which is required to prove "
                             "that a rank has the secret: install libssl-dev and build it again");
    if (path)
        return disti_secret_read(path, secret_p, why) ? DIST_OK : secret_refuse(meeting, why);
    if (!disti_hmac_exists() ||
        (!cookie && !meeting->one_machine && !disti_host_is_loopback(host))) {
        disti_info("rank %d has no secret for the store at %s: any process that can connect to it "
                   "may join. See DIST_SECRET_FILE and DIST_AUTH",
                   meeting->rank, host);
        return DIST_OK;
    }
    if (disti_secret_cookie(secret_p, why))
        return DIST_OK;
    /* To go on without would be what somebody wants who has laid a file there. */
    if (cookie || secret_p->path[0])
        return secret_refuse(meeting, why);
    disti_warn(
        "rank %d continues without a secret, so any process that can connect to the store may "
        "join: %s. Set DIST_SECRET_FILE to another file, or DIST_AUTH=none if no secret is wanted",
        meeting->rank, why);
    return DIST_OK;
}

/* ---- meeting by host and port, and functions that all ways to meet share ---- */

dist_status disti_meet_listen(const struct disti_meeting *meeting, bool one_machine,
                              char host[DISTI_HOST_SIZE], struct disti_store_server **server_p)
{
    struct disti_store_server *server;
    char word[33];
    dist_status status = DIST_OK;

    snprintf(host, DISTI_HOST_SIZE, "%s", disti_loopback());
    if (!one_machine)
        status = disti_primary_address(host);
    if (status == DIST_OK)
        status = disti_random_id(word);
    if (status == DIST_OK)
        status =
            disti_store_server_listen(host, 0, meeting->world_size, meeting->deadline, &server);
    if (status != DIST_OK)
        return status;
    server->holder = meeting->rank;
    disti_store_server_set_word(server, word);
    *server_p = server;
    return DIST_OK;
}

/* Connects to that address, until the deadline, as one that has that secret. */
static dist_status meet_connect(const struct disti_meeting *meeting, const char *host, int port,
                                const struct disti_secret *secret,
                                struct disti_bootstrap *bootstrap)
{
    struct disti_store_target target = {.host = host,
                                        .port = port,
                                        .rank = meeting->rank,
                                        .world_size = meeting->world_size,
                                        .secret = secret,
                                        .one_machine = meeting->one_machine,
                                        .warns = meeting->warns};

    return disti_store_reach(&target, meeting->timeout_ms, meeting->deadline, &bootstrap->store);
}

dist_status disti_meet_connect_word(const struct disti_meeting *meeting, const char *host, int port,
                                    const char *word, struct disti_bootstrap *bootstrap)
{
    struct disti_secret secret;
    dist_status status;

    disti_secret_set_token(&secret, word);
    status = meet_connect(meeting, host, port, &secret, bootstrap);
    disti_secret_wipe(&secret);
    return status;
}

/* Looks once, without waiting. IN_PROGRESS: nothing is said yet. */
typedef dist_status (*meet_locate_fn)(const char *name, struct disti_meet_address *address_p);

/*
 * Looks for the store of that name and connects to it, time and again, at most most_ms apart.
 * IN_PROGRESS: the deadline has passed, and *tries_p says what was met; its text is the caller's
 * until something is. Other failures are reported.
 */
static dist_status meet_seek(const struct disti_meeting *meeting, meet_locate_fn locate,
                             const char *name, int most_ms, struct disti_store_tries *tries_p,
                             struct disti_bootstrap *bootstrap)
{
    struct disti_meet_address address = {.port = 0};
    struct disti_secret secret = {0};
    struct disti_store_target target = {.host = address.host,
                                        .rank = meeting->rank,
                                        .world_size = meeting->world_size,
                                        .secret = &secret,
                                        .doubtful = true};
    int64_t warn_at = disti_store_warn_at(meeting->deadline);
    int delay_ms = 2;
    dist_status status;

    for (;;) {
        status = locate(name, &address);
        target.port = address.port;
        disti_secret_set_token(&secret, address.word);
        if (status == DIST_OK)
            status = disti_store_try(&target, meeting->deadline, tries_p, &bootstrap->store);
        if (status != DIST_IN_PROGRESS || disti_expired(meeting->deadline))
            return status;
        if (meeting->warns && disti_expired(warn_at)) {
            warn_at = INT64_MAX;
            disti_notice(
                "rank %d still waits for rank 0 to publish the address of its store by %s (%s), "
                "and gives up in %.1f s: check whether rank 0 runs, or has reported an error",
                meeting->rank, name, tries_p->text, disti_left_ms(meeting->deadline) / 1e3);
        }
        disti_store_back_off(&delay_ms, most_ms, meeting->deadline);
    }
}

dist_status disti_meet_serve(const struct disti_meeting *meeting, const char *host,
                             struct disti_store_server *server, struct disti_bootstrap *bootstrap)
{
    struct disti_secret secret = server->secret;
    dist_status status = disti_store_server_run(server);

    if (status == DIST_OK)
        status = meet_connect(meeting, host, disti_store_server_port(server), &secret, bootstrap);
    disti_secret_wipe(&secret);
    if (status == DIST_OK)
        bootstrap->server = server;
    else
        disti_store_server_stop(server, 0);
    return status;
}

/*
 * The server of a meeting at a host's address. It does not run yet. If the name says nothing of use
 * here it listens at every address, or at that of the interface that was asked for. Ranks of this
 * machine come by the loopback, where the name leads them.
 */
static dist_status meet_listen_at(const struct disti_meeting *meeting, const char *host, int port,
                                  struct disti_store_server **server_p)
{
    char only[DISTI_HOST_SIZE] = "";
    dist_status status = DIST_OK;

    if (meeting->hidden && disti_env("DIST_SOCKET_IFNAME"))
        status = disti_primary_address(only);
    if (status == DIST_OK)
        status = disti_store_server_listen(meeting->hidden ? NULL : host, port, meeting->world_size,
                                           meeting->deadline, server_p);
    if (status != DIST_OK || !meeting->hidden)
        return status;
    memcpy((*server_p)->only, only, sizeof(only));
    disti_info(
        "\"%s\" is the loopback address on this machine (/etc/hosts): the store also listens on %s "
        "port %d for other machines. Set MASTER_ADDR to an address to choose another",
        host, only[0] ? only : "every address,", port);
    return DIST_OK;
}

dist_status disti_meet_tcp(const struct disti_meeting *meeting, const char *host, int port,
                           const char *served, struct disti_bootstrap *bootstrap)
{
    struct disti_store_server *server;
    struct disti_secret secret;
    dist_status status;

    if (served)
        return disti_meet_connect_word(meeting, host, port, served, bootstrap);
    status = meet_secret(meeting, host, &secret);
    if (status != DIST_OK)
        return status;
    if (!meeting->serves) {
        status = meet_connect(meeting, host, port, &secret, bootstrap);
    } else if ((status = meet_listen_at(meeting, host, port, &server)) == DIST_OK) {
        server->holder = meeting->rank;
        server->secret = secret;
        status = disti_meet_serve(meeting, host, server, bootstrap);
    }
    disti_secret_wipe(&secret);
    return status;
}

/* ---- meeting by an all-gather of the program ---- */

/* Where the store is. Only rank 0's counts. */
struct oob_answer {
    int32_t status; /* rank 0's, if it could not listen */
    struct disti_meet_address store;
};

/* The program's all-gather, into memory that is the caller's to free. */
static dist_status oob_gather(const struct disti_meeting *meeting, dist_oob_all_gather_fn gather,
                              void *arg, const void *in, size_t bytes, void **all_p)
{
    size_t total;
    void *all;
    int error;

    all = disti_mul(bytes, (size_t)meeting->world_size, &total) ? calloc(1, total) : NULL;
    if (!all)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to gather from %d ranks: free memory",
                          meeting->world_size);
    error = gather(arg, in, all, bytes);
    if (error) {
        free(all);
        return disti_fail(DIST_ERR_RENDEZVOUS,
                          "rank %d: the program's oob_all_gather returned %d: it must return 0 "
                          "once all ranks have exchanged their bytes",
                          meeting->rank, error);
    }
    *all_p = all;
    return DIST_OK;
}

/* Are all ranks where this one is? */
static dist_status oob_one_machine(const struct disti_meeting *meeting,
                                   dist_oob_all_gather_fn gather, void *arg, bool *one_p)
{
    char mine[DISTI_HOST_SIZE] = {0};
    void *all;
    dist_status status;

    disti_machine_id(mine);
    status = oob_gather(meeting, gather, arg, mine, sizeof(mine), &all);
    if (status != DIST_OK)
        return status;
    *one_p = true;
    for (int r = 0; r < meeting->world_size; r++)
        *one_p = *one_p && memcmp((char *)all + (size_t)r * sizeof(mine), mine, sizeof(mine)) == 0;
    free(all);
    return DIST_OK;
}

dist_status disti_meet_oob(const struct disti_meeting *meeting, dist_oob_all_gather_fn gather,
                           void *arg, struct disti_bootstrap *bootstrap)
{
    struct disti_store_server *server = NULL;
    struct oob_answer answer = {0};
    void *answers = NULL;
    bool one_machine;
    dist_status status = oob_one_machine(meeting, gather, arg, &one_machine);

    if (status == DIST_OK && meeting->rank == 0) {
        /* Whether rank 0 could listen, and where, is in its answer for all to know. */
        answer.status = disti_meet_listen(meeting, one_machine, answer.store.host, &server);
        if (answer.status == DIST_OK) {
            answer.store.port = disti_store_server_port(server);
            snprintf(answer.store.word, sizeof(answer.store.word), "%.127s",
                     (const char *)server->secret.bytes);
        }
    }
    if (status == DIST_OK)
        status = oob_gather(meeting, gather, arg, &answer, sizeof(answer), &answers);
    if (status != DIST_OK)
        goto out;
    memcpy(&answer, answers, sizeof(answer));
    answer.store.host[sizeof(answer.store.host) - 1] =
        answer.store.word[sizeof(answer.store.word) - 1] = 0;
    if (answer.status != DIST_OK) {
        status = meeting->rank == 0
                     ? (dist_status)answer.status
                     : disti_fail(DIST_ERR_RENDEZVOUS,
                                  "rank %d: rank 0 could not open a store (%s): see its own error",
                                  meeting->rank, dist_status_string((dist_status)answer.status));
        goto out;
    }
    if (server) {
        status = disti_meet_serve(meeting, answer.store.host, server, bootstrap);
        server = NULL;
    } else {
        status = disti_meet_connect_word(meeting, answer.store.host, answer.store.port,
                                         answer.store.word, bootstrap);
    }
out:
    free(answers);
    disti_store_server_stop(server, 0);
    return status;
}

/* ---- meeting on one machine by the name of the job ---- */

#define LOCAL_TAKEN_MS 5000 /* for an earlier group of this job to end */

static dist_status local_serve(const struct disti_meeting *meeting, const char *job,
                               struct disti_bootstrap *bootstrap)
{
    char host[DISTI_HOST_SIZE];
    struct disti_store_server *server;
    int64_t taken_by = disti_deadline_ms(LOCAL_TAKEN_MS);
    int discovery, delay_ms = 2;
    dist_status status = disti_meet_listen(meeting, true, host, &server);

    if (status != DIST_OK)
        return status;
    while ((status = disti_discovery_open(job, &discovery)) == DIST_IN_PROGRESS &&
           !disti_expired(taken_by) && !disti_expired(meeting->deadline))
        disti_store_back_off(&delay_ms, 50, meeting->deadline);
    if (status == DIST_IN_PROGRESS)
        status = disti_fail(DIST_ERR_ADDRESS_IN_USE,
                            "rank 0 cannot listen for the ranks of job %s: another process has "
                            "the Unix socket of that name: set MASTER_ADDR and MASTER_PORT instead",
                            job);
    if (status != DIST_OK) {
        disti_store_server_stop(server, 0);
        return status;
    }
    disti_store_server_set_discovery(server, discovery);
    return disti_meet_serve(meeting, host, server, bootstrap);
}

static dist_status local_ask(const char *job, struct disti_meet_address *address_p)
{
    snprintf(address_p->host, sizeof(address_p->host), "%s", disti_loopback());
    return disti_discovery_ask(job, &address_p->port, address_p->word);
}

dist_status disti_meet_local(const struct disti_meeting *meeting, const char *job,
                             struct disti_bootstrap *bootstrap)
{
    struct disti_store_tries tries = {.text = "nobody listens"};
    dist_status status;

    if (meeting->rank == 0)
        return local_serve(meeting, job, bootstrap);
    /* Asked anew each time: behind the discovery may still be the last group's store. */
    status = meet_seek(meeting, local_ask, job, 50, &tries, bootstrap);
    if (status != DIST_IN_PROGRESS)
        return status;
    return disti_fail(DIST_ERR_RENDEZVOUS,
                      "rank %d waited %d ms for rank 0 of job %s on this machine (%s): "
                      "check that rank 0 runs and calls dist_init_process_group",
                      meeting->rank, meeting->timeout_ms, job, tries.text);
}

/* ---- meeting by a file: rank 0 publishes the address of its store, the others look for it ---- */

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
            "rank 0 cannot create %s: choose a file in a directory that all ranks can write to",
            path);
    written = disti_file_write(fd, text, length) == (ssize_t)length && fsync(fd) == 0 &&
              fstat(fd, &now) == 0;
    if (written) {
        file->device = now.st_dev;
        file->inode = now.st_ino;
        close(fd);
        return DIST_OK;
    }
    disti_fail_errno(
        DIST_ERR_RENDEZVOUS,
        "rank 0 cannot write %s: check the free space there, or choose a file elsewhere", path);
    close(fd);
    unlink(path);
    return DIST_ERR_RENDEZVOUS;
}

static dist_status file_serve(const struct disti_meeting *meeting, const char *path,
                              struct disti_bootstrap *bootstrap)
{
    size_t path_bytes = strlen(path) + 1;
    struct file_published *file = malloc(sizeof(*file) + path_bytes);
    struct disti_store_server *server = NULL;
    char draft[1200], text[FILE_TEXT_MAX], host[DISTI_HOST_SIZE], unique[33];
    dist_status status;

    if (!file)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a path: free memory");
    memcpy(file->path, path, path_bytes);
    status = disti_random_id(unique);
    if (status == DIST_OK)
        status = disti_meet_listen(meeting, false, host, &server);
    if (status != DIST_OK)
        goto out;
    snprintf(draft, sizeof(draft), "%s.%s", path, unique);
    snprintf(text, sizeof(text), "libdist 1\n%s\n%d\n%s\n", host, disti_store_server_port(server),
             (const char *)server->secret.bytes);
    status = file_write(draft, text, file);
    if (status != DIST_OK)
        goto out;
    server->formed_fn = file_remove;
    server->formed_arg = file;
    /* The server runs first: whoever sees the file finds it at work. */
    status = disti_meet_serve(meeting, host, server, bootstrap);
    if (status == DIST_OK && rename(draft, path) == 0)
        return DIST_OK;
    if (status == DIST_OK)
        status = disti_fail_errno(
            DIST_ERR_RENDEZVOUS,
            "rank 0 cannot rename %s to %s: choose a file that does not exist yet", draft, path);
    unlink(draft);
    return status;
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
        return disti_fail_errno(
            DIST_ERR_RENDEZVOUS,
            "cannot open %s: make it readable for this user, or choose another file", path);
    }
    bytes = read(fd, text, FILE_TEXT_MAX);
    if (fstat(fd, &info) == 0 && (!S_ISREG(info.st_mode) || info.st_uid != geteuid()))
        status = disti_fail(
            DIST_ERR_RENDEZVOUS,
            "%s is not a regular file of this user: choose a path that no other user has", path);
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
    status = meet_seek(meeting, file_read, path, 200, &tries, bootstrap);
    if (status != DIST_IN_PROGRESS)
        return status;
    return disti_fail(DIST_ERR_RENDEZVOUS,
                      "rank %d waited %d ms for rank 0 to write its address to %s (%s): check that "
                      "rank 0 runs and sees the same file",
                      meeting->rank, meeting->timeout_ms, path, tries.text);
}

/* ---- meeting in MindSpore's way: a scheduler holds the store and may assign the ranks ---- */

#define SCHEDULED_LOOK_MS 200 /* at most between two looks */

/* Comes to the store there, time and again. IN_PROGRESS: the deadline has passed. */
static dist_status scheduled_seek(const struct disti_meeting *meeting, const char *host, int port,
                                  const struct disti_secret *secret, int64_t deadline,
                                  struct disti_store_tries *tries_p,
                                  struct disti_bootstrap *bootstrap)
{
    const struct disti_store_target target = {.host = host,
                                              .port = port,
                                              .rank = meeting->rank,
                                              .world_size = meeting->world_size,
                                              .secret = secret};
    int delay_ms = 5;
    dist_status status;

    do {
        status = disti_store_try(&target, deadline, tries_p, &bootstrap->store);
        if (status != DIST_IN_PROGRESS || disti_expired(deadline))
            return status;
        disti_store_back_off(&delay_ms, SCHEDULED_LOOK_MS, deadline);
    } while (true);
}

/* Comes as a client, until the meeting's deadline. */
static dist_status scheduled_join(const struct disti_meeting *meeting, const char *host, int port,
                                  const struct disti_secret *secret,
                                  struct disti_bootstrap *bootstrap)
{
    struct disti_store_tries tries = {0};
    dist_status status =
        scheduled_seek(meeting, host, port, secret, meeting->deadline, &tries, bootstrap);

    if (status != DIST_IN_PROGRESS)
        return status;
    return disti_fail(DIST_ERR_RENDEZVOUS,
                      "a worker found no store at %s port %d within %d ms (%s): start the program "
                      "on MS_SCHED_HOST once with MS_ROLE=MS_SCHED, or run the worker with "
                      "MS_NODE_ID=0 there",
                      host, port, meeting->timeout_ms, tries.text);
}

/* Comes as a client if somebody holds the store already, or else holds it. */
static dist_status scheduled_first(const struct disti_meeting *meeting, const char *host, int port,
                                   const struct disti_secret *secret, int patience_ms,
                                   struct disti_bootstrap *bootstrap)
{
    int64_t patient_until = disti_deadline_ms(patience_ms);
    struct disti_meeting first = *meeting;
    struct disti_store_tries tries = {0};
    struct disti_store_server *server;
    dist_status status;

    if (patient_until > meeting->deadline)
        patient_until = meeting->deadline;
    if (patience_ms > 0) {
        status = scheduled_seek(meeting, host, port, secret, patient_until, &tries, bootstrap);
        if (status != DIST_IN_PROGRESS)
            return status;
    }
    /* The port can be had once: by a scheduler, or by one of the workers. */
    if (meet_listen_at(meeting, host, port, &server) != DIST_OK)
        return scheduled_join(meeting, host, port, secret, bootstrap);
    server->secret = *secret;
    first.rank = 0;
    server->holder = 0;
    return disti_meet_serve(&first, host, server, bootstrap);
}

dist_status disti_meet_scheduled(const struct disti_meeting *meeting, const char *host, int port,
                                 int patience_ms, struct disti_bootstrap *bootstrap)
{
    struct disti_secret secret;
    dist_status status = meet_secret(meeting, host, &secret);

    if (status == DIST_OK && meeting->rank > 0)
        status = scheduled_join(meeting, host, port, &secret, bootstrap);
    else if (status == DIST_OK)
        status = scheduled_first(meeting, host, port, &secret, patience_ms, bootstrap);
    disti_secret_wipe(&secret);
    return status;
}

/* Rank 0, or another scheduler, was here before: the job is over when its port is free. */
static dist_status scheduled_outlast(const struct disti_meeting *meeting, const char *host,
                                     int port, dist_status in_use)
{
    const struct disti_store_target target = {.host = host,
                                              .port = port,
                                              .rank = -1,
                                              .world_size = meeting->world_size,
                                              .doubtful = true,
                                              .probe = true};
    struct disti_store_tries tries = {0};
    struct disti_store *store = NULL;
    struct disti_store_server *server;
    int delay_ms = 5;
    char text[1024];
    dist_status status;

    disti_text(text, sizeof(text), "%s", dist_last_error());
    status = disti_store_try(&target, meeting->deadline, &tries, &store);
    disti_store_close(store);
    if (status != DIST_IN_PROGRESS || tries.stranger) /* no store of libdist has that port */
        return disti_fail(in_use, "%s", text);
    while (meet_listen_at(meeting, host, port, &server) != DIST_OK)
        disti_store_back_off(&delay_ms, SCHEDULED_LOOK_MS, INT64_MAX);
    disti_store_server_stop(server, 0);
    return disti_fail(DIST_ERR_SCHEDULER,
                      "this process was the scheduler (MS_ROLE=MS_SCHED) of a job of %d workers, "
                      "but rank 0 or another scheduler runs the store (%s port %d), so the result "
                      "of the job is unknown. Start one scheduler, before the workers",
                      meeting->world_size, host, port);
}

dist_status disti_meet_schedule(const struct disti_meeting *meeting, const char *host, int port,
                                const char *word)
{
    struct disti_store_server *server;
    struct disti_secret secret;
    dist_status status = DIST_OK;

    if (meeting->world_size > 1) { /* a world of one needs no store */
        if (word[0])
            disti_secret_set_token(&secret, word);
        else
            status = meet_secret(meeting, host, &secret);
        if (status != DIST_OK)
            return status;
        status = meet_listen_at(meeting, host, port, &server);
        if (status == DIST_OK)
            server->secret = secret;
        disti_secret_wipe(&secret);
        if (status == DIST_ERR_ADDRESS_IN_USE && !word[0])
            return scheduled_outlast(meeting, host, port, status);
        if (status == DIST_OK)
            status = disti_store_server_schedule(server, meeting->timeout_ms);
    }
    if (status != DIST_OK)
        return status;
    return disti_fail(DIST_ERR_SCHEDULER,
                      "this process was the scheduler (MS_ROLE=MS_SCHED) of a job of %d workers, "
                      "which has succeeded: it is not a rank",
                      meeting->world_size);
}
