/* SPDX-License-Identifier: BSD-3-Clause */
/* Joining: from options to an open group. */
#include "backends/registry.h"
#include "base/clock.h"
#include "base/descriptor.h"
#include "base/faults/faults.h"
#include "base/settings/config.h"
#include "core/group/group.h"
#include "store/last_call.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

/* How long the others may take to come and learn that this rank could not join. */
#define INIT_LINGER_MS 3000

/* How long this rank looks for the others to tell them so. */
#define INIT_TELL_MS 2000

/* Open files: of many ranks a rank may be connected with each. Some programs close all that there
 * may be, so there shall not be too many. */
#define INIT_FILES 65536

/* Refuses a number below `least`, and sets it to `unset`: to tell the other ranks it is not needed.
 */
static dist_status init_check_number(const char *name, int *number, int least, int unset,
                                     const char *meaning)
{
    const int value = *number;

    if (value >= least || value == unset)
        return DIST_OK;
    *number = unset;
    return disti_fail(DIST_ERR_INVALID_ARGUMENT, "options->%s is %d: give %d or more, or %d %s",
                      name, value, least, unset, meaning);
}

/* A copy of the options, of which unknown tails are ignored; then every number is in range. */
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
        status = init_check_number("device", &options->device, 0, -1, "for that of DIST_DEVICE");
    return status;
}

/* Fills in every default. */
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
        status = disti_env_int("DIST_REPRODUCIBLE", 0, 1, 0, &reproducible);
    if (status == DIST_OK && options->device < 0)
        status = disti_env_int("DIST_DEVICE", 0, INT_MAX, -1, &options->device);
    if (status == DIST_OK)
        status = disti_stream_check(options->stream);
    options->reproducible = options->reproducible || reproducible;
    if (!options->backend || !*options->backend)
        options->backend = disti_env("DIST_BACKEND");
    if (!options->backend)
        options->backend = "auto";
    return status;
}

/* The name that "auto" stands for. */
static const char *init_backend_name(const struct dist_options *options, int world_size)
{
    if (strcmp(options->backend, "auto") != 0)
        return options->backend;
    return world_size == 1 ? "self" : "gloo";
}

static bool init_wants_mpi_url(const struct dist_options *options)
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

/*
 * What the MPI runtime says overrides the options, as in torch.distributed: say so. A process that
 * mpirun did not start is a world of one to MPI, whatever started it: not what is wanted.
 */
static dist_status init_check_identity(const struct dist_options *options,
                                       const struct dist_identity *identity)
{
    struct disti_launch launch;
    dist_status status;

    if (options->world_size >= 0 && options->world_size != identity->world_size)
        return init_wrong_world(options->world_size, identity);
    if (options->rank >= 0 && options->rank != identity->rank)
        disti_warn("rank %d was requested, but the MPI runtime says %d: using MPI's", options->rank,
                   identity->rank);
    if (identity->world_size > 1)
        return DIST_OK;
    status = disti_launch_detect(&launch);
    if (status == DIST_OK && launch.world_size > 1)
        status = init_wrong_world(launch.world_size, identity);
    return status;
}

/* Lets a backend with a launcher of its own introduce the ranks: it becomes the oob. */
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

/* Who introduces the ranks: the program's own all-gather, a backend, or the environment. */
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
    if (!init_wants_mpi_url(options) && !disti_rendezvous_needs_mpi(options))
        return DIST_OK;
    status = disti_backend_find("mpi", &backend);
    if (status == DIST_OK && !backend->identify)
        status = disti_fail(DIST_ERR_RENDEZVOUS,
                            "mpi:// needs a backend that identifies ranks: start the program with "
                            "mpirun, with an mpi module built for that MPI");
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

/*
 * This rank has failed before it has met the others. It meets them all the same, if no backend is
 * needed for that: else they would wait for it until their deadline.
 */
static dist_status init_meet_and_fail(struct disti_world *world, const struct dist_options *options,
                                      dist_status status)
{
    char text[GROUP_TEXT];

    disti_text(text, sizeof(text), "%s", dist_last_error());
    disti_log_use(NULL); /* it has been logged where it was found */
    if (!init_wants_mpi_url(options) && !disti_rendezvous_needs_mpi(options) &&
        !disti_rendezvous_is_scheduler(options))
        init_meet(world, options,
                  options->timeout_ms && options->timeout_ms < INIT_TELL_MS ? options->timeout_ms
                                                                            : INIT_TELL_MS);
    disti_fail_unlogged(text);
    return status;
}

/* From the options to a world whose ranks know each other. */
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
    return status == DIST_OK ? disti_world_meet(world, name) : status;
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
    disti_group_know(group);
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
                            "dist_init_process_group: group_p is NULL: give the address of a "
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
    disti_flight_watch();
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
        if (status != DIST_ERR_TIMEOUT) /* whoever is not here by now has been waited for */
            disti_store_server_expect_all(world->bootstrap.server);
    }
    disti_world_close(world, INIT_LINGER_MS);
    return status;
}
