/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_minimal.so: a transport over Unix sockets; how messages move, and what the library sees. */
#include "minimal.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/*
 * A pair of ranks has one connection. A message goes as packets, whose borders the socket keeps:
 *
 *     | envelope |   | 64 KiB of data |   | 64 KiB |   | the rest |
 *
 * It is received in memory of ours, behind a request of ours, and given to its sink as a whole.
 */
#define MINIMAL_HEAD sizeof(struct dist_envelope)
#define MINIMAL_PIECE ((size_t)64 << 10)

/* ---- lists ---- */

/* Where the oldest of a peer (-1: any) with that tag (NULL: any) hangs, or else the list's end. */
static struct dist_request **minimal_find(struct dist_request **list, int peer, const uint64_t *tag)
{
    while (*list &&
           ((peer >= 0 && (*list)->peer != peer) || (tag && (*list)->envelope.tag != *tag)))
        list = &(*list)->next;
    return list;
}

static void minimal_append(struct dist_request **list, struct dist_request *request)
{
    while (*list)
        list = &(*list)->next;
    request->next = NULL;
    *list = request;
}

static struct dist_request *minimal_take(struct dist_request **link)
{
    struct dist_request *request = *link;

    *link = request->next;
    return request;
}

/* ---- moving ---- */

/* Ends what needs a peer that has gone; what came early stays. The status comes last: from then on
 * a request is the engine's again. */
static void minimal_lose(struct minimal *m, int rank)
{
    struct dist_request **lists[] = {&m->sends, &m->receives}, **link;
    dist_status status = DIST_OK;

    for (int i = 0; i < 2; i++) {
        while (*(link = minimal_find(lists[i], rank, NULL))) {
            if (status == DIST_OK)
                status =
                    m->host->fail(DIST_ERR_PEER_LOST,
                                  "minimal: rank %d lost rank %d: see its output", m->rank, rank);
            minimal_take(link)->status = status;
        }
    }
    free(m->peers[rank].arriving);
    m->peers[rank].arriving = NULL;
    if (m->peers[rank].fd >= 0)
        close(m->peers[rank].fd);
    m->peers[rank].fd = MINIMAL_GONE;
}

/* Sends what the socket takes. One that breaks is left to be read to its end. */
static int minimal_push(struct minimal *m, int rank)
{
    struct dist_request **link, *request;
    int moved = 0;

    while ((request = *(link = minimal_find(&m->sends, rank, NULL)))) {
        size_t at = request->moved, end = MINIMAL_HEAD + request->envelope.bytes;
        size_t piece = end - at < MINIMAL_PIECE ? end - at : MINIMAL_PIECE;
        ssize_t sent =
            at ? send(m->peers[rank].fd, (const char *)request->data + (at - MINIMAL_HEAD), piece,
                      MSG_NOSIGNAL)
               : send(m->peers[rank].fd, &request->envelope, MINIMAL_HEAD, MSG_NOSIGNAL);

        if (sent < 0) {
            if (errno != EAGAIN)
                shutdown(m->peers[rank].fd, SHUT_RDWR);
            break;
        }
        moved++;
        request->moved += (size_t)sent;
        if (request->moved == end)
            minimal_take(link)->status = DIST_OK;
    }
    return moved;
}

static void minimal_send(void *state, struct dist_request *request)
{
    struct minimal *m = state;
    int rank = request->peer;

    request->moved = 0;
    minimal_append(&m->sends, request);
    if (m->peers[rank].fd >= 0)
        minimal_push(m, rank);
    else if (m->peers[rank].fd == MINIMAL_GONE)
        minimal_lose(m, rank);
}

/* A message has come to its receive, which ends: well, if both mean the same call. */
static void minimal_deliver(struct minimal *m, struct dist_request *request,
                            struct dist_request *message)
{
    if (request->envelope.fingerprint == message->envelope.fingerprint &&
        request->envelope.bytes == message->envelope.bytes) {
        m->host->sink_apply(&request->sink, 0, message + 1, message->moved);
        request->status = DIST_OK;
    } else {
        request->arrived = message->envelope;
        request->status = DIST_ERR_MISMATCH;
    }
    free(message);
}

