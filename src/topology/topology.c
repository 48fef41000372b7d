/* SPDX-License-Identifier: BSD-3-Clause */
/* The model of where the ranks are, created from localities, as one flat node, or from a
 * description. */
#include "topology/topology.h"
#include "base/log.h"
#include "topology/discover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void disti_topology_free(struct disti_topology *topology)
{
    if (!topology)
        return;
    free(topology->localities);
    free(topology->order);
    free(topology->position);
    free(topology->node_first);
    free(topology);
}

/* A rank during sorting. lead: the first rank of its node. */
struct topology_item {
    struct dist_place locality;
    int rank, lead;
};

static int topology_by_number(const void *left, const void *right)
{
    const struct topology_item *a = left, *b = right;
    if (a->locality.node != b->locality.node)
        return a->locality.node < b->locality.node ? -1 : 1;
    return a->rank - b->rank;
}

static int topology_by_locality(const void *left, const void *right)
{
    const struct topology_item *a = left, *b = right;
    const int32_t keys[][2] = {{a->lead, b->lead},
                               {a->locality.package, b->locality.package},
                               {a->locality.numa, b->locality.numa},
                               {a->locality.core, b->locality.core},
                               {a->rank, b->rank}};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

/* Sorts the items. Ranks are usually in order already, which is checked first. */
static void topology_order(struct topology_item *items, int ranks,
                           int (*compare)(const void *, const void *))
{
    for (int i = 1; i < ranks; i++) {
        if (compare(&items[i - 1], &items[i]) > 0) {
            qsort(items, (size_t)ranks, sizeof(*items), compare);
            return;
        }
    }
}

dist_status disti_topology_create(const struct dist_place *localities, int ranks,
                                  struct disti_topology **topology_p)
{
    if (ranks < 1)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "invalid topology of %d ranks", ranks);
    size_t count = (size_t)ranks;
    struct topology_item *items = calloc(count, sizeof(*items));
    struct disti_topology *topology = calloc(1, sizeof(*topology));
    dist_status status = DIST_ERR_NO_MEMORY;
    if (!items || !topology)
        goto out;
    topology->ranks = ranks;
    topology->localities = calloc(count, sizeof(*topology->localities));
    topology->order = calloc(count, sizeof(int));
    topology->position = calloc(count, sizeof(int));
    topology->node_first = calloc(count + 1, sizeof(int));
    if (!topology->localities || !topology->order || !topology->position || !topology->node_first)
        goto out;
    for (int rank = 0; rank < ranks; rank++)
        items[rank] = (struct topology_item){.locality = localities[rank], .rank = rank};
    topology_order(items, ranks, topology_by_number);
    for (int i = 0; i < ranks; i++) {
        bool same = i > 0 && items[i].locality.node == items[i - 1].locality.node;
        items[i].lead = same ? items[i - 1].lead : items[i].rank;
    }
    /* Nodes are ordered by their first ranks, not by their original numbers. */
    topology_order(items, ranks, topology_by_locality);
    for (int i = 0; i < ranks; i++) {
        int rank = items[i].rank;
        if (i == 0 || items[i].lead != items[i - 1].lead)
            topology->node_first[topology->nodes++] = i;
        topology->order[i] = rank;
        topology->position[rank] = i;
        topology->localities[rank] = items[i].locality;
        topology->localities[rank].node = topology->nodes - 1;
    }
    topology->node_first[topology->nodes] = ranks;
    topology->uniform = true;
    for (int node = 1; node < topology->nodes; node++)
        if (disti_node_size(topology, node) != disti_node_size(topology, 0))
            topology->uniform = false;
    *topology_p = topology;
    topology = NULL;
    status = DIST_OK;
out:
    if (status != DIST_OK)
        disti_fail(status, "no memory for a topology of %d ranks", ranks);
    free(items);
    disti_topology_free(topology);
    return status;
}

int disti_node_of(const struct disti_topology *topology, int rank)
{
    return topology->localities[rank].node;
}

int disti_node_size(const struct disti_topology *topology, int node)
{
    return topology->node_first[node + 1] - topology->node_first[node];
}

int disti_node_member(const struct disti_topology *topology, int node, int i)
{
    return topology->order[topology->node_first[node] + i];
}

/* ---- ranks that share CPUs ---- */

/* Adds the CPUs of b to a. Returns true if a has grown. */
static bool crowd_join(uint64_t *a, const uint64_t *b)
{
    bool grew = false;

    for (int w = 0; w < DISTI_CPU_WORDS; w++) {
        grew = grew || (b[w] & ~a[w]);
        a[w] |= b[w];
    }
    return grew;
}

static int crowd_count(const uint64_t *cpus)
{
    int count = 0;

    for (int w = 0; w < DISTI_CPU_WORDS; w++)
        count += __builtin_popcountll(cpus[w]);
    return count;
}

