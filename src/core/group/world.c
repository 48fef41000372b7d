/* SPDX-License-Identifier: BSD-3-Clause */
/* The world: the ranks tell each other where they are and what they want. */
#include "core/group/world.h"

#include "backends/registry.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/doorbell.h"
#include "base/hash.h"
#include "base/settings/config.h"
#include "base/settings/variables.h"
#include "endpoint/endpoint.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the names of unknown variables, in a warning. */
#define WORLD_UNKNOWN 1024
#define WORLD_UNKNOWN_TEXT                                                                         \
    "the environment of rank %d has variables that libdist does not know: %s. See dist-env(7)"

dist_status disti_world_new(struct disti_world **world_p)
{
    struct disti_world *world = calloc(1, sizeof(*world));

    if (!world)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a process group");
    pthread_mutex_init(&world->lock, NULL);
    world->rank = world->log.rank = -1;
    *world_p = world;
    return DIST_OK;
}

void disti_world_lost(const struct disti_world *world)
{
    if (world->peers_lost)
        world->peers_lost();
}

void disti_world_close(struct disti_world *world, int linger_ms)
{
    if (!world)
        return;
    disti_endpoints_close(world->bootstrap.job, world->rank);
    disti_doorbell_close();
    disti_bootstrap_close(&world->bootstrap, linger_ms);
    while (world->gone) {
        struct world_gone *gone = world->gone;

        world->gone = gone->next;
        free(gone);
    }
    pthread_mutex_destroy(&world->lock);
    free(world->peers);
    free(world->places);
    free(world->watched);
    free(world);
}

uint64_t disti_world_choice(const struct disti_world *world, char text[DISTI_WORLD_CHOICE])
{
    const char *algo = disti_env("DIST_ALGO"), *segments = disti_env("DIST_SEGMENTS");
    const char *mpi = disti_env("DIST_MPI_COLL"), *checksum = disti_env("DIST_CHECKSUM");

    memset(text, 0, DISTI_WORLD_CHOICE);
    snprintf(text, DISTI_WORLD_CHOICE,
             "DIST_REPRODUCIBLE=%d DIST_CHECKSUM=%.8s DIST_SEGMENTS=%.32s DIST_MPI_COLL=%.32s "
             "DIST_ALGO=%s",
             world->reproducible, checksum ? checksum : "", segments ? segments : "",
             mpi ? mpi : "", algo ? algo : "");
    return disti_hash_text(disti_hash_text(DISTI_HASH_START, text), algo ? algo : "");
}

/* Rank `other` has other settings than this one. All ranks see that some differ, and tell them. */
static dist_status world_choices_differ(const struct disti_world *world, int other)
{
    char mine[DISTI_WORLD_CHOICE], *all = calloc((size_t)world->size, DISTI_WORLD_CHOICE);
    dist_status status = DIST_OK;

    disti_world_choice(world, mine);
    if (all)
        status = disti_store_all_gather(world->bootstrap.store, NULL, "dist/choice", mine, all,
                                        DISTI_WORLD_CHOICE, world->timeout_ms);
    if (status == DIST_OK)
        status = disti_fail(DIST_ERR_MISMATCH,
                            "rank %d has the settings \"%s\", but rank %d (host %.63s) has "
                            "\"%.223s\": give all ranks the same " DISTI_WORLD_CHOICES,
                            world->rank, mine, other, world->peers[other].locality.host,
                            all ? all + (size_t)other * DISTI_WORLD_CHOICE : "others");
    free(all);
    return status;
}

/* One rank tells what others have too: the lowest that has just these. Of a slip of the pen even a
 * user who has asked for no log hears, once. */
static void world_warn_of_unknown(const struct disti_world *world, const char *names, bool meant)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    uint64_t unknown = world->peers[world->rank].unknown;
    int first = 0;

    while (world->peers[first].unknown != unknown)
        first++;
    if (!unknown || first != world->rank)
        return;
    if (meant && !atomic_flag_test_and_set(&told))
        disti_notice(WORLD_UNKNOWN_TEXT, world->rank, names);
    else
        disti_warn(WORLD_UNKNOWN_TEXT, world->rank, names);
}

