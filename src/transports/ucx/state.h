/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: where the connection to a peer stands; private to this folder. */
#ifndef DISTI_TRANSPORTS_UCX_STATE_H
#define DISTI_TRANSPORTS_UCX_STATE_H

#include "transports/match/match.h"
#include "transports/ucx/ucx.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <ucp/api/ucp.h>

/*
 *           an endpoint             an error, or its               the endpoint
 *           is made                 messages were all              is closed
 *      NEW ------------> OPEN --------------------------> FAILED ---------------> CLOSED
 *       |                 |                                 ^                       ^
 *       |                 '------ this rank leaves ---------|-----------------------'
 *       '---------- no endpoint can be made, or the peer said goodbye
 *
 * A peer is lost once it has FAILED: no message leaves or comes any more. An endpoint is not closed
 * at once, since UCX reports errors from its callbacks, in which nothing may be closed.
 */
enum ucx_phase { UCX_NEW, UCX_OPEN, UCX_FAILED, UCX_CLOSED };

/* Does the drawing have that arrow? */
static inline bool disti_ucx_phase_allows(enum ucx_phase from, enum ucx_phase to)
{
    static const uint8_t transitions[] = {
        [UCX_NEW] = 1 << UCX_OPEN | 1 << UCX_FAILED,
        [UCX_OPEN] = 1 << UCX_FAILED | 1 << UCX_CLOSED,
        [UCX_FAILED] = 1 << UCX_CLOSED,
        [UCX_CLOSED] = 0,
    };

    return transitions[from] & 1 << to;
}

/* What transport ucx is made of; private to this folder. */

/*
 * A message is one active message with its head in front. A long one, and one for which there is no
 * credit (match.h), is announced, and comes in pieces once it is asked for; so a reduction needs
 * no memory as large as the message. Whether UCX sends a piece along or lets the receiver fetch it
 * is UCX's choice; a message that nobody asked for is a copy of its own:
 *
 *   MESSAGE   [rank, serial 5, envelope] payload
 *   ANNOUNCE  [rank, serial 6, envelope, name 0]
 *   ANSWER                                        <-- [rank, name 0, wanted]
 *   PIECE     [rank, serial 6, offset 0] 1 MiB   [rank, serial 6, offset 1 MiB] 1 MiB   ...
 *
 * Active messages may overtake each other, so a pair's messages are numbered and taken in order.
 */
#define UCX_PIECE_BYTES ((size_t)1 << 20)
#define UCX_WHOLE_BYTES ((size_t)128 << 10)     /* in one message at most, which is copied */
#define UCX_WHOLE_BYTES_RDMA ((size_t)32 << 10) /* the same where the network can do without */
#define UCX_CREDIT_BYTES ((uint64_t)4 << 20) /* kept for each peer before its receives, at most */
#define UCX_WINDOW 4                         /* pieces under way a message */
#define UCX_SCRATCHES 16 /* pieces that are fetched to be reduced, of all messages */

enum ucx_am {
    UCX_AM_MESSAGE = 1,
    UCX_AM_PIECE,
    UCX_AM_HELLO,
    UCX_AM_GOODBYE,
    UCX_AM_RTS,
    UCX_AM_ANSWER,
    UCX_AM_CREDIT,
    UCX_AM_COUNT
};

/* What UCX hands back with each message of one kind. */
struct ucx_listener {
    struct ucx_state *ucx;
    enum ucx_am id;
};

struct ucx_head {
    uint32_t rank; /* the sender's */
    uint32_t serial;
    struct dist_envelope envelope;
};

struct ucx_rts {
    struct ucx_head head;
    uint32_t name; /* by which it is asked for */
    uint32_t pad;
};

struct ucx_answer {
    uint32_t rank;
    uint32_t name;
    uint32_t accepted; /* 0: nobody will receive it */
};

struct ucx_returned {
    uint32_t rank;
    uint32_t pad;
    uint64_t returned; /* of the receiver's credit, in all */
};

struct ucx_piece_head {
    uint32_t rank;
    uint32_t serial; /* the message's */
    uint64_t offset;
};

/* HELLO: makes a connection, so that its loss is noticed. GOODBYE: serial messages were all. */
struct ucx_note {
    uint32_t rank;
    uint32_t serial;
};

/* A piece of a message that is fetched: to where it belongs, or to scratch. */
struct ucx_pull {
    struct ucx_pull *next;
    struct ucx_state *ucx;
    struct ucx_inbound *inbound; /* gone once the instance is closing */
    void *descriptor;            /* UCX's, until the fetching starts */
    size_t offset, bytes;
    unsigned char *scratch;
    bool in_place; /* UCX writes to the program's memory */
};

/*
 * An announced message that was asked for. Ends when all of it has come, or nothing more will, and
 * nothing is pulled.
 */
struct ucx_inbound {
    struct ucx_inbound *next;
    struct ucx_peer *peer;
    uint32_t serial;
    struct dist_request *request; /* NULL: it has been forgotten: what comes is thrown away */
    uint64_t left;                /* bytes that have not come */
    unsigned pulling;             /* pieces in ucx->ready, or being fetched */
    unsigned in_place;            /* of these, that UCX writes to the program's memory */
    dist_status status;
};

/* A message that came before the ones sent before it. */
struct ucx_parked {
    struct ucx_parked *next;
    struct ucx_rts what; /* or a head alone */
    bool is_rts;
    unsigned char payload[];
};

