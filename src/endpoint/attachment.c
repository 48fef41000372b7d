/* SPDX-License-Identifier: BSD-3-Clause */
/* The attachment of an engine to an endpoint: messages, in the ranks of the engine's group. */
#include "base/log.h"
#include "endpoint/endpoint.h"
#include "endpoint/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int attachment_rank_outside(const struct engine_attachment *attachment, int peer)
{
    return attachment->members ? attachment->members[peer] : peer;
}

/* -1: that rank is not in the group. */
static int attachment_rank_inside(const struct engine_attachment *attachment, int outside)
{
    if (!attachment->members || outside < 0)
        return outside;
    for (int rank = 0; rank < attachment->ranks; rank++) {
        if (attachment->members[rank] == outside)
            return rank;
    }
    return -1;
}

/* ---- opening ---- */

dist_status disti_attachment_address(struct engine_attachment *attachment, void *blob,
                                     size_t *size_p)
{
    struct disti_endpoint *endpoint = attachment->endpoint;
    dist_status status = DIST_OK;
    size_t bytes = 0;

    endpoint_lock(endpoint);
    if (!endpoint->address_bytes) {
        status = attachment->transport->address(endpoint->state, endpoint->address, &bytes);
        if (status == DIST_OK && (bytes < 1 || bytes > DIST_ADDRESS_MAX))
            status =
                disti_fail(DIST_ERR_INTERNAL,
                           "rank %d: transport %s gives an address of %zu bytes: it must have "
                           "1 to %d",
                           attachment->rank, attachment->transport->name, bytes, DIST_ADDRESS_MAX);
        if (status == DIST_OK)
            endpoint->address_bytes = bytes;
    }
    *size_p = endpoint->address_bytes;
    memcpy(blob, endpoint->address, endpoint->address_bytes);
    endpoint_unlock(endpoint);
    return status;
}

dist_status disti_attachment_reach(struct engine_attachment *attachment, const void *blob,
                                   size_t size, struct dist_reach *reach_p)
{
    dist_status status;

    endpoint_lock(attachment->endpoint);
    status = attachment->transport->reach(attachment->endpoint->state, blob, size, reach_p);
    endpoint_unlock(attachment->endpoint);
    return status;
}

dist_status disti_attachment_connect(struct engine_attachment *attachment, int peer,
                                     const void *blob, size_t size)
{
    struct disti_endpoint *endpoint = attachment->endpoint;
    int outside = attachment_rank_outside(attachment, peer);
    dist_status status = DIST_OK;

    endpoint_lock(endpoint);
    if (!endpoint->connected[outside])
        status = attachment->transport->connect(endpoint->state, outside, blob, size);
    endpoint->connected[outside] = endpoint->connected[outside] || status == DIST_OK;
    endpoint_unlock(endpoint);
    return status;
}

/* ---- requests ---- */

/* The text of a failure is the thread's in whose call it was found. */
static void attachment_ended(struct engine_attachment *attachment, struct engine_request *request)
{
    request->status = request->request.status;
    if (request->status == DIST_ERR_PEER_LOST)
        attachment->endpoint->lost[request->request.peer] = true;
    request->request.peer = request->peer;
    if (request->status < 0 && request->status != DIST_ERR_MISMATCH && attachment->why)
        disti_fail_unlogged(attachment->why);
}

int disti_attachment_collect(struct engine_attachment *attachment)
{
    struct disti_endpoint *endpoint = attachment->endpoint;
    int ended = 0;

    if (endpoint->shared && attachment->seen == endpoint->happened)
        return 0;
    attachment->seen = endpoint->happened;
    for (struct engine_request *request = LIST_FIRST(&attachment->out), *next; request;
         request = next) {
        next = LIST_NEXT(request, entry);
        if (request->request.status == DIST_IN_PROGRESS)
            continue;
        LIST_REMOVE(request, entry);
        attachment_ended(attachment, request);
        ended++;
    }
    return ended;
}

static bool attachment_has_failed(const struct engine_attachment *attachment)
{
    const struct engine_request *request;

    for (request = LIST_FIRST(&attachment->out); request; request = LIST_NEXT(request, entry)) {
        if (request->request.status < 0 && request->request.status != DIST_ERR_MISMATCH)
            return true;
    }
    return false;
}

/* A failure was reported just now: other groups' threads will ask what it was. */
static void attachment_blame(struct disti_endpoint *endpoint, const struct engine_attachment *mine)
{
    struct engine_attachment *attachment;

    for (attachment = LIST_FIRST(&endpoint->attachments); attachment;
         attachment = LIST_NEXT(attachment, entry)) {
        if (attachment != mine && !attachment->why && attachment_has_failed(attachment))
            attachment->why = strdup(dist_last_error());
    }
}

void disti_endpoint_happened(struct disti_endpoint *endpoint,
                             const struct engine_attachment *attachment, unsigned failures)
{
    endpoint->happened++;
    if (!endpoint->shared)
        return;
    if (disti_failures() != failures)
        attachment_blame(endpoint, attachment);
    if (endpoint->asleep)
        disti_endpoint_wake(endpoint);
}

