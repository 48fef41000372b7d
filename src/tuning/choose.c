/* SPDX-License-Identifier: BSD-3-Clause */
/* Selection of an algorithm and its segments: the one that the user forces, or the one that fixed
 * rules or predicted times select from the bytes, ranks and nodes. */
#include "tuning/choose.h"
#include "base/kernels/environment.h"
#include "base/log.h"
#include "base/settings/config.h"
#include "topology/topology.h"

#include <float.h>
#include <stdio.h>
#include <string.h>

#define KIB ((size_t)1024)

/* A segment of this size stays in a core's second-level cache between its reduction and its send,
 * and is long enough to hide the fixed cost of a message. */
#define SEGMENT_BYTES (128 * KIB)
#define SEGMENTS_MAX 64
/* Over a network, a message costs system calls, and the transport reduces the first part of a
 * message while the rest arrives. Segments only help to overlap consecutive steps. */
#define SEGMENT_NETWORK_BYTES (2048 * KIB)

/* How the ranks are distributed over nodes. */
enum select_layout { ONE_NODE, SHARED_NODES, SINGLE_NODES, ANYWHERE };

/* The first matching rule decides. It matches up to `bytes` bytes a block and up to `ranks`
 * ranks. */
struct select_rule {
    dist_collective collective;
    enum select_layout layout;
    size_t bytes;
    int ranks;
    const char *algorithm;
};

#define ANY_BYTES SIZE_MAX
#define ANY_RANKS INT32_MAX

/*
 * Blocks up to this size are so short that a message with several blocks costs as much as a message
 * with one block.
 */
#define SHORT_BLOCK KIB
/* Up to this number of ranks, a message to each rank costs no more than log2 n messages in
 * sequence. */
#define FEW_RANKS 8
/* With more ranks than this, simultaneous messages overload a rank's network link. */
#define CROWD_RANKS 32

