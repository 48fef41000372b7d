/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: eager sends, sends in pieces after CTS, control messages and cancellation. */
#include "base/clock.h"
#include "transports/ucx/state.h"

#include <stdlib.h>
#include <string.h>

/*
 * An eager send. UCX may read the payload until the peer receives it, which takes long if the peer
 * computes meanwhile. So the payload is a copy, and the request can be canceled at any time. Credit
 * limits the memory of these copies.
 */
struct ucx_flight {
    LIST_ENTRY(ucx_flight) entry; /* in peer->flights */
    struct ucx_peer *peer;
    struct dist_request *request; /* NULL: canceled */
    struct ucx_head head;
    unsigned char payload[];
};

static void send_ended(void *ucx_request, ucs_status_t status, void *arg)
{
    struct ucx_flight *flight = arg;
    struct ucx_state *ucx = flight->peer->ucx;

    ucp_request_free(ucx_request);
    if (!ucx->closing) {
        dist_status ended = disti_ucx_ended(flight->peer, status);

        ucx->happened++;
        if (flight->request)
            flight->request->status = ended;
    }
    LIST_REMOVE(flight, entry);
    free(flight);
}

/* One slot of a send in pieces. */
struct ucx_send_piece {
    struct ucx_piece_head head;
    struct ucx_send_pieces *all;
    size_t bytes;
    unsigned char *copy; /* the copy that UCX reads; NULL: UCX reads the program's memory */
    bool busy;
    bool pinned; /* the send was canceled, but UCX still reads its memory */
};

/*
 * A send in pieces. slots[0] sends the RTS, the other slots send pieces. The send is in
 * peer->rts_sends until the answer to its RTS arrives. It is complete when it has been answered and
 * no slot is in flight.
 */
struct ucx_send_pieces {
    LIST_ENTRY(ucx_send_pieces) entry; /* in peer->pieces */
    struct ucx_rts rts;
    struct dist_request *request; /* NULL: canceled, and out of memory for a detached request */
    struct ucx_peer *peer;
    size_t bytes, begun; /* begun: bytes whose pieces have been started */
    unsigned in_flight;  /* busy slots, plus 1 while the send must not be freed */
    bool answered;
    dist_status status;
    struct ucx_send_piece slots[1 + UCX_WINDOW];
};

static void piece_ended(void *ucx_request, ucs_status_t status, void *arg);

/*
 * Sends the slot's RTS (if data is NULL) or piece. The caller increments in_flight during the call:
 * otherwise the send could complete and be freed within it.
 */
static void piece_start(struct ucx_send_piece *piece, const void *data)
{
    struct ucx_send_pieces *all = piece->all;
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.send = piece_ended,
        .user_data = piece,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    const void *head = data ? (const void *)&piece->head : &all->rts;
    size_t head_bytes = data ? sizeof(piece->head) : sizeof(all->rts);
    void *sent;

    /* Set before the call: UCX may detect in it that the peer is lost, and complete the slot. */
    piece->busy = true;
    all->in_flight++;
    sent = ucp_am_send_nbx(all->peer->endpoint, data ? UCX_AM_PIECE : UCX_AM_RTS, head, head_bytes,
                           data, piece->bytes, &param);
    if (UCS_PTR_IS_PTR(sent))
        return;
    piece->busy = false;
    all->in_flight--;
    if (UCS_PTR_IS_ERR(sent))
        all->status = disti_ucx_ended(all->peer, UCS_PTR_STATUS(sent));
}

/*
 * Returns the memory from which UCX sends the piece. UCX may read it until the peer receives the
 * piece. Without RDMA it is a copy (if there is memory for one), so that the send can be canceled
 * without losing the peer.
 */
static const void *piece_data(struct ucx_send_piece *piece)
{
    const struct ucx_send_pieces *all = piece->all;
    const char *data = (const char *)all->request->data + piece->head.offset;

    if (!all->peer->ucx->copies)
        return data;
    if (!piece->copy)
        piece->copy = malloc(all->bytes < UCX_PIECE_BYTES ? all->bytes : UCX_PIECE_BYTES);
    return piece->copy ? memcpy(piece->copy, data, piece->bytes) : data;
}

