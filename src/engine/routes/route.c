/* SPDX-License-Identifier: BSD-3-Clause */
/* Which transport reaches which peer. */
#include "engine/routes/route.h"
#include "base/log.h"
#include "base/settings/config.h"
#include "engine/state.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Opens one; a transport that cannot run here is left out, with its reason in `reasons`. */
static dist_status route_open_link(struct dist_engine *engine,
                                   const struct dist_transport *transport, void *context,
                                   char *reasons, size_t reasons_size)
{
    const struct dist_backend_config *config = engine->config;
    struct engine_attachment *link = &engine->links[engine->link_count];
    char why[512] = "";
    size_t used = strlen(reasons);

    if (transport->probe && !disti_attachment_is_open(transport, config) &&
        transport->probe(why, sizeof(why)) != DIST_OK) {
        disti_text(reasons + used, reasons_size - used, "; %s: %s", transport->name, why);
        disti_info("transport %s is not used: %s", transport->name, why);
        return DIST_OK;
    }
    engine->link_count++;
    return disti_attachment_open(link, transport, config, context);
}

static dist_status route_open_links(struct dist_engine *engine, const struct route_list *list,
                                    char *reasons, size_t reasons_size)
{
    dist_status status = DIST_OK;

    for (int t = 0; t < list->count && status == DIST_OK; t++) {
        if (disti_route_allowed(list->transports[t]->name))
            status = route_open_link(engine, list->transports[t],
                                     t < list->own ? list->context : NULL, reasons, reasons_size);
    }
    return status;
}

/* The slot of the backend's transport shm; list->own: it has none. */
static int route_shm(const struct route_list *list)
{
    int slot = 0;

    while (slot < list->own && strcmp(list->transports[slot]->name, "shm") != 0)
        slot++;
    return slot;
}

/* This rank's board, unless the user has left out the transport that goes by shared memory. */
static dist_status route_open_node(const struct dist_engine *engine, struct route_cards *cards,
                                   struct disti_node **node_p)
{
    int slot = route_shm(cards->list);

    for (int i = 0; slot < cards->list->own && i < engine->link_count; i++) {
        if (engine->links[i].transport == cards->list->transports[slot])
            return disti_node_open(engine->config, &cards->head.hello, node_p);
    }
    return DIST_OK;
}

/* Has every rank opened transport shm? All come to the same answer. */
static bool route_shared(const struct route_cards *cards, int ranks)
{
    int slot = route_shm(cards->list);
    size_t bytes;

    for (int r = 0; r < ranks && slot < cards->list->own; r++) {
        if (!disti_route_address(cards, r, slot, &bytes))
            return false;
    }
    return slot < cards->list->own;
}

static void route_meet(const struct route_cards *cards, int ranks, struct disti_node **node_p)
{
    if (!route_shared(cards, ranks)) {
        disti_node_close(*node_p);
        *node_p = NULL;
    }
    for (int r = 0; r < ranks; r++) {
        struct route_head head = disti_route_head(cards, r);

        disti_node_meet(*node_p, r, &head.hello);
    }
}

/* Seconds for a message of 64 KiB: between the latency and the bandwidth of a link. */
static double route_cost(const struct dist_reach *reach)
{
    return reach->latency_ns * 1e-9 + 65536.0 / (reach->bytes_per_second + 1);
}

static dist_status route_choose(struct dist_engine *engine, int peer,
                                const struct route_cards *cards, const char *reasons)
{
    const unsigned char *address, *best_address = NULL;
    double best = DBL_MAX;
    size_t bytes, best_bytes = 0;
    struct engine_attachment *link;
    int chosen = -1;

    for (int i = 0; i < engine->link_count; i++) {
        const struct dist_transport *transport = engine->links[i].transport;
        struct dist_reach reach = {0};

        address =
            disti_route_address(cards, peer, disti_route_slot(cards->list, transport), &bytes);
        if (!address ||
            disti_attachment_reach(&engine->links[i], address, bytes, &reach) != DIST_OK ||
            route_cost(&reach) >= best)
            continue;
        best = route_cost(&reach);
        best_address = address;
        best_bytes = bytes;
        chosen = i;
    }
    if (chosen < 0)
        return disti_fail(DIST_ERR_UNSUPPORTED,
                          "rank %d has no transport that reaches rank %d (DIST_TRANSPORT=%s%s%s)",
                          engine->config->rank, peer,
                          disti_env("DIST_TRANSPORT") ? disti_env("DIST_TRANSPORT") : "not set",
                          disti_route_same_names(cards, peer)
                              ? ""
                              : "; the peer's DIST_TRANSPORT differs: give all ranks the same",
                          reasons);
    link = &engine->links[chosen];
    link->peers++;
    engine->route[peer] = (uint8_t)chosen;
    disti_info("rank %d is reached via %s", peer, link->transport->name);
    return disti_attachment_connect(link, peer, best_address, best_bytes);
}

static dist_status route_open_all(struct dist_engine *engine,
                                  const struct dist_engine_config *engine_config,
                                  struct disti_tune_offer *offer, struct route_cards *cards,
                                  struct disti_node **node_p)
{
    int ranks = engine->config->world_size;
    struct route_list list = {0};
    char reasons[1024] = "";
    dist_status status = disti_route_list(engine->config, engine_config, &list);

    cards->list = &list;
    cards->head.names = list.names;
    if (status == DIST_OK)
        status = route_open_links(engine, &list, reasons, sizeof(reasons));
    if (status == DIST_OK)
        status = route_open_node(engine, cards, node_p);
    if (status == DIST_OK)
        status = disti_route_exchange(engine, offer, cards);
    if (status == DIST_OK)
        route_meet(cards, ranks, node_p);
    for (int peer = 0; peer < ranks && status == DIST_OK; peer++) {
        if (peer != engine->config->rank)
            status = route_choose(engine, peer, cards, reasons);
    }
    if (status == DIST_OK)
        disti_route_files(engine);
    return status;
}

dist_status disti_route_open(struct dist_engine *engine,
                             const struct dist_engine_config *engine_config,
                             struct disti_tune_offer *offer, struct disti_node **node_p)
{
    int ranks = engine->config->world_size;
    struct route_cards cards = {.all = NULL};
    dist_status status = DIST_OK;

    engine->route = calloc((size_t)ranks, 1);
    if (!engine->route)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for the routes to %d ranks", ranks);
    if (ranks > 1)
        status = route_open_all(engine, engine_config, offer, &cards, node_p);
    free(cards.all);
    return status;
}

void disti_route_close(struct dist_engine *engine)
{
    for (int i = 0; i < engine->link_count; i++)
        disti_attachment_close(&engine->links[i]);
    engine->link_count = 0;
    free(engine->route);
    engine->route = NULL;
}