static const struct select_rule select_rules[] = {
    /* Short vectors: the number of sequential steps dominates. */
    {DIST_COLL_ALL_REDUCE, ONE_NODE, 8 * KIB, ANY_RANKS, "recursive_doubling"},
    /* With few ranks, doubling has half the steps of a tree, which is traversed up and down. */
    {DIST_COLL_ALL_REDUCE, SHARED_NODES, 8 * KIB, FEW_RANKS, "recursive_doubling"},
    /* With many ranks, doubling has several steps in which all ranks of a node use the network. */
    {DIST_COLL_ALL_REDUCE, SHARED_NODES, 8 * KIB, ANY_RANKS, "tree"},
    {DIST_COLL_ALL_REDUCE, SINGLE_NODES, 8 * KIB, ANY_RANKS, "recursive_doubling"},
    /* Two ranks: the same number of bytes in half the messages, until the additions dominate. */
    {DIST_COLL_ALL_REDUCE, SINGLE_NODES, 128 * KIB, 2, "recursive_doubling"},
    /* In shared memory the peers' data are read in place, so a direct exchange is best. */
    {DIST_COLL_ALL_REDUCE, ONE_NODE, ANY_BYTES, ANY_RANKS, "direct"},
    /* Each byte crosses the network once per node, and the ranks of a node share the additions. */
    {DIST_COLL_ALL_REDUCE, SHARED_NODES, ANY_BYTES, ANY_RANKS, "hierarchical"},
    /*
     * halving_doubling and ring both send the fewest bytes. The ring has n steps, which pays off
     * when each step is long enough to hide its fixed cost.
     */
    {DIST_COLL_ALL_REDUCE, SINGLE_NODES, 512 * KIB, ANY_RANKS, "halving_doubling"},
    {DIST_COLL_ALL_REDUCE, SINGLE_NODES, ANY_BYTES, ANY_RANKS, "ring"},

    /* Below two segments there is nothing to pipeline. */
    {DIST_COLL_BROADCAST, ANYWHERE, 2 * SEGMENT_BYTES, ANY_RANKS, "binomial"},
    /* The last rank of a chain waits for n - 2 hops, which is more than in two trees if n is
     * large. */
    {DIST_COLL_BROADCAST, ANYWHERE, ANY_BYTES, 16, "chain"},
    {DIST_COLL_BROADCAST, ANYWHERE, ANY_BYTES, ANY_RANKS, "tree"},

    {DIST_COLL_BARRIER, ANYWHERE, ANY_BYTES, ANY_RANKS, "dissemination"},

    {DIST_COLL_REDUCE, ANYWHERE, 8 * KIB, ANY_RANKS, "binomial"},
    /* In shared memory all ranks share the additions and read the data in place. */
    {DIST_COLL_REDUCE, ONE_NODE, ANY_BYTES, ANY_RANKS, "scatter_gather"},
    /* The reasons are those for the broadcast. */
    {DIST_COLL_REDUCE, ANYWHERE, 2 * SEGMENT_BYTES, ANY_RANKS, "binomial"},
    {DIST_COLL_REDUCE, ANYWHERE, ANY_BYTES, 16, "chain"},
    {DIST_COLL_REDUCE, ANYWHERE, ANY_BYTES, ANY_RANKS, "tree"},

    /* For short blocks, bruck sends fewer messages, although several ranks forward each block. */
    {DIST_COLL_ALL_GATHER, ANYWHERE, SHORT_BLOCK, FEW_RANKS, "direct"},
    {DIST_COLL_ALL_GATHER, ANYWHERE, SHORT_BLOCK, ANY_RANKS, "bruck"},
    /*
     * direct has one step. Over a network, long blocks between all ranks at once would cause
     * congestion.
     */
    {DIST_COLL_ALL_GATHER, ONE_NODE, ANY_BYTES, ANY_RANKS, "direct"},
    /* With hierarchical, a block enters each node once, over a ring of nodes. */
    {DIST_COLL_ALL_GATHER, SHARED_NODES, ANY_BYTES, ANY_RANKS, "hierarchical"},
    {DIST_COLL_ALL_GATHER, ANYWHERE, 8 * KIB, ANY_RANKS, "direct"},
    {DIST_COLL_ALL_GATHER, ANYWHERE, ANY_BYTES, ANY_RANKS, "ring"},
    /* Every algorithm of a _V form sends one message per block, so forwarding saves no messages. */
    {DIST_COLL_ALL_GATHER_V, ONE_NODE, ANY_BYTES, ANY_RANKS, "direct"},
    {DIST_COLL_ALL_GATHER_V, SHARED_NODES, ANY_BYTES, ANY_RANKS, "hierarchical"},
    {DIST_COLL_ALL_GATHER_V, ANYWHERE, 8 * KIB, ANY_RANKS, "direct"},
    {DIST_COLL_ALL_GATHER_V, ANYWHERE, ANY_BYTES, ANY_RANKS, "ring"},

    {DIST_COLL_REDUCE_SCATTER, ANYWHERE, SHORT_BLOCK, FEW_RANKS, "direct"},
    {DIST_COLL_REDUCE_SCATTER, ANYWHERE, SHORT_BLOCK, ANY_RANKS, "recursive_halving"},
    /*
     * As in all-reduce, the peers' data are read in place on one node, and with hierarchical each
     * byte crosses the network once per node. Otherwise long blocks do not use direct: as in
     * all-gather, messages between all ranks at once would cause congestion.
     */
    {DIST_COLL_REDUCE_SCATTER, ONE_NODE, ANY_BYTES, ANY_RANKS, "direct"},
    {DIST_COLL_REDUCE_SCATTER, SHARED_NODES, ANY_BYTES, ANY_RANKS, "hierarchical"},
    {DIST_COLL_REDUCE_SCATTER, ANYWHERE, 8 * KIB, ANY_RANKS, "recursive_halving"},
    {DIST_COLL_REDUCE_SCATTER, ANYWHERE, ANY_BYTES, ANY_RANKS, "ring"},
    {DIST_COLL_REDUCE_SCATTER_V, ONE_NODE, ANY_BYTES, ANY_RANKS, "direct"},
    {DIST_COLL_REDUCE_SCATTER_V, SHARED_NODES, ANY_BYTES, ANY_RANKS, "hierarchical"},
    {DIST_COLL_REDUCE_SCATTER_V, ANYWHERE, 8 * KIB, ANY_RANKS, "direct"},
    {DIST_COLL_REDUCE_SCATTER_V, ANYWHERE, ANY_BYTES, ANY_RANKS, "ring"},

    /* Every block crosses the root's network link once in any case, so only short blocks gain from
     * the tree. */
    {DIST_COLL_GATHER, ANYWHERE, SHORT_BLOCK, FEW_RANKS, "direct"},
    {DIST_COLL_GATHER, ANYWHERE, SHORT_BLOCK, ANY_RANKS, "binomial"},
    {DIST_COLL_GATHER, ANYWHERE, ANY_BYTES, ANY_RANKS, "direct"},
    {DIST_COLL_GATHER_V, ANYWHERE, ANY_BYTES, ANY_RANKS, "direct"},
    {DIST_COLL_SCATTER, ANYWHERE, SHORT_BLOCK, FEW_RANKS, "direct"},
    {DIST_COLL_SCATTER, ANYWHERE, SHORT_BLOCK, ANY_RANKS, "binomial"},
    {DIST_COLL_SCATTER, ANYWHERE, ANY_BYTES, ANY_RANKS, "direct"},
    {DIST_COLL_SCATTER_V, ANYWHERE, ANY_BYTES, ANY_RANKS, "direct"},

    /* bruck sends each block log2 n / 2 times on average, but a rank sends only log2 n messages. */
    {DIST_COLL_ALL_TO_ALL, ANYWHERE, SHORT_BLOCK / 4, FEW_RANKS, "direct"},
    {DIST_COLL_ALL_TO_ALL, ANYWHERE, SHORT_BLOCK / 4, ANY_RANKS, "bruck"},
    {DIST_COLL_ALL_TO_ALL, ANYWHERE, ANY_BYTES, CROWD_RANKS, "direct"},
    {DIST_COLL_ALL_TO_ALL, ANYWHERE, ANY_BYTES, ANY_RANKS, "pairwise"},
    {DIST_COLL_ALL_TO_ALL_V, ANYWHERE, ANY_BYTES, CROWD_RANKS, "direct"},
    {DIST_COLL_ALL_TO_ALL_V, ANYWHERE, ANY_BYTES, ANY_RANKS, "pairwise"},
    {.algorithm = NULL},
};

