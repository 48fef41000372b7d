/* SPDX-License-Identifier: BSD-3-Clause */
/* Collectives at the store's server: each collects its ranks, and answers all of them at once. */
#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "store/server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the end: with an answer, by a deadline, by a loss ---- */

/* How many of the missing are named. */
#define COLL_NAMES 16

static void coll_free(struct disti_store_server *server, struct store_coll *coll)
{
    struct store_coll **entry = &server->colls;

    while (*entry != coll)
        entry = &(*entry)->next;
    *entry = coll->next;
    disti_blob_drop(coll->result);
    free(coll->ranks);
    free(coll->refusal);
    free(coll->arrivals);
    free(coll);
}

void disti_store_coll_clear(struct disti_store_server *server)
{
    while (server->colls)
        coll_free(server, server->colls);
}

/* The rank at an index of the party, and back: -1, it is not in it. */
static int coll_rank(const struct store_coll *coll, int index)
{
    return coll->ranks ? coll->ranks[index] : index;
}

static int coll_index(const struct store_coll *coll, int rank)
{
    if (!coll->ranks)
        return rank;
    for (int i = 0; i < coll->size; i++) {
        if (coll->ranks[i] == rank)
            return i;
    }
    return -1;
}

/* True if the ranks call it in dist_new_group. */
static bool coll_makes_group(const struct store_coll *coll)
{
    return coll->group == DISTI_NO_GROUP && coll->ranks;
}

/* The peer that waits at this index, and no longer does; NULL: none waits. */
static struct store_peer *coll_stop_waiting(struct disti_store_server *server,
                                            struct store_coll *coll, int index)
{
    bool waited = coll->arrivals[index].waits;

    coll->arrivals[index].waits = false;
    return waited ? server->ranks[coll_rank(coll, index)].peer : NULL;
}

/* Nobody waits any more for others to leave the group. Who has left a world that failed comes to no
 * other group either: that stays known. */
static void coll_forget_leaving(struct disti_store_server *server, const struct store_coll *coll,
                                dist_status status)
{
    if (coll->op == DISTI_WIRE_LEAVE && (coll->group || status == DIST_OK))
        disti_store_leavings_drop(server, coll->group);
}

/* Answers all ranks that wait for it, with the result or with a text. */
static void coll_answer(struct disti_store_server *server, struct store_coll *coll,
                        dist_status status, const char *text)
{
    for (int i = 0; i < coll->size; i++) {
        struct store_peer *peer = coll_stop_waiting(server, coll, i);
        uint32_t id = coll->arrivals[i].id;

        if (coll_makes_group(coll) && coll->arrivals[i].here) {
            struct store_rank *slot = &server->ranks[coll->ranks[i]];

            slot->list_until_ns = disti_now_ns(); /* it waits for the group no more */
            if (status == DIST_OK)
                slot->list[0] = '\0';
        }
        if (peer && status == DIST_OK)
            disti_store_peer_reply(server, peer, id, status, disti_blob_hold(coll->result));
        else if (peer)
            disti_store_peer_refuse(server, peer, id, status, "%s", text);
    }
}

/* The same, and frees it. */
static void coll_end(struct disti_store_server *server, struct store_coll *coll, dist_status status,
                     const char *text)
{
    coll_forget_leaving(server, coll, status);
    coll_answer(server, coll, status, text);
    coll_free(server, coll);
}

/* "3", "3 (host node1)", or of a group's party "1 (world rank 3, host node1)" */
static size_t coll_name(const struct disti_store_server *server, const struct store_coll *coll,
                        int index, char *text, size_t size)
{
    int rank = coll_rank(coll, index);
    const char *host = server->ranks[rank].host;

    if (coll->ranks)
        return (size_t)snprintf(text, size, " %d (world rank %d, host %s)", index, rank, host);
    if (*host)
        return (size_t)snprintf(text, size, " %d (host %s)", rank, host);
    return (size_t)snprintf(text, size, " %d", rank);
}

