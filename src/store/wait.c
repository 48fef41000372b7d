/* SPDX-License-Identifier: BSD-3-Clause */
/* The all-gathers that clients of the store wait for: each thread of a rank for one. */
#include "store/server.h"

#include "base/clock.h"

#include <stdlib.h>

struct store_wait *disti_store_wait_add(struct disti_store_server *server, struct store_peer *peer,
                                        const struct store_wait *wait)
{
    struct store_wait *kept = peer->wait_count < STORE_WAITS_MAX ? malloc(sizeof(*kept)) : NULL;

    if (!kept) {
        disti_store_peer_refuse(
            server, peer, wait->id, DIST_ERR_NO_MEMORY,
            "the store has no room for another request of rank %d, which waits for "
            "%d already",
            peer->rank, peer->wait_count);
        return NULL;
    }
    *kept = *wait;
    kept->next = peer->waits;
    peer->waits = kept;
    peer->wait_count++;
    return kept;
}

void disti_store_wait_remove(struct store_peer *peer, struct store_wait *wait)
{
    struct store_wait **link = &peer->waits;

    while (*link != wait)
        link = &(*link)->next;
    *link = wait->next;
    peer->wait_count--;
    free(wait);
}

void disti_store_wait_clear(struct disti_store_server *server, struct store_peer *peer)
{
    while (peer->waits) {
        disti_store_gather_withdraw(server, peer->waits->gather, peer->rank);
        disti_store_wait_remove(peer, peer->waits);
    }
}

int64_t disti_store_wait_tick(struct disti_store_server *server, struct store_peer *peer)
{
    int64_t soonest = INT64_MAX;
    struct store_wait *wait = peer->waits, *next;

    for (; wait; wait = next) {
        next = wait->next; /* ending an all-gather ends no other wait of this peer */
        if (disti_expired(wait->deadline))
            disti_store_gather_expired(server, peer, wait);
        else if (wait->deadline < soonest)
            soonest = wait->deadline;
    }
    return soonest;
}
