/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Transport ucx: receives. UCX calls receive_any for each active message. The messages of a peer
 * are handled in the order in which it sent them.
 */
#include "transports/ucx/state.h"

#include <stdlib.h>
#include <string.h>

/* Keeps a message that arrived before an earlier one of the same peer. */
static void receive_park(struct ucx_peer *peer, const struct ucx_rts *what, bool is_rts,
                         const void *payload)
{
    size_t bytes = is_rts ? 0 : (size_t)what->head.envelope.bytes;
    struct ucx_parked *parked = malloc(sizeof(*parked) + bytes);

    if (!parked) {
        disti_ucx_broken(peer->ucx, DIST_ERR_NO_MEMORY, "no memory for an unexpected message");
        return;
    }
    *parked = (struct ucx_parked){.next = peer->parked, .what = *what, .is_rts = is_rts};
    if (bytes)
        memcpy(parked->payload, payload, bytes);
    peer->parked = parked;
}

/* The header of an active message. Each kind begins with the sender's rank. */
union receive_head {
    uint32_t rank;
    struct ucx_rts rts; /* RTS; for MESSAGE only rts.head is valid */
    struct ucx_piece_head piece;
    struct ucx_answer answer;
    struct ucx_returned returned;
    struct ucx_note note;
};

/*
 * Creates the state of a receive after CTS. If out of memory, fails the request and returns false.
 */
static bool ucx_inbound_new(struct ucx_peer *peer, uint32_t serial, struct dist_request *request)
{
    struct ucx_inbound *inbound = malloc(sizeof(*inbound));

    if (!inbound) {
        request->status = peer->ucx->host->fail(DIST_ERR_NO_MEMORY,
                                                "no memory for a message of rank %d", peer->rank);
        return false;
    }
    *inbound = (struct ucx_inbound){.next = peer->inbounds,
                                    .peer = peer,
                                    .serial = serial,
                                    .request = request,
                                    .left = request->envelope.bytes};
    peer->inbounds = inbound;
    return true;
}

void disti_ucx_broken(struct ucx_state *ucx, dist_status status, const char *text)
{
    ucx->broken = ucx->host->fail(status, "rank %d, transport ucx: %s", ucx->rank, text);
}

/* Gives the credit of an eager message back to the peer. */
static void receive_return(struct ucx_peer *peer, uint64_t bytes)
{
    if (disti_credit_return(&peer->debit, bytes))
        disti_ucx_send_returned(peer);
}

/*
 * Adds a message or a descriptor to the unexpected messages. If out of memory, reports it and
 * returns NULL.
 */
static struct disti_unexpected *receive_hold(struct ucx_peer *peer, const struct ucx_head *head,
                                             bool descriptor)
{
    struct disti_unexpected *unexpected =
        disti_match_hold(&peer->match, &head->envelope, descriptor);

    if (!unexpected)
        disti_ucx_broken(peer->ucx, DIST_ERR_NO_MEMORY, "no memory for an unexpected message");
    return unexpected;
}

/* Handles an eager message. */
static void receive_whole(struct ucx_peer *peer, const struct ucx_head *head, const void *payload)
{
    struct disti_unexpected *unexpected;
    bool mismatch;
    struct dist_request *request = disti_match_arrival(&peer->match, &head->envelope, &mismatch);
    size_t bytes = (size_t)head->envelope.bytes;

    if (request) {
        receive_return(peer, bytes);
        if (mismatch)
            return;
        peer->ucx->host->sink_apply(&request->sink, 0, payload, bytes);
        request->status = DIST_OK;
        return;
    }
    unexpected = receive_hold(peer, head, false);
    if (!unexpected)
        return;
    if (bytes)
        memcpy(unexpected->payload, payload, bytes);
    unexpected->arrived = bytes;
}

/*
 * Answers an RTS that matched `request`: with CTS, or, if the message is empty, by completing the
 * request and telling the sender that no data are needed.
 */
static void receive_send_cts(struct ucx_peer *peer, struct dist_request *request, uint32_t serial,
                             uint32_t name)
{
    if (ucx_is_lost(peer)) {
        request->status = disti_ucx_peer_report_lost(peer);
    } else if (request->envelope.bytes == 0) {
        disti_ucx_send_answer(peer, name, false);
        request->status = DIST_OK;
    } else if (ucx_inbound_new(peer, serial, request)) {
        disti_ucx_send_answer(peer, name, true);
    }
}