/* The rules for reproducible results, which select only ordered algorithms. */
static const struct select_rule select_ordered_rules[] = {
    {DIST_COLL_ALL_REDUCE, ANYWHERE, 8 * KIB, ANY_RANKS, "recursive_doubling"},
    {DIST_COLL_ALL_REDUCE, ONE_NODE, ANY_BYTES, ANY_RANKS, "direct_ordered"},
    /* halving_doubling sends the fewest bytes over the network, without congestion. */
    {DIST_COLL_ALL_REDUCE, ANYWHERE, ANY_BYTES, ANY_RANKS, "halving_doubling"},
    /* binomial_ordered distributes the additions over the ranks, and pipelines segments. */
    {DIST_COLL_REDUCE, ANYWHERE, ANY_BYTES, ANY_RANKS, "binomial_ordered"},
    {DIST_COLL_REDUCE_SCATTER, ANYWHERE, ANY_BYTES, ANY_RANKS, "direct_ordered"},
    {DIST_COLL_REDUCE_SCATTER_V, ANYWHERE, ANY_BYTES, ANY_RANKS, "direct_ordered"},
    {.algorithm = NULL},
};

bool disti_counts_are_private(dist_collective collective)
{
    return disti_collectives[collective].counts == DISTI_COUNTS_OWN_LISTED;
}

static enum select_layout select_layout(const struct disti_topology *topology)
{
    if (topology->nodes == 1)
        return ONE_NODE;
    return topology->nodes < topology->ranks ? SHARED_NODES : SINGLE_NODES;
}

/* Applies the rules. If none matches, takes the collective's first algorithm, or its first ordered
 * one. */
static const struct disti_algorithm *select_by_rule(bool ordered, dist_collective collective,
                                                    size_t bytes,
                                                    const struct disti_topology *topology)
{
    enum select_layout layout = select_layout(topology);

    for (const struct select_rule *rule = ordered ? select_ordered_rules : select_rules;
         rule->algorithm; rule++) {
        if (rule->collective == collective && bytes <= rule->bytes &&
            topology->ranks <= rule->ranks && (rule->layout == ANYWHERE || rule->layout == layout))
            return disti_algorithm_find(collective, rule->algorithm);
    }
    for (const struct disti_algorithm *a = disti_algorithms; a->name; a++) {
        if (a->collective == collective && (a->ordered || !ordered))
            return a;
    }
    return NULL;
}

