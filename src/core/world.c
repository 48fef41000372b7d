/* SPDX-License-Identifier: BSD-3-Clause */
/* The world: dist_init_process_group, and the list of the groups that the program has. */
#include "base/settings/config.h"

#include "backends/registry.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/faults.h"
#include "base/hash.h"
#include "base/lock.h"
#include "base/settings/variables.h"
#include "core/group.h"
#include "core/work.h"
#include "endpoint/endpoint.h"
#include "store/store.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Buffer size for the names of unknown variables in a warning. */
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
    while (world->exits) {
        struct world_exit *exited = world->exits;

        world->exits = exited->next;
        free(exited);
    }
    pthread_mutex_destroy(&world->lock);
    free(world->peers);
    free(world->places);
    free(world->watched);
    free(world);
}

uint64_t disti_world_settings(const struct disti_world *world, char text[DISTI_WORLD_SETTINGS_SIZE])
{
    const char *algo = disti_env("DIST_ALGO"), *segments = disti_env("DIST_SEGMENTS");
    const char *mpi = disti_env("DIST_MPI_COLL"), *checksum = disti_env("DIST_CHECKSUM");

    memset(text, 0, DISTI_WORLD_SETTINGS_SIZE);
    snprintf(text, DISTI_WORLD_SETTINGS_SIZE,
             "DIST_REPRODUCIBLE=%d DIST_CHECKSUM=%.8s DIST_SEGMENTS=%.32s DIST_MPI_COLL=%.32s "
             "DIST_ALGO=%s",
             world->reproducible, checksum ? checksum : "", segments ? segments : "",
             mpi ? mpi : "", algo ? algo : "");
    return disti_hash_text(disti_hash_text(DISTI_HASH_START, text), algo ? algo : "");
}

/* Called on all ranks when rank `other` has different settings: exchanges the settings as text
 * for the error message. */
static dist_status world_settings_differ(const struct disti_world *world, int other)
{
    char mine[DISTI_WORLD_SETTINGS_SIZE],
        *all = calloc((size_t)world->size, DISTI_WORLD_SETTINGS_SIZE);
    dist_status status = DIST_OK;

    disti_world_settings(world, mine);
    if (all)
        status = disti_store_all_gather(world->bootstrap.store, NULL, "dist/choice", mine, all,
                                        DISTI_WORLD_SETTINGS_SIZE, world->timeout_ms);
    if (status == DIST_OK)
        status = disti_fail(
            DIST_ERR_MISMATCH,
            "rank %d has the settings \"%s\", but rank %d (host %.63s) has "
            "\"%.223s\": set the same values on all ranks for " DISTI_WORLD_SETTINGS,
            world->rank, mine, other, world->peers[other].locality.host,
            all ? all + (size_t)other * DISTI_WORLD_SETTINGS_SIZE : "different settings");
    free(all);
    return status;
}

/*
 * Warns about unknown DIST_ variables, only on the lowest of the ranks that have the same unknown
 * variables. If a name is probably misspelt (`misspelt`), the warning is printed once even without
 * a log.
 */
static void world_warn_of_unknown(const struct disti_world *world, const char *names, bool misspelt)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    uint64_t unknown = world->peers[world->rank].unknown;
    int first = 0;

    while (world->peers[first].unknown != unknown)
        first++;
    if (!unknown || first != world->rank)
        return;
    if (misspelt && !atomic_flag_test_and_set(&warned))
        disti_notice(WORLD_UNKNOWN_TEXT, world->rank, names);
    else
        disti_warn(WORLD_UNKNOWN_TEXT, world->rank, names);
}

/* Returns ERR_MISMATCH unless all ranks have the same backend and the same settings. */
static dist_status world_check_peers(const struct disti_world *world)
{
    const struct world_peer *mine = &world->peers[world->rank];
    int other = -1;

    for (int r = 0; r < world->size; r++) {
        const struct world_peer *peer = &world->peers[r];

        if (strncmp(peer->backend, mine->backend, sizeof(mine->backend)) != 0)
            return disti_fail(DIST_ERR_MISMATCH,
                              "rank %d requests backend %s, but rank %d (host %.63s) requests "
                              "%.31s: select the same backend on all ranks",
                              world->rank, mine->backend, r, peer->locality.host, peer->backend);
        if (peer->settings != mine->settings && other < 0)
            other = r;
    }
    return other < 0 ? DIST_OK : world_settings_differ(world, other);
}

