/* SPDX-License-Identifier: BSD-3-Clause */
/* The store's server: its thread, its connections, and who it lets in. */
#include "store/server.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/log.h"
#include "base/process.h"
#include "base/thread.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

/* After the last rank: for the same processes to come as the next group. */
#define SCHEDULE_NEXT_MS 1000

/* The same after a loss, where ranks are still to come: they shall hear of it. */
#define SCHEDULE_LATE_MS 3000

static void schedule_fail(struct store_schedule *schedule, dist_status status, const char *text)
{
    if (schedule->status == DIST_OK) /* what came first is the cause of the rest */
        disti_text(schedule->text, sizeof(schedule->text), "%s", text);
    if (schedule->status == DIST_OK)
        schedule->status = status;
}

/* "rank 3, 5 and 12 more": those who have not come. */
static void schedule_list_absent(const struct disti_store_server *server, char *text, size_t size)
{
    size_t at = 0;
    int more = 0;

    for (int r = 0; r < server->world_size; r++) {
        if (server->ranks[r].state != STORE_ABSENT)
            continue;
        if (at + 40 > size)
            more++;
        else
            at += (size_t)snprintf(text + at, size - at, "%s%d", at ? ", " : "rank ", r);
    }
    if (more)
        snprintf(text + at, size - at, " and %d more", more);
}

/* Sees to the job, and stops the server at its end. Returns when to look again. */
static int64_t schedule_tick(struct disti_store_server *server)
{
    struct store_schedule *schedule = server->schedule;
    const bool formed = schedule->formed;
    const dist_status status = schedule->status;

    schedule->formed = schedule->formed || server->formed;
    for (int r = 0; r < server->world_size && schedule->status == DIST_OK; r++) {
        if (disti_store_ranks_is_gone(server, r, false))
            schedule_fail(schedule, DIST_ERR_PEER_LOST, server->ranks[r].news);
    }
    /* Ranks may have come and gone since the last look. */
    if (server->here > 0 || schedule->formed != formed || schedule->status != status)
        schedule->end_at = 0;
    if (server->here == 0 && !schedule->end_at) {
        /* Nobody is here: how long may that be so? */
        if (schedule->formed)
            schedule->end_at = disti_deadline_ms(SCHEDULE_NEXT_MS);
        else
            schedule->end_at = schedule->status == DIST_OK ? schedule->come_by
                                                           : disti_deadline_ms(SCHEDULE_LATE_MS);
    }
    if (!schedule->formed && disti_expired(schedule->come_by)) {
        char absent[256] = "", text[512];

        schedule_list_absent(server, absent, sizeof(absent));
        snprintf(text, sizeof(text),
                 "the scheduler waited %d ms for all %d workers, but only %d have joined; missing: "
                 "%s. Check whether they run and have the same MS_SCHED_HOST and MS_SCHED_PORT, or "
                 "raise MS_CLUSTER_TIMEOUT (seconds)",
                 server->schedule->timeout_ms, server->world_size, server->here, absent);
        schedule_fail(server->schedule, DIST_ERR_TIMEOUT, text);
        snprintf(text, sizeof(text), "the scheduler stopped waiting; missing: %s", absent);
        disti_store_coll_fail(server, -1, DISTI_NO_GROUP, DIST_ERR_TIMEOUT, text);
        schedule->end_at = disti_now_ns();
    }
    if (schedule->end_at && disti_expired(schedule->end_at)) {
        atomic_store(&server->stop_by, 0);
        atomic_store(&server->stop, true);
    }
    if (schedule->formed)
        return schedule->end_at ? schedule->end_at : INT64_MAX;
    return schedule->end_at && schedule->end_at < schedule->come_by ? schedule->end_at
                                                                    : schedule->come_by;
}

/* ---- the server's side of the handshake ---- */

/* Says in the log whom the store does not let in, and why; the first of them as warnings. */
__attribute__((format(printf, 3, 4))) static void
refusal(struct disti_store_server *server, const struct store_peer *peer, const char *format, ...)
{
    const struct sockaddr *from = (const struct sockaddr *)&peer->from;
    char why[256], host[DISTI_HOST_SIZE];
    bool told = ++server->refusals <= STORE_REFUSALS;
    va_list args;

    va_start(args, format);
    vsnprintf(why, sizeof(why), format, args);
    va_end(args);
    disti_address_text(from, host);
    disti_log_line(
        told ? DIST_LOG_WARN : DIST_LOG_INFO,
        "the store at port %d rejected a connection from %s port %d: %s%s", server->port, host,
        disti_address_port(from), why,
        server->refusals == STORE_REFUSALS ? " (further rejections are logged at level INFO)" : "");
}

