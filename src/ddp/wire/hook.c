/* SPDX-License-Identifier: BSD-3-Clause */
/* The program's own way to reduce a bucket. */
#include "base/log.h"
#include "ddp/ddp.h"

/* What its status means, where it may not have said so itself. */
static dist_status hook_fail(const struct dist_ddp *ddp, const struct ddp_bucket *bucket, int stage,
                             dist_status status)
{
    if (stage >= ddp->stage_count)
        return disti_fail(status,
                          "rank %d: the hook wants to start an operation in stage %d: set "
                          "hook_stages in the options to %d",
                          ddp->rank, stage, stage + 1);
    return disti_fail(status, "rank %d: the hook returned \"%s\" for bucket %d in stage %d",
                      ddp->rank, dist_status_string(status), bucket->shape.index, stage);
}

static dist_status hook_next(struct dist_ddp *ddp, struct ddp_bucket *bucket, int stage,
                             dist_work **work_p)
{
    dist_group *group = stage < ddp->stage_count ? ddp->stages[stage] : NULL;
    const unsigned failures = disti_failures();
    dist_status status =
        ddp->options.hook(ddp->options.hook_arg, group, &bucket->shape, stage, work_p);

    if (!group && (*work_p || status != DIST_OK))
        return hook_fail(ddp, bucket, stage,
                         status == DIST_OK ? DIST_ERR_INVALID_ARGUMENT : status);
    if (status != DIST_OK && failures == disti_failures())
        return hook_fail(ddp, bucket, stage, status);
    return status;
}

const struct ddp_wire disti_wire_hook = {.name = "hook", .next = hook_next};
