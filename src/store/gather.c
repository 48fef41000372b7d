/* SPDX-License-Identifier: BSD-3-Clause */
/* All-gathers at the store's server: collect every rank's bytes, answer everyone at once. */
#include "store/server.h"

#include "base/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many of the missing are named. */
#define GATHER_NAMES 16

static void gather_free(struct disti_store_server *server, struct store_gather *gather)
{
    struct store_gather **link = &server->gathers;

    while (*link != gather)
        link = &(*link)->next;
    *link = gather->next;
    disti_blob_drop(gather->all);
    free(gather->ranks);
    free(gather->here);
    free(gather);
}

void disti_store_gather_clear(struct disti_store_server *server)
{
    while (server->gathers)
        gather_free(server, server->gathers);
}

static bool gather_has_key(const struct store_gather *gather, const struct store_key *key)
{
    return gather->key.length == key->length &&
           memcmp(gather->key.bytes, key->bytes, key->length) == 0;
}

static struct store_gather *gather_find(struct disti_store_server *server,
                                        const struct store_key *key)
{
    struct store_gather *gather = server->gathers;

    while (gather && !gather_has_key(gather, key))
        gather = gather->next;
    return gather;
}

/* The rank at a place of the party, and back: -1, it is not in it. */
static int gather_rank(const struct store_gather *gather, int place)
{
    return gather->ranks ? gather->ranks[place] : place;
}

static int gather_place(const struct store_gather *gather, int rank)
{
    if (!gather->ranks)
        return rank;
    for (int i = 0; i < gather->size; i++) {
        if (gather_rank(gather, i) == rank)
            return i;
    }
    return -1;
}

static bool gather_copy_ranks(struct store_gather *gather, const struct disti_wire_party *party)
{
    if (party->count == 0)
        return true;
    gather->ranks = calloc(party->count, sizeof(*gather->ranks));
    for (uint32_t i = 0; gather->ranks && i < party->count; i++)
        gather->ranks[i] = disti_wire_party_rank(party, i);
    return gather->ranks != NULL;
}

static struct store_gather *gather_new(struct disti_store_server *server,
                                       const struct store_wait *request,
                                       const struct disti_wire_party *party, size_t bytes,
                                       int first)
{
    int size = party->count ? (int)party->count : server->world_size;
    bool one = request->op == DISTI_WIRE_BROADCAST;
    struct store_gather *gather;
    size_t total;

    if (one)
        bytes = 0;
    if (!disti_mul(bytes, (size_t)size, &total) || total > DISTI_WIRE_GATHER_MAX)
        return NULL;
    gather = calloc(1, sizeof(*gather));
    if (!gather)
        return NULL;
    gather->key = request->key;
    gather->op = request->op;
    gather->group = party->group;
    gather->size = size;
    gather->bytes = bytes;
    gather->first = first;
    gather->here = calloc((size_t)size, sizeof(*gather->here));
    gather->all = one ? NULL : disti_blob_new(total);
    gather->next = server->gathers;
    server->gathers = gather;
    if (gather->here && (one || gather->all) && gather_copy_ranks(gather, party))
        return gather;
    gather_free(server, gather);
    return NULL;
}

static struct store_wait *gather_wait(const struct store_peer *peer,
                                      const struct store_gather *gather)
{
    struct store_wait *wait = peer ? peer->waits : NULL;

    while (wait && wait->gather != gather)
        wait = wait->next;
    return wait;
}

static const char *gather_op(uint8_t op)
{
    return op == DISTI_WIRE_ALL_GATHER  ? "all_gather"
           : op == DISTI_WIRE_BROADCAST ? "broadcast"
                                        : "barrier";
}

static void gather_refuse(struct disti_store_server *server, struct store_peer *peer,
                          const struct store_wait *wait, dist_status status, const char *text)
{
    disti_store_peer_refuse(server, peer, wait->id, status, "%s (%s \"%.*s\")", text,
                            gather_op(wait->op), (int)wait->key.length, wait->key.bytes);
}

/* Answers all who wait for it, with the bytes or with a text, and frees it. */
static void gather_end(struct disti_store_server *server, struct store_gather *gather,
                       dist_status status, const char *text)
{
    for (int i = 0; i < gather->size; i++) {
        struct store_peer *peer = server->ranks[gather_rank(gather, i)].peer;
        struct store_wait *wait = gather_wait(peer, gather);

        if (!wait)
            continue;
        if (status == DIST_OK)
            disti_store_peer_reply(server, peer, wait->id, status, disti_blob_hold(gather->all));
        else
            gather_refuse(server, peer, wait, status, text);
        disti_store_wait_remove(peer, wait);
    }
    gather_free(server, gather);
}