static void admission_drop(struct disti_store_server *server, struct store_peer *peer)
{
    /* A client that gives up on its hello says goodbye, and comes again. */
    if (peer->in.head.op != DISTI_WIRE_GOODBYE)
        refusal(server, peer, "it sent an invalid message");
    peer->dead = server->reap = true;
}

static void admission_challenge(struct disti_store_server *server, struct store_peer *peer)
{
    const struct disti_wire_reader *in = &peer->in;
    unsigned char *challenge = peer->said.challenge;
    struct disti_wire_id id;

    if (in->head.op != DISTI_WIRE_HELLO || in->head.key_bytes != 0 ||
        in->head.value_bytes != DISTI_WIRE_ID || !disti_wire_get_id(disti_wire_value(in), &id) ||
        !disti_nonce(challenge)) {
        admission_drop(server, peer);
        return;
    }
    memcpy(peer->said.hello, disti_wire_value(in), DISTI_WIRE_ID);
    peer->said.binding_bytes = disti_tls_binding(peer->tls, peer->said.binding);
    disti_wire_put32(challenge + DISTI_NONCE_BYTES, server->secret.length ? DISTI_WIRE_SECRET : 0);
    memcpy(challenge + DISTI_NONCE_BYTES + 4, server->job, DISTI_WIRE_JOB);
    peer->challenged = true;
    disti_store_peer_reply(server, peer, in->head.id, DIST_OK,
                           disti_blob_copy(challenge, DISTI_WIRE_CHALLENGE));
}

static void admission_check(struct disti_store_server *server, struct store_peer *peer)
{
    const struct disti_wire_reader *in = &peer->in;
    unsigned char proof[DISTI_HMAC_BYTES];
    struct disti_wire_id id;

    if (in->head.op != DISTI_WIRE_PROOF || in->head.key_bytes != 0 ||
        in->head.value_bytes != DISTI_HMAC_BYTES || !disti_wire_get_id(peer->said.hello, &id)) {
        admission_drop(server, peer);
        return;
    }
    disti_wire_prove_client(&peer->said, &server->secret, proof);
    if (disti_hmac_same(proof, disti_wire_value(in))) {
        disti_store_ranks_join(server, peer, &id);
    } else {
        char host[DISTI_HOST_SIZE];

        /* What a refused client is told is no secret; the log also says where the store's own is
         * from. */
        disti_host_name(host);
        refusal(
            server, peer,
            "it claims to be rank %d on host %s, but did not prove that it has this job's secret, "
            "which on host %s is from %s%.80s",
            id.rank, id.host, host, server->secret.path[0] ? "" : "the launcher or rank 0",
            server->secret.path);
        peer->closing = true;
        disti_store_peer_refuse(server, peer, peer->in.head.id, DIST_ERR_MISMATCH,
                                "the store belongs to another job (choose another port, "
                                "MASTER_PORT), or has a different secret");
    }
}

/* A frame of a peer that has not yet proved that it belongs here. */
static void admit(struct disti_store_server *server, struct store_peer *peer)
{
    char text[128];

    if (peer->in.head.version != DISTI_WIRE_VERSION) {
        snprintf(text, sizeof(text),
                 "the store uses protocol %d, but this rank uses %d: use the same version of "
                 "libdist on all ranks",
                 DISTI_WIRE_VERSION, peer->in.head.version);
        refusal(server, peer, "%s", text);
        peer->closing = true;
        disti_store_peer_refuse(server, peer, peer->in.head.id, DIST_ERR_RENDEZVOUS, "%s", text);
    } else if (peer->challenged) {
        admission_check(server, peer);
    } else {
        admission_challenge(server, peer);
    }
}

/* ---- requests ---- */

static void serve_numbers(struct disti_store_server *server, struct store_peer *peer)
{
    const struct disti_wire_head *head = &peer->in.head;
    unsigned char first[8];

    if (head->value_bytes != 4) {
        peer->dead = server->reap = true;
        return;
    }
    disti_wire_put64(first, (uint64_t)server->numbers + 1);
    server->numbers += disti_wire_get32(disti_wire_value(&peer->in));
    disti_store_peer_reply(server, peer, head->id, DIST_OK, disti_blob_copy(first, sizeof(first)));
}

