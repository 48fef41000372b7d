/* SPDX-License-Identifier: BSD-3-Clause */
/* The server's connections: accepting, reading, telling, letting go. */
#include "launch/agents/server.h"

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/net.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define PROVE_MS 30000     /* for a stranger to prove itself */
#define GOING_MS 2000      /* for a peer to hang up once it is told to go */
#define STRANGERS_MAX 4096 /* the oldest goes when another one comes */
#define STRANGERS_TLS 256  /* those who may cost a session as well */
#define ACCEPT_AGAIN_MS 100
#define STAY_MS 1000      /* that a stranger has where no descriptor is left for others */
#define STRANGER_FRAMES 8 /* of one that is no member: more than it takes */
#define LOOKS 4           /* in the time between two signs of life */
#define EVENTS 64         /* at a time */

dist_status disti_agents_server_open(const struct disti_agents_config *config, int epoll_fd,
                                     bool everywhere, int64_t deadline,
                                     struct agents_server **server_p)
{
    struct agents_server *server = calloc(1, sizeof(*server));
    struct epoll_event event = {.events = EPOLLIN};
    dist_status status;

    if (!server)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory to serve the agents: free some");
    server->config = config;
    server->epoll_fd = epoll_fd;
    server->listen_fd = -1;
    snprintf(server->host, sizeof(server->host), "%s", config->host);
    status = disti_tls_open(&server->tls);
    if (status == DIST_OK && everywhere)
        status = disti_listen_everywhere(config->endpoint_port, &server->listen_fd, &server->port);
    else if (status == DIST_OK)
        status = disti_listen(config->endpoint_host, config->endpoint_port, deadline,
                              &server->listen_fd, &server->port);
    if (status == DIST_OK && epoll_ctl(epoll_fd, EPOLL_CTL_ADD, server->listen_fd, &event))
        status = disti_fail_errno(DIST_ERR_SYSTEM, "cannot watch the endpoint's port");
    if (status != DIST_OK) {
        disti_agents_server_close(server);
        return status;
    }
    server->is_patient = true;
    disti_agents_meeting_begin(server);
    *server_p = server;
    return DIST_OK;
}

static void server_free_peer(struct agents_server *server, struct agents_peer **at)
{
    struct agents_peer *peer = *at;

    if (!agents_is_member(peer))
        server->strangers--;
    *at = peer->next;
    disti_agents_link_close(&peer->link);
    free(peer);
}

void disti_agents_server_close(struct agents_server *server)
{
    if (!server)
        return;
    while (server->peers)
        server_free_peer(server, &server->peers);
    if (server->listen_fd >= 0)
        disti_descriptor_close(server->listen_fd);
    disti_tls_context_free(server->tls);
    free(server);
}

int disti_agents_count(const struct agents_server *server, enum agents_peer_state state)
{
    int count = 0;

    for (const struct agents_peer *p = server->peers; p; p = p->next)
        count += p->state == state;
    return count;
}

int disti_agents_server_count(const struct agents_server *server)
{
    int count = 0;

    for (const struct agents_peer *p = server->peers; p; p = p->next)
        count++;
    return count;
}

void disti_agents_tell_all(struct agents_server *server, uint8_t op, const void *value,
                           size_t bytes)
{
    for (struct agents_peer *p = server->peers; p; p = p->next) {
        if (agents_is_member(p))
            disti_agents_link_send(&p->link, op, value, bytes);
    }
}

void disti_agents_note(struct agents_server *server, const char *format, ...)
{
    char text[DISTI_AGENTS_TEXT];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    for (struct agents_peer *p = server->peers; p; p = p->next) {
        if (agents_is_member(p))
            disti_agents_link_send_text(&p->link, AGENTS_NOTE, text);
    }
}

static void server_let_go(struct agents_server *server, struct agents_peer *peer, const char *text)
{
    if (agents_is_member(peer))
        server->strangers++;
    peer->state = AGENTS_GOING;
    peer->until_ns = disti_deadline_ms(GOING_MS);
    disti_agents_link_send_text(&peer->link, AGENTS_REFUSED, text);
}

void disti_agents_refuse(struct agents_server *server, struct agents_peer *peer, const char *format,
                         ...)
{
    char text[DISTI_AGENTS_TEXT];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    server_let_go(server, peer, text);
}

