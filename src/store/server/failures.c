/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups that failed: whoever comes to one later is told at once. */
#include "store/server/server.h"

#include <stdlib.h>
#include <string.h>

struct store_failure *disti_store_failures_find(const struct disti_store_server *server,
                                                int32_t group)
{
    struct store_failure *failure = server->failures;

    while (failure && failure->group != group)
        failure = failure->next;
    return failure;
}

static void failures_drop_oldest(struct disti_store_server *server)
{
    struct store_failure **entry = &server->failures;

    while ((*entry)->next)
        entry = &(*entry)->next;
    free(*entry);
    *entry = NULL;
    server->failure_count--;
}

void disti_store_failures_add(struct disti_store_server *server, const struct disti_notice *notice)
{
    const size_t bytes = strlen(notice->text) + 1;
    struct store_failure *failure = malloc(sizeof(*failure) + bytes);

    if (!failure)
        return;
    failure->group = notice->group;
    failure->rank = notice->rank;
    failure->status = notice->status;
    failure->echoed = false;
    memcpy(failure->news, notice->text, bytes);
    failure->next = server->failures;
    server->failures = failure;
    if (++server->failure_count > STORE_FAILURES_MAX)
        failures_drop_oldest(server);
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
        failure = disti_store_failures_find(server, party->group);
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
