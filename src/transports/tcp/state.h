/* SPDX-License-Identifier: BSD-3-Clause */
/* The tcp transport's own state, and what its files offer each other. */
#ifndef DISTI_TRANSPORTS_TCP_STATE_H
#define DISTI_TRANSPORTS_TCP_STATE_H

#include "transports/match/match.h"
#include "transports/match/standin.h"
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

/*
 * The life of a connection. The lower rank of a pair calls when it first needs the other;
 * the higher rank does so too if it has waited for a while, so that it learns of a peer
 * that has died. If both call, the lower rank's call is the one that stays.
 *
 *      IDLE --call--> CALLING --connected, hello sent--> GREETING --hello read--> UP
 *       | ^------------ hung up: to be called again --------'                     ^
 *       '------------- hello of the peer read, hello sent ------------------------'
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
 * The message, or the stripe of one, that is arriving on a socket. With `active`, `left` bytes of
 * payload are still to come, which begin at byte `at` of the message; they go to the request's
 * sink, or to the unexpected message, or nowhere if both are NULL.
 * stash keeps what was read and could not be used yet: a piece of a header, a piece of an
 * element, or all behind a message that waits a turn for its receive.
 */
struct tcp_incoming {
    bool active;
    uint64_t left, at;
    struct tcp_assembly *assembly; /* the message that a stripe is of; NULL: no stripe */
    uint64_t stripe;               /* bytes of it */
    struct dist_request *request;
    struct disti_unexpected *unexpected;
    unsigned char *stash; /* small, or allocated */
    size_t stash_bytes;
    unsigned char small[DISTI_TCP_FRAME_BYTES];
};

/* A further socket. LOST: left out, or ended. */
struct tcp_rail {
    int fd;
    enum tcp_phase phase;
    bool readable, writable;
    bool waiting; /* not read until the stripe's message is announced; then resume */
    bool resume;
    int64_t deadline;  /* of CALLING */
    int64_t silent_ns; /* as the peer's */
    struct tcp_incoming in;
    struct tcp_outgoing out;
    unsigned char hello[DISTI_TCP_HELLO_BYTES];
    size_t hello_bytes;
};

/* Of a pair with several sockets: the rank that has called for the first calls for the others. */
struct tcp_rails {
    struct disti_tcp_address address; /* the peer's */
    struct disti_tcp_way ways[DISTI_TCP_INTERFACES];
    int way_count;
    int wanted; /* sockets, the first among them; 1: only those that the peer calls for */
    int up;     /* further sockets that carry stripes */
    struct tcp_rail rail[DISTI_TCP_SOCKETS]; /* by number; the first is not among them */
    int64_t deadline; /* a socket has ended: the others have so long to end too; 0: none has */
    int cause;
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
    bool resume;             /* what is stashed may go on: its receive may be posted by now */
    bool finished;           /* a receive has ended in this turn */
    bool leaving;            /* its goodbye was read */
    dist_status send_status; /* not OK: sends fail, though reading goes on */
    int cause;               /* errno of the loss, 0 for the end of the stream */
    const char *reason;      /* instead of errno's text; static */
    int ticks;               /* waited while IDLE */
    int64_t deadline;        /* of CALLING and GREETING; 0: none set yet */
    int64_t silent_ns;       /* since when its machine has not answered; 0: it has */
    struct disti_tcp_endpoint endpoint;
    struct tcp_rails *rails; /* NULL: the pair has one socket */
    struct tcp_peer *next, *prev;
    struct tcp_credit credit;
    struct tcp_control control;
    struct tcp_stripes stripes;
    struct disti_match match;
    struct dist_request *send_head, *send_tail;
    struct tcp_incoming in;
    unsigned char hello[DISTI_TCP_HELLO_BYTES];
    size_t hello_bytes;
    struct tcp_zerocopy *zerocopy; /* of the first socket; NULL: it copies */
    int pinned;                    /* calls of all sockets that the kernel has not done with */
    uint64_t sent_bytes, received_bytes;
};

