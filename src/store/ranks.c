/* SPDX-License-Identifier: BSD-3-Clause */
/* What the store's server knows about ranks, and the collectives among them. */
#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/net.h"
#include "base/process.h"
#include "store/server.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- ranks that wait for the others to leave a group ---- */

static struct store_leaving *leavings_find(const struct disti_store_server *server, int32_t group)
{
    struct store_leaving *leaving;

    LIST_FOREACH(leaving, &server->leavings, next)
    {
        if (leaving->group == group)
            break;
    }
    return leaving;
}

/* Nobody waits for others to leave the group any more. */
static void leavings_drop(struct disti_store_server *server, int32_t group)
{
    struct store_leaving *leaving = leavings_find(server, group);

    if (leaving)
        LIST_REMOVE(leaving, next);
    free(leaving);
}

/* ---- groups that failed: later requests of such a group are refused at once ---- */

static struct store_failure *failures_find(const struct disti_store_server *server, int32_t group)
{
    struct store_failure *failure;

    TAILQ_FOREACH(failure, &server->failures, next)
    {
        if (failure->group == group)
            break;
    }
    return failure;
}

/* Why a party cannot meet any more, *status_p is what its requests end with; NULL: it can. */
static const char *failures_hopeless(const struct disti_store_server *server,
                                     const struct disti_wire_party *party, dist_status *status_p)
{
    uint32_t count = party->count ? party->count : (uint32_t)server->world_size;
    const struct store_failure *failure = NULL;

    *status_p = server->broken[0] ? DIST_ERR_RENDEZVOUS : DIST_ERR_PEER_LOST;
    if (server->broken[0])
        return server->broken;
    if (party->group != DISTI_NO_GROUP)
        failure = failures_find(server, party->group);
    if (failure) {
        *status_p = failure->status - DISTI_WIRE_REPORTED;
        return failure->news;
    }
    for (int left = 0; left < 2 && server->gone;
         left++) { /* who failed says more than who left after it */
        for (uint32_t i = 0; i < count; i++) {
            int rank = disti_wire_party_rank(party, i);

            if (disti_store_ranks_is_gone(server, rank, left))
                return server->ranks[rank].news;
        }
    }
    return NULL;
}

/* ---- the state of each rank: hellos, goodbyes, losses, and the notices about them ---- */

bool disti_store_ranks_is_gone(const struct disti_store_server *server, int rank, bool left)
{
    enum store_state state = server->ranks[rank].state;

    return state == STORE_LOST || state == STORE_FAILED || (left && state == STORE_LEFT);
}

static struct disti_blob *ranks_pack_notice(const struct disti_notice *notice)
{
    size_t length = strlen(notice->text), before = DISTI_WIRE_NEWS + (notice->leaving ? 8 : 0);
    struct disti_blob *body = disti_blob_new(before + length);

    if (!body)
        return NULL;
    disti_wire_put32(body->data, (uint32_t)notice->group);
    body->data[4] =
        (notice->graceful ? DISTI_WIRE_GRACEFUL : 0) | (notice->leaving ? DISTI_WIRE_LEFT : 0);
    body->data[5] = (unsigned char)-notice->status;
    if (notice->leaving)
        disti_wire_put64(body->data + DISTI_WIRE_NEWS, notice->calls);
    memcpy(body->data + before, notice->text, length);
    return body;
}

void disti_store_ranks_push(struct disti_store_server *server, const struct disti_notice *notice,
                            const struct disti_wire_party *party)
{
    struct disti_blob *body = ranks_pack_notice(notice);
    uint32_t count = party && party->count ? party->count : (uint32_t)server->world_size;

    for (uint32_t i = 0; body && i < count; i++) {
        int rank = party ? disti_wire_party_rank(party, i) : (int)i;
        struct store_peer *peer = server->ranks[rank].peer;
        struct disti_wire_head head = {
            .op = DISTI_WIRE_NOTICE, .arg = notice->rank, .value_bytes = body->bytes};

        /* A rank that reports a group's failure learns that it was the first. */
        if (peer && (rank != notice->rank || notice->status) && !peer->closing)
            disti_store_peer_send(server, peer, &head, disti_blob_hold(body));
    }
    disti_blob_drop(body);
}

