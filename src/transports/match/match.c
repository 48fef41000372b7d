/* SPDX-License-Identifier: BSD-3-Clause */
/* Matching of arriving messages with posted receives, shared by the transports. */
#include "transports/match/match.h"

#include "base/checked.h"

#include <stdatomic.h>
#include <stdlib.h>

static void match_append_posted(struct disti_match *match, struct dist_request *request)
{
    request->next = NULL;
    request->prev = match->posted_tail;
    if (match->posted_tail)
        match->posted_tail->next = request;
    else
        match->posted_head = request;
    match->posted_tail = request;
}

void disti_match_unpost(struct disti_match *match, struct dist_request *request)
{
    if (request->prev)
        request->prev->next = request->next;
    else
        match->posted_head = request->next;
    if (request->next)
        request->next->prev = request->prev;
    else
        match->posted_tail = request->prev;
    request->next = request->prev = NULL;
}

/* Did the two ranks mean the same call? Else ends the receive. */
static bool match_compare(struct dist_request *request, const struct dist_envelope *envelope)
{
    if (request->envelope.fingerprint == envelope->fingerprint &&
        request->envelope.bytes == envelope->bytes)
        return true;
    request->arrived = *envelope;
    request->status = DIST_ERR_MISMATCH;
    return false;
}

struct dist_request *disti_match_arrival(struct disti_match *match,
                                         const struct dist_envelope *envelope, bool *mismatch_p)
{
    struct dist_request *request = match->posted_head;

    *mismatch_p = false;
    while (request && request->envelope.tag != envelope->tag)
        request = request->next;
    if (!request)
        return NULL;
    disti_match_unpost(match, request);
    *mismatch_p = !match_compare(request, envelope);
    return request;
}

/* A number greater than all that were given before. */
static uint64_t match_order(void)
{
    static _Atomic uint64_t last;

    return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

static unsigned match_chain(uint64_t tag)
{
    return (unsigned)(tag * UINT64_C(0x9e3779b97f4a7c15) >> 32) % DISTI_MATCH_CHAINS;
}

static void match_insert(struct disti_match *match, struct disti_unexpected *unexpected)
{
    unsigned chain = match_chain(unexpected->envelope.tag);

    if (match->set && !match->unexpected_head)
        LIST_INSERT_HEAD(match->set, match, entry);
    unexpected->prev = match->unexpected_tail;
    unexpected->chain_prev = match->chain_tail[chain];
    *(unexpected->prev ? &unexpected->prev->next : &match->unexpected_head) = unexpected;
    *(unexpected->chain_prev ? &unexpected->chain_prev->chain_next : &match->chain_head[chain]) =
        unexpected;
    match->unexpected_tail = match->chain_tail[chain] = unexpected;
}

static void match_remove(struct disti_match *match, struct disti_unexpected *unexpected)
{
    struct disti_unexpected *next = unexpected->next, *chain_next = unexpected->chain_next;
    unsigned chain = match_chain(unexpected->envelope.tag);

    *(unexpected->prev ? &unexpected->prev->next : &match->unexpected_head) = next;
    *(next ? &next->prev : &match->unexpected_tail) = unexpected->prev;
    *(unexpected->chain_prev ? &unexpected->chain_prev->chain_next : &match->chain_head[chain]) =
        chain_next;
    *(chain_next ? &chain_next->chain_prev : &match->chain_tail[chain]) = unexpected->chain_prev;
    if (match->set && !match->unexpected_head)
        LIST_REMOVE(match, entry);
}

struct disti_unexpected *disti_match_hold(struct disti_match *match,
                                          const struct dist_envelope *envelope, bool descriptor)
{
    size_t payload = descriptor ? 0 : (size_t)envelope->bytes;
    struct disti_unexpected *unexpected;
    size_t bytes;

    if (envelope->bytes > SIZE_MAX || !disti_add(sizeof(*unexpected), payload, &bytes))
        return NULL;
    unexpected = malloc(bytes);
    if (!unexpected)
        return NULL;
    *unexpected = (struct disti_unexpected){
        .envelope = *envelope, .order = match_order(), .descriptor = descriptor};
    match_insert(match, unexpected);
    match->held_bytes += payload;
    return unexpected;
}

struct disti_unexpected *disti_match_waiting(const struct disti_match *match, uint64_t tag)
{
    struct disti_unexpected *unexpected;

    if (!match->unexpected_head)
        return NULL;
    unexpected = match->chain_head[match_chain(tag)];
    while (unexpected &&
           (unexpected->envelope.tag != tag || unexpected->claimed || unexpected->refused))
        unexpected = unexpected->chain_next;
    return unexpected;
}

int disti_match_probe(const struct disti_match_set *set, uint64_t tag)
{
    const struct disti_unexpected *oldest = NULL;
    const struct disti_match *match;
    int rank = -1;

    for (match = LIST_FIRST(set); match; match = LIST_NEXT(match, entry)) {
        const struct disti_unexpected *unexpected = disti_match_waiting(match, tag);

        if (unexpected && (!oldest || unexpected->order < oldest->order)) {
            oldest = unexpected;
            rank = match->rank;
        }
    }
    return rank;
}

static void match_show(struct disti_match *match, const struct disti_look *look)
{
    struct disti_unexpected *unexpected = match->unexpected_head;

    for (int i = 0; unexpected && i < look->most; i++) {
        struct disti_unexpected *next = unexpected->next;

        if ((unexpected->envelope.tag & look->mask) == look->tag && !unexpected->claimed &&
            !unexpected->refused && look->see(look->arg, match->rank, &unexpected->envelope) &&
            unexpected->envelope.bytes == 0)
            disti_match_release(match, unexpected);
        unexpected = next;
    }
}

void disti_match_show(struct disti_match_set *set, const struct disti_look *look)
{
    for (struct disti_match *match = LIST_FIRST(set), *next; match; match = next) {
        next = LIST_NEXT(match, entry); /* one that has shown its last message leaves the set */
        match_show(match, look);
    }
}

struct disti_unexpected *disti_match_post(struct disti_match *match, struct dist_request *request)
{
    struct disti_unexpected *unexpected = disti_match_waiting(match, request->envelope.tag);

    if (!unexpected) {
        match_append_posted(match, request);
        return NULL;
    }
    request->next = request->prev = NULL;
    if (match_compare(request, &unexpected->envelope))
        unexpected->claimed = request;
    else
        unexpected->refused = true;
    return unexpected;
}

void disti_match_release(struct disti_match *match, struct disti_unexpected *unexpected)
{
    match_remove(match, unexpected);
    if (!unexpected->descriptor)
        match->held_bytes -= (size_t)unexpected->envelope.bytes;
    free(unexpected);
}

void disti_match_fail(struct disti_match *match, dist_status status)
{
    while (match->posted_head) {
        struct dist_request *request = match->posted_head;

        disti_match_unpost(match, request);
        request->status = status;
    }
}

void disti_match_release_descriptors(struct disti_match *match)
{
    struct disti_unexpected *unexpected = match->unexpected_head;

    while (unexpected) {
        struct disti_unexpected *next = unexpected->next;

        if (unexpected->descriptor)
            disti_match_release(match, unexpected);
        unexpected = next;
    }
}

void disti_match_clear(struct disti_match *match)
{
    while (match->unexpected_head)
        disti_match_release(match, match->unexpected_head);
    match->posted_head = match->posted_tail = NULL;
}
