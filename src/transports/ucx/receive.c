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

/* ---- one function for each kind of active message ---- */

/* What stands in front of one. Each kind begins with the sender's rank. */
union receive_head {
    uint32_t rank;
    struct ucx_announcement announcement; /* of a MESSAGE: its head alone */
    struct ucx_piece_head piece;
    struct ucx_answer answer;
    struct ucx_returned returned;
    struct ucx_note note;
};

struct receive_arrival {
    union receive_head head;
    void *data; /* the payload, or UCX's descriptor of one that is to be fetched */
    size_t bytes;
    bool fetched;
};

/* A message or an announcement, now or when those before it have come. */
static void receive_in_order(struct ucx_peer *peer, const struct ucx_announcement *what,
                             bool announced, const void *payload)
{
    if (what->head.serial == peer->expected)
        disti_ucx_take(peer, what, announced, payload);
    else
        receive_park(peer, what, announced, payload);
    receive_catch_up(peer);
}

static bool receive_message(struct ucx_peer *peer, const struct receive_arrival *arrival)
{
    const struct ucx_announcement *what = &arrival->head.announcement;

    if (arrival->fetched || arrival->bytes != what->head.envelope.bytes ||
        !disti_credit_came(&peer->debit, arrival->bytes))
        return false;
    receive_in_order(peer, what, false, arrival->data);
    return true;
}

static bool receive_announcement(struct ucx_peer *peer, const struct receive_arrival *arrival)
{
    receive_in_order(peer, &arrival->head.announcement, true, NULL);
    return true;
}

static bool receive_piece(struct ucx_peer *peer, const struct receive_arrival *arrival)
{
    const struct ucx_piece_head *head = &arrival->head.piece;
    struct ucx_inbound *inbound = disti_ucx_inbound_find(peer, head->serial);

    if (!inbound || arrival->bytes > UCX_PIECE_BYTES)
        return false;
    if (arrival->fetched)
        disti_ucx_inbound_piece(inbound, arrival->data, (size_t)head->offset, arrival->bytes);
    else
        disti_ucx_inbound_bytes(inbound, arrival->data, (size_t)head->offset, arrival->bytes);
    return true;
}

static bool receive_answer(struct ucx_peer *peer, const struct receive_arrival *arrival)
{
    const struct ucx_answer *answer = &arrival->head.answer;

    return disti_ucx_pieces_answered(peer, answer->name, answer->wanted != 0);
}

/* Active messages may overtake each other: an old one says nothing new. */
static bool receive_credit(struct ucx_peer *peer, const struct receive_arrival *arrival)
{
    uint64_t returned = arrival->head.returned.returned;

    return (int64_t)(returned - peer->credit.returned) <= 0 ||
           disti_credit_heard(&peer->credit, returned);
}

static bool receive_hello(struct ucx_peer *peer, const struct receive_arrival *arrival)
{
    (void)peer, (void)arrival;
    return true;
}

static bool receive_goodbye(struct ucx_peer *peer, const struct receive_arrival *arrival)
{
    if (!peer->leaving) {
        peer->leaving = true;
        peer->last = arrival->head.note.serial;
        receive_catch_up(peer);
    }
    return true;
}

/* False: the peer breaks the rules. */
static const struct receive_kind {
    size_t head_bytes;
    bool (*take)(struct ucx_peer *peer, const struct receive_arrival *arrival);
} receive_kinds[UCX_AM_COUNT] = {
    [UCX_AM_MESSAGE] = {sizeof(struct ucx_head), receive_message},
    [UCX_AM_PIECE] = {sizeof(struct ucx_piece_head), receive_piece},
    [UCX_AM_HELLO] = {sizeof(struct ucx_note), receive_hello},
    [UCX_AM_GOODBYE] = {sizeof(struct ucx_note), receive_goodbye},
    [UCX_AM_ANNOUNCE] = {sizeof(struct ucx_announcement), receive_announcement},
    [UCX_AM_ANSWER] = {sizeof(struct ucx_answer), receive_answer},
    [UCX_AM_CREDIT] = {sizeof(struct ucx_returned), receive_credit},
};

/* ---- what UCX calls ---- */

/* The peer that has sent it; NULL: it is none of libdist's messages. */
static struct ucx_peer *receive_from(struct ucx_state *ucx, enum ucx_am id, const void *header,
                                     size_t header_bytes, struct receive_arrival *arrival)
{
    if (header_bytes != receive_kinds[id].head_bytes)
        return NULL;
    memcpy(&arrival->head, header, header_bytes);
    if (arrival->head.rank >= (uint32_t)ucx->ranks || arrival->head.rank == (uint32_t)ucx->rank)
        return NULL;
    return &ucx->peers[arrival->head.rank];
}

/* Of a lost peer what it had sent whole still counts. IN_PROGRESS: UCX's descriptor is kept. */
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
    struct ucx_peer *peer;

    if (ucx->closing)
        return UCS_OK;
    peer = receive_from(ucx, listener->id, header, header_bytes, &arrival);
    if (peer && ucx_is_lost(peer) &&
        (listener->id == UCX_AM_PIECE || listener->id == UCX_AM_ANSWER))
        return UCS_OK;
    ucx->happened++;
    if (peer && receive_kinds[listener->id].take(peer, &arrival))
        return arrival.fetched && listener->id == UCX_AM_PIECE ? UCS_INPROGRESS : UCS_OK;
    disti_ucx_broken(
        ucx, DIST_ERR_INTERNAL,
        "a message came that is none of libdist's: do all ranks run the same version?");
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
    disti_ucx_inbounds_drop(peer);
    while (peer->parked) {
        struct ucx_parked *parked = peer->parked;

        peer->parked = parked->next;
        free(parked);
    }
    disti_match_clear(&peer->match);
}