/* The text of a notice: who its rank is, and why. */
static void ranks_tell(const struct disti_store_server *server, struct disti_notice *notice,
                       const char *why)
{
    const struct store_rank *slot = &server->ranks[notice->rank];

    disti_text(notice->text, sizeof(notice->text), "rank %d (host %s, pid %u%s) %s", notice->rank,
               slot->host, slot->pid, disti_process_elsewhere(slot->space), why);
    /* A rank's own words end up in other ranks' errors. */
    for (char *c = notice->text; *c; c++)
        *c = *c >= ' ' && *c <= '~' ? *c : ' ';
}

/* Keeps why the rank is gone, tells the others, ends what cannot end well any more. */
static void ranks_gone(struct disti_store_server *server, int rank, enum store_state state,
                       const char *why)
{
    struct disti_notice notice = {
        .rank = rank, .group = DISTI_NO_GROUP, .graceful = state == STORE_LEFT};
    struct store_rank *slot = &server->ranks[rank];

    slot->state = state;
    server->gone++;
    ranks_tell(server, &notice, why);
    memcpy(slot->news, notice.text, sizeof(slot->news));
    if (!server->over || state != STORE_LEFT)
        disti_store_ranks_push(server, &notice, NULL);
    disti_store_coll_fail(server, rank, DISTI_NO_GROUP, DIST_ERR_PEER_LOST, slot->news);
}

/*
 * The first that has failed may have waited for a rank that waits for another itself, as who comes
 * next may say: it hears of that.
 */
static void ranks_echo(struct disti_store_server *server, struct store_failure *first,
                       struct disti_notice *notice, const char *why)
{
    const int32_t group = first->group;
    struct disti_wire_party to = {.group = group, .count = 1};
    unsigned char rank[4];

    if (first->echoed || first->status == DIST_ERR_ABORTED || notice->status == DIST_ERR_ABORTED ||
        first->rank == notice->rank)
        return;
    first->echoed = true;
    disti_wire_put32(rank, (uint32_t)first->rank);
    to.ranks = rank;
    ranks_tell(server, notice, why);
    disti_store_ranks_push(server, notice, &to);
}

