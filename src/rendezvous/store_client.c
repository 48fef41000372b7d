/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's client: frames out, replies and notices in. */
#include "rendezvous/store_client.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

static bool client_watch(struct disti_store *store, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};

    return epoll_ctl(store->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

struct disti_store *store_client_new(int fd)
{
    struct disti_store *store = calloc(1, sizeof(*store));

    if (!store) {
        close(fd);
        return NULL;
    }
    store->fd = fd;
    store->holder.rank = -1;
    store->in.limit = DISTI_WIRE_HELLO_LIMIT;
    store->news_end = &store->news;
    store->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    store->news_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (store->epoll_fd >= 0 && store->news_fd >= 0 && client_watch(store, fd) &&
        client_watch(store, store->news_fd))
        return store;
    store_client_free(store);
    return NULL;
}

void store_client_free(struct disti_store *store)
{
    while (store->news) {
        struct client_news *news = store->news;

        store->news = news->next;
        free(news);
    }
    disti_wire_next(&store->in);
    close(store->fd);
    if (store->epoll_fd >= 0)
        close(store->epoll_fd);
    if (store->news_fd >= 0)
        close(store->news_fd);
    free(store);
}

static void client_add_news(struct disti_store *store, int rank, bool graceful, const char *text,
                            size_t length)
{
    struct client_news *news = calloc(1, sizeof(*news));
    uint64_t one = 1;

    if (!news)
        return;
    if (length > sizeof(news->notice.text) - 1)
        length = sizeof(news->notice.text) - 1;
    news->notice.rank = rank;
    news->notice.graceful = graceful;
    memcpy(news->notice.text, text, length);
    *store->news_end = news;
    store->news_end = &news->next;
    (void)!write(store->news_fd, &one, sizeof(one));
}

/* The connection ended. That is news about whoever holds the store, unless it is known. */
static void client_lose(struct disti_store *store, const char *why)
{
    const struct disti_wire_id *holder = &store->holder;

    if (store->lost)
        return;
    store->lost = true;
    if (store->holder_left)
        why = "has left the job";
    epoll_ctl(store->epoll_fd, EPOLL_CTL_DEL, store->fd, NULL);
    if (holder->rank < 0)
        snprintf(store->lost_text, sizeof(store->lost_text),
                 "the launcher (host %s, pid %u), which holds the store, %s", holder->host,
                 holder->pid, why);
    else
        snprintf(store->lost_text, sizeof(store->lost_text),
                 "rank %d (host %s, pid %u), which holds the store, %s", holder->rank, holder->host,
                 holder->pid, why);
    if (!store->holder_left && holder->rank != store->rank)
        client_add_news(store, holder->rank, false, store->lost_text, strlen(store->lost_text));
}

static void client_take_notice(struct disti_store *store)
{
    const unsigned char *value = disti_wire_value(&store->in);
    const struct disti_wire_head *head = &store->in.head;

    if (head->value_bytes >= 1) {
        store->holder_left = store->holder_left || (value[0] && head->arg == store->holder.rank);
        client_add_news(store, head->arg, value[0] != 0, (const char *)value + 1,
                        (size_t)head->value_bytes - 1);
    }
    disti_wire_next(&store->in);
}

/* Reads what is there. OK: the reply to `id` is in store->in. IN_PROGRESS: not yet. */
static dist_status client_pump(struct disti_store *store, uint32_t id)
{
    while (!store->lost) {
        switch (disti_wire_read(&store->in, store->fd)) {
        case DISTI_WIRE_FRAME:
            if (store->in.head.op == DISTI_WIRE_NOTICE)
                client_take_notice(store);
            else if (store->in.head.op == DISTI_WIRE_REPLY && id && store->in.head.id == id)
                return DIST_OK;
            else /* the answer to a request that was given up */
                disti_wire_next(&store->in);
            break;
        case DISTI_WIRE_MORE:
            return DIST_IN_PROGRESS;
        case DISTI_WIRE_CLOSED:
            client_lose(store, "closed its connection without a goodbye");
            break;
        default:
            client_lose(store, "sent what is not the store's protocol");
            return DIST_ERR_RENDEZVOUS;
        }
    }
    return DIST_ERR_PEER_LOST;
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

        parts[i].iov_base = (char *)parts[i].iov_base + n;
        parts[i].iov_len -= n;
        sent -= n;
    }
}

