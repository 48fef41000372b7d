/* SPDX-License-Identifier: BSD-3-Clause */
/* Selection: from what the user forces, else from bytes, ranks and nodes. */
#include "tuning/select.h"

#include "base/log.h"
#include "base/settings/config.h"
#include "topology/topology.h"

#include <stdio.h>
#include <string.h>

#define KIB ((size_t)1024)

/*
 * A segment of this size stays in a core's second-level cache between being reduced and being
 * sent on, and is long enough that a message's fixed cost no longer shows.
 */
#define SEGMENT_BYTES (128 * KIB)
#define SEGMENTS_MAX 64
/*
 * Over a network a message costs calls of the kernel, and the transport reduces what has come of it
 * while the rest is on its way: cutting gains nothing but at the seams of the steps.
 */
#define SEGMENT_NETWORK_BYTES (2048 * KIB)

/* How the ranks lie. */
enum select_layout { ONE_NODE, SHARED_NODES, SINGLE_NODES, ANYWHERE };

/* The first rule that fits decides: up to so many bytes a block, and up to so many ranks. */
struct select_rule {
    dist_collective collective;
    enum select_layout layout;
    size_t bytes;
    int ranks;
    const char *algorithm;
};

#define ANY_BYTES SIZE_MAX
#define ANY_RANKS INT32_MAX

/* Blocks so short that a message costs the same with several of them. */
#define SHORT_BLOCK KIB
/* So few ranks that a message to each costs no more than log2 n messages one after the other. */
#define FEW_RANKS 8
/* More ranks than this, all at once, are too many on one rank's line at a time. */
#define CROWD_RANKS 32