/* One of its ranks has failed in the group; all are told of the first. */
static void ranks_group_failed(struct disti_store_server *server, int rank,
                               const struct disti_wire_party *party, dist_status status,
                               const char *why)
{
    struct disti_notice notice = {.rank = rank, .group = party->group, .status = status};
    struct store_failure *first = failures_find(server, party->group);
    size_t bytes;
    struct store_failure *failure;

    if (first) {
        ranks_echo(server, first, &notice, why);
        return;
    }
    ranks_tell(server, &notice, why);
    bytes = strlen(notice.text) + 1;
    failure = malloc(sizeof(*failure) + bytes);
    if (failure) {
        failure->group = notice.group;
        failure->rank = notice.rank;
        failure->status = notice.status;
        failure->echoed = false;
        memcpy(failure->news, notice.text, bytes);
        TAILQ_INSERT_HEAD(&server->failures, failure, next);
        if (++server->failure_count > STORE_FAILURES_MAX) {
            failure = TAILQ_LAST(&server->failures, store_failures);
            TAILQ_REMOVE(&server->failures, failure, next);
            free(failure);
            server->failure_count--;
        }
    }
    if (party->group) /* it ends by that; who leaves the world comes to no other group either */
        leavings_drop(server, party->group);
    disti_store_ranks_push(server, &notice, party);
    disti_store_coll_fail(server, -1, party->group, status - DISTI_WIRE_REPORTED, notice.text);
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

static void coll_free(struct store_coll *coll)
{
    LIST_REMOVE(coll, next);
    disti_blob_drop(coll->result);
    free(coll->ranks);
    free(coll->refusal);
    free(coll->arrivals);
    free(coll);
}

/* The rank at an index of the party, and back: -1, it is not in it. */
static int coll_rank(const struct store_coll *coll, int index)
{
    return coll->ranks ? coll->ranks[index] : index;
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
        leavings_drop(server, coll->group);
}

/* The rank waits no longer: it is taken out of those in which it did. */
static void coll_withdraw(struct disti_store_server *server, int rank)
{
    struct store_coll *coll = LIST_FIRST(&server->colls), *next;

    for (; coll; coll = next) {
        int index = coll_index(coll, rank);

        next = LIST_NEXT(coll, next);
        if (index < 0 || !coll_stop_waiting(server, coll, index))
            continue;
        coll->arrivals[index].here = false;
        if (--coll->count == 0) {
            coll_forget_leaving(server, coll, DIST_OK);
            coll_free(coll);
        }
    }
}

void disti_store_ranks_lost(struct disti_store_server *server, struct store_peer *peer)
{
    struct store_rank *slot = &server->ranks[peer->rank];
    char why[96];

    coll_withdraw(server, peer->rank);
    slot->peer = NULL;
    server->here--;
    /* Who has reported a failure is news already. */
    if (slot->state == STORE_HERE)
        ranks_gone(server, peer->rank, STORE_LOST,
                   disti_process_end(slot->host, slot->space, (int)slot->pid, why, sizeof(why)));
    else
        slot->state = STORE_LOST;
}

void disti_store_ranks_report(struct disti_store_server *server, struct store_peer *peer)
{
    const dist_status status = disti_wire_failure(peer->in.head.arg);
    const size_t bytes = (size_t)peer->in.head.value_bytes;
    const unsigned char *text = disti_wire_value(&peer->in);
    char why[DISTI_REASON_MAX + 16];
    struct disti_wire_party party;

    if (!disti_wire_get_party(text, bytes, server->world_size, &party)) {
        peer->dead = server->reap = true;
        return;
    }
    disti_text(why, sizeof(why), "failed: %s",
               (const char *)text + disti_wire_party_bytes(party.count));
    if (party.group != DISTI_NO_GROUP)
        ranks_group_failed(server, peer->rank, &party, status,
                           status == DIST_ERR_ABORTED ? "aborted the group" : why);
    else if (server->ranks[peer->rank].state == STORE_HERE)
        ranks_gone(server, peer->rank, STORE_FAILED, why);
}

void disti_store_ranks_goodbye(struct disti_store_server *server, struct store_peer *peer)
{
    struct store_rank *slot = &server->ranks[peer->rank];

    coll_withdraw(server, peer->rank);
    slot->peer = NULL;
    server->here--;
    peer->dead = server->reap = true;
    if (slot->state == STORE_FAILED) {
        slot->state = STORE_LOST;
        return;
    }
    if (peer->in.head.arg == DISTI_WIRE_WITHDRAW) {
        slot->state = STORE_ABSENT;
        return;
    }
    server->left++;
    ranks_gone(server, peer->rank, STORE_LEFT, "has left the job");
    /* A rank's own server ends with its group instead, and the next group has another. */
    if (server->left == server->world_size && server->holder < 0) {
        /* Everybody has left in order: a launcher's store is as new for the next group. */
        for (int r = 0; r < server->world_size; r++)
            memset(&server->ranks[r], 0, sizeof(server->ranks[r]));
        server->left = server->gone = 0;
        server->formed = server->over = false;
        server->broken[0] = 0;
        disti_store_ranks_clear(server);
        server->numbers = 0;
        disti_store_server_renew(server);
    }
}

/* Refuses a hello. Before all have come it also ends the waiting of the others. */
__attribute__((format(printf, 3, 4))) static void
ranks_refuse(struct disti_store_server *server, struct store_peer *peer, const char *format, ...)
{
    char text[sizeof(server->broken)];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    peer->closing = true;
    disti_store_peer_refuse(server, peer, peer->in.head.id, DIST_ERR_RENDEZVOUS, "%s", text);
    if (server->formed)
        return;
    memcpy(server->broken, text, sizeof(text));
    disti_store_coll_fail(server, -1, DISTI_NO_GROUP, DIST_ERR_RENDEZVOUS, text);
}

/* Does the hello belong here? Answers it if not. */
static bool ranks_check(struct disti_store_server *server, struct store_peer *peer,
                        const struct disti_wire_id *id)
{
    const struct store_rank *slot;

    if (id->world_size != (uint32_t)server->world_size) {
        ranks_refuse(server, peer,
                     "rank %d (host %s, pid %u) has world size %u, but the store has world size "
                     "%d: use the same world size on all ranks",
                     id->rank, id->host, id->pid, id->world_size, server->world_size);
        return false;
    }
    if (id->rank < 0 || id->rank >= server->world_size) {
        ranks_refuse(server, peer,
                     "rank %d (host %s, pid %u) is out of range: the ranks are 0 to %d", id->rank,
                     id->host, id->pid, server->world_size - 1);
        return false;
    }
    /* The rank may come only while it is absent. */
    slot = &server->ranks[id->rank];
    if (slot->state == STORE_LEFT) {
        peer->closing = true;
        disti_store_peer_refuse(server, peer, peer->in.head.id, DIST_IN_PROGRESS,
                                "the last group of this job has not ended yet");
        return false;
    }
    if (slot->state == STORE_LOST) {
        ranks_refuse(server, peer, "this job cannot continue: %s", slot->news);
        return false;
    }
    if (slot->state != STORE_ABSENT) {
        if (slot->pid == id->pid && slot->space == id->space && strcmp(slot->host, id->host) == 0)
            ranks_refuse(server, peer,
                         "rank %d (host %s, pid %u) has joined that job already: create more "
                         "groups with dist_new_group, destroy the first before joining again, or "
                         "use another port for the second job (MASTER_PORT)",
                         id->rank, id->host, id->pid);
        else
            ranks_refuse(server, peer,
                         "rank %d is used by host %s, pid %u, and also by host %s, pid %u: use a "
                         "different rank for each process, and a different port for each job",
                         id->rank, slot->host, slot->pid, id->host, id->pid);
        return false;
    }
    return true;
}

/* The rank that a client without one gets: the lowest that nobody has. If there is none: the lowest
 * that somebody had, so that the client is told to wait for the next group, or why there is none.
 */
static int ranks_allot(const struct disti_store_server *server)
{
    static const enum store_state wanted[] = {STORE_ABSENT, STORE_LEFT, STORE_LOST};

    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        for (int r = 0; r < server->world_size; r++) {
            if (r != server->holder && server->ranks[r].state == wanted[i])
                return r;
        }
    }
    return 0;
}

