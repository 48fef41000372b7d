/* SPDX-License-Identifier: BSD-3-Clause */
/* Which transport reaches which peer. */
#include "engine/route.h"
#include "base/config.h"
#include "base/log.h"
#include "engine/state.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * What a rank lays before the others: an offer, unless that is told by rank 0 alone; a head; then
 * for each transport of the list the bytes of its address, 0 if it is not open there, and the
 * address, each on a place of its own.
 *
 *      | offer | head | 88 | ... | 32 | ... | zeros to the width that all have |
 */
struct route_head {
    uint64_t names; /* what the transports are called that only DIST_TRANSPORT names */
    struct disti_node_hello hello;
};

#define ROUTE_LENGTH sizeof(uint64_t)
#define ROUTE_OFFER route_round(sizeof(struct disti_tune_offer))

#define ROUTE_CARD_MAX                                                                             \
    (sizeof(struct disti_tune_offer) + ROUTE_LENGTH + sizeof(struct route_head) +                  \
     (ENGINE_TRANSPORTS_MAX + 1) * (ROUTE_LENGTH + DIST_ADDRESS_MAX))

/* From so many ranks on, they first tell how long their cards are: all get all of them. */
#define ROUTE_MANY 32

/* Addresses begin where any type may lie. */
static size_t route_round(size_t bytes)
{
    return (bytes + ROUTE_LENGTH - 1) / ROUTE_LENGTH * ROUTE_LENGTH;
}

struct route_cards {
    unsigned char *all; /* by rank */
    size_t width;       /* of one */
    size_t offer;       /* bytes of the offer in it */
    const struct route_list *list;
    struct route_head head; /* this rank's */
};

/* Opens one; a transport that cannot run here is left out, with its reason in `reasons`. */
static dist_status route_open_link(struct dist_engine *engine,
                                   const struct dist_transport *transport, void *context,
                                   char *reasons, size_t reasons_size)
{
    const struct dist_backend_config *config = engine->config;
    struct engine_link *link = &engine->links[engine->link_count];
    char why[512] = "";
    size_t used = strlen(reasons);

    if (transport->probe && !disti_link_is_open(transport, config) &&
        transport->probe(why, sizeof(why)) != DIST_OK) {
        disti_text(reasons + used, reasons_size - used, "; %s: %s", transport->name, why);
        disti_info("transport %s is not used: %s", transport->name, why);
        return DIST_OK;
    }
    engine->link_count++;
    return disti_link_open(link, transport, config, context);
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

/*
 * The slot of a transport in the exchanged table is its place in the list, so that a transport that
 * is missing on one rank shifts nothing.
 */
static int route_slot(const struct route_list *list, const struct dist_transport *transport)
{
    int slot = 0;

    while (list->transports[slot] != transport)
        slot++;
    return slot;
}

/* What this rank says of a transport; *bytes_p is as it was if the transport is not open here. */
static dist_status route_write_slot(struct dist_engine *engine,
                                    const struct dist_transport *transport, unsigned char *blob,
                                    size_t *bytes_p)
{
    dist_status status;
    size_t bytes = 0;

    for (int i = 0; i < engine->link_count; i++) {
        if (engine->links[i].transport != transport)
            continue;
        status = disti_link_address(&engine->links[i], blob, &bytes);
        if (status != DIST_OK)
            return status;
        *bytes_p = bytes;
    }
    return DIST_OK;
}

/* Writes this rank's card, returns its length in *bytes_p. */
static dist_status route_write(struct dist_engine *engine, const struct route_cards *cards,
                               const struct disti_tune_offer *offer, unsigned char *card,
                               size_t *bytes_p)
{
    const struct route_list *list = cards->list;
    size_t used = cards->offer + sizeof(cards->head);
    dist_status status;

    if (cards->offer)
        memcpy(card, offer, sizeof(*offer));
    memcpy(card + cards->offer, &cards->head, sizeof(cards->head));
    for (int slot = 0; slot < list->count; slot++) {
        size_t bytes = 0;
        uint64_t length;

        status =
            route_write_slot(engine, list->transports[slot], card + used + ROUTE_LENGTH, &bytes);
        if (status != DIST_OK)
            return status;
        length = bytes;
        memcpy(card + used, &length, ROUTE_LENGTH);
        used += ROUTE_LENGTH + route_round(bytes);
    }
    *bytes_p = used;
    return DIST_OK;
}

static struct route_head route_head(const struct route_cards *cards, int rank)
{
    struct route_head head;

    memcpy(&head, cards->all + (size_t)rank * cards->width + cards->offer, sizeof(head));
    return head;
}

/* Does that rank's DIST_TRANSPORT name the same besides the backend's own transports? */
static bool route_same_names(const struct route_cards *cards, int rank)
{
    return route_head(cards, rank).names == cards->head.names;
}

/* The address in that slot of a card; NULL: there is none, or the card is nonsense. */
static const unsigned char *route_address(const struct route_cards *cards, int rank, int slot,
                                          size_t *bytes_p)
{
    const unsigned char *card = cards->all + (size_t)rank * cards->width;
    size_t at = cards->offer + sizeof(cards->head);
    uint64_t length = 0;

    if (slot >= cards->list->own && !route_same_names(cards, rank))
        return NULL;
    for (int s = 0; s <= slot; s++) {
        at += route_round(length);
        if (length > DIST_ADDRESS_MAX || at + ROUTE_LENGTH > cards->width)
            return NULL;
        memcpy(&length, card + at, ROUTE_LENGTH);
        at += ROUTE_LENGTH;
    }
    if (!length || length > DIST_ADDRESS_MAX || at + length > cards->width)
        return NULL;
    *bytes_p = length;
    return card + at;
}

/* The longest card of all ranks. */
static dist_status route_agree(const struct dist_backend_config *config, size_t bytes,
                               size_t *width_p)
{
    uint32_t mine = (uint32_t)bytes, most = 0;
    uint32_t *all = calloc((size_t)config->world_size, sizeof(*all));
    dist_status status = DIST_OK;

    if (!all)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for the addresses of %d ranks",
                          config->world_size);
    status = config->all_gather(config->all_gather_arg, &mine, all, sizeof(mine));
    for (int r = 0; r < config->world_size; r++)
        most = all[r] > most ? all[r] : most;
    free(all);
    if (status == DIST_OK && most > *width_p)
        status = disti_fail(DIST_ERR_INTERNAL, "a rank's addresses have %u bytes", most);
    if (status == DIST_OK)
        *width_p = most;
    return status;
}

