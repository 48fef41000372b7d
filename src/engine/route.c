/* SPDX-License-Identifier: BSD-3-Clause */
/* Which transport reaches which peer. */
#include "base/config.h"
#include "base/log.h"
#include "engine/state.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One transport's address as the ranks exchange it; bytes 0: it is not open there. */
struct route_address {
    uint32_t bytes;
    uint8_t blob[DIST_ADDRESS_MAX];
};

/* What a rank lays before the others. */
struct route_card {
    struct disti_tune_offer offer;
    struct route_address addresses[ENGINE_TRANSPORTS_MAX];
};

/* Is the transport among those that DIST_TRANSPORT allows (all, if it is not set)? */
static bool route_allowed(const char *name)
{
    const char *list = disti_env("DIST_TRANSPORT");
    char item[64];

    if (!list)
        return true;
    for (int i = 0; disti_list_item(list, ',', i, item, sizeof(item)); i++) {
        if (strcmp(item, name) == 0)
            return true;
    }
    return false;
}

/* Every name in DIST_TRANSPORT must be one of this backend's. */
static dist_status route_check_names(const struct dist_transport *const *transports)
{
    const char *list = disti_env("DIST_TRANSPORT");
    char item[64], known[256] = "";
    size_t used = 0;
    int named = 0;

    if (!list)
        return DIST_OK;
    for (int t = 0; transports[t] && used < sizeof(known); t++)
        used += (size_t)snprintf(known + used, sizeof(known) - used, " %s", transports[t]->name);
    for (; disti_list_item(list, ',', named, item, sizeof(item)); named++) {
        int t = 0;

        while (transports[t] && strcmp(transports[t]->name, item) != 0)
            t++;
        if (!transports[t])
            return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                              "DIST_TRANSPORT: this backend has no transport '%s'; it has:%s", item,
                              known);
    }
    return named ? DIST_OK
                 : disti_fail(DIST_ERR_INVALID_ARGUMENT,
                              "DIST_TRANSPORT is '%s', which names no transport; there are:%s",
                              list, known);
}

/* Opens one; a transport that cannot run here is left out, with its reason in `reasons`. */
static dist_status route_open_link(struct dist_engine *engine,
                                   const struct dist_transport *transport, void *context,
                                   char *reasons, size_t reasons_size)
{
    const struct dist_backend_config *config = engine->config;
    struct engine_link *link = &engine->links[engine->link_count];
    char why[256] = "";
    size_t used = strlen(reasons);

    if (transport->probe && transport->probe(why, sizeof(why)) != DIST_OK) {
        snprintf(reasons + used, reasons_size - used, "; %s: %s", transport->name, why);
        disti_info("transport %s is not used: %s", transport->name, why);
        return DIST_OK;
    }
    link->state = calloc(1, transport->state_size);
    if (!link->state)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for transport %s", transport->name);
    link->transport = transport;
    link->config = (struct dist_transport_config){
        .size = sizeof(link->config),
        .rank = config->rank,
        .world_size = config->world_size,
        .timeout_ms = config->timeout_ms,
        .job = config->job,
        .bind_host = config->bind_host,
        .local_ranks = config->local_ranks,
        .host = config->host,
        .context = context,
        .secret = config->secret,
        .secret_bytes = config->secret_bytes,
    };
    engine->link_count++;
    return transport->open(link->state, &link->config);
}

static dist_status route_open_links(struct dist_engine *engine,
                                    const struct dist_engine_config *engine_config, char *reasons,
                                    size_t reasons_size)
{
    const struct dist_transport *const *transports = engine_config->transports;
    dist_status status = route_check_names(transports);

    for (int t = 0; transports[t] && status == DIST_OK; t++) {
        if (engine->link_count == ENGINE_TRANSPORTS_MAX)
            return disti_fail(DIST_ERR_UNSUPPORTED, "a backend may use at most %d transports",
                              ENGINE_TRANSPORTS_MAX);
        if (route_allowed(transports[t]->name))
            status = route_open_link(engine, transports[t], engine_config->transport_context,
                                     reasons, reasons_size);
    }
    return status;
}

/*
 * The slot of a transport in the exchanged table is its place in the backend's list, so
 * that a transport that is missing on one rank shifts nothing.
 */
