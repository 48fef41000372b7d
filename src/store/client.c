/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's client: requests out, and the waiting for their replies. */
#include "store/client.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/thread.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

/* Another thread may have read our reply while we slept: look again after so long. */
#define CLIENT_LOOK_MS 100
/* A reply is late after so long. */
#define CLIENT_LATE_MS 200

static _Atomic disti_store_wait_fn client_waits;

void disti_store_wait_by(disti_store_wait_fn wait)
{
    atomic_store(&client_waits, wait);
}

bool disti_store_client_poll_too(struct disti_store *store, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    return epoll_ctl(store->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void client_init_lock(struct disti_store *store)
{
    pthread_condattr_t clock;

    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->turn, &clock);
    pthread_condattr_destroy(&clock);
}

struct disti_store *disti_store_client_new(int fd, struct disti_tls *tls)
{
    struct disti_store *store = calloc(1, sizeof(*store));

    if (!store) {
        disti_tls_free(tls);
        disti_descriptor_close(fd);
        return NULL;
    }
    client_init_lock(store);
    store->fd = fd;
    store->tls = store->in.tls = tls;
    store->holder.rank = -1;
    store->in.limit = DISTI_WIRE_ANSWER_LIMIT;
    store->news_end = &store->news;
    store->epoll_fd = disti_descriptor_own(epoll_create1(EPOLL_CLOEXEC));
    store->news_fd = disti_descriptor_own(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (store->epoll_fd >= 0 && store->news_fd >= 0 && disti_store_client_poll_too(store, fd) &&
        disti_store_client_poll_too(store, store->news_fd))
        return store;
    disti_store_client_free(store);
    return NULL;
}

void disti_store_client_free(struct disti_store *store)
{
    while (store->news) {
        struct client_news *news = store->news;

        store->news = news->next;
        free(news);
    }
    while (store->aborts) {
        struct client_abort *abort = store->aborts;

        store->aborts = abort->next;
        free(abort);
    }
    while (store->processes) {
        struct client_process *process = store->processes;

        store->processes = process->next;
        disti_descriptor_close(process->fd);
        free(process);
    }
    disti_wire_next(&store->in);
    disti_tls_free(store->tls);
    disti_descriptor_close(store->fd);
    disti_descriptor_close(store->epoll_fd);
    disti_descriptor_close(store->news_fd);
    free(store->packed);
    pthread_cond_destroy(&store->turn);
    pthread_mutex_destroy(&store->lock);
    explicit_bzero(store->key, sizeof(store->key));
    free(store);
}

static bool client_poll(struct disti_store *store, short events, int64_t deadline)
{
    struct pollfd ready = {.fd = store->fd, .events = events};

    if (disti_expired(deadline))
        return false;
    return poll(&ready, 1, disti_left_ms(deadline)) >= 0 || errno == EINTR;
}

/* Skips `sent` bytes of the parts that are already gone. */
static void client_advance(struct iovec *parts, int count, size_t sent)
{
    for (int i = 0; i < count && sent; i++) {
        size_t n = sent < parts[i].iov_len ? sent : parts[i].iov_len;

        if (n)
            parts[i].iov_base = (char *)parts[i].iov_base + n;
        parts[i].iov_len -= n;
        sent -= n;
    }
}

/*
 * Sleeps until there is room for the rest of a frame, letting others in meanwhile: they read, and
 * put nothing between its parts. False: there was none in time.
 */
static bool client_wait_room(struct disti_store *store, int64_t deadline)
{
    bool in_time;

    store->halfway = true;
    pthread_mutex_unlock(&store->lock);
    in_time = client_poll(store, POLLIN | POLLOUT, deadline);
    pthread_mutex_lock(&store->lock);
    store->halfway = false;
    return in_time;
}

static dist_status client_lost(const struct disti_store *store)
{
    return store->strange ? DIST_ERR_RENDEZVOUS : DIST_ERR_PEER_LOST;
}

/* Into room that is there, so that a rank without memory can still tell. Returns its bytes. */
static size_t client_pack_party(struct disti_store *store, const struct client_request *request)
{
    const struct disti_party *party = request->party;

    if (!request->of_party)
        return 0;
    disti_wire_put_party(store->packed, party);
    return disti_wire_party_bytes(party && party->ranks ? (size_t)party->count : 0);
}

static dist_status client_send_frame(struct disti_store *store,
                                     const struct client_request *request, int64_t deadline)
{
    size_t key_bytes = request->key ? strlen(request->key) : 0;
    size_t before_bytes = client_pack_party(store, request);
    size_t value_bytes = before_bytes + request->bytes;
    size_t left = DISTI_WIRE_HEAD + key_bytes + value_bytes;
    unsigned char head_bytes[DISTI_WIRE_HEAD];
    struct disti_wire_head head = {.op = request->op,
                                   .id = store->last_id % UINT32_MAX + 1,
                                   .arg = request->arg,
                                   .key_bytes = (uint32_t)key_bytes,
                                   .value_bytes = value_bytes};
    struct iovec parts[4] = {{head_bytes, DISTI_WIRE_HEAD},
                             {(char *)(uintptr_t)request->key, key_bytes},
                             {store->packed, before_bytes},
                             {(void *)(uintptr_t)request->value, request->bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 4};
    bool begun = false;

    store->last_id = head.id;
    disti_wire_put_head(head_bytes, &head);
    while (left && !store->lost) {
        ssize_t n = disti_tls_or_sendmsg(store->tls, store->fd, &message);

        if (n >= 0) {
            begun = true;
            left -= (size_t)n;
            client_advance(parts, 4, (size_t)n);
        } else if (errno == EAGAIN) {
            disti_store_client_pump(store); /* the server may be waiting for us to read */
            if (store->lost || client_wait_room(store, deadline))
                continue;
            if (begun) /* half a frame makes the connection useless */
                disti_store_client_lose(store, "does not answer");
            return DIST_IN_PROGRESS;
        } else if (errno != EINTR) {
            disti_store_client_pump(store); /* what it said last may explain it */
            disti_store_client_lose(store, "closed its connection without leaving the job");
        }
    }
    return store->lost ? client_lost(store) : DIST_OK;
}

/* Sends one frame, with the lock held, which is let go while there is no room for it. */
static dist_status client_send(struct disti_store *store, const struct client_request *request,
                               int64_t deadline)
{
    dist_status status;

    while (store->halfway) {
        const struct timespec until = disti_clock_timespec(deadline);

        if (disti_store_client_aborted(store))
            return DIST_ERR_ABORTED;
        if (disti_expired(deadline))
            return DIST_IN_PROGRESS;
        pthread_cond_timedwait(&store->turn, &store->lock, &until);
    }
    disti_store_client_take_line(store);
    status = client_send_frame(store, request, deadline);
    disti_store_client_release_line(store);
    pthread_cond_broadcast(&store->turn);
    return status;
}

dist_status disti_store_client_send(struct disti_store *store, const struct client_request *request,
                                    int64_t deadline)
{
    int held = disti_cancel_hold();
    dist_status status;

    pthread_mutex_lock(&store->lock);
    status = client_send(store, request, deadline);
    pthread_mutex_unlock(&store->lock);
    disti_cancel_let(held);
    return status;
}

/* Sleeps until there is something to read, letting others in meanwhile; then reads it. */
static void client_read_for_all(struct disti_store *store, int64_t deadline)
{
    disti_store_wait_fn wait = atomic_load_explicit(&client_waits, memory_order_relaxed);
    int64_t look = disti_deadline_ms(CLIENT_LOOK_MS);
    int64_t until = look < deadline ? look : deadline;

    store->reading = true;
    pthread_mutex_unlock(&store->lock);
    if (wait)
        wait(store->fd, until);
    else
        client_poll(store, POLLIN, until);
    pthread_mutex_lock(&store->lock);
    store->reading = false;
    disti_store_client_pump(store);
    pthread_cond_broadcast(&store->turn);
}

/* Waits until the call is done, with the lock held, which is let go meanwhile. */
static dist_status client_wait(struct disti_store *store, const struct client_call *call,
                               int64_t deadline)
{
    disti_store_client_pump(store);
    while (!call->done && !store->lost) {
        const struct timespec until = disti_clock_timespec(deadline);

        if (disti_store_client_aborted(store))
            return DIST_ERR_ABORTED;
        if (disti_expired(deadline))
            return DIST_IN_PROGRESS;
        if (store->reading)
            pthread_cond_timedwait(&store->turn, &store->lock, &until);
        else
            client_read_for_all(store, deadline);
    }
    return call->done ? DIST_OK : client_lost(store);
}

/* The same; calls request->late without the lock every CLIENT_LATE_MS meanwhile. */
static dist_status client_wait_long(struct disti_store *store, const struct client_call *call,
                                    const struct client_request *request, int64_t deadline)
{
    int64_t late = disti_deadline_ms(CLIENT_LATE_MS);

    while (request->late && late < deadline) {
        dist_status status = client_wait(store, call, late);

        if (status != DIST_IN_PROGRESS)
            return status;
        pthread_mutex_unlock(&store->lock);
        request->late(request->late_arg);
        pthread_mutex_lock(&store->lock);
        late = disti_deadline_ms(CLIENT_LATE_MS);
    }
    return client_wait(store, call, deadline);
}

dist_status disti_store_client_call(struct disti_store *store, const struct client_request *request,
                                    int64_t deadline, struct disti_wire_reader *reply_p)
{
    struct client_call call = {0}, **entry = &store->calls;
    int held = disti_cancel_hold();
    dist_status status;

    pthread_mutex_lock(&store->lock);
    status = client_send(store, request, deadline);
    if (status == DIST_OK) {
        call.id = store->last_id;
        call.next = store->calls;
        store->calls = &call;
        status = client_wait_long(store, &call, request, deadline);
        while (*entry != &call)
            entry = &(*entry)->next;
        *entry = call.next;
    }
    pthread_mutex_unlock(&store->lock);
    disti_cancel_let(held);
    if (status == DIST_OK)
        *reply_p = call.reply;
    return status;
}

/* Waits, shortly, until the server has closed too: then the goodbye has been read. */
static void client_drain(struct disti_store *store)
{
    int64_t deadline = disti_deadline_ms(1000);

    pthread_mutex_lock(&store->lock);
    while (!store->lost && client_poll(store, POLLIN, deadline))
        disti_store_client_pump(store);
    pthread_mutex_unlock(&store->lock);
}

void disti_store_close(struct disti_store *store)
{
    struct client_request request = {.op = DISTI_WIRE_GOODBYE};

    if (!store)
        return;
    if (disti_store_client_send(store, &request, disti_deadline_ms(200)) == DIST_OK)
        client_drain(store);
    disti_store_client_free(store);
}

int disti_store_holder(const struct disti_store *store)
{
    return store->holder.rank;
}

int disti_store_rank(const struct disti_store *store)
{
    return store->rank;
}

const unsigned char *disti_store_key(const struct disti_store *store)
{
    return store->key;
}

const char *disti_store_local_host(const struct disti_store *store)
{
    return store->local_host;
}
