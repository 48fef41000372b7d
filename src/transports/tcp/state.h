/* SPDX-License-Identifier: BSD-3-Clause */
/* The state of the tcp transport and the functions that its files share; private to them. */
#ifndef DISTI_TRANSPORTS_TCP_STATE_H
#define DISTI_TRANSPORTS_TCP_STATE_H

#include "base/tls/tls.h"
#include "transports/match/match.h"
#include "transports/tcp/wire.h"

#include <dist/transport.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

struct tcp_queue {
    struct dist_request *head, *tail;
};

static inline void disti_tcp_queue_put(struct tcp_queue *queue, struct dist_request *request)
{
    request->next = NULL;
    request->prev = queue->tail;
    *(queue->tail ? &queue->tail->next : &queue->head) = request;
    queue->tail = request;
}

static inline void disti_tcp_queue_remove(struct tcp_queue *queue, struct dist_request *request)
{
    *(request->prev ? &request->prev->next : &queue->head) = request->next;
    *(request->next ? &request->next->prev : &queue->tail) = request->prev;
}

/* Removes all requests and sets their status. */
static inline void disti_tcp_queue_fail(struct tcp_queue *queue, dist_status status)
{
    while (queue->head) {
        struct dist_request *request = queue->head;

        disti_tcp_queue_remove(queue, request);
        request->status = status;
    }
}

/*
 * The paths between the interfaces of two ranks, and the division of messages into stripes. These
 * functions have no side effects.
 */

/*
 * Messages of at least this size are sent in stripes if a pair has several sockets. Pipelined
 * algorithms cut long vectors into messages of 64 to 128 KiB, which should be striped.
 */
#define DISTI_TCP_STRIPED_LEAST ((uint64_t)64 << 10)
/*
 * Bounds of a stripe's size. Small stripes cost a header and a system call each; large ones let
 * the slowest socket delay the message.
 */
#define DISTI_TCP_STRIPE_LEAST ((uint64_t)64 << 10)
#define DISTI_TCP_STRIPE_MOST ((uint64_t)512 << 10)
/*
 * Stripes begin and end at offsets that are multiples of this, except the end of a message, so no
 * element is split.
 */
#define DISTI_TCP_STRIPE_ALIGN 64

/* Returns the size of the stripe that begins at `offset` of a message; offset < bytes. */
uint64_t disti_tcp_stripe_bytes(uint64_t bytes, int sockets, uint64_t offset);

/* True if a message of `bytes` bytes can contain a stripe of this offset and size. */
bool disti_tcp_stripe_fits(uint64_t bytes, uint64_t offset, uint64_t stripe);

/* One of this rank's interfaces. */
struct disti_tcp_local {
    struct disti_tcp_endpoint endpoint;
    int prefix;    /* length of the network prefix in bits */
    char name[16]; /* "" if unknown */
};

/* A path from this rank's interface `local` to the peer's interface `remote`. */
struct disti_tcp_path {
    int local, remote;
};

/*
 * Chooses the paths to a peer. The first path leads to the peer's first interface. A peer on the
 * same machine has only this path. Otherwise each further interface of either side gets a path if
 * possible: to an interface of the other side in the same network or, if `routed`, to any unused
 * one. If one side has more interfaces, interfaces of the other side are used by several paths. An
 * interface without a path cannot reach the peer. Returns the number of paths, 1 to
 * DISTI_TCP_INTERFACES.
 */
int disti_tcp_paths(const struct disti_tcp_local *local, int locals,
                    const struct disti_tcp_address *remote, bool routed,
                    struct disti_tcp_path paths_p[DISTI_TCP_INTERFACES]);

/*
 * Returns the number of sockets of a pair: the smaller of the numbers that the two ranks request.
 * A request of 0 means one per path.
 */
int disti_tcp_sockets(int own, int remote, int paths);

struct tcp_conn;
struct tcp_peer;
struct tcp_state;

