/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives at the store's server: each collects its ranks, and answers all of them at once. */
#include "store/server/coll.h"

#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool coll_has_key(const struct store_coll *coll, const struct store_key *key)
{
    return coll->key.length == key->length && memcmp(coll->key.bytes, key->bytes, key->length) == 0;
}

static struct store_coll *coll_find(struct disti_store_server *server, const struct store_key *key)
{
    struct store_coll *coll = server->colls;

    while (coll && !coll_has_key(coll, key))
        coll = coll->next;
    return coll;
}

static int coll_party_size(const struct disti_store_server *server,
                           const struct disti_wire_party *party)
{
    return party->count ? (int)party->count : server->world_size;
}

static bool coll_copy_ranks(struct store_coll *coll, const struct disti_wire_party *party)
{
    if (party->count == 0)
        return true;
    coll->ranks = calloc(party->count, sizeof(*coll->ranks));
    for (uint32_t i = 0; coll->ranks && i < party->count; i++)
        coll->ranks[i] = disti_wire_party_rank(party, i);
    return coll->ranks != NULL;
}

/* NULL: no memory, or more bytes than the store takes. */
static struct store_coll *coll_new(struct disti_store_server *server,
                                   const struct store_request *request,
                                   const struct disti_wire_party *party, size_t bytes, int first)
{
    int size = coll_party_size(server, party);
    bool one = request->op == DISTI_WIRE_BROADCAST;
    struct store_coll *coll;
    size_t total;

    if (one)
        bytes = 0;
    if (!disti_mul(bytes, (size_t)size, &total) || total > DISTI_WIRE_GATHER_MAX)
        return NULL;
    coll = calloc(1, sizeof(*coll));
    if (!coll)
        return NULL;
    coll->key = request->key;
    coll->op = request->op;
    coll->group = party->group;
    coll->size = size;
    coll->bytes = bytes;
    coll->first = first;
    coll->due = INT64_MAX;
    coll->begun_ns = disti_now_ns();
    coll->arrivals = calloc((size_t)size, sizeof(*coll->arrivals));
    coll->result = one ? NULL : disti_blob_new(total);
    coll->next = server->colls;
    server->colls = coll;
    if (coll->arrivals && (one || coll->result) && coll_copy_ranks(coll, party))
        return coll;
    disti_store_coll_free(server, coll);
    return NULL;
}

/* Do two ranks mean the same? Refuses the request if not. */
static bool coll_matches(struct disti_store_server *server, struct store_peer *peer,
                         const struct store_request *request, const struct store_coll *coll,
                         const struct disti_wire_party *party, size_t bytes)
{
    bool same = coll->group == party->group && coll->op == request->op &&
                coll->size == coll_party_size(server, party);
    char text[160];

    for (int i = 0; same && (coll->ranks || party->count) && i < coll->size; i++)
        same = disti_wire_party_rank(party, (uint32_t)i) == disti_store_coll_rank(coll, i);
    if (same && (coll->bytes == bytes || coll->op == DISTI_WIRE_BROADCAST || coll->refusal))
        return true;
    if (same)
        snprintf(text, sizeof(text),
                 "rank %d gives %zu bytes, but rank %d gave %zu: give all ranks the same version "
                 "of libdist",
                 peer->rank, bytes, coll->first, coll->bytes);
    else
        snprintf(text, sizeof(text),
                 "rank %d names other ranks than rank %d: name the same ranks in the same order on "
                 "all of them",
                 peer->rank, coll->first);
    disti_store_peer_refuse(server, peer, request->id, DIST_ERR_MISMATCH, "%s", text);
    return false;
}

/* Puts the rank's bytes into their place. False: no memory. */
static bool coll_put(struct store_coll *coll, int index, const unsigned char *data, size_t bytes)
{
    if (coll->op != DISTI_WIRE_BROADCAST) {
        if (bytes)
            memcpy(coll->result->data + (size_t)index * bytes, data, bytes);
        return true;
    }
    if (index != 0)
        return true;
    disti_blob_drop(coll->result);
    coll->result = disti_blob_copy(data, bytes);
    return coll->result != NULL;
}

/* Frees a refused collective after the last rank has come or refused. */
static void coll_drop_refused(struct disti_store_server *server, struct store_coll *coll)
{
    if (coll->count == coll->size)
        disti_store_coll_free(server, coll);
}

/* The rank has come, with its bytes; with the last rank it is over. */
static void coll_enter(struct disti_store_server *server, struct store_peer *peer,
                       const struct store_request *request, struct store_coll *coll,
                       const unsigned char *data, size_t bytes)
{
    int index = disti_store_coll_index(coll, peer->rank);
    struct store_arrival *arrival = &coll->arrivals[index];
    int32_t group = coll->group;
    bool leave = coll->op == DISTI_WIRE_LEAVE;

    coll->count += !arrival->here;
    if (coll->refusal) {
        arrival->here = true;
        disti_store_peer_refuse(server, peer, request->id, coll->refused, "%s", coll->refusal);
        coll_drop_refused(server, coll);
        return;
    }
    if (disti_store_coll_makes_group(coll)) {
        disti_store_coll_list(coll, server->ranks[peer->rank].list, STORE_LIST);
        server->ranks[peer->rank].list_until_ns = INT64_MAX;
    }
    /* A client that gave up may ask once more: its last request is answered. */
    *arrival = (struct store_arrival){true, true, request->id, request->deadline};
    coll->due = request->deadline < coll->due ? request->deadline : coll->due;
    if (!coll_put(coll, index, data, bytes)) {
        disti_store_coll_end(server, coll, DIST_ERR_NO_MEMORY, "the store has no memory for it");
        return;
    }
    if (coll->count < coll->size)
        return;
    server->over = server->over || (leave && group == 0 && !coll->ranks);
    disti_store_coll_end(server, coll, DIST_OK, "");
    if (leave && group != DISTI_NO_GROUP)
        disti_store_coll_fail(server, -1, group, DIST_ERR_PEER_LOST, "the group has ended");
}

