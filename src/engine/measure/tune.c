/* SPDX-License-Identifier: BSD-3-Clause */
/* The costs that a group chooses by: found, measured, agreed on. */
#include "engine/measure/tune.h"

#include "base/clock.h"
#include "base/kernels/environment.h"
#include "base/log.h"
#include "base/process_lock.h"
#include "base/settings/config.h"
#include "engine/state.h"
#include "topology/discover.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the process's last world has, for its other groups. */
DISTI_PROCESS_LOCK(tune_lock);
static char tune_job[256];
static struct disti_tuning tune_known;
/* And the CPUs of its last group. */
static struct {
    int ranks, nodes, node_cpus, all_cpus;
} tune_group;

/* What the groups of a world share of their jobs' names, "NAME" and "NAME/NUMBER". */
static void tune_world_name(const struct dist_backend_config *config, char *name, size_t size)
{
    char *slash;

    snprintf(name, size, "%s", config->job);
    slash = config->group ? strrchr(name, '/') : NULL;
    if (slash)
        *slash = '\0';
}

static void tune_remember(const struct dist_backend_config *config,
                          const struct disti_tuning *tuning)
{
    pthread_mutex_lock(&tune_lock);
    tune_world_name(config, tune_job, sizeof(tune_job));
    tune_known = *tuning;
    pthread_mutex_unlock(&tune_lock);
}

static bool tune_recall(const struct dist_backend_config *config, struct disti_tuning *tuning_p)
{
    char name[sizeof(tune_job)];
    bool known;

    tune_world_name(config, name, sizeof(name));
    pthread_mutex_lock(&tune_lock);
    known = config->group && strcmp(name, tune_job) == 0;
    if (known)
        *tuning_p = tune_known;
    pthread_mutex_unlock(&tune_lock);
    return known;
}

static void tune_remember_cpus(const struct disti_topology *topology, const struct disti_cost *cost)
{
    pthread_mutex_lock(&tune_lock);
    tune_group.ranks = topology->ranks;
    tune_group.nodes = topology->nodes;
    tune_group.node_cpus = cost->node_cpus;
    tune_group.all_cpus = cost->all_cpus;
    pthread_mutex_unlock(&tune_lock);
}

bool disti_tune_recall_cpus(const struct disti_topology *topology, struct disti_cost *cost)
{
    bool known;

    pthread_mutex_lock(&tune_lock);
    known = tune_group.ranks == topology->ranks && tune_group.nodes == topology->nodes;
    if (known) {
        cost->node_cpus = tune_group.node_cpus;
        cost->all_cpus = tune_group.all_cpus;
    }
    pthread_mutex_unlock(&tune_lock);
    return known;
}

/* The backend's transports, as far as DIST_TRANSPORT allows them: "shm,tcp". */
static void tune_transports(const struct dist_transport *const *transports, char *text, size_t size)
{
    const char *allowed = disti_env("DIST_TRANSPORT");
    size_t length = 0;

    if (allowed) {
        snprintf(text, size, "%s", allowed);
        return;
    }
    text[0] = '\0';
    for (int t = 0; transports[t] && length < size; t++)
        length += (size_t)snprintf(text + length, size - length, "%s%s", t ? "," : "",
                                   transports[t]->name);
}

static void tune_own_key(const struct dist_backend_config *config,
                         const struct dist_transport *const *transports, char key[TUNE_KEY])
{
    char names[64];
    int nodes = 0;

    for (int r = 0; r < config->world_size; r++)
        nodes = config->places[r].node >= nodes ? config->places[r].node + 1 : nodes;
    tune_transports(transports, names, sizeof(names));
    disti_tune_key(nodes, config->local_ranks, names, key);
}

dist_status disti_tune_offer(const struct dist_backend_config *config,
                             const struct dist_transport *const *transports,
                             struct disti_tune_offer *offer_p)
{
    char key[TUNE_KEY];
    dist_status status;

    memset(offer_p, 0, sizeof(*offer_p));
    if (config->rank != 0)
        return DIST_OK;
    offer_p->usable_cpus = disti_usable_cpus();
    offer_p->shared_cpus = config->shared_cpus;
    if (tune_recall(config, &offer_p->tuning))
        return DIST_OK;
    tune_own_key(config, transports, key);
    status = disti_tune_find(key, &offer_p->tuning, &offer_p->effort);
    if (config->world_size == 1)
        offer_p->effort = TUNE_NOTHING;
    return status;
}

/* ---- the CPUs ---- */

/* Different cores that the ranks of the fullest node are on. */
static int tune_cores(const struct disti_topology *topology, int node)
{
    int size = disti_node_size(topology, node), cores = 0;

    for (int i = 0; i < size; i++) {
        const struct dist_place *a = &topology->localities[disti_node_member(topology, node, i)];
        bool seen = false;

        for (int j = 0; j < i && !seen; j++) {
            const struct dist_place *b =
                &topology->localities[disti_node_member(topology, node, j)];

            seen = a->package == b->package && a->numa == b->numa && a->core == b->core;
        }
        cores += !seen;
    }
    return cores;
}

