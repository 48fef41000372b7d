/* SPDX-License-Identifier: BSD-3-Clause */
/* The tcp transport's own state, and what its files offer each other. */
#ifndef DISTI_TRANSPORTS_TCP_STATE_H
#define DISTI_TRANSPORTS_TCP_STATE_H

#include "transports/match/match.h"
#include "transports/match/standin.h"
#include "transports/tcp/connections/conn.h"
#include "transports/tcp/credit.h"
#include "transports/tcp/stripes/stripes.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* Received bytes pass through one buffer for all peers, small enough to stay in cache. */
#define TCP_BUFFER_BYTES ((size_t)256 << 10)
/* While a large message is expected that can be read in place, no more than this is read ahead. */
#define TCP_PEEK_BYTES ((size_t)4 << 10)
/* What one peer may move in each direction in one call of progress. */
#define TCP_TURN_BYTES ((size_t)1 << 20)
/* Offers under way to one peer: what one costs it, about 100 bytes, it keeps beyond the credit. */
#define TCP_OFFERS_MAX (1 << 20)
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
    struct tcp_peer *next, *prev;
    struct tcp_credit credit;
    struct tcp_control control;
    struct tcp_stripes stripes;
    bool checksum; /* frames carry one, both ways */
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
    struct tcp_peer *list;
    struct disti_standins standins;
    struct tcp_pending *pending; /* pending_max of them */
};

/*
 * What an epoll event belongs to; the index is a rank, a pending slot or a listener. A connection's
 * event is CONN plus its number.
 */
enum tcp_event { TCP_EVENT_LISTENER, TCP_EVENT_TIMER, TCP_EVENT_PENDING, TCP_EVENT_CONN };

/* socket.c: sockets and addresses. */
dist_status disti_tcp_listen(struct tcp_state *state, const char *host);
/* A further listener, at an address whose port becomes the one it got. False: see errno. */
bool disti_tcp_listen_at(const struct tcp_state *state, struct disti_tcp_endpoint *endpoint,
                         int *fd_p);
void disti_tcp_endpoint_of(const struct sockaddr *address, struct disti_tcp_endpoint *endpoint_p);
socklen_t disti_tcp_sockaddr(const struct disti_tcp_endpoint *endpoint, uint32_t scope,
                             struct sockaddr_storage *address_p);
/* The address alone, as certificates have it. */
void disti_tcp_host_text(const struct disti_tcp_endpoint *endpoint, char *text, size_t size);
void disti_tcp_endpoint_text(const struct disti_tcp_endpoint *endpoint, char *text, size_t size);
bool disti_tcp_loopback(const struct disti_tcp_endpoint *endpoint);
void disti_tcp_tune(const struct tcp_state *state, int fd);
/* Edge-triggered, for reading and writing; `replace`: the descriptor changes its owner. */
bool disti_tcp_watch(struct tcp_state *state, int fd, int event, int index, bool replace);
/* connections/greet.c */
/*
 * Sends a hello of that step, with this rank's nonce, for that peer and socket; `other` is the
 * peer's nonce, for a proof. False if the connection did not take it whole.
 */
bool disti_tcp_greet(const struct tcp_state *state, int fd, struct disti_tls *tls, int to,
                     int number, enum disti_tcp_step step, const unsigned char *nonce,
                     const unsigned char *other);
/* Is it the hello of a rank of this job, for this rank, in that step? Not proved yet. */
bool disti_tcp_hello_valid(const struct tcp_state *state, const unsigned char *bytes,
                           enum disti_tcp_step step, struct disti_tcp_hello *hello_p);
/* Does its proof hold, for this rank's nonce and this session? */
bool disti_tcp_hello_proved(const struct tcp_state *state, struct disti_tls *tls,
                            const unsigned char *bytes, const unsigned char *nonce);
/* Closes a socket that was watched. */
void disti_tcp_hang_up(const struct tcp_state *state, int fd);
/* Runs the timer that looks at the deadlines. */
void disti_tcp_tick_on(struct tcp_state *state, bool on);