/* Starts pieces in the free slots. The caller increments in_flight, as for piece_start. */
static void pieces_fill(struct ucx_send_pieces *all)
{
    for (int i = 1; i <= UCX_WINDOW && all->status == DIST_OK && !ucx_is_lost(all->peer); i++) {
        struct ucx_send_piece *piece = &all->slots[i];
        size_t left = all->bytes - all->begun;

        if (piece->busy || !left)
            continue;
        piece->head.offset = all->begun;
        piece->bytes = left < UCX_PIECE_BYTES ? left : UCX_PIECE_BYTES;
        all->begun += piece->bytes;
        piece_start(piece, piece_data(piece));
        if (!piece->busy)
            i--; /* already sent: the slot is free again */
    }
}

static void pieces_free(struct ucx_send_pieces *all)
{
    LIST_REMOVE(all, entry);
    for (int i = 1; i <= UCX_WINDOW; i++)
        free(all->slots[i].copy);
    free(all);
}

/* Completes and frees the send if it has been answered and no slot is in flight. */
static void pieces_finish(struct ucx_send_pieces *all)
{
    if (all->in_flight || !all->answered)
        return;
    if (all->status == DIST_OK && all->begun < all->bytes)
        all->status = DIST_ERR_PEER_LOST;
    if (all->request)
        all->request->status = all->status;
    pieces_free(all);
}

/* Starts pieces in the free slots, and completes the send if nothing is left to do. */
static void pieces_resume(struct ucx_send_pieces *all)
{
    all->in_flight++;
    pieces_fill(all);
    all->in_flight--;
    pieces_finish(all);
}

static void piece_ended(void *ucx_request, ucs_status_t status, void *arg)
{
    struct ucx_send_piece *piece = arg;
    struct ucx_send_pieces *all = piece->all;
    dist_status ended;

    ucp_request_free(ucx_request);
    piece->busy = piece->pinned = false;
    if (all->peer->ucx->closing)
        return;
    all->peer->ucx->happened++;
    ended = disti_ucx_ended(all->peer, status); /* may fail all sends that wait for CTS */
    if (ended != DIST_OK)
        all->status = ended;
    all->in_flight--;
    if (all->answered)
        pieces_resume(all);
}

static void ucx_send_rts(struct ucx_peer *peer, struct dist_request *request,
                         const struct ucx_head *head)
{
    struct ucx_send_pieces *all = calloc(1, sizeof(*all));

    if (!all || !disti_rts_add(&peer->rts_sends, all, &all->rts.name)) {
        free(all);
        request->status = peer->ucx->host->fail(DIST_ERR_NO_MEMORY,
                                                "no memory for a message to rank %d", peer->rank);
        return;
    }
    all->request = request;
    all->bytes = (size_t)request->envelope.bytes;
    all->peer = peer;
    LIST_INSERT_HEAD(&peer->pieces, all, entry);
    all->rts.head = *head;
    for (int i = 0; i <= UCX_WINDOW; i++) {
        all->slots[i].all = all;
        all->slots[i].head = (struct ucx_piece_head){.rank = head->rank, .serial = head->serial};
    }
    all->in_flight++; /* the send must not be freed if UCX detects a lost peer in the call */
    piece_start(&all->slots[0], NULL);
    all->in_flight--;
    pieces_finish(all);
}

void disti_ucx_send(void *state, struct dist_request *request)
{
    struct ucx_state *ucx = state;
    struct ucx_peer *peer = &ucx->peers[request->peer];
    struct ucx_head head = {.rank = (uint32_t)ucx->rank, .envelope = request->envelope};
    size_t bytes = (size_t)request->envelope.bytes;
    ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_EAGER,
        .cb.send = send_ended,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    struct ucx_flight *flight;
    void *sent;

    if (!disti_ucx_peer_open(peer)) {
        request->status = DIST_ERR_PEER_LOST;
        return;
    }
    head.serial = peer->sent++;
    if (request->envelope.bytes > ucx->whole_bytes ||
        !disti_credit_covers(&peer->credit, request->envelope.bytes)) {
        ucx_send_rts(peer, request, &head);
        return;
    }
    flight = malloc(sizeof(*flight) + bytes);
    if (!flight) {
        request->status =
            ucx->host->fail(DIST_ERR_NO_MEMORY, "no memory for a message to rank %d", peer->rank);
        return;
    }
    *flight = (struct ucx_flight){.peer = peer, .request = request, .head = head};
    if (bytes)
        memcpy(flight->payload, request->data, bytes);
    disti_credit_spend(&peer->credit, bytes);
    param.user_data = flight;
    LIST_INSERT_HEAD(&peer->flights, flight, entry);
    sent = ucp_am_send_nbx(peer->endpoint, UCX_AM_MESSAGE, &flight->head, sizeof(flight->head),
                           flight->payload, bytes, &param);
    if (UCS_PTR_IS_PTR(sent))
        return;
    LIST_REMOVE(flight, entry);
    request->status = disti_ucx_ended(peer, UCS_PTR_STATUS(sent));
    free(flight);
}