static dist_status world_number_nodes(struct disti_world *world)
{
    int ranks = world->size;
    struct disti_locality *all = disti_calloc(ranks, sizeof(*all));

    if (!all)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d ranks", ranks);
    for (int r = 0; r < ranks; r++) {
        struct disti_locality *locality = &world->peers[r].locality;

        locality->host[sizeof(locality->host) - 1] = '\0'; /* received from another process */
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

/* Discovers this rank's locality. If the launcher does not set the number of local ranks,
 * assumes that all ranks may be local. */
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

/* Exchanges locality, backend and settings among the ranks and compares them. Call after the
 * rendezvous. Blocks until all ranks have joined, at most for the timeout. */
static dist_status world_meet(struct disti_world *world, const char *backend_name)
{
    int ranks = world->size;
    char settings[DISTI_WORLD_SETTINGS_SIZE], unknown[WORLD_UNKNOWN];
    struct world_peer mine;
    dist_status status;
    bool misspelt;

    world->peers = calloc((size_t)ranks, sizeof(*world->peers));
    world->places = calloc((size_t)ranks, sizeof(*world->places));
    world->watched = calloc((size_t)ranks, sizeof(*world->watched));
    if (!world->peers || !world->places || !world->watched)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d ranks", ranks);
    memset(&mine, 0, sizeof(mine));
    snprintf(mine.backend, sizeof(mine.backend), "%s", backend_name);
    mine.settings = disti_world_settings(world, settings);
    mine.unknown =
        disti_variables_unknown(disti_module_has_variable, unknown, sizeof(unknown), &misspelt);
    status = world_discover(world, &mine.locality);
    if (status == DIST_OK)
        status = world_exchange(world, &mine);
    if (status == DIST_OK)
        world_warn_of_unknown(world, unknown, misspelt);
    if (status == DIST_OK)
        status = disti_bootstrap_correct_host(&world->bootstrap);
    if (status == DIST_OK)
        status = world_check_peers(world);
    return status == DIST_OK ? world_number_nodes(world) : status;
}

/* Joining: dist_init_process_group. */

/* After a failed join: how long the store waits for the other ranks to read the failure. */
#define INIT_LINGER_MS 3000

/* Timeout of the rendezvous that only reports a failure to the other ranks. */
#define INIT_REPORT_MS 2000

/* Limit that the number of open files is raised to: a rank may be connected to every other rank.
 * Not higher, since some programs close every possible descriptor. */
#define INIT_FILES 65536

/* Checks that *number is at least `least` or equals `unset`. Otherwise sets it to `unset`, so
 * that init_meet_and_fail can continue, and returns an error. `meaning` describes `unset`. */
static dist_status init_check_number(const char *name, int *number, int least, int unset,
                                     const char *meaning)
{
    const int value = *number;

    if (value >= least || value == unset)
        return DIST_OK;
    *number = unset;
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "options->%s is %d: it must be %d or more, or %d %s", name, value, least,
                      unset, meaning);
}

/* Copies the options, ignoring unknown members at their end, and checks every number. */
static dist_status init_copy(const struct dist_options *given, struct dist_options *options)
{
    static const struct dist_options fresh = DIST_OPTIONS_INIT;
    dist_status status;

    *options = fresh;
    if (given && (given->size < offsetof(struct dist_options, timeout_ms) || given->size > 65536))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "options->size is %zu: initialise the options with DIST_OPTIONS_INIT",
                          given->size);
    if (given)
        memcpy(options, given, given->size < sizeof(*options) ? given->size : sizeof(*options));
    status = init_check_number("rank", &options->rank, 0, -1, "to ask the launcher");
    if (status == DIST_OK)
        status =
            init_check_number("world_size", &options->world_size, 1, -1, "to ask the launcher");
    if (status == DIST_OK)
        status =
            init_check_number("local_rank", &options->local_rank, 0, -1, "to ask the launcher");
    if (status == DIST_OK)
        status = init_check_number("timeout_ms", &options->timeout_ms, 1, 0, "for the default");
    if (status == DIST_OK)
        status = init_check_number("device", &options->device, 0, -1, "to use DIST_DEVICE");
    return status;
}