/* paths/interfaces.c: adds further interfaces that carry, each with a listener. */
void disti_tcp_interfaces(struct tcp_state *state);

/* paths/congestion.c: congestion control. Reads the setting; the listener hands it on to callers.
 */
dist_status disti_tcp_congestion_open(struct tcp_state *state);
/* Of a socket that is to call. */
void disti_tcp_congestion(const struct tcp_state *state, int fd);
/* Of a connection that is made: now it shows how far the peer is. */
void disti_tcp_congestion_choose(const struct tcp_state *state, int fd);

/* peer.c */
struct tcp_peer *disti_tcp_peer(struct tcp_state *state, int rank); /* made if need be; or NULL */
void disti_tcp_peer_free(struct tcp_peer *peer);
/* Makes connections until the peer has so many; they may move. False: no memory. */
bool disti_tcp_grow(struct tcp_peer *peer, int conns);
void disti_tcp_list(struct tcp_state *state, struct tcp_peer *peer);
void disti_tcp_unlist(struct tcp_state *state, struct tcp_peer *peer);
/* Decides by the peer's address which connections there are to be. False: no memory. */
bool disti_tcp_plan(struct tcp_state *state, struct tcp_peer *peer,
                    const struct disti_tcp_address *address);
/* This rank has called for the first: it calls for the others. */
void disti_tcp_call_further(struct tcp_state *state, struct tcp_peer *peer);
/* Once a tick for a listed peer: deadlines and waiting. True: it goes on needing the timer. */
bool disti_tcp_peer_tick(struct tcp_state *state, struct tcp_peer *peer);
/* Something can be moved without news of the peer. */
bool disti_tcp_peer_can_move(const struct tcp_peer *peer);
/* Sends, receives. `guess`: reads even if epoll has not said that there is something. */
int disti_tcp_peer_turn(struct tcp_state *state, struct tcp_peer *peer, bool guess);
/* One of its connections has ended: soon all have, or the peer is lost. */
void disti_tcp_peer_ends(struct tcp_state *state, struct tcp_peer *peer, int cause);
/* Ends everything with this peer; what was received whole stays to be taken. */
void disti_tcp_lose(struct tcp_state *state, struct tcp_peer *peer, int cause, const char *reason);
/* Reports why the peer is lost (disti_fail). */
dist_status disti_tcp_report(const struct tcp_state *state, const struct tcp_peer *peer);

/* checksum.c: DIST_CHECKSUM. Nothing is done where it is not set. */
dist_status disti_tcp_checksum_setting(struct tcp_state *state);
/* The frame is about to be sent, with so many bytes of the request's data. */
void disti_tcp_seal(const struct tcp_peer *peer, unsigned char *frame,
                    const struct dist_request *request, uint64_t offset, uint64_t bytes);
/* A sealed frame has come. Returns `unsealed`: what it was before. */
const unsigned char *disti_tcp_unseal(struct tcp_incoming *in, const unsigned char *frame,
                                      unsigned char unsealed[DISTI_TCP_FRAME_BYTES]);
/* Its payload has come so far. */
void disti_tcp_sum(const struct tcp_peer *peer, struct tcp_incoming *in, const void *data,
                   size_t bytes);
/* Only so much of its payload has come, all of which is in data: the rest is to be taken again. */
void disti_tcp_sum_again(const struct tcp_peer *peer, struct tcp_incoming *in, const void *data,
                         size_t bytes);
/* All of it has. False: it is damaged, and so the peer is lost. */
bool disti_tcp_sum_fits(struct tcp_state *state, const struct tcp_conn *conn);

