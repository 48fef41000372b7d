/* SPDX-License-Identifier: BSD-3-Clause */
/* All-gathers at the store's server: collect every rank's bytes, answer everyone at once. */
#include "rendezvous/store_server.h"

#include "base/checked.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void gather_free(struct disti_store_server *server, struct store_gather *gather)
{
    struct store_gather **link = &server->gathers;

    while (*link != gather)
        link = &(*link)->next;
    *link = gather->next;
    disti_blob_drop(gather->all);
    free(gather->here);
    free(gather);
}

void store_gather_clear(struct disti_store_server *server)
{
    while (server->gathers)
        gather_free(server, server->gathers);
}

static struct store_gather *gather_find(struct disti_store_server *server,
                                        const struct disti_key *key)
{
    struct store_gather *gather = server->gathers;

    while (gather && !disti_key_equal(&gather->key, key))
        gather = gather->next;
    return gather;
}

static struct store_gather *gather_new(struct disti_store_server *server,
                                       const struct disti_key *key, size_t bytes, int first)
{
    struct store_gather *gather;
    size_t total;

    if (!disti_mul(bytes, (size_t)server->world_size, &total) || total > DISTI_WIRE_GATHER_MAX)
        return NULL;
    gather = calloc(1, sizeof(*gather));
    if (!gather)
        return NULL;
    gather->key = *key;
    gather->bytes = bytes;
    gather->first = first;
    gather->here = calloc((size_t)server->world_size, sizeof(*gather->here));
    gather->all = disti_blob_new(total);
    gather->next = server->gathers;
    server->gathers = gather;
    if (gather->here && gather->all)
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

/* Answers all who wait for it, with the bytes or with a text, and frees it. */
static void gather_end(struct disti_store_server *server, struct store_gather *gather,
                       dist_status status, const char *text)
{
    for (int r = 0; r < server->world_size; r++) {
        struct store_peer *peer = server->ranks[r].peer;
        struct store_wait *wait = gather_wait(peer, gather);

        if (!wait)
            continue;
        if (status == DIST_OK)
            store_peer_reply(server, peer, wait->id, status, disti_blob_hold(gather->all));
        else
            store_peer_refuse(server, peer, wait->id, status, "%s (all_gather \"%.*s\")", text,
                              (int)gather->key.length, gather->key.bytes);
        store_wait_remove(peer, wait);
    }
    gather_free(server, gather);
}

/* "ranks 3, 5 and 9 more" */
static void gather_missing(const struct disti_store_server *server,
                           const struct store_gather *gather, char *text, size_t size)
{
    int missing = server->world_size - gather->count, named = 0;
    size_t at = (size_t)snprintf(text, size, missing == 1 ? "rank" : "ranks");

    for (int r = 0; r < server->world_size && named < 16; r++) {
        if (!gather->here[r])
            at += (size_t)snprintf(text + at, size - at, "%s %d", named++ ? "," : "", r);
    }
    if (missing > named)
        snprintf(text + at, size - at, " and %d more", missing - named);
}

void store_gather_expired(struct disti_store_server *server, struct store_gather *gather)
{
    char text[256];

    gather_missing(server, gather, text, sizeof(text) - 16);
    strcat(text, " did not come");
    gather_end(server, gather, DIST_ERR_TIMEOUT, text);
}

void store_gather_fail_all(struct disti_store_server *server, dist_status status, const char *text)
{
    while (server->gathers)
        gather_end(server, server->gathers, status, text);
}

void store_gather_withdraw(struct disti_store_server *server, struct store_gather *gather, int rank)
{
    gather->here[rank] = false;
    if (--gather->count == 0)
        gather_free(server, gather);
}

/* Can it not succeed any more? Then the request is answered. */
static bool gather_hopeless(struct disti_store_server *server, struct store_peer *peer)
{
    int gone = store_ranks_gone(server, true);
    const struct disti_wire_head *head = &peer->in.head;
    const char *key = (const char *)peer->in.body;

    if (server->broken[0])
        store_peer_refuse(server, peer, head->id, DIST_ERR_RENDEZVOUS, "%s", server->broken);
    else if (gone >= 0)
        store_peer_refuse(server, peer, head->id, DIST_ERR_PEER_LOST, "%s (all_gather \"%.*s\")",
                          server->ranks[gone].news, (int)head->key_bytes, key);
    return server->broken[0] || gone >= 0;
}

/* A request of the same rank for the same all-gather: its client has given it up. */
static void gather_replace(struct store_peer *peer, struct store_gather *gather)
{
    struct store_wait *old = gather_wait(peer, gather);

    if (!old)
        return;
    store_wait_remove(peer, old);
    gather->count--;
}

void store_gather_join(struct disti_store_server *server, struct store_peer *peer,
                       const struct store_wait *request)
{
    const struct disti_wire_head *head = &peer->in.head;
    struct store_gather *gather;
    struct store_wait *wait;

    if (gather_hopeless(server, peer))
        return;
    gather = gather_find(server, &request->key);
    if (gather && gather->bytes != head->value_bytes) {
        store_peer_refuse(server, peer, head->id, DIST_ERR_MISMATCH,
                          "rank %d gives %llu bytes, rank %d gave %zu (all_gather \"%.*s\")",
                          peer->rank, (unsigned long long)head->value_bytes, gather->first,
                          gather->bytes, (int)request->key.length, request->key.bytes);
        return;
    }
    wait = store_wait_add(server, peer, request);
    if (!wait)
        return;
    if (gather)
        gather_replace(peer, gather);
    else
        gather = gather_new(server, &request->key, (size_t)head->value_bytes, peer->rank);
    if (!gather) {
        store_wait_remove(peer, wait);
        store_peer_refuse(server, peer, head->id, DIST_ERR_NO_MEMORY,
                          "no room for an all-gather of %llu bytes from each of %d ranks",
                          (unsigned long long)head->value_bytes, server->world_size);
        return;
    }
    if (gather->bytes)
        memcpy(gather->all->data + (size_t)peer->rank * gather->bytes, disti_wire_value(&peer->in),
               gather->bytes);
    gather->here[peer->rank] = true;
    gather->count++;
    wait->gather = gather;
    if (gather->count == server->world_size)
        gather_end(server, gather, DIST_OK, "");
}