/* Replaces unset options by their defaults. */
static dist_status init_options(struct dist_options *options)
{
    int timeout_ms, reproducible = 0;
    dist_status status = disti_settings_check();

    if (status == DIST_OK)
        status = disti_faults_read();
    if (status == DIST_OK)
        status = disti_env_seconds("DIST_TIMEOUT", GROUP_TIMEOUT_MS, &timeout_ms);
    if (status == DIST_OK && !options->timeout_ms)
        options->timeout_ms = timeout_ms;
    if (status == DIST_OK)
        status = disti_variable_int("DIST_REPRODUCIBLE", 0, &reproducible);
    if (status == DIST_OK && options->device < 0)
        status = disti_variable_int("DIST_DEVICE", -1, &options->device);
    if (status == DIST_OK)
        status = disti_stream_check(options->stream);
    options->reproducible = options->reproducible || reproducible;
    if (!options->backend || !*options->backend)
        options->backend = disti_env("DIST_BACKEND");
    if (!options->backend)
        options->backend = "auto";
    return status;
}

/* Returns the backend's name, resolving "auto". */
static const char *init_backend_name(const struct dist_options *options, int world_size)
{
    if (strcmp(options->backend, "auto") != 0)
        return options->backend;
    return world_size == 1 ? "self" : "gloo";
}

static bool init_requests_mpi_url(const struct dist_options *options)
{
    return options->init_method && strncmp(options->init_method, "mpi://", 6) == 0;
}

static dist_status init_wrong_world(int asked, const struct dist_identity *identity)
{
    return disti_fail(DIST_ERR_RENDEZVOUS,
                      "world size %d was requested, but the MPI runtime started %d rank(s): start "
                      "the program with mpirun -np %d, or omit the world size",
                      asked, identity->world_size, asked);
}

/* The MPI runtime's rank overrides the options, as in torch.distributed. Without mpirun, MPI
 * reports a world of 1 rank; returns an error if another launcher started more ranks. */
static dist_status init_check_identity(const struct dist_options *options,
                                       const struct dist_identity *identity)
{
    struct disti_launch launch;
    dist_status status;

    if (options->world_size >= 0 && options->world_size != identity->world_size)
        return init_wrong_world(options->world_size, identity);
    if (options->rank >= 0 && options->rank != identity->rank)
        disti_warn(
            "rank %d was requested, but this is rank %d of the MPI runtime: using MPI's rank",
            options->rank, identity->rank);
    if (identity->world_size > 1)
        return DIST_OK;
    status = disti_launch_detect(&launch);
    if (status == DIST_OK && launch.world_size > 1)
        status = init_wrong_world(launch.world_size, identity);
    return status;
}

/* Gets this rank's identity from the backend, and uses the backend's all-gather for the
 * rendezvous. */
static dist_status init_identify(struct disti_world *world, const struct dist_backend *backend,
                                 struct dist_options *options)
{
    struct dist_identity identity = {.host = &disti_host, .timeout_ms = options->timeout_ms};
    dist_status status = backend->identify(&identity);

    if (status == DIST_OK)
        status = init_check_identity(options, &identity);
    if (status != DIST_OK)
        return status;
    options->rank = identity.rank;
    options->world_size = identity.world_size;
    options->init_method = NULL;
    options->oob_all_gather = identity.all_gather;
    options->oob_arg = identity.all_gather_arg;
    world->peers_lost = identity.peers_lost;
    return DIST_OK;
}

/* Chooses the source of this rank's identity: the program's own all-gather, a backend, or the
 * environment. */
static dist_status init_introduce(struct disti_world *world, struct dist_options *options)
{
    const struct dist_backend *backend;
    dist_status status;

    if (options->oob_all_gather)
        return DIST_OK;
    if (strcmp(options->backend, "auto") != 0 && strcmp(options->backend, "self") != 0) {
        status = disti_backend_find(options->backend, &backend);
        if (status != DIST_OK)
            return status;
        if (backend->identify)
            return init_identify(world, backend, options);
    }
    if (!init_requests_mpi_url(options) && !disti_rendezvous_needs_mpi(options))
        return DIST_OK;
    status = disti_backend_find("mpi", &backend);
    if (status == DIST_OK && !backend->identify)
        status =
            disti_fail(DIST_ERR_RENDEZVOUS,
                       "mpi:// needs backend mpi: start the program with mpirun and use an mpi "
                       "module built for that MPI");
    return status == DIST_OK ? init_identify(world, backend, options) : status;
}

