/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's server: start, loop, stop. */
#include "store/server/server.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/net/socket.h"
#include "base/process/limit.h"
#include "base/thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void server_close(int *fd)
{
    if (*fd >= 0)
        disti_descriptor_close(*fd);
    *fd = -1;
}

static void server_free(struct disti_store_server *server)
{
    while (server->peers)
        disti_store_peer_free(server, server->peers);
    disti_store_coll_clear(server);
    disti_store_failures_clear(server);
    disti_store_leavings_clear(server);
    server_close(&server->epoll_fd);
    server_close(&server->listen_fd);
    server_close(&server->wake_fd);
    server_close(&server->discovery_fd);
    disti_tls_context_free(server->tls);
    disti_secret_wipe(&server->secret);
    explicit_bzero(server->seed, sizeof(server->seed));
    free(server->ranks);
    free(server);
}

/* Watches a descriptor that is no peer; the pointer says which. */
static bool server_watch(struct disti_store_server *server, int *fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = fd};

    return epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, *fd, &event) == 0;
}

static struct disti_store_server *server_new(int world_size)
{
    struct disti_store_server *server = calloc(1, sizeof(*server));

    if (!server)
        return NULL;
    server->epoll_fd = server->listen_fd = server->wake_fd = server->discovery_fd = -1;
    server->world_size = world_size;
    server->holder = -1;
    server->ranks = calloc((size_t)world_size, sizeof(*server->ranks));
    if (!server->ranks) {
        free(server);
        return NULL;
    }
    return server;
}

/* Every rank keeps its connection. Without a descriptor for each the job could only wait in vain.
 */
static dist_status server_find_room(int world_size)
{
    size_t wanted = (size_t)world_size + STORE_OWN_FILES, most = disti_descriptor_allow(wanted);

    if (most >= wanted)
        return DIST_OK;
    return disti_fail(
        DIST_ERR_SYSTEM,
        "the store needs a descriptor for each of %d ranks, and this process may have "
        "%zu in all: raise the hard limit of open files (ulimit -Hn) to %zu or more",
        world_size, most, wanted);
}

dist_status disti_store_server_listen(const char *host, int port, int world_size, int64_t deadline,
                                      struct disti_store_server **server_p)
{
    struct disti_store_server *server;
    dist_status status;

    if (world_size < 1)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "a store needs a world size of 1 or more, not %d", world_size);
    status = server_find_room(world_size);
    if (status != DIST_OK)
        return status;
    server = server_new(world_size);
    if (!server)
        return disti_fail(DIST_ERR_NO_MEMORY,
                          "no memory for a store of %d ranks: free some, or start fewer",
                          world_size);
    server->everywhere = !host;
    status = disti_store_server_renew(server);
    if (status == DIST_OK)
        status = disti_tls_open(&server->tls);
    if (status == DIST_OK)
        status = host ? disti_listen(host, port, deadline, &server->listen_fd, &server->port)
                      : disti_listen_everywhere(port, &server->listen_fd, &server->port);
    if (status != DIST_OK)
        goto out;
    server->epoll_fd = disti_descriptor_own(epoll_create1(EPOLL_CLOEXEC));
    server->wake_fd = disti_descriptor_own(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (server->epoll_fd < 0 || server->wake_fd < 0 || !server_watch(server, &server->listen_fd) ||
        !server_watch(server, &server->wake_fd)) {
        status =
            disti_fail_call("epoll_create1 or eventfd", "cannot set up the store's event loop");
        goto out;
    }
    *server_p = server;
    return DIST_OK;
out:
    server_free(server);
    return status;
}

int disti_store_server_port(const struct disti_store_server *server)
{
    return server->port;
}

void disti_store_server_set_holder(struct disti_store_server *server, int rank)
{
    server->holder = rank;
}

void disti_store_server_set_only(struct disti_store_server *server, const char *host)
{
    snprintf(server->only, sizeof(server->only), "%s", host);
}

void disti_store_server_set_secret(struct disti_store_server *server,
                                   const struct disti_secret *secret)
{
    server->secret = *secret;
}

void disti_store_server_set_word(struct disti_store_server *server, const char *word)
{
    disti_secret_set_word(&server->secret, word);
}

const char *disti_store_server_word(const struct disti_store_server *server)
{
    return (const char *)server->secret.bytes;
}

dist_status disti_store_server_renew(struct disti_store_server *server)
{
    char job[33];

    if (!disti_nonce(server->seed))
        return disti_fail_call("getrandom", "cannot get random bytes");
    memset(server->job, 0, sizeof(server->job));
    if (disti_random_id(job) != DIST_OK)
        return DIST_ERR_SYSTEM;
    memcpy(server->job, job, sizeof(job));
    return DIST_OK;
}

const char *disti_store_server_job(const struct disti_store_server *server)
{
    return server->job;
}

void disti_store_server_on_formed(struct disti_store_server *server, void (*fn)(void *arg),
                                  void *arg)
{
    server->formed_fn = fn;
    server->formed_arg = arg;
}

void disti_store_server_set_discovery(struct disti_store_server *server, int fd)
{
    server->discovery_fd = fd;
    server_watch(server, &server->discovery_fd);
}

void disti_store_server_forget(struct disti_store_server *server)
{
    if (server)
        server_free(server);
}

