/* SPDX-License-Identifier: BSD-3-Clause */
/* Which transports an engine has to choose from; private to this floor. */
#ifndef DISTI_ENGINE_ROUTE_H
#define DISTI_ENGINE_ROUTE_H

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

/* Is the transport among those that DIST_TRANSPORT allows (all, if it is not set)? */
bool disti_route_allowed(const char *name);

#endif