/* zerocopy.c: sends that copy nothing. Reads the setting. */
dist_status disti_tcp_zerocopy_setting(struct tcp_state *state);
/* For a socket that is up; NULL: it copies. To be freed when no more is sent. */
struct tcp_zerocopy *disti_tcp_zerocopy_open(const struct tcp_state *state, int fd);
bool disti_tcp_zerocopy_takes(const struct tcp_zerocopy *zerocopy, uint64_t bytes);
/* Sends parts[0], which is copied, and then parts[1], which is the request's and is not. */
ssize_t disti_tcp_zerocopy_write(struct tcp_state *state, struct tcp_conn *conn,
                                 struct dist_request *request, struct iovec parts[2]);
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
bool disti_tcp_zerocopy_pending(const struct tcp_conn *conn);
/* Not with one of a message with such a tag, stand-ins aside: their memory is libdist's. */
bool disti_tcp_zerocopy_holds(const struct tcp_state *state, const struct tcp_conn *conn,
                              uint64_t tag, uint64_t mask);
/* Closes the socket, if there is one. With such calls the connection is reset: no more is sent. */
void disti_tcp_close(const struct tcp_state *state, struct tcp_conn *conn);
/* Has the kernel acknowledge now what has been read; else it may do so 40 ms later, with data. */
void disti_tcp_acknowledge(int fd);
/* Forgets the calls under way, before the requests that are still in a queue are ended. */
void disti_tcp_zerocopy_fail(struct tcp_state *state, struct tcp_conn *conn, dist_status status);

/* send.c */
/*
 * Nothing can be written any more on this connection. What the peer had sent may still wait to be
 * read: its last messages, or the goodbye that tells leaving from being lost. The first's sends
 * end. With calls that the kernel has not done with the peer is lost at once.
 */
void disti_tcp_send_broken(struct tcp_state *state, struct tcp_conn *conn, int cause);
bool disti_tcp_has_sends(const struct tcp_peer *peer);
/* A message or a stripe is begun on the first connection: nothing else may go there. */
static inline bool disti_tcp_first_begun(const struct tcp_peer *peer)
{
    return (peer->sends.head && peer->sends.head->moved) ||
           (peer->conn->out.request && peer->conn->out.moved);
}
void disti_tcp_send(struct tcp_state *state, struct tcp_peer *peer, struct dist_request *request);
/* A message waits, and the first connection has room for it and nothing to send before. */
bool disti_tcp_can_flush(const struct tcp_peer *peer);
/* Sends what there is room for: control, messages, announcements, stripes on all connections. */
int disti_tcp_send_turn(struct tcp_state *state, struct tcp_peer *peer);
void disti_tcp_fail_sends(struct tcp_state *state, struct tcp_peer *peer, dist_status status);

/* cancel.c: the slot of that name. */
void disti_tcp_cancel(void *instance, uint64_t tag, uint64_t mask);

/* probe.c: the slots of these names (transport.h). */
void disti_tcp_describe(void *instance, int rank, char *text, size_t size);
int disti_tcp_probe_tag(void *instance, uint64_t tag);
void disti_tcp_unexpected(void *instance, uint64_t tag, uint64_t mask, int most,
                          dist_unexpected_fn see, void *arg);

/* frame.c */
/* A header has come. False: what it begins cannot be taken now, or the peer is lost. */
bool disti_tcp_frame(struct tcp_state *state, struct tcp_conn *conn, const unsigned char *bytes);
/* Asks for an offered message that has met its receive. ERR_NO_MEMORY is not reported. */
dist_status disti_tcp_ask_for(struct tcp_peer *peer, uint64_t number, uint64_t bytes,
                              struct dist_request *request);

/* post.c */
void disti_tcp_recv(struct tcp_state *state, struct tcp_peer *peer, struct dist_request *request);
bool disti_tcp_has_receives(const struct tcp_peer *peer);
/* Ends the receives that nothing more will come for. */
void disti_tcp_fail_receives(struct tcp_peer *peer, dist_status status);
/* Gives its credit back, if it had cost any. */
void disti_tcp_unexpected_release(struct tcp_peer *peer, struct disti_unexpected *unexpected);

/* receive.c */
/* One connection's turn; it can receive. Returns how much was done, in bytes or steps. */
size_t disti_tcp_receive(struct tcp_state *state, struct tcp_conn *conn);
void disti_tcp_incoming_clear(struct tcp_incoming *in);

#endif
