/* SPDX-License-Identifier: BSD-3-Clause */
/* The tcp transport's own state, and what its files offer each other. */
#ifndef DISTI_TRANSPORTS_TCP_STATE_H
#define DISTI_TRANSPORTS_TCP_STATE_H

#include "transports/match.h"
#include "transports/tcp/tcp_wire.h"

#include <netinet/in.h>
#include <sys/socket.h>

/* Received bytes pass through one buffer for all peers, small enough to stay in cache. */
#define TCP_BUFFER_BYTES ((size_t)256 << 10)
/* While a large message is expected that can be read in place, no more than this is read ahead. */
#define TCP_PEEK_BYTES ((size_t)4 << 10)
/* What one peer may move in each direction in one call of progress. */
#define TCP_TURN_BYTES ((size_t)1 << 20)
/* Messages in one sendmsg. */
#define TCP_BATCH 64
/* Callers that have not yet said who they are. */
#define TCP_PENDING_MAX 64
#define TCP_PENDING_MS 5000
/* Time between two looks at the deadlines, while there are any. */
#define TCP_TICK_MS 100
/* Up to so many peers are read without asking epoll first, which then is asked now and then. */
#define TCP_DIRECT_PEERS 2
#define TCP_DIRECT_CALLS 64
/* What an error's text needs at most. */
#define TCP_TEXT 80

/*
 * The life of a connection. The lower rank of a pair calls when it first needs the other;
 * the higher rank does so too if it has waited for a while, so that it learns of a peer
 * that has died. If both call, the lower rank's call is the one that stays.
 *
 *      IDLE --call--> CALLING --connected, hello sent--> GREETING --hello read--> UP
 *        \------------ hello of the peer read, hello sent ------------------------^
 *      any -----------------------------------------------------------------> LOST
 */
enum tcp_phase {
    TCP_PHASE_IDLE,
    TCP_PHASE_CALLING,
    TCP_PHASE_GREETING,
    TCP_PHASE_UP,
    TCP_PHASE_LOST
};

/*
 * The message that is arriving. With `active`, `left` bytes of payload are still to come;
 * they go to the request's sink, or to the early message, or nowhere if both are NULL.
 * stash keeps what was read and could not be used yet: a piece of a header, a piece of an
 * element, or, if the peer is stopped, all that had been read.
 */
struct tcp_incoming {
    bool active;
    uint64_t left;
    struct dist_request *request;
    struct disti_early *early;
    unsigned char *stash; /* small, or allocated */
    size_t stash_bytes;
    unsigned char small[DISTI_TCP_FRAME_BYTES];
};

struct tcp_peer {
    int rank;
    int fd;
    enum tcp_phase phase;
    bool known;              /* the address is set */
    bool listed;             /* is on the list of peers with something to do */
    bool readable;           /* there may be something to read */
    bool writable;           /* the last write was taken whole */
    bool hung_up;            /* the kernel said that the stream has an end */
    bool stopped;            /* not read until a receive is posted: too much came early */
    bool resume;             /* what is stashed may go on: a receive has been, or may be, posted */
    bool finished;           /* a receive has ended in this turn */
    uint64_t stopped_order;  /* disti_match_order() when it was stopped; 0: has been read since */
    bool leaving;            /* its goodbye was read */
    dist_status send_status; /* not OK: sends fail, though reading goes on */
    int cause;               /* errno of the loss, 0 for the end of the stream */
    const char *reason;      /* instead of errno's text; static */
    int ticks;               /* waited while IDLE */
    int64_t deadline;        /* of CALLING and GREETING; 0: none set yet */
    struct disti_tcp_endpoint endpoint;
    struct tcp_peer *next, *prev;
    struct disti_match match;
    size_t early_count;
    struct dist_request *send_head, *send_tail;
    struct tcp_incoming in;
    unsigned char hello[DISTI_TCP_HELLO_BYTES];
    size_t hello_bytes;
    uint64_t sent_bytes, received_bytes;
};

/* Someone has called and has not yet said who he is; fd -1: a free slot. */
struct tcp_pending {
    int fd;
    int64_t deadline;
    unsigned char hello[DISTI_TCP_HELLO_BYTES];
    size_t bytes;
};

struct tcp_state {
    bool open;
    int rank, world_size, timeout_ms;
    uint64_t job;
    int listener, epoll, timer;
    bool ticking;   /* the timer runs */
    bool accepting; /* there may be callers in the listener's queue */
    bool no_accept; /* until the next tick: no file descriptor is left */
    bool warned;
    int blocked;    /* peers that wait for room to write */
    int listed;     /* peers on the list */
    unsigned calls; /* of progress that did not ask epoll */
    int pending_count;
    size_t early_limit, socket_bytes;
    char congestion[32]; /* what connections begin with; empty: the system's */
    char paced[32];      /* what those with far peers go on with; empty: the same */
    uint32_t scope;      /* of a link-local address */
    struct disti_tcp_endpoint endpoint;
    unsigned char *buffer;
    struct tcp_peer **peers; /* by rank; NULL until needed */
    struct tcp_peer *list;
    struct tcp_pending pending[TCP_PENDING_MAX];
};