/* A complete frame of a peer. */
static void serve_frame(struct disti_store_server *server, struct store_peer *peer)
{
    const struct disti_wire_head *head = &peer->in.head;

    if (head->version != DISTI_WIRE_VERSION)
        peer->dead = server->reap = true;
    else if (head->op == DISTI_WIRE_REPORT)
        disti_store_ranks_report(server, peer);
    else if (head->op == DISTI_WIRE_LEAVING)
        disti_store_leavings_take(server, peer);
    else if (head->op == DISTI_WIRE_REFUSE)
        disti_store_coll_take_refusal(server, peer);
    else if (head->op == DISTI_WIRE_GOODBYE)
        disti_store_ranks_goodbye(server, peer);
    else {
        struct store_request request = {.op = head->op,
                                        .id = head->id,
                                        .deadline =
                                            disti_deadline_ms(head->arg > 0 ? head->arg : 0)};

        request.key.length = head->key_bytes;
        memcpy(request.key.bytes, peer->in.body, head->key_bytes);
        switch (head->op) {
        case DISTI_WIRE_NUMBERS:
            serve_numbers(server, peer);
            break;
        case DISTI_WIRE_SEEN:
            disti_store_peer_reply(server, peer, head->id, DIST_OK,
                                   disti_blob_copy(server->seen, strlen(server->seen)));
            break;
        case DISTI_WIRE_ALL_GATHER:
        case DISTI_WIRE_ARRIVE:
        case DISTI_WIRE_BROADCAST:
        case DISTI_WIRE_LEAVE:
            disti_store_coll_join(server, peer, &request);
            break;
        default:
            peer->dead = server->reap = true;
        }
    }
}

/* One connection at the store's server: accepting, reading, writing, ending. */

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
    if (!STAILQ_EMPTY(&peer->out) || (peer->tls && disti_tls_waits_to_send(peer->tls)))
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
    STAILQ_INIT(&peer->out);
    peer->events = event.events;
    event.data.ptr = peer;
    if ((server->tls && !peer->tls) || epoll_ctl(server->epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
        disti_tls_free(peer->tls);
        free(peer);
        return NULL;
    }
    LIST_INSERT_HEAD(&server->peers, peer, next);
    server->strangers++;
    return peer;
}

static void peer_out_pop(struct store_peer *peer)
{
    struct store_out *out = STAILQ_FIRST(&peer->out);

    STAILQ_REMOVE_HEAD(&peer->out, next);
    peer->out_sent = 0;
    peer->out_bytes -= DISTI_WIRE_HEAD + (out->body ? out->body->bytes : 0);
    disti_blob_drop(out->body);
    free(out);
}

/* Sends what the socket takes of the first frame. False: it takes no more, or broke. */
static bool peer_send_first(struct disti_store_server *server, struct store_peer *peer)
{
    struct store_out *out = STAILQ_FIRST(&peer->out);
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
    while (!STAILQ_EMPTY(&peer->out) && peer_send_first(server, peer))
        ;
    if (STAILQ_EMPTY(&peer->out) && peer->closing)
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
    STAILQ_INSERT_TAIL(&peer->out, out, next);
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
                serve_frame(server, peer);
            else
                admit(server, peer);
            disti_wire_next(&peer->in);
        } else if (event != DISTI_WIRE_MORE) {
            /* The connection is of no use any more. */
            if (peer->rank < 0 && event == DISTI_WIRE_NO_TLS)
                refusal(server, peer, "%s", disti_tls_why(peer->tls));
            else if (peer->rank < 0 && event == DISTI_WIRE_STRANGE && !peer->tls &&
                     disti_tls_looks_like(peer->in.head_bytes))
                refusal(server, peer,
                        "it uses TLS, but the store does not: set DIST_TLS_CERT, DIST_TLS_KEY and "
                        "DIST_TLS_CA on all ranks, or on none");
            else if (peer->rank < 0 && event != DISTI_WIRE_CLOSED)
                refusal(server, peer, "it uses another protocol");
            peer_die(server, peer);
        }
    }
}

/* One without a hello has used up its time or its place: if there is none yet, it has to go. */
static void peer_dismiss(struct disti_store_server *server, struct store_peer *peer)
{
    /* A machine with much else to do may have left its words unread. */
    peer_read(server, peer);
    if (peer->rank >= 0 || peer->dead)
        return;
    refusal(server, peer, "%s",
            peer->tls && !disti_tls_is_up(peer->tls)
                ? "it did not complete the TLS handshake in time"
            : peer->challenged ? "it did not prove its secret in time"
                               : "it sent nothing");
    peer_die(server, peer);
}

