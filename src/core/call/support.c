/* SPDX-License-Identifier: BSD-3-Clause */
/* What a group's backend does not do is refused here, before anything is started. */
#include "core/call/calls.h"

#include "base/collective.h"
#include "base/dtype.h"
#include "base/log.h"

static dist_status calls_support_lacks(const dist_group *group, const struct dist_call *call)
{
    const char *name = dist_collective_string(call->collective);

    if (call->root == DIST_ANY_SOURCE && (group->backend->lacks & DIST_LACKS_ANY_SOURCE))
        return disti_fail(DIST_ERR_UNSUPPORTED,
                          "rank %d, %s: backend %s does not receive from any source: name the "
                          "peer, or make a group with backend gloo for it (dist_new_group)",
                          group->rank, name, group->backend->name);
    if (call->tag && (group->backend->lacks & DIST_LACKS_TAGS))
        return disti_fail(DIST_ERR_UNSUPPORTED,
                          "rank %d, %s: backend %s has no tags: give tag 0 instead of %d, as "
                          "messages of a pair stay in order, or make a group with backend gloo "
                          "for it (dist_new_group)",
                          group->rank, name, group->backend->name, call->tag);
    return DIST_OK;
}

dist_status disti_call_support(const dist_group *group, const struct dist_call *call)
{
    const char *name = dist_collective_string(call->collective);
    bool reduces = disti_algorithm_reduces(call->collective);

    if ((!reduces || disti_op_fits(call->op, call->dtype)) &&
        group->backend->query(group->state, call->collective, call->dtype, call->op) == DIST_OK)
        return disti_collective_pair(call->collective) ? calls_support_lacks(group, call) : DIST_OK;
    if (!reduces)
        return disti_fail(DIST_ERR_UNSUPPORTED, "rank %d: backend %s has no %s for dtype %s",
                          group->rank, group->backend->name, name, dist_dtype_string(call->dtype));
    return disti_fail(DIST_ERR_UNSUPPORTED, "rank %d: backend %s has no %s for dtype %s with op %s",
                      group->rank, group->backend->name, name, dist_dtype_string(call->dtype),
                      dist_op_string(call->op));
}
