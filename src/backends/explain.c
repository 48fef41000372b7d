/* SPDX-License-Identifier: BSD-3-Clause */
/* dist_explain(): which algorithm a call would use, with predicted times and the reason. */
#include "backends/registry.h"
#include "base/log.h"
#include "base/settings/config.h"
#include "engine/engine.h"
#include "node/node.h"
#include "topology/discover.h"
#include "topology/topology.h"
#include "tuning/choose.h"

#include <dist/backend.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Up to this number of ranks, dist_explain simulates candidates that are too expensive to simulate
 * at a call.
 */
#define EXPLAIN_RANKS 512
#define EXPLAIN_ROWS (DISTI_CANDIDATES_MAX + 2)

/* The input of a selection. */
struct explain {
    struct disti_choice choice;
    struct disti_tuning tuning;
    struct disti_topology *topology;
    int32_t effort; /* not 0: a job would first measure the costs */
    /* description, if the call would use shared node memory; otherwise NULL */
    const char *in_memory;
};

/* Name and reason in the row of a call that would use shared node memory. */
#define EXPLAIN_MEMORY "shared memory"
#define EXPLAIN_MEMORY_REASON                                                                      \
    "all ranks are on one machine (DIST_NODE_MEMORY=0 would send messages instead)"

/* ---- topology ---- */

/* A topology of `ranks` ranks on this machine. */
static dist_status explain_this_machine(int ranks, struct disti_topology **topology_p)
{
    struct dist_place *places = calloc((size_t)ranks, sizeof(*places));
    struct disti_locality locality;
    dist_status status = DIST_OK;

    if (!places)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for %d ranks: use fewer", ranks);
    for (int r = 0; r < ranks && status == DIST_OK; r++) {
        status = disti_discover(r, ranks, &locality);
        places[r] = locality.place;
        places[r].node = 0;
    }
    if (status == DIST_OK)
        status = disti_topology_create(places, ranks, topology_p);
    free(places);
    return status;
}

static dist_status explain_topology(const struct dist_question *question,
                                    struct disti_topology **topology_p)
{
    struct disti_topology *topology = NULL;
    dist_status status;

    if (!question->topology)
        return explain_this_machine(question->ranks, topology_p);
    status = disti_topology_synthetic(question->topology, &topology);
    if (status == DIST_OK && question->ranks && question->ranks != topology->ranks)
        status = disti_fail(
            DIST_ERR_INVALID_ARGUMENT,
            "explain: topology \"%.200s\" has %d ranks, not %d: set ranks to that number, or to 0",
            question->topology, topology->ranks, question->ranks);
    if (status != DIST_OK) {
        disti_topology_free(topology);
        return status;
    }
    *topology_p = topology;
    return DIST_OK;
}

static dist_status explain_check(const struct dist_question *question,
                                 const struct dist_candidate *candidates, int room,
                                 const struct dist_explanation *explanation)
{
    const char *wrong = NULL;

    if (!question || !explanation || (!candidates && room > 0) || room < 0)
        wrong = "an argument is NULL, or room is negative";
    else if (question->size != sizeof(*question) || explanation->size != sizeof(*explanation))
        wrong = "a structure's size member is not its sizeof: set it, or build with this library's "
                "headers";
    else if ((unsigned)question->collective >= DIST_COLL_COUNT ||
             disti_collective_pair(question->collective))
        wrong = "invalid collective";
    else if (question->ranks < 0 || question->ranks > 1 << 20 ||
             (!question->ranks && !question->topology))
        wrong = "ranks is out of range, or 0 with no topology";
    return wrong ? disti_fail(DIST_ERR_INVALID_ARGUMENT, "explain: %s", wrong) : DIST_OK;
}

/* Reads the variables, the topology and the tuning, as the engine of a job of these ranks would. */
static dist_status explain_open(const struct dist_question *question, struct explain *explain)
{
    const char *allowed = disti_env("DIST_TRANSPORT"), *transports = allowed ? allowed : "shm,tcp";
    char key[TUNE_KEY];
    int reproducible = 0;
    dist_status status = disti_variable_int("DIST_REPRODUCIBLE", 0, &reproducible);

    if (status == DIST_OK)
        status = disti_choice_parse(disti_env("DIST_ALGO"), reproducible, &explain->choice);
    if (status == DIST_OK)
        status = explain_topology(question, &explain->topology);
    if (status != DIST_OK)
        return status;
    disti_tune_key(explain->topology->nodes, disti_node_size(explain->topology, 0), transports,
                   key);
    status = disti_tune_find(key, &explain->tuning, &explain->effort);
    if (status == DIST_OK) {
        const struct dist_transport *transport;
        bool shares = false; /* DIST_TRANSPORT allows a transport that uses shared memory */
        int wanted = 1;
        char item[16];

        for (int i = 0; !shares && disti_list_item(transports, ',', i, item, sizeof(item)); i++) {
            transport = disti_built_in_transport(item);
            shares = transport && transport->shares_memory;
        }
        /* The engine makes the same decision, provided that ranks can map each other's memory. */
        status = disti_variable_int("DIST_NODE_MEMORY", 1, &wanted);
        if (wanted && explain->topology->nodes == 1 && explain->topology->ranks > 1 && shares &&
            disti_node_supports(question->collective) &&
            !explain->choice.forced[question->collective] && !explain->choice.forced_segments)
            explain->in_memory =
                disti_node_summary(question->collective, explain->topology->ranks, question->bytes);
    }
    /*
     * Assume one CPU per rank for a topology from a description, unless it is the topology of this
     * process's job.
     */
    if (status == DIST_OK && !disti_tune_recall_cpus(explain->topology, &explain->tuning.cost))
        explain->tuning.cost.node_cpus =
            question->topology ? 0 : disti_tune_node_cpus(explain->topology, disti_usable_cpus());
    return status;
}

