/* SPDX-License-Identifier: BSD-3-Clause */
/* A group: creation, opening with a backend, identity, monitored barrier, freeing. */
#include "core/group.h"
#include "backends/registry.h"
#include "base/clock.h"
#include "device/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Copies the members' places and renumbers their nodes from 0 in the order of the ranks. */
static dist_status group_copy_places(struct dist_group *group)
{
    const struct dist_place *places = group->world->places;
    int *renumbered = malloc((size_t)group->world->size * sizeof(*renumbered));
    int nodes = 0;

    if (!renumbered)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d ranks", group->world->size);
    for (int r = 0; r < group->world->size; r++)
        renumbered[r] = -1;
    for (int r = 0; r < group->world_size; r++) {
        int node = places[group->members[r]].node;

        if (renumbered[node] < 0)
            renumbered[node] = nodes++;
        group->places[r] = places[group->members[r]];
        group->places[r].node = renumbered[node];
    }
    free(renumbered);
    return DIST_OK;
}

/* Sets the rank, the local rank, the number of local ranks and `whole`. */
static void group_count(struct dist_group *group)
{
    group->whole = group->world_size == group->world->size;
    for (int r = 0; r < group->world_size; r++) {
        if (group->members[r] == group->world->rank)
            group->rank = r;
        group->whole = group->whole && group->members[r] == r;
    }
    for (int r = 0; r < group->world_size; r++) {
        if (group->places[r].node != group->places[group->rank].node)
            continue;
        if (r < group->rank)
            group->local_rank++;
        group->local_ranks++;
    }
}

static dist_status group_alloc(struct dist_group *group)
{
    const char *job = group->world->bootstrap.job;
    size_t ranks = (size_t)group->world_size, job_bytes = strlen(job) + 16;

    group->members = calloc(ranks, sizeof(*group->members));
    group->places = calloc(ranks, sizeof(*group->places));
    group->news = calloc(1, sizeof(*group->news));
    group->job = calloc(1, job_bytes);
    group->cause = calloc(1, GROUP_TEXT);
    group->lost_text = calloc(1, GROUP_TEXT);
    if (!group->members || !group->places || !group->news || !group->job || !group->cause ||
        !group->lost_text)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a group of %d ranks",
                          group->world_size);
    snprintf(group->job, job_bytes, group->number ? "%s/%u" : "%s", job, group->number);
    return DIST_OK;
}

dist_status disti_group_new(struct disti_world *world, const struct disti_group_spec *spec,
                            struct dist_group **group_p)
{
    struct dist_group *group = disti_group_blank();
    dist_status status;

    if (!group)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a process group");
    group->world = world;
    group->log = &world->log;
    group->number = spec->number;
    group->world_size = spec->size;
    group->timeout_ms = spec->timeout_ms;
    group->stream = spec->stream;
    group->meanwhile = spec->meanwhile;
    group->meanwhile_arg = spec->meanwhile_arg;
    group->open_by_ns = spec->until_ns;
    group->policy = world->policy;
    group->lost_rank = -1;
    status = disti_group_open_works(group);
    if (status != DIST_OK) {
        disti_group_retire(group);
        return status;
    }
    status = group_alloc(group);
    if (status == DIST_OK) {
        group->reserve = calloc(2 * (size_t)group->world_size, sizeof(*group->reserve));
        group->spare_turn = disti_turn_new();
        status = group->reserve && group->spare_turn
                     ? DIST_OK
                     : disti_fail(DIST_ERR_NO_MEMORY, "no memory for a group of %d ranks",
                                  group->world_size);
    }
    for (int r = 0; status == DIST_OK && r < spec->size; r++)
        group->members[r] = spec->members ? spec->members[r] : r;
    if (status == DIST_OK)
        status = group_copy_places(group);
    if (status != DIST_OK) {
        disti_group_free(group);
        return status;
    }
    group_count(group);
    disti_news_subscribe(group);
    *group_p = group;
    return DIST_OK;
}

struct disti_party disti_group_party(const struct dist_group *group)
{
    return (struct disti_party){.group = (int32_t)group->number,
                                .ranks = group->whole ? NULL : group->members,
                                .count = group->world_size};
}

static struct disti_party group_opening(const struct dist_group *group)
{
    struct disti_party party = disti_group_party(group);

    party.what = "for the other ranks to open the group";
    return party;
}

/* The all-gather that backends get: through the store, with a new key for each call. */
static dist_status group_all_gather(void *arg, const void *in, void *out, size_t bytes)
{
    struct dist_group *group = arg;
    const struct disti_party party = group_opening(group);
    int timeout_ms = group->open_by_ns ? disti_left_ms(group->open_by_ns) : group->timeout_ms;
    char key[64];

    if (group->world_size == 1) {
        if (bytes)
            memcpy(out, in, bytes);
        return DIST_OK;
    }
    snprintf(key, sizeof(key), "dist/gather/%u/%u", group->number, group->gathers++);
    return disti_store_all_gather(group->world->bootstrap.store, &party, key, in, out, bytes,
                                  timeout_ms);
}

