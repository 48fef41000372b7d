/* SPDX-License-Identifier: BSD-3-Clause */
/* An engine's link to an endpoint: messages, in the ranks of the engine's group. */
#include "base/log.h"
#include "endpoint/endpoint.h"
#include "endpoint/state.h"

#include <stdlib.h>
#include <string.h>

static int link_rank_outside(const struct engine_attachment *link, int peer)
{
    return link->members ? link->members[peer] : peer;
}

/* -1: that rank is not in the group. */
static int link_rank_inside(const struct engine_attachment *link, int outside)
{
    if (!link->members || outside < 0)
        return outside;
    for (int rank = 0; rank < link->ranks; rank++) {
        if (link->members[rank] == outside)
            return rank;
    }
    return -1;
}

/* ---- opening ---- */

dist_status disti_attachment_address(struct engine_attachment *link, void *blob, size_t *size_p)
{
    struct disti_endpoint *endpoint = link->endpoint;
    dist_status status = DIST_OK;
    size_t bytes = 0;

    endpoint_lock(endpoint);
    if (!endpoint->address_bytes) {
        status = link->transport->address(endpoint->state, endpoint->address, &bytes);
        if (status == DIST_OK && (bytes < 1 || bytes > DIST_ADDRESS_MAX))
            status = disti_fail(DIST_ERR_INTERNAL,
                                "rank %d: transport %s gives an address of %zu bytes: it must have "
                                "1 to %d",
                                link->rank, link->transport->name, bytes, DIST_ADDRESS_MAX);
        if (status == DIST_OK)
            endpoint->address_bytes = bytes;
    }
    *size_p = endpoint->address_bytes;
    memcpy(blob, endpoint->address, endpoint->address_bytes);
    endpoint_unlock(endpoint);
    return status;
}

dist_status disti_attachment_reach(struct engine_attachment *link, const void *blob, size_t size,
                                   struct dist_reach *reach_p)
{
    dist_status status;

    endpoint_lock(link->endpoint);
    status = link->transport->reach(link->endpoint->state, blob, size, reach_p);
    endpoint_unlock(link->endpoint);
    return status;
}

dist_status disti_attachment_connect(struct engine_attachment *link, int peer, const void *blob,
                                     size_t size)
{
    struct disti_endpoint *endpoint = link->endpoint;
    int outside = link_rank_outside(link, peer);
    dist_status status = DIST_OK;

    endpoint_lock(endpoint);
    if (!endpoint->connected[outside])
        status = link->transport->connect(endpoint->state, outside, blob, size);
    endpoint->connected[outside] = endpoint->connected[outside] || status == DIST_OK;
    endpoint_unlock(endpoint);
    return status;
}

/* ---- requests ---- */

/* The text of a failure is the thread's in whose call it was found. */
static void link_ended(struct engine_attachment *link, struct engine_request *request)
{
    request->status = request->request.status;
    request->request.peer = request->peer;
    if (request->status < 0 && request->status != DIST_ERR_MISMATCH && link->why)
        disti_fail_again(link->why);
}

int disti_attachment_collect(struct engine_attachment *link)
{
    struct disti_endpoint *endpoint = link->endpoint;
    int ended = 0;

    if (endpoint->shared && link->seen == endpoint->happened)
        return 0;
    link->seen = endpoint->happened;
    for (struct engine_request *request = LIST_FIRST(&link->out), *next; request; request = next) {
        next = LIST_NEXT(request, entry);
        if (request->request.status == DIST_IN_PROGRESS)
            continue;
        LIST_REMOVE(request, entry);
        link_ended(link, request);
        ended++;
    }
    return ended;
}

static bool link_has_failed(const struct engine_attachment *link)
{
    const struct engine_request *request;

    for (request = LIST_FIRST(&link->out); request; request = LIST_NEXT(request, entry)) {
        if (request->request.status < 0 && request->request.status != DIST_ERR_MISMATCH)
            return true;
    }
    return false;
}

/* A failure was reported just now: other groups' threads will ask what it was. */
static void link_blame(struct engine_attachment *mine)
{
    struct disti_endpoint *endpoint = mine->endpoint;

    struct engine_attachment *link;

    for (link = LIST_FIRST(&endpoint->links); link; link = LIST_NEXT(link, entry)) {
        if (link != mine && !link->why && link_has_failed(link))
            link->why = strdup(dist_last_error());
    }
}