/* Returns a number of segments such that none is too long: a power of two, to keep the number of
 * plans low. */
static uint32_t select_segments(const struct disti_choice *choice,
                                const struct disti_algorithm *algorithm, size_t bytes,
                                const struct disti_topology *topology)
{
    bool network =
        select_layout(topology) == SINGLE_NODES &&
        !(algorithm->pieces != DISTI_RANKS && (algorithm->collective == DIST_COLL_BROADCAST ||
                                               algorithm->collective == DIST_COLL_REDUCE ||
                                               algorithm->collective == DIST_COLL_ALL_REDUCE));
    size_t longest = network ? SEGMENT_NETWORK_BYTES : SEGMENT_BYTES;
    int ranks = topology->ranks;
    if (choice->forced_segments)
        return choice->forced_segments;
    if (algorithm->pieces == 0)
        return 1;
    size_t piece = bytes / (size_t)(algorithm->pieces == DISTI_RANKS ? ranks : algorithm->pieces);
    uint32_t segments = 1;
    while (segments < SEGMENTS_MAX && piece / segments > longest)
        segments *= 2;
    return segments;
}

void disti_select(const struct disti_choice *choice, dist_collective collective, size_t bytes,
                  const struct disti_topology *topology, const struct disti_algorithm **algorithm_p,
                  uint32_t *segments_p)
{
    const struct disti_algorithm *algorithm = choice->forced[collective];
    bool ordered = choice->reproducible && disti_algorithm_reduces(collective);
    if (disti_counts_are_private(collective))
        bytes = 0;
    if (!algorithm)
        algorithm = select_by_rule(ordered, collective, bytes, topology);
    *algorithm_p = algorithm;
    *segments_p = select_segments(choice, algorithm, bytes, topology);
}

/* ---- forced algorithms ---- */

/* True if the algorithm may be forced. With reproducible results, a reduction must be ordered. */
static bool choice_is_allowed(const struct disti_choice *choice, const struct disti_algorithm *a)
{
    return !choice->reproducible || a->ordered || !disti_algorithm_reduces(a->collective);
}

/* Lists the algorithms that may be forced, of one collective or (DIST_COLL_COUNT) of all:
 * "all_reduce:ring, all_reduce:tree, ..." */
static void choice_list(const struct disti_choice *choice, dist_collective only, char *text,
                        size_t size)
{
    size_t length = 0;
    for (const struct disti_algorithm *a = disti_algorithms; a->name && length < size; a++)
        if (choice_is_allowed(choice, a) && (only == DIST_COLL_COUNT || only == a->collective))
            length += (size_t)snprintf(text + length, size - length, "%s%s:%s", length ? ", " : "",
                                       dist_collective_string(a->collective), a->name);
}

/* True if item[length] is "collective:name" of this algorithm. */
static bool choice_matches(const struct disti_algorithm *algorithm, const char *item, size_t length)
{
    char full[64];
    snprintf(full, sizeof(full), "%s:%s", dist_collective_string(algorithm->collective),
             algorithm->name);
    return strlen(full) == length && strncmp(full, item, length) == 0;
}

static dist_status choice_algorithms(const char *text, struct disti_choice *choice)
{
    while (text) {
        size_t length = strcspn(text, ",");
        const struct disti_algorithm *a = disti_algorithms;
        while (a->name && !choice_matches(a, text, length))
            a++;
        if (!a->name) {
            char list[2048];
            choice_list(choice, DIST_COLL_COUNT, list, sizeof(list));
            return disti_fail(
                DIST_ERR_INVALID_ARGUMENT,
                "DIST_ALGO: unknown algorithm \"%.*s\"; set it to one or more of these, "
                "separated by commas: %s",
                (int)(length < 200 ? length : 200), text, list);
        }
        if (!choice_is_allowed(choice, a)) {
            const char *collective = dist_collective_string(a->collective);
            char list[512];
            choice_list(choice, a->collective, list, sizeof(list));
            return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                              "DIST_ALGO: %s:%s does not give reproducible results, which "
                              "DIST_REPRODUCIBLE requires; choose one of these: %s",
                              collective, a->name, list);
        }
        choice->forced[a->collective] = a;
        text = text[length] ? text + length + 1 : NULL;
    }
    return DIST_OK;
}

