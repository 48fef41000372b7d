/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_minimal.so: a complete transport, over Unix sockets between processes of one machine. */
#include <dist/backend.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/*
 * A rank reads one socket, and has one socket to write to each peer. A message is sent as
 * datagrams, which arrive whole, once and in order:
 *
 *     | head | 64 KiB of data |   | head | 64 KiB |   | head | the remaining bytes |
 *
 * The receiver collects them in a message, which it passes to the sink as a whole.
 */
#define MINIMAL_PIECE ((size_t)64 << 10)
#define MINIMAL_CHECK_NS 250000000 /* interval between checks of the peers: 250 ms */
enum { MINIMAL_ANY_RANK = -1, MINIMAL_NO_RANK = -2 };

/* Ranks can reach each other if the members before `name` are equal. */
struct minimal_address {
    uint64_t located; /* 1: boot and network are valid; otherwise the rank cannot be reached */
    char boot[40], network[40]; /* identify the machine, and the namespace of its sockets' names */
    struct sockaddr_un name;    /* name of the socket to write to */
    uint64_t key; /* must be in every message, because other processes can see the name */
};

struct minimal_head {
    uint64_t key, from; /* the receiver's key; the sender's rank */
    struct dist_envelope envelope;
};

struct minimal_peer {
    struct minimal_address address;
    int fd;                        /* socket to write to the peer; -1: not connected, or lost */
    struct dist_request *arriving; /* the message that has been received in part */
};

/* The state of one instance. Each list contains the requests or messages of all peers. */
struct minimal {
    const struct dist_host *host;
    int rank, ranks, fd, last_check; /* fd: socket to read; last_check: time of the last check, in
                                     units of MINIMAL_CHECK_NS */
    struct minimal_address address;
    struct minimal_peer *peers;
    struct dist_request *sends, *receives, *early; /* early: messages without a receive */
    char piece[MINIMAL_PIECE];
};

/* A zero byte at the start makes the name abstract, so that it vanishes with the socket. */
static dist_status minimal_open(void *state, const struct dist_transport_config *config)
{
    struct minimal *m = state;
    struct minimal_address *mine = &m->address;
    int boot = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    mine->located = read(boot, mine->boot, 40) > 0 && getrandom(&mine->key, 8, 0) == 8 &&
                    readlink("/proc/self/ns/net", mine->network, 40) > 0;
    close(boot);
    m->host = config->host;
    m->rank = config->rank;
    m->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    m->peers = calloc((size_t)config->world_size, sizeof(*m->peers));
    while (m->peers && m->ranks < config->world_size)
        m->peers[m->ranks++].fd = -1;
    mine->name.sun_family = AF_UNIX;
    if (m->fd < 0 || !m->peers || getrandom(mine->name.sun_path + 1, 32, 0) != 32 ||
        bind(m->fd, (struct sockaddr *)&mine->name, sizeof(mine->name)) != 0)
        return m->host->fail(DIST_ERR_SYSTEM, "minimal: rank %d has no socket: %m", m->rank);
    return DIST_OK;
}

static dist_status minimal_address(void *state, void *blob, size_t *size_p)
{
    const struct minimal *m = state;

    memcpy(blob, &m->address, sizeof(m->address));
    *size_p = sizeof(m->address);
    return DIST_OK;
}

static dist_status minimal_reach(void *state, const void *blob, size_t size,
                                 struct dist_reach *reach_p)
{
    const struct minimal_address *mine = &((struct minimal *)state)->address;

    if (!mine->located || size != sizeof(*mine) ||
        memcmp(blob, mine, offsetof(struct minimal_address, name)) != 0)
        return DIST_ERR_UNSUPPORTED;
    *reach_p = (struct dist_reach){.latency_ns = 5000, .bytes_per_second = 3e9};
    return DIST_OK;
}

static dist_status minimal_connect(void *state, int rank, const void *blob, size_t size)
{
    struct minimal *m = state;

    memcpy(&m->peers[rank].address, blob, size);
    m->peers[rank].fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    m->last_check = -1; /* lets progress connect immediately */
    if (m->peers[rank].fd < 0)
        return m->host->fail(DIST_ERR_SYSTEM, "minimal: rank %d has no socket: %m", m->rank);
    return DIST_OK;
}

/*
 * Returns the link to the oldest entry of a peer with that tag (NULL: any tag), or to the end of
 * the list.
 */
static struct dist_request **minimal_find(struct dist_request **list, int peer, const uint64_t *tag)
{
    while (*list && ((peer != MINIMAL_ANY_RANK && (*list)->peer != peer) ||
                     (tag && (*list)->envelope.tag != *tag)))
        list = &(*list)->next;
    return list;
}

/*
 * Fails all requests for a lost peer. The status is set last, because then the engine owns the
 * request again.
 */
static void minimal_lose(struct minimal *m, int rank)
{
    struct dist_request **link, *request;

    while ((request = *(link = minimal_find(&m->sends, rank, NULL))) ||
           (request = *(link = minimal_find(&m->receives, rank, NULL)))) {
        *link = request->next;
        request->status = m->host->fail(
            DIST_ERR_PEER_LOST, "minimal: rank %d lost rank %d: see its output", m->rank, rank);
    }
}

/* Sends until the peer's queue is full. */
static int minimal_push(struct minimal *m, int rank)
{
    const struct minimal_peer *peer = &m->peers[rank];
    struct dist_request **link, *request;
    int moved = 0;

    while (peer->fd >= 0 && (request = *(link = minimal_find(&m->sends, rank, NULL)))) {
        struct minimal_head head = {peer->address.key, (uint64_t)m->rank, request->envelope};
        size_t left = request->envelope.bytes - request->moved;
        size_t bytes = left < MINIMAL_PIECE ? left : MINIMAL_PIECE;
        char *data = (char *)(uintptr_t)request->data + request->moved;

        if (writev(peer->fd, (struct iovec[]){{&head, sizeof(head)}, {data, bytes}}, 2) < 0)
            break;
        moved++;
        request->moved += bytes;
        if (bytes == left) {
            *link = request->next;
            request->status = DIST_OK;
        }
    }
    if (peer->fd < 0)
        minimal_lose(m, rank);
    return moved;
}