void disti_agents_break(struct agents_server *server, const char *format, ...)
{
    char text[DISTI_AGENTS_TEXT];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    server->phase = AGENTS_OVER;
    for (struct agents_peer *p = server->peers; p; p = p->next) {
        if (agents_is_member(p))
            server_let_go(server, p, text);
    }
}

static struct agents_peer *server_oldest_stranger(const struct agents_server *server)
{
    struct agents_peer *p = server->peers;

    while (p && (agents_is_member(p) || p->link.is_broken))
        p = p->next;
    return p;
}

/* The oldest who is not welcome yet hangs up for one more. */
static void server_make_room(struct agents_server *server)
{
    int most = disti_descriptor_for_strangers(server->tls ? STRANGERS_TLS : STRANGERS_MAX);
    struct agents_peer *oldest = server_oldest_stranger(server);

    if (server->strangers > most && oldest)
        oldest->link.is_broken = true;
}

/* Where no descriptor is left, if he has been here for long enough to prove what he is. */
static bool server_find_descriptor(const struct agents_server *server)
{
    struct agents_peer *oldest = server_oldest_stranger(server);

    if (!oldest || disti_left_ms(oldest->until_ns) > PROVE_MS - STAY_MS)
        return false;
    oldest->link.is_broken = true;
    return true;
}

static void server_add(struct agents_server *server, int fd)
{
    struct agents_peer **at = &server->peers, *peer = calloc(1, sizeof(*peer));

    disti_socket_tune(fd);
    if (!peer) {
        disti_descriptor_close(fd);
        return;
    }
    if (!disti_agents_link_open(&peer->link, fd, server->epoll_fd, peer, AGENTS_LIMIT_STRANGER)) {
        free(peer);
        return;
    }
    if (server->tls)
        peer->link.in.tls = disti_tls_accept(server->tls, fd);
    peer->link.is_broken = server->tls && !peer->link.in.tls;
    peer->until_ns = disti_deadline_ms(PROVE_MS);
    peer->node_rank = -1;
    while (*at)
        at = &(*at)->next;
    *at = peer;
    server->strangers++;
    server_make_room(server);
}

/* Where there is no descriptor left the port is not watched for a while: it would not rest. */
static bool server_accept(struct agents_server *server, int64_t *when_p)
{
    struct epoll_event event = {.events = EPOLLIN};
    bool some = false;
    int fd;

    if (server->accept_ns && !disti_expired(server->accept_ns)) {
        agents_sooner(when_p, server->accept_ns);
        return false;
    }
    if (server->accept_ns)
        epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, server->listen_fd, &event);
    server->accept_ns = 0;
    for (int i = 0; i < EVENTS; i++, some = true) {
        fd = disti_descriptor_own(
            accept4(server->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (fd < 0)
            break;
        server_add(server, fd);
    }
    if (fd < 0 && (errno == EMFILE || errno == ENFILE) && server_find_descriptor(server))
        return true; /* and is called again once the sweep has closed it */
    if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        event.events = 0;
        epoll_ctl(server->epoll_fd, EPOLL_CTL_MOD, server->listen_fd, &event);
        server->accept_ns = disti_deadline_ms(ACCEPT_AGAIN_MS);
        agents_sooner(when_p, server->accept_ns);
    }
    return some;
}

/* No member hears of it any more; the job does. */
static void server_lose(struct agents_server *server, struct agents_peer *peer, const char *why)
{
    enum agents_peer_state was = peer->state;

    if (!agents_is_member(peer)) {
        peer->link.is_broken = true;
        return;
    }
    server_let_go(server, peer, why);
    disti_agents_course_lost(server, peer, was, why);
}