static bool coll_includes(const struct disti_wire_party *party, int rank)
{
    for (uint32_t i = 0; i < party->count; i++) {
        if (disti_wire_party_rank(party, i) == rank)
            return true;
    }
    return party->count == 0;
}

/* The request is fine: its rank enters what others have begun, or begins a new collective. */
static void coll_begin(struct disti_store_server *server, struct store_peer *peer,
                       const struct store_request *request, const struct disti_wire_party *party,
                       struct store_coll *coll)
{
    size_t before = disti_wire_party_bytes(party->count);
    size_t bytes = (size_t)peer->in.head.value_bytes - before;

    if (!coll)
        coll = coll_new(server, request, party, bytes, peer->rank);
    if (!coll)
        disti_store_peer_refuse(
            server, peer, request->id, DIST_ERR_NO_MEMORY,
            "the store has no memory for %zu bytes from each rank: free some on its machine",
            bytes);
    else
        coll_enter(server, peer, request, coll, disti_wire_value(&peer->in) + before, bytes);
}

void disti_store_coll_join(struct disti_store_server *server, struct store_peer *peer,
                           const struct store_request *request)
{
    size_t value_bytes = (size_t)peer->in.head.value_bytes;
    struct store_coll *coll = coll_find(server, &request->key);
    struct disti_wire_party party;
    char text[DISTI_NEWS_MAX];
    const char *hopeless;
    dist_status status;

    if (!disti_wire_get_party(disti_wire_value(&peer->in), value_bytes, server->world_size,
                              &party) ||
        !coll_includes(&party, peer->rank)) {
        peer->dead = server->reap = true;
        return;
    }
    hopeless = disti_store_failures_hopeless(server, &party, &status);
    if (!hopeless && !coll && request->op != DISTI_WIRE_LEAVE)
        hopeless = disti_store_leavings_hopeless(server, &party, text);
    if (hopeless)
        disti_store_peer_refuse(server, peer, request->id, status, "%s", hopeless);
    else if (!coll || coll_matches(server, peer, request, coll, &party,
                                   value_bytes - disti_wire_party_bytes(party.count)))
        coll_begin(server, peer, request, &party, coll);
}

/* ---- refusals ---- */

/* Keeps the first refusal, for the ranks that come later. False: no memory. */
static bool coll_keep_refusal(const struct disti_store_server *server, struct store_coll *coll,
                              const struct store_peer *peer, const char *why)
{
    struct disti_notice notice = {.rank = peer->rank};
    char text[DISTI_REASON_MAX + 32];

    if (coll->refusal)
        return true;
    disti_text(text, sizeof(text), "cannot take part: %s", why);
    disti_store_ranks_tell(server, &notice, text);
    coll->refused = disti_wire_failure(peer->in.head.arg);
    coll->refusal = strdup(notice.text);
    return coll->refusal;
}

void disti_store_coll_take_refusal(struct disti_store_server *server, struct store_peer *peer)
{
    const struct disti_wire_head *head = &peer->in.head;
    const unsigned char *value = disti_wire_value(&peer->in);
    struct store_request request = {.op = DISTI_WIRE_ALL_GATHER, .key.length = head->key_bytes};
    struct disti_wire_party party;
    struct store_coll *coll;
    dist_status status;
    int index;

    if (head->arg >= 0 ||
        !disti_wire_get_party(value, (size_t)head->value_bytes, server->world_size, &party) ||
        !coll_includes(&party, peer->rank)) {
        peer->dead = server->reap = true;
        return;
    }
    if (disti_store_failures_hopeless(server, &party, &status))
        return; /* the other ranks are told of the failure */
    memcpy(request.key.bytes, peer->in.body, head->key_bytes);
    coll = coll_find(server, &request.key);
    if (!coll)
        coll = coll_new(server, &request, &party, 0, peer->rank);
    index = coll ? disti_store_coll_index(coll, peer->rank) : -1;
    if (index < 0)
        return;
    if (!coll_keep_refusal(server, coll, peer,
                           (const char *)value + disti_wire_party_bytes(party.count))) {
        disti_store_coll_end(server, coll, DIST_ERR_NO_MEMORY, "the store has no memory for it");
        return;
    }
    coll->count += !coll->arrivals[index].here;
    coll->arrivals[index] = (struct store_arrival){.here = true};
    disti_store_coll_answer(server, coll, coll->refused, coll->refusal);
    coll_drop_refused(server, coll);
}