/* "3", "3 (host node1)", or of a group's party "1 (world rank 3, host node1)" */
static size_t gather_name(const struct disti_store_server *server,
                          const struct store_gather *gather, int place, char *text, size_t size)
{
    int rank = gather_rank(gather, place);
    const char *host = server->ranks[rank].host;

    if (gather->ranks)
        return (size_t)snprintf(text, size, " %d (world rank %d, host %s)", place, rank, host);
    if (*host)
        return (size_t)snprintf(text, size, " %d (host %s)", rank, host);
    return (size_t)snprintf(text, size, " %d", rank);
}

/* "ranks 3, 5 and 9 more did not come" */
static void gather_missing(const struct disti_store_server *server,
                           const struct store_gather *gather, char *text, size_t size)
{
    int missing = gather->size - gather->count, named = 0;
    size_t at = (size_t)snprintf(text, size, missing == 1 ? "rank" : "ranks");

    for (int i = 0; i < gather->size && named < GATHER_NAMES && at + 160 < size; i++) {
        if (gather->here[i])
            continue;
        if (named++)
            at += (size_t)snprintf(text + at, size - at, ",");
        at += gather_name(server, gather, i, text + at, size - at);
    }
    if (missing > named)
        at += (size_t)snprintf(text + at, size - at, " and %d more", missing - named);
    snprintf(text + at, size - at, " did not come");
}

void disti_store_gather_expired(struct disti_store_server *server, struct store_peer *peer,
                                struct store_wait *wait)
{
    struct store_gather *gather = wait->gather;
    char text[768];

    gather_missing(server, gather, text, sizeof(text));
    if (gather->op != DISTI_WIRE_ARRIVE) {
        gather_end(server, gather, DIST_ERR_TIMEOUT, text);
        return;
    }
    gather_refuse(server, peer, wait, DIST_ERR_TIMEOUT, text);
    disti_store_wait_remove(peer, wait);
}

void disti_store_gather_fail_all(struct disti_store_server *server, dist_status status,
                                 const char *text)
{
    while (server->gathers)
        gather_end(server, server->gathers, status, text);
}

void disti_store_gather_fail_rank(struct disti_store_server *server, int rank, const char *text)
{
    struct store_gather *gather = server->gathers, *next;

    for (; gather; gather = next) {
        next = gather->next;
        if (gather_place(gather, rank) >= 0)
            gather_end(server, gather, DIST_ERR_PEER_LOST, text);
    }
}

void disti_store_gather_fail_group(struct disti_store_server *server,
                                   const struct disti_notice *notice)
{
    struct store_gather *gather = server->gathers, *next;

    for (; gather; gather = next) {
        next = gather->next;
        if (gather->group == notice->group)
            gather_end(server, gather, notice->aborted ? DIST_ERR_ABORTED : DIST_ERR_PEER_LOST,
                       notice->text);
    }
}

void disti_store_gather_withdraw(struct disti_store_server *server, struct store_gather *gather,
                                 int rank)
{
    gather->here[gather_place(gather, rank)] = false;
    if (--gather->count == 0)
        gather_free(server, gather);
}

/* Why it cannot succeed any more, *status_p; NULL: it can. */
static const char *gather_hopeless(const struct disti_store_server *server,
                                   const struct disti_wire_party *party, dist_status *status_p)
{
    uint32_t count = party->count ? party->count : (uint32_t)server->world_size;
    const struct store_failure *failure = NULL;

    *status_p = server->broken[0] ? DIST_ERR_RENDEZVOUS : DIST_ERR_PEER_LOST;
    if (server->broken[0])
        return server->broken;
    if (party->group != DISTI_NO_GROUP)
        failure = disti_store_failures_find(server, party->group);
    if (failure && failure->aborted)
        *status_p = DIST_ERR_ABORTED;
    if (failure)
        return failure->news;
    for (int left = 0; left < 2; left++) { /* who failed says more than who left after it */
        for (uint32_t i = 0; i < count; i++) {
            int rank = disti_wire_party_rank(party, i);

            if (disti_store_ranks_is_gone(server, rank, left))
                return server->ranks[rank].news;
        }
    }
    return NULL;
}