static void minimal_recv(void *state, struct dist_request *request)
{
    struct minimal *m = state;
    struct dist_request **early = minimal_find(&m->early, request->peer, &request->envelope.tag);

    if (*early) {
        minimal_deliver(m, request, minimal_take(early));
        return;
    }
    minimal_append(&m->receives, request);
    if (m->peers[request->peer].fd == MINIMAL_GONE)
        minimal_lose(m, request->peer);
}

/* The whole of a message is there. */
static void minimal_arrived(struct minimal *m, struct dist_request *message)
{
    struct dist_request **link = minimal_find(&m->receives, message->peer, &message->envelope.tag);

    m->peers[message->peer].arriving = NULL;
    if (*link)
        minimal_deliver(m, minimal_take(link), message);
    else
        minimal_append(&m->early, message);
}

/* Reads a packet. Returns 1, 0 or a status. */
static int minimal_pull(struct minimal *m, int rank)
{
    struct minimal_peer *peer = &m->peers[rank];
    struct dist_request *message = peer->arriving;
    struct dist_envelope head = {0};
    ssize_t got = message ? recv(peer->fd, (char *)(message + 1) + message->moved,
                                 message->envelope.bytes - message->moved, 0)
                          : recv(peer->fd, &head, MINIMAL_HEAD, 0);

    if (got < 0 && (errno == EAGAIN || errno == ECONNRESET))
        return errno == ECONNRESET; /* told once, before the last words */
    if (got <= 0 || (!message && got < (ssize_t)MINIMAL_HEAD)) {
        minimal_lose(m, rank);
        return 1;
    }
    if (message) {
        message->moved += (size_t)got;
    } else {
        message = peer->arriving = calloc(head.bytes / sizeof(*message) + 2, sizeof(*message));
        if (!message)
            return m->host->fail(DIST_ERR_NO_MEMORY, "minimal: no memory for %llu bytes of rank %d",
                                 (unsigned long long)head.bytes, rank);
        message->peer = rank;
        message->envelope = head;
    }
    if (message->moved == message->envelope.bytes)
        minimal_arrived(m, message);
    return 1;
}

static int minimal_progress(void *state)
{
    struct minimal *m = state;
    struct epoll_event events[16];
    int count = epoll_wait(m->epoll, events, 16, 0), moved = 0;

    for (int i = 0; i < count; i++) {
        int rank = (int)events[i].data.u32, got = 1;

        moved += minimal_push(m, rank);
        while (got > 0 && m->peers[rank].fd >= 0) {
            got = rank == m->rank ? minimal_accept(m) : minimal_pull(m, rank);
            moved += got > 0;
        }
        if (got < 0)
            return got;
    }
    return moved;
}

/* ---- looking, sleeping, leaving ---- */

static int minimal_probe_tag(void *state, uint64_t tag)
{
    const struct dist_request *early = *minimal_find(&((struct minimal *)state)->early, -1, &tag);

    return early ? early->peer : -1;
}

/* What progress asks: readable while there is an edge that it has not seen. */
static int minimal_arm(void *state)
{
    return ((const struct minimal *)state)->epoll;
}

static void minimal_disarm(void *state)
{
    (void)state;
}

static void minimal_close(void *state)
{
    struct minimal *m = state;

    m->sends = m->receives = NULL; /* dropped */
    while (m->early)
        free(minimal_take(&m->early));
    while (m->ranks > 0)
        minimal_lose(m, --m->ranks);
    free(m->peers);
    if (m->epoll >= 0)
        close(m->epoll);
}

static const struct dist_transport minimal_transport = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_transport),
    .name = "minimal",
    .summary = "Unix sockets between processes of one machine",
    .state_size = sizeof(struct minimal),
    .probe = minimal_probe,
    .open = minimal_open,
    .address = minimal_address,
    .reach = minimal_reach,
    .connect = minimal_connect,
    .send = minimal_send,
    .recv = minimal_recv,
    .progress = minimal_progress,
    .probe_tag = minimal_probe_tag,
    .arm = minimal_arm,
    .disarm = minimal_disarm,
    .close = minimal_close,
};

/* The one symbol that the library looks for. */
DIST_API const struct dist_module dist_module_entry = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_module),
    .transports = (const struct dist_transport *const[]){&minimal_transport, NULL},
};