/* ---- rows of the answer ---- */

static bool explain_same(const struct disti_candidate *a, const struct disti_candidate *b)
{
    return a->algorithm == b->algorithm && a->segments == b->segments;
}

/* Adds a row unless it is already there. Returns the new count. */
static int explain_add(struct disti_candidate *rows, int count, const struct disti_candidate *one)
{
    for (int i = 0; i < count; i++) {
        if (explain_same(&rows[i], one))
            return count;
    }
    rows[count] = *one;
    return count + 1;
}

static int explain_compare(const void *left, const void *right)
{
    const struct disti_candidate *a = left, *b = right;

    if ((a->seconds < 0) != (b->seconds < 0))
        return a->seconds < 0 ? 1 : -1;
    if (a->seconds != b->seconds)
        return a->seconds < b->seconds ? -1 : 1;
    return a->least < b->least ? -1 : a->least > b->least;
}

/*
 * Predicts the time of a candidate that the selection did not simulate, because its plan is too
 * long or the choice is fixed.
 */
static void explain_predict(const struct explain *explain, dist_collective collective, size_t bytes,
                            struct disti_candidate *row)
{
    const struct disti_topology *topology = explain->topology;
    const struct disti_shape shape = {.collective = collective,
                                      .ranks = topology->ranks,
                                      .segments = row->segments,
                                      .topology = topology};

    if (row->seconds >= 0 || row->least > 0 || topology->ranks > EXPLAIN_RANKS ||
        topology->ranks == 1 || !explain->tuning.predict || disti_counts_are_private(collective))
        return;
    if (disti_simulate(row->algorithm, &shape, bytes, &explain->tuning.cost, &row->seconds) !=
        DIST_OK)
        row->seconds = -1;
}

dist_status dist_explain(const struct dist_question *question, struct dist_candidate *candidates,
                         int room, struct dist_explanation *explanation_p)
{
    struct disti_candidate rows[EXPLAIN_ROWS];
    struct explain explain = {.effort = 0};
    struct disti_chosen chosen;
    size_t bytes;
    int count;
    dist_status status = explain_check(question, candidates, room, explanation_p);
    const struct disti_cost *cost;
    int far, at = 0;

    if (status == DIST_OK)
        status = explain_open(question, &explain);
    if (status != DIST_OK)
        goto out;
    /* A job selects once per size class, for the largest size of the class. */
    bytes = disti_size_class_max(disti_size_class(question->bytes));
    status = disti_choose(&explain.choice, &explain.tuning, explain.topology, question->collective,
                          bytes, &chosen);
    if (status != DIST_OK)
        goto out;
    count = chosen.count;
    memcpy(rows, chosen.candidates, (size_t)count * sizeof(*rows));
    count = explain_add(rows, count, &chosen.rule);
    count = explain_add(rows, count, &chosen.best);
    for (int i = 0; i < count; i++)
        explain_predict(&explain, question->collective, bytes, &rows[i]);
    qsort(rows, (size_t)count, sizeof(*rows), explain_compare);
    explanation_p->ranks = explain.topology->ranks;
    explanation_p->nodes = explain.topology->nodes;
    explanation_p->candidates = count + (explain.in_memory != NULL);
    snprintf(explanation_p->reason, sizeof(explanation_p->reason), "%s",
             explain.in_memory ? EXPLAIN_MEMORY_REASON : disti_reason_string(chosen.reason));
    cost = &explain.tuning.cost;
    far = explain.topology->nodes > 1 ? DISTI_OTHER_NODE : DISTI_SAME_NODE;
    snprintf(explanation_p->costs, sizeof(explanation_p->costs),
             "%s%s: %.2f us and %.2f GB/s between ranks%s, copies %.2f GB/s, reductions %.2f GB/s",
             explain.tuning.source,
             explain.effort ? " (dist_info tune, or a first job, measures them)" : "",
             cost->links[far].latency_s * 1e6, cost->links[far].bytes_per_second * 1e-9,
             far == DISTI_OTHER_NODE ? " of two machines" : "", cost->copy_bytes_per_second * 1e-9,
             cost->reduce_bytes_per_second * 1e-9);
    /* The row for shared memory comes first if the call would use it, then the algorithms. */
    if (explain.in_memory && at < room)
        candidates[at++] = (struct dist_candidate){.algorithm = EXPLAIN_MEMORY,
                                                   .summary = explain.in_memory,
                                                   .seconds = -1,
                                                   .least = -1,
                                                   .chosen = true};
    for (int i = 0; i < count && at < room; i++)
        candidates[at++] = (struct dist_candidate){.algorithm = rows[i].algorithm->name,
                                                   .summary = rows[i].algorithm->summary,
                                                   .segments = (int)rows[i].segments,
                                                   .seconds = rows[i].seconds,
                                                   .least = rows[i].least,
                                                   .chosen = !explain.in_memory &&
                                                             explain_same(&rows[i], &chosen.best),
                                                   .rules = explain_same(&rows[i], &chosen.rule)};
out:
    disti_topology_free(explain.topology);
    return status;
}