static void ranks_welcome(struct disti_store_server *server, struct store_peer *peer)
{
    struct disti_wire_id id = {.rank = server->holder,
                               .world_size = (uint32_t)server->world_size,
                               .pid = (uint32_t)getpid(),
                               .space = disti_process_space()};
    struct disti_blob *body = disti_blob_new(DISTI_WIRE_WELCOME);

    disti_host_name(id.host);
    memcpy(id.job, server->job, sizeof(id.job));
    if (body) {
        disti_wire_put_id(body->data, &id);
        disti_wire_put32(body->data + DISTI_WIRE_ID, (uint32_t)peer->rank);
        memcpy(body->data + DISTI_WIRE_ID + 4, server->seed, sizeof(server->seed));
        disti_wire_prove_server(&peer->said, body->data, &server->secret, id.proof);
        disti_wire_put_id(body->data, &id);
    }
    disti_store_peer_reply(server, peer, peer->in.head.id, body ? DIST_OK : DIST_ERR_NO_MEMORY,
                           body);
}

void disti_store_ranks_join(struct disti_store_server *server, struct store_peer *peer,
                            struct disti_wire_id *id)
{
    struct store_rank *slot;
    char host[DISTI_HOST_SIZE];

    if (id->rank < 0)
        id->rank = ranks_allot(server);
    if (!ranks_check(server, peer, id))
        return;
    slot = &server->ranks[id->rank];
    slot->state = STORE_HERE;
    slot->peer = peer;
    slot->pid = id->pid;
    slot->space = id->space;
    memcpy(slot->host, id->host, sizeof(slot->host));
    peer->rank = id->rank;
    peer->in.limit = DISTI_WIRE_REQUEST_LIMIT;
    disti_tls_trust(peer->tls);
    server->strangers--;
    server->here++;
    server->formed = server->formed || server->here == server->world_size;
    if (server->everywhere && !server->seen[0] && disti_store_peer_came_by(peer->fd, host))
        snprintf(server->seen, sizeof(server->seen), "%s", host);
    ranks_welcome(server, peer);
}