bool disti_crowded(const struct disti_locality *localities, int ranks, int rank)
{
    const struct disti_locality *mine = &localities[rank];
    uint64_t cpus[DISTI_CPU_WORDS];
    int sharers = 0, neighbours = 0;
    bool grew;

    for (int r = 0; r < ranks; r++)
        neighbours += localities[r].machine == mine->machine;
    /* The quota belongs to the cgroup, which contains all ranks of the machine. */
    if (mine->quota_cpus > 0 && neighbours > mine->quota_cpus)
        return true;
    memcpy(cpus, mine->cpus, sizeof(cpus));
    if (crowd_count(cpus) == 0) /* unknown */
        return neighbours > mine->usable_cpus;
    do {
        grew = false;
        sharers = 0;
        for (int r = 0; r < ranks; r++) {
            bool meets = false;
            for (int w = 0; w < DISTI_CPU_WORDS; w++)
                meets = meets || (cpus[w] & localities[r].cpus[w]);
            if (localities[r].kernel != mine->kernel || !meets)
                continue;
            sharers++;
            grew = crowd_join(cpus, localities[r].cpus) || grew;
        }
    } while (grew);
    return sharers > crowd_count(cpus);
}

int disti_shared_cpus(const struct disti_locality *localities, int ranks)
{
    uint64_t cpus[DISTI_CPU_WORDS];
    bool machines = false;

    memcpy(cpus, localities[0].cpus, sizeof(cpus));
    for (int r = 1; r < ranks; r++) {
        if (localities[r].kernel != localities[0].kernel)
            return 0;
        machines = machines || localities[r].machine != localities[0].machine;
        crowd_join(cpus, localities[r].cpus);
    }
    return machines ? crowd_count(cpus) : 0;
}

/* ---- the ring: the ranks in the order of their localities ---- */

int disti_ring_next(const struct disti_topology *topology, int rank)
{
    return topology->order[(topology->position[rank] + 1) % topology->ranks];
}

int disti_ring_previous(const struct disti_topology *topology, int rank)
{
    return topology->order[(topology->position[rank] + topology->ranks - 1) % topology->ranks];
}

/* ---- topologies from a description, for tests and simulations ---- */

/* More ranks than this are considered a typing error. */
#define SYNTHETIC_RANKS_MAX (1 << 20)

enum { LEVEL_RACK, LEVEL_NODE, LEVEL_PACKAGE, LEVEL_NUMA, LEVEL_CORE, LEVELS };

static const char *const synthetic_levels[LEVELS] = {"rack", "node", "package", "numa", "core"};

/* Parses "level:count" items. counts[level]: number per element of the level above; 0: not given.
 * Returns an error message, or NULL. */
static const char *synthetic_parse(const char *text, int counts[LEVELS], int *ranks_p)
{
    int below = 0; /* the first level that may still follow */
    long ranks = 1;
    for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
        size_t length = strcspn(text, ": ");
        int level = 0;
        while (level < LEVELS && (strlen(synthetic_levels[level]) != length ||
                                  strncmp(text, synthetic_levels[level], length) != 0))
            level++;
        if (level == LEVELS)
            return "unknown level (valid levels: rack, node, package, numa, core)";
        text += length;
        if (*text++ != ':' || *text < '0' || *text > '9')
            return "a level has no count";
        char *end;
        long count = strtol(text, &end, 10);
        if (count < 1 || count > SYNTHETIC_RANKS_MAX || (*end != '\0' && *end != ' '))
            return "a count is not a number of at least 1";
        text = end;
        if (level < below)
            return "levels must be in the order rack, node, package, numa, core, each at most once";
        below = level + 1;
        counts[level] = (int)count;
        ranks *= count;
        if (ranks > SYNTHETIC_RANKS_MAX)
            return "it has more than 1048576 ranks";
    }
    if (below == 0)
        return "it is empty";
    *ranks_p = (int)ranks;
    return NULL;
}

dist_status disti_topology_synthetic(const char *description, struct disti_topology **topology_p)
{
    int counts[LEVELS] = {0}, ranks = 0;
    const char *why = synthetic_parse(description, counts, &ranks);
    if (why)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "topology \"%s\": %s; a valid example is \"node:4 package:2 core:8\"",
                          description, why);
    struct dist_place *localities = calloc((size_t)ranks, sizeof(*localities));
    if (!localities)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a topology of %d ranks", ranks);
    for (int rank = 0; rank < ranks; rank++) {
        /* Numbers are relative to the enclosing level, and the last level varies fastest. */
        int32_t number[LEVELS];
        for (int level = LEVELS - 1, left = rank; level >= 0; level--) {
            number[level] = counts[level] ? left % counts[level] : -1;
            left = counts[level] ? left / counts[level] : left;
        }
        int32_t node = number[LEVEL_NODE];
        /* Nodes are numbered over all racks. Without nodes, a rack is one node. */
        if (counts[LEVEL_RACK])
            node = counts[LEVEL_NODE] ? number[LEVEL_RACK] * counts[LEVEL_NODE] + node
                                      : number[LEVEL_RACK];
        localities[rank] = (struct dist_place){.node = node,
                                               .package = number[LEVEL_PACKAGE],
                                               .numa = number[LEVEL_NUMA],
                                               .core = number[LEVEL_CORE],
                                               .gpu = -1};
    }
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
