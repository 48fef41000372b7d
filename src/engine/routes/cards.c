/* SPDX-License-Identifier: BSD-3-Clause */
/* What ranks lay before each other: their addresses, and what goes along with them. */
#include "base/log.h"
#include "engine/routes/route.h"

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

int disti_route_slot(const struct route_list *list, const struct dist_transport *transport)
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

struct route_head disti_route_head(const struct route_cards *cards, int rank)
{
    struct route_head head;

    memcpy(&head, cards->all + (size_t)rank * cards->width + cards->offer, sizeof(head));
    return head;
}

/* Does that rank's DIST_TRANSPORT name the same besides the backend's own transports? */
bool disti_route_same_names(const struct route_cards *cards, int rank)
{
    return disti_route_head(cards, rank).names == cards->head.names;
}

/* The address in that slot of a card; NULL: there is none, or the card is nonsense. */
const unsigned char *disti_route_address(const struct route_cards *cards, int rank, int slot,
                                         size_t *bytes_p)
{
    const unsigned char *card = cards->all + (size_t)rank * cards->width;
    size_t at = cards->offer + sizeof(cards->head);
    uint64_t length = 0;

    if (slot >= cards->list->own && !disti_route_same_names(cards, rank))
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
                            "a rank's addresses take %u bytes, more than a card holds: name fewer "
                            "transports in DIST_TRANSPORT",
                            most);
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

static size_t route_longest(const struct route_cards *cards, int ranks)
{
    uint64_t most = 0;

    for (int r = 0; r < ranks; r++) {
        struct route_head head = disti_route_head(cards, r);

        most = head.bytes > most ? head.bytes : most;
    }
    return most < ROUTE_CARD_MAX ? (size_t)most : ROUTE_CARD_MAX;
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
    longest = route_longest(cards, config->world_size);
    if (longest <= cards->width)
        return DIST_OK;
    cards->width = longest;
    return route_gather(config, mine, cards);
}

/* The offer becomes rank 0's. cards->all is the caller's to free, whatever the status. */
dist_status disti_route_exchange(struct dist_engine *engine, struct disti_tune_offer *offer,
                                 struct route_cards *cards)
{
    const struct dist_backend_config *config = engine->config;
    bool many = config->world_size >= ROUTE_MANY && config->broadcast;
    unsigned char *mine = calloc(1, ROUTE_CARD_MAX); /* too large for a small stack */
    size_t bytes = 0;
    dist_status status;

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
        status = route_save(config, bytes, offer, cards);
        if (status == DIST_OK)
            status = route_gather(config, mine, cards);
    }
    free(mine);
    return status;
}