/* Handles the next message of a peer in order: an RTS or an eager message. */
static void ucx_take(struct ucx_peer *peer, const struct ucx_rts *what, bool is_rts,
                     const void *payload)
{
    struct dist_request *request;
    struct disti_unexpected *unexpected;
    bool mismatch;

    peer->expected++;
    if (!is_rts) {
        receive_whole(peer, &what->head, payload);
        return;
    }
    request = disti_match_arrival(&peer->match, &what->head.envelope, &mismatch);
    if (mismatch) {
        disti_ucx_send_answer(peer, what->name, false);
    } else if (request) {
        receive_send_cts(peer, request, what->head.serial, what->name);
    } else {
        unexpected = receive_hold(peer, &what->head, true);
        if (unexpected)
            unexpected->note[0] = (uint64_t)what->head.serial << 32 | what->name;
    }
}

/*
 * Handles the parked messages that are next in order. If they were the last ones of a leaving peer,
 * marks the peer as lost.
 */
static void receive_catch_up(struct ucx_peer *peer)
{
    struct ucx_parked **at = &peer->parked, *parked;

    while ((parked = *at)) {
        if (parked->what.head.serial != peer->expected) {
            at = &parked->next;
            continue;
        }
        *at = parked->next;
        ucx_take(peer, &parked->what, parked->is_rts, parked->payload);
        free(parked);
        at = &peer->parked;
    }
    if (peer->leaving && peer->expected == peer->last)
        disti_ucx_peer_lose(peer, "the peer has left");
}

/* An active message that has arrived. */
struct receive_arrival {
    union receive_head head;
    void *data; /* the payload, or UCX's data descriptor if `fetched` */
    size_t bytes;
    bool fetched; /* UCX must fetch the payload */
};

/* Handles an eager message or an RTS now, or after the messages that precede it. */
static void receive_in_order(struct ucx_peer *peer, const struct ucx_rts *what, bool is_rts,
                             const void *payload)
{
    if (what->head.serial == peer->expected)
        ucx_take(peer, what, is_rts, payload);
    else
        receive_park(peer, what, is_rts, payload);
    receive_catch_up(peer);
}

/* Queues a piece to be fetched. Takes ownership of the descriptor. */
static void ucx_inbound_piece(struct ucx_inbound *inbound, void *descriptor, size_t offset,
                              size_t bytes)
{
    struct ucx_state *ucx = inbound->peer->ucx;
    struct ucx_pull *pull = malloc(sizeof(*pull)), **at = &ucx->ready;

    if (!pull) {
        ucx->broken = ucx->host->fail(DIST_ERR_NO_MEMORY, "no memory for a message of rank %d",
                                      inbound->peer->rank);
        return;
    }
    *pull = (struct ucx_pull){
        .ucx = ucx, .inbound = inbound, .descriptor = descriptor, .offset = offset, .bytes = bytes};
    while (*at)
        at = &(*at)->next;
    inbound->pulling++;
    *at = pull;
}

/*
 * Returns true if the bytes are within the message; a faulty peer may send any offset. The inbound
 * must have a request.
 */
static bool ucx_inbound_holds(struct ucx_inbound *inbound, uint64_t offset, uint64_t bytes)
{
    uint64_t total = inbound->request->envelope.bytes;

    if (offset <= total && bytes <= total - offset)
        return true;
    inbound->peer->ucx->broken =
        inbound->peer->ucx->host->fail(DIST_ERR_INTERNAL,
                                       "rank %d sent %llu bytes at offset %llu of a message of "
                                       "%llu: give all ranks the same version of libdist",
                                       inbound->peer->rank, (unsigned long long)bytes,
                                       (unsigned long long)offset, (unsigned long long)total);
    return false;
}

static void inbound_free(struct ucx_inbound *inbound)
{
    struct ucx_inbound **at = &inbound->peer->inbounds;

    while (*at != inbound)
        at = &(*at)->next;
    *at = inbound->next;
    free(inbound);
}

/*
 * Completes and frees the inbound if no piece is being fetched, and all bytes have arrived or it
 * has failed.
 */
static void ucx_inbound_finish(struct ucx_inbound *inbound)
{
    if (inbound->pulling || (inbound->left && inbound->status == DIST_OK))
        return;
    if (inbound->request)
        inbound->request->status = inbound->status;
    inbound_free(inbound);
}