/* What an epoll event belongs to; the index is a rank or a pending slot. */
enum tcp_event { TCP_EVENT_LISTENER, TCP_EVENT_TIMER, TCP_EVENT_PENDING, TCP_EVENT_PEER };

/* tcp_socket.c: sockets and addresses. */
dist_status disti_tcp_listen(struct tcp_state *state, const char *host);
socklen_t disti_tcp_sockaddr(const struct disti_tcp_endpoint *endpoint, uint32_t scope,
                             struct sockaddr_storage *address_p);
void disti_tcp_endpoint_text(const struct disti_tcp_endpoint *endpoint, char *text, size_t size);
bool disti_tcp_loopback(const struct disti_tcp_endpoint *endpoint);
uint64_t disti_tcp_machine(void);
void disti_tcp_tune(const struct tcp_state *state, int fd);
/* Edge-triggered, for reading and writing; again for a descriptor whose owner changes. */
bool disti_tcp_watch(struct tcp_state *state, int fd, enum tcp_event event, int index, bool again);
/* Sends a hello; false if the connection did not take it whole. */
bool disti_tcp_greet(const struct tcp_state *state, int fd, int to);
/* Is it the hello of a rank of this job, for this rank? */
bool disti_tcp_hello_valid(const struct tcp_state *state, const unsigned char *bytes, int *from_p);
/* Runs the timer that looks at the deadlines. */
void disti_tcp_tick_on(struct tcp_state *state, bool on);

/* tcp_congestion.c: congestion control. Reads the setting; the listener hands it on to callers. */
dist_status disti_tcp_congestion_open(struct tcp_state *state);
/* Of a socket that is to call. */
void disti_tcp_congestion(const struct tcp_state *state, int fd);
/* Of a connection that is made: now it shows how far the peer is. */
void disti_tcp_congestion_settle(const struct tcp_state *state, int fd);

/* tcp_accept.c: callers. */
int disti_tcp_accept(struct tcp_state *state);
int disti_tcp_pending_event(struct tcp_state *state, int slot);
void disti_tcp_pending_tick(struct tcp_state *state);
void disti_tcp_pending_close(struct tcp_state *state);

/* tcp_peer.c: the life of a connection. */
struct tcp_peer *disti_tcp_peer(struct tcp_state *state, int rank); /* made if need be; or NULL */
void disti_tcp_list(struct tcp_state *state, struct tcp_peer *peer);
void disti_tcp_unlist(struct tcp_state *state, struct tcp_peer *peer);
void disti_tcp_call(struct tcp_state *state, struct tcp_peer *peer);
/* A caller has shown a valid hello of this peer: the descriptor becomes ours, or is closed. */
void disti_tcp_adopt(struct tcp_state *state, int fd, int rank);
int disti_tcp_peer_event(struct tcp_state *state, struct tcp_peer *peer, uint32_t events);
/* Once a tick for a listed peer: deadlines and waiting. True: it goes on needing the timer. */
bool disti_tcp_peer_tick(struct tcp_state *state, struct tcp_peer *peer);
void disti_tcp_set_writable(struct tcp_state *state, struct tcp_peer *peer, bool writable);
/* Ends everything with this peer; what was received whole stays to be taken. */
void disti_tcp_lose(struct tcp_state *state, struct tcp_peer *peer, int cause, const char *reason);
/* Reports why the peer is lost (disti_fail). */
dist_status disti_tcp_report(const struct tcp_state *state, const struct tcp_peer *peer);

/* tcp_leave.c: says goodbye and closes all connections; takes at most 0.1 s. */
void disti_tcp_leave(struct tcp_state *state);

/* tcp_send.c */
void disti_tcp_send(struct tcp_state *state, struct tcp_peer *peer, struct dist_request *request);
int disti_tcp_flush(struct tcp_state *state, struct tcp_peer *peer);
bool disti_tcp_fail_sends(struct tcp_peer *peer, dist_status status);

/* tcp_probe.c: the slot of this name (transport.h). */
int disti_tcp_probe_tag(void *instance, uint64_t tag);
int disti_tcp_probe_stray(void *instance, uint64_t tag, uint64_t fingerprint,
                          struct dist_envelope *envelope_p);

/* tcp_receive.c */
void disti_tcp_recv(struct tcp_state *state, struct tcp_peer *peer, struct dist_request *request);
/* What had stopped the reading may be gone: a receive was posted, or the stream has ended. */
void disti_tcp_resume(struct tcp_peer *peer);
int disti_tcp_receive(struct tcp_state *state, struct tcp_peer *peer);
bool disti_tcp_has_receives(const struct tcp_peer *peer);
/* Ends the receives that nothing more will come for. True if there were any. */
bool disti_tcp_fail_receives(struct tcp_peer *peer, dist_status status);
void disti_tcp_incoming_clear(struct tcp_peer *peer);

#endif