/*
 * Messages in stripes. The first connection carries the headers of all messages in order. The
 * header of an announced message or of an RTS is not followed by payload: the payload is cut into
 * stripes, for an RTS after the receiver has returned CTS. Each connection whose socket has room
 * takes the next stripe:
 *
 *      first          [message][announce 0][stripe of 0][announce 1][stripe of 1][message] ...
 *      second         [stripe of 0][stripe of 0][stripe of 0][stripe of 1] ...
 */

/* A message of which some stripes have not arrived. */
struct tcp_assembly {
    struct tcp_assembly *next;
    uint64_t number;
    uint64_t bytes;
    uint64_t unseen,
        left;   /* bytes of stripes whose frames have not arrived; bytes not stored yet */
    bool costs; /* return the message's credit when it is complete */
    struct dist_request *request; /* the destination is this or `unexpected`; both NULL: discard */
    struct disti_unexpected *unexpected;
};

/*
 * The messages of one peer that are sent or received in stripes. A send moves through the queues:
 *
 *      send queue --announcement sent-----------> ready --last stripe assigned--> sent
 *               \---RTS sent--> rts_sends --CTS----^
 */
struct tcp_stripes {
    struct tcp_queue ready, rts_sends;
    int rts_count;     /* length of rts_sends */
    uint64_t numbered; /* announcements and RTS that this rank has sent */
    int sending;       /* messages that entered `ready` and are not sent completely */
    uint64_t arrived;  /* announcements and RTS received */
    struct tcp_assembly *assemblies;
};

static inline void disti_tcp_stripes_ready(struct tcp_stripes *stripes,
                                           struct dist_request *request)
{
    disti_tcp_queue_put(&stripes->ready, request);
    stripes->sending++;
}

/* receive.c */
/* Discards the part of the message that has not arrived; nothing is written to it any more. */
void disti_tcp_forget(struct tcp_peer *peer, const struct disti_unexpected *unexpected);

/*
 * Flow control. Messages without a posted receive are buffered at the receiver, so their total size
 * must be bounded. The receiver cannot stop reading instead, since that would block later messages.
 * Each rank therefore grants its peer credit:
 *
 *     sender                                   receiver
 *       message, or announcement ------------->  matches it, or buffers it until it is matched
 *                              <--------------- credit, when a quarter of the limit is owed
 *     without enough credit:
 *       RTS ---------------------------------->  is matched in order, like a message
 *                              <--------------- CTS, when it is matched
 *       stripes ------------------------------>  into the destination
 *
 * Credit and CTS are sent on the first connection, before any message that is not partly sent.
 */
struct tcp_credit {
    uint64_t granted; /* bytes that the peer has granted to this rank */
    uint64_t left;    /* part of `granted` that this rank may still use */
    uint64_t limit;   /* bytes that this rank has granted to the peer */
    uint64_t unused;  /* part of `limit` that the peer has not used */
    uint64_t owed;    /* credit of matched messages, to be returned to the peer */
};

/* A queued CTS, or the refusal of an RTS. */
struct tcp_cts {
    struct tcp_cts *next;
    uint64_t number;
    bool refused;
};

#define TCP_CONTROL_FRAMES 16

/*
 * Control frames (credit and CTS). The encoded frames that are being sent are bytes[begin .. end);
 * CTS that are not encoded yet are in the list.
 */
struct tcp_control {
    unsigned char bytes[TCP_CONTROL_FRAMES * DISTI_TCP_FRAME_BYTES];
    size_t begin, end;
    struct tcp_cts *head, *tail;
    /*
     * Receives of empty messages that are matched with an RTS. They complete only after the CTS is
     * sent: after its last receive, a rank may not call progress again to send the CTS.
     */
    struct dist_request *receives;
};

/* True if the credit covers this message. */
static inline bool disti_tcp_has_credit_for(uint64_t credit, const struct dist_envelope *envelope)
{
    return credit >= DISTI_TCP_MESSAGE_COST && envelope->bytes <= credit - DISTI_TCP_MESSAGE_COST;
}

/* Call when a message of `bytes` bytes that used credit has been matched and is not buffered. */
static inline void disti_tcp_credit_return(struct tcp_credit *credit, uint64_t bytes)
{
    credit->owed += bytes + DISTI_TCP_MESSAGE_COST;
}

