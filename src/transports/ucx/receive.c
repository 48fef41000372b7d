/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: receiving. UCX calls us for each message; a pair's are taken in order. */
#include "transports/ucx/state.h"

#include <stdlib.h>
#include <string.h>

static void receive_broken(struct ucx_link *link, dist_status status, const char *text)
{
    link->broken = link->host->fail(status, "rank %d, transport ucx: %s", link->rank, text);
}

static const char receive_full[] = "no memory for a message that came early";

/* ---- taking a message ---- */

/* The payload is here. */
static void receive_here(struct ucx_peer *peer, const struct ucx_head *head, const void *payload)
{
    const struct dist_host *host = peer->link->host;
    struct disti_early *early;
    bool mismatch;
    struct dist_request *request = disti_match_arrival(&peer->match, &head->envelope, &mismatch);
    size_t bytes = (size_t)head->envelope.bytes;

    if (request) {
        if (mismatch)
            return;
        host->sink_apply(&request->sink, 0, payload, bytes);
        request->status = DIST_OK;
        return;
    }
    early = disti_match_hold(&peer->match, &head->envelope, false);
    if (!early) {
        receive_broken(peer->link, DIST_ERR_NO_MEMORY, receive_full);
        return;
    }
    if (bytes)
        memcpy(early->payload, payload, bytes);
    early->arrived = bytes;
}

/* The payload is to be fetched: as a whole, if there is a descriptor, else in pieces. */
static void receive_far(struct ucx_peer *peer, const struct ucx_head *head, void *descriptor)
{
    struct ucx_inbound *inbound = disti_ucx_inbound(peer, head->serial, head->envelope.bytes);
    struct dist_request *request;
    struct disti_early *early;
    bool mismatch;

    if (!inbound)
        return;
    if (descriptor)
        disti_ucx_inbound_piece(inbound, descriptor, 0, (size_t)head->envelope.bytes);
    request = disti_match_arrival(&peer->match, &head->envelope, &mismatch);
    if (mismatch) {
        disti_ucx_inbound_refuse(inbound);
    } else if (request) {
        disti_ucx_inbound_claim(inbound, request);
    } else {
        early = disti_match_hold(&peer->match, &head->envelope, true);
        if (early)
            early->note[0] = (uint64_t)(uintptr_t)inbound;
        else
            receive_broken(peer->link, DIST_ERR_NO_MEMORY, receive_full);
    }
}

static void receive_take(struct ucx_peer *peer, const struct ucx_head *head, const void *payload,
                         void *descriptor)
{
    peer->expected++;
    if (descriptor || head->envelope.bytes > UCX_PIECE_BYTES)
        receive_far(peer, head, descriptor);
    else
        receive_here(peer, head, payload);
}

/* ---- the order ---- */

static void receive_park(struct ucx_peer *peer, const struct ucx_head *head, const void *payload,
                         size_t bytes, void *descriptor)
{
    struct ucx_parked *parked = malloc(sizeof(*parked) + bytes);

    if (!parked) {
        receive_broken(peer->link, DIST_ERR_NO_MEMORY, receive_full);
        return;
    }
    *parked = (struct ucx_parked){.next = peer->parked, .head = *head, .descriptor = descriptor};
    if (bytes)
        memcpy(parked->payload, payload, bytes);
    peer->parked = parked;
}

static struct ucx_parked *receive_unpark(struct ucx_peer *peer)
{
    struct ucx_parked **at = &peer->parked, *found;

    while (*at && (*at)->head.serial != peer->expected)
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
        receive_take(peer, &parked->head, parked->payload, parked->descriptor);
        free(parked);
    }
    if (peer->leaving && peer->expected == peer->last)
        disti_ucx_peer_lose(peer, "it has left");
}

/* ---- UCX's callbacks ---- */

/* The peer that a head names; NULL: it is nonsense. */
static struct ucx_peer *receive_from(struct ucx_link *link, const void *header, size_t bytes,
                                     size_t expected, void *head)
{
    uint32_t rank;

    if (link->closing)
        return NULL;
    if (bytes == expected) {
        memcpy(head, header, bytes);
        memcpy(&rank, head, sizeof(rank));
        if (rank < (uint32_t)link->ranks && rank != (uint32_t)link->rank)
            return &link->peers[rank];
    }
    receive_broken(link, DIST_ERR_INTERNAL,
                   "a message came that is none of libdist's: do all ranks run the same version?");
    return NULL;
}

/* Does as much payload come as the envelope says, here or to be fetched? */
static bool receive_fits(const struct ucx_head *head, size_t length)
{
    return length == (head->envelope.bytes > UCX_PIECE_BYTES ? 0 : head->envelope.bytes);
}

