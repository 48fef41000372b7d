/* SPDX-License-Identifier: BSD-3-Clause */
/* Queues, paths, stripes, credit and connections of the tcp transport; private to it. */
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

/* Ends all of them. */
static inline void disti_tcp_queue_fail(struct tcp_queue *queue, dist_status status)
{
    while (queue->head) {
        struct dist_request *request = queue->head;

        disti_tcp_queue_remove(queue, request);
        request->status = status;
    }
}

/* Which interfaces a pair's sockets join, and how a message is cut for them. Pure. */

/*
 * From so many bytes on a message goes in stripes where a pair has several sockets. Pipelined
 * algorithms cut long vectors into messages of 64 to 128 KiB: these are the ones to be spread.
 */
#define DISTI_TCP_STRIPED_LEAST ((uint64_t)64 << 10)
/* Stripes: a header and a system call each, against one slow socket holding up the last of them. */
#define DISTI_TCP_STRIPE_LEAST ((uint64_t)64 << 10)
#define DISTI_TCP_STRIPE_MOST ((uint64_t)512 << 10)
/* Where all stripes but the last of a message begin and end: elements of every type are whole. */
#define DISTI_TCP_STRIPE_ALIGN 64

/* Bytes of the stripe that begins at `offset` of a message, offset < bytes. */
uint64_t disti_tcp_stripe_bytes(uint64_t bytes, int sockets, uint64_t offset);

/* Is there such a stripe of a message of `bytes` bytes? */
bool disti_tcp_stripe_fits(uint64_t bytes, uint64_t offset, uint64_t stripe);

/* One of this rank's interfaces. */
struct disti_tcp_local {
    struct disti_tcp_endpoint endpoint;
    int prefix;    /* bits that all addresses of its network share */
    char name[16]; /* "" if it is not known */
};

/* By the own interface `local` to the peer's interface `remote`. */
struct disti_tcp_path {
    int local, remote;
};

/*
 * Ways to a peer, the first to its first interface, as without any of this. Each interface is on
 * one way if it can be: with one of the peer's in its own network; or, if `routed`, with any that
 * is left over. Where one side has more, those of the other are used again. A peer on the same
 * machine has one way. Returns how many, 1 to DISTI_TCP_INTERFACES; interfaces that are on none
 * cannot reach the peer.
 */
int disti_tcp_paths(const struct disti_tcp_local *local, int locals,
                    const struct disti_tcp_address *remote, bool routed,
                    struct disti_tcp_path paths_p[DISTI_TCP_INTERFACES]);

/* How many sockets a pair has: what each wants, 0 for as many as there are paths; the smaller. */
int disti_tcp_sockets(int own, int remote, int paths);

/* Messages whose payload goes in stripes: announced ones, and those that were offered. */

struct tcp_conn;
struct tcp_peer;
struct tcp_state;

/*
 * The first connection has all messages in their order; some it only announces
 * or offers. Their payload is cut into stripes, which a connection takes whenever it has room:
 *
 *      first          [message][announce 0][stripe of 0][announce 1][stripe of 1][message] ...
 *      second         [stripe of 0][stripe of 0][stripe of 0][stripe of 1] ...
 */

/* A message of which stripes are still to come. */
struct tcp_assembly {
    struct tcp_assembly *next;
    uint64_t number;
    uint64_t bytes;
    uint64_t unseen, left; /* bytes of stripes that have not begun; that are not in place */
    bool costs;            /* its credit is given back at its end */
    struct dist_request *request;
    struct disti_unexpected *unexpected; /* both NULL: it is thrown away */
};

/*
 *      send queue --announcement sent--------------> ready --its last stripe taken--> sent
 *               \---offer sent--> offered ---asked-----^
 */
struct tcp_stripes {
    struct tcp_queue ready, rts_sends;
    int rts_count;     /* in `offers` */
    uint64_t numbered; /* messages announced or offered */
    int sending;       /* announced or asked for, and not all sent */
    uint64_t arrived;  /* announcements and offers that have come */
    struct tcp_assembly *assemblies;
};

