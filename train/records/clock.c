/* SPDX-License-Identifier: BSD-3-Clause */
/* The clocks of all ranks. */
#include "clock.h"

#include <math.h>
#include <stdlib.h>

#include "train/comm.h"

enum { CLOCK_ROUNDS = 24 };

/* When a rank entered and left each round. */
struct clock_card {
    double enter[CLOCK_ROUNDS], leave[CLOCK_ROUNDS];
};

struct clock_offset clock_bound(const double *enter0, const double *leave0, const double *enter,
                                const double *leave, int rounds)
{
    struct clock_offset offset = {.at = leave0[rounds - 1]};
    double least = -INFINITY, most = INFINITY;

    for (int i = 0; i < rounds; i++) {
        least = fmax(least, enter[i] - leave0[i]);
        most = fmin(most, leave[i] - enter0[i]);
    }
    /* On one machine all ranks have the same clock, which is within the bounds then. */
    offset.offset = least <= 0 && most >= 0 ? 0 : (least + most) / 2;
    offset.error = fmax(most - offset.offset, offset.offset - least);
    return offset;
}

/* `cards` is room for a card of each rank. */
static dist_status clock_rounds(dist_group *group, struct clock_card *own, struct clock_card *cards)
{
    dist_status status = DIST_OK;

    for (int i = 0; i < CLOCK_ROUNDS && status == DIST_OK; i++) {
        own->enter[i] = comm_now();
        status = dist_all_gather(group, own->enter + i, cards, 1, DIST_FLOAT64);
        own->leave[i] = comm_now();
    }
    if (status == DIST_OK)
        status = dist_all_gather(group, own, cards, sizeof(*own) / sizeof(double), DIST_FLOAT64);
    return status;
}

dist_status clock_compare(dist_group *group, struct clock_offset *offsets)
{
    const int world = dist_get_world_size(group);
    struct clock_card own, *cards = calloc((size_t)world, sizeof(*cards));
    dist_status status = cards ? clock_rounds(group, &own, cards) : DIST_ERR_NO_MEMORY;

    if (status == DIST_OK && dist_get_rank(group) == 0) {
        for (int rank = 0; rank < world; rank++)
            offsets[rank] = clock_bound(cards[0].enter, cards[0].leave, cards[rank].enter,
                                        cards[rank].leave, CLOCK_ROUNDS);
        offsets[0].error = 0;
    }
    free(cards);
    return status;
}

double clock_aligned(const struct clock_offset *first, const struct clock_offset *last, double time)
{
    const double span = last->at - first->at;
    double part = span > 0 ? (time - first->offset - first->at) / span : 0;

    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return time - (first->offset + part * (last->offset - first->offset));
}