static dist_status init_meet(struct disti_world *world, const struct dist_options *options,
                             int timeout_ms)
{
    dist_status status = disti_rendezvous(options, timeout_ms, &world->bootstrap);

    if (status != DIST_OK)
        return status;
    world->join_by_ns = world->bootstrap.join_by;
    world->rank = world->log.rank = world->bootstrap.rank;
    world->size = world->bootstrap.world_size;
    disti_last_call_open(world->bootstrap.local_rank);
    disti_faults_rank(world->rank);
    disti_faults_at(DISTI_FAULT_JOIN);
    return DIST_OK;
}

/* This rank failed before the rendezvous. Does the rendezvous anyway, if it needs no backend, so
 * that the other ranks do not wait until their deadline. */
static dist_status init_meet_and_fail(struct disti_world *world, const struct dist_options *options,
                                      dist_status status)
{
    char text[GROUP_TEXT];

    disti_text(text, sizeof(text), "%s", dist_last_error());
    disti_log_use(NULL); /* the cause has been logged already */
    if (!init_requests_mpi_url(options) && !disti_rendezvous_needs_mpi(options) &&
        !disti_rendezvous_is_scheduler(options))
        init_meet(world, options,
                  options->timeout_ms && options->timeout_ms < INIT_REPORT_MS ? options->timeout_ms
                                                                              : INIT_REPORT_MS);
    disti_fail_unlogged(text);
    return status;
}

/* Does the rendezvous and the exchange with all ranks, and finds the backend. */
static dist_status init_join(struct disti_world *world, struct dist_options *options,
                             const struct dist_backend **backend_p)
{
    const char *name;
    dist_status status =
        disti_rendezvous_is_scheduler(options) ? DIST_OK : init_introduce(world, options);

    if (status != DIST_OK)
        return status == DIST_ERR_NO_BACKEND ? init_meet_and_fail(world, options, status) : status;
    status = init_meet(world, options, world->timeout_ms);
    if (status != DIST_OK)
        return status;
    name = init_backend_name(options, world->size);
    status = disti_backend_find(name, backend_p);
    return status == DIST_OK ? world_meet(world, name) : status;
}

static dist_status init_open(struct disti_world *world, struct dist_options *options,
                             struct dist_group **group_p)
{
    const struct dist_backend *backend;
    struct disti_group_spec spec = {.timeout_ms = world->timeout_ms, .stream = world->stream};
    struct dist_group *group;
    dist_status status = init_join(world, options, &backend);

    spec.size = world->size;
    spec.until_ns = disti_deadline_ms(world->timeout_ms);
    if (status == DIST_OK)
        status = disti_group_new(world, &spec, &group);
    if (status != DIST_OK)
        return status;
    disti_faults_at(DISTI_FAULT_OPEN);
    status = disti_group_open(group, backend);
    if (status != DIST_OK) {
        disti_group_free(group);
        return status;
    }
    disti_info("rank %d of %d joined: backend %s, started by %s, %d ranks on this machine",
               group->rank, group->world_size, group->backend->name, world->bootstrap.launcher,
               group->local_ranks);
    disti_group_publish(group);
    *group_p = group;
    return DIST_OK;
}

dist_status dist_init_process_group(const struct dist_options *given, dist_group **group_p)
{
    struct disti_world *world = NULL;
    struct dist_options options;
    dist_status status = disti_world_new(&world);

    if (status != DIST_OK)
        return status;
    status = init_copy(given, &options);
    if (status == DIST_OK && !group_p)
        status = disti_fail(DIST_ERR_INVALID_ARGUMENT,
                            "dist_init_process_group: group_p is NULL: pass the address of a "
                            "dist_group *");
    if (status == DIST_OK)
        status = init_options(&options);
    if (status == DIST_OK)
        status = disti_log_init(&world->log, options.log, options.log_arg);
    if (status != DIST_OK) {
        init_meet_and_fail(world, &options, status);
        goto out;
    }
    disti_log_use(&world->log);
    world->timeout_ms = options.timeout_ms;
    world->since_ns = disti_now_ns();
    world->join_by_ns = disti_deadline_ms(world->timeout_ms);
    world->reproducible = options.reproducible;
    world->device = options.device;
    world->stream = options.stream;
    disti_flight_install_handler();
    disti_descriptor_allow(INIT_FILES);
    status = init_open(world, &options, group_p);
    disti_log_use(NULL);
out:
    if (status == DIST_OK)
        return DIST_OK;
    if (status == DIST_ERR_PEER_LOST || status == DIST_ERR_TIMEOUT)
        disti_world_lost(world);
    if (world->bootstrap.store) {
        if (status == DIST_ERR_PEER_LOST)
            disti_last_call_note_loss();
        disti_store_report(world->bootstrap.store, NULL, status, dist_last_error());
        /* After a timeout, this rank has already waited for missing ranks. */
        if (status != DIST_ERR_TIMEOUT)
            disti_store_server_expect_all(world->bootstrap.server);
    }
    disti_world_close(world, INIT_LINGER_MS);
    return status;
}