static ucs_status_t receive_message(void *arg, const void *header, size_t header_bytes, void *data,
                                    size_t length, const ucp_am_recv_param_t *param)
{
    struct ucx_link *link = arg;
    bool far = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;
    struct ucx_head head;
    struct ucx_peer *peer = receive_from(link, header, header_bytes, sizeof(head), &head);

    if (!peer)
        return UCS_OK;
    if (!receive_fits(&head, length)) {
        receive_broken(link, DIST_ERR_INTERNAL, "a message is not as long as it says");
        return UCS_OK;
    }
    link->happened++;
    if (head.serial == peer->expected)
        receive_take(peer, &head, data, far ? data : NULL);
    else
        receive_park(peer, &head, data, far ? 0 : length, far ? data : NULL);
    receive_catch_up(peer);
    return far ? UCS_INPROGRESS : UCS_OK;
}

static ucs_status_t receive_piece(void *arg, const void *header, size_t header_bytes, void *data,
                                  size_t length, const ucp_am_recv_param_t *param)
{
    struct ucx_link *link = arg;
    struct ucx_piece_head head;
    struct ucx_peer *peer = receive_from(link, header, header_bytes, sizeof(head), &head);
    struct ucx_inbound *inbound;
    bool far = param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV;

    if (!peer)
        return UCS_OK;
    if (length > UCX_PIECE_BYTES) {
        receive_broken(link, DIST_ERR_INTERNAL, "a piece of a message is not as it should be");
        return UCS_OK;
    }
    link->happened++;
    inbound = disti_ucx_inbound(peer, head.serial, UINT64_MAX);
    if (!inbound)
        return UCS_OK;
    if (far)
        disti_ucx_inbound_piece(inbound, data, (size_t)head.offset, length);
    else
        disti_ucx_inbound_bytes(inbound, data, (size_t)head.offset, length);
    return far ? UCS_INPROGRESS : UCS_OK;
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

ucs_status_t disti_ucx_listen(struct ucx_link *link)
{
    static const struct {
        enum ucx_am id;
        ucp_am_recv_callback_t call;
    } kinds[] = {
        {UCX_AM_MESSAGE, receive_message},
        {UCX_AM_PIECE, receive_piece},
        {UCX_AM_HELLO, receive_note},
        {UCX_AM_GOODBYE, receive_goodbye},
    };
    ucs_status_t status = UCS_OK;

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && status == UCS_OK; i++) {
        const ucp_am_handler_param_t param = {
            .field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                          UCP_AM_HANDLER_PARAM_FIELD_ARG | UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
            .id = kinds[i].id,
            .flags = UCP_AM_FLAG_WHOLE_MSG,
            .cb = kinds[i].call,
            .arg = link,
        };

        status = ucp_worker_set_am_recv_handler(link->worker, &param);
    }
    return status;
}

/* ---- receives ---- */

void disti_ucx_recv(void *state, struct dist_request *request)
{
    struct ucx_link *link = state;
    struct ucx_peer *peer = &link->peers[request->peer];
    struct disti_early *early = disti_match_waiting(&peer->match, request->envelope.tag);
    struct ucx_inbound *inbound = NULL;

    if (!early && peer->lost) {
        request->status = disti_ucx_peer_gone(peer);
        return;
    }
    if (early && early->descriptor)
        inbound = (struct ucx_inbound *)(uintptr_t)early->note[0];
    early = disti_match_post(&peer->match, request);
    if (early && !inbound) {
        link->host->sink_apply(&request->sink, 0, early->payload, (size_t)early->envelope.bytes);
        request->status = DIST_OK;
    }
    if (early)
        disti_match_release(&peer->match, early);
    if (inbound && early)
        disti_ucx_inbound_claim(inbound, request);
    else if (inbound)
        disti_ucx_inbound_refuse(inbound);
    else if (request->status == DIST_IN_PROGRESS)
        disti_ucx_peer_greet(peer);
    disti_ucx_pulls_start(link);
}

void disti_ucx_receive_fail(struct ucx_peer *peer)
{
    struct disti_match waiting = {.posted_head = peer->match.posted_head,
                                  .posted_tail = peer->match.posted_tail};

    peer->match.posted_head = peer->match.posted_tail = NULL;
    disti_match_fail(&waiting, DIST_ERR_PEER_LOST);
    disti_ucx_inbounds_fail(peer);
}

void disti_ucx_receive_drop(struct ucx_peer *peer)
{
    disti_ucx_inbounds_drop(peer);
    while (peer->parked) {
        struct ucx_parked *parked = peer->parked;

        peer->parked = parked->next;
        if (parked->descriptor)
            ucp_am_data_release(peer->link->worker, parked->descriptor);
        free(parked);
    }
    disti_match_clear(&peer->match);
}