/* Handles a piece. Returns false if the peer violates the protocol. */
static bool receive_piece(struct ucx_peer *peer, const struct receive_arrival *arrival)
{
    const struct ucx_piece_head *head = &arrival->head.piece;
    struct ucx_inbound *inbound = peer->inbounds;

    while (inbound && inbound->serial != head->serial)
        inbound = inbound->next;
    if (!inbound || arrival->bytes > UCX_PIECE_BYTES)
        return false;
    if (arrival->fetched) {
        ucx_inbound_piece(inbound, arrival->data, (size_t)head->offset, arrival->bytes);
        return true;
    }
    if (inbound->request && inbound->status == DIST_OK &&
        ucx_inbound_holds(inbound, (size_t)head->offset, arrival->bytes))
        peer->ucx->host->sink_apply(&inbound->request->sink, (size_t)head->offset, arrival->data,
                                    arrival->bytes);
    inbound->left -= arrival->bytes;
    ucx_inbound_finish(inbound);
    return true;
}

/* Handles one active message. Returns false if the peer violates the protocol. */
static bool receive_take(struct ucx_peer *peer, enum ucx_am id,
                         const struct receive_arrival *arrival)
{
    const union receive_head *head = &arrival->head;

    switch (id) {
    case UCX_AM_MESSAGE:
        if (arrival->fetched || arrival->bytes != head->rts.head.envelope.bytes ||
            !disti_credit_receive(&peer->debit, arrival->bytes))
            return false;
        receive_in_order(peer, &head->rts, false, arrival->data);
        return true;
    case UCX_AM_RTS:
        receive_in_order(peer, &head->rts, true, NULL);
        return true;
    case UCX_AM_PIECE:
        return receive_piece(peer, arrival);
    case UCX_AM_ANSWER:
        return disti_ucx_pieces_answered(peer, head->answer.name, head->answer.accepted != 0);
    case UCX_AM_CREDIT: /* active messages can arrive out of order: ignore an older total */
        return (int64_t)(head->returned.returned - peer->credit.returned) <= 0 ||
               disti_credit_update(&peer->credit, head->returned.returned);
    case UCX_AM_GOODBYE:
        if (!peer->leaving) {
            peer->leaving = true;
            peer->last = head->note.serial;
            receive_catch_up(peer);
        }
        return true;
    default: /* UCX_AM_HELLO */
        return true;
    }
}

static const size_t receive_head_bytes[UCX_AM_COUNT] = {
    [UCX_AM_MESSAGE] = sizeof(struct ucx_head),    [UCX_AM_PIECE] = sizeof(struct ucx_piece_head),
    [UCX_AM_HELLO] = sizeof(struct ucx_note),      [UCX_AM_GOODBYE] = sizeof(struct ucx_note),
    [UCX_AM_RTS] = sizeof(struct ucx_rts),         [UCX_AM_ANSWER] = sizeof(struct ucx_answer),
    [UCX_AM_CREDIT] = sizeof(struct ucx_returned),
};

/* ---- callbacks from UCX ---- */

/*
 * The receive callback for all kinds of messages. Ignores pieces and answers of lost peers, but
 * still accepts complete messages. Returns UCS_INPROGRESS if it keeps UCX's data descriptor.
 */
static ucs_status_t receive_any(void *arg, const void *header, size_t header_bytes, void *data,
                                size_t length, const ucp_am_recv_param_t *param)
{
    const struct ucx_listener *listener = arg;
    struct ucx_state *ucx = listener->ucx;
    struct receive_arrival arrival = {
        .data = data,
        .bytes = length,
        .fetched = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0,
    };
    struct ucx_peer *peer = NULL; /* NULL: not a message of libdist */

    if (ucx->closing)
        return UCS_OK;
    if (header_bytes == receive_head_bytes[listener->id]) {
        memcpy(&arrival.head, header, header_bytes);
        if (arrival.head.rank < (uint32_t)ucx->ranks && arrival.head.rank != (uint32_t)ucx->rank)
            peer = &ucx->peers[arrival.head.rank];
    }
    if (peer && ucx_is_lost(peer) &&
        (listener->id == UCX_AM_PIECE || listener->id == UCX_AM_ANSWER))
        return UCS_OK;
    ucx->happened++;
    if (peer && receive_take(peer, listener->id, &arrival))
        return arrival.fetched && listener->id == UCX_AM_PIECE ? UCS_INPROGRESS : UCS_OK;
    disti_ucx_broken(
        ucx, DIST_ERR_INTERNAL,
        "received a message that is not from libdist: give all ranks the same version of libdist");
    return UCS_OK;
}

