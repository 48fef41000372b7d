/* SPDX-License-Identifier: BSD-3-Clause */
/* The state of the ranks at the store's server: who is there, has left, or has failed. */
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
    struct store_leaving *leaving = server->leavings;

    while (leaving && leaving->group != group)
        leaving = leaving->next;
    return leaving;
}

/* Its place in the list, with more calls than anybody makes. NULL: no memory. */
static struct store_leaving *leavings_new(struct disti_store_server *server, int32_t group)
{
    struct store_leaving *leaving = calloc(1, sizeof(*leaving));

    if (!leaving)
        return NULL;
    leaving->group = group;
    leaving->calls = UINT64_MAX;
    leaving->next = server->leavings;
    server->leavings = leaving;
    return leaving;
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
    disti_store_ranks_tell(server, notice, why);
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
    if (!disti_store_coll_leaves(server, peer->rank))
        return; /* it is over: the others have come while the word was under way */
    calls = disti_wire_get64(value + bytes - sizeof(calls));
    leaving = leavings_find(server, party.group);
    leaving = leaving ? leaving : leavings_new(server, party.group);
    if (leaving && calls < leaving->calls) { /* of many one is enough: the first of them to leave */
        leaving->calls = calls;
        leaving->rank = peer->rank;
        leavings_tell(server, leaving, &notice);
        disti_store_ranks_push(server, &notice, &party);
        disti_store_coll_forsake(server, peer->rank, party.group, notice.text);
    }
}

void disti_store_leavings_drop(struct disti_store_server *server, int32_t group)
{
    struct store_leaving *leaving, **entry = &server->leavings;

    while ((leaving = *entry) && leaving->group != group)
        entry = &leaving->next;
    if (!leaving)
        return;
    *entry = leaving->next;
    free(leaving);
}

void disti_store_leavings_clear(struct disti_store_server *server)
{
    while (server->leavings)
        disti_store_leavings_drop(server, server->leavings->group);
}

/* Is the rank in the party, and this a group's or the world's leaving that concerns it? */
static bool leavings_concerns(const struct store_leaving *leaving,
                              const struct disti_wire_party *party)
{
    if (!leaving || (leaving->group && leaving->group != party->group))
        return false;
    for (uint32_t i = 0; i < party->count; i++) {
        if (disti_wire_party_rank(party, i) == leaving->rank)
            return true;
    }
    return party->count == 0;
}

const char *disti_store_leavings_hopeless(const struct disti_store_server *server,
                                          const struct disti_wire_party *party,
                                          char text[DISTI_NEWS_MAX])
{
    const struct store_leaving *leaving = leavings_find(server, party->group);
    struct disti_notice notice;

    if (!leavings_concerns(leaving, party))
        leaving = leavings_find(server, 0);
    if (!leavings_concerns(leaving, party))
        return NULL;
    leavings_tell(server, leaving, &notice);
    snprintf(text, DISTI_NEWS_MAX, "%s", notice.text);
    return text;
}

/* ---- groups that failed: later requests of such a group are refused at once ---- */

static struct store_failure *failures_find(const struct disti_store_server *server, int32_t group)
{
    struct store_failure *failure = server->failures;

    while (failure && failure->group != group)
        failure = failure->next;
    return failure;
}

static void failures_add(struct disti_store_server *server, const struct disti_notice *notice)
{
    const size_t bytes = strlen(notice->text) + 1;
    struct store_failure *failure = malloc(sizeof(*failure) + bytes), **oldest;

    if (!failure)
        return;
    failure->group = notice->group;
    failure->rank = notice->rank;
    failure->status = notice->status;
    failure->echoed = false;
    memcpy(failure->news, notice->text, bytes);
    failure->next = server->failures;
    server->failures = failure;
    if (++server->failure_count <= STORE_FAILURES_MAX)
        return;
    for (oldest = &server->failures; (*oldest)->next; oldest = &(*oldest)->next)
        ;
    free(*oldest);
    *oldest = NULL;
    server->failure_count--;
}

void disti_store_failures_clear(struct disti_store_server *server)
{
    while (server->failures) {
        struct store_failure *failure = server->failures;

        server->failures = failure->next;
        free(failure);
    }
    server->failure_count = 0;
}

const char *disti_store_failures_hopeless(const struct disti_store_server *server,
                                          const struct disti_wire_party *party,
                                          dist_status *status_p)
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

void disti_store_ranks_tell(const struct disti_store_server *server, struct disti_notice *notice,
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
    disti_store_ranks_tell(server, &notice, why);
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
    disti_store_ranks_tell(server, notice, why);
    disti_store_ranks_push(server, notice, &to);
}

