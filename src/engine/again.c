/* SPDX-License-Identifier: BSD-3-Clause */
/* A short call that comes again: begun as it was the last time, without a task. */
#include "base/collective.h"
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

/* A v-form: whole, for its lists may be others; but without a task. */
__attribute__((noinline)) static dist_status
again_uneven(struct dist_engine *engine, const struct dist_call *call, struct disti_node_op *op)
{
    uint64_t fingerprint;
    dist_status status;

    if (!disti_collective_uneven(call->collective))
        return DIST_ERR_UNSUPPORTED;
    fingerprint = disti_fingerprint(call, engine->config->world_size);
    if (!disti_on_node_begin(engine, call, fingerprint, op, &status))
        return DIST_ERR_UNSUPPORTED;
    disti_mismatch_called(&engine->calls, call->sequence, fingerprint);
    engine->begun = status != DIST_OK;
    return status;
}

dist_status disti_engine_at_once(struct dist_engine *engine, const struct dist_call *call)
{
    struct engine_again *again = &engine->again[call->collective];
    dist_status status;

    if (engine->calls.unpolled)
        return DIST_ERR_UNSUPPORTED;
    if (!again_is(again, call))
        return again_uneven(engine, call, &again->op);
    status = disti_node_start_again(engine->node, call, &again->op);
    if (status == DIST_ERR_UNSUPPORTED)
        return status;
    disti_mismatch_called(&engine->calls, call->sequence, again->op.fingerprint);
    engine->begun = status != DIST_OK;
    return status;
}