static struct store_peer *peer_oldest_stranger(const struct disti_store_server *server)
{
    struct store_peer *oldest = NULL, *peer;

    LIST_FOREACH(peer, &server->peers, next)
    {
        if (peer->rank < 0 && !peer->dead)
            oldest = peer;
    }
    return oldest;
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

static void peer_accept(struct disti_store_server *server)
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
            peer_dismiss(server, oldest);
        if (server->reap)
            return;
    }
    if (fd >= 0)
        return; /* and is called again once others have been heard */
    /* No descriptor is left for a caller: a stranger goes, if one has been here for long enough to
     * prove what it is. */
    oldest = errno == EMFILE || errno == ENFILE ? peer_oldest_stranger(server) : NULL;
    if (oldest && disti_left_ms(oldest->hello_by) <= STORE_HELLO_MS - STORE_STAY_MS) {
        peer_dismiss(server, oldest);
        if (server->reap)
            return; /* and is called again once that is reaped */
    }
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED)
        disti_store_server_back_off(server);
}

static void peer_event(struct disti_store_server *server, struct store_peer *peer, uint32_t events)
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

static void peer_free(struct disti_store_server *server, struct store_peer *peer)
{
    LIST_REMOVE(peer, next);
    if (peer->rank < 0)
        server->strangers--;
    while (!STAILQ_EMPTY(&peer->out))
        peer_out_pop(peer);
    disti_wire_next(&peer->in);
    disti_tls_free(peer->tls);
    /* A forked child that still has a copy would keep epoll telling of a peer that is no more. */
    epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, peer->fd, NULL);
    disti_descriptor_close(peer->fd);
    free(peer);
}

/* ---- start, loop, stop ---- */

static void server_close(int *fd)
{
    if (*fd >= 0)
        disti_descriptor_close(*fd);
    *fd = -1;
}

void disti_store_server_forget(struct disti_store_server *server)
{
    while (!LIST_EMPTY(&server->peers))
        peer_free(server, LIST_FIRST(&server->peers));
    disti_store_ranks_clear(server);
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

dist_status disti_store_server_listen(const char *host, int port, int world_size, int64_t deadline,
                                      struct disti_store_server **server_p)
{
    struct disti_store_server *server;
    struct store_rank *ranks;
    size_t wanted, most;
    dist_status status;

    if (world_size < 1)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "a store needs a world size of 1 or more, not %d", world_size);
    /* Every rank keeps its connection. Without a descriptor for each the job would wait in vain. */
    wanted = (size_t)world_size + STORE_OWN_FILES;
    most = disti_descriptor_allow(wanted);
    if (most < wanted)
        return disti_fail(
            DIST_ERR_SYSTEM,
            "the store needs a descriptor for each of %d ranks, but this process may open only "
            "%zu: raise the hard limit of open files (ulimit -Hn) to %zu or more",
            world_size, most, wanted);
    server = calloc(1, sizeof(*server));
    ranks = calloc((size_t)world_size, sizeof(*ranks));
    if (!server || !ranks) {
        free(server);
        free(ranks);
        return disti_fail(DIST_ERR_NO_MEMORY,
                          "no memory for a store of %d ranks: free memory, or start fewer ranks",
                          world_size);
    }
    server->epoll_fd = server->listen_fd = server->wake_fd = server->discovery_fd = -1;
    TAILQ_INIT(&server->failures);
    server->world_size = world_size;
    server->holder = -1;
    server->ranks = ranks;
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
    disti_store_server_forget(server);
    return status;
}

int disti_store_server_port(const struct disti_store_server *server)
{
    return server->port;
}