struct ucx_peer {
    struct ucx_state *ucx;
    int rank;
    void *address;
    enum ucx_phase phase;
    ucp_ep_h endpoint; /* until the phase is CLOSED, from OPEN on */
    void *closing;     /* UCX's request, while the endpoint is being closed */
    bool leaving;      /* it has said that `last` messages were all */
    uint32_t last;
    uint32_t sent, expected; /* the next message's serial, outwards and inwards */
    struct disti_credit_out credit;
    struct disti_credit_in debit;
    LIST_HEAD(, ucx_flight) flights;     /* sends in one message that have not ended */
    LIST_HEAD(, ucx_send_pieces) pieces; /* sends in pieces that have not ended */
    struct disti_rts_table rts_sends;    /* those of them that wait to be asked for */
    struct disti_match match;
    struct ucx_inbound *inbounds;
    struct ucx_parked *parked;
};

struct ucx_state {
    const struct dist_host *host;
    ucp_context_h context;
    ucp_worker_h worker;
    struct ucx_listener listeners[UCX_AM_COUNT];
    pid_t process;
    int fd; /* to sleep on; -1: none */
    int rank, ranks;
    size_t whole_bytes;     /* longer messages are announced */
    bool copies;            /* pieces leave from copies: there is no RDMA */
    struct ucx_peer *peers; /* by rank */
    struct disti_match_set unexpected;
    struct disti_standins standins;
    LIST_HEAD(, ucx_sent_head) heads; /* notes and answers that have not been sent */
    struct ucx_pull *ready;           /* pieces to be fetched, oldest first */
    unsigned char *scratch_free[UCX_SCRATCHES];
    unsigned scratches_free, scratches; /* of `scratches` that were allocated */
    bool is_idle;                       /* progress found nothing to do */
    int happened;                       /* messages that came or left since the last look */
    bool failures;                      /* some peer is FAILED */
    bool closing;                       /* requests are not touched any more */
    dist_status broken;                 /* what progress says from now on, if it is not OK */
};

static inline bool ucx_is_lost(const struct ucx_peer *peer)
{
    return peer->phase >= UCX_FAILED;
}

/* ---- ucx.c: peers ---- */

/* Makes the endpoint, if need be. False: the peer is lost; it has been said why. */
bool disti_ucx_peer_open(struct ucx_peer *peer);

/* The same, and connects, so that a loss is noticed even if nothing is ever sent. */
void disti_ucx_peer_connect(struct ucx_peer *peer);

/* The peer sends and receives nothing any more: ends the receives that wait for it. */
void disti_ucx_peer_lose(struct ucx_peer *peer, const char *why);

/* Reports the loss again, for a request that was posted since. */
dist_status disti_ucx_peer_report_lost(struct ucx_peer *peer);

/* Closes the endpoints of lost peers: UCX then ends what is under way with them. */
void disti_ucx_peers_reap(struct ucx_state *ucx);

/* Waits, a bounded time, until the endpoints of lost peers are closed. */
void disti_ucx_peers_wait_closed(struct ucx_state *ucx);

/* What a status of UCX means for a message with this peer. */
dist_status disti_ucx_ended(struct ucx_peer *peer, ucs_status_t status);

/* ---- send.c ---- */

void disti_ucx_send(void *state, struct dist_request *request);

/* Frees what is left once there is no worker any more. */
void disti_ucx_sends_free(struct ucx_state *ucx);

/* Sends a hello or a goodbye. The endpoint is there. */
void disti_ucx_send_note(struct ucx_peer *peer, enum ucx_am id);

/* Asks for an announced message, or says that nobody will receive it. */
void disti_ucx_send_answer(struct ucx_peer *peer, uint32_t name, bool accepted);

/* Tells how much of the peer's credit has been given back. */
void disti_ucx_send_returned(struct ucx_peer *peer);

/* ---- messages that are announced, and sent in pieces ---- */

/* The receiver's answer to an announcement. False: there is none of that name. */
bool disti_ucx_pieces_answered(struct ucx_peer *peer, uint32_t name, bool accepted);

/* Ends what is announced. */
void disti_ucx_pieces_fail(struct ucx_peer *peer);

/* ---- receive.c ---- */

/* Has UCX call us for each kind of message. */
ucs_status_t disti_ucx_listen(struct ucx_state *ucx);

/* Frees all that waits in a peer, without touching a request. */
void disti_ucx_receive_drop(struct ucx_peer *peer);

void disti_ucx_recv(void *state, struct dist_request *request);

/* Nobody will receive this message: throws it away. */
void disti_ucx_refuse(struct ucx_peer *peer, struct disti_unexpected *unexpected);

/* Ends receives that wait for this peer; messages that have come whole can still be received. */
void disti_ucx_receive_fail(struct ucx_peer *peer);

/* The whole transport is broken from now on: reports why. */
void disti_ucx_broken(struct ucx_state *ucx, dist_status status, const char *text);

/* ---- announced messages that were asked for ---- */

/* Throws away what comes for receives with such a tag. */
void disti_ucx_inbounds_forget(struct ucx_peer *peer, uint64_t tag, uint64_t mask);

/* Does UCX still write to memory of receives that were forgotten? */
bool disti_ucx_inbounds_pinned(const struct ucx_peer *peer);

void disti_ucx_cancel(void *state, uint64_t tag, uint64_t mask);

/* ---- receive.c: payload that UCX is told to fetch ---- */

/* Fetches what is ready, as far as there is scratch, or throws it away. Not from UCX's callbacks.
 */
void disti_ucx_pulls_start(struct ucx_state *ucx);

/* Frees what is ready. */
void disti_ucx_pulls_drop(struct ucx_state *ucx);

#endif
