/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: UCX calls us for each message; a pair's are taken in order. */
#include "transports/ucx/state.h"

#include <stdlib.h>
#include <string.h>

/* ---- the order ---- */

static void receive_park(struct ucx_peer *peer, const struct ucx_announcement *what, bool announced,
                         const void *payload)
{
    size_t bytes = announced ? 0 : (size_t)what->head.envelope.bytes;
    struct ucx_parked *parked = malloc(sizeof(*parked) + bytes);

    if (!parked) {
        disti_ucx_broken(peer->ucx, DIST_ERR_NO_MEMORY, "no memory for an unexpected message");
        return;
    }
    *parked = (struct ucx_parked){.next = peer->parked, .what = *what, .announced = announced};
    if (bytes)
        memcpy(parked->payload, payload, bytes);
    peer->parked = parked;
}

static struct ucx_parked *receive_unpark(struct ucx_peer *peer)
{
    struct ucx_parked **at = &peer->parked, *found;

    while (*at && (*at)->what.head.serial != peer->expected)
        at = &(*at)->next;
    found = *at;
    if (found)
        *at = found->next;
    return found;
}

/* What can be taken now, in order; and if that was all of a peer that leaves, it has left. */
static void receive_catch_up(struct ucx_peer *peer)
{
    struct ucx_parked *parked;

    while (peer->parked && (parked = receive_unpark(peer))) {
        disti_ucx_take(peer, &parked->what, parked->announced, parked->payload);
        free(parked);
    }
    if (peer->leaving && peer->expected == peer->last)
        disti_ucx_peer_lose(peer, "it has left");
}

/* ---- UCX's callbacks ---- */

/* The peer that a head names; NULL: it is nonsense. */
static struct ucx_peer *receive_from(struct ucx_state *ucx, const void *header, size_t bytes,
                                     size_t expected, void *head)
{
    uint32_t rank;

    if (ucx->closing)
        return NULL;
    if (bytes == expected) {
        memcpy(head, header, bytes);
        memcpy(&rank, head, sizeof(rank));
        if (rank < (uint32_t)ucx->ranks && rank != (uint32_t)ucx->rank)
            return &ucx->peers[rank];
    }
    disti_ucx_broken(
        ucx, DIST_ERR_INTERNAL,
        "a message is not one of libdist's: give all ranks the same version of libdist");
    return NULL;
}

/* A message or an announcement, now or when those before it have come. */
static void receive_in_order(struct ucx_peer *peer, const struct ucx_announcement *what,
                             bool announced, const void *payload)
{
    peer->ucx->happened++;
    if (what->head.serial == peer->expected)
        disti_ucx_take(peer, what, announced, payload);
    else
        receive_park(peer, what, announced, payload);
    receive_catch_up(peer);
}

static ucs_status_t receive_message(void *arg, const void *header, size_t header_bytes, void *data,
                                    size_t length, const ucp_am_recv_param_t *param)
{
    struct ucx_state *ucx = arg;
    struct ucx_announcement what = {0};
    struct ucx_peer *peer = receive_from(ucx, header, header_bytes, sizeof(what.head), &what.head);

    if (!peer)
        return UCS_OK;
    if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV || length != what.head.envelope.bytes ||
        !disti_credit_came(&peer->debit, length)) {
        disti_ucx_broken(ucx, DIST_ERR_INTERNAL, "a message has an invalid length");
        return UCS_OK;
    }
    receive_in_order(peer, &what, false, data);
    return UCS_OK;
}

static ucs_status_t receive_announcement(void *arg, const void *header, size_t header_bytes,
                                         void *data, size_t length,
                                         const ucp_am_recv_param_t *param)
{
    struct ucx_announcement what;
    struct ucx_peer *peer = receive_from(arg, header, header_bytes, sizeof(what), &what);

    (void)data;
    (void)length;
    (void)param;
    if (peer)
        receive_in_order(peer, &what, true, NULL);
    return UCS_OK;
}