/* Queues a CTS or a refusal for an RTS. Returns ERR_NO_MEMORY without an error message. */
dist_status disti_tcp_queue_cts(struct tcp_peer *peer, uint64_t number, bool refused);
/* True if credit or CTS has to be sent. */
bool disti_tcp_control_waits(const struct tcp_peer *peer);
/* True if control frames wait and the first connection can send them now. */
bool disti_tcp_can_control(const struct tcp_peer *peer);
/* Sends control frames until the socket is full. Returns true if any byte was sent. */
bool disti_tcp_control(struct tcp_state *state, struct tcp_peer *peer);
void disti_tcp_control_clear(struct tcp_peer *peer);

/* A connection: its states, and the data that it is sending and receiving. */

/* Zero-copy calls that a socket may have pending; sends beyond this limit are copied. */
#define TCP_ZEROCOPY_CALLS 64

struct tcp_zerocopy {
    bool off;             /* the kernel copies anyway, so zero-copy gains nothing */
    uint32_t sent, ended; /* calls made; all calls before `ended` are completed */
    struct dist_request *request[TCP_ZEROCOPY_CALLS]; /* by call; NULL: completed */
};

/*
 * A pair of ranks has one connection, number 0 ("the first"), or several. All have the same states:
 *
 *        .<----- closed by the peer: connect again -----.
 *        |                 |                            |
 *        v                 |                            |
 *      IDLE -connect-> CALLING --hello sent--> GREETING -'--answer read--> UP
 *        |                                     ^
 *        '-- connection accepted --------------'
 *
 *        deferred message              announced             stripe of a message
 *      UP --------------> RESUMING <-------------- WAITING <--------------------- UP, DRAINING
 *      ^                     |                             that is not announced yet
 *      '----- next turn -----'
 *
 *      UP, RESUMING ---- closed by the peer, or a write failed ----> DRAINING
 *      UP, DRAINING ---- goodbye read ----> LEAVING ---- end ----> LEFT
 *      all except LEAVING and LEFT ---- end, or failure ----> LOST
 *
 * The lower rank of a pair connects when it first needs the peer. The higher rank connects after
 * waiting for a few ticks, so that it detects a dead peer. If both connect, the lower rank's
 * connection is kept. The rank that opened the first connection opens the further ones. If the
 * first connection fails, the peer is lost; a further connection that fails to open is left out.
 *
 * The first connection carries all messages in order, further connections carry only stripes.
 * Therefore only the first one defers a message without a posted receive and reads a goodbye, and
 * only further ones wait for an announcement.
 */
enum tcp_conn_state {
    TCP_CONN_IDLE,
    TCP_CONN_CALLING,  /* connect is in progress */
    TCP_CONN_GREETING, /* this rank's hello, then its proof, is sent */
    /* open for sending and receiving: */
    TCP_CONN_UP,
    TCP_CONN_WAITING,  /* a stripe was read before its announcement; reading is suspended */
    TCP_CONN_RESUMING, /* has stashed data to process again in the next turn */
    TCP_CONN_LEAVING,  /* the peer has said goodbye */
    /* open for receiving only: */
    TCP_CONN_DRAINING, /* reads to the end of the stream */
    /* closed: */
    TCP_CONN_LEFT,
    TCP_CONN_LOST
};

/*
 * The message or stripe that is arriving. If `active`, `left` bytes of payload are outstanding,
 * beginning at byte `offset` of the message. The payload goes to the request's sink or to the
 * unexpected message; if both are NULL it is discarded.
 * stash keeps received bytes that cannot be used yet: part of a header, part of an element, or a
 * deferred message with all data after it.
 */
struct tcp_incoming {
    bool active;
    uint64_t left, offset;
    struct tcp_assembly *assembly; /* the message of the stripe; NULL: no stripe */
    uint64_t stripe;               /* size of the stripe */
    struct dist_request *request;
    struct disti_unexpected *unexpected;
    /* With DIST_CHECKSUM: checksum so far; checksum of the header; checksum that was sent. */
    uint32_t sum, sum_header, sum_expected;
    unsigned char *stash; /* allocated; NULL: the stash is in `small` */
    size_t stash_bytes;
    unsigned char small[DISTI_TCP_FRAME_BYTES];
};