dist_status store_client_send(struct disti_store *store, const struct client_request *request,
                              int64_t deadline)
{
    size_t key_bytes = request->key ? strlen(request->key) : 0;
    size_t left = DISTI_WIRE_HEAD + key_bytes + request->bytes;
    unsigned char head_bytes[DISTI_WIRE_HEAD];
    struct disti_wire_head head = {.op = request->op,
                                   .id = store->last_id % UINT32_MAX + 1,
                                   .arg = request->arg,
                                   .key_bytes = (uint32_t)key_bytes,
                                   .value_bytes = request->bytes};
    struct iovec parts[3] = {{head_bytes, DISTI_WIRE_HEAD},
                             {(char *)(uintptr_t)request->key, key_bytes},
                             {(void *)(uintptr_t)request->value, request->bytes}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    bool begun = false;

    store->last_id = head.id;
    disti_wire_put_head(head_bytes, &head);
    while (left && !store->lost) {
        ssize_t n = sendmsg(store->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n >= 0) {
            begun = true;
            left -= (size_t)n;
            client_advance(parts, 3, (size_t)n);
        } else if (errno == EAGAIN) {
            /* The server may be waiting for us to read. */
            if (client_pump(store, 0) < 0 || client_poll(store, POLLIN | POLLOUT, deadline))
                continue;
            if (begun) /* half a frame makes the connection useless */
                client_lose(store, "does not answer");
            return DIST_IN_PROGRESS;
        } else if (errno != EINTR) {
            /* What it said last may explain it. */
            client_pump(store, 0);
            client_lose(store, "closed its connection without a goodbye");
        }
    }
    return store->lost ? DIST_ERR_PEER_LOST : DIST_OK;
}

dist_status store_client_receive(struct disti_store *store, int64_t deadline)
{
    dist_status status;

    for (;;) {
        status = client_pump(store, store->last_id);
        if (status != DIST_IN_PROGRESS)
            return status;
        if (!client_poll(store, POLLIN, deadline))
            return DIST_IN_PROGRESS;
    }
}

int disti_store_fd(const struct disti_store *store)
{
    return store->epoll_fd;
}

bool disti_store_notice(struct disti_store *store, struct disti_notice *notice_p)
{
    struct client_news *news;
    uint64_t count;

    if (!store->news)
        client_pump(store, 0);
    news = store->news;
    if (!news)
        return false;
    *notice_p = news->notice;
    store->news = news->next;
    if (!store->news) {
        store->news_end = &store->news;
        (void)!read(store->news_fd, &count, sizeof(count));
    }
    free(news);
    return true;
}

void disti_store_report(struct disti_store *store, const char *why)
{
    struct client_request request = {
        .op = DISTI_WIRE_REPORT, .value = why, .bytes = strnlen(why, 200)};

    /* So few bytes always fit, unless the server has been stuck for long. */
    store_client_send(store, &request, disti_deadline_ms(100));
}

/* Waits, shortly, until the server has closed too: then the goodbye has been read. */
static void client_drain(struct disti_store *store)
{
    int64_t deadline = disti_deadline_ms(1000);

    while (!store->lost && client_pump(store, 0) == DIST_IN_PROGRESS) {
        if (!client_poll(store, POLLIN, deadline))
            return;
    }
}

void disti_store_close(struct disti_store *store)
{
    struct client_request request = {.op = DISTI_WIRE_GOODBYE};

    if (!store)
        return;
    if (store_client_send(store, &request, disti_deadline_ms(200)) == DIST_OK)
        client_drain(store);
    store_client_free(store);
}

const char *disti_store_local_host(const struct disti_store *store)
{
    return store->local_host;
}