/* False: senseless. */
static bool server_hear(struct agents_server *server, struct agents_peer *peer)
{
    const struct disti_wire_reader *in = &peer->link.in;
    const unsigned char *value = disti_wire_value(in);
    struct disti_agents_failure failure;
    char why[DISTI_AGENTS_TEXT];

    switch (in->head.op) {
    case AGENTS_BEAT:
        return in->head.value_bytes == 0;
    case AGENTS_READY:
        if (peer->state != AGENTS_PEER_STOPPING || in->head.value_bytes != AGENTS_READY_BYTES ||
            disti_wire_get32(value) > 65535 || disti_wire_get32(value + 4) > 65535)
            return false;
        peer->member.master_port = disti_wire_get32(value);
        peer->member.store_port = disti_wire_get32(value + 4);
        peer->state = AGENTS_PEER_READY;
        return true;
    case AGENTS_ENDED:
        if (in->head.value_bytes != 4)
            return false;
        if (peer->state == AGENTS_PEER_RUNNING)
            disti_agents_course_ended(server, peer, disti_wire_get32(value) > 0);
        return true;
    case AGENTS_FAILED:
        if (!disti_agents_get_failure(in, &failure))
            return false;
        disti_agents_course_failed(server, peer, &failure);
        return true;
    case AGENTS_LEAVE:
        if (!disti_agents_get_sentence(in, why))
            return false;
        server_lose(server, peer, why);
        return true;
    default:
        return false;
    }
}

static void server_frame(struct agents_server *server, struct agents_peer *peer)
{
    bool sense = agents_is_member(peer)
                     ? server_hear(server, peer)
                     : peer->state == AGENTS_GOING || disti_agents_admit(server, peer);

    disti_wire_next(&peer->link.in);
    if (!sense)
        server_lose(server, peer, "it sent what no agent sends");
    if (!agents_is_member(peer) && ++peer->frames >= STRANGER_FRAMES)
        peer->link.is_broken = true;
}

static void server_read(struct agents_server *server, struct agents_peer *peer)
{
    enum disti_wire_event event = DISTI_WIRE_MORE;

    for (int i = 0; i < EVENTS && !peer->link.is_broken; i++) {
        event = disti_agents_link_read(&peer->link);
        if (event != DISTI_WIRE_FRAME)
            break;
        server_frame(server, peer);
    }
    if (event == DISTI_WIRE_FRAME || event == DISTI_WIRE_MORE)
        return;
    server_lose(server, peer,
                event == DISTI_WIRE_CLOSED ? "its connection broke: it ended, or was killed"
                                           : "it sent what no agent sends");
    peer->link.is_broken = true;
}

/* Signs of life, to and from all. */
static void server_watch(struct agents_server *server, int64_t *when_p)
{
    uint32_t interval = (uint32_t)server->config->keep_alive_interval_ms;
    uint32_t silence = interval * (uint32_t)server->config->keep_alive_max_attempt;
    char why[DISTI_AGENTS_TEXT];

    snprintf(why, sizeof(why), "it gave no sign of life for %.1f s", silence / 1e3);
    for (struct agents_peer *p = server->peers; p; p = p->next) {
        if (!agents_is_member(p)) {
            agents_sooner(when_p, p->until_ns);
            continue;
        }
        disti_agents_link_beat(&p->link, interval, when_p);
        if (p->link.is_broken)
            server_lose(server, p, "its connection broke");
        else if (disti_agents_link_is_silent(&p->link, silence, when_p))
            server_lose(server, p, why);
    }
}

static void server_sweep(struct agents_server *server)
{
    for (struct agents_peer **at = &server->peers; *at;) {
        if (!agents_is_member(*at) && ((*at)->link.is_broken || disti_expired((*at)->until_ns)))
            server_free_peer(server, at);
        else
            at = &(*at)->next;
    }
}

/*
 * There is more to read. Who seems silent may have spoken long ago, so that is read first, but not
 * for ever: strangers may always have something to say.
 */
static bool server_reads_on(struct agents_server *server)
{
    if (!server->look_by_ns)
        server->look_by_ns = disti_deadline_ms(server->config->keep_alive_interval_ms / LOOKS);
    return !disti_expired(server->look_by_ns);
}

bool disti_agents_server_move(struct agents_server *server, int64_t *when_p)
{
    struct epoll_event events[EVENTS];
    bool some = server_accept(server, when_p);
    int n = epoll_wait(server->epoll_fd, events, EVENTS, 0);

    for (int i = 0; i < n; i++) {
        struct agents_peer *peer = events[i].data.ptr;

        if (!peer)
            continue;
        some = true;
        if (events[i].events & EPOLLOUT)
            disti_agents_link_flush(&peer->link);
        server_read(server, peer);
    }
    server_sweep(server);
    if (n == EVENTS && server_reads_on(server))
        return true;
    server->look_by_ns = 0;
    disti_agents_course_look(server, when_p);
    server_watch(server, when_p);
    disti_agents_meeting_look(server, when_p);
    return some;
}