/* Broadcast from rank 0 through the store, with the group's rank set: with the world's rank set the
 * broadcast would fail when any rank of the world is lost. */
static dist_status group_broadcast(void *arg, void *data, size_t bytes)
{
    struct dist_group *group = arg;
    const struct disti_party party = group_opening(group);
    int timeout_ms = group->open_by_ns ? disti_left_ms(group->open_by_ns) : group->timeout_ms;
    char key[64];

    if (group->world_size == 1)
        return DIST_OK;
    snprintf(key, sizeof(key), "dist/tell/%u/%u", group->number, group->gathers++);
    return disti_store_broadcast(group->world->bootstrap.store, &party, key, data, bytes,
                                 timeout_ms);
}

static dist_status group_lost(void *arg)
{
    struct dist_group *group = arg;
    struct disti_notice notice;
    char name[GROUP_NAME];

    if (!disti_news_read(group, &notice))
        return DIST_OK;
    return disti_fail(notice.status ? notice.status : DIST_ERR_PEER_LOST,
                      "%s: %s (while the ranks opened the group)", disti_group_name(group, name),
                      notice.text);
}

/* Returns how many world ranks below `below` are on this process's node. */
static int group_world_local(const struct dist_group *group, int below)
{
    const struct disti_world *world = group->world;
    int count = 0;

    for (int r = 0; r < below; r++)
        count += world->places[r].node == world->places[world->rank].node;
    return count;
}

/* Returns disti_shared_cpus for the members. Without memory returns 0, which only makes
 * predicted costs less accurate. */
static int group_shared_cpus(const struct dist_group *group)
{
    struct disti_locality *members = calloc((size_t)group->world_size, sizeof(*members));
    int cpus;

    for (int r = 0; members && r < group->world_size; r++)
        members[r] = group->world->peers[group->members[r]].locality;
    cpus = members ? disti_shared_cpus(members, group->world_size) : 0;
    free(members);
    return cpus;
}

dist_status disti_group_open(struct dist_group *group, const struct dist_backend *backend)
{
    const struct disti_store *store = group->world->bootstrap.store;
    void *state = calloc(1, backend->state_size ? backend->state_size : 1);
    dist_status status;

    if (!group->number)
        backend = disti_backend_faulty(backend);
    group->config = (struct dist_backend_config){
        .size = sizeof(group->config),
        .host = disti_host_faulty(),
        .rank = group->rank,
        .world_size = group->world_size,
        .local_rank = group->local_rank,
        .local_ranks = group->local_ranks,
        .timeout_ms = group->timeout_ms,
        .group = group->number,
        .job = group->job,
        .bind_host = group->world->bootstrap.bind_host,
        .places = group->places,
        .all_gather = group_all_gather,
        .all_gather_arg = group,
        .members = group->number ? group->members : NULL,
        .reproducible = group->world->reproducible,
        .broadcast = group_broadcast,
        .device = group->world->device,
        .crowded = group->policy.crowded,
        .shared_cpus = group_shared_cpus(group),
        .world_local_rank = group_world_local(group, group->world->rank),
        .world_job = group->world->bootstrap.job,
        .secret = store ? disti_store_key(store) : NULL,
        .secret_bytes = store ? DISTI_STORE_KEY : 0,
        .world_rank = group->world->rank,
        .world_ranks = group->world->size,
        .world_local_ranks = group_world_local(group, group->world->size),
        .world_timeout_ms = group->world->timeout_ms,
        .leave = disti_group_abandon,
        .lost = group_lost,
    };
    if (!state)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for backend %s", backend->name);
    group->backend = backend;
    group->state = state;
    group->host_only = !backend->join && !disti_driver_possible();
    status = backend->open(state, &group->config);
    /* No rank may start an operation before all ranks have opened the backend. */
    if (status == DIST_OK && !backend->meets)
        status = group_all_gather(group, NULL, NULL, 0);
    group->open_by_ns = 0;
    return status;
}

void disti_group_free(struct dist_group *group)
{
    if (!group)
        return;
    disti_flight_remove_group(group);
    disti_news_unsubscribe(group);
    if (group->state) {
        disti_memory_reclaim(group);
        group->backend->close(group->state);
        free(group->state);
    }
    free(group->members);
    free(group->places);
    free(group->job);
    free(group->news);
    free(group->leaver);
    free(group->reserve);
    disti_turns_free(group);
    disti_group_release(group);
}

const char *disti_group_name(const struct dist_group *group, char text[GROUP_NAME])
{
    if (group->number == 0)
        snprintf(text, GROUP_NAME, "rank %d", group->rank);
    else
        snprintf(text, GROUP_NAME, "rank %d of group %u (world rank %d)", group->rank,
                 group->number, group->world->rank);
    return text;
}

int disti_group_news_fd(const struct dist_group *group)
{
    const struct disti_store *store = group->world->bootstrap.store;

    return store ? disti_store_fd(store) : -1;
}

/* Identity of a group and its ranks */

