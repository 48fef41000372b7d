/* SPDX-License-Identifier: BSD-3-Clause */
/* The order of gradients, once it is known in which one they really come. */
#include "ddp.h"

#include <string.h>

/* Those of `came` first, the others as they were. */
static void ddp_order_by(struct dist_ddp *ddp, const int *came, int came_count)
{
    int at = came_count;

    for (int i = 0; i < came_count; i++)
        ddp->parameters[came[i]].ready = true;
    for (int i = 0; i < ddp->gradients; i++)
        if (!ddp->parameters[ddp->order[i]].ready)
            ddp->came[at++] = ddp->order[i];
    for (int i = 0; i < ddp->count; i++)
        ddp->parameters[i].ready = false;
}

dist_status disti_ddp_decide_order(struct dist_ddp *ddp)
{
    dist_status status;

    ddp_order_by(ddp, ddp->came, ddp->came_count);
    ddp->came_count = -1;
    status = dist_broadcast(ddp->stages[0], ddp->came, (size_t)ddp->gradients, DIST_INT32, 0);
    if (status != DIST_OK ||
        memcmp(ddp->came, ddp->order, (size_t)ddp->gradients * sizeof(*ddp->order)) == 0)
        return status;
    disti_ddp_buckets_free(ddp);
    memcpy(ddp->order, ddp->came, (size_t)ddp->gradients * sizeof(*ddp->order));
    return disti_ddp_buckets_make(ddp);
}
