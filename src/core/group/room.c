/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory for the lists of a new group: a rank that has none still has to tell the others so. */
#include "core/group/group.h"

#include <stdlib.h>
#include <string.h>

dist_status disti_group_room_reserve(struct dist_group *group)
{
    group->reserve = calloc(2 * (size_t)group->world_size, sizeof(*group->reserve));
    group->spare_turn = disti_turn_new();
    return group->reserve && group->spare_turn
               ? DIST_OK
               : disti_fail(DIST_ERR_NO_MEMORY, "no memory for a group of %d ranks",
                            group->world_size);
}

/* False: another thread has it. */
static bool room_take_reserve(struct dist_group *parent)
{
    bool taken;

    pthread_mutex_lock(&parent->world->lock);
    taken = parent->reserve_taken;
    parent->reserve_taken = true;
    pthread_mutex_unlock(&parent->world->lock);
    return !taken;
}

dist_status disti_group_room_take(struct dist_group *parent, struct disti_group_room *room)
{
    const size_t ranks = (size_t)parent->world_size;

    room->ranks = calloc(2 * ranks, sizeof(*room->ranks));
    room->is_reserve = !room->ranks;
    if (room->is_reserve && room_take_reserve(parent))
        room->ranks = parent->reserve;
    if (!room->ranks)
        return disti_fail(DIST_ERR_NO_MEMORY, "no memory for a group of some of %d ranks",
                          parent->world_size);
    room->seen = room->ranks + ranks;
    if (room->is_reserve)
        memset(room->seen, 0, ranks * sizeof(*room->seen));
    return DIST_OK;
}

void disti_group_room_give(struct dist_group *parent, const struct disti_group_room *room)
{
    if (!room->is_reserve) {
        free(room->ranks);
        return;
    }
    pthread_mutex_lock(&parent->world->lock);
    parent->reserve_taken = false;
    pthread_mutex_unlock(&parent->world->lock);
}
