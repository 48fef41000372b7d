/* SPDX-License-Identifier: BSD-3-Clause */
/* Joining, second half: the ranks tell each other where they are, then open the backend. */
#include "backends/registry.h"
#include "base/config.h"
#include "core/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The all-gather that backends get: through the store, a fresh key each time. */
static dist_status open_all_gather(void *arg, const void *in, void *out, size_t bytes)
{
    struct dist_group *group = arg;
    char key[64];

    if (group->world_size == 1) {
        if (bytes)
            memcpy(out, in, bytes);
        return DIST_OK;
    }
    snprintf(key, sizeof(key), "dist/gather/%u", group->gathers++);
    return disti_store_all_gather(group->bootstrap.store, key, in, out, bytes, group->timeout_ms);
}

/* Ranks with different algorithms would send each other messages that never meet. */
static void open_note_choice(struct group_peer *mine)
{
    const char *algo = disti_env("DIST_ALGO"), *segments = disti_env("DIST_SEGMENTS");

    snprintf(mine->choice, sizeof(mine->choice), "DIST_ALGO=%s DIST_SEGMENTS=%s", algo ? algo : "",
             segments ? segments : "");
}

/* Every rank must have asked for the same backend and the same algorithms. */
static dist_status open_check_peers(const struct dist_group *group)
{
    const struct group_peer *mine = &group->peers[group->rank];

    for (int r = 0; r < group->world_size; r++) {
        const struct group_peer *peer = &group->peers[r];

        if (strncmp(peer->backend, mine->backend, sizeof(mine->backend)) != 0)
            return disti_fail(
                DIST_ERR_MISMATCH,
                "rank %d wants backend %s, but rank %d (host %.63s) wants %.31s: give "
                "all ranks the same",
                group->rank, mine->backend, r, peer->locality.host, peer->backend);
        if (strncmp(peer->choice, mine->choice, sizeof(mine->choice)) != 0)
            return disti_fail(DIST_ERR_MISMATCH,
                              "rank %d has the settings \"%s\", but rank %d (host %.63s) has "
                              "\"%.127s\": give all ranks the same DIST_ALGO and DIST_SEGMENTS",
                              group->rank, mine->choice, r, peer->locality.host, peer->choice);
    }
    return DIST_OK;
}

/* Counts the ranks on this machine and this rank's place among them. */
static void open_count_local(struct dist_group *group)
{
    for (int r = 0; r < group->world_size; r++) {
        if (group->places[r].node != group->places[group->rank].node)
            continue;
        if (r < group->rank)
            group->local_rank++;
        group->local_ranks++;
    }
}

static dist_status open_number_nodes(struct dist_group *group)
{
    int ranks = group->world_size;
    struct disti_locality *all = calloc((unsigned)ranks, sizeof(*all));

    if (!all)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d ranks", ranks);
    for (int r = 0; r < ranks; r++) {
        struct disti_locality *locality = &group->peers[r].locality;

        locality->host[sizeof(locality->host) - 1] = '\0'; /* it came from another process */
        all[r] = *locality;
        group->places[r] = locality->place;
    }
    disti_number_nodes(all, ranks, group->places);
    disti_wait_policy_init(&group->policy, disti_crowded(all, ranks, group->rank));
    free(all);
    return DIST_OK;
}

dist_status disti_group_meet(struct dist_group *group, const char *backend_name)
{
    int ranks = group->world_size, local = group->bootstrap.local_rank;
    struct group_peer mine;
    dist_status status;

    group->peers = calloc((size_t)ranks, sizeof(*group->peers));
    group->places = calloc((size_t)ranks, sizeof(*group->places));
    if (!group->peers || !group->places)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d ranks", ranks);
    memset(&mine, 0, sizeof(mine));
    snprintf(mine.backend, sizeof(mine.backend), "%s", backend_name);
    open_note_choice(&mine);
    status = disti_discover(local < 0 ? group->rank : local, ranks, &mine.locality);
    if (status == DIST_OK)
        status = open_all_gather(group, &mine, group->peers, sizeof(mine));
    if (status == DIST_OK)
        status = open_check_peers(group);
    if (status != DIST_OK)
        return status;
    status = open_number_nodes(group);
    if (status != DIST_OK)
        return status;
    open_count_local(group);
    return DIST_OK;
}

dist_status disti_group_open_backend(struct dist_group *group)
{
    void *state = calloc(1, group->backend->state_size ? group->backend->state_size : 1);
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
        .job = group->bootstrap.job,
        .bind_host = group->bootstrap.bind_host,
        .places = group->places,
        .all_gather = open_all_gather,
        .all_gather_arg = group,
    };
    if (!state)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for backend %s", group->backend->name);
    group->state = state;
    status = group->backend->open(state, &group->config);
    if (status == DIST_OK) /* nobody begins before all are open */
        status = open_all_gather(group, NULL, NULL, 0);
    return status;
}
