/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: sending what is announced first, and in pieces once it is asked for. */
#include "transports/ucx/state.h"

#include <stdlib.h>
#include <string.h>

struct ucx_send_piece {
    struct ucx_piece_head head;
    struct ucx_send_pieces *all;
    size_t bytes;
    unsigned char *copy; /* what UCX reads, if it is not the program's memory */
    bool busy;
    bool pinned; /* UCX reads memory of a send that has been forgotten */
};

/*
 * Place 0 is the announcement's, the others are for pieces. It stands in the peer's table until it
 * is asked for, and ends when it has been, and nothing is flying.
 */
struct ucx_send_pieces {
    LIST_ENTRY(ucx_send_pieces) entry; /* of the peer's */
    struct ucx_announcement announcement;
    struct dist_request *request; /* NULL: it has been forgotten, and nothing more can be sent */
    struct ucx_peer *peer;
    size_t bytes, begun;
    unsigned flying;
    bool answered;
    dist_status status;
    struct ucx_send_piece slots[1 + UCX_WINDOW];
};

static void piece_ended(void *ucx_request, ucs_status_t status, void *arg);

/* Starts what is in this place. The caller counts as flying: all may end within it. */
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
    const void *head = data ? (const void *)&piece->head : &all->announcement;
    size_t head_bytes = data ? sizeof(piece->head) : sizeof(all->announcement);
    void *sent;

    /* Where the peer is found dead in the call, this piece may have ended when it returns. */
    piece->busy = true;
    all->flying++;
    sent = ucp_am_send_nbx(all->peer->endpoint, data ? UCX_AM_PIECE : UCX_AM_ANNOUNCE, head,
                           head_bytes, data, piece->bytes, &param);
    if (UCS_PTR_IS_PTR(sent))
        return;
    piece->busy = false;
    all->flying--;
    if (UCS_PTR_IS_ERR(sent))
        all->status = disti_ucx_ended(all->peer, UCS_PTR_STATUS(sent));
}

/*
 * What UCX shall read of the message's memory. Where it reads when the peer takes the piece, which
 * may be silent, it is a copy: so the send can be forgotten without giving up the peer.
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
            i--; /* it has gone already: the place is free */
    }
}

static void pieces_free(struct ucx_send_pieces *all)
{
    LIST_REMOVE(all, entry);
    for (int i = 1; i <= UCX_WINDOW; i++)
        free(all->slots[i].copy);
    free(all);
}

/* Has all of it left, or can no more leave? */
static void pieces_finish(struct ucx_send_pieces *all)
{
    if (all->flying || !all->answered)
        return;
    if (all->status == DIST_OK && all->begun < all->bytes)
        all->status = DIST_ERR_PEER_LOST;
    if (all->request)
        all->request->status = all->status;
    pieces_free(all);
}

/* Sends what there is place for. */
static void pieces_go_on(struct ucx_send_pieces *all)
{
    all->flying++;
    pieces_fill(all);
    all->flying--;
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
    ended = disti_ucx_ended(all->peer, status); /* a loss gives up all that does not fly */
    if (ended != DIST_OK)
        all->status = ended;
    all->flying--;
    if (all->answered)
        pieces_go_on(all);
}

/* Nobody will ask for it any more. */
static void pieces_give_up(struct ucx_send_pieces *all, dist_status status)
{
    all->answered = true;
    all->begun = all->bytes;
    if (all->status == DIST_OK)
        all->status = status;
    pieces_finish(all);
}

void disti_ucx_announce(struct ucx_peer *peer, struct dist_request *request,
                        const struct ucx_head *head)
{
    struct ucx_send_pieces *all = calloc(1, sizeof(*all));

    if (!all || !disti_announced_add(&peer->announced, all, &all->announcement.name)) {
        free(all);
        request->status = peer->ucx->host->fail(DIST_ERR_NO_MEMORY,
                                                "no memory for a message to rank %d", peer->rank);
        return;
    }
    all->request = request;
    all->bytes = (size_t)request->envelope.bytes;
    all->peer = peer;
    LIST_INSERT_HEAD(&peer->pieces, all, entry);
    all->announcement.head = *head;
    for (int i = 0; i <= UCX_WINDOW; i++) {
        all->slots[i].all = all;
        all->slots[i].head = (struct ucx_piece_head){.rank = head->rank, .serial = head->serial};
    }
    all->flying++; /* it must outlive a loss of the peer that shows at once */
    piece_start(&all->slots[0], NULL);
    all->flying--;
    pieces_finish(all);
}

bool disti_ucx_pieces_answered(struct ucx_peer *peer, uint32_t name, bool wanted)
{
    struct ucx_send_pieces *all = disti_announced_take(&peer->announced, name);

    if (!all)
        return false;
    if (!wanted) {
        pieces_give_up(all, DIST_OK);
        return true;
    }
    all->answered = true;
    pieces_go_on(all);
    return true;
}

void disti_ucx_pieces_fail(struct ucx_peer *peer)
{
    struct ucx_send_pieces *all;
    uint32_t cursor = 0;

    while ((all = disti_announced_take_next(&peer->announced, &cursor)))
        pieces_give_up(all, DIST_ERR_PEER_LOST);
}

void disti_ucx_pieces_free(struct ucx_peer *peer)
{
    while (LIST_FIRST(&peer->pieces))
        pieces_free(LIST_FIRST(&peer->pieces));
    disti_announced_clear(&peer->announced);
}

/* ---- forgetting ---- */

/* What has not been sent goes on from a copy. */
static bool pieces_replace(struct ucx_send_pieces *all)
{
    struct disti_standins *standins = &all->peer->ucx->standins;

    all->request = disti_standin_send(standins, all->request, all->begun);
    for (int i = 1; i <= UCX_WINDOW; i++)
        all->slots[i].pinned = all->slots[i].busy && !all->slots[i].copy;
    if (!all->request)
        all->begun = all->bytes;
    return all->request;
}

bool disti_ucx_pieces_forget(struct ucx_peer *peer, uint64_t tag, uint64_t mask)
{
    const struct disti_standins *standins = &peer->ucx->standins;
    bool enough = true;

    for (struct ucx_send_pieces *all = LIST_FIRST(&peer->pieces); all;
         all = LIST_NEXT(all, entry)) {
        if (all->request && disti_standin_is_for(all->request, tag, mask) &&
            !disti_standins_have(standins, all->request))
            enough = pieces_replace(all) && enough;
    }
    return enough;
}

bool disti_ucx_pieces_pinned(const struct ucx_peer *peer)
{
    const struct ucx_send_pieces *all;

    for (all = LIST_FIRST(&peer->pieces); all; all = LIST_NEXT(all, entry)) {
        for (int i = 1; i <= UCX_WINDOW; i++) {
            if (all->slots[i].pinned)
                return true;
        }
    }
    return false;
}