/* ---- control messages ---- */

/*
 * A control message whose send is pending. If UCX does not complete the send, the message is freed
 * after the worker was destroyed.
 */
struct ucx_sent_head {
    LIST_ENTRY(ucx_sent_head) entry;
    unsigned char bytes[];
};

static void send_note_ended(void *ucx_request, ucs_status_t status, void *arg)
{
    struct ucx_sent_head *head = arg;

    (void)status; /* peer_error reports errors of the connection */
    LIST_REMOVE(head, entry);
    free(head);
    ucp_request_free(ucx_request);
}

void disti_ucx_sends_free(struct ucx_state *ucx)
{
    struct ucx_flight *flight;
    struct ucx_sent_head *head;

    for (int r = 0; r < ucx->ranks; r++) {
        struct ucx_peer *peer = &ucx->peers[r];

        while ((flight = LIST_FIRST(&peer->flights))) {
            LIST_REMOVE(flight, entry);
            free(flight);
        }
        while (LIST_FIRST(&peer->pieces))
            pieces_free(LIST_FIRST(&peer->pieces));
        disti_rts_clear(&peer->rts_sends);
    }
    while ((head = LIST_FIRST(&ucx->heads))) {
        LIST_REMOVE(head, entry);
        free(head);
    }
}

/* Sends a control message that consists of a copy of `head`. */
static void send_head(struct ucx_peer *peer, enum ucx_am id, const void *head, size_t bytes)
{
    struct ucx_sent_head *copy = malloc(sizeof(*copy) + bytes);
    void *sent;
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.send = send_note_ended,
                                       .user_data = copy};

    if (!copy) {
        peer->ucx->broken = peer->ucx->host->fail(
            DIST_ERR_NO_MEMORY, "no memory for a control message to rank %d", peer->rank);
        return;
    }
    memcpy(copy->bytes, head, bytes);
    LIST_INSERT_HEAD(&peer->ucx->heads, copy, entry);
    sent = ucp_am_send_nbx(peer->endpoint, id, copy->bytes, bytes, NULL, 0, &param);
    if (!UCS_PTR_IS_PTR(sent)) {
        LIST_REMOVE(copy, entry);
        free(copy);
    }
}

void disti_ucx_send_note(struct ucx_peer *peer, enum ucx_am id)
{
    const struct ucx_note note = {.rank = (uint32_t)peer->ucx->rank, .serial = peer->sent};

    send_head(peer, id, &note, sizeof(note));
}

void disti_ucx_send_answer(struct ucx_peer *peer, uint32_t name, bool accepted)
{
    const struct ucx_answer answer = {
        .rank = (uint32_t)peer->ucx->rank, .name = name, .accepted = accepted};

    if (!ucx_is_lost(peer) && disti_ucx_peer_open(peer))
        send_head(peer, UCX_AM_ANSWER, &answer, sizeof(answer));
}

void disti_ucx_send_returned(struct ucx_peer *peer)
{
    const struct ucx_returned returned = {.rank = (uint32_t)peer->ucx->rank,
                                          .returned = peer->debit.reported};

    if (!ucx_is_lost(peer) && disti_ucx_peer_open(peer))
        send_head(peer, UCX_AM_CREDIT, &returned, sizeof(returned));
}

/* Sending in pieces after CTS. */

/* Completes a send that will receive no CTS. */
static void pieces_cancel(struct ucx_send_pieces *all, dist_status status)
{
    all->answered = true;
    all->begun = all->bytes;
    if (all->status == DIST_OK)
        all->status = status;
    pieces_finish(all);
}

bool disti_ucx_pieces_answered(struct ucx_peer *peer, uint32_t name, bool accepted)
{
    struct ucx_send_pieces *all = disti_rts_take(&peer->rts_sends, name);

    if (!all)
        return false;
    if (!accepted) {
        pieces_cancel(all, DIST_OK);
        return true;
    }
    all->answered = true;
    pieces_resume(all);
    return true;
}

