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

/*
 * Place 0 is the announcement's, the others are for pieces. It stands in the peer's table until it
 * is asked for, and ends when it has been, and nothing is flying.
 */
struct send_pieces {
    struct ucx_announcement announcement;
    struct dist_request *request;
    struct ucx_peer *peer;
    size_t begun;
    unsigned flying;
    bool answered;
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
    const void *head = data ? (const void *)&piece->head : &all->announcement;
    size_t head_bytes = data ? sizeof(piece->head) : sizeof(all->announcement);
    void *sent = ucp_am_send_nbx(all->peer->endpoint, data ? UCX_AM_PIECE : UCX_AM_ANNOUNCE, head,
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
    if (all->flying || !all->answered)
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
    if (all->answered)
        send_fill(all);
    send_settle(all);
}

/* Nobody will ask for it any more. */
static void send_give_up(struct send_pieces *all, dist_status status)
{
    all->answered = true;
    all->begun = (size_t)all->request->envelope.bytes;
    if (all->status == DIST_OK)
        all->status = status;
    send_settle(all);
}

static void send_announce(struct ucx_peer *peer, struct dist_request *request,
                          const struct ucx_head *head)
{
    struct send_pieces *all = calloc(1, sizeof(*all));

    if (!all || !disti_announced_add(&peer->announced, all, &all->announcement.name)) {
        free(all);
        request->status = peer->link->host->fail(DIST_ERR_NO_MEMORY,
                                                 "no memory for a message to rank %d", peer->rank);
        return;
    }
    all->request = request;
    all->peer = peer;
    all->announcement.head = *head;
    for (int i = 0; i <= UCX_WINDOW; i++) {
        all->places[i].all = all;
        all->places[i].head = (struct ucx_piece_head){.rank = head->rank, .serial = head->serial};
    }
    all->flying++; /* it must outlive a loss of the peer that shows at once */
    send_start(&all->places[0], NULL);
    all->flying--;
    send_settle(all);
}

bool disti_ucx_send_answered(struct ucx_peer *peer, uint32_t name, bool wanted)
{
    struct send_pieces *all = disti_announced_take(&peer->announced, name);

    if (!all)
        return false;
    if (!wanted) {
        send_give_up(all, DIST_OK);
        return true;
    }
    all->answered = true;
    send_fill(all);
    send_settle(all);
    return true;
}

void disti_ucx_send_fail(struct ucx_peer *peer)
{
    struct send_pieces *all;
    uint32_t at = 0;

    while ((all = disti_announced_take_next(&peer->announced, &at)))
        send_give_up(all, DIST_ERR_PEER_LOST);
}

void disti_ucx_send_drop(struct ucx_peer *peer)
{
    struct send_pieces *all;
    uint32_t at = 0;

    while ((all = disti_announced_take_next(&peer->announced, &at))) {
        if (!all->flying) /* else the end of its sends frees it */
            free(all);
    }
    disti_announced_clear(&peer->announced);
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
    if (request->envelope.bytes > UCX_PIECE_BYTES ||
        !disti_credit_covers(&peer->credit, request->envelope.bytes)) {
        send_announce(peer, request, &head);
    } else {
        disti_credit_spend(&peer->credit, request->envelope.bytes);
        send_whole(peer, request);
    }
}

/* ---- notes ---- */

static void send_note_ended(void *ucx_request, ucs_status_t status, void *arg)
{
    (void)status; /* the error handler hears of it */
    free(arg);
    ucp_request_free(ucx_request);
}

/* Sends a copy of the head, without payload. */
static void send_head(struct ucx_peer *peer, enum ucx_am id, const void *head, size_t bytes)
{
    void *copy = malloc(bytes), *sent;
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.send = send_note_ended,
                                       .user_data = copy};

    if (!copy) {
        peer->link->broken = peer->link->host->fail(DIST_ERR_NO_MEMORY,
                                                    "no memory for a note to rank %d", peer->rank);
        return;
    }
    memcpy(copy, head, bytes);
    sent = ucp_am_send_nbx(peer->endpoint, id, copy, bytes, NULL, 0, &param);
    if (!UCS_PTR_IS_PTR(sent))
        free(copy);
}

void disti_ucx_send_note(struct ucx_peer *peer, enum ucx_am id)
{
    const struct ucx_note note = {.rank = (uint32_t)peer->link->rank, .serial = peer->sent};

    send_head(peer, id, &note, sizeof(note));
}

void disti_ucx_send_answer(struct ucx_peer *peer, uint32_t name, bool wanted)
{
    const struct ucx_answer answer = {
        .rank = (uint32_t)peer->link->rank, .name = name, .wanted = wanted};

    if (!peer->lost && disti_ucx_peer_open(peer))
        send_head(peer, UCX_AM_ANSWER, &answer, sizeof(answer));
}

void disti_ucx_send_returned(struct ucx_peer *peer)
{
    const struct ucx_returned returned = {.rank = (uint32_t)peer->link->rank,
                                          .returned = peer->debit.told};

    if (!peer->lost && disti_ucx_peer_open(peer))
        send_head(peer, UCX_AM_CREDIT, &returned, sizeof(returned));
}