static void attachment_start(struct engine_attachment *attachment, int peer,
                             struct engine_request *request,
                             void (*start)(void *state, struct dist_request *request))
{
    struct disti_endpoint *endpoint = attachment->endpoint;
    struct dist_request *inner = &request->request;
    unsigned failures = disti_failures();

    inner->status = request->status = DIST_IN_PROGRESS;
    inner->peer = attachment_rank_outside(attachment, peer);
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
        LIST_INSERT_HEAD(&attachment->out, request, entry);
    else
        attachment_ended(attachment, request);
    disti_endpoint_happened(endpoint, attachment, failures);
    endpoint_unlock(endpoint);
}

void disti_attachment_send(struct engine_attachment *attachment, int peer,
                           struct engine_request *request)
{
    attachment_start(attachment, peer, request, attachment->transport->send);
}

void disti_attachment_recv(struct engine_attachment *attachment, int peer,
                           struct engine_request *request)
{
    attachment_start(attachment, peer, request, attachment->transport->recv);
}

/* ---- moving ---- */

/* The transport is broken for all groups. */
static int attachment_broken(struct disti_endpoint *endpoint)
{
    if (endpoint->broken_text)
        disti_fail_unlogged(endpoint->broken_text);
    return endpoint->broken;
}

/* Calls between two looks for messages of groups that have ended. */
#define LINK_SWEEP 4096

int disti_endpoint_move(struct disti_endpoint *endpoint, const struct engine_attachment *attachment)
{
    unsigned failures = disti_failures();
    bool swept = false;
    int moved;

    if (endpoint->broken < 0)
        return attachment_broken(endpoint);
    if (endpoint->asleep)
        disti_endpoint_take_watch(endpoint);
    if (endpoint->shared && ++endpoint->sweeps >= LINK_SWEEP) {
        disti_endpoint_sweep(endpoint);
        swept = true;
    }
    moved = endpoint->transport->progress(endpoint->state);
    if (moved < 0) {
        endpoint->broken = moved;
        endpoint->broken_text = strdup(dist_last_error());
    }
    if (moved != 0 || swept || !endpoint->shared)
        disti_endpoint_happened(endpoint, attachment, failures);
    return moved;
}

int disti_attachment_progress(struct engine_attachment *attachment)
{
    int moved, ended;

    if (!endpoint_try_lock(attachment->endpoint))
        return 0;
    moved = disti_endpoint_move(attachment->endpoint, attachment);
    ended = disti_attachment_collect(attachment);
    endpoint_unlock(attachment->endpoint);
    /* What moves for others is no reason to go on looking. */
    return moved <= 0 || LIST_FIRST(&attachment->out) || !attachment->endpoint->shared
               ? moved + (moved ? 0 : ended)
               : ended;
}

int disti_attachment_probe_tag(struct engine_attachment *attachment, uint64_t tag)
{
    int outside;

    if (!endpoint_try_lock(attachment->endpoint))
        return -1;
    outside = attachment->transport->probe_tag(attachment->endpoint->state, tag);
    endpoint_unlock(attachment->endpoint);
    return attachment_rank_inside(attachment, outside);
}

static void attachment_describe(const struct engine_attachment *attachment, int peer, char *text,
                                size_t size)
{
    text[0] = '\0';
    /* Who has the lock may keep it for long: then it is not known. */
    if (!attachment->endpoint || !attachment->transport->describe ||
        !endpoint_try_lock(attachment->endpoint))
        return;
    if (attachment->endpoint->state)
        attachment->transport->describe(attachment->endpoint->state,
                                        attachment_rank_outside(attachment, peer), text, size);
    endpoint_unlock(attachment->endpoint);
}

void disti_attachment_trouble(const struct engine_attachment *attachment, int peer, char *text,
                              size_t size)
{
    char said[640];
    const char *trouble;

    attachment_describe(attachment, peer, said, sizeof(said));
    trouble = strchr(said, ';');
    snprintf(text, size, "%s", trouble ? trouble : "");
}

bool disti_attachment_unreachable(const struct engine_attachment *attachment, int peer)
{
    static const char word[] = "unreachable";
    char text[512];

    attachment_describe(attachment, peer, text, sizeof(text));
    return strncmp(text, word, sizeof(word) - 1) == 0;
}

/* What the transport shows, in ranks of the group. */
struct attachment_look {
    const struct engine_attachment *attachment;
    dist_unexpected_fn see;
    void *arg;
};

static bool attachment_see(void *arg, int outside, const struct dist_envelope *envelope)
{
    const struct attachment_look *look = arg;
    int peer = attachment_rank_inside(look->attachment, outside);

    return peer >= 0 && look->see(look->arg, peer, envelope);
}

void disti_attachment_unexpected(struct engine_attachment *attachment, uint64_t tag, uint64_t mask,
                                 int most, dist_unexpected_fn see, void *arg)
{
    struct attachment_look look = {attachment, see, arg};

    if (!attachment->transport->unexpected)
        return;
    endpoint_lock(attachment->endpoint);
    attachment->transport->unexpected(attachment->endpoint->state, tag, mask, most, attachment_see,
                                      &look);
    endpoint_unlock(attachment->endpoint);
}
