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
static bool match_agree(struct dist_request *request, const struct dist_envelope *envelope)
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
    *mismatch_p = !match_agree(request, envelope);
    return request;
}

uint64_t disti_match_order(void)
{
    static _Atomic uint64_t last;

    return atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1;
}

static unsigned match_chain(uint64_t tag)
{
    return (unsigned)(tag * UINT64_C(0x9e3779b97f4a7c15) >> 32) % DISTI_MATCH_CHAINS;
}

static void match_link(struct disti_match *match, struct disti_early *early)
{
    unsigned chain = match_chain(early->envelope.tag);

    early->prev = match->early_tail;
    early->chain_prev = match->chain_tail[chain];
    *(early->prev ? &early->prev->next : &match->early_head) = early;
    *(early->chain_prev ? &early->chain_prev->chain_next : &match->chain_head[chain]) = early;
    match->early_tail = match->chain_tail[chain] = early;
}

static void match_unlink(struct disti_match *match, struct disti_early *early)
{
    struct disti_early *next = early->next, *chain_next = early->chain_next;
    unsigned chain = match_chain(early->envelope.tag);

    *(early->prev ? &early->prev->next : &match->early_head) = next;
    *(next ? &next->prev : &match->early_tail) = early->prev;
    *(early->chain_prev ? &early->chain_prev->chain_next : &match->chain_head[chain]) = chain_next;
    *(chain_next ? &chain_next->chain_prev : &match->chain_tail[chain]) = early->chain_prev;
}

struct disti_early *disti_match_hold(struct disti_match *match,
                                     const struct dist_envelope *envelope, bool descriptor)
{
    size_t payload = descriptor ? 0 : (size_t)envelope->bytes;
    struct disti_early *early;
    size_t bytes;

    if (envelope->bytes > SIZE_MAX || !disti_add(sizeof(*early), payload, &bytes))
        return NULL;
    early = malloc(bytes);
    if (!early)
        return NULL;
    *early = (struct disti_early){
        .envelope = *envelope, .order = disti_match_order(), .descriptor = descriptor};
    match_link(match, early);
    match->held_bytes += payload;
    if (match->early_count)
        ++*match->early_count;
    return early;
}

static bool match_complete(const struct disti_early *early)
{
    return early->descriptor || early->arrived == early->envelope.bytes;
}

struct disti_early *disti_match_waiting(const struct disti_match *match, uint64_t tag)
{
    struct disti_early *early;

    if (!match->early_head)
        return NULL;
    early = match->chain_head[match_chain(tag)];
    while (early && (early->envelope.tag != tag || early->claimed || early->refused))
        early = early->chain_next;
    return early;
}

void disti_match_show(struct disti_match *match, int peer, const struct disti_look *look)
{
    struct disti_early *early = match->early_head;

    for (int i = 0; early && i < look->most; i++) {
        struct disti_early *next = early->next;

        if ((early->envelope.tag & look->mask) == look->tag && !early->claimed && !early->refused &&
            look->see(look->arg, peer, &early->envelope) && early->envelope.bytes == 0)
            disti_match_release(match, early);
        early = next;
    }
}

struct disti_early *disti_match_post(struct disti_match *match, struct dist_request *request)
{
    struct disti_early *early = disti_match_waiting(match, request->envelope.tag);

    if (!early) {
        match_append_posted(match, request);
        return NULL;
    }
    request->next = request->prev = NULL;
    if (match_agree(request, &early->envelope)) {
        early->claimed = request;
        return early;
    }
    early->refused = true;
    /* While it is still arriving the transport writes into it: then it stays until the end. */
    if (match_complete(early))
        disti_match_release(match, early);
    return NULL;
}

void disti_match_release(struct disti_match *match, struct disti_early *early)
{
    match_unlink(match, early);
    if (!early->descriptor)
        match->held_bytes -= (size_t)early->envelope.bytes;
    if (match->early_count)
        --*match->early_count;
    free(early);
}

void disti_match_fail(struct disti_match *match, dist_status status)
{
    while (match->posted_head) {
        struct dist_request *request = match->posted_head;

        disti_match_unpost(match, request);
        request->status = status;
    }
    for (struct disti_early *early = match->early_head; early; early = early->next)
        if (early->claimed)
            early->claimed->status = status;
    disti_match_clear(match);
}

void disti_match_release_descriptors(struct disti_match *match)
{
    struct disti_early *early = match->early_head;

    while (early) {
        struct disti_early *next = early->next;

        if (early->descriptor)
            disti_match_release(match, early);
        early = next;
    }
}

void disti_match_clear(struct disti_match *match)
{
    while (match->early_head) {
        struct disti_early *early = match->early_head;

        match->early_head = early->next;
        if (match->early_count)
            --*match->early_count;
        free(early);
    }
    *match = (struct disti_match){.early_count = match->early_count};
}
