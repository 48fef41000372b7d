/* SPDX-License-Identifier: BSD-3-Clause */
/* Transport ucx: messages whose payload is fetched, into place or to be reduced. */
#include "transports/ucx/state.h"

#include <stdlib.h>

/* Is it thrown away instead of fetched? */
static bool inbound_dropped(const struct ucx_inbound *inbound)
{
    return inbound->refused || inbound->peer->lost;
}

/* Does the message have these bytes? What a peer says is not believed. */
static bool inbound_holds(struct ucx_inbound *inbound, uint64_t offset, uint64_t bytes)
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

/* Is there nothing left to do, or nothing that can be done? */
static void inbound_settle(struct ucx_inbound *inbound)
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

/* ---- fetching ---- */

static unsigned char *pull_scratch(struct ucx_link *link)
{
    unsigned char *scratch;

    if (link->scratches_free)
        return link->scratch_free[--link->scratches_free];
    if (link->scratches == UCX_SCRATCHES)
        return NULL;
    scratch = malloc(UCX_PIECE_BYTES);
    link->scratches += scratch != NULL;
    return scratch;
}

/* Ends a pull that was started, or could not be, or need not be. */
static void pull_end(struct ucx_link *link, struct ucx_pull *pull, dist_status status)
{
    struct ucx_inbound *inbound = pull->inbound;

    if (status == DIST_OK && pull->scratch && inbound->request &&
        inbound_holds(inbound, pull->offset, pull->bytes))
        link->host->sink_apply(&inbound->request->sink, pull->offset, pull->scratch, pull->bytes);
    if (pull->scratch)
        link->scratch_free[link->scratches_free++] = pull->scratch;
    if (inbound->status == DIST_OK)
        inbound->status = status;
    inbound->left -= pull->bytes;
    inbound->pulling--;
    link->happened++;
    free(pull);
    inbound_settle(inbound);
}

/* A pull that UCX refuses because the peer is gone is not its receiver's choice: never OK. */
static dist_status pull_status(struct ucx_peer *peer, ucs_status_t status)
{
    if (status == UCS_ERR_CANCELED)
        status = UCS_ERR_CONNECTION_RESET;
    return disti_ucx_ended(peer, status);
}

static void pull_ended(void *ucx_request, ucs_status_t status, size_t length, void *arg)
{
    struct ucx_pull *pull = arg;
    struct ucx_link *link = pull->link;

    (void)length;
    ucp_request_free(ucx_request);
    if (!link->closing) {
        pull_end(link, pull, pull_status(pull->inbound->peer, status));
        return;
    }
    if (pull->scratch)
        link->scratch_free[link->scratches_free++] = pull->scratch;
    free(pull);
}

static void pull_start(struct ucx_link *link, struct ucx_pull *pull)
{
    const ucp_request_param_t param = {
        .op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE,
        .cb.recv_am = pull_ended,
        .user_data = pull,
        .memory_type = UCS_MEMORY_TYPE_HOST,
    };
    struct ucx_inbound *inbound = pull->inbound;
    void *target =
        pull->scratch ? pull->scratch : (unsigned char *)inbound->request->sink.dst + pull->offset;
    void *got = ucp_am_recv_data_nbx(link->worker, pull->descriptor, target, pull->bytes, &param);

    if (!UCS_PTR_IS_PTR(got))
        pull_end(link, pull, pull_status(inbound->peer, UCS_PTR_STATUS(got)));
}

static void pull_drop(struct ucx_link *link, struct ucx_pull *pull)
{
    ucp_am_data_release(link->worker, pull->descriptor);
    pull_end(link, pull, pull->inbound->refused ? DIST_OK : DIST_ERR_PEER_LOST);
}

void disti_ucx_pulls_start(struct ucx_link *link)
{
    struct ucx_pull **at = &link->ready;

    while (*at) {
        struct ucx_pull *pull = *at;
        bool dropped = inbound_dropped(pull->inbound) ||
                       !inbound_holds(pull->inbound, pull->offset, pull->bytes);

        if (!dropped && pull->inbound->request->sink.src) {
            pull->scratch = pull_scratch(link);
            if (!pull->scratch) {
                at = &pull->next; /* others may need none */
                continue;
            }
        }
        *at = pull->next;
        (dropped ? pull_drop : pull_start)(link, pull);
    }
}

static void pull_ready(struct ucx_link *link, struct ucx_pull *pull)
{
    struct ucx_pull **at = &link->ready;

    while (*at)
        at = &(*at)->next;
    pull->next = NULL;
    pull->inbound->pulling++;
    *at = pull;
}

/* ---- from announcement to end ---- */

static void inbound_add(struct ucx_inbound *inbound, struct ucx_pull *pull)
{
    if (inbound->request || inbound->refused) {
        pull_ready(inbound->peer->link, pull);
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
    if (inbound->status == DIST_OK && inbound_holds(inbound, offset, bytes))
        inbound->peer->link->host->sink_apply(&inbound->request->sink, offset, data, bytes);
    inbound->left -= bytes;
    inbound_settle(inbound);
}

static void inbound_go(struct ucx_inbound *inbound)
{
    while (inbound->waiting) {
        struct ucx_pull *pull = inbound->waiting;

        inbound->waiting = pull->next;
        pull_ready(inbound->peer->link, pull);
    }
    inbound_settle(inbound);
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
        inbound_settle(inbound);
    }
}

void disti_ucx_pulls_drop(struct ucx_link *link)
{
    while (link->ready) {
        struct ucx_pull *pull = link->ready;

        link->ready = pull->next;
        ucp_am_data_release(link->worker, pull->descriptor);
        free(pull);
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
