/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: messages whose payload is fetched, into place or to be reduced. */
#include "transports/ucx/state.h"

#include <stdlib.h>

bool disti_ucx_inbound_holds(struct ucx_inbound *inbound, uint64_t offset, uint64_t bytes)
{
    uint64_t total = inbound->request->envelope.bytes;

    if (offset <= total && bytes <= total - offset)
        return true;
    inbound->peer->ucx->broken =
        inbound->peer->ucx->host->fail(DIST_ERR_INTERNAL,
                                       "rank %d sent %llu bytes at offset %llu of a message of "
                                       "%llu: give all ranks the same version of libdist",
                                       inbound->peer->rank, (unsigned long long)bytes,
                                       (unsigned long long)offset, (unsigned long long)total);
    return false;
}

static void inbound_free(struct ucx_inbound *inbound)
{
    struct ucx_inbound **at = &inbound->peer->inbounds;

    while (*at != inbound)
        at = &(*at)->next;
    *at = inbound->next;
    free(inbound);
}

void disti_ucx_inbound_finish(struct ucx_inbound *inbound)
{
    if (inbound->pulling || (inbound->left && inbound->status == DIST_OK))
        return;
    if (inbound->request)
        inbound->request->status = inbound->status;
    inbound_free(inbound);
}

bool disti_ucx_inbound_new(struct ucx_peer *peer, uint32_t serial, struct dist_request *request)
{
    struct ucx_inbound *inbound = malloc(sizeof(*inbound));

    if (!inbound) {
        request->status = peer->ucx->host->fail(DIST_ERR_NO_MEMORY,
                                                "no memory for a message of rank %d", peer->rank);
        return false;
    }
    *inbound = (struct ucx_inbound){.next = peer->inbounds,
                                    .peer = peer,
                                    .serial = serial,
                                    .request = request,
                                    .left = request->envelope.bytes};
    peer->inbounds = inbound;
    return true;
}

struct ucx_inbound *disti_ucx_inbound_find(struct ucx_peer *peer, uint32_t serial)
{
    struct ucx_inbound *inbound = peer->inbounds;

    while (inbound && inbound->serial != serial)
        inbound = inbound->next;
    return inbound;
}

void disti_ucx_inbound_piece(struct ucx_inbound *inbound, void *descriptor, size_t offset,
                             size_t bytes)
{
    struct ucx_state *ucx = inbound->peer->ucx;
    struct ucx_pull *pull = malloc(sizeof(*pull));

    if (!pull) {
        ucx->broken = ucx->host->fail(DIST_ERR_NO_MEMORY, "no memory for a message of rank %d",
                                      inbound->peer->rank);
        return;
    }
    *pull = (struct ucx_pull){
        .ucx = ucx, .inbound = inbound, .descriptor = descriptor, .offset = offset, .bytes = bytes};
    disti_ucx_pull_ready(ucx, pull);
}

void disti_ucx_inbound_bytes(struct ucx_inbound *inbound, const void *data, size_t offset,
                             size_t bytes)
{
    if (inbound->request && inbound->status == DIST_OK &&
        disti_ucx_inbound_holds(inbound, offset, bytes))
        inbound->peer->ucx->host->sink_apply(&inbound->request->sink, offset, data, bytes);
    inbound->left -= bytes;
    disti_ucx_inbound_finish(inbound);
}

void disti_ucx_inbounds_fail(struct ucx_peer *peer)
{
    struct ucx_inbound *next;

    for (struct ucx_inbound *inbound = peer->inbounds; inbound; inbound = next) {
        next = inbound->next;
        inbound->status = DIST_ERR_PEER_LOST;
        disti_ucx_inbound_finish(inbound);
    }
}

void disti_ucx_inbounds_drop(struct ucx_peer *peer)
{
    while (peer->inbounds)
        inbound_free(peer->inbounds);
}

/* ---- forgetting ---- */

void disti_ucx_inbounds_forget(struct ucx_peer *peer, uint64_t tag, uint64_t mask)
{
    for (struct ucx_inbound *inbound = peer->inbounds; inbound; inbound = inbound->next) {
        if (inbound->request && disti_standin_is_for(inbound->request, tag, mask))
            inbound->request = NULL;
    }
}

bool disti_ucx_inbounds_pinned(const struct ucx_peer *peer)
{
    const struct ucx_inbound *inbound = peer->inbounds;

    while (inbound && !(!inbound->request && inbound->in_place))
        inbound = inbound->next;
    return inbound;
}
