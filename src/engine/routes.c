/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks lay before each other: their addresses, and what goes along with them. */
#include "base/descriptor.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/process.h"
#include "base/settings/config.h"
#include "engine/state.h"

#include <dirent.h>
#include <float.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUTE_LENGTH sizeof(uint64_t)
#define ROUTE_OFFER route_round(sizeof(struct disti_tune_offer))

#define ROUTE_CARD_MAX                                                                             \
    (sizeof(struct disti_tune_offer) + ROUTE_LENGTH + sizeof(struct route_head) +                  \
     (ENGINE_TRANSPORTS_MAX + 1) * (ROUTE_LENGTH + DIST_ADDRESS_MAX))

/* From so many ranks on, they first tell how long their cards are: all get all of them. */
#define ROUTE_MANY 32
/* Else so much of the addresses comes at once; if one has more, whole cards come after it. */
#define ROUTE_SHORT 512

/* Addresses begin where any type may lie. */
static size_t route_round(size_t bytes)
{
    return (bytes + ROUTE_LENGTH - 1) / ROUTE_LENGTH * ROUTE_LENGTH;
}

/*
 * The slot of a transport on the cards is its place in the list, so that a transport that is
 * missing on one rank shifts nothing.
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
        status = disti_attachment_address(&engine->links[i], blob, &bytes);
        if (status != DIST_OK)
            return status;
        *bytes_p = bytes;
    }
    return DIST_OK;
}

/* Writes this rank's card, returns its length in *bytes_p. */
static dist_status route_write(struct dist_engine *engine, struct route_cards *cards,
                               const struct disti_tune_offer *offer, unsigned char *card,
                               size_t *bytes_p)
{
    const struct route_list *list = cards->list;
    size_t used = cards->offer + sizeof(cards->head);
    dist_status status;

    if (cards->offer)
        memcpy(card, offer, sizeof(*offer));
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
    cards->head.bytes = used;
    memcpy(card + cards->offer, &cards->head, sizeof(cards->head));
    *bytes_p = used;
    return DIST_OK;
}

static struct route_head route_card_head(const struct route_cards *cards, int rank)
{
    struct route_head head;

    memcpy(&head, cards->all + (size_t)rank * cards->width + cards->offer, sizeof(head));
    return head;
}

/* Does that rank's DIST_TRANSPORT name the same besides the backend's own transports? */
static bool route_same_names(const struct route_cards *cards, int rank)
{
    return route_card_head(cards, rank).names == cards->head.names;
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
        status = disti_fail(DIST_ERR_INTERNAL,
                            "a rank's addresses have %u bytes, which is too long: list fewer "
                            "transports in DIST_TRANSPORT",
                            most);
    if (status == DIST_OK)
        *width_p = most;
    return status;
}

/* Everybody's card, as far as it goes into the width. */
static dist_status route_gather(const struct dist_backend_config *config, const void *mine,
                                struct route_cards *cards)
{
    free(cards->all);
    cards->all = calloc((size_t)config->world_size, cards->width);
    if (!cards->all)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for the addresses of %d ranks",
                          config->world_size);
    return config->all_gather(config->all_gather_arg, mine, cards->all, cards->width);
}

/* Where there are few ranks: the beginnings of the cards, and all of them if one is longer. */
static dist_status route_show(const struct dist_backend_config *config, const void *mine,
                              struct disti_tune_offer *offer, struct route_cards *cards)
{
    dist_status status;
    size_t longest;

    cards->width = cards->offer + sizeof(cards->head) + ROUTE_SHORT;
    status = route_gather(config, mine, cards);
    if (status != DIST_OK)
        return status;
    memcpy(offer, cards->all, sizeof(*offer));
    uint64_t most = 0;
    for (int r = 0; r < config->world_size; r++) {
        struct route_head head = route_card_head(cards, r);
        most = head.bytes > most ? head.bytes : most;
    }
    longest = most < ROUTE_CARD_MAX ? (size_t)most : ROUTE_CARD_MAX;
    if (longest <= cards->width)
        return DIST_OK;
    cards->width = longest;
    return route_gather(config, mine, cards);
}