/* True also in a forked child, where the parent's groups can still be queried: these functions
 * only read memory. */
static bool identity_is_known(const struct dist_group *group)
{
    return group && (!atomic_load(&group->destroyed) || group->inherited);
}

int dist_get_rank(const dist_group *group)
{
    return identity_is_known(group) ? group->rank : -1;
}

int dist_get_world_size(const dist_group *group)
{
    return identity_is_known(group) ? group->world_size : -1;
}

int dist_get_local_rank(const dist_group *group)
{
    return identity_is_known(group) ? group->local_rank : -1;
}

dist_status dist_get_place(const dist_group *group, int rank, struct dist_place *place_p)
{
    if (!identity_is_known(group))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_get_place: group is NULL or was destroyed");
    if (rank < 0 || rank >= group->world_size)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_get_place: there is no rank %d in the group (valid: 0 to %d)", rank,
                          group->world_size - 1);
    if (!place_p)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_get_place: place_p is NULL");
    *place_p = group->places[rank];
    return DIST_OK;
}

const char *dist_get_backend(const dist_group *group)
{
    return identity_is_known(group) ? group->backend->name : "";
}

int dist_get_global_rank(const dist_group *group, int group_rank)
{
    if (!identity_is_known(group) || group_rank < 0 || group_rank >= group->world_size)
        return -1;
    return group->members[group_rank];
}

int dist_get_group_rank(const dist_group *group, int global_rank)
{
    if (!identity_is_known(group))
        return -1;
    if (group->whole)
        return global_rank >= 0 && global_rank < group->world_size ? global_rank : -1;
    for (int r = 0; r < group->world_size; r++) {
        if (group->members[r] == global_rank)
            return r;
    }
    return -1;
}

/* Monitored barrier: through the store, which can name the missing ranks. */

/* Assigns the number of this barrier, which is equal on every rank. */
static dist_status monitor_begin(struct dist_group *group, uint32_t *number_p)
{
    dist_status status = DIST_OK;

    disti_group_enter(group);
    disti_group_check_abort(group);
    if (group->failed)
        status = disti_group_refuse(group, "monitored_barrier");
    else
        *number_p = group->barriers++;
    disti_group_exit(group);
    return status;
}

dist_status dist_set_timeout(dist_group *group, int timeout_ms)
{
    dist_status status = disti_group_check(group, "dist_set_timeout");

    if (status != DIST_OK)
        return status;
    if (timeout_ms < 1)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "set_timeout: timeout_ms is %d: pass 1 or more milliseconds", timeout_ms);
    group->timeout_ms = timeout_ms;
    return DIST_OK;
}

dist_status dist_monitored_barrier(dist_group *group, int timeout_ms)
{
    uint32_t number = 0;
    dist_status status = disti_group_check(group, "dist_monitored_barrier");
    struct disti_party party;
    char key[64];

    if (status != DIST_OK)
        return status;
    if (timeout_ms < 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "monitored_barrier: timeout_ms is %d: pass milliseconds, or 0 for the "
                          "group's timeout",
                          timeout_ms);
    status = disti_work_may_wait("dist_monitored_barrier");
    if (status == DIST_OK)
        status = monitor_begin(group, &number);
    if (status != DIST_OK || group->world_size == 1)
        return status;
    disti_log_use(group->log);
    party = disti_group_party(group);
    party.what = "in monitored_barrier";
    snprintf(key, sizeof(key), "dist/barrier/%u/%u", group->number, number);
    status = disti_store_arrive(group->world->bootstrap.store, &party, key,
                                timeout_ms ? timeout_ms : group->timeout_ms);
    disti_log_use(NULL);
    return status;
}

/* Rank lists for creating a group, with a preallocated pair for a rank without memory. */

/* Returns false if another thread uses the reserve. */
static bool lists_take_reserve(struct dist_group *parent)
{
    bool taken;

    pthread_mutex_lock(&parent->world->lock);
    taken = parent->reserve_taken;
    parent->reserve_taken = true;
    pthread_mutex_unlock(&parent->world->lock);
    return !taken;
}

dist_status disti_group_lists_alloc(struct dist_group *parent, struct disti_group_lists *lists)
{
    const size_t ranks = (size_t)parent->world_size;

    lists->ranks = calloc(2 * ranks, sizeof(*lists->ranks));
    lists->is_reserve = !lists->ranks;
    if (lists->is_reserve && lists_take_reserve(parent))
        lists->ranks = parent->reserve;
    if (!lists->ranks)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for lists of %d ranks to create a group",
                          parent->world_size);
    lists->seen = lists->ranks + ranks;
    if (lists->is_reserve)
        memset(lists->seen, 0, ranks * sizeof(*lists->seen));
    return DIST_OK;
}

void disti_group_lists_free(struct dist_group *parent, const struct disti_group_lists *lists)
{
    if (!lists->is_reserve) {
        free(lists->ranks);
        return;
    }
    pthread_mutex_lock(&parent->world->lock);
    parent->reserve_taken = false;
    pthread_mutex_unlock(&parent->world->lock);
}