static ucs_status_t receive_piece(void *arg, const void *header, size_t header_bytes, void *data,
                                  size_t length, const ucp_am_recv_param_t *param)
{
    struct ucx_state *ucx = arg;
    struct ucx_piece_head head;
    struct ucx_peer *peer = receive_from(ucx, header, header_bytes, sizeof(head), &head);
    struct ucx_inbound *inbound;
    bool far = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;

    if (!peer || peer->lost)
        return UCS_OK;
    inbound = disti_ucx_inbound_find(peer, head.serial);
    if (length > UCX_PIECE_BYTES || !inbound) {
        disti_ucx_broken(ucx, DIST_ERR_INTERNAL, "a piece of a message is invalid");
        return UCS_OK;
    }
    ucx->happened++;
    if (far)
        disti_ucx_inbound_piece(inbound, data, (size_t)head.offset, length);
    else
        disti_ucx_inbound_bytes(inbound, data, (size_t)head.offset, length);
    return far ? UCS_INPROGRESS : UCS_OK;
}

static ucs_status_t receive_answer(void *arg, const void *header, size_t header_bytes, void *data,
                                   size_t length, const ucp_am_recv_param_t *param)
{
    struct ucx_answer answer;
    struct ucx_peer *peer = receive_from(arg, header, header_bytes, sizeof(answer), &answer);

    (void)data;
    (void)length;
    (void)param;
    if (!peer || peer->lost)
        return UCS_OK;
    peer->ucx->happened++;
    if (!disti_ucx_pieces_answered(peer, answer.name, answer.wanted != 0))
        disti_ucx_broken(arg, DIST_ERR_INTERNAL, "a peer asked for a message that does not exist");
    return UCS_OK;
}

static ucs_status_t receive_returned(void *arg, const void *header, size_t header_bytes, void *data,
                                     size_t length, const ucp_am_recv_param_t *param)
{
    struct ucx_returned returned;
    struct ucx_peer *peer = receive_from(arg, header, header_bytes, sizeof(returned), &returned);

    (void)data;
    (void)length;
    (void)param;
    /* Notes may overtake each other: an old one says nothing new. */
    if (peer && (int64_t)(returned.returned - peer->credit.returned) > 0 &&
        !disti_credit_heard(&peer->credit, returned.returned))
        disti_ucx_broken(arg, DIST_ERR_INTERNAL, "a peer acknowledged more than was sent");
    return UCS_OK;
}

static ucs_status_t receive_note(void *arg, const void *header, size_t header_bytes, void *data,
                                 size_t length, const ucp_am_recv_param_t *param)
{
    struct ucx_note note;

    (void)receive_from(arg, header, header_bytes, sizeof(note), &note);
    (void)data;
    (void)length;
    (void)param;
    return UCS_OK;
}

static ucs_status_t receive_goodbye(void *arg, const void *header, size_t header_bytes, void *data,
                                    size_t length, const ucp_am_recv_param_t *param)
{
    struct ucx_note note;
    struct ucx_peer *peer = receive_from(arg, header, header_bytes, sizeof(note), &note);

    (void)data;
    (void)length;
    (void)param;
    if (peer && !peer->leaving) {
        peer->leaving = true;
        peer->last = note.serial;
        receive_catch_up(peer);
    }
    return UCS_OK;
}

ucs_status_t disti_ucx_listen(struct ucx_state *ucx)
{
    static const struct {
        enum ucx_am id;
        ucp_am_recv_callback_t call;
    } kinds[] = {
        {UCX_AM_MESSAGE, receive_message},
        {UCX_AM_PIECE, receive_piece},
        {UCX_AM_HELLO, receive_note},
        {UCX_AM_GOODBYE, receive_goodbye},
        {UCX_AM_ANNOUNCE, receive_announcement},
        {UCX_AM_ANSWER, receive_answer},
        {UCX_AM_CREDIT, receive_returned},
    };
    ucs_status_t status = UCS_OK;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && status == UCS_OK; i++) {
        const ucp_am_handler_param_t param = {
            .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                          UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
            .id = kinds[i].id,
            .flags = UCP_AM_FLAG_WHOLE_MSG,
            .cb = kinds[i].call,
            .arg = ucx,
        };

        status = ucp_worker_set_am_recv_handler(ucx->worker, &param);
    }
    return status;
}

void disti_ucx_receive_drop(struct ucx_peer *peer)
{
    disti_ucx_inbounds_drop(peer);
    while (peer->parked) {
        struct ucx_parked *parked = peer->parked;

        peer->parked = parked->next;
        free(parked);
    }
    disti_match_clear(&peer->match);
}
