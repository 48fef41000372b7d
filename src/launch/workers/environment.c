/* SPDX-License-Identifier: BSD-3-Clause */
/* Builds a worker's environment. */
#include "launch/workers/environment.h"

#include "base/settings/env.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ENVIRONMENT_OWN = 40 };

/* What a launcher around this one has set, and would be taken for ours, or for that of a launcher
 * that a worker starts. */
static const char *const environment_dropped[] = {"DIST_AGENT_FILES",     "DIST_AGENT_LAST_CALL",
                                                  "DIST_AGENT_STORE",     "DIST_AGENT_STORE_SECRET",
                                                  "OMPI_COMM_WORLD_RANK", "PMI_RANK"};

/* What the scheduler has not: it is no rank. */
static const char *const environment_ranks[] = {"LOCAL_RANK", "MS_NODE_ID", "RANK", "ROLE_RANK"};
#define ENVIRONMENT_COUNT(names) ((int)(sizeof(names) / sizeof((names)[0])))

struct environment {
    char **entries; /* ours first */
    int own, count;
    bool no_rank;
    bool failed; /* no memory */
};

static void environment_put(struct environment *made, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void environment_put(struct environment *made, const char *format, ...)
{
    va_list arguments;
    char *entry;

    va_start(arguments, format);
    if (vasprintf(&entry, format, arguments) < 0)
        made->failed = true;
    else
        made->entries[made->count++] = entry;
    va_end(arguments);
}

static void environment_put_rank(struct environment *made, const struct disti_run_round *round,
                                 const struct disti_run_place *place)
{
    const int rank = round->first_rank + place->local_rank;

    environment_put(made, "RANK=%d", rank);
    environment_put(made, "LOCAL_RANK=%d", place->local_rank);
    environment_put(made, "ROLE_RANK=%d", rank);
}

/* A scheduler of MindSpore itself may take rank 0's port: libdist's store has another. */
static void environment_put_mindspore(struct environment *made, const struct disti_run_round *round,
                                      const struct disti_run_place *place)
{
    environment_put(made, "MS_ROLE=%s", made->no_rank ? "MS_SCHED" : "MS_WORKER");
    environment_put(made, "MS_WORKER_NUM=%d", round->world_size);
    environment_put(made, "MS_SCHED_HOST=%s", disti_run_store_host(round));
    environment_put(made, "MS_SCHED_PORT=%d", round->master_port);
    if (!made->no_rank)
        environment_put(made, "MS_NODE_ID=%d", round->first_rank + place->local_rank);
}

/* ROLE_RANK and ROLE_WORLD_SIZE are RANK and WORLD_SIZE: a job of this launcher has one role. */
static void environment_put_torch(struct environment *made, const struct disti_run_options *options,
                                  const struct disti_run_round *round,
                                  const struct disti_run_place *place)
{
    environment_put(made, "WORLD_SIZE=%d", round->world_size);
    environment_put(made, "LOCAL_WORLD_SIZE=%d", round->workers);
    environment_put(made, "GROUP_RANK=%d", round->node_rank);
    environment_put(made, "GROUP_WORLD_SIZE=%d", round->nodes);
    environment_put(made, "ROLE_NAME=%s", options->role);
    environment_put(made, "ROLE_WORLD_SIZE=%d", round->world_size);
    environment_put(made, "MASTER_ADDR=%s", round->master_address);
    environment_put(made, "MASTER_PORT=%d", round->master_port);
    environment_put(made, "TORCHELASTIC_RESTART_COUNT=%d", round->restarts);
    environment_put(made, "TORCHELASTIC_MAX_RESTARTS=%d", (int)options->max_restarts);
    environment_put(made, "TORCHELASTIC_RUN_ID=%s", round->job);
    /* torch's rank 0 then makes torch's store at MASTER_PORT; the agent's is another. */
    environment_put(made, "TORCHELASTIC_USE_AGENT_STORE=False");
    environment_put(made, "TORCHELASTIC_ERROR_FILE=%s", place->error_file);
    environment_put(made, "TORCHELASTIC_SIGNALS_TO_HANDLE=%s", options->signals_text);
    if (!disti_env("TORCH_NCCL_ASYNC_ERROR_HANDLING"))
        environment_put(made, "TORCH_NCCL_ASYNC_ERROR_HANDLING=1");
    if (!disti_env("OMP_NUM_THREADS") && place->threads > 0)
        environment_put(made, "OMP_NUM_THREADS=%d", place->threads);
}

static bool environment_is_name(const char *entry, const char *other)
{
    const size_t length = strcspn(other, "=");

    return strncmp(entry, other, length) == 0 && entry[length] == '=';
}

static bool environment_is_in(const char *const *names, int count, const char *entry)
{
    for (int i = 0; i < count; i++) {
        if (environment_is_name(entry, names[i]))
            return true;
    }
    return false;
}

/* Is it set by us, or to be unset? */
static bool environment_is_own(const struct environment *made, const char *entry)
{
    for (int i = 0; i < made->own; i++) {
        if (environment_is_name(entry, made->entries[i]))
            return true;
    }
    if (made->no_rank &&
        environment_is_in(environment_ranks, ENVIRONMENT_COUNT(environment_ranks), entry))
        return true;
    return environment_is_in(environment_dropped, ENVIRONMENT_COUNT(environment_dropped), entry);
}

char **disti_run_environment(const struct disti_run_options *options,
                             const struct disti_run_round *round,
                             const struct disti_run_place *place)
{
    struct environment made = {.no_rank = place->local_rank < 0};
    int inherited = 0;

    while (environ[inherited])
        inherited++;
    made.entries = calloc((size_t)inherited + ENVIRONMENT_OWN, sizeof(*made.entries));
    if (!made.entries)
        return NULL;
    environment_put_torch(&made, options, round, place);
    if (!made.no_rank)
        environment_put_rank(&made, round, place);
    if (options->scheduler)
        environment_put_mindspore(&made, round, place);
    environment_put(&made, "DIST_AGENT_LAST_CALL=%s", place->last_calls);
    environment_put(&made, "DIST_AGENT_STORE=%s", round->store);
    environment_put(&made, "DIST_AGENT_FILES=%s", place->files);
    if (round->store_secret[0])
        environment_put(&made, "DIST_AGENT_STORE_SECRET=%s", round->store_secret);
    made.own = made.count;
    for (int i = 0; i < inherited && !made.failed; i++) {
        if (!environment_is_own(&made, environ[i]))
            environment_put(&made, "%s", environ[i]);
    }
    if (made.failed) {
        disti_run_environment_free(made.entries);
        return NULL;
    }
    return made.entries;
}

void disti_run_environment_free(char **environment)
{
    for (int i = 0; environment && environment[i]; i++)
        free(environment[i]);
    free(environment);
}
