/* SPDX-License-Identifier: BSD-3-Clause */
/* What a group tells about itself and its ranks. */
#include "core/group/group.h"

/* A child may ask where its parent was: only memory is read. */
static bool identity_is_known(const struct dist_group *group)
{
    return group && (!atomic_load(&group->destroyed) || group->inherited);
}

int dist_get_rank(const dist_group *group)
{
    return identity_is_known(group) ? group->rank : -1;
}

int dist_get_world_size(const dist_group *group)
{
    return identity_is_known(group) ? group->world_size : -1;
}

int dist_get_local_rank(const dist_group *group)
{
    return identity_is_known(group) ? group->local_rank : -1;
}

dist_status dist_get_place(const dist_group *group, int rank, struct dist_place *place_p)
{
    if (!identity_is_known(group))
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_get_place: there is no such group");
    if (rank < 0 || rank >= group->world_size)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_get_place: rank %d is none of the group's, 0 to %d", rank,
                          group->world_size - 1);
    if (!place_p)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT, "dist_get_place: place_p is NULL");
    *place_p = group->places[rank];
    return DIST_OK;
}

const char *dist_get_backend(const dist_group *group)
{
    return identity_is_known(group) ? group->backend->name : "";
}

int dist_get_global_rank(const dist_group *group, int group_rank)
{
    if (!identity_is_known(group) || group_rank < 0 || group_rank >= group->world_size)
        return -1;
    return group->members[group_rank];
}

int dist_get_group_rank(const dist_group *group, int global_rank)
{
    if (!identity_is_known(group))
        return -1;
    if (group->whole)
        return global_rank >= 0 && global_rank < group->world_size ? global_rank : -1;
    for (int r = 0; r < group->world_size; r++) {
        if (group->members[r] == global_rank)
            return r;
    }
    return -1;
}