/* Someone has called and has not yet said who he is, perhaps since he computes; fd -1: a free slot.
 */
struct tcp_pending {
    int fd;
    int64_t deadline;
    unsigned char hello[DISTI_TCP_HELLO_BYTES];
    size_t bytes;
};

enum tcp_zerocopy_setting { TCP_ZEROCOPY_OFF, TCP_ZEROCOPY_AUTO, TCP_ZEROCOPY_ON };

struct tcp_state {
    bool open;
    int rank, world_size, timeout_ms;
    uint64_t job;
    int sockets;    /* DIST_TCP_SOCKETS; 0: unset */
    bool routed;    /* interfaces are named, and may reach peers in other networks */
    int interfaces; /* of which each has a listener; the first is the one that config named */
    struct disti_tcp_local local[DISTI_TCP_INTERFACES];
    int listeners[DISTI_TCP_INTERFACES];
    unsigned left_out; /* bits by interface: the log has said that a peer cannot be reached by it */
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
    struct tcp_peer **peers; /* by rank; NULL until needed */
    struct tcp_peer *list;
    struct disti_standins standins;
    struct tcp_pending *pending; /* pending_max of them */
};

/*
 * What an epoll event belongs to; the index is a rank, a pending slot or a listener. A further
 * socket's event is RAIL plus its number.
 */
enum tcp_event {
    TCP_EVENT_LISTENER,
    TCP_EVENT_TIMER,
    TCP_EVENT_PENDING,
    TCP_EVENT_PEER,
    TCP_EVENT_RAIL
};

/* socket.c: sockets and addresses. */
dist_status disti_tcp_listen(struct tcp_state *state, const char *host);
/* A further listener, at an address whose port becomes the one it got. False: see errno. */
bool disti_tcp_listen_at(const struct tcp_state *state, struct disti_tcp_endpoint *endpoint,
                         int *fd_p);
void disti_tcp_endpoint_of(const struct sockaddr *address, struct disti_tcp_endpoint *endpoint_p);
socklen_t disti_tcp_sockaddr(const struct disti_tcp_endpoint *endpoint, uint32_t scope,
                             struct sockaddr_storage *address_p);
void disti_tcp_endpoint_text(const struct disti_tcp_endpoint *endpoint, char *text, size_t size);
bool disti_tcp_loopback(const struct disti_tcp_endpoint *endpoint);
uint64_t disti_tcp_machine(void);
void disti_tcp_tune(const struct tcp_state *state, int fd);
/* Edge-triggered, for reading and writing; again for a descriptor whose owner changes. */
bool disti_tcp_watch(struct tcp_state *state, int fd, int event, int index, bool again);
/* Sends a hello; false if the connection did not take it whole. */
bool disti_tcp_greet(const struct tcp_state *state, int fd, int to, int number);
/* Is it the hello of a rank of this job, for this rank? */
bool disti_tcp_hello_valid(const struct tcp_state *state, const unsigned char *bytes,
                           struct disti_tcp_hello *hello_p);
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

/* silence.c: machines that answer no more. */
/* Has the kernel ask an idle connection's peer now and then. */
void disti_tcp_silence_tune(const struct tcp_state *state, int fd);
/*
 * Before a close: what is sent still goes to a peer that computes. The kernel gives a closed
 * connection up when its probes are as far apart as they may be, so let that be the most there is.
 */
void disti_tcp_silence_leave(int fd);
/* Looks at the peers that are waited for, if it is time; loses those that have been silent. */
void disti_tcp_silence(struct tcp_state *state);

/* accept.c: callers. */
dist_status disti_tcp_pending_open(struct tcp_state *state);
int disti_tcp_accept(struct tcp_state *state);
int disti_tcp_pending_event(struct tcp_state *state, int slot);
void disti_tcp_pending_tick(struct tcp_state *state);
void disti_tcp_pending_close(struct tcp_state *state);