/*
 * A process that may use several CPUs shares them with the others of its node; one that may use
 * one only was bound to it, and then the others to theirs.
 */
int disti_tune_node_cpus(const struct disti_topology *topology, int usable_cpus)
{
    int fullest = 0, ranks, cpus;

    for (int n = 1; n < topology->nodes; n++) {
        if (disti_node_size(topology, n) > disti_node_size(topology, fullest))
            fullest = n;
    }
    ranks = disti_node_size(topology, fullest);
    cpus = usable_cpus > 1 ? usable_cpus : tune_cores(topology, fullest);
    return ranks > cpus ? cpus : 0;
}

/* ---- measuring ---- */

/* What each rank gives at the end; rank 0's tuning counts. Exchanged as bytes. */
struct tune_result {
    struct disti_tuning tuning;
    double copied; /* bytes a second, while all ranks of the node were copying */
};

/* All ranks of a node copy at the same time: what its memory gives. */
static dist_status tune_together(const struct dist_engine *engine, double *copied_p)
{
    const struct dist_backend_config *config = engine->config;
    dist_status status = config->all_gather(config->all_gather_arg, NULL, NULL, 0);

    if (status == DIST_OK && disti_node_of(engine->topology, config->rank) == 0)
        *copied_p = disti_tune_copy(disti_tune_each_ns(TUNE_CARE));
    return status;
}

static double tune_sum(const struct dist_engine *engine, const struct tune_result *results)
{
    double sum = 0;

    for (int r = 0; r < engine->config->world_size; r++) {
        if (disti_node_of(engine->topology, r) == 0)
            sum += results[r].copied;
    }
    return sum;
}

static dist_status tune_share(const struct dist_engine *engine, const struct tune_result *mine,
                              struct disti_tuning *tuning)
{
    const struct dist_backend_config *config = engine->config;
    struct tune_result *all = calloc((size_t)config->world_size, sizeof(*all));
    dist_status status;

    if (!all)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for the costs of %d ranks",
                          config->world_size);
    status = config->all_gather(config->all_gather_arg, mine, all, sizeof(*mine));
    if (status == DIST_OK) {
        const disti_environment saved = disti_environment_enter(); /* all ranks round alike */
        double together = tune_sum(engine, all);

        *tuning = all[0].tuning;
        if (together > 0)
            tuning->cost.node_bytes_per_second = together;
        disti_tuning_round(tuning);
        disti_environment_leave(saved);
    }
    free(all);
    return status;
}

static dist_status tune_measure(struct dist_engine *engine,
                                const struct dist_transport *const *transports,
                                enum tune_effort effort, struct disti_tuning *tuning)
{
    const struct dist_backend_config *config = engine->config;
    struct tune_result mine = {.tuning = *tuning};
    int64_t begin = disti_now_ns();
    char key[TUNE_KEY];
    dist_status status;

    if (config->rank == 0)
        disti_tune_local(effort, &mine.tuning.cost);
    status = disti_tune_links(engine, effort, &mine.tuning.cost);
    if (status == DIST_OK && effort == TUNE_CARE)
        status = tune_together(engine, &mine.copied);
    if (status != DIST_OK)
        return status;
    snprintf(mine.tuning.source, sizeof(mine.tuning.source), "measured at the start%s",
             effort == TUNE_CARE ? ", with care" : "");
    status = tune_share(engine, &mine, tuning);
    if (status != DIST_OK || config->rank != 0)
        return status;
    disti_info("tuning: costs were measured in %.1f ms", (double)(disti_now_ns() - begin) * 1e-6);
    tune_own_key(config, transports, key);
    disti_tune_write(tuning, key);
    return DIST_OK;
}

dist_status disti_tune_decide(struct dist_engine *engine,
                              const struct dist_transport *const *transports,
                              const struct disti_tune_offer *offer)
{
    struct disti_tuning *tuning = &engine->tuning;
    dist_status status = DIST_OK;

    *tuning = offer->tuning;
    /* A group whose world measured nothing, since its backend has no engine, does not either. */
    if (offer->effort && engine->config->group == 0)
        status = tune_measure(engine, transports, (enum tune_effort)offer->effort, tuning);
    if (status != DIST_OK)
        return status;
    if (!disti_tuning_sane(tuning))
        return disti_fail(
            DIST_ERR_MISMATCH,
            "rank %d got invalid costs from rank 0: give all ranks the same version of libdist",
            engine->config->rank);
    if (engine->config->group == 0)
        tune_remember(engine->config, tuning);
    tuning->cost.node_cpus = disti_tune_node_cpus(engine->topology, offer->usable_cpus);
    tuning->cost.all_cpus = offer->shared_cpus > 0 ? offer->shared_cpus : 0;
    tune_remember_cpus(engine->topology, &tuning->cost);
    return DIST_OK;
}
