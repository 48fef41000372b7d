/* SPDX-License-Identifier: BSD-3-Clause */
/* The program's own way to reduce a bucket. */
#include "base/log.h"
#include "ddp/ddp.h"

static dist_status hook_next(struct dist_ddp *ddp, struct ddp_bucket *bucket, int stage,
                             dist_work **work_p)
{
    dist_group *group = stage < ddp->stage_count ? ddp->stages[stage] : NULL;
    dist_status status =
        ddp->options.hook(ddp->options.hook_arg, group, &bucket->shape, stage, work_p);

    if (status != DIST_OK)
        return status;
    return *work_p && !group
               ? disti_fail(DIST_ERR_INVALID_ARGUMENT,
                            "the hook started an operation in stage %d: set hook_stages in the "
                            "options to %d",
                            stage, stage + 1)
               : DIST_OK;
}

const struct ddp_wire disti_wire_hook = {.name = "hook", .next = hook_next};
