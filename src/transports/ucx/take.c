/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: messages meet their receives, and what comes early is kept. */
#include "transports/ucx/state.h"

#include <stdlib.h>
#include <string.h>

void disti_ucx_broken(struct ucx_state *ucx, dist_status status, const char *text)
{
    ucx->broken = ucx->host->fail(status, "rank %d, transport ucx: %s", ucx->rank, text);
}

/* ---- messages that come ---- */

/* A message that was sent unasked is kept no more. */
static void receive_return(struct ucx_peer *peer, uint64_t bytes)
{
    if (disti_credit_return(&peer->debit, bytes))
        disti_ucx_send_returned(peer);
}

/* Keeps a message for its receive, or a note about it. NULL: there is no memory, and it was said.
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

/* The payload is here. */
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

/* A receive takes an announced message: it is asked for. */
static void receive_ask(struct ucx_peer *peer, struct dist_request *request, uint32_t serial,
                        uint32_t name)
{
    if (ucx_is_lost(peer)) {
        request->status = disti_ucx_peer_gone(peer);
    } else if (request->envelope.bytes == 0) {
        disti_ucx_send_answer(peer, name, false);
        request->status = DIST_OK;
    } else if (disti_ucx_inbound_new(peer, serial, request)) {
        disti_ucx_send_answer(peer, name, true);
    }
}

static void receive_announced(struct ucx_peer *peer, const struct ucx_announcement *what)
{
    struct dist_request *request;
    struct disti_unexpected *unexpected;
    bool mismatch;

    request = disti_match_arrival(&peer->match, &what->head.envelope, &mismatch);
    if (mismatch) {
        disti_ucx_send_answer(peer, what->name, false);
    } else if (request) {
        receive_ask(peer, request, what->head.serial, what->name);
    } else {
        unexpected = receive_hold(peer, &what->head, true);
        if (unexpected)
            unexpected->note[0] = (uint64_t)what->head.serial << 32 | what->name;
    }
}

void disti_ucx_take(struct ucx_peer *peer, const struct ucx_announcement *what, bool announced,
                    const void *payload)
{
    peer->expected++;
    if (announced)
        receive_announced(peer, what);
    else
        receive_whole(peer, &what->head, payload);
}

/* ---- receives ---- */

/* A message that came first is received. */
static void receive_unexpected(struct ucx_peer *peer, struct dist_request *request,
                               struct disti_unexpected *unexpected)
{
    if (unexpected->descriptor) {
        receive_ask(peer, request, (uint32_t)(unexpected->note[0] >> 32),
                    (uint32_t)unexpected->note[0]);
    } else {
        peer->ucx->host->sink_apply(&request->sink, 0, unexpected->payload, unexpected->arrived);
        receive_return(peer, unexpected->arrived);
        request->status = DIST_OK;
    }
    disti_match_release(&peer->match, unexpected);
}

void disti_ucx_refuse(struct ucx_peer *peer, struct disti_unexpected *unexpected)
{
    if (unexpected->descriptor)
        disti_ucx_send_answer(peer, (uint32_t)unexpected->note[0], false);
    else
        receive_return(peer, unexpected->arrived);
    disti_match_release(&peer->match, unexpected);
}

void disti_ucx_recv(void *state, struct dist_request *request)
{
    struct ucx_state *ucx = state;
    struct ucx_peer *peer = &ucx->peers[request->peer];
    const struct disti_unexpected *found = disti_match_waiting(&peer->match, request->envelope.tag);
    struct disti_unexpected *unexpected;

    if (ucx_is_lost(peer) && (!found || found->descriptor)) {
        request->status = disti_ucx_peer_gone(peer);
        return;
    }
    unexpected = disti_match_post(&peer->match, request);
    if (!unexpected)
        disti_ucx_peer_greet(peer);
    else if (unexpected->refused)
        disti_ucx_refuse(peer, unexpected);
    else
        receive_unexpected(peer, request, unexpected);
    disti_ucx_pulls_start(ucx);
}

void disti_ucx_receive_fail(struct ucx_peer *peer)
{
    disti_match_fail(&peer->match, DIST_ERR_PEER_LOST);
    disti_ucx_inbounds_fail(peer);
}
