/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection between an agent and the server: frames out and in, signs of life. */
#ifndef DISTI_LAUNCH_AGENTS_LINK_H
#define DISTI_LAUNCH_AGENTS_LINK_H

#include "store/wire.h"

struct agents_link {
    int fd;       /* -1: none */
    int epoll_fd; /* which watches it */
    void *tag;    /* what that gives for it */
    uint32_t events;
    bool is_broken;              /* nothing can be sent any more */
    struct disti_wire_reader in; /* with the TLS session, if there is one; the link's own */
    unsigned char *out;          /* not sent yet; bounded */
    size_t out_bytes, out_room;
    int64_t heard_ns, told_ns;
};

/* Takes the descriptor, a connected or connecting socket, and watches it; false: closed it. */
bool disti_agents_link_open(struct agents_link *link, int fd, int epoll_fd, void *tag,
                            size_t limit);
void disti_agents_link_close(struct agents_link *link);

/* Sends or keeps a frame. Who reads too little has its link broken. */
void disti_agents_link_send(struct agents_link *link, uint8_t op, const void *value, size_t bytes);
void disti_agents_link_send_text(struct agents_link *link, uint8_t op, const char *text);

/* Sends what the socket takes. */
void disti_agents_link_flush(struct agents_link *link);

/* The next frame is in link->in: use it, then disti_wire_next. */
enum disti_wire_event disti_agents_link_read(struct agents_link *link);

/* Lowers *when_p to when, if that is sooner. */
static inline void agents_sooner(int64_t *when_p, int64_t when)
{
    if (when < *when_p)
        *when_p = when;
}

/* Sends a sign of life when it is time; *when_p is lowered to the next. */
void disti_agents_link_beat(struct agents_link *link, uint32_t interval_ms, int64_t *when_p);

/* Has nothing come for so long? *when_p is lowered to when that would be so. */
bool disti_agents_link_is_silent(const struct agents_link *link, uint32_t silence_ms,
                                 int64_t *when_p);

#endif
