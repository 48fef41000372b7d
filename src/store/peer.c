/* SPDX-License-Identifier: BSD-3-Clause */
/* One connection at the store's server: accepting, reading, writing, ending. */
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/net.h"
#include "store/server.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>

static void peer_die(struct disti_store_server *server, struct store_peer *peer)
{
    peer->dead = true;
    server->reap = true;
}

/* Watches what matters now: input unless the peer does not read, output if there is some. */
static void peer_watch(struct disti_store_server *server, struct store_peer *peer)
{
    struct epoll_event event = {.data.ptr = peer};

    if (peer->out_bytes < STORE_OUT_MAX)
        event.events |= EPOLLIN;
    if (peer->out || (peer->tls && disti_tls_waits_to_send(peer->tls)))
        event.events |= EPOLLOUT;
    if (event.events == peer->events)
        return;
    if (epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, peer->fd, &event))
        peer_die(server, peer);
    peer->events = event.events;
}

static struct store_peer *peer_new(struct disti_store_server *server, int fd,
                                   const struct sockaddr_storage *from)
{
    struct epoll_event event = {.events = EPOLLIN};
    struct store_peer *peer = calloc(1, sizeof(*peer));

    if (!peer)
        return NULL;
    if (server->tls)
        peer->tls = peer->in.tls = disti_tls_accept(server->tls, fd);
    peer->fd = fd;
    peer->from = *from;
    peer->rank = -1;
    peer->hello_by = disti_deadline_ms(STORE_HELLO_MS);
    peer->in.limit = DISTI_WIRE_HELLO_LIMIT;
    peer->out_end = &peer->out;
    peer->events = event.events;
    event.data.ptr = peer;
    if ((server->tls && !peer->tls) || epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
        disti_tls_free(peer->tls);
        free(peer);
        return NULL;
    }
    peer->next = server->peers;
    if (peer->next)
        peer->next->prev = peer;
    server->peers = peer;
    server->strangers++;
    return peer;
}

static void peer_out_pop(struct store_peer *peer)
{
    struct store_out *out = peer->out;

    peer->out = out->next;
    if (!peer->out)
        peer->out_end = &peer->out;
    peer->out_sent = 0;
    peer->out_bytes -= DISTI_WIRE_HEAD + (out->body ? out->body->bytes : 0);
    disti_blob_drop(out->body);
    free(out);
}

/* Sends what the socket takes of the first frame. False: it takes no more, or broke. */
static bool peer_send_first(struct disti_store_server *server, struct store_peer *peer)
{
    struct store_out *out = peer->out;
    size_t body_bytes = out->body ? out->body->bytes : 0;
    size_t in_body = peer->out_sent > DISTI_WIRE_HEAD ? peer->out_sent - DISTI_WIRE_HEAD : 0;
    size_t in_head = peer->out_sent - in_body;
    struct iovec parts[2] = {
        {out->head + in_head, DISTI_WIRE_HEAD - in_head},
        {out->body ? out->body->data + in_body : NULL, body_bytes - in_body},
    };
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t n = disti_tls_or_sendmsg(peer->tls, peer->fd, &message);

    if (n < 0) {
        if (errno != EAGAIN && errno != EINTR)
            peer_die(server, peer);
        return errno == EINTR;
    }
    peer->out_sent += (size_t)n;
    if (peer->out_sent == DISTI_WIRE_HEAD + body_bytes)
        peer_out_pop(peer);
    return true;
}

static void peer_flush(struct disti_store_server *server, struct store_peer *peer)
{
    while (peer->out && peer_send_first(server, peer))
        ;
    if (!peer->out && peer->closing)
        peer_die(server, peer);
    if (!peer->dead)
        peer_watch(server, peer);
}

void disti_store_peer_send(struct disti_store_server *server, struct store_peer *peer,
                           const struct disti_wire_head *head, struct disti_blob *body)
{
    struct store_out *out = peer->dead ? NULL : calloc(1, sizeof(*out));

    if (!out) {
        disti_blob_drop(body);
        peer_die(server, peer);
        return;
    }
    disti_wire_put_head(out->head, head);
    out->body = body;
    *peer->out_end = out;
    peer->out_end = &out->next;
    peer->out_bytes += DISTI_WIRE_HEAD + (body ? body->bytes : 0);
    peer_flush(server, peer);
}

void disti_store_peer_reply(struct disti_store_server *server, struct store_peer *peer, uint32_t id,
                            dist_status status, struct disti_blob *body)
{
    struct disti_wire_head head = {
        .op = DISTI_WIRE_REPLY, .id = id, .arg = status, .value_bytes = body ? body->bytes : 0};

    disti_store_peer_send(server, peer, &head, body);
}

void disti_store_peer_refuse(struct disti_store_server *server, struct store_peer *peer,
                             uint32_t id, dist_status status, const char *format, ...)
{
    char text[DISTI_NEWS_MAX + 2 * DISTI_KEY_MAX];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    disti_store_peer_reply(server, peer, id, status, disti_blob_copy(text, strlen(text)));
}

/* The connection is of no use any more. */
static void peer_broken(struct disti_store_server *server, struct store_peer *peer,
                        enum disti_wire_event event)
{
    if (peer->rank < 0 && event == DISTI_WIRE_NO_TLS)
        disti_store_refusal(server, peer, "%s", disti_tls_why(peer->tls));
    else if (peer->rank < 0 && event == DISTI_WIRE_STRANGE && !peer->tls &&
             disti_tls_looks_like(peer->in.head_bytes))
        disti_store_refusal(server, peer,
                            "it speaks TLS, and the store does not: set DIST_TLS_CERT, "
                            "DIST_TLS_KEY and DIST_TLS_CA on all ranks, or on none");
    else if (peer->rank < 0 && event != DISTI_WIRE_CLOSED)
        disti_store_refusal(server, peer, "it speaks another protocol");
    peer_die(server, peer);
}