void disti_ucx_pieces_fail(struct ucx_peer *peer)
{
    struct ucx_send_pieces *all;
    uint32_t cursor = 0;

    while ((all = disti_rts_take_next(&peer->rts_sends, &cursor)))
        pieces_cancel(all, DIST_ERR_PEER_LOST);
}

/* Cancels the messages of a closed group while other groups continue. */

/*
 * UCX may access the memory of an operation until the operation completes. Eager sends, and pieces
 * without RDMA, use copies of the program's memory. For other transfers, cancel waits this long; a
 * peer whose transfer has not completed then is marked as lost for all groups, which closes its
 * endpoint and so ends the transfer.
 */
#define CANCEL_PINNED_MS 500

static void cancel_peer(struct ucx_peer *peer, uint64_t tag, uint64_t mask)
{
    struct disti_standins *standins = &peer->ucx->standins;
    struct ucx_send_pieces *all;
    struct ucx_flight *flight;
    bool enough = true;

    disti_standin_unpost(&peer->match, tag, mask);
    for (struct disti_unexpected *unexpected = peer->match.unexpected_head, *next; unexpected;
         unexpected = next) {
        next = unexpected->next;
        if ((unexpected->envelope.tag & mask) == tag)
            disti_ucx_refuse(peer, unexpected);
    }
    disti_ucx_inbounds_forget(peer, tag, mask);
    /* An eager send continues without its request, since its payload is a copy. */
    for (flight = LIST_FIRST(&peer->flights); flight; flight = LIST_NEXT(flight, entry)) {
        if (flight->request && disti_standin_is_for(flight->request, tag, mask))
            flight->request = NULL;
    }
    /* The remaining pieces of a send are sent from a copy. */
    for (all = LIST_FIRST(&peer->pieces); all; all = LIST_NEXT(all, entry)) {
        if (!all->request || !disti_standin_is_for(all->request, tag, mask) ||
            disti_standins_have(standins, all->request))
            continue;
        all->request = disti_standin_send(standins, all->request, all->begun);
        for (int i = 1; i <= UCX_WINDOW; i++)
            all->slots[i].pinned = all->slots[i].busy && !all->slots[i].copy;
        if (!all->request)
            all->begun = all->bytes;
        enough = enough && all->request;
    }
    if (!enough)
        disti_ucx_peer_lose(peer, "no memory to cancel messages");
}

/* Returns true if UCX still reads or writes memory of canceled messages. */
static bool cancel_is_pinned(const struct ucx_peer *peer)
{
    const struct ucx_send_pieces *all;

    for (all = LIST_FIRST(&peer->pieces); all; all = LIST_NEXT(all, entry)) {
        for (int i = 1; i <= UCX_WINDOW; i++) {
            if (all->slots[i].pinned)
                return true;
        }
    }
    return disti_ucx_inbounds_pinned(peer);
}

static bool cancel_any_is_pinned(const struct ucx_state *ucx)
{
    int rank = 0;

    while (rank < ucx->ranks && !cancel_is_pinned(&ucx->peers[rank]))
        rank++;
    return rank < ucx->ranks;
}

void disti_ucx_cancel(void *state, uint64_t tag, uint64_t mask)
{
    struct ucx_state *ucx = state;
    int64_t deadline = disti_deadline_ms(CANCEL_PINNED_MS);
    int moved = 0;

    for (int rank = 0; rank < ucx->ranks; rank++)
        cancel_peer(&ucx->peers[rank], tag, mask);
    disti_ucx_pulls_start(ucx);
    /* The peer may be waiting here too, so both ranks must make progress. */
    while (moved >= 0 && cancel_any_is_pinned(ucx) && !disti_expired(deadline)) {
        moved = disti_transport_ucx.progress(ucx);
        if (moved == 0)
            disti_sleep_ns(100 * 1000);
    }
    if (cancel_any_is_pinned(ucx)) {
        for (int rank = 0; rank < ucx->ranks; rank++) {
            if (cancel_is_pinned(&ucx->peers[rank]))
                disti_ucx_peer_lose(&ucx->peers[rank],
                                    "it did not take the last message of a group that has ended");
        }
        disti_ucx_peers_reap(ucx);
        disti_ucx_peers_wait_closed(ucx);
    }
    disti_standins_sweep(&ucx->standins);
}