static inline void disti_tcp_stripes_ready(struct tcp_stripes *stripes,
                                           struct dist_request *request)
{
    disti_tcp_queue_put(&stripes->ready, request);
    stripes->sending++;
}

/* send.c */

/* receive.c */
/* Nothing that is arriving is written to this message any more. */
void disti_tcp_forget(struct tcp_peer *peer, const struct disti_unexpected *unexpected);

/* What a peer may send before its receives are posted, and the short frames that tell of it. */

/*
 * What nobody receives yet is kept, so it must be bounded; and it must not be in the way of what is
 * received, so the reading never stops. Each rank grants its peer credit for that:
 *
 *     sender                                   receiver
 *       message, or announcement ------------->  is matched, or kept until it is
 *                              <--------------- credit, when a quarter of all is to be given back
 *     without credit:
 *       offer -------------------------------->  takes its place in the order of messages
 *                              <--------------- ask, when it is matched
 *       stripes ------------------------------>  into their place
 *
 * Credit and asks go on the first connection, before any message that is not begun.
 */
struct tcp_credit {
    uint64_t granted; /* to us in all, and what is left of it */
    uint64_t left;
    uint64_t limit; /* to the peer in all, and what it has not used */
    uint64_t unused;
    uint64_t owed; /* used, and to be given back to the peer */
};

/* The receiver's answer to an offer, on its way. */
struct tcp_cts {
    struct tcp_cts *next;
    uint64_t number;
    bool refused;
};

#define TCP_CONTROL_FRAMES 16

/* Frames that are being sent: bytes[begin .. end). Asks that found no room wait in the list. */
struct tcp_control {
    unsigned char bytes[TCP_CONTROL_FRAMES * DISTI_TCP_FRAME_BYTES];
    size_t begin, end;
    struct tcp_cts *head, *tail;
    /* Of messages of no bytes, which end when the asks have gone: who has nothing left to receive
     * may not come back to send them. */
    struct dist_request *receives;
};

/* Is there credit for this message? */
static inline bool disti_tcp_has_credit_for(uint64_t credit, const struct dist_envelope *envelope)
{
    return credit >= DISTI_TCP_MESSAGE_COST && envelope->bytes <= credit - DISTI_TCP_MESSAGE_COST;
}

/* A message of so many bytes, which had cost credit, is matched and, if it was kept, freed. */
static inline void disti_tcp_give_back(struct tcp_credit *credit, uint64_t bytes)
{
    credit->owed += bytes + DISTI_TCP_MESSAGE_COST;
}

/* Asks for an offered message. ERR_NO_MEMORY is not reported. */
dist_status disti_tcp_queue_cts(struct tcp_peer *peer, uint64_t number, bool refused);
/* Credit or asks wait to be sent. */
bool disti_tcp_control_waits(const struct tcp_peer *peer);
/* They do, and the first connection has room and nothing begun that must go before them. */
bool disti_tcp_can_control(const struct tcp_peer *peer);
/* Sends them, as far as there is room. True: something went. */
bool disti_tcp_control(struct tcp_state *state, struct tcp_peer *peer);
void disti_tcp_control_clear(struct tcp_peer *peer);

/* A connection of the tcp transport: its life, and what is under way on it. */

/* Calls a socket may have under way; what goes beyond is copied. */
#define TCP_ZEROCOPY_CALLS 64

struct tcp_zerocopy {
    bool off;             /* it has been found to gain nothing */
    uint32_t sent, ended; /* calls taken; all before `ended` are done with */
    struct dist_request *request[TCP_ZEROCOPY_CALLS]; /* by call; NULL: done with */
};

