/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that wait for the others to leave a group: who waits for them in a call waits in vain. */
#include "store/server/server.h"

#include <stdio.h>
#include <stdlib.h>

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
