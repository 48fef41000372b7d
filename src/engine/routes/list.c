/* SPDX-License-Identifier: BSD-3-Clause */
/* Which transports there are for an engine: the backend's, and what DIST_TRANSPORT names besides.
 */
#include "engine/routes/route.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/settings/config.h"

#include <stdio.h>
#include <string.h>

#define LIST_NAME 64

bool disti_route_allowed(const char *name)
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
        return disti_fail(
            DIST_ERR_INVALID_ARGUMENT,
            "DIST_TRANSPORT: this backend has no transport '%s'; it has:%s. As a module: %s", name,
            own, why);
    }
    status = list_add(list, transport);
    if (status == DIST_OK)
        list->names = disti_hash_text(disti_hash_text(list->names, name), ",");
    return status;
}

static dist_status list_add_named(const struct dist_host *host, const char *names,
                                  struct route_list *list)
{
    dist_status status = DIST_OK;
    char item[LIST_NAME], own[256];
    int named = 0;

    for (; status == DIST_OK && disti_list_item(names, ',', named, item, sizeof(item)); named++) {
        if (!list_has(list, item))
            status = list_add_other(host, item, list);
    }
    if (status != DIST_OK || named)
        return status;
    list_own_names(list, own, sizeof(own));
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "DIST_TRANSPORT is '%s', which names no transport; choose from:%s", names,
                      own);
}

dist_status disti_route_list(const struct dist_backend_config *config,
                             const struct dist_engine_config *engine_config,
                             struct route_list *list_p)
{
    const char *names = disti_env("DIST_TRANSPORT");
    dist_status status = DIST_OK;

    *list_p = (struct route_list){.context = engine_config->transport_context};
    for (int t = 0; engine_config->transports[t] && status == DIST_OK; t++)
        status = list_add(list_p, engine_config->transports[t]);
    list_p->own = list_p->count;
    return status == DIST_OK && names ? list_add_named(config->host, names, list_p) : status;
}