/* Writes its ranks of the world: "0-4, 6, 7". */
static void coll_list(const struct store_coll *coll, char *text, size_t size)
{
    size_t used = 0;

    for (int i = 0, next; i < coll->size && used + 40 < size; i = next) {
        for (next = i + 1; next < coll->size && coll->ranks[next] == coll->ranks[next - 1] + 1;)
            next++;
        if (next == i + 2)
            next = i + 1; /* of two each is named */
        used += (size_t)snprintf(text + used, size - used, "%s%d", i ? ", " : "", coll->ranks[i]);
        if (next > i + 1)
            used += (size_t)snprintf(text + used, size - used, "-%d", coll->ranks[next - 1]);
    }
}

/* A rank that is missing in a new group has passed another list of ranks to dist_new_group. */
static void coll_lists(const struct disti_store_server *server, const struct store_coll *coll,
                       char *text, size_t size)
{
    char list[STORE_LIST];

    for (int i = 0; coll_makes_group(coll) && i < coll->size; i++) {
        const struct store_rank *slot = &server->ranks[coll->ranks[i]];

        if (coll->arrivals[i].here || !slot->list[0] || slot->list_until_ns < coll->begun_ns)
            continue;
        coll_list(coll, list, sizeof(list));
        snprintf(text, size,
                 "; the ranks passed different lists: world ranks %s here, but world ranks %s on "
                 "world rank %d. Pass the same ranks in the same order on all of them",
                 list, slot->list, coll->ranks[i]);
        return;
    }
}

/* "ranks 3, 5 and 9 more did not come" */
static void coll_missing(const struct disti_store_server *server, const struct store_coll *coll,
                         char *text, size_t size)
{
    int missing = coll->size - coll->count, named = 0;
    size_t used = (size_t)snprintf(text, size, missing == 1 ? "rank" : "ranks");

    for (int i = 0; i < coll->size && named < COLL_NAMES && used + 160 < size; i++) {
        if (coll->arrivals[i].here)
            continue;
        if (named++)
            used += (size_t)snprintf(text + used, size - used, ",");
        used += coll_name(server, coll, i, text + used, size - used);
    }
    if (missing > named)
        used += (size_t)snprintf(text + used, size - used, " and %d more", missing - named);
    used += (size_t)snprintf(text + used, size - used, " did not come");
    coll_lists(server, coll, text + used, size - used);
}

/* The rank at this index has waited long enough. True: that ends the collective for all. */
static bool coll_expired(struct disti_store_server *server, struct store_coll *coll, int index)
{
    struct store_peer *peer;
    char text[1024];

    coll_missing(server, coll, text, sizeof(text));
    if (coll->op != DISTI_WIRE_ARRIVE) {
        coll_end(server, coll, DIST_ERR_TIMEOUT, text);
        return true;
    }
    peer = coll_stop_waiting(server, coll, index);
    disti_store_peer_refuse(server, peer, coll->arrivals[index].id, DIST_ERR_TIMEOUT, "%s", text);
    return false;
}

/* Looks at every deadline. Returns when the next one is, or that it has ended: INT64_MAX. */
static int64_t coll_check_deadlines(struct disti_store_server *server, struct store_coll *coll)
{
    int64_t soonest = INT64_MAX;

    for (int i = 0; i < coll->size; i++) {
        const struct store_arrival *arrival = &coll->arrivals[i];

        if (!arrival->waits)
            continue;
        if (!disti_expired(arrival->deadline))
            soonest = arrival->deadline < soonest ? arrival->deadline : soonest;
        else if (coll_expired(server, coll, i))
            return INT64_MAX;
    }
    coll->due = soonest;
    return soonest;
}

int64_t disti_store_coll_tick(struct disti_store_server *server)
{
    struct store_coll *coll = server->colls, *next;
    int64_t soonest = INT64_MAX, due;

    for (; coll; coll = next) {
        next = coll->next; /* the end of one ends no other */
        due = disti_expired(coll->due) ? coll_check_deadlines(server, coll) : coll->due;
        soonest = due < soonest ? due : soonest;
    }
    return soonest;
}

