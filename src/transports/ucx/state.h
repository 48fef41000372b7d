/* SPDX-License-Identifier: BSD-3-Clause */
/* The state of transport ucx and of its connections to peers; private to this directory. */
#ifndef DISTI_TRANSPORTS_UCX_STATE_H
#define DISTI_TRANSPORTS_UCX_STATE_H

#include "transports/match/match.h"
#include "transports/ucx/ucx.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <ucp/api/ucp.h>

/*
 * The phases of the connection to a peer:
 *
 *           an endpoint is          an error, or the peer          the endpoint
 *           created                 left after its last message    is closed
 *      NEW ------------> OPEN --------------------------> FAILED ---------------> CLOSED
 *       |                 |                                 ^                       ^
 *       |                 '------ this rank leaves ---------|-----------------------'
 *       '---- no endpoint can be created, or the peer left --'
 *
 * A peer counts as lost from FAILED on: no more requests are started with it. The endpoint is
 * closed later, since UCX reports errors in callbacks, which must not close endpoints.
 */
enum ucx_phase { UCX_NEW, UCX_OPEN, UCX_FAILED, UCX_CLOSED };

/* Returns true if the drawing has this transition. */
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

/*
 * An eager message is one active message with a head; it is sent from a copy. For a long message,
 * or if the credit does not suffice (match.h), the sender sends an RTS, and after CTS sends the
 * data in pieces, so that a reduction needs no buffer as large as the message. UCX chooses whether
 * a piece is sent eagerly or fetched by the receiver:
 *
 *   MESSAGE   [rank, serial 5, envelope] payload
 *   RTS       [rank, serial 6, envelope, name 0]
 *   ANSWER                                        <-- [rank, name 0, accepted]    (the CTS)
 *   PIECE     [rank, serial 6, offset 0] 1 MiB   [rank, serial 6, offset 1 MiB] 1 MiB   ...
 *
 * Active messages can arrive out of order. So each MESSAGE or RTS to a peer has a serial number,
 * and the receiver handles them in the order of these numbers.
 */
#define UCX_PIECE_BYTES ((size_t)1 << 20)
/* The largest eager message, which is copied; and with RDMA, where pieces need no copy. */
#define UCX_WHOLE_BYTES ((size_t)128 << 10)
#define UCX_WHOLE_BYTES_RDMA ((size_t)32 << 10)
#define UCX_CREDIT_BYTES ((uint64_t)4 << 20) /* credit limit of each peer */
#define UCX_WINDOW 4                         /* maximum pieces in flight per message */
#define UCX_SCRATCHES 16 /* maximum buffers for pieces that are fetched and reduced */

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

/* The argument of UCX's receive callback for one kind of message. */
struct ucx_listener {
    struct ucx_state *ucx;
    enum ucx_am id;
};

struct ucx_head {
    uint32_t rank; /* the sender's rank */
    uint32_t serial;
    struct dist_envelope envelope;
};

struct ucx_rts {
    struct ucx_head head;
    uint32_t name; /* repeated in the answer */
    uint32_t pad;
};

struct ucx_answer {
    uint32_t rank;
    uint32_t name;
    uint32_t accepted; /* 1: CTS; 0: no receive will take the message */
};

struct ucx_returned {
    uint32_t rank;
    uint32_t pad;
    uint64_t returned; /* total credit returned by the receiver */
};

struct ucx_piece_head {
    uint32_t rank;
    uint32_t serial; /* the serial of the message */
    uint64_t offset;
};

/*
 * HELLO or GOODBYE. HELLO makes UCX establish the connection, so that its loss is detected. GOODBYE
 * announces that the sender leaves after its first `serial` messages.
 */
struct ucx_note {
    uint32_t rank;
    uint32_t serial;
};