/* The stripe that is being sent; request NULL: none. `moved`: bytes sent of header and data. */
struct tcp_outgoing {
    struct dist_request *request;
    const char *data;
    uint64_t bytes, moved;
    unsigned char header[DISTI_TCP_FRAME_BYTES];
};

struct tcp_conn {
    struct tcp_peer *peer;
    int number;
    int fd;                /* -1: none */
    struct disti_tls *tls; /* the TLS session; NULL: no TLS */
    enum tcp_conn_state state;
    bool readable;                      /* there may be unread data */
    bool writable;                      /* the socket may have room */
    bool finished;                      /* a receive has completed in this turn */
    struct disti_tcp_endpoint endpoint; /* the peer's address; family 0: unknown */
    int interface;    /* local interface to connect from; -1: the kernel chooses */
    int64_t deadline; /* of CALLING and GREETING; 0: none */
    bool extended; /* the deadline was extended, which happens once, because this rank did not call
                      progress */
    int64_t silent_ns; /* time since which the peer's machine has not answered; 0: it answers */
    struct tcp_incoming in;
    struct tcp_outgoing out;
    struct tcp_zerocopy *zerocopy; /* NULL: sends are copied */
    unsigned char hello[DISTI_TCP_HELLO_BYTES];
    size_t hello_bytes;
    enum disti_tcp_step awaited; /* GREETING of the connecting rank: CHALLENGE, then ANSWER */
    unsigned char nonce[DISTI_NONCE_BYTES];
};

static inline bool disti_tcp_conn_is_open(const struct tcp_conn *conn)
{
    return conn->state >= TCP_CONN_UP && conn->state <= TCP_CONN_DRAINING;
}

static inline bool disti_tcp_conn_has_ended(const struct tcp_conn *conn)
{
    return conn->state >= TCP_CONN_LEFT;
}

/* True if the connection's state permits sending. */
static inline bool disti_tcp_conn_sends(const struct tcp_conn *conn)
{
    return conn->state >= TCP_CONN_UP && conn->state <= TCP_CONN_LEAVING;
}

/* True if there may be data to receive. `guess`: assume so even if epoll has not reported it. */
static inline bool disti_tcp_conn_can_receive(const struct tcp_conn *conn, bool guess)
{
    return conn->state == TCP_CONN_RESUMING ||
           ((conn->readable || guess) && conn->state != TCP_CONN_WAITING &&
            disti_tcp_conn_is_open(conn));
}

/* conn.c: connection states. */

/*
 * Changes the state. Returns ERR_INTERNAL and keeps the state if the transition is not in the
 * drawing above.
 */
dist_status disti_tcp_conn_set_state(struct tcp_conn *conn, enum tcp_conn_state to);

/* Handles the events that epoll reports for the connection. */
void disti_tcp_conn_event(struct tcp_state *state, struct tcp_conn *conn, uint32_t events);
void disti_tcp_conn_set_writable(struct tcp_state *state, struct tcp_conn *conn, bool writable);
/*
 * Call when the stream has ended or failed. The other connections of the pair must then end within
 * a time limit, or the peer is lost.
 */
void disti_tcp_conn_ended(struct tcp_state *state, struct tcp_conn *conn, int cause);
/* Closes the socket and sets LEFT or LOST, unless the connection has ended already. */
void disti_tcp_conn_end(struct tcp_state *state, struct tcp_conn *conn);

/*
 * Call when the deadline of CALLING or GREETING has passed. Fails the connection unless its answer
 * has arrived.
 */
void disti_tcp_conn_expired(struct tcp_state *state, struct tcp_conn *conn);

/* Connects if the connection is idle; does not block. */
void disti_tcp_conn_call(struct tcp_state *state, struct tcp_conn *conn);

/* Accepted connections that have not been authenticated. */
dist_status disti_tcp_pending_open(struct tcp_state *state);
int disti_tcp_accept(struct tcp_state *state);
int disti_tcp_pending_event(struct tcp_state *state, int slot);
void disti_tcp_pending_tick(struct tcp_state *state);
void disti_tcp_pending_close(struct tcp_state *state);

