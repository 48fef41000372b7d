/* SPDX-License-Identifier: BSD-3-Clause */
/* What each rank tells rank 0, and what that makes of it. */
#include "topology.h"

#include <stdlib.h>

/* A rank's own. */
struct gather_card {
    struct topology_machine machine;
    struct dist_place place;
    int32_t local_rank;
    int32_t device; /* as DIST_DEVICE says; -1: by local rank */
};

static void gather_fill(dist_group *group, struct gather_card *card)
{
    const char *device = getenv("DIST_DEVICE");

    topology_discover(&card->machine);
    card->local_rank = dist_get_local_rank(group);
    card->device = device && *device ? atoi(device) : -1;
    if (dist_get_place(group, dist_get_rank(group), &card->place) != DIST_OK)
        card->place = (struct dist_place){0, -1, -1, -1, -1};
}

/* Places count nodes from 0 in rank order, so a new one is the next. */
static void gather_sort(const struct gather_card *cards, struct topology *topology)
{
    for (int rank = 0; rank < topology->ranks; rank++) {
        const struct gather_card *card = &cards[rank];
        const int gpu = card->device >= 0 ? card->device : card->local_rank;

        if (card->place.node == topology->machines)
            topology->machine[topology->machines++] = card->machine;
        topology->rank[rank] = (struct topology_rank){
            card->place.node, card->place.core < card->machine.cores ? card->place.core : -1,
            gpu < card->machine.gpus ? gpu : -1};
    }
}

static dist_status gather_cards(dist_group *group, struct gather_card *card,
                                struct topology *topology)
{
    const int ranks = dist_get_world_size(group);
    const bool root = dist_get_rank(group) == 0;
    struct gather_card *cards = root ? calloc((size_t)ranks, sizeof(*cards)) : NULL;
    dist_status status = DIST_ERR_NO_MEMORY;

    if (root) {
        topology->machine = calloc((size_t)ranks, sizeof(*topology->machine));
        topology->rank = calloc((size_t)ranks, sizeof(*topology->rank));
    }
    if (!root || (cards && topology->machine && topology->rank))
        status = dist_gather(group, card, cards, sizeof(*card), DIST_UINT8, 0);
    if (root && status == DIST_OK) {
        topology->ranks = ranks;
        gather_sort(cards, topology);
    }
    free(cards);
    return status;
}

dist_status topology_gather_group(dist_group *group, struct topology *topology_p)
{
    struct gather_card *card = calloc(1, sizeof(*card));
    dist_status status;

    *topology_p = (struct topology){0};
    if (!card)
        return DIST_ERR_NO_MEMORY;
    gather_fill(group, card);
    status = gather_cards(group, card, topology_p);
    free(card);
    return status;
}

dist_status topology_gather(struct topology *topology_p)
{
    struct dist_options options = DIST_OPTIONS_INIT;
    dist_group *group = NULL;
    dist_status status;

    *topology_p = (struct topology){0};
    options.backend = "gloo";
    status = dist_init_process_group(&options, &group);
    if (status == DIST_OK)
        status = topology_gather_group(group, topology_p);
    if (group)
        dist_destroy_process_group(group);
    return status;
}