static void peer_read(struct disti_store_server *server, struct store_peer *peer)
{
    enum disti_wire_event event = DISTI_WIRE_FRAME;

    /* A few frames at most, so that no peer starves the others. */
    for (int i = 0; i < 16 && event == DISTI_WIRE_FRAME; i++) {
        if (peer->dead || peer->closing || peer->out_bytes >= STORE_OUT_MAX)
            return;
        event = disti_wire_read(&peer->in, peer->fd);
        if (event == DISTI_WIRE_FRAME) {
            if (peer->rank >= 0)
                disti_store_serve_frame(server, peer);
            else
                disti_store_admit(server, peer);
            disti_wire_next(&peer->in);
        } else if (event != DISTI_WIRE_MORE) {
            peer_broken(server, peer, event);
        }
    }
}

void disti_store_peer_dismiss(struct disti_store_server *server, struct store_peer *peer)
{
    /* A machine with much else to do may have left its words unread. */
    peer_read(server, peer);
    if (peer->rank >= 0 || peer->dead)
        return;
    disti_store_refusal(server, peer, "%s",
                        peer->tls && !disti_tls_is_up(peer->tls)
                            ? "its TLS handshake did not end in time"
                        : peer->challenged ? "its proof did not come in time"
                                           : "it said nothing");
    peer_die(server, peer);
}

static struct store_peer *peer_oldest_stranger(const struct disti_store_server *server)
{
    struct store_peer *oldest = NULL;

    for (struct store_peer *peer = server->peers; peer; peer = peer->next) {
        if (peer->rank < 0 && !peer->dead)
            oldest = peer;
    }
    return oldest;
}

/*
 * No descriptor is left for a caller: a stranger goes, if one has been here for long enough to
 * prove what it is. False: none has.
 */
static bool peer_find_descriptor(struct disti_store_server *server)
{
    struct store_peer *oldest = peer_oldest_stranger(server);

    if (!oldest || disti_left_ms(oldest->hello_by) > STORE_HELLO_MS - STORE_STAY_MS)
        return false;
    disti_store_peer_dismiss(server, oldest);
    return server->reap;
}

bool disti_store_peer_came_by(int fd, char text[DISTI_HOST_SIZE])
{
    static const char mapped[] = "::ffff:"; /* IPv4, at a socket for both */
    struct sockaddr_storage own;
    socklen_t size = sizeof(own);

    if (getsockname(fd, (struct sockaddr *)&own, &size))
        return false;
    disti_address_text((struct sockaddr *)&own, text);
    if (strncmp(text, mapped, strlen(mapped)) == 0)
        memmove(text, text + strlen(mapped), strlen(text + strlen(mapped)) + 1);
    return strncmp(text, "127.", 4) != 0 && strcmp(text, "::1") != 0;
}

void disti_store_peer_accept(struct disti_store_server *server)
{
    struct store_peer *oldest;
    int fd = -1;

    for (int i = 0; i < STORE_ACCEPTS; i++) {
        struct sockaddr_storage from = {0};
        socklen_t size = sizeof(from);
        char host[DISTI_HOST_SIZE];

        fd = disti_descriptor_own(accept4(server->listen_fd, (struct sockaddr *)&from, &size,
                                          SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (fd < 0)
            break;
        disti_socket_tune(fd);
        /* It may have come to an address that is not to be used. */
        if ((server->only[0] && disti_store_peer_came_by(fd, host) &&
             strcmp(host, server->only) != 0) ||
            !peer_new(server, fd, &from))
            disti_descriptor_close(fd);
        /* Strangers may fill the waiting room, but not keep others out of it. There is a place for
         * every rank, so that all can come at once. */
        if (server->strangers >
                disti_descriptor_for_strangers(STORE_STRANGERS) + server->world_size &&
            (oldest = peer_oldest_stranger(server)))
            disti_store_peer_dismiss(server, oldest);
        if (server->reap)
            return;
    }
    if (fd >= 0)
        return; /* and is called again once others have been heard */
    if ((errno == EMFILE || errno == ENFILE) && peer_find_descriptor(server))
        return; /* and is called again once that is reaped */
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
        disti_store_server_back_off(server);
}

void disti_store_peer_event(struct disti_store_server *server, struct store_peer *peer,
                            uint32_t events)
{
    if (peer->dead)
        return;
    if (events & EPOLLOUT)
        peer_flush(server, peer);
    /* A session may hold what the socket has given it already. */
    if (!peer->dead && (events & EPOLLIN || peer->tls))
        peer_read(server, peer);
    if (!peer->dead && peer->tls)
        peer_watch(server, peer);
    if (!(events & (EPOLLIN | EPOLLOUT)) && (events & (EPOLLERR | EPOLLHUP)))
        peer_die(server, peer);
}

void disti_store_peer_free(struct disti_store_server *server, struct store_peer *peer)
{
    if (peer->prev)
        peer->prev->next = peer->next;
    else
        server->peers = peer->next;
    if (peer->next)
        peer->next->prev = peer->prev;
    if (peer->rank < 0)
        server->strangers--;
    while (peer->out)
        peer_out_pop(peer);
    disti_wire_next(&peer->in);
    disti_tls_free(peer->tls);
    /* A forked child that still has a copy would keep epoll telling of a peer that is no more. */
    epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, peer->fd, NULL);
    disti_descriptor_close(peer->fd);
    free(peer);
}
