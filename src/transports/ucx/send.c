/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: sending, what fits in one message, and notes. */
#include "transports/ucx/state.h"

#include <stdlib.h>
#include <string.h>

/*
 * A message that UCX is sending. It is a copy, as UCX reads what it sends until the peer takes it,
 * which may compute for long: so the request can be forgotten at any time. Credit bounds them.
 */
struct ucx_flight {
    LIST_ENTRY(ucx_flight) entry; /* of the peer's */
    struct ucx_peer *peer;
    struct dist_request *request; /* NULL: it has been forgotten */
    struct ucx_head head;
    unsigned char payload[];
};

/* ---- messages ---- */

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

/* The flight frees itself when it has ended. */
static void send_whole(struct ucx_flight *flight)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FIELD_FLAGS,
        .flags = UCP_AM_SEND_FLAG_EAGER,
        .cb.send = send_ended,
        .user_data = flight,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    void *sent;

    LIST_INSERT_HEAD(&flight->peer->flights, flight, entry); /* it may end within the call */
    sent =
        ucp_am_send_nbx(flight->peer->endpoint, UCX_AM_MESSAGE, &flight->head, sizeof(flight->head),
                        flight->payload, (size_t)flight->head.envelope.bytes, &param);
    if (UCS_PTR_IS_PTR(sent))
        return;
    LIST_REMOVE(flight, entry);
    flight->request->status = disti_ucx_ended(flight->peer, UCS_PTR_STATUS(sent));
    free(flight);
}

static struct ucx_flight *send_copy(struct ucx_peer *peer, struct dist_request *request,
                                    const struct ucx_head *head)
{
    size_t bytes = (size_t)request->envelope.bytes;
    struct ucx_flight *flight = malloc(sizeof(*flight) + bytes);

    if (!flight)
        return NULL;
    *flight = (struct ucx_flight){.peer = peer, .request = request, .head = *head};
    if (bytes)
        memcpy(flight->payload, request->data, bytes);
    return flight;
}

void disti_ucx_send(void *state, struct dist_request *request)
{
    struct ucx_state *ucx = state;
    struct ucx_peer *peer = &ucx->peers[request->peer];
    struct ucx_head head = {.rank = (uint32_t)ucx->rank, .envelope = request->envelope};
    struct ucx_flight *flight;

    if (!disti_ucx_peer_open(peer)) {
        request->status = DIST_ERR_PEER_LOST;
        return;
    }
    head.serial = peer->sent++;
    if (request->envelope.bytes > ucx->whole_bytes ||
        !disti_credit_covers(&peer->credit, request->envelope.bytes)) {
        disti_ucx_announce(peer, request, &head);
        return;
    }
    flight = send_copy(peer, request, &head);
    if (!flight) {
        request->status =
            ucx->host->fail(DIST_ERR_NO_MEMORY, "no memory for a message to rank %d", peer->rank);
        return;
    }
    disti_credit_spend(&peer->credit, request->envelope.bytes);
    send_whole(flight);
}

void disti_ucx_sends_forget(struct ucx_peer *peer, uint64_t tag, uint64_t mask)
{
    struct ucx_flight *flight;

    for (flight = LIST_FIRST(&peer->flights); flight; flight = LIST_NEXT(flight, entry)) {
        if (flight->request && disti_standin_is_for(flight->request, tag, mask))
            flight->request = NULL;
    }
}

void disti_ucx_sends_free(struct ucx_peer *peer)
{
    struct ucx_flight *flight;

    while ((flight = LIST_FIRST(&peer->flights))) {
        LIST_REMOVE(flight, entry);
        free(flight);
    }
}

/* ---- notes ---- */

/* A head on its way. Those of peers that take nothing never end: they go with the worker. */
struct ucx_sent_head {
    LIST_ENTRY(ucx_sent_head) entry;
    unsigned char bytes[];
};

static void send_note_ended(void *ucx_request, ucs_status_t status, void *arg)
{
    struct ucx_sent_head *head = arg;

    (void)status; /* the error handler hears of it */
    LIST_REMOVE(head, entry);
    free(head);
    ucp_request_free(ucx_request);
}

void disti_ucx_heads_free(struct ucx_state *ucx)
{
    struct ucx_sent_head *head;

    while ((head = LIST_FIRST(&ucx->heads))) {
        LIST_REMOVE(head, entry);
        free(head);
    }
}

/* Sends a copy of the head, without payload. */
static void send_head(struct ucx_peer *peer, enum ucx_am id, const void *head, size_t bytes)
{
    struct ucx_sent_head *copy = malloc(sizeof(*copy) + bytes);
    void *sent;
    const ucp_request_param_t param = {.op_attr_mask =
                                           UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                       .cb.send = send_note_ended,
                                       .user_data = copy};

    if (!copy) {
        peer->ucx->broken = peer->ucx->host->fail(DIST_ERR_NO_MEMORY,
                                                  "no memory for a note to rank %d", peer->rank);
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

void disti_ucx_send_answer(struct ucx_peer *peer, uint32_t name, bool wanted)
{
    const struct ucx_answer answer = {
        .rank = (uint32_t)peer->ucx->rank, .name = name, .wanted = wanted};

    if (!ucx_is_lost(peer) && disti_ucx_peer_open(peer))
        send_head(peer, UCX_AM_ANSWER, &answer, sizeof(answer));
}

void disti_ucx_send_returned(struct ucx_peer *peer)
{
    const struct ucx_returned returned = {.rank = (uint32_t)peer->ucx->rank,
                                          .returned = peer->debit.told};

    if (!ucx_is_lost(peer) && disti_ucx_peer_open(peer))
        send_head(peer, UCX_AM_CREDIT, &returned, sizeof(returned));
}
