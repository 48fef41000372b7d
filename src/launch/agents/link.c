/* SPDX-License-Identifier: BSD-3-Clause */
/* Frames over a socket that never blocks. */
#include "launch/agents/link.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "launch/agents/message.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* A link takes a round of the most nodes, and some news behind it. */
#define LINK_OUT_MAX (4 * (size_t)AGENTS_LIMIT_SERVER)
#define NS_PER_MS 1000000

static void link_watch(struct agents_link *link)
{
    uint32_t events = EPOLLIN;
    struct epoll_event event = {.data.ptr = link->tag};

    if (link->out_bytes || (link->in.tls && disti_tls_waits_to_send(link->in.tls)))
        events |= EPOLLOUT;
    event.events = events;
    if (events == link->events)
        return;
    if (epoll_ctl(link->epoll_fd, EPOLL_CTL_MOD, link->fd, &event))
        link->is_broken = true;
    link->events = events;
}

bool disti_agents_link_open(struct agents_link *link, int fd, int epoll_fd, void *tag, size_t limit)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT, .data.ptr = tag};

    *link = (struct agents_link){.fd = fd,
                                 .epoll_fd = epoll_fd,
                                 .tag = tag,
                                 .events = event.events,
                                 .in.limit = limit,
                                 .heard_ns = disti_now_ns(),
                                 .told_ns = disti_now_ns()};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0)
        return true;
    disti_agents_link_close(link);
    return false;
}

void disti_agents_link_close(struct agents_link *link)
{
    if (link->fd >= 0) {
        epoll_ctl(link->epoll_fd, EPOLL_CTL_DEL, link->fd, NULL);
        disti_descriptor_close(link->fd);
    }
    disti_wire_next(&link->in);
    disti_tls_free(link->in.tls);
    free(link->out);
    *link = (struct agents_link){.fd = -1};
}

void disti_agents_link_flush(struct agents_link *link)
{
    if (link->fd < 0)
        return;
    while (link->out_bytes && !link->is_broken) {
        ssize_t n = disti_tls_or_send(link->in.tls, link->fd, link->out, link->out_bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n < 0) {
            link->is_broken = true;
            break;
        }
        link->out_bytes -= (size_t)n;
        memmove(link->out, link->out + n, link->out_bytes);
    }
    if (link->is_broken)
        link->out_bytes = 0;
    link_watch(link);
}

static bool link_make_room(struct agents_link *link, size_t bytes)
{
    size_t room = link->out_bytes + bytes;
    unsigned char *out;

    if (room <= link->out_room)
        return true;
    out = room > LINK_OUT_MAX ? NULL : realloc(link->out, room);
    if (!out)
        return false;
    link->out = out;
    link->out_room = room;
    return true;
}

void disti_agents_link_send(struct agents_link *link, uint8_t op, const void *value, size_t bytes)
{
    struct disti_wire_head head = {.op = op, .value_bytes = bytes};

    if (link->fd < 0 || link->is_broken)
        return;
    if (!link_make_room(link, DISTI_WIRE_HEAD + bytes)) {
        link->is_broken = true;
        return;
    }
    disti_wire_put_head(link->out + link->out_bytes, &head);
    if (bytes)
        memcpy(link->out + link->out_bytes + DISTI_WIRE_HEAD, value, bytes);
    link->out_bytes += DISTI_WIRE_HEAD + bytes;
    link->told_ns = disti_now_ns();
    disti_agents_link_flush(link);
}

void disti_agents_link_send_text(struct agents_link *link, uint8_t op, const char *text)
{
    unsigned char value[DISTI_AGENTS_TEXT];

    disti_agents_put_text(value, text, sizeof(value));
    disti_agents_link_send(link, op, value, strlen((const char *)value));
}

enum disti_wire_event disti_agents_link_read(struct agents_link *link)
{
    size_t had = link->in.got;
    enum disti_wire_event event = disti_wire_read(&link->in, link->fd);

    if (link->in.tls && !link->is_broken)
        link_watch(link); /* the handshake may have something to say */
    if (link->in.got > had)
        link->heard_ns = disti_now_ns();
    if (event == DISTI_WIRE_FRAME &&
        (link->in.head.version != DISTI_WIRE_VERSION || link->in.head.id != 0 ||
         link->in.head.arg != 0 || link->in.head.key_bytes != 0))
        return DISTI_WIRE_STRANGE;
    return event;
}

void disti_agents_link_beat(struct agents_link *link, uint32_t interval_ms, int64_t *when_p)
{
    if (disti_now_ns() >= link->told_ns + (int64_t)interval_ms * NS_PER_MS)
        disti_agents_link_send(link, AGENTS_BEAT, NULL, 0);
    agents_sooner(when_p, link->told_ns + (int64_t)interval_ms * NS_PER_MS);
}

bool disti_agents_link_is_silent(const struct agents_link *link, uint32_t silence_ms,
                                 int64_t *when_p)
{
    int64_t until = link->heard_ns + (int64_t)silence_ms * NS_PER_MS;

    agents_sooner(when_p, until);
    return disti_now_ns() >= until;
}