/* peer.c: the life of a connection. */
struct tcp_peer *disti_tcp_peer(struct tcp_state *state, int rank); /* made if need be; or NULL */
void disti_tcp_list(struct tcp_state *state, struct tcp_peer *peer);
void disti_tcp_unlist(struct tcp_state *state, struct tcp_peer *peer);
void disti_tcp_call(struct tcp_state *state, struct tcp_peer *peer);
/* A caller has shown a valid hello of this peer: the descriptor becomes ours, or is closed. */
void disti_tcp_adopt(struct tcp_state *state, int fd, const struct disti_tcp_hello *hello);
int disti_tcp_peer_event(struct tcp_state *state, struct tcp_peer *peer, uint32_t events);
/* Once a tick for a listed peer: deadlines and waiting. True: it goes on needing the timer. */
bool disti_tcp_peer_tick(struct tcp_state *state, struct tcp_peer *peer);
void disti_tcp_set_writable(struct tcp_state *state, struct tcp_peer *peer, bool writable);
/* Ends everything with this peer; what was received whole stays to be taken. */
void disti_tcp_lose(struct tcp_state *state, struct tcp_peer *peer, int cause, const char *reason);
/* Reports why the peer is lost (disti_fail). */
dist_status disti_tcp_report(const struct tcp_state *state, const struct tcp_peer *peer);

/* leave.c: says goodbye and closes all connections; takes at most 0.1 s. */
void disti_tcp_leave(struct tcp_state *state);

/* zerocopy.c: sends that copy nothing. Reads the setting. */
dist_status disti_tcp_zerocopy_setting(struct tcp_state *state);
/* For a socket that is up; NULL: it copies. To be freed when no more is sent. */
struct tcp_zerocopy *disti_tcp_zerocopy_open(const struct tcp_state *state, int fd);
bool disti_tcp_zerocopy_takes(const struct tcp_zerocopy *zerocopy, uint64_t bytes);
/* Sends parts[0], which is copied, and then parts[1], which is the request's and is not. */
ssize_t disti_tcp_zerocopy_write(struct tcp_state *state, struct tcp_peer *peer, int fd,
                                 struct tcp_zerocopy *zerocopy, struct dist_request *request,
                                 struct iovec parts[2]);
/* The kernel has all bytes of the request: it ends now, or when the kernel has done with them. */
static inline void disti_tcp_sent(struct dist_request *request)
{
    if (request->own[1])
        request->own[2] = 1;
    else
        request->status = DIST_OK;
}
/* Reads what the kernel says in the error queue. False: it has said nothing of sends. */
bool disti_tcp_zerocopy_reap(struct tcp_state *state, struct tcp_peer *peer, int fd,
                             struct tcp_zerocopy *zerocopy);
/* The kernel has not done with all calls. */
bool disti_tcp_zerocopy_pending(const struct tcp_zerocopy *zerocopy);
/* Not with one of a message with such a tag, stand-ins aside: their memory is ours. */
bool disti_tcp_zerocopy_holds(const struct tcp_state *state, const struct tcp_zerocopy *zerocopy,
                              uint64_t tag, uint64_t mask);
/* Closes a socket, or -1. With such calls the connection is reset, so that no more is sent. */
void disti_tcp_close(int fd, const struct tcp_zerocopy *zerocopy);
/* Has the kernel acknowledge now what has been read; else it may do so 40 ms later, with data. */
void disti_tcp_acknowledge(int fd);
/* Forgets the calls under way, before the requests that are still in a queue are ended. */
void disti_tcp_zerocopy_fail(struct tcp_state *state, struct tcp_peer *peer,
                             struct tcp_zerocopy *zerocopy, dist_status status);

/* stripes/rails.c: the life of a peer's further sockets. The peer has rails, but where it says so.
 */
/* Settles by the peer's address how many sockets there are; peer->rails stays NULL if one. */
dist_status disti_tcp_rails_open(struct tcp_state *state, struct tcp_peer *peer,
                                 const struct disti_tcp_address *address);