/* After a call of the transport; `failures`: of this thread before. */
static void link_happened(struct engine_attachment *link, unsigned failures)
{
    struct disti_endpoint *endpoint = link->endpoint;

    endpoint->happened++;
    if (!endpoint->shared)
        return;
    if (disti_failures() != failures)
        link_blame(link);
    if (endpoint->asleep)
        disti_endpoint_wake(endpoint);
}

static void link_start(struct engine_attachment *link, int peer, struct engine_request *request,
                       void (*start)(void *state, struct dist_request *request))
{
    struct disti_endpoint *endpoint = link->endpoint;
    struct dist_request *inner = &request->request;
    unsigned failures = disti_failures();

    inner->status = request->status = DIST_IN_PROGRESS;
    inner->peer = link_rank_outside(link, peer);
    inner->next = inner->prev = NULL;
    inner->moved = 0;
    request->peer = peer;
    endpoint_lock(endpoint);
    if (endpoint->asleep)
        disti_endpoint_take_watch(endpoint);
    if (endpoint->broken < 0)
        inner->status = endpoint->broken;
    else
        start(endpoint->state, inner);
    if (inner->status == DIST_IN_PROGRESS)
        LIST_INSERT_HEAD(&link->out, request, entry);
    else
        link_ended(link, request);
    link_happened(link, failures);
    endpoint_unlock(endpoint);
}

void disti_attachment_send(struct engine_attachment *link, int peer, struct engine_request *request)
{
    link_start(link, peer, request, link->transport->send);
}

void disti_attachment_recv(struct engine_attachment *link, int peer, struct engine_request *request)
{
    link_start(link, peer, request, link->transport->recv);
}

/* ---- moving ---- */

/* The transport is broken for all groups. */
static int link_broken(struct disti_endpoint *endpoint)
{
    if (endpoint->broken_text)
        disti_fail_again(endpoint->broken_text);
    return endpoint->broken;
}

/* Calls between two looks for messages of groups that have ended. */
#define LINK_SWEEP 4096

static int link_move(struct engine_attachment *link)
{
    struct disti_endpoint *endpoint = link->endpoint;
    unsigned failures = disti_failures();
    int moved;

    if (endpoint->broken < 0)
        return link_broken(endpoint);
    if (endpoint->asleep)
        disti_endpoint_take_watch(endpoint);
    if (endpoint->shared && ++endpoint->sweeps >= LINK_SWEEP)
        disti_endpoint_sweep(endpoint);
    moved = link->transport->progress(endpoint->state);
    if (moved < 0) {
        endpoint->broken = moved;
        endpoint->broken_text = strdup(dist_last_error());
    }
    if (moved != 0 || !endpoint->shared)
        link_happened(link, failures);
    return moved;
}

int disti_attachment_progress(struct engine_attachment *link)
{
    int moved, ended;

    if (!endpoint_try_lock(link->endpoint))
        return 0;
    moved = link_move(link);
    ended = disti_attachment_collect(link);
    endpoint_unlock(link->endpoint);
    /* What moves for others is no reason to go on looking. */
    return moved <= 0 || LIST_FIRST(&link->out) || !link->endpoint->shared
               ? moved + (moved ? 0 : ended)
               : ended;
}

int disti_attachment_probe_tag(struct engine_attachment *link, uint64_t tag)
{
    int outside;

    if (!endpoint_try_lock(link->endpoint))
        return -1;
    outside = link->transport->probe_tag(link->endpoint->state, tag);
    endpoint_unlock(link->endpoint);
    return link_rank_inside(link, outside);
}

/* What the transport shows, in ranks of the group. */
struct link_look {
    const struct engine_attachment *link;
    dist_unexpected_fn see;
    void *arg;
};

static bool link_see(void *arg, int outside, const struct dist_envelope *envelope)
{
    const struct link_look *look = arg;
    int peer = link_rank_inside(look->link, outside);

    return peer >= 0 && look->see(look->arg, peer, envelope);
}

void disti_attachment_unexpected(struct engine_attachment *link, uint64_t tag, uint64_t mask,
                                 int most, dist_unexpected_fn see, void *arg)
{
    struct link_look look = {link, see, arg};

    if (!link->transport->unexpected)
        return;
    endpoint_lock(link->endpoint);
    link->transport->unexpected(link->endpoint->state, tag, mask, most, link_see, &look);
    endpoint_unlock(link->endpoint);
}
