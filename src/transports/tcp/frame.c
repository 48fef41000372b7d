/* SPDX-License-Identifier: BSD-3-Clause */
/* What a frame means that has come: a message begins, or a word about messages. */
#include "transports/tcp/state.h"

#include <errno.h>

static bool frame_bad(struct tcp_state *state, struct tcp_conn *conn)
{
    disti_tcp_lose(state, conn->peer, 0, "it sent what is not a message of libdist");
    return false;
}

/*
 * No receive waits for this message: it is kept. Where a message has just been received, its
 * receiver may be about to post the next receive: it has until the next turn, which spares the
 * copy.
 */
static bool frame_unexpected(struct tcp_state *state, struct tcp_conn *conn,
                             const struct dist_envelope *envelope)
{
    if (conn->finished && conn->state == TCP_CONN_UP) {
        disti_tcp_conn_go(conn, TCP_CONN_RESUMING);
        return false;
    }
    conn->in.unexpected = disti_match_hold(&conn->peer->match, envelope, false);
    if (!conn->in.unexpected)
        disti_tcp_lose(state, conn->peer, ENOMEM, NULL);
    return conn->in.unexpected;
}

/* An announced message's stripes will find it: this connection goes on without it. */
static bool frame_announced(struct tcp_state *state, struct tcp_conn *conn,
                            const struct dist_envelope *envelope)
{
    struct tcp_peer *peer = conn->peer;
    struct tcp_incoming *in = &conn->in;
    uint64_t number = peer->stripes.arrived++;

    if (!disti_tcp_assemble(peer, number, envelope->bytes, in->request, in->unexpected)) {
        disti_tcp_lose(state, peer, ENOMEM, NULL);
        return false;
    }
    in->active = false;
    in->request = NULL;
    in->unexpected = NULL;
    return true;
}

/* A message begins, as a whole or as an announcement. False: it cannot be taken now. */
static bool frame_message(struct tcp_state *state, struct tcp_conn *conn,
                          const struct dist_envelope *envelope, bool whole)
{
    struct tcp_peer *peer = conn->peer;
    struct tcp_incoming *in = &conn->in;
    bool mismatch = false;

    if (!disti_tcp_affords(peer->credit.unused, envelope))
        return frame_bad(state, conn);
    in->request = disti_match_arrival(&peer->match, envelope, &mismatch);
    if (!in->request && !frame_unexpected(state, conn, envelope))
        return false;
    if (mismatch)
        in->request = NULL;
    peer->credit.unused -= envelope->bytes + DISTI_TCP_MESSAGE_COST;
    if (!in->unexpected && (whole || !mismatch))
        disti_tcp_give_back(&peer->credit, envelope->bytes);
    in->active = true;
    in->left = envelope->bytes;
    in->offset = 0;
    return whole || frame_announced(state, conn, envelope);
}

dist_status disti_tcp_ask_for(struct tcp_peer *peer, uint64_t number, uint64_t bytes,
                              struct dist_request *request)
{
    dist_status status;

    if (bytes && !disti_tcp_assemble(peer, number, bytes, request, NULL))
        return DIST_ERR_NO_MEMORY;
    status = disti_tcp_ask(peer, number, false);
    if (!bytes && status == DIST_OK) {
        request->next = peer->control.receives;
        peer->control.receives = request;
    }
    return status;
}

/* An offer takes its place in the order of messages, or is answered at once. */
static bool frame_offer(struct tcp_state *state, struct tcp_peer *peer,
                        const struct dist_envelope *envelope)
{
    uint64_t number = peer->stripes.arrived++;
    struct disti_unexpected *unexpected = NULL;
    dist_status status = DIST_OK;
    bool mismatch = false;
    struct dist_request *request = disti_match_arrival(&peer->match, envelope, &mismatch);

    if (mismatch)
        status = disti_tcp_ask(peer, number, true);
    else if (request)
        status = disti_tcp_ask_for(peer, number, envelope->bytes, request);
    else
        unexpected = disti_match_hold(&peer->match, envelope, true);
    if (unexpected)
        unexpected->note[0] = number;
    if (status == DIST_OK && (unexpected || request))
        return true;
    if (request && request->status == DIST_IN_PROGRESS)
        request->status = DIST_ERR_NO_MEMORY;
    disti_tcp_lose(state, peer, ENOMEM, NULL);
    return false;
}

/* A stripe begins. On a further connection it may have to wait for its announcement. */
static bool frame_stripe(struct tcp_state *state, struct tcp_conn *conn,
                         const struct dist_envelope *frame)
{
    enum tcp_stripe_answer answer = disti_tcp_stripe_begin(conn, frame);

    if (answer == TCP_STRIPE_BAD || (answer == TCP_STRIPE_WAIT && conn->number == 0))
        return frame_bad(state, conn);
    if (answer == TCP_STRIPE_WAIT)
        disti_tcp_conn_go(conn, TCP_CONN_WAITING);
    return answer == TCP_STRIPE_OK;
}

static bool frame_has_payload(enum disti_tcp_kind kind)
{
    return kind == DISTI_TCP_MESSAGE || kind == DISTI_TCP_STRIPE;
}

/* Any frame of the first connection but a stripe's. */
static bool frame_of_first(struct tcp_state *state, struct tcp_conn *conn, enum disti_tcp_kind kind,
                           const struct dist_envelope *frame)
{
    struct tcp_peer *peer = conn->peer;

    switch (kind) {
    case DISTI_TCP_MESSAGE:
        return frame_message(state, conn, frame, true);
    case DISTI_TCP_ANNOUNCED:
        if (peer->conns == 1 || frame->bytes < DISTI_TCP_STRIPED_LEAST)
            return frame_bad(state, conn);
        return frame_message(state, conn, frame, false);
    case DISTI_TCP_OFFERED:
        return frame_offer(state, peer, frame);
    case DISTI_TCP_CREDIT:
        return disti_tcp_credit_came(peer, frame->tag) || frame_bad(state, conn);
    case DISTI_TCP_ASK:
        return disti_tcp_asked(peer, frame->tag, frame->fingerprint) || frame_bad(state, conn);
    default:
        return disti_tcp_conn_go(conn, TCP_CONN_LEAVING) == DIST_OK;
    }
}

bool disti_tcp_frame(struct tcp_state *state, struct tcp_conn *conn, const unsigned char *bytes)
{
    unsigned char unsealed[DISTI_TCP_FRAME_BYTES];
    struct dist_envelope frame;
    enum disti_tcp_kind kind;

    if (conn->peer->checksum)
        bytes = disti_tcp_unseal(&conn->in, bytes, unsealed);
    if (!disti_tcp_frame_decode(bytes, &kind, &frame))
        return frame_bad(state, conn);
    if (!frame_has_payload(kind) && !disti_tcp_sum_fits(state, conn))
        return false;
    if (kind == DISTI_TCP_STRIPE)
        return frame_stripe(state, conn, &frame);
    if (conn->number || conn->state == TCP_CONN_LEAVING)
        return frame_bad(state, conn);
    return frame_of_first(state, conn, kind, &frame);
}