dist_status disti_choice_parse(const char *text, bool reproducible, struct disti_choice *choice_p)
{
    struct disti_choice choice = {.reproducible = reproducible};
    dist_status status = choice_algorithms(text && *text ? text : NULL, &choice);
    if (status != DIST_OK)
        return status;
    int segments = 0;
    status = disti_variable_int("DIST_SEGMENTS", 0, &segments);
    if (status != DIST_OK)
        return status;
    choice.forced_segments = (uint32_t)segments;
    *choice_p = choice;
    return DIST_OK;
}

/* ---- selection by predicted time ---- */

/* Limit on the steps, of all ranks, that one selection simulates. They take some milliseconds. */
#define CHOOSE_STEPS 100000
/* A longer plan would leave too few steps for the other algorithms. */
#define CHOOSE_STEPS_EACH (CHOOSE_STEPS / 2)
/* Limits on the segments that are tried. */
#define CHOOSE_SEGMENT_LEAST 4096
#define CHOOSE_SEGMENTS_MAX 64
/*
 * An algorithm replaces the choice of the rules only if its predicted time is below this fraction
 * of the time of that choice.
 */
#define CHOOSE_GAIN 0.9

/* The state of one selection. */
struct choose {
    const struct disti_choice *choice;
    const struct disti_tuning *tuning;
    const struct disti_topology *topology;
    dist_collective collective;
    size_t bytes;
    uint64_t steps;
    double best;        /* the shortest predicted time so far, in seconds */
    dist_status status; /* ERR_NO_MEMORY: the selection fails, since ranks with memory may select
                           another algorithm */
};

/*
 * True if the status is DIST_OK. Only ERR_NO_MEMORY makes the selection fail; an algorithm without
 * a plan is skipped.
 */
static bool choose_is_known(struct choose *choose, dist_status status)
{
    if (status == DIST_ERR_NO_MEMORY)
        choose->status = status;
    return status == DIST_OK;
}

const char *disti_reason_string(enum disti_reason reason)
{
    static const char *const texts[] = {
#define REASON_TEXT(name, text) [DISTI_REASON_##name] = text,
        DISTI_REASON_MAP(REASON_TEXT)
#undef REASON_TEXT
    };

    return texts[reason];
}

/* True if simulating the algorithm is worthwhile and within the limit of steps. Stores a lower
 * bound on its time. The steps of all ranks are estimated as rank 0's times the number of ranks. */
static bool choose_is_worthwhile(struct choose *choose, const struct disti_shape *shape,
                                 const struct disti_algorithm *algorithm, double *least_p)
{
    struct disti_plan *plan;
    uint64_t steps;

    if (!choose_is_known(choose, disti_plan_write(algorithm, shape, &plan)))
        return false;
    steps = (uint64_t)plan->step_count * (uint64_t)choose->topology->ranks;
    /* The time that rank 0 alone needs, in seconds: a lower bound. */
    const struct disti_cost *cost = &choose->tuning->cost;
    double numa = cost->links[DISTI_SAME_NUMA].overhead_s;
    double inside = cost->links[DISTI_SAME_NODE].overhead_s;
    double outside = cost->links[DISTI_OTHER_NODE].overhead_s, least;
    int node = disti_node_of(choose->topology, 0);
    inside = numa < inside ? numa : inside;
    least = cost->step_s * plan->step_count;
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const struct disti_step *step = &plan->steps[i];
        if (disti_step_has_peer(step))
            least += disti_node_of(choose->topology, step->peer) == node ? inside : outside;
    }
    *least_p = least;
    disti_plan_free(plan);
    if (*least_p >= choose->best || steps > CHOOSE_STEPS_EACH || steps > choose->steps)
        return false;
    choose->steps -= steps;
    return true;
}

/* Fills in the candidate's times. Returns false if there is no such plan or it is not worth
 * simulating. */
