/* SPDX-License-Identifier: BSD-3-Clause */
/* A connection of the tcp transport: its life, and what is under way on it. */
#ifndef DISTI_TRANSPORTS_TCP_CONNECTIONS_CONN_H
#define DISTI_TRANSPORTS_TCP_CONNECTIONS_CONN_H

#include "base/tls/tls.h"
#include "transports/match/match.h"
#include "transports/tcp/wire.h"

struct tcp_assembly;
struct tcp_peer;
struct tcp_state;
struct tcp_zerocopy;

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
    bool spared;                        /* it has passed once, while this rank did not look */
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
/* Both have proved who they are: messages may go, as many as the peer's has granted credit for. */
void disti_tcp_conn_up(struct tcp_state *state, struct tcp_conn *conn, uint64_t credit);
/*
 * It has not come up. The first is called again if the peer has only hung up, until its deadline;
 * else the peer is lost. The pair goes without any other. cause: errno, or 0 for the stream's end.
 */
void disti_tcp_conn_failed(struct tcp_state *state, struct tcp_conn *conn, int cause,
                           const char *reason);
/* What epoll says of it. */
void disti_tcp_conn_event(struct tcp_state *state, struct tcp_conn *conn, uint32_t events);
void disti_tcp_conn_set_writable(struct tcp_state *state, struct tcp_conn *conn, bool writable);
/* Reads what it can still give. */
void disti_tcp_conn_drain(struct tcp_state *state, struct tcp_conn *conn);
/* Its stream has ended or failed: soon all of the pair must have, or the peer is lost. */
void disti_tcp_conn_ended(struct tcp_state *state, struct tcp_conn *conn, int cause);
/* Closes its socket for good, if it has not ended. */
void disti_tcp_conn_end(struct tcp_state *state, struct tcp_conn *conn);

/* call.c: how it comes up. */

/* Calls, if it is idle. */
void disti_tcp_conn_call(struct tcp_state *state, struct tcp_conn *conn);
/* The call has been taken, or has failed: says hello. */
void disti_tcp_conn_called(struct tcp_state *state, struct tcp_conn *conn);
/* Reads the answer, as far as it is there. */
void disti_tcp_conn_read_hello(struct tcp_state *state, struct tcp_conn *conn);
/* A caller has proved that he is that rank, and gave its nonce the answer to `nonce`: his
 * descriptor becomes a connection's, or is closed. */
void disti_tcp_conn_adopt(struct tcp_state *state, int fd, struct disti_tls *tls,
                          const struct disti_tcp_hello *hello, const unsigned char *nonce);

/* accept.c: callers that have not proved who they are. */
dist_status disti_tcp_pending_open(struct tcp_state *state);
int disti_tcp_accept(struct tcp_state *state);
int disti_tcp_pending_event(struct tcp_state *state, int slot);
void disti_tcp_pending_tick(struct tcp_state *state);
void disti_tcp_pending_close(struct tcp_state *state);

/* silence.c: machines that answer no more. */

/* Has the kernel ask an idle connection's peer now and then. */
void disti_tcp_silence_tune(const struct tcp_state *state, int fd);
/*
 * Before a close: what is sent still goes to a peer that computes. The kernel gives a closed
 * connection up when its probes are as far apart as they may be, so let that be the most there is.
 */
void disti_tcp_silence_leave(int fd);
/* Calls may take longer from now on, and so may what is under way. */
void disti_tcp_silence_extend(struct tcp_state *state);
/* Looks at the peers that are waited for, if it is time; loses those that have been silent. */
void disti_tcp_silence(struct tcp_state *state);

/* Does the peer's machine owe an answer? Not one whose program takes its time. */
bool disti_tcp_silence_shows(const struct tcp_conn *conn);

/* Packets that the kernel has sent again, and that nothing acknowledges. */
struct tcp_stuck {
    unsigned packet_bytes;
    unsigned waiting_bytes, silent_ms; /* not sent yet; since the last acknowledgement */
    unsigned long long acked_bytes;    /* of the connection so far */
};
/* Returns false if there are none. */
bool disti_tcp_silence_stuck(const struct tcp_conn *conn, struct tcp_stuck *stuck_p);

/* leave.c: says goodbye and closes all connections; takes at most 0.1 s. */
void disti_tcp_leave(struct tcp_state *state);

#endif