ucs_status_t disti_ucx_listen(struct ucx_state *ucx)
{
    ucs_status_t status = UCS_OK;

    for (unsigned id = 1; id < UCX_AM_COUNT && status == UCS_OK; id++) {
        const ucp_am_handler_param_t param = {
            .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                          UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
            .id = id,
            .flags = UCP_AM_FLAG_WHOLE_MSG,
            .cb = receive_any,
            .arg = &ucx->listeners[id],
        };

        ucx->listeners[id] = (struct ucx_listener){.ucx = ucx, .id = (enum ucx_am)id};
        status = ucp_worker_set_am_recv_handler(ucx->worker, &param);
    }
    return status;
}

void disti_ucx_receive_drop(struct ucx_peer *peer)
{
    while (peer->inbounds)
        inbound_free(peer->inbounds);
    while (peer->parked) {
        struct ucx_parked *parked = peer->parked;

        peer->parked = parked->next;
        free(parked);
    }
    disti_match_clear(&peer->match);
}

/* ---- cancellation ---- */

void disti_ucx_inbounds_forget(struct ucx_peer *peer, uint64_t tag, uint64_t mask)
{
    for (struct ucx_inbound *inbound = peer->inbounds; inbound; inbound = inbound->next) {
        if (inbound->request && disti_standin_is_for(inbound->request, tag, mask))
            inbound->request = NULL;
    }
}

bool disti_ucx_inbounds_pinned(const struct ucx_peer *peer)
{
    const struct ucx_inbound *inbound = peer->inbounds;

    while (inbound && !(!inbound->request && inbound->in_place))
        inbound = inbound->next;
    return inbound;
}

/* ---- receives ---- */

void disti_ucx_refuse(struct ucx_peer *peer, struct disti_unexpected *unexpected)
{
    if (unexpected->descriptor)
        disti_ucx_send_answer(peer, (uint32_t)unexpected->note[0], false);
    else
        receive_return(peer, unexpected->arrived);
    disti_match_release(&peer->match, unexpected);
}

/* Receives an unexpected message. */
static void receive_unexpected(struct ucx_peer *peer, struct dist_request *request,
                               struct disti_unexpected *unexpected)
{
    if (unexpected->descriptor) {
        receive_send_cts(peer, request, (uint32_t)(unexpected->note[0] >> 32),
                         (uint32_t)unexpected->note[0]);
    } else {
        peer->ucx->host->sink_apply(&request->sink, 0, unexpected->payload, unexpected->arrived);
        receive_return(peer, unexpected->arrived);
        request->status = DIST_OK;
    }
    disti_match_release(&peer->match, unexpected);
}

void disti_ucx_recv(void *state, struct dist_request *request)
{
    struct ucx_state *ucx = state;
    struct ucx_peer *peer = &ucx->peers[request->peer];
    const struct disti_unexpected *found = disti_match_waiting(&peer->match, request->envelope.tag);
    struct disti_unexpected *unexpected;

    if (ucx_is_lost(peer) && (!found || found->descriptor)) {
        request->status = disti_ucx_peer_report_lost(peer);
        return;
    }
    unexpected = disti_match_post(&peer->match, request);
    if (!unexpected)
        disti_ucx_peer_connect(peer);
    else if (unexpected->refused)
        disti_ucx_refuse(peer, unexpected);
    else
        receive_unexpected(peer, request, unexpected);
    disti_ucx_pulls_start(ucx);
}

void disti_ucx_receive_fail(struct ucx_peer *peer)
{
    struct ucx_inbound *next;

    disti_match_fail(&peer->match, DIST_ERR_PEER_LOST);
    /*
     * Completes the inbounds that have no piece in ucx->ready or being fetched. pull_end completes
     * the other inbounds later.
     */
    for (struct ucx_inbound *inbound = peer->inbounds; inbound; inbound = next) {
        next = inbound->next;
        inbound->status = DIST_ERR_PEER_LOST;
        ucx_inbound_finish(inbound);
    }
}