/*
 * A pair of ranks has one connection, number 0, or several. All live the same life:
 *
 *        .<-------- hung up: to be called again --------.
 *        |                 |                            |
 *        v                 |                            |
 *      IDLE --call--> CALLING --hello sent--> GREETING -'--answer read--> UP
 *        |                                     ^
 *        '-- the peer has called --------------'
 *
 *         early message                announced             stripe of a message
 *      UP --------------> RESUMING <-------------- WAITING <--------------------- UP, DRAINING
 *      ^                     |                               not announced yet
 *      '----- next turn -----'
 *
 *      UP, RESUMING ---- hung up, or a write failed ----> DRAINING
 *      UP, DRAINING ---- goodbye read ----> LEAVING ---- end ----> LEFT
 *      all but these two ---- end, or failure ----> LOST
 *
 * The lower rank of a pair calls when it first needs the other; the higher rank does so too if it
 * has waited for a while, so that it learns of a peer that has died. If both call, the lower rank's
 * call is the one that stays. The rank that has called for the first connection calls for the
 * others. With the first the peer is lost; the pair can do without any other that has not come up.
 *
 * The first has all messages in their order, the others only stripes. So only the first defers an
 * early message and reads a goodbye, and only the others wait for an announcement.
 */
enum tcp_conn_state {
    TCP_CONN_IDLE,
    TCP_CONN_CALLING,  /* connect is under way */
    TCP_CONN_GREETING, /* this rank's hello is sent, and then its proof */
    /* open, and sends: */
    TCP_CONN_UP,
    TCP_CONN_WAITING,  /* what was read cannot be used; no more is read */
    TCP_CONN_RESUMING, /* it may be used now: the receive may have been posted */
    TCP_CONN_LEAVING,  /* the peer sends no more messages */
    /* open, and sends no more: */
    TCP_CONN_DRAINING, /* all that came is read, to the end of the stream */
    /* it has ended: */
    TCP_CONN_LEFT,
    TCP_CONN_LOST
};

/*
 * The message, or the stripe of one, that is arriving. With `active`, `left` bytes of payload are
 * still to come, which begin at byte `offset` of the message; they go to the request's sink, or to
 * the unexpected message, or nowhere if both are NULL.
 * stash keeps what was read and could not be used yet: a piece of a header, a piece of an
 * element, or all behind a message that waits a turn for its receive.
 */
struct tcp_incoming {
    bool active;
    uint64_t left, offset;
    struct tcp_assembly *assembly; /* the message that a stripe is of; NULL: no stripe */
    uint64_t stripe;               /* bytes of it */
    struct dist_request *request;
    struct disti_unexpected *unexpected;
    /* With checksums: of what has come; of the frame's header; of all, as the frame says. */
    uint32_t sum, sum_header, sum_wanted;
    unsigned char *stash; /* allocated; NULL: small */
    size_t stash_bytes;
    unsigned char small[DISTI_TCP_FRAME_BYTES];
};

/* The stripe that is being sent; request NULL: none. moved counts its header too. */
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
    struct disti_tls *tls; /* the session over it; NULL: all goes in clear */
    enum tcp_conn_state state;
    bool readable;                      /* there may be something to read */
    bool writable;                      /* the last write was taken whole */
    bool finished;                      /* a receive has ended in this turn */
    struct disti_tcp_endpoint endpoint; /* to call; family 0: not known */
    int interface;                      /* by which a call goes out; -1: the kernel's choice */
    int64_t deadline;                   /* of CALLING and GREETING; 0: none */
    bool extended;                      /* it has passed once, while this rank did not look */
    int64_t silent_ns;                  /* since when its machine has not answered; 0: it has */
    struct tcp_incoming in;
    struct tcp_outgoing out;
    struct tcp_zerocopy *zerocopy; /* NULL: it copies */
    unsigned char hello[DISTI_TCP_HELLO_BYTES];
    size_t hello_bytes;
    enum disti_tcp_step awaited; /* in GREETING, of a caller: CHALLENGE, then ANSWER */
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

/* Something may be sent, when there is room. */
static inline bool disti_tcp_conn_sends(const struct tcp_conn *conn)
{
    return conn->state >= TCP_CONN_UP && conn->state <= TCP_CONN_LEAVING;
}

/* There may be something to receive. `guess`: perhaps the kernel has only not said so yet. */
static inline bool disti_tcp_conn_can_receive(const struct tcp_conn *conn, bool guess)
{
    return conn->state == TCP_CONN_RESUMING ||
           ((conn->readable || guess) && conn->state != TCP_CONN_WAITING &&
            disti_tcp_conn_is_open(conn));
}

