/* SPDX-License-Identifier: BSD-3-Clause */
/* Who took part in a step, and who had which gradient. */
#include "ddp.h"

#include <string.h>

#include "base/log.h"

dist_status disti_ddp_tally_start(struct dist_ddp *ddp)
{
    if (!ddp->tally)
        return DIST_OK;
    ddp->tally[0] = !ddp->joined;
    for (int i = 0; i < ddp->count; i++)
        ddp->tally[1 + i] = !ddp->joined && ddp->parameters[i].touched;
    return dist_all_reduce_async(ddp->stages[0], ddp->tally, ddp->tally, (size_t)ddp->count + 1,
                                 DIST_INT32, DIST_SUM, &ddp->tally_work);
}

dist_status disti_ddp_tally_end(struct dist_ddp *ddp)
{
    dist_work *work = ddp->tally_work;

    ddp->tally_work = NULL;
    return work ? dist_wait(work) : DIST_OK;
}

bool dist_ddp_is_used(const dist_ddp *ddp, int index)
{
    if (!dist_ddp_gradient(ddp, index))
        return false;
    return !ddp->options.find_unused || ddp->stats.steps == 0 || ddp->tally[1 + index] > 0;
}

int dist_ddp_active(const dist_ddp *ddp)
{
    if (!ddp)
        return 0;
    return ddp->options.uneven && ddp->stats.steps > 0 ? ddp->tally[0] : ddp->world;
}