/* List of the program's groups, and handling of fork. */

/* Number of freed groups whose structures are kept, so that stale handles are rejected. */
#define KNOWN_FREED 1024

/* The program's groups, newest first. They also stay reachable in a forked child, which rejects
 * their handles. */
static struct dist_group *_Atomic known_newest;
DISTI_PROCESS_LOCK(known_lock);

/* Structures of freed groups, linked by `next`, oldest first. If there are more than
 * KNOWN_FREED, the oldest is reused. */
static struct dist_group *known_freed, **known_freed_end = &known_freed;
static int known_freed_count;

/* The parent's groups, with their connections, memory and threads, still belong to the parent:
 * invalidates them in the child, without freeing their memory. */
static void known_forked(void)
{
    for (struct dist_group *group = atomic_load(&known_newest); group; group = group->older) {
        group->forked = true;
        if (!atomic_exchange(&group->destroyed, true))
            group->inherited = true;
        atomic_store(&group->over, true);
        atomic_store(&group->abort_possible, false);
    }
    for (struct dist_group *group = known_freed; group; group = group->next)
        group->forked = true;
    disti_flight_forked();
    disti_memory_forked();
    disti_shared_forked();
    disti_complete_forked();
    disti_others_forked();
}

static void known_watch_forks(void)
{
    pthread_atfork(NULL, NULL, known_forked);
}

void disti_group_publish(struct dist_group *group)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, known_watch_forks);
    disti_store_wait_by(disti_others_poll);
    pthread_mutex_lock(&known_lock);
    group->older = atomic_load(&known_newest);
    if (group->older)
        group->older->newer = group;
    group->known = true;
    atomic_store(&known_newest, group);
    pthread_mutex_unlock(&known_lock);
    disti_abort_enable(group);
    disti_flight_add_group(group);
}

bool disti_group_try_lock(int number, struct dist_group **group_p)
{
    struct dist_group *group;

    pthread_mutex_lock(&known_lock);
    group = atomic_load(&known_newest);
    while (group && number-- > 0)
        group = group->older;
    *group_p = group && disti_lock_try(&group->lock) ? group : NULL;
    pthread_mutex_unlock(&known_lock);
    return group;
}

void disti_group_retire(struct dist_group *group)
{
    /* Marks a group that was never published too: its structure may be reused from a published
     * group, whose stale handle must be rejected. */
    atomic_store(&group->destroyed, true);
    pthread_mutex_lock(&known_lock);
    /* This order keeps the list intact for a child that is forked at this moment. */
    if (group->known) {
        if (group->newer)
            group->newer->older = group->older;
        else
            atomic_store(&known_newest, group->older);
        if (group->older)
            group->older->newer = group->newer;
    }
    group->next = NULL;
    *known_freed_end = group;
    known_freed_end = &group->next;
    known_freed_count++;
    pthread_mutex_unlock(&known_lock);
}

struct dist_group *disti_group_blank(void)
{
    struct dist_group *group = NULL;

    pthread_mutex_lock(&known_lock);
    if (known_freed_count > KNOWN_FREED) {
        group = known_freed;
        known_freed = group->next;
        known_freed_count--;
    }
    pthread_mutex_unlock(&known_lock);
    if (!group)
        return calloc(1, sizeof(*group));
    memset(group, 0, sizeof(*group));
    return group;
}

dist_status disti_group_check(const struct dist_group *group, const char *what)
{
    if (!group)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: group is NULL", what);
    if (!atomic_load(&group->destroyed))
        return DIST_OK;
    if (!group->inherited)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "%s: the group was destroyed", what);
    return disti_fail(
        DIST_ERR_INVALID_ARGUMENT,
        "%s: the group belongs to rank %d's process, from which this one was forked: a child "
        "cannot use it, but may join a job of its own (dist_init_process_group)",
        what, group->rank);
}