/* conn.c: the life of a connection. */

/* The only way to another state. ERR_INTERNAL: the drawing has no such arrow; it stays. */
dist_status disti_tcp_conn_go(struct tcp_conn *conn, enum tcp_conn_state to);

/* What epoll says of it. */
void disti_tcp_conn_event(struct tcp_state *state, struct tcp_conn *conn, uint32_t events);
void disti_tcp_conn_set_writable(struct tcp_state *state, struct tcp_conn *conn, bool writable);
/* Its stream has ended or failed: soon all of the pair must have, or the peer is lost. */
void disti_tcp_conn_ended(struct tcp_state *state, struct tcp_conn *conn, int cause);
/* Closes its socket for good, if it has not ended. */
void disti_tcp_conn_end(struct tcp_state *state, struct tcp_conn *conn);

/* The time for calling or greeting is over. */
void disti_tcp_conn_expired(struct tcp_state *state, struct tcp_conn *conn);

/* Calls, if it is idle. */
void disti_tcp_conn_call(struct tcp_state *state, struct tcp_conn *conn);

/* Callers that have not proved who they are. */
dist_status disti_tcp_pending_open(struct tcp_state *state);
int disti_tcp_accept(struct tcp_state *state);
int disti_tcp_pending_event(struct tcp_state *state, int slot);
void disti_tcp_pending_tick(struct tcp_state *state);
void disti_tcp_pending_close(struct tcp_state *state);

/* Has the kernel ask an idle connection's peer now and then. */
void disti_tcp_silence_tune(const struct tcp_state *state, int fd);

/* The tcp transport's own state, and what its files offer each other. */

/* Received bytes pass through one buffer for all peers, small enough to stay in cache. */
#define TCP_BUFFER_BYTES ((size_t)256 << 10)
/* While a large message is expected that can be read in place, no more than this is read ahead. */
#define TCP_PEEK_BYTES ((size_t)4 << 10)
/* What one peer may move in each direction in one call of progress. */
#define TCP_TURN_BYTES ((size_t)1 << 20)
/* Offers under way to one peer: what one costs it, about 100 bytes, it keeps beyond the credit. */
#define TCP_RTS_MAX (1 << 20)
/* Messages in one sendmsg. */
#define TCP_BATCH 64
/* Time between two looks at the deadlines, while there are any. */
#define TCP_TICK_MS 100
/* Up to so many peers are read without asking epoll first, which then is asked now and then. */
#define TCP_DIRECT_PEERS 2
#define TCP_DIRECT_CALLS 64
/* What an error's text needs at most. */
#define TCP_TEXT 80

struct tcp_peer {
    int rank;
    bool listed;           /* is on the list of peers with something to do */
    int cause;             /* errno of the loss, 0 for the end of the stream */
    const char *reason;    /* instead of errno's text; static */
    int ticks;             /* waited while nobody has called */
    int64_t deadline;      /* a connection has ended: so long the others have; 0: none has */
    struct tcp_conn *conn; /* `conns` of them, by number; one at least */
    int conns;
    int further; /* open ones beside the first */
    LIST_ENTRY(tcp_peer) entry;
    struct tcp_credit credit;
    struct tcp_control control;
    struct tcp_stripes stripes;
    bool checksum; /* frames carry one, both paths */
    struct disti_match match;
    struct tcp_queue sends;
    int pinned; /* calls of all connections that the kernel has not done with */
    uint64_t sent_bytes, received_bytes;
};

/* Someone has called and has not yet proved who he is, perhaps since he computes; fd -1: a free
 * slot. */
struct tcp_pending {
    int fd;
    struct disti_tcp_endpoint caller; /* the socket knows no more once it has been reset */
    struct disti_tls *tls;
    int64_t deadline;
    unsigned char hello[DISTI_TCP_HELLO_BYTES];
    size_t bytes;
    bool challenged;                        /* its call has come, */
    unsigned char nonce[DISTI_NONCE_BYTES]; /* and this is what it has to answer */
};

