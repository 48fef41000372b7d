/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: sending, in one message or in pieces. */
#include "transports/ucx/state.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct ucx_head) <= sizeof(((struct dist_request *)0)->own),
               "a head lies in its request");

/* ---- messages ---- */

static struct ucx_peer *send_peer(const struct dist_request *request)
{
    return (struct ucx_peer *)(uintptr_t)request->moved;
}

static void send_ended(void *ucx_request, ucs_status_t status, void *arg)
{
    struct dist_request *request = arg;
    struct ucx_peer *peer = send_peer(request);

    ucp_request_free(ucx_request);
    if (peer->link->closing)
        return;
    peer->link->happened++;
    request->status = disti_ucx_ended(peer, status);
}

static void send_whole(struct ucx_peer *peer, struct dist_request *request)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.send = send_ended,
        .user_data = request,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    void *sent =
        ucp_am_send_nbx(peer->endpoint, UCX_AM_MESSAGE, request->own, sizeof(struct ucx_head),
                        request->data, (size_t)request->envelope.bytes, &param);

    if (!UCS_PTR_IS_PTR(sent))
        request->status = disti_ucx_ended(peer, UCS_PTR_STATUS(sent));
}

/* ---- messages in pieces ---- */

struct send_piece {
    struct ucx_piece_head head;
    struct send_pieces *all;
    size_t bytes;
    bool busy;
};

/* Place 0 is the message's head, the others are for pieces. */
struct send_pieces {
    struct dist_request *request;
    struct ucx_peer *peer;
    size_t begun;
    unsigned flying;
    dist_status status;
    struct send_piece places[1 + UCX_WINDOW];
};

static void send_piece_ended(void *ucx_request, ucs_status_t status, void *arg);

/* Starts what is in this place. */
static void send_start(struct send_piece *piece, const void *data)
{
    struct send_pieces *all = piece->all;
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.send = send_piece_ended,
        .user_data = piece,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    const void *head = data ? (const void *)&piece->head : all->request->own;
    size_t head_bytes = data ? sizeof(piece->head) : sizeof(struct ucx_head);
    void *sent = ucp_am_send_nbx(all->peer->endpoint, data ? UCX_AM_PIECE : UCX_AM_MESSAGE, head,
                                 head_bytes, data, piece->bytes, &param);

    piece->busy = UCS_PTR_IS_PTR(sent);
    all->flying += piece->busy;
    if (UCS_PTR_IS_ERR(sent))
        all->status = disti_ucx_ended(all->peer, UCS_PTR_STATUS(sent));
}

static void send_fill(struct send_pieces *all)
{
    size_t bytes = (size_t)all->request->envelope.bytes;

    for (int i = 1; i <= UCX_WINDOW && all->status == DIST_OK && !all->peer->lost; i++) {
        struct send_piece *piece = &all->places[i];
        size_t left = bytes - all->begun;

        if (piece->busy || !left)
            continue;
        piece->head.offset = all->begun;
        piece->bytes = left < UCX_PIECE_BYTES ? left : UCX_PIECE_BYTES;
        all->begun += piece->bytes;
        send_start(piece, (const char *)all->request->data + piece->head.offset);
        if (!piece->busy)
            i--; /* it has gone already: the place is free */
    }
}

/* Has all of it left, or can no more leave? */
static void send_settle(struct send_pieces *all)
{
    if (all->flying)
        return;
    if (all->status == DIST_OK && all->begun < all->request->envelope.bytes)
        all->status = DIST_ERR_PEER_LOST;
    all->request->status = all->status;
    free(all);
}

static void send_piece_ended(void *ucx_request, ucs_status_t status, void *arg)
{
    struct send_piece *piece = arg;
    struct send_pieces *all = piece->all;
    dist_status ended;

    ucp_request_free(ucx_request);
    piece->busy = false;
    all->flying--;
    if (all->peer->link->closing) {
        if (!all->flying)
            free(all);
        return;
    }
    all->peer->link->happened++;
    ended = disti_ucx_ended(all->peer, status);
    if (ended != DIST_OK)
        all->status = ended;
    send_fill(all);
    send_settle(all);
}

static void send_in_pieces(struct ucx_peer *peer, struct dist_request *request, uint32_t serial)
{
    struct send_pieces *all = calloc(1, sizeof(*all));

    if (!all) {
        request->status = peer->link->host->fail(DIST_ERR_NO_MEMORY,
                                                 "no memory for a message to rank %d", peer->rank);
        return;
    }
    all->request = request;
    all->peer = peer;
    for (int i = 0; i <= UCX_WINDOW; i++) {
        all->places[i].all = all;
        all->places[i].head =
            (struct ucx_piece_head){.rank = (uint32_t)peer->link->rank, .serial = serial};
    }
    send_start(&all->places[0], NULL);
    send_fill(all);
    send_settle(all);
}

/* ---- */

void disti_ucx_send(void *state, struct dist_request *request)
{
    struct ucx_link *link = state;
    struct ucx_peer *peer = &link->peers[request->peer];
    struct ucx_head head = {.rank = (uint32_t)link->rank, .envelope = request->envelope};

    if (!disti_ucx_peer_open(peer)) {
        request->status = DIST_ERR_PEER_LOST;
        return;
    }
    head.serial = peer->sent++;
    memcpy(request->own, &head, sizeof(head));
    request->moved = (size_t)(uintptr_t)peer;
    if (request->envelope.bytes > UCX_PIECE_BYTES)
        send_in_pieces(peer, request, head.serial);
    else
        send_whole(peer, request);
}

static void send_note_ended(void *ucx_request, ucs_status_t status, void *arg)
{
    (void)status; /* the error handler hears of it */
    (void)arg;
    ucp_request_free(ucx_request);
}

void disti_ucx_send_note(struct ucx_peer *peer, enum ucx_am id)
{
    const ucp_request_param_t param = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK,
                                       .cb.send = send_note_ended};

    peer->note = (struct ucx_note){.rank = (uint32_t)peer->link->rank, .serial = peer->sent};
    (void)ucp_am_send_nbx(peer->endpoint, id, &peer->note, sizeof(peer->note), NULL, 0, &param);
}