/* A piece of a message that UCX fetches, directly to its destination or to `scratch`. */
struct ucx_pull {
    struct ucx_pull *next;
    struct ucx_state *ucx;
    struct ucx_inbound *inbound; /* invalid once the transport is closing */
    void *descriptor;            /* UCX's data descriptor, until the fetch starts */
    size_t offset, bytes;
    unsigned char *scratch;
    bool in_place; /* UCX writes directly to the program's memory */
};

/*
 * A message that is received after CTS. It is complete when no piece is being fetched and either
 * all bytes have arrived or `status` is an error.
 */
struct ucx_inbound {
    struct ucx_inbound *next;
    struct ucx_peer *peer;
    uint32_t serial;
    struct dist_request *request; /* NULL: canceled; discard the data */
    uint64_t left;                /* bytes that have not arrived */
    unsigned pulling;             /* number of pieces in ucx->ready or being fetched */
    unsigned in_place;            /* pieces that UCX is writing directly to the program's memory */
    dist_status status;
};

/* A message that arrived before an earlier one of the same peer. */
struct ucx_parked {
    struct ucx_parked *next;
    struct ucx_rts what; /* for an eager message only the head is valid */
    bool is_rts;
    unsigned char payload[];
};

struct ucx_peer {
    struct ucx_state *ucx;
    int rank;
    void *address;
    enum ucx_phase phase;
    ucp_ep_h endpoint; /* valid from OPEN until CLOSED */
    void *closing;     /* UCX's close request, while the endpoint is being closed */
    bool leaving;      /* the peer has sent GOODBYE: it leaves after its first `last` messages */
    uint32_t last;
    uint32_t sent, expected; /* serials of the next message to send and to receive */
    struct disti_credit_out credit;
    struct disti_credit_in debit;
    LIST_HEAD(, ucx_flight) flights;     /* pending eager sends */
    LIST_HEAD(, ucx_send_pieces) pieces; /* pending sends in pieces */
    struct disti_rts_table rts_sends;    /* the sends in `pieces` that wait for CTS */
    struct disti_match match;
    struct ucx_inbound *inbounds; /* messages that are received after CTS */
    struct ucx_parked *parked;    /* messages that arrived too early */
};

struct ucx_state {
    const struct dist_host *host;
    ucp_context_h context;
    ucp_worker_h worker;
    struct ucx_listener listeners[UCX_AM_COUNT];
    pid_t process;
    int fd; /* the descriptor to sleep on; -1: none */
    int rank, ranks;
    size_t whole_bytes;     /* longer messages send RTS */
    bool copies;            /* pieces are sent from copies, since there is no RDMA */
    struct ucx_peer *peers; /* by rank */
    struct disti_match_set unexpected;
    struct disti_standins standins;
    LIST_HEAD(, ucx_sent_head) heads; /* control messages whose send is pending */
    struct ucx_pull *ready;           /* pieces to fetch, oldest first */
    unsigned char *scratch_free[UCX_SCRATCHES];
    unsigned scratches_free, scratches; /* buffers in scratch_free; buffers allocated in total */
    bool is_idle;                       /* the last progress call found nothing to do */
    int happened;                       /* events since the last progress call */
    bool failures;      /* at least one peer is FAILED: its endpoint must be closed */
    bool closing;       /* the transport is closing: requests must not be accessed */
    dist_status broken; /* an error that progress returns from now on */
};

static inline bool ucx_is_lost(const struct ucx_peer *peer)
{
    return peer->phase >= UCX_FAILED;
}

/* ---- ucx.c: peers ---- */

/*
 * Creates the endpoint if needed. If the peer is lost or UCX cannot reach it, reports the reason
 * and returns false.
 */
bool disti_ucx_peer_open(struct ucx_peer *peer);

/*
 * Like disti_ucx_peer_open, but also sends HELLO to a new peer, so that its loss is detected even
 * if no message is sent.
 */
void disti_ucx_peer_connect(struct ucx_peer *peer);