/* One of its ranks has failed in the group; all are told of the first. */
static void ranks_group_failed(struct disti_store_server *server, int rank,
                               const struct disti_wire_party *party, dist_status status,
                               const char *why)
{
    struct disti_notice notice = {.rank = rank, .group = party->group, .status = status};
    struct store_failure *first = failures_find(server, party->group);

    if (first) {
        ranks_echo(server, first, &notice, why);
        return;
    }
    disti_store_ranks_tell(server, &notice, why);
    failures_add(server, &notice);
    if (party->group) /* it ends by that; who leaves the world comes to no other group either */
        disti_store_leavings_drop(server, party->group);
    disti_store_ranks_push(server, &notice, party);
    disti_store_coll_fail(server, -1, party->group, status - DISTI_WIRE_REPORTED, notice.text);
}

void disti_store_ranks_lost(struct disti_store_server *server, struct store_peer *peer)
{
    struct store_rank *slot = &server->ranks[peer->rank];
    char why[96];

    disti_store_coll_withdraw(server, peer->rank);
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

/* Everybody has left in order: a launcher's store is as new for the next group. */
static void ranks_reset(struct disti_store_server *server)
{
    for (int r = 0; r < server->world_size; r++)
        memset(&server->ranks[r], 0, sizeof(server->ranks[r]));
    server->left = server->gone = 0;
    server->formed = server->over = false;
    server->broken[0] = 0;
    disti_store_coll_clear(server);
    disti_store_failures_clear(server);
    disti_store_leavings_clear(server);
    server->numbers = 0;
    disti_store_server_renew(server);
}

void disti_store_ranks_goodbye(struct disti_store_server *server, struct store_peer *peer)
{
    struct store_rank *slot = &server->ranks[peer->rank];

    disti_store_coll_withdraw(server, peer->rank);
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
    if (server->left == server->world_size && server->holder < 0)
        ranks_reset(server);
}

/* Refuses a hello. Before all have come it also ends the waiting of the others. */
static void ranks_refuse(struct disti_store_server *server, struct store_peer *peer,
                         const char *format, ...) __attribute__((format(printf, 3, 4)));
static void ranks_refuse(struct disti_store_server *server, struct store_peer *peer,
                         const char *format, ...)
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

/* May a client come as that rank now? Answers the hello if not. */
static bool ranks_check_state(struct disti_store_server *server, struct store_peer *peer,
                              const struct disti_wire_id *id)
{
    const struct store_rank *slot = &server->ranks[id->rank];

    if (slot->state == STORE_LEFT) {
        peer->closing = true;
        disti_store_peer_refuse(server, peer, peer->in.head.id, DIST_IN_PROGRESS,
                                "the last group of this job has not ended yet");
        return false;
    }
    if (slot->state == STORE_LOST) {
        ranks_refuse(server, peer, "this job cannot go on: %s", slot->news);
        return false;
    }
    if (slot->state != STORE_ABSENT) {
        if (slot->pid == id->pid && slot->space == id->space && strcmp(slot->host, id->host) == 0)
            ranks_refuse(server, peer,
                         "rank %d (host %s, pid %u) has joined that job already: make more groups "
                         "with dist_new_group, destroy the first before joining again, or give the "
                         "second job another port (MASTER_PORT)",
                         id->rank, id->host, id->pid);
        else
            ranks_refuse(server, peer,
                         "rank %d is taken by host %s, pid %u, so host %s, pid %u cannot have it "
                         "too: give every process its own rank, and every job its own port",
                         id->rank, slot->host, slot->pid, id->host, id->pid);
        return false;
    }
    return true;
}

/* Does the hello belong here? Answers it if not. */
static bool ranks_check(struct disti_store_server *server, struct store_peer *peer,
                        const struct disti_wire_id *id)
{
    if (id->world_size != (uint32_t)server->world_size) {
        ranks_refuse(server, peer,
                     "rank %d (host %s, pid %u) has world size %u, but the store has world size "
                     "%d: give every rank the same",
                     id->rank, id->host, id->pid, id->world_size, server->world_size);
        return false;
    }
    if (id->rank < 0 || id->rank >= server->world_size) {
        ranks_refuse(server, peer, "rank %d (host %s, pid %u) is not in 0 to %d", id->rank,
                     id->host, id->pid, server->world_size - 1);
        return false;
    }
    return ranks_check_state(server, peer, id);
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
