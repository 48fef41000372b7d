/* SPDX-License-Identifier: BSD-3-Clause */
/* Matching of arriving messages with posted receives, shared by the transports. */
#include "transports/match/match.h"
#include "base/checked.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Removes a posted receive from the list. */
static void match_unpost(struct disti_match *match, struct dist_request *request)
{
    *(request->prev ? &request->prev->next : &match->posted_head) = request->next;
    *(request->next ? &request->next->prev : &match->posted_tail) = request->prev;
    request->next = request->prev = NULL;
}

/* Returns true if fingerprint and size match. Otherwise fails the receive with ERR_MISMATCH. */
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
    match_unpost(match, request);
    *mismatch_p = !match_compare(request, envelope);
    return request;
}

static unsigned match_chain(uint64_t tag)
{
    return (unsigned)(tag * UINT64_C(0x9e3779b97f4a7c15) >> 32) % DISTI_MATCH_CHAINS;
}

struct disti_unexpected *disti_match_hold(struct disti_match *match,
                                          const struct dist_envelope *envelope, bool descriptor)
{
    size_t payload = descriptor ? 0 : (size_t)envelope->bytes;
    static _Atomic uint64_t last; /* the last order assigned */
    unsigned chain = match_chain(envelope->tag);
    struct disti_unexpected *unexpected;
    size_t bytes;

    if (envelope->bytes > SIZE_MAX || !disti_add(sizeof(*unexpected), payload, &bytes))
        return NULL;
    unexpected = malloc(bytes);
    if (!unexpected)
        return NULL;
    *unexpected = (struct disti_unexpected){
        .envelope = *envelope,
        .order = atomic_fetch_add_explicit(&last, 1, memory_order_relaxed) + 1,
        .descriptor = descriptor,
        .prev = match->unexpected_tail,
        .chain_prev = match->chain_tail[chain]};
    if (match->set && !match->unexpected_head)
        LIST_INSERT_HEAD(match->set, match, entry);
    *(unexpected->prev ? &unexpected->prev->next : &match->unexpected_head) = unexpected;
    *(unexpected->chain_prev ? &unexpected->chain_prev->chain_next : &match->chain_head[chain]) =
        unexpected;
    match->unexpected_tail = match->chain_tail[chain] = unexpected;
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

void disti_match_show(struct disti_match_set *set, uint64_t tag, uint64_t mask, int most,
                      dist_unexpected_fn see, void *arg)
{
    for (struct disti_match *match = LIST_FIRST(set), *next_match; match; match = next_match) {
        struct disti_unexpected *unexpected = match->unexpected_head, *next;

        /* Releasing its last message removes `match` from the set. */
        next_match = LIST_NEXT(match, entry);
        for (int i = 0; unexpected && i < most; i++, unexpected = next) {
            next = unexpected->next;
            if ((unexpected->envelope.tag & mask) == tag && !unexpected->claimed &&
                !unexpected->refused && see(arg, match->rank, &unexpected->envelope) &&
                unexpected->envelope.bytes == 0)
                disti_match_release(match, unexpected);
        }
    }
}

struct disti_unexpected *disti_match_post(struct disti_match *match, struct dist_request *request)
{
    struct disti_unexpected *unexpected = disti_match_waiting(match, request->envelope.tag);

    request->next = request->prev = NULL;
    if (!unexpected) {
        request->prev = match->posted_tail;
        *(request->prev ? &request->prev->next : &match->posted_head) = request;
        match->posted_tail = request;
        return NULL;
    }
    if (match_compare(request, &unexpected->envelope))
        unexpected->claimed = request;
    else
        unexpected->refused = true;
    return unexpected;
}

void disti_match_release(struct disti_match *match, struct disti_unexpected *unexpected)
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
    if (!unexpected->descriptor)
        match->held_bytes -= (size_t)unexpected->envelope.bytes;
    free(unexpected);
}