/* Marks the peer as lost and fails its receives and its sends that wait for CTS. */
void disti_ucx_peer_lose(struct ucx_peer *peer, const char *why);

/* Reports that a request was posted for a lost peer. Returns the request's status. */
dist_status disti_ucx_peer_report_lost(struct ucx_peer *peer);

/*
 * Closes the endpoints of lost peers; UCX then completes all their pending operations. Must not be
 * called from a UCX callback.
 */
void disti_ucx_peers_reap(struct ucx_state *ucx);

/* Waits for at most PEER_LEAVE_MS until UCX has closed the endpoints that are being closed. */
void disti_ucx_peers_wait_closed(struct ucx_state *ucx);

/*
 * Converts the UCX status of a message to or from this peer. An error other than lack of memory
 * marks the peer as lost. Cancellation counts as success unless the peer is lost.
 */
dist_status disti_ucx_ended(struct ucx_peer *peer, ucs_status_t status);

/* ---- send.c ---- */

/* Implements the function send of struct dist_transport. */
void disti_ucx_send(void *state, struct dist_request *request);

/* Frees all pending sends. Must be called after the worker was destroyed. */
void disti_ucx_sends_free(struct ucx_state *ucx);

/* Sends HELLO or GOODBYE. The endpoint must be open. */
void disti_ucx_send_note(struct ucx_peer *peer, enum ucx_am id);

/* Answers an RTS: with CTS if `accepted`, otherwise the sender discards the message. */
void disti_ucx_send_answer(struct ucx_peer *peer, uint32_t name, bool accepted);

/* Reports to the peer the total of its credit that has been returned. */
void disti_ucx_send_returned(struct ucx_peer *peer);

/* ---- messages sent in pieces after CTS ---- */

/* Handles the answer to an RTS. Returns false if there is no send with that name. */
bool disti_ucx_pieces_answered(struct ucx_peer *peer, uint32_t name, bool accepted);

/* Fails the sends that wait for CTS. */
void disti_ucx_pieces_fail(struct ucx_peer *peer);

/* ---- receive.c ---- */

/* Registers the receive callback for each kind of message. */
ucs_status_t disti_ucx_listen(struct ucx_state *ucx);

/* Frees all unexpected and partly received messages of a peer, without completing requests. */
void disti_ucx_receive_drop(struct ucx_peer *peer);

/* Implements the function recv of struct dist_transport. */
void disti_ucx_recv(void *state, struct dist_request *request);

/* Discards an unexpected message; answers it if it is an RTS, else returns its credit. */
void disti_ucx_refuse(struct ucx_peer *peer, struct disti_unexpected *unexpected);

/* Fails the receives from this peer. Messages that arrived completely can still be received. */
void disti_ucx_receive_fail(struct ucx_peer *peer);

/* Reports an error that progress returns from then on, so that the whole transport fails. */
void disti_ucx_broken(struct ucx_state *ucx, dist_status status, const char *text);

/* ---- messages received after CTS ---- */

/* Cancels the receives whose tag equals `tag` in the bits of `mask`; their data are discarded. */
void disti_ucx_inbounds_forget(struct ucx_peer *peer, uint64_t tag, uint64_t mask);

/* Returns true if UCX still writes to memory of canceled receives. */
bool disti_ucx_inbounds_pinned(const struct ucx_peer *peer);

/* Implements the function cancel of struct dist_transport; in send.c. */
void disti_ucx_cancel(void *state, uint64_t tag, uint64_t mask);

/* ---- receive.c: payload that UCX fetches ---- */

/*
 * Starts fetching the pieces in ucx->ready, except those for which no scratch memory is left.
 * Releases the pieces of canceled receives and lost peers. Must not be called from a UCX callback.
 */
void disti_ucx_pulls_start(struct ucx_state *ucx);

/* Frees the pieces in ucx->ready. */
void disti_ucx_pulls_drop(struct ucx_state *ucx);

#endif