/* Sets TCP keepalive and retransmission limits from the group's timeout. */
void disti_tcp_silence_tune(const struct tcp_state *state, int fd);

/* The state of the transport, and the functions that its files share. */

/* One receive buffer for all peers, small enough to stay in cache. */
#define TCP_BUFFER_BYTES ((size_t)256 << 10)
/*
 * Limit of read-ahead while a large message is expected that can be read directly into its
 * destination.
 */
#define TCP_PEEK_BYTES ((size_t)4 << 10)
/* Bytes that one peer may send or receive in one call of progress. */
#define TCP_TURN_BYTES ((size_t)1 << 20)
/* RTS pending to one peer. The peer stores about 100 bytes for each, beyond the credit. */
#define TCP_RTS_MAX (1 << 20)
/* Messages in one sendmsg. */
#define TCP_BATCH 64
/* Interval of the timer that checks deadlines. */
#define TCP_TICK_MS 100
/*
 * With at most this many listed peers, sockets are read without epoll_wait, except in every
 * TCP_DIRECT_CALLS-th call.
 */
#define TCP_DIRECT_PEERS 2
#define TCP_DIRECT_CALLS 64
/* Size of an address as text. */
#define TCP_TEXT 80

struct tcp_peer {
    int rank;
    bool listed;        /* in state->list */
    int cause;          /* errno when the peer was lost; 0: end of the stream */
    const char *reason; /* replaces errno's text; static */
    int ticks;          /* ticks spent waiting for the peer to connect */
    int64_t deadline;   /* a connection has ended, the others must end by then; 0: none has ended */
    struct tcp_conn *conn; /* array of `conns` elements, at least 1 */
    int conns;
    int further; /* open connections except the first */
    LIST_ENTRY(tcp_peer) entry;
    struct tcp_credit credit;
    struct tcp_control control;
    struct tcp_stripes stripes;
    bool checksum; /* frames carry checksums in both directions */
    struct disti_match match;
    struct tcp_queue sends;
    int pinned; /* zero-copy calls of all connections that are not completed */
    uint64_t sent_bytes, received_bytes;
};

/*
 * An accepted connection that is not authenticated yet; a rank that is computing may be slow. fd
 * -1: free slot.
 */
struct tcp_pending {
    int fd;
    struct disti_tcp_endpoint caller; /* kept here, since getpeername fails after a reset */
    struct disti_tls *tls;
    int64_t deadline;
    unsigned char hello[DISTI_TCP_HELLO_BYTES];
    size_t bytes;
    bool challenged;                        /* its CALL has been read and `nonce` sent */
    unsigned char nonce[DISTI_NONCE_BYTES]; /* the challenge, which its proof must cover */
};

enum tcp_zerocopy_setting { TCP_ZEROCOPY_OFF, TCP_ZEROCOPY_AUTO, TCP_ZEROCOPY_ON };

/* A peer's encoded address. */
struct tcp_address {
    size_t size;
    unsigned char blob[];
};