void disti_match_fail(struct disti_match *match, dist_status status)
{
    while (match->posted_head) {
        struct dist_request *request = match->posted_head;

        match_unpost(match, request);
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

/* Rendezvous sends that wait for CTS. */

#define RTS_CAPACITY 64 /* initial capacity */

struct disti_rts_slot {
    void *send; /* NULL: unused */
    uint32_t next_free;
};

/* Grows the table if it has no unused slot. Returns false if out of memory. */
static bool rts_reserve_slot(struct disti_rts_table *table)
{
    uint32_t capacity = table->capacity ? table->capacity * 2 : RTS_CAPACITY;
    struct disti_rts_slot *slots;

    if (table->free < table->capacity)
        return true;
    slots = capacity > table->capacity ? realloc(table->slots, capacity * sizeof(*slots)) : NULL;
    if (!slots)
        return false;
    for (uint32_t i = table->capacity; i < capacity; i++)
        slots[i] = (struct disti_rts_slot){.next_free = i + 1};
    table->slots = slots;
    table->capacity = capacity;
    return true;
}

bool disti_rts_add(struct disti_rts_table *table, void *send, uint32_t *name_p)
{
    uint32_t name;

    if (!rts_reserve_slot(table))
        return false;
    name = table->free;
    table->free = table->slots[name].next_free;
    table->slots[name].send = send;
    table->count++;
    *name_p = name;
    return true;
}

void *disti_rts_take(struct disti_rts_table *table, uint64_t name)
{
    void *send = name < table->capacity ? table->slots[name].send : NULL;

    if (!send)
        return NULL;
    table->slots[name] = (struct disti_rts_slot){.next_free = table->free};
    table->free = (uint32_t)name;
    table->count--;
    return send;
}

void **disti_rts_slot(struct disti_rts_table *table, uint64_t name)
{
    return name < table->capacity && table->slots[name].send ? &table->slots[name].send : NULL;
}

void *disti_rts_take_next(struct disti_rts_table *table, uint32_t *cursor)
{
    void *send = NULL;

    while (table->count && !send && *cursor < table->capacity)
        send = disti_rts_take(table, (*cursor)++);
    return send;
}

void disti_rts_clear(struct disti_rts_table *table)
{
    free(table->slots);
    *table = (struct disti_rts_table){0};
}

/* Detached requests. */

struct disti_standin {
    struct disti_standin *next;
    struct dist_request request;
    char data[];
};

static struct disti_standin *standin_new(struct disti_standins *standins,
                                         const struct dist_request *request, size_t data_bytes)
{
    struct disti_standin *standin;
    size_t bytes;

    if (!disti_add(sizeof(*standin), data_bytes, &bytes))
        return NULL;
    standin = malloc(bytes);
    if (!standin)
        return NULL;
    standin->request = *request;
    standin->next = standins->head;
    standins->head = standin;
    return standin;
}

/*
 * Only the bytes from `from` on are copied. `data` points `from` bytes before the copy, so that
 * offsets into the message stay valid.
 */
struct dist_request *disti_standin_send(struct disti_standins *standins,
                                        const struct dist_request *request, size_t from)
{
    size_t bytes = (size_t)request->envelope.bytes - from;
    struct disti_standin *standin = standin_new(standins, request, bytes);

    if (!standin)
        return NULL;
    if (bytes)
        memcpy(standin->data, (const char *)request->data + from, bytes);
    standin->request.data = (const void *)((uintptr_t)standin->data - from);
    return &standin->request;
}

struct dist_request *disti_standin_receive(struct disti_standins *standins,
                                           const struct dist_request *request)
{
    struct disti_standin *standin = standin_new(standins, request, 0);

    if (!standin)
        return NULL;
    standin->request.sink = (struct dist_sink){.bytes = request->sink.bytes};
    return &standin->request;
}

void disti_standin_unpost(struct disti_match *match, uint64_t tag, uint64_t mask)
{
    for (struct dist_request *request = match->posted_head, *next; request; request = next) {
        next = request->next;
        if (disti_standin_is_for(request, tag, mask))
            match_unpost(match, request);
    }
}

bool disti_standins_have(const struct disti_standins *standins, const struct dist_request *request)
{
    const struct disti_standin *standin = standins->head;

    while (standin && &standin->request != request)
        standin = standin->next;
    return standin;
}

void disti_standins_sweep(struct disti_standins *standins)
{
    struct disti_standin **at = &standins->head;

    while (*at) {
        struct disti_standin *standin = *at;

        if (standin->request.status == DIST_IN_PROGRESS) {
            at = &standin->next;
            continue;
        }
        *at = standin->next;
        free(standin);
    }
}

void disti_standins_free(struct disti_standins *standins)
{
    while (standins->head) {
        struct disti_standin *standin = standins->head;

        standins->head = standin->next;
        free(standin);
    }
}
