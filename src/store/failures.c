/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups that failed: whoever comes to one later is told at once. */
#include "store/server.h"

#include <stdlib.h>
#include <string.h>

const struct store_failure *disti_store_failures_find(const struct disti_store_server *server,
                                                      int32_t group)
{
    const struct store_failure *failure = server->failures;

    while (failure && failure->group != group)
        failure = failure->next;
    return failure;
}

static void failures_drop_oldest(struct disti_store_server *server)
{
    struct store_failure **entry = &server->failures;

    while ((*entry)->next)
        entry = &(*entry)->next;
    free(*entry);
    *entry = NULL;
    server->failure_count--;
}

void disti_store_failures_add(struct disti_store_server *server, const struct disti_notice *notice)
{
    struct store_failure *failure = calloc(1, sizeof(*failure));

    if (!failure)
        return;
    failure->group = notice->group;
    failure->rank = notice->rank;
    failure->aborted = notice->aborted;
    memcpy(failure->news, notice->text, sizeof(failure->news));
    failure->next = server->failures;
    server->failures = failure;
    if (++server->failure_count > STORE_FAILURES_MAX)
        failures_drop_oldest(server);
}

void disti_store_failures_clear(struct disti_store_server *server)
{
    while (server->failures) {
        struct store_failure *failure = server->failures;

        server->failures = failure->next;
        free(failure);
    }
    server->failure_count = 0;
}
