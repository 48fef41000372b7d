/* SPDX-License-Identifier: BSD-3-Clause */
/* A rank that has no more batches, while others have. */
#include "ddp.h"

#include "base/log.h"

/*
 *      rank 0   step  step  step  join              the last to come shows all: nobody
 *      rank 1   step  join..................        took part, so all have joined
 *      rank 2   step  step  join............
 *      active     3     2     1     0
 */
static dist_status ddp_shadow(struct dist_ddp *ddp, int (*step)(void *arg), void *arg)
{
    dist_status status;
    int result;

    for (;;) {
        status = disti_ddp_reduce(ddp);
        if (status != DIST_OK || ddp->tally[0] == 0)
            return status;
        result = step ? step(arg) : 0;
        if (result != 0)
            return disti_ddp_fail(ddp, disti_fail(DIST_ERR_ABORTED,
                                                  "rank %d: dist_ddp_join: the "
                                                  "program's step returned %d",
                                                  ddp->rank, result));
    }
}

dist_status dist_ddp_join(dist_ddp *ddp, int (*step)(void *arg), void *arg)
{
    dist_status status = disti_ddp_check(ddp, "dist_ddp_join");

    if (status != DIST_OK)
        return status;
    if (ddp->joined)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_join: this rank is in it: its function only updates the "
                          "parameters");
    if (!ddp->options.uneven)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_join: set uneven in the options of dist_ddp_create");
    if (ddp->local)
        return disti_fail(DIST_ERR_INVALID_ARGUMENT,
                          "dist_ddp_join: steps stay on this rank: call "
                          "dist_ddp_set_sync with true, and end the step, before");
    status = disti_ddp_check_between(ddp, "dist_ddp_join");
    if (status != DIST_OK)
        return status;
    ddp->joined = true;
    status = ddp_shadow(ddp, step, arg);
    ddp->joined = false;
    return status;
}
