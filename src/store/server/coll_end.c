/* SPDX-License-Identifier: BSD-3-Clause */
/* How a collective at the store's server ends: with an answer, by a deadline, by a loss. */
#include "store/server/coll.h"

#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>

/* How many of the missing are named. */
#define COLL_NAMES 16

void disti_store_coll_free(struct disti_store_server *server, struct store_coll *coll)
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
        disti_store_coll_free(server, server->colls);
}

int disti_store_coll_rank(const struct store_coll *coll, int index)
{
    return coll->ranks ? coll->ranks[index] : index;
}

int disti_store_coll_index(const struct store_coll *coll, int rank)
{
    if (!coll->ranks)
        return rank;
    for (int i = 0; i < coll->size; i++) {
        if (coll->ranks[i] == rank)
            return i;
    }
    return -1;
}

/* The peer that waits at this index, and no longer does; NULL: none waits. */
static struct store_peer *coll_stop_waiting(struct disti_store_server *server,
                                            struct store_coll *coll, int index)
{
    bool waited = coll->arrivals[index].waits;

    coll->arrivals[index].waits = false;
    return waited ? server->ranks[disti_store_coll_rank(coll, index)].peer : NULL;
}

/* Nobody waits any more for others to leave the group. Who has left a world that failed comes to no
 * other group either: that stays known. */
static void coll_forget_leaving(struct disti_store_server *server, const struct store_coll *coll,
                                dist_status status)
{
    if (coll->op == DISTI_WIRE_LEAVE && (coll->group || status == DIST_OK))
        disti_store_leavings_drop(server, coll->group);
}

/* A rank whose new group was made, or not, waits for it no more. */
static void coll_leave_list(struct store_rank *slot, dist_status status)
{
    slot->list_until_ns = disti_now_ns();
    if (status == DIST_OK)
        slot->list[0] = '\0';
}

void disti_store_coll_answer(struct disti_store_server *server, struct store_coll *coll,
                             dist_status status, const char *text)
{
    for (int i = 0; i < coll->size; i++) {
        struct store_peer *peer = coll_stop_waiting(server, coll, i);
        uint32_t id = coll->arrivals[i].id;

        if (disti_store_coll_makes_group(coll) && coll->arrivals[i].here)
            coll_leave_list(&server->ranks[coll->ranks[i]], status);
        if (peer && status == DIST_OK)
            disti_store_peer_reply(server, peer, id, status, disti_blob_hold(coll->result));
        else if (peer)
            disti_store_peer_refuse(server, peer, id, status, "%s", text);
    }
}

void disti_store_coll_end(struct disti_store_server *server, struct store_coll *coll,
                          dist_status status, const char *text)
{
    coll_forget_leaving(server, coll, status);
    disti_store_coll_answer(server, coll, status, text);
    disti_store_coll_free(server, coll);
}

/* "3", "3 (host node1)", or of a group's party "1 (world rank 3, host node1)" */
static size_t coll_name(const struct disti_store_server *server, const struct store_coll *coll,
                        int index, char *text, size_t size)
{
    int rank = disti_store_coll_rank(coll, index);
    const char *host = server->ranks[rank].host;

    if (coll->ranks)
        return (size_t)snprintf(text, size, " %d (world rank %d, host %s)", index, rank, host);
    if (*host)
        return (size_t)snprintf(text, size, " %d (host %s)", rank, host);
    return (size_t)snprintf(text, size, " %d", rank);
}

bool disti_store_coll_makes_group(const struct store_coll *coll)
{
    return coll->group == DISTI_NO_GROUP && coll->ranks;
}

void disti_store_coll_list(const struct store_coll *coll, char *text, size_t size)
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

    for (int i = 0; disti_store_coll_makes_group(coll) && i < coll->size; i++) {
        const struct store_rank *slot = &server->ranks[coll->ranks[i]];

        if (coll->arrivals[i].here || !slot->list[0] || slot->list_until_ns < coll->begun_ns)
            continue;
        disti_store_coll_list(coll, list, sizeof(list));
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
        disti_store_coll_end(server, coll, DIST_ERR_TIMEOUT, text);
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

/* ---- losses and failures ---- */

void disti_store_coll_fail(struct disti_store_server *server, int rank, int32_t group,
                           dist_status status, const char *text)
{
    struct store_coll *coll = server->colls, *next;

    for (; coll; coll = next) {
        next = coll->next;
        if ((rank < 0 || disti_store_coll_index(coll, rank) >= 0) &&
            (group == DISTI_NO_GROUP || coll->group == group))
            disti_store_coll_end(server, coll, status, text);
    }
}

void disti_store_coll_forsake(struct disti_store_server *server, int rank, int32_t group,
                              const char *text)
{
    struct store_coll *coll = server->colls, *next;

    for (; coll; coll = next) {
        int index = disti_store_coll_index(coll, rank);

        next = coll->next;
        if (index >= 0 && !coll->arrivals[index].here && coll->op != DISTI_WIRE_LEAVE &&
            (group == 0 || coll->group == group))
            disti_store_coll_end(server, coll, DIST_ERR_PEER_LOST, text);
    }
}

bool disti_store_coll_leaves(const struct disti_store_server *server, int rank)
{
    const struct store_coll *coll = server->colls;

    for (; coll; coll = coll->next) {
        int index = disti_store_coll_index(coll, rank);

        if (coll->op == DISTI_WIRE_LEAVE && index >= 0 && coll->arrivals[index].waits)
            return true;
    }
    return false;
}

void disti_store_coll_withdraw(struct disti_store_server *server, int rank)
{
    struct store_coll *coll = server->colls, *next;

    for (; coll; coll = next) {
        int index = disti_store_coll_index(coll, rank);

        next = coll->next;
        if (index < 0 || !coll_stop_waiting(server, coll, index))
            continue;
        coll->arrivals[index].here = false;
        if (--coll->count == 0) {
            coll_forget_leaving(server, coll, DIST_OK);
            disti_store_coll_free(server, coll);
        }
    }
}