struct tcp_state {
    bool open, checksum;
    int rank, world_size;
    int timeout_ms; /* timeout in effect; config's may have been raised since */
    const struct dist_transport_config *config;
    uint64_t job;
    struct disti_secret key;       /* the world's key */
    struct disti_tls_context *tls; /* TLS context of all connections; NULL: no TLS */
    int refusals;                  /* refused connections so far */
    int sockets;                   /* DIST_TCP_SOCKETS; 0: unset */
    bool routed;    /* interfaces were named by the user and may reach peers in other networks */
    int interfaces; /* each has a listener; the first has config's address */
    struct disti_tcp_local local[DISTI_TCP_INTERFACES];
    int listeners[DISTI_TCP_INTERFACES];
    unsigned out_of_reach; /* bits by interface: a log line has reported it as unreachable */
    int epoll, timer;
    bool ticking;           /* the timer runs */
    bool accepting;         /* a listener may have pending connections */
    bool warned, no_accept; /* no_accept: out of descriptors; accepts no more until the next tick */
    int blocked;            /* connections whose socket buffer is full */
    int pinned;             /* zero-copy calls that are not completed */
    enum tcp_zerocopy_setting zerocopy;
    uint64_t ending_tag, ending_mask; /* group being cancelled, whose sends are copied */
    int listed;                       /* length of `list` */
    unsigned calls;                   /* calls of progress since the last epoll_wait */
    int64_t silence_ns;               /* time of the next check for peers that do not answer */
    int pending_count, pending_max;   /* unauthenticated connections, and the size of `pending` */
    size_t unexpected_limit;          /* bytes of unexpected messages buffered per peer */
    size_t socket_bytes;
    struct disti_match_set unexpected;
    char congestion[32]; /* congestion control of new connections; empty: the system's */
    char paced[32]; /* congestion control of connections with distant peers; empty: unchanged */
    uint32_t scope; /* scope id of a link-local address */
    unsigned char *buffer;
    struct tcp_peer **peers;        /* by rank; NULL until the first message or connection */
    struct tcp_address **addresses; /* by rank; NULL: unknown */
    LIST_HEAD(, tcp_peer) list;
    struct disti_standins standins;
    struct tcp_pending *pending; /* array of pending_max elements */
};

/*
 * The source of an epoll event. The event's index is a rank, a pending slot or a listener. A
 * connection's event is TCP_EVENT_CONN plus the connection's number.
 */
enum tcp_event { TCP_EVENT_LISTENER, TCP_EVENT_TIMER, TCP_EVENT_PENDING, TCP_EVENT_CONN };

#ifndef TCP_RTO_MAX_MS
/* Linux 6.15: longest time between two probes or retransmissions, at least 1 s. */
#define TCP_RTO_MAX_MS 44
#endif

/* socket.c: sockets and addresses. */
dist_status disti_tcp_listen(struct tcp_state *state, const char *host);

static inline bool disti_tcp_loopback(const struct disti_tcp_endpoint *endpoint)
{
    static const uint8_t six[16] = {[15] = 1};

    return endpoint->family == 4 ? endpoint->host[0] == 127 : memcmp(endpoint->host, six, 16) == 0;
}

void disti_tcp_endpoint_of(const struct sockaddr *address, struct disti_tcp_endpoint *endpoint_p);
socklen_t disti_tcp_sockaddr(const struct disti_tcp_endpoint *endpoint, uint32_t scope,
                             struct sockaddr_storage *address_p);
/* Formats the address without its port, as in certificates. */
void disti_tcp_host_text(const struct disti_tcp_endpoint *endpoint, char *text, size_t size);
void disti_tcp_endpoint_text(const struct disti_tcp_endpoint *endpoint, char *text, size_t size);
void disti_tcp_tune(const struct tcp_state *state, int fd);
/*
 * Adds fd to epoll, edge-triggered. Connections are watched for writing too. `replace`: fd is
 * watched already and gets a new event and index. Returns false with errno set.
 */
bool disti_tcp_watch(struct tcp_state *state, int fd, int event, int index, bool replace);
/* Removes a socket from epoll and closes it. */
void disti_tcp_hang_up(const struct tcp_state *state, int fd);
/* Starts or stops the timer that checks deadlines. */
void disti_tcp_tick_on(struct tcp_state *state, bool on);

/* Adds further usable interfaces, each with a listener. */
void disti_tcp_interfaces(struct tcp_state *state);

/* Reads DIST_TCP_CONGESTION. Accepted sockets inherit the setting of the listener. */
dist_status disti_tcp_congestion_open(struct tcp_state *state);
/* Sets the congestion control of a socket before connect. */
void disti_tcp_congestion(const struct tcp_state *state, int fd);

/* tcp.c */
struct tcp_peer *
disti_tcp_peer(struct tcp_state *state,
               int rank); /* creates the peer if needed; NULL: bad rank or no memory */
/* Grows peer->conn to `conns` elements, which may move. Returns false without memory. */
bool disti_tcp_grow(struct tcp_peer *peer, int conns);
void disti_tcp_list(struct tcp_state *state, struct tcp_peer *peer);