static const struct select_rule select_rules[] = {
    /* Short: what counts is the number of steps one after the other. */
    {DIST_COLL_ALL_REDUCE, ONE_NODE, 8 * KIB, ANY_RANKS, "recursive_doubling"},
    /* Few ranks double in half the steps of a tree, which goes up and down. */
    {DIST_COLL_ALL_REDUCE, SHARED_NODES, 8 * KIB, FEW_RANKS, "recursive_doubling"},
    /* Of many, doubling would have all ranks of a node on the network in several steps. */
    {DIST_COLL_ALL_REDUCE, SHARED_NODES, 8 * KIB, ANY_RANKS, "tree"},
    {DIST_COLL_ALL_REDUCE, SINGLE_NODES, 8 * KIB, ANY_RANKS, "recursive_doubling"},
    /* Two ranks: as many bytes as any other in half the messages, until the additions count. */
    {DIST_COLL_ALL_REDUCE, SINGLE_NODES, 128 * KIB, 2, "recursive_doubling"},
    /* In shared memory the peers' data are read where they lie: no hop is better than one. */
    {DIST_COLL_ALL_REDUCE, ONE_NODE, ANY_BYTES, ANY_RANKS, "direct"},
    /* The network carries each byte once a node, and all ranks of a node share the work. */
    {DIST_COLL_ALL_REDUCE, SHARED_NODES, ANY_BYTES, ANY_RANKS, "hierarchical"},
    /* Least bytes either way; the ring's n steps pay once each is long enough to hide them. */
    {DIST_COLL_ALL_REDUCE, SINGLE_NODES, 512 * KIB, ANY_RANKS, "halving_doubling"},
    {DIST_COLL_ALL_REDUCE, SINGLE_NODES, ANY_BYTES, ANY_RANKS, "ring"},

    /* Below two segments there is nothing to pipeline. */
    {DIST_COLL_BROADCAST, ANYWHERE, 2 * SEGMENT_BYTES, ANY_RANKS, "binomial"},
    /* A chain's last rank waits for n - 2 hops: more than two trees' for many ranks. */
    {DIST_COLL_BROADCAST, ANYWHERE, ANY_BYTES, 16, "chain"},
    {DIST_COLL_BROADCAST, ANYWHERE, ANY_BYTES, ANY_RANKS, "tree"},

    {DIST_COLL_BARRIER, ANYWHERE, ANY_BYTES, ANY_RANKS, "dissemination"},

    {DIST_COLL_REDUCE, ANYWHERE, 8 * KIB, ANY_RANKS, "binomial"},
    /* In shared memory all ranks do their part of the additions, from where the data lie. */
    {DIST_COLL_REDUCE, ONE_NODE, ANY_BYTES, ANY_RANKS, "scatter_gather"},
    /* As for the broadcast. */
    {DIST_COLL_REDUCE, ANYWHERE, 2 * SEGMENT_BYTES, ANY_RANKS, "binomial"},
    {DIST_COLL_REDUCE, ANYWHERE, ANY_BYTES, 16, "chain"},
    {DIST_COLL_REDUCE, ANYWHERE, ANY_BYTES, ANY_RANKS, "tree"},

    /* Short blocks: few messages, though each of them goes through several ranks. */
    {DIST_COLL_ALL_GATHER, ANYWHERE, SHORT_BLOCK, FEW_RANKS, "direct"},
    {DIST_COLL_ALL_GATHER, ANYWHERE, SHORT_BLOCK, ANY_RANKS, "bruck"},
    /* One step; over a network long blocks of everybody to everybody get into each other's way. */
    {DIST_COLL_ALL_GATHER, ONE_NODE, ANY_BYTES, ANY_RANKS, "direct"},
    /* A block enters each node once, by a ring of nodes only. */
    {DIST_COLL_ALL_GATHER, SHARED_NODES, ANY_BYTES, ANY_RANKS, "hierarchical"},
    {DIST_COLL_ALL_GATHER, ANYWHERE, 8 * KIB, ANY_RANKS, "direct"},
    {DIST_COLL_ALL_GATHER, ANYWHERE, ANY_BYTES, ANY_RANKS, "ring"},
    /* A message a block in any case: no use in sending it on. */
    {DIST_COLL_ALL_GATHER_V, ONE_NODE, ANY_BYTES, ANY_RANKS, "direct"},
    {DIST_COLL_ALL_GATHER_V, SHARED_NODES, ANY_BYTES, ANY_RANKS, "hierarchical"},
    {DIST_COLL_ALL_GATHER_V, ANYWHERE, 8 * KIB, ANY_RANKS, "direct"},
    {DIST_COLL_ALL_GATHER_V, ANYWHERE, ANY_BYTES, ANY_RANKS, "ring"},

    {DIST_COLL_REDUCE_SCATTER, ANYWHERE, SHORT_BLOCK, FEW_RANKS, "direct"},
    {DIST_COLL_REDUCE_SCATTER, ANYWHERE, SHORT_BLOCK, ANY_RANKS, "recursive_halving"},
    /* As for all-reduce: read where the data lie; over a network each byte once a node, no crowd.
     */
    {DIST_COLL_REDUCE_SCATTER, ONE_NODE, ANY_BYTES, ANY_RANKS, "direct"},
    {DIST_COLL_REDUCE_SCATTER, SHARED_NODES, ANY_BYTES, ANY_RANKS, "hierarchical"},
    {DIST_COLL_REDUCE_SCATTER, ANYWHERE, 8 * KIB, ANY_RANKS, "recursive_halving"},
    {DIST_COLL_REDUCE_SCATTER, ANYWHERE, ANY_BYTES, ANY_RANKS, "ring"},
    {DIST_COLL_REDUCE_SCATTER_V, ONE_NODE, ANY_BYTES, ANY_RANKS, "direct"},
    {DIST_COLL_REDUCE_SCATTER_V, SHARED_NODES, ANY_BYTES, ANY_RANKS, "hierarchical"},
    {DIST_COLL_REDUCE_SCATTER_V, ANYWHERE, 8 * KIB, ANY_RANKS, "direct"},
    {DIST_COLL_REDUCE_SCATTER_V, ANYWHERE, ANY_BYTES, ANY_RANKS, "ring"},

    /* The root's line carries every block once either way: only short ones gain by the tree. */
    {DIST_COLL_GATHER, ANYWHERE, SHORT_BLOCK, FEW_RANKS, "direct"},
    {DIST_COLL_GATHER, ANYWHERE, SHORT_BLOCK, ANY_RANKS, "binomial"},
    {DIST_COLL_GATHER, ANYWHERE, ANY_BYTES, ANY_RANKS, "direct"},
    {DIST_COLL_GATHER_V, ANYWHERE, ANY_BYTES, ANY_RANKS, "direct"},
    {DIST_COLL_SCATTER, ANYWHERE, SHORT_BLOCK, FEW_RANKS, "direct"},
    {DIST_COLL_SCATTER, ANYWHERE, SHORT_BLOCK, ANY_RANKS, "binomial"},
    {DIST_COLL_SCATTER, ANYWHERE, ANY_BYTES, ANY_RANKS, "direct"},
    {DIST_COLL_SCATTER_V, ANYWHERE, ANY_BYTES, ANY_RANKS, "direct"},

    /* Each block goes log2 n / 2 times over the line, in n / 2 times fewer messages. */
    {DIST_COLL_ALL_TO_ALL, ANYWHERE, SHORT_BLOCK / 4, FEW_RANKS, "direct"},
    {DIST_COLL_ALL_TO_ALL, ANYWHERE, SHORT_BLOCK / 4, ANY_RANKS, "bruck"},
    {DIST_COLL_ALL_TO_ALL, ANYWHERE, ANY_BYTES, CROWD_RANKS, "direct"},
    {DIST_COLL_ALL_TO_ALL, ANYWHERE, ANY_BYTES, ANY_RANKS, "pairwise"},
    {DIST_COLL_ALL_TO_ALL_V, ANYWHERE, ANY_BYTES, CROWD_RANKS, "direct"},
    {DIST_COLL_ALL_TO_ALL_V, ANYWHERE, ANY_BYTES, ANY_RANKS, "pairwise"},
};