/* Can this process have a descriptor for all that the routes may need? */

/* What a call may need for a moment. */
#define FILES_SPARE 4

/* Once the routes are chosen, and before a peer is called: tells of a limit of open files
 * that is too small for all of them. Connections are made when they are needed, so it may do. */
static void route_files(const struct dist_engine *engine)
{
    size_t open = 0, wanted, most;

    if (engine->config->group != 0) /* the groups of a world share its connections */
        return;
    /* Those that are open; 0: it is not known. */
    DIR *folder = opendir(DISTI_PROCESS_OWN "/fd");
    while (folder && readdir(folder))
        open++;
    if (folder)
        closedir(folder);
    wanted = open + FILES_SPARE;
    for (int i = 0; i < engine->link_count; i++) {
        const struct engine_attachment *link = &engine->links[i];

        wanted +=
            (size_t)link->peers * (size_t)(link->transport->files ? link->transport->files() : 1);
    }
    most = disti_descriptor_allow(wanted);
    if (most < wanted)
        disti_notice("rank %d may open %zu files, has opened %zu, and needs %zu to connect to all "
                     "%d ranks: calls that need more will fail; raise the hard limit of open files "
                     "(ulimit -Hn) to %zu or more",
                     engine->config->rank, most, open, wanted, engine->config->world_size, wanted);
}

/* Which transports there are for an engine: the backend's, and what DIST_TRANSPORT names besides.
 */

#define LIST_NAME 64

/* Is the transport among those that DIST_TRANSPORT allows (all, if it is not set)? */
static bool route_allowed(const char *name)
{
    const char *list = disti_env("DIST_TRANSPORT");
    char item[LIST_NAME];

    if (!list)
        return true;
    for (int i = 0; disti_list_item(list, ',', i, item, sizeof(item)); i++) {
        if (strcmp(item, name) == 0)
            return true;
    }
    return false;
}

static dist_status list_add(struct route_list *list, const struct dist_transport *transport)
{
    if (list->count == ENGINE_TRANSPORTS_MAX)
        return disti_fail(DIST_ERR_UNSUPPORTED, "a backend may use at most %d transports",
                          ENGINE_TRANSPORTS_MAX);
    list->transports[list->count++] = transport;
    return DIST_OK;
}

static bool list_has(const struct route_list *list, const char *name)
{
    for (int t = 0; t < list->count; t++) {
        if (strcmp(list->transports[t]->name, name) == 0)
            return true;
    }
    return false;
}

/* "shm tcp" of the backend's own. */
static void list_own_names(const struct route_list *list, char *text, size_t size)
{
    size_t used = 0;

    text[0] = '\0';
    for (int t = 0; t < list->own && used < size; t++)
        used += (size_t)snprintf(text + used, size - used, " %s", list->transports[t]->name);
}

/* One that the backend does not have itself: the host has it, or it is an error. */
static dist_status list_add_other(const struct dist_host *host, const char *name,
                                  struct route_list *list)
{
    const struct dist_transport *transport = host->transport_find(name);
    char own[256], why[1024];
    dist_status status;

    if (!transport) {
        list_own_names(list, own, sizeof(own));
        host->transport_missing(name, why, sizeof(why));
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "DIST_TRANSPORT: this backend has no transport '%s'; it has:%s. It is "
                          "not a module either: %s",
                          name, own, why);
    }
    status = list_add(list, transport);
    if (status == DIST_OK)
        list->names = disti_hash_text(disti_hash_text(list->names, name), ",");
    return status;
}

/*
 * ERR_INVALID_ARGUMENT: DIST_TRANSPORT names one that neither the backend nor the host has, or
 * none. ERR_UNSUPPORTED: they are too many.
 */
static dist_status route_list_make(const struct dist_backend_config *config,
                                   const struct dist_engine_config *engine_config,
                                   struct route_list *list_p)
{
    const char *names = disti_env("DIST_TRANSPORT");
    dist_status status = DIST_OK;