/* The dead are taken away; that may send notices, which may show more dead. */
static void server_reap(struct disti_store_server *server)
{
    while (server->reap) {
        struct store_peer *peer = server->peers, *next;

        server->reap = false;
        for (; peer; peer = next) {
            next = peer->next;
            if (!peer->dead)
                continue;
            if (peer->rank >= 0 && server->ranks[peer->rank].peer == peer)
                disti_store_ranks_lost(server, peer);
            disti_store_peer_free(server, peer);
        }
    }
}

void disti_store_server_back_off(struct disti_store_server *server)
{
    if (!server->short_told)
        disti_notice("the store cannot accept connections and tries again: %s%s", strerror(errno),
                     errno == EMFILE ? ". Raise the limit of open files (ulimit -n) of the process "
                                       "that holds it"
                                     : "");
    server->short_told = true;
    epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, server->listen_fd, NULL);
    if (server->discovery_fd >= 0)
        epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, server->discovery_fd, NULL);
    server->accept_at = disti_deadline_ms(STORE_BACK_OFF_MS);
}

static void server_resume(struct disti_store_server *server)
{
    server->accept_at = 0;
    server_watch(server, &server->listen_fd);
    if (server->discovery_fd >= 0)
        server_watch(server, &server->discovery_fd);
}

static void server_sooner(int64_t *deadline, int64_t candidate)
{
    if (candidate < *deadline)
        *deadline = candidate;
}

/* Handles what is due; returns how long epoll may wait. */
static int server_tick(struct disti_store_server *server)
{
    int64_t next = INT64_MAX;

    if (server->accept_at && disti_expired(server->accept_at))
        server_resume(server);
    if (server->accept_at)
        server_sooner(&next, server->accept_at);
    for (struct store_peer *peer = server->peers; peer && server->strangers; peer = peer->next) {
        if (peer->rank >= 0)
            continue;
        if (disti_expired(peer->hello_by))
            disti_store_peer_dismiss(server, peer);
        server_sooner(&next, peer->hello_by);
    }
    server_sooner(&next, disti_store_coll_tick(server));
    server_reap(server);
    /* Last: what was found to be lost just now counts. */
    if (server->schedule)
        server_sooner(&next, disti_store_schedule_tick(server));
    if (atomic_load(&server->stop))
        server_sooner(&next, atomic_load(&server->stop_by));
    return next == INT64_MAX ? -1 : disti_left_ms(next);
}

static void server_formed(struct disti_store_server *server)
{
    server_close(&server->discovery_fd);
    if (server->formed_fn)
        server->formed_fn(server->formed_arg);
    server->formed_fn = NULL;
}

static void server_dispatch(struct disti_store_server *server, const struct epoll_event *event)
{
    uint64_t count;

    if (event->data.ptr == &server->listen_fd)
        disti_store_peer_accept(server);
    else if (event->data.ptr == &server->discovery_fd)
        disti_store_discovery_answer(server);
    else if (event->data.ptr == &server->wake_fd)
        (void)!read(server->wake_fd, &count, sizeof(count));
    else
        disti_store_peer_event(server, event->data.ptr, event->events);
}

/* Nobody is here, nor still to come, who would look for the store in vain. */
static bool server_is_left(const struct disti_store_server *server)
{
    bool left = server->here == 0;

    for (int r = 0; left && server->expects_all && r < server->world_size; r++)
        left = server->ranks[r].state != STORE_ABSENT;
    return left;
}

static bool server_done(const struct disti_store_server *server)
{
    return atomic_load(&server->stop) &&
           (server_is_left(server) || disti_expired(atomic_load(&server->stop_by)));
}

static void server_say_goodbye(struct disti_store_server *server)
{
    const struct disti_notice notice = {.rank = server->holder,
                                        .group = DISTI_NO_GROUP,
                                        .graceful = true,
                                        .text = "the store was closed"};

    if (server->here > 0)
        disti_store_ranks_push(server, &notice, NULL);
}

void *disti_store_server_main(void *arg)
{
    struct disti_store_server *server = arg;
    struct epoll_event events[64];

    disti_log_use(server->log);
    while (!server_done(server)) {
        int wait_ms = server_tick(server);
        int count = epoll_wait(server->epoll_fd, events, 64, wait_ms);

        /* Peers are only marked dead here, and freed by server_reap: no event dangles. */
        for (int i = 0; i < count; i++)
            server_dispatch(server, &events[i]);
        server_reap(server);
        if (server->formed && (server->formed_fn || server->discovery_fd >= 0))
            server_formed(server);
    }
    server_say_goodbye(server);
    return NULL;
}

dist_status disti_store_server_run(struct disti_store_server *server)
{
    int error;

    server->log = disti_log_current();
    error = disti_thread_create(&server->thread, disti_store_server_main, server);
    if (error) {
        errno = error;
        return disti_process_limit_fail("start the store's thread");
    }
    server->running = true;
    return DIST_OK;
}

void disti_store_server_expect_all(struct disti_store_server *server)
{
    if (server)
        atomic_store(&server->expects_all, true);
}

void disti_store_server_stop(struct disti_store_server *server, int linger_ms)
{
    uint64_t one = 1;

    if (!server)
        return;
    if (server->running) {
        atomic_store(&server->stop_by, disti_deadline_ms(linger_ms));
        atomic_store(&server->stop, true);
        /* Without this wake-up the thread sleeps until the next deadline of a rank. */
        for (int tries = 0; tries < 3 && write(server->wake_fd, &one, sizeof(one)) < 0; tries++)
            ;
        pthread_join(server->thread, NULL);
    }
    server_formed(server);
    server_free(server);
}
