/* SPDX-License-Identifier: BSD-3-Clause */
/* Joining and leaving: from options to an open group. */
#include "backends/registry.h"
#include "base/config.h"
#include "core/group.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long the others may take to go away once all have come to the end. */
#define INIT_LINGER_MS 2000

/* A copy of the options with every default filled in; unknown tails are ignored. */
static dist_status init_options(const struct dist_options *given, struct dist_options *options)
{
    static const struct dist_options fresh = DIST_OPTIONS_INIT;
    int seconds;
    dist_status status;

    *options = fresh;
    if (given && (given->size < offsetof(struct dist_options, timeout_ms) || given->size > 65536))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "options->size is %zu: initialise the options with DIST_OPTIONS_INIT",
                          given->size);
    if (given)
        memcpy(options, given, given->size < sizeof(*options) ? given->size : sizeof(*options));
    if (options->timeout_ms < 0)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "timeout_ms is %d: give milliseconds, or 0 for the default",
                          options->timeout_ms);
    status = disti_env_int("DIST_TIMEOUT", 1, INT_MAX / 1000, GROUP_TIMEOUT_MS / 1000, &seconds);
    if (status == DIST_OK && !options->timeout_ms)
        options->timeout_ms = seconds * 1000;
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
                      "world size %d was asked for, but the MPI runtime started %d rank(s): start "
                      "the program with mpirun -np %d, or leave the world size out",
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
        disti_warn("rank %d was asked for, but the MPI runtime says %d, which counts",
                   options->rank, identity->rank);
    if (identity->world_size > 1)
        return DIST_OK;
    status = disti_launch_detect(&launch);
    if (status == DIST_OK && launch.world_size > 1)
        status = init_wrong_world(launch.world_size, identity);
    return status;
}

/* Lets a backend with a launcher of its own introduce the ranks: it becomes the oob. */
static dist_status init_identify(const struct dist_backend *backend, struct dist_options *options)
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
    return DIST_OK;
}

/* Who introduces the ranks: the program's own all-gather, a backend, or the environment. */
static dist_status init_introduce(struct dist_options *options)
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
            return init_identify(backend, options);
    }
    if (!init_wants_mpi_url(options) && !disti_rendezvous_needs_mpi(options))
        return DIST_OK;
    status = disti_backend_find("mpi", &backend);
    if (status == DIST_OK && !backend->identify)
        status =
            disti_fail(DIST_ERR_RENDEZVOUS, "mpi:// needs an mpi module that identifies ranks");
    return status == DIST_OK ? init_identify(backend, options) : status;
}

static void init_free(struct dist_group *group, int linger_ms)
{
    if (!group)
        return;
    if (group->state) {
        group->backend->close(group->state);
        free(group->state);
    }
    disti_bootstrap_close(&group->bootstrap, linger_ms);
    pthread_mutex_destroy(&group->lock);
    free(group->peers);
    free(group->places);
    free(group);
}

static dist_status init_join(struct dist_group *group, struct dist_options *options)
{
    const char *name;
    dist_status status = init_introduce(options);

    if (status == DIST_OK)
        status = disti_rendezvous(options, group->timeout_ms, &group->bootstrap);
    if (status != DIST_OK)
        return status;
    group->rank = group->bootstrap.rank;
    group->world_size = group->bootstrap.world_size;
    group->log.rank = group->rank;
    name = init_backend_name(options, group->world_size);
    status = disti_backend_find(name, &group->backend);
    if (status == DIST_OK)
        status = disti_group_meet(group, name);
    if (status == DIST_OK)
        status = disti_group_open_backend(group);
    return status;
}

dist_status dist_init_process_group(const struct dist_options *given, dist_group **group_p)
{
    struct dist_group *group = calloc(1, sizeof(*group));
    struct dist_options options;
    dist_status status;

    if (!group)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a process group");
    pthread_mutex_init(&group->lock, NULL);
    group->lost_rank = -1;
    group->rank = -1;
    if (!group_p) {
        status = disti_fail(DIST_ERR_INVALID_ARGUMENT, "group_p is NULL");
        goto out;
    }
    status = init_options(given, &options);
    if (status == DIST_OK)
        status = disti_log_init(&group->log, options.log, options.log_arg);
    if (status != DIST_OK)
        goto out;
    disti_log_use(&group->log);
    group->timeout_ms = options.timeout_ms;
    status = init_join(group, &options);
    if (status != DIST_OK)
        goto out;
    disti_info("rank %d of %d joined: backend %s, started by %s, %d ranks on this machine",
               group->rank, group->world_size, group->backend->name, group->bootstrap.launcher,
               group->local_ranks);
    *group_p = group;
    group = NULL;
out:
    disti_log_use(NULL);
    if (group && group->bootstrap.store)
        disti_store_report(group->bootstrap.store, dist_last_error());
    init_free(group, group ? INIT_LINGER_MS / 4 : 0);
    return status;
}

/* All ranks have come: nobody's last messages are cut off, no goodbye looks like a death. */
static dist_status init_leave_together(struct dist_group *group)
{
    if (group->failed || !group->bootstrap.store)
        return DIST_OK;
    return disti_store_all_gather(group->bootstrap.store, "dist/leave", NULL, NULL, 0,
                                  group->timeout_ms);
}

static bool init_pending(const struct dist_group *group)
{
    for (const struct dist_work *work = group->works; work; work = work->next) {
        if (work->ticket.status == DIST_IN_PROGRESS)
            return true;
    }
    return false;
}

dist_status dist_destroy_process_group(dist_group *group)
{
    dist_status status;

    if (!group)
        return DIST_OK;
    disti_log_use(&group->log);
    pthread_mutex_lock(&group->lock);
    if (init_pending(group))
        disti_group_break(group, DIST_ERR_ABORTED,
                          "the group was destroyed while operations were pending");
    pthread_mutex_unlock(&group->lock);
    status = init_leave_together(group);
    disti_log_use(NULL);
    while (group->works) { /* the caller may still give them to dist_wait: orphans now */
        struct dist_work *work = group->works;

        group->works = work->next;
        work->group = NULL;
        work->next = NULL;
    }
    init_free(group, INIT_LINGER_MS);
    return status;
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