enum tcp_zerocopy_setting { TCP_ZEROCOPY_OFF, TCP_ZEROCOPY_AUTO, TCP_ZEROCOPY_ON };

/* A peer's address as it came. */
struct tcp_address {
    size_t size;
    unsigned char blob[];
};

struct tcp_state {
    bool open, checksum;
    int rank, world_size;
    int timeout_ms; /* what the connections go by; config's may have grown since */
    const struct dist_transport_config *config;
    uint64_t job;
    struct disti_secret key;       /* of the world */
    struct disti_tls_context *tls; /* of every connection; NULL: none has */
    int refusals;                  /* of callers, so far */
    int sockets;                   /* DIST_TCP_SOCKETS; 0: unset */
    bool routed;                   /* interfaces are named, and may reach peers in other networks */
    int interfaces; /* of which each has a listener; the first is the one that config named */
    struct disti_tcp_local local[DISTI_TCP_INTERFACES];
    int listeners[DISTI_TCP_INTERFACES];
    unsigned out_of_reach; /* bits by interface: the log has named it */
    int epoll, timer;
    bool ticking;           /* the timer runs */
    bool accepting;         /* there may be callers in a listener's queue */
    bool warned, no_accept; /* no_accept: no descriptor is left; until the next tick */
    int blocked;            /* peers that wait for room to write */
    int pinned;             /* calls that the kernel has not done with */
    enum tcp_zerocopy_setting zerocopy;
    uint64_t ending_tag, ending_mask; /* of a group whose memory the kernel is to let go of */
    int listed;                       /* peers on the list */
    unsigned calls;                   /* of progress that did not ask epoll */
    int64_t silence_ns;               /* the next look for peers that do not answer */
    int pending_count, pending_max;   /* callers that have not yet said who they are */
    size_t unexpected_limit;          /* of messages kept a peer before their receives are posted */
    size_t socket_bytes;
    struct disti_match_set unexpected;
    char congestion[32]; /* what connections begin with; empty: the system's */
    char paced[32];      /* what those with far peers go on with; empty: the same */
    uint32_t scope;      /* of a link-local address */
    unsigned char *buffer;
    struct tcp_peer **peers;        /* by rank; NULL until the first message or call */
    struct tcp_address **addresses; /* by rank; NULL: not known */
    LIST_HEAD(, tcp_peer) list;
    struct disti_standins standins;
    struct tcp_pending *pending; /* pending_max of them */
};

/*
 * What an epoll event belongs to; the index is a rank, a pending slot or a listener. A connection's
 * event is CONN plus its number.
 */
enum tcp_event { TCP_EVENT_LISTENER, TCP_EVENT_TIMER, TCP_EVENT_PENDING, TCP_EVENT_CONN };

#ifndef TCP_RTO_MAX_MS
/* Linux 6.15: the longest time between two probes or repetitions, at least 1 s. */
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
/* The address alone, as certificates have it. */
void disti_tcp_host_text(const struct disti_tcp_endpoint *endpoint, char *text, size_t size);
void disti_tcp_endpoint_text(const struct disti_tcp_endpoint *endpoint, char *text, size_t size);
void disti_tcp_tune(const struct tcp_state *state, int fd);
/* Edge-triggered, for reading and writing; `replace`: the descriptor changes its owner. */
bool disti_tcp_watch(struct tcp_state *state, int fd, int event, int index, bool replace);
/* Closes a socket that was watched. */
void disti_tcp_hang_up(const struct tcp_state *state, int fd);
/* Runs the timer that looks at the deadlines. */
void disti_tcp_tick_on(struct tcp_state *state, bool on);

/* Adds further interfaces that carry, each with a listener. */
void disti_tcp_interfaces(struct tcp_state *state);

/* Reads the setting of the congestion control; the listener hands it on to callers. */
dist_status disti_tcp_congestion_open(struct tcp_state *state);
/* Of a socket that is to call. */
void disti_tcp_congestion(const struct tcp_state *state, int fd);

