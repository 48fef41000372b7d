/* SPDX-License-Identifier: BSD-3-Clause */
/* A group: made from a world, opened with a backend, closed and freed; and what it tells. */
#include "core/group.h"

#include "backends/registry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Counts the ranks on this machine and this rank's place among them. */
static void group_count_local(struct dist_group *group)
{
    for (int r = 0; r < group->world_size; r++) {
        if (group->places[r].node != group->places[group->rank].node)
            continue;
        if (r < group->rank)
            group->local_rank++;
        group->local_ranks++;
    }
}

dist_status disti_group_new(struct disti_world *world, struct dist_group **group_p)
{
    struct dist_group *group = calloc(1, sizeof(*group));
    dist_status status;

    if (!group)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a process group");
    status = disti_group_open_works(group);
    group->world = world;
    group->log = &world->log;
    group->rank = world->rank;
    group->world_size = world->size;
    group->timeout_ms = world->timeout_ms;
    group->places = world->places;
    group->policy = world->policy;
    group->lost_rank = -1;
    group->cause = calloc(1, GROUP_TEXT);
    group->lost_text = calloc(1, GROUP_TEXT);
    if (!group->cause || !group->lost_text)
        status = disti_fail(DIST_ERR_NO_MEMORY, "no memory for a process group");
    if (status != DIST_OK) {
        disti_group_free(group);
        return status;
    }
    group_count_local(group);
    *group_p = group;
    return DIST_OK;
}

/* The all-gather that backends get: through the store, a fresh key each time. */
static dist_status group_all_gather(void *arg, const void *in, void *out, size_t bytes)
{
    struct dist_group *group = arg;
    char key[64];

    if (group->world_size == 1) {
        if (bytes)
            memcpy(out, in, bytes);
        return DIST_OK;
    }
    snprintf(key, sizeof(key), "dist/gather/%u", group->gathers++);
    return disti_store_all_gather(group->world->bootstrap.store, key, in, out, bytes,
                                  group->timeout_ms);
}

dist_status disti_group_open(struct dist_group *group, const struct dist_backend *backend)
{
    void *state = calloc(1, backend->state_size ? backend->state_size : 1);
    dist_status status;

    group->config = (struct dist_backend_config){
        .size = sizeof(group->config),
        .host = &disti_host,
        .rank = group->rank,
        .world_size = group->world_size,
        .local_rank = group->local_rank,
        .local_ranks = group->local_ranks,
        .timeout_ms = group->timeout_ms,
        .group = 0,
        .job = group->world->bootstrap.job,
        .bind_host = group->world->bootstrap.bind_host,
        .places = group->places,
        .all_gather = group_all_gather,
        .all_gather_arg = group,
        .reproducible = group->world->reproducible,
    };
    if (!state)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for backend %s", backend->name);
    group->backend = backend;
    group->state = state;
    status = backend->open(state, &group->config);
    if (status == DIST_OK) /* nobody begins before all are open */
        status = group_all_gather(group, NULL, NULL, 0);
    return status;
}

void disti_group_free(struct dist_group *group)
{
    if (!group)
        return;
    if (group->state) {
        group->backend->close(group->state);
        free(group->state);
    }
    disti_group_orphan(group);
}

int disti_group_news_fd(const struct dist_group *group)
{
    const struct disti_store *store = group->world->bootstrap.store;

    return store ? disti_store_fd(store) : -1;
}

int dist_get_rank(const dist_group *group)
{
    return group ? group->rank : -1;
}

int dist_get_world_size(const dist_group *group)
{
    return group ? group->world_size : -1;
}

int dist_get_local_rank(const dist_group *group)
{
    return group ? group->local_rank : -1;
}

const char *dist_get_backend(const dist_group *group)
{
    return group ? group->backend->name : "";
}
