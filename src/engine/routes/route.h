/* SPDX-License-Identifier: BSD-3-Clause */
/* Which transports an engine has to choose from; private to this floor. */
#ifndef DISTI_ENGINE_ROUTES_ROUTE_H
#define DISTI_ENGINE_ROUTES_ROUTE_H

#include "engine/state.h"

/* The backend's transports, and behind them those that DIST_TRANSPORT names besides. */
struct route_list {
    const struct dist_transport *transports[ENGINE_TRANSPORTS_MAX];
    int own, count;
    uint64_t names; /* a hash of the others' names; 0: there are no others */
    void *context;  /* the backend's, for its own */
};

/*
 * ERR_INVALID_ARGUMENT: DIST_TRANSPORT names one that neither the backend nor the host has, or
 * none. ERR_UNSUPPORTED: they are too many.
 */
dist_status disti_route_list(const struct dist_backend_config *config,
                             const struct dist_engine_config *engine_config,
                             struct route_list *list_p);

/*
 * What a rank lays before the others: an offer, unless that is told by rank 0 alone; a head; then
 * for each transport of the list the bytes of its address, 0 if it is not open there, and the
 * address, each on a place of its own.
 *
 *      | offer | head | 88 | ... | 32 | ... | zeros to the width that all have |
 */
struct route_head {
    uint64_t names; /* what the transports are called that only DIST_TRANSPORT names */
    uint64_t bytes; /* of the card, without the zeros */
    struct disti_node_hello hello;
};

struct route_cards {
    unsigned char *all; /* by rank */
    size_t width;       /* of one */
    size_t offer;       /* bytes of the offer in it */
    const struct route_list *list;
    struct route_head head; /* this rank's */
};

/* Is the transport among those that DIST_TRANSPORT allows (all, if it is not set)? */
bool disti_route_allowed(const char *name);

/* files.c: once the routes are chosen, and before a peer is called: tells of a limit of open files
 * that is too small for all of them. Connections are made when they are needed, so it may do. */
void disti_route_files(const struct dist_engine *engine);

/* ---- cards.c ---- */

/*
 * The slot of a transport on the cards is its place in the list, so that a transport that is
 * missing on one rank shifts nothing.
 */
int disti_route_slot(const struct route_list *list, const struct dist_transport *transport);

/*
 * Everybody's card; list and this rank's head are set. The offer becomes rank 0's. cards->all is
 * the caller's to free, whatever the status. Blocks, as all_gather does.
 */
dist_status disti_route_exchange(struct dist_engine *engine, struct disti_tune_offer *offer,
                                 struct route_cards *cards);

struct route_head disti_route_head(const struct route_cards *cards, int rank);

/* Does that rank's DIST_TRANSPORT name the same besides the backend's own transports? */
bool disti_route_same_names(const struct route_cards *cards, int rank);

/* The address in that slot of a card; NULL: there is none, or the card is nonsense. */
const unsigned char *disti_route_address(const struct route_cards *cards, int rank, int slot,
                                         size_t *bytes_p);

#endif
