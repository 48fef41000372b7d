/* SPDX-License-Identifier: BSD-3-Clause */
/* Topologies that are described in words, for tests and simulations. */
#include "base/log.h"
#include "topology/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More ranks than this are a typing error. */
#define SYNTHETIC_RANKS_MAX (1 << 20)

enum { LEVEL_RACK, LEVEL_NODE, LEVEL_PACKAGE, LEVEL_NUMA, LEVEL_CORE, LEVELS };

static const char *const synthetic_levels[LEVELS] = {"rack", "node", "package", "numa", "core"};

static dist_status synthetic_fail(const char *description, const char *why)
{
    return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                      "topology \"%s\": %s; give for example \"node:4 package:2 core:8\"",
                      description, why);
}

/* Reads one "level:count" from *text_p, moves on behind it. Returns what is wrong, or NULL. */
static const char *synthetic_item(const char **text_p, int *level_p, int *count_p)
{
    const char *text = *text_p;
    size_t length = strcspn(text, ": ");
    int level = 0;
    while (level < LEVELS && (strlen(synthetic_levels[level]) != length ||
                              strncmp(text, synthetic_levels[level], length) != 0))
        level++;
    if (level == LEVELS)
        return "a level is none of rack, node, package, numa, core";
    text += length;
    if (*text++ != ':' || *text < '0' || *text > '9')
        return "a level has no count";
    char *end;
    long count = strtol(text, &end, 10);
    if (count < 1 || count > SYNTHETIC_RANKS_MAX || (*end != '\0' && *end != ' '))
        return "a count is not a number of at least 1";
    *text_p = end;
    *level_p = level;
    *count_p = (int)count;
    return NULL;
}

/* counts[level]: how many in each of the level above; 0: not described. */
static const char *synthetic_parse(const char *text, int counts[LEVELS], int *ranks_p)
{
    int below = 0; /* levels before this one may not come any more */
    long ranks = 1;
    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        int level, count;
        const char *why = synthetic_item(&text, &level, &count);
        if (why)
            return why;
        if (level < below)
            return "the levels go rack, node, package, numa, core, each once";
        below = level + 1;
        counts[level] = count;
        ranks *= count;
        if (ranks > SYNTHETIC_RANKS_MAX)
            return "that is more than a million ranks";
    }
    if (below == 0)
        return "it is empty";
    *ranks_p = (int)ranks;
    return NULL;
}

/* Numbers count within the level that contains them, the last level fastest. */
static struct dist_place synthetic_locality(const int counts[LEVELS], int rank)
{
    int32_t number[LEVELS];
    for (int level = LEVELS - 1; level >= 0; level--) {
        number[level] = counts[level] ? rank % counts[level] : -1;
        rank = counts[level] ? rank / counts[level] : rank;
    }
    int32_t node = number[LEVEL_NODE];
    if (counts[LEVEL_RACK]) /* nodes are numbered over all racks; a rack without any is one */
        node = counts[LEVEL_NODE] ? number[LEVEL_RACK] * counts[LEVEL_NODE] + node
                                  : number[LEVEL_RACK];
    return (struct dist_place){.node = node,
                               .package = number[LEVEL_PACKAGE],
                               .numa = number[LEVEL_NUMA],
                               .core = number[LEVEL_CORE],
                               .gpu = -1};
}

dist_status disti_topology_synthetic(const char *description, struct disti_topology **topology_p)
{
    int counts[LEVELS] = {0}, ranks = 0;
    const char *why = synthetic_parse(description, counts, &ranks);
    if (why)
        return synthetic_fail(description, why);
    struct dist_place *localities = calloc((size_t)ranks, sizeof(*localities));
    if (!localities)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a topology of %d ranks", ranks);
    for (int rank = 0; rank < ranks; rank++)
        localities[rank] = synthetic_locality(counts, rank);
    dist_status status = disti_topology_create(localities, ranks, topology_p);
    if (status == DIST_OK && counts[LEVEL_RACK])
        (*topology_p)->rack_nodes = counts[LEVEL_NODE] ? counts[LEVEL_NODE] : 1;
    free(localities);
    return status;
}

dist_status disti_topology_flat(int ranks, struct disti_topology **topology_p)
{
    char description[32];
    snprintf(description, sizeof(description), "core:%d", ranks);
    return disti_topology_synthetic(description, topology_p);
}