static bool choose_predict(struct choose *choose, struct disti_candidate *candidate)
{
    const struct disti_shape shape = {.collective = choose->collective,
                                      .ranks = choose->topology->ranks,
                                      .segments = candidate->segments,
                                      .topology = choose->topology};
    double seconds;

    candidate->seconds = candidate->least = -1;
    if (!choose_is_worthwhile(choose, &shape, candidate->algorithm, &candidate->least) ||
        !choose_is_known(choose, disti_simulate(candidate->algorithm, &shape, choose->bytes,
                                                &choose->tuning->cost, &seconds)) ||
        !(seconds >= 0))
        return false;
    candidate->seconds = seconds;
    choose->best = seconds < choose->best ? seconds : choose->best;
    return true;
}

/* Doubles or halves candidate->segments as long as that reduces the time. True if it did so at
 * least once. */
static bool choose_climb(struct choose *choose, bool up, struct disti_candidate *candidate)
{
    int pieces = candidate->algorithm->pieces;
    size_t piece =
        choose->bytes / (size_t)(pieces == DISTI_RANKS ? choose->topology->ranks : pieces);
    bool gained = false;

    for (;;) {
        struct disti_candidate next = *candidate;

        next.segments = up ? candidate->segments * 2 : candidate->segments / 2;
        if (next.segments < 1 || next.segments > CHOOSE_SEGMENTS_MAX ||
            (next.segments > 1 && piece / next.segments < CHOOSE_SEGMENT_LEAST) ||
            !choose_predict(choose, &next) || next.seconds >= candidate->seconds)
            return gained;
        *candidate = next;
        gained = true;
    }
}

/* Returns the algorithm with the number of segments that the rules select. */
static struct disti_candidate choose_rule_segments(struct choose *choose,
                                                   const struct disti_algorithm *algorithm)
{
    struct disti_candidate candidate = {
        .algorithm = algorithm,
        .segments = select_segments(choose->choice, algorithm, choose->bytes, choose->topology)};

    choose_predict(choose, &candidate);
    return candidate;
}

/* Improves the candidate's number of segments. */
static void choose_best_segments(struct choose *choose, struct disti_candidate *candidate)
{
    if (candidate->seconds < 0 || !candidate->algorithm->pieces || choose->choice->forced_segments)
        return;
    if (!choose_climb(choose, true, candidate))
        choose_climb(choose, false, candidate);
}

/* Returns the reason why nothing can be simulated, or PREDICTED. */
static enum disti_reason choose_obstacle(const struct choose *choose)
{
    const struct disti_topology *topology = choose->topology;

    if (topology->ranks == 1)
        return DISTI_REASON_RULE_SINGLE;
    if (!choose->tuning->predict)
        return DISTI_REASON_RULE_OFF;
    if (disti_counts_are_private(choose->collective))
        return DISTI_REASON_RULE_BLIND;
    if (topology->ranks > DISTI_CHOOSE_RANKS)
        return DISTI_REASON_RULE_RANKS;
    /* Ordered plans are written for a flat topology. The distances in it are correct only if the
     * ranks are numbered node by node. */
    for (int i = 0; choose->choice->reproducible && i < topology->ranks; i++) {
        if (topology->order[i] != i)
            return DISTI_REASON_RULE_ORDER;
    }
    return DISTI_REASON_PREDICTED;
}

static void choose_best(struct disti_chosen *chosen)
{
    chosen->reason = DISTI_REASON_RULE_STEPS;
    if (chosen->rule.seconds < 0)
        return;
    chosen->reason = DISTI_REASON_RULE_NEAR;
    for (int i = 0; i < chosen->count; i++) {
        const struct disti_candidate *candidate = &chosen->candidates[i];

        if (candidate->seconds < 0 || candidate->seconds >= chosen->best.seconds)
            continue;
        if (candidate->seconds < CHOOSE_GAIN * chosen->rule.seconds) {
            chosen->best = *candidate;
            chosen->reason = DISTI_REASON_PREDICTED;
        }
    }
}

/* Applies forced and fixed algorithms, which override predictions. */
static void choose_override(const struct choose *choose, struct disti_chosen *chosen)
{
    const struct disti_choice *choice = choose->choice;
    const struct disti_fixed *fixed = disti_tuning_fixed(choose->tuning, choose->collective,
                                                         choose->bytes, choose->topology->ranks);
    const struct disti_algorithm *algorithm = fixed ? &disti_algorithms[fixed->algorithm] : NULL;

    if (choice->forced[choose->collective]) {
        if (chosen->reason != DISTI_REASON_PREDICTED)
            chosen->best = chosen->rule;
        chosen->reason = DISTI_REASON_FORCED;
        return;
    }
    if (!fixed || (choice->reproducible && disti_algorithm_reduces(choose->collective) &&
                   !algorithm->ordered))
        return;
    chosen->reason = DISTI_REASON_FIXED;
    chosen->best = (struct disti_candidate){
        .algorithm = algorithm,
        .segments = fixed->segments && !choice->forced_segments
                        ? fixed->segments
                        : select_segments(choice, algorithm, choose->bytes, choose->topology),
        .seconds = -1};
}