static void minimal_send(void *state, struct dist_request *request)
{
    struct minimal *m = state;

    *minimal_find(&m->sends, MINIMAL_NO_RANK, NULL) = request;
    minimal_push(m, request->peer);
}

/* Delivers the oldest message of a peer and tag to the oldest matching receive, if both exist. */
static void minimal_match(struct minimal *m, int peer, uint64_t tag)
{
    struct dist_request **to = minimal_find(&m->receives, peer, &tag), *request = *to;
    struct dist_request **from = minimal_find(&m->early, peer, &tag), *message = *from;
    bool same;

    if (!request || !message)
        return;
    *to = request->next;
    *from = message->next;
    same = memcmp(&request->envelope, &message->envelope, sizeof(message->envelope)) == 0;
    if (same)
        m->host->sink_apply(&request->sink, 0, message + 1, message->moved);
    request->arrived = message->envelope;
    request->status = same ? DIST_OK : DIST_ERR_MISMATCH;
    free(message);
}

static void minimal_recv(void *state, struct dist_request *request)
{
    struct minimal *m = state;
    int peer = request->peer;

    *minimal_find(&m->receives, MINIMAL_NO_RANK, NULL) = request;
    minimal_match(m, peer, request->envelope.tag);
    minimal_push(m, peer); /* fails the request if the peer is lost */
}

/* Reads a datagram. Returns 1, 0 if there is none, or a status. */
static int minimal_pull(struct minimal *m)
{
    struct minimal_head head;
    struct iovec parts[] = {{&head, sizeof(head)}, {m->piece, sizeof(m->piece)}};
    ssize_t got = readv(m->fd, parts, 2), bytes = got - (ssize_t)sizeof(head);
    struct dist_request *message;

    if (bytes < 0 || head.key != m->address.key || head.from >= (uint64_t)m->ranks ||
        head.envelope.bytes > SIZE_MAX / 2)
        return got >= 0; /* no datagram, or one without the key */
    message = m->peers[head.from].arriving;
    if (!message && (message = calloc(1, sizeof(*message) + head.envelope.bytes)))
        *message = (struct dist_request){.peer = (int)head.from, .envelope = head.envelope};
    if (!message || (size_t)bytes > message->envelope.bytes - message->moved)
        return m->host->fail(DIST_ERR_NO_MEMORY, "minimal: rank %d is out of memory for a message",
                             m->rank);
    memcpy((char *)(message + 1) + message->moved, m->piece, (size_t)bytes);
    message->moved += (size_t)bytes;
    m->peers[head.from].arriving = message->moved < message->envelope.bytes ? message : NULL;
    if (!m->peers[head.from].arriving) {
        *minimal_find(&m->early, MINIMAL_NO_RANK, NULL) = message;
        minimal_match(m, (int)head.from, head.envelope.tag);
    }
    return 1;
}

/* Connects again to check that the peer exists: after its exit, the name no longer exists. */
static void minimal_check_peer(struct minimal_peer *peer)
{
    const struct sockaddr *name = (const struct sockaddr *)&peer->address.name;

    if (peer->fd >= 0 && connect(peer->fd, name, sizeof(peer->address.name)) != 0) {
        close(peer->fd);
        peer->fd = -1;
    }
}

/* Reads all messages before detecting the loss of their senders. */
static int minimal_progress(void *state)
{
    struct minimal *m = state;
    struct timespec now;
    int moved = 0, got, previous = m->last_check;

    clock_gettime(CLOCK_MONOTONIC, &now);
    m->last_check = (int)(now.tv_sec * 4 + now.tv_nsec / MINIMAL_CHECK_NS);
    for (int i = 0; i < m->ranks && previous != m->last_check; i++)
        minimal_check_peer(&m->peers[i]);
    while ((got = minimal_pull(m)) > 0)
        moved++;
    for (int i = 0; i < m->ranks; i++)
        moved += minimal_push(m, i);
    return got < 0 ? got : moved;
}

static int minimal_probe_tag(void *state, uint64_t tag)
{
    const struct dist_request *early =
        *minimal_find(&((struct minimal *)state)->early, MINIMAL_ANY_RANK, &tag);

    return early ? early->peer : -1;
}

/*
 * There is no event for free space in a peer's queue, so a rank with pending sends must not sleep.
 */
static int minimal_arm(void *state)
{
    return ((struct minimal *)state)->sends ? -1 : ((struct minimal *)state)->fd;
}

static void minimal_disarm(void *state)
{
    (void)state;
}

static void minimal_close(void *state)
{
    struct minimal *m = state;

    for (struct dist_request *next; m->early; m->early = next) {
        next = m->early->next;
        free(m->early);
    }
    while (m->ranks-- > 0) {
        free(m->peers[m->ranks].arriving);
        close(m->peers[m->ranks].fd);
    }
    free(m->peers);
    close(m->fd);
}

static const struct dist_transport minimal_transport = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_transport),
    .name = "minimal",
    .summary = "Unix sockets between processes of one machine",
    .state_size = sizeof(struct minimal),
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
    .close = minimal_close};

/* The only symbol that the library looks up. */
DIST_API const struct dist_module dist_module_entry = {
    .abi = DIST_ABI,
    .size = sizeof(struct dist_module),
    .transports = (const struct dist_transport *const[]){&minimal_transport, NULL},
};
