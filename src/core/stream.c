/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls on memory of devices: the stream that orders them. */
#include "core/group.h"

dist_status dist_set_stream(dist_group *group, void *stream)
{
    dist_status status = disti_group_check(group, "dist_set_stream");

    if (status != DIST_OK)
        return status;
    disti_group_lock(group);
    group->stream = stream;
    disti_group_unlock(group);
    return DIST_OK;
}