void disti_store_coll_fail(struct disti_store_server *server, int rank, int32_t group,
                           dist_status status, const char *text)
{
    struct store_coll *coll = server->colls, *next;

    for (; coll; coll = next) {
        next = coll->next;
        if ((rank < 0 || coll_index(coll, rank) >= 0) &&
            (group == DISTI_NO_GROUP || coll->group == group))
            coll_end(server, coll, status, text);
    }
}

void disti_store_coll_forsake(struct disti_store_server *server, int rank, int32_t group,
                              const char *text)
{
    struct store_coll *coll = server->colls, *next;

    for (; coll; coll = next) {
        int index = coll_index(coll, rank);

        next = coll->next;
        if (index >= 0 && !coll->arrivals[index].here && coll->op != DISTI_WIRE_LEAVE &&
            (group == 0 || coll->group == group))
            coll_end(server, coll, DIST_ERR_PEER_LOST, text);
    }
}

bool disti_store_coll_leaves(const struct disti_store_server *server, int rank)
{
    const struct store_coll *coll = server->colls;

    for (; coll; coll = coll->next) {
        int index = coll_index(coll, rank);

        if (coll->op == DISTI_WIRE_LEAVE && index >= 0 && coll->arrivals[index].waits)
            return true;
    }
    return false;
}

void disti_store_coll_withdraw(struct disti_store_server *server, int rank)
{
    struct store_coll *coll = server->colls, *next;

    for (; coll; coll = next) {
        int index = coll_index(coll, rank);

        next = coll->next;
        if (index < 0 || !coll_stop_waiting(server, coll, index))
            continue;
        coll->arrivals[index].here = false;
        if (--coll->count == 0) {
            coll_forget_leaving(server, coll, DIST_OK);
            coll_free(server, coll);
        }
    }
}

/* ---- ranks come ---- */

static struct store_coll *coll_find(struct disti_store_server *server, const struct store_key *key)
{
    struct store_coll *coll = server->colls;

    while (coll && (coll->key.length != key->length ||
                    memcmp(coll->key.bytes, key->bytes, key->length) != 0))
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
    coll_free(server, coll);
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
        same = disti_wire_party_rank(party, (uint32_t)i) == coll_rank(coll, i);
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
        coll_free(server, coll);
}

/* The rank has come, with its bytes; with the last rank it is over. */
static void coll_enter(struct disti_store_server *server, struct store_peer *peer,
                       const struct store_request *request, struct store_coll *coll,
                       const unsigned char *data, size_t bytes)
{
    int index = coll_index(coll, peer->rank);
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
    if (coll_makes_group(coll)) {
        coll_list(coll, server->ranks[peer->rank].list, STORE_LIST);
        server->ranks[peer->rank].list_until_ns = INT64_MAX;
    }
    /* A client that gave up may ask once more: its last request is answered. */
    *arrival = (struct store_arrival){true, true, request->id, request->deadline};
    coll->due = request->deadline < coll->due ? request->deadline : coll->due;
    if (!coll_put(coll, index, data, bytes)) {
        coll_end(server, coll, DIST_ERR_NO_MEMORY, "the store has no memory for it");
        return;
    }
    if (coll->count < coll->size)
        return;
    server->over = server->over || (leave && group == 0 && !coll->ranks);
    coll_end(server, coll, DIST_OK, "");
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
    index = coll ? coll_index(coll, peer->rank) : -1;
    if (index < 0)
        return;
    if (!coll_keep_refusal(server, coll, peer,
                           (const char *)value + disti_wire_party_bytes(party.count))) {
        coll_end(server, coll, DIST_ERR_NO_MEMORY, "the store has no memory for it");
        return;
    }
    coll->count += !coll->arrivals[index].here;
    coll->arrivals[index] = (struct store_arrival){.here = true};
    coll_answer(server, coll, coll->refused, coll->refusal);
    coll_drop_refused(server, coll);
}