static int route_slot(const struct dist_engine_config *engine_config,
                      const struct dist_transport *transport)
{
    int slot = 0;

    while (engine_config->transports[slot] != transport)
        slot++;
    return slot;
}

static dist_status route_exchange(struct dist_engine *engine,
                                  const struct dist_engine_config *engine_config,
                                  const struct disti_tune_offer *offer, struct route_card *all)
{
    const struct dist_backend_config *config = engine->config;
    struct route_card mine;

    memset(&mine, 0, sizeof(mine));
    mine.offer = *offer;
    for (int i = 0; i < engine->link_count; i++) {
        struct engine_link *link = &engine->links[i];
        struct route_address *address = &mine.addresses[route_slot(engine_config, link->transport)];
        size_t bytes = 0;
        dist_status status = link->transport->address(link->state, address->blob, &bytes);

        if (status != DIST_OK)
            return status;
        address->bytes = (uint32_t)bytes;
    }
    return config->all_gather(config->all_gather_arg, &mine, all, sizeof(mine));
}

/* Seconds for a message of 64 KiB: between the latency and the bandwidth of a link. */
static double route_cost(const struct dist_reach *reach)
{
    return reach->latency_ns * 1e-9 + 65536.0 / (reach->bytes_per_second + 1);
}

static dist_status route_settle(struct dist_engine *engine,
                                const struct dist_engine_config *engine_config, int peer,
                                const struct route_address *theirs, const char *reasons)
{
    double best = DBL_MAX;
    struct engine_link *link;
    int chosen = -1;

    for (int i = 0; i < engine->link_count; i++) {
        const struct dist_transport *transport = engine->links[i].transport;
        const struct route_address *address = &theirs[route_slot(engine_config, transport)];
        struct dist_reach reach = {0};

        if (!address->bytes || address->bytes > DIST_ADDRESS_MAX)
            continue;
        if (transport->reach(engine->links[i].state, address->blob, address->bytes, &reach) !=
                DIST_OK ||
            route_cost(&reach) >= best)
            continue;
        best = route_cost(&reach);
        chosen = i;
    }
    if (chosen < 0)
        return disti_fail(DIST_ERR_UNSUPPORTED,
                          "rank %d has no transport that reaches rank %d (DIST_TRANSPORT=%s%s)",
                          engine->config->rank, peer,
                          disti_env("DIST_TRANSPORT") ? disti_env("DIST_TRANSPORT") : "not set",
                          reasons);
    link = &engine->links[chosen];
    link->peers++;
    engine->route[peer] = (uint8_t)chosen;
    disti_info("rank %d is reached via %s", peer, link->transport->name);
    return link->transport->connect(link->state, peer,
                                    theirs[route_slot(engine_config, link->transport)].blob,
                                    theirs[route_slot(engine_config, link->transport)].bytes);
}

dist_status disti_route_open(struct dist_engine *engine,
                             const struct dist_engine_config *engine_config,
                             struct disti_tune_offer *offer)
{
    int ranks = engine->config->world_size;
    struct route_card *all = calloc((size_t)ranks, sizeof(*all));
    char reasons[512] = "";
    dist_status status = DIST_OK;

    engine->route = calloc((size_t)ranks, 1);
    if (!all || !engine->route) {
        status = disti_fail(DIST_ERR_NO_MEMORY, "no memory for the addresses of %d ranks", ranks);
        goto out;
    }
    if (ranks > 1)
        status = route_open_links(engine, engine_config, reasons, sizeof(reasons));
    if (status == DIST_OK && ranks > 1)
        status = route_exchange(engine, engine_config, offer, all);
    if (status == DIST_OK && ranks > 1)
        *offer = all[0].offer;
    for (int peer = 0; peer < ranks && status == DIST_OK; peer++) {
        if (peer != engine->config->rank)
            status = route_settle(engine, engine_config, peer, all[peer].addresses, reasons);
    }
out:
    free(all);
    return status;
}

void disti_route_close(struct dist_engine *engine)
{
    for (int i = 0; i < engine->link_count; i++) {
        engine->links[i].transport->close(engine->links[i].state);
        free(engine->links[i].state);
    }
    engine->link_count = 0;
    free(engine->route);
    engine->route = NULL;
}
