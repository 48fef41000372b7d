/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: sending, what fits in one message, and notes. */
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
        disti_ucx_announce(peer, request, &head);
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