    *list_p = (struct route_list){.context = engine_config->transport_context};
    for (int t = 0; engine_config->transports[t] && status == DIST_OK; t++)
        status = list_add(list_p, engine_config->transports[t]);
    list_p->own = list_p->count;
    if (status != DIST_OK || !names)
        return status;
    char item[LIST_NAME], own[256];
    int named = 0;
    for (; status == DIST_OK && disti_list_item(names, ',', named, item, sizeof(item)); named++) {
        if (!list_has(list_p, item))
            status = list_add_other(config->host, item, list_p);
    }
    if (status != DIST_OK || named)
        return status;
    list_own_names(list_p, own, sizeof(own));
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "DIST_TRANSPORT is '%s', which names no transport; choose from:%s", names,
                      own);
}

/* Which transport reaches which peer. */

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

/* The slot of the backend's transport by shared memory; list->own: it has none. */
static int route_shm(const struct route_list *list)
{
    int slot = 0;

    while (slot < list->own && !list->transports[slot]->shares_memory)
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

        address = route_address(cards, peer, route_slot(cards->list, transport), &bytes);
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
        return disti_fail(
            DIST_ERR_UNSUPPORTED,
            "rank %d has no transport that reaches rank %d (DIST_TRANSPORT=%s%s%s)",
            engine->config->rank, peer,
            disti_env("DIST_TRANSPORT") ? disti_env("DIST_TRANSPORT") : "not set",
            route_same_names(cards, peer)
                ? ""
                : "; the peer's DIST_TRANSPORT differs: set the same value on all ranks",
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
    dist_status status = route_list_make(engine->config, engine_config, &list);

    cards->list = &list;
    cards->head.names = list.names;
    for (int t = 0; t < list.count && status == DIST_OK; t++) {
        if (route_allowed(list.transports[t]->name))
            status = route_open_link(engine, list.transports[t], t < list.own ? list.context : NULL,
                                     reasons, sizeof(reasons));
    }
    if (status == DIST_OK)
        status = route_open_node(engine, cards, node_p);
    if (status == DIST_OK) {
        /*
         * Everybody's card; list and this rank's head are set. The offer becomes rank 0's.
         * cards->all is the caller's to free, whatever the status. Blocks, as all_gather does.
         */
        const struct dist_backend_config *config = engine->config;
        bool many = config->world_size >= ROUTE_MANY && config->broadcast;
        unsigned char *mine = calloc(1, ROUTE_CARD_MAX); /* too large for a small stack */
        size_t bytes = 0;
        cards->offer = many ? 0 : ROUTE_OFFER;
        cards->width = ROUTE_CARD_MAX;
        if (mine)
            status = route_write(engine, cards, offer, mine, &bytes);
        else
            status = disti_fail(DIST_ERR_NO_MEMORY, "no memory for the addresses of %d ranks",
                                config->world_size);
        if (status == DIST_OK && !many) {
            status = route_show(config, mine, offer, cards);
        } else if (status == DIST_OK) {
            /* Where there are many ranks: rank 0's offer to all, and cards no longer than they must
             * be. */
            status = route_agree(config, bytes, &cards->width);
            if (status == DIST_OK)
                status = config->broadcast(config->all_gather_arg, offer, sizeof(*offer));
            if (status == DIST_OK)
                status = route_gather(config, mine, cards);
        }
        free(mine);
    }
    if (status == DIST_OK) {
        if (!route_shared(cards, ranks)) {
            disti_node_close(*node_p);
            *node_p = NULL;
        }
        for (int r = 0; r < ranks; r++) {
            struct route_head head = route_card_head(cards, r);
            disti_node_store_hello(*node_p, r, &head.hello);
        }
    }
    for (int peer = 0; peer < ranks && status == DIST_OK; peer++) {
        if (peer != engine->config->rank)
            status = route_choose(engine, peer, cards, reasons);
    }
    if (status == DIST_OK)
        route_files(engine);
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