dist_status disti_choose(const struct disti_choice *choice, const struct disti_tuning *tuning,
                         const struct disti_topology *topology, dist_collective collective,
                         size_t bytes, struct disti_chosen *chosen_p)
{
    struct choose choose = {.choice = choice,
                            .tuning = tuning,
                            .topology = topology,
                            .collective = collective,
                            .bytes = bytes,
                            .steps = CHOOSE_STEPS,
                            .best = DBL_MAX};
    /* The choice must be the same on all ranks. */
    const disti_environment saved = disti_environment_enter();

    chosen_p->count = 0;
    chosen_p->rule.seconds = chosen_p->rule.least = -1;
    disti_select(choice, collective, bytes, topology, &chosen_p->rule.algorithm,
                 &chosen_p->rule.segments);
    chosen_p->reason = choose_obstacle(&choose);
    chosen_p->best = chosen_p->rule;
    if (chosen_p->reason == DISTI_REASON_PREDICTED) {
        /*
         * Simulate the rules' choice first, since the other candidates are compared with its time.
         */
        bool ordered = choose.choice->reproducible && disti_algorithm_reduces(choose.collective);
        const struct disti_algorithm *forced = choose.choice->forced[choose.collective];
        chosen_p->rule = choose_rule_segments(&choose, chosen_p->rule.algorithm);
        chosen_p->candidates[chosen_p->count] = chosen_p->rule;
        choose_best_segments(&choose, &chosen_p->candidates[chosen_p->count++]);
        for (const struct disti_algorithm *a = disti_algorithms; a->name; a++) {
            struct disti_candidate *candidate = &chosen_p->candidates[chosen_p->count];
            if (a->collective != choose.collective || a == chosen_p->rule.algorithm ||
                (ordered && !a->ordered) || (forced && a != forced) ||
                chosen_p->count == DISTI_CANDIDATES_MAX)
                continue;
            *candidate = choose_rule_segments(&choose, a);
            choose_best_segments(&choose, candidate);
            chosen_p->count++;
        }
        chosen_p->best = chosen_p->rule;
        choose_best(chosen_p);
    }
    choose_override(&choose, chosen_p);
    disti_environment_leave(saved);
    return choose.status;
}

/* ---- cached choices ---- */

int disti_size_class(size_t bytes)
{
    return bytes <= 1 ? (int)bytes : 65 - __builtin_clzll((unsigned long long)(bytes - 1));
}

size_t disti_size_class_max(int size_class)
{
    if (size_class == 0)
        return 0;
    return size_class > 64 ? SIZE_MAX : (size_t)1 << (size_class - 1);
}

dist_status disti_chooser_pick(struct disti_chooser *chooser, dist_collective collective,
                               size_t bytes, const struct disti_algorithm **algorithm_p,
                               uint32_t *segments_p)
{
    int size_class = disti_size_class(bytes);
    dist_status status = DIST_OK;

    if (!chooser->known[collective][size_class].algorithm) {
        size_t most = disti_size_class_max(size_class);
        struct disti_chosen chosen;
        status = disti_choose(chooser->choice, chooser->tuning, chooser->topology, collective, most,
                              &chosen);
        if (status == DIST_OK) {
            chooser->known[collective][size_class].algorithm = chosen.best.algorithm;
            chooser->known[collective][size_class].segments = chosen.best.segments;
            disti_info("%s of up to %zu bytes per block: %s, %u segments (%s)",
                       dist_collective_string(collective), most, chosen.best.algorithm->name,
                       chosen.best.segments, disti_reason_string(chosen.reason));
        }
    }
    if (status != DIST_OK)
        return status;
    *algorithm_p = chooser->known[collective][size_class].algorithm;
    *segments_p = chooser->known[collective][size_class].segments;
    return DIST_OK;
}