/* Where there are many ranks: rank 0's offer to all, and cards no longer than they must be. */
static dist_status route_save(const struct dist_backend_config *config, size_t bytes,
                              struct disti_tune_offer *offer, struct route_cards *cards)
{
    dist_status status = route_agree(config, bytes, &cards->width);

    return status == DIST_OK ? config->broadcast(config->all_gather_arg, offer, sizeof(*offer))
                             : status;
}

/*
 * The offer becomes rank 0's. cards->all is the caller's to free, whatever the status. There is
 * room for one more transport than the backend's, so that some ranks may have one that others have
 * not.
 */
static dist_status route_exchange(struct dist_engine *engine, struct disti_tune_offer *offer,
                                  struct route_cards *cards)
{
    const struct dist_backend_config *config = engine->config;
    bool many = config->world_size >= ROUTE_MANY && config->broadcast;
    int own = cards->list->own, slots = cards->list->count > own ? cards->list->count : own + 1;
    _Alignas(8) unsigned char mine[ROUTE_CARD_MAX];
    size_t bytes = 0;
    dist_status status;

    memset(mine, 0, sizeof(mine));
    cards->offer = many ? 0 : ROUTE_OFFER;
    cards->width = cards->offer + sizeof(cards->head) +
                   (size_t)slots * (ROUTE_LENGTH + DIST_ADDRESS_MAX);
    status = route_write(engine, cards, offer, mine, &bytes);
    if (status == DIST_OK && many)
        status = route_save(config, bytes, offer, cards);
    if (status != DIST_OK)
        return status;
    cards->all = calloc((size_t)config->world_size, cards->width);
    if (!cards->all)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for the addresses of %d ranks",
                          config->world_size);
    status = config->all_gather(config->all_gather_arg, mine, cards->all, cards->width);
    if (status == DIST_OK && !many)
        memcpy(offer, cards->all, sizeof(*offer));
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
        if (!route_address(cards, r, slot, &bytes))
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
        struct route_head head = route_head(cards, r);

        disti_node_meet(*node_p, r, &head.hello);
    }
}

/* Seconds for a message of 64 KiB: between the latency and the bandwidth of a link. */
static double route_cost(const struct dist_reach *reach)
{
    return reach->latency_ns * 1e-9 + 65536.0 / (reach->bytes_per_second + 1);
}

static dist_status route_settle(struct dist_engine *engine, int peer,
                                const struct route_cards *cards, const char *reasons)
{
    const unsigned char *address, *best_address = NULL;
    double best = DBL_MAX;
    size_t bytes, best_bytes = 0;
    struct engine_link *link;
    int chosen = -1;

    for (int i = 0; i < engine->link_count; i++) {
        const struct dist_transport *transport = engine->links[i].transport;
        struct dist_reach reach = {0};

        address = route_address(cards, peer, route_slot(cards->list, transport), &bytes);
        if (!address || disti_link_reach(&engine->links[i], address, bytes, &reach) != DIST_OK ||
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
                          route_same_names(cards, peer)
                              ? ""
                              : "; the peer's names others: give all ranks the same",
                          reasons);
    link = &engine->links[chosen];
    link->peers++;
    engine->route[peer] = (uint8_t)chosen;
    disti_info("rank %d is reached via %s", peer, link->transport->name);
    return disti_link_connect(link, peer, best_address, best_bytes);
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
        status = route_exchange(engine, offer, cards);
    if (status == DIST_OK)
        route_meet(cards, ranks, node_p);
    for (int peer = 0; peer < ranks && status == DIST_OK; peer++) {
        if (peer != engine->config->rank)
            status = route_settle(engine, peer, cards, reasons);
    }
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
        disti_link_close(&engine->links[i]);
    engine->link_count = 0;
    free(engine->route);
    engine->route = NULL;
}