/* The same for reproducible results: among those that add in their order. */
static const struct select_rule select_ordered_rules[] = {
    {DIST_COLL_ALL_REDUCE, ANYWHERE, 8 * KIB, ANY_RANKS, "recursive_doubling"},
    {DIST_COLL_ALL_REDUCE, ONE_NODE, ANY_BYTES, ANY_RANKS, "direct_ordered"},
    /* The least bytes over the network, and no crowd. */
    {DIST_COLL_ALL_REDUCE, ANYWHERE, ANY_BYTES, ANY_RANKS, "halving_doubling"},
    /* The additions are shared by the ranks, and segments follow each other. */
    {DIST_COLL_REDUCE, ANYWHERE, ANY_BYTES, ANY_RANKS, "binomial_ordered"},
    {DIST_COLL_REDUCE_SCATTER, ANYWHERE, ANY_BYTES, ANY_RANKS, "direct_ordered"},
    {DIST_COLL_REDUCE_SCATTER_V, ANYWHERE, ANY_BYTES, ANY_RANKS, "direct_ordered"},
};

bool disti_select_blind(dist_collective collective)
{
    return collective == DIST_COLL_GATHER_V || collective == DIST_COLL_SCATTER_V ||
           collective == DIST_COLL_ALL_TO_ALL_V;
}

static enum select_layout select_layout(const struct disti_topology *topology)
{
    if (topology->nodes == 1)
        return ONE_NODE;
    return topology->nodes < topology->ranks ? SHARED_NODES : SINGLE_NODES;
}

static const struct disti_algorithm *select_by_rule(const struct select_rule *rule,
                                                    dist_collective collective, size_t bytes,
                                                    const struct disti_topology *topology)
{
    enum select_layout layout = select_layout(topology);
    while (rule->collective != collective || bytes > rule->bytes || topology->ranks > rule->ranks ||
           (rule->layout != ANYWHERE && rule->layout != layout))
        rule++; /* each collective's last rule fits everything */
    return disti_algorithm_find(collective, rule->algorithm);
}

/* Do ranks wait for the first segment to reach them? In chains and trees, not round a ring. */
static bool select_pipelines(const struct disti_algorithm *algorithm)
{
    return algorithm->pieces != DISTI_RANKS && (algorithm->collective == DIST_COLL_BROADCAST ||
                                                algorithm->collective == DIST_COLL_REDUCE ||
                                                algorithm->collective == DIST_COLL_ALL_REDUCE);
}

/* Enough segments that none is too long; powers of two, to have few plans. */
uint32_t disti_select_segments(const struct disti_choice *choice,
                               const struct disti_algorithm *algorithm, size_t bytes,
                               const struct disti_topology *topology)
{
    bool network = select_layout(topology) == SINGLE_NODES && !select_pipelines(algorithm);
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
    if (disti_select_blind(collective))
        bytes = 0;
    if (!algorithm)
        algorithm = select_by_rule(ordered ? select_ordered_rules : select_rules, collective, bytes,
                                   topology);
    *algorithm_p = algorithm;
    *segments_p = disti_select_segments(choice, algorithm, bytes, topology);
}

/* ---- what is forced ---- */

/* May it be forced? Where results are to be reproducible, what reduces must be ordered. */
static bool choice_allows(const struct disti_choice *choice, const struct disti_algorithm *a)
{
    return !choice->reproducible || a->ordered || !disti_algorithm_reduces(a->collective);
}

/* "all_reduce:ring, all_reduce:tree, ...": all that may be forced, or that of one collective. */
static void choice_list(const struct disti_choice *choice, dist_collective only, char *text,
                        size_t size)
{
    size_t length = 0;
    for (const struct disti_algorithm *a = disti_algorithms; a->name && length < size; a++)
        if (choice_allows(choice, a) && (only == DIST_COLL_COUNT || only == a->collective))
            length += (size_t)snprintf(text + length, size - length, "%s%s:%s", length ? ", " : "",
                                       dist_collective_string(a->collective), a->name);
}

static dist_status choice_fail(const struct disti_choice *choice, const char *item, size_t length)
{
    char list[2048];
    choice_list(choice, DIST_COLL_COUNT, list, sizeof(list));
    return disti_fail(
        DIST_ERR_INVALID_ARGUMENT,
        "DIST_ALGO: there is no \"%.*s\"; give one or more of these, separated by commas: %s",
        (int)(length < 200 ? length : 200), item, list);
}

static dist_status choice_fail_unordered(const struct disti_choice *choice,
                                         const struct disti_algorithm *algorithm)
{
    const char *collective = dist_collective_string(algorithm->collective);
    char list[512];
    choice_list(choice, algorithm->collective, list, sizeof(list));
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "DIST_ALGO: %s:%s does not give reproducible results, which "
                      "DIST_REPRODUCIBLE asks for; choose one of these: %s",
                      collective, algorithm->name, list);
}

/* Is item[length] this algorithm, "collective:name"? */
static bool choice_names(const struct disti_algorithm *algorithm, const char *item, size_t length)
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
        while (a->name && !choice_names(a, text, length))
            a++;
        if (!a->name)
            return choice_fail(choice, text, length);
        if (!choice_allows(choice, a))
            return choice_fail_unordered(choice, a);
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
    status = disti_env_int("DIST_SEGMENTS", 1, 1024, 0, &segments);
    if (status != DIST_OK)
        return status;
    choice.forced_segments = (uint32_t)segments;
    *choice_p = choice;
    return DIST_OK;
}