/* Payload that UCX fetches, directly to its destination or through scratch memory to be reduced. */

static unsigned char *pull_scratch(struct ucx_state *ucx)
{
    unsigned char *scratch;

    if (ucx->scratches_free)
        return ucx->scratch_free[--ucx->scratches_free];
    if (ucx->scratches == UCX_SCRATCHES)
        return NULL;
    scratch = malloc(UCX_PIECE_BYTES);
    ucx->scratches += scratch != NULL;
    return scratch;
}

/* Handles the end of a pull (it was fetched, failed or dropped) and frees it. */
static void pull_end(struct ucx_state *ucx, struct ucx_pull *pull, dist_status status)
{
    struct ucx_inbound *inbound = pull->inbound;

    if (status == DIST_OK && pull->scratch && inbound->request &&
        ucx_inbound_holds(inbound, pull->offset, pull->bytes))
        ucx->host->sink_apply(&inbound->request->sink, pull->offset, pull->scratch, pull->bytes);
    if (pull->scratch)
        ucx->scratch_free[ucx->scratches_free++] = pull->scratch;
    if (inbound->status == DIST_OK)
        inbound->status = status;
    inbound->left -= pull->bytes;
    inbound->pulling--;
    inbound->in_place -= pull->in_place;
    ucx->happened++;
    free(pull);
    ucx_inbound_finish(inbound);
}

/*
 * Converts the UCX status of a pull. UCX cancels the pulls of a lost peer. disti_ucx_ended could
 * treat the cancellation as success, so this function replaces it by an error first.
 */
static dist_status pull_status(struct ucx_peer *peer, ucs_status_t status)
{
    if (status == UCS_ERR_CANCELED)
        status = UCS_ERR_CONNECTION_RESET;
    return disti_ucx_ended(peer, status);
}

/* UCX's callback for a completed pull. */
static void pull_ended(void *ucx_request, ucs_status_t status, size_t length, void *arg)
{
    struct ucx_pull *pull = arg;
    struct ucx_state *ucx = pull->ucx;

    (void)length;
    ucp_request_free(ucx_request);
    if (!ucx->closing) {
        pull_end(ucx, pull, pull_status(pull->inbound->peer, status));
        return;
    }
    if (pull->scratch)
        ucx->scratch_free[ucx->scratches_free++] = pull->scratch;
    free(pull);
}

static void pull_start(struct ucx_state *ucx, struct ucx_pull *pull)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.recv_am = pull_ended,
        .user_data = pull,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    struct ucx_inbound *inbound = pull->inbound;
    void *target =
        pull->scratch ? pull->scratch : (unsigned char *)inbound->request->sink.dst + pull->offset;
    void *got;

    pull->in_place = !pull->scratch; /* set first, since the pull may complete within the call */
    inbound->in_place += pull->in_place;
    got = ucp_am_recv_data_nbx(ucx->worker, pull->descriptor, target, pull->bytes, &param);
    if (!UCS_PTR_IS_PTR(got))
        pull_end(ucx, pull, pull_status(inbound->peer, UCS_PTR_STATUS(got)));
}

void disti_ucx_pulls_start(struct ucx_state *ucx)
{
    struct ucx_pull **at = &ucx->ready;

    while (*at) {
        struct ucx_pull *pull = *at;
        bool dropped = (!pull->inbound->request || ucx_is_lost(pull->inbound->peer)) ||
                       !ucx_inbound_holds(pull->inbound, pull->offset, pull->bytes);

        if (!dropped && pull->inbound->request->sink.src) {
            pull->scratch = pull_scratch(ucx);
            if (!pull->scratch) {
                at = &pull->next; /* other pulls may need no scratch memory */
                continue;
            }
        }
        *at = pull->next;
        if (dropped) {
            ucp_am_data_release(ucx->worker, pull->descriptor);
            pull_end(ucx, pull, pull->inbound->request ? DIST_ERR_PEER_LOST : DIST_OK);
        } else {
            pull_start(ucx, pull);
        }
    }
}

void disti_ucx_pulls_drop(struct ucx_state *ucx)
{
    while (ucx->ready) {
        struct ucx_pull *pull = ucx->ready;

        ucx->ready = pull->next;
        ucp_am_data_release(ucx->worker, pull->descriptor);
        free(pull);
    }
}