/* Collectives at the store's server: each collects its ranks, and answers all of them at once. */

/* ---- the end: with an answer, by a deadline, by a loss ---- */

/* How many of the missing are named. */
#define COLL_NAMES 16

void disti_store_ranks_clear(struct disti_store_server *server)
{
    struct store_failure *failure;

    while (!LIST_EMPTY(&server->colls))
        coll_free(LIST_FIRST(&server->colls));
    while (!LIST_EMPTY(&server->leavings))
        leavings_drop(server, LIST_FIRST(&server->leavings)->group);
    while ((failure = TAILQ_FIRST(&server->failures))) {
        TAILQ_REMOVE(&server->failures, failure, next);
        free(failure);
    }
    server->failure_count = 0;
}

/* True if the ranks call it in dist_new_group. */
static bool coll_makes_group(const struct store_coll *coll)
{
    return coll->group == DISTI_NO_GROUP && coll->ranks;
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
    coll_free(coll);
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

/* "ranks 3, 5 and 9 more did not come" */
static void coll_missing(const struct disti_store_server *server, const struct store_coll *coll,
                         char *text, size_t size)
{
    int missing = coll->size - coll->count, named = 0;
    size_t used = (size_t)snprintf(text, size, missing == 1 ? "rank" : "ranks");
    char list[STORE_LIST];

    for (int i = 0; i < coll->size && named < COLL_NAMES && used + 160 < size; i++) {
        if (coll->arrivals[i].here)
            continue;
        if (named++)
            used += (size_t)snprintf(text + used, size - used, ",");
        used += coll_name(server, coll, i, text + used, size - used);
    }
    if (missing > named)
        used += (size_t)snprintf(text + used, size - used, " and %d more", missing - named);
    used += (size_t)snprintf(text + used, size - used, " did not arrive");
    /* A rank that is missing in a new group has passed another list of ranks to dist_new_group. */
    for (int i = 0; coll_makes_group(coll) && i < coll->size; i++) {
        const struct store_rank *slot = &server->ranks[coll->ranks[i]];

        if (coll->arrivals[i].here || !slot->list[0] || slot->list_until_ns < coll->begun_ns)
            continue;
        coll_list(coll, list, sizeof(list));
        snprintf(text + used, size - used,
                 "; the ranks passed different lists: world ranks %s here, but world ranks %s on "
                 "world rank %d. Pass the same ranks in the same order on all of them",
                 list, slot->list, coll->ranks[i]);
        return;
    }
}

/* Looks at every deadline. Returns when the next one is, or that it has ended: INT64_MAX. */
static int64_t coll_check_deadlines(struct disti_store_server *server, struct store_coll *coll)
{
    int64_t soonest = INT64_MAX;
    struct store_peer *peer;
    char text[1024];

    for (int i = 0; i < coll->size; i++) {
        const struct store_arrival *arrival = &coll->arrivals[i];

        if (!arrival->waits)
            continue;
        if (!disti_expired(arrival->deadline)) {
            soonest = arrival->deadline < soonest ? arrival->deadline : soonest;
            continue;
        }
        coll_missing(server, coll, text, sizeof(text));
        if (coll->op != DISTI_WIRE_ARRIVE) {
            coll_end(server, coll, DIST_ERR_TIMEOUT, text);
            return INT64_MAX;
        }
        peer = coll_stop_waiting(server, coll, i);
        disti_store_peer_refuse(server, peer, arrival->id, DIST_ERR_TIMEOUT, "%s", text);
    }
    coll->due = soonest;
    return soonest;
}

int64_t disti_store_coll_tick(struct disti_store_server *server)
{
    struct store_coll *coll = LIST_FIRST(&server->colls), *next;
    int64_t soonest = INT64_MAX, due;

    for (; coll; coll = next) {
        next = LIST_NEXT(coll, next); /* the end of one ends no other */
        due = disti_expired(coll->due) ? coll_check_deadlines(server, coll) : coll->due;
        soonest = due < soonest ? due : soonest;
    }
    return soonest;
}

void disti_store_coll_fail(struct disti_store_server *server, int rank, int32_t group,
                           dist_status status, const char *text)
{
    struct store_coll *coll = LIST_FIRST(&server->colls), *next;

    for (; coll; coll = next) {
        next = LIST_NEXT(coll, next);
        if ((rank < 0 || coll_index(coll, rank) >= 0) &&
            (group == DISTI_NO_GROUP || coll->group == group))
            coll_end(server, coll, status, text);
    }
}

/* The rank comes to no more of that group (0: of any) but to leave: ends those that wait for it. */
static void coll_forsake(struct disti_store_server *server, int rank, int32_t group,
                         const char *text)
{
    struct store_coll *coll = LIST_FIRST(&server->colls), *next;

    for (; coll; coll = next) {
        int index = coll_index(coll, rank);

        next = LIST_NEXT(coll, next);
        if (index >= 0 && !coll->arrivals[index].here && coll->op != DISTI_WIRE_LEAVE &&
            (group == 0 || coll->group == group))
            coll_end(server, coll, DIST_ERR_PEER_LOST, text);
    }
}

/* Does the rank wait for others to leave a group? */
static bool coll_leaves(const struct disti_store_server *server, int rank)
{
    const struct store_coll *coll;

    LIST_FOREACH(coll, &server->colls, next)
    {
        int index = coll_index(coll, rank);

        if (coll->op == DISTI_WIRE_LEAVE && index >= 0 && coll->arrivals[index].waits)
            return true;
    }
    return false;
}

static void leavings_tell(const struct disti_store_server *server,
                          const struct store_leaving *leaving, struct disti_notice *notice)
{
    char why[128];

    *notice = (struct disti_notice){
        .rank = leaving->rank, .group = leaving->group, .leaving = true, .calls = leaving->calls};
    snprintf(why, sizeof(why),
             "has left the group: it called dist_destroy_process_group after %llu collective%s",
             (unsigned long long)leaving->calls, leaving->calls == 1 ? "" : "s");
    ranks_tell(server, notice, why);
}

void disti_store_leavings_take(struct disti_store_server *server, struct store_peer *peer)
{
    const size_t bytes = (size_t)peer->in.head.value_bytes;
    const unsigned char *value = disti_wire_value(&peer->in);
    struct disti_wire_party party;
    struct store_leaving *leaving;
    struct disti_notice notice;
    uint64_t calls;

    if (!disti_wire_get_party(value, bytes, server->world_size, &party) || party.group < 0 ||
        bytes != disti_wire_party_bytes(party.count) + sizeof(calls)) {
        peer->dead = server->reap = true;
        return;
    }
    if (!coll_leaves(server, peer->rank))
        return; /* it is over: the others have come while the word was under way */
    calls = disti_wire_get64(value + bytes - sizeof(calls));
    leaving = leavings_find(server, party.group);
    if (!leaving && (leaving = calloc(1, sizeof(*leaving)))) {
        leaving->group = party.group;
        leaving->calls = UINT64_MAX; /* more than anybody makes */
        LIST_INSERT_HEAD(&server->leavings, leaving, next);
    }
    if (leaving && calls < leaving->calls) { /* of many one is enough: the first of them to leave */
        leaving->calls = calls;
        leaving->rank = peer->rank;
        leavings_tell(server, leaving, &notice);
        disti_store_ranks_push(server, &notice, &party);
        coll_forsake(server, peer->rank, party.group, notice.text);
    }
}

static bool coll_includes(const struct disti_wire_party *party, int rank)
{
    for (uint32_t i = 0; i < party->count; i++) {
        if (disti_wire_party_rank(party, i) == rank)
            return true;
    }
    return party->count == 0;
}

/* Is the rank in the party, and this a group's or the world's leaving that concerns it? */
static bool leavings_concerns(const struct store_leaving *leaving,
                              const struct disti_wire_party *party)
{
    return leaving && (!leaving->group || leaving->group == party->group) &&
           coll_includes(party, leaving->rank);
}

/* ---- ranks come ---- */

static struct store_coll *coll_find(struct disti_store_server *server, const struct store_key *key)
{
    struct store_coll *coll;

    LIST_FOREACH(coll, &server->colls, next)
    {
        if (coll->key.length == key->length &&
            memcmp(coll->key.bytes, key->bytes, key->length) == 0)
            break;
    }
    return coll;
}

static int coll_party_size(const struct disti_store_server *server,
                           const struct disti_wire_party *party)
{
    return party->count ? (int)party->count : server->world_size;
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
    LIST_INSERT_HEAD(&server->colls, coll, next);
    coll->ranks = party->count ? calloc(party->count, sizeof(*coll->ranks)) : NULL;
    for (uint32_t i = 0; coll->ranks && i < party->count; i++)
        coll->ranks[i] = disti_wire_party_rank(party, i);
    if (coll->arrivals && (one || coll->result) && (coll->ranks || !party->count))
        return coll;
    coll_free(coll);
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
                 "rank %d sent %zu bytes, but rank %d sent %zu: use the same version of libdist on "
                 "all ranks",
                 peer->rank, bytes, coll->first, coll->bytes);
    else
        snprintf(text, sizeof(text),
                 "rank %d passed different ranks than rank %d: pass the same ranks in the same "
                 "order on all of them",
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
            "the store has no memory for %zu bytes from each rank: free memory on its machine",
            bytes);
    else {
        int index = coll_index(coll, peer->rank);
        struct store_arrival *arrival = &coll->arrivals[index];
        int32_t group = coll->group;
        bool leave = coll->op == DISTI_WIRE_LEAVE;

        /* The rank has come, with its bytes; with the last rank it is over. */
        coll->count += !arrival->here;
        if (coll->refusal) {
            arrival->here = true;
            disti_store_peer_refuse(server, peer, request->id, coll->refused, "%s", coll->refusal);
            if (coll->count == coll->size) /* the last rank has come or refused */
                coll_free(coll);
            return;
        }
        if (coll_makes_group(coll)) {
            coll_list(coll, server->ranks[peer->rank].list, STORE_LIST);
            server->ranks[peer->rank].list_until_ns = INT64_MAX;
        }
        /* A client that gave up may ask once more: its last request is answered. */
        *arrival = (struct store_arrival){true, true, request->id, request->deadline};
        coll->due = request->deadline < coll->due ? request->deadline : coll->due;
        if (!coll_put(coll, index, disti_wire_value(&peer->in) + before, bytes)) {
            coll_end(server, coll, DIST_ERR_NO_MEMORY,
                     "the store has no memory for the request: free memory on its machine");
            return;
        }
        if (coll->count < coll->size)
            return;
        server->over = server->over || (leave && group == 0 && !coll->ranks);
        coll_end(server, coll, DIST_OK, "");
        if (leave && group != DISTI_NO_GROUP)
            disti_store_coll_fail(server, -1, group, DIST_ERR_PEER_LOST, "the group has ended");
    }
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
    hopeless = failures_hopeless(server, &party, &status);
    if (!hopeless && !coll && request->op != DISTI_WIRE_LEAVE) {
        const struct store_leaving *leaving = leavings_find(server, party.group);
        struct disti_notice notice;

        if (!leavings_concerns(leaving, &party))
            leaving = leavings_find(server, 0);
        if (leavings_concerns(leaving, &party)) {
            leavings_tell(server, leaving, &notice);
            snprintf(text, DISTI_NEWS_MAX, "%s", notice.text);
            hopeless = text;
        }
    }
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
    ranks_tell(server, &notice, text);
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
    if (failures_hopeless(server, &party, &status))
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
        coll_end(server, coll, DIST_ERR_NO_MEMORY,
                 "the store has no memory for the request: free memory on its machine");
        return;
    }
    coll->count += !coll->arrivals[index].here;
    coll->arrivals[index] = (struct store_arrival){.here = true};
    coll_answer(server, coll, coll->refused, coll->refusal);
    if (coll->count == coll->size)
        coll_free(coll);
}