/*
 * Closes all connections of the peer and fails its requests; complete unexpected messages can
 * still be received. cause: errno or 0; reason: static text or NULL.
 */
void disti_tcp_lose(struct tcp_state *state, struct tcp_peer *peer, int cause, const char *reason);
/* Reports why the peer is lost and returns ERR_PEER_LOST. */
dist_status disti_tcp_report(const struct tcp_state *state, const struct tcp_peer *peer);

/*
 * With DIST_CHECKSUM, stores the checksum of the frame and of `bytes` bytes of the request's data
 * in the frame.
 */
void disti_tcp_seal(const struct tcp_peer *peer, unsigned char *frame,
                    const struct dist_request *request, uint64_t offset, uint64_t bytes);

/*
 * Call when the kernel has accepted all bytes of the request. The request completes now, or when
 * its zero-copy calls have completed.
 */
static inline void disti_tcp_sent(struct dist_request *request)
{
    if (request->own[1])
        request->own[2] = 1;
    else
        request->status = DIST_OK;
}
/* Reads zero-copy completions from the error queue. Returns true if there were any. */
bool disti_tcp_zerocopy_reap(struct tcp_state *state, struct tcp_conn *conn);
/* True if zero-copy calls are pending. */
static inline bool disti_tcp_zerocopy_pending(const struct tcp_conn *conn)
{
    return conn->zerocopy && conn->zerocopy->ended != conn->zerocopy->sent;
}
/*
 * Closes the socket, if there is one. If zero-copy calls are pending, resets the connection, so
 * that the kernel stops reading their memory.
 */
void disti_tcp_close(const struct tcp_state *state, struct tcp_conn *conn);

/* send.c */
/*
 * Call when a write has failed. Reads what the peer had sent, which may be its last messages or
 * its goodbye. On the first connection, fails all sends, and loses the peer at once if zero-copy
 * calls are pending.
 */
void disti_tcp_send_broken(struct tcp_state *state, struct tcp_conn *conn, int cause);
static inline bool disti_tcp_has_sends(const struct tcp_peer *peer)
{
    return peer->sends.head || peer->pinned || peer->stripes.sending || peer->stripes.rts_count;
}
/*
 * True if a message or stripe is partly sent on the first connection, so that nothing else can be
 * sent on it.
 */
static inline bool disti_tcp_first_begun(const struct tcp_peer *peer)
{
    return (peer->sends.head && peer->sends.head->moved) ||
           (peer->conn->out.request && peer->conn->out.moved);
}
void disti_tcp_send(struct tcp_state *state, struct tcp_peer *peer, struct dist_request *request);
/* True if a message, stripe, credit or CTS waits and its socket has room. */
bool disti_tcp_can_send(const struct tcp_peer *peer);
/*
 * Sends control frames, messages and stripes on all connections until their sockets are full or
 * the turn ends. Returns nonzero if anything was sent.
 */
int disti_tcp_send_turn(struct tcp_state *state, struct tcp_peer *peer);
void disti_tcp_fail_sends(struct tcp_state *state, struct tcp_peer *peer, dist_status status);

void disti_tcp_recv(struct tcp_state *state, struct tcp_peer *peer, struct dist_request *request);
bool disti_tcp_has_receives(const struct tcp_peer *peer);
/* Fails all pending receives. */
void disti_tcp_fail_receives(struct tcp_peer *peer, dist_status status);

/* receive.c */
/* Receives on one connection for one turn. Returns 0 if there was no progress. */
size_t disti_tcp_receive(struct tcp_state *state, struct tcp_conn *conn);

static inline void disti_tcp_incoming_clear(struct tcp_incoming *in)
{
    free(in->stash);
    *in = (struct tcp_incoming){0};
}

/* Releases an unexpected message and returns its credit, if it used any. */
static inline void disti_tcp_unexpected_release(struct tcp_peer *peer,
                                                struct disti_unexpected *unexpected)
{
    if (!unexpected->descriptor)
        disti_tcp_credit_return(&peer->credit, unexpected->envelope.bytes);
    disti_match_release(&peer->match, unexpected);
}

#endif