void disti_tcp_rails_call(struct tcp_state *state, struct tcp_peer *peer);
/* As disti_tcp_adopt, for a further socket; the peer may have no rails yet. */
void disti_tcp_rails_adopt(struct tcp_state *state, int fd, int rank, int number);
void disti_tcp_rail_event(struct tcp_state *state, struct tcp_peer *peer, int number,
                          uint32_t events);
void disti_tcp_rail_writable(struct tcp_state *state, struct tcp_rail *rail, bool writable);
/* A further socket, or the first, has ended or failed: soon all must have, or the peer is lost. */
void disti_tcp_rail_ended(struct tcp_state *state, struct tcp_peer *peer, struct tcp_rail *rail,
                          int cause);
void disti_tcp_rails_end(struct tcp_state *state, struct tcp_peer *peer, int cause);
/* As disti_tcp_peer_tick. */
bool disti_tcp_rails_tick(struct tcp_state *state, struct tcp_peer *peer);
bool disti_tcp_rails_busy(const struct tcp_peer *peer);
/* Closes them: the peer is lost. Requests are still to be ended. */
void disti_tcp_rails_close(struct tcp_state *state, struct tcp_peer *peer);
/* Frees all; the sockets are closed. */
void disti_tcp_rails_free(struct tcp_rails *rails);

/* send.c */
/*
 * Nothing can be written any more on the first socket. What the peer had sent may still wait to be
 * read: its last messages, or the goodbye that tells leaving from being lost. With calls that the
 * kernel has not done with, on other sockets, the peer is lost at once.
 */
void disti_tcp_send_broken(struct tcp_state *state, struct tcp_peer *peer, int cause);
bool disti_tcp_has_sends(const struct tcp_peer *peer);
/* A message or a stripe is begun on the first socket: nothing else may go there. */
static inline bool disti_tcp_first_begun(const struct tcp_peer *peer)
{
    return (peer->send_head && peer->send_head->moved) ||
           (peer->stripes.out.request && peer->stripes.out.moved);
}
void disti_tcp_send(struct tcp_state *state, struct tcp_peer *peer, struct dist_request *request);
/* A message waits, and the first socket has room for it and nothing to send before. */
bool disti_tcp_can_flush(const struct tcp_peer *peer);
/* Sends what there is room for: control, messages, announcements, stripes on all sockets. */
int disti_tcp_send_turn(struct tcp_state *state, struct tcp_peer *peer);
bool disti_tcp_fail_sends(struct tcp_state *state, struct tcp_peer *peer, dist_status status);

/* cancel.c: the slot of that name. */
void disti_tcp_cancel(void *instance, uint64_t tag, uint64_t mask);

/* probe.c: the slots of these names (transport.h). */
void disti_tcp_describe(void *instance, int rank, char *text, size_t size);
int disti_tcp_probe_tag(void *instance, uint64_t tag);
void disti_tcp_unexpected(void *instance, uint64_t tag, uint64_t mask, int most,
                          dist_unexpected_fn see, void *arg);

/* receive.c */
/*
 * One read from a socket, and use of what it gave; *full_p: it gave all that was asked for. Returns
 * what read did.
 */
ssize_t disti_tcp_read(struct tcp_state *state, struct tcp_peer *peer, int fd,
                       struct tcp_incoming *in, bool *full_p);
/* Goes on with what is stashed. */
void disti_tcp_use_stash(struct tcp_state *state, struct tcp_peer *peer, struct tcp_incoming *in);
/* Gives its credit back, if it had cost any. */
void disti_tcp_unexpected_release(struct tcp_peer *peer, struct disti_unexpected *unexpected);
void disti_tcp_recv(struct tcp_state *state, struct tcp_peer *peer, struct dist_request *request);
int disti_tcp_receive(struct tcp_state *state, struct tcp_peer *peer);
bool disti_tcp_has_receives(const struct tcp_peer *peer);
/* Ends the receives that nothing more will come for. True if there were any. */
bool disti_tcp_fail_receives(struct tcp_peer *peer, dist_status status);
void disti_tcp_incoming_clear(struct tcp_incoming *in);

#endif
