/* SPDX-License-Identifier: BSD-3-Clause */
/* A short call that comes again: begun as it was the last time, without a task. */
#include "engine/state.h"

/* Is it that call, but for its buffers? */
static bool again_is(const struct engine_again *again, const struct dist_call *call)
{
    const struct dist_call *last = &again->op.call;

    return again->known && last->count == call->count && last->root == call->root &&
           last->dtype == call->dtype && last->op == call->op;
}

void disti_again_learn(struct dist_engine *engine, const struct dist_call *call,
                       const struct disti_node_op *op)
{
    struct engine_again *again = &engine->again[call->collective];

    if (again_is(again, call))
        return;
    again->known = call->waits && disti_node_can_start_again(engine->node, op);
    if (again->known)
        again->op = *op;
}

dist_status disti_engine_at_once(struct dist_engine *engine, const struct dist_call *call)
{
    struct engine_again *again = &engine->again[call->collective];
    dist_status status;

    if (engine->calls.unpolled || !again_is(again, call))
        return DIST_ERR_UNSUPPORTED;
    status = disti_node_start_again(engine->node, call, &again->op);
    if (status == DIST_ERR_UNSUPPORTED)
        return status;
    disti_mismatch_called(&engine->calls, call->sequence, again->op.fingerprint);
    engine->begun = status != DIST_OK;
    return status;
}
