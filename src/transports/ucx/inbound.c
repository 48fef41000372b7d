/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: messages whose payload is fetched, into place or to be reduced. */
#include "transports/ucx/state.h"

#include <stdlib.h>

bool disti_ucx_inbound_holds(struct ucx_inbound *inbound, uint64_t offset, uint64_t bytes)
{
    uint64_t total = inbound->request->envelope.bytes;

    if (offset <= total && bytes <= total - offset)
        return true;
    inbound->peer->link->broken = inbound->peer->link->host->fail(
        DIST_ERR_INTERNAL, "rank %d sent %llu bytes for place %llu of a message of %llu",
        inbound->peer->rank, (unsigned long long)bytes, (unsigned long long)offset,
        (unsigned long long)total);
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

void disti_ucx_inbound_settle(struct ucx_inbound *inbound)
{
    if (inbound->pulling || (inbound->left && inbound->status == DIST_OK))
        return;
    if (inbound->request)
        inbound->request->status = inbound->status;
    else if (!inbound->refused)
        return;
    inbound_free(inbound);
}

struct ucx_inbound *disti_ucx_inbound_new(struct ucx_peer *peer, uint32_t serial, uint64_t bytes)
{
    struct ucx_inbound *inbound = malloc(sizeof(*inbound));

    if (!inbound) {
        peer->link->broken = peer->link->host->fail(
            DIST_ERR_NO_MEMORY, "no memory for a message of rank %d", peer->rank);
        return NULL;
    }
    *inbound =
        (struct ucx_inbound){.next = peer->inbounds, .peer = peer, .serial = serial, .left = bytes};
    peer->inbounds = inbound;
    return inbound;
}

struct ucx_inbound *disti_ucx_inbound_find(struct ucx_peer *peer, uint32_t serial)
{
    struct ucx_inbound *inbound = peer->inbounds;

    while (inbound && (inbound->serial != serial || !inbound->request))
        inbound = inbound->next;
    return inbound;
}

static void inbound_add(struct ucx_inbound *inbound, struct ucx_pull *pull)
{
    if (inbound->request || inbound->refused) {
        disti_ucx_pull_ready(inbound->peer->link, pull);
    } else {
        pull->next = inbound->waiting;
        inbound->waiting = pull;
    }
}

void disti_ucx_inbound_piece(struct ucx_inbound *inbound, void *descriptor, size_t offset,
                             size_t bytes)
{
    struct ucx_link *link = inbound->peer->link;
    struct ucx_pull *pull = malloc(sizeof(*pull));

    if (!pull) {
        link->broken = link->host->fail(DIST_ERR_NO_MEMORY, "no memory for a message of rank %d",
                                        inbound->peer->rank);
        return;
    }
    *pull = (struct ucx_pull){.link = link,
                              .inbound = inbound,
                              .descriptor = descriptor,
                              .offset = offset,
                              .bytes = bytes};
    inbound_add(inbound, pull);
}

void disti_ucx_inbound_bytes(struct ucx_inbound *inbound, const void *data, size_t offset,
                             size_t bytes)
{
    if (inbound->status == DIST_OK && disti_ucx_inbound_holds(inbound, offset, bytes))
        inbound->peer->link->host->sink_apply(&inbound->request->sink, offset, data, bytes);
    inbound->left -= bytes;
    disti_ucx_inbound_settle(inbound);
}

static void inbound_go(struct ucx_inbound *inbound)
{
    while (inbound->waiting) {
        struct ucx_pull *pull = inbound->waiting;

        inbound->waiting = pull->next;
        disti_ucx_pull_ready(inbound->peer->link, pull);
    }
    disti_ucx_inbound_settle(inbound);
}

void disti_ucx_inbound_claim(struct ucx_inbound *inbound, struct dist_request *request)
{
    inbound->request = request;
    if (inbound->peer->lost)
        inbound->status = disti_ucx_peer_gone(inbound->peer);
    inbound_go(inbound);
}

void disti_ucx_inbound_refuse(struct ucx_inbound *inbound)
{
    inbound->refused = true;
    inbound_go(inbound);
}

void disti_ucx_inbounds_fail(struct ucx_peer *peer)
{
    struct ucx_inbound *next;

    for (struct ucx_inbound *inbound = peer->inbounds; inbound; inbound = next) {
        next = inbound->next;
        if (!inbound->request && !inbound->refused)
            continue; /* its receive will hear of it */
        inbound->status = DIST_ERR_PEER_LOST;
        disti_ucx_inbound_settle(inbound);
    }
}

void disti_ucx_inbounds_drop(struct ucx_peer *peer)
{
    while (peer->inbounds) {
        struct ucx_inbound *inbound = peer->inbounds;

        peer->inbounds = inbound->next;
        while (inbound->waiting) {
            struct ucx_pull *pull = inbound->waiting;

            inbound->waiting = pull->next;
            ucp_am_data_release(peer->link->worker, pull->descriptor);
            free(pull);
        }
        free(inbound);
    }
}