/* Every rank must have asked for the same backend and the same algorithms. */
static dist_status world_check_peers(const struct disti_world *world)
{
    const struct world_peer *mine = &world->peers[world->rank];
    int other = -1;

    for (int r = 0; r < world->size; r++) {
        const struct world_peer *peer = &world->peers[r];

        if (strncmp(peer->backend, mine->backend, sizeof(mine->backend)) != 0)
            return disti_fail(DIST_ERR_MISMATCH,
                              "rank %d wants backend %s, but rank %d (host %.63s) wants %.31s: "
                              "name the same backend on all ranks",
                              world->rank, mine->backend, r, peer->locality.host, peer->backend);
        if (peer->choice != mine->choice && other < 0)
            other = r;
    }
    return other < 0 ? DIST_OK : world_choices_differ(world, other);
}

static dist_status world_number_nodes(struct disti_world *world)
{
    int ranks = world->size;
    struct disti_locality *all = disti_calloc(ranks, sizeof(*all));

    if (!all)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d ranks", ranks);
    for (int r = 0; r < ranks; r++) {
        struct disti_locality *locality = &world->peers[r].locality;

        locality->host[sizeof(locality->host) - 1] = '\0'; /* it came from another process */
        all[r] = *locality;
        world->places[r] = locality->place;
    }
    disti_number_nodes(all, ranks, world->places);
    disti_wait_policy_init(&world->policy, disti_crowded(all, ranks, world->rank));
    free(all);
    return DIST_OK;
}

static dist_status world_exchange(struct disti_world *world, const struct world_peer *mine)
{
    const struct disti_party all = {
        .group = DISTI_NO_GROUP, .what = "for all ranks to join", .since_ns = world->since_ns};

    if (world->size == 1) {
        world->peers[0] = *mine;
        return DIST_OK;
    }
    return disti_store_all_gather(world->bootstrap.store, &all, "dist/meet", mine, world->peers,
                                  sizeof(*mine), disti_left_ms(world->join_by_ns));
}

/* Where the launcher does not say how many ranks are on this machine, all may be. */
static dist_status world_discover(const struct disti_world *world, struct disti_locality *locality)
{
    int local = world->bootstrap.local_rank, here = world->bootstrap.local_world_size;

    if (local < 0 || here <= local)
        return disti_discover(local < 0 ? world->rank : local, world->size, locality);
    return disti_discover(local, here, locality);
}

const char *disti_world_elsewhere(const struct disti_world *world, int rank)
{
    const struct disti_locality *mine = &world->peers[world->rank].locality;
    const struct disti_locality *peer = &world->peers[rank].locality;

    return mine->machine == peer->machine && mine->processes != peer->processes
               ? " in another PID namespace"
               : "";
}

size_t disti_world_name(const struct disti_world *world, int rank, char *text, size_t size)
{
    const struct disti_locality *peer = &world->peers[rank].locality;

    return disti_text(text, size, "rank %d (host %s, pid %d%s)", rank, peer->host, (int)peer->pid,
                      disti_world_elsewhere(world, rank));
}

bool disti_world_sees_process(const struct disti_world *world, int rank, int of)
{
    const struct disti_locality *a = &world->peers[rank].locality;
    const struct disti_locality *b = &world->peers[of].locality;

    return a->machine == b->machine && a->processes == b->processes && a->processes;
}

dist_status disti_world_meet(struct disti_world *world, const char *backend_name)
{
    int ranks = world->size;
    char choice[DISTI_WORLD_CHOICE], unknown[WORLD_UNKNOWN];
    struct world_peer mine;
    dist_status status;
    bool meant;

    world->peers = calloc((size_t)ranks, sizeof(*world->peers));
    world->places = calloc((size_t)ranks, sizeof(*world->places));
    world->watched = calloc((size_t)ranks, sizeof(*world->watched));
    if (!world->peers || !world->places || !world->watched)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d ranks", ranks);
    memset(&mine, 0, sizeof(mine));
    snprintf(mine.backend, sizeof(mine.backend), "%s", backend_name);
    mine.choice = disti_world_choice(world, choice);
    mine.unknown =
        disti_variables_unknown(disti_module_has_variable, unknown, sizeof(unknown), &meant);
    status = world_discover(world, &mine.locality);
    if (status == DIST_OK)
        status = world_exchange(world, &mine);
    if (status == DIST_OK)
        world_warn_of_unknown(world, unknown, meant);
    if (status == DIST_OK)
        status = disti_bootstrap_correct_host(&world->bootstrap);
    if (status == DIST_OK)
        status = world_check_peers(world);
    return status == DIST_OK ? world_number_nodes(world) : status;
}