/* Do two ranks mean the same? Refuses the request if not. */
static bool gather_agrees(struct disti_store_server *server, struct store_peer *peer,
                          const struct store_wait *request, const struct store_gather *gather,
                          const struct disti_wire_party *party, size_t bytes)
{
    bool same = gather->group == party->group && gather->op == request->op;
    int size = party->count ? (int)party->count : server->world_size;
    char text[160];

    same = same && size == gather->size;
    for (int i = 0; same && i < size; i++)
        same = disti_wire_party_rank(party, (uint32_t)i) == gather_rank(gather, i);
    if (same && (gather->bytes == bytes || gather->op == DISTI_WIRE_BROADCAST))
        return true;
    if (same)
        snprintf(text, sizeof(text), "rank %d gives %zu bytes, rank %d gave %zu", peer->rank, bytes,
                 gather->first, gather->bytes);
    else
        snprintf(text, sizeof(text), "rank %d names other ranks than rank %d did", peer->rank,
                 gather->first);
    gather_refuse(server, peer, request, DIST_ERR_MISMATCH, text);
    return false;
}

/* Of a group that has left: what nobody waits for. */
static void gather_sweep(struct disti_store_server *server, int32_t group)
{
    struct store_gather *gather = server->gathers, *next;

    for (; gather; gather = next) {
        bool awaited = gather->group != group;

        next = gather->next;
        for (int i = 0; i < gather->size && !awaited; i++)
            awaited = gather_wait(server->ranks[gather_rank(gather, i)].peer, gather);
        if (!awaited)
            gather_free(server, gather);
    }
}

/* Puts the rank's bytes into their place. False: no memory. */
static bool gather_put(struct store_gather *gather, int place, const unsigned char *data,
                       size_t bytes)
{
    if (gather->op != DISTI_WIRE_BROADCAST) {
        if (bytes)
            memcpy(gather->all->data + (size_t)place * bytes, data, bytes);
        return true;
    }
    if (place != 0)
        return true;
    disti_blob_drop(gather->all);
    gather->all = disti_blob_copy(data, bytes);
    return gather->all != NULL;
}

/* The rank has come, with its bytes; with the last rank it is over. */
static void gather_enter(struct disti_store_server *server, struct store_peer *peer,
                         struct store_gather *gather, const unsigned char *data, size_t bytes)
{
    int place = gather_place(gather, peer->rank);
    int32_t group = gather->group;
    bool leave = gather->op == DISTI_WIRE_LEAVE;

    if (!gather_put(gather, place, data, bytes)) {
        gather_end(server, gather, DIST_ERR_NO_MEMORY, "the store has no memory for it");
        return;
    }
    gather->count += !gather->here[place];
    gather->here[place] = true;
    if (gather->count < gather->size)
        return;
    gather_end(server, gather, DIST_OK, "");
    if (leave)
        gather_sweep(server, group);
}

/* The request is fine: it waits, in a new all-gather or in one that others have begun. */
static void gather_join(struct disti_store_server *server, struct store_peer *peer,
                        const struct store_wait *request, const struct disti_wire_party *party,
                        struct store_gather *gather)
{
    size_t before = disti_wire_party_bytes(party->count);
    size_t bytes = (size_t)peer->in.head.value_bytes - before;
    struct store_wait *old = gather ? gather_wait(peer, gather) : NULL;
    struct store_wait *wait = disti_store_wait_add(server, peer, request);

    if (!wait)
        return;
    if (old) /* its client has given it up, and asks again */
        disti_store_wait_remove(peer, old);
    if (!gather)
        gather = gather_new(server, request, party, bytes, peer->rank);
    if (!gather) {
        disti_store_wait_remove(peer, wait);
        disti_store_peer_refuse(server, peer, request->id, DIST_ERR_NO_MEMORY,
                                "no room for an all-gather of %zu bytes from each rank", bytes);
        return;
    }
    wait->gather = gather;
    gather_enter(server, peer, gather, disti_wire_value(&peer->in) + before, bytes);
}

static bool gather_includes(const struct disti_wire_party *party, int rank)
{
    for (uint32_t i = 0; i < party->count; i++) {
        if (disti_wire_party_rank(party, i) == rank)
            return true;
    }
    return party->count == 0;
}

void disti_store_gather_join(struct disti_store_server *server, struct store_peer *peer,
                             const struct store_wait *request)
{
    size_t value_bytes = (size_t)peer->in.head.value_bytes;
    struct store_gather *gather = gather_find(server, &request->key);
    struct disti_wire_party party;
    const char *hopeless;
    dist_status status;

    if (!disti_wire_get_party(disti_wire_value(&peer->in), value_bytes, server->world_size,
                              &party) ||
        !gather_includes(&party, peer->rank)) {
        peer->dead = server->reap = true;
        return;
    }
    hopeless = gather_hopeless(server, &party, &status);
    if (hopeless)
        gather_refuse(server, peer, request, status, hopeless);
    else if (!gather || gather_agrees(server, peer, request, gather, &party,
                                      value_bytes - disti_wire_party_bytes(party.count)))
        gather_join(server, peer, request, &party, gather);
}