/* tcp.c */
struct tcp_peer *disti_tcp_peer(struct tcp_state *state, int rank); /* made if need be; or NULL */
/* Makes connections until the peer has so many; they may move. False: no memory. */
bool disti_tcp_grow(struct tcp_peer *peer, int conns);
void disti_tcp_list(struct tcp_state *state, struct tcp_peer *peer);

/* Ends everything with this peer; what was received whole stays to be taken. */
void disti_tcp_lose(struct tcp_state *state, struct tcp_peer *peer, int cause, const char *reason);
/* Reports why the peer is lost (disti_fail). */
dist_status disti_tcp_report(const struct tcp_state *state, const struct tcp_peer *peer);

/* DIST_CHECKSUM, if it is set: the frame is about to be sent, with `bytes` of the request's data.
 */
void disti_tcp_seal(const struct tcp_peer *peer, unsigned char *frame,
                    const struct dist_request *request, uint64_t offset, uint64_t bytes);

/* The kernel has all bytes of the request: it ends now, or when the kernel has done with them. */
static inline void disti_tcp_sent(struct dist_request *request)
{
    if (request->own[1])
        request->own[2] = 1;
    else
        request->status = DIST_OK;
}
/* Reads what the kernel says in the error queue. False: it has said nothing of sends. */
bool disti_tcp_zerocopy_reap(struct tcp_state *state, struct tcp_conn *conn);
/* The kernel has not done with all calls. */
static inline bool disti_tcp_zerocopy_pending(const struct tcp_conn *conn)
{
    return conn->zerocopy && conn->zerocopy->ended != conn->zerocopy->sent;
}
/* Closes the socket, if there is one. With such calls the connection is reset: no more is sent. */
void disti_tcp_close(const struct tcp_state *state, struct tcp_conn *conn);

/* send.c */
/*
 * Nothing can be written any more on this connection. What the peer had sent may still wait to be
 * read: its last messages, or the goodbye that tells leaving from being lost. The first's sends
 * end. With calls that the kernel has not done with the peer is lost at once.
 */
void disti_tcp_send_broken(struct tcp_state *state, struct tcp_conn *conn, int cause);
static inline bool disti_tcp_has_sends(const struct tcp_peer *peer)
{
    return peer->sends.head || peer->pinned || peer->stripes.sending || peer->stripes.rts_count;
}
/* A message or a stripe is begun on the first connection: nothing else may go there. */
static inline bool disti_tcp_first_begun(const struct tcp_peer *peer)
{
    return (peer->sends.head && peer->sends.head->moved) ||
           (peer->conn->out.request && peer->conn->out.moved);
}
void disti_tcp_send(struct tcp_state *state, struct tcp_peer *peer, struct dist_request *request);
/* A message, a stripe, credit or an ask waits, and there is room for it. */
bool disti_tcp_can_send(const struct tcp_peer *peer);
/* Sends what there is room for: control, messages, announcements, stripes on all connections. */
int disti_tcp_send_turn(struct tcp_state *state, struct tcp_peer *peer);
void disti_tcp_fail_sends(struct tcp_state *state, struct tcp_peer *peer, dist_status status);

void disti_tcp_recv(struct tcp_state *state, struct tcp_peer *peer, struct dist_request *request);
bool disti_tcp_has_receives(const struct tcp_peer *peer);
/* Ends the receives that nothing more will come for. */
void disti_tcp_fail_receives(struct tcp_peer *peer, dist_status status);

/* receive.c */
/* One connection's turn; it can receive. Returns how much was done, in bytes or steps. */
size_t disti_tcp_receive(struct tcp_state *state, struct tcp_conn *conn);

static inline void disti_tcp_incoming_clear(struct tcp_incoming *in)
{
    free(in->stash);
    *in = (struct tcp_incoming){0};
}

/* Gives its credit back, if it had cost any. */
static inline void disti_tcp_unexpected_release(struct tcp_peer *peer,
                                                struct disti_unexpected *unexpected)
{
    if (!unexpected->descriptor)
        disti_tcp_give_back(&peer->credit, unexpected->envelope.bytes);
    disti_match_release(&peer->match, unexpected);
}

#endif
