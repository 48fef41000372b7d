/* SPDX-License-Identifier: BSD-3-Clause */
/* The model of where the ranks are: made from localities, from nothing, or from a description. */
#include "topology/topology.h"

#include "base/log.h"

#include <stdlib.h>

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

/* A rank while it is being sorted. lead: the first rank of its node. */
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

/* Ranks mostly come in order already: a look at each is enough then. */
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

/* Nodes follow each other by their first ranks, whatever numbers they came with. */
static void topology_sort(struct topology_item *items, int ranks)
{
    topology_order(items, ranks, topology_by_number);
    for (int i = 0; i < ranks; i++) {
        bool same = i > 0 && items[i].locality.node == items[i - 1].locality.node;
        items[i].lead = same ? items[i - 1].lead : items[i].rank;
    }
    topology_order(items, ranks, topology_by_locality);
}

static void topology_fill(struct disti_topology *topology, const struct topology_item *items)
{
    for (int i = 0; i < topology->ranks; i++) {
        int rank = items[i].rank;
        if (i == 0 || items[i].lead != items[i - 1].lead)
            topology->node_first[topology->nodes++] = i;
        topology->order[i] = rank;
        topology->position[rank] = i;
        topology->localities[rank] = items[i].locality;
        topology->localities[rank].node = topology->nodes - 1;
    }
    topology->node_first[topology->nodes] = topology->ranks;
    topology->uniform = true;
    for (int node = 1; node < topology->nodes; node++)
        if (disti_node_size(topology, node) != disti_node_size(topology, 0))
            topology->uniform = false;
}

dist_status disti_topology_create(const struct dist_place *localities, int ranks,
                                  struct disti_topology **topology_p)
{
    if (ranks < 1)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "a topology of %d ranks", ranks);
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
    topology_sort(items, ranks);
    topology_fill(topology, items);
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

int disti_node_leader(const struct disti_topology *topology, int node)
{
    return disti_node_member(topology, node, 0);
}