void disti_store_server_set_word(struct disti_store_server *server, const char *word)
{
    disti_secret_set_token(&server->secret, word);
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

void disti_store_server_set_discovery(struct disti_store_server *server, int fd)
{
    server->discovery_fd = fd;
    server_watch(server, &server->discovery_fd);
}

/* The dead are taken away; that may send notices, which may show more dead. */
static void server_reap(struct disti_store_server *server)
{
    while (server->reap) {
        struct store_peer *peer = LIST_FIRST(&server->peers), *next;

        server->reap = false;
        for (; peer; peer = next) {
            next = LIST_NEXT(peer, next);
            if (!peer->dead)
                continue;
            if (peer->rank >= 0 && server->ranks[peer->rank].peer == peer)
                disti_store_ranks_lost(server, peer);
            peer_free(server, peer);
        }
    }
}

void disti_store_server_back_off(struct disti_store_server *server)
{
    if (!server->short_told)
        disti_notice("the store cannot accept connections and retries: %s%s", strerror(errno),
                     errno == EMFILE ? ". Raise the limit of open files (ulimit -n) of the process "
                                       "that holds it"
                                     : "");
    server->short_told = true;
    epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, server->listen_fd, NULL);
    if (server->discovery_fd >= 0)
        epoll_ctl(server->epoll_fd, EPOLL_CTL_DEL, server->discovery_fd, NULL);
    server->accept_at = disti_deadline_ms(STORE_BACK_OFF_MS);
}

static void server_sooner(int64_t *deadline, int64_t candidate)
{
    if (candidate < *deadline)
        *deadline = candidate;
}

/* Handles what is due; returns how long epoll may wait. */
static int server_tick(struct disti_store_server *server)
{
    struct store_peer *peer;
    int64_t next = INT64_MAX;

    if (server->accept_at && disti_expired(server->accept_at)) {
        server->accept_at = 0;
        server_watch(server, &server->listen_fd);
        if (server->discovery_fd >= 0)
            server_watch(server, &server->discovery_fd);
    }
    if (server->accept_at)
        server_sooner(&next, server->accept_at);
    for (peer = LIST_FIRST(&server->peers); peer && server->strangers;
         peer = LIST_NEXT(peer, next)) {
        if (peer->rank >= 0)
            continue;
        if (disti_expired(peer->hello_by))
            peer_dismiss(server, peer);
        server_sooner(&next, peer->hello_by);
    }
    server_sooner(&next, disti_store_coll_tick(server));
    server_reap(server);
    /* Last: what was found to be lost just now counts. */
    if (server->schedule)
        server_sooner(&next, schedule_tick(server));
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

/* True if it is to stop, and nobody is here, nor still to come and would look for the store in
 * vain; or at the time limit. */
static bool server_done(const struct disti_store_server *server)
{
    bool left = server->here == 0;

    for (int r = 0; left && server->expects_all && r < server->world_size; r++)
        left = server->ranks[r].state != STORE_ABSENT;
    return atomic_load(&server->stop) && (left || disti_expired(atomic_load(&server->stop_by)));
}

/* Serves in this thread until it is stopped. Returns NULL. */
static void *server_main(void *arg)
{
    struct disti_store_server *server = arg;
    const struct disti_notice goodbye = {.rank = server->holder,
                                         .group = DISTI_NO_GROUP,
                                         .graceful = true,
                                         .text = "the store was closed"};
    struct epoll_event events[64];
    uint64_t woken;

    disti_log_use(server->log);
    while (!server_done(server)) {
        int wait_ms = server_tick(server);
        int count = epoll_wait(server->epoll_fd, events, 64, wait_ms);

        /* Peers are only marked dead here, and freed by server_reap: no event dangles. */
        for (int i = 0; i < count; i++) {
            const struct epoll_event *event = &events[i];

            if (event->data.ptr == &server->listen_fd)
                peer_accept(server);
            else if (event->data.ptr == &server->discovery_fd)
                disti_store_discovery_answer(server);
            else if (event->data.ptr == &server->wake_fd)
                (void)!read(server->wake_fd, &woken, sizeof(woken));
            else
                peer_event(server, event->data.ptr, event->events);
        }
        server_reap(server);
        if (server->formed && (server->formed_fn || server->discovery_fd >= 0))
            server_formed(server);
    }
    if (server->here > 0)
        disti_store_ranks_push(server, &goodbye, NULL);
    return NULL;
}

dist_status disti_store_server_run(struct disti_store_server *server)
{
    int error;

    server->log = disti_log_current();
    error = disti_thread_create(&server->thread, server_main, server);
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
    disti_store_server_forget(server);
}

dist_status disti_store_server_schedule(struct disti_store_server *server, int timeout_ms)
{
    struct store_schedule schedule = {.timeout_ms = timeout_ms,
                                      .come_by = disti_deadline_ms(timeout_ms)};

    server->schedule = &schedule;
    server->log = disti_log_current();
    server_main(server);
    disti_store_server_stop(server, 0);
    return schedule.status == DIST_OK ? DIST_OK : disti_fail(schedule.status, "%s", schedule.text);
}
